"""How far two histories say the same."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.factories import a_call, a_message, an_output, texts_of
from threadkeep import Store
from threadkeep.domain.call_kinds import LEFT_BEHIND
from threadkeep.store.history_sync.alignment import Utterance, align, align_from, utterances_of, without_leading_system

A_THOUGHT = {"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}
TAGGED = a_message("<think>\nHm, <b>bold</b>\n</think>\n", "assistant")
TAGGED_HI = a_message("<think>Hm</think>", "user")
A_SEARCH = {"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"query": "x"}}


def kept(stored: list[Any], held: list[Any], start: int = 0) -> tuple[int, int, bool]:
    """How many stored items the held history has, how many of its own are new, and whether it has all."""
    found = align_from(utterances_of(stored), utterances_of(held), start)
    return found.kept, len({one.item for one in found.rest}), found.is_all


HI, HELLO, BYE = a_message("Hi"), a_message("Hello", "assistant"), a_message("Bye")
SO = a_message("So", "assistant")


@pytest.mark.parametrize(
    ("stored", "held", "found"),
    [
        ([], [], (0, 0, True)),
        ([], [HI], (0, 1, True)),
        ([HI], [], (0, 0, False)),
        ([HI, HELLO], [HI, HELLO, BYE], (2, 1, True)),
        ([HI, HELLO], [HI, BYE], (1, 1, False)),
        ([HI, HELLO], [HI], (1, 0, False)),
        ([HI, HELLO, A_THOUGHT], [HI, HELLO], (2, 0, True)),
        ([HI, A_THOUGHT, HELLO], [HI, HELLO], (3, 0, True)),
        ([HI, HELLO], [HI, A_THOUGHT, HELLO], (2, 0, True)),
        ([HI, A_THOUGHT, HELLO], [HI, BYE], (1, 1, False)),
        ([HI, A_THOUGHT, HELLO], [HI, A_THOUGHT, a_call("1")], (1, 2, False)),
        ([HI, A_THOUGHT, HELLO, HI], [HI, A_THOUGHT, HELLO, BYE], (3, 1, False)),
        ([HI, HELLO, A_SEARCH, HI], [HI, HELLO, A_SEARCH, BYE], (3, 1, False)),
        ([HI, A_SEARCH, HELLO], [HI, HELLO, A_SEARCH], (3, 0, True)),
        ([HI, HELLO], [HI, HELLO, A_SEARCH], (2, 1, True)),
        ([a_message("HiBye")], [HI, BYE], (1, 0, True)),
        ([HI, BYE], [a_message("HiBye")], (2, 0, True)),
        ([HI, BYE], [a_message("HiByeHi")], (0, 1, False)),
        ([HELLO, A_SEARCH, A_THOUGHT, SO], [a_message("HelloSo", "assistant"), HI], (4, 1, True)),
        ([a_message("HelloSo", "assistant")], [HELLO, A_SEARCH, A_THOUGHT, SO, HI], (1, 1, True)),
        ([HELLO, A_SEARCH, SO], [a_message("HelloSo", "assistant"), A_SEARCH], (3, 1, True)),
        ([HELLO, A_SEARCH, SO], [a_message("HelloNo", "assistant")], (0, 1, False)),
        ([HELLO, a_call("1"), SO], [a_message("HelloSo", "assistant")], (0, 1, False)),
        ([HI, A_THOUGHT, BYE], [a_message("HiBye")], (0, 1, False)),
        ([HI], [a_message("Hi there")], (0, 1, False)),
        ([a_message("Hi there")], [HI], (0, 1, False)),
        ([HI, a_message("", "user")], [HI, a_message(" \n")], (1, 0, True)),
        ([HELLO, a_call("1", "a"), a_call("2", "b")], [a_call("x", "b"), HELLO, a_call("y", "a")], (3, 0, True)),
        ([a_call("1", arguments='{"a": 1, "b": 2}')], [a_call("2", arguments='{"b":2,"a":1.0}')], (1, 0, True)),
        ([a_call("1", arguments="")], [a_call("2", arguments="{}")], (1, 0, True)),
        ([a_call("1", arguments="{half")], [a_call("2", arguments="{half")], (1, 0, True)),
        ([a_call("1", arguments='{"a": 1}')], [a_call("1", arguments='{"a": 2}')], (0, 1, False)),
        ([an_output("1", "a"), an_output("2", "b")], [an_output("2", "b"), an_output("1", "a")], (2, 0, True)),
        ([an_output("1", "18")], [an_output("1", '{"result": 18}')], (1, 0, True)),
        ([an_output("1", "18")], [an_output("1", [{"type": "input_text", "text": "18"}])], (1, 0, True)),
        ([an_output("1", "18")], [an_output("1", "19")], (0, 1, False)),
        ([HI, a_call("1")], [HI, a_call("1"), an_output("1", "Tool result missing"), BYE], (2, 2, True)),
        ([HI, a_call("1")], [HI, a_call("1"), an_output("1", LEFT_BEHIND), BYE], (2, 2, True)),
        ([HI, a_call("1")], [HI, HELLO, a_call("1"), an_output("1")], (1, 3, False)),
        ([HI, a_call("1")], [HI, HELLO, a_call("1")], (1, 2, False)),
        ([HI, a_call("1")], [HI, a_call("x", "b"), a_call("1")], (1, 2, False)),
        ([HI, a_call("1")], [HI, a_call("1"), HELLO], (2, 1, True)),
        ([HI, a_call("1")], [HI, A_THOUGHT, a_call("1")], (2, 0, True)),
        ([HI, A_THOUGHT, a_call("1")], [HI, TAGGED, a_call("1"), BYE], (3, 1, True)),
        ([HI, TAGGED, HELLO], [HI, HELLO], (3, 0, True)),
        ([HI], [HI, TAGGED], (1, 1, True)),
        ([TAGGED_HI], [HI], (0, 1, False)),
        ([HI, a_call("1"), HELLO], [HI, HELLO, A_SEARCH, a_call("1"), BYE], (3, 2, True)),
        (
            [a_call("1"), a_call("2", "b"), an_output("2")],
            [a_call("1"), a_call("2", "b"), an_output("1", "x"), an_output("2")],
            (3, 1, True),
        ),
        ([HI, a_call("1"), an_output("1")], [HI, HELLO, a_call("1"), an_output("1")], (1, 3, False)),
        ([HI, a_call("1"), an_output("1"), BYE], [HI, HELLO, a_call("1"), an_output("1"), BYE], (1, 4, False)),
    ],
)
def test_what_two_histories_share(stored: list[Any], held: list[Any], found: tuple[int, int, bool]) -> None:
    assert kept(stored, held) == found


def test_calls_are_paired_for_the_ids_of_their_outputs() -> None:
    stored = [HI, a_call("1", "a"), a_call("2", "b")]
    found = align_from(utterances_of(stored), utterances_of([HI, a_call("x", "b"), a_call("y", "a")]), 0)
    assert found.calls == {1: 2, 2: 1}


def test_system_messages_at_the_beginning_are_left_out() -> None:
    said = utterances_of([a_message("Be", "system"), a_message("brief", "developer"), HI, a_message("Now", "system")])
    assert [one.value for one in without_leading_system(said)] == ["Hi", "Now"]
    assert without_leading_system(said[:2]) == []


def words(*texts: str) -> list[Utterance]:
    return utterances_of([a_message(text, ("user", "assistant")[number % 2]) for number, text in enumerate(texts)])


@pytest.mark.parametrize(
    ("stored", "held", "found"),
    [
        ("a b c d", "a b c d e", (4, True)),
        ("a b c d", "c d e", (4, True)),
        ("a b a b", "a b x", (4, True)),
        ("a b a b", "a b a b x", (4, True)),
        ("a b a c", "a x", (1, False)),  # as much at the beginning: that counts
        ("a b c d e f", "c d x", (4, False)),
        ("a b c d e f", "c x", (0, False)),  # one turn in the middle may be chance
        ("a b", "x", (0, False)),
    ],
)
def test_the_longest_overlap_counts(stored: str, held: str, found: tuple[int, bool]) -> None:
    match = align(words(*stored.split()), words(*held.split()))
    assert (match.kept, match.is_all) == found


HISTORIES = st.lists(st.sampled_from(["a", "b", "c", "ab", " a"]), min_size=1, max_size=6)


@given(st.lists(HISTORIES, min_size=1, max_size=5))
@pytest.mark.slow
def test_the_branch_that_is_named_ends_with_the_history(histories: list[list[str]]) -> None:
    """… whatever was stored before, and the same history again changes nothing."""
    with Store("sqlite://") as store:
        conversation = store.create_conversation(model="m")
        for history in histories:
            messages = [{"role": ("user", "assistant")[n % 2], "content": text} for n, text in enumerate(history)]
            for _ in range(2):
                result = conversation.sync_request({"messages": messages}, "chat_completion")
                said = texts_of(conversation.on_branch(result.branch).transcript())
                assert said[-len(history) :] == history
            assert (result.appended, result.branched_at) == (0, None)
