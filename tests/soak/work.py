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

from tests.factories import a_picture, a_stream, an_answer, noise, texts_of
from tests.store.faces import blocking_store
from threadkeep import CannotRender, LeaseLost, NotFound, ResponseInProgress, Store, Turns

SHARED: Final = "shared"
SHARED_EVERY: Final = 5  # turns of a writer, for one in the conversation of all
JOURNAL: Final = 100  # turns in one conversation: what is read must not grow, or it looks like memory that is lost
OPERATIONS: Final = 12  # in a conversation, before the next one is begun
PAUSE_SECONDS: Final = 0.05
MEMORY: Final = 128 * 1024  # bytes of conversations; soon full, so that it does not look like growth
RAW_BODIES, CONTENT = timedelta(seconds=30), timedelta(minutes=5)
VARIETY: Final = 8  # instructions, tools and pictures, which conversations share: the last one that has it lets it go
PICTURE: Final = 5_000  # bytes
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
        self._user = f"user {name}"
        self._folder = folder
        self._number = len(noted_by(name, folder))
        self._journal = self._begin_journal()
        self._shared = store.find_conversation(external_id=SHARED)
        self._other: Any = None

    def _begin_journal(self) -> Any:
        """Journals are as long as a long conversation; after that, retention lets them go."""
        name = f"journal {self._name} {self._number // JOURNAL}"
        return self._store.create_conversation(model="m", external_id=name, idempotency_key=name)

    def step(self) -> None:
        """A turn of the journal, which is noted when it is acknowledged, and something else."""
        if self._number and self._number % JOURNAL == 0:
            part = self._number // JOURNAL - 1
            noted = noted_by(self._name, self._folder, first=part * JOURNAL)
            if problem := unfaithful_journal(self._store, self._name, part, noted):
                self._counts.fail(problem)
            self._journal = self._begin_journal()
        text, key = f"{self._name} {self._number}", f"{self._name} {self._number}"
        self._journal.add_turn(text, an_answer(text, id=text), "open_responses", idempotency_key=key)
        if self._number % SHARED_EVERY == 0:
            self._shared.add_turn(text, an_answer("noted", id=f"shared {text}"), "open_responses", idempotency_key=key)
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
            model="m",
            instructions=f"Be {self._any()}.",
            tools=[{"type": "function", "name": f"tool_{self._any()}", "parameters": None}],
            input=f"begin {self._number}",
            user_id=self._user,
            title=self._name,
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
            "cuts": self._cut,
            "redactions": lambda: other.redact_item(self._random.choice(list(other.items())).position),
            "renders": lambda: other.request_body("chat_completion"),
            "compactions": lambda: other.compact(summary="So far"),
            "options": lambda: other.update(instructions=f"Be {self._any()}."),
            "pictures": lambda: other.user([a_picture(self._picture())]),
            "uploads": self._upload,
        }

    def _cut(self) -> None:
        """Remove some items of a fork: its own ones, and those it shares."""
        fork = self._other.fork()
        for text in ("this", "and that"):
            fork.user(text)
        for entry in self._random.sample(list(fork.items()), 2):
            fork.remove_item(entry.position, purge=self._random.random() < 0.5)

    def _any(self) -> int:
        return self._random.randrange(VARIETY)

    def _picture(self) -> bytes:
        """One of a few, which many conversations have."""
        return noise(PICTURE, self._any())

    def _upload(self) -> None:
        """Store a picture, and then a message that has it."""
        uploaded = self._store.for_user(self._user).upload_media(self._picture(), "image/png")
        kept = self._store.for_user(self._user).media(uploaded.reference)
        self._other.user([a_picture(kept.content)])

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
            # The conversation of all grows until the end: read whole, it would look like memory that is lost.
            window = Turns(20) if conversation.external_id == SHARED else None
            conversation.request_body("messages", window=window)
            conversation.items()
    store.search("words")
    store.usage(by="model")
    if number % 10 == 0:
        store.statistics()
    counts.add("reads")


def erase(store: Store, counts: Counts, number: int) -> None:
    """Erase a user; on SQLite, this rewrites the whole file."""
    user = f"guest {number}"
    guest = store.create_conversation(model="m", input="I am here", user_id=user)
    guest.add_response(an_answer("Welcome"), "open_responses")
    store.erase_user(user)
    if store.for_user(user).list_conversations().items:
        counts.fail(f"{user} was erased and is still there")
    counts.add("erasures")


def keep_house(store: Store, counts: Counts, _: int) -> None:
    """Let old content go, and fill the days: not behind erasures, or there is more and more content."""
    store.retain(raw_bodies=RAW_BODIES, content=CONTENT)
    store.purge_deleted()
    store.fill_usage_days()
    counts.add("retention")


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


def noted_by(name: str, folder: Path, first: int = 0) -> list[str]:
    """The turns that a writer was told are stored, from one of them on; none, if it was killed before the first."""
    log = folder / name
    if not log.exists():
        return []
    with log.open() as lines:
        return [line.rstrip("\n") for line in itertools.islice(lines, first, None)]


def unfaithful_journal(store: Any, name: str, part: int, noted: list[str]) -> str | None:
    """What is wrong with a journal: an acknowledged turn that is missing, doubled or out of order; else None."""
    journal = store.find_conversation(external_id=f"journal {name} {part}")
    if journal is None:
        return f"{name}: the journal is gone" if noted else None
    texts = texts_of(journal.transcript())
    said, heard = texts[::2], texts[1::2]
    if said != heard or said[: len(noted)] != noted or len(said) - len(noted) not in {0, 1}:
        return f"{name}: {len(noted)} turns were acknowledged, {len(said)} are there"
    return None


def unfaithful(store: Store, name: str, folder: Path) -> str | None:
    """What is wrong with the last journal of a writer, and with what it said in the conversation of all; else None."""
    noted = noted_by(name, folder)
    part = len(noted) // JOURNAL
    if problem := unfaithful_journal(store, name, part, noted[part * JOURNAL :]):
        return problem
    shared = store.find_conversation(external_id=SHARED)
    if shared is None:
        return f"{name}: the conversation of all is gone"
    mine = [text for text in texts_of(shared.transcript()) if text.rpartition(" ")[0] == name]
    expected = noted[::SHARED_EVERY]
    if mine not in (expected, [*expected, f"{name} {len(noted)}"]):  # the last one may not have been acknowledged
        return f"{name}: {len(mine)} turns of {len(expected)} are in the conversation of all"
    return None
