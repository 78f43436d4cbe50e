"""What one user does costs what that user has: no ordinary call reads the rows of others.

The calls are those of every public method. What they run is recorded, and databases are asked how they execute it.
"""

from __future__ import annotations

import itertools
import secrets
from collections.abc import Callable, Iterator
from contextlib import suppress
from datetime import UTC, date, datetime
from hashlib import sha256
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Connection, Engine, func, insert, select, text

from tests.conftest import provided, upgraded
from tests.databases import Database, Databases
from tests.factories import a_message, a_picture, an_answer, noise
from tests.store.plans import foreign_reads, recorded
from tests.store.test_tenancy import BY_ID, METHODS, OTHERS
from tests.store.watching import engine_of
from threadkeep import Session, Store, ThreadkeepError
from threadkeep.db.base import PREFIX, written_columns
from threadkeep.db.models import METADATA
from threadkeep.db.queries.lists import MAX_LABELLED

N = 3_000  # conversations of others, in the same tenant
MOST = 400  # rows that a statement may read; a page has up to 100 conversations, with a few rows each
FORMAT = "open_responses"
TENANT = "crowded"
TOGETHER = 12  # methods that share a conversation
RANDOM = {"public_id": 16, "response_hash": 16, "item_hash": 16, "call_hash": 16}
# Tables whose rows are found by a hash of their content, and the columns that refer to them
BY_CONTENT = ("configs", "tool_sets", "tool_definitions", "blobs", "uploads")
REFERENCES = {"config_hash": "configs", "tool_set_hash": "tool_sets"}
NAMED = {"external_id", "user_id", "author_id", "decided_by", "name", "provider_response_id", "item_id", "call_id"}

# Calls of a store that are asked about everything, or work for all users
WHOLE = {
    "after", "backlog", "backup", "check", "close", "copy_to", "create_tenant", "delete_tenant", "erase_user", "export",
    "export_usage",
    "fill_usage_days", "for_tenant", "for_user", "import_export", "position", "purge_deleted", "recompute_costs",
    "reconcile_usage",
    "reindex", "retain", "watch", "within",
}  # fmt: skip


def asked_in_a_unit(store: Store, conversation: Any) -> None:
    with store.begin() as work:
        talk = work.open(conversation.id)
        talk.user("In a unit of work")
        talk.render("open_responses")


# The others, of a store `s` of all users, and one `u` for the user
CALLS: dict[str, Callable[[Any, Any, Any], Any]] = {
    "create_conversation": lambda _s, u, _c: u.create_conversation(model="m", input="Hi", idempotency_key="new"),
    "begin": lambda _s, u, c: asked_in_a_unit(u, c),
    "run_in_transaction": lambda _s, u, c: u.run_in_transaction(lambda work: work.open(c.id).user("In one")),
    "save": lambda _s, u, _c: u.save(Session(input=[a_message()]), title="New"),
    "save_many": lambda _s, u, _c: u.save_many([Session(input=[a_message()])] * 3),
    "import_request": lambda _s, u, _c: u.import_request({"model": "m", "input": "Hi"}, FORMAT),
    "find_conversation": lambda s, _u, c: s.find_conversation(external_id=c.external_id),
    "complete_id": lambda s, _u, c: s.complete_id(c.id[:20]),
    "list_conversations": lambda _s, u, _c: [
        u.list_conversations(status=status, order_by=order_by, order=order)
        for status in ("active", "archived", None) for order_by in ("activity", "created", "title")
        for order in ("asc", "desc")
    ],
    "list_conversations of all": lambda s, _u, _c: [
        s.list_conversations(status=status, order=order, after=after)
        for status in ("active", "archived", None) for order in ("asc", "desc")
        for after in (None, s.list_conversations(status=status, order=order, limit=2).next)
    ],
    "list_conversations with labels": lambda s, u, c: [
        one.list_conversations(status=status, labels=labels)
        for one in (s, u) for status in ("active", None)
        for labels in (c.labels, {"all": "1"}, {"all": "1", **c.labels})
    ],
    "list_conversations that are unread": lambda s, u, c: [
        u.list_conversations(unread_by=c.user_id), s.list_conversations(unread_by="somebody", status=None),
    ],
    "list_summaries": lambda s, u, c: [
        u.list_summaries(status=None), u.list_summaries(unread_by=c.user_id), s.list_summaries(seen_by=c.user_id),
        s.list_summaries(status=None, labels={"all": "1"}),
    ],
    "list_items": lambda s, _u, c: s.list_items(labels=c.labels),
    "media": lambda s, _u, c: s.media(c.items(media="reference").items[1].item.content[1].url.removeprefix("")),
    "upload_media": lambda _s, u, _c: [u.upload_media(noise(9_000), "image/png"), u.upload_media(b"a file")],
    "search": lambda _s, u, c: list(u.search(c.title)),
    "search_conversations": lambda _s, u, c: list(u.search_conversations(c.title)),
    "changes": lambda s, _u, _c: [
        s.changes(limit=20), s.changes(s.changes(limit=20).cursor, limit=20), s.changes("now"),
    ],
    "usage": lambda s, u, c: [
        u.usage(), u.usage(by=("day", "model")), s.usage(user_id=c.user_id), s.usage(conversation_id=c.id),
    ],
    "spend": lambda s, u, c: [
        one.spend(user_id=user, labels=labels, since=since)
        for one in (s, u) for user in (None, c.user_id) for labels in (None, {"own": c.labels["own"]}, c.labels)
        for since in (None, date(2020, 1, 1), datetime(2020, 1, 1, 9, tzinfo=UTC))
        if one is u or user or labels
    ],
    "tool_usage": lambda _s, u, _c: u.tool_usage(),
    "statistics": lambda _s, u, _c: u.statistics(),
}  # fmt: skip


def fill(store: Any, user: str, label: str) -> Any:
    """A conversation with a row in each table that belongs to conversations."""
    conversation = store.create_conversation(
        model="m", user_id=user, title=f"title{label}", labels={"own": label, "all": "1"}, external_id=label,
        input=[a_message(f"word{label}")], idempotency_key=f"create {label}",
    )  # fmt: skip
    conversation.user(["Look", a_picture(noise(9_000))])
    conversation.register_tool("look_up")
    body = an_answer("Hello", id=f"resp_{label}", calls=("c",), usage={"input_tokens": 3, "output_tokens": 2})
    conversation.add_response(body, FORMAT, idempotency_key="used")
    conversation.approve("c", decided_by=user)
    conversation.label_item(0, {"own": label})
    conversation.set_feedback(0, rating=1, user_id=user)
    conversation.set_state("run", 1)
    conversation.mark_seen(user)
    conversation.fork().user("Other")
    return conversation


def hash_of(name: str, number: int) -> bytes:
    """What names the copies of a row that is found by its content."""
    return sha256(f"{name} {number}".encode()).digest()


def multiply_contents(connection: Connection, tenant: int) -> None:
    """N copies of the options, tool set, tool and medium of the only conversation, each with a name of its own."""
    for name in BY_CONTENT:
        table = METADATA.tables[PREFIX + name]
        row = dict(connection.execute(select(table).where(table.c.tenant_id == tenant)).first()._mapping)  # type: ignore[union-attr]
        users = {"user_id": "somebody"} if "user_id" in row else {}
        kind = "blobs" if name == "uploads" else name
        copies = [row | users | {"hash": hash_of(kind, number)} for number in range(N)]
        connection.execute(insert(table), copies)


def multiply(connection: Connection, key: int) -> None:
    """N copies of all rows that belong to a conversation, with other keys and names."""
    for table in METADATA.sorted_tables:
        name = table.name.removeprefix(PREFIX)
        own = table.c.get("id" if name == "conversations" else "conversation_id")
        if own is None or name == "context_caches":
            continue
        found = connection.execute(select(*written_columns(table)).where(own == key))
        rows = [dict(row._mapping) for row in found]
        has_id = name != "conversations" and "id" in table.c
        copies = []
        for number, (place, row) in itertools.product(range(N), enumerate(rows)):
            new = row | {own.name: number + 1} | ({"id": len(rows) * number + place + 1} if has_id else {})
            new |= {one: secrets.token_bytes(size) for one, size in RANDOM.items() if row.get(one) is not None}
            new |= {one: f"{row[one]} {number}" for one in NAMED if isinstance(row.get(one), str)}
            new |= {one: hash_of(of, number) for one, of in REFERENCES.items() if new.get(one) is not None}
            if name == "item_blobs":
                new["hash"] = hash_of("blobs", number)
            if name == "conversations":
                new["status"] = "archived" if number % 9 == 0 else "active"
            if name in {"conversation_labels", "item_labels"} and row["key"] == "own":
                new["value"] = str(number)
            copies.append(new)
        for start in range(0, len(copies), 5_000):
            connection.execute(insert(table), copies[start : start + 5_000])


def upgraded_and_crowded(engine: Engine) -> None:
    upgraded(engine)
    with Store(engine, tenants=True) as store:
        tenant = store.create_tenant(TENANT)
        conversation = fill(tenant, "somebody", "else")
        tenant.reindex()
        tenant.upload_media(noise(9_000), "image/png")
        with engine.begin() as connection:
            multiply_contents(connection, tenant.handle.scope.tenant)
            multiply(connection, conversation.handle.ref.key)
    if engine.dialect.name == "postgresql":
        with engine.connect().execution_options(isolation_level="AUTOCOMMIT") as connection:
            connection.execute(text("ANALYZE"))


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def database(request: pytest.FixtureRequest, databases: Databases) -> Iterator[Database]:
    yield from provided(databases, request.param, upgraded_and_crowded)


@pytest.fixture
def crowded(stores: Any) -> Any:
    return stores.get("sync").for_tenant(TENANT)


def own_of(crowded: Any) -> Any:
    """A conversation of a user who has three."""
    label = uuid4().hex
    user = f"user {label}"
    for number in range(2):
        crowded.create_conversation(user_id=user, title="Another", input="Hi", labels={"own": f"{label} {number}"})
    made = fill(crowded, user, label)
    list(crowded.search("anything"))  # which indexes what is new
    return made


@pytest.fixture(scope="module")
def lasting(stores: Any) -> Any:
    """One that no test changes."""
    return own_of(stores.get("sync").for_tenant(TENANT))


@pytest.fixture(scope="module")
def known() -> set[str]:
    """Statements that read what they should."""
    return set()


def check(store: Any, known: set[str], call: Callable[[], Any], most: int = MOST) -> None:
    with recorded(store) as seen, suppress(ThreadkeepError):
        call()
    assert seen
    texts = {statement: parameters for statement, parameters in seen if statement not in known}
    found = {statement: foreign_reads(engine_of(store), (statement, texts[statement]), most) for statement in texts}
    assert not {statement: reads for statement, reads in found.items() if reads}
    known.update(texts)


def test_the_tables_hold_every_method() -> None:
    assert {name.split()[0] for name in CALLS} | WHOLE == OTHERS


def test_there_is_much_of_everything(crowded: Any, watching: Engine) -> None:
    """A table that stays empty is no test; its row is made in `fill`."""
    few = {"appends", "context_caches", "stream_parts"}
    with watching.connect() as connection:
        for table in METADATA.sorted_tables:
            name = table.name.removeprefix(PREFIX)
            if name in BY_CONTENT or ("conversation_id" in table.c and name not in few):
                rows = select(func.count()).where(table.c.tenant_id == crowded.handle.scope.tenant)
                assert connection.execute(rows).scalar_one() >= N, table.name


@pytest.mark.parametrize("face", ["sync"])
@pytest.mark.parametrize("first", range(0, len(METHODS), TOGETHER))
def test_a_conversation_costs_what_it_has(crowded: Any, known: set[str], face: str, first: int) -> None:
    """Opened anew for each method, as another process would."""
    own = own_of(crowded)
    for name in list(METHODS)[first : first + TOGETHER]:
        call = METHODS[name]
        check(crowded, known, lambda: call(crowded.for_user(own.user_id).get_conversation(own.id)))  # noqa: B023 - called now


@pytest.mark.parametrize("face", ["sync"])
def test_what_is_found_by_an_id_costs_what_it_has(crowded: Any, known: set[str], face: str) -> None:
    own = own_of(crowded)
    for call in BY_ID.values():
        check(crowded, known, lambda: call(crowded, own.id))  # noqa: B023 - called now


@pytest.mark.parametrize("face", ["sync"])
@pytest.mark.parametrize("name", CALLS)
def test_a_user_costs_what_that_user_has(crowded: Any, lasting: Any, known: set[str], face: str, name: str) -> None:
    """Lists by labels also count how many have them, up to a limit."""
    user, most = crowded.for_user(lasting.user_id), MOST + (2 * MAX_LABELLED if name.startswith("list") else 0)
    check(crowded, known, lambda: CALLS[name](crowded, user, lasting), most)


def test_a_plan_that_reads_everything_is_found(crowded: Any, watching: Engine) -> None:
    """Neither by a scan, nor by an index that finds the rows of all users."""
    rows = "threadkeep_conversations"
    for condition in (
        "title = 'x'",
        f"tenant_id = {crowded.handle.scope.tenant} AND status = 'active' AND title = 'x'",
    ):
        assert foreign_reads(watching, (f"SELECT id FROM {rows} WHERE {condition}", ()), MOST)
    one = f"SELECT id FROM {rows} WHERE tenant_id = {crowded.handle.scope.tenant} AND id = 7"
    assert foreign_reads(watching, (one, ()), MOST) == []
