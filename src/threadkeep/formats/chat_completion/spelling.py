"""How requests spell what Chat Completions lets them say in several ways, so that each goes back as it came.

What a request does throughout stands in `Imported.spelling`:

* `content`: lone texts are strings (``"string"``), in what is appended later, too.
* `instructions`: the leading system message is a list (``"list"``).
* `max_output_tokens`, `tool_choice`, `tools`: the older or other name that it used.
* `order`: tool messages stand elsewhere than directly behind their calls (``"kept"``).

What one message or part does differently is its own `spelling`. Of items: `content` (one of the words below), `index`
of a call, `type` and `arguments` of a call that lacks them, `audio` that is sent whole, `call` (a block that is a
call), `whole` (a block that is a whole message), `keys` that say nothing. Of parts: one word.
"""

from __future__ import annotations

from typing import Any, Final, TypeGuard

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.wire import Entry, Snapshot
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
# of content that says nothing
ABSENT: Final = "absent"
NULL: Final = "null"
EMPTY: Final = "empty"
EMPTY_LIST: Final = "empty list"
# keys that let an assistant message go without content
SAYS_SOMETHING: Final = ("tool_calls", "function_call", "refusal", "audio")


def request_spelling(snapshot: Snapshot) -> JsonObject:
    """How the request spelled things that the conversation began as."""
    imported = snapshot.imported
    return imported.spelling if imported is not None and imported.format == NAME else {}


def instructions_message(snapshot: Snapshot, *, as_list: bool = False) -> list[JsonObject]:
    """The message that the instructions are; none when there are none."""
    instructions = snapshot.settings.get("instructions")
    if instructions is None:
        return []
    is_list = as_list or request_spelling(snapshot).get("instructions") == LIST
    return [{"role": "system", "content": [{"type": "text", "text": instructions}] if is_list else instructions}]


def item_spelling(item: JsonObject, entry: Entry) -> JsonObject:
    """How the message spelled things that an item came in."""
    found = item.get("spelling")
    return found if isinstance(found, dict) and entry.origin == NAME else {}


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


def spell_assistant(message: JsonObject, spelling: JsonObject, *, as_string: bool) -> None:
    """Give an assistant message its content as it was, and keys that say nothing.

    A message that says nothing at all gets an empty text.
    """
    if isinstance(keys := spelling.get("keys"), dict):
        message.update(keys)
    content = message["content"]
    if content:
        message["content"] = spelled(content, spelling, as_string=as_string)
        return
    word = spelling.get("content")
    if word == ABSENT:
        del message["content"]
    elif word == EMPTY_LIST:
        message["content"] = []
    elif word == EMPTY or not (word == NULL or any(message.get(key) for key in SAYS_SOMETHING)):
        message["content"] = ""


def spell_nothing(message: JsonObject, spelling: JsonObject) -> None:
    """Give a tool message that says nothing its content as it was."""
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
    is_all = all(isinstance(tool, dict) and tool.keys() == {"type", "function"} for tool in tools)
    if spelling.get("tools") == UNTYPED:
        body["tools"] = [_untyped(tool) for tool in tools]
    elif spelling.get("tools") == FUNCTIONS and tools and is_all:
        body["functions"] = [tool["function"] for tool in body.pop("tools")]
        if (choice := body.pop("tool_choice", None)) is not None:
            body["function_call"] = choice["function"] if isinstance(choice, dict) else choice
    return body


def is_function(tool: Any) -> bool:
    """Whether a tool on the wire is a function, with or without its type."""
    return isinstance(tool, dict) and isinstance(tool.get("function"), dict)


def _untyped(tool: Any) -> Any:
    return {key: value for key, value in tool.items() if key != "type"} if is_function(tool) else tool


def merged(sent: Any, keys: JsonObject) -> Any:
    """An object with the keys that it came with, beside and in its own objects; what is no object stays."""
    if not isinstance(sent, dict):
        return sent
    return sent | {
        key: {**sent[key], **value} if isinstance(value, dict) and isinstance(sent.get(key), dict) else value
        for key, value in keys.items()
    }
