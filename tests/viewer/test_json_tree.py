"""JSON on pages: objects and arrays fold, and the text of the lines is the JSON."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.viewer.conftest import text_of_tree
from threadkeep.viewer.blocks import MAX_LINES, json_tree
from threadkeep.viewer.texts import Budget, json_text

SCALARS = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text()
VALUES = st.recursive(
    SCALARS, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4)
)


@given(VALUES)
def test_the_text_of_the_lines_is_the_json(value: object) -> None:
    tree = json_tree(json_text(value), Budget())
    if isinstance(value, dict | list):
        assert tree is not None
        assert json.loads(text_of_tree(tree)) == value
    elif not isinstance(value, str):
        assert tree is None


def test_numbers_keep_their_digits() -> None:
    text = '{"a": 123456789012345678901234567890, "b": 1.10}'
    tree = json_tree(text, Budget())
    assert tree is not None
    assert text_of_tree(tree).split() == ["{", '"a":', "123456789012345678901234567890,", '"b":', "1.10", "}"]


def test_what_is_within_cannot_end_an_element() -> None:
    tree = json_tree('{"</div><script>": "<b>&amp;\u202e"}', Budget())
    assert tree is not None
    assert "<script>" not in tree
    assert "<b>" not in tree
    assert "\u202e" not in tree


def test_deep_values_are_folded() -> None:
    tree = json_tree('{"a": {"b": {"c": {"d": {"e": [1]}}}}}', Budget())
    assert tree is not None
    assert (tree.count("<details open>"), tree.count("<details>")) == (5, 1)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "text",
        '"text"',
        "12",
        "{",
        "[1, 2\n… (9 characters)",
        "[" * 101 + "1" + "]" * 101,
        "[" + "\n" * MAX_LINES + "]",
    ],
    ids=["empty", "words", "string", "number", "half", "cut", "deep", "long"],
)
def test_what_is_no_tree_stays_text(text: str) -> None:
    assert json_tree(text, Budget()) is None


def test_the_elements_count() -> None:
    budget = Budget(shown=100)
    assert json_tree("[\n1,\n2\n]", budget) is None
    budget = Budget(shown=1_000)
    assert json_tree("[\n1,\n2\n]", budget) is not None
    assert budget.shown < 1_000
