"""Streams of the Gemini API: each chunk is a response of the same shape, with the parts that are new.

* A chunk goes on with the last text, if its first part is a text of that kind, and no signature or other key separates
  them. Empty texts are left out.
* The usage of each chunk is cumulative; the sources of an answer are gathered.
* Arguments of calls may come in pieces (Vertex AI): each says where it belongs, by a JSON path.

Source: Google's Gemini API reference, "streamGenerateContent", "PartialArg"; Vertex AI, "Streaming function call
arguments".
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.fields import NAME, UNSPECIFIED
from threadkeep.formats.gemini.parse_response import parse_response
from threadkeep.formats.gemini.parse_turns import parts_of
from threadkeep.formats.shared.fields import value_at
from threadkeep.formats.shared.streams import LAST, GrowingList, StreamAssembler
from threadkeep.formats.shared.usage import cumulative

# keys of a candidate whose values are gathered from chunk to chunk
GATHERED: Final = frozenset(
    {"groundingMetadata", "citationMetadata", "urlContextMetadata", "urlRetrievalMetadata", "logprobsResult"}
)
# lists of which each chunk has its own piece
_PIECES: Final = frozenset({"topCandidates", "chosenCandidates"})
_TEXT_KEYS: Final = frozenset({"text", "thought"})
_USAGE: Final = "usageMetadata"


class Assembler(StreamAssembler):
    """Puts chunks together; candidates by their index."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(NAME, parse_response, headers)
        self._body: JsonObject = {}
        self._candidates: dict[int, Candidate] = {}

    @property
    def open_calls(self) -> Collection[object]:
        """The last call, where its arguments still come."""
        first = min(self._candidates, default=None)
        return (LAST,) if first is not None and self._candidates[first].has_open_call else ()

    @property
    def body(self) -> JsonObject:
        """The body that the service would have sent without streaming, as far as it has come."""
        if not self._candidates:
            return dict(self._body)
        candidates = [candidate.body() for _, candidate in sorted(self._candidates.items())]
        return {"candidates": candidates, **self._body}

    def output_in(self, event: JsonObject) -> bool:
        """Whether a candidate has a part that is not an empty text."""
        candidates = event.get("candidates")
        contents = (
            (candidate.get("content") for candidate in candidates if isinstance(candidate, dict))
            if isinstance(candidates, list)
            else ()
        )
        parts = (part for content in contents if isinstance(content, dict) for part in parts_of(content))
        return any(not _is_plain(part) or part["text"] for part in parts)

    def add(self, event: JsonObject) -> None:
        """Take in a chunk."""
        usage = cumulative(self._body.get(_USAGE), event.get(_USAGE))
        self._body |= {key: value for key, value in event.items() if key != "candidates" and value is not None}
        if usage is not None:
            self._body[_USAGE] = usage
        candidates = event.get("candidates")
        if isinstance(candidates, list):
            for candidate in candidates:
                if isinstance(candidate, dict):
                    index = candidate.get("index")
                    self._candidates.setdefault(index if isinstance(index, int) else 0, Candidate()).add(candidate)
        is_blocked = value_at(event, "promptFeedback.blockReason") is not None
        first = min(self._candidates, default=None)
        self.is_ended = self.is_ended or is_blocked or (first is not None and self._candidates[first].is_ended)


assembler: Final = Assembler


class Candidate:
    """One answer as it grows."""

    def __init__(self) -> None:
        self.is_ended = False
        self._keys: JsonObject = {}
        self._content: JsonObject = {}
        self._parts: list[Any] = []
        self._call: PartialCall | None = None

    @property
    def has_open_call(self) -> bool:
        """Whether arguments of a call still come."""
        return self._call is not None

    def add(self, chunk: JsonObject) -> None:
        """Take in the part of a chunk that is about this candidate."""
        for key, value in chunk.items():
            if key == "content" and isinstance(value, dict):
                self._content |= {name: inner for name, inner in value.items() if name != "parts"}
                for index, part in enumerate(parts_of(value)):
                    self._add(part, goes_on=index == 0)
            elif value is not None:
                self._keys[key] = gathered(self._keys.get(key), value) if key in GATHERED else value
        self.is_ended = self._keys.get("finishReason") not in (None, "", 0, UNSPECIFIED)

    def _add(self, part: Any, *, goes_on: bool) -> None:
        if self._call is not None and self._call.takes(part):
            self._call.add(part)
            self._parts[-1] = self._call.part
            self._call = None if self._call.is_ended else self._call
            return
        self._call = PartialCall.begun(part)
        last: Any = self._parts[-1] if self._parts else None
        if goes_on and _is_plain(part) and _is_plain(last) and part.get("thought") is last.get("thought"):
            self._parts[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            self._parts.append(part if self._call is None else self._call.part)

    def body(self) -> JsonObject:
        """The candidate as far as it has come."""
        parts = [part for part in self._parts if not (_is_plain(part) and part["text"] == "")]
        content = {**self._content, "parts": parts or self._parts[:1]} if self._parts else self._content
        return {**({"content": content} if content else {}), **self._keys}


def _is_plain(part: Any) -> bool:
    """Whether a part is a text or thought and nothing else."""
    return isinstance(part, dict) and isinstance(part.get("text"), str) and part.keys() <= _TEXT_KEYS


def gathered(before: Any, now: Any, *, is_piece: bool = False) -> Any:
    """A value that grows: lists get what is new, objects key by key, everything else is the latest."""
    if isinstance(before, dict) and isinstance(now, dict):
        inner = {key: gathered(before.get(key), value, is_piece=key in _PIECES) for key, value in now.items()}
        return {**before, **inner}
    if isinstance(before, list) and isinstance(now, list):
        if not is_piece and now[: len(before)] == before:
            return now
        grown = before if isinstance(before, GrowingList) else GrowingList(before)
        for element in [element for element in now if is_piece or not grown.holds(element)]:
            grown.append(element)
        return grown
    return now


_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_VALUES: Final = ("stringValue", "numberValue", "boolValue")
_DEEPEST: Final = 100  # steps of a path; what is left of a longer one is one name
_LONGEST: Final = 10_000  # elements that a path may make a list have


class PartialCall:
    """A call whose arguments still come."""

    def __init__(self, part: JsonObject) -> None:
        call = part["functionCall"]
        self.part = _with_pieces({**part, "functionCall": {**call, "args": call.get("args") or {}}})
        self.is_ended = False

    @classmethod
    def begun(cls, part: Any) -> PartialCall | None:
        """The call that a part begins; None where the part is whole."""
        call = part.get("functionCall") if isinstance(part, dict) else None
        is_begun = isinstance(call, dict) and (call.get("willContinue") is True or call.get("partialArgs"))
        return cls(part) if is_begun else None

    def takes(self, part: Any) -> bool:
        """Whether a part goes on with this call: it names none."""
        call = part.get("functionCall") if isinstance(part, dict) else None
        return isinstance(call, dict) and not call.get("name") and isinstance(call.get("partialArgs") or [], list)

    def add(self, part: JsonObject) -> None:
        """Take in the next part of the call."""
        before, call = self.part["functionCall"], part["functionCall"]
        self.part = _with_pieces({**self.part, **part, "functionCall": {**before, **call, "args": before["args"]}})
        self.is_ended = call.get("willContinue") is not True


def _with_pieces(part: JsonObject) -> JsonObject:
    """A part with its pieces in its arguments."""
    call = {key: value for key, value in part["functionCall"].items() if key not in ("willContinue", "partialArgs")}
    pieces = part["functionCall"].get("partialArgs")
    for piece in pieces if isinstance(pieces, list) else ():
        if isinstance(piece, dict):
            path = [a or b or c or d for a, b, c, d in _STEP.findall(str(piece.get("jsonPath") or ""))]
            if len(path) > _DEEPEST:
                path[_DEEPEST:] = [".".join(path[_DEEPEST:])]
            call["args"] = placed(call["args"], path, piece)
    return {**part, "functionCall": call}


def placed(value: Any, path: list[str], piece: JsonObject) -> Any:
    """A value with a piece at its place; texts grow."""
    if not path:
        leaf = next((piece[key] for key in _VALUES if key in piece), None)
        return value + leaf if isinstance(value, str) and isinstance(leaf, str) else leaf
    step, *rest = path
    if step.isdigit() and not isinstance(value, dict):
        held = list(value) if isinstance(value, list) else []
        index = min(int(step), len(held), _LONGEST)
        held[index : index + 1] = [placed(held[index] if index < len(held) else None, rest, piece)]
        return held
    held_object = value if isinstance(value, dict) else {}
    return {**held_object, step: placed(held_object.get(step), rest, piece)}
