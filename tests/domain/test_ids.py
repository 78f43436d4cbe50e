"""Keys: positive numbers of 64 bits, never the same twice, whatever the clock shows."""

from __future__ import annotations

import os
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep.domain.ids import EPOCH_MS, KeyMaker, new_public_id, public_id_bytes, public_id_text

KEYS = 2_000  # more than a millisecond has


class Clock:
    """A clock that shows what it is told."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.nanoseconds = 0
        monkeypatch.setattr("threadkeep.domain.ids.time.time_ns", lambda: self.nanoseconds)

    def show(self, moment: datetime) -> None:
        self.nanoseconds = round(moment.timestamp() * 1_000_000_000)


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    return Clock(monkeypatch)


def is_key(value: int) -> bool:
    return 0 < value < 2**63


@pytest.mark.parametrize("year", [2025, 2026, 2059])
def test_a_clock_that_stands_still_makes_keys(clock: Clock, year: int) -> None:
    clock.show(datetime(year, 1, 1, tzinfo=UTC))
    maker = KeyMaker()
    made = [maker() for _ in range(KEYS)]
    assert all(map(is_key, made))
    assert len(set(made)) == len(made)


@pytest.mark.parametrize("year", [1, 1970, 1999, 2024, 2060, 2100, 9999])
def test_a_clock_in_another_time_makes_keys(clock: Clock, year: int) -> None:
    """Also where all processes begin at the very same time, and with the very same node."""
    clock.show(datetime(year, 1, 1, tzinfo=UTC))
    makers = [KeyMaker() for _ in range(5)]
    for maker in makers:
        maker._node = 1
    made = [maker() for maker in makers for _ in range(KEYS)]
    assert all(map(is_key, made))
    assert len(set(made)) == len(made)


def test_keys_increase_with_time(clock: Clock) -> None:
    clock.show(datetime(2025, 1, 1, tzinfo=UTC))
    made, maker = [], KeyMaker()
    for year in range(2025, 2060):
        clock.show(datetime(year, 2, 1, tzinfo=UTC))
        made += [maker() for _ in range(KEYS)]
    assert all(before < after for before, after in pairwise(made))


@pytest.mark.parametrize("year", [1970, 2060, 9999])
def test_a_clock_that_was_wrong_for_a_moment_does_no_harm(clock: Clock, year: int) -> None:
    """Before and after it keys have their order, and those of the moment are no others'."""
    clock.show(datetime(2026, 1, 1, tzinfo=UTC))
    maker = KeyMaker()
    made = [maker() for _ in range(KEYS)]
    clock.show(datetime(year, 1, 1, tzinfo=UTC))
    made += [maker() for _ in range(KEYS)]
    clock.show(datetime(2026, 1, 2, tzinfo=UTC))
    made += [maker() for _ in range(KEYS)]
    assert all(before < after for before, after in pairwise(made))
    assert made[-1] - KeyMaker()() < 2**32


def test_the_end_of_time_is_no_end_of_keys(clock: Clock) -> None:
    clock.nanoseconds = (EPOCH_MS + 2**40 - 1) * 1_000_000
    maker = KeyMaker()
    made = [maker() for _ in range(KEYS)]
    assert made[-1] < made[0]
    assert all(map(is_key, made))
    assert len(set(made)) == len(made)


@given(st.lists(st.integers(-(2**70), 2**70), min_size=1))
def test_clocks_that_jump_make_keys(moments: list[int]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        clock = Clock(patch)
        clock.nanoseconds = moments[0]
        maker, made = KeyMaker(), []
        for moment in moments:
            clock.nanoseconds = moment
            made.append(maker())
    assert all(map(is_key, made))
    assert len(set(made)) == len(made)


def test_a_forked_process_has_a_node_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    maker, pid = KeyMaker(), os.getpid()
    maker()
    monkeypatch.setattr("threadkeep.domain.ids.secrets.randbelow", lambda _: 6)
    monkeypatch.setattr("threadkeep.domain.ids.os.getpid", lambda: pid + 1)
    assert (maker() >> 9) % (1 << 14) == 7


@pytest.mark.parametrize("year", [1, 1969, 2026, 9999])
def test_any_clock_makes_public_ids(clock: Clock, year: int) -> None:
    clock.show(datetime(year, 1, 1, tzinfo=UTC))
    made = {new_public_id() for _ in range(KEYS)}
    assert len(made) == KEYS
    assert all(public_id_bytes(public_id_text(one)) == one and one[6] >> 4 == 7 for one in made)
