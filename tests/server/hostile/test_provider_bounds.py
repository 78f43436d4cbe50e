"""What a provider sends without end, or too much of: bounds on what is read, kept in memory, and stored."""

from __future__ import annotations

import asyncio
import itertools
import json
import resource
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.processes import forked, pipe
from tests.server.hostile.providers import DONE, FACES, GARBAGE, SSE, Script, World, answer, delta, hostile, sse
from tests.server.scripts import COMPRESS
from tests.waiting import wait_until
from threadkeep import AsyncStore, InvalidOption, Store
from threadkeep.http import RecordedUpstream, UpstreamError, app, recorder_app, rest_app
from threadkeep.server import provider_answers

pytestmark = [pytest.mark.one_face, pytest.mark.one_database, pytest.mark.share(3)]

MIB = 1024 * 1024
MOST = 200_000  # bytes of an answer in these tests
WORD = "word " * 200
BEGUN = sse(delta("Let me see."))


def endless(piece: bytes, most: int = 5) -> Iterator[bytes]:
    """So many megabytes that what keeps them goes past its limit, but an end if nobody leaves."""
    return itertools.repeat(piece * (16_384 // len(piece) + 1), 61 * most)


# what never ends: pieces of one text, an event without an end, a line without one, and lines that are no events
ENDLESS = {
    "events": sse(delta(WORD)),
    "an event": b"data: x\n",
    "a line": b"data: x",
    "a line of bytes": b"\xff\xfe",
    "comments": b": still here\n\n",
}


@pytest.mark.parametrize("kind", ENDLESS)
@pytest.mark.parametrize("face", ["responses", "rest"])
def test_an_answer_without_end_is_left_and_incomplete(database: Database, face: str, kind: str) -> None:
    script = Script(itertools.chain([BEGUN], endless(ENDLESS[kind])))
    with hostile(database, face, "chat_completion", script, max_answer_bytes=MOST) as world:
        assert world.ask()[0] == 200
        status, text = world.ended()
        assert (status, 0 < len(text) <= MOST) == ("incomplete", True)


@pytest.mark.parametrize("kind", ENDLESS)
def test_an_answer_without_end_passes_and_is_stored_up_to_the_limit(database: Database, kind: str) -> None:
    script = Script(itertools.chain([BEGUN], endless(ENDLESS[kind])))
    with hostile(database, "recorder", "chat_completion", script, max_answer_bytes=MOST) as world:
        with world.asked() as response:
            received = 0
            for chunk in response.iter_bytes():
                received += len(chunk)
        assert received > 4_900_000  # which the client gets, all of it
        status, text = world.ended()
        assert (status, len(text) <= MOST) == ("incomplete", True)


@pytest.mark.parametrize("face", ["responses", "rest"])
def test_an_answer_that_is_too_long_before_it_begins_is_502(database: Database, face: str) -> None:
    lines = Script(endless(b": still here\n"))
    with hostile(database, face, "chat_completion", lines, max_answer_bytes=MOST) as world:
        status, text = world.ask(is_stream=False)
        assert (status, f"more than {MOST:,} bytes" in text) == (502, True)


BOMBS = {
    "events": BEGUN + sse(delta(WORD)) * 5_000,
    "spaces": BEGUN + b" " * 5_000_000,
    "lines": BEGUN + b"\n" * 5_000_000,
}


@pytest.mark.parametrize(
    ("encoding", "kind"), [*((name, "events") for name in COMPRESS), ("gzip", "spaces"), ("gzip", "lines")]
)
@pytest.mark.parametrize("face", FACES)
def test_an_answer_that_grows_when_decompressed_is_read_up_to_the_limit(
    database: Database, face: str, encoding: str, kind: str
) -> None:
    script = Script([COMPRESS[encoding](BOMBS[kind])], (*SSE, f"content-encoding: {encoding}"))
    with hostile(database, face, "chat_completion", script, max_answer_bytes=MOST) as world:
        with world.asked() as response:
            assert response.status_code == 200
            size = sum(map(len, response.iter_raw()))
        assert size <= 5 * MOST  # events of the Responses API repeat each text
        status, text = world.ended()
        assert (status, 0 < len(text) <= MOST) == ("incomplete", True)


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("spool", [False, True])
@pytest.mark.parametrize("status", ["200 OK", "500 Oh"])
def test_a_body_that_grows_when_decompressed_is_an_attempt_that_failed(
    database: Database, tmp_path: Path, encoding: str, status: str, *, spool: bool
) -> None:
    body = COMPRESS[encoding](b'{"error": {"message": "' + b"No. " * 1_000_000 + b'"}}')
    script = Script([body], ("content-type: application/json", f"content-encoding: {encoding}"), status)
    options: Any = {"spool": tmp_path if spool else None, "max_answer_bytes": MOST}
    with hostile(database, "recorder", "chat_completion", script, **options) as world:
        with world.asked(is_stream=False) as response:
            assert b"".join(response.iter_raw()) == body
        [row] = world.usage()
        assert (row.status, row.attempts) == ("failed", 1)


@pytest.mark.parametrize("encoding", COMPRESS)
@pytest.mark.parametrize("face", ["responses", "rest"])
def test_of_an_error_that_grows_when_decompressed_so_much_is_read_as_is_told(
    database: Database, face: str, encoding: str
) -> None:
    body = COMPRESS[encoding](b'{"error": {"message": "' + b"No. " * 1_000_000 + b'"}}')
    headers = ("content-type: application/json", f"content-encoding: {encoding}")
    with hostile(database, face, "chat_completion", Script([body], headers, "429 Too Many Requests")) as world:
        status, text = world.ask(is_stream=False)
        assert (status, len(text) < 4000) == (429, True)


TWICE = ("gzip, gzip", "br, zstd", "gzip, identity, x-gzip")


@pytest.mark.parametrize("encodings", TWICE)
@pytest.mark.parametrize("status", [200, 429])
@pytest.mark.parametrize("face", FACES)
def test_nothing_is_unpacked_twice(database: Database, face: str, status: int, encodings: str) -> None:
    """What a body grows to when it is unpacked once may be nothing when it is unpacked again, and takes as long."""
    script = Script([b"{}"], (*SSE, f"content-encoding: {encodings}"), f"{status} Oh")
    with hostile(database, face, "chat_completion", script) as world:
        with world.asked(is_stream=False) as response:
            text = b"".join(response.iter_raw()).decode()
        if face == "recorder":
            assert (response.status_code, text) == (status, "{}")
        else:
            assert response.status_code == (502 if status == 200 else status)
            assert (f"the content-encoding {encodings.replace('identity, ', '')}, which" in text) == (status == 200)
        assert [row.attempts for row in world.usage()] == [1]


ERRORS: dict[str, Callable[[], Iterator[bytes]]] = {
    "text": lambda: endless(b"x"),
    "json": lambda: itertools.chain([b'{"error": {"message": "'], endless(b"Not like this. ")),
    "deep": lambda: iter([b"[" * 200_000]),
}


@pytest.mark.parametrize("kind", ERRORS)
@pytest.mark.parametrize("face", ["responses", "rest"])
def test_of_an_error_so_much_is_read_as_is_told(database: Database, face: str, kind: str) -> None:
    script = Script(ERRORS[kind](), ("content-type: application/json",), "429 Too Many Requests")
    with hostile(database, face, "chat_completion", script, max_answer_bytes=MOST) as world:
        status, text = world.ask(is_stream=False)
        assert (status, len(text) < 4000) == (429, True)


def test_of_an_error_that_passes_so_much_is_stored_as_is_told(database: Database) -> None:
    script = Script(ERRORS["text"](), ("content-type: text/plain",), "500 Oh")
    with hostile(database, "recorder", "chat_completion", script) as world:
        status, text = world.ask()
        assert (status, len(text) > 4_900_000) == (500, True)
        [row] = world.usage()
        assert (row.status, row.attempts) == ("failed", 1)


def test_what_a_provider_says_in_an_error_is_cut(database: Database) -> None:
    said = {"error": {"message": "No. " * 10_000}}
    script = Script([json.dumps(said).encode()], ("content-type: application/json",), "400 Bad Request")
    with hostile(database, "responses", "chat_completion", script) as world:
        status, text = world.ask(is_stream=False)
        assert (status, text.count("No. ")) == (400, 500)


def test_a_whole_answer_that_is_too_long_is_an_attempt_that_failed(database: Database) -> None:
    script = Script([b'{"choices": [', *endless(b"0,")], ("content-type: application/json",))
    with hostile(database, "recorder", "chat_completion", script, max_answer_bytes=MOST) as world:
        _, text = world.ask(is_stream=False)
        assert len(text) > 4_900_000
        [row] = world.usage()
        assert (row.status, row.attempts) == ("failed", 1)


def test_an_event_of_too_many_values_is_not_read() -> None:
    body = b"data: [" + b"0," * (provider_answers.MAX_EVENT_VALUES + 1) + b"0]\n\n"
    response = httpx2.Response(200, content=body, headers={"content-type": "text/event-stream"})
    response.request = httpx2.Request("POST", "http://provider")

    async def read() -> list[str]:
        return [event async for event in provider_answers.text_events(response, len(body))]

    with pytest.raises(UpstreamError, match="an event of more than 2,000,000 values"):
        asyncio.run(read())


@pytest.mark.parametrize("limit", [0, -1, 1.5, "64", None, True])
def test_a_limit_is_a_number_of_bytes(tmp_path: Path, limit: Any) -> None:
    store = AsyncStore(f"sqlite:///{tmp_path / 'a.db'}")
    for make in (app, rest_app):
        with pytest.raises(InvalidOption, match="max_answer_bytes"):
            make(store, max_answer_bytes=limit)
    with pytest.raises(InvalidOption, match="max_answer_bytes"):
        recorder_app(store, [RecordedUpstream("a", "messages", "http://a")], max_answer_bytes=limit)


# Split, odd and broken


def split(body: bytes, size: int) -> list[bytes]:
    return [body[start : start + size] for start in range(0, len(body), size)]


@pytest.mark.parametrize("size", [1, 3])
@pytest.mark.parametrize("face", FACES)
def test_an_answer_may_come_in_any_pieces(database: Database, face: str, size: int) -> None:
    body = sse(delta("ä木🎉"), delta(" - ¼")) + answer("chat_completion") + DONE
    body = body.replace(rb"\u00e4\u6728\ud83c\udf89", "ä木🎉".encode())
    with hostile(database, face, "chat_completion", Script(split(body, size))) as world:
        status, _ = world.ask()
        assert status == 200
        assert world.ended() == ("completed", "ä木🎉 - ¼Let me see.")


@pytest.mark.parametrize(
    "headers",
    [
        ("content-type: text/event-stream", *(f"x-{number}: {'y' * 100}" for number in range(90))),
        ("content-type: text/event-stream; charset=latin-1; boundary=\x7f",),
        ("content-type: text/event-stream", "retry-after: " + "9" * 5000, "x-request-id: \xe4\xf6"),
    ],
    ids=["many", "odd", "long"],
)
@pytest.mark.parametrize("face", FACES)
def test_headers_of_a_provider_change_nothing(database: Database, face: str, headers: tuple[str, ...]) -> None:
    with hostile(database, face, "chat_completion", Script([answer("chat_completion"), DONE], headers)) as world:
        status, _ = world.ask()
        assert status == 200
        assert world.ended() == ("completed", "Let me see.")


def broken(world: World) -> int:
    """The status of an answer that breaks off."""
    with suppress(httpx2.HTTPError):
        status, _ = world.ask()
        return status
    assert world.face == "recorder"  # where the connection breaks as the provider's does
    return 0


@pytest.mark.parametrize("pieces", [[], [b"\n"], [GARBAGE]], ids=["nothing", "blank", "garbage"])
@pytest.mark.parametrize("after", ["end", "reset"])
@pytest.mark.parametrize("face", FACES)
def test_a_provider_that_says_nothing_leaves_nothing_behind(
    database: Database, face: str, after: str, pieces: list[bytes]
) -> None:
    """… and the next call is answered."""
    with hostile(database, face, "chat_completion", Script(pieces, after=after)) as world:
        broken(world)
        world.provider.script = Script([answer("chat_completion"), DONE])
        status, text = world.ask()
        assert (status, "Let me" in text) == (200, True)


# Memory


def memory_of_hostile_answers(face: str, url: str, results: Any) -> None:
    """What a server's process takes at most for answers of 20 MB, over what it takes for short ones.

    Its store remembers little of what was read, which may be 32 MiB otherwise, and one is stored before the next comes.
    """
    short = {"events": Script([sse(delta("Hi")), DONE])}
    endings = [itertools.chain([BEGUN], endless(ENDLESS[name], 20)) for name in ("events", "comments", "a line") * 2]
    bomb = BEGUN + sse(delta(WORD)) * 60_000
    scripts = [Script(ending) for ending in endings]
    scripts += [Script([COMPRESS[name](bomb)], (*SSE, f"content-encoding: {name}")) for name in COMPRESS]
    database = Database("sqlite", url)

    def peak() -> int:
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)

    limits = {"max_answer_bytes": 2 * MIB, "memory_bytes": MIB}
    with hostile(database, face, "chat_completion", short["events"], **limits) as world:
        world.ask()
        before = peak()
        for script in scripts:
            world.provider.script = script
            with suppress(httpx2.HTTPError), world.asked() as response:
                for _ in response.iter_raw():
                    pass
            wait_until(lambda: face != "recorder" or not world.application.state.health()["open"])
    results.send(peak() - before)


@pytest.mark.parametrize("face", FACES)
def test_memory_is_flat_whatever_a_provider_sends(tmp_path: Path, face: str) -> None:
    url = f"sqlite:///{tmp_path / 'a.db'}"
    Store(url, tenants=True).close()
    receiving, sending = pipe()
    process = forked(memory_of_hostile_answers, face, url, sending)
    assert receiving.poll(120)
    grown = receiving.recv()
    process.join(20)
    assert grown < 64 * MIB  # with the provider and the client, which are in the same process
