"""The responses of a conversation: their ids, ranges, leases, events and bodies."""

from __future__ import annotations

import zlib
from datetime import UTC, datetime
from secrets import token_bytes
from typing import Any, Final

from sqlalchemy import delete, select

from threadkeep.db import tables
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.store.checking.conversations import ConversationCheck
from threadkeep.store.item_rows import short_hash
from threadkeep.store.moving.contents import pages
from threadkeep.store.moving.records import Row
from threadkeep.store.positions import INCOMPLETE
from threadkeep.store.responses import PLAIN, ZLIB, decompress_body
from threadkeep.store.streaming.lifecycle import IN_PROGRESS

_TEXTS: Final = ("view", "incomplete_details", "error", "provider_data")  # JSON


def check_responses(check: ConversationCheck) -> None:
    """Check the responses of a conversation, and what belongs to them."""
    for row in pages(check.connection, tables.responses, check.of(tables.responses)):
        _check_response(check, row)
    _check_ranges(check)
    _check_parts(check)
    for body in pages(check.connection, tables.response_bodies, check.of(tables.response_bodies)):
        _check_body(check, body)
    for append in pages(check.connection, tables.appends, check.of(tables.appends)):
        check_outcome(check, append)


def _note(
    check: ConversationCheck, row: Row, code: str, problem: str, repair: str | None = None, **values: Any
) -> None:
    key = {**check.key, "number": row["number"]}
    check.findings.note(code, tables.responses, key, problem, repair, **values)


def _check_response(check: ConversationCheck, row: Row) -> None:
    wanted = short_hash(row["provider_response_id"] or None)  # nobody asks for an empty one
    found = None if row["response_hash"] is None else bytes(row["response_hash"])
    if found != wanted:
        _note(check, row, "hash", "response_hash is not that of its id", "set it to that", response_hash=wanted)
    for name in _TEXTS:
        if row[name] is not None and not _is_json(row[name]):
            _note(check, row, "json", f"its {name} cannot be read")
    if row["branch"] not in check.lineages:
        _note(check, row, "branch", f"its branch {row['branch']} does not exist")
    if max(row["to_position"], row["input_to"]) >= check.row["next_position"]:
        _note(check, row, "range", f"its range ends behind the last position, {check.row['next_position'] - 1}")
    _check_lease(check, row)


def _check_lease(check: ConversationCheck, row: Row) -> None:
    """A response in progress has a branch that waits for it, and a lease; one that has ended has no such branch."""
    if row["open_branch"] is None:
        if row["status"] == IN_PROGRESS:
            problem, repair = "it is in progress, and no branch waits for it", f"set status to {INCOMPLETE}"
            _note(check, row, "lease", problem, repair, status=INCOMPLETE)
        return
    is_leased = row["lease_until"] is not None and row["lease_token"] is not None
    if not is_leased or row["open_branch"] != row["branch"]:
        values: JsonObject = {"open_branch": row["branch"], "lease_until": row["lease_until"] or datetime.now(UTC)}
        values["lease_token"] = row["lease_token"] or token_bytes(16)
        problem, repair = "it is in progress, and its lease is not complete", "complete it, so that a writer can end it"
        _note(check, row, "lease", problem, repair, **values)


def _is_json(text: str) -> bool:
    try:
        loads(text)
    except ValueError:
        return False
    return True


def _check_ranges(check: ConversationCheck) -> None:
    """No item came in two responses, and the items of a response are on its branch."""
    table, item = tables.responses.c, tables.items.c
    has_items = [*check.of(tables.responses), table.to_position >= table.from_position]
    last = -1
    for row in check.connection.execute(
        select(table.number, table.from_position, table.to_position).where(*has_items).order_by(table.from_position)
    ).mappings():
        if row["from_position"] <= last:
            _note(
                check,
                dict(row),
                "range",
                f"its items from {row['from_position']} on are also those of another response",
            )
        last = max(last, row["to_position"])
    elsewhere = (
        select(table.number).distinct()
        .join(tables.items, (item.tenant_id == table.tenant_id) & (item.conversation_id == table.conversation_id)
              & item.position.between(table.from_position, table.to_position))
        .where(*has_items, item.branch != table.branch, item.branch >= 0)
    )  # fmt: skip
    for (number,) in check.connection.execute(elsewhere).all():
        _note(check, {"number": number}, "range", "some items of its range are on another branch")


def _check_parts(check: ConversationCheck) -> None:
    """Only responses in progress have events."""
    part, table = tables.stream_parts, tables.responses.c
    open_ones = select(table.number).where(*check.of(tables.responses), table.open_branch.is_not(None))
    ended = [*check.of(part), part.c.number.not_in(open_ones)]
    for (number,) in check.connection.execute(select(part.c.number).distinct().where(*ended)).all():
        key = {**check.key, "number": number}
        statement = delete(part).where(*check.of(part), part.c.number == number)
        check.findings.add(
            "stream", part, key, "there are events of a response that has ended", "remove them",
            lambda connection, statement=statement: connection.execute(statement),  # type: ignore[misc]
        )  # fmt: skip


def _check_body(check: ConversationCheck, row: Row) -> None:
    try:
        decompress_body(row["codec"], bytes(row["body"]))
        is_known = row["codec"] in {PLAIN, ZLIB}
    except zlib.error:
        is_known = False
    if not is_known:
        key = {**check.key, "number": row["number"]}
        check.findings.add("body", tables.response_bodies, key, "the raw body cannot be decompressed")


def check_outcome(check: ConversationCheck, row: Row) -> None:
    """What is kept under an idempotency key can be read, and names what there is."""
    key = {"conversation_id": row["conversation_id"], "key": row["key"]}
    try:
        outcome = loads(row["outcome"])
        number = outcome.get("number", -1)
    except (ValueError, AttributeError):
        check.findings.add("outcome", tables.appends, key, "its outcome cannot be read")
        return
    if isinstance(number, int) and number >= check.row["next_response"]:
        check.findings.add("outcome", tables.appends, key, f"it names the response {number}, which does not exist")
