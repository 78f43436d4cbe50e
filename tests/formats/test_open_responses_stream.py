"""Streams of Open Responses are put together, whatever a host leaves out and wherever they break off."""

from __future__ import annotations

import contextlib
import copy
import json
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse, ThreadkeepError
from threadkeep.formats import get_format
from threadkeep.formats.open_responses.stream import BEGINNINGS, ENDINGS, EVENTS, PARTS, TEXTS

FORMAT = get_format("open_responses")
Json = dict[str, Any]

CREATED: Json = {
    "type": "response.created",
    "response": {"id": "resp_1", "object": "response", "status": "in_progress"},
}
SAID: Json = {
    "type": "message", "id": "msg_1", "role": "assistant", "status": "completed",
    "content": [{"type": "output_text", "text": "Hello.", "annotations": []}],
}  # fmt: skip
ENDED: Json = {
    "id": "resp_1", "object": "response", "status": "completed", "model": "gpt-5.4", "output": [SAID],
    "usage": {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3},
}  # fmt: skip


def event(name: str, **keys: Any) -> Json:
    """An event of the first item."""
    return {"type": f"response.{name}", "output_index": 0, "item_id": "x_1", **keys}


def added(item: Json, place: int = 0) -> Json:
    return {"type": "response.output_item.added", "output_index": place, "item": {"id": "x_1", **item}}


def fed(*events: Any) -> Any:
    """An assembler that took these events."""
    made = FORMAT.assembler()
    for one in events:
        made.feed(one)
    return made


def items(*events: Any) -> list[Json]:
    """The items of a stream that broke off, without their ids."""
    output: list[Json] = fed(CREATED, *events).body["output"]
    return [{key: value for key, value in item.items() if key != "id"} for item in output]


def test_the_response_of_the_last_event_is_the_body() -> None:
    made = fed(CREATED, event("output_text.delta", content_index=0, delta="Hel"), event("completed", response=ENDED))
    assert made.response == FORMAT.parse_response(ENDED)
    assert made.body == ENDED


@pytest.mark.parametrize("ending", ["completed", "incomplete", "failed", "cancelled"])
def test_every_ending_says_its_status(ending: str) -> None:
    body = {"id": "resp_1", "output": [SAID], "error": {"code": "server_error"} if ending == "failed" else None}
    assert fed(CREATED, event(ending, response=body)).response.status == ending
    assert fed(CREATED, event(ending)).response.status == ending


@pytest.mark.parametrize("left_out", [{"output": []}, {"output": None}, {}])
def test_an_output_that_the_last_event_leaves_out_is_what_was_streamed(left_out: Json) -> None:
    body = {key: value for key, value in ENDED.items() if key != "output"} | left_out
    made = fed(CREATED, event("output_item.done", item=SAID), event("completed", response=body))
    assert made.response.text == "Hello."
    assert made.response.usage.total_tokens == 3


def grown(name: str, *deltas: str, place: str = "content_index") -> list[Json]:
    """Events of deltas."""
    return [event(f"{name}.delta", **{place: 0}, delta=delta) for delta in deltas]


def message(*parts: Json) -> Json:
    return {"type": "message", "role": "assistant", "content": list(parts)}


def thought(*texts: str, **keys: Any) -> Json:
    """A reasoning item with summaries."""
    return {"type": "reasoning", "summary": [{"type": "summary_text", "text": text} for text in texts], **keys}


HM = {"type": "reasoning_text", "text": "hm"}
NO_SUMMARY = {"type": "summary_text", "text": ""}
# what grows -> events of one item, and the item that they make
GROWING: dict[str, tuple[list[Json], Json]] = {
    "text": (grown("output_text", "Hel", "lo"), message({"type": "output_text", "text": "Hello"})),
    "refusal": (
        [*grown("refusal", "N"), event("refusal.done", content_index=0, refusal="No.")],
        message({"type": "refusal", "refusal": "No."}),
    ),
    "reasoning": (grown("reasoning_text", "h", "m"), thought(content=[HM])),
    "reasoning of other hosts": (
        [*grown("reasoning", "h"), event("reasoning.done", content_index=0, text="hm")],
        thought(content=[HM]),
    ),
    "summaries": (
        [
            event("reasoning_summary_part.added", summary_index=0, part=NO_SUMMARY),
            event("reasoning_summary_text.delta", summary_index=0, delta="One"),
            event("reasoning_summary_part.added", summary_index=1, part=NO_SUMMARY),
            event("reasoning_summary_text.delta", summary_index=1, delta="Two"),
            event("reasoning_summary_text.delta", summary_index=0, delta="!"),
        ],
        thought("One!", "Two"),
    ),
    "arguments": (
        [
            added({"type": "function_call", "call_id": "c", "name": "f", "arguments": "", "status": "in_progress"}),
            *grown("function_call_arguments", '{"a"', ":1}"),
        ],
        {"type": "function_call", "call_id": "c", "name": "f", "arguments": '{"a":1}', "status": "in_progress"},
    ),
    "arguments of a server": (
        [added({"type": "mcp_call", "name": "f"}), event("mcp_call_arguments.done", arguments="{}")],
        {"type": "mcp_call", "name": "f", "arguments": "{}"},
    ),
    "input": (grown("custom_tool_call_input", "select", " 1"), {"type": "custom_tool_call", "input": "select 1"}),
    "code": (
        [
            added({"type": "code_interpreter_call", "code": None, "status": "in_progress"}),
            *grown("code_interpreter_call_code", "1+1"),
            event("code_interpreter_call.interpreting"),
        ],
        {"type": "code_interpreter_call", "code": "1+1", "status": "interpreting"},
    ),
    "picture": (
        [
            added({"type": "image_generation_call", "status": "in_progress", "result": None}),
            event("image_generation_call.generating"),
            event("image_generation_call.partial_image", partial_image_b64="aW1n", partial_image_index=0, size="1x1"),
        ],
        {"type": "image_generation_call", "status": "generating", "result": "aW1n", "size": "1x1"},
    ),
    "status": (
        [added({"type": "web_search_call", "status": "in_progress"}), event("web_search_call.searching")],
        {"type": "web_search_call", "status": "searching"},
    ),
    "no status": ([added({"type": "mcp_list_tools"}), event("mcp_list_tools.completed")], {"type": "mcp_list_tools"}),
    "commands": (
        [
            event("shell_call_command.added", command_index=0, command=""),
            event("shell_call_command.delta", command_index=0, delta="ls"),
            event("shell_call_command.added", command_index=1, command="pw"),
            event("shell_call_command.done", command_index=1, command="pwd"),
        ],
        {"type": "shell_call", "action": {"commands": ["ls", "pwd"]}},
    ),
    "command outputs": (
        [
            event("shell_call_output_content.delta", command_index=0, delta={"stdout": "a"}),
            event("shell_call_output_content.delta", command_index=0, delta={"stdout": "b", "stderr": "c"}),
            event("shell_call_output_content.done", command_index=1, output=[{"stdout": "d", "stderr": ""}]),
        ],
        {"type": "shell_call_output", "output": [{"stdout": "ab", "stderr": "c"}, {"stdout": "d", "stderr": ""}]},
    ),
    "annotations and likelihoods": (
        [
            event("content_part.added", content_index=0, part={"type": "output_text", "text": "", "annotations": []}),
            event("output_text.delta", content_index=0, delta="A", logprobs=[{"token": "A"}]),
            event("output_text.annotation.added", content_index=0, annotation_index=0, annotation={"type": "x"}),
            event("output_text.delta", content_index=0, delta="B", logprobs=[{"token": "B"}]),
        ],
        message(
            {"type": "output_text", "text": "AB"}
            | {"annotations": [{"type": "x"}], "logprobs": [{"token": "A"}, {"token": "B"}]}
        ),
    ),
}


@pytest.mark.parametrize("what", GROWING)
def test_items_grow(what: str) -> None:
    events, item = GROWING[what]
    assert items(*events) == [item]


def test_every_text_and_part_has_events() -> None:
    assert TEXTS.keys() | PARTS.keys() <= EVENTS.keys()
    assert BEGINNINGS.isdisjoint(ENDINGS)


def test_places_may_be_left_out() -> None:
    bare = [{"type": "response.output_text.delta", "delta": delta} for delta in ("Hel", "lo")]
    call = {"type": "response.function_call_arguments.delta", "delta": "{}"}
    said = message({"type": "output_text", "text": "Hello"})
    assert items(*bare, call, *bare) == [said, {"type": "function_call", "arguments": "{}"}, said]


def test_places_may_count_from_one() -> None:
    part = event("content_part.added", content_index=1, part={"type": "output_text", "text": ""})
    deltas = [event("output_text.delta", content_index=1, delta=delta) for delta in ("Hel", "lo")]
    assert items(part, *deltas)[0]["content"] == [{"type": "output_text", "text": "Hello"}]


def test_items_stand_in_the_order_of_their_places() -> None:
    types = [item["type"] for item in items(added({"type": "message"}, 1), added({"type": "reasoning", "id": "r"}, 0))]
    assert types == ["reasoning", "message"]


def test_items_that_share_a_place_are_told_apart_by_their_ids() -> None:
    first, second = {**SAID, "id": "msg_1"}, {**SAID, "id": "msg_2"}
    found = items(
        added(first), event("output_item.done", item=first), added(second), event("output_item.done", item=second)
    )
    assert len(found) == 2


def test_an_item_that_comes_whole_takes_the_place_of_its_deltas() -> None:
    delta = event("output_text.delta", content_index=0, delta="Hel", item_id="msg_0")
    assert items(delta, event("output_item.done", item=SAID)) == [{key: SAID[key] for key in SAID if key != "id"}]
    hollow = {**SAID, "content": []}
    assert items(delta, event("output_item.done", item=hollow))[0]["content"][0]["text"] == "Hel"


def test_a_stream_that_breaks_off_is_incomplete_and_can_be_gone_on_from() -> None:
    call = added({"type": "function_call", "call_id": "c", "name": "f", "arguments": ""}, 1)
    made = fed(
        CREATED,
        event("output_text.delta", content_index=0, delta="Let me"),
        {**call, "item": {**call["item"], "id": "fc_1"}},
    )
    made.feed({"type": "response.function_call_arguments.delta", "item_id": "fc_1", "output_index": 1, "delta": '{"q'})
    assert made.partial.status == "in_progress"
    assert (made.response.status, made.response.incomplete_details) == ("incomplete", {"reason": "stream_ended"})
    session = Session(model="gpt-5.4", input="Hi")
    session.add_response(made.response)
    rendered = FORMAT.render(session)
    assert [item["type"] for item in rendered.payload["input"]][1:] == [
        "message",
        "function_call",
        "function_call_output",
    ]
    assert {repair.code for repair in rendered.repairs} == {"malformed_arguments", "missing_output"}


@pytest.mark.parametrize(
    "error",
    [
        {"type": "error", "code": "server_error", "message": "Broken.", "param": None, "sequence_number": 3},
        {"type": "error", "error": {"code": "server_error", "message": "Broken."}},
        {"error": {"code": "server_error", "message": "Broken."}},
    ],
)
def test_an_error_fails_the_response_and_keeps_what_came(error: Json) -> None:
    made = fed(CREATED, event("output_text.delta", content_index=0, delta="Hel"), error)
    assert made.response.status == "failed"
    assert made.response.error == {"code": "server_error", "message": "Broken."}
    assert made.response.text == "Hel"


def test_nothing_that_came_is_an_incomplete_response_without_output() -> None:
    for made in (fed(), fed({"type": "keepalive"}), fed(CREATED)):
        assert (made.response.status, made.response.output) == ("incomplete", [])


def test_events_are_given_as_text_or_objects_too() -> None:
    made = fed(json.dumps(CREATED), json.dumps(event("completed", response=ENDED)).encode())
    assert made.response.text == "Hello."
    with pytest.raises(CannotParse):
        made.feed([CREATED])


def test_partial_states_show_what_has_come_so_far() -> None:
    made = fed(CREATED)
    shown = []
    for delta in ("Hel", "lo", "."):
        made.feed(event("output_text.delta", content_index=0, delta=delta))
        shown.append(made.partial.text)
    assert shown == ["Hel", "Hello", "Hello."]


# Any events

NAMES = st.sampled_from(
    [
        *(f"response.{about}.{step}" for about in EVENTS for step in ("added", "delta", "done", "partial_image")),
        *(f"response.{step}" for step in [*BEGINNINGS, *ENDINGS]),
        "response.web_search_call.searching",
        "error",
    ]
)
ODD = st.one_of(st.sampled_from([0, 1, "x_1", "a", None, -1, 10**12, True]), JSON)
ITEM = st.fixed_dictionaries(
    {"type": st.one_of(st.sampled_from([row.item for row in TEXTS.values()]), ODD)},
    optional=dict.fromkeys(("id", "content", "summary", "action", "arguments", "status", "role", "output"), ODD),
)
PART = st.fixed_dictionaries({"type": ODD}, optional={"text": ODD, "annotations": ODD, "logprobs": ODD})
ODD_KEYS = (
    "output_index", "item_id", "content_index", "summary_index", "command_index", "text", "arguments", "annotation",
    "annotation_index", "logprobs", "command", "output", "error",
)  # fmt: skip
STREAM = st.lists(
    st.fixed_dictionaries(
        {"type": NAMES},
        optional={
            "item": st.one_of(ITEM, ODD),
            "part": st.one_of(PART, ODD),
            "response": st.one_of(st.fixed_dictionaries({"output": st.lists(ITEM, max_size=2)}), ODD),
            "delta": st.one_of(st.just("ab"), st.fixed_dictionaries({"stdout": ODD}), ODD),
            **dict.fromkeys(ODD_KEYS, ODD),
        },
    ),
    max_size=12,
)


@given(events=st.one_of(STREAM, st.lists(JSON, max_size=3)))
def test_any_events_are_taken_or_refused_and_never_changed(events: list[Any]) -> None:
    before = repr(events)
    made = FORMAT.assembler()
    with contextlib.suppress(ThreadkeepError):
        for one in events:
            made.feed(one)
            assert isinstance(made.partial, Response)
    with contextlib.suppress(ThreadkeepError):
        assert isinstance(made.response, Response)
    assert repr(events) == before


@example(
    events=[
        {"type": "response.function_call_arguments.delta", "output_index": 1, "delta": "ab"},
        {"type": "response.output_text.annotation.added", "output_index": 1},
    ]
)
@given(events=STREAM)
def test_what_was_assembled_does_not_depend_on_how_often_it_was_looked_at(events: list[Any]) -> None:
    often, once = FORMAT.assembler(), FORMAT.assembler()
    with contextlib.suppress(ThreadkeepError):
        for one in copy.deepcopy(events):
            often.feed(one)
            assert often.body
        for one in events:
            once.feed(one)
        assert repr(often.body) == repr(once.body)
