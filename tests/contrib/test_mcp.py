"""The MCP server, asked by the official client: what it finds, how much it returns, and whose conversations."""

from __future__ import annotations

import asyncio
import json
import os
import re
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from mcp import StdioServerParameters
from mcp.client import Client
from mcp.client.stdio import stdio_client
from mcp.server import MCPServer
from mcp.shared.exceptions import MCPError

from tests.databases import Database
from threadkeep import AsyncConversation, AsyncStore, InvalidOption, Store
from threadkeep.contrib.mcp import mcp_server
from threadkeep.store.aio import async_face

pytestmark = pytest.mark.one_face
AnyStore = Store | AsyncStore
PAGE = Path(__file__).parents[2] / "docs/mcp.md"
ROOM = 40_000  # characters of the items of a result
TOOLS = {"search_conversations", "list_conversations", "get_conversation", "get_item", "usage_report"}
ANSWER = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5",
    "content": [{"type": "text", "text": "The one by the river."}], "stop_reason": "end_turn",
    "usage": {"input_tokens": 24, "output_tokens": 5},
}  # fmt: skip


async def trip(store: AnyStore, **about: Any) -> AsyncConversation:
    conversation = await async_face(store).create_conversation(model="claude-sonnet-4-5", title="Trip", **about)
    await conversation.user("Which hotel did we book?")
    await conversation.add_response(ANSWER, "messages")
    return conversation


async def told(asked: MCPServer[Any] | AnyStore, tool: str, **arguments: Any) -> dict[str, Any]:
    """The result of a tool, which is the same as text and as JSON."""
    server = asked if isinstance(asked, MCPServer) else mcp_server(asked)
    async with Client(server) as client:
        result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    [text] = result.content
    assert json.loads(text.text) == result.structured_content  # type: ignore[union-attr]  # as the client shows it
    return dict(result.structured_content or {})


async def refused(store: AnyStore, tool: str, **arguments: Any) -> str:
    async with Client(mcp_server(store)) as client:
        result = await client.call_tool(tool, arguments)
    assert result.is_error
    return "".join(getattr(part, "text", "") for part in result.content)


# What it offers


@pytest.mark.parametrize("mode", ["auto", "legacy"])
async def test_all_tools_only_read(store: AnyStore, mode: Any) -> None:
    """… and say so; "legacy" has the client and server talk through streams, as they do with other processes."""
    async with Client(mcp_server(store), mode=mode) as client:
        tools = (await client.list_tools()).tools
        assert client.instructions is not None
        assert "nothing can be changed" in client.instructions
    assert {tool.name for tool in tools} == TOOLS
    for tool in tools:
        assert tool.annotations is not None
        assert (tool.annotations.read_only_hint, tool.annotations.destructive_hint) == (True, False)
        assert tool.description
        assert all("description" in one or "maximum" in one for one in tool.input_schema["properties"].values())


async def test_a_search_says_what_to_pass_on_by_its_name_there(store: AnyStore) -> None:
    """Models take the words of a description literally."""
    async with Client(mcp_server(store)) as client:
        tools = {tool.name: tool for tool in (await client.list_tools()).tools}
    description = tools["search_conversations"].description or ""
    advice = description[description.index("Read on around it") :]
    passed = {there or here for here, there in re.findall(r"`(\w+)`(?: as `(\w+)`)?", advice)}
    assert passed == {"conversation_id", "branch", "around_position"}
    assert passed <= tools["get_conversation"].input_schema["properties"].keys()


async def test_an_id_has_one_name_in_all_results_and_arguments(store: AnyStore) -> None:
    """What a model has read, it passes on by the name that it had there."""
    conversation = await trip(store)
    server, one, item = mcp_server(store), {"conversation_id": conversation.id}, "item_id"
    for tool in ("search_conversations", "list_conversations"):
        [found] = (await told(server, tool, **({"query": "hotel"} if "search" in tool else {})))["conversations"]
        assert {name: found[name] for name in one} == one
    read = await told(server, "get_conversation", **one)
    assert read["conversation"]["conversation_id"] == conversation.id
    alone = await told(server, "get_item", **one, item_id=read["items"][0][item])
    assert alone["item"][item] == read["items"][0][item]
    async with Client(server) as client:
        arguments = {name for tool in (await client.list_tools()).tools for name in tool.input_schema["properties"]}
    assert "id" not in arguments | read["conversation"].keys() | alone["item"].keys()


async def test_nothing_is_changed(store: AnyStore) -> None:
    conversation = await trip(store)

    async def rows() -> list[str]:
        return [line async for line in async_face(store).export() if '"exported_at"' not in line]

    before = await rows()
    server, id_ = mcp_server(store), conversation.id
    await told(server, "search_conversations", query="hotel")
    await told(server, "list_conversations")
    read = await told(server, "get_conversation", conversation_id=id_)
    await told(server, "get_item", item_id=read["items"][0]["item_id"], conversation_id=id_)
    await told(server, "usage_report", by=["model"])
    assert await rows() == before


# Finding and reading


async def test_a_match_is_read_where_it_stands(store: AnyStore) -> None:
    conversation = await trip(store, labels={"app": "travel"})
    await async_face(store).create_conversation(title="Other", input="Hello!")
    [match] = (await told(store, "search_conversations", query="river"))["conversations"]
    assert (match["conversation_id"], match["title"], match["position"]) == (conversation.id, "Trip", 1)
    place = {"branch": match["branch"], "around_position": match["position"]}
    read = await told(store, "get_conversation", conversation_id=conversation.id, limit=2, **place)
    assert [(item["role"], item["text"]) for item in read["items"]] == [
        ("user", "Which hotel did we book?"),
        ("assistant", "The one by the river."),
    ]
    about = read["conversation"]
    assert (about["model"], about["labels"], about["last_position"]) == ("claude-sonnet-4-5", {"app": "travel"}, 1)
    assert read["note"].startswith("Stored content")


async def test_times_are_dates_or_have_a_zone(store: AnyStore) -> None:
    await trip(store)
    for since, count in (("2020-01-31", 1), ("2020-01-31T12:00Z", 1), ("2100-01-01", 0)):
        found = await told(store, "search_conversations", query="hotel", since=since)
        assert len(found["conversations"]) == count
    assert "zone" in await refused(store, "search_conversations", query="hotel", since="2020-01-31T12:00")


async def test_lists_are_paged(store: AnyStore) -> None:
    made = [(await trip(store, labels={"n": str(n)})).id for n in range(3)]
    first = await told(store, "list_conversations", limit=2)
    second = await told(store, "list_conversations", limit=2, after=first["next"])
    assert [one["conversation_id"] for one in first["conversations"] + second["conversations"]] == made[::-1]
    assert second["next"] is None
    assert first["conversations"][0]["preview"] == "The one by the river."
    [found] = (await told(store, "list_conversations", labels={"n": "1"}))["conversations"]
    assert found["conversation_id"] == made[1]


async def test_branches_are_read_apart(store: AnyStore) -> None:
    conversation = await trip(store)
    edited = await conversation.edit(0, "Which train did we book?")
    now = await told(store, "get_conversation", conversation_id=conversation.id)
    assert (now["conversation"]["branch"], now["items"][0]["text"]) == (edited.branch, "Which train did we book?")
    before = await told(store, "get_conversation", conversation_id=conversation.id, branch=0)
    assert [item["position"] for item in before["items"]] == [0, 1]


async def test_usage_is_summed(store: AnyStore) -> None:
    await trip(store)
    await trip(store)
    [row] = (await told(store, "usage_report", by=["model", "day"]))["rows"]
    assert (row["model"], row["attempts"], row["total_tokens"]) == ("claude-sonnet-4-5", 2, 58)
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", row["day"])
    assert (await told(store, "usage_report"))["rows"][0]["input_tokens"] == 48


async def test_resources_are_the_newest_and_one_of_them(store: AnyStore) -> None:
    conversation = await trip(store)
    async with Client(mcp_server(store)) as client:
        [listed] = (await client.list_resources()).resources
        [newest] = (await client.read_resource(listed.uri)).contents
        [one] = (await client.read_resource(f"{listed.uri}/{conversation.id}")).contents
        with pytest.raises(MCPError, match="There is no conversation"):
            await client.read_resource(f"{listed.uri}/conv_01a1fdc8f056759fa5c4ad9e8502d54e")
    assert json.loads(newest.text)["conversations"][0]["conversation_id"] == conversation.id  # type: ignore[union-attr]
    assert len(json.loads(one.text)["items"]) == 2  # type: ignore[union-attr]


# Whose conversations


async def test_others_have_nothing(store: AnyStore) -> None:
    theirs, mine = await trip(store, user_id="ben"), await trip(store, user_id="ann")
    server = mcp_server(store.for_user("ann"))
    for tool, arguments in (("search_conversations", {"query": "river"}), ("list_conversations", {})):
        found = (await told(server, tool, **arguments))["conversations"]
        assert [one["conversation_id"] for one in found] == [mine.id]
    assert (await told(server, "usage_report", by=["user_id"]))["rows"][0]["attempts"] == 1
    item = (await told(store, "get_conversation", conversation_id=theirs.id))["items"][0]["item_id"]
    for tool, arguments in (
        ("get_conversation", {"conversation_id": theirs.id}),
        ("get_item", {"item_id": item, "conversation_id": theirs.id}),
    ):
        assert f"There is no conversation '{theirs.id}'" in await refused(store.for_user("ann"), tool, **arguments)


# How much


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
async def test_long_texts_are_read_in_pieces(store: Store, database: Database) -> None:
    text = "".join(f"{number} " for number in range(12_000))
    conversation = store.create_conversation(instructions="long " * 1_000, title="title" * 40)
    conversation.user(text)
    read = await told(store, "get_conversation", conversation_id=conversation.id)
    assert (len(read["items"][0]["text"]), read["items"][0]["characters"]) == (2_000, len(text))
    assert read["conversation"]["are_instructions_cut"]
    pieces, start = [], 0
    while start is not None:
        place = {"item_id": read["items"][0]["item_id"], "conversation_id": conversation.id, "from_character": start}
        item = (await told(store, "get_item", **place))["item"]
        pieces.append(item["text"])
        start = item.get("next_character")
    assert "".join(pieces) == text
    assert {len(piece) for piece in pieces[:-1]} == {20_000}


@settings(max_examples=6, deadline=None)
@given(st.lists(st.sampled_from([1, 1_000, 2_500, 30_000]), max_size=70), st.sampled_from([7, 30, 50]))
def test_reading_on_returns_every_item_once(lengths: list[int], limit: int) -> None:
    """… and no result has more characters than it may."""

    async def read_all(store: Store, id_: str) -> list[int]:
        positions: list[int] = []
        place: dict[str, Any] = {}
        async with Client(mcp_server(store)) as client:
            while place.get("after_position", 0) is not None:
                result = await client.call_tool("get_conversation", {"conversation_id": id_, "limit": limit, **place})
                page = result.structured_content or {}
                assert sum(len(item["text"]) for item in page["items"]) <= ROOM
                positions += [item["position"] for item in page["items"]]
                place = {"after_position": page["next_position"]}
        return positions

    with Store("sqlite://") as store:
        conversation = store.create_conversation()
        conversation.add_items([{"role": "user", "content": "x" * length} for length in lengths])
        assert asyncio.run(read_all(store, conversation.id)) == list(range(len(lengths)))


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
@pytest.mark.parametrize(("around", "limit"), [(0, 5), (30, 5), (59, 50), (30, 50), (30, 1)])
async def test_what_is_read_around_an_item_contains_it(store: Store, around: int, limit: int) -> None:
    conversation = store.create_conversation()
    conversation.add_items([{"role": "user", "content": "x" * 1_900} for _ in range(60)])
    read = await told(store, "get_conversation", conversation_id=conversation.id, around_position=around, limit=limit)
    positions = [item["position"] for item in read["items"]]
    assert around in positions
    assert positions == list(range(positions[0], positions[-1] + 1))
    assert len(positions) <= limit
    assert sum(len(item["text"]) for item in read["items"]) <= ROOM


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
async def test_nothing_is_invisible(store: Store) -> None:
    """Directions, characters of tags, and halves of characters, which JSON cannot have, are written out."""
    hidden = "before\u202e\U000e0041\x1b[31mafter 👩‍👧"
    conversation = store.create_conversation(title=hidden, labels={"a": hidden})
    conversation.user(f"{hidden}\ud800")
    conversation.add_item({"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"})
    read = await told(store, "get_conversation", conversation_id=conversation.id)
    said = r"before\u202e\U000e0041\x1b[31mafter 👩‍👧"
    assert [read["conversation"]["title"], read["conversation"]["labels"]["a"]] == [said] * 2
    assert read["items"][0]["text"] == rf"{said}\ud800"
    assert (read["items"][1]["name"], read["items"][1]["call_id"]) == ("f", "c1")


@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
async def test_media_are_named(store: Store) -> None:
    conversation = store.create_conversation()
    url = "data:image/png;base64," + "iVBORw0KGgo" * 4_000
    conversation.user([{"type": "input_image", "image_url": url}, {"type": "input_text", "text": "What is it?"}])
    [item] = (await told(store, "get_conversation", conversation_id=conversation.id))["items"]
    assert "What is it?" in item["text"]
    assert len(item["text"]) < 300


# What is refused


@pytest.mark.parametrize(
    ("tool", "arguments", "problem"),
    [
        ("search_conversations", {"query": "…"}, "no word to search for"),
        ("search_conversations", {"query": "a", "limit": 21}, "less than or equal to 20"),
        ("search_conversations", {"query": "a", "after": "x"}, "after is not the `next` of a page"),
        ("search_conversations", {}, "Field required"),
        ("list_conversations", {"status": "lost"}, "'active', 'archived' or 'any'"),
        ("get_conversation", {"conversation_id": "order-7"}, "'order-7' is not the id of a conversation"),
        ("get_conversation", {"conversation_id": "ID", "branch": 9}, "has no branch 9"),
        ("get_conversation", {"conversation_id": "ID", "around_position": 1, "after_position": 1}, "not both"),
        ("get_item", {"item_id": "msg_0", "conversation_id": "ID"}, "no item"),
        ("usage_report", {"by": ["colour"]}, "Input should be 'hour'"),
    ],
)
async def test_errors_say_what_is_wrong(store: AnyStore, tool: str, arguments: dict[str, Any], problem: str) -> None:
    conversation = await trip(store)
    given_ = {name: conversation.id if value == "ID" else value for name, value in arguments.items()}
    assert problem in await refused(store, tool, **given_)


def test_it_takes_a_store() -> None:
    with pytest.raises(InvalidOption, match="store"):
        mcp_server("sqlite://")  # type: ignore[arg-type]


# As a process of its own; tests/examples/test_mcp_notes.py starts one, too


@pytest.mark.slow
@pytest.mark.parametrize("database", ["sqlite"], indirect=True)
@pytest.mark.parametrize("face", ["sync"], indirect=True)
async def test_the_configuration_on_the_page_starts_it(store: Store, tmp_path: Path) -> None:
    """… with the database of this test, by a client that passes on nothing else of its environment."""
    url = f"sqlite:///{tmp_path}/chat.db"
    with Store(url) as kept:
        mine, theirs = await trip(kept, user_id="ann"), await trip(kept, user_id="ben")
    example = re.search(r"```json\n(.*?)```", PAGE.read_text(), re.DOTALL)
    assert example
    server = json.loads(example[1])["mcpServers"]["threadkeep"]
    assert (server["command"], list(server["env"])) == ("threadkeep", ["THREADKEEP_URL"])
    parameters = StdioServerParameters(
        command=sys.executable,
        args=["-m", "threadkeep", *server["args"]],
        env={"THREADKEEP_URL": url, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    log = tmp_path / "log"
    with log.open("w") as errors:
        async with Client(stdio_client(parameters, errors)) as client:
            result = await client.call_tool("list_conversations", {})
            missing = await client.call_tool("get_conversation", {"conversation_id": theirs.id})
    assert [one["conversation_id"] for one in (result.structured_content or {})["conversations"]] == [mine.id]
    assert missing.is_error
    assert log.read_text() == f"threadkeep: {url} for an MCP client on stdin\n"
