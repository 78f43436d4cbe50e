"""A conversation that counts, for tests of branches and removals: what it says, and what a request shows of it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import texts_of


@pytest.fixture
def root(store: Any) -> Any:
    """A conversation that says 0, 1, 2, 3."""
    conversation = store.create_conversation(model="m", input="0")
    for text in "123":
        conversation.user(text)
    return conversation


def says(handle: Any) -> str:
    return " ".join(texts_of(handle.transcript()))


def sent(handle: Any, **view: Any) -> str:
    payload = handle.request_payload("open_responses", **view)
    return " ".join(part["text"] for item in payload["input"] for part in item["content"])
