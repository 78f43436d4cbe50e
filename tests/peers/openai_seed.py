"""A plugin of pytest: what openai's own tests expect a server to have, made anew before each of them."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from threadkeep import Store

CONVERSATION, ITEM = "conv_123", "msg_abc"
RESPONSES = ("resp_677efb5139a88190b512bc3fef8e535d", "response_id")
ANSWER = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Hello"}]}


@pytest.fixture(scope="session")
def served_store() -> Iterator[Store]:
    with Store(os.environ["THREADKEEP_SEEDED_URL"]) as store:
        yield store


@pytest.fixture(autouse=True)
def seeded(served_store: Store) -> None:
    """A conversation of that name with that item, and responses with these ids."""
    for name in (CONVERSATION, *RESPONSES):
        known = served_store.find_conversation(external_id=name)
        if known is not None:
            served_store.delete_conversation(known.id)
    made = served_store.create_conversation(external_id=CONVERSATION)
    made.add_item({"type": "message", "id": ITEM, "role": "user", "content": "Hi"})
    for id_ in RESPONSES:
        asked = served_store.create_conversation(external_id=id_, model="gpt-5.4", input="Hi")
        body = {"id": id_, "model": "gpt-5.4", "status": "completed", "output": [ANSWER]}
        asked.add_response(body, "open_responses")
