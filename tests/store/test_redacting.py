"""Redacting an item: its content is gone from everything that is stored, its place stays on all branches."""

from __future__ import annotations

import logging
import zlib
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.databases import Database
from tests.factories import a_call, a_message, a_picture, a_stream, an_answer, an_output, noise, texts_of
from tests.store.watching import Tables, sqlite_steps
from threadkeep import FunctionCall, IdempotencyConflict, NotFound, Session, Store
from threadkeep.db.queries.removal import creations_of
from threadkeep.formats import NAMES
from threadkeep.store.work.refs import TENANT_WIDE

pytestmark = pytest.mark.one_face

SECRET = "zxqsecretword"


def says(handle: Any) -> str:
    return " ".join(texts_of(handle.transcript()))


def rows_with(tables: Tables, *needles: str) -> set[str]:
    """The tables in which something is found, in whatever column."""
    found = set()
    for name in tables.counts():
        for row in tables.rows(name) if name != "tenants" else ():
            for column, value in row.items():
                data = bytes(value) if isinstance(value, bytes | memoryview) else str(value).encode()
                if column == "body" and row["codec"]:
                    data = zlib.decompress(data)
                if any(needle.encode() in data for needle in needles):
                    found.add(f"{name}.{column}")
    return found


def test_the_content_is_gone_and_the_place_is_kept(store: Any, elsewhere: Any) -> None:
    conversation = store.create_conversation(model="m", input="0")
    conversation.user(SECRET, author_id="ann")
    conversation.user("2")
    fork = conversation.fork()
    other = elsewhere.get_conversation(conversation.id)
    assert SECRET in other.request_body("open_responses").decode()
    conversation.render("open_responses")
    conversation.redact_item(1)
    for handle in (conversation, fork, other, store.copy_conversation(conversation.id)):
        assert says(handle) == "0 [redacted] 2"
        assert SECRET not in handle.request_body("open_responses").decode()
    [before, item, after] = conversation.transcript()
    assert (item.position, item.item.role, item.author_id) == (1, "user", "ann")
    assert (before.id, after.id) == (fork.get_item(0).id, fork.get_item(2).id)
    assert conversation.head == 2


def test_nothing_of_it_is_left_in_any_row(store: Any, tables: Tables) -> None:
    picture = a_picture(noise(20_000))
    answer = an_answer(f"Answer {SECRET}", calls=("c1",), metadata={"x": SECRET}, status="incomplete")
    answer |= {"incomplete_details": {"reason": f"see {SECRET}"}, "error": {"message": SECRET}}
    answer["output"][1]["arguments"] = f'{{"city": "{SECRET}"}}'
    conversation = store.create_conversation(
        model="m", input=f"Question {SECRET}", idempotency_key="create", labels={"a": "b"}
    )
    conversation.user([{"type": "input_text", "text": SECRET}, picture], idempotency_key="user")
    conversation.add_response(answer, "open_responses", idempotency_key="answer")
    conversation.add_items([an_output("c1", SECRET)], idempotency_key="output")
    conversation.add_item({"type": "reasoning", "summary": [], "encrypted_content": SECRET})
    conversation.add_item({"type": "web_search_call", "id": "ws_1", "action": {"query": SECRET}})
    conversation.compact(summary=SECRET)
    conversation.fork(at=0).user("other")
    store.reindex()
    with conversation.stream_response("open_responses") as recorder:
        for event in a_stream(SECRET, id="resp_2"):
            recorder.feed(event)
    hashes = {row["key"]: row["request_hash"] for row in tables.rows("appends", "key")}
    assert rows_with(tables, SECRET) > {"items.payload", "search_documents.text", "response_bodies.body"}
    for item in conversation.transcript():
        conversation.redact_item(item.position)
    assert rows_with(tables, SECRET) == set()
    counts = tables.counts()
    assert (counts["blobs"], counts["item_blobs"], counts["response_bodies"]) == (0, 0, 0)
    left = {row["key"]: row["request_hash"] for row in tables.rows("appends", "key")}
    assert left.keys() == hashes.keys()
    assert not {bytes(hash_) for hash_ in left.values()} & {bytes(hash_) for hash_ in hashes.values()}
    assert not list(store.search(SECRET))
    assert conversation.usage().input_tokens == 20


@pytest.mark.share(3)
@pytest.mark.parametrize("name", NAMES)
def test_every_format_renders_what_is_left(store: Any, name: str) -> None:
    """… of items of all types, each redacted alone, and then all of them."""
    items: list[Any] = [
        a_message("Hi"),
        {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": SECRET, "origin": "open_responses"},
        a_call("c1", arguments=f'{{"x": "{SECRET}"}}'),
        an_output("c1", [{"type": "input_text", "text": SECRET}]),
        {"type": "custom_tool_call", "call_id": "c2", "name": "sql", "input": SECRET},
        {"type": "custom_tool_call_output", "call_id": "c2", "output": SECRET},
        {
            "type": "provider_item",
            "format": "chat_completion",
            "origin": "chat_completion",
            "payload": {"id": "c3", "type": "custom", "custom": {"name": "grep", "input": SECRET}},
        },
        an_output("c3", SECRET),
        a_message(SECRET, "assistant"),
        {"type": "web_search_call", "id": "ws_1", "action": {"query": SECRET}},
        a_message("Go on"),
    ]
    everything = store.create_conversation(model="m")
    everything.add_items(items)
    calls = {
        item.item.call_id: item.position for item in everything.transcript() if isinstance(item.item, FunctionCall)
    }
    for position in range(1, 10):
        one = store.create_conversation(model="m")
        one.add_items(items)
        for conversation in (one, everything):
            conversation.redact_item(position)
            kept, before = conversation.get_item(position), items[position]
            assert kept.item.to_dict().get("call_id") == before.get("call_id", "c3" if position == 6 else None)
            assert SECRET not in str(kept.item.to_dict())
            rendered = conversation.render(name)
            assert not [repair.code for repair in rendered.repairs if "output" in repair.code]
    assert SECRET not in everything.request_body(name).decode()
    assert everything.get_item(calls["c1"]).item.arguments == "{}"
    assert everything.get_item(3).item.output == "[redacted]"


def test_a_redacted_response_is_still_a_response(store: Any) -> None:
    conversation = store.create_conversation(model="m", input="Hi", previous_response_id="resp_0")
    conversation.add_response(an_answer(SECRET, "More"), "open_responses")
    conversation.redact_item(1)
    with pytest.raises(NotFound):
        conversation.response_body(0)
    [row] = conversation.responses()
    assert (row.number, row.from_position, row.to_position, row.status) == (0, 1, 2, "completed")
    assert says(conversation) == "Hi [redacted] More"
    assert conversation.usage().output_tokens == 5


def test_what_was_stored_under_a_key_is_not_stored_again(store: Any) -> None:
    """A retry of the call that stored it is refused: the key shows nothing of the content, and nothing is repeated."""
    conversation = store.create_conversation(model="m", input=SECRET, idempotency_key="create")
    conversation.add_items([a_message("a"), a_message(SECRET)], idempotency_key="items")
    conversation.add_response(an_answer(SECRET), "open_responses", idempotency_key="answer")
    conversation.user("stays", idempotency_key="other")
    for position in (0, 2, 3):
        conversation.redact_item(position, idempotency_key=f"redact {position}")
        conversation.redact_item(position, idempotency_key=f"redact {position}")
    retries: list[Any] = [
        lambda: store.create_conversation(model="m", input=SECRET, idempotency_key="create"),
        lambda: conversation.add_items([a_message("a"), a_message(SECRET)], idempotency_key="items"),
        lambda: conversation.add_response(an_answer(SECRET), "open_responses", idempotency_key="answer"),
    ]
    for retry in retries:
        with pytest.raises(IdempotencyConflict, match="redacted"):
            retry()
    assert conversation.user("stays", idempotency_key="other").replayed
    assert says(conversation) == "[redacted] a [redacted] [redacted] stays"


def test_a_key_of_a_whole_turn_forgets_its_input(store: Any) -> None:
    conversation = store.create_conversation(model="m")
    for position, key in ((0, "input"), (3, "answer")):
        turn = [SECRET, an_answer(SECRET), "open_responses"]
        conversation.add_turn(*turn, idempotency_key=key)
        conversation.redact_item(position)
        with pytest.raises(IdempotencyConflict, match="redacted"):
            conversation.add_turn(*turn, idempotency_key=key)


def test_the_reason_of_a_denied_call_goes_with_its_output(store: Any, tables: Tables) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.add_response(an_answer(calls=("c1", "c2")), "open_responses")
    denied = [conversation.deny(call, reason=f"{SECRET} {call}") for call in ("c1", "c2")]
    conversation.redact_item(denied[0].position)
    reasons = [(row["decision"], row["reason"]) for row in tables.rows("approvals", "position")]
    assert reasons == [("denied", "[redacted]"), ("denied", f"{SECRET} c2")]
    conversation.redact_item(denied[1].position)
    assert rows_with(tables, SECRET) == set()


def test_a_key_for_many_conversations(store: Any) -> None:
    sessions = [Session(model="m", input=text) for text in ("one", SECRET)]
    ids = store.save_many(sessions, idempotency_key="many")
    store.get_conversation(ids[1]).redact_item(0)
    with pytest.raises(IdempotencyConflict, match="redacted"):
        store.save_many(sessions, idempotency_key="many")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
def test_the_keys_of_other_conversations_are_not_read(database: Database, store: Any) -> None:
    """SQLite takes as many steps for them whether there are two or hundreds; the other databases have the same key."""
    steps = []
    for count in (2, 300):
        for number in range(count):
            store.create_conversation(idempotency_key=f"{count} {number}")
        conversation = store.create_conversation(model="m", input=SECRET, idempotency_key=f"own {count}")
        with database.engine().connect() as connection:
            ref = conversation.handle.ref
            pattern = f"%{ref.public_id.removeprefix('conv_')}%"
            which = ref.parameters(everywhere=TENANT_WIDE, pattern=pattern)
            with sqlite_steps(connection, 1) as taken:
                found = connection.execute(creations_of(), which).all()
        assert [row.key for row in found] == [f"own {count}"]
        steps.append(len(taken))
    assert steps[0] == steps[1] > 0


def test_an_imported_conversation_has_no_key_of_the_target(store: Any, stores: Any) -> None:
    """What the key stands for there is left alone."""
    original = store.create_conversation(model="m", input=SECRET, idempotency_key="key")
    target = stores.get("sync").create_tenant(uuid4().hex)
    target.create_conversation(title="something else", idempotency_key="key")
    target.import_export(store.export(conversation_ids=[original.id]))
    target.get_conversation(original.id).redact_item(0)
    assert target.create_conversation(title="something else", idempotency_key="key").replayed


def test_an_item_that_no_branch_has_can_be_redacted(store: Any, tables: Tables) -> None:
    conversation = store.create_conversation(model="m", input=SECRET)
    conversation.remove_item(0)
    conversation.redact_item(0)
    assert rows_with(tables, SECRET) == set()
    assert conversation.transcript() == []
    conversation.user("x")
    conversation.remove_item(1, purge=True)
    for position in (1, 2):
        with pytest.raises(NotFound):
            conversation.redact_item(position)


def test_media_that_others_have_stay(store: Any, tables: Tables) -> None:
    picture = a_picture(noise(20_000))
    conversation = store.create_conversation(model="m")
    for _ in range(2):
        conversation.user([picture])
    conversation.redact_item(0)
    assert conversation.get_item(1).item.content[0].data == noise(20_000)
    assert (tables.counts()["blobs"], tables.counts()["item_blobs"]) == (1, 1)


def test_a_compaction_without_its_summary(store: Any) -> None:
    """A summary still covers what it covered; a provider's own, which nobody can read any more, covers nothing."""
    conversation = store.create_conversation(model="m", input="0")
    conversation.user("1")
    summary = conversation.compact(summary=SECRET, upto=0)
    conversation.redact_item(summary.position)
    sent = conversation.request_body("open_responses").decode()
    assert "[redacted]" in sent
    assert '"0"' not in sent
    sealed = conversation.compact(item={"type": "compaction", "encrypted_content": SECRET})
    conversation.redact_item(sealed.position)
    assert '"1"' in conversation.request_body("open_responses").decode()


def test_the_history_cache_forgets_it(store: Any) -> None:
    conversation = store.create_conversation(model="m", input=SECRET)
    conversation.render("open_responses")
    histories = conversation.handle.resources.histories
    assert any(key[1] == conversation.handle.ref.public_bytes for key in histories._values)
    conversation.redact_item(0)
    assert not any(key[1] == conversation.handle.ref.public_bytes for key in histories._values)


def test_nothing_is_left_in_the_file(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """… after SQLite has rewritten it, which also rids it of other rows that were deleted."""
    path = tmp_path / "chat.db"
    caplog.set_level(logging.WARNING)
    with Store(f"sqlite:///{path}") as store:
        conversation = store.create_conversation(model="m", input="Hi", title="T")
        conversation.user([{"type": "input_text", "text": f"The {SECRET} is"}, a_picture(noise(9_000))])
        conversation.add_response(an_answer(f"{SECRET} indeed"), "open_responses", idempotency_key="k")
        store.reindex()
        assert list(store.search(SECRET))
        conversation.user(f"popped {SECRET}")
        conversation.pop()
        for position in (1, 2):
            conversation.redact_item(position)
        transactions: Any = store.handle.transactions
        with transactions.engine.connect() as connection:
            driver: Any = connection.connection.driver_connection
            driver.execute("VACUUM")
            driver.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert SECRET.encode() not in content
    assert SECRET[1:].encode() not in content  # the index shortens words by what they have in common
    assert noise(9_000)[100:200] not in content
    assert not caplog.records
