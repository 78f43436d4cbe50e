"""Whatever happens, reports say what a plain sum over the ledger says, with filled days or without."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from sqlalchemy import Engine

from tests.conftest import is_set
from tests.factories import a_completion, an_answer, an_error
from tests.store.ledger import attempt_at, expected, same
from tests.store.watching import Tables
from threadkeep import HeadConflict, ProviderError, UsageRow

IS_LONG = is_set("THREADKEEP_LONG")
SETTINGS = settings(max_examples=300 if IS_LONG else 12, stateful_step_count=50 if IS_LONG else 15)
DAY = timedelta(days=1)
COUNTS = st.one_of(st.none(), st.integers(0, 3), st.integers(0, 2**40))
MODELS = st.sampled_from(["gpt-5.4", "own", "\u00e9"])
PROVIDERS = st.sampled_from([None, "openai", "a\\b"])
# Seconds after a midnight of the last days, around it and anywhere
CLOCKS = st.one_of(
    st.sampled_from([0.0, -0.000001, -0.0004, 0.000001, 3599.9, 3600.0, -3600.0]), st.integers(-86_400, 86_400)
)
DIMENSIONS = ("hour", "day", "week", "month", "model", "provider", "format", "status", "user_id", "conversation_id")
ORDERS = st.sampled_from([None, "attempts", "input_tokens", "cost_nano"])
BY = st.lists(st.sampled_from(DIMENSIONS), max_size=3, unique=True).map(tuple)
PLAIN_BY = st.lists(st.sampled_from(["day", "month", "model", "status"]), max_size=2, unique=True).map(tuple)
ZONES = st.sampled_from(["UTC", "UTC", "Europe/Berlin", "Asia/Kolkata"])


def usage_of(draw: Any) -> dict[str, Any] | None:
    """A usage object in which anything may be missing."""
    found = {"input_tokens": draw(COUNTS), "output_tokens": draw(COUNTS), "cost": draw(st.none() | st.just(0.25))}
    if (cached := draw(COUNTS)) is not None:
        found["input_tokens_details"] = {"cached_tokens": cached}
    return {name: value for name, value in found.items() if value is not None}


class Ledger(RuleBasedStateMachine):
    """One tenant, its conversations, and what is done to them."""

    stores: Any
    watching: Engine

    def __init__(self) -> None:
        super().__init__()
        self.midnight = datetime.combine(datetime.now(UTC).date(), datetime.min.time(), UTC)
        self.handles: list[Any] = []
        self.ids: dict[int, str] = {}
        self.count = 0

    @initialize()
    def begin(self) -> None:
        name = uuid4().hex
        self.store = self.stores.get("sync").create_tenant(name)
        self.connection = self.watching.connect()
        self.tables = Tables(self.connection, self.store.handle.scope.tenant)
        self.create("ann")

    def teardown(self) -> None:
        if hasattr(self, "connection"):
            self.connection.close()

    def handle(self, number: int) -> Any:
        return self.handles[number % len(self.handles)]

    @rule(user=st.sampled_from([None, "ann", "ben"]))
    def create(self, user: str | None) -> None:
        made = self.store.create_conversation(model="own", user_id=user, input="Hi")
        self.handles.append(made)
        self.ids[made.handle.ref.key] = made.id

    @rule(number=st.integers(0, 9), data=st.data(), model=MODELS, provider=PROVIDERS)
    def answer(self, number: int, data: Any, model: str, provider: str | None) -> None:
        body = an_answer("Hi", model=model, usage=usage_of(data.draw))
        self.handle(number).add_response(body, "open_responses", provider=provider, latency_ms=data.draw(COUNTS))

    @rule(number=st.integers(0, 9))
    def retry(self, number: int) -> None:
        """The same answer twice under one key is one attempt; one that comes too late is one, and stored later, too."""
        self.count += 1
        handle, key = self.handle(number), f"key {self.count}"
        for _ in range(2):
            handle.add_response(an_answer("Again", id=key), "open_responses", idempotency_key=key)
        with pytest.raises(HeadConflict):
            handle.add_response(
                a_completion(id=key), "chat_completion", expected_head=-1, idempotency_key=f"{key} late"
            )
        handle.add_response(
            a_completion(id=key),
            "chat_completion",
            expected_head=-1,
            on_conflict="append",
            idempotency_key=f"{key} late",
        )

    @rule(number=st.integers(0, 9), status=st.sampled_from(["failed", "cancelled"]), latency=COUNTS)
    def fail(self, number: int, status: str, latency: int | None) -> None:
        self.handle(number).record_attempt("messages", status=status, error="timeout", latency_ms=latency)
        with pytest.raises(ProviderError):
            self.handle(number).add_response(an_error(), "open_responses")

    @rule(number=st.integers(0, 9), is_cancelled=st.booleans())
    def stream(self, number: int, is_cancelled: bool) -> None:
        """A stream that ends, and one that its user stops."""
        with self.handle(number).stream_response("open_responses") as recorder:
            recorder.feed({"type": "response.created", "response": an_answer(id="resp_s", usage=None)})
            if is_cancelled:
                recorder.cancel()
            else:
                recorder.feed({"type": "response.completed", "response": an_answer("Hi", id="resp_s")})

    @rule(number=st.integers(0, 9))
    def fork(self, number: int) -> None:
        self.handles.append(self.handle(number).fork(at=0))

    @precondition(lambda self: len(self.handles) > 1)
    @rule(number=st.integers(0, 9))
    def delete(self, number: int) -> None:
        gone = self.handle(number)
        self.store.delete_conversation(gone.id)
        self.handles = [one for one in self.handles if one.id != gone.id] or []
        del self.ids[gone.handle.ref.key]
        if not self.handles:
            self.create(None)

    @rule(
        number=st.integers(0, 9), age=st.integers(0, 3), seconds=CLOCKS, input_tokens=COUNTS, cached_tokens=COUNTS,
        cost=COUNTS, model=MODELS,
    )  # fmt: skip
    def come_late(self, number: int, age: int, seconds: float, cost: int | None, model: str, **figures: Any) -> None:
        """A transaction that began on another day, or a stream that was left alone."""
        at = self.midnight - age * DAY + timedelta(seconds=seconds)
        known = {name: value for name, value in figures.items() if value is not None}
        attempt_at(self.handle(number), at, figures=known, cost=cost, model=model)

    @rule()
    def fill(self) -> None:
        self.store.fill_usage_days()

    @rule()
    def reconcile(self) -> None:
        assert self.store.reconcile_usage().repaired == 0

    @rule(by=BY, tz=ZONES, order_by=ORDERS, limit=st.none() | st.integers(1, 3), user=st.booleans())
    def ask(self, by: tuple[str, ...], tz: str, order_by: str | None, limit: int | None, user: bool) -> None:
        filters = {"user_id": "ann"} if user else {}
        self.check(by=by, tz=tz, order_by=order_by, limit=limit, **filters)

    @rule(by=PLAIN_BY, since=st.integers(0, 4), until=st.integers(-1, 3), model=st.none() | MODELS)
    def ask_days(self, by: tuple[str, ...], since: int, until: int, model: str | None) -> None:
        today = self.midnight.date()
        bounds: dict[str, date] = {"since": today - since * DAY, "until": today - min(since, until) * DAY}
        self.check(by=by, **bounds, **({} if model is None else {"model": model}))

    @rule(since=CLOCKS, until=CLOCKS)
    def ask_moments(self, since: float, until: float) -> None:
        days = (self.midnight - 2 * DAY, since), (self.midnight - DAY, until)
        first, end = sorted(day + timedelta(seconds=seconds) for day, seconds in days)
        self.check(by=("model",), since=first, until=end)

    @invariant()
    def days_say_what_the_ledger_says(self) -> None:
        if self.handles:
            self.check(by=("day", "model", "provider", "format", "status"))

    def check(self, **question: Any) -> None:
        rows = self.tables.rows("usage_records", "id")
        found, wanted = self.store.usage(**question), expected(rows, ids=self.ids, **question)
        assert same(found, wanted), (question, found, wanted)


def test_reports_say_what_the_ledger_says(stores: Any, watching: Engine) -> None:
    class Here(Ledger):
        pass

    Here.stores, Here.watching = stores, watching
    run_state_machine_as_test(Here, settings=SETTINGS)


def test_writers_who_come_late_while_days_are_filled(stores: Any, tenant: str, watching: Engine) -> None:
    """Neither misses the other: once all is quiet, no filled day differs from the ledger."""
    stores.get("sync").for_tenant(tenant).create_conversation(external_id="one", model="m")
    days = [datetime.now(UTC) - number * DAY for number in range(2, 6)]

    def late(name: str) -> None:
        handle = stores.get("sync", name).for_tenant(tenant).find_conversation(external_id="one")
        for number in range(40 if IS_LONG else 12):
            attempt_at(handle, days[number % len(days)], figures={"input_tokens": number})

    def fill(name: str) -> None:
        store = stores.get("sync", name).for_tenant(tenant)
        while not all(writer.done() for writer in writers):
            store.fill_usage_days()

    with ThreadPoolExecutor(5) as threads:
        writers = [threads.submit(late, f"late {number}") for number in range(3)]
        fillers = [threads.submit(fill, f"fill {number}") for number in range(2)]
    for one in (*writers, *fillers):
        one.result()
    store = stores.get("sync").for_tenant(tenant)
    with watching.connect() as connection:
        rows = Tables(connection, store.handle.scope.tenant).rows("usage_records", "id")
    assert same(store.usage(by="day"), expected(rows, by=("day",)))
    store.fill_usage_days()
    assert store.reconcile_usage().repaired == 0
    assert same(store.usage(by="day"), expected(rows, by=("day",)))


@pytest.mark.slow
def test_reports_while_days_are_filled(stores: Any, tenant: str) -> None:
    """Each says what the ledger holds at one moment: both rows of a transaction or none, and never less than before."""
    stores.get("sync").for_tenant(tenant).create_conversation(external_id="two", model="m")
    days = [datetime.now(UTC) - number * DAY for number in (3, 5)]
    questions: list[dict[str, Any]] = [
        {}, {"by": "day"}, {"by": ("day", "status")}, {"by": "month"}, {"by": "day", "since": days[1].date()},
        {"by": "model", "order_by": "attempts", "limit": 2},
    ]  # fmt: skip

    def late() -> None:
        handle = stores.get("sync", "late").for_tenant(tenant).find_conversation(external_id="two")
        for _ in range(60 if IS_LONG else 15):
            attempt_at(handle, *days, figures={"input_tokens": 1})

    def fill() -> None:
        store = stores.get("sync", "fill").for_tenant(tenant)
        while not writing.done():
            store.fill_usage_days()

    def read() -> list[list[UsageRow]]:
        store, found = stores.get("sync", "read").for_tenant(tenant), []
        while not writing.done():
            found += [store.usage(**question) for question in questions]
        return found

    with ThreadPoolExecutor(3) as threads:
        writing = threads.submit(late)
        filling, reading = threads.submit(fill), threads.submit(read)
    writing.result()
    filling.result()
    before = 0
    for rows in reading.result():
        total = sum(row.attempts for row in rows)
        assert total == sum(row.input_tokens or 0 for row in rows) >= before
        assert total % 2 == 0
        before = total
