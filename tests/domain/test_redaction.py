"""What is taken out of messages, and that nothing else of them changes."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep.domain.printing import HIDDEN, redact

# how messages contain secrets; SECRET stands for one
SPELLINGS = (
    "https://example.org/v1/models/m:generateContent?alt=sse&key=SECRET",
    "https://example.org/v1?key=SECRET&alt=sse",
    "url: /v1?api_key=SECRET (Caused by nothing)",
    "https://example.org/?access_token=SECRET#part",
    "https://bucket.example.org/a?X-Amz-Credential=SECRET&X-Amz-Signature=SECRET&X-Amz-Date=20261122",
    "https://example.org/a?sv=1&sig=SECRET",
    "to https%3A%2F%2Fexample.org%2F%3Fkey%3DSECRET%26alt%3Dsse",
    "https://somebody:SECRET@example.org/path",
    "postgresql+psycopg://app:SECRET@db:5432/chat",
    "Authorization: Bearer SECRET",
    "authorization: Basic SECRET",
    "Proxy-Authorization: SECRET",
    "{'Authorization': 'Bearer SECRET', 'accept': '*/*'}",
    '{"x-api-key": "SECRET", "accept": "*/*"}',
    r"{\"x-goog-api-key\": \"SECRET\", \"accept\": 1}",
    "[(b'x-api-key', b'SECRET'), (b'accept', b'*/*')]",
    "{'authorization': ['SECRET']}",
    "curl -H 'x-api-key: SECRET' -H 'accept: */*'",
    "api-key: SECRET",
    "OPENAI_API_KEY=SECRET python chat.py",
    "a bearer SECRET was sent",
    "Incorrect API key provided: sk-SECRET. Find yours at https://example.org/keys.",
    "sk-ant-api03-SECRET",
    "the key AIzaSECRET is not valid",
    "repeated:\\nsk-SECRET",
)
HARMLESS = (
    "",
    "no answer in 60 s",
    "Client error '429 Too Many Requests' for url 'https://example.org:8080/v1?alt=sse&page=2#key'",
    "https://example.org:8080/users/somebody@example.org",
    "postgresql://app@db/chat",
    "The bearer token is missing; bearer authentication is required.",
    'WWW-Authenticate: Bearer realm="example", error="invalid_token"',
    "API key not valid. Please pass a valid API key.",
    "invalid x-api-key",
    "Duplicate entry '1-2' for key 'PRIMARY'",
    "Incorrect password: try again",
    "task-management and risk-adjusted-returns",
    "sort key=value, 1 < 2 & 3 > 2",
    "https://example.org/?code=404&monkey=1&pageToken=2",
)

secrets = st.text("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-", min_size=20, max_size=60).map(
    lambda text: f"q7{text}"
)
prose = (
    st.text(st.characters(codec="utf-8", exclude_characters="@\"'\\"), max_size=40).filter(lambda it: HIDDEN not in it)
    | st.sampled_from(HARMLESS)
)  # fmt: skip


@pytest.mark.parametrize("spelling", SPELLINGS)
@given(secret=secrets, before=prose, after=prose)
def test_a_secret_is_hidden_and_nothing_else(spelling: str, secret: str, before: str, after: str) -> None:
    text = f"{before}\n{spelling.replace('SECRET', secret)}\n{after}"
    redacted = redact(text)
    assert secret not in redacted
    assert redact(redacted) == redacted
    kept, secrets_there = redacted.split(HIDDEN), spelling.count("SECRET")
    if redact(before) == before and redact(after) == after:
        assert len(kept) == secrets_there + 1
        assert kept[0].startswith(f"{before}\n")
        assert kept[-1].endswith(f"\n{after}")
        around = spelling.split("SECRET")
        assert "".join(kept) in {
            f"{before}\n{''.join(around).replace(scheme, '')}\n{after}" for scheme in ("", "Bearer ", "Basic ")
        } | {f"{before}\n{''.join(around).replace('sk-ant-api03-', 'sk-')}\n{after}"}


@pytest.mark.parametrize("text", HARMLESS)
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert redact(text) == text


@given(st.text())
def test_any_text_can_be_redacted_twice(text: str) -> None:
    assert redact(redact(text)) == redact(text)


def test_texts_in_json_are_redacted_by_the_names_of_their_keys_too() -> None:
    error: dict[str, Any] = {
        "message": "GET https://example.org/?key=abc failed",
        "request": {"headers": {"X-Api-Key": "abc", "Cookies": ["a"], "Authorization": ["Bearer abc"]}, "retries": 2},
        "causes": [{"password": "abc"}, "Bearer abc", None, 1.5],
    }
    assert redact(error) == {
        "message": "GET https://example.org/?key=*** failed",
        "request": {"headers": {"X-Api-Key": "***", "Cookies": ["a"], "Authorization": "***"}, "retries": 2},
        "causes": [{"password": "***"}, "Bearer ***", None, 1.5],
    }


def test_what_is_too_deep_to_be_stored_is_no_matter() -> None:
    deep: Any = "Bearer abc"
    for _ in range(5000):
        deep = [deep]
    redact(deep)
