"""Recorded traffic of Open Responses: requests go back as they came, streams assemble, conversations go on."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any, Final

from tests.corpus import assembled, level, links, plain, recorded
from tests.formats.spelling_open_responses import leveled
from threadkeep.domain.response import Response
from threadkeep.formats import get_format

NAME: Final = "open_responses"
FORMAT = get_format(NAME)
ENDINGS = ("response.completed", "response.incomplete", "response.failed")
SPOKEN = ("user", "assistant")
Json = dict[str, Any]


def streams() -> Iterator[tuple[str, list[Json], Json]]:
    """Recorded streams: their events, and the response of the last one."""
    for one in recorded(NAME).values():
        if one["events"]:
            (ending,) = [event for event in one["events"] if event["type"] in ENDINGS]
            yield one["id"], one["events"], ending["response"]


def test_requests_for_compactions_go_back_as_they_came() -> None:
    for one in recorded("compactions").values():
        rendered = FORMAT.render(FORMAT.parse_request(one["request"]))
        assert leveled(rendered.payload) == leveled(one["request"]), one["id"]
        assert (rendered.losses, rendered.repairs) == ([], []), one["id"]


def test_requests_keep_their_spelling() -> None:
    for one in recorded(NAME).values():
        sent = FORMAT.render(FORMAT.parse_request(one["request"])).payload
        given = {key: value for key, value in one["request"].items() if (key, value) != ("tools", [])}
        assert level(sent) == level(given), one["id"]


def test_requests_set_options_that_other_formats_understand() -> None:
    for one in recorded(NAME).values():
        assert FORMAT.parse_request(one["request"]).extra == {}, one["id"]


def readable(thing: Any) -> Any:
    """A value without opaque reasoning: the last event has it encrypted anew, and clients send back the first."""
    if isinstance(thing, dict):
        return {key: readable(value) for key, value in thing.items() if key != "encrypted_content"}
    return [readable(one) for one in thing] if isinstance(thing, list) else thing


def test_streams_give_the_response_that_they_end_with() -> None:
    for name, events, body in streams():
        before = copy.deepcopy(events)
        made = assembled(events, NAME)
        assert readable(made.response.to_dict()) == readable(FORMAT.parse_response(body).to_dict()), name
        assert events == before, name


def test_a_stream_without_its_end_has_the_same_items() -> None:
    """Opaque texts and passing ids differ in the last event of some hosts; the items are the same."""
    for name, events, body in streams():
        made = assembled([event for event in events if event["type"] not in ENDINGS], NAME)
        assert outline(made.body["output"]) == outline(body["output"]), name
        assert made.response.status == "incomplete", name
        assert [item.type for item in made.response.output] == [item["type"] for item in body["output"]], name


def test_deltas_alone_have_the_same_texts() -> None:
    for name, events, body in streams():
        deltas = [event for event in events if not event["type"].endswith((".done", ".completed"))]
        made = assembled(deltas, NAME)
        assert texts(made.response) == texts(FORMAT.parse_response(body)), name


def outline(items: list[Json]) -> list[Json]:
    """Items without what is made anew for each event."""
    return [
        {key: value for key, value in level(item).items() if key not in ("encrypted_content", "id")} for item in items
    ]


def texts(response: Response) -> list[Any]:
    """What grows in deltas."""
    found = []
    for item in (item.to_object() for item in response.output):
        said = [part.get("text") for part in [*item.get("content", ()), *item.get("summary", ())]]
        found.append((item["type"], said, item.get("call_id") and item.get("arguments") if said else None))
    return found


def test_answers_of_the_compaction_endpoint_are_read() -> None:
    for one in recorded("compactions").values():
        response = FORMAT.parse_response(one["response"])
        assert response.status == "completed", one["id"]
        assert [item.type for item in response.output][-1] == "compaction", one["id"]
        assert response.usage is not None, one["id"]


# Chains: one request, its recorded answer, and what the client sent next


def body_of(one: Json) -> Json:
    """The recorded answer as one body."""
    body: Json = assembled(one["events"], NAME).body if one["events"] else one["response"]
    return body


def said(items: list[Json]) -> list[Any]:
    """What the items of a model say and call, in one spelling."""
    found: list[Any] = []
    for item in leveled({"input": items})["input"]:
        if item["type"] == "message":
            found += [plain(part["text"]) for part in item["content"] if part.get("text")]
        elif item["type"] == "function_call":
            found.append((item["call_id"], item["name"], item["arguments"]))
    return found


def is_renamed(one: Json, follower: Json) -> bool:
    """Whether the client gave the calls other ids, because a host had used them before."""
    ids = {item["call_id"] for item in body_of(one)["output"] if item["type"] == "function_call"}
    return not ids <= {item.get("call_id") for item in follower["request"]["input"]}


def test_a_conversation_goes_on_as_its_client_went_on() -> None:
    """What clients leave out of an answer (ids, opaque reasoning) is sent as it came; the rest is what they sent."""
    for first, second, link in links(NAME):
        if link != {"by": "prefix", "echo": "full"} or is_renamed(first, second):
            continue
        session = FORMAT.parse_request(first["request"])
        before = len(session.items)
        output = session.add_response(FORMAT.parse_response(body_of(first))).output
        _, *turns = FORMAT.parse_turns(second["request"]["input"][before:])
        for turn in turns:
            session.add_items(turn)
        sent, wanted = FORMAT.render(session).payload["input"], second["request"]["input"]
        behind = len(wanted) - sum(map(len, turns))
        assert leveled({"input": sent[:before]}) == leveled({"input": wanted[:before]}), second["id"]
        assert level(sent[before : before + len(output)]) == level(body_of(first)["output"]), second["id"]
        assert said(sent[before : before + len(output)]) == said(wanted[before:behind]), second["id"]
        rest = {"input": sent[before + len(output) :]}
        assert leveled(rest) == leveled({"input": wanted[behind:]}), second["id"]


def test_where_the_provider_holds_the_history_only_news_are_sent() -> None:
    for first, second, link in links(NAME):
        if link["by"] == "prefix":
            continue
        session = FORMAT.parse_request(first["request"])
        answer = session.add_response(FORMAT.parse_response(body_of(first)))
        if link["by"] == "previous_response_id":
            session.previous_response_id = answer.id
        for turn in FORMAT.parse_turns(second["request"]["input"]):
            session.add_items(turn)
        sent = FORMAT.render(session).payload
        assert leveled(sent)["input"] == leveled(second["request"])["input"], second["id"]
        assert sent.get(link["by"]) == second["request"][link["by"]], second["id"]
