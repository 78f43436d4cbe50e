from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from tests.domain.test_overlay import PAIRS
from threadkeep.domain.jsontext import dumps, loads
from threadkeep.formats.canonical.given import applied, difference

LONG = "x" * 600


def text(value: Any) -> bytes:
    return dumps(value)


@given(PAIRS)
def test_a_difference_restores_the_value_and_the_order_of_its_keys(pair: tuple[Any, Any]) -> None:
    full, base = pair
    before = copy.deepcopy(base)
    over = difference(full, base)
    stored = None if over is None else loads(text(over))
    assert text(applied(base, stored)) == text(full)
    assert text(base) == text(before), "the base is not changed"


@given(JSON)
def test_the_same_json_has_no_difference(value: Any) -> None:
    assert difference(value, loads(text(value))) is None


@given(st.dictionaries(st.text(max_size=3), JSON, min_size=2, max_size=5))
def test_the_order_of_keys_is_a_difference(value: dict[str, Any]) -> None:
    turned = dict(reversed(value.items()))
    assert list(applied(turned, difference(value, turned))) == list(value)


SPELLINGS: dict[str, tuple[Any, Any]] = {
    "a text for a part": (LONG, [{"type": "input_text", "text": LONG}]),
    "a part for a text": ([{"type": "input_text", "text": LONG}], LONG),
    "an object for its JSON": ({"b": LONG, "a": [1]}, f'{{"b":"{LONG}","a":[1]}}'),
    "a text under another key": ({"url": LONG}, {"image_url": LONG}),
    "a text in another place": ({"image_url": {"url": LONG}}, {"image_url": LONG}),
    "what a data URL encodes": ({"source": {"data": LONG}}, {"image_url": f"data:image/png;base64,{LONG}"}),
    "a data URL without its beginning twice": ({"a": LONG, "b": LONG}, {"c": f"data:;base64,{LONG}"}),
}


@pytest.mark.parametrize("name", SPELLINGS)
def test_long_texts_are_not_stored_twice(name: str) -> None:
    full, base = SPELLINGS[name]
    over = difference(full, base)
    assert len(text(over)) < 250
    assert text(applied(base, over)) == text(full)


def test_a_long_text_that_is_nowhere_else_is_kept() -> None:
    over = difference({"a": LONG, "b": LONG + "y"}, {"c": LONG})
    assert LONG + "y" in text(over).decode()
    assert applied({"c": LONG}, over) == {"a": LONG, "b": LONG + "y"}
