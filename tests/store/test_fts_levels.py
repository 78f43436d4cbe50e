"""SQLite's full-text index is merged as a whole by each erasure and redaction, and must survive thousands of them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from tests.store.watching import engine_of
from threadkeep import Store
from threadkeep.db.base import SEARCH_INDEX
from threadkeep.db.search.sqlite import KEPT, MOST, fewer_levels, merge_index
from threadkeep.store.search import index

MERGES = 1_500  # without fewer levels, the index is taken for damaged after 1,000


def a_structure(levels: int, parts: bytes = b"\x05\x01\x87\x10", writes: int = 5_000) -> bytes:
    """A record as FTS5 writes it, with one part on the last level."""
    numbers = b"".join(map(varint, (levels, 1, writes)))
    return b"\x00\x00\x00\x07" + numbers + b"\x00\x00" * (levels - 1) + b"\x00\x01" + parts


def varint(number: int) -> bytes:
    digits = [number & 0x7F]
    while number := number >> 7:
        digits.append(number & 0x7F | 0x80)
    return bytes(reversed(digits))


@given(st.integers(MOST + 1, 2_000), st.integers(0, 1 << 40), st.binary(min_size=3, max_size=12))
def test_empty_levels_are_left_out(levels: int, writes: int, parts: bytes) -> None:
    assert fewer_levels(a_structure(levels, parts, writes)) == a_structure(KEPT, parts, writes)


@given(st.integers(1, MOST))
def test_a_few_levels_are_left_alone(levels: int) -> None:
    assert fewer_levels(a_structure(levels)) is None


@given(st.integers(MOST + 1, 1_000), st.data())
def test_nothing_is_left_out_that_is_on_a_level(levels: int, data: st.DataObject) -> None:
    structure = bytearray(a_structure(levels))
    begin = len(structure) - 2 * levels - 4
    structure[begin + data.draw(st.integers(0, 2 * (levels - KEPT) - 1))] = 1
    assert fewer_levels(bytes(structure)) is None


def test_other_records_are_left_alone() -> None:
    assert fewer_levels(b"") is None
    assert fewer_levels(b"\x00\x00\x00\x00\xff\x00\x00\x01" + a_structure(2_000)[4:]) is None


def test_thousands_of_merges_leave_an_index_that_finds(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path / 'chat.db'}") as store, Store(f"sqlite:///{tmp_path / 'chat.db'}") as other:
        kept = store.create_conversation(input="A lasting word")
        gone = store.create_conversation(input="A passing word")
        assert {match.conversation_id for match in other.search("word")} == {kept.id, gone.id}
        store.delete_conversation(gone.id)
        with engine_of(store).connect() as connection:
            driver: Any = connection.connection.driver_connection
            for number in range(MERGES):
                text = f"INSERT INTO {SEARCH_INDEX} (rowid, words, scope) VALUES (?, 'more', 't0')"
                driver.execute(text, [number + 1])
                if number % 2:
                    driver.commit()
                    merge_index(driver)
                else:
                    index.merge_index(connection)
                    driver.commit()
            structure = driver.execute(f"SELECT block FROM {SEARCH_INDEX}_data WHERE id = 10").fetchone()[0]
        assert len(structure) < 4 * MOST
        for reader in (store, other):
            assert [match.conversation_id for match in reader.search("word")] == [kept.id]
        later = store.create_conversation(input="Another word")
        assert {match.conversation_id for match in other.search("word")} == {kept.id, later.id}
