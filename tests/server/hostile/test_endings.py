"""An answer ends where its provider says so, whatever the connection does after it."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.hostile.providers import DONE, FACES, GARBAGE, PATHS, SSE, TEXT, Script, answer, delta, hostile, sse
from tests.server.scripts import FORMATS, script
from tests.waiting import wait_until
from threadkeep.formats import get_format
from threadkeep.server import provider_answers

pytestmark = [pytest.mark.one_face, pytest.mark.one_database, pytest.mark.share(5)]

AFTER = ("end", "open", "reset")
# formats whose answers end with an event of their own; the others with [DONE], or with what does not come any more
WITH_LAST_EVENT = ("open_responses", "messages", "interactions", "converse")


def read_to_the_end(world: Any) -> None:
    """Read an answer, and leave when it is whole: a recorder passes on what comes after it, too."""
    with world.asked() as response:
        assert response.status_code == 200
        seen = ""
        for text in response.iter_text():
            seen += text
            if world.face == "recorder" and TEXT[7:] in seen and seen.endswith("\n"):
                wait_until(lambda: world.ended()[0] == "completed")  # while the connection is open
                break
    world.answered = seen


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize("face", FACES)
def test_done_ends_an_answer(database: Database, face: str, after: str) -> None:
    whole = Script([answer("chat_completion"), DONE], after=after)
    with hostile(database, face, "chat_completion", whole) as world:
        read_to_the_end(world)
        assert world.ended() == ("completed", TEXT)
        assert face == "recorder" or after != "open" or world.provider.left.wait(20)


@pytest.mark.parametrize("face", FACES)
def test_what_comes_after_done_is_no_part_of_the_answer(database: Database, face: str) -> None:
    more = Script([answer("chat_completion"), DONE, GARBAGE, sse(delta("More"))])
    with hostile(database, face, "chat_completion", more) as world:
        read_to_the_end(world)
        assert world.ended() == ("completed", TEXT)
        assert face == "recorder" or "More" not in world.answered


@pytest.mark.parametrize("after", AFTER)
@pytest.mark.parametrize(
    ("face", "format_"),
    [(face, one) for one in WITH_LAST_EVENT for face in FACES if face != "recorder" or one in PATHS],
)
def test_the_last_event_ends_an_answer(database: Database, face: str, format_: str, after: str) -> None:
    with hostile(database, face, format_, Script([answer(format_)], after=after)) as world:
        read_to_the_end(world)
        assert world.ended() == ("completed", TEXT)


@pytest.mark.parametrize("format_", FORMATS)
@pytest.mark.parametrize("face", ["responses", "rest"])
def test_a_connection_serves_the_next_answer(database: Database, face: str, format_: str) -> None:
    end = [] if format_ in {*WITH_LAST_EVENT, "gemini"} else [DONE]
    with hostile(database, face, format_, Script([answer(format_), *end], after="next")) as world:
        for is_stream in (True, False, True):
            assert world.ask(is_stream=is_stream)[0] < 300
        assert (world.provider.calls, len(world.provider.tasks)) == (3, 1)


@pytest.mark.parametrize("after", ["open", "reset", "garbage"])
@pytest.mark.parametrize("format_", ["chat_completion", "gemini"])
@pytest.mark.parametrize("face", FACES)
def test_an_answer_that_is_whole_waits_for_its_usage_only_so_long(
    database: Database, face: str, format_: str, after: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(provider_answers, "TRAILING_SECONDS", 0.2)
    pieces = [answer(format_), *([GARBAGE] if after == "garbage" else [])]
    with hostile(database, face, format_, Script(pieces, after="open" if after == "garbage" else after)) as world:
        read_to_the_end(world)
        assert world.ended() == ("completed", TEXT)


def cut(text: bytes) -> list[bytes]:
    """A text in pieces of a few bytes: no mark is in one of them."""
    return [text[start : start + 9] for start in range(0, len(text), 9)]


def gzipped(text: bytes) -> list[bytes]:
    """A text in a compressed stream that has not ended."""
    compress = zlib.compressobj(wbits=31)
    return [compress.compress(text) + compress.flush(zlib.Z_SYNC_FLUSH)]


# how an answer is written before its connection stays open
WRITTEN: dict[str, Callable[[bytes], Script]] = {
    "at once": lambda text: Script([text], after="open"),
    "in pieces": lambda text: Script(cut(text), after="open"),
    "compressed": lambda text: Script(gzipped(text), (*SSE, "content-encoding: gzip"), after="open"),
    "with a long last event": lambda text: Script(
        [text.replace(TEXT[7:].encode(), TEXT[7:].encode() * 100_000)], after="open"
    ),
}


@pytest.mark.parametrize("written", WRITTEN)
@pytest.mark.parametrize("format_", PATHS)
@pytest.mark.parametrize("is_spooled", [False, True])
def test_a_recorder_leaves_a_provider_whose_answer_is_whole(
    database: Database, format_: str, written: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_spooled: bool
) -> None:
    """Its client has the end of the answer then, also one that waits for the end of the connection."""
    monkeypatch.setattr(provider_answers, "TRAILING_SECONDS", 0.2)
    options: Any = {"spool": tmp_path} if is_spooled else {}
    with hostile(database, "recorder", format_, WRITTEN[written](answer(format_)), **options) as world:
        status, text = world.ask()
        assert (status, world.provider.left.wait(20), world.ended()[0]) == (200, True, "completed")
        assert text.encode() == b"".join(world.provider.script.pieces) or written == "compressed"


@pytest.mark.parametrize("face", FACES)
def test_an_answer_that_breaks_off_is_incomplete(database: Database, face: str) -> None:
    with hostile(database, face, "chat_completion", Script([sse(delta("Let me"))], after="reset")) as world:
        try:
            world.ask()
        except httpx2.HTTPError:
            assert face == "recorder"  # where the connection breaks as the provider's does
        assert world.ended() == ("incomplete", "Let me")


@pytest.mark.parametrize("is_stream", [False, True])
@pytest.mark.parametrize("status", [600, 999])
def test_the_recorder_answers_for_a_provider_whose_status_is_none(
    database: Database, status: int, is_stream: bool
) -> None:
    odd = Script([b"{}"], headers=("content-type: application/json",), status=f"{status} Odd")
    with hostile(database, "recorder", "chat_completion", odd) as world:
        answered, text = world.ask(is_stream=is_stream)
        assert (answered, f"The provider answered with status {status}." in text) == (502, True)
        [row] = world.usage()
        assert (row.status, row.attempts) == ("failed", 1)


@pytest.mark.parametrize("format_", FORMATS)
def test_only_the_last_event_is_one_that_nothing_follows(format_: Any) -> None:
    assembler = get_format(format_).assembler()
    events = script(format_, ["a", "b"], calls=True)
    over = []
    for event in events:
        assembler.feed(event)
        over.append(assembler.is_over)
    assert over == [False] * (len(events) - 1) + [format_ in WITH_LAST_EVENT]
    assembler.feed("data: [DONE]")
    assert assembler.is_over
    before = assembler.response
    assembler.feed(events[0])
    assembler.feed("no JSON at all")
    assert assembler.response == before


UNREADABLE = {
    "empty": (Script(), "has no events"),
    "done": (Script([DONE]), "has no events"),
    "comments": (Script([b": nothing\n\n"]), "has no events"),
    "encoded": (Script([answer("chat_completion")], (*SSE, "content-encoding: gzip, X-Rot13")), "x-rot13, which"),
}


@pytest.mark.parametrize("face", ["responses", "rest"])
@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("kind", UNREADABLE)
def test_an_answer_of_which_nothing_can_be_read_is_none(
    database: Database, face: str, kind: str, *, stream: bool
) -> None:
    """The client is told why, and nothing of the request is kept."""
    script, message = UNREADABLE[kind]
    with hostile(database, face, "chat_completion", script) as world:
        status, text = world.ask(is_stream=stream)
        assert (status, message in text) == (502, True), text
        assert [one.status for talk in world.conversations() for one in talk.responses()] in ([], ["failed"])
        assert [(row.status, row.attempts) for row in world.usage()] == [("failed", 1)]
        assert [len(talk.items().items) for talk in world.conversations()] == ([0] if face == "rest" else [])
