from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON, TEXT, same
from threadkeep.formats.canonical.entries import overlaid, overlay


@st.composite
def altered(draw: st.DrawFn, value: Any) -> Any:
    """The value with some of its parts replaced: what full items and their payloads look like."""
    if draw(st.integers(0, 5)) == 0:
        return draw(JSON)
    if isinstance(value, dict):
        kept = {key: draw(altered(inner)) for key, inner in value.items() if draw(st.integers(0, 4))}
        return kept | draw(st.dictionaries(TEXT, JSON, max_size=1))
    return [draw(altered(inner)) for inner in value] if isinstance(value, list) else value


PAIRS = JSON.flatmap(lambda value: st.tuples(st.just(value), altered(value)))


@given(PAIRS)
def test_an_overlay_restores_the_full_value(pair: tuple[Any, Any]) -> None:
    full, base = pair
    before = copy.deepcopy(base)
    assert same(overlaid(base, overlay(full, base)), full)
    assert same(base, before), "the base is not changed"


@given(JSON)
def test_equal_values_need_no_overlay(value: Any) -> None:
    assert overlay(value, copy.deepcopy(value)) is None
    assert overlaid(value, None) is value


@pytest.mark.parametrize(
    ("full", "base"), [(True, 1), (0, False), (1.0, 1), (-0.0, 0.0), (None, []), ([], {}), ("1", 1)]
)
def test_values_that_python_calls_equal_are_told_apart(full: Any, base: Any) -> None:
    assert same(overlaid(base, overlay(full, base)), full)


def test_an_overlay_says_only_what_differs() -> None:
    """Most of an item stands in its payload; what is kept beside it is small."""
    base = {"type": "message", "content": [{"type": "input_text", "text": "long " * 100}]}
    full = {"type": "message", "content": [{**base["content"][0], "cache_control": {}}]}  # type: ignore[dict-item]
    assert overlay(full, base) == {"in": {"content": {"at": {"0": {"set": {"cache_control": {}}}}}}}
