"""Reading requests of Chat Completions.

* Each message is a turn. A leading system message of nothing but text is the instructions, if more follows.
* Keys that are not options, or whose value no option can say, are `extra.chat_completion`.
* `max_tokens`, `functions` with `function_call`, and Mistral's choice `any` are older or other names of options; the
  request keeps them.

Source: OpenAI's API reference, "Chat Completions", create; recorded requests to other servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.formats import OpenCall
from threadkeep.domain.items import Item
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.session import Session
from threadkeep.errors import CannotParse
from threadkeep.formats.chat_completion.fields import EXTRAS, FIELDS, NAME, STREAM_OPTIONS
from threadkeep.formats.chat_completion.parse_turns import turns_of
from threadkeep.formats.chat_completion.spelling import KEPT, LIST, MAX_TOKENS, STRING, is_lone_text
from threadkeep.formats.chat_completion.tools import read_choice, read_tools
from threadkeep.formats.shared.fields import Field, FieldGroup, read_fields
from threadkeep.formats.shared.parsing import SENT_REQUEST, items_of_turns, parser, request_object, session_of, turns_in
from threadkeep.formats.shared.provider_errors import shortened

_MAX: Final = "max_completion_tokens"
# keys of requests that have a meaning in the API, so that null is the same as none
_API_KEYS: Final = frozenset(
    {
        *EXTRAS,
        *(row.target for row in FIELDS if isinstance(row, Field)),
        *(target for row in FIELDS if isinstance(row, FieldGroup) for target in row.targets),
        "max_tokens", "tools", "tool_choice", "parallel_tool_calls", "stream_options", "functions", "function_call",
    }
)  # fmt: skip


@parser(f"{NAME} request")
def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Chat Completions request; `model` and `stream` say what the payload does not.

    Raises:
        CannotParse: it is not a JSON object, or its messages are not a list of objects.
    """
    body = request_object(payload, NAME, "messages")
    messages = _messages(body.get("messages"))
    settings, native, spelling = _settings({key: value for key, value in body.items() if key != "messages"})
    tools: list[JsonObject] = []
    if "tools" in native or "functions" in native:
        tools = read_tools(native, spelling)
        settings |= read_choice(native, tools, spelling)
    _read_stream_options(settings, native)
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in native:
            settings.setdefault(name, value)
    instructions, word = _instructions(messages)
    if instructions is not None:
        settings["instructions"] = instructions
        messages = messages[1:]
    turns = turns_of(messages)
    spelling |= {**({"instructions": word} if word else {}), **_usual_content(turns)}
    if not _is_ordered(messages):
        spelling["order"] = KEPT
    return session_of(NAME, turns, settings=settings, tools=tools, native=native, spelling=spelling)


@parser(f"{NAME} turns")
def parse_turns(turns: Any, _calls: Sequence[OpenCall] = ()) -> list[list[Item]]:
    """The items of messages, one turn each.

    Raises:
        CannotParse: they are not messages.
    """
    return items_of_turns(turns_of(_messages(turns_in(turns, NAME))))


def _messages(value: Any) -> list[JsonObject]:
    if not isinstance(value, list):
        raise CannotParse(f"The messages are {shortened(value)}, not a list.", hint=SENT_REQUEST)
    for index, message in enumerate(value):
        if not isinstance(message, dict):
            raise CannotParse(
                f"messages[{index}] is {shortened(message)}, not a message.", hint="Pass an object with a role."
            )
    return value


def _settings(body: JsonObject) -> tuple[JsonObject, JsonObject, JsonObject]:
    """The options that a request sets, the keys that say something else, and the spelling of the options."""
    keys = dict(body)
    is_old = keys.get("max_tokens") is not None and keys.get(_MAX) is None
    if is_old:
        keys[_MAX] = keys.pop("max_tokens")
    settings, native = read_fields(FIELDS, keys)
    native |= {key: None for key, value in body.items() if value is None and key not in _API_KEYS}
    if is_old and _MAX in native:
        native["max_tokens"] = native.pop(_MAX)
        is_old = False
    return settings, native, {"max_output_tokens": MAX_TOKENS} if is_old else {}


def _read_stream_options(settings: JsonObject, native: JsonObject) -> None:
    options = native.get("stream_options")
    if not isinstance(options, dict) or not options or settings.get("stream") is not True:
        return
    if options.keys() <= {*STREAM_OPTIONS} and None not in options.values():
        settings["stream_options"] = native.pop("stream_options")


def _instructions(messages: list[JsonObject]) -> tuple[str | None, str | None]:
    """The text of a leading system message, and a word for its spelling if it was not a string."""
    if len(messages) < 2 or messages[0].get("role") != "system":  # noqa: PLR2004 - the first and another one
        return None, None
    first = messages[0]
    if any(value is not None and key not in ("role", "content") for key, value in first.items()):
        return None, None
    content = first.get("content")
    if isinstance(content, str):
        return content, None
    if is_lone_text(content) and isinstance(content[0]["text"], str):
        return content[0]["text"], LIST
    return None, None


def _usual_content(turns: list[list[JsonObject]]) -> JsonObject:
    """How most lone texts are spelled, said for the whole request and no longer for each item."""
    items = [item for turn in turns for item in turn if item.get("spelling", {}).get("content") in (STRING, LIST)]
    counts = Counter(item["spelling"]["content"] for item in items)
    usual = STRING if counts[STRING] and counts[STRING] >= counts[LIST] else LIST
    for item in items:
        if item["spelling"]["content"] == usual:
            del item["spelling"]["content"]
            if not item["spelling"]:
                del item["spelling"]
    return {"content": STRING} if usual == STRING else {}


def _is_ordered(messages: list[JsonObject]) -> bool:
    """Whether every tool message stands in the row behind the calls that it answers."""
    called: set[str] = set()
    here: set[str] = set()
    for message in messages:
        call_id = message.get("tool_call_id")
        if message.get("role") == "tool" and isinstance(call_id, str):
            if call_id in called - here:
                return False
            continue
        called |= here
        calls = message.get("tool_calls")
        here = {
            call["id"]
            for call in (calls if isinstance(calls, list) else ())
            if isinstance(call, dict) and isinstance(call.get("id"), str)
        }
    return True
