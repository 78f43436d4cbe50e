"""Claude's signed thinking, whether it came from Anthropic's API, from Bedrock, or in a message of Pydantic AI."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.jsontext import JsonObject

ANTHROPIC, BEDROCK = "anthropic", "bedrock"  # providers, as Pydantic AI names them
REDACTED: Final = "redacted_thinking"
_PYDANTIC_AI: Final = "pydantic_ai"
_SIGNERS: Final = {"messages": ANTHROPIC, "converse": BEDROCK}
# signer -> the id by which Pydantic AI knows thinking that is encrypted
REDACTED_IDS: Final = {ANTHROPIC: REDACTED, BEDROCK: "redacted_content"}


def signer_of(item: JsonObject) -> str | None:
    """The provider that signed the thinking of a reasoning item; None where it is not known."""
    origin = item.get("origin")
    if origin == _PYDANTIC_AI:
        signer = _part(item).get("provider_name")
        return signer if isinstance(signer, str) else None
    return _SIGNERS.get(str(origin))


def thinking_of(item: JsonObject) -> list[JsonObject]:
    """The blocks of a reasoning item as Anthropic writes them; of a part of Pydantic AI, if it is signed, the one."""
    content = item.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if item.get("origin") != _PYDANTIC_AI:
        return blocks
    signature = item.get("encrypted_content")
    if not isinstance(signature, str) or not signature:
        return []
    if _part(item).get("id") in REDACTED_IDS.values():
        return [{"type": REDACTED, "data": signature}]
    text = "".join(block["text"] for block in blocks if isinstance(block.get("text"), str))
    return [{"type": "thinking", "thinking": text, "signature": signature}]


def _part(item: JsonObject) -> JsonObject:
    """What a part of Pydantic AI says besides its text and signature."""
    spelling = item.get("spelling")
    part = spelling.get("part") if isinstance(spelling, dict) else None
    return part if isinstance(part, dict) else {}
