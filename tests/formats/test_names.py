"""Names and media: what is sent in place of what a provider refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.formats.factories import codes, render, user
from threadkeep import ToolNotFound, ToolRegistry
from threadkeep.domain.tool_names import OPENAI_NAMES, NameRule, Names, hashed, is_valid_name, stands_for
from threadkeep.formats import NAMES, FormatName
from threadkeep.formats.messages import fields as messages
from threadkeep.formats.shared import google
from threadkeep.formats.shared.parts import ENDINGS, in_base64, is_textual, note

RULES = [OPENAI_NAMES, messages.NAMES, google.NAMES]


@given(tools=st.lists(st.text(max_size=70), max_size=6), name=st.text(max_size=70))
def test_every_name_that_is_sent_is_valid_and_stands_for_one_tool(tools: list[str], name: str) -> None:
    names = Names(tools)
    sent = [names.wire(tool) for tool in dict.fromkeys(tools)]
    assert all(is_valid_name(one) for one in [*sent, names.wire(name)])
    assert len(set(sent)) == len(sent)
    assert Names(tools).wire(name) == names.wire(name)


def test_a_valid_name_is_never_changed_and_a_cleaned_one_gives_way() -> None:
    assert Names(["my.tool", "my_tool"]).wire("my_tool") == "my_tool"
    assert Names(["my.tool"]).wire("my.tool") == "my_tool"
    assert Names().wire("ä").endswith(hashed("ä"))
    assert Names().wire(None) == Names().wire("")


def says(tool: str) -> Callable[[Any], str]:
    """A handler that returns the name of its tool."""
    return lambda _arguments, /: tool


@pytest.mark.parametrize("rule", RULES)
@given(tools=st.lists(st.text("ab1._-: ä/", min_size=1, max_size=80), min_size=1, max_size=6, unique=True))
def test_a_call_by_the_name_that_was_sent_runs_the_tool(rule: NameRule, tools: list[str]) -> None:
    """Where it can mean one alone; it never runs another one."""
    registry, names = ToolRegistry(), Names(tools, rule)
    for tool in tools:
        registry.register(tool, "A tool", {"type": "object"}, handler=says(tool))
    for tool in tools:
        try:
            assert registry.invoke(names.wire(tool), {}) == tool
        except ToolNotFound:
            assert any(stands_for(names.wire(tool), other) for other in tools if other != tool)


def test_the_same_text_at_two_places_has_two_hashes() -> None:
    assert hashed("a") != hashed("a", 1) != hashed("a", 2)


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("data:text/plain,a%20b", "data:text/plain;base64,YSBi"),
        ("data:,hi", "data:text/plain;base64,aGk="),
        ("data:text/plain;base64,aGk=", "data:text/plain;base64,aGk="),
        ("data:;base64,aGk=", "data:;base64,aGk="),
        ("data:text/plain", "data:text/plain"),
        ("https://img.example.org", "https://img.example.org"),
    ],
)
def test_data_urls_are_brought_into_base64(url: str, expected: str) -> None:
    assert in_base64(url) == expected


@pytest.mark.parametrize("media_type", ["text/html", "application/json", "image/svg+xml", "application/vnd.x+json"])
def test_textual_types(media_type: str) -> None:
    assert is_textual(media_type)
    assert not is_textual("application/pdf")


def test_notes_name_what_is_missing_in_short() -> None:
    assert note({"type": "input_file", "file_data": "data:a/b;base64,AAAA"}) == "[file not included: a/b]"
    assert note({"type": "input_image"}) == "[image not included: no source]"
    assert note({"type": "input_image", "image_url": "https://" + "x" * 300}) == "[image not included: long URL]"
    assert note({"type": "input_file", "filename": "x" * 300}) == f"[file not included: {'x' * 200}…]"
    assert ENDINGS["text/csv"] == "csv"


@pytest.mark.parametrize("name", [name for name in NAMES if name != "pydantic_ai"])
@pytest.mark.parametrize(
    ("filename", "data", "media_type"),
    [
        ("a.pdf", "JVBERi0xLjcK", "application/pdf"),
        (None, "JVBERi0xLjcK", "application/pdf"),
        ("b.txt", "YSBi", "text/plain"),
    ],
)
def test_bare_base64_of_a_file_is_its_data(name: FormatName, filename: str | None, data: str, media_type: str) -> None:
    """OpenAI's reference calls `file_data` base64; taken for an address, it would be lost."""
    file = {"type": "input_file", "file_data": data, **({"filename": filename} if filename else {})}
    as_url = {**file, "file_data": f"data:{media_type};base64,{data}"}
    found, same = (render(name, user("Read it.", one)) for one in (file, as_url))
    assert found.payload == same.payload
    assert codes(found) == codes(same)
