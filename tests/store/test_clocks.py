"""Hosts whose clocks are wrong: leases run by the time of the database, and keys have any time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from sqlalchemy import Engine, select, update

from tests.factories import a_gemini_answer, a_stream, texts_of
from tests.store.clocks import SHIFTS, host_clock
from tests.store.test_streams import FORMAT, expire, left
from threadkeep import ResponseInProgress
from threadkeep.db.models import context_caches, responses

LONG = 60
QUICK = ("two minutes ahead", "a week behind")
WRONG = pytest.mark.parametrize(
    "shift",
    [pytest.param(shift, id=name, marks=() if name in QUICK else pytest.mark.slow) for name, shift in SHIFTS.items()],
)
pytestmark = pytest.mark.one_face


@WRONG
def test_a_wrong_clock_ends_no_living_stream(conversation: Any, elsewhere: Any, shift: timedelta) -> None:
    """Not a reader's, nor that of a host that appends."""
    conversation.user("Count")
    with conversation.stream_response(FORMAT) as recorder:
        for number, event in enumerate(a_stream("one two three")):
            recorder.feed(event)
            if number % 3 == 0:
                with host_clock(shift), pytest.raises(ResponseInProgress) as caught:
                    elsewhere.get_conversation(conversation.id).user("Hello?")
                assert 0 < caught.value.retry_after <= 5
    assert recorder.response.status == "completed"
    assert conversation.usage().attempts == 1


@WRONG
def test_a_host_with_a_wrong_clock_blocks_nobody(
    conversation: Any, elsewhere: Any, watching: Engine, shift: timedelta
) -> None:
    """Its recorder dies; the branch is free as soon as the lease is over."""
    conversation.user("Count")
    with host_clock(shift):
        left(conversation, *a_stream("one two three")[:4], lease=LONG)
    other = elsewhere.get_conversation(conversation.id)
    with pytest.raises(ResponseInProgress) as caught:
        other.user("too early")
    assert 0 < caught.value.retry_after <= LONG
    expire(watching)
    other.user("Hello?")
    assert texts_of(other.transcript()) == ["Count", "one two ", "Hello?"]
    assert [row.status for row in other.responses()] == ["incomplete"]


@WRONG
def test_a_wrong_clock_renews_its_lease(conversation: Any, elsewhere: Any, watching: Engine, shift: timedelta) -> None:
    def pass_time(seconds: int) -> None:
        """Bring the end of the lease so much nearer."""
        lease = responses.c.lease_until
        with watching.begin() as connection:
            [until] = connection.execute(select(lease).where(ours)).scalars()
            earlier = until - timedelta(seconds=seconds)
            connection.execute(update(responses).where(ours).values(lease_until=earlier))

    ours = responses.c.conversation_id == conversation.handle.ref.key
    with host_clock(shift):
        recorder = left(conversation, *a_stream("one")[:1], lease=LONG)
        for event in a_stream("one")[1:4]:
            pass_time(LONG // 2)
            recorder.feed(event)
            with pytest.raises(ResponseInProgress):
                elsewhere.get_conversation(conversation.id).user("Hello?")
        recorder.cancel()
    assert recorder.response.text == "one"


def talk(store: Any) -> Any:
    """A conversation whose next request is worth a context cache."""
    conversation = store.create_conversation(model="gemini-2.5-flash", instructions="RULES", input="q1")
    conversation.add_response(a_gemini_answer("to q1", 30_000), "gemini")
    conversation.user("q2")
    return conversation


@WRONG
def test_a_wrong_clock_breaks_no_claim(store: Any, elsewhere: Any, watching: Engine, shift: timedelta) -> None:
    """Whether it is the clock of the host that creates the cache or of one that asks meanwhile."""
    conversation = talk(store)
    other = elsewhere.get_conversation(conversation.id)
    plan = conversation.plan_context_cache("gemini")
    with host_clock(shift):
        assert other.plan_context_cache("gemini").action == "wait"
        conversation.record_context_cache(plan, name=None)
        plan = conversation.plan_context_cache("gemini", lease=LONG)
    assert (plan.action, other.plan_context_cache("gemini").action) == ("create", "wait")
    with watching.begin() as connection:
        over = datetime.now(UTC) - timedelta(seconds=1)
        connection.execute(context_caches.update().where(context_caches.c.name.is_(None)).values(claim_until=over))
    assert other.plan_context_cache("gemini").action == "create"


@WRONG
def test_a_wrong_clock_forgets_no_cache(store: Any, shift: timedelta) -> None:
    conversation = talk(store)
    with host_clock(shift):
        conversation.record_context_cache(conversation.plan_context_cache("gemini", ttl=600), name="caches/1")
        again = conversation.plan_context_cache("gemini")
        assert (again.action, again.name, again.delete) == ("reuse", "caches/1", [])
        assert conversation.request_payload("gemini", cache="auto")["cachedContent"] == "caches/1"
    again = conversation.plan_context_cache("gemini")
    assert (again.action, again.name, again.delete) == ("reuse", "caches/1", [])
    assert timedelta(0) < again.expires_at - datetime.now(UTC) <= timedelta(seconds=601)


@pytest.mark.parametrize("year", [1970, 2024, 2060, 2500])
def test_a_clock_in_another_time_makes_keys(store: Any, tables: Any, year: int) -> None:
    """They are positive numbers of 64 bits, and the conversation goes on when the clock is right again."""
    with host_clock(datetime(year, 1, 2, tzinfo=UTC) - datetime.now(UTC)):
        conversation = store.create_conversation(model="m", input="Count")
        with conversation.stream_response(FORMAT) as recorder:
            for event in a_stream("one"):
                recorder.feed(event)
    conversation.user("And?")
    assert texts_of(store.get_conversation(conversation.id).transcript()) == ["Count", "one", "And?"]
    keys = [row["id"] for name in ("conversations", "usage_records") for row in tables.rows(name, "id")]
    assert all(0 < key < 2**63 for key in keys)
    assert store.list_conversations().items[0].id == conversation.id
