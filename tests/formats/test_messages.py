"""Requests of the Messages API, beyond the vectors: turns, results, thinking, system text."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.factories import answer, assistant, call, codes, output, reasoning, render, snapshot, user
from tests.formats.messages_factories import (
    FORMAT,
    MODEL,
    REDACTED,
    SIGNED,
    merged,
    own,
    rendered,
    sent,
    shape,
    thought,
)
from threadkeep.domain.call_kinds import MISSING_OUTPUT
from threadkeep.domain.jsontext import dumps
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import CannotRender, ItemRefused, LossError
from threadkeep.formats import get_format
from threadkeep.formats.messages.turns import cleaned_id

SEARCH = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}


# Results


def test_results_stand_behind_their_calls_and_before_what_was_said() -> None:
    found = rendered(user("Go"), call("a"), call("b"), output("b"), user("wait"), output("a"))
    assert shape(found.payload["messages"]) == ["user Go", "assistant a b", "user b a wait"]
    assert codes(found) == ([], ["moved_output"])


def test_an_unanswered_call_gets_a_result_that_says_so_and_is_not_stable() -> None:
    found = rendered(user("Go"), own(assistant("Looking."), call("a"), call("b")), output("b"))
    assert shape(found.payload["messages"]) == ["user Go", "assistant Looking. a b", "user b a"]
    assert found.payload["messages"][2]["content"][1]["content"] == MISSING_OUTPUT
    assert codes(found) == ([], ["missing_output"])
    assert found.stable == 1


def test_a_result_that_comes_after_its_placeholder_was_sent_is_told_at_its_own_place() -> None:
    found = rendered(user("Go"), own(call("a")), user("And?"), own(assistant("Well.")), output("a", "late"))
    assert shape(found.payload["messages"])[:4] == ["user Go", "assistant a", "user a And?", "assistant Well."]
    assert [block["text"] for block in found.payload["messages"][4]["content"]][1] == "late"
    assert codes(found) == ([], ["missing_output", "late_output"])


def test_calls_of_one_response_never_join_those_of_another() -> None:
    messages = sent(user("Go"), own(call("a")), own(call("b"), seen=0), output("a"), output("b"))
    assert shape(messages) == ["user Go", "assistant a", "user a", "assistant b", "user b"]


def test_calls_that_an_answer_has_seen_are_closed_though_nothing_of_it_is_sent() -> None:
    found = snapshot(user("Go"), call("a"), answer(reasoning()), call("b"), model=MODEL)
    messages = get_format(FORMAT).render(found).payload["messages"]
    assert shape(messages) == ["user Go", "assistant a", "user a", "assistant b", "user b"]


def test_orphans_are_left_out() -> None:
    assert codes(rendered(user("Hi"), output("a"))) == (["orphan_output"], [])


def test_an_output_of_a_call_that_cannot_be_sent_is_left_out() -> None:
    custom = {"type": "custom", "id": "z", "custom": {"name": "sql", "input": "x"}}
    block = {"type": "provider_item", "format": "chat_completion", "payload": custom}
    found = rendered(user("Hi"), answer(block, origin="chat_completion"), output("z"))
    assert codes(found) == (["provider_item", "orphan_output"], [])


def test_a_custom_tool_is_called_with_its_text_in_an_object() -> None:
    items = [
        {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
    ]
    messages = sent(user("Go"), *items)
    assert messages[1]["content"][0]["input"] == {"input": "select 1"}
    assert messages[2]["content"] == [{"type": "tool_result", "tool_use_id": "c", "content": "1"}]


@pytest.mark.parametrize(
    ("given", "content"),
    [
        ("", None),
        (None, None),
        ([], None),
        ([{"type": "input_text", "text": ""}], None),
        ("plain", "plain"),
        (
            [{"type": "input_text", "text": "a", "cache_control": {"type": "ephemeral"}}],
            [{"type": "text", "text": "a"}],
        ),
        (
            [{"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0="}],
            [{"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}}],
        ),
        (
            [{"type": "input_video", "video_url": "https://v.example.org/a.mp4"}],
            [{"type": "text", "text": "[video not included: https://v.example.org/a.mp4]"}],
        ),
    ],
)
def test_a_result_without_content_has_no_content_key(given: Any, content: Any) -> None:
    result = sent(user("Go"), call("a"), output("a", given))[2]["content"][0]
    assert result.get("content") == content


# Ids and arguments


@pytest.mark.parametrize(
    ("original", "cleaned"),
    [("call:a/1", "call_a_1"), ("", "tool_0"), ("   ", "___"), ("ok-1_A", "ok-1_A"), ("x" * 150, "x" * 128)],
)
def test_ids_are_cleaned(original: str, cleaned: str) -> None:
    assert cleaned_id(original) == cleaned


def test_cleaned_ids_are_unique_within_a_turn_and_may_come_again_later() -> None:
    found = rendered(
        user("Go"), call("a b"), call("a/b"), output("a/b", "2"), output("a b", "1"), call("a b"), output("a b")
    )
    first, second = [block["id"] for block in found.payload["messages"][1]["content"]]
    assert first == "a_b"
    assert second.startswith("toolu_")
    results = {block["tool_use_id"]: block["content"] for block in found.payload["messages"][2]["content"]}
    assert results == {first: "1", second: "2"}
    assert found.payload["messages"][3]["content"][0]["id"] == "a_b"
    assert codes(found) == ([], ["call_id", "duplicate_call_id", "call_id"])


@pytest.mark.parametrize(
    ("arguments", "sent_input", "repairs"),
    [
        ('{"n":1}', {"n": 1}, []),
        ("", {}, ["malformed_arguments"]),
        ('{"n":', {}, ["malformed_arguments"]),
        ("[1]", {}, ["malformed_arguments"]),
        ('{"n":123456789012345678901234567890}', {"n": 123456789012345678901234567890}, []),
    ],
)
def test_the_input_of_a_call_is_an_object(arguments: str, sent_input: Any, repairs: list[str]) -> None:
    found = rendered(user("Go"), call("a", arguments=arguments), output("a"))
    assert found.payload["messages"][1]["content"][0]["input"] == sent_input
    assert codes(found) == ([], repairs)
    assert dumps(found.payload) == found.body


def test_malformed_arguments_are_refused_where_the_request_must_be_exact() -> None:
    with pytest.raises(ItemRefused):
        rendered(user("Go"), call("a", arguments="{"), output("a"), options=RenderOptions(strict=True))


# Turns


def test_thinking_of_another_turn_is_left_out_where_messages_are_joined() -> None:
    found = rendered(user("Go"), own(thought(), assistant("One.")), own(thought(), assistant("Two.")))
    assert shape(found.payload["messages"]) == ["user Go", "assistant thinking One. Two."]
    assert codes(found) == (["reasoning"], [])


def test_thinking_stays_with_its_call() -> None:
    messages = sent(user("Go"), own(assistant("One.")), own(thought(), call("a")), output("a"))
    assert shape(messages) == ["user Go", "assistant One. thinking a", "user a"]


def test_all_thinking_of_one_response_stays() -> None:
    items = own(thought(), call("a"), thought(REDACTED), assistant("Two."))
    assert shape(sent(user("Go"), items, output("a")))[1] == "assistant thinking a redacted_thinking Two."


def test_thinking_of_other_providers_is_reported() -> None:
    foreign = answer(thought(), assistant("Yes."), origin="converse")
    assert codes(rendered(user("Hi"), foreign, reasoning())) == (["reasoning", "reasoning"], [])


def test_thinking_goes_back_unsigned_to_others_than_claude_unless_its_stream_broke_off() -> None:
    unsigned = {"type": "thinking", "thinking": "hm", "signature": None}
    items = user("Hi"), own(thought(unsigned), assistant("Yes."))
    assert sent(*items, model="glm-4.7")[1]["content"][0] == {"type": "thinking", "thinking": "hm"}
    assert codes(rendered(*items)) == (["reasoning"], [])
    broken_off = own(thought(unsigned, status="incomplete"))
    assert codes(rendered(user("Hi"), broken_off, model="glm-4.7")) == (["reasoning"], [])


def test_thinking_with_a_budget_is_left_out_when_the_last_call_lost_its_own() -> None:
    items = [user("Go"), answer(call("a"), origin="chat_completion"), output("a")]
    found = rendered(*items, reasoning={"budget_tokens": 2000})
    assert "thinking" not in found.payload
    assert codes(found) == ([], ["option"])
    assert (
        "thinking"
        in rendered(user("Go"), own(thought(), call("a")), output("a"), reasoning={"budget_tokens": 2000}).payload
    )


def test_a_leading_assistant_gets_a_user_turn_before_it() -> None:
    found = rendered(assistant("Hello."), user("Hi"))
    assert shape(found.payload["messages"]) == ["user ...", "assistant Hello.", "user Hi"]
    assert codes(found) == ([], ["leading_assistant"])
    with pytest.raises(LossError):
        rendered(assistant("Hello."), options=RenderOptions(strict=True))


def test_blank_text_is_left_out_only_where_it_is_refused() -> None:
    found = rendered(user("Hi"), assistant("Yes."), user(" "), assistant(" "), user("", " ", "Go"))
    assert [[block["text"] for block in message["content"]] for message in found.payload["messages"]] == [
        ["Hi"], ["Yes."], [" ", "Go"],
    ]  # fmt: skip
    assert set(codes(found)[1]) == {"blank_text"}


def test_a_user_who_said_nothing_is_sent_as_dots() -> None:
    assert shape(sent(user(""))) == ["user ..."]
    with pytest.raises(CannotRender):
        rendered(instructions="Be brief.")


def test_white_space_at_the_end_of_a_last_assistant_message_is_left_out() -> None:
    found = rendered(user("Hi"), assistant("The city of "))
    assert shape(found.payload["messages"]) == ["user Hi", "assistant The city of"]
    assert codes(found) == ([], ["trailing_space"])
    assert sent(user("Hi"), assistant("The city of "), user("?"))[1]["content"][0]["text"] == "The city of "


def test_empty_texts_of_an_answer_are_not_sent_back() -> None:
    found = rendered(user("Hi"), own(assistant(""), call("a")), output("a"))
    assert shape(found.payload["messages"]) == ["user Hi", "assistant a", "user a"]
    assert codes(found) == ([], ["blank_text"])


def test_a_last_message_is_not_stable() -> None:
    assert rendered(user("Hi")).stable == 0
    assert rendered(user("Hi"), assistant("Yes."), user("?")).stable == 2
    assert rendered(user("Hi"), user("Be brief.", role="system"), model="claude-opus-4-8").stable == 0


# System text


def test_instructions_lead_and_system_items_follow_wherever_they_stand() -> None:
    found = rendered(user("Hi"), assistant("Yes."), user("In French.", role="developer"), instructions="Be brief.")
    assert [block["text"] for block in found.payload["system"]] == ["Be brief.", "In French."]
    assert list(found.payload)[-1] == "messages"


def test_models_that_take_it_get_system_text_inside_the_history_in_the_right_company() -> None:
    settings = {"model": "claude-opus-4-8"}
    inner = [user("Hi"), user("In French.", role="system")]
    assert shape(sent(*inner, **settings)) == ["user Hi", "system In French."]
    assert shape(sent(*inner, assistant("Oui."), **settings)) == [
        "user Hi", "system In French.", "assistant Oui.", "user ...",
    ]  # fmt: skip
    hoisted = rendered(*inner, user("And?"), **settings)
    assert shape(hoisted.payload["messages"]) == ["user Hi And?"]
    assert hoisted.payload["system"] == [{"type": "text", "text": "In French."}]


def test_only_text_stands_in_the_system_text() -> None:
    upload = {"type": "provider_item", "format": FORMAT, "payload": {"type": "tool_addition", "tool": {}}}
    found = rendered(user(upload, "Be brief.", role="system"), user("Hi"))
    assert found.payload["system"] == [{"type": "text", "text": "Be brief."}]
    assert codes(found) == (["provider_item"], [])


# Blocks of this format, and of others


def test_blocks_of_this_format_stand_at_their_place_and_are_losses_elsewhere() -> None:
    block = {"type": "provider_item", "format": FORMAT, "payload": SEARCH}
    items = [user("Go"), own(assistant("Searching.", block, "Found."), block)]
    assert shape(sent(*items))[1] == "assistant Searching. srvtoolu_1 Found. srvtoolu_1"
    assert codes(render("chat_completion", *items)) == (["provider_item", "provider_item"], [])


def test_blocks_in_the_wrong_message_are_left_out() -> None:
    block = {"type": "provider_item", "format": FORMAT, "payload": SEARCH}
    assert codes(rendered(user("Go", block))) == (["provider_item"], [])
    upload = {"type": "provider_item", "format": FORMAT, "payload": {"type": "container_upload", "file_id": "f"}}
    assert shape(sent(user("Go"), upload)) == ["user Go container_upload"]


def test_items_and_roles_without_a_form_are_reported() -> None:
    compaction = {"type": "compaction", "encrypted_content": "packed"}
    found = rendered(user("Hi"), user("Well.", role="critic"), compaction)
    assert shape(found.payload["messages"]) == ["user Hi Well."]
    assert codes(found) == (["item"], ["role"])


# The pure pass (what the smaller reference systems call the merge of roles)


def text(value: str) -> dict[str, Any]:
    return {"type": "text", "text": value}


@pytest.mark.parametrize(
    ("messages", "expected"),
    [
        ([], []),
        ([("user", "a"), ("assistant", "b")], [("user", "a"), ("assistant", "b")]),
        ([("user", "a"), ("user", "b"), ("user", "c")], [("user", [text("a"), text("b"), text("c")])]),
        ([("user", None), ("user", [text("b")])], [("user", [text("b")])]),
        (
            [("assistant", [SIGNED, text("x")]), ("assistant", [SIGNED, REDACTED, text("y")])],
            [("assistant", [SIGNED, text("x"), text("y")])],
        ),
        ([("assistant", [text("x")]), ("assistant", [SIGNED])], [("assistant", [text("x")])]),
        ([("user", [text("a")]), ("user", [SIGNED])], [("user", [text("a"), SIGNED])]),
    ],
)
def test_neighbours_of_one_role_are_joined(messages: list[tuple[str, Any]], expected: list[tuple[str, Any]]) -> None:
    given = [{"role": role, "content": content} for role, content in messages]
    before = dumps(given)
    assert [(message["role"], message["content"]) for message in merged(given)] == expected
    assert dumps(given) == before


def test_cache_marks_stand_on_messages_calls_and_outputs() -> None:
    mark = {"type": "ephemeral"}
    items = [user("a", "b", cache_control=mark), call(cache_control=mark), output(cache_control=mark)]
    said, called, answered = render("messages", *items).payload["messages"]
    assert [block.get("cache_control") for block in said["content"]] == [None, mark]
    assert [block["cache_control"] for block in (*called["content"], *answered["content"])] == [mark, mark]
