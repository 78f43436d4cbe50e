"""What tests of Converse requests have in common: a render that is judged, and requests in short."""

from __future__ import annotations

from typing import Any

from tests.formats.factories import snapshot
from tests.formats.validity_converse import refused
from threadkeep.domain.rendering import Rendered
from threadkeep.formats import get_format

Json = dict[str, Any]
FORMAT = get_format("converse")
CLAUDE = "us.anthropic.claude-sonnet-4-6"
LOOKUP = {"type": "function", "name": "lookup"}


def render(*items: Any, **settings: Any) -> Rendered:
    """A rendered conversation that the service would take."""
    rendered = FORMAT.render(snapshot(*items, **{"tools": [LOOKUP], **settings}))
    assert refused(rendered.payload) == []
    return rendered


def outline(rendered: Rendered) -> list[str]:
    """The messages in short: role, and what stands in each block."""
    return [f"{one['role']}: {' '.join(map(shape, one['content']))}" for one in rendered.payload["messages"]]


def shape(block: Json) -> str:
    """A block in short."""
    match block:
        case {"text": text}:
            return repr(text)
        case {"toolUse": {"toolUseId": call_id}}:
            return f"call({call_id})"
        case {"toolResult": {"toolUseId": call_id, "content": [{"text": text}]}}:
            return f"result({call_id}={text})"
    return next(iter(block))
