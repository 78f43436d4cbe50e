"""The server: its tools and resources, and its errors."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Any, Final, ParamSpec, TypeVar

from mcp.server import MCPServer
from mcp.server.mcpserver.exceptions import ResourceError, ResourceNotFoundError, ToolError
from mcp_types import ToolAnnotations

from threadkeep.contrib.mcp.reading import NOTE, ReadingTools
from threadkeep.errors import NotFound, ThreadkeepError
from threadkeep.store.aio import AsyncStore, async_face
from threadkeep.store.store import Store

P = ParamSpec("P")
T = TypeVar("T")

INSTRUCTIONS: Final = f"""\
Conversations with language models that threadkeep stores, to be read: nothing can be changed.
Find some with search_conversations or list_conversations, read them with get_conversation and get_item.
{NOTE}"""
NEWEST: Final = "threadkeep://conversations"
JSON: Final = "application/json"
READ_ONLY: Final = ToolAnnotations(
    read_only_hint=True, destructive_hint=False, idempotent_hint=True, open_world_hint=False
)


def mcp_server(store: Store | AsyncStore, *, name: str = "threadkeep") -> MCPServer[Any]:
    """Return an MCP server whose tools search and read the conversations of a store, and sum their usage.

    Nothing of them can be changed. All that the store reaches can be read by every client of the server: limit it with
    `for_tenant` and `for_user`. The server is run with `run("stdio")`, as `threadkeep mcp` does; the store stays open.

    Args:
        store: a `Store`, whose methods then run in worker threads, or an `AsyncStore`, which belongs to one event loop.
        name: what clients call the server.

    Raises:
        InvalidOption: it is not a store.
    """
    from threadkeep import __version__  # noqa: PLC0415 - the package is loaded by now

    reader = ReadingTools(async_face(store))
    server: MCPServer[Any] = MCPServer(
        name, instructions=INSTRUCTIONS, version=__version__, log_level="WARNING", subscriptions=False
    )
    tools = (
        reader.search_conversations, reader.list_conversations, reader.get_conversation, reader.get_item,
        reader.usage_report,
    )  # fmt: skip
    for tool in tools:
        server.add_tool(_telling(tool, ToolError, ToolError), annotations=READ_ONLY)
    newest = _telling(reader.newest, ResourceError, ResourceNotFoundError)
    server.resource(
        NEWEST, name="conversations", description="The 50 conversations with the newest activity.", mime_type=JSON
    )(newest)
    beginning = _telling(reader.beginning, ResourceError, ResourceNotFoundError)
    server.resource(
        f"{NEWEST}/{{id}}", name="conversation", description="A conversation with its first items.", mime_type=JSON
    )(beginning)
    return server


def _telling(
    function: Callable[P, Awaitable[T]], failed: type[Exception], missing: type[Exception]
) -> Callable[P, Awaitable[T]]:
    """The function, with errors of threadkeep shown to the client; others are only logged."""

    @wraps(function)
    async def told(*args: P.args, **kwargs: P.kwargs) -> T:
        try:
            return await function(*args, **kwargs)
        except ThreadkeepError as error:
            kind = missing if isinstance(error, NotFound) else failed
            # without the hint, which is for users of Python
            raise kind(" ".join(part for part in (error.argument, error.message) if part)) from error

    return told
