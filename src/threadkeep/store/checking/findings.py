"""What a check finds."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sqlalchemy import Connection, Table, delete, select, update

from threadkeep.db import models
from threadkeep.domain.ids import public_id_text
from threadkeep.store.moving.contents import short_name
from threadkeep.store.work.refs import Scope

MAX_FINDINGS: Final = 1_000  # that are listed; all are counted
Mend = Callable[[Connection], object]


@dataclass(frozen=True, slots=True)
class Finding:
    """Something that does not fit together.

    Attributes:
        code: what kind of problem it is, in a word.
        table: the table with the row, without the prefix of its name.
        key: which row it is.
        problem: what is wrong with it.
        repair: what a repair does about it; None if nothing can be done without inventing content.
        is_repaired: whether it was repaired.
        conversation_id: the conversation that it belongs to; None for what conversations share, and for rows of none.
    """

    code: str
    table: str
    key: str
    problem: str
    repair: str | None = None
    is_repaired: bool = False
    conversation_id: str | None = None


@dataclass(slots=True)
class CheckReport:
    """The result of `check`.

    Attributes:
        conversations: how many conversations were checked.
        found: how many problems were found.
        repaired: how many of them were repaired.
        findings: the problems; at most 1,000 of them.
    """

    conversations: int = 0
    found: int = 0
    repaired: int = 0
    findings: list[Finding] = field(default_factory=list)

    @property
    def is_healthy(self) -> bool:
        """Whether nothing was found, or everything was repaired."""
        return self.found == self.repaired

    def add(self, found: Findings) -> None:
        """Add what a transaction found."""
        self.found += found.count
        self.repaired += found.repaired
        self.findings += found.listed[: MAX_FINDINGS - len(self.findings)]


class Findings:
    """Collects what one transaction finds; with `repair`, it is mended there."""

    def __init__(self, connection: Connection, scope: Scope, *, repair: bool) -> None:
        self.connection, self.scope, self.tenant, self.repair = connection, scope, scope.tenant, repair
        self.listed: list[Finding] = []
        self._conversations: list[int | None] = []  # of these
        self.count = self.repaired = 0
        self.can_repair = False

    def add(
        self, code: str, table: Table, key: Mapping[str, Any], problem: str, repair: str | None = None,
        mend: Mend | None = None,
    ) -> None:  # fmt: skip
        """Note a problem of a row, and mend it."""
        is_repaired = self.repair and mend is not None
        self.can_repair = self.can_repair or mend is not None
        self.count += 1
        self.repaired += is_repaired
        if self.repair and mend is not None:
            mend(self.connection)
        if len(self.listed) < MAX_FINDINGS:
            shown = ", ".join(f"{name} {_shown(value)}" for name, value in key.items())
            self.listed.append(Finding(code, short_name(table), shown, problem, repair, is_repaired))
            self._conversations.append(key.get("id" if table is models.conversations else "conversation_id"))

    def name_conversations(self) -> None:
        """Add the ids of the conversations that the rows belong to, where they exist."""
        keys = {key for key in self._conversations if key is not None}
        if not keys:
            return
        row = models.conversations.c
        statement = select(row.id, row.public_id).where(row.tenant_id == self.tenant, row.id.in_(sorted(keys)))
        rows = [
            found for found in self.connection.execute(statement) if not isinstance(found.public_id, str)
        ]  # damaged
        ids = {found.id: public_id_text(bytes(found.public_id)) for found in rows}
        self.listed = [
            finding if key is None else replace(finding, conversation_id=ids.get(key))
            for finding, key in zip(self.listed, self._conversations, strict=True)
        ]

    def note(
        self, code: str, table: Table, key: Mapping[str, Any], problem: str, repair: str | None = None, **values: Any
    ) -> None:
        """Note a problem of a row, which setting these columns mends, if any are given."""
        self.add(code, table, key, problem, repair, self.setting(table, key, **values) if values else None)

    def setting(self, table: Table, key: Mapping[str, Any], **values: Any) -> Mend:
        """A mend that sets columns of a row."""
        statement = update(table).where(*self.named(table, key)).values(**values)
        return lambda connection: connection.execute(statement)

    def removing(self, table: Table, key: Mapping[str, Any]) -> Mend:
        """A mend that removes a row."""
        statement = delete(table).where(*self.named(table, key))
        return lambda connection: connection.execute(statement)

    def named(self, table: Table, key: Mapping[str, Any]) -> list[Any]:
        """The conditions for a row of the tenant."""
        return [table.c.tenant_id == self.tenant, *(table.c[name] == value for name, value in key.items())]


def _shown(value: object) -> str:
    return bytes(value).hex() if isinstance(value, bytes | bytearray | memoryview) else str(value)
