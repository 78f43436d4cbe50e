"""Answers by the types of the vendors' SDKs: each word for an ending, each event, and what is of another SDK."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any

import pytest

from tests.corpus import assembled
from tests.formats.sdk_samples import ASKED, body, elements, said
from tests.formats.sdk_schema import choices, name_of, resolved, schema
from tests.formats.sdk_streams import events_of
from tests.formats.sdk_values import Maker
from tests.wires import SPOKEN
from threadkeep.errors import CannotParse
from threadkeep.formats import NAMES, FormatName, get_format

Json = dict[str, Any]

STATUSES = {"completed", "incomplete", "failed", "in_progress", "cancelled", None}
# format -> where its words for endings are: the root, a definition in it, and the key
ENDINGS: dict[FormatName, tuple[str, str | None, str]] = {
    "open_responses": ("openai.responses.response", "IncompleteDetails", "reason"),
    "chat_completion": ("openai.chat.response", "Choice", "finish_reason"),
    "messages": ("anthropic.beta.response", None, "stop_reason"),
    "gemini": ("google.response", "Candidate", "finishReason"),
    "converse": ("bedrock.response", None, "stopReason"),
    "interactions": ("google.interactions.response", None, "status"),
}
# words that say that there is no ending
NONE = {"FINISH_REASON_UNSPECIFIED"}
# kinds of blocks, deltas and events that `sdk_streams` makes, by root; a new one fails by its name
STREAMED = {
    "anthropic.beta.event": {
        "BetaTextDelta", "BetaInputJSONDelta", "BetaCitationsDelta", "BetaThinkingDelta", "BetaSignatureDelta",
        "BetaCompactionContentBlockDelta",
    },
    "bedrock.event": {"text", "toolUse", "toolResult", "reasoningContent", "citation", "image"},
}  # fmt: skip


def words(root: Json, kind: Json) -> Iterator[str]:
    """The words that a type can hold."""
    for one in choices(resolved(kind, root)):
        given = resolved(one, root)
        yield from given.get("enum", [given["const"]] if "const" in given else [])


def answered(format_name: FormatName) -> Json:
    """A body that says a text."""
    element = next(one for one in elements() if one.format_name == format_name and one.is_answer)
    if format_name == "open_responses":
        part = {"type": "output_text", "text": ASKED, "annotations": []}
        said_here = {"type": "message", "id": "msg_1", "role": "assistant", "status": "completed", "content": [part]}
        return body(element, [said_here])
    content = {"messages": [{"type": "text", "text": ASKED}]}.get(format_name)
    turn = said(format_name, "assistant", ASKED)
    return body(element, [turn if content is None else {**turn, "content": content}])


def ended(format_name: FormatName, word: str) -> Json:
    """A body that ended with a word."""
    answer = answered(format_name)
    match format_name:
        case "open_responses":
            return {**answer, "status": "incomplete", "incomplete_details": {"reason": word}}
        case "chat_completion":
            return {**answer, "choices": [{**answer["choices"][0], "finish_reason": word}]}
        case "gemini":
            return {**answer, "candidates": [{**answer["candidates"][0], "finishReason": word}]}
    return {**answer, "stop_reason" if format_name == "messages" else "stopReason": word}


@pytest.mark.share(3)
@pytest.mark.parametrize("format_name", ENDINGS)
def test_every_word_for_an_ending_is_known(format_name: FormatName, caplog: pytest.LogCaptureFixture) -> None:
    name, definition, key = ENDINGS[format_name]
    root = schema(name)
    holder = resolved(root, root) if definition is None else root["$defs"][definition]
    found = [word for word in words(root, holder["properties"][key]) if word not in NONE]
    wire, wrong = get_format(format_name), {}
    with caplog.at_level(logging.WARNING, logger="threadkeep"):
        for word in found:
            whole = wire.parse_response(ended(format_name, word))
            streamed = assembled(events_of(ended(format_name, word), format_name), format_name).response
            if whole.status not in STATUSES or whole.text != ASKED or (whole.status, whole.text) != (
                streamed.status, streamed.text,
            ):  # fmt: skip
                wrong[word] = (whole.status, streamed.status, whole.text)
    assert wrong == {}
    assert len(found) >= 3
    assert [record.getMessage() for record in caplog.records if "unknown word" in record.getMessage()] == []


def test_every_kind_of_delta_is_streamed_by_these_tests() -> None:
    event = schema("anthropic.beta.event")
    deltas = event["$defs"]["BetaRawContentBlockDeltaEvent"]["properties"]["delta"]
    assert {name_of(one) for one in choices(resolved(deltas, event))} == STREAMED["anthropic.beta.event"]
    bedrock = schema("bedrock.event")["$defs"]["ContentBlockDelta"]
    assert {one["title"] for one in choices(bedrock)} == STREAMED["bedrock.event"]


# events that are an ending, or that begin another answer
ENDS = {"response.completed", "response.failed", "response.incomplete", "response.cancelled", "error"}
BEGINS = {"response.created", "response.queued", "response.in_progress"}


def events() -> list[Json]:
    """The least and the full value of each event of the Responses API that says something about an item."""
    root = schema("openai.responses.event")
    maker = Maker(root)
    kinds = [one for one in choices(root) if resolved(one, root)["properties"]["type"]["const"] not in ENDS | BEGINS]
    return [made for kind in kinds for made in (maker.least(kind), maker.full(kind))]


def test_any_event_of_the_responses_api_leaves_the_answer_that_the_last_one_has() -> None:
    """What a response says in the end counts, whatever was said of its items before."""
    whole = answered("open_responses")
    first, *_, last = events_of(whole, "open_responses")
    expected = get_format("open_responses").parse_response(whole)
    wrong = {}
    for event in events():
        response = assembled([first, event, last], "open_responses").response
        if response.status != expected.status or response.output_text != ASKED:
            wrong[event["type"]] = (response.status, response.output_text)
    assert wrong == {}
    assert len(events()) > 90


# AG-UI, whose values look like others'


def of_ag_ui(root_name: str) -> list[Json]:
    """The full value of each type of AG-UI."""
    root = schema(root_name)
    return [Maker(root).full(kind) for kind in choices(root)]


@pytest.mark.parametrize("format_name", SPOKEN)
def test_events_of_ag_ui_are_refused_by_that_name(format_name: FormatName) -> None:
    for event in of_ag_ui("ag_ui.event"):
        with pytest.raises(CannotParse, match="AG-UI"):
            get_format(format_name).assembler().feed(event)


@pytest.mark.parametrize("format_name", [name for name in NAMES if name != "ag_ui"])
def test_messages_of_ag_ui_are_refused_by_that_name(format_name: FormatName) -> None:
    wire = get_format(format_name)
    for message in of_ag_ui("ag_ui.message"):
        with pytest.raises(CannotParse, match="AG-UI"):
            wire.parse_request({"model": "m", "max_tokens": 5, wire.signs.turns: [message]}, model="m")


def test_all_answers_are_of_formats_that_providers_speak() -> None:
    assert {one.format_name for one in elements() if one.is_answer} == set(SPOKEN)
