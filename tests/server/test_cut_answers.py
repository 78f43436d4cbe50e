"""What clients of the server see of answers that were cut off or paused, and of events without indexes."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.test_cut_answers import MESSAGE, SEARCH, STREAMS, TEXT, texts
from tests.formats.test_events_in_between import BARE, EVENTS, PART, WHOLE_PART
from tests.server.scripts import Scripted
from threadkeep.formats import FormatName

pytestmark = pytest.mark.one_database

Json = dict[str, Any]


def asked(served: Any, format_name: FormatName, events: list[Json]) -> Any:
    """The answer of a server whose provider sends these events, and a client for it."""
    upstream = Scripted(format_name)
    upstream.scripts += [events, events]
    http = served.http(upstreams={"*": upstream.upstream})
    return http.post("/responses", json={"model": "any", "input": "Hello"}).json(), http


def statuses_of(http: Any, response: Json) -> list[tuple[str, str]]:
    """The statuses of an item of an answer wherever it is shown, with where."""
    conversation = response["conversation"]["id"]
    [item] = response["output"]
    listed = http.get(f"/conversations/{conversation}/items").json()["data"][0]
    alone = http.get(f"/conversations/{conversation}/items/{item['id']}").json()
    [again] = http.get(f"/responses/{response['id']}").json()["output"]
    shown = {"answer": item, "list": listed, "alone": alone, "response": again}
    return [(where, one["status"]) for where, one in shown.items()]


PLACES = ("answer", "list", "alone", "response")


@pytest.mark.parametrize("format_name", STREAMS)
@pytest.mark.parametrize("what", ["a call at the limit", "a call without an end", "a text without an end"])
def test_an_item_that_was_cut_off_is_incomplete_wherever_it_is_shown(
    served: Any, format_name: FormatName, what: str
) -> None:
    events, end = STREAMS[format_name]
    given = {"a call at the limit": [*events, end], "a call without an end": events}.get(what, texts(format_name))
    response, http = asked(served, format_name, given)
    if response.get("status") is None:  # it broke off before anything but a call had come
        pytest.fail(str(response))
    assert response["status"] == "incomplete"
    assert statuses_of(http, response) == [(where, "incomplete") for where in PLACES]
    details = {"reason": "max_output_tokens"} if what == "a call at the limit" else None
    again = http.get(f"/responses/{response['id']}").json()
    assert [one["incomplete_details"] for one in (response, again)] == [details, details]


def paused() -> list[Json]:
    """The events of an answer that paused while it searched."""
    return [
        {"type": "message_start", "message": {**MESSAGE, "content": [], "stop_reason": None}},
        {"type": "content_block_start", "index": 0, "content_block": TEXT},
        {"type": "content_block_stop", "index": 0},
        {"type": "content_block_start", "index": 1, "content_block": SEARCH},
        {"type": "content_block_stop", "index": 1},
        {"type": "message_delta", "delta": {"stop_reason": "pause_turn"}, "usage": {"output_tokens": 9}},
        {"type": "message_stop"},
    ]


def test_a_paused_answer_is_not_complete_and_its_items_are_whole(served: Any) -> None:
    response, http = asked(served, "messages", paused())
    assert response["status"] == "incomplete"
    assert statuses_of(http, response) == [(where, "completed") for where in PLACES]
    assert [part["text"] for part in response["output"][0]["content"]] == [TEXT["text"]]
    talk = served.call(served.store.for_user("ann").get_conversation, response["conversation"]["id"])
    assert served.call(talk.next_step) == "model"


@pytest.mark.parametrize(("_what", "events"), BARE, ids=[name for name, _ in BARE])
def test_each_text_is_streamed_once_whatever_indexes_are_left_out(served: Any, _what: str, events: list[Json]) -> None:
    done = {key: value for key, value in WHOLE_PART.items() if key != "item_id" or "item_id" in events[3]}
    upstream = Scripted("open_responses")
    upstream.scripts.append([*events[:5], done, *events[5:]])
    client = served.client(upstreams={"*": upstream.upstream})
    text, last = "", None
    for event in client.responses.create(model="any", input="When?", stream=True):
        text += event.delta if event.type == "response.output_text.delta" else ""
        last = event
    assert text == PART["text"] == last.response.output_text  # type: ignore[union-attr]
    assert len(EVENTS) == len(events)
