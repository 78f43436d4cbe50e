"""The events that the server makes of a provider's: what they cost, and that they say all that the answer says."""

from __future__ import annotations

import sys
from typing import Any

import pytest

from tests.formats.long_streams import ALL, PARTS, PIECE, TEXTS, Event, Stream
from threadkeep.domain.formats import get_format
from threadkeep.formats.canonical.entries import entry_of
from threadkeep.formats.canonical.view import canonical_item
from threadkeep.server.answer_events import EVENT_PAYS, GrowingEvents
from threadkeep.server.objects import with_settings

GROWING = [row for row in TEXTS if row[1] in ("text", "summary", "reasoning", "thinking", "thought")]
IDS = [f"{name}-{kind}" for name, kind, _ in ALL]


class Answer:
    """An answer as it is streamed, with how often items were asked for."""

    def __init__(self, name: str) -> None:
        self.assembler = get_format(name).assembler()
        self.growing = GrowingEvents(name, with_settings({}, {"status": "in_progress", "output": []}))
        self.looks = 0

    def output(self, first: int) -> list[Event]:
        self.looks += 1
        items = self.assembler.items_from(first)
        return [canonical_item(entry_of(item.to_object(), position=-1), f"i{n}") for n, item in enumerate(items, first)]

    def feed(self, event: Event) -> list[Event]:
        self.assembler.feed(event)
        return list(self.growing.take(event, self.output, self.assembler.unsettled_count))

    def end(self) -> list[Event]:
        return list(self.growing.end({"status": "completed", "output": self.output(0)}))


def streamed(name: str, events: list[Event]) -> list[Event]:
    answer = Answer(name)
    return [made for event in events for made in answer.feed(event)] + answer.end()


def calls_for(name: str, events: list[Event]) -> int:
    """How many functions are called for a stream."""
    count = 0

    def note(*_: Any) -> None:
        nonlocal count
        count += 1

    sys.setprofile(note)
    try:
        streamed(name, events)
    finally:
        sys.setprofile(None)
    return count


@pytest.mark.share(3)
@pytest.mark.parametrize(("name", "kind", "stream"), ALL, ids=IDS)
def test_an_answer_costs_what_it_is_long(name: str, kind: str, stream: Stream) -> None:
    calls_for(name, list(stream(2)))
    short, long = (calls_for(name, list(stream(count))) for count in (50, 200))
    assert long < 5 * short


def texts_in(item: Event) -> str:
    """All texts of an item that grow."""
    parts = [*(item.get("summary") or ()), *(item.get("content") or ())]
    texts = [part.get(key) or "" for part in parts for key in ("text", "refusal")]
    return "".join([*texts, item.get("arguments") or ""])


@pytest.mark.parametrize(("name", "kind", "stream"), ALL)
def test_the_events_of_each_item_say_all_of_it(name: str, kind: str, stream: Stream) -> None:
    made = streamed(name, list(stream(40)))
    done = [event for event in made if event["type"] == "response.output_item.done"]
    assert done
    assert [event["item"] for event in done] == made[-1]["response"]["output"]
    assert [event["sequence_number"] for event in made] == list(range(len(made)))
    for event in done:
        about = [one for one in made if one.get("output_index") == event["output_index"]]
        deltas = "".join(one["delta"] for one in about if one["type"].endswith(".delta"))
        whole = [one for one in about if one["type"].endswith((".arguments.done", "_arguments.done"))]
        assert texts_in(event["item"]) in (deltas, deltas + "".join(one["arguments"] for one in whole))


@pytest.mark.parametrize(("name", "kind", "stream"), GROWING)
def test_each_piece_of_a_text_is_sent_at_once_without_a_look_at_the_rest(name: str, kind: str, stream: Stream) -> None:
    answer = Answer(name)
    events = list(stream(200))
    sent = ["".join(one["delta"] for one in answer.feed(event) if one["type"].endswith(".delta")) for event in events]
    assert sent == [PIECE if PIECE in str(event) else "" for event in events]
    assert answer.looks <= 1 + len([event for event in events if PIECE not in str(event)])


@pytest.mark.parametrize(("name", "kind", "stream"), [row for row in PARTS if row[1] == "parts"])
def test_of_an_item_of_very_many_parts_few_are_looked_at_for_each_event(name: str, kind: str, stream: Stream) -> None:
    answer = Answer(name)
    for count, event in enumerate(stream(400)):
        looks = answer.looks
        answer.feed(event)
        assert count >= EVENT_PAYS or answer.looks == looks + 1
    assert answer.looks < count / 4
