"""A stored conversation as a detached session."""

from __future__ import annotations

from sqlalchemy import Connection, select

from threadkeep.db.tables import items
from threadkeep.domain.session import Session
from threadkeep.store.actions.entries import load
from threadkeep.store.contents import Contents
from threadkeep.store.place import Place


def detached(connection: Connection, place: Place, contents: Contents) -> Session:
    """A copy of a conversation: its options, tools and the items of one branch, with their authors.

    Raises:
        NotFound: it is not there.
    """
    loaded = load(connection, place, contents, None)
    settings = dict(loaded.settings)
    boundary = settings.pop("response_boundary", 0)
    session = Session(tools=loaded.tools)
    session.update(**settings)
    authors = _authors(connection, place)
    for entry in loaded.entries:
        item = entry.item()
        if entry.position in authors:
            item["author_id"] = authors[entry.position]
        session.add_item(item, turn=entry.turn)
    if loaded.state is not None:
        boundary = sum(entry.position <= loaded.state.boundary for entry in loaded.entries)
        if loaded.state.previous_response_id is not None and "previous_response_id" in settings:
            session.update(previous_response_id=loaded.state.previous_response_id)
    session.response_boundary = boundary
    return session


def _authors(connection: Connection, place: Place) -> dict[int, str]:
    statement = select(items.c.position, items.c.author_id).where(
        items.c.tenant_id == place.scope.tenant,
        items.c.conversation_id == place.key,
        items.c.author_id.is_not(None),
    )
    return {row.position: row.author_id for row in connection.execute(statement)}
