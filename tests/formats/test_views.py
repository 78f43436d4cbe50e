"""Views: what part of a conversation a request shows, whatever the format."""

from __future__ import annotations

from typing import Any

import pytest

from threadkeep import Session, Turns
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import InvalidOption
from threadkeep.formats import NAMES, FormatName
from threadkeep.formats.canonical.entries import snapshot_of
from threadkeep.formats.shared.views import NO_PICTURE, SUMMARY, view_of, windowed

PIXEL = "data:image/png;base64,iVBORw0KGgo="
NOW = {"time": "12:00"}


def said(count: int, **options: Any) -> Session:
    """A session of so many turns of question and answer."""
    session = Session(model="m", **options)
    for number in range(count):
        session.user(f"question {number}")
        session.add_item({"type": "message", "role": "assistant", "content": f"answer {number}"}, turn=number)
    return session


def with_tools() -> Session:
    """A tool loop, whose output is the last item."""
    session = said(1, tools=[{"name": "f", "parameters": {"type": "object", "properties": {}}}])
    session.user("run it")
    session.add_item({"type": "reasoning", "summary": [], "encrypted_content": "x"}, turn=9)
    session.add_item({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}, turn=9)
    session.add_function_call_output("c1", "done")
    return session


def texts(session: Session, **options: Any) -> list[str]:
    """What the entries of a view say, in order."""
    view = view_of(snapshot_of(session), RenderOptions(**options), "open_responses")
    found = []
    for entry in view.entries:
        item = entry.item()
        parts = item.get("content") or item.get("output") or []
        found.append(parts if isinstance(parts, str) else " ".join(p.get("text", "") for p in parts) or item["type"])
    return found


def test_a_window_shows_the_last_turns_and_moves_in_steps() -> None:
    for count in range(1, 30):
        found = texts(said(count), window=Turns(5, step=4))
        turns = len(found) // 2
        assert turns == count if count < 9 else 5 <= turns < 9
        assert found[-1] == f"answer {count - 1}"
        assert int(found[0].split()[1]) % 4 == 0


def test_system_messages_before_the_window_stay() -> None:
    session = Session(model="m", system="be kind")
    for number in range(4):
        session.user(f"question {number}")
        session.assistant(f"answer {number}")
    assert texts(session, window=Turns(1)) == ["be kind", "question 3", "answer 3"]


def test_a_window_splits_no_call_from_its_output() -> None:
    session = said(3)
    session.add_item({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"}, turn=7)
    session.user("meanwhile")
    session.add_function_call_output("c1", "done")
    entries = snapshot_of(session).entries
    assert [entry.position for entry in windowed(entries, Turns(1))] == [4, 5, 6, 7, 8]


def test_pictures_become_a_note_in_their_place() -> None:
    session = Session(model="m")
    session.user([{"type": "input_text", "text": "look"}, {"type": "input_image", "url": PIXEL}])
    assert texts(session, vision=False) == [f"look {NO_PICTURE}"]


def test_pictures_in_tool_outputs_become_a_note_too() -> None:
    session = with_tools()
    session.add_item({"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"}, turn=10)
    session.add_function_call_output("c2", [{"type": "input_image", "url": PIXEL}])
    assert texts(session, vision=False)[-1] == NO_PICTURE


def test_reasoning_is_left_out() -> None:
    assert "reasoning" in texts(with_tools())
    assert "reasoning" not in texts(with_tools(), reasoning=False)


def test_the_dynamic_context_comes_before_the_history() -> None:
    assert texts(said(1), dynamic_context=NOW) == ['{"time":"12:00"}', "question 0", "answer 0"]


def test_at_the_tail_it_comes_right_before_what_is_to_be_answered() -> None:
    session = said(1)
    session.user("and now?")
    found = texts(session, dynamic_context=NOW, dynamic_context_at="tail")
    assert found == ["question 0", "answer 0", '{"time":"12:00"}', "and now?"]


def test_a_tool_output_at_the_end_is_what_is_to_be_answered() -> None:
    found = texts(with_tools(), dynamic_context=NOW, dynamic_context_at="tail")
    assert found[2:] == ["run it", '{"time":"12:00"}', "reasoning", "function_call", "done"]


def test_a_late_output_takes_it_to_no_earlier_place() -> None:
    session = with_tools()
    session.add_item({"type": "function_call", "call_id": "c2", "name": "f", "arguments": "{}"}, turn=10)
    session.user("never mind")
    before = texts(session)
    session.add_function_call_output("c2", "late")
    assert texts(session, dynamic_context=NOW, dynamic_context_at="tail") == [*before, '{"time":"12:00"}', "late"]


@pytest.mark.parametrize("format_name", NAMES)
def test_nothing_from_the_dynamic_context_on_is_stable(format_name: FormatName) -> None:
    session = said(3)
    session.user("and now?")
    plain = session.render(format_name)
    front = session.render(format_name, dynamic_context=NOW)
    tail = session.render(format_name, dynamic_context=NOW, dynamic_context_at="tail")
    other = session.render(format_name, dynamic_context={"time": "13:00"}, dynamic_context_at="tail")
    assert front.stable <= 1 < tail.stable <= plain.stable
    turns = next(reversed(tail.payload))
    assert tail.payload[turns][: tail.stable] == other.payload[turns][: tail.stable]
    assert all("12:00" in str(rendered.payload) for rendered in (front, tail))
    assert "and now?" in str(tail.payload[turns][-1])


@pytest.mark.parametrize("format_name", NAMES)
def test_views_are_recorded_and_read_back(format_name: FormatName) -> None:
    options = RenderOptions(window=Turns(3, step=2), vision=False, dynamic_context=NOW, upto=4, server_state="none")
    assert RenderOptions.recorded(options.view(format_name)) == options
    assert RenderOptions().view(format_name) == {"format": format_name}


def compacted(count: int, upto: int, **item: Any) -> Session:
    session = said(count)
    session.add_item({"type": "compaction", "upto": upto, **item})
    return session


@pytest.mark.parametrize("format_name", NAMES)
def test_a_summary_stands_for_what_it_covers(format_name: FormatName) -> None:
    session = compacted(3, 3, summary="They talked.")
    session.user("go on")
    assert texts(session)[0] == f"{SUMMARY}\n\nThey talked."
    rendered = session.render(format_name)
    assert "They talked." in str(rendered.payload)
    assert "question 0" not in str(rendered.payload)
    assert "question 2" in str(rendered.payload)
    assert not rendered.losses


@pytest.mark.parametrize("format_name", NAMES)
def test_a_summary_that_was_undone_does_not_count(format_name: FormatName) -> None:
    session = compacted(3, 3, summary="They talked.")
    session.add_item({"type": "compaction_undone", "compaction": 6})
    session.user("go on")
    assert "question 0" in str(session.render(format_name).payload)
    assert session.render(format_name).losses == []


def test_a_window_keeps_the_summary_of_what_it_cannot_show() -> None:
    session = compacted(5, 3, summary="They talked.")
    found = texts(session, window=Turns(1))
    assert found == [f"{SUMMARY}\n\nThey talked.", "question 4", "answer 4"]


def test_the_last_of_several_compactions_counts() -> None:
    session = compacted(3, 3, summary="first")
    session.user("more")
    session.add_item({"type": "compaction", "upto": 7, "summary": "second"})
    assert texts(session) == [f"{SUMMARY}\n\nsecond"]
    session.add_item({"type": "compaction_undone", "compaction": 8})
    assert texts(session)[0] == f"{SUMMARY}\n\nfirst"


def test_a_compaction_of_a_provider_counts_for_its_own_format() -> None:
    session = said(2)
    session.add_item({"type": "compaction", "encrypted_content": "e", "origin": "open_responses"}, turn=7)
    session.user("go on")
    sent = session.request_payload("open_responses")["input"]
    assert [item["type"] for item in sent] == ["compaction", "message"]
    assert "question 0" in str(session.request_payload("chat_completion"))


@pytest.mark.parametrize(
    "options",
    [
        {"window": 3},
        {"vision": "no"},
        {"cache": "always"},
        {"dynamic_context": "now"},
        {"dynamic_context_at": "middle"},
        {"dialect": 1},
    ],
)
def test_other_values_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match=next(iter(options))):
        Session(model="m", input="x").render("open_responses", **options)


@pytest.mark.parametrize(("count", "step"), [(0, 1), (1, 0), (True, 1), (1.5, 1)])
def test_a_window_is_of_whole_turns(count: Any, step: Any) -> None:
    with pytest.raises(InvalidOption, match="whole number"):
        Turns(count, step)
