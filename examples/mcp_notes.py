"""What was said about something, as an MCP client finds it: it starts `threadkeep mcp`, and asks its tools.

pip install "threadkeep[mcp]"
export THREADKEEP_URL=sqlite:///chat.db
python mcp_notes.py "capital france"
"""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator
from typing import Any

from mcp import StdioServerParameters
from mcp.client import Client

AROUND = 3  # items that are shown of each conversation


class Refused(Exception):
    """A tool could not do what it was asked for; says why."""


def server(url: str) -> StdioServerParameters:
    """How the server is started. It has no variables of this process but those that are named here."""
    return StdioServerParameters(command=sys.executable, args=["-m", "threadkeep", "mcp"], env={"THREADKEEP_URL": url})


async def told(client: Client, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a tool."""
    result = await client.call_tool(tool, arguments)
    if result.is_error or not isinstance(result.structured_content, dict):
        raise Refused("".join(getattr(part, "text", "") for part in result.content))
    return result.structured_content


async def notes(client: Client, words: str) -> AsyncIterator[str]:
    """The conversations in which these words occur, each with what stands around them."""
    found = await told(client, "search_conversations", query=words, limit=5)
    for match in found["conversations"]:
        yield f"{match['title'] or match['conversation_id']} ({match['created_at']:.10})"
        place = {"branch": match["branch"], "around_position": match["position"]}
        read = await told(client, "get_conversation", conversation_id=match["conversation_id"], limit=AROUND, **place)
        for item in read["items"]:
            yield f"  {item.get('role', item['type'])}: {item['text']}"


async def main(url: str, words: str) -> list[str]:
    async with Client(server(url)) as client:
        try:
            return [line async for line in notes(client, words)]
        except Refused as refusal:
            return [str(refusal)]


if __name__ == "__main__":
    print(*asyncio.run(main(os.environ["THREADKEEP_URL"], " ".join(sys.argv[1:]))), sep="\n")  # noqa: T201 - the result
