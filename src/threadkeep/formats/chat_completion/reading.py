"""Reading requests of Chat Completions.

* Each message is a turn. A leading system message of nothing but text is the instructions, if more follows.
* Keys that are no option, or whose value no option can say, are `extra.chat_completion`.
* `max_tokens`, `functions` with `function_call`, and Mistral's choice `any` are older or other names of options; the
  request keeps them.

Source: OpenAI's API reference, "Chat Completions", create; recorded requests to other servers.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.session import Session
from threadkeep.domain.wire import Call
from threadkeep.errors import CannotParse
from threadkeep.formats.chat_completion.fields import NAME
from threadkeep.formats.chat_completion.incoming import turns_of
from threadkeep.formats.chat_completion.settings import read_settings
from threadkeep.formats.chat_completion.spelling import KEPT, LIST, STRING, is_lone_text
from threadkeep.formats.envelopes import shortened
from threadkeep.formats.requests import request_object, session_of, turns_in


def parse_request(payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
    """Read a Chat Completions request; `model` and `stream` say what the payload does not.

    Raises:
        CannotParse: it is no JSON object, or its messages are no list of objects.
    """
    body = request_object(payload, NAME, "messages")
    messages = _messages(body.get("messages"))
    found = read_settings({key: value for key, value in body.items() if key != "messages"})
    for name, value in {"model": model, "stream": stream}.items():
        if value is not None and name not in found.native:
            found.settings.setdefault(name, value)
    instructions, word = _instructions(messages)
    if instructions is not None:
        found.settings["instructions"] = instructions
        messages = messages[1:]
    turns = turns_of(messages)
    spelling = {**found.spelling, **({"instructions": word} if word else {}), **_usual_content(turns)}
    if not _is_ordered(messages):
        spelling["order"] = KEPT
    return session_of(NAME, turns, settings=found.settings, tools=found.tools, native=found.native, spelling=spelling)


def parse_turns(turns: Any, _calls: Sequence[Call] = ()) -> list[list[JsonObject]]:
    """The item objects of messages, one turn each.

    Raises:
        CannotParse: they are no messages.
    """
    return turns_of(_messages(turns_in(turns, NAME)))


def _messages(given: Any) -> list[JsonObject]:
    if not isinstance(given, list):
        raise CannotParse(f"The messages are {shortened(given)}, not a list. Give the whole request, or its messages.")
    for index, message in enumerate(given):
        if not isinstance(message, dict):
            raise CannotParse(f"messages[{index}] is {shortened(message)}, not a message. Give an object with a role.")
    return given


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
