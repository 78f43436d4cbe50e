"""What an assistant message of Chat Completions has besides its content: reasoning, refusals, keys of servers.

* Reasoning stands under keys of its own, which servers name in their own ways; an item keeps the keys that it had.
* Keys without a canonical form are `native`, and come back; of audio the service takes the id alone.
* Empty content is spelled as the request spelled it, or else in a way that the service takes.

Source: OpenAI's API reference, "Chat Completions", messages; recorded responses of other servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.chat_completion.fields import NAME, REASONING_KEYS
from threadkeep.formats.chat_completion.spelling import ABSENT, EMPTY, EMPTY_LIST, KEY, NULL, item_spelling, spelled
from threadkeep.formats.shared.parts import native_keys, report_foreign
from threadkeep.formats.shared.reports import Context

# keys that let an assistant message go without content
IN_PLACE_OF_CONTENT: Final = ("tool_calls", "function_call", "refusal", "audio")


# Reading


def reasoning_of(message: JsonObject) -> list[JsonObject]:
    """The reasoning next to the content as an item, if there is any; its keys go back as they came."""
    keys = {key: message[key] for key in REASONING_KEYS if message.get(key)}
    if not keys:
        return []
    text = next((text for value in keys.values() if (text := _readable(value))), "")
    content = [{"type": "reasoning_text", "text": text}] if text else []
    return [{"type": "reasoning", "summary": [], "content": content, "origin": NAME, "native": {NAME: keys}}]


def _readable(value: Any) -> str:
    """The readable text of a reasoning key: a string, or the texts of a list of details."""
    if isinstance(value, str):
        return value
    details = value if isinstance(value, list) else [value]
    texts = [
        detail.get("text") or detail.get("summary") or detail.get("content")
        for detail in details
        if isinstance(detail, dict)
    ]
    return "".join(text for text in texts if isinstance(text, str))


def is_blank_value(value: Any) -> bool:
    """Whether a value holds nothing but empty values, which some servers send for keys that they do not use."""
    pending = [value]
    while pending:
        current = pending.pop()
        if isinstance(current, dict):
            pending.extend(current.values())
        elif current:
            return False
    return True


# Writing


def message_keys(keys: JsonObject, *, is_whole: bool = False) -> JsonObject:
    """Keys of an assistant message as they are sent; of audio the service takes the id alone."""
    sent = {key: value for key, value in keys.items() if key != "role"}
    audio = sent.get("audio")
    if isinstance(audio, dict) and "id" in audio and not is_whole:
        sent["audio"] = {"id": audio["id"]}
    return sent


def with_native(item: JsonObject, message: JsonObject, entry: Entry, context: Context) -> JsonObject:
    """A message with the keys that it came with; a response has no role yet."""
    report_foreign(item, NAME, context, "native")
    is_whole = "role" in message or "audio" in item_spelling(item, entry)
    return message | message_keys(native_keys(item, NAME), is_whole=is_whole)


def own_keys(parts: Sequence[JsonObject]) -> tuple[Sequence[JsonObject], JsonObject]:
    """The parts that are content of a message that came from this format, and what has keys of its own next to it.

    These are annotations, and a refusal that came so or stands alone.
    """
    annotations = [annotation for part in parts for annotation in part.get("annotations") or ()]
    keys: JsonObject = {"annotations": annotations} if annotations else {}
    words = (KEY, None) if len(parts) == 1 else (KEY,)
    apart = [part for part in parts if part["type"] == "refusal" and part.get("spelling") in words]
    if apart:
        keys["refusal"] = apart[0]["refusal"]
        parts = [part for part in parts if part is not apart[0]]
    return parts, keys


def spell_assistant(message: JsonObject, spelling: JsonObject, *, as_string: bool) -> None:
    """Give an assistant message its content as it was, and its empty keys.

    A message without any content, call or key gets an empty text.
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
    elif word == EMPTY or not (word == NULL or any(message.get(key) for key in IN_PLACE_OF_CONTENT)):
        message["content"] = ""
