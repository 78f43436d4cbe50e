"""The input list for hosts of the Responses API that take less than OpenAI's, see `formats.shared.provider_rules`.

* What a tool returned is one text; pictures and files go into a user message behind the outputs, or into the JSON text
  of the parts where the application asks for that.
* System text is the first item, after which, or next to instructions, the host takes none: it is sent as the user's.

Sources: see the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.formats.shared import provider_rules, reports
from threadkeep.formats.shared.parts import MEDIA, TEXTS

_LIST: Final = b'"output":['  # how elements with more than a text look
_SYSTEM: Final = (b'"role":"system"', b'"role":"developer"')
_SYSTEM_ROLES: Final = ("system", "developer")
_OUTPUT: Final = b"_output"
SYSTEM_NOTE: Final = "System message:"  # before system text that is sent as the user's
MOVED: Final = "[The output is in the next user message.]"


@dataclass(slots=True)
class HostInput:
    """Elements of `input` as a host takes them, made of those for OpenAI one by one."""

    rules: provider_rules.ProviderRules
    context: reports.Context
    as_json: bool  # whether outputs of several parts are sent as JSON text
    has_system: bool  # whether the request has instructions
    elements: list[bytes] = field(default_factory=list)
    _media: list[JsonObject] = field(default_factory=list)  # of the outputs before the next element

    def take(self, elements: Sequence[bytes], stable: int) -> tuple[list[bytes], int]:
        """The elements, and how many of them no later append changes, of `stable` of the given ones."""
        count = 0
        for index, element in enumerate(elements):
            is_output = _LIST in element or (_OUTPUT in element and b'"call_id"' in element)
            if self._media and not is_output:
                self._send_media()
            self.elements.append(self._output(element) if _LIST in element else self._message(element))
            count = len(self.elements) if index < stable else count
        if self._media:
            self._send_media()
        return self.elements, count

    def _send_media(self) -> None:
        self.elements.append(dumps({"type": "message", "role": "user", "content": self._media}))
        self._media = []

    def _output(self, element: bytes) -> bytes:
        """What a tool returned, as one text."""
        item = loads(element)
        parts = item.get("output")
        if not isinstance(parts, list) or not str(item.get("type")).endswith("_output"):
            return element
        if self.as_json:
            return dumps({**item, "output": dumps(parts).decode()})
        texts = [part["text"] for part in parts if part.get("type") in TEXTS]
        media = [part for part in parts if part.get("type") in MEDIA]
        if media:
            self._media += [{"type": "input_text", "text": f"Output of the call {item.get('call_id')}:"}, *media]
            detail = "Images and files of the output were sent in a user message after it."
            self.context.repair("tool_media", "output", detail)
        if len(texts) + len(media) < len(parts):
            self.context.loss("part", "output", "Parts of the output were left out: the host takes text alone.")
        return dumps({**item, "output": "\n".join(texts) if texts or not media else MOVED})

    def _message(self, element: bytes) -> bytes:
        """An element with a role that the host takes there."""
        if self.rules.system == "anywhere" or not any(role in element for role in _SYSTEM):
            self.has_system = True
            return element
        item: JsonObject = loads(element)
        role = item.get("role")
        if role not in _SYSTEM_ROLES:
            self.has_system = True
        elif self.has_system:
            self.context.repair(
                "role", "role", f"The {role} message was sent as the user's: the host takes none there."
            )
            note: list[Any] = [{"type": "input_text", "text": SYSTEM_NOTE}]
            content = item.get("content")
            parts = content if isinstance(content, list) else [{"type": "input_text", "text": content}]
            return dumps({**item, "role": "user", "content": note + parts})
        else:
            self.has_system = True
            return dumps({**item, "role": "system"})
        return element
