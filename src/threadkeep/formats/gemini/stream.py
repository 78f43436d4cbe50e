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

from threadkeep.domain.jsontext import JsonObject, json_copy, value_at
from threadkeep.domain.response import Response
from threadkeep.formats.gemini import calls, fields, spelling, turns
from threadkeep.formats.gemini.response import HISTORY, is_id, parse_response
from threadkeep.formats.shared.streams import LAST, GrowingList, GrowingTexts, StreamAssembler
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
        super().__init__(fields.NAME, parse_response, headers)
        self._body: JsonObject = {}
        self._candidates: dict[int, Candidate] = {}
        self._texts = GrowingTexts()
        self._first: Candidate | None = None  # the one that counts
        self._lowest = 0  # its index
        self._calls = (0, 0)  # how many calls are in so many of its first parts
        self._called = 0  # contents of calls that Google's SDK has answered by itself

    @property
    def open_calls(self) -> Collection[object]:
        """The last call, where its arguments still come."""
        return (LAST,) if self._first is not None and self._first.has_open_call else ()

    @property
    def body(self) -> JsonObject:
        """The body that the service would have sent without streaming, as far as it has come."""
        self._texts.settle_all()
        if not self._candidates:
            return dict(self._body)
        candidates = [candidate.body() for _, candidate in sorted(self._candidates.items())]
        return {"candidates": candidates, **self._body}

    @property
    def element_count(self) -> int:
        """How many parts have come, if calls are named after the response; without that, they are named after all."""
        return len(self._first.parts) if self._first is not None and is_id(self._body.get("responseId")) else 0

    def is_whole(self, element: int) -> bool:  # noqa: ARG002
        """Whether another part has begun."""
        return True

    def is_apart(self, element: int) -> bool:
        """Whether a part is a call."""
        known = self._first.parts[element] if self._first is not None else None
        return calls.is_call(spelling.read_part(known)[0])

    def body_between(self, first: int, last: int | None) -> JsonObject:
        """The body with these parts of the candidate that counts."""
        self._texts.settle_all()
        keys = {key: value for key, value in self._body.items() if not first or key != HISTORY}
        return {"candidates": [] if self._first is None else [self._first.body(first, last)], **keys}

    def parsed(self, body: JsonObject, first: int) -> Response:
        """The response of a body; the numbers of calls go on."""
        parts = [] if self._first is None else self._first.parts
        known, count = self._calls if self._calls[0] <= first else (0, 0)
        count += sum(calls.is_call(spelling.read_part(part)[0]) for part in parts[known:first])
        self._calls = first, count
        return parse_response(body, self._headers, calls_before=count)

    def output_in(self, event: JsonObject) -> bool:
        """Whether a candidate has a part that is not an empty text."""
        candidates = event.get("candidates")
        contents = (
            (candidate.get("content") for candidate in candidates if isinstance(candidate, dict))
            if isinstance(candidates, list)
            else ()
        )
        parts = (part for content in contents if isinstance(content, dict) for part in turns.parts_of(content))
        return any(not _is_plain(part) or part["text"] for part in parts)

    def add(self, event: JsonObject) -> None:
        """Take in a chunk."""
        if event.get("responseId") not in (None, self._body.get("responseId")):
            self.note_change(0)
        usage = cumulative(self._body.get(_USAGE), event.get(_USAGE))
        self._note_calls(event.get(HISTORY))
        self._body |= {key: value for key, value in event.items() if key != "candidates" and value is not None}
        if usage is not None:
            self._body[_USAGE] = usage
        candidates = event.get("candidates")
        if isinstance(candidates, list):
            for candidate in candidates:
                if isinstance(candidate, dict):
                    self._candidate(candidate.get("index")).add(candidate)
        is_blocked = value_at(event, "promptFeedback.blockReason") is not None
        self.is_ended = self.is_ended or is_blocked or (self._first is not None and self._first.is_ended)

    def _candidate(self, stated: Any) -> Candidate:
        """The candidate with an index."""
        index = stated if isinstance(stated, int) else 0
        candidate = self._candidates.get(index)
        if candidate is None:
            candidate = self._candidates[index] = Candidate(self._texts)
            if self._first is None or index < self._lowest:
                self._first, self._lowest = candidate, index
                self.note_change(0)
        return candidate

    def _note_calls(self, history: Any) -> None:
        """Begin anew where the SDK has answered more calls: what came before is in the history."""
        if isinstance(history, list) and len(history) > self._called:
            self._called, self.is_ended = len(history), False
            self._candidates, self._first, self._lowest, self._calls = {}, None, 0, (0, 0)
            self.note_change(0)


assembler: Final = Assembler


class Candidate:
    """One answer as it grows."""

    def __init__(self, texts: GrowingTexts) -> None:
        self.is_ended = False
        self.parts: list[Any] = []
        self._texts = texts
        self._keys: JsonObject = {}
        self._content: JsonObject = {}
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
                for index, part in enumerate(turns.parts_of(value)):
                    self._add(part, goes_on=index == 0)
            elif value is not None:
                self._keys[key] = gathered(self._keys.get(key), value) if key in GATHERED else value
        self.is_ended = self._keys.get("finishReason") not in (None, "", 0, fields.UNSPECIFIED)

    def _add(self, part: Any, *, goes_on: bool) -> None:
        if self._call is not None and self._call.takes(part):
            self._call.add(part)
            self._call = None if self._call.is_ended else self._call
            return
        self._call = PartialCall.begun(part, self._texts)
        last: Any = self.parts[-1] if self.parts else None
        if goes_on and _is_plain(part) and _is_plain(last) and part.get("thought") is last.get("thought"):
            self._texts.grow(last, "text", part["text"])
        else:
            self.parts.append(
                (dict(part) if isinstance(part, dict) else part) if self._call is None else self._call.part
            )

    def body(self, first: int = 0, last: int | None = None) -> JsonObject:
        """The candidate as far as it has come, or with some of its parts."""
        held = self.parts[first:last]
        parts = [part for part in held if not (_is_plain(part) and part["text"] == "")]
        content = {**self._content, "parts": parts or held[:1]} if held else self._content
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
_DIGITS: Final = 9  # of an index: more are no place in any list
_LONGEST: Final = 10_000  # elements that a path may make a list have


class PartialCall:
    """A call whose arguments still come."""

    def __init__(self, part: JsonObject, texts: GrowingTexts) -> None:
        self._texts = texts
        self._call = {**part["functionCall"]}
        self._call["args"] = json_copy(self._call.get("args") or {}, "args")
        self.part = {**part, "functionCall": self._call}
        self.is_ended = False
        self._place_pieces()

    @classmethod
    def begun(cls, part: Any, texts: GrowingTexts) -> PartialCall | None:
        """The call that a part begins; None where the part is whole."""
        call = part.get("functionCall") if isinstance(part, dict) else None
        is_begun = isinstance(call, dict) and (call.get("willContinue") is True or call.get("partialArgs"))
        return cls(part, texts) if is_begun else None

    def takes(self, part: Any) -> bool:
        """Whether a part goes on with this call: it names none."""
        call = part.get("functionCall") if isinstance(part, dict) else None
        return isinstance(call, dict) and not call.get("name") and isinstance(call.get("partialArgs") or [], list)

    def add(self, part: JsonObject) -> None:
        """Take in the next part of the call."""
        call = part["functionCall"]
        self._call.update({key: value for key, value in call.items() if key != "args"})
        self.part.update({key: value for key, value in part.items() if key != "functionCall"})
        self.is_ended = call.get("willContinue") is not True
        self._place_pieces()

    def _place_pieces(self) -> None:
        """Put the pieces that have come into the arguments."""
        pieces = self._call.pop("partialArgs", None)
        self._call.pop("willContinue", None)
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict):
                path = [a or b or c or d for a, b, c, d in _STEP.findall(str(piece.get("jsonPath") or ""))]
                if len(path) > _DEEPEST:
                    path[_DEEPEST:] = [".".join(path[_DEEPEST:])]
                place(self._call, path, piece, self._texts)


def place(call: JsonObject, path: list[str], piece: JsonObject, texts: GrowingTexts) -> None:
    """Put a piece at its place in the arguments of a call; texts grow."""
    holder: Any = call
    key: Any = "args"
    for step in path:
        value = holder[key]
        if step.isdecimal() and not isinstance(value, dict):
            if not isinstance(value, list):
                texts.forget(holder, key)
                value = holder[key] = []
            holder, key = value, min(int(step[:_DIGITS]), len(value), _LONGEST)
            if key == len(value):
                value.append(None)
        else:
            if not isinstance(value, dict):
                texts.forget(holder, key)
                value = holder[key] = {}
            value.setdefault(step, None)
            holder, key = value, step
    leaf = next((piece[name] for name in _VALUES if name in piece), None)
    if isinstance(holder[key], str) and isinstance(leaf, str):
        texts.grow(holder, key, leaf)
    else:
        texts.forget(holder, key)
        holder[key] = leaf
