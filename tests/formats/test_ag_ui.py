"""Threads of AG-UI: equal after store and render, served to providers, and valid whatever they are made of."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest

from tests.formats import agui_samples as samples
from tests.formats.judges import faults
from tests.formats.sdk_schema import choices, schema
from tests.formats.sdk_values import Maker
from tests.formats.test_ui_messages import ANSWERS
from threadkeep import CannotParse, Response, Session, Store
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.ag_ui.stream import patched
from threadkeep.formats.ag_ui.writing import RunWriter
from threadkeep.server import answer_events
from threadkeep.server.objects import partial_item

Json = dict[str, Any]
NAME: FormatName = "ag_ui"
WIRE = get_format(NAME)
THREADS = {
    **samples.THREADS,
    **{f"strange {number}": [samples.user(id="u0"), one] for number, one in enumerate(samples.STRANGE)},
    **{
        f"type {number}": [samples.user(id="u0"), sample.value]
        for number, sample in enumerate(Maker(schema("ag_ui.message")).variants(schema("ag_ui.message")))
    },
}


def test_there_are_values_of_every_type() -> None:
    assert len(THREADS) > 50
    assert len(choices(schema("ag_ui.message"))) == 7


def test_threads_come_back_equal_from_a_session_and_from_a_store() -> None:
    with Store("sqlite://") as store:
        for name, messages in THREADS.items():
            body = {
                "threadId": "t", "runId": "r", "state": {"a": [None]}, "context": [], "forwardedProps": {}, "tools": [],
                "messages": messages,
            }  # fmt: skip
            stored = store.import_request(body, NAME)
            for rendered in (WIRE.parse_request(body).render(NAME), stored.render(NAME)):
                assert (rendered.payload, rendered.losses, rendered.repairs) == (body, [], []), name
            appended = store.create_conversation()
            appended.add_input(messages, NAME)
            assert appended.request_payload(NAME)["messages"] == messages, name


def test_an_answer_comes_back_as_the_messages_that_it_was() -> None:
    with Store("sqlite://") as store:
        for name, messages in THREADS.items():
            talk = store.create_conversation(input="Hi")
            talk.add_response({"newMessages": messages[1:]}, NAME)
            assert talk.request_payload(NAME)["messages"][1:] == messages[1:], name


def test_tools_of_clients_are_functions() -> None:
    tools = [
        {"name": "weather", "description": "Look.", "parameters": {"type": "object"}, "metadata": {"icon": "sun"}},
        {"name": "no parameters", "description": ""}, {"name": "odd", "description": 7},
    ]  # fmt: skip
    session = WIRE.parse_request({"messages": [samples.user()], "tools": tools})
    assert session.request_payload(NAME)["tools"] == tools
    session.update(model="gpt-5.4")
    rendered = session.render("open_responses")
    assert [(tool["name"], tool.get("description")) for tool in rendered.payload["tools"]] == [
        ("weather", "Look."), ("no_parameters", ""),
    ]  # fmt: skip
    assert {loss.code for loss in rendered.losses} == {"native", "provider_item"}


@pytest.mark.parametrize("other", [name for name in NAMES if name != NAME])
def test_threads_go_to_every_provider(other: FormatName) -> None:
    for name, messages in THREADS.items():
        session = WIRE.parse_request([samples.user(id="u"), *messages])
        session.update(model="gpt-5.4")
        rendered = session.render(other)
        assert faults(rendered.payload, other, "gpt-5.4") == [] or other == "ui_messages", name


def test_what_a_provider_gets_is_what_was_said() -> None:
    session = WIRE.parse_request(samples.THREADS["all roles"])
    session.update(model="gpt-5.4")
    rendered = session.render("open_responses")
    assert [item.get("role") or item["type"] for item in rendered.payload["input"]] == [
        "system", "developer", "user", "assistant", "function_call", "function_call", "function_call_output",
        "function_call_output", "assistant",
    ]  # fmt: skip
    assert [loss.code for loss in rendered.losses] == ["reasoning", "native", "provider_item"]


def test_what_is_strange_is_kept_and_reported() -> None:
    for message in samples.STRANGE:
        session = WIRE.parse_request([samples.user(id="u0"), message])
        session.update(model="gpt-5.4")
        assert session.render("open_responses").losses != [], message


def test_failed_calls_say_why() -> None:
    session = WIRE.parse_request(samples.THREADS["calls"])
    session.update(model="gpt-5.4")
    rendered = session.render("messages")
    results = [block for turn in rendered.payload["messages"] for block in turn["content"] if "is_error" in block]
    assert [(block["is_error"], block["content"]) for block in results] == [(True, "Away."), (True, "Half.")]
    assert [loss.detail for loss in rendered.losses if "error" in loss.detail] == [
        "Keys that only ag_ui has were left out: error."
    ]


@pytest.mark.parametrize("origin", sorted(ANSWERS))
def test_answers_of_providers_are_messages(origin: FormatName) -> None:
    body, _ = ANSWERS[origin]
    with Store("sqlite://") as store:
        talk = store.create_conversation(model="m", input="Weather?", instructions="Be brief.")
        talk.add_response(body, origin)
        talk.add_function_call_output(call_id="c1", output='{"degrees": 4}')
        talk.add_response({"choices": [{"message": {"role": "assistant", "content": "Cold."}}]}, "chat_completion")
        talk.user([{"type": "input_image", "image_url": f"data:image/png;base64,{samples.PNG}"}, "And this?"])
        rendered = talk.render(NAME)
        messages = rendered.payload["messages"]
        thought = [] if origin == "open_responses" else ["reasoning"]
        assert [message["role"] for message in messages] == ["user", *thought, "assistant", "tool", "assistant", "user"]
        assert messages[-1]["content"][0]["source"] == {"type": "data", "value": samples.PNG, "mimeType": "image/png"}
        assert [loss.code for loss in rendered.losses if loss.position is not None] == (
            ["reasoning", "signature"] if origin == "gemini" else ["reasoning"]
        )
        assert faults(rendered.payload, NAME) == []
        again = WIRE.parse_request(rendered.payload).request_payload(NAME)
        assert again == rendered.payload


CUT: Json = {"type": "function_call", "call_id": "c9", "name": "weather", "arguments": '{"ci', "status": "incomplete"}
SPOKEN: list[Json] = [
    {"type": "output_text", "text": "Rain."},
    {"type": "output_text", "text": "And wind."},
    {"type": "refusal", "refusal": "No."},
]
THOUGHTS = [{"type": "summary_text", "text": "Hm."}, {"type": "summary_text", "text": "So."}]
PICTURE: Json = {"type": "output_image", "image_url": f"data:image/png;base64,{samples.PNG}"}
OUTPUTS: dict[str, list[Json]] = {
    "paragraphs": [{"type": "message", "role": "assistant", "content": SPOKEN}],
    "nothing": [{"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": ""}]}],
    "pictures": [{"type": "message", "role": "assistant", "content": [PICTURE]}],
    "thoughts between": [
        {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"},
        {"type": "reasoning", "summary": THOUGHTS},
        {"type": "function_call", "call_id": "c2", "name": "weather", "arguments": ' {"a": 1}'},
        {"type": "message", "role": "assistant", "content": SPOKEN[:1]},
        {"type": "custom_tool_call", "call_id": "c3", "name": "draw", "input": "a cat"},
    ],
}


BODIES: dict[str, tuple[Json, FormatName]] = {
    **{
        name: ({"object": "response", "status": "completed", "output": items}, "open_responses")
        for name, items in OUTPUTS.items()
    },
    **{origin: (body, origin) for origin, (body, _) in ANSWERS.items()},
}


@pytest.mark.parametrize("name", BODIES)
def test_the_events_of_an_answer_make_its_messages(name: str) -> None:
    with Store("sqlite://") as store:
        talk = store.create_conversation(model="m", input="Weather?")
        talk.add_response(*BODIES[name])
        stored = talk.request_payload(NAME)["messages"]
        items = [partial_item(one.item, talk.id, one.position, frozenset()) for one in talk.items()][1:]
        for is_growing in (False, True):
            events, writer = events_of_run(items, is_growing=is_growing)
            assert assembled(*events).body["newMessages"] == stored[1:], events
            assert not writer.needs_snapshot


def events_of_run(
    items: list[Json], status: str = "completed", *, is_growing: bool = False
) -> tuple[list[Json], RunWriter]:
    """The events of a run that answers with these items."""
    response = {"id": "resp_1", "status": status, "model": "m", "output": items, "usage": None}
    growing, writer = answer_events.growing_events(response), RunWriter(1, "t", "r")
    events = [*growing.begin()]
    for count in range(len(items) + 1) if is_growing else ():
        events += growing.show(partial(rest_of, items[:count]))
    events += growing.end(response)
    return [*writer.begin(), *written(writer, *events), writer.finish()], writer


def rest_of(items: list[Json], first: int) -> list[Json]:
    return items[first:]


def written(writer: RunWriter, *events: Json) -> list[Json]:
    return [made for event in events for made in writer.take(event)]


def test_what_was_cut_off_is_closed_and_needs_a_snapshot() -> None:
    events, writer = events_of_run([CUT], "incomplete")
    assert writer.needs_snapshot
    kinds = ["RUN_STARTED", "TOOL_CALL_START", "TOOL_CALL_ARGS", "TOOL_CALL_END", "RUN_ERROR"]
    assert [event["type"] for event in events] == kinds


def test_whatever_is_open_is_closed_when_an_answer_is_not_stored_as_it_came() -> None:
    writer = RunWriter(1, "t", "r")
    call = {"type": "function_call", "call_id": "c1", "name": "weather", "arguments": ""}
    events = written(
        writer,
        {"type": "response.reasoning_text.delta", "output_index": 0, "delta": "Hm"},
        {"type": "response.output_text.delta", "output_index": 1, "delta": "Ra"},
        {"type": "response.output_item.added", "output_index": 2, "item": call},
        {"type": "response.failed", "response": {"status": "failed", "error": {"code": "away", "message": "Away."}}},
    )
    starts = [event["type"].removesuffix("_START") for event in events if event["type"].endswith("_START")]
    ends = [event["type"].removesuffix("_END") for event in events if event["type"].endswith("_END")]
    assert sorted(starts) == sorted(ends) == ["REASONING", "REASONING_MESSAGE", "TEXT_MESSAGE", "TOOL_CALL"]
    assert (writer.needs_snapshot, writer.finish()) == (True, {"type": "RUN_ERROR", "message": "Away.", "code": "away"})


def test_calls_that_were_passed_over_say_so() -> None:
    session = Session(model="m", input="Weather?")
    session.add_item({"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"})
    assert [one["role"] for one in session.request_payload(NAME)["messages"]] == ["user", "assistant"]
    session.user("Never mind.")
    rendered = session.render(NAME)
    missing = rendered.payload["messages"][2]
    assert (missing["role"], missing["toolCallId"], missing["error"]) == ("tool", "c1", missing["content"])
    assert [repair.code for repair in rendered.repairs] == ["missing_output"]
    assert faults(rendered.payload, NAME) == []


# Streams


def assembled(*events: Json) -> Any:
    assembler = WIRE.assembler()
    for event in events:
        assembler.feed(event)
    return assembler


@pytest.mark.parametrize("name", samples.STREAMS)
def test_a_stream_is_the_answer_that_its_messages_are(name: str) -> None:
    events = [samples.STARTED, *samples.STREAMS[name], samples.FINISHED]
    whole = assembled(*events)
    assert whole.problems == []
    assert (whole.response.status, whole.response.id) == ("completed", "r")
    assert whole.response.output == Response.parse({"newMessages": whole.body["newMessages"]}, NAME).output
    # What has come is read again only where it may grow
    growing = WIRE.assembler()
    for event in events:
        growing.feed(event)
        assert growing.partial.output == assembled(*events[: events.index(event) + 1]).partial.output
    assert growing.partial.output == whole.response.output


def test_messages_stand_where_clients_have_them() -> None:
    ids = {
        name: [(message["id"], message.get("content")) for message in assembled(*events).body["newMessages"]]
        for name, events in samples.STREAMS.items()
    }
    assert [one for one, _ in ids["calls"]] == ["a1", "t-c1", "c2", "t-c2", "a3", "a4"]
    assert ids["chunks"] == [("r1", "Hm."), ("a1", "Let me see."), ("c2", None)]
    assert ids["snapshot"] == [("r1", "Hm."), ("a1", "Right."), ("t-c1", "4"), ("a2", "Cold.")]
    (plan, _) = assembled(*samples.STREAMS["activities"]).body["newMessages"]
    assert plan["content"] == {"steps": [{"title": "Looked"}], "a/b": {"title": "Looked"}}
    assert assembled(*samples.STREAMS["others"]).body["state"] == {"a": [0, 1]}
    (found, told) = assembled(*samples.STREAMS["agents"]).body["newMessages"]
    assert (found["subagentRunId"], "subagentRunId" in told) == ("s1", False)
    (said,) = assembled(*samples.STREAMS["metadata"]).body["newMessages"]
    assert (said["metadata"], said["name"]) == ({"a": {"d": 3}, "c": 2}, "Bot")


def test_how_a_run_ended() -> None:
    said = samples.STREAMS["text"]
    usage = [
        {"model": "m", "inputTokens": 3, "outputTokens": 2, "cachedInputTokens": 1},
        {"model": "m", "inputTokens": 4, "outputTokens": 1},
    ]
    done = assembled(*said, {**samples.FINISHED, "usage": usage, "outcome": {"type": "success"}}).response
    assert (done.usage.input_tokens, done.usage.output_tokens, done.model) == (7, 3, "m")
    assert done.usage.input_tokens_details == {"cached_tokens": 1}
    interrupts = [{"id": "i", "reason": "tool_approval"}]
    asked = assembled(*said, {**samples.FINISHED, "outcome": {"type": "interrupt", "interrupts": interrupts}})
    assert (asked.response.status, asked.response.finish_reason) == ("completed", "interrupt")
    stopped = assembled(*said, {**samples.FINISHED, "outcome": {"type": "cancelled"}}).response
    assert (stopped.status, stopped.text) == ("cancelled", "Rain.")
    broken = assembled(*said[:2], {"type": "RUN_ERROR", "message": "Away.", "code": "503"}).response
    assert (broken.status, broken.error, broken.text) == ("failed", {"message": "Away.", "code": "503"}, "Ra")
    cut = assembled(*samples.called("c1", '{"city'))
    assert assembled(*samples.called("c1", '{"city')[:-1]).response.output[0].status == "incomplete"
    assert cut.response.status == "incomplete"


def test_what_does_not_fit_is_a_problem_and_loses_nothing() -> None:
    for event in (
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "b", "delta": "x"}, {"type": "TOOL_CALL_ARGS", "toolCallId": "b"},
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "b", "encryptedValue": "x"},
        {"type": "ACTIVITY_DELTA", "messageId": "b", "activityType": "PLAN", "patch": []},
        {"type": "STATE_DELTA", "delta": [{"op": "remove", "path": "/gone"}]}, {"type": "TEXT_MESSAGE_CHUNK"},
        {"type": "THINKING_START"},
    ):  # fmt: skip
        assembler = assembled(*samples.STREAMS["text"], event)
        assert (len(assembler.problems), assembler.response.text) == (1, "Rain."), event


@pytest.mark.parametrize("patch", [
    [{"op": "add", "path": "/a/3", "value": 1}], [{"op": "add", "path": "a", "value": 1}], [{"op": "remove"}],
    [{"op": "test", "path": "/a", "value": 2}], [{"op": "spell", "path": "/a"}], ["add"],
    [{"op": "replace", "path": "/b", "value": 1}], [{"op": "remove", "path": "/a/01"}],
])  # fmt: skip
def test_a_patch_that_does_not_fit_changes_nothing(patch: list[Any]) -> None:
    value = {"a": [1, 2]}
    with pytest.raises(ValueError, match=r"."):
        patched(value, patch)
    assert value == {"a": [1, 2]}


def test_other_values_are_refused() -> None:
    requests: list[Json] = [
        {"messages": ["Hi"]},
        {"messages": [{"content": "Hi"}]},
        {"messages": "Hi"},
        {"messages": []},
    ]
    for wrong in requests:
        with pytest.raises(CannotParse) as caught:
            WIRE.parse_request(wrong)
        assert caught.value.hint
    bodies: list[Json] = [{"newMessages": [{}]}, {"newMessages": "Hi"}, samples.user()]
    for body in bodies:
        with pytest.raises(CannotParse):
            WIRE.parse_response(body)
