"""A check finds what does not fit together, says what it is, and mends what it can without inventing content."""

from __future__ import annotations

import gc
import sqlite3
import tracemalloc
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, date, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from sqlalchemy import Connection, Engine, Table, delete, insert, select, update

from tests.databases import Database
from tests.factories import a_message, a_picture, an_answer, noise
from tests.store.test_exports import full
from tests.store.watching import Tables, statements_of
from threadkeep import InvalidOption, NotFound, Store
from threadkeep.db import models as t
from threadkeep.db.base import SEARCH_INDEX, written_columns

pytestmark = pytest.mark.one_face

BEFORE = datetime.now(UTC) - timedelta(days=9)


class Place(NamedTuple):
    """Where something is damaged."""

    connection: Connection
    tenant: int
    key: int

    def set(self, table: Table, which: dict[str, Any] | None = None, **values: Any) -> None:
        changed = self.connection.execute(update(table).where(*self.where(table, which or {})).values(**values))
        assert changed.rowcount

    def remove(self, table: Table, **which: Any) -> None:
        assert self.connection.execute(delete(table).where(*self.where(table, which))).rowcount

    def copy(self, table: Table, which: dict[str, Any], **values: Any) -> None:
        """Insert a row like another one."""
        row = (
            self.connection.execute(select(*written_columns(table)).where(*self.where(table, which))).mappings().first()
        )
        assert row is not None
        self.connection.execute(insert(table), {**row, **values})

    def where(self, table: Table, which: dict[str, Any]) -> list[Any]:
        own = {"tenant_id": self.tenant}
        if "conversation_id" in table.c:
            own["conversation_id"] = self.key
        return [table.c[name] == value for name, value in {**own, **which}.items()]


class Damage(NamedTuple):
    """What is done to the rows, and what a check calls that."""

    do: Callable[[Place], object]
    code: str
    table: str
    is_repairable: bool = True


def rolled_up(place: Place) -> None:
    """A day whose sums are not those of its ledger."""
    day, numbers = BEFORE.date(), {"tenant_id": place.tenant, "number": 0, "attempts": 7, "costs": 0}
    numbers |= {"latencies": 0, "first_tokens": 0}
    place.set(t.usage_records, occurred_at=BEFORE, day=day)
    place.connection.execute(insert(t.usage_days), {"tenant_id": place.tenant, "day": day, "filled_at": BEFORE})
    place.connection.execute(insert(t.usage_daily_models), {**numbers, "day": day})


def unused(place: Place) -> None:
    row = {"tenant_id": place.tenant, "hash": sha256(b"").digest(), "content": b"", "size": 0, "created_at": BEFORE}
    place.connection.execute(insert(t.blobs), row)


NAMES = {
    "a counter of items": Damage(lambda p: p.set(t.conversations, next_position=1), "counter", "conversations"),
    "a counter of responses": Damage(lambda p: p.set(t.conversations, next_response=0), "counter", "conversations"),
    "a counter of branches": Damage(lambda p: p.set(t.conversations, next_branch=1), "counter", "conversations"),
    "a counter of streams": Damage(lambda p: p.set(t.conversations, streams=None), "counter", "conversations"),
    "the head": Damage(lambda p: p.set(t.conversations, head_position=1), "head", "conversations"),
    "the head of a branch": Damage(lambda p: p.set(t.branches, head_position=0), "head", "branches"),
    "a lineage": Damage(lambda p: p.set(t.branches, lineage="[[7,1]]"), "lineage", "branches"),
    "a lineage that is none": Damage(lambda p: p.set(t.branches, lineage="[["), "lineage", "branches"),
    "the place of a fork": Damage(lambda p: p.set(t.branches, fork_position=10**6), "lineage", "branches"),
    "the active branch": Damage(lambda p: p.set(t.conversations, active_branch=9), "branch", "conversations"),
    "a label": Damage(lambda p: p.set(t.conversation_labels, value="other"), "labels", "conversation_labels"),
    "a label too few": Damage(lambda p: p.remove(t.conversation_labels), "labels", "conversation_labels"),
    "labels that are none": Damage(lambda p: p.set(t.conversations, labels="{"), "labels", "conversations", False),
    "labels that are numbers": Damage(
        lambda p: p.set(t.conversations, labels='{"a":1}'), "labels", "conversations", False
    ),
    "the hash of an id": Damage(lambda p: p.set(t.items, {"position": 2}, item_hash=bytes(16)), "columns", "items"),
    "a call id": Damage(lambda p: p.set(t.items, {"position": 3}, call_id="c2"), "columns", "items"),
    "JSON": Damage(lambda p: p.set(t.items, {"position": 2}, payload="{"), "json", "items", False),
    "JSON of no item": Damage(lambda p: p.set(t.items, {"position": 2}, payload="[1]"), "json", "items", False),
    "what was given": Damage(lambda p: p.set(t.items, {"position": 2}, given="{"), "json", "items"),
    "the branch of an item": Damage(lambda p: p.set(t.items, {"position": 1}, branch=9), "branch", "items", False),
    "a codec": Damage(lambda p: p.set(t.items, {"position": 1}, codec=0), "media", "items"),
    "the place of media": Damage(lambda p: p.set(t.item_blobs, splice_at=10**9), "media", "item_blobs", False),
    "links to media": Damage(lambda p: p.remove(t.item_blobs), "media", "items", False),
    "the size of media": Damage(lambda p: p.set(t.blobs, size=1), "media", "blobs"),
    "media": Damage(lambda p: p.set(t.blobs, content=b"x"), "hash", "blobs", False),
    "media that are gone": Damage(lambda p: p.remove(t.blobs), "missing", "item_blobs", False),
    "unused media": Damage(unused, "unused", "blobs"),
    "options": Damage(lambda p: p.set(t.configs, config="{}"), "hash", "configs", False),
    "options that are gone": Damage(lambda p: p.remove(t.configs), "missing", "conversations", False),
    "a tool that is gone": Damage(lambda p: p.remove(t.tool_definitions), "missing", "tool_sets", False),
    "an item of nobody": Damage(lambda p: p.copy(t.items, {"position": 0}, conversation_id=1), "orphan", "items"),
    "a state of nobody": Damage(
        lambda p: p.copy(t.conversation_states, {}, conversation_id=1), "orphan", "conversation_states"
    ),
    "a key of nobody": Damage(lambda p: p.copy(t.appends, {"key": "key"}, conversation_id=1), "orphan", "appends"),
    "the hash of a response's id": Damage(
        lambda p: p.set(t.responses, {"number": 0}, response_hash=b"0" * 16), "hash", "responses"
    ),
    "a missing hash of a response's id": Damage(
        lambda p: p.set(t.responses, {"number": 0}, response_hash=None), "hash", "responses"
    ),
    "ranges that overlap": Damage(
        lambda p: p.copy(t.responses, {"number": 0}, number=5), "range", "responses", False
    ),
    "a range too far": Damage(
        lambda p: p.set(t.responses, {"number": 0}, to_position=99), "range", "responses", False
    ),
    "a range elsewhere": Damage(
        lambda p: p.set(t.responses, {"number": 0}, from_position=5, to_position=5), "range", "responses", False
    ),
    "a response that nobody ends": Damage(
        lambda p: p.set(t.responses, {"number": 1}, open_branch=None), "lease", "responses"
    ),
    "a lease": Damage(lambda p: p.set(t.responses, {"number": 1}, lease_until=None), "lease", "responses"),
    "events of the past": Damage(lambda p: p.copy(t.stream_parts, {"part": 0}, number=0), "stream", "stream_parts"),
    "a raw body": Damage(lambda p: p.set(t.response_bodies, codec=1, body=b"x"), "body", "response_bodies", False),
    "provider data": Damage(
        lambda p: p.set(t.responses, {"number": 0}, provider_data="{"), "json", "responses", False
    ),
    "an outcome": Damage(lambda p: p.set(t.appends, {"key": "key"}, outcome="{"), "outcome", "appends", False),
    "a search document": Damage(
        lambda p: p.set(t.search_documents, {"position": 2}, text="other"), "search", "search_documents"
    ),
    "a missing search document": Damage(
        lambda p: p.remove(t.search_documents, position=2), "search", "search_documents"
    ),
    "a search document of another user": Damage(
        lambda p: p.set(t.search_documents, {"position": 2}, scope="u0"), "search", "search_documents"
    ),
    "a search document of nothing": Damage(
        lambda p: p.copy(t.search_documents, {"position": 2}, position=77, id=5), "search", "search_documents"
    ),
    "the document of the title": Damage(
        lambda p: p.set(t.search_documents, {"position": -1}, text="other"), "search", "search_documents"
    ),
    "a day": Damage(lambda p: p.set(t.usage_records, day=date(2020, 1, 1)), "day", "usage_records"),
    "sums": Damage(rolled_up, "sums", "usage_days"),
}  # fmt: skip


@pytest.fixture
def damaged(database: Database, store: Any) -> Callable[[Any, Damage], None]:
    """Damages a conversation as no store would."""

    def damage(conversation: Any, what: Damage) -> None:
        with database.engine().connect() as connection:
            for statement in {
                "sqlite": ["PRAGMA foreign_keys=OFF"],
                "postgresql": ["SET session_replication_role = replica"],
                "mariadb": ["SET FOREIGN_KEY_CHECKS = 0"],
            }[database.kind]:
                connection.exec_driver_sql(statement)
            what.do(Place(connection, store.handle.scope.tenant, conversation.handle.ref.key))
            connection.commit()

    return damage


def is_first(name: str) -> bool:
    """Whether it is the first damage of its table that has its code; a quick run has no others."""
    what = NAMES[name]
    return name == next(one for one, other in NAMES.items() if (other.code, other.table) == (what.code, what.table))


@pytest.mark.share(3)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
@pytest.mark.parametrize("name", [pytest.param(one, marks=[pytest.mark.slow] * (not is_first(one))) for one in NAMES])
def test_damage_is_found_and_mended(store: Any, elsewhere: Any, tables: Tables, damaged: Any, name: str) -> None:
    conversation, what = full(store), NAMES[name]
    store.reindex()
    before, counts = [one.item.to_dict() for one in conversation.transcript()], tables.counts()
    damaged(conversation, what)
    report = elsewhere.check()
    found = [one for one in report.findings if (one.code, one.table) == (what.code, what.table)]
    assert found, report.findings
    assert not any(one.is_repaired for one in report.findings)
    assert all(one.problem and one.key for one in found)
    is_own = what.code != "orphan" and (what.table == "conversations" or "conversation_id" in found[0].key)
    assert {one.conversation_id for one in found} == {conversation.id if is_own else None}
    assert what.is_repairable == all(one.repair is not None for one in found)
    mended = elsewhere.check(repair=True)
    assert any(one.is_repaired for one in mended.findings) or not what.is_repairable
    if not what.is_repairable:
        assert not mended.is_healthy
        assert what.code in {one.code for one in elsewhere.check().findings}
        return
    assert mended.is_healthy
    elsewhere.reindex()
    assert elsewhere.check().findings == []
    assert [one.item.to_dict() for one in conversation.transcript()] == before
    assert [one.position for one in elsewhere.search('"Hello"', role="assistant")] == [2]
    assert "items" not in {one for one, count in tables.counts().items() if count < counts[one]}


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_a_response_is_found_again_once_its_hash_is_mended(store: Any, damaged: Any) -> None:
    """One without an id, or with an empty one, has no hash."""
    conversation = store.create_conversation(model="m", input="Hi")
    for public_id in ("resp_1", "", None):
        conversation.add_response({**an_answer(), "id": public_id}, "open_responses")
    assert store.check().findings == []
    damaged(conversation, Damage(lambda p: p.set(t.responses, {"number": 0}, response_hash=None), "hash", "responses"))
    with pytest.raises(NotFound):
        store.get_response("resp_1")
    assert store.check(repair=True).repaired == 1
    assert store.get_response("resp_1").number == 0


def test_what_a_provider_says_goes_on_is_no_damage(store: Any) -> None:
    """A response in the background, as it came."""
    conversation = store.create_conversation(model="m", input="Hi")
    for number, status in enumerate(("in_progress", "queued")):
        conversation.add_response({**an_answer(id=f"resp_{number}"), "status": status}, "open_responses")
    assert store.check(repair=True).findings == []
    assert [response.status for response in conversation.responses()] == ["in_progress"] * 2


def test_the_text_of_an_item_that_cannot_be_read_stays_in_the_index(store: Any, damaged: Any, tables: Tables) -> None:
    """It is all that is left of it."""
    conversation = store.create_conversation(model="m", input="Where is it?")
    store.reindex()
    damaged(conversation, Damage(lambda p: p.set(t.items, {"position": 0}, payload="{"), "json", "items"))
    assert [finding.code for finding in store.check(repair=True).findings] == ["json"]
    assert [row["text"] for row in tables.rows("search_documents") if row["position"] == 0] == ["Where is it?"]


def test_there_are_many_kinds_of_damage() -> None:
    assert len(NAMES) > 20
    assert {what.code for what in NAMES.values()} >= {"counter", "head", "hash", "orphan", "range", "search", "sums"}


def test_a_store_in_use_is_healthy(stores: Any, store: Any, face: str, tenant: str) -> None:
    """A check sees each conversation as it is in one moment."""
    conversations = [full(store, str(number), str(number)).id for number in range(3)]

    def use(number: int) -> None:
        own = stores.get("sync", f"user {number}").for_tenant(tenant)
        for turn in range(6):
            conversation = own.get_conversation(conversations[number], branch=0)
            conversation.user(f"turn {turn}", on_conflict="append")
            conversation.add_response(an_answer("Hi", id=f"r{turn}"), "open_responses", on_conflict="append")
            conversation.fork().user("elsewhere")
            conversation.pop(on_conflict="append")
            own.search("turn")

    with ThreadPoolExecutor(3) as pool:
        users = [pool.submit(use, number) for number in range(3)]
        reports = [store.check()]
        while not all(user.done() for user in users):
            reports.append(store.check(repair=len(reports) % 2 == 0))
        for user in users:
            user.result()
    assert [report.findings for report in reports if report.found] == []


def test_what_was_removed_from_a_fork_stays_removed(store: Any, conversation: Any) -> None:
    """Its lineage names the fork itself, too, where a part of its own items is gone."""
    conversation.add_items([a_message(str(number)) for number in range(3)])
    fork = conversation.fork()
    fork.add_items([a_message(str(number)) for number in range(3, 6)])
    for position in (1, 4):
        fork.remove_item(position)
    assert store.check(repair=True).findings == []
    assert [entry.item.text for entry in fork.items()] == ["0", "2", "3", "5"]


def test_what_was_redacted_is_healthy(store: Any, conversation: Any, tables: Tables) -> None:
    """Also when the search had indexed it before."""
    conversation.user("a secret")
    conversation.user("no secret")
    assert len(store.search("secret")) == 2
    conversation.redact_item(0)
    documents = tables.rows("search_documents")
    assert store.check(repair=True).findings == []
    assert tables.rows("search_documents") == documents
    store.reindex(rebuild=True)
    assert store.check().findings == []


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
@pytest.mark.parametrize(
    "damage",
    [
        f"INSERT INTO {SEARCH_INDEX} ({SEARCH_INDEX}) VALUES ('delete-all')",
        f"UPDATE {SEARCH_INDEX}_data SET block = x'00'",
        f"DELETE FROM {SEARCH_INDEX}_data",
    ],
    ids=["emptied", "overwritten", "gone"],
)
def test_an_index_without_its_documents_is_told(store: Any, watching: Engine, damage: str) -> None:
    """The index of SQLite's search is a table of its own; a rebuild makes it again."""
    talks = [full(store, str(number), str(number)).id for number in range(2)]
    store.reindex()
    before = [(one.conversation_id, one.position) for one in store.search('"Hello"')]
    assert store.check().findings == []
    with watching.begin() as connection:
        connection.exec_driver_sql(damage)
    report = store.check(repair=True)
    assert {(one.code, one.conversation_id) for one in report.findings} == {("search", talk) for talk in talks}
    assert all("reindex --rebuild" in (one.repair or "") for one in report.findings)
    assert not report.is_healthy
    store.reindex(rebuild=True)
    assert store.check().findings == []
    assert [(one.conversation_id, one.position) for one in store.search('"Hello"')] == before


def test_a_check_only_reads(store: Any, tables: Tables) -> None:
    full(store)
    before = tables.counts()
    with statements_of(store) as seen:
        report = store.check()
    assert (report.conversations, report.found, report.is_healthy) == (1, 0, True)
    assert {statement.split()[0] for statement in seen} <= {"SELECT", "SET", "START"}
    assert tables.counts() == before


def test_a_check_takes_statements_by_the_batch(store: Any) -> None:
    counts = []
    for size in (10, 1_000):
        store.create_conversation(model="m", input=[a_message(str(number)) for number in range(size)])
        store.reindex()
        with statements_of(store) as seen:
            store.check()
        counts.append(len(seen))
    assert counts[1] - counts[0] < 40


def test_the_store_of_a_user_cannot_be_checked(store: Any) -> None:
    with pytest.raises(InvalidOption, match="all users"):
        store.for_user("ann").check()


# Many rows


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_media_are_looked_at_page_by_page(
    store: Any, conversation: Any, tables: Tables, watching: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadkeep.store.checking.run.BATCH", 2)
    conversation.user([a_picture(noise(9_000 + number)) for number in range(5)])
    damaged = sorted(row["hash"] for row in tables.rows("blobs"))
    with watching.begin() as connection:
        Place(connection, store.handle.scope.tenant, 0).set(t.blobs, {}, size=1)
    assert [(one.code, one.key) for one in store.check().findings] == [
        ("media", f"hash {hash_.hex()}") for hash_ in damaged
    ]


@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_ranges_are_compared_across_pages(
    store: Any, conversation: Any, tables: Tables, watching: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("threadkeep.store.checking.conversations._PAGE", 2)
    [key] = (row["id"] for row in tables.rows("conversations"))
    for number in range(7):
        conversation.add_turn(str(number), an_answer(str(number)), "open_responses")
    assert store.check().findings == []
    with watching.begin() as connection:
        place = Place(connection, store.handle.scope.tenant, key)
        place.set(t.responses, {"number": 1}, to_position=9)  # its own, and those of the next three
        place.set(t.items, {"position": 11}, branch=-1)
        place.set(t.responses, {"number": 6}, branch=1)
    found = [(one.key, one.problem) for one in store.check().findings if one.code == "range"]
    named = f"conversation_id {key}, number"
    assert found == [
        (f"{named} 2", "its items from 5 on also belong to another response"),
        (f"{named} 6", "some items of its range are on another branch"),
    ]


def peak_of(call: Callable[[], object]) -> int:
    """The most memory that a call has at once, in bytes, where no garbage of earlier calls is collected meanwhile."""
    gc.collect()
    tracemalloc.start()
    call()
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
def test_memory_does_not_grow_with_a_conversation(
    store: Any, conversation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rows are looked at page by page."""
    for place in ("checking.conversations._PAGE", "checking.items._BATCH", "moving.contents.BATCH"):
        monkeypatch.setattr(f"threadkeep.store.{place}", 20)
    most, number = [], 0
    for turns in (200, 600):
        while number < turns:
            conversation.add_turn(str(number), an_answer(str(number)), "open_responses", idempotency_key=str(number))
            number += 1
        store.check()  # statements are made once
        most.append(min(peak_of(store.check) for _ in range(3)))
    few, many = most
    assert many < 1.2 * few, most


def without_entries(file: Path, index: str) -> None:
    """Empty an index, as a file that was restored badly has it: nothing is found by it."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = ?", (index,)).fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with file.open("r+b") as pages:
        pages.seek((page - 1) * size)
        pages.write(bytes([10, 0, 0, 0, 0, *size.to_bytes(2, "big"), 0]).ljust(size, b"\x00"))  # a leaf without entries


BY_EXTERNAL_ID = "threadkeep_conversations_external_id_idx"


def test_indexes_of_a_file_are_compared_with_their_tables(tmp_path: Path) -> None:
    """A restored file may find nothing of what it has."""
    file = tmp_path / "damaged.db"
    with Store(f"sqlite:///{file}") as store:
        made = [store.create_conversation(external_id=str(number)).id for number in range(3)]
    without_entries(file, BY_EXTERNAL_ID)
    with Store(f"sqlite:///{file}") as store:
        assert store.find_conversation(external_id="0") is None
        report = store.check()
        assert {(one.code, one.table, one.is_repaired) for one in report.findings} == {("file", "conversations", False)}
        with statements_of(store) as seen:
            assert store.check(repair=True).is_healthy
        made_anew = [statement for statement in seen if "REINDEX" in statement]
        assert len(made_anew) == len(set(made_anew)) > 0
        found = [store.find_conversation(external_id=str(number)) for number in range(3)]
        assert [one and one.id for one in found] == made
        assert store.check().findings == []


def test_an_index_that_rows_with_the_same_values_do_not_allow_is_told(tmp_path: Path) -> None:
    """Which of them is right, nobody knows; the other indexes are made anew."""
    file = tmp_path / "damaged.db"
    with Store(f"sqlite:///{file}") as store:
        store.create_conversation(external_id="ours", title="before").user("Hello")
    without_entries(file, BY_EXTERNAL_ID)
    without_entries(file, "threadkeep_conversations_activity_idx")
    with Store(f"sqlite:///{file}") as store:
        twice = store.create_conversation(external_id="ours", title="after")
        report = store.check(repair=True)
        assert {one.is_repaired for one in report.findings} == {True, False}
        assert not report.is_healthy
        told = [one for one in report.findings if not one.is_repaired]
        assert all("external_id" in one.problem for one in told)
        assert "change or remove one of the rows" in (told[-1].repair or "")
        store.delete_conversation(twice.id)
        store.purge_deleted()
        assert store.check(repair=True).is_healthy
        first = store.find_conversation(external_id="ours")
        assert first is not None
        assert first.title == "before"


def test_a_table_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    file = tmp_path / "damaged.db"
    with Store(f"sqlite:///{file}") as store:
        store.create_conversation(model="m").user(["x" * 500] * 50)
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode=DELETE")
        (page,) = connection.execute("SELECT rootpage FROM sqlite_master WHERE name = 'threadkeep_items'").fetchone()
        (size,) = connection.execute("PRAGMA page_size").fetchone()
    with file.open("r+b") as pages:
        pages.seek((page - 1) * size)
        pages.write(b"\xff" * size)
    with Store(f"sqlite:///{file}") as store:
        for repair in (False, True):
            report = store.check(repair=repair)
            assert {(one.code, one.table, one.repair) for one in report.findings} == {("file", "items", None)}


@pytest.mark.parametrize(
    ("table", "column", "value", "what"),
    [
        ("conversations", "created_at", "yesterday", "a time"),
        ("conversations", "public_id", "conv_1", "bytes"),
        ("items", "created_at", "2026-02-30 10:00:00.000000", "a time"),
        ("items", "created_at", 5, "a time"),
        ("items", "position", "first", "a number"),
        ("items", "payload", b"{}", "text"),
        ("usage_records", "day", "today", "a day"),
    ],
)
def test_values_that_cannot_be_read_are_told(tmp_path: Path, table: str, column: str, value: Any, what: str) -> None:
    """SQLite takes any value in any column, and nothing else of the row can be read."""
    file = tmp_path / "damaged.db"
    with Store(f"sqlite:///{file}") as store:
        full(store)
    with closing(sqlite3.connect(file)) as connection, connection:
        changed = connection.execute(
            f"UPDATE threadkeep_{table} SET {column} = ? WHERE rowid = (SELECT max(rowid) FROM threadkeep_{table})",
            (value,),
        )
        assert changed.rowcount == 1
    with Store(f"sqlite:///{file}") as store:
        for repair in (False, True):
            report = store.check(repair=repair)
            (finding,) = report.findings
            assert (finding.code, finding.table, finding.problem) == ("type", table, f"{column} is not {what}")
            assert not report.is_healthy


@pytest.mark.parametrize("value", ["2026-02-28 10:00:00", "2026-02-28 10:00:59.999", "2026-02-28 10:00:59.999999"])
def test_times_that_can_be_read_are_no_damage(tmp_path: Path, value: str) -> None:
    """An application may have set them with a function of SQLite."""
    file = tmp_path / "chat.db"
    with Store(f"sqlite:///{file}") as store:
        full(store)
    with closing(sqlite3.connect(file)) as connection, connection:
        connection.execute("UPDATE threadkeep_items SET created_at = ?", (value,))
    with Store(f"sqlite:///{file}") as store:
        assert store.check().findings == []
