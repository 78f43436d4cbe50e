"""Streams of the Interactions API: events become the interaction that would have come whole.

* A step begins with what is known of it, and grows by deltas: texts and arguments piece by piece, results of tools by
  what is new in them; a medium is a content of its own, but for sound, whose pieces are one.
* A delta for a step that has not begun begins one.
* Steps of the last event count where none were streamed. Usage is cumulative.
* An interaction that goes on by a continuation token has its next part in the same stream.

Source: the types of google-genai, `InteractionSSEEvent`, `StepDelta` and `ServerEvent`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, json_copy
from threadkeep.formats.interactions.fields import CALL, MODEL_OUTPUT, NAME, STATUSES, THOUGHT
from threadkeep.formats.interactions.response import parse_response
from threadkeep.formats.interactions.steps import CONTENTS
from threadkeep.formats.shared.parts import joined_base64
from threadkeep.formats.shared.streams import BlockAssembler, index_of, input_of, list_in
from threadkeep.formats.shared.usage import cumulative

# type of a delta -> type of the step that it begins, where that is not its own
_BEGINS: Final = {
    **dict.fromkeys((*CONTENTS, "text_annotation_delta"), MODEL_OUTPUT),
    **dict.fromkeys(("thought_summary", "thought_signature"), THOUGHT),
    "arguments_delta": CALL,
}
_LAST: Final = frozenset({"interaction.completed", "interaction.cancelled"})
_GOES_ON: Final = "requires_continuation"
_GROWS: Final = frozenset({"result"})  # keys of deltas of tools that come piece by piece


class InteractionAssembler(BlockAssembler):
    """Puts events together; `feed` each of them, then take `response`."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(NAME, parse_response, headers)
        self._interaction: JsonObject = {}
        self._inputs: dict[int, str] = {}  # arguments of calls, as text

    @property
    def open_calls(self) -> Collection[object]:
        """The ids of calls whose step has not stopped."""
        return [self._blocks[index].get("id") for index in self._open]

    @property
    def body(self) -> JsonObject:
        """The interaction as far as it has come; not to be changed."""
        return self.body_between(0, None) if self._interaction or self._blocks else {}

    def is_last(self, event: JsonObject) -> bool:
        """Whether the interaction is whole."""
        return str(event.get("event_type")) in _LAST and self._interaction.get("status") != _GOES_ON

    def body_between(self, first: int, last: int | None) -> JsonObject:
        """The interaction with these steps."""
        self._texts.settle_all()
        steps = [self._step(index) for index in self._order[first:last]]
        stated = {key: value for key, value in self._interaction.items() if key != "steps" or not self._order}
        return {"object": "interaction", "status": "in_progress", **({"steps": steps} if steps else {}), **stated}

    def _step(self, index: int) -> JsonObject:
        """A step with the arguments that have come; text that is not JSON (yet) stays text."""
        text = self._texts.settle(self._inputs, index)
        return {**self._blocks[index], "arguments": input_of(text)} if text else self._blocks[index]

    def output_in(self, event: JsonObject) -> bool:
        """Whether a step grows, or begins with something."""
        step, interaction = event.get("step"), event.get("interaction")
        begun = isinstance(step, dict) and any(value for key, value in step.items() if key != "type")
        whole = isinstance(interaction, dict) and bool(interaction.get("steps"))
        return event.get("event_type") == "step.delta" or begun or whole

    def add(self, event: JsonObject) -> None:
        """Take in an event."""
        event = json_copy(event, "the event")
        kind = event.get("event_type")
        if kind == "step.start" and isinstance(event.get("step"), dict):
            self._start(event, event["step"])
        elif kind == "step.delta" and isinstance(event.get("delta"), dict):
            self._grow(event, event["delta"])
            metadata = event.get("metadata")
            self._count(metadata.get("total_usage") if isinstance(metadata, dict) else None)
        elif kind == "step.stop":
            self._open.pop(index_of(event, len(self._blocks) - 1), None)
            self._count(event.get("usage"))
        elif isinstance(kind, str) and kind.startswith("interaction."):
            self._take_keys(event, kind)

    def _take_keys(self, event: JsonObject, kind: str) -> None:
        """Take in what an event says of the interaction, in an object of its own or in the event itself."""
        interaction = event.get("interaction")
        stated = interaction if isinstance(interaction, dict) else event
        keys = {key: value for key, value in stated.items() if value is not None and not key.startswith("event_")}
        if "interaction_id" in keys:
            keys.setdefault("id", keys.pop("interaction_id"))
        self._count(keys.pop("usage", None))
        if kind == "interaction.cancelled":
            keys.setdefault("status", "cancelled")
        if kind == "interaction.completed" and self._interaction.get("status") in (None, "in_progress", "queued"):
            keys.setdefault("status", "completed")
        self._interaction |= keys
        status = self._interaction.get("status")
        self.is_ended = kind in _LAST or (isinstance(status, str) and STATUSES.get(status) not in (None, "in_progress"))

    def _count(self, usage: Any) -> None:
        """Take in what was counted so far."""
        if isinstance(usage, dict) and usage:
            self._interaction["usage"] = cumulative(self._interaction.get("usage"), usage)

    def _start(self, event: JsonObject, step: JsonObject) -> None:
        """A step begins; its arguments come in deltas, or with it."""
        index = index_of(event, len(self._blocks))
        if index not in self._blocks:
            self._order.insert(bisect_left(self._order, index), index)
        self.note_change(bisect_left(self._order, index))
        self._texts.forget(self._inputs, index)
        self._inputs.pop(index, None)
        self._blocks[index], self._open[index] = step, None

    def _grow(self, event: JsonObject, delta: JsonObject) -> None:
        """A step grows."""
        kind = str(delta.get("type"))
        index = index_of(event, max(len(self._blocks) - 1, 0))
        if index not in self._blocks:
            self._start({"index": index}, {"type": _BEGINS.get(kind, kind)})
        self.note_change(bisect_left(self._order, index))
        step = self._blocks[index]
        held = delta.get("content") if kind == "thought_summary" else delta
        if kind == "arguments_delta":
            self._texts.grow(self._inputs, index, delta.get("arguments"))
        elif kind == "text_annotation_delta":
            self._annotate(list_in(step, "content"), delta.get("annotations"))
        elif kind in ("thought_summary", *CONTENTS) or step.get("type") == MODEL_OUTPUT:
            if isinstance(held, dict):
                self._add_content(list_in(step, "content" if held is delta else "summary"), held)
        else:
            self._add_keys(step, {key: value for key, value in delta.items() if key != "type" and value is not None})

    def _annotate(self, contents: list[Any], annotations: Any) -> None:
        """Add annotations to the last text."""
        if not contents or not isinstance(contents[-1], dict) or contents[-1].get("type") != "text":
            contents.append({"type": "text", "text": ""})
        list_in(contents[-1], "annotations").extend(annotations if isinstance(annotations, list) else ())

    def _add_content(self, contents: list[Any], content: JsonObject) -> None:
        """Add a content to a list of them; more of a text, or of a sound of the same kind, goes on with the last."""
        last = contents[-1] if contents and isinstance(contents[-1], dict) else {}
        key = {"text": "text", "audio": "data"}.get(str(content.get("type")), "")
        same = {name: value for name, value in content.items() if name != key and value is not None}
        is_more = key and isinstance(content.get(key), str) and isinstance(last.get(key), str)
        if is_more and all(last.get(name) == value for name, value in same.items()):
            self._texts.grow(last, key, content[key], "".join if key == "text" else joined_base64)
        else:
            contents.append({name: value for name, value in content.items() if value is not None})

    def _add_keys(self, step: JsonObject, keys: JsonObject) -> None:
        """Add what a delta says of a call or result of a tool."""
        for key, value in keys.items():
            before = step.get(key)
            if key in _GROWS and isinstance(before, list) and isinstance(value, list):
                before.extend(value)
            elif key in _GROWS and isinstance(before, str) and isinstance(value, str):
                self._texts.grow(step, key, value)
            else:
                self._texts.forget(step, key)
                step[key] = {**before, **value} if isinstance(before, dict) and isinstance(value, dict) else value


assembler: Final = InteractionAssembler
