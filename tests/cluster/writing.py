"""Writers that go on while servers are killed, and what must be there afterwards."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, TypeVar

from sqlalchemy.exc import DBAPIError

from tests.cluster.servers import LOG
from tests.factories import an_answer, texts_of
from tests.store.faces import blocking_store
from tests.waiting import wait_until
from threadkeep import Store

T = TypeVar("T")

WRITERS = 12
TURNS = 16  # of each writer, in the conversation of all and in one of its own
RETRY_SECONDS = 90.0


@dataclass
class Writing:
    """What the writers have been told was stored, and how often they had to try again."""

    shared: str
    acknowledged: dict[str, int] = field(default_factory=dict)  # text -> position in the conversation of all
    own: dict[int, str] = field(default_factory=dict)  # writer -> its own conversation
    retries: Counter[str] = field(default_factory=Counter)
    errors: list[BaseException] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def insist(self, call: Callable[[], T]) -> T:
        """Call until it succeeds: what an application does that has a key for what it writes."""
        last = time.monotonic() + RETRY_SECONDS
        while True:
            try:
                return call()
            except DBAPIError as error:
                with self.lock:
                    self.retries[f"{type(error.orig).__name__} {str(error.orig)[:80]}"] += 1
                if time.monotonic() > last:
                    raise
                time.sleep(0.2)

    def write(self, store: Any, number: int) -> None:
        """Turns of one writer; each has a key."""
        own = self.insist(lambda: store.create_conversation(model="m", idempotency_key=f"own {number}"))
        self.own[number] = own.id
        for turn in range(TURNS):
            text, key = f"{number} {turn}", f"{number}.{turn}"
            shared = self.insist(lambda: store.get_conversation(self.shared))
            said = self.insist(lambda: shared.user(text, idempotency_key=key))  # noqa: B023 - called at once
            with self.lock:
                self.acknowledged[text] = said.position
            body = an_answer(text, id=f"resp {text}")
            self.insist(lambda: own.add_response(body, "open_responses", idempotency_key=key))  # noqa: B023 - the same


def run_writers(urls: list[str], writing: Writing, disturb: Callable[[], None]) -> None:
    """Let all writers write, every other one through asyncio; and disturb them in the middle of it."""

    def work(number: int) -> None:
        url = urls[number % len(urls)]
        try:
            if number % 2:
                with Store(url) as store:
                    writing.write(store, number)
            else:
                with asyncio.Runner() as runner, blocking_store(url, runner) as store:
                    writing.write(store, number)
        except BaseException as error:  # noqa: BLE001 - told by the test
            writing.errors.append(error)

    threads = [threading.Thread(target=work, args=(number,), daemon=True) for number in range(WRITERS)]
    for thread in threads:
        thread.start()
    wait_until(
        lambda: len(writing.acknowledged) >= WRITERS * TURNS // 3 or writing.errors,
        lambda: f"{len(writing.acknowledged)} turns, tried again: {dict(writing.retries)}",
        seconds=RETRY_SECONDS,
    )
    disturb()
    end = time.monotonic() + 1.5 * RETRY_SECONDS
    for thread in threads:
        thread.join(max(end - time.monotonic(), 0))
    assert not writing.errors, writing.errors[0]
    assert not any(thread.is_alive() for thread in threads)
    LOG.info("The store raised, and its callers tried again: %s", dict(writing.retries) or "nothing")


def check_written(store: Store, writing: Writing) -> list[str]:
    """Each acknowledged turn is there once, where it was said to be, and those of a writer in order; returns all."""
    texts = texts_of(store.get_conversation(writing.shared).transcript())
    assert len(texts) == len(set(texts)) == WRITERS * TURNS
    assert {text: texts[position] for text, position in writing.acknowledged.items()} == {
        text: text for text in writing.acknowledged
    }
    assert len(writing.acknowledged) == WRITERS * TURNS
    for number in range(WRITERS):
        expected = [f"{number} {turn}" for turn in range(TURNS)]
        assert [text for text in texts if text.split()[0] == str(number)] == expected
        assert texts_of(store.get_conversation(writing.own[number]).transcript()) == expected
    assert store.usage()[0].attempts == WRITERS * TURNS
    assert store.check().findings == []
    return texts
