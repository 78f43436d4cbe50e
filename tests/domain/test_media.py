from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep.domain.content import InputImage
from threadkeep.domain.media import base64_media_type, data_url, parse_data_url
from threadkeep.errors import InvalidItem, InvalidOption


@given(st.binary())
def test_bytes_come_back_from_their_data_url(data: bytes) -> None:
    assert InputImage(data_url(data, "image/png")).data == data


@pytest.mark.parametrize(
    ("url", "parsed"),
    [
        ("data:image/png;base64,aW1n", ("image/png", "aW1n")),
        ("data:text/plain;charset=utf-8;base64,YQ==", ("text/plain", "YQ==")),
        ("data:text/plain;base64,", ("text/plain", "")),
        ("data:text/plain;base64,not base64", ("text/plain", "not base64")),
        ("data:text/plain,hello", None),
        ("data:;base64,YQ==", None),
        ("data:text/plain;base64", None),
        ("DATA:text/plain;base64,YQ==", None),
        ("https://example.org/a;base64,YQ==", None),
        ("", None),
        (None, None),
        (7, None),
    ],
)
def test_only_base64_data_urls_with_a_type_are_parsed(url: object, parsed: tuple[str, str] | None) -> None:
    """Parameters may stand between the type and the data; the data itself is not looked at."""
    assert parse_data_url(url) == parsed
    assert base64_media_type(url) == (parsed and parsed[0])


def test_bad_base64_is_an_invalid_item() -> None:
    with pytest.raises(InvalidItem, match="base64"):
        _ = InputImage("data:image/png;base64,a").data


def test_a_data_url_is_made_of_bytes() -> None:
    with pytest.raises(InvalidOption, match=r"data must be bytes, not 'x'.*encode"):
        data_url("x", "image/png")  # type: ignore[arg-type]
