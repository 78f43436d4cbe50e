"""An earlier request: the items up to its end, and the options, tools and view that were recorded with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sqlalchemy import Connection

from threadkeep.db.tables import responses
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.wire import Imported, ServerState
from threadkeep.store.actions.entries import SERVER_STATE, Lineage, server_state
from threadkeep.store.actions.loading import Loaded, load
from threadkeep.store.actions.opening import Opened
from threadkeep.store.contents import Contents
from threadkeep.store.place import Configuration, Place


@dataclass(frozen=True, slots=True)
class Replay:
    """A conversation as of an earlier request; `view` is None when no request that ended there was recorded."""

    loaded: Loaded
    settings: JsonObject
    tools: Sequence[JsonObject]
    state: ServerState | None
    view: JsonObject | None
    configured: Configuration

    @property
    def imported(self) -> Imported | None:
        """Where the conversation came from, when it was imported."""
        found = self.settings.get("imported")
        return None if found is None else Imported.from_dict(found)


def replay(
    connection: Connection, place: Place, contents: Contents, found: Opened, since: int, position: int
) -> Replay:
    """Read a conversation as of the last request that showed the items up to a position.

    Raises:
        NotFound: it is not there any more.
    """
    loaded = load(connection, place, contents, found, since)
    opened = loaded.conversation
    settings, tools, view, configured = opened.settings, opened.tools, None, opened.configured
    table = responses.c
    statement = (
        responses.select()
        .with_only_columns(table.branch, table.view, table.config_hash, table.tool_set_hash)
        .where(
            table.tenant_id == place.scope.tenant,
            table.conversation_id == place.key,
            table.input_to == position,
            table.view.is_not(None),
        )
        .order_by(table.number.desc())
    )
    lineage = Lineage(opened.lineage.parts, max(position, loaded.next_position - 1))
    for row in connection.execute(statement):
        if row.branch == place.branch or any(number == row.branch for number, _ in lineage.parts):
            tenant = place.scope.tenant
            settings = contents.settings(connection, tenant, row.config_hash)
            tools = contents.tools(connection, tenant, row.tool_set_hash)
            view, configured = loads(row.view), (row.config_hash, row.tool_set_hash)
            break
    state = None
    if any(settings.get(name) for name in SERVER_STATE):
        state = server_state(connection, place, Lineage(opened.lineage.parts, position), settings)
    return Replay(loaded, settings, tools, state, view, configured)
