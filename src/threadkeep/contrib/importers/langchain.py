"""LangChain: tables of messages, a row for each, as `SQLChatMessageHistory` and langchain-postgres write them.

Sources: the tables' columns `session_id` and `message` (and `created_at` in langchain-postgres), and langchain-core,
whose `message_to_dict` the messages are made with. The table is `message_store`, unless the application has named it.

* Texts, images and files of people are parts of a message; the parts of a model's message that are no text are
  reasoning, or reported.
* Calls of tools are taken from `tool_calls`, which LangChain fills for every provider, and not from blocks of content.
* LangChain.js keeps the items of a response of OpenAI beside its blocks, which it joins across messages in a stream:
  what is no call of a tool is taken from these items.
* `input_tokens` of `usage_metadata` includes what a cache had, as in the Responses API.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any, Final

from threadkeep.contrib.importers import items as make
from threadkeep.contrib.importers.databases import Database, SessionTables, json_of
from threadkeep.contrib.importers.items import Say, last_model, list_of, object_of, revision_of, text_of, time_of
from threadkeep.contrib.importers.records import Answer, Draft, Entry, Transcript
from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared.pairing import CLIENT_CALLS


class LangChain(SessionTables):
    """Tables of messages of LangChain."""

    name = "langchain"
    table = "message_store"
    column = "message"

    def session(
        self, _database: Database, _table: str, _session: str, name: str, where: str, rows: Iterable[JsonObject]
    ) -> Transcript:
        """Return the conversation of a session."""
        entries: list[Entry] = []
        draft = Draft(where)
        for row in rows:
            stored = json_of(row["message"])
            if not isinstance(stored, dict):
                draft.skip("it is not a message of LangChain", row["id"])
                continue
            items = items_of(stored, partial(draft.skip, place=row["id"]))
            answer = answer_of(stored) if kind_of(stored) == "ai" else None
            parent, at = entries[-1].id if entries else None, time_of(row, "created_at")
            entries.append(Entry(str(row["id"]), parent, items, at, answer, revision_of(stored)))
        begun = entries[0].created_at if entries else None
        model = last_model(entry.answer for entry in entries)
        return Transcript(name, where, entries, model=model, created_at=begun, skipped=draft.skipped)


# types of blocks that say nothing which is not told elsewhere
ASIDE: Final = frozenset({
    "tool_use", "function_call", "functionCall", "tool_call", "tool_call_chunk", "invalid_tool_call",
    "input_json_delta", "custom_tool_call",
})  # fmt: skip
REASONING: Final = frozenset({"reasoning", "thinking", "reasoning_content"})
NAMES: Final = {"human": "user", "ai": "assistant", "system": "system", "developer": "developer"}


def kind_of(stored: Any) -> str:
    """The type of a message, also of one that was put together from chunks: human, ai, system, tool, function, chat."""
    kind = text_of(stored, "type") or ""
    return kind.removesuffix("MessageChunk").lower()


def items_of(stored: Any, say: Say) -> list[JsonObject]:
    """The items of a message as it is stored; what is not imported of it is reported."""
    kind, data = kind_of(stored), object_of(stored, "data") or stored
    read = READERS.get(kind)
    if read is None:
        say(f"a message of the type {kind or None!r} is no part of a conversation")
        return []
    return read(kind, data, say)


def answer_of(stored: Any) -> Answer:
    """The response that a message of a model was."""
    data = object_of(stored, "data") or stored
    about = object_of(data, "response_metadata")
    return Answer(
        format="chat_completion" if _usage(data) is None and _token_usage(about) else "open_responses",
        id=text_of(about, "id") or text_of(data, "id"),
        model=next((name for key in ("model_name", "model", "model_id") if (name := text_of(about, key))), None)
        or text_of(object_of(data, "additional_kwargs"), "model"),
        provider=text_of(about, "model_provider"),
        usage=_usage(data) or _token_usage(about),
        finish_reason=text_of(about, "finish_reason") or text_of(about, "stop_reason"),
    )


def _usage(data: Any) -> JsonObject | None:
    given = object_of(data, "usage_metadata") or object_of(object_of(data, "response_metadata"), "usageMetadata")
    if not given:
        return None
    put, out = object_of(given, "input_token_details"), object_of(given, "output_token_details")
    return {name: given.get(name) for name in ("input_tokens", "output_tokens", "total_tokens")} | {
        "input_tokens_details": {
            "cached_tokens": put.get("cache_read"),
            "cache_write_tokens": put.get("cache_creation"),
        },
        "output_tokens_details": {"reasoning_tokens": out.get("reasoning")},
    }


def _token_usage(about: Any) -> JsonObject | None:
    """What older releases kept of Chat Completions."""
    return object_of(about, "token_usage") or None


def _message(kind: str, data: Any, say: Say) -> list[JsonObject]:
    role = NAMES.get(kind) or text_of(data, "role") or "user"
    content = data.get("content")
    if not isinstance(content, list):
        return [{"type": "message", "role": role, "content": content}] if isinstance(content, str) and content else []
    return make.message(role, (part for block in content if (part := _part(block, say)) is not None))


def _part(block: Any, say: Say) -> JsonObject | None:
    """A part of what a person said."""
    if isinstance(block, str):
        return {"type": "input_text", "text": block}
    kind = text_of(block, "type")
    if kind == "text":
        return {"type": "input_text", "text": block.get("text")}
    url, media_type = _url_of(block), text_of(block, "mime_type") or text_of(object_of(block, "source"), "media_type")
    if kind in {"image", "image_url", "input_image"} and url is not None:
        return {"type": "input_image", "image_url": url}
    if kind in {"file", "document", "input_file", "text-plain"} and url is not None:
        name = text_of(block, "filename") or text_of(object_of(block, "metadata"), "filename")
        where = "file_data" if url.startswith("data:") else "file_url"
        return {"type": "input_file", where: url} | ({"filename": name} if name else {})
    say(f"a part of the type {kind!r}{f' ({media_type})' if media_type else ''} is not imported")
    return None


def _url_of(block: Any) -> str | None:
    """Where a picture or file is, in the spellings of LangChain's releases and of providers; bytes as a data URL."""
    source = object_of(block, "source") or object_of(block, "file") or block
    if isinstance(image := source.get("image_url"), dict):
        source = image
    elif isinstance(image, str):
        return image
    for key in ("url", "file_url", "file_data"):
        if (found := text_of(source, key)) is not None:
            return found
    data = text_of(source, "base64") or text_of(source, "data")
    media_type = text_of(source, "mime_type") or text_of(source, "media_type") or "application/octet-stream"
    return None if data is None else f"data:{media_type};base64,{data}"


def _answer(_: str, data: Any, say: Say) -> list[JsonObject]:
    items: list[JsonObject] = []
    additional, content = object_of(data, "additional_kwargs"), data.get("content")
    about = object_of(data, "response_metadata")
    output = list_of(about, "output") if about.get("object") == "response" else []
    if own := [item for item in output if isinstance(item, dict) and text_of(item, "type") not in CLIENT_CALLS]:
        return own + _calls(data, additional)
    if (thought := text_of(additional, "reasoning_content")) is not None:
        items.append(make.reasoning(thought))
    blocks = [content] if isinstance(content, str) else list_of(data, "content")
    kept = object_of(additional, "reasoning")  # of the Responses API, where content has none
    if kept and not any(text_of(block, "type") in REASONING for block in blocks):
        blocks = [kept, *blocks]
    for block in [*blocks, *list_of(additional, "tool_outputs")]:
        _add_block(items, {"type": "text", "text": block} if isinstance(block, str) else block, say)
    if (refusal := text_of(additional, "refusal")) is not None:
        items += make.message("assistant", [{"type": "refusal", "refusal": refusal}])
    return items + _calls(data, additional)


def _add_block(items: list[JsonObject], block: Any, say: Say) -> None:
    """Add what a block of a model's content says to the last message, or as an item of its own."""
    kind = text_of(block, "type")
    if kind in REASONING or (isinstance(block, dict) and block.get("thought") is True):
        items.extend([make.reasoning(thought)] if (thought := _thought(block)) else [])
    elif kind in {"text", "output_text"}:
        if said := text_of(block, "text"):
            make.extend(items, "assistant", make.text_part(said, "assistant"))
    elif kind not in ASIDE:
        say(f"a part of the type {kind!r} is not imported")


def _thought(block: Any) -> str:
    """What a block of reasoning says: in a text, in pieces of one, or in paragraphs."""
    if whole := next((text for key in ("reasoning", "thinking", "text") if (text := text_of(block, key))), ""):
        return whole
    pieces = [text_of(part, "text") for part in list_of(block, "thinking")]
    parts = [text_of(part, "text") for part in [*list_of(block, "summary"), *list_of(block, "content")]]
    return "".join(filter(None, pieces)) or "\n".join(filter(None, parts))


def _calls(data: Any, additional: JsonObject) -> list[JsonObject]:
    """Calls of tools, those whose arguments are no JSON included; or one of a function, as they once were called.

    What has no name is the input of a provider's own tool that was streamed.
    """
    calls = [one for key in ("tool_calls", "invalid_tool_calls") for one in list_of(data, key)]
    found = [make.call(name, one.get("args"), text_of(one, "id")) for one in calls if (name := text_of(one, "name"))]
    function = object_of(additional, "function_call")
    if not found and (name := text_of(function, "name")) is not None:
        found = [make.call(name, function.get("arguments"))]
    return found


def _output(_: str, data: Any, say: Say) -> list[JsonObject]:
    """The result of a call; a function has no id, so its name makes one."""
    content = data.get("content")
    if isinstance(content, list):
        content = [part for block in content if (part := _part(block, say)) is not None]
    call_id = text_of(data, "tool_call_id") or text_of(data, "name") or ""
    return [make.output(call_id, content)]


# type of a message -> what reads it
READERS: Final[Mapping[str, Callable[[str, Any, Say], list[JsonObject]]]] = {
    **dict.fromkeys(("human", "system", "developer", "chat"), _message), "ai": _answer,
    **dict.fromkeys(("tool", "function"), _output),
}  # fmt: skip
