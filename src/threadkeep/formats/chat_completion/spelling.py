"""How messages spell what Chat Completions lets them say in several ways, so that each goes back as it came.

What a request does throughout stands in `ImportInfo.spelling`:

* `content`: lone texts are strings (``"string"``), in what is appended later, too.
* `instructions`: the leading system message is a list (``"list"``).
* `max_output_tokens`, `tool_choice`, `tools`: the older or other name that it used.
* `order`: tool messages stand elsewhere than directly behind their calls (``"kept"``).

What one message or part does differently is its own `spelling`. Of items: `content` (one of the words below), `index`
of a call, `type` and `arguments` of a call that lacks them, `audio` that is sent whole, `call` (a block that is a
call), `whole` (a block that is a whole message), `keys` that are empty. Of parts: one word.

An assistant message has reasoning, refusals and keys of servers next to its content. Reasoning stands under keys that
servers name in their own ways; an item keeps the keys that it had. Keys without a canonical form are `native`.

Source: OpenAI's API reference, "Chat Completions", messages; recorded responses of other servers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.chat_completion.fields import NAME, REASONING_KEYS
from threadkeep.formats.shared.parts import native_keys, report_foreign
from threadkeep.formats.shared.reports import Context

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
TRANSCRIPT: Final = "transcript"  # a text that stands for the audio next to the content
PART: Final = "part"  # a refusal in it
FILE: Final = "file"  # a sound that is a file part
DOCUMENT: Final = "document_url"


def item_spelling(item: JsonObject, entry: Entry) -> JsonObject:
    """How the message spelled things that an item came in."""
    spelling = item.get("spelling")
    return spelling if isinstance(spelling, dict) and entry.origin == NAME else {}


# Content


def spelled(content: Any, spelling: JsonObject, *, as_string: bool, is_joined: bool = False) -> Any:
    """Content as a string where it was one, or lone texts are (`is_joined`: several, too, line by line)."""
    word = spelling.get("content")
    is_string = word == STRING or (word != LIST and (as_string or is_joined))
    if not (is_string or is_joined) or not isinstance(content, list) or not all(map(_is_plain, content)):
        return content
    if not content or (len(content) > 1 and not is_joined):
        return content
    text = "\n".join(part["text"] for part in content)
    return text if is_string else [{"type": "text", "text": text}]


def _is_plain(part: Any) -> bool:
    is_text = isinstance(part, dict) and part.keys() == {"type", "text"} and part["type"] == "text"
    return is_text and isinstance(part["text"], str)


def spell_nothing(message: JsonObject, word: str | None) -> None:
    """Give a message without content one of that word, else an empty text."""
    if word == ABSENT:
        del message["content"]
    else:
        message["content"] = {NULL: None, EMPTY_LIST: []}.get(word or EMPTY, "")


def usual_nothing(message: JsonObject) -> str:
    """The word for content that an assistant message does not need: some keys let it go without."""
    others = ("tool_calls", "function_call", "refusal", "audio")
    return NULL if any(message.get(key) for key in others) else EMPTY


# Assistant messages


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
    details = [detail for detail in (value if isinstance(value, list) else [value]) if isinstance(detail, dict)]
    texts = [detail.get("text") or detail.get("summary") or detail.get("content") for detail in details]
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


def message_keys(keys: JsonObject, *, is_whole: bool = False) -> JsonObject:
    """Keys of an assistant message as they are sent; of audio the service takes the id alone."""
    sent = {key: value for key, value in keys.items() if key != "role"}
    audio = sent.get("audio")
    if isinstance(audio, dict) and "id" in audio and not is_whole:
        sent["audio"] = {"id": audio["id"]}
    return sent


def transcript_of(audio: Any) -> str | None:
    """What is said in the audio of an answer, where the answer tells."""
    text = audio.get("transcript") if isinstance(audio, dict) else None
    return text if isinstance(text, str) and text else None


def without_transcript(parts: Sequence[JsonObject]) -> list[JsonObject]:
    """Parts without the text that stands for the audio next to them."""
    return [part for part in parts if part.get("spelling") != TRANSCRIPT]


def without_audio(item: JsonObject) -> JsonObject:
    """An item without the audio that it came with."""
    keys = {key: value for key, value in native_keys(item, NAME).items() if key != "audio"}
    return {**item, "native": {**item["native"], NAME: keys}}


def with_native(item: JsonObject, message: JsonObject, entry: Entry, context: Context) -> JsonObject:
    """A message with the keys that it came with; a response has no role yet."""
    report_foreign(item, NAME, context, "native")
    is_whole = "role" in message or "audio" in item_spelling(item, entry)
    return message | message_keys(native_keys(item, NAME), is_whole=is_whole)


def own_keys(parts: Sequence[JsonObject]) -> tuple[Sequence[JsonObject], JsonObject]:
    """The content of a message of this format without what stands next to it: annotations, and a refusal that may."""
    annotations = [annotation for part in parts for annotation in part.get("annotations") or ()]
    keys: JsonObject = {"annotations": annotations} if annotations else {}
    words = (KEY, None) if len(parts) == 1 else (KEY,)
    apart = [part for part in parts if part["type"] == "refusal" and part.get("spelling") in words]
    if apart:
        keys["refusal"] = apart[0]["refusal"]
        parts = [part for part in parts if part is not apart[0]]
    return parts, keys


def spell_assistant(message: JsonObject, spelling: JsonObject, *, as_string: bool, is_joined: bool) -> None:
    """Give an assistant message its content as it was, and its empty keys."""
    if isinstance(keys := spelling.get("keys"), dict):
        message.update(keys)
    if message["content"]:
        message["content"] = spelled(message["content"], spelling, as_string=as_string, is_joined=is_joined)
        return
    word = spelling.get("content")
    spell_nothing(message, word if word in (ABSENT, NULL, EMPTY, EMPTY_LIST) else usual_nothing(message))
