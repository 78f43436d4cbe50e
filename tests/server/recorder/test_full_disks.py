"""The spool on a full disk, and through a kill while it notes that a call is stored."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from resource import RLIMIT_FSIZE, getrlimit, setrlimit

import pytest

from tests.processes import forked
from tests.server.recorder.provider import whole
from tests.server.recorder.test_spool import recovered, written
from tests.server.recorder.test_waiting import a_call
from tests.waiting import wait_until
from threadkeep import AsyncStore, Store
from threadkeep.server.recorder.exchanges import Exchange
from threadkeep.server.recorder.spool import Spool
from threadkeep.server.recorder.worker import RecordingThread

LARGE = 100_000  # bytes, which take more than one frame


@contextmanager
def full_disk(most: int) -> Iterator[None]:
    """Let files of this process grow no longer than so many bytes, as if the disk had no room for more."""
    soft, hard = getrlimit(RLIMIT_FSIZE)
    setrlimit(RLIMIT_FSIZE, (most, hard))
    try:
        yield
    finally:
        setrlimit(RLIMIT_FSIZE, (soft, hard))


def run_alone(target: Callable[..., None], *arguments: object) -> None:
    """Run a function in a process, whose limits are its own."""
    process = forked(target, *arguments)
    process.join(60)
    assert process.exitcode == 0


def run_until_killed(target: Callable[..., None], *calls: tuple[object, ...]) -> None:
    """Call a function in one process after the other; each kills itself."""
    for arguments in calls:
        if not (child := os.fork()):
            target(*arguments)
            os._exit(1)
        assert os.WTERMSIG(os.waitpid(child, 0)[1]) == signal.SIGKILL


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


# What is noted of calls that are stored


def finish_on_full_disk(directory: Path, room: int) -> None:
    """The disk has no room for the whole id of the second call; it has when the third is stored."""
    spool = Spool(directory)
    calls = [written(spool, f"call {number}".encode()) for number in range(5)]
    spool.finish(calls[0])
    with full_disk(16 + room):
        spool.finish(calls[1])
    spool.finish(calls[2])
    assert spool.size > 0
    die()


def test_an_id_that_has_no_room_is_written_with_a_later_one(tmp_path: Path) -> None:
    """What is left of a short write makes no later id unreadable."""
    calls = [(tmp_path / str(room), room) for room in (0, 8, 15)]
    run_alone(run_until_killed, finish_on_full_disk, *calls)
    for directory, _ in calls:
        assert recovered(directory) == [b"call 3", b"call 4"]


def finish_all_on_full_disk(directory: Path) -> None:
    spool = Spool(directory, file_bytes=100)
    calls = [written(spool, b"x" * 90, b"y" * 90) for _ in range(3)]
    with full_disk(0):
        for call in calls:
            spool.finish(call)
    assert spool.size == 0
    assert not list(directory.glob("*/*.stored"))
    assert written(spool, b"z").size == 1


def test_files_are_removed_on_a_full_disk(tmp_path: Path) -> None:
    run_alone(finish_all_on_full_disk, tmp_path)


def finish_until_killed(directory: Path, step: int) -> None:
    """A call in two files is stored, but for a kill at some step of that; another one waits in the second."""
    spool, left = Spool(directory, file_bytes=100), step
    call = spool.begin()
    spool.append(call, b"x" * 100, is_last=False)
    spool.append(call, b"y", is_last=True)
    written(spool, b"other")
    assert len(list(directory.glob("*/*.spool"))) == 2

    def count(event: str, _: object) -> None:
        nonlocal left
        if event in {"open", "os.remove", "os.rename", "os.truncate"}:
            left -= 1
            if left < 0:
                die()

    sys.addaudithook(count)
    spool.finish(call)
    left = sys.maxsize
    die()


def recover_until_killed(directory: Path) -> None:
    """All is read that another process has left, and what had waited in its first file only is removed."""
    spool = Spool(directory)
    assert len(list(spool.recover())) in {1, 2}
    die()


@pytest.mark.parametrize("is_killed_again", [False, True], ids=["once", "twice"])
def test_a_call_in_two_files_is_whole_or_stored_after_a_kill(tmp_path: Path, is_killed_again: bool) -> None:
    """It is never taken for damaged: whatever was removed of it by then."""
    calls = [(tmp_path / str(step), step) for step in range(8)]
    run_alone(run_until_killed, finish_until_killed, *calls)
    if is_killed_again:
        run_alone(run_until_killed, recover_until_killed, *((directory,) for directory, _ in calls))
    found = [recovered(directory) for directory, _ in calls]
    assert (found[0], found[-1]) == ([b"x" * 100 + b"+y", b"other"], [b"other"])
    assert all(one in (found[0], found[-1]) for one in found)
    assert {one.name for directory, _ in calls for one in directory.iterdir()} == {"lock"}


# What clients send


def _note_request(exchange: Exchange | None, content: str) -> Exchange:
    assert exchange is not None
    message = {"role": "user", "content": content}
    exchange.note_request(json.dumps({"model": "m", "messages": [message]}).encode())
    exchange.note_request_end()
    return exchange


def _answer(exchange: Exchange, more: bytes = b"") -> None:
    reply = whole("chat_completion", "Fine.")
    exchange.note_answer(200, [(b"content-type", b"application/json")])
    for chunk in (more, *reply.chunks):
        exchange.note_chunk(chunk)
    exchange.end("answered")


def record_on_full_disk(url: str, directory: Path) -> None:
    async def run() -> None:
        spool = Spool(directory)
        recording = RecordingThread(AsyncStore(url), spool=spool)
        recording.start()

        async def reach(name: str, count: int) -> None:
            is_reached = lambda: recording.health()[name] >= count  # noqa: E731
            await asyncio.to_thread(wait_until, is_reached, partial(recording.health))

        first = _note_request(recording.begin(a_call()), "x" * LARGE)
        second = _note_request(recording.begin(a_call()), "y" * LARGE)
        await reach("spooled_bytes", LARGE)
        with full_disk(0):
            _answer(second, b"z" * LARGE)
            await reach("dropped", 1)
        _answer(first)
        await reach("recorded", 1)
        _answer(_note_request(recording.begin(a_call()), "after"))
        await reach("recorded", 2)
        health = recording.health()
        assert {name: health[name] for name in ("recorded", "dropped", "failed", "open")} == {
            "recorded": 2, "dropped": 1, "failed": 0, "open": 0,
        }  # fmt: skip
        await asyncio.to_thread(wait_until, lambda: spool.size == 0)
        await recording.stop()

    asyncio.run(run())


def test_a_call_that_the_disk_has_no_room_for_is_dropped(tmp_path: Path) -> None:
    """It counts as dropped, takes no more room, and keeps no other from being stored."""
    url = f"sqlite:///{tmp_path}/chat.db"
    Store(url).close()
    run_alone(record_on_full_disk, url, tmp_path / "spool")
    assert [one.name for one in (tmp_path / "spool").iterdir()] == ["lock"]
