"""Arguments of calls that come in pieces: each says where it belongs, by a JSON path.

Source: Vertex AI, "Streaming function call arguments"; Google's API reference, "PartialArg".
"""

from __future__ import annotations

import re
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject

_STEP: Final = re.compile(r"\.([^.\[\]]+)|\[(\d+)\]|\['([^']*)'\]|\[\"([^\"]*)\"\]")
_VALUES: Final = ("stringValue", "numberValue", "boolValue")
_LONGEST: Final = 10_000  # elements that a path may make a list have


class GrowingCall:
    """A call whose arguments still come."""

    def __init__(self, part: JsonObject) -> None:
        self.part: JsonObject = part
        self.is_ended = False
        self.part = self._with(part)

    @classmethod
    def begun(cls, part: Any) -> GrowingCall | None:
        """The call that a part begins; None where the part is whole."""
        call = part.get("functionCall") if isinstance(part, dict) else None
        if not isinstance(call, dict) or not (call.get("willContinue") is True or call.get("partialArgs")):
            return None
        return cls({**part, "functionCall": {**call, "args": call.get("args") or {}}})

    def takes(self, part: Any) -> bool:
        """Whether a part goes on with this call: it names none."""
        call = part.get("functionCall") if isinstance(part, dict) else None
        return isinstance(call, dict) and not call.get("name") and isinstance(call.get("partialArgs") or [], list)

    def add(self, part: JsonObject) -> None:
        """Take in the next part of the call."""
        others = {key: value for key, value in part.items() if key != "functionCall"}
        call = {**part["functionCall"], "args": self.part["functionCall"]["args"]}
        self.part = {**self.part, **others, "functionCall": {**self.part["functionCall"], **call}}
        self.part = self._with(self.part)
        self.is_ended = part["functionCall"].get("willContinue") is not True

    def _with(self, part: JsonObject) -> JsonObject:
        """The part with its pieces in its arguments."""
        call = dict(part["functionCall"])
        call.pop("willContinue", None)
        pieces = call.pop("partialArgs", None)
        args = call["args"]
        for piece in pieces if isinstance(pieces, list) else ():
            if isinstance(piece, dict):
                path = [a or b or c or d for a, b, c, d in _STEP.findall(str(piece.get("jsonPath") or ""))]
                args = placed(args, path, piece)
        return {**part, "functionCall": {**call, "args": args}}


def placed(value: Any, path: list[str], piece: JsonObject) -> Any:
    """A value with a piece at its place; texts grow."""
    if not path:
        found = next((piece[key] for key in _VALUES if key in piece), None)
        return value + found if isinstance(value, str) and isinstance(found, str) else found
    step, *rest = path
    if step.isdigit() and not isinstance(value, dict):
        held = list(value) if isinstance(value, list) else []
        index = min(int(step), len(held), _LONGEST)
        held[index : index + 1] = [placed(held[index] if index < len(held) else None, rest, piece)]
        return held
    held_object = value if isinstance(value, dict) else {}
    return {**held_object, step: placed(held_object.get(step), rest, piece)}
