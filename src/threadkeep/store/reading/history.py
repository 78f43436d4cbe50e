"""Finding conversations, and reading the history of a branch: all of it, or what is new."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Select, or_, select

from threadkeep.db import backends, driver, models
from threadkeep.db.queries.conversations import DELETED
from threadkeep.db.queries.histories import HEAD, history_after, locked_history_after
from threadkeep.domain import jsontext, stored
from threadkeep.domain.formats import STATEFUL
from threadkeep.domain.ids import CONVERSATION_PREFIX, public_id_text
from threadkeep.errors import AmbiguousId, InvalidOption, shown
from threadkeep.formats.canonical.entries import ItemEntry, ServerState
from threadkeep.store.media.cutting import MediaForm
from threadkeep.store.work import item_rows, refs
from threadkeep.store.work.caches import ConfigCache

_BEGINNING: Final = re.compile(rf"(?:{CONVERSATION_PREFIX})?([0-9a-fA-F]{{1,32}})")
_SHOWN_IDS: Final = 5  # of those that begin alike


def find_conversation(
    connection: Connection, scope: refs.Scope, column: str, value: Any, configs: ConfigCache,
    branch: int | None = None, *,
    is_locked: bool = False,
) -> refs.ConversationState | None:  # fmt: skip
    """A conversation by id, public_id or external_id, on its active branch or another; None when there is none.

    `is_locked`: it is neither changed nor hidden before the end of the transaction.
    """
    row = refs.find_row(connection, scope, column, value, is_locked=is_locked)
    return None if row is None else state_of(connection, scope, row, configs, branch)


def open_conversation(
    connection: Connection, scope: refs.Scope, column: str, value: Any, configs: ConfigCache,
    branch: int | None = None, *,
    is_locked: bool = False,
) -> refs.ConversationState:  # fmt: skip
    """Like `find_conversation`; NotFound is raised where there is no such conversation or branch."""
    conversation = find_conversation(connection, scope, column, value, configs, branch, is_locked=is_locked)
    if conversation is None:
        raise refs.conversation_not_found(public_id_text(value) if isinstance(value, bytes) else value)
    return conversation


def reopen_conversation(
    connection: Connection, ref: refs.ConversationRef, configs: ConfigCache, branch: int, *, is_locked: bool = False
) -> refs.ConversationState:
    """A conversation that was open before, as it is now; NotFound where it, or the branch, does not exist any more."""
    conversation = find_conversation(connection, ref.scope, "id", ref.key, configs, branch, is_locked=is_locked)
    if conversation is None:
        raise ref.not_found()
    return conversation


def state_of(
    connection: Connection, scope: refs.Scope, row: driver.LazyRow, configs: ConfigCache, branch: int | None = None
) -> refs.ConversationState:
    """The conversation of a row that was read; NotFound is raised where it has no such branch."""
    number: int = row.active_branch if branch is None else branch
    config = configs.get(connection, scope.tenant, row.config_hash, row.tool_set_hash)
    conversation = refs.ConversationState(scope, row, config.settings, config.tools, number, None, config.format_cache)
    if number:
        conversation.fork = refs.get_lineage(connection, conversation.ref(), row)
    return conversation


def complete_id(connection: Connection, scope: refs.Scope, beginning: object) -> str:
    """The only id that begins like this; see `Store.complete_id`."""
    match = _BEGINNING.fullmatch(beginning) if isinstance(beginning, str) else None
    if match is None:
        raise InvalidOption(
            f"must be the beginning of an id, such as conv_019a: hexadecimal digits, not {shown(beginning)}.",
            argument="beginning",
        )
    digits = match[1].lower()
    lowest, highest = (bytes.fromhex(digits.ljust(32, digit)) for digit in "0f")
    row = models.conversations.c
    # the sum keeps databases from reading all conversations of the tenant: the index of ids does not begin with it
    conditions = [row.tenant_id + 0 == scope.tenant, row.status != DELETED, row.public_id.between(lowest, highest)]
    if scope.user is not None:
        conditions.append(row.user_id == scope.user)
    statement = select(row.public_id).where(*conditions).order_by(row.public_id.desc()).limit(_SHOWN_IDS + 1)
    ids = [public_id_text(bytes(found)) for found in connection.execute(statement).scalars()]
    if not ids:
        raise refs.conversation_not_found(f"{beginning}…")
    if len(ids) > 1:
        raise AmbiguousId(str(beginning), ids[:_SHOWN_IDS], has_more=len(ids) > _SHOWN_IDS)
    return ids[0]


SERVER_STATE: Final = ("previous_response_id", "conversation")
_RESPONSES: Final = 8  # in the first page
BROKEN_OFF_TEXT: Final = jsontext.dumps(stored.BROKEN_OFF).decode()


@dataclass(slots=True)
class HistoryPage:
    """A conversation as of now, and its items from position `since` on (0: all of them)."""

    conversation: refs.ConversationState
    entries: Sequence[ItemEntry]
    since: int
    next_position: int
    server_state: ServerState | None


def read_history(
    connection: Connection,
    ref: refs.BranchRef,
    configs: ConfigCache,
    conversation: refs.ConversationState,
    since: int,
    *,
    is_latest: bool = False,
    media: MediaForm = "inline",
) -> HistoryPage:
    """Read what is new in a conversation, with one statement as long as its options are unchanged.

    `is_latest`: for work that holds the lock of the conversation, and is to see what was committed before. `media`: in
    which form the items contain their media.
    """
    rows = _read_rows(connection, ref, configs, conversation, since, is_latest=is_latest, media=media)
    conversation, since = rows.conversation, rows.since
    entries = rows.own
    if not since and conversation.lineage.parts:
        keeps = conversation.lineage.keeps()
        entries = [*rows.inherited, *(entry for entry in entries if keeps(entry.position))]
    next_position = rows.next_position
    state = read_state(connection, ref, conversation, next_position - 1)
    return HistoryPage(conversation, entries, since, next_position, state)


class _Rows(NamedTuple):
    """A conversation with a branch's own items, from a position on, and those that it shares with others."""

    conversation: refs.ConversationState
    since: int
    next_position: int
    inherited: Sequence[ItemEntry]
    own: Sequence[ItemEntry]


def _read_rows(
    connection: Connection,
    ref: refs.BranchRef,
    configs: ConfigCache,
    conversation: refs.ConversationState,
    since: int,
    *,
    is_latest: bool,
    media: MediaForm,
) -> _Rows:
    """Read the items of a branch until they belong to one revision of the conversation."""
    since = 0 if conversation.is_outdated else since
    while True:
        # first, so that the revision shows that nothing was removed of it meanwhile
        inherited = _read_inherited(connection, ref, conversation.lineage, since, is_latest=is_latest, media=media)
        revision, next_position, found = _read_own(connection, ref, since, is_latest=is_latest, media=media)
        if revision == conversation.row.revision and not conversation.is_outdated:
            return _Rows(conversation, since, next_position, inherited, found)
        conversation = reopen_conversation(connection, ref, configs, ref.branch)
        is_current = ref.branch == 0 and conversation.row.revision == revision
        if not since and (is_latest or is_current):
            return _Rows(conversation, since, next_position, inherited, found)
        since = 0  # a change may concern what was read before


def _read_own(
    connection: Connection, ref: refs.BranchRef, since: int, *, is_latest: bool, media: MediaForm
) -> tuple[int, int, Sequence[ItemEntry]]:
    """Read the revision and next position of a conversation, and the items of a branch itself from a position on."""
    is_scoped = ref.scope.user is not None
    parameters = ref.scope.parameters(key=ref.key, branch=ref.branch, after=since - 1)
    packed = item_rows.read_packed(connection, ref, parameters)
    if packed is not None:
        entries = item_rows.spliced(connection, ref, packed.entries, is_latest=is_latest, media=media)
        return packed.revision, packed.next_position, entries
    if is_latest and backends.backend_of(connection).sees_locked:
        rows = locked_history_after(scoped=is_scoped).fetch_all(connection, parameters)
        if not rows:
            raise ref.not_found()
        revision, next_position = rows[0][item_rows.ENTRY_WIDTH :]
        rows = () if rows[0][0] is None else rows
    else:
        rows = history_after(scoped=is_scoped).fetch_all(connection, parameters)
        if not rows or rows[0][0] != HEAD:
            raise ref.not_found()
        _, _, _, revision, next_position, *_ = rows[0]
        rows = rows[1:]
    return revision, next_position, item_rows.decode_entries(connection, ref, rows, is_latest=is_latest, media=media)


def _read_inherited(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, since: int, *, is_latest: bool, media: MediaForm
) -> list[ItemEntry]:
    """Read what a branch shares with those that it was forked from, unless it was read before (`since`).

    What was removed from it is not in it.
    """
    if since or not lineage.parts:
        return []
    shared = [span for span in lineage.spans(ref.branch, -1, lineage.parts[-1].last) if span.branch != ref.branch]
    return item_rows.read_spans(connection, ref, lineage, shared, is_latest=is_latest, media=media)


def _pages(connection: Connection, statement: Select[Any], number: ColumnElement[int]) -> Iterator[Any]:
    """The rows of a statement by descending numbers, read as far as they are looked at."""
    limit, last = _RESPONSES, None
    while limit:
        page = statement if last is None else statement.where(number < last)
        rows = connection.execute(page.limit(limit)).all()
        yield from rows
        limit, last = (2 * limit, rows[-1].number) if len(rows) == limit else (0, None)


def is_held(table: Any) -> list[ColumnElement[bool]]:
    """Return conditions for responses stored by a provider: not in progress, and not interrupted."""
    return [
        table.open_branch.is_(None),
        or_(table.status.is_(None), table.status != "cancelled"),
        or_(table.incomplete_details.is_(None), table.incomplete_details != BROKEN_OFF_TEXT),
    ]


def has_server_state(conversation: refs.ConversationState) -> bool:
    """Return whether a provider stores something of the conversation."""
    return any(map(conversation.settings.get, SERVER_STATE))


def read_state(
    connection: Connection, ref: refs.BranchRef, conversation: refs.ConversationState, head: int
) -> ServerState | None:
    """The same if the conversation has server state, up to a position; None if it has none."""
    if not has_server_state(conversation):
        return None
    return read_server_state(connection, ref, refs.Lineage(conversation.lineage.parts, head), conversation.settings)


def read_server_state(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, settings: jsontext.JsonObject
) -> ServerState:
    """Return what the provider stores of a conversation in server state: its latest response on this branch."""
    table = models.responses.c
    statement = (
        select(table.number, table.branch, table.from_position, table.to_position, table.provider_response_id)
        .where(*ref.rows_of(table), table.format.in_(STATEFUL), *is_held(table))
        .order_by(table.number.desc())
    )
    previous, boundary = None, None
    for row in _pages(connection, statement, table.number):
        end = max(row.from_position, row.to_position)
        if not lineage.includes(ref.branch, end, row.branch) or lineage.knew_more(row.number, end):
            continue
        boundary = row.to_position if boundary is None else boundary
        previous = row.provider_response_id
        if previous is not None:
            break
    initial = settings.get("previous_response_id")
    if settings.get("conversation") is not None:  # it names the history, and excludes the other name for it
        previous = None
    start = settings.get("response_boundary", 0) - 1
    return ServerState(previous or initial, start if boundary is None else boundary)
