"""Images that a browser may show as they are: it runs nothing in them, unlike in SVG."""

from __future__ import annotations

from typing import Final

PICTURES: Final = frozenset({"image/png", "image/jpeg", "image/gif", "image/webp"})
