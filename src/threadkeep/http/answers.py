"""What is answered as JSON."""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from threadkeep.domain.jsontext import dumps


class JsonAnswer(Response):
    """A response with a JSON body."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """Return the JSON text."""
        return dumps(content)
