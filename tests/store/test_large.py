"""Large values: stored and returned exactly, or refused before anything is sent to the server."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from tests.databases import Database
from tests.factories import a_message, an_answer, an_output
from tests.store.watching import Tables
from threadkeep import TooLarge


def big_outputs() -> dict[str, str]:
    return {"ascii": "x" * 20_000_000, "quotes": '"' * 9_000_000, "emoji": "👩" * 4_500_000}


@pytest.mark.parametrize("kind", ["ascii", "quotes", "emoji"])
def test_a_large_output_is_stored_or_refused(
    database: Database, conversation: Any, elsewhere: Any, tables: Tables, kind: str
) -> None:
    """MariaDB takes packets of 16 MB as it is delivered; what does not fit is refused before it is sent."""
    output = big_outputs()[kind]
    written = tables.written()
    if database.kind == "mariadb":
        for call in (
            lambda: conversation.add_item(an_output("c", output)),
            lambda: conversation.add_response(an_answer(output), "open_responses"),
        ):
            with pytest.raises(TooLarge, match="max_allowed_packet"):
                call()
        assert written() == {}
        conversation.user("The connection is as good as before")
    else:
        conversation.add_item(an_output("c", output))
        assert elsewhere.get_conversation(conversation.id).get_item(0).item.output == output


@pytest.mark.parametrize("place", ["error", "option", "title", "tool", "creation", "usage"])
def test_large_values_are_refused_everywhere(
    database: Database, store: Any, conversation: Any, tables: Tables, place: str
) -> None:
    big = "x" * 17_000_000
    calls: dict[str, Callable[[], Any]] = {
        "error": lambda: conversation.record_attempt("open_responses", error=big),
        "option": lambda: conversation.update(instructions=big),
        "title": lambda: conversation.update(title=big),
        "tool": lambda: conversation.register_tool("t", description=big),
        "creation": lambda: store.create_conversation(title=big),
        "usage": lambda: conversation.add_response(an_answer(usage={"input_tokens": 1, "x": big}), "open_responses"),
    }
    written = tables.written()
    if database.kind == "mariadb":
        with pytest.raises(TooLarge):
            calls[place]()
        assert written() == {}
        assert conversation.user("Hi").position == 0
    else:
        calls[place]()
        assert written() != {} or place == "title"


def test_many_large_items_are_more_than_a_packet(conversation: Any, elsewhere: Any) -> None:
    """The limit is about one row, not about what is appended at once."""
    conversation.add_items([a_message("x" * 3_000_000) for _ in range(8)])
    assert len(elsewhere.get_conversation(conversation.id).request_body("open_responses")) > 24_000_000
