"""What is kept only so long goes in time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, update

from tests.factories import a_picture, an_answer, noise
from tests.store.sweeps import Interrupted, meanwhile
from tests.store.watching import Tables
from threadkeep import Due, InvalidOption, NotFound
from threadkeep.db.models import conversations, response_bodies, tool_sets

pytestmark = pytest.mark.one_face

FORMAT = "open_responses"
NOTHING_DUE = Due(0, is_least=False, oldest=None)


@pytest.fixture
def aged(store: Any, watching: Engine) -> dict[str, Any]:
    """Conversations that were last used ten and a hundred days ago, and today, each with an answer."""
    found, now = {}, datetime.now(UTC)
    for days in (0, 10, 100):
        conversation = store.create_conversation(model="m", instructions=f"of {days}", input="question")
        conversation.add_response(an_answer("answer", id=f"r{days}"), FORMAT)
        moment = now - timedelta(days=days)
        with watching.begin() as connection:
            key = conversation.handle.ref.key
            connection.execute(update(conversations).where(conversations.c.id == key).values(last_activity_at=moment))
            connection.execute(
                update(response_bodies).where(response_bodies.c.conversation_id == key).values(created_at=moment)
            )
        found[str(days)] = conversation
    return found


def test_a_dry_run_counts_and_removes_nothing(store: Any, aged: Any) -> None:
    found = store.retain(raw_bodies=5, content=30, dry_run=True)
    assert (found.raw_bodies, found.conversations) == (2, 1)
    assert len(store.list_conversations()) == 3
    assert store.retain(raw_bodies=5, content=30) == found


def test_raw_bodies_and_content_have_lives_of_their_own(store: Any, aged: Any) -> None:
    attempts = store.usage()[0].attempts
    found = store.retain(raw_bodies=timedelta(days=5))
    assert (found.raw_bodies, found.conversations) == (2, 0)
    assert aged["0"].response_body(0)
    for days in ("10", "100"):
        with pytest.raises(NotFound):
            aged[days].response_body(0)
        assert len(store.get_conversation(aged[days].id).transcript()) == 2
    assert store.retain(content=30).conversations == 1
    assert len(store.list_conversations()) == 2
    assert store.usage()[0].attempts == attempts


def test_an_interrupted_retention_goes_on_where_it_ended(
    store: Any, aged: Any, watching: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    for most in ("FIRST", "MOST"):
        monkeypatch.setattr(f"threadkeep.store.work.pacing.{most}", 1)  # row in a transaction

    def pull(what: str, count: int) -> None:
        raise Interrupted

    with pytest.raises(Interrupted):
        store.retain(content=5, progress=pull)
    assert len(store.list_conversations()) == 1
    assert store.retain(content=5, dry_run=True).conversations == 1
    assert store.retain(content=5).conversations == 1
    with watching.connect() as connection:
        wanted = conversations.c.tenant_id == store.handle.scope.tenant
        assert len(connection.execute(conversations.select().where(wanted)).all()) == 1


@pytest.mark.parametrize("days", [timedelta.max.days, timedelta.max, 10**6])
def test_what_is_kept_for_ages_is_kept(store: Any, aged: Any, days: Any) -> None:
    assert store.retain(raw_bodies=days, content=days).conversations == 0
    assert len(store.list_conversations()) == 3


def test_a_conversation_that_is_used_meanwhile_is_kept(stores: Any, tenant: str, aged: Any, watching: Engine) -> None:
    store, quiet = stores.get("sync", "elsewhere").for_tenant(tenant), aged["100"]

    def use(connection: Any) -> None:
        now = datetime.now(UTC)
        where = conversations.c.id == quiet.handle.ref.key
        connection.execute(update(conversations).where(where).values(last_activity_at=now))

    assert meanwhile(watching, use, lambda: store.retain(content=30)).conversations == 0
    assert quiet.request_payload(FORMAT)["input"]


def test_tools_that_are_used_again_meanwhile_are_kept(stores: Any, tenant: str, watching: Engine) -> None:
    """A definition that nothing names is named by a set that is not committed yet."""
    store = stores.get("sync", "elsewhere").for_tenant(tenant)
    tool, made = {"name": "look_up", "description": "finds"}, []
    old = store.create_conversation(model="m", tools=[tool])
    with watching.begin() as connection:
        where = conversations.c.id == old.handle.ref.key
        connection.execute(update(conversations).where(where).values(tool_set_hash=None))
        connection.execute(tool_sets.delete().where(tool_sets.c.tenant_id == store.handle.scope.tenant))

    def use(connection: Any) -> None:
        made.append(store.within(connection).create_conversation(model="m", tools=[tool], input="hi").id)

    meanwhile(watching, use, lambda: store.retain(content=30))
    seen = stores.get("sync").for_tenant(tenant).get_conversation(made[0])
    assert [one["description"] for one in seen.request_payload(FORMAT)["tools"]] == ["finds"]


@pytest.mark.parametrize("options", [{}, {"raw_bodies": -1}, {"content": "30d"}, {"content": True}])
def test_how_long_must_be_said_in_days(store: Any, options: Any) -> None:
    with pytest.raises(InvalidOption):
        store.retain(**options)


def test_a_store_of_one_user_does_not_decide_for_all(store: Any) -> None:
    with pytest.raises(InvalidOption):
        store.for_user("mine").retain(content=1)


# The backlog


def test_the_backlog_is_what_is_due(store: Any, aged: Any) -> None:
    found, due = (
        store.backlog(raw_bodies=5, content=30, changes=1),
        store.retain(raw_bodies=5, content=30, dry_run=True),
    )
    assert (found.raw_bodies.count, found.conversations.count) == (due.raw_bodies, due.conversations) == (2, 1)
    assert not found.raw_bodies.is_least
    assert not found.conversations.is_least
    for one in (found.raw_bodies, found.conversations):
        assert timedelta(days=100) <= datetime.now(UTC) - one.oldest < timedelta(days=101)
    assert (found.changes.count, found.changes.oldest, found.deleted) == (0, None, 0)
    assert len(store.list_conversations()) == 3
    store.retain(raw_bodies=5, content=30)
    found = store.backlog(raw_bodies=5, content=30)
    assert (found.raw_bodies, found.conversations, found.changes) == (NOTHING_DUE, NOTHING_DUE, None)


def test_a_large_backlog_is_not_counted_to_its_end(store: Any, aged: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("threadkeep.store.removing.retention.COUNTED", 1)
    found = store.backlog(raw_bodies=timedelta(), content=timedelta())
    assert found.conversations == Due(1, is_least=True, oldest=found.conversations.oldest)
    assert found.raw_bodies.is_least


def test_the_backlog_has_deletions_that_were_interrupted(
    store: Any, aged: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        patched.setattr("threadkeep.store.removing.purging.purge_batch", lambda *_, **__: False)
        store.delete_conversation(aged["0"].id)
    assert store.backlog(content=30).deleted == 1
    assert store.purge_deleted() == 1
    assert store.backlog(content=30).deleted == 0


@pytest.mark.parametrize("ages", [{"raw_bodies": 5_000}, {"content": 5_000}, {"changes": 5_000}])
def test_retention_finishes_deletions_that_were_interrupted(
    store: Any, tables: Tables, monkeypatch: pytest.MonkeyPatch, ages: Any
) -> None:
    """Whatever it is asked to keep; they are not due, and so not counted, as in a dry run."""
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.user([a_picture(noise(9_000))])
    with monkeypatch.context() as patched:
        patched.setattr("threadkeep.store.removing.purging.purge_batch", lambda *_, **__: False)
        store.delete_conversation(conversation.id)
    expected = store.retain(**ages, dry_run=True)
    assert store.backlog(**ages).deleted == 1
    assert store.retain(**ages) == expected
    counts = tables.counts()
    assert (expected.conversations, counts["conversations"], counts["items"], counts["blobs"]) == (0, 0, 0, 0)


@pytest.mark.parametrize("options", [{}, {"raw_bodies": -1}, {"content": "30d"}])
def test_a_backlog_needs_ages_in_days(store: Any, options: Any) -> None:
    with pytest.raises(InvalidOption):
        store.backlog(**options)
    with pytest.raises(InvalidOption):
        store.for_user("mine").backlog(content=1)
