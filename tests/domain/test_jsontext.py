from __future__ import annotations

import tracemalloc
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given

from tests.domain.jsonvalues import JSON, same
from threadkeep.domain.jsontext import (
    EXACT,
    MAX_DEPTH,
    PLAIN,
    REQUEST_DEPTH,
    UNSET,
    canonical,
    decode,
    dumps,
    dumps_any,
    encode,
    encode_texts,
    loads,
    read_line,
)
from threadkeep.errors import InvalidItem

EXACT_VALUES = [2**64, -(2**63) - 1, float("nan"), float("inf"), "\ud800", {"\udfff": 1}]
PLAIN_VALUES = [
    "\x00",
    "null",
    -0.0,
    1e16,
    1e-7,
    0.1 + 0.2,
    2**53 + 1,
    10**18,
    2**64 - 1,
    "é 木 🌲",
    [],
    {},
    None,
    True,
    {"a": [1, 2.5]},
]


def nested(depth: int) -> Any:
    value: Any = 1
    for _ in range(depth):
        value = [value]
    return value


@given(JSON)
def test_a_value_comes_back_as_it_was(value: Any) -> None:
    """Nothing that providers send is changed by storing it, whichever library reads it back."""
    text, codec = encode(value)
    assert same(decode(text, codec), value)
    assert same(loads(text), value)
    assert same(loads(text.decode()), value)


@pytest.mark.parametrize("value", EXACT_VALUES, ids=ascii)
def test_what_orjson_would_change_is_marked(value: Any) -> None:
    assert encode(value)[1] == EXACT


@pytest.mark.parametrize("value", PLAIN_VALUES, ids=ascii)
def test_everything_else_takes_the_fast_way(value: Any) -> None:
    text, codec = encode(value)
    assert codec == PLAIN
    assert same(decode(text, codec), value)


@pytest.mark.parametrize("value", [datetime.now(UTC), b"x", {1, 2}, {1: 2}, {"a": {None: 1}}, Decimal(1), object()])
def test_what_is_not_json_is_refused(value: Any) -> None:
    with pytest.raises(InvalidItem):
        encode({"key": [value]})


def test_the_depth_is_limited() -> None:
    """orjson writes at most 254 levels, and a request wraps stored values in a few more."""
    assert loads(dumps(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    for depth in (MAX_DEPTH + 1, 300, 100_000):
        with pytest.raises(InvalidItem, match="nested deeper"):
            encode(nested(depth))


def test_a_value_that_holds_itself_is_refused() -> None:
    """Also when it does so twice, where counting level by level would double each time."""
    value: list[Any] = []
    value += [value, value]
    with pytest.raises(InvalidItem):
        encode(value)


@pytest.mark.parametrize("text", ["", "{", "[1,]", "nul", "[" * 100_000, b"\xff\xfe"])
def test_text_that_is_not_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(ValueError, match=r".*"):
        loads(text)


@given(JSON)
def test_equal_objects_have_one_canonical_text(value: Any) -> None:
    """The order of keys does not change a hash."""
    assert canonical({"a": value, "b": 1}) == canonical({"b": 1, "a": value})


@pytest.mark.parametrize("write", [dumps, canonical, lambda value: encode_texts(value)[0]])
def test_a_text_occupies_no_more_than_its_length(write: Callable[[Any], bytes]) -> None:
    value = {"text": "x" * 5_000}
    write(value)
    tracemalloc.start()
    try:
        before, text = tracemalloc.get_traced_memory()[0], write(value)
        assert tracemalloc.get_traced_memory()[0] - before < len(text) + 1_000
    finally:
        tracemalloc.stop()


@given(JSON)
def test_any_value_has_a_text_that_says_what_it_can(value: Any) -> None:
    assert dumps_any(value) == dumps(value)
    assert loads(dumps_any([value, b"bytes"]))[1] == "Ynl0ZXM="
    assert loads(dumps_any(nested(MAX_DEPTH + 1)))


def test_a_request_may_be_nested_a_little_more_than_what_is_stored() -> None:
    assert loads(dumps(nested(REQUEST_DEPTH), REQUEST_DEPTH)) == nested(REQUEST_DEPTH)
    with pytest.raises(InvalidItem, match="nested deeper"):
        dumps(nested(REQUEST_DEPTH + 1), REQUEST_DEPTH)


@given(JSON)
def test_a_line_of_plain_json_is_read_as_it_is(value: Any) -> None:
    text, codec = encode(value)
    if codec == PLAIN and (found := read_line(text)) is not UNSET:
        assert same(found, value)


@pytest.mark.parametrize(
    "text", [b'{"a":\n1}', b"{", b"", b"\xff", b'"\\ud800"', b"NaN", b"18446744073709551616"], ids=ascii
)
def test_no_other_text_is_kept_as_a_line(text: bytes) -> None:
    """Of several lines, broken, deep, or with what orjson reads otherwise: it is read and written again."""
    assert read_line(text) is UNSET


def test_text_that_is_nested_too_deeply_is_no_line() -> None:
    assert read_line(dumps(nested(MAX_DEPTH))) == nested(MAX_DEPTH)
    assert read_line(b"[" + dumps(nested(MAX_DEPTH)) + b"]") is UNSET
