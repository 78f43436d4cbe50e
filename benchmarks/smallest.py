"""The smallest possible floor: three tables without a column that the job does not need, on the bare driver.

It is compared with an append of a turn, with the resume of a conversation that is read for the first time, and with a
refresh: the floor keeps its request as bytes, and adds to them. It checks nothing, and gives up what its rows have no
place for: ids of conversations and items, branches, times, users, options, search, the change feed, costs, idempotency
keys. Two writers of one conversation can collide.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from benchmarks.conversations import AT_ONCE, TURNS, append_turn, appending, stored
from benchmarks.data import conversation_items
from benchmarks.databases import Database, Driver, on_each_database
from benchmarks.floor import HEAD
from benchmarks.report import Line
from benchmarks.scale import Scale
from benchmarks.timing import Case, run_rounds
from threadkeep import Store

APPEND_MUST: Final = {"sqlite": 5.0, "postgresql": 2.0}
# kind of database -> number of items -> goal
RESUME_MUST: Final = {
    "sqlite": {20: 2.0, 200: 1.6, 2_000: 1.3},
    "postgresql": {20: 2.0, 200: 1.6, 2_000: 1.4},
}
REFRESH_MUST: Final = {("sqlite", 200): 4.0}
REPEATED: Final = {20: 20, 200: 5}  # resumes in one call: short ones are repeated

# kind of database -> how it names JSON text, bytes and large integers
_TYPES: Final = {"sqlite": ("TEXT", "BLOB", "INTEGER"), "postgresql": ("TEXT", "BYTEA", "BIGINT")}
_PLACE: Final = "conversation {number}, position {number}"
_TOKENS: Final = "input_tokens {number}, output_tokens {number}"
_KEY: Final = "PRIMARY KEY (conversation, position)"
_TABLES: Final = (
    f"CREATE TABLE IF NOT EXISTS item ({_PLACE}, body {{text}}, {_KEY})",
    f"CREATE TABLE IF NOT EXISTS response ({_PLACE}, body {{bytes}}, {_KEY})",
    f"CREATE TABLE IF NOT EXISTS usage ({_PLACE}, model {{text}}, {_TOKENS}, {_KEY})",
)
_NEXT: Final = "SELECT coalesce(max(position), -1) + 1 FROM item WHERE conversation = %s"
_ITEM: Final = f"INSERT INTO item SELECT %s, ({_NEXT}), %s RETURNING position"
_RESPONSE: Final = "INSERT INTO response VALUES (%s, %s, %s)"
_USAGE: Final = "INSERT INTO usage VALUES (%s, %s, %s, %s, %s)"
# PostgreSQL writes all three in one round trip.
_ANSWER: Final = (
    f"WITH new AS ({_ITEM}), answer AS (INSERT INTO response SELECT %s, position, %s FROM new) "
    "INSERT INTO usage SELECT %s, position, %s, %s, %s FROM new RETURNING position"
)
_TURN: Final = (
    f"WITH said AS ({_ITEM}), new AS (INSERT INTO item SELECT %s, position + 1, %s FROM said RETURNING position), "
    "answer AS (INSERT INTO response SELECT %s, position, %s FROM new) "
    "INSERT INTO usage SELECT %s, position, %s, %s, %s FROM new RETURNING position"
)
_BODIES: Final = "SELECT body FROM item WHERE conversation = %s ORDER BY position"
_NEW_BODIES: Final = "SELECT body FROM item WHERE conversation = %s AND position >= %s ORDER BY position"


class Smallest:
    """Conversations in three tables; they are numbered by whoever writes them."""

    def __init__(self, driver: Driver, kind: str) -> None:
        self._driver, self._takes_all = driver, kind == "postgresql"
        text, raw, number = _TYPES[kind]
        driver.begin()
        for statement in _TABLES:
            driver.write(statement.format(text=text, bytes=raw, number=number), ())
        driver.commit()

    def fill(self, conversation: int, items: Sequence[dict[str, Any]]) -> None:
        """Write a whole conversation."""
        driver = self._driver
        driver.begin()
        for item in items:
            driver.write_returning(_ITEM, (conversation, conversation, orjson.dumps(item).decode()))
        driver.commit()

    def append_turn(self, conversation: int, turn: tuple[str, bytes]) -> None:
        """What the user says in a transaction, and the answer as it came over the wire in another."""
        driver = self._driver
        said, answer, raw, figures = _values(turn)
        if self._takes_all:  # in autocommit mode
            driver.read(_ITEM, (conversation, conversation, said))
            place = (conversation, conversation)
            driver.read(_ANSWER, (*place, answer, conversation, raw, conversation, *figures))
            return
        driver.begin()
        driver.write_returning(_ITEM, (conversation, conversation, said))
        driver.commit()
        driver.begin()
        position = driver.write_returning(_ITEM, (conversation, conversation, answer))[0]
        driver.write(_RESPONSE, (conversation, position, raw))
        driver.write(_USAGE, (conversation, position, *figures))
        driver.commit()

    def append_at_once(self, conversation: int, turn: tuple[str, bytes]) -> None:
        """The same in one transaction."""
        driver = self._driver
        said, answer, raw, figures = _values(turn)
        place = (conversation, conversation)
        if self._takes_all:
            driver.read(_TURN, (*place, said, conversation, answer, conversation, raw, conversation, *figures))
            return
        driver.begin()
        driver.write_returning(_ITEM, (*place, said))
        position = driver.write_returning(_ITEM, (*place, answer))[0]
        driver.write(_RESPONSE, (conversation, position, raw))
        driver.write(_USAGE, (conversation, position, *figures))
        driver.commit()

    def resume(self, conversation: int) -> bytes:
        """The next request; its options are the program's."""
        rows = self._driver.read(_BODIES, (conversation,))
        return HEAD + ",".join([row[0] for row in rows]).encode() + b"]}"

    def refresh(self, conversation: int, kept: KeptBytes) -> bytes:
        """The same from what is kept, to which others may have appended."""
        rows = self._driver.read(_NEW_BODIES, (conversation, kept.count))
        kept.text += b"," * bool(rows and kept.count) + ",".join([row[0] for row in rows]).encode()
        kept.count += len(rows)
        return b"".join((HEAD, kept.text, b"]}"))


@dataclass(slots=True)
class KeptBytes:
    """The items of a request that is kept."""

    text: bytearray = field(default_factory=bytearray)
    count: int = 0


def _values(turn: tuple[str, bytes]) -> tuple[str, str, bytes, tuple[str, int, int]]:
    """The JSON of both items, the body as it came, and the model with its tokens."""
    text, raw = turn
    content = [{"type": "input_text", "text": text}]
    said = orjson.dumps({"type": "message", "role": "user", "content": content}).decode()
    body = orjson.loads(raw)
    answer, usage = orjson.dumps(body["output"][0]).decode(), body["usage"]
    return said, answer, raw, (body["model"], usage["input_tokens"], usage["output_tokens"])


@on_each_database("NORMAL")
def run(database: Database, scale: Scale) -> list[Line]:
    driver = database.driver()
    smallest = Smallest(driver, database.kind)
    conversations = iter(range(1_000_000))
    with contextlib.ExitStack() as stack:
        store, other, forgetful = (
            stack.enter_context(database.store(**options)) for options in ({}, {}, {"memory_bytes": 0})
        )
        appends = {
            size: (appending(store, size, scale.rounds), _floor(smallest, conversations, size, scale))
            for size in scale.sizes
        }
        resumes = {size: _resumes(forgetful, smallest, next(conversations), size) for size in scale.sizes}
        others = database.driver()
        stack.callback(others.close)
        floors = smallest, Smallest(others, database.kind)
        refreshes = {size: _refreshes((store, other), floors, conversations, size, scale) for size in scale.sizes}
        every = (*appends.values(), *resumes.values(), *refreshes.values())
        run_rounds([case for cases in every for case in cases], scale.rounds)
        driver.close()
    must, musts = APPEND_MUST[database.kind], RESUME_MUST[database.kind]
    return [
        *(Line.of(f"append a turn, smallest, N={size:,}", database.label, *appends[size], must) for size in appends),
        *(
            Line.of(f"first resume{how}, smallest, N={size:,}", database.label, case, floor, musts.get(size))
            for size, (opened, at_once, floor) in resumes.items()
            for how, case in (("", opened), (" by one call", at_once))
        ),
        *(
            Line.of(f"refresh, smallest, N={size:,}", database.label, *cases, REFRESH_MUST.get((database.kind, size)))
            for size, cases in refreshes.items()
        ),
    ]


def _floor(smallest: Smallest, conversations: Iterator[int], size: int, scale: Scale) -> Case:
    keys = [next(conversations) for _ in range(scale.rounds)]
    for seed, key in enumerate(keys):
        smallest.fill(key, conversation_items(size, seed))
    rounds = iter(keys)
    key = 0
    new: Iterator[tuple[str, bytes]] = iter(())

    def open_next() -> None:
        nonlocal key, new
        key = next(rounds)
        smallest.resume(key)
        new = iter(TURNS)

    def call() -> None:
        for _ in range(AT_ONCE):
            smallest.append_turn(key, next(new))

    return Case("smallest", call, each_round=open_next, count=AT_ONCE)


def _refreshes(
    stores: tuple[Store, Store], floors: tuple[Smallest, Smallest], keys: Iterator[int], size: int, scale: Scale
) -> tuple[Case, Case]:
    """A conversation that is kept, to which another store, on a connection of its own, has appended a turn."""
    (store, other), (smallest, writer) = stores, floors
    names = stored(store, size, scale.rounds)
    handle = writing = store.get_conversation(next(stored(store, size, 1)))
    key, kept = next(keys), KeptBytes()
    new: dict[str, Iterator[tuple[str, bytes]]] = {}

    def open_ours() -> None:
        nonlocal handle, writing
        name = next(names)
        handle, writing = store.get_conversation(name), other.get_conversation(name)
        handle.request_body("open_responses")
        new["ours"] = iter(TURNS)

    def open_floor() -> None:
        nonlocal key, kept
        key, kept = next(keys), KeptBytes()
        writer.fill(key, conversation_items(size))
        smallest.refresh(key, kept)
        new["floor"] = iter(TURNS)

    return (
        Case(
            "threadkeep", lambda: handle.request_body("open_responses"),
            prepare=lambda: append_turn(writing, next(new["ours"])), each_round=open_ours,
        ),
        Case(
            "smallest", lambda: smallest.refresh(key, kept),
            prepare=lambda: writer.append_turn(key, next(new["floor"])), each_round=open_floor,
        ),
    )  # fmt: skip


def _resumes(store: Store, smallest: Smallest, key: int, size: int) -> tuple[Case, Case, Case]:
    """A conversation that is opened and then rendered, both at once, and the floor."""
    name = next(stored(store, size, 1))
    body = store.get_conversation(name).request_body("open_responses")
    smallest.fill(key, orjson.loads(body)["input"])
    if orjson.loads(body) != orjson.loads(smallest.resume(key)):
        raise AssertionError("The smallest floor renders another request.")
    count = REPEATED.get(size, 1)

    def ours() -> None:
        for _ in range(count):
            store.get_conversation(name).request_body("open_responses")

    def at_once() -> None:
        for _ in range(count):
            store.render(name, "open_responses")

    def base() -> None:
        for _ in range(count):
            smallest.resume(key)

    cases = {"threadkeep": ours, "threadkeep, one call": at_once, "smallest": base}
    opened, one_call, floor = (Case(name, call, count=count) for name, call in cases.items())
    return opened, one_call, floor
