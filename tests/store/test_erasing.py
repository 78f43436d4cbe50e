"""Erasing a user leaves nothing but figures."""

from __future__ import annotations

import base64
import random
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, LargeBinary, String, inspect, text, update

from tests.databases import Database
from tests.factories import (
    a_call,
    a_completion,
    a_gemini_answer,
    a_picture,
    a_stream,
    an_answer,
    an_error,
    an_output,
    noise,
)
from tests.store.sweeps import Interrupted, meanwhile
from threadkeep import InvalidOption, NotFound, ProviderError, Store
from threadkeep.db.base import PREFIX, SEARCH_INDEX
from threadkeep.db.models import METADATA, conversations
from threadkeep.db.search.sqlite import merge_index
from threadkeep.db.types import MYSQL, EscapedText, Identifier
from threadkeep.store.removing.retention import scrub
from threadkeep.store.streaming.writer import BATCH_BYTES

FORMAT = "open_responses"
CANARY = "canary-7f3a91"
USER = f"{CANARY}-user"
MEDIA = noise(20_000, seed=7)


def plant(store: Any, user: str, word: str) -> Any:
    """A conversation that says a word wherever something can be said."""
    conversation = store.create_conversation(
        model="m", instructions=f"{word} instructions", user_id=user, title=f"{word} title",
        labels={word: f"{word} label"}, properties={word: f"{word} property"}, external_id=f"{word} external",
        metadata={word: word},
        idempotency_key=f"{word} create", tools=[{"name": f"{word}-tool", "description": f"{word} tool"}],
    )  # fmt: skip
    conversation.user([f"{word} text", a_picture(MEDIA)], idempotency_key=f"{word} said", author_id=user)
    rendered = conversation.render(FORMAT, dynamic_context={"now": f"{word} view"})
    conversation.add_response(
        an_answer(f"{word} answer", id=f"{word} resp", calls=(f"{word} call",), usage={"input_tokens": 3, word: word}),
        FORMAT,
        rendered=rendered,
    )
    conversation.add_function_call_output(call_id=f"{word} call", output=f"{word} output")
    conversation.add_items([a_call(f"{word} 2"), an_output(f"{word} 2", f"{word} result")])
    with pytest.raises(ProviderError):
        conversation.add_response(an_error(f"{word} error"), FORMAT)
    conversation.record_attempt(FORMAT, error=f"{word} lost")
    conversation.add_items([a_call(f"{word} 3", name=f"{word}-tool")])
    conversation.deny(f"{word} 3", reason=f"{word} reason", decided_by=user)
    body = an_answer("more", id=f"{word} 2", incomplete_details={"reason": f"{word} limit"}, note=f"{word} note")
    conversation.add_response({**body, "status": "failed", "error": {"code": "x", "message": f"{word} end"}}, FORMAT)
    choice = {**a_completion()["choices"][0], "finish_reason": f"{word} reason"}
    conversation.add_response({**a_completion(), "choices": [choice]}, "chat_completion")
    conversation.add_item({"role": "user", "content": [{"type": "input_image", "url": f"https://x.example/{word}"}]})
    conversation.set_state(f"{word} state", {word: f"{word} value"})
    conversation.label_item(0, {f"{word} label": f"{word} label"})
    conversation.set_feedback(0, comment=f"{word} comment", user_id=user)
    conversation.mark_seen(user)
    store.keys.create(user_id=user, label=f"{word} key")
    store.for_user(user).upload_media(f"{word} upload".encode())
    conversation.remove_item(conversation.user(f"{word} hidden").position)
    conversation.add_item(a_call(f"{word} popped"))
    conversation.pop(idempotency_key=f"{word} pop")
    fork = conversation.fork(at=1)
    fork.remove_tool(f"{word}-tool", idempotency_key=f"{word} removed")
    fork.update(instructions=f"{word} changed")
    fork.compact(summary=f"{word} summary")
    plant_cache(store, user, word)
    recorder = fork.stream_response(FORMAT)
    recorder.__enter__()
    for event in a_stream(f"{word} stream" + "." * BATCH_BYTES)[:-1]:
        recorder.feed(event)
    return conversation


def plant_cache(store: Any, user: str, word: str) -> None:
    conversation = store.create_conversation(model="m", instructions=f"{word} cached", user_id=user)
    for _ in range(2):
        conversation.user(f"{word} text")
        conversation.add_response(a_gemini_answer(word), "gemini")
    plan = conversation.plan_context_cache("gemini", threshold=1, account=f"{word} account")
    conversation.record_context_cache(plan, name=f"{word} cache")


def readable(cell: Any) -> str:
    return bytes(cell).decode("latin-1") if isinstance(cell, bytes | memoryview) else str(cell)


def dump(engine: Engine) -> str:
    """Everything in the tables, as text."""
    found = []
    with engine.connect() as connection:
        for table in {*inspect(connection).get_table_names()} - {SEARCH_INDEX}:  # what it has is in its own tables
            quoted = connection.dialect.identifier_preparer.quote(table)
            for row in connection.execute(text(f"SELECT * FROM {quoted}")):
                found += [
                    bytes(cell).decode("latin-1") if isinstance(cell, bytes | memoryview) else str(cell) for cell in row
                ]
    return "\n".join(found)


# What has no text of a user: names of formats, kinds, roles and states, hashes, media (looked for by themselves), and
# of the ledger what makes its figures. Whoever adds a column of text plants something in it, or says here why not.
WITHOUT_TEXT = {
    "api_keys": {"scopes"},
    "approvals": {"decision"},
    "tenants": {"name"},
    "blobs": {"location", "media_type"},
    "branches": {"lineage"},
    "changes": {"kind"},
    "context_caches": {"model"},
    "conversations": {"lineage", "status"},
    "items": {"type", "role", "status", "origin", "model", "maker"},
    "responses": {"format", "model", "status"},
    "search_documents": {"type", "role", "words", "scope"},  # the words of the text beside them
    "tool_definitions": {"type"},
    "tool_sets": {"definitions"},
    "uploads": {"media_type"},
    "usage_daily": {"provider", "model", "format", "status"},
    "usage_daily_models": {"model"},
    "usage_daily_sketches": {"provider", "model", "format", "status", "latency_ms", "first_token_ms"},
    "usage_records": {"provider", "model", "format", "status", "price", "terms"},
}


def test_something_is_planted_wherever_there_is_text(store: Any, tables: Any, watching: Engine) -> None:
    word = "sown-7f3a91"  # of its own: other tests look through the whole database
    plant(store, f"{word} user", word)
    list(store.search(word))  # which brings the index up to date
    without: dict[str, set[str]] = {}
    for table in METADATA.tables.values():
        name = table.name.removeprefix(PREFIX)
        rows = [] if name == "tenants" else tables.rows(name)
        for column in table.columns:
            is_digest = isinstance(column.type, LargeBinary) and column.type.length is not None
            is_text = isinstance(column.type, String | LargeBinary | Identifier | EscapedText)
            if is_text and not is_digest and not any(word in readable(row[column.name]) for row in rows):
                without.setdefault(name, set()).add(column.name)
    if watching.dialect.name in MYSQL:  # which does not generate it
        without["items"].remove("packed")
    assert without == WITHOUT_TEXT


def test_nothing_of_a_user_is_left_but_figures(store: Any, tables: Any, watching: Engine) -> None:
    other = plant(store, "somebody", "harmless")
    conversation = plant(store, USER, CANARY)
    shared = store.get_conversation(other.id)
    shared.user("hello", author_id=USER)
    shared.set_feedback(0, comment=CANARY, user_id=USER)
    shared.mark_seen(USER)
    shared.add_item(a_call("shared"))
    shared.add_item({"role": "user", "content": "hello", "author_id": USER})
    shared.approve("shared", decided_by=USER)
    sums = store.usage()
    assert CANARY in dump(watching)
    found = store.erase_user(USER)
    assert (found.conversations, found.items) == (2, 2)
    assert found.attempts >= 3
    left = dump(watching)
    assert CANARY not in left
    assert base64.b64encode(MEDIA).decode()[:60] in str(store.get_conversation(other.id).request_payload(FORMAT))
    (before,), (after,) = sums, store.usage()
    assert after.attempts == before.attempts + 1, "the stream that was in progress counts now"
    assert (after.input_tokens, after.total_tokens) == (before.input_tokens, before.total_tokens)
    with pytest.raises(NotFound):
        store.get_conversation(conversation.id)
    assert store.erase_user(USER).conversations == 0
    assert store.get_conversation(other.id).request_payload(FORMAT)["instructions"] == "harmless changed"


# What files contain of it: the text, the end of a word (the index leaves out how it begins like others), media
TRACES = (CANARY.encode(), CANARY.rpartition("-")[2][1:].encode(), MEDIA[-200:])


def content_of(folder: Path) -> bytes:
    return b"".join(file.read_bytes() for file in folder.iterdir())


@pytest.mark.parametrize("vacuum", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_files_of_sqlite_hold_nothing_either(tmp_path: Path, vacuum: bool) -> None:
    """Without rewriting the file copies of what fits on a page may be left, but no more, and no write-ahead log."""
    path = tmp_path / "chat.db"
    other = noise(20_000, seed=8)
    with Store(f"sqlite:///{path}") as store:
        plant(store, USER, CANARY)
        talks = [store.create_conversation(user_id=user, input="Hi") for user in (USER, "somebody") for _ in range(9)]
        choose = random.Random(5)
        for number in range(400):
            conversation = talks[choose.randrange(len(talks))]
            word = CANARY if conversation.user_id == USER else "harmless"
            conversation.user(" ".join(f"{word}{one}" for one in range(choose.choice((1, 20, 400)))))
            if number % 5 == 0:
                conversation.update(title=f"{word} {'x' * choose.randrange(300)}")
            if number % 7 == 0:
                conversation.pop()
            if number % 50 == 0:
                store.reindex()
        talks[-1].user(["mine", a_picture(other)])
        assert len(list(store.search(f"{CANARY}1", limit=9))) == 9
        before = content_of(tmp_path)
        assert all(trace in before for trace in TRACES)
        assert store.erase_user(USER, vacuum=vacuum).is_scrubbed is vacuum
        left = content_of(tmp_path)
        assert not any(trace in left for trace in (TRACES if vacuum else TRACES[2:]))
        assert (tmp_path / "chat.db-wal").stat().st_size == 0
        assert other[:200] in left, "the other user's picture is there"
        assert len(list(store.search("harmless1", limit=9))) == 9
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone()[0] == "ok"
        assert (connection.execute("PRAGMA freelist_count").fetchone()[0] == 0) is vacuum, "it was rewritten"


def test_the_index_is_merged_in_small_transactions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large one takes as many more of them, so nobody waits for the whole."""
    monkeypatch.setattr("threadkeep.db.search.sqlite.MERGED_PAGES", 4)
    counts: list[int] = []
    for size in (20, 80):
        path = tmp_path / f"{size}.db"
        with Store(f"sqlite:///{path}") as store:
            for number in range(size):
                store.create_conversation(input=" ".join(f"w{number}x{one}" for one in range(200)))
                store.reindex()
        with closing(sqlite3.connect(path)) as connection:
            seen: list[str] = []
            connection.set_trace_callback(seen.append)
            merge_index(connection)
        assert seen.count("COMMIT") == sum("'merge'" in statement for statement in seen)
        counts.append(seen.count("COMMIT"))
    assert 2 * counts[0] <= counts[1], counts


def test_a_writer_who_does_not_end_holds_up_the_last_step_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadkeep.db.backends.BUSY_SECONDS", 1)
    with Store(f"sqlite:///{tmp_path / 'chat.db'}") as store, closing(sqlite3.connect(tmp_path / "chat.db")) as other:
        plant(store, USER, CANARY)

        def scrub_meanwhile(connection: Any, *, vacuum: bool) -> bool | None:
            other.execute("BEGIN IMMEDIATE")
            return scrub(connection, vacuum=vacuum)

        with monkeypatch.context() as patch:
            patch.setattr("threadkeep.store.removing.retention.scrub", scrub_meanwhile)
            assert store.erase_user(USER).is_scrubbed is False
        other.rollback()
        assert store.erase_user(USER).is_scrubbed is True


def test_within_a_unit_of_work_the_files_are_not_scrubbed(store: Any, database: Database) -> None:
    """That takes transactions after the commit: of another call."""
    plant(store, USER, CANARY)
    with store.begin() as work:
        report = work.erase_user(USER)
    is_sqlite = database.kind == "sqlite"
    assert report.is_scrubbed is (False if is_sqlite else None)
    assert store.erase_user(USER).is_scrubbed is (True if is_sqlite else None)


def test_an_interrupted_erasure_goes_on_where_it_ended(
    store: Any, watching: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in ("FIRST", "MOST"):
        monkeypatch.setattr(f"threadkeep.store.work.pacing.{most}", 1)  # row in a transaction
    for _ in range(3):
        store.create_conversation(model="m", input=f"{CANARY} text", user_id=USER)

    def pull(what: str, count: int) -> None:
        if what == "conversations" and count == 2:
            raise Interrupted

    with pytest.raises(Interrupted):
        store.erase_user(USER, progress=pull)
    assert CANARY in dump(watching)
    assert store.erase_user(USER).conversations == 1
    assert CANARY not in dump(watching)


@pytest.mark.parametrize("before", [None, "somebody"])
def test_attempts_from_before_the_conversation_was_the_users(
    store: Any, tables: Any, watching: Engine, before: str | None
) -> None:
    conversation = store.create_conversation(model="m", input="hi", user_id=before)
    kept = store.create_conversation(model="m", input="hi", user_id=before)
    for one in (conversation, kept):
        word = CANARY if one is conversation else "harmless"
        one.record_attempt(FORMAT, error=word)
        one.add_response(an_answer("hi", id="r", usage={"input_tokens": 3, word: 1}), FORMAT)
    conversation.update(user_id=USER)
    store.erase_user(USER)
    assert CANARY not in dump(watching)
    said = [(row["usage"], row["error"]) for row in tables.rows("usage_records", "id") if row["usage"] or row["error"]]
    assert len(said) == 2
    assert all("harmless" in str(texts) for texts in said), "those of the other conversation are there"
    [row] = store.usage(by="user_id")
    assert (row.user_id, row.attempts, row.input_tokens) == (before, 4, 6)


def test_a_stream_that_ends_while_its_user_is_erased_leaves_figures_only(
    stores: Any, tenant: str, watching: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may end between the moment when its conversation is hidden and the moment when its rows are removed."""
    store = stores.get("sync", "elsewhere").for_tenant(tenant)
    first, second = (store.create_conversation(model="m", input="hi", user_id=USER) for _ in range(2))
    recorders = [one.stream_response(FORMAT, provider="p") for one in (first, second)]
    for recorder in recorders:
        recorder.__enter__()
        for event in a_stream("words", usage={"input_tokens": 3, CANARY: 1}):
            recorder.feed(event)
    left = list(recorders)
    for most in ("FIRST", "MOST"):
        monkeypatch.setattr(f"threadkeep.store.work.pacing.{most}", 1)  # row in a transaction

    def end_one(what: str, _: int) -> None:
        if what == "conversations" and left:  # one is removed, the other one is hidden
            for recorder in recorders:
                with pytest.raises(NotFound):
                    recorder.__exit__(None, None, None)
            left.clear()

    store.erase_user(USER, progress=end_one)
    assert CANARY not in dump(watching)
    (row,) = store.usage()
    assert (row.attempts, row.input_tokens) == (2, 6)


def test_an_attempt_is_not_written_down_for_a_user_who_is_being_erased(
    stores: Any, tenant: str, watching: Engine
) -> None:
    store = stores.get("sync", "elsewhere").for_tenant(tenant)
    conversation = store.create_conversation(model="m", user_id=USER)

    def hide(connection: Any) -> None:
        where = conversations.c.id == conversation.handle.ref.key
        connection.execute(update(conversations).where(where).values(status="deleted"))

    def attempt() -> Any:
        with pytest.raises(NotFound):
            conversation.record_attempt(FORMAT, error=CANARY, idempotency_key=CANARY)

    meanwhile(watching, hide, attempt)
    store.erase_user(USER)
    assert CANARY not in dump(watching)


def test_a_store_of_one_user_erases_nobody_else(store: Any) -> None:
    conversation = store.create_conversation(model="m", user_id="mine")
    with pytest.raises(InvalidOption):
        store.for_user("yours").erase_user("mine")
    assert store.for_user("mine").erase_user("mine").conversations == 1
    with pytest.raises(NotFound):
        store.get_conversation(conversation.id)


def test_options_of_others_can_be_used_again_after_an_erasure(store: Any, elsewhere: Any) -> None:
    store.create_conversation(model="only", user_id=USER, tools=[{"name": "only"}])
    store.erase_user(USER)
    made = elsewhere.create_conversation(model="only", tools=[{"name": "only"}], input="hi")
    again = store.create_conversation(model="only", tools=[{"name": "only"}], input="hi")
    assert made.request_body(FORMAT) == again.request_body(FORMAT)


def test_a_conversation_that_is_given_away_meanwhile_is_kept(stores: Any, tenant: str, watching: Engine) -> None:
    store = stores.get("sync", "elsewhere").for_tenant(tenant)
    kept = store.create_conversation(model="m", input="hi", user_id=USER)

    def give(connection: Any) -> None:
        where = conversations.c.id == kept.handle.ref.key
        connection.execute(update(conversations).where(where).values(user_id="somebody"))

    assert meanwhile(watching, give, lambda: store.erase_user(USER)).conversations == 0
    assert store.get_conversation(kept.id).user_id == "somebody"


def test_a_copy_belongs_to_the_user_of_the_original(store: Any) -> None:
    """What a user wrote is erased with the user, also where the application copied it."""
    original = store.create_conversation(model="m", user_id="ann", input="A secret")
    assert store.copy_conversation(original.id).user_id == "ann"
    assert store.copy_conversation(original.id, user_id="ben").user_id == "ben"
    nobodys = store.copy_conversation(original.id, user_id=None)
    assert nobodys.user_id is None
    store.erase_user("ann")
    assert {one.user_id for one in store.list_conversations().items} == {None, "ben"}
