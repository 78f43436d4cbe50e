"""How far users have read conversations."""

from __future__ import annotations

from datetime import UTC, datetime

from sqlalchemy import Connection

from threadkeep.db.dialects import insert_or_replace
from threadkeep.db.queries.lists import seen_by
from threadkeep.db.tables import conversation_reads
from threadkeep.domain.objects import mismatch
from threadkeep.domain.stored import Seen
from threadkeep.errors import InvalidOption
from threadkeep.store.handle import Handle
from threadkeep.store.states import lock_conversation
from threadkeep.store.validation import MAX_POSITION, identifier, other_user, whole_number


def mark_seen(handle: Handle, user_id: str | None, position: int | None, *, move_back: bool) -> Seen:
    """Note that a user has read up to a position; see `Conversation.mark_seen`."""
    ref, reader = handle.ref, _reader(handle, user_id)
    wanted = None if position is None else whole_number("position", position, MAX_POSITION)
    if wanted is not None and wanted < -1:
        raise mismatch(InvalidOption, "a position, or -1 for nothing", position, "position")

    def write(connection: Connection) -> Seen:
        now = datetime.now(UTC)
        lock_conversation(connection, ref)
        last, before, seen_at = _read(connection, handle, reader)
        place = last if wanted is None else min(wanted, last)
        if before is not None and place < before and not move_back:
            return Seen(reader, before, seen_at)
        row = ref.columns(user_id=reader, position=place, seen_at=now)
        connection.execute(insert_or_replace(connection, conversation_reads, "position", "seen_at"), row)
        return Seen(reader, place, now)

    return handle.transactions.write(write, is_repeatable=True)


def find_seen(handle: Handle, user_id: str | None) -> Seen | None:
    """How far a user has read; see `Conversation.seen`."""
    reader = _reader(handle, user_id)
    _, position, seen_at = handle.transactions.read_any(lambda connection: _read(connection, handle, reader))
    return None if position is None else Seen(reader, position, seen_at)


def _reader(handle: Handle, user_id: object) -> str:
    """Who reads: the user who is given, or else that of the store, or of the conversation."""
    owner = handle.ref.scope.user
    if user_id is not None:
        reader = identifier("user_id", user_id)
        if owner is not None and reader != owner:
            raise other_user(owner, reader)
        return reader
    known: str | None = owner or handle.cache.conversation.row.user_id
    if known is None:
        hint = "Say who has read it: this conversation has no user."
        raise InvalidOption("is missing.", argument="user_id", hint=hint)
    return known


def _read(connection: Connection, handle: Handle, reader: str) -> tuple[int, int | None, datetime]:
    """The last position of the conversation, and the mark of the reader."""
    ref, scope = handle.ref, handle.ref.scope
    statement = seen_by(connection.dialect.name, scoped=scope.user is not None)
    row = connection.execute(statement, scope.parameters(key=ref.key, reader=reader)).one_or_none()
    if row is None:
        raise ref.not_found()
    return row.next_position - 1, row.position, row.seen_at
