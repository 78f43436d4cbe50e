"""Stored conversations to measure on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from benchmarks.data import INSTRUCTIONS, MODEL, USER, conversation_items, response_body, user_text
from benchmarks.databases import Database
from benchmarks.floor import Floor, Turn, prepared_turn
from threadkeep import Session, Store

TURN = 7_000_000  # the turn that is appended, over and over


def a_session(count: int, seed: int = 0) -> Session:
    return Session(model=MODEL, instructions=INSTRUCTIONS, temperature=0.7, input=conversation_items(count, seed))


def stored(store: Store, count: int, copies: int) -> Iterator[str]:
    """Ids of new conversations of `count` items each."""
    sessions = (a_session(count, seed) for seed in range(copies))
    return iter(store.save_many(sessions, user_id=USER))


def append_turn(conversation: Any) -> None:
    """A turn through the library: what the user says, and the provider's answer as it came over the wire."""
    conversation.user(USER_TEXT)
    conversation.add_response(ANSWER, "open_responses")


USER_TEXT = user_text(TURN)
ANSWER = response_body(TURN)


def floor_of(database: Database, store: Store) -> tuple[Floor, Turn]:
    """The floor on a database, and a turn with the rows that the library wrote for it."""
    conversation = store.create_conversation(model=MODEL, instructions=INSTRUCTIONS, temperature=0.7, user_id=USER)
    append_turn(conversation)
    driver = database.driver()
    tenant = driver.read("SELECT id FROM tenants")[0][0]
    floor = Floor(driver, tenant, is_sqlite=database.kind == "sqlite")
    return floor, prepared_turn(driver, tenant, floor.key_of(conversation.id))
