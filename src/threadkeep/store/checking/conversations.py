"""A conversation: its counters, branches and lineages, and labels.

The responses of a conversation: their ids, ranges, leases, events and bodies.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from operator import itemgetter
from secrets import token_bytes
from typing import Any, Final

from sqlalchemy import Connection, RowMapping, Select, Table, delete, func, insert, select

from threadkeep.db import models
from threadkeep.domain.ids import short_hash
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.store.checking.findings import Findings
from threadkeep.store.moving.contents import Row, pages
from threadkeep.store.streaming.lifecycle import IN_PROGRESS
from threadkeep.store.work import item_rows
from threadkeep.store.work.positions import INCOMPLETE
from threadkeep.store.work.refs import REMOVED, Lineage, LineagePart, lineage_text
from threadkeep.store.writing.conversations import label_rows

# A counter of the conversation, and the column whose values are below it
_COUNTERS: Final = (
    ("next_position", models.items, "position"),
    ("next_response", models.responses, "number"),
    ("next_branch", models.branches, "number"),
)


class ConversationCheck:
    """Checks one conversation within a transaction."""

    def __init__(self, findings: Findings, row: Mapping[str, Any]) -> None:
        self.findings, self.connection, self.row = findings, findings.connection, dict(row)
        self.key = {"conversation_id": row["id"]}
        self.lineages: dict[int, Lineage] = {}

    def of(self, table: Table) -> list[Any]:
        """The conditions for the rows of the conversation in a table."""
        return [table.c.tenant_id == self.findings.tenant, table.c.conversation_id == self.row["id"]]

    def pages(self, table: Table) -> Iterator[dict[str, Any]]:
        """The rows of the conversation in a table, in the order of their keys."""
        return pages(self.connection, table, self.findings.tenant, self.row["id"])

    def note(self, code: str, problem: str, repair: str | None = None, **values: Any) -> None:
        """Note a problem with the row of the conversation, which setting these columns mends."""
        self.findings.note(code, models.conversations, {"id": self.row["id"]}, problem, repair, **values)
        self.row |= values

    def run(self) -> None:
        """Check everything that is in the rows of the conversation and its branches."""
        for name, table, column in _COUNTERS:
            highest = self.connection.execute(select(func.max(table.c[column])).where(*self.of(table))).scalar()
            if highest is not None and self.row[name] <= highest:
                problem = f"{name} is {self.row[name]}, and there is the {column} {highest} in {table.name}"
                self.note("counter", problem, f"set it to {highest + 1}", **{name: highest + 1})
        table = models.responses
        statement = select(func.count()).where(*self.of(table), table.c.open_branch.is_not(None))
        streams = self.connection.execute(statement).scalar() or None
        if streams != self.row["streams"]:
            problem = f"streams is {self.row['streams']}, and {streams or 0} responses are in progress"
            self.note("counter", problem, f"set it to {streams}", streams=streams)
        self._check_branches()
        for number, lineage in self.lineages.items():
            head = self._last_position(number, lineage)
            if head == lineage.head:
                continue
            self.lineages[number] = Lineage(lineage.parts, head)
            problem, repair = f"head_position is {lineage.head}, and the last item is at {head}", f"set it to {head}"
            if number:
                self._note_branch("head", number, problem, repair, head_position=head)
            else:
                self.note("head", problem, repair, head_position=head)
        self._check_labels()

    def _check_branches(self) -> None:
        """Read the lineages; one that cannot be read is rebuilt from the parent's."""
        parts = self._parts_of(self.row["lineage"], 0)
        if parts is None:
            self.note(
                "lineage", "the lineage of branch 0 cannot be read", "set it to NULL: nothing was removed", lineage=None
            )
        self.lineages[0] = Lineage(parts or (), self.row["head_position"])
        statement = select(models.branches).where(*self.of(models.branches)).order_by(models.branches.c.number)
        for branch in self.connection.execute(statement).mappings().all():
            number, fork = branch["number"], branch["fork_position"]
            if fork >= self.row["next_position"]:
                fork = self.row["next_position"] - 1
                problem = f"fork_position is {branch['fork_position']}, and there are positions up to {fork}"
                self._note_branch("lineage", number, problem, f"set it to {fork}", fork_position=fork)
            parts, parent = self._parts_of(branch["lineage"], number), self.lineages.get(branch["parent"])
            if parts is None:
                parts = () if parent is None else parent.upto(branch["parent"], fork)
                self._note_branch(
                    "lineage", number, "the lineage cannot be read, or names branches or positions that do not exist",
                    "rebuild it from the parent's", lineage=lineage_text(parts),
                )  # fmt: skip
            if parent is None:
                self._note_branch("lineage", number, f"its parent {branch['parent']} does not exist")
            self.lineages[number] = Lineage(parts, branch["head_position"])
        if self.row["active_branch"] not in self.lineages:
            problem = f"active_branch is {self.row['active_branch']}, and there is no such branch"
            self.note("branch", problem, "set it to 0", active_branch=0)

    def _parts_of(self, text: str | None, number: int) -> tuple[LineagePart, ...] | None:
        try:
            parts = () if text is None else tuple(map(LineagePart.of, loads(text)))
            names = all(part.branch == REMOVED or 0 <= part.branch <= number for part in parts)
            ends = [part.last for part in parts]
            return (
                parts if names and ends == sorted(ends) and max(ends, default=-1) < self.row["next_position"] else None
            )
        except (ValueError, TypeError):
            return None

    def _last_position(self, number: int, lineage: Lineage) -> int:
        column = models.items.c.position
        for branch, after, upto in reversed(lineage.ranges(number, -1, self.row["next_position"] - 1)):
            is_there = [*self.of(models.items), models.items.c.branch == branch, column > after, column <= upto]
            found: int | None = self.connection.execute(select(func.max(column)).where(*is_there)).scalar()
            if found is not None:
                return found
        return -1

    def _note_branch(self, code: str, number: int, problem: str, repair: str | None = None, **values: Any) -> None:
        key = {**self.key, "number": number}
        self.findings.note(code, models.branches, key, problem, repair, **values)

    def _check_labels(self) -> None:
        table = models.conversation_labels
        try:
            labels: dict[str, str] = loads(self.row["labels"] or "{}")
            "".join(labels.values())
        except (ValueError, TypeError, AttributeError):
            self.note("labels", "its labels are not a JSON object of texts")
            return
        rows = self.connection.execute(select(table.c.key, table.c.value).where(*self.of(table))).all()
        if {row.key: row.value for row in rows} == labels:
            return

        def mend(connection: Connection) -> None:
            connection.execute(delete(table).where(*self.of(table)))
            if labels:
                connection.execute(insert(table), label_rows(self.findings.tenant, self.row["id"], labels))

        problem = f"its labels are {len(labels)}, and the rows by which it is found are others"
        self.findings.add("labels", table, self.key, problem, "write these rows again", mend)


_PAGE: Final = 1_000  # positions that are read at once
_TEXTS: Final = ("view", "incomplete_details", "error", "provider_data")  # JSON


def check_responses(check: ConversationCheck) -> None:
    """Check the responses of a conversation, and what belongs to them."""
    for row in check.pages(models.responses):
        wanted = short_hash(row["provider_response_id"] or None)  # nobody asks for an empty one
        found = None if row["response_hash"] is None else bytes(row["response_hash"])
        if found != wanted:
            _note(check, row, "hash", "response_hash does not match its id", "set it from the id", response_hash=wanted)
        for name in _TEXTS:
            if row[name] is not None and not _is_json(row[name]):
                _note(check, row, "json", f"its {name} cannot be read")
        if row["branch"] not in check.lineages:
            _note(check, row, "branch", f"its branch {row['branch']} does not exist")
        if max(row["to_position"], row["input_to"]) >= check.row["next_position"]:
            _note(check, row, "range", f"its range ends behind the last position, {check.row['next_position'] - 1}")
        _check_lease(check, row)
    _check_ranges(check)
    _check_parts(check)
    for body in check.pages(models.response_bodies):
        _check_body(check, body)
    for append in check.pages(models.appends):
        check_outcome(check, append)


def _note(
    check: ConversationCheck, row: Row, code: str, problem: str, repair: str | None = None, **values: Any
) -> None:
    key = {**check.key, "number": row["number"]}
    check.findings.note(code, models.responses, key, problem, repair, **values)


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
        problem = f"its items from {row['from_position']} on also belong to another response"
        _note(check, dict(row), "range", problem)
    number, after = models.responses.c.number, -1
    statement = _having_items(check).order_by(number).limit(_PAGE)
    while page := check.connection.execute(statement.where(number > after)).mappings().all():
        after = page[-1]["number"]
        # The numbers of the responses with items on another branch. Items and ranges are read in order, in parallel: a
        # join of both looks at each pair on some databases.
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
        for wrong in sorted(found):
            _note(check, {"number": wrong}, "range", "some items of its range are on another branch")


def _having_items(check: ConversationCheck) -> Select[Any]:
    """The responses that have items."""
    table = models.responses.c
    columns = (table.number, table.branch, table.from_position, table.to_position)
    return select(*columns).where(*check.of(models.responses), table.to_position >= table.from_position)


def _overlapping(check: ConversationCheck) -> Select[Any]:
    """The responses that begin before the one in front of them has ended: if any two overlap, then two such ones do.

    The latest end of all in front of each would take MariaDB as many steps as there are pairs.
    """
    one = _having_items(check).subquery().c
    ended = func.lag(one.to_position).over(order_by=(one.from_position, one.number))
    found = select(one.number, one.from_position, ended.label("ended")).subquery().c
    return select(found.number, found.from_position).where(found.from_position <= found.ended).order_by(found.number)


def _branches_of_items(check: ConversationCheck, first: int, last: int) -> Iterator[tuple[int, int]]:
    """The positions and branches of the items between two that are on a branch, in order."""
    item, after = models.items.c, first - 1
    statement = select(item.position, item.branch).where(*check.of(models.items), item.branch >= 0)
    statement = statement.where(item.position <= last).order_by(item.position).limit(_PAGE)
    while rows := check.connection.execute(statement.where(item.position > after)).all():
        after = rows[-1].position
        yield from ((row.position, row.branch) for row in rows)


def _check_parts(check: ConversationCheck) -> None:
    """Only responses in progress have events."""
    part, table = models.stream_parts, models.responses.c
    open_ones = select(table.number).where(*check.of(models.responses), table.open_branch.is_not(None))
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
        item_rows.decompress_body(row["codec"], bytes(row["body"]))
        is_known = row["codec"] in {item_rows.PLAIN, item_rows.ZLIB}
    except zlib.error:
        is_known = False
    if not is_known:
        key = {**check.key, "number": row["number"]}
        check.findings.add("body", models.response_bodies, key, "the raw body cannot be decompressed")


def check_outcome(check: ConversationCheck, row: Row) -> None:
    """What is kept under an idempotency key can be read, and names what there is."""
    key = {"conversation_id": row["conversation_id"], "key": row["key"]}
    try:
        outcome = loads(row["outcome"])
        number = outcome.get("number", -1)
    except (ValueError, AttributeError):
        check.findings.add("outcome", models.appends, key, "its outcome cannot be read")
        return
    if isinstance(number, int) and number >= check.row["next_response"]:
        check.findings.add("outcome", models.appends, key, f"it names the response {number}, which does not exist")
