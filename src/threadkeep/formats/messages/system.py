"""The system text of the Messages API: instructions first, then the texts of system and developer items.

A request that came from the wire may have had it as a string, or as blocks with keys of their own: what cannot be
said by `instructions` is noted in the spelling of the request and put back where the text is still the same.

Source: Anthropic's API reference, "Messages", system.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.messages.parts import block_type, text_of
from threadkeep.formats.shared.rendering import Rendering
from threadkeep.formats.shared.reports import Context

SEAM: Final = "\n\n"  # between the blocks that make up the instructions


def wire_system(rendering: Rendering, hoisted: Sequence[JsonObject]) -> Any:
    """The value of `system`; None when there is no text."""
    instructions = rendering.snapshot.settings.get("instructions")
    spelling = None if rendering.spelling is None else rendering.spelling.get("system")
    spelled = None if instructions is None else _spelled(instructions, spelling)
    if not hoisted and (spelled is not None or spelling == []):
        return [] if spelled is None else spelled
    blocks = [{"type": "text", "text": instructions or ""}] if not isinstance(spelled, list) else spelled
    system = [block for block in [*blocks, *hoisted] if _says_something(block, rendering.context)]
    return system or None


def _says_something(block: JsonObject, context: Context) -> bool:
    text = text_of(block)
    if text is not None:
        return bool(text.strip())
    context.loss("provider_item", "content", f"A block of type {block_type(block)!r} has no place in the system text.")
    return False


def _spelled(instructions: str, spelling: Any) -> Any:
    """Instructions as the request spelled them; None where they are others now."""
    if spelling == "text":
        return instructions
    if not isinstance(spelling, list):
        return None
    blocks: list[JsonObject] = []
    start = 0
    for one in spelling:
        end = start + one["length"]
        blocks.append({"type": "text", "text": instructions[start:end], **one["keys"]})
        is_last = len(blocks) == len(spelling)
        if instructions[end : None if is_last else end + len(SEAM)] != ("" if is_last else SEAM):
            return None
        start = end + len(SEAM)
    return blocks


def read_system(system: Any) -> tuple[str, Any] | None:
    """The instructions of a request and how it spelled them; None where they are not texts."""
    if isinstance(system, str):
        return system, "text"
    if not isinstance(system, list) or not system:
        return None
    texts = [text for block in system if (text := text_of(block)) is not None]
    if len(texts) < len(system):
        return None
    keys = [{key: value for key, value in block.items() if key not in ("type", "text")} for block in system]
    spelling = [{"length": len(text), "keys": inner} for text, inner in zip(texts, keys, strict=True)]
    return SEAM.join(texts), spelling
