"""Streamed responses: what comes is kept while it comes, and written once, at the end."""

from __future__ import annotations

import asyncio
import json
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine

from tests.factories import MODEL, a_call, a_stream, an_answer, an_output, texts_of
from tests.store.watching import Tables, statements_of
from threadkeep import (
    CannotParse,
    HeadConflict,
    IdempotencyConflict,
    InvalidOption,
    LeaseLost,
    NotFound,
    ResponseInProgress,
)
from threadkeep.db.models import responses
from threadkeep.domain.jsontext import dumps
from threadkeep.formats import NAMES
from threadkeep.store.usage.observing import add_observer
from threadkeep.store.work.refs import LEASE_SECONDS

FORMAT = "open_responses"
WORDS = "one two three four five"


def streamed(conversation: Any, *events: Any, **options: Any) -> Any:
    """Record events; returns the recorder."""
    with conversation.stream_response(FORMAT, **options) as recorder:
        for event in events:
            recorder.feed(event)
    return recorder


def left(conversation: Any, *events: Any, **options: Any) -> Any:
    """A recorder that took some events, of which all are stored, and was not heard of any more."""
    recorder = conversation.stream_response(FORMAT, **options)
    inner = getattr(recorder, "_wrapped", recorder)
    inner.writer._interval = 0
    recorder.__enter__()
    inner.heartbeat._ended.set()
    for event in events:
        recorder.feed(event)
    return recorder


def expire(watching: Engine) -> None:
    """The leases of all recorders are over."""
    with watching.begin() as connection:
        over = datetime.now(UTC) - timedelta(seconds=1)
        connection.execute(responses.update().where(responses.c.open_branch.is_not(None)).values(lease_until=over))


def beginning(*texts: str, words: int = 3, **fields: Any) -> list[dict[str, Any]]:
    """The first events of a stream."""
    return a_stream(*texts, **fields)[: words + 2]


# Recording


def test_a_stream_is_stored_like_the_same_answer_in_one_piece(store: Any, tables: Tables) -> None:
    """The same items, response, body and ledger row; only the times differ, and that latency was measured."""
    plain, other = (store.create_conversation(model=MODEL, input="Count") for _ in range(2))
    said = plain.add_response(an_answer(WORDS, calls=("c",)), FORMAT, rendered=plain.render(FORMAT), provider="p")
    recorder = streamed(other, *a_stream(WORDS, calls=("c",)), rendered=other.render(FORMAT), provider="p")
    assert recorder.response == said
    assert recorder.response.stored == (0, 0)
    latencies = [row["latency_ms"] for row in tables.rows("usage_records", "id")]
    assert latencies[0] is None
    assert 0 <= latencies[1] < 60_000
    assert tables.rows("usage_records", "id")[1]["first_token_ms"] <= latencies[1]
    differing = {"id", "conversation_id", "created_at", "occurred_at", "latency_ms", "first_token_ms", "lease_token"}
    for name, order in (("items", "position"), ("responses", "number"), ("usage_records", "id")):
        rows = tables.rows(name, "conversation_id", order)
        rows = [{key: value for key, value in row.items() if key not in differing} for row in rows]
        assert rows[: len(rows) // 2] == rows[len(rows) // 2 :], name
    assert tables.counts()["stream_parts"] == 0
    assert [row["streams"] for row in tables.rows("conversations", "id")] == [None, None]
    assert plain.render(FORMAT).body == other.render(FORMAT).body
    assert store.get_conversation(other.id).render(FORMAT).body == plain.render(FORMAT).body


def test_while_it_comes_it_can_be_seen(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    conversation.user("Count")
    events = a_stream(WORDS)
    with conversation.stream_response(FORMAT) as recorder:
        assert recorder.response is None
        for event in events[:5]:
            recorder.feed(event)
        assert (recorder.partial.status, recorder.partial.text) == ("in_progress", "one two three ")
        [seen] = elsewhere.get_conversation(conversation.id).responses()
        assert (seen.number, seen.status, seen.branch, seen.input_to) == (0, "in_progress", 0, 0)
        assert seen.to_position < seen.from_position
        assert elsewhere.get_conversation(conversation.id).head == 0
        assert tables.counts()["usage_records"] == 0
        for event in events[5:]:
            recorder.feed(event)
    assert recorder.partial == recorder.response
    [seen] = conversation.responses()
    assert (seen.status, seen.from_position, seen.to_position) == ("completed", 1, 1)
    assert conversation.response_body(0).startswith(b"{")


def test_parts_are_written_in_batches(conversation: Any, tables: Tables) -> None:
    """The first event at once, then a few KB at a time; never a write for each token."""
    events = a_stream("word " * 1_000)
    with conversation.stream_response(FORMAT) as recorder:
        with statements_of(conversation) as seen:
            for event in events[:-2]:
                recorder.feed(event)
        parts = tables.rows("stream_parts", "part")
        assert [row["part"] for row in parts] == list(range(len(parts)))
        size = sum(len(row["content"]) for row in parts)
        assert size > 100_000
        assert len(parts) < size / 4_000 + 10
        assert all(len(row["content"]) < 6_000 for row in parts)
        assert len(seen) == 2 * (len(parts) - 1)
    assert tables.counts()["stream_parts"] == 0


@pytest.mark.parametrize("indent", [None, 1], ids=["one line", "several lines"])
def test_an_event_that_is_a_line_of_json_is_kept_as_it_came(
    conversation: Any, tables: Tables, indent: int | None
) -> None:
    first = a_stream(WORDS)[0]
    text = json.dumps(first, indent=indent)
    with conversation.stream_response(FORMAT) as recorder:
        recorder.feed(text)
        _, part = tables.rows("stream_parts", "part")
        assert part["content"] == (f"{text}\n" if indent is None else f"{dumps(first).decode()}\n")


def test_a_part_is_written_after_half_a_second(
    conversation: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    monkeypatch.setattr("threadkeep.store.streaming.writer.monotonic", lambda: now[0])
    events = iter(a_stream(WORDS))
    with conversation.stream_response(FORMAT) as recorder:
        for pause, parts in ((0.0, 2), (0.2, 2), (0.2, 2), (0.2, 3), (0.1, 3), (0.5, 4)):
            now[0] += pause
            recorder.feed(next(events))
            assert tables.counts()["stream_parts"] == parts
    [row] = tables.rows("usage_records", "id")
    assert (row["latency_ms"], row["first_token_ms"]) == (1_200, 400)  # the third event is the first with output


def test_a_time_to_the_first_token_that_is_told_is_taken(conversation: Any, tables: Tables) -> None:
    streamed(conversation, *a_stream(WORDS), first_token_ms=7)
    assert tables.rows("usage_records", "id")[0]["first_token_ms"] == 7


def test_a_time_to_the_first_token_outlives_the_recorder(
    conversation: Any, tables: Tables, watching: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """… whether it was measured or told; without output, there is none."""
    now, reached = [100.0], []
    monkeypatch.setattr("threadkeep.store.streaming.writer.monotonic", lambda: now[0])
    for words, options in ((3, {}), (3, {"first_token_ms": 7.4}), (0, {})):
        recorder = left(conversation, **options)
        for event in beginning(WORDS, words=words)[: words + 1]:
            now[0] += 0.2
            recorder.feed(event)
        reached.append(recorder.partial.text)
        expire(watching)
        conversation.user("Hello?")
    assert reached == ["one two ", "one two ", None]
    rows = tables.rows("usage_records", "id")
    assert [(row["status"], row["latency_ms"]) for row in rows] == [("incomplete", None)] * 3
    assert [row["first_token_ms"] for row in rows] == [600, 7, None]  # the third event is the first with output


def test_without_output_there_is_no_first_token(conversation: Any, tables: Tables) -> None:
    streamed(conversation, *beginning(WORDS, words=0)[:1])
    assert tables.rows("usage_records", "id")[0]["first_token_ms"] is None


def test_a_latency_that_is_told_is_taken(conversation: Any, tables: Tables) -> None:
    streamed(conversation, *a_stream(WORDS), latency_ms=7)
    assert tables.rows("usage_records", "id")[0]["latency_ms"] == 7


def test_events_may_be_texts(conversation: Any) -> None:
    """JSON text, bytes, or an object of an SDK; the mark that some servers end streams with is no event."""

    class Event:
        def __init__(self, value: Any) -> None:
            self.value = value

        def model_dump(self, **_: Any) -> Any:
            return self.value

    first, second, *others = a_stream(WORDS)
    found = streamed(conversation, json.dumps(first), json.dumps(second).encode(), *map(Event, others), "[DONE]")
    assert found.response.text == WORDS


def test_events_may_hold_bytes(store: Any) -> None:
    """The SDK of Bedrock gives bytes where base64 is on the wire."""
    conversation = store.create_conversation(model="m", input="Think")
    delta = {"reasoningContent": {"redactedContent": b"opaque"}}
    with conversation.stream_response("converse") as recorder:
        for event in (
            {"messageStart": {"role": "assistant"}},
            {"contentBlockDelta": {"contentBlockIndex": 0, "delta": delta}},
            {"contentBlockStop": {"contentBlockIndex": 0}},
            {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"text": "Done"}}},
            {"messageStop": {"stopReason": "end_turn"}},
        ):
            recorder.feed(event)
    assert (recorder.response.status, recorder.response.text) == ("completed", "Done")
    assert b"b3BhcXVl" in conversation.response_body(0)
    body = {
        "output": {"message": {"role": "assistant", "content": [delta, {"text": "Done"}]}},
        "stopReason": "end_turn",
    }
    assert conversation.add_response(body, "converse").output == recorder.response.output


def test_what_is_no_event_leaves_the_stream(conversation: Any) -> None:
    with suppress(CannotParse), conversation.stream_response(FORMAT) as recorder:
        recorder.feed(a_stream(WORDS)[0])
        recorder.feed("no JSON")
        pytest.fail("it was taken for an event")
    assert recorder.response.status == "incomplete"


@pytest.mark.parametrize("lease", [0, -1, "1", True, None, float("nan"), 10**9])
def test_a_lease_is_a_number_of_seconds(conversation: Any, lease: Any, tables: Tables) -> None:
    written = tables.written()
    with pytest.raises(InvalidOption, match="lease"):
        conversation.stream_response(FORMAT, lease=lease)
    assert written() == {}


@pytest.mark.parametrize("options", [{"provider": ""}, {"latency_ms": "x"}, {"on_conflict": "x"}, {"rendered": {}}])
def test_what_cannot_be_used_is_refused_before(conversation: Any, options: Any, tables: Tables) -> None:
    written = tables.written()
    with pytest.raises(InvalidOption), conversation.stream_response(FORMAT, **options):
        pass
    assert written() == {}


def test_a_time_that_is_none_is_refused_with_what_it_can_be(conversation: Any) -> None:
    with pytest.raises(InvalidOption, match="latency_ms must be a number of milliseconds from 0 on, not -1"):
        conversation.stream_response(FORMAT, latency_ms=-1)


def test_a_recorder_is_a_context_manager(conversation: Any) -> None:
    recorder = conversation.stream_response(FORMAT)
    with pytest.raises(InvalidOption, match="with"):
        recorder.feed(a_stream(WORDS)[0])


def test_a_recorder_records_one_stream(conversation: Any, tables: Tables) -> None:
    """Used again it would lose what it is fed, and keep a response in progress that nobody ends."""
    recorder = streamed(conversation, *a_stream(WORDS))
    written = tables.written()
    with pytest.raises(InvalidOption, match=r"has ended.*stream_response\(\) again"):
        recorder.feed(a_stream(WORDS)[0])
    with pytest.raises(InvalidOption, match=r"entered before.*stream_response\(\) again"):
        recorder.__enter__()
    assert written() == {}
    assert recorder.response.text == WORDS
    conversation.user("Go on")


def test_a_recorder_is_not_entered_twice(conversation: Any) -> None:
    with conversation.stream_response(FORMAT) as recorder:
        recorder.feed(a_stream(WORDS)[0])
        with pytest.raises(InvalidOption, match="entered before"):
            recorder.__enter__()
        for event in a_stream(WORDS)[1:]:
            recorder.feed(event)
    assert recorder.response.text == WORDS


def test_a_recorder_that_was_refused_can_be_entered_later(conversation: Any) -> None:
    recorder = conversation.stream_response(FORMAT)
    with conversation.stream_response(FORMAT), pytest.raises(ResponseInProgress):
        recorder.__enter__()
    with recorder:
        for event in a_stream(WORDS):
            recorder.feed(event)
    assert recorder.response.text == WORDS


# Endings


def test_a_stream_that_breaks_off_is_incomplete(conversation: Any, tables: Tables) -> None:
    found = streamed(conversation, *beginning(WORDS)).response
    assert (found.status, found.text) == ("incomplete", "one two three ")
    [row] = tables.rows("usage_records", "id")
    assert (row["status"], row["model"], row["input_tokens"]) == ("incomplete", MODEL, None)


def test_leaving_by_an_exception_keeps_what_came(conversation: Any, tables: Tables) -> None:
    error = ZeroDivisionError("gone")
    recorder = left(conversation, *beginning(WORDS))
    assert not recorder.__exit__(ZeroDivisionError, error, None)
    assert recorder.response.status == "incomplete"
    assert texts_of(conversation.transcript()) == ["one two three "]
    [row] = tables.rows("usage_records", "id")
    assert "ZeroDivisionError" in row["error"]


def test_an_answer_that_was_whole_stays_so(conversation: Any) -> None:
    """What goes wrong after its last event does not concern it."""
    recorder = left(conversation, *a_stream(WORDS))
    recorder.__exit__(ZeroDivisionError, ZeroDivisionError(), None)
    assert recorder.response.status == "completed"


def test_cancelling_ends_it_there(conversation: Any, tables: Tables) -> None:
    with conversation.stream_response(FORMAT) as recorder:
        for event in beginning(WORDS):
            recorder.feed(event)
        recorder.cancel()
        assert (recorder.response.status, recorder.response.text) == ("cancelled", "one two three ")
        recorder.feed(a_stream(WORDS)[5])
        recorder.cancel()
    assert recorder.response.text == "one two three "
    assert conversation.responses().items[0].status == "cancelled"
    assert [row["status"] for row in tables.rows("usage_records", "id")] == ["cancelled"]


@pytest.mark.parametrize("error", [GeneratorExit, asyncio.CancelledError])
def test_a_generator_that_is_closed_cancels(conversation: Any, error: type[BaseException], tables: Tables) -> None:
    recorder = conversation.stream_response(FORMAT)
    recorder.__enter__()
    for event in beginning(WORDS):
        recorder.feed(event)
    recorder.__exit__(error, error(), None)
    assert recorder.response.status == "cancelled"
    assert tables.rows("usage_records", "id")[0]["error"] is None


def test_an_error_event_is_a_failure(conversation: Any, tables: Tables) -> None:
    error = {"type": "error", "code": "overloaded", "message": "Try later", "sequence_number": 9}
    found = streamed(conversation, *beginning(WORDS), error).response
    assert (found.status, found.text, found.error["code"]) == ("failed", "one two three ", "overloaded")
    [row] = tables.rows("usage_records", "id")
    assert row["status"] == "failed"
    assert "overloaded" in row["error"]
    assert conversation.responses().items[0].status == "failed"


def test_a_call_that_never_began_is_an_attempt(conversation: Any, tables: Tables) -> None:
    """No event came: there is a ledger row with the model that was asked, and no raw body."""
    with suppress(TimeoutError), conversation.stream_response(FORMAT) as recorder:
        raise TimeoutError
    assert (recorder.response.status, recorder.response.output) == ("incomplete", [])
    [row] = tables.rows("usage_records", "id")
    assert (row["model"], row["response"]) == ("gpt-5.4", 0)
    with pytest.raises(NotFound):
        conversation.response_body(0)


def test_a_partial_renders_in_every_format(conversation: Any) -> None:
    """A call with half its arguments is mended, and so is that nobody answered it."""
    conversation.user("Look it up")
    item = {**a_call("c"), "id": "fc_c", "arguments": ""}
    events = [
        a_stream()[0],
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.function_call_arguments.delta", "item_id": "fc_c", "output_index": 0, "delta": '{"a": "b'},
    ]
    streamed(conversation, *events)
    assert [stored.item.type for stored in conversation.transcript()] == ["message", "function_call"]
    for wire in NAMES:
        assert {repair.code for repair in conversation.render(wire).repairs} >= {"missing_output"}
    conversation.add_item(an_output("c"))
    assert conversation.render("chat_completion").payload["messages"][-1]["role"] == "tool"


def test_items_are_one_range_also_between_other_branches(conversation: Any) -> None:
    conversation.user("Count")
    fork = conversation.fork()
    with conversation.stream_response(FORMAT) as recorder:
        for event in a_stream("a", "b", "c"):
            recorder.feed(event)
            fork.user("meanwhile")
    [row] = conversation.responses()
    assert row.to_position - row.from_position == 2
    assert texts_of(conversation.transcript()) == ["Count", "a", "b", "c"]
    assert recorder.response.stored == (0, 0)


# One at a time


def test_a_second_stream_is_refused(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    with conversation.stream_response(FORMAT) as recorder:
        written = tables.written()
        other = elsewhere.get_conversation(conversation.id)
        with pytest.raises(ResponseInProgress) as caught, other.stream_response(FORMAT):
            pass
        assert (caught.value.number, caught.value.branch) == (recorder.number, 0)
        assert written() == {}


def test_an_append_meanwhile_is_refused(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    with conversation.stream_response(FORMAT):
        written = tables.written()
        other = elsewhere.get_conversation(conversation.id)
        for expected in (None, -1):
            with pytest.raises(ResponseInProgress):
                other.user("Hello?", expected_head=expected)
        with pytest.raises(HeadConflict):
            other.user("Hello?", expected_head=5)
        assert written() == {}
    assert conversation.user("Now").position == 0


def test_an_answer_meanwhile_is_refused_and_counted(conversation: Any, tables: Tables) -> None:
    """Its tokens were used; under its key it is stored later, without a second ledger row."""
    with conversation.stream_response(FORMAT):
        for _ in range(2):
            with pytest.raises(ResponseInProgress):
                conversation.add_response(an_answer("Hi"), FORMAT, idempotency_key="key")
        assert [row["response"] for row in tables.rows("usage_records", "id")] == [None]
    found = conversation.add_response(an_answer("Hi"), FORMAT, idempotency_key="key")
    assert (found.replayed, found.stored) == (False, (0, 1))
    assert conversation.add_response(an_answer("Hi"), FORMAT, idempotency_key="key").replayed
    assert [row["response"] for row in tables.rows("usage_records", "id")] == [1, 0]


def test_a_retry_meanwhile_finds_its_first_result(conversation: Any) -> None:
    conversation.user("Hi", idempotency_key="item")
    conversation.add_response(an_answer("Hi"), FORMAT, idempotency_key="answer")
    with conversation.stream_response(FORMAT):
        assert conversation.user("Hi", idempotency_key="item").replayed
        assert conversation.add_response(an_answer("Hi"), FORMAT, idempotency_key="answer").replayed


def test_an_append_can_end_it(conversation: Any, tables: Tables) -> None:
    """What came is kept as `cancelled`, before the new item; its recorder cannot write any more."""
    recorder = left(conversation, *beginning(WORDS))
    stored = conversation.user("Stop", on_conflict="append")
    assert stored.position == 1
    assert texts_of(conversation.transcript()) == ["one two three ", "Stop"]
    assert [row.status for row in conversation.responses()] == ["cancelled"]
    with pytest.raises(LeaseLost) as caught:
        recorder.__exit__(None, None, None)
    assert caught.value.number == 0
    assert recorder.response is None
    assert tables.counts()["usage_records"] == 1
    assert tables.counts()["stream_parts"] == 0


def test_a_second_stream_can_end_it(conversation: Any, tables: Tables) -> None:
    left(conversation, *beginning(WORDS))
    second = streamed(conversation, *a_stream("again"), on_conflict="append")
    assert second.response.stored == (0, 1)
    assert [(row.status, row.from_position) for row in conversation.responses()] == [("cancelled", 0), ("completed", 1)]
    assert len(tables.rows("usage_records", "id")) == 2


def test_an_append_can_go_elsewhere(conversation: Any) -> None:
    conversation.user("Count")
    with conversation.stream_response(FORMAT) as recorder:
        stored = conversation.user("And?", on_conflict="branch")
        with conversation.stream_response(FORMAT, on_conflict="branch") as second:
            assert (stored.branch, second.branch) == (1, 2)
            for event in a_stream(WORDS):
                second.feed(event)
        for event in a_stream("Hello"):
            recorder.feed(event)
    assert texts_of(conversation.transcript()) == ["Count", "Hello"]
    assert texts_of(conversation.on_branch(1).transcript()) == ["Count", "And?"]
    assert texts_of(conversation.on_branch(2).transcript()) == ["Count", WORDS]


def test_other_branches_go_on(conversation: Any) -> None:
    conversation.user("Count")
    fork = conversation.fork()
    with conversation.stream_response(FORMAT), fork.stream_response(FORMAT) as second:
        second.feed(a_stream(WORDS)[0])
        third = fork.fork()
        third.user("Hi")
        third.add_response(an_answer("Hello"), FORMAT, expected_head=third.head)
    assert [(row.branch, row.status) for row in conversation.responses()] == [
        (0, "incomplete"), (1, "incomplete"), (2, "completed"),
    ]  # fmt: skip


def test_an_unexpected_head_is_told_before_anything_is_asked(conversation: Any, tables: Tables) -> None:
    conversation.user("Count")
    written = tables.written()
    with pytest.raises(HeadConflict) as caught, conversation.stream_response(FORMAT, expected_head=-1):
        pass
    assert caught.value.head == 0
    assert written() == {}
    with conversation.stream_response(FORMAT, expected_head=-1, on_conflict="branch") as recorder:
        recorder.feed(a_stream(WORDS)[0])
    assert (recorder.branch, conversation.responses().items[0].input_to) == (1, -1)


# Leases


def test_after_its_lease_the_next_writer_ends_it(store: Any, elsewhere: Any, tables: Tables, watching: Engine) -> None:
    """It is incomplete and has a ledger row, with nulls where nobody knows; then comes what was to be written."""
    conversation = store.create_conversation(model="asked", input="Count", user_id="ann")
    left(conversation, *beginning(WORDS), rendered=conversation.render(FORMAT), provider="p")
    expire(watching)
    other = elsewhere.get_conversation(conversation.id)
    assert other.user("Hello?").position == 2
    assert texts_of(other.transcript()) == ["Count", "one two three ", "Hello?"]
    [row] = other.responses()
    assert (row.status, row.input_to, row.from_position, row.to_position) == ("incomplete", 0, 1, 1)
    assert row.view == {"format": FORMAT}
    [used] = tables.rows("usage_records", "id")
    assert (used["status"], used["user_id"], used["provider"], used["response"]) == ("incomplete", "ann", "p", 0)
    assert (used["latency_ms"], used["total_tokens"], used["usage"]) == (None, None, None)
    assert tables.counts()["stream_parts"] == 0
    for wire in NAMES:
        assert other.render(wire).body


@pytest.mark.parametrize(
    "write",
    [
        pytest.param(lambda c: c.user("Hi", idempotency_key="key"), id="user"),
        pytest.param(lambda c: c.add_response(an_answer("Hi"), FORMAT), id="add_response"),
        pytest.param(lambda c: streamed(c, *a_stream("Hi")), id="stream_response"),
        pytest.param(lambda c: c.user("Hi", on_conflict="append"), id="append"),
        pytest.param(lambda c: c.user("Hi", expected_head=-1, on_conflict="branch"), id="branch"),
    ],
)
def test_every_writer_ends_it(conversation: Any, watching: Engine, tables: Tables, write: Any) -> None:
    left(conversation, *a_stream(WORDS)[:-1])
    expire(watching)
    write(conversation)
    first, *_ = conversation.responses()
    assert first.status == "incomplete"
    assert texts_of(conversation.transcript())[:1] == [WORDS]
    assert len(tables.rows("usage_records", "id")) == len(list(conversation.responses()))


def test_a_conflict_after_the_end_does_not_take_it_back(conversation: Any, watching: Engine) -> None:
    left(conversation, *a_stream(WORDS)[:-1])
    expire(watching)
    with pytest.raises(HeadConflict) as caught:
        conversation.user("Hi", expected_head=-1)
    assert caught.value.head == 0
    assert [row.status for row in conversation.responses()] == ["incomplete"]


def test_a_stale_recorder_cannot_write(conversation: Any, elsewhere: Any, watching: Engine, tables: Tables) -> None:
    recorder = left(conversation, *beginning(WORDS))
    expire(watching)
    elsewhere.get_conversation(conversation.id).user("Hello?")
    written = tables.written()
    with pytest.raises(LeaseLost):
        recorder.feed(a_stream(WORDS)[5])
    with pytest.raises(LeaseLost):
        recorder.cancel()
    assert written() == {}
    error = ZeroDivisionError("mine")
    recorder.__exit__(ZeroDivisionError, error, None)
    assert "could not be stored" in error.__notes__[0]


def test_a_late_recorder_that_nobody_ended_goes_on(conversation: Any, watching: Engine) -> None:
    recorder = left(conversation, *a_stream(WORDS)[:4])
    expire(watching)
    for event in a_stream(WORDS)[4:]:
        recorder.feed(event)
    recorder.__exit__(None, None, None)
    assert recorder.response.text == WORDS


def test_feeding_renews_the_lease(conversation: Any, tables: Tables, watching: Engine) -> None:
    recorder = left(conversation, a_stream(WORDS)[0], lease=9)
    before = tables.rows("responses", "number")[0]["lease_until"] - timedelta(seconds=1)  # as if a second had passed
    with watching.begin() as connection:
        begun = responses.c.conversation_id == conversation.handle.ref.key
        connection.execute(responses.update().where(begun).values(lease_until=before))
    recorder.feed(a_stream(WORDS)[1])
    assert tables.rows("responses", "number")[0]["lease_until"] > before
    with pytest.raises(ResponseInProgress):
        conversation.user("Hi")


# Idempotency


def test_a_repeated_stream_gives_the_first_result(store: Any, elsewhere: Any, tables: Tables) -> None:
    conversation = store.create_conversation(model="m", input="Count")
    first = streamed(conversation, *a_stream(WORDS), idempotency_key="key")
    written = tables.written()
    other = elsewhere.get_conversation(conversation.id)
    with other.stream_response(FORMAT, idempotency_key="key") as again:
        assert again.replayed
        assert again.response == first.response.model_copy(update={"replayed": True})
        again.feed(a_stream("Something else")[0])
        again.cancel()
    assert again.response.text == WORDS
    assert written() == {}


@pytest.mark.parametrize("status", ["incomplete", "cancelled", "failed"])
def test_so_do_other_endings(conversation: Any, status: str) -> None:
    with conversation.stream_response(FORMAT, idempotency_key="key") as recorder:
        for event in beginning(WORDS):
            recorder.feed(event)
        if status == "cancelled":
            recorder.cancel()
        if status == "failed":
            recorder.feed({"type": "error", "error": {"code": "x", "message": "y"}})
    with conversation.stream_response(FORMAT, idempotency_key="key") as again:
        assert again.response.status == status
        assert again.response.text == "one two three "
        assert again.response.error == recorder.response.error


def test_a_stream_that_was_left_does_not_use_up_its_key(conversation: Any, watching: Engine) -> None:
    """Nobody got a result: its retry asks the provider anew."""
    left(conversation, *beginning(WORDS), idempotency_key="key")
    with pytest.raises(ResponseInProgress), conversation.stream_response(FORMAT, idempotency_key="key"):
        pass
    expire(watching)
    again = streamed(conversation, *a_stream(WORDS), idempotency_key="key")
    assert (again.replayed, again.response.status) == (False, "completed")
    assert [row.status for row in conversation.responses()] == ["incomplete", "completed"]


def test_a_key_of_something_else_is_a_conflict(conversation: Any, tables: Tables) -> None:
    conversation.user("Hi", idempotency_key="key")
    written = tables.written()
    with pytest.raises(IdempotencyConflict), conversation.stream_response(FORMAT, idempotency_key="key"):
        pass
    assert written() == {}


# Conversations that change meanwhile


def test_a_deleted_conversation_leaves_one_ledger_row(store: Any, conversation: Any, tables: Tables) -> None:
    recorder = left(conversation, *beginning(WORDS))
    store.delete_conversation(conversation.id)
    with pytest.raises(NotFound):
        recorder.__exit__(None, None, None)
    counts = tables.counts()
    assert (counts["usage_records"], counts["stream_parts"], counts["responses"]) == (1, 0, 0)


def test_a_deleted_conversation_is_not_found_by_its_recorder(store: Any, conversation: Any) -> None:
    recorder = left(conversation, *beginning(WORDS))
    store.delete_conversation(conversation.id)
    with pytest.raises(NotFound):
        recorder.feed(a_stream(WORDS)[5])


@pytest.mark.parametrize("owner", [None, "ann", "erased"])
def test_what_the_provider_told_after_a_deletion_is_on_the_one_bill(
    store: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch, owner: str | None
) -> None:
    """Of an erased user, the ledger has the figures alone."""
    monkeypatch.setattr("threadkeep.store.streaming.writer.monotonic", lambda: 100.0)  # no batch is due but the first
    conversation, told = store.create_conversation(model=MODEL, user_id=owner), list[Any]()
    add_observer(store, told.append)
    recorder = conversation.stream_response(FORMAT, provider="openai")
    recorder.__enter__()
    recorder.feed(a_stream(WORDS)[0])
    store.erase_user(owner) if owner == "erased" else store.delete_conversation(conversation.id)
    [row] = tables.rows("usage_records", "id")
    assert (row["status"], row["total_tokens"]) == ("incomplete", None)
    for event in a_stream(WORDS)[1:]:
        recorder.feed(event)
    with pytest.raises(NotFound):
        recorder.__exit__(None, None, None)
    [row] = tables.rows("usage_records", "id")
    assert (row["status"], row["provider"], row["total_tokens"], row["error"]) == ("completed", "openai", 15, None)
    assert (row["user_id"], row["usage"] is None) == (None if owner == "erased" else owner, owner == "erased")
    assert row["cost_nano"] == told[0].attempt.cost.nano
    assert [call.attempt.figures.total_tokens for call in told] == [15]


def test_a_conversation_that_is_being_deleted_too(
    store: Any, conversation: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Hidden, but not purged yet."""
    recorder = left(conversation, *a_stream(WORDS))
    with monkeypatch.context() as patch:
        patch.setattr("threadkeep.store.removing.retention.purging.purge_batch", lambda *_, **__: False)
        store.delete_conversation(conversation.id)
    with pytest.raises(NotFound):
        recorder.__exit__(None, None, None)
    [row] = tables.rows("usage_records", "id")
    assert (row["status"], row["total_tokens"]) == ("completed", 15)
    assert store.purge_deleted() == 1
    counts = tables.counts()
    assert (counts["usage_records"], counts["stream_parts"], counts["responses"]) == (1, 0, 0)


@pytest.mark.parametrize("on_conflict", ["raise", "append", "branch"])
def test_a_key_has_one_recorder_at_a_time(conversation: Any, elsewhere: Any, on_conflict: str) -> None:
    """A retry that comes while the first attempt is still at work would ask the provider twice."""
    conversation.user("Count")
    with conversation.stream_response(FORMAT, idempotency_key="key") as first:
        other = elsewhere.get_conversation(conversation.id)
        with (
            pytest.raises(ResponseInProgress) as refused,
            other.stream_response(FORMAT, idempotency_key="key", on_conflict=on_conflict),
        ):
            pass
        assert (refused.value.number, refused.value.branch) == (first.number, 0)
        assert 0 < refused.value.retry_after <= LEASE_SECONDS
        for event in a_stream(WORDS):
            first.feed(event)
    assert texts_of(conversation.transcript()) == ["Count", WORDS]
    with other.stream_response(FORMAT, idempotency_key="key", on_conflict=on_conflict) as again:
        assert (again.replayed, again.response.text) == (True, WORDS)


def test_a_key_of_a_recorder_that_is_gone_is_taken_over_on_a_branch(
    conversation: Any, elsewhere: Any, watching: Engine
) -> None:
    """The answer to the same request goes beside what was left of the first one."""
    position = conversation.user("Count").position
    rendered = conversation.render(FORMAT)
    left(conversation, *beginning(WORDS), idempotency_key="key")
    expire(watching)
    other = elsewhere.get_conversation(conversation.id)
    at = {"expected_head": position, "on_conflict": "branch"}
    with other.stream_response(FORMAT, rendered=rendered, idempotency_key="key", **at) as recorder:
        for event in a_stream("other words"):
            recorder.feed(event)
    assert [row.status for row in conversation.responses()] == ["incomplete", "completed"]
    assert texts_of(conversation.on_branch(recorder.branch).transcript()) == ["Count", "other words"]


def test_an_erased_user_leaves_no_name_behind(store: Any, tables: Tables) -> None:
    conversation = store.create_conversation(model="m", user_id="ann")
    recorder = left(conversation, *beginning(WORDS))
    store.erase_user("ann")
    with pytest.raises(NotFound):
        recorder.__exit__(None, None, None)
    [row] = tables.rows("usage_records", "id")
    assert (row["user_id"], row["status"]) == (None, "incomplete")
    assert tables.counts()["stream_parts"] == 0


def test_a_copy_has_what_was_stored(store: Any, conversation: Any) -> None:
    conversation.user("Count")
    left(conversation, *beginning(WORDS))
    copy = store.copy_conversation(conversation.id)
    assert texts_of(copy.transcript()) == ["Count"]
    copy.user("goes on")


def test_options_may_change_meanwhile(conversation: Any) -> None:
    conversation.register_tool("look_up")
    recorder = left(conversation, *a_stream(WORDS))
    conversation.update(temperature=1)
    conversation.clear_tools()
    recorder.__exit__(None, None, None)
    assert conversation.temperature == 1
    assert texts_of(conversation.transcript()) == [WORDS]


def test_one_that_was_given_away_is_stored_all_the_same(store: Any, tables: Tables) -> None:
    """The recorder was allowed to begin."""
    full = store.create_conversation(model="m", user_id="ann")
    mine = store.for_user("ann").get_conversation(full.id)
    recorder = left(mine, *a_stream(WORDS))
    full.update(user_id="ben")
    recorder.__exit__(None, None, None)
    assert texts_of(full.transcript()) == [WORDS]
    assert tables.rows("usage_records", "id")[0]["user_id"] == "ben"


def test_server_state_goes_on_from_what_the_provider_has(store: Any, watching: Engine) -> None:
    """It keeps no response whose stream was left before its end."""
    conversation = store.create_conversation(model="m", previous_response_id="resp_0", input="Count")
    streamed(conversation, *a_stream("done", id="resp_1"))
    for number, end in enumerate(("cancel", "leave", "lease")):
        recorder = left(conversation, *beginning(WORDS, id=f"resp_x{number}"))
        if end == "cancel":
            recorder.cancel()
        elif end == "leave":
            recorder.__exit__(None, None, None)
        else:
            expire(watching)
            conversation.user("And?")
        assert conversation.render(FORMAT).payload["previous_response_id"] == "resp_1"
    assert len(conversation.render(FORMAT).payload["input"]) == 4


def test_a_stream_of_another_format_is_told_and_ends(store: Any) -> None:
    conversation = store.create_conversation(model=MODEL, input="Hi")
    recorder = conversation.stream_response("messages")
    with pytest.raises(CannotParse, match="but of open_responses"), recorder:
        recorder.feed(beginning("one")[0])
    assert recorder.response.status == "incomplete"
    assert streamed(conversation, *a_stream("one")).response.text == "one"
