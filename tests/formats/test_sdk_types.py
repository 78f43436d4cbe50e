"""Requests fit the types of the vendor's own SDK, where these say what the service takes."""

from __future__ import annotations

import pytest
from hypothesis import given

from tests.formats.conversations import CONVERSATIONS, Conversation
from tests.formats.sdk_types import TYPES, unfit
from threadkeep.errors import CannotRender
from threadkeep.formats import FormatName, get_format


@pytest.mark.parametrize("format_name", sorted(TYPES))
@given(conversation=CONVERSATIONS)
def test_any_conversation_fits_the_types_of_the_sdk(format_name: FormatName, conversation: Conversation) -> None:
    try:
        payload = get_format(format_name).render(conversation.snapshot()).payload
    except CannotRender:
        payload = {}
    assert list(unfit(payload, format_name)) == []
