"""The floor: what somebody would write by hand on the bare driver to write and read the very same rows.

It begins with the same values as the library (a text, a provider's body, items) and makes its JSON texts, hashes and
compressed bodies by hand (`mapping`), without a check.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import UTC, date, datetime
from typing import Any, Final

import orjson

from benchmarks.data import INSTRUCTIONS, MODEL, USER
from benchmarks.databases import Driver, Row
from benchmarks.mapping import answer_of, user_row

CONVERSATION_COLUMNS: Final = (
    "tenant_id", "id", "public_id", "external_id", "user_id", "title", "labels", "status", "config_hash",
    "tool_set_hash", "active_branch", "next_position", "next_response", "next_branch", "head_position", "revision",
    "created_at", "last_activity_at",
)  # fmt: skip
ITEM_COLUMNS: Final = (
    "tenant_id", "conversation_id", "position", "branch", "turn", "seen", "created_at", "item_id", "item_hash",
    "call_id", "call_hash", "type", "role", "status", "name", "author_id", "origin", "model", "payload", "rest",
    "codec",
)  # fmt: skip
RESPONSE_COLUMNS: Final = (
    "tenant_id", "conversation_id", "number", "input_to", "from_position", "to_position", "created_at", "branch",
    "provider_response_id", "view", "config_hash", "tool_set_hash", "format", "model", "status", "finish_reason",
    "incomplete_details", "error", "provider_data", "completed_at",
)  # fmt: skip
BODY_COLUMNS: Final = ("tenant_id", "conversation_id", "number", "created_at", "codec", "body")
USAGE_COLUMNS: Final = (
    "tenant_id", "id", "day", "occurred_at", "conversation_id", "response", "user_id", "tool_set_hash", "provider",
    "model", "format", "status", "latency_ms", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens",
    "reasoning_tokens", "total_tokens", "cost_nano", "usage", "error", "price",
)  # fmt: skip

TAKE: Final = (
    "UPDATE threadkeep_conversations SET head_position = next_position + %s - 1, next_position = next_position + %s, "
    "next_response = next_response + %s, last_activity_at = %s "
    "WHERE tenant_id = %s AND id = %s AND status <> 'deleted' "
    "RETURNING next_position, next_response, user_id, config_hash, tool_set_hash"
)
CONVERSATION: Final = (
    "SELECT id, config_hash, next_position, revision FROM threadkeep_conversations "
    "WHERE tenant_id = %s AND public_id = %s AND status <> 'deleted'"
)
KNOWN_CONVERSATION: Final = (
    "SELECT config_hash, next_position, revision FROM threadkeep_conversations "
    "WHERE tenant_id = %s AND id = %s AND status <> 'deleted'"
)
PAYLOADS: Final = (
    "SELECT payload FROM threadkeep_items "
    "WHERE tenant_id = %s AND conversation_id = %s AND branch = 0 ORDER BY position"
)
NEW_PAYLOADS: Final = (
    "SELECT payload FROM threadkeep_items "
    "WHERE tenant_id = %s AND conversation_id = %s AND branch = 0 AND position >= %s ORDER BY position"
)
_PAGE: Final = f"SELECT {', '.join(CONVERSATION_COLUMNS)} FROM threadkeep_conversations WHERE tenant_id = %s "
_ORDER: Final = "ORDER BY last_activity_at DESC, id DESC LIMIT 50"
_AFTER: Final = "AND last_activity_at <= %s AND (last_activity_at < %s OR id < %s) "
# Listings by (user, after)
PAGES: Final = {
    (False, False): f"{_PAGE} AND status = 'active' {_ORDER}",
    (True, False): f"{_PAGE} AND user_id = %s AND status = 'active' {_ORDER}",
    (False, True): f"{_PAGE} AND status = 'active' {_AFTER} {_ORDER}",
    (True, True): f"{_PAGE} AND user_id = %s AND status = 'active' {_AFTER} {_ORDER}",
}


def insertion(table: str, columns: Sequence[str]) -> str:
    return f"INSERT INTO threadkeep_{table} ({', '.join(columns)}) VALUES ({', '.join(['%s'] * len(columns))})"


INSERT_ITEM: Final = insertion("items", ITEM_COLUMNS)
INSERT_RESPONSE: Final = insertion("responses", RESPONSE_COLUMNS)
INSERT_BODY: Final = insertion("response_bodies", BODY_COLUMNS)
INSERT_USAGE: Final = insertion("usage_records", USAGE_COLUMNS)

# The request around the items.
HEAD: Final = orjson.dumps({"model": MODEL, "instructions": INSTRUCTIONS, "temperature": 0.7})[:-1] + b',"input":['


class Floor:
    """Hand-written SQL for one tenant."""

    def __init__(self, driver: Driver, tenant: int, *, is_sqlite: bool) -> None:
        self.driver, self.tenant = driver, tenant
        self._is_sqlite = is_sqlite
        self._key = time.time_ns()

    def moment(self, now: datetime) -> Any:
        """A time as the driver takes it."""
        return now.strftime("%Y-%m-%d %H:%M:%S.%f") if self._is_sqlite else now

    def day(self, now: datetime) -> date | str:
        return now.date().isoformat() if self._is_sqlite else now.date()

    def key_of(self, public_id: str) -> int:
        key: int = self.driver.read(CONVERSATION, (self.tenant, raw_id(public_id)))[0][0]
        return key

    def analyze(self, table: str) -> None:
        """What autovacuum does sooner or later."""
        self.driver.begin()
        self.driver.write(f"ANALYZE threadkeep_{table}", ())
        self.driver.commit()

    def append_user(self, key: int, text: str) -> None:
        """A user message, in a transaction."""
        driver, tenant = self.driver, self.tenant
        now = self.moment(datetime.now(UTC))
        row = user_row(text)
        driver.begin()
        position = driver.write_returning(TAKE, (1, 1, 0, now, tenant, key))[0] - 1
        driver.write(INSERT_ITEM, (tenant, key, position, 0, None, None, now, *row))
        driver.commit()

    def append_answer(self, key: int, body: bytes) -> None:
        """An answer in a transaction: its item, response, body and usage."""
        driver, tenant = self.driver, self.tenant
        moment = datetime.now(UTC)
        now = self.moment(moment)
        answer = answer_of(body)
        response_id, view, *said, completed_at = answer.response
        self._key += 1
        driver.begin()
        position, number, user, config, tools = driver.write_returning(TAKE, (1, 1, 1, now, tenant, key))
        position, number, seen = position - 1, number - 1, position - 2
        driver.write(INSERT_ITEM, (tenant, key, position, 0, position, seen, now, *answer.item))
        response = (0, response_id, view, config, tools, *said, self.moment(completed_at))
        driver.write(INSERT_RESPONSE, (tenant, key, number, seen, position, position, now, *response))
        driver.write(INSERT_BODY, (tenant, key, number, now, *answer.body))
        driver.write(INSERT_USAGE, (tenant, self._key, self.day(moment), now, key, number, user, tools, *answer.usage))
        driver.commit()

    def append_turn(self, key: int, turn: tuple[str, bytes]) -> None:
        """What the user says, and the provider's answer as it came over the wire."""
        text, body = turn
        self.append_user(key, text)
        self.append_answer(key, body)

    def resume(self, public_id: bytes) -> bytes:
        """Read the conversation and join its items (`raw-join`)."""
        key = self.driver.read(CONVERSATION, (self.tenant, public_id))[0][0]
        rows = self.driver.read(PAYLOADS, (self.tenant, key))
        return HEAD + ",".join([row[0] for row in rows]).encode() + b"]}"

    def resume_chat(self, public_id: bytes) -> bytes:
        """Read the conversation, parse its items, and write them as Chat Completions messages."""
        key = self.driver.read(CONVERSATION, (self.tenant, public_id))[0][0]
        items = [orjson.loads(row[0]) for row in self.driver.read(PAYLOADS, (self.tenant, key))]
        return orjson.dumps({"model": MODEL, "temperature": 0.7, "messages": chat_messages(items)})

    def list_page(self, *, user: bool, after: Row | None) -> list[Any]:
        """A page of 50 conversations by key."""
        values: list[Any] = [self.tenant]
        if user:
            values.append(USER)
        if after is not None:
            at, key = after
            values += [at, at, key]
        return self.driver.read(PAGES[user, after is not None], values)


class KeptItems:
    """A conversation whose items are kept as bytes; a refresh reads what is new."""

    def __init__(self, floor: Floor, key: int) -> None:
        self._floor, self._key = floor, key
        self._items: list[bytes] = []
        self._next = 0

    def refresh(self) -> bytes:
        floor = self._floor
        next_position = floor.driver.read(KNOWN_CONVERSATION, (floor.tenant, self._key))[0][1]
        rows = floor.driver.read(NEW_PAYLOADS, (floor.tenant, self._key, self._next))
        self._items += [row[0].encode() for row in rows]
        self._next = next_position
        return HEAD + b",".join(self._items) + b"]}"


def chat_messages(items: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """The hand-written loop from items to messages."""
    messages: list[dict[str, Any]] = [{"role": "system", "content": INSTRUCTIONS}]
    last: dict[str, Any] | None = None  # the assistant message that calls belong to
    for item in items:
        kind = item["type"]
        if kind == "message":
            last = {
                "role": item["role"],
                "content": [{"type": "text", "text": part["text"]} for part in item["content"]],
            }
            messages.append(last)
        elif kind == "function_call":
            if last is None or last["role"] != "assistant":
                last = {"role": "assistant", "content": None}
                messages.append(last)
            function = {"name": item["name"], "arguments": item["arguments"]}
            call = {"id": item["call_id"], "type": "function", "function": function}
            last.setdefault("tool_calls", []).append(call)
        else:
            messages.append({"role": "tool", "tool_call_id": item["call_id"], "content": item["output"]})
            last = None
    return messages


def raw_id(public_id: str) -> bytes:
    return bytes.fromhex(public_id.removeprefix("conv_"))
