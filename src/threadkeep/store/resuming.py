"""Rendering the next request of a conversation that is not open: it and its items are read in one statement."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from sqlalchemy import Connection

from threadkeep.db.types import MYSQL
from threadkeep.domain.formats import Format, get_format
from threadkeep.store import rendering
from threadkeep.store.finding import state_of
from threadkeep.store.handle import Handle, StoreResources
from threadkeep.store.history import HistoryPage, read_state
from threadkeep.store.history_cache import CachedHistory
from threadkeep.store.item_rows import spliced
from threadkeep.store.packed_rows import read_packed_state

if TYPE_CHECKING:
    from threadkeep.domain.rendering import Rendered, RenderOptions, ViewOptions
    from threadkeep.store.refs import Scope
    from threadkeep.store.transactions import Transactions


def render_at_once(
    resources: StoreResources,
    transactions: Transactions,
    scope: Scope,
    public_id: bytes,
    format: str,
    view: ViewOptions,
) -> Rendered | None:
    """Render a request (see `Store.render`); None where that takes the conversation to be opened."""
    wire, options = get_format(format), rendering.render_options(view)
    if not _needs_no_more(wire, options):
        return None
    known = _known(resources, transactions, scope, public_id)
    page = transactions.read_any(partial(_read_at_once, resources, scope, public_id, known))
    if page is None:
        return None
    handle = Handle(resources, transactions, page.conversation)
    snapshot = handle.take_in(handle.cache, page)
    return rendering.rendered_from(handle, wire.render(snapshot, options), snapshot)


def _needs_no_more(wire: Format, options: RenderOptions) -> bool:
    """Whether a request is rendered from all items alone: not from caches, URLs, an earlier request or a window."""
    is_next = options.upto is None and options.window is None and options.media_url is None
    return is_next and (options.cache is None or not wire.has_context_caches)


def _known(
    resources: StoreResources, transactions: Transactions, scope: Scope, public_id: bytes
) -> CachedHistory | None:
    """What the store has of the items already."""
    if not transactions.commits_itself:
        return None
    return resources.histories.look_up((scope.tenant, public_id, 0, False))


def _read_at_once(
    resources: StoreResources, scope: Scope, public_id: bytes, known: CachedHistory | None, connection: Connection
) -> HistoryPage | None:
    """Read a conversation, and of its items what is not known; None where that takes more than one statement."""
    if connection.dialect.name in MYSQL:
        return None
    since = 0 if known is None else known.next_position
    read = read_packed_state(connection, scope, public_id, since)
    if read is not None and known is not None and read.row.revision != known.revision:
        since = 0  # a change may concern what was read before
        read = read_packed_state(connection, scope, public_id, since)
    if read is None:
        return None
    conversation = state_of(connection, scope, read.row, resources.configs, 0)
    ref = conversation.ref()
    entries = spliced(connection, ref, read.entries)
    next_position: int = read.row.next_position
    state = read_state(connection, ref, conversation, next_position - 1)
    return HistoryPage(conversation, entries, since, next_position, state)
