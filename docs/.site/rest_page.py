"""Generates the page REST operations from the OpenAPI document and from answers to real requests; see ``make docs``."""

from __future__ import annotations

import asyncio
import json
import re
import sys
from collections.abc import AsyncGenerator, Iterator, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any, Final

import httpx2

from threadkeep import AsyncStore
from threadkeep.http import Owner, Upstream, rest_app
from threadkeep.server.rest.application import openapi_text

_INTRODUCTION: Final = """# REST operations

Every operation of the [REST API](rest.md), with its parameters, its body and an example. Paths begin with `/api`; keys
need the named [scope](server-keys.md). What is required is marked with `*`. `make docs` generates this page from the
OpenAPI document (`/api/openapi.json`) and from the answers of a running application, in which ids and times are
replaced.
"""
_EVENTS: Final = "text/event-stream"
_WIDTH: Final = 110  # of an object that stands in one line
_CUT: Final = 200  # characters of a line of a stream
_AT, _DAY = 1_774_000_000, 86_400
_PIXEL: Final = bytes.fromhex("89504e470d0a1a0a")
_LOOK: Final = {"type": "function", "name": "look", "parameters": {"type": "object", "properties": {}}}

Document = Mapping[str, Any]


@dataclass(slots=True)
class Example:
    """A request and its answer, as texts."""

    request: str
    status: int
    answer: str


@dataclass(slots=True)
class Session:
    """Requests to an application, the first of each operation kept as its example."""

    client: httpx2.AsyncClient
    examples: dict[tuple[str, str], Example] = field(default_factory=dict)

    async def ask(
        self, method: str, path: str, body: Any = None, query: str = "", content: bytes | None = None, **names: Any
    ) -> Any:
        """Send a request; return the answer's JSON, if it is some."""
        url = path.format(**names) + query
        headers = {} if content is None else {"Content-Type": "image/png"}
        answer = await self.client.request(method, url, json=body, content=content, headers=headers)
        answer.raise_for_status()
        kind = answer.headers.get("Content-Type", "")
        is_json = kind.startswith("application/json")
        sent = "" if body is None else f"\n\n{_shown(body)}"
        if content is not None:
            sent = "\nContent-Type: image/png\n\n(the bytes of the file)"
        said = _shown(answer.json()) if is_json else answer.text if kind.startswith(_EVENTS) else ""
        example = Example(f"{method} {url}{sent}", answer.status_code, said)
        self.examples.setdefault((method.lower(), path), example)
        return answer.json() if is_json else None


def _shown(value: Any, indent: str = "") -> str:
    """JSON in lines that are filled, with a line of its own for what is longer."""
    text = json.dumps(value, ensure_ascii=False)
    if len(indent) + len(text) <= _WIDTH or not isinstance(value, dict | list) or not value:
        return text
    inner = f"{indent}  "
    if is_list := isinstance(value, list):
        members = [_shown(one, inner) for one in value]
    else:
        members = [f"{json.dumps(name)}: {_shown(one, inner)}" for name, one in value.items()]
    lines: list[str] = []
    for member in members:
        is_short = bool(lines) and "\n" not in lines[-1] + member
        if is_short and len(indent) + len(lines[-1]) + len(member) < _WIDTH:
            lines[-1] += f", {member}"
        else:
            lines.append(member)
    opening, closing = "[]" if is_list else "{}"
    return f"{opening}\n{inner}" + f",\n{inner}".join(lines) + f"\n{indent}{closing}"


async def _model(payload: dict[str, Any], model: str) -> AsyncGenerator[Any, None]:
    """A provider of Chat Completions, which calls its function twice before it answers."""
    delta: dict[str, Any] = {"content": "At ten."}
    if payload.get("tools") and payload["messages"][-1]["role"] != "tool":
        call = {"type": "function", "function": {"name": "look", "arguments": "{}"}}
        delta = {"tool_calls": [{"index": number, "id": f"call_{number + 1}", **call} for number in range(2)]}
    chunk = {"id": "chatcmpl_1", "model": model}
    usage = {"prompt_tokens": 20, "completion_tokens": 5, "total_tokens": 25}
    yield {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", **delta}}]}
    yield {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "stop"}], "usage": usage}


async def _examples() -> dict[tuple[str, str], Example]:
    """What a user does, with each operation once or more."""
    async with AsyncStore("sqlite://") as store:
        app = rest_app(
            store,
            auth=lambda _request: Owner(user_id="ann"),
            upstreams={"*": Upstream("local", "chat_completion", _model)},
        )
        transport = httpx2.ASGITransport(app=app)
        async with httpx2.AsyncClient(transport=transport, base_url="http://chat.example/api") as client:
            session = Session(client)
            for use in (_conversations, _tools, _chats, _threads, _rest):
                await use(session)
    return session.examples


async def _conversations(session: Session) -> None:
    ask, one = session.ask, "/conversations/{conversation_id}"
    item = f"{one}/messages/{{item_id}}"
    body = {"model": "llama-4", "title": "Trains", "labels": {"desk": "north"}}
    names = {"conversation_id": (await ask("POST", "/conversations", body))["id"]}
    turn = await ask("POST", f"{one}/messages", {"content": "When does it go?"}, **names)
    said = {**names, "item_id": turn["message"]["id"]}
    answer = {**names, "item_id": turn["response"]["output"][0]["id"]}
    await ask("GET", "/conversations", query="?labels[desk]=north&limit=1")
    await ask("GET", one, **names)
    await ask("PATCH", one, {"title": "Night trains"}, **names)
    await ask("GET", f"{one}/messages", query="?order=asc&limit=1", **names)
    await ask("GET", item, **said)
    await ask("PUT", f"{item}/feedback", {"rating": 1, "comment": "Good"}, **answer)
    await ask("PUT", f"{item}/labels", {"labels": {"topic": "trains"}}, **answer)
    await ask("PUT", f"{one}/seen", {}, **names)
    state = {**names, "name": "draft"}
    await ask("PUT", f"{one}/states/{{name}}", {"value": {"text": "And then?"}, "expected_version": 0}, **state)
    await ask("GET", f"{one}/states", **names)
    await ask("GET", f"{one}/states/{{name}}", **state)
    await ask("DELETE", f"{one}/states/{{name}}", **state)
    await ask("POST", f"{item}/edit", {"content": "When does it go tomorrow?"}, **said)
    await ask("GET", f"{item}/siblings", query="?branch=0", **said)
    await ask("POST", f"{one}/regenerate", {}, **names)
    await ask("POST", f"{one}/branches", {"at": said["item_id"]}, query="?branch=0", **names)
    await ask("GET", f"{one}/branches", query="?limit=1", **names)
    await ask("PUT", f"{one}/active_branch", {"branch": 0}, **names)
    response = {"response_id": turn["response"]["id"]}
    await ask("GET", "/responses/{response_id}", **response)
    await ask("GET", "/responses/{response_id}/events", **response)
    await ask("POST", "/responses/{response_id}/cancel", **response)
    await ask("DELETE", "/responses/{response_id}", **response)
    await ask("GET", "/search", query="?q=tomorrow")
    await ask("GET", "/usage", query="?by=model")
    await ask("POST", f"{item}/redact", **answer)
    await ask("DELETE", item, **answer)
    await ask("DELETE", one, **names)


async def _tools(session: Session) -> None:
    ask, one = session.ask, "/conversations/{conversation_id}"
    names = {"conversation_id": (await ask("POST", "/conversations", {"model": "llama-4", "tools": [_LOOK]}))["id"]}
    await ask("POST", f"{one}/messages", {"content": "When does it go?"}, **names)
    await ask("GET", f"{one}/tool_calls", **names)
    await ask("POST", f"{one}/tool_calls/{{call_id}}/approve", call_id="call_1", **names)
    await ask("POST", f"{one}/tool_calls/{{call_id}}/deny", {"reason": "Once is enough."}, call_id="call_2", **names)
    outputs = {"tool_outputs": [{"call_id": "call_1", "output": "At ten."}]}
    await ask("POST", f"{one}/tool_outputs", outputs, **names)


async def _chats(session: Session) -> None:
    said = {"id": "m1", "role": "user", "parts": [{"type": "text", "text": "When does it go?"}]}
    await session.ask("POST", "/chat", {"id": "kiel", "model": "llama-4", "messages": [said]})
    await session.ask("GET", "/chat/{chat_id}", chat_id="kiel")
    await session.ask("GET", "/chat/{chat_id}/stream", chat_id="kiel")
    await session.ask("POST", "/chat/{chat_id}/stop", chat_id="kiel")


async def _threads(session: Session) -> None:
    said = {"id": "m2", "role": "user", "content": "When does it go?"}
    run = {"threadId": "rome", "runId": "run-1", "messages": [said], "forwardedProps": {"model": "llama-4"}}
    await session.ask("POST", "/ag-ui", {**run, "tools": [], "context": [], "state": {}})
    await session.ask("GET", "/ag-ui/{thread_id}", thread_id="rome")
    await session.ask("GET", "/ag-ui/{thread_id}/stream", thread_id="rome")
    await session.ask("POST", "/ag-ui/{thread_id}/stop", thread_id="rome")


async def _rest(session: Session) -> None:
    made = await session.ask("POST", "/media", content=_PIXEL)
    await session.ask("GET", "/media/{hash}", hash=made["id"].removeprefix("threadkeep-media:"))
    await session.ask("DELETE", "/users/{user_id}", user_id="ann")


# The page


def page() -> str:
    """Return the page in Markdown."""
    document = json.loads(openapi_text())
    examples = asyncio.run(_examples())
    operations = [(verb, path, one) for path, all_of in document["paths"].items() for verb, one in all_of.items()]
    schemas = document["components"]["schemas"]
    named: list[str] = []
    sections = [_section(verb, path, one, schemas, examples[verb, path], named) for verb, path, one in operations]
    index = [
        f"| [{verb.upper()} {path}](#{_anchor(verb, path)}) | {_sentence(one)} |" for verb, path, one in operations
    ]
    parts = [f"## {name}\n\n{schemas[name]['description']}\n\n{_keys(schemas[name], named)}" for name in named]
    text = "\n".join([_INTRODUCTION, "| Operation | |", "| --- | --- |", *index, "", *sections, *parts])
    return _replaced(text.rstrip()) + "\n"


def _anchor(verb: str, path: str) -> str:
    return f"{verb}-{re.sub(r'[^a-z_-]', '', path.lower())}"


def _sentence(operation: Document) -> str:
    """The first sentence of what is said of an operation."""
    return str(operation["description"]).split("\n\n")[0].replace("\n", " ")


def _section(
    verb: str, path: str, operation: Document, schemas: Document, example: Example, named: list[str]
) -> str:  # fmt: skip
    [scopes] = [one["key"] for one in operation["security"]]
    lines = [f"## {verb.upper()} {path}", "", operation["description"].strip(), "", f"Scope: {', '.join(scopes)}.", ""]
    if parameters := [one for one in operation.get("parameters", ()) if one["in"] != "path"]:
        lines += ["| Parameter | Type | |", "| --- | --- | --- |"]
        lines += [
            _row(one["name"], one["schema"], one.get("description", ""), one.get("required"), named)
            for one in parameters
        ]
        lines.append("")
    for content in operation.get("requestBody", {}).get("content", {}).values():
        if "$ref" in content["schema"]:
            lines += [_keys(schemas[_name(content["schema"])], named)]
    answer = "" if example.answer == "" else f"\n\n{_cut(example.answer)}"
    return "\n".join([*lines, f"```text\n{example.request}\n\n{example.status}{answer}\n```\n"])


def _keys(schema: Document, named: list[str]) -> str:
    """A table of the keys of an object."""
    required, members = schema.get("required", ()), schema.get("properties", {})
    rows = [_row(name, one, one.get("description", ""), name in required, named) for name, one in members.items()]
    return "\n".join(["| Key | Type | |", "| --- | --- | --- |", *rows, ""])


def _row(name: str, schema: Document, text: str, required: Any, named: list[str]) -> str:
    shown = text.replace("\n", " ").replace("|", "\\|")
    return f"| `{name}`{'*' if required else ''} | {' or '.join(_types(schema, named))} | {shown} |"


def _types(schema: Document, named: list[str]) -> Iterator[str]:
    """The types of a value, with a link for each object that has a table; `named` gets their names."""
    for one in schema.get("anyOf") or schema.get("oneOf") or [schema]:
        if "$ref" in one:
            name = _name(one)
            if name not in named:
                named.append(name)
            yield f"[{name}](#{name.lower()})"
        elif "enum" in one or "const" in one:
            yield ", ".join(f"`{value}`" for value in one.get("enum", [one.get("const")]))
        elif one.get("type") == "array":
            yield f"list of {' or '.join(_types(one.get('items', {}), named))}"
        else:
            yield one.get("type", "any JSON")


def _name(schema: Document) -> str:
    return str(schema["$ref"]).rpartition("/")[2]


def _cut(text: str) -> str:
    """An answer without long lines of a stream to their end."""
    lines = text.strip().splitlines()
    return "\n".join(line if len(line) <= _CUT else f"{line[:_CUT]} \N{HORIZONTAL ELLIPSIS}" for line in lines)


def _replaced(text: str) -> str:
    """The text with ids and times that are the same in each run."""
    known: dict[str, str] = {}

    def of_run(match: re.Match[str]) -> str:
        return match[1] + known.setdefault(match[2], sha256(str(len(known)).encode()).hexdigest()[:32])

    text = re.sub(r"\b(conv_|[a-z]+_)([0-9a-f]{32})", of_run, text)
    return re.sub(r'("\w+_at": ?)\d{10}', lambda match: f"{match[1]}{_AT + _DAY * ('expires' in match[1])}", text)


if __name__ == "__main__":
    sys.stdout.write(page())
