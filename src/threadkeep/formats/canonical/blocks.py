"""Blocks of other formats as items of OpenAI: tools that a provider runs itself, and media that a model makes.

* A search of the web, code that is run and an image are the items that OpenAI has for them; what another tool is given
  and what it finds is a call of an MCP server, which stands by itself, and which no client has to answer.
* The text that a block says is a message; a block that says none is a message without content.

Sources: the types of the anthropic, google-genai, botocore and openai packages.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps

_ROLES: Final = frozenset({"user", "system", "developer"})
MEDIA_TEXTS: Final = ("![image](", "[file", "[video](")  # how the text begins that stands for an image or a file
_MEDIA: Final = re.compile(
    r"(?:!\[image\]|\[video\]|\[file(?:: [^\]]*)?\])\((?P<url>(?:data:|https?://).+)\)", re.DOTALL
)
# tool of Messages -> the key of what it is given
_SEARCHES: Final = {"web_search": "query"}
_PAGES: Final = {"web_fetch": "url"}
_CODE: Final = {"code_execution": "code", "bash_code_execution": "command"}


def block_item(item: Mapping[str, Any]) -> JsonObject:
    """Return the item that stands for a block of another format."""
    payload, role, label = item.get("payload"), item.get("role"), str(item.get("format") or "")
    if role in _ROLES:
        return _message(role, text_in(payload) or json_text(payload))
    if not isinstance(payload, dict):
        return _message("assistant", payload if isinstance(payload, str) else "")
    for key in ("type", "part_kind"):
        kind = payload.get(key)
        if isinstance(kind, str) and (read := _BY_TYPE.get(kind) or _by_ending(kind)):
            return read(payload, label)
    for key, reader in _BY_KEY.items():
        if isinstance(value := payload.get(key), dict):
            return reader(value, label)
    return _message("assistant", text_in(payload))


def media_text(part: Mapping[str, Any]) -> str | None:
    """Return the text that stands for an image or a file in what a model says; None for other parts."""
    kind = part.get("type")
    if kind == "provider_item":
        return None if (made := made_medium(part)) is None else media_text(made)
    if kind in ("input_image", "computer_screenshot"):
        return f"{MEDIA_TEXTS[0]}{part.get('image_url') or part.get('file_id') or ''})"
    if kind == "input_video":
        return f"{MEDIA_TEXTS[2]}{next((one for key in ('video_url', 'file_id') if (one := part.get(key))), '')})"
    if kind != "input_file":
        return None
    named = f"{MEDIA_TEXTS[1]}: {part['filename']}" if isinstance(part.get("filename"), str) else MEDIA_TEXTS[1]
    sources = (part.get(key) for key in ("file_data", "file_url", "file_id"))
    return f"{named}]({next((one for one in sources if isinstance(one, str)), '')})"


def made_medium(block: Mapping[str, Any]) -> JsonObject | None:
    """Return the image or file that a model has made in a block of another format, as a part; None for other blocks."""
    payload = block.get("payload")
    blob = payload.get("inlineData") if isinstance(payload, dict) else None
    if not isinstance(blob, dict) or not isinstance(blob.get("data"), str):
        return None
    media_type = named(blob.get("mimeType")) or "application/octet-stream"
    key = "image_url" if media_type.startswith("image/") else "file_data"
    kind = "input_image" if key == "image_url" else "input_file"
    return {"type": kind, key: f"data:{media_type};base64,{blob['data']}"}


def media_of_text(text: str) -> JsonObject | None:
    """Return the image or file that a text stands for, as a part with its URL; None for other texts."""
    found = _MEDIA.fullmatch(text) if text.endswith(")") else None
    if found is None:
        return None
    url = found["url"]
    if text.startswith(MEDIA_TEXTS[0]):
        return {"type": "input_image", "image_url": url}
    if text.startswith(MEDIA_TEXTS[2]):
        return {"type": "input_video", "video_url": url}
    return {"type": "input_file", "file_data" if url.startswith("data:") else "file_url": url}


# What items are made of


def json_text(value: Any) -> str:
    """A text as it is, any other value as JSON."""
    return value if isinstance(value, str) else dumps(value).decode()


def text_in(value: Any) -> str:
    """Return the texts in a value, such as the parts of its content; "" if it has none."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        return "".join(map(text_in, value))
    if isinstance(value, dict):
        found = (value.get(key) for key in ("text", "content"))
        return next((text for one in found if (text := text_in(one))), "")
    return ""


def _message(role: str, text: str) -> JsonObject:
    kind = "output_text" if role == "assistant" else "input_text"
    return {"type": "message", "role": role, "content": [{"type": kind, "text": text}] if text else []}


def _call(name: Any, arguments: Any, label: Any) -> JsonObject:
    given = "{}" if arguments is None else json_text(arguments)
    return {"type": "mcp_call", "name": named(name), "arguments": given, "server_label": named(label)}


def _result(name: Any, content: Any, label: Any, *, is_error: bool = False) -> JsonObject:
    call = _call(name, None, label)
    if is_error:
        error = {"type": "mcp_tool_execution_error", "content": content}
        return {**call, "status": "failed", "error": error, "output": None}
    return {**call, "output": text_in(content) or json_text(content), "error": None}


def named(value: Any) -> str:
    """Return a text; "" for another value."""
    return value if isinstance(value, str) else ""


def _code(code: Any, logs: Any = None) -> JsonObject:
    outputs = None if logs is None else [{"type": "logs", "logs": json_text(logs)}]
    return {"type": "code_interpreter_call", "code": None if code is None else json_text(code), "outputs": outputs}


def _image(media_type: Any, data: Any) -> JsonObject:
    if isinstance(media_type, str) and media_type.startswith("image/"):
        return {"type": "image_generation_call", "result": named(data)}
    url = f"data:{named(media_type) or 'application/octet-stream'};base64,{named(data)}"
    return _message("assistant", media_text({"type": "input_file", "file_data": url}) or "")


# Blocks with a type: Messages, Interactions, Chat Completions, Pydantic AI


def _tool_use(block: JsonObject, label: str) -> JsonObject:
    name, given = named(block.get("name")), block.get("input")
    inner = given if isinstance(given, dict) else {}
    if name in _SEARCHES:
        query = named(inner.get(_SEARCHES[name]))
        return {"type": "web_search_call", "action": {"type": "search", "query": query, "queries": [query]}}
    if name in _PAGES:
        url = inner.get(_PAGES[name])
        return {"type": "web_search_call", "action": {"type": "open_page", "url": url if url is None else named(url)}}
    if name in _CODE:
        return _code(inner.get(_CODE[name], ""))
    return _call(name, given, block.get("server_name") or label)


def _tool_result(block: JsonObject, label: str) -> JsonObject:
    kind, content = str(block.get("type")), block.get("content")
    inner = content if isinstance(content, dict) else {}
    is_error = block.get("is_error") is True or str(inner.get("type")).endswith("_error")
    status = {"status": "failed"} if is_error else {}
    if kind == "web_search_tool_result":
        found = content if isinstance(content, list) else []
        urls = [one["url"] for one in found if isinstance(one, dict) and isinstance(one.get("url"), str)]
        sources = [{"type": "url", "url": url} for url in urls]
        return {"type": "web_search_call", "action": {"type": "search", "query": "", "sources": sources}, **status}
    if kind == "web_fetch_tool_result":
        url = inner.get("url")
        action = {"type": "open_page", "url": url if isinstance(url, str) else None}
        return {"type": "web_search_call", "action": action, **status}
    if kind in ("code_execution_tool_result", "bash_code_execution_tool_result"):
        logs = [inner[key] for key in ("stdout", "stderr", "error_code") if isinstance(inner.get(key), str)]
        return _code(None, "".join(logs)) | status
    return _result(kind.removesuffix("_result"), content, label, is_error=is_error)


def _step_call(step: JsonObject, label: str) -> JsonObject:
    """A call of a tool that Google's Interactions API runs."""
    name, given = step["type"].removesuffix("_call"), step.get("arguments")
    inner = given if isinstance(given, dict) else {}
    if name == "google_search":
        queries = inner.get("queries")
        queries = [one for one in queries if isinstance(one, str)] if isinstance(queries, list) else []
        action = {"type": "search", "query": "".join(queries[:1]), "queries": queries}
        return {"type": "web_search_call", "action": action}
    if name == "code_execution":
        return _code(inner.get("code") or "")
    return _call(step.get("name") or name, given, step.get("server_name") or label)


def _step_result(step: JsonObject, label: str) -> JsonObject:
    name, result, has_failed = step["type"].removesuffix("_result"), step.get("result"), step.get("is_error") is True
    status = {"status": "failed"} if has_failed else {}
    if name == "google_search":
        return {"type": "web_search_call", "action": {"type": "search", "query": "", "sources": []}, **status}
    if name == "code_execution":
        return _code(None, text_in(result)) | status
    return _result(step.get("name") or name, result, step.get("server_name") or label, is_error=has_failed)


def _tool_listing(block: JsonObject, label: str) -> JsonObject:
    given = block.get("tools")
    tools = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
    listed = [
        {
            "name": named(tool.get("name")),
            "input_schema": tool.get("input_schema") or {},
            "description": named(tool.get("description")),
        }
        for tool in tools
    ]
    return {"type": "mcp_list_tools", "server_label": named(block.get("mcp_server_name")) or label, "tools": listed}


def _custom_call(call: JsonObject, label: str) -> JsonObject:
    custom = call.get("custom")
    if not isinstance(custom, dict):
        return _call(None, call, label)
    called = {"name": named(custom.get("name")), "input": json_text(custom.get("input") or "")}
    return {"type": "custom_tool_call", "call_id": named(call.get("id")), **called}


def _compaction(block: JsonObject, _label: str) -> JsonObject:
    return {"type": "compaction", "encrypted_content": named(block.get("encrypted_content"))}


def _by_ending(kind: str) -> Callable[[JsonObject, str], JsonObject] | None:
    return next((read for ending, read in _BY_ENDING.items() if kind.endswith(ending)), None)


_BY_TYPE: Final[Mapping[str, Callable[[JsonObject, str], JsonObject]]] = {
    **dict.fromkeys(("server_tool_use", "mcp_tool_use", "tool_use"), _tool_use),
    "mcp_tool_listing": _tool_listing,
    "custom": _custom_call,
    "compaction": _compaction,
    "builtin-tool-call": lambda part, label: _call(part.get("tool_name"), part.get("args"), label),
    "builtin-tool-return": lambda part, label: _result(part.get("tool_name"), part.get("content"), label),
}
_BY_ENDING: Final[Mapping[str, Callable[[JsonObject, str], JsonObject]]] = {
    "mcp_server_tool_result": _step_result,
    "_tool_result": _tool_result,
    "_call": _step_call,
    "_result": _step_result,
}
# Blocks that are named by their key: Gemini, Converse
_BY_KEY: Final[Mapping[str, Callable[[JsonObject, str], JsonObject]]] = {
    "toolUse": lambda use, label: _call(use.get("name"), use.get("input"), label),
    "toolResult": lambda result, label: _result(
        named(result.get("type")).removesuffix("_result"),
        result.get("content"),
        label,
        is_error=result.get("status") == "error",
    ),
    "toolCall": lambda call, label: _call(call.get("toolType"), call.get("args"), label),
    "toolResponse": lambda call, label: _result(call.get("toolType"), call.get("response"), label),
    "functionCall": lambda call, label: _call(call.get("name"), call.get("args"), label),
    "functionResponse": lambda call, label: _result(call.get("name"), call.get("response"), label),
    "executableCode": lambda code, _: _code(code.get("code") or ""),
    "codeExecutionResult": lambda result, _: _code(None, result.get("output") or ""),
    "inlineData": lambda blob, _: _image(blob.get("mimeType"), blob.get("data")),
    "fileData": lambda file, _: _message(
        "assistant", media_text({"type": "input_file", "file_url": file.get("fileUri")}) or ""
    ),
    **dict.fromkeys(
        ("citationsContent", "guardContent", "searchResult"), lambda block, _: _message("assistant", text_in(block))
    ),
}
