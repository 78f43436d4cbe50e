"""A sixth format, as small as one can be: texts in, a text out, and nothing streamed."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.formats import ErrorKeys, Format, Signs

FORMAT: Final = Format(
    name="prompt",
    package=__name__,
    signs=Signs(turns="prompt", body={"completion": str}),
    error_keys=ErrorKeys(holders=("failure",), type="what", code="number", messages=("why",)),
    has_streams=False,
)
