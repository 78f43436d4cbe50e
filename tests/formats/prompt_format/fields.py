"""Options of the sixth format: every option has a row."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.options import OPTIONS
from threadkeep.formats.shared.fields import Field, NoField, Row, SpecialField

NAME: Final = "prompt"
_SENT: Final[dict[str, Row]] = {
    "model": Field("model", "engine"),
    "temperature": Field("temperature", "settings.temperature"),
    "instructions": SpecialField("instructions", "the first text"),
}
FIELDS: Final = tuple(_SENT.get(option, NoField(option, "the format has no such setting")) for option in OPTIONS)
