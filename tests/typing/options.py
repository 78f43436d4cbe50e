"""What type checkers know of options, views and usage. Never run: mypy checks it, see test_types.py."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Any, Unpack, assert_type

from threadkeep import (
    AsyncStore,
    Conversation,
    Message,
    Rendered,
    Session,
    SessionOptions,
    Store,
    Turns,
    UsageKey,
    UsageRow,
    ViewOptions,
)


def options_are_keywords(store: Store, conversation: Conversation, session: Session) -> None:
    Session(temprature=0.2)  # type: ignore[call-arg]
    Session(temperature="warm")  # type: ignore[arg-type]
    session.update(modle="gpt-5.4")  # type: ignore[call-arg]
    store.create_conversation(modle="gpt-5.4")  # type: ignore[call-arg]
    store.create_conversation(labels={"desk": 1})  # type: ignore[dict-item]
    store.import_request({}, "messages", temprature=0.2)  # type: ignore[call-arg]
    conversation.update(titel="Plants")  # type: ignore[call-arg]
    conversation.update(max_output_tokens="many")  # type: ignore[arg-type]
    Session(temperature=1, input=[Message("user", "Hello!"), {"role": "user"}], tools=[{"name": "add"}])
    session.update(temperature=None, tool_choice={"type": "auto"}, extra={"gemini": {}}, user="ann")
    assert_type(store.create_conversation(model="gpt-5.4", input="Hello!", user_id="ann"), Conversation)
    assert_type(store.import_request({}, "messages", stream=True, metadata={"a": "b"}), Conversation)


def options_are_attributes(conversation: Conversation, session: Session) -> None:
    session.temprature  # type: ignore[attr-defined]  # noqa: B018
    conversation.temprature  # type: ignore[attr-defined]  # noqa: B018
    assert_type(session.temperature, float | None)
    assert_type(conversation.model, str | None)
    assert_type(conversation.max_output_tokens, int | None)
    assert_type(session.tool_choice, str | dict[str, Any] | None)
    assert_type(session.extra, dict[str, Any])
    session.temperature = 0.2


def options_are_forwarded(**options: Unpack[SessionOptions]) -> Session:
    return Session(input="Hello!", **options)


def views_are_typed(conversation: Conversation, session: Session, **view: Unpack[ViewOptions]) -> None:
    conversation.render("gemini", windw=Turns(20))  # type: ignore[call-arg]
    conversation.render("gemini", window=20)  # type: ignore[arg-type]
    conversation.render("gemini", cache="always")  # type: ignore[arg-type]
    conversation.request_body("gemini", dynamic_context_at="middle")  # type: ignore[arg-type]
    session.request_payload("gemini", vison=False)  # type: ignore[call-arg]
    session.render("gemini", server_state="all")  # type: ignore[arg-type]
    assert_type(conversation.render("gemini", window=Turns(20, step=10), cache="auto", upto=7), Rendered)
    assert_type(session.request_payload("gemini", **view), dict[str, Any])


def reports_are_typed(store: Store, conversation: Conversation) -> None:
    store.usage(by=("label:team", "day"))
    store.usage(by=("day", 7))  # type: ignore[arg-type]
    store.usage(order_by="total_token")  # type: ignore[arg-type]
    store.usage(modle="gpt-5.4")  # type: ignore[call-arg]
    store.usage(day="2026-01-01")  # type: ignore[arg-type]
    conversation.usage(by=("respones",))  # type: ignore[arg-type]
    keys: list[UsageKey] = ["day", "user_id"]
    assert_type(store.usage(by=keys, order_by="cost_nano", model=["a", None], user_id="ann"), list[UsageRow])
    assert_type(conversation.usage(), UsageRow)
    assert_type(conversation.usage(by="model"), list[UsageRow])


def rows_are_typed(row: UsageRow) -> None:
    row.total_token  # type: ignore[attr-defined]  # noqa: B018
    row.dya  # type: ignore[attr-defined]  # noqa: B018
    assert_type(row.day, date)
    assert_type(row.model, str | None)
    assert_type(row.response, int | None)
    assert_type(row.attempts, int)
    assert_type(row.input_tokens, int | None)
    assert_type(row.cost_usd, Decimal | None)
    row.day = date(2026, 1, 1)  # type: ignore[misc]


async def reports_of_asyncio_are_typed(store: AsyncStore) -> None:
    await store.create_conversation(modle="gpt-5.4")  # type: ignore[call-arg]
    assert_type((await store.usage(by="hour"))[0].attempts, int)
