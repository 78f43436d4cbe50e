"""What a history says.

A client that keeps a conversation itself drops and changes what only matters on the wire: ids, cache marks, reasoning,
the boundaries of turns, the order of parallel outputs. So histories are compared by what their turns say: role and
text, calls by name and arguments, outputs, media.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, Final
from unicodedata import normalize

from threadkeep.domain.call_kinds import PLACEHOLDERS
from threadkeep.domain.jsontext import JsonObject, canonical, loads
from threadkeep.formats.shared.pairing import CALLS, OUTPUTS

SYSTEM: Final = "system"
TOOL: Final = "tool"
ASSISTANT: Final = "assistant"
TEXT: Final = "text"
CALL: Final = "call"
OPAQUE: Final = "opaque"
REASONING: Final = "reasoning"

_TEXTS: Final = frozenset({"input_text", "output_text", "text", "refusal", "summary_text"})
# part type -> the keys that say which media it is
_MEDIA: Final = {
    "input_image": ("image_url", "url", "image_data", "file_id"),
    "input_file": ("file_data", "file_url", "url", "file_id"),
    "input_video": ("video_url", "url", "video_data", "file_id"),
    "input_audio": ("input_audio", "audio_url", "url", "file_id"),
}
# keys that say nothing: ids, marks, spelling
_SILENT: Final = frozenset(
    {"id", "status", "cache_control", "cachePoint", "origin", "native", "spelling", "index", "author_id", "call_id"}
)
# typographic punctuation -> what clients make of it
_PUNCTUATION: Final = str.maketrans(
    dict(zip("\u2018\u2019\u201c\u201d\u2010\u2011\u2013\u2014", "''\"\"----", strict=True)) | {"\u2026": "..."}
)
_WRAPPERS: Final = {"result", "output", "content", "text"}  # how formats wrap an output that is not an object


@dataclass(frozen=True, slots=True)
class Utterance:
    """One thing that is said: a text, a picture or file, a call, an output."""

    kind: str
    speaker: str
    value: Any
    item: int  # where it is said, as indexes
    part: int = 0
    is_optional: bool = False  # may be missing in the other history: reasoning, blocks of one format, system messages
    is_cut_off: bool = False  # a text where a response broke off; the other history may have more or less of it

    @property
    def key(self) -> tuple[str, str, Any]:
        """What is the same in everything that says the same."""
        return self.kind, self.speaker, self.value


def utterances_of(items: Sequence[JsonObject], cut_off: Collection[int] = ()) -> list[Utterance]:
    """What items say, in order; `cut_off` are the indexes of those that end interrupted responses."""
    utterances: list[Utterance] = []
    for index, item in enumerate(items):
        utterances += _item_utterances(item, index)
        if index in cut_off and utterances and utterances[-1].item == index and utterances[-1].kind == TEXT:
            utterances[-1] = replace(utterances[-1], is_cut_off=True)
    return utterances


def without_leading_system(utterances: Sequence[Utterance]) -> list[Utterance]:
    """The same without the system messages at the beginning: these belong to the options of a conversation."""
    first = next((index for index, said in enumerate(utterances) if said.speaker != SYSTEM), len(utterances))
    return list(utterances[first:])


def _item_utterances(item: JsonObject, index: int) -> Iterator[Utterance]:
    kind = item["type"]
    if kind == "message":
        yield from _message_utterances(item, index)
    elif kind in CALLS and kind != "provider_item":
        key = "arguments" if kind == "function_call" else "input"
        name = item.get("name")
        name = name if isinstance(name, str) else canonical(name)
        yield Utterance(CALL, ASSISTANT, (name, _arguments_value(item.get(key))), index)
    elif kind in OUTPUTS:
        output = item.get("output")
        value = _output_value(output)
        is_placeholder = isinstance(value, str) and value in PLACEHOLDERS
        yield Utterance("output", TOOL, value, index, is_optional=is_placeholder)
    else:
        value = kind if kind == REASONING else canonical(_essential(item))
        yield Utterance(OPAQUE, ASSISTANT, value, index, is_optional=True)


def _message_utterances(item: JsonObject, index: int) -> Iterator[Utterance]:
    role, content = str(item.get("role")), item.get("content")
    speaker = SYSTEM if role == "developer" else role
    for number, part in enumerate(content if isinstance(content, list) else []):
        said = _part_utterance(part, speaker)
        if said is not None:
            yield replace(said, item=index, part=number, is_optional=said.is_optional or speaker == SYSTEM)


def _part_utterance(part: JsonObject, speaker: str) -> Utterance | None:
    """What a part says; None for a blank text, which formats leave out."""
    kind = part.get("type")
    if kind in _TEXTS:
        text = part.get("refusal") if kind == "refusal" else part.get("text")
        if not isinstance(text, str) or not text.strip():
            return None
        if speaker == ASSISTANT and _is_thinking(text.strip()):
            return Utterance(OPAQUE, speaker, REASONING, 0, is_optional=True)
        return Utterance(TEXT, speaker, normalize_text(text) if speaker == ASSISTANT else text, 0)
    if kind in _MEDIA:
        return Utterance("media", speaker, _media_value(part, _MEDIA[kind]), 0)
    return Utterance(OPAQUE, speaker, canonical(_essential(part)), 0, is_optional=True)


def _is_thinking(text: str) -> bool:
    """Whether it is reasoning that a client sends back as a text, for which its format has no other place."""
    return text.startswith("<think>") and text.find("</think>") == len(text) - len("</think>")


def normalize_text(text: str) -> str:
    """A text without typographic punctuation, as some clients send responses back; whitespace is unchanged."""
    return text if text.isascii() else normalize("NFKC", text.translate(_PUNCTUATION))


def _media_value(part: JsonObject, keys: Sequence[str]) -> Any:
    """Which media a part shows: its bytes, however they are written, or where they are."""
    for key in keys:
        value = part.get(key)
        if isinstance(value, str) and value:
            head, comma, data = value.partition(",")
            data = data if comma and head.startswith("data:") else value
            return sha256(data.rstrip("=").replace("-", "+").replace("_", "/").encode("utf-8", "replace")).digest()
        if value:
            return canonical(_essential(value))
    return canonical(_essential(part))


def _arguments_value(arguments: Any) -> Any:
    """Arguments, as JSON text or not, by what they mean."""
    if arguments is None or arguments == "":
        return canonical({})
    if isinstance(arguments, str):
        try:
            return canonical(_normalize_numbers(loads(arguments)))
        except ValueError:
            return arguments
    return canonical(_normalize_numbers(arguments))


def _normalize_numbers(value: Any) -> Any:
    """A JSON value with one spelling of numbers: 1 and 1.0 are the same."""
    if isinstance(value, dict):
        return {key: _normalize_numbers(inner) for key, inner in value.items()}
    if isinstance(value, list):
        return [_normalize_numbers(inner) for inner in value]
    return int(value) if isinstance(value, float) and value.is_integer() else value


def _output_value(output: Any) -> Any:
    """An output by what it means: formats send it as text, as parts, or wrapped in an object."""
    if isinstance(output, list) and all(isinstance(part, dict) for part in output):
        texts = [part.get("text") for part in output]
        if not all(isinstance(text, str) for text in texts):
            parts = [_part_utterance(part, TOOL) for part in output]
            return tuple(None if said is None else said.value for said in parts)
        output = "".join(texts)
    try:
        value = loads(output) if isinstance(output, str) else output
    except ValueError:
        value = output
    while isinstance(value, dict) and len(value) == 1 and next(iter(value)) in _WRAPPERS:
        value = next(iter(value.values()))
    return canonical("" if value is None else _normalize_numbers(value))


def _essential(value: Any) -> Any:
    """A JSON value without the keys that say nothing."""
    if isinstance(value, Mapping):
        return {key: _essential(inner) for key, inner in value.items() if key not in _SILENT and inner is not None}
    return [_essential(inner) for inner in value] if isinstance(value, list | tuple) else value
