"""What the provider of any format, or the types of its SDK, would refuse."""

from __future__ import annotations

from typing import Any

from tests.formats import (
    sdk_strict,
    validity,
    validity_converse,
    validity_gemini,
    validity_interactions,
    validity_messages,
    validity_pydantic_ai,
    validity_ui_messages,
)
from tests.formats.sdk_types import unfit


def faults(payload: dict[str, Any], format_name: str, model: str | None = None) -> list[str]:
    """What is wrong with a payload; the model is for formats whose requests do not name it."""
    match format_name:
        case "converse":
            return validity_converse.refused(payload)
        case "gemini":
            return validity_gemini.refused(payload, model)
        case "interactions":
            return validity_interactions.refused(payload)
        case "pydantic_ai":
            return validity_pydantic_ai.refused(payload)
        case "ag_ui":
            ids = [message.get("id") for message in payload["messages"]]
            return [
                *sdk_strict.unfit(payload, format_name),
                *(["ids are not unique"] if len({*ids}) < len(ids) else []),
            ]
        case "ui_messages":
            return validity_ui_messages.refused(payload)
        case "messages":
            return [*validity_messages.refused(payload), *unfit(payload, format_name)]
    return [*validity.refused(payload, format_name), *unfit(payload, format_name)]
