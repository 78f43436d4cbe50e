"""Following a response that is being recorded elsewhere: each look takes what has come since the one before."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import Engine, delete, update

from tests.store.test_sync_costs import counted
from tests.store.watching import Tables
from threadkeep.db.models import stream_parts
from threadkeep.domain.response import Response
from threadkeep.formats.shared.streams import StreamAssembler
from threadkeep.store.streaming.recorder import LOOK_LENGTH, PartialReader

pytestmark = pytest.mark.one_face

LONG = "words " * 1_000  # so that each event is written at once


@pytest.fixture
def conversation(stores: Any, tenant: str) -> Any:
    """One of the blocking store, as all stores have it below."""
    return stores.get("sync").for_tenant(tenant).create_conversation(model="m")


def piece(text: str) -> dict[str, Any]:
    return {"id": "c", "choices": [{"index": 0, "delta": {"role": "assistant", "content": text}}]}


def parts_of(tables: Tables) -> Any:
    """Which parts are those of the test."""
    [key] = {row["conversation_id"] for row in tables.rows("stream_parts")}
    return stream_parts.c.conversation_id == key


def text_of(response: Response | None) -> str:
    assert response is not None
    return "".join(part["text"] for item in response.output for part in item.to_object()["content"])


def test_a_look_reads_the_events_that_are_new(conversation: Any) -> None:
    with conversation.stream_response("chat_completion") as recorder:
        recorder.feed(piece("begun"))
        reader, expected = PartialReader(conversation.handle, recorder.number), "begun"
        assert text_of(reader.read()) == expected
        for count in (1, 7, 0, 2):
            for _ in range(count):
                recorder.feed(piece(LONG))
                expected += LONG
            with counted(StreamAssembler.feed) as fed:
                assert text_of(reader.read()) == expected
            assert fed == [count]
    assert reader.read() is None


def test_any_process_reads_what_has_come(conversation: Any, stores: Any, tenant: str) -> None:
    """By its number from any branch; without one, that of the branch."""
    elsewhere = stores.get("sync", "elsewhere").for_tenant(tenant).get_conversation(conversation.id)
    assert elsewhere.partial_response() is None
    conversation.user("Hi")
    fork = conversation.fork()
    with conversation.stream_response("chat_completion") as recorder:
        recorder.feed(piece("one "))
        recorder.feed(piece(LONG))
        assert text_of(elsewhere.partial_response()) == "one " + LONG
        assert fork.partial_response() is None
        assert text_of(fork.partial_response(recorder.number)) == "one " + LONG
        assert elsewhere.partial_response(7) is None
    assert elsewhere.partial_response(recorder.number) is None


def test_a_look_leaves_the_parts_that_were_read(conversation: Any, watching: Engine, tables: Tables) -> None:
    """They need not even be there any more."""
    with conversation.stream_response("chat_completion") as recorder:
        reader = PartialReader(conversation.handle, recorder.number)
        recorder.feed(piece("one "))
        reader.read()
        with watching.begin() as connection:
            connection.execute(delete(stream_parts).where(parts_of(tables)))
        recorder.feed(piece(LONG))
        assert text_of(reader.read()) == "one " + LONG


def test_what_cannot_be_understood_ends_what_is_shown(conversation: Any, watching: Engine, tables: Tables) -> None:
    with conversation.stream_response("chat_completion") as recorder:
        reader = PartialReader(conversation.handle, recorder.number)
        recorder.feed(piece("one"))
        reader.read()
        recorder.feed(piece(LONG))
        with watching.begin() as connection:
            spoiled = update(stream_parts).where(parts_of(tables), stream_parts.c.part == 2)
            connection.execute(spoiled.values(content="{\n"))
        recorder.feed(piece(LONG))
        for _ in range(2):
            assert text_of(reader.read()) == "one"


def test_who_may_read_only_so_much_reads_a_little_at_each_look(conversation: Any) -> None:
    with conversation.stream_response("chat_completion") as recorder:
        for _ in range(100):
            recorder.feed(piece(LONG))
        reader, texts = PartialReader(conversation.handle, recorder.number, 10**6), [""]
        while len(texts[-1]) < 100 * len(LONG):
            texts.append(text_of(reader.read()))
            assert 0 < len(texts[-1]) - len(texts[-2]) <= LOOK_LENGTH
            assert len(texts[-1]) < reader.size <= 2 * len(texts[-1])
        assert texts[-1] == LONG * 100
        assert len(texts) > 3


def test_what_is_too_large_is_neither_read_nor_kept(conversation: Any) -> None:
    """Events of small pieces are much longer than what they say."""
    with conversation.stream_response("chat_completion") as recorder:
        reader = PartialReader(conversation.handle, recorder.number, 4_000)
        for _ in range(200):
            recorder.feed(piece("word "))
            said = text_of(reader.read())
        assert 500 < len(said) < reader.size < 4_000
        recorder.feed(piece(LONG))
        assert text_of(reader.read()) == "word " * 200 + LONG
        assert reader.size > 4_000
        recorder.feed(piece(LONG))
        with counted(StreamAssembler.feed) as fed:
            assert [reader.read(), reader.read()] == [None, None]
        assert fed == [0]


def test_there_is_nothing_of_an_unknown_response(conversation: Any) -> None:
    assert PartialReader(conversation.handle, 7).read() is None
