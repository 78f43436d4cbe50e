"""The cases of the reference behaviour, in `tests/vectors`, and how what is found is compared with them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any, Final

from threadkeep import errors

FOLDER = Path(__file__).parent / "vectors"
FORMATS: Final = ("open_responses", "chat_completion", "messages", "converse", "gemini")
# the reference's class -> ours
ERRORS = {
    "UnsupportedFormatError": errors.CannotRender,
    "InvalidItemError": errors.InvalidItem,
    "UnexpectedPayloadError": errors.CannotParse,
    "ErrorResponseError": errors.ProviderError,
}


def cases_in(name: str) -> list[dict[str, Any]]:
    """The cases of a file."""
    with (FOLDER / f"{name}.jsonl").open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def error_of(case: dict[str, Any]) -> type[Exception]:
    """The error that a case expects; some name only what is wrong."""
    default = errors.CannotRender if "/req/" in case["id"] else errors.CannotParse
    return ERRORS.get(case["error"].partition(":")[0], default)


def without_ours(thing: Any) -> Any:
    """Items without what the reference does not keep: origin, native keys, blocks of one provider."""
    if isinstance(thing, dict):
        return {key: without_ours(value) for key, value in thing.items() if key not in ("origin", "native")}
    if isinstance(thing, list):
        kept = [one for one in thing if not (isinstance(one, dict) and one.get("type") == "provider_item")]
        return [without_ours(one) for one in kept]
    return thing


def with_patterns(found: Any, expected: Any) -> Any:
    """What was found, with the patterns of a case in place of the texts that match them."""
    if isinstance(expected, dict) and isinstance(found, dict):
        return {key: with_patterns(value, expected.get(key)) for key, value in found.items()}
    if isinstance(expected, list) and isinstance(found, list) and len(expected) == len(found):
        return [with_patterns(one, other) for one, other in zip(found, expected, strict=True)]
    is_pattern = isinstance(expected, dict) and expected.keys() == {"$pattern"}
    return expected if is_pattern and isinstance(found, str) and re.search(expected["$pattern"], found) else found
