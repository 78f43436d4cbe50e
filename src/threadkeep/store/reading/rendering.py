"""Rendering requests: the next one, or an earlier one as it was sent; and detached copies of a conversation."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, or_, select

from threadkeep.db.models import items, responses
from threadkeep.domain.formats import Format, get_format
from threadkeep.domain.items import item_from_object, with_given
from threadkeep.domain.jsontext import JsonObject, loads_stored
from threadkeep.domain.rendering import AS_IT_IS, Rendered, RenderOptions, Repair, ViewOptions
from threadkeep.domain.session import Session
from threadkeep.formats.canonical.entries import Snapshot, is_behind_gap
from threadkeep.formats.canonical.given import given_item
from threadkeep.formats.shared.views import UNDONE
from threadkeep.store.context_caches import render_with_cache
from threadkeep.store.media.urls import cache_for, takes_urls, with_urls
from threadkeep.store.reading import history, tails
from threadkeep.store.work import caches, connections, item_rows, refs, validation
from threadkeep.store.work.caches import StoreResources
from threadkeep.store.work.handle import Handle, HandleCache
from threadkeep.store.work.refs import BranchRef, ConfigHashes, ConversationState, Lineage, get_row

if TYPE_CHECKING:
    from threadkeep.store.work.transactions import Transactions

NOT_RECORDED: Final = (
    "The request that ended here was not recorded: this one was rendered with the current options and tools."
)


def render_options(view: ViewOptions) -> RenderOptions:
    """Return the options of a rendering."""
    return RenderOptions(**view) if view else AS_IT_IS


def render(handle: Handle, format: str, view: ViewOptions) -> Rendered:
    """Render a request; see `Conversation.render`."""
    wire, options = get_format(format), render_options(view)
    if options.media_url is None:
        return _render(handle, wire, options, view)
    return connections.whole(partial(_render, handle, wire, options, view))  # some media are read after the items


def _render(handle: Handle, wire: Format, options: RenderOptions, view: ViewOptions) -> Rendered:
    if options.upto is not None:
        return _replay(handle, wire, view)
    if options.cache is not None and wire.has_context_caches:
        snapshot = _read_snapshot(handle, wire, options)
        rendered = render_with_cache(handle, wire, options, snapshot)
    else:
        snapshot = _read_end(handle, wire, options) or _read_snapshot(handle, wire, options)
        rendered = wire.render(snapshot, options)
    return rendered_from(handle, rendered, snapshot)


def _read_snapshot(handle: Handle, wire: Format, options: RenderOptions) -> Snapshot:
    """Read what is new; return the snapshot that such requests are rendered from."""
    is_marked = options.media_url is not None and takes_urls(wire, options)
    snapshot = handle.read_snapshot(is_marked=is_marked)
    return with_urls(handle, wire, options, snapshot) if is_marked else snapshot


def rendered_from(handle: Handle, rendered: Rendered, snapshot: Snapshot) -> Rendered:
    """A rendered request with what it was rendered from, which may change afterwards."""
    rendered.configured = snapshot.configured
    rendered.conversation_id = handle.ref.public_id
    return rendered


def _read_end(handle: Handle, wire: Format, options: RenderOptions) -> Snapshot | None:
    """Read the end of a long history of which nothing is known yet, if a request shows no more."""
    ref, window = handle.ref, options.window
    if window is None:
        return None
    cache = cache_for(handle, wire, options)
    conversation = cache.conversation
    if cache.next_position or conversation.row.next_position < tails.LONG:
        return None
    tail = handle.transactions.read_any(
        lambda connection: tails.read_tail(
            connection, ref, handle.resources.configs, conversation, window, wire.name, cache.media, options=options
        )
    )
    if tail is None:
        return None
    for known in {cache, handle.cache}:
        known.know(tail.conversation, tail.head)
    snapshot = tail.snapshot()
    return with_urls(handle, wire, options, snapshot) if takes_urls(wire, options) else snapshot


# Earlier requests


def _replay(handle: Handle, wire: Format, view: ViewOptions) -> Rendered:
    """Render the request of an earlier turn, with the options and tools of that time if they were recorded."""
    position = validation.whole_number("upto", view.get("upto"), validation.MAX_POSITION)
    options = render_options(view)
    cache = cache_for(handle, wire, options)
    page, then, view_then = handle.transactions.read_any(
        lambda connection: _read_request(connection, handle, cache, position)
    )
    snapshot = handle.take_in(cache, page)
    options.check_end(snapshot.entries[-1].position if snapshot.entries else -1)
    snapshot = replace(snapshot, settings=then.settings, tools=then.tools, imported=then.imported, memo=None, shared={})
    if view_then is not None:
        others: dict[str, Any] = {name: value for name, value in view.items() if name != "upto"}
        options = replace(RenderOptions.recorded(view_then), upto=position, **others)
    if takes_urls(wire, options):
        if cache is handle.cache:  # only the recorded view said so
            snapshot = replace(snapshot, entries=handle.read_snapshot(is_marked=True).entries)
        snapshot = with_urls(handle, wire, options, snapshot)
    if view_then is not None and position < 0:  # it had no items, rather than being cut before the first one
        snapshot, options = replace(snapshot, entries=()), replace(options, upto=None)
    rendered = wire.render(snapshot, options)
    if view_then is None:
        rendered.repairs.append(Repair("not_recorded", None, "upto", NOT_RECORDED))
    rendered.configured, rendered.conversation_id = then.hashes, handle.ref.public_id
    return rendered


def _read_request(
    connection: Connection, handle: Handle, cache: HandleCache, position: int
) -> tuple[history.HistoryPage, ConversationState, JsonObject | None]:
    """Read a conversation as of the last request that showed the items up to a position.

    Returns its history, itself with the options and tools of that time, and the view of that request; None where it
    was not recorded.
    """
    ref, configs = handle.ref, handle.resources.configs
    page = history.read_history(connection, ref, configs, cache.conversation, cache.next_position, media=cache.media)
    conversation = page.conversation
    then, view = replace(conversation), None
    row = _find_request(connection, ref, conversation.lineage, position)
    if row is not None:
        then.settings = configs.settings(connection, ref.scope.tenant, row.config_hash)
        then.tools = configs.tools(connection, ref.scope.tenant, row.tool_set_hash)
        view = loads_stored(row.view, "responses", f"number {row.number}")
        then.hashes = ConfigHashes(row.config_hash, row.tool_set_hash)
    page.server_state = None
    if any(then.settings.get(name) for name in history.SERVER_STATE):
        lineage = Lineage(conversation.lineage.parts, position)
        page.server_state = history.read_server_state(connection, ref, lineage, then.settings)
    return page, then, view


def _find_request(connection: Connection, ref: BranchRef, lineage: Lineage, position: int) -> Any:
    """The last recorded request that showed the items of a branch up to a position; None if there is none.

    Those that were answered on this branch come first, even if the answer was removed or the branch shares it, and then
    the items of the branches that it was forked from.
    """
    table = responses.c
    statement = (
        select(table.number, table.branch, table.from_position, table.view, table.config_hash, table.tool_set_hash)
        .where(*ref.rows_of(table), table.input_to == position, table.view.is_not(None))
        .order_by(table.number.desc())
    )
    branches = {ref.branch, *(part.branch for part in lineage.parts)}
    unending = Lineage(lineage.parts, validation.MAX_POSITION)  # items may have been appended since it was read

    def rank(row: Any) -> tuple[bool, bool]:
        return unending.includes(ref.branch, row.from_position, row.branch), row.branch == ref.branch

    return max((row for row in connection.execute(statement) if row.branch in branches), key=rank, default=None)


# Detached copies


def detach(handle: Handle) -> Session:
    """Return a copy of a conversation: options, tools and the items of one branch, with their authors."""
    return handle.transactions.read_any(lambda connection: _read_session(connection, handle)[0])


def detach_with_times(handle: Handle) -> tuple[Session, list[datetime]]:
    """Return the same, and when each of the items was created."""
    table = items.c

    def read(connection: Connection) -> tuple[Session, list[datetime]]:
        session, positions = _read_session(connection, handle)
        created = connection.execute(select(table.position, table.created_at).where(*handle.ref.rows_of(table)))
        times, now = {row.position: row.created_at for row in created}, datetime.now(UTC)
        return session, [times.get(position, now) for position in positions]  # it may have been removed just now

    return handle.transactions.read(read)


def _read_session(connection: Connection, handle: Handle) -> tuple[Session, Sequence[int]]:
    """A detached copy, and the positions of its items."""
    ref, configs = handle.ref, handle.resources.configs
    conversation = history.reopen_conversation(connection, ref, configs, ref.branch)
    page = history.read_history(connection, ref, configs, conversation, 0)
    session, boundary = _session_with(conversation.settings, conversation.tools)
    if (imported := conversation.imported) is not None:
        count = sum(entry.position < imported.count for entry in page.entries)
        session.imported = replace(imported, count=count)
    # the author of each item, and what is stored of how it was given, where there is either
    table = items.c
    statement = select(table.position, table.author_id, table.given).where(
        *ref.rows_of(table), or_(table.author_id.is_not(None), table.given.is_not(None))
    )
    beside = {row.position: (row.author_id, row.given) for row in connection.execute(statement)}
    positions = [entry.position for entry in page.entries]
    for entry in page.entries:
        item = _renumber(entry.item(), positions)
        author_id, given = beside.get(entry.position, (None, None))
        if author_id is not None:
            item["author_id"] = author_id
        typed = item_from_object(item)
        if given is not None:
            typed = with_given(typed, given_item(entry, given))
        session.add_item(typed, turn=entry.turn, maker=entry.maker, known=False)
    before = [None, *page.entries]
    session.gaps = [index for index, entry in enumerate(page.entries) if is_behind_gap(before[index], entry)]
    if page.server_state is not None:
        boundary = sum(entry.position <= page.server_state.boundary for entry in page.entries)
        previous = page.server_state.previous_response_id
        if previous is not None and session.previous_response_id is not None:
            session.update(previous_response_id=previous)
    session.response_boundary = boundary
    return session, positions


def clone_config(handle: Handle) -> Session:
    """Return the options and tools of a conversation, without items or references to a provider's state."""
    ref, configs = handle.ref, handle.resources.configs

    def read(connection: Connection) -> Session:
        row = get_row(connection, ref)
        config = configs.get(connection, ref.scope.tenant, row.config_hash, row.tool_set_hash)
        return _session_with(config.settings, config.tools)[0].clone_config()

    return handle.transactions.read_any(read)


def opened_config(handle: Handle) -> Session:
    """Return the same, as it was when the conversation was opened."""
    opened = handle.cache.conversation
    return _session_with(opened.settings, opened.tools)[0].clone_config()


def _renumber(item: JsonObject, positions: Sequence[int]) -> JsonObject:
    """Return an item for a copy, where positions begin at 0: compactions refer to other positions."""
    if item["type"] == "compaction" and isinstance(item.get("upto"), int):
        return {**item, "upto": bisect_right(positions, item["upto"]) - 1}
    if item["type"] == UNDONE:
        undone = item.get("compaction")
        return {**item, "compaction": positions.index(undone) if undone in positions else -1}
    return item


def _session_with(settings: JsonObject, tools: Sequence[JsonObject]) -> tuple[Session, int]:
    """Return a session with these options and tools, and the boundary stored among the options."""
    options = dict(settings)
    boundary: int = options.pop("response_boundary", 0)
    options.pop("imported", None)
    return Session.from_dict({**options, "tools": tools}), boundary


# ---------------------------------------------------------------------------------------------------------------------
# Rendering the next request of a conversation that is not open: it and its items are read in one statement


def render_at_once(
    resources: StoreResources,
    transactions: Transactions,
    scope: refs.Scope,
    public_id: bytes,
    format: str,
    view: ViewOptions,
) -> Rendered | None:
    """Render a request (see `Store.render`); None where that takes the conversation to be opened."""
    wire, options = get_format(format), render_options(view)
    # From all items alone: not from caches, URLs, an earlier request or a window
    is_next = options.upto is None and options.window is None and options.media_url is None
    if not (is_next and (options.cache is None or not wire.has_context_caches)):
        return None
    known = _known(resources, transactions, scope, public_id)
    page = transactions.read_any(partial(_read_at_once, resources, scope, public_id, known))
    if page is None:
        return None
    handle = Handle(resources, transactions, page.conversation)
    snapshot = handle.take_in(handle.cache, page)
    return rendered_from(handle, wire.render(snapshot, options), snapshot)


def _known(
    resources: StoreResources, transactions: Transactions, scope: refs.Scope, public_id: bytes
) -> caches.CachedHistory | None:
    """What the store has of the items already."""
    if not transactions.commits_itself:
        return None
    return resources.histories.look_up((scope.tenant, public_id, 0, False))


def _read_at_once(
    resources: StoreResources,
    scope: refs.Scope,
    public_id: bytes,
    known: caches.CachedHistory | None,
    connection: Connection,
) -> history.HistoryPage | None:
    """Read a conversation, and of its items what is not known; None where that takes more than one statement."""
    since = 0 if known is None else known.next_position
    read = item_rows.read_packed_state(connection, scope, public_id, since)
    if read is not None and known is not None and read.row.revision != known.revision:
        since = 0  # a change may concern what was read before
        read = item_rows.read_packed_state(connection, scope, public_id, since)
    if read is None:
        return None
    conversation = history.state_of(connection, scope, read.row, resources.configs, 0)
    ref = conversation.ref()
    entries = item_rows.spliced(connection, ref, read.entries)
    next_position: int = read.row.next_position
    state = history.read_state(connection, ref, conversation, next_position - 1)
    return history.HistoryPage(conversation, entries, since, next_position, state)
