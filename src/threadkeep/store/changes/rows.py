"""Writing the change feed: a row of each transaction that changed a conversation, inserted with its other rows."""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db.change_keys import SERIALS
from threadkeep.db.driver import TableRows, insert_rows
from threadkeep.db.tables import changes
from threadkeep.domain.changes import CHANGED, ChangeKind
from threadkeep.store.refs import ConversationRef

serial_numbers: Final = count(secrets.randbelow(SERIALS))


def change_row(
    tenant: int,
    conversation: int,
    public_id: bytes,
    kind: ChangeKind,
    now: datetime,
    *,
    branch: int | None = None,
    from_position: int | None = None,
    to_position: int | None = None,
) -> dict[str, Any]:
    """A row of the feed."""
    return {
        "tenant_id": tenant, "conversation_id": conversation, "public_id": public_id, "kind": kind, "branch": branch,
        "from_position": from_position, "to_position": to_position, "created_at": now,
        "serial": next(serial_numbers) % SERIALS, "of_tenant": tenant,
    }  # fmt: skip


def record_change(
    connection: Connection, ref: ConversationRef, branch: int | None = None, beside: TableRows = ()
) -> None:
    """Tell that something other than an append changed a conversation, whose lock the transaction has.

    `beside`: rows of other tables to write with it.
    """
    public_id, now = ref.public_bytes, datetime.now(UTC)
    row = change_row(ref.scope.tenant, ref.key, public_id, CHANGED, now, branch=branch)
    insert_rows(connection, [*beside, (changes, [row])])


def insert_changes(connection: Connection, rows: Iterable[Mapping[str, Any]]) -> None:
    """Write rows of the feed alone."""
    insert_rows(connection, [(changes, list(rows))])
