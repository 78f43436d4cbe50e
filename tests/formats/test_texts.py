"""Texts that are no valid Unicode: kept as they are, repaired on the wire."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from tests.formats.factories import answer, assistant, call, codes, output, render, user
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.shared.rendering import valid_text


@pytest.mark.parametrize("format_name", NAMES)
def test_what_is_no_unicode_is_mended_wherever_it_stands(format_name: FormatName) -> None:
    raw = b"caf\xe9".decode("utf-8", "surrogateescape")
    items = [user(raw), call("k"), output("k", [{"type": "input_text", "text": raw}])]
    found = render(format_name, *items)
    json.dumps(found.payload, ensure_ascii=False).encode()
    found.body.decode()
    assert str(found.payload).count("caf\ufffd") == 2
    assert [one.position for one in found.repairs if one.code == "invalid_text"] == [0, 2]
    assert found.losses == []


def test_what_came_from_a_provider_goes_back_to_it_as_it_came() -> None:
    said = answer(assistant("a\ud800b"), origin="messages")
    assert render("messages", user("Hi"), said).payload["messages"][1]["content"][0]["text"] == "a\ud800b"
    other = render("chat_completion", user("Hi"), said)
    assert "a\ufffdb" in str(other.payload)
    assert codes(other) == ([], ["invalid_text"])
    request = {"model": "m", "messages": [{"role": "user", "content": "a\ud800b"}]}
    assert get_format("chat_completion").parse_request(request).request_payload("chat_completion") == request


def test_valid_text_stays_to_the_letter() -> None:
    items = [user("\U0001f600 \u0000 \ufffd"), {"type": "web_search_call", "x": 2**70}]
    assert render("open_responses", *items).repairs == []


def test_ids_stay_so_that_calls_and_outputs_match() -> None:
    found = render("chat_completion", user("go"), call("k\ud800"), output("k\ud800", "done"))
    assert [message.get("content") for message in found.payload["messages"]][2] == "done"


@given(value=st.one_of(JSON, st.text(st.characters(), max_size=9)))
def test_every_value_becomes_unicode(value: object) -> None:
    found = valid_text(value)
    json.dumps(found, ensure_ascii=False).encode()
    assert valid_text(found) == found or found != found  # noqa: PLR0124 - NaN is no value of its own
