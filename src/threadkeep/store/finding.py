"""Finding conversations: by their ids, by the beginnings of these, or by rows that were read."""

from __future__ import annotations

import re
from typing import Any, Final

from sqlalchemy import Connection, select

from threadkeep.db.driver import LazyRow
from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.tables import conversations
from threadkeep.domain.ids import CONVERSATION_PREFIX, public_id_text
from threadkeep.errors import AmbiguousId, InvalidOption, shown
from threadkeep.store.config_cache import ConfigCache
from threadkeep.store.lineage import ConversationState, find_row, get_lineage
from threadkeep.store.refs import ConversationRef, Scope, conversation_not_found

_BEGINNING: Final = re.compile(rf"(?:{CONVERSATION_PREFIX})?([0-9a-fA-F]{{1,32}})")
_SHOWN_IDS: Final = 5  # of those that begin alike


def find_conversation(
    connection: Connection, scope: Scope, column: str, value: Any, configs: ConfigCache, branch: int | None = None
) -> ConversationState | None:
    """A conversation by id, public_id or external_id, on its active branch or another; None when there is none."""
    row = find_row(connection, scope, column, value)
    return None if row is None else state_of(connection, scope, row, configs, branch)


def open_conversation(
    connection: Connection, scope: Scope, column: str, value: Any, configs: ConfigCache, branch: int | None = None
) -> ConversationState:
    """Like `find_conversation`; NotFound is raised where there is no such conversation or branch."""
    conversation = find_conversation(connection, scope, column, value, configs, branch)
    if conversation is None:
        raise conversation_not_found(public_id_text(value) if isinstance(value, bytes) else value)
    return conversation


def reopen_conversation(
    connection: Connection, ref: ConversationRef, configs: ConfigCache, branch: int
) -> ConversationState:
    """A conversation that was open before, as it is now; NotFound where it, or the branch, does not exist any more."""
    conversation = find_conversation(connection, ref.scope, "id", ref.key, configs, branch)
    if conversation is None:
        raise ref.not_found()
    return conversation


def state_of(
    connection: Connection, scope: Scope, row: LazyRow, configs: ConfigCache, branch: int | None = None
) -> ConversationState:
    """The conversation of a row that was read; NotFound is raised where it has no such branch."""
    number: int = row.active_branch if branch is None else branch
    config = configs.get(connection, scope.tenant, row.config_hash, row.tool_set_hash)
    conversation = ConversationState(scope, row, config.settings, config.tools, number, None, config.format_cache)
    if number:
        conversation.fork = get_lineage(connection, conversation.ref(), row)
    return conversation


def complete_id(connection: Connection, scope: Scope, beginning: object) -> str:
    """The only id that begins like this; see `Store.complete_id`."""
    match = _BEGINNING.fullmatch(beginning) if isinstance(beginning, str) else None
    if match is None:
        raise InvalidOption(
            f"must be the beginning of an id, such as conv_019a: hexadecimal digits, not {shown(beginning)}.",
            argument="beginning",
        )
    digits = match[1].lower()
    lowest, highest = (bytes.fromhex(digits.ljust(32, digit)) for digit in "0f")
    row = conversations.c
    # the sum keeps databases from reading all conversations of the tenant: the index of ids does not begin with it
    conditions = [row.tenant_id + 0 == scope.tenant, row.status != DELETED, row.public_id.between(lowest, highest)]
    if scope.user is not None:
        conditions.append(row.user_id == scope.user)
    statement = select(row.public_id).where(*conditions).order_by(row.public_id.desc()).limit(_SHOWN_IDS + 1)
    ids = [public_id_text(bytes(found)) for found in connection.execute(statement).scalars()]
    if not ids:
        raise conversation_not_found(f"{beginning}…")
    if len(ids) > 1:
        raise AmbiguousId(str(beginning), ids[:_SHOWN_IDS], has_more=len(ids) > _SHOWN_IDS)
    return ids[0]
