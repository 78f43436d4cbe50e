"""Texts that are no valid Unicode: kept as they are, repaired on the wire."""

from __future__ import annotations

import json
import math
from typing import Any

import orjson
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from tests.formats.factories import answer, assistant, call, codes, output, reasoning, render, snapshot, user
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import LossError
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.shared.arguments import Mending


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


@pytest.mark.parametrize("format_name", NAMES)
def test_so_is_what_goes_back_to_the_provider_that_said_it(format_name: FormatName) -> None:
    """Which takes no JSON that is not Unicode, whatever it has sent."""
    found = render(format_name, user("Hi"), answer(assistant("a\ud800b"), origin=format_name), user("Go on"))
    assert "a\ufffdb" in found.body.decode()
    assert codes(found) == ([], ["invalid_text"])


def test_valid_text_stays_to_the_letter() -> None:
    items = [user("\U0001f600 \u0000 \ufffd"), {"type": "web_search_call", "x": 2**70}]
    assert render("open_responses", *items).repairs == []


@pytest.mark.parametrize("format_name", NAMES)
def test_calls_and_outputs_still_match(format_name: FormatName) -> None:
    spoiled = call("k\ud800", "look\ud800up", '{"s":"\ud800","t":"\\ud800"}', id="fc_\ud800")
    found = render(format_name, user("go"), spoiled, output("k\ud800", "done\ud800"))
    orjson.loads(found.body)
    assert "done\ufffd" in found.body.decode()
    assert {one.position for one in found.repairs if one.code == "invalid_text"} == {1, 2}
    assert "missing_output" not in codes(found)[1]


@pytest.mark.parametrize("format_name", NAMES)
def test_options_and_tools_are_mended_too(format_name: FormatName) -> None:
    text = "a\ud800"
    tool = {"type": "function", "name": "f", "description": text, "parameters": {"type": "object", "title": text}}
    found = get_format(format_name).render(
        snapshot(user("Hi"), tools=[tool], instructions=text, user=text, metadata={"k": text}, extra={"stop": [text]})
    )
    assert valid_text(found.payload) == found.payload
    orjson.loads(found.body)
    reported = [one.path for one in found.repairs if one.code == "invalid_text"]
    assert reported == ["instructions", "user", "metadata", "extra.stop", "tools[0].description", "tools[0].parameters"]


NAN = float("nan")


@pytest.mark.parametrize("format_name", NAMES)
def test_numbers_that_json_has_not_are_left_out(format_name: FormatName) -> None:
    """A strict request is refused: what was set is not sent."""
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "maximum": NAN, "x": {"enum": [1, NAN]}}}
    extra = {"stop": NAN, format_name: {"x": NAN, "y": 1}}
    conversation = snapshot(user("Hi"), tools=[tool], temperature=float("inf"), extra=extra)
    found = get_format(format_name).render(conversation)
    assert orjson.loads(found.body) == found.payload
    assert b"NaN" not in found.body
    assert b'"enum":[1,null]' in found.body.replace(b" ", b"")
    lost = [one.path for one in found.losses if one.code == "number"]
    assert lost == ["temperature", "extra.stop", f"extra.{format_name}", "tools[0].parameters"]
    with pytest.raises(LossError, match="NaN or infinite"):
        get_format(format_name).render(conversation, RenderOptions(strict=True))


def test_numbers_of_items_are_left_out() -> None:
    found = render("open_responses", user("Hi"), {"type": "weird", "value": NAN, "others": [NAN, 2**70]})
    assert found.payload["input"][1] == {"type": "weird", "others": [None, 2**70]}
    assert [(one.code, one.position) for one in found.losses] == [("number", 1)]
    before = render("open_responses", user("Hi"), {"type": "weird", "value": NAN}, options=RenderOptions(upto=0))
    assert before.losses == []


def test_what_only_another_format_sends_is_no_loss() -> None:
    assert render("messages", user("Hi"), extra={"chat_completion": {"x": NAN}}).losses == []


@pytest.mark.parametrize("format_name", NAMES)
def test_an_imported_request_is_mended_where_it_goes_back(format_name: FormatName) -> None:
    messages = [{"role": "user", "content": "a\ud800b"}]
    session = get_format("messages").parse_request({"model": "m", "temperature": NAN, "messages": messages})
    found = session.render(format_name)
    orjson.loads(found.body)
    assert "temperature" not in found.body.decode()
    path = "extra.messages" if format_name == "messages" else "extra.messages.temperature"
    assert [one.path for one in found.losses] == [path]


def valid_text(value: Any) -> Any:
    """A value as it can be sent."""
    return Mending().value(value)


SPOILED = st.text(st.sampled_from("ab\ud800\udfff\u20ac"), min_size=1, max_size=5)
TOLD = st.builds(
    lambda first, second, rest: {first: second, "l": rest}, SPOILED, SPOILED, st.lists(SPOILED, max_size=2)
)
ITEMS = st.lists(
    st.one_of(
        st.builds(user, SPOILED),
        st.builds(assistant, SPOILED, id=SPOILED),
        st.builds(
            lambda text: user({"type": "input_file", "filename": text, "file_url": f"https://h/{text}"}), SPOILED
        ),
        st.builds(call, SPOILED, SPOILED, SPOILED),
        st.builds(lambda key, told: call(key, "f", json.dumps(told)), SPOILED, TOLD),
        st.builds(output, SPOILED, SPOILED),
        st.builds(lambda key, told: output(key, json.dumps(told)), SPOILED, TOLD),
        st.builds(lambda kind, told: {"type": kind, "payload": told}, SPOILED, TOLD),
        st.builds(lambda text: answer(reasoning(encrypted_content=text), assistant(text)), SPOILED),
        st.builds(lambda text, origin: answer(assistant(text), origin=origin), SPOILED, st.sampled_from(NAMES)),
    ),
    max_size=5,
)
SETTINGS = st.fixed_dictionaries(
    {},
    optional={
        "instructions": SPOILED, "user": SPOILED, "safety_identifier": SPOILED,
        "metadata": st.dictionaries(SPOILED, SPOILED, max_size=2),
        "extra": st.dictionaries(st.sampled_from(["stop", *NAMES]), TOLD), "model": SPOILED,
    },
)  # fmt: skip
TOOLS = st.lists(
    st.builds(
        lambda name, text, told: {"type": "function", "name": name, "description": text, "parameters": told},
        SPOILED, SPOILED, TOLD,
    ),
    max_size=2,
)  # fmt: skip


@example(
    items=[{"type": "function_call", "call_id": "\ud800\udfff", "name": "a", "arguments": "a"}], settings={}, tools=[],
    format_name="pydantic_ai",
)  # fmt: skip
@given(items=ITEMS, settings=SETTINGS, tools=TOOLS, format_name=st.sampled_from(NAMES))
def test_every_request_is_unicode(
    items: list[Any], settings: dict[str, Any], tools: list[dict[str, Any]], format_name: FormatName
) -> None:
    found = get_format(format_name).render(snapshot(user("Hi"), *items, tools=tools, **settings))
    orjson.loads(found.body)
    assert valid_text(found.payload) == found.payload
    said = json.dumps([found.payload, settings.get("instructions")], ensure_ascii=False)
    assert ("invalid_text" in codes(found)[1]) >= ("\ufffd" in said)


@given(value=st.one_of(JSON, st.text(st.characters(), max_size=9)))
def test_every_value_becomes_unicode(value: object) -> None:
    found = valid_text(value)
    json.dumps(found, ensure_ascii=False).encode()
    is_number_of_no_json = isinstance(found, float) and not math.isfinite(found)  # left out only of what holds it
    assert valid_text([found]) == [found] or is_number_of_no_json
