"""The responses of a conversation: their ids, ranges, leases, events and bodies."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime
from operator import itemgetter
from secrets import token_bytes
from typing import Any, Final

from sqlalchemy import RowMapping, Select, delete, func, select

from threadkeep.db import tables
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.store.checking.conversations import ConversationCheck
from threadkeep.store.item_rows import short_hash
from threadkeep.store.moving.records import Row
from threadkeep.store.positions import INCOMPLETE
from threadkeep.store.responses import PLAIN, ZLIB, decompress_body
from threadkeep.store.streaming.lifecycle import IN_PROGRESS

_PAGE: Final = 1_000  # positions that are read at once
_TEXTS: Final = ("view", "incomplete_details", "error", "provider_data")  # JSON


def check_responses(check: ConversationCheck) -> None:
    """Check the responses of a conversation, and what belongs to them."""
    for row in check.pages(tables.responses):
        _check_response(check, row)
    _check_ranges(check)
    _check_parts(check)
    for body in check.pages(tables.response_bodies):
        _check_body(check, body)
    for append in check.pages(tables.appends):
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
    """A response in progress has a branch that waits for it, and a lease; one that has ended has no such branch.

    Without a lease, a provider has said that it goes on: it was stored as it came.
    """
    if row["open_branch"] is None:
        if row["status"] == IN_PROGRESS and (row["lease_token"] is not None or row["lease_until"] is not None):
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
    for row in check.connection.execute(_overlapping(check)).mappings():
        problem = f"its items from {row['from_position']} on are also those of another response"
        _note(check, dict(row), "range", problem)
    for page in _ranges(check):
        for number in sorted(_on_other_branches(check, page)):
            _note(check, {"number": number}, "range", "some items of its range are on another branch")


def _having_items(check: ConversationCheck) -> Select[Any]:
    """The responses that have items."""
    table = tables.responses.c
    columns = (table.number, table.branch, table.from_position, table.to_position)
    return select(*columns).where(*check.of(tables.responses), table.to_position >= table.from_position)


def _overlapping(check: ConversationCheck) -> Select[Any]:
    """The responses that begin before the one in front of them has ended: if any two overlap, then two such ones do.

    The latest end of all in front of each would take MariaDB as many steps as there are pairs.
    """
    one = _having_items(check).subquery().c
    ended = func.lag(one.to_position).over(order_by=(one.from_position, one.number))
    found = select(one.number, one.from_position, ended.label("ended")).subquery().c
    return select(found.number, found.from_position).where(found.from_position <= found.ended).order_by(found.number)


def _ranges(check: ConversationCheck) -> Iterator[Sequence[RowMapping]]:
    """The responses that have items, page by page."""
    number, after = tables.responses.c.number, -1
    statement = _having_items(check).order_by(number).limit(_PAGE)
    while page := check.connection.execute(statement.where(number > after)).mappings().all():
        yield page
        after = page[-1]["number"]


def _on_other_branches(check: ConversationCheck, page: Sequence[RowMapping]) -> set[int]:
    """The numbers of those of these responses with items on another branch.

    Items and ranges are read in order, beside each other: a join of both looks at each pair on some databases.
    """
    found: set[int] = set()
    ranges = sorted(page, key=itemgetter("from_position"))
    rest, here = iter(ranges), list[RowMapping]()  # those that have the position that is looked at
    following = next(rest, None)
    for position, branch in _branches_of_items(
        check, ranges[0]["from_position"], max(one["to_position"] for one in ranges)
    ):
        while following is not None and following["from_position"] <= position:
            here.append(following)
            following = next(rest, None)
        here = [one for one in here if one["to_position"] >= position]
        found.update(one["number"] for one in here if one["branch"] != branch)
    return found


def _branches_of_items(check: ConversationCheck, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The positions and branches of the items between two that are on a branch, in order."""
    item, after = tables.items.c, first - 1
    statement = select(item.position, item.branch).where(*check.of(tables.items), item.branch >= 0)
    statement = statement.where(item.position <= last).order_by(item.position).limit(_PAGE)
    while rows := check.connection.execute(statement.where(item.position > after)).all():
        after = rows[-1].position
        yield from ((row.position, row.branch) for row in rows)


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
