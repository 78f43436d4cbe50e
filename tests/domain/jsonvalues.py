"""Hypothesis strategies for JSON, with all that provider bodies hold now and then."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

# lone surrogates and U+0000 included
TEXT = st.text(st.characters(codec=None, exclude_categories=()), max_size=20)
NUMBERS = st.one_of(
    st.integers(),
    st.integers(min_value=-(2**70), max_value=2**70),
    st.floats(allow_nan=True, allow_infinity=True),
    st.sampled_from([0.0, -0.0, 1e16, 1e22, 2**53 + 1, 2**63, 2**64, -(2**63) - 1]),
)
JSON = st.recursive(
    st.one_of(st.none(), st.booleans(), NUMBERS, TEXT),
    lambda inner: st.one_of(st.lists(inner, max_size=4), st.dictionaries(TEXT, inner, max_size=4)),
    max_leaves=12,
)
OBJECTS = st.dictionaries(TEXT, JSON, max_size=5)


def same(one: Any, other: Any) -> bool:
    """Whether two values are the same JSON to the last sign: 1 is not 1.0, -0.0 is not 0.0, NaN is NaN."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() == other.keys() and all(same(one[key], other[key]) for key in one)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and repr(one) == repr(other)
