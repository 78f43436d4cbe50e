"""Streams of the Gemini API: each chunk is a response of the same shape, with the parts that are new.

* A chunk goes on with the last text, if its first part is a text of that kind, and no signature or other key separates
  them. Empty texts say nothing.
* Usage is the last that was told; what grounds an answer is gathered.
* Arguments that come in pieces (Vertex AI) are put together.

Source: Google's Gemini API reference, "streamGenerateContent"; Vertex AI, "Streaming function call arguments".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.gemini.fields import NAME, UNSPECIFIED
from threadkeep.formats.gemini.history import parts_of
from threadkeep.formats.gemini.partial import GrowingCall
from threadkeep.formats.gemini.response import parse_response
from threadkeep.formats.streams import StreamAssembler

# keys of a candidate whose values are gathered from chunk to chunk
GATHERED: Final = frozenset(
    {"groundingMetadata", "citationMetadata", "urlContextMetadata", "urlRetrievalMetadata", "logprobsResult"}
)
# lists of which each chunk has its own piece
_PIECES: Final = frozenset({"topCandidates", "chosenCandidates"})
_TEXT_KEYS: Final = frozenset({"text", "thought"})


def assembler(headers: Mapping[str, str] | None = None) -> Assembler:
    """Something that puts chunks together."""
    return Assembler(NAME, parse_response, headers)


class Assembler(StreamAssembler):
    """Puts chunks together; candidates by their index."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._body: JsonObject = {}
        self._candidates: dict[int, Candidate] = {}

    @property
    def body(self) -> JsonObject:
        """The body that the service would have sent without streaming, as far as it has come."""
        if not self._candidates:
            return dict(self._body)
        found = [candidate.body() for _, candidate in sorted(self._candidates.items())]
        return {"candidates": found, **self._body}

    def add(self, event: JsonObject) -> None:
        """Take in a chunk."""
        self._body |= {key: value for key, value in event.items() if key != "candidates" and value is not None}
        candidates = event.get("candidates")
        if isinstance(candidates, list):
            self._body.pop("candidates", None)
            for one in candidates:
                if isinstance(one, dict):
                    index = one.get("index")
                    index = index if isinstance(index, int) else 0
                    self._candidates.setdefault(index, Candidate()).add(one)
        feedback = event.get("promptFeedback")
        is_blocked = isinstance(feedback, dict) and feedback.get("blockReason") is not None
        first = min(self._candidates, default=None)
        self.is_ended = self.is_ended or is_blocked or (first is not None and self._candidates[first].is_ended)


class Candidate:
    """One answer as it grows."""

    def __init__(self) -> None:
        self.is_ended = False
        self._keys: JsonObject = {}
        self._content: JsonObject = {}
        self._parts: list[Any] = []
        self._call: GrowingCall | None = None

    def add(self, chunk: JsonObject) -> None:
        """Take in what a chunk says of it."""
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
        self._call = GrowingCall.begun(part)
        last: Any = self._parts[-1] if self._parts else None
        if goes_on and _is_plain(part) and _is_plain(last) and part.get("thought") is last.get("thought"):
            self._parts[-1] = {**last, "text": last["text"] + part["text"]}
        else:
            self._parts.append(part if self._call is None else self._call.part)

    def body(self) -> JsonObject:
        """The candidate as far as it has come."""
        said = [part for part in self._parts if not (_is_plain(part) and part["text"] == "")]
        content = {**self._content, "parts": said or self._parts[:1]} if self._parts else self._content
        return {**({"content": content} if content else {}), **self._keys}


def _is_plain(part: Any) -> bool:
    """Whether a part is a text or thought that says nothing else."""
    return isinstance(part, dict) and isinstance(part.get("text"), str) and part.keys() <= _TEXT_KEYS


def gathered(before: Any, now: Any, *, is_piece: bool = False) -> Any:
    """A value that grows: lists get what is new, objects key by key, everything else is the latest."""
    if isinstance(before, dict) and isinstance(now, dict):
        grown = {key: gathered(before.get(key), value, is_piece=key in _PIECES) for key, value in now.items()}
        return {**before, **grown}
    if isinstance(before, list) and isinstance(now, list):
        if is_piece:
            return before + now
        return now if now[: len(before)] == before else before + [one for one in now if one not in before]
    return now
