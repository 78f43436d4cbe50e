"""A stored conversation as a detached session."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import replace

from sqlalchemy import Connection, select

from threadkeep.db.tables import items
from threadkeep.domain.items import item_from_object
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.session import Session
from threadkeep.formats.views import UNDONE
from threadkeep.store.actions.entries import facts_at
from threadkeep.store.actions.loading import load
from threadkeep.store.actions.opening import get
from threadkeep.store.contents import Contents
from threadkeep.store.place import Place


def detached(connection: Connection, place: Place, contents: Contents) -> Session:
    """A copy of a conversation: its options, tools and the items of one branch, with their authors.

    Raises:
        NotFound: it is not there.
    """
    found = get(connection, place.scope, "id", place.key, contents, place.branch)
    loaded = load(connection, place, contents, found, 0)
    session, boundary = _configured(found.settings, found.tools)
    if (imported := found.imported) is not None:
        count = sum(entry.position < imported.count for entry in loaded.entries)
        session.imported = replace(imported, count=count)
    authors, positions = _authors(connection, place), [entry.position for entry in loaded.entries]
    for entry in loaded.entries:
        item = _moved(entry.item(), positions)
        if entry.position in authors:
            item["author_id"] = authors[entry.position]
        session.add_item(item_from_object(item), turn=entry.turn)
    if loaded.state is not None:
        boundary = sum(entry.position <= loaded.state.boundary for entry in loaded.entries)
        if loaded.state.previous_response_id is not None and session.previous_response_id is not None:
            session.update(previous_response_id=loaded.state.previous_response_id)
    session.response_boundary = boundary
    return session


def _moved(item: JsonObject, positions: Sequence[int]) -> JsonObject:
    """An item as it stands in a copy, where positions are counted from 0: compactions name others by theirs."""
    if item["type"] == "compaction" and isinstance(item.get("upto"), int):
        return {**item, "upto": bisect_right(positions, item["upto"]) - 1}
    if item["type"] == UNDONE and item.get("compaction") in positions:
        return {**item, "compaction": positions.index(item["compaction"])}
    return item


def options_of(connection: Connection, place: Place, contents: Contents) -> Session:
    """The options and tools of a conversation, without items and without what points at a provider's state.

    Raises:
        NotFound: it is not there.
    """
    facts = facts_at(connection, place)
    settings = contents.settings(connection, place.scope.tenant, facts.config_hash)
    tools = contents.tools(connection, place.scope.tenant, facts.tool_set_hash)
    return _configured(settings, tools)[0].clone_config()


def _configured(settings: JsonObject, tools: Sequence[JsonObject]) -> tuple[Session, int]:
    """A session with these options and tools, and the boundary that is kept among the options."""
    options = dict(settings)
    boundary: int = options.pop("response_boundary", 0)
    options.pop("imported", None)
    session = Session(tools=tools)
    session.update(**options)
    return session, boundary


def _authors(connection: Connection, place: Place) -> dict[int, str]:
    statement = select(items.c.position, items.c.author_id).where(
        items.c.tenant_id == place.scope.tenant,
        items.c.conversation_id == place.key,
        items.c.author_id.is_not(None),
    )
    return {row.position: row.author_id for row in connection.execute(statement)}
