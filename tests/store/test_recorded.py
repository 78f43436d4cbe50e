"""Recorded conversations of real clients go on in the store as they went on there."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from tests.conftest import MATRIX
from tests.corpus import NO_SIGNATURE, chains, recorded
from tests.store.replaying import answer, begun
from tests.wires import SPOKEN
from threadkeep import Store
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.store.history_sync.alignment import TEXT, normalize_text, utterances_of

Json = dict[str, Any]

pytestmark = [pytest.mark.sampled, pytest.mark.share(3)]

LISTS = {"open_responses": "input", "gemini": "contents"}
ENOUGH = 0.99
STEP = 4 if MATRIX == "quick" else 1  # chains and streams, of which one is taken
# What an echo leaves out of the answer, by the chain's word for it
LEFT_OUT = {
    "full": set(),
    "empty": set(),
    "calls": {"text"},
    "text": {"call", "output"},
    "none": {"text", "call", "output"},
}
IDS = frozenset({"id", "call_id", "tool_call_id", "tool_use_id", "toolUseId"})
SIGNATURES = frozenset({"signature", "thoughtSignature", "thought_signature", "encrypted_content", "redactedContent"})


def turns_of(one: Json) -> list[Any]:
    found = one["request"].get(LISTS.get(one["format"], "messages"))
    return (
        [{"role": "user", "content": found}]
        if isinstance(found, str)
        else found
        if isinstance(found, list)
        else [found]
    )


def is_answer(turn: Json, wire: FormatName) -> bool:
    """Whether it is an echo of what the model said, rather than input."""
    if wire != "open_responses" or turn.get("type", "message") == "message":
        return turn.get("role") in ("assistant", "model")
    is_input = turn["type"].endswith("_output") and turn.get("execution") != "server"
    return not is_input and turn["type"] != "additional_tools"


def new_input(before: Json, after: Json, link: Json) -> list[Any]:
    """What the client added behind the echo of the answer."""
    turns = turns_of(after)
    if link["by"] != "prefix":
        return turns
    turns = turns[len(turns_of(before)) :]
    first = next((place for place, turn in enumerate(turns) if not is_answer(turn, after["format"])), len(turns))
    return turns[first:]


def facts(payload: Json, wire: FormatName, left_out: set[str]) -> list[Any]:
    """What a request says: texts, calls, outputs, media, in order; typography levelled, texts of one speaker joined."""
    session = get_format(wire).parse_request(payload, model="m")
    found: list[Any] = []
    for one in utterances_of([item.to_object() for item in session.items]):
        if one.is_optional or (one.kind in left_out and one.speaker != "user"):
            continue
        value = normalize_text(one.value) if one.kind == TEXT else one.value
        value = normalize_text(value.decode("utf-8", "replace")) if isinstance(value, bytes) else value
        if one.kind == TEXT and found and found[-1][:2] == [TEXT, one.speaker]:
            found[-1][2] += value
        else:
            found.append([one.kind, one.speaker, value])
    return found


def marks(thing: Any) -> Iterator[str]:
    """The ids and signatures in a request; an item's own id counts, for clients call the item by it."""
    if isinstance(thing, list):
        for one in thing:
            yield from marks(one)
    elif isinstance(thing, dict):
        for key, value in thing.items():
            if key in IDS and isinstance(value, str):
                yield value
            elif key in SIGNATURES and isinstance(value, str):
                yield value.rstrip("=").replace("-", "+").replace("_", "/")
            yield from marks(value)


def is_renamed(before: Json, after: Json) -> bool:
    """Whether the client gave calls other ids than the answer did, which no history can know."""
    said = json.dumps(before["response"] or before["events"])
    return any(f'"{one}"' not in said for one in marks(turns_of(after)[len(turns_of(before)) :]) if len(one) < 200)


def goes_on(store: Store, interactions: list[Json], links: list[Json]) -> bool:
    """Whether each next request is what the client sent."""
    conversation = begun(store, interactions[0])
    left_out: set[str] = set()
    has_other_ids = False
    for before, after, link in zip(interactions, interactions[1:], links, strict=False):
        wire = after["format"]
        answer(conversation, before)
        if link["by"] == "previous_response_id":
            conversation.update(previous_response_id=after["request"]["previous_response_id"])
        conversation.add_input(new_input(before, after, link), wire)
        left_out |= LEFT_OUT[link.get("echo", "full")]
        has_other_ids |= bool(left_out) or is_renamed(before, after)
        sent = conversation.request_payload(wire)
        if facts(sent, wire, left_out) != facts(after["request"], wire, left_out):
            return False
        wanted = set(marks(turns_of(after))) - {NO_SIGNATURE}
        if link["by"] == "prefix" and not has_other_ids and not wanted <= set(marks(sent)):
            return False
    return True


@pytest.mark.parametrize("wire", SPOKEN)
def test_conversations_go_on_as_their_clients_went_on(wire: FormatName) -> None:
    """The first request, each answer and each new input give the next request: texts, calls, ids, signatures, media."""
    with Store("sqlite://") as store:
        found = [goes_on(store, *chain) for chain in islice(chains(wire), None, None, STEP)]
    assert sum(found) >= ENOUGH * len(found), f"{sum(found)} of {len(found)}"


@pytest.mark.parametrize("has_answers", [True, False])
@pytest.mark.parametrize("wire", SPOKEN)
def test_clients_that_echo_make_no_branches(wire: FormatName, has_answers: bool) -> None:
    """… whether the answers were stored when they came, or are only known from the client's next request."""
    with Store("sqlite://") as store:
        for interactions, links in islice(chains(wire), has_answers * STEP // 2, None, STEP):
            conversation = begun(store, interactions[0])
            for before, after, link in zip(interactions, interactions[1:], links, strict=False):
                if link.get("echo") == "none":  # the client rewrote the answer
                    break
                if has_answers:
                    answer(conversation, before)
                result = conversation.sync_request(after["request"], wire)
                assert result.branched_at is None, after["id"]
                assert not {loss.code for loss in conversation.render(wire).losses} & {"orphan_output"}, after["id"]
                if has_answers and link.get("echo") == "full" and "model_turns" not in link:
                    turns = get_format(wire).parse_turns(new_input(before, after, link))
                    assert result.appended == sum(map(len, turns)), after["id"]
                if link["by"] == "prefix":
                    again = conversation.sync_request(after["request"], wire)
                    assert (again.appended, again.branched_at) == (0, None), after["id"]


@pytest.mark.parametrize("wire", SPOKEN)
def test_a_stream_that_broke_off_anywhere_goes_on_in_every_format(wire: FormatName) -> None:
    with Store("sqlite://") as store:
        for one in islice(recorded(wire).values(), None, None, STEP):
            events = one["events"] or []
            for end in {len(events) // 3, 2 * len(events) // 3} - {0}:
                conversation = begun(store, one)
                with conversation.stream_response(wire) as recorder:
                    for event in events[:end]:
                        recorder.feed(event)
                assert recorder.response.is_final
                conversation.user("Go on.")
                for other in NAMES:
                    assert conversation.render(other).body, (one["id"], end)
