"""How requests spell what Chat Completions lets them say in several ways, so that each goes back as it came.

What a request does throughout stands in `ImportInfo.spelling`:

* `content`: lone texts are strings (``"string"``), in what is appended later, too.
* `instructions`: the leading system message is a list (``"list"``).
* `max_output_tokens`, `tool_choice`, `tools`: the older or other name that it used.
* `order`: tool messages stand elsewhere than directly behind their calls (``"kept"``).

What one message or part does differently is its own `spelling`. Of items: `content` (one of the words below), `index`
of a call, `type` and `arguments` of a call that lacks them, `audio` that is sent whole, `call` (a block that is a
call), `whole` (a block that is a whole message), `keys` that are empty. Of parts: one word.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeGuard

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.chat_completion.fields import NAME

# of a request
ANY: Final = "any"
FUNCTIONS: Final = "functions"
KEPT: Final = "kept"
MAX_TOKENS: Final = "max_tokens"
UNTYPED: Final = "untyped"
# of content that is a lone text
STRING: Final = "string"
LIST: Final = "list"
# of empty content
ABSENT: Final = "absent"
NULL: Final = "null"
EMPTY: Final = "empty"
EMPTY_LIST: Final = "empty list"
# of parts
BARE: Final = "bare"  # a text that is a string in the list
KEY: Final = "key"  # a refusal in a key next to the content
PART: Final = "part"  # a refusal in it
FILE: Final = "file"  # a sound that is a file part
DOCUMENT: Final = "document_url"


def item_spelling(item: JsonObject, entry: Entry) -> JsonObject:
    """How the message spelled things that an item came in."""
    spelling = item.get("spelling")
    return spelling if isinstance(spelling, dict) and entry.origin == NAME else {}


def is_lone_text(content: Any) -> TypeGuard[list[JsonObject]]:
    """Whether content is a list of one text and nothing else."""
    return isinstance(content, list) and len(content) == 1 and _is_plain(content[0])


def _is_plain(part: Any) -> bool:
    return isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"


def as_one_text(content: Any) -> Any:
    """Several texts as one, line by line, for vendors that take only strings; other content stays."""
    if not isinstance(content, list) or len(content) < 2 or not all(map(_is_plain, content)):  # noqa: PLR2004 - one is one
        return content
    return [{"type": "text", "text": "\n".join(part["text"] for part in content)}]


def spelled(content: list[Any], spelling: JsonObject, *, as_string: bool) -> list[Any] | str:
    """Content as a string where it was one, or where this request has lone texts as strings."""
    word = spelling.get("content")
    if (word == STRING or (as_string and word != LIST)) and is_lone_text(content):
        text: str = content[0]["text"]
        return text
    return content


def spell_nothing(message: JsonObject, spelling: JsonObject) -> None:
    """Give an empty tool message its content as it was."""
    word = spelling.get("content")
    if message["content"] or word not in (ABSENT, NULL, EMPTY_LIST):
        return
    message["content"] = [] if word == EMPTY_LIST else None
    if word == ABSENT:
        del message["content"]


def spell_body(body: JsonObject, spelling: JsonObject) -> JsonObject:
    """A request under the names that the imported one used."""
    if spelling.get("max_output_tokens") == MAX_TOKENS and "max_completion_tokens" in body:
        body["max_tokens"] = body.pop("max_completion_tokens")
    if spelling.get("tool_choice") == ANY and body.get("tool_choice") == "required":
        body["tool_choice"] = ANY
    tools = body.get("tools") or ()
    if spelling.get("tools") == UNTYPED:
        body["tools"] = [_untyped(tool) for tool in tools]
    elif spelling.get("tools") == FUNCTIONS and tools:
        return _with_functions(body, tools)
    return body


def _with_functions(body: JsonObject, tools: Sequence[Any]) -> JsonObject:
    """A request with its tools as `functions`, where all of them are plain functions."""
    if all(isinstance(tool, dict) and tool.keys() == {"type", "function"} for tool in tools):
        body["functions"] = [tool["function"] for tool in body.pop("tools")]
        if (choice := body.pop("tool_choice", None)) is not None:
            body["function_call"] = choice["function"] if isinstance(choice, dict) else choice
    return body


def is_function(tool: Any) -> bool:
    """Whether a tool on the wire is a function, with or without its type."""
    return isinstance(tool, dict) and isinstance(tool.get("function"), dict)


def _untyped(tool: Any) -> Any:
    return {key: value for key, value in tool.items() if key != "type"} if is_function(tool) else tool
