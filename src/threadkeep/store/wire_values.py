"""What callers hand over of a provider, as plain JSON."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Any, Final

_SCALARS: Final = (str, int, float, bool, type(None))


def plain(value: Any) -> Any:
    """A value as JSON: objects of SDKs, wherever they stand, as what they dump; bytes as base64, as they are sent."""
    if isinstance(value, _SCALARS):
        return value
    if isinstance(value, Mapping):
        return {name: plain(one) for name, one in value.items()}
    if isinstance(value, list | tuple):
        return [plain(one) for one in value]
    if isinstance(value, bytes | bytearray):
        return base64.b64encode(value).decode()
    dump = getattr(value, "model_dump", None)
    return plain(dump(mode="json", by_alias=True, exclude_unset=True)) if callable(dump) else value


def wire_text(value: Any) -> Any:
    """A whole body, request, turn list or event: JSON text stays as it is, everything else becomes plain JSON."""
    return value if isinstance(value, str | bytes | bytearray) else plain(value)
