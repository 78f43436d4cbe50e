"""Stored conversations for MCP clients, which read and search them: `mcp_server`.

Needs the extra ``mcp``.
"""

from threadkeep.errors import MissingExtra

try:
    import mcp  # noqa: F401 - whether it is there
except ImportError as error:
    raise MissingExtra("mcp", "threadkeep.contrib.mcp") from error

from threadkeep.contrib.mcp.server import mcp_server as mcp_server

__all__ = ["mcp_server"]
