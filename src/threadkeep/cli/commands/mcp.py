"""``threadkeep mcp``: a server for MCP clients, which read and search what is stored."""

from __future__ import annotations

from threadkeep.cli.options import OnlyUser, on_target
from threadkeep.cli.output import note
from threadkeep.cli.target import Target


@on_target("url", "tenant", "blobs")
def mcp(target: Target, *, user: OnlyUser = None) -> None:
    """Let an MCP client read and search conversations.

    It is started by the client, which it talks to on stdin and stdout. Nothing is changed.
    """
    from threadkeep.contrib.mcp import mcp_server

    with target.store(user=user) as store:
        note(f"threadkeep: {target.shown_url} for an MCP client on stdin")
        mcp_server(store).run("stdio")
