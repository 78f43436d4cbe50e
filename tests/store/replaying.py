"""Recorded traffic of clients, done again in a store."""

from __future__ import annotations

import re
from typing import Any

from threadkeep import Store

Json = dict[str, Any]


def begun(store: Store, one: Json) -> Any:
    """A conversation of a recorded request; the model stands in the address where it does not stand in the body."""
    model = re.search(r"/models?/([^/:]+)", one["path"])
    is_apart = model is not None and one["format"] in ("gemini", "converse")
    return store.import_request(
        one["request"], one["format"], model=model[1] if model and is_apart else None, stream=one["stream"]
    )


def answer(conversation: Any, one: Json) -> None:
    """Store a recorded answer, or record its events."""
    if one["events"] is None:
        conversation.add_response(one["response"], one["format"])
        return
    with conversation.stream_response(one["format"]) as recorder:
        for event in one["events"]:
            recorder.feed(event)
    assert recorder.response.is_final
