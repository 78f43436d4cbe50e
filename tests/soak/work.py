"""What writers, readers and housekeepers do in a soak."""

from __future__ import annotations

import asyncio
import itertools
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from threading import Lock, Thread
from typing import Any, Final

from sqlalchemy.exc import OperationalError

from tests.factories import a_stream, an_answer, texts_of
from tests.store.faces import blocking_store
from threadkeep import CannotRender, LeaseLost, NotFound, ResponseInProgress, Store

SHARED: Final = "shared"
SHARED_EVERY: Final = 5  # turns of a writer, for one in the conversation of all
OPERATIONS: Final = 12  # in a conversation, before the next one is begun
PAUSE_SECONDS: Final = 0.05
MEMORY: Final = 1024 * 1024  # of conversations; soon full, so that it does not look like growth
RAW_BODIES, CONTENT = timedelta(seconds=30), timedelta(minutes=10)
STOP: Final = "stop"  # the name of a file: its existence ends the run


class Interrupted(Exception):
    """Ends a stream in the middle, as a client that goes away does."""


class Counts:
    """How often what was done, and what went wrong, by all threads of a process."""

    def __init__(self) -> None:
        self.done: Counter[str] = Counter()
        self.failures: list[str] = []
        self._lock = Lock()

    def add(self, name: str) -> None:
        with self._lock:
            self.done[name] += 1

    def fail(self, what: str) -> None:
        with self._lock:
            self.failures.append(what)


class Writer:
    """Appends numbered turns to a journal, and does all kinds of things to other conversations."""

    def __init__(self, store: Any, name: str, folder: Path, counts: Counts) -> None:
        self._store, self._name, self._counts = store, name, counts
        self._log = folder / name
        self._random = random.Random()
        self._number = len(noted_by(name, folder))
        about: dict[str, Any] = {"external_id": f"journal {name}", "idempotency_key": f"journal {name}"}
        self._journal = store.create_conversation(model="m", **about)
        self._shared = store.find_conversation(external_id=SHARED)
        self._other: Any = None

    def step(self) -> None:
        """A turn of the journal, which is noted when it is acknowledged, and something else."""
        text, key = f"{self._name} {self._number}", f"{self._name} {self._number}"
        self._journal.add_turn(text, an_answer(text, id=text), "open_responses", idempotency_key=key)
        if self._number % SHARED_EVERY == 0:
            self._shared.user(text, idempotency_key=key)
        with self._log.open("a") as log:
            log.write(f"{text}\n")
        self._number += 1
        self._counts.add("turns")
        self._do_something()

    def _do_something(self) -> None:
        if self._other is None or self._number % OPERATIONS == 0:
            self._begin()
        name, call = self._random.choice(list(self._operations().items()))
        try:
            call()
        except (
            NotFound,
            ResponseInProgress,
            LeaseLost,
            Interrupted,
        ) as error:  # retention, or a branch that is streamed
            name = f"{name}: {type(error).__name__}"
            if not isinstance(error, Interrupted):
                self._other = None
        self._counts.add(name)

    def _begin(self) -> None:
        if self._other is not None and self._random.random() < 0.7:
            with suppress(NotFound):
                self._store.delete_conversation(self._other.id)
                self._counts.add("deletions")
        self._other = self._store.create_conversation(
            model="m", input=f"begin {self._number}", user_id=f"user {self._name}", title=f"{self._name}"
        )
        self._other.add_response(an_answer("yes", padding="x" * 20_000), "open_responses")

    def _operations(self) -> dict[str, Callable[[], object]]:
        other = self._other
        return {
            "streams": self._stream,
            "streams left": lambda: self._stream(stop_after=5),
            "forks": lambda: other.fork(at=0).user("elsewhere"),
            "edits": lambda: other.edit(0, "begin again"),
            "states": lambda: other.set_state("run", {"number": self._number}),
            "feedback": lambda: other.set_feedback(1, rating=1),
            "labels": lambda: other.update(labels={"number": str(self._number)}),
            "removals": lambda: (other.user("not this"), other.pop()),
            "renders": lambda: other.request_body("chat_completion"),
            "compactions": lambda: other.compact(summary="So far"),
        }

    def _stream(self, stop_after: int | None = None) -> None:
        with self._other.stream_response("open_responses") as recorder:
            for number, event in enumerate(a_stream("some words that arrive one by one", id=f"s {self._number}")):
                if number == stop_after:
                    raise Interrupted
                recorder.feed(event)


def read(store: Store, counts: Counts, number: int) -> None:
    """What a list with a search field, a report and an open conversation read."""
    page = store.list_conversations(limit=20)
    for conversation in page.items[:3]:
        with suppress(NotFound, CannotRender):  # deleted meanwhile; still without a message
            conversation.request_body("messages")
            conversation.items()
    store.search("words")
    store.usage(by="model")
    if number % 10 == 0:
        store.statistics()
    counts.add("reads")


def keep_house(store: Store, counts: Counts, number: int) -> None:
    """Erase a user, let old content go, and fill the days."""
    user = f"guest {number}"
    guest = store.create_conversation(model="m", input="I am here", user_id=user)
    guest.add_response(an_answer("Welcome"), "open_responses")
    store.erase_user(user)
    if store.for_user(user).list_conversations().items:
        counts.fail(f"{user} was erased and is still there")
    store.retain(raw_bodies=RAW_BODIES, content=CONTENT)
    store.purge_deleted()
    store.fill_usage_days()
    counts.add("erasures, retention")


def repeated(step: Callable[[int], object], counts: Counts, what: str, folder: Path, pause: float) -> Thread:
    """A started thread that does something again and again, until the run ends."""

    def run() -> None:
        for number in itertools.count():
            if (folder / STOP).exists():
                return
            try:
                step(number)
            except Exception as error:  # noqa: BLE001 - told at the end
                counts.fail(f"{what}: {type(error).__name__}: {str(error)[:300]}")
            time.sleep(pause)

    thread = Thread(target=run, name=what, daemon=True)
    thread.start()
    return thread


@contextmanager
def opened(url: str, face: str) -> Iterator[Any]:
    """A store of a face, with a small memory."""
    if face == "sync":
        with Store(url, memory_bytes=MEMORY) as store:
            yield store
    else:
        with asyncio.Runner() as runner, blocking_store(url, runner, memory_bytes=MEMORY) as store:
            yield store


def start_writers(url: str, names: list[str], face: str, folder: Path, counts: Counts) -> list[Thread]:
    """Start a thread for each writer; each has a store of its own if it is async."""

    def write(name: str) -> None:
        with opened(url, face) as store:
            writer = Writer(store, name, folder, counts)
            while not (folder / STOP).exists():
                try:
                    writer.step()
                except OperationalError as error:  # asked again with the same key
                    counts.add(f"repeated: {type(error.orig).__name__}")
                time.sleep(PAUSE_SECONDS)

    def run(name: str) -> None:
        try:
            write(name)
        except Exception as error:  # noqa: BLE001 - told at the end
            counts.fail(f"{name}: {type(error).__name__}: {str(error)[:300]}")

    threads = [Thread(target=run, args=(name,), name=name, daemon=True) for name in names]
    for thread in threads:
        thread.start()
    return threads


def write_until_killed(url: str, names: list[str], face: str, folder: str) -> None:
    """The process of some writers; what it has to say about failures is left in a file."""
    counts = Counts()
    for thread in start_writers(url, names, face, Path(folder), counts):
        thread.join()
    if counts.failures:
        Path(folder, f"failures {names[0]}").write_text("\n".join(counts.failures))


def noted_by(name: str, folder: Path) -> list[str]:
    """The turns that a writer was told are stored; none, if it was killed before the first."""
    log = folder / name
    return log.read_text().splitlines() if log.exists() else []


def unfaithful(store: Store, name: str, folder: Path) -> str | None:
    """What is wrong with a journal: an acknowledged turn that is missing, doubled or out of order; else None."""
    noted = noted_by(name, folder)
    journal = store.find_conversation(external_id=f"journal {name}")
    shared = store.find_conversation(external_id=SHARED)
    if journal is None or shared is None:
        return f"{name}: the journal is gone" if noted else None
    texts = texts_of(journal.transcript())
    said, heard = texts[::2], texts[1::2]
    if said != heard or said[: len(noted)] != noted or len(said) - len(noted) not in {0, 1}:
        return f"{name}: {len(noted)} turns were acknowledged, {len(said)} are there"
    mine = [text for text in texts_of(shared.transcript()) if text.rpartition(" ")[0] == name]
    expected = [text for text in said if int(text.rpartition(" ")[2]) % SHARED_EVERY == 0]
    if mine[: len(noted[::SHARED_EVERY])] != noted[::SHARED_EVERY] or mine not in (expected, expected[:-1]):
        return f"{name}: {len(mine)} turns of {len(expected)} are in the conversation of all"
    return None
