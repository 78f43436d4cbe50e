"""Stored conversations to measure on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from benchmarks.data import INSTRUCTIONS, MODEL, USER, conversation_items, response_body, user_text
from benchmarks.databases import Database
from benchmarks.floor import Floor
from benchmarks.timing import CALLS, Case
from threadkeep import Conversation, Session, Store

# The turns that are appended: as many as one conversation gets, each with ids of its own.
TURNS: Final = tuple((user_text(turn), response_body(turn)) for turn in range(7_000_000, 7_000_012))

AT_ONCE: Final = len(TURNS) // (CALLS + 1)  # turns in one call


def a_session(count: int, seed: int = 0) -> Session:
    return Session(model=MODEL, instructions=INSTRUCTIONS, temperature=0.7, input=conversation_items(count, seed))


def stored(store: Store, count: int, copies: int) -> Iterator[str]:
    """Ids of new conversations of `count` items each."""
    sessions = (a_session(count, seed) for seed in range(copies))
    return iter(store.save_many(sessions, user_id=USER))


def append_turn(conversation: Conversation, turn: tuple[str, bytes]) -> None:
    """A turn through the library: what the user says, and the provider's answer as it came over the wire."""
    text, body = turn
    conversation.user(text)
    conversation.add_response(body, "open_responses")


def appending(store: Store, size: int, rounds: int) -> Case:
    """Turns appended through the library, in each round to another conversation of `size` items that was resumed."""
    ids = stored(store, size, rounds)
    handle: list[Conversation] = []
    new: Iterator[tuple[str, bytes]] = iter(())

    def open_next() -> None:
        nonlocal new
        handle[:] = [store.get_conversation(next(ids))]
        handle[0].request_body("open_responses")
        new = iter(TURNS)

    def call() -> None:
        for _ in range(AT_ONCE):
            append_turn(handle[0], next(new))

    return Case("threadkeep", call, each_round=open_next, count=AT_ONCE)


def floor_of(database: Database) -> Floor:
    """The floor on a database that has one tenant, which its first write has made."""
    with Store(database.url) as store:
        store.delete_conversation(store.create_conversation().id)
    driver = database.driver()
    return Floor(driver, driver.read("SELECT id FROM threadkeep_tenants")[0][0], is_sqlite=database.kind == "sqlite")
