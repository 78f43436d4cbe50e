"""The Interactions API: every type of google-genai comes back equal, and what is sent is valid by these types."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.conversations import CONVERSATIONS
from tests.formats.factories import answer, assistant, call, codes, output, render, snapshot, user
from tests.formats.sdk_streams import steps_events
from tests.formats.sdk_values import Maker
from tests.formats.turns import rendered_turns
from tests.formats.validity_interactions import adapter, refused
from threadkeep import Session, Store
from threadkeep.errors import CannotParse, CannotRender, ProviderError, StreamChunk
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.canonical.entries import ServerState

Json = dict[str, Any]

NAME: FormatName = "interactions"
WIRE = get_format(NAME)
TEXT: Json = {"type": "text", "text": "Hm"}
ASKED: Json = {"type": "user_input", "content": [{"type": "text", "text": "Weather?"}]}
THOUGHT: Json = {"type": "thought", "signature": "c2ln", "summary": [TEXT]}
CALLED: Json = {"type": "function_call", "id": "c1", "name": "look", "arguments": {"city": "Paris"}}
RETURNED: Json = {"type": "function_result", "call_id": "c1", "name": "look", "result": "Rain"}
SAID: Json = {"type": "model_output", "content": [{"type": "text", "text": "It rains."}]}
REQUEST: Json = {"model": "gemini-3-pro", "input": [ASKED, THOUGHT, CALLED, RETURNED, SAID, ASKED]}


# The types of the SDK


@cache
def values(name: str) -> list[Json]:
    """Values of a type: the least ones, one more for each key and variant, and full ones; without unknown types."""
    schema = adapter(name).json_schema()
    maker = Maker(schema, is_whole=False)
    found = [sample.value for sample in maker.variants(schema)] + [maker.full(schema, turn=turn) for turn in range(4)]
    return [value for value in found if "UNKNOWN" not in json.dumps(value)]


def sent(payload: Json) -> Json:
    """A request read and rendered, of which nothing may be lost."""
    rendered = WIRE.parse_request(payload).render(NAME)
    assert (rendered.losses, rendered.repairs) == ([], [])
    return rendered.payload


def without_nulls(thing: Any) -> Any:
    if isinstance(thing, dict):
        return {key: without_nulls(value) for key, value in thing.items() if value is not None}
    return [without_nulls(one) for one in thing] if isinstance(thing, list) else thing


def test_every_step_comes_back_equal() -> None:
    steps = values("Step")
    assert len({step["type"] for step in steps}) == 23
    bodies = [{"model": "m", "input": [ASKED, step, ASKED]} for step in steps]
    assert [body for body in bodies if sent(body) != body] == []
    with Store("sqlite:///:memory:") as store:  # … from its rows, too
        talk = store.import_request({"model": "m", "input": [ASKED, *steps]}, NAME)
        assert store.get_conversation(talk.id).request_payload(NAME)["input"] == [ASKED, *steps]


def test_every_content_comes_back_equal_wherever_it_may_stand() -> None:
    contents = values("Content")
    assert {content["type"] for content in contents} == {"text", "image", "audio", "video", "document"}
    for content in contents:
        for body in (
            {"model": "m", "input": content},
            {"model": "m", "input": [content, TEXT]},
            {"model": "m", "input": [{"type": "user_input", "content": [content]}]},
            {"model": "m", "input": [CALLED, {**RETURNED, "result": [content]}]},
            {"model": "m", "input": [ASKED, {"type": "model_output", "content": [content]}]},
        ):
            assert sent(body) == body


@pytest.mark.parametrize("name", ["CreateModelInteraction", "CreateAgentInteraction"])
def test_every_request_comes_back_equal(name: str) -> None:
    for value in values(name):
        body = {**value, "input": value.get("input") or "Hi"}
        if not (body.get("background") and body.get("store") is False):
            assert sent(body) == body


def test_every_answer_is_read_and_its_steps_come_back_equal() -> None:
    for value in values("Interaction"):
        body = {"id": "i1", **value}
        response = WIRE.parse_response(body)
        session = Session(model="m", input="Hi")
        session.add_response(response)
        steps = body.get("steps") or []
        if not any(step["type"] in ("function_call", "function_result") for step in steps):  # which need each other
            assert session.request_payload(NAME)["input"][1:] == steps
        kept = {**(response.provider_data or {}), "usage": response.usage and response.usage.raw}
        known = {"id", "status", "steps", "model", "created", "previous_interaction_id", "service_tier", "object"}
        for key in body.keys() - known - {key for key in body if key.startswith("output_")}:
            assert kept[key] == body[key] or not body[key], key


def test_what_the_sdk_does_not_know_is_kept_in_its_place() -> None:
    odd = {"type": "telepathy", "id": "t", "waves": [1]}
    body = {"model": "m", "input": [ASKED, odd, {**SAID, "content": [{"type": "smell", "data": "x"}]}, ASKED]}
    assert sent(body) == body
    losses = WIRE.parse_request(body).render("messages").losses
    assert [loss.code for loss in losses] == ["provider_item", "provider_item"]


# Streams


def events(steps: list[Json], status: str = "completed", **keys: Any) -> list[Json]:
    """The events of an interaction."""
    interaction = {"id": "i1", "status": "in_progress", "model": "gemini-3-pro"}
    found: list[Json] = [{"event_type": "interaction.created", "interaction": interaction, "event_id": "e0"}]
    found += steps_events(steps)
    return [*found, {"event_type": "interaction.completed", "interaction": {**interaction, "status": status, **keys}}]


def assembled(found: list[Json]) -> Any:
    assembler = WIRE.assembler()
    for event in found:
        assembler.feed(event)
    return assembler


def test_the_stream_of_every_step_is_the_step() -> None:
    usage = {"total_input_tokens": 3, "total_output_tokens": 4, "total_tokens": 7}
    for step in values("Step"):
        whole = WIRE.parse_response({"id": "i1", "status": "completed", "model": "gemini-3-pro", "steps": [step]})
        streamed = assembled(events([step], usage=usage)).response
        assert [item.to_object() for item in streamed.output] == [item.to_object() for item in whole.output], step
        assert (streamed.id, streamed.status, streamed.usage.total_tokens) == ("i1", "completed", 7)


def test_each_of_the_deltas_begins_a_step_that_holds_it() -> None:
    deltas = values("StepDeltaData")
    assert len({delta["type"] for delta in deltas}) == 28
    for delta in deltas:
        found = assembled([{"event_type": "step.delta", "index": 0, "delta": delta}])
        rest = {key: value for key, value in delta.items() if key != "type"}
        assert len(found.body["steps"]) == 1
        text = json.dumps(found.body)
        missing = [value for value in rest.values() if json.dumps(value)[1:-1] not in text]
        assert missing == [] or delta["type"] == "arguments_delta", delta
        assert not rest or found.has_output


def test_pieces_of_texts_and_sounds_are_joined_and_pictures_are_not() -> None:
    sound = {"type": "audio", "mime_type": "audio/l16", "data": "aGk="}
    picture = {"type": "image", "mime_type": "image/png", "data": "aGk="}
    step = {"event_type": "step.delta", "index": 0}
    body = assembled([{**step, "delta": delta} for delta in (TEXT, TEXT, sound, sound, picture, picture)]).body
    said = {"type": "text", "text": "HmHm"}
    assert body["steps"][0]["content"] == [said, {**sound, "data": "aGloaQ=="}, picture, picture]
    result: Json = {"type": "code_execution_result", "result": "1"}
    searched: Json = {"type": "google_search_result", "result": [{"search_suggestions": "a"}], "signature": "c2ln"}
    for delta, whole in ((result, "11"), (searched, [*searched["result"], *searched["result"]])):
        assert assembled([{**step, "delta": delta}] * 2).body["steps"][0]["result"] == whole


def test_a_stream_that_breaks_off_has_what_came_and_no_call_that_could_be_run() -> None:
    found = events([THOUGHT, CALLED], status="requires_action")
    for count in range(1, len(found)):
        assembler = assembled(found[:count])
        assert (assembler.response.status, assembler.partial.status) == ("incomplete", "in_progress")
        calls = [item.to_object() for item in assembler.response.output if item.type == "function_call"]
        assert all(one["status"] == "incomplete" for one in calls)
    response = assembled(found).response
    assert (response.status, response.finish_reason) == ("completed", "requires_action")
    assert [(one.call_id, one.arguments) for one in response.tool_calls] == [("c1", '{"city":"Paris"}')]


def test_events_about_the_whole_interaction() -> None:
    update = {"event_type": "interaction.status_update", "interaction_id": "i1", "status": "in_progress"}
    late = assembled([update, {"event_type": "interaction.cancelled", "usage": {"total_tokens": 5}}])
    assert (late.response.id, late.response.status, late.response.usage.total_tokens) == ("i1", "cancelled", 5)
    failed = assembled([update, {"event_type": "error", "error": {"code": "503", "message": "gone"}}]).response
    assert (failed.status, failed.error) == ("failed", {"code": "503", "message": "gone"})
    paused = events([SAID], status="requires_continuation", continuation_token="t")
    response = assembled(paused).response
    assert (response.status, response.incomplete_details) == ("incomplete", {"reason": "continuation"})
    assert response.provider_data == {"continuation_token": "t"}
    more = [{**event, "index": 1} if "index" in event else event for event in events([SAID])]
    assert len(assembled([*paused, *more]).response.output) == 2
    whole = {"id": "i1", "status": "completed", "steps": [SAID]}
    assert assembled([{"event_type": "interaction.completed", "interaction": whole}]).response.text == "It rains."


# The other API of the service, and other formats


def test_a_conversation_moves_to_the_other_api_and_back_with_its_signatures() -> None:
    session = WIRE.parse_request(REQUEST)
    rendered = session.render("gemini")
    assert codes(rendered) == ([], [])
    [_, model, *_] = rendered.payload["contents"]
    call = {"id": "c1", "name": "look", "args": {"city": "Paris"}}
    assert model["parts"] == [{"thought": True, "text": "Hm"}, {"functionCall": call, "thoughtSignature": "c2ln"}]
    back = get_format("gemini").parse_request(rendered.payload, model="gemini-3-pro").render(NAME)
    assert codes(back) == ([], [])
    assert back.payload == REQUEST


@pytest.mark.parametrize(
    ("part", "steps"),
    [
        ({"text": "Sure.", "thoughtSignature": "c2ln"}, [{"type": "thought", "signature": "c2ln"}, SAID]),
        ({"text": "Hm", "thought": True, "thoughtSignature": "c2ln"}, [THOUGHT]),
        ({"functionCall": {"id": "c1", "name": "look", "args": {}}, "thoughtSignature": "c2ln"},
         [{"type": "thought", "signature": "c2ln"}, {**CALLED, "arguments": {}}]),
    ],
)  # fmt: skip
def test_signatures_of_the_other_api_become_thoughts(part: Json, steps: list[Json]) -> None:
    contents = [{"role": "user", "parts": [{"text": "Hi"}]}, {"role": "model", "parts": [part]}]
    session = get_format("gemini").parse_request({"contents": contents}, model="gemini-3-pro")
    rendered = session.render(NAME)
    expected = json.loads(json.dumps(steps).replace("It rains.", "Sure."))
    assert rendered.payload["input"][1 : 1 + len(steps)] == expected
    assert rendered.losses == []
    assert session.render("gemini").payload["contents"] == contents


def test_signatures_stay_with_the_service() -> None:
    session = WIRE.parse_request(REQUEST)
    names: list[FormatName] = ["open_responses", "chat_completion", "messages", "converse"]
    for name in names:
        rendered = session.render(name)
        assert "c2ln" not in rendered.body.decode()
        assert "reasoning" in codes(rendered)[0]
    theirs = [{"type": "thinking", "thinking": "Hm", "signature": "other"}]
    foreign = answer({"type": "reasoning", "content": theirs}, assistant("Hi"), origin="messages")
    rendered = render(NAME, user("Hi"), foreign, model="gemini-3-pro")
    assert ("other" in rendered.body.decode(), codes(rendered)[0]) == (False, ["reasoning"])


@given(conversation=CONVERSATIONS)
def test_conversations_of_any_origin_are_valid_by_the_types(conversation: Any) -> None:
    steps, _ = rendered_turns(conversation.snapshot(), NAME)
    assert refused({"model": "m", "input": steps}) == []


def test_media_and_results_of_other_origin() -> None:
    rendered = render(
        NAME,
        user(
            "Look", {"type": "input_image", "image_url": "data:image/png;base64,aW1n", "detail": "low"},
            {"type": "input_file", "file_url": "https://a.example/b.mp3"},
            {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"},
        ),
        answer(call(), origin="chat_completion"),
        output(text=[{"type": "input_text", "text": "a"}, {"type": "input_image", "image_url": "https://a.example/c.png"}],
               status="failed"),
        model="gemini-3-pro",
    )  # fmt: skip
    assert refused(rendered.payload) == []
    looked, called, returned = rendered.payload["input"]
    assert looked["content"][1:] == [
        {"type": "image", "mime_type": "image/png", "data": "aW1n", "resolution": "low"},
        {"type": "audio", "mime_type": "audio/mpeg", "uri": "https://a.example/b.mp3"},
        {"type": "document", "mime_type": "application/pdf", "data": "JVBERi0="},
    ]
    assert (called["id"], returned["call_id"], returned["name"], returned["is_error"]) == ("c1", "c1", "lookup", True)
    assert [one["type"] for one in returned["result"]] == ["text", "image"]
    assert codes(rendered) == (["title"], [])


# Order


def test_outputs_follow_their_calls_and_a_placeholder_stands_for_missing_ones() -> None:
    calls = answer(call("a"), call("b"), origin="messages")
    rendered = render(NAME, user("Hi"), calls, user("Wait"), output("b"), model="m")
    assert [step.get("call_id", step["type"]) for step in rendered.payload["input"]] == [
        "user_input", "function_call", "function_call", "b", "a", "user_input",
    ]  # fmt: skip
    assert codes(rendered) == ([], ["missing_output", "moved_output"])


def test_an_imported_request_keeps_its_order_and_odd_ids() -> None:
    body = {"model": "m", "input": [CALLED, CALLED, ASKED, RETURNED, {**RETURNED, "call_id": "other"}]}
    assert sent(body) == body


def test_system_text_is_one_instruction() -> None:
    rendered = render(NAME, user("Be kind.", role="system"), user("Hi"), model="m", instructions="Be brief.")
    assert rendered.payload == {"model": "m", "system_instruction": "Be brief.\n\nBe kind.", "input": [
        {"type": "user_input", "content": [{"type": "text", "text": "Hi"}]}]}  # fmt: skip


# What the service keeps


def test_only_what_is_new_is_sent_behind_an_interaction_that_the_service_keeps() -> None:
    with Store("sqlite:///:memory:") as store:
        talk = store.create_conversation(model="gemini-3-pro", input="Weather?", previous_response_id="i0", store=True)
        assert talk.request_payload(NAME)["previous_interaction_id"] == "i0"
        body = {"id": "i1", "status": "requires_action", "model": "gemini-3-pro", "steps": [THOUGHT, CALLED]}
        talk.add_response(body, NAME)
        talk.add_function_call_output(call_id="c1", output="Rain")
        payload = talk.request_payload(NAME)
        assert (payload["previous_interaction_id"], payload["input"]) == ("i1", [RETURNED])
        assert talk.request_payload(NAME, server_state="none")["input"] == [ASKED, THOUGHT, CALLED, RETURNED]
        other = talk.render("open_responses")
        assert ("previous_response_id" in other.payload, codes(other)[1]) == (False, ["option"])
        assert talk.session().request_payload(NAME) == payload


def test_a_call_that_the_service_waits_for_gets_its_placeholder() -> None:
    state = ServerState("i1", 1)
    found = snapshot(user("Hi"), answer(call("a"), origin=NAME), user("Go on"), state=state)
    steps = WIRE.render(found).payload["input"]
    assert [step.get("call_id", step["type"]) for step in steps] == ["a", "user_input"]


# Settings, usage, bad input


@pytest.mark.parametrize(
    ("settings", "payload", "reports"),
    [
        ({"reasoning": {"effort": "max", "summary": "auto"}},
         {"generation_config": {"thinking_level": "xhigh", "thinking_summaries": "auto"}}, ([], ["range"])),
        ({"text": {"format": {"type": "json_object"}}},
         {"response_format": {"type": "text", "mime_type": "application/json"}}, ([], [])),
        ({"temperature": 0.5, "top_p": 0.1, "max_output_tokens": 9, "store": False, "extra": {"seed": 1}},
         {"generation_config": {"temperature": 0.5, "top_p": 0.1, "max_output_tokens": 9, "seed": 1}, "store": False},
         ([], [])),
        ({"tools": [{"type": "function", "name": "f", "strict": True}], "tool_choice": "required"},
         {"tools": [{"type": "function", "name": "f"}], "generation_config": {"tool_choice": "any"}}, (["option"], [])),
        ({"tool_choice": "auto", "top_logprobs": 3, "parallel_tool_calls": False}, {},
         (["option", "option"], ["option"])),
        ({"background": True, "service_tier": "priority", "extra": {NAME: {"labels": {"a": "b"}}}},
         {"background": True, "service_tier": "priority", "labels": {"a": "b"}}, ([], [])),
        ({"extra": {"agent": "deep-research-preview-04-2026"}}, {"agent": "deep-research-preview-04-2026"},
         (["option"], [])),
    ],
)  # fmt: skip
def test_settings(settings: Json, payload: Json, reports: Any) -> None:
    rendered = render(NAME, user("Hi"), **{"model": "m", **settings})
    assert {key: value for key, value in rendered.payload.items() if key not in ("model", "input")} == payload
    assert codes(rendered) == reports
    assert refused(rendered.payload) == []
    assert ("model" in rendered.payload) != ("agent" in rendered.payload)


def test_the_figures_of_a_usage_object() -> None:
    usage = {"total_input_tokens": 100, "total_tool_use_tokens": 20, "total_cached_tokens": 40,
             "total_output_tokens": 10, "total_thought_tokens": 5, "total_tokens": 135}  # fmt: skip
    figures = WIRE.usage_of(usage).normalized
    assert (figures.input_tokens, figures.output_tokens, figures.total_tokens) == (120, 15, 135)
    assert (figures.reasoning_tokens, figures.cached_tokens) == (5, 40)
    lacking = WIRE.usage_of({"total_input_tokens": 100, "total_tokens": 135}).normalized
    assert (lacking.input_tokens, lacking.output_tokens) == (100, 35)


@pytest.mark.parametrize(
    ("word", "status", "reason"),
    [
        ("requires_action", "completed", None), ("budget_exceeded", "incomplete", "max_output_tokens"),
        ("requires_continuation", "incomplete", "continuation"), ("queued", "in_progress", None),
        ("cancelled", "cancelled", None), ("failed", "failed", None), ("telepathic", "completed", None),
    ],
)  # fmt: skip
def test_the_words_for_how_an_interaction_ended(word: str, status: str, reason: str | None) -> None:
    response = WIRE.parse_response({"id": "i", "status": word, "steps": [], "errors": [{"code": "x", "message": "y"}]})
    assert (response.status, response.finish_reason) == (status, word)
    assert (response.incomplete_details or {}).get("reason") == reason
    assert response.error == ({"code": "x", "message": "y"} if status == "failed" else None)


@pytest.mark.parametrize(
    ("body", "error", "says"),
    [
        ({"error": {"code": 400, "message": "No such model.", "status": "INVALID"}}, ProviderError, "No such model"),
        ({"id": "i", "status": "completed", "steps": ["x"]}, CannotParse, "not a list of steps"),
        ({"candidates": []}, CannotParse, "gemini"),
        ({"choices": []}, CannotParse, "chat_completion"),
        ({"event_type": "step.stop", "index": 0}, StreamChunk, "step.stop"),
        ([1], CannotParse, "JSON object"),
        (b"<html>Bad gateway</html>", ProviderError, "Bad gateway"),
    ],
)
def test_what_is_no_interaction_is_refused(body: Any, error: type[Exception], says: str) -> None:
    with pytest.raises(error) as raised:
        WIRE.parse_response(body)
    assert re.search(says, f"{raised.value} {getattr(raised.value, 'hint', '')}")


@pytest.mark.parametrize(
    ("payload", "says"),
    [
        ({"model": "m"}, "has no input"),
        ({"model": "m", "input": 3}, "neither text"),
        ({"model": "m", "input": ["Hi"]}, r"input\[0\]"),
        ({"model": "m", "input": [{"role": "user", "content": "Hi"}]}, r"input\[0\]"),
        ("Hi", "not a JSON object|JSON"),
    ],
)
def test_what_is_no_request_is_refused(payload: Any, says: str) -> None:
    with pytest.raises(CannotParse, match=says):
        WIRE.parse_request(payload)


@pytest.mark.parametrize("settings", [{"model": None}, {"model": "m", "background": True, "store": False}])
def test_what_the_service_always_refuses_is_not_rendered(settings: Json) -> None:
    with pytest.raises(CannotRender):
        render(NAME, user("Hi"), **settings)


@given(st.data())
def test_any_json_is_read_or_refused_and_never_breaks_a_stream(data: Any) -> None:
    leaves = st.one_of(st.none(), st.booleans(), st.integers(), st.text(max_size=3), st.just([]), st.just({}))
    step = data.draw(st.sampled_from(values("Step")))
    odd = {**step, data.draw(st.sampled_from(sorted(step))): data.draw(leaves)}
    for found in (
        [{"event_type": "step.start", "index": 0, "step": odd}],
        [{"event_type": "step.delta", "index": 0, "delta": odd}] * 2,
    ):
        try:
            assembled(found).response  # noqa: B018 - it must not break
        except CannotParse:
            continue
    if isinstance(odd["type"], str):
        assert sent({"model": "m", "input": [ASKED, odd]})["input"][1] == without_nulls(odd) or None in odd.values()
