"""A conversation: its counters, branches and lineages, and labels."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, func, insert, select

from threadkeep.db import tables
from threadkeep.domain.jsontext import loads
from threadkeep.store.checking.findings import Findings
from threadkeep.store.conversations import label_rows
from threadkeep.store.lineage import REMOVED, Lineage, Part, lineage_text
from threadkeep.store.moving.contents import pages

# A counter of the conversation, and the column whose values are below it
_COUNTERS: Final = (
    ("next_position", tables.items, "position"),
    ("next_response", tables.responses, "number"),
    ("next_branch", tables.branches, "number"),
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
        self.findings.note(code, tables.conversations, {"id": self.row["id"]}, problem, repair, **values)
        self.row |= values

    def run(self) -> None:
        """Check everything that is in the rows of the conversation and its branches."""
        self._check_counters()
        self._check_branches()
        self._check_heads()
        self._check_labels()

    def _check_counters(self) -> None:
        for name, table, column in _COUNTERS:
            highest = self.connection.execute(select(func.max(table.c[column])).where(*self.of(table))).scalar()
            if highest is not None and self.row[name] <= highest:
                problem = f"{name} is {self.row[name]}, and there is the {column} {highest} in {table.name}"
                self.note("counter", problem, f"set it to {highest + 1}", **{name: highest + 1})
        table = tables.responses
        statement = select(func.count()).where(*self.of(table), table.c.open_branch.is_not(None))
        streams = self.connection.execute(statement).scalar() or None
        if streams != self.row["streams"]:
            problem = f"streams is {self.row['streams']}, and {streams or 0} responses are in progress"
            self.note("counter", problem, f"set it to {streams}", streams=streams)

    def _check_branches(self) -> None:
        """Read the lineages; one that cannot be read is made again from that of the parent."""
        parts = self._parts_of(self.row["lineage"], 0)
        if parts is None:
            self.note(
                "lineage", "the lineage of branch 0 cannot be read", "set it to NULL: nothing was removed", lineage=None
            )
        self.lineages[0] = Lineage(parts or (), self.row["head_position"])
        statement = select(tables.branches).where(*self.of(tables.branches)).order_by(tables.branches.c.number)
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
                    "make it again from that of the parent", lineage=lineage_text(parts),
                )  # fmt: skip
            if parent is None:
                self._note_branch("lineage", number, f"its parent {branch['parent']} does not exist")
            self.lineages[number] = Lineage(parts, branch["head_position"])
        if self.row["active_branch"] not in self.lineages:
            problem = f"active_branch is {self.row['active_branch']}, and there is no such branch"
            self.note("branch", problem, "set it to 0", active_branch=0)

    def _parts_of(self, text: str | None, number: int) -> tuple[Part, ...] | None:
        try:
            parts = () if text is None else tuple(map(Part.of, loads(text)))
            names = all(part.branch == REMOVED or 0 <= part.branch <= number for part in parts)
            ends = [part.last for part in parts]
            return (
                parts if names and ends == sorted(ends) and max(ends, default=-1) < self.row["next_position"] else None
            )
        except (ValueError, TypeError):
            return None

    def _check_heads(self) -> None:
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

    def _last_position(self, number: int, lineage: Lineage) -> int:
        column = tables.items.c.position
        for branch, after, upto in reversed(lineage.ranges(number, -1, self.row["next_position"] - 1)):
            is_there = [*self.of(tables.items), tables.items.c.branch == branch, column > after, column <= upto]
            found: int | None = self.connection.execute(select(func.max(column)).where(*is_there)).scalar()
            if found is not None:
                return found
        return -1

    def _note_branch(self, code: str, number: int, problem: str, repair: str | None = None, **values: Any) -> None:
        key = {**self.key, "number": number}
        self.findings.note(code, tables.branches, key, problem, repair, **values)

    def _check_labels(self) -> None:
        table = tables.conversation_labels
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
