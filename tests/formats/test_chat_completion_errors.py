"""Error answers: envelopes that servers of this format and the proxies before them send."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest

from threadkeep.errors import CannotParse, ProviderError
from threadkeep.formats import get_format

Json = dict[str, Any]
FORMAT = get_format("chat_completion")
ENVELOPES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    # vendor: body, (code, type, message, status)
    "Azure": (
        {"error": {"code": "content_filter", "type": None, "message": "m", "status": 400, "innererror": {}}},
        ("content_filter", None, "m", 400),
    ),
    "OpenRouter": ({"error": {"code": 429, "message": "m", "metadata": {}}, "user_id": "u"}, ("429", None, "m", 429)),
    "Perplexity": ({"error": {"message": "m", "type": "t", "code": 400}}, ("400", "t", "m", 400)),
    "Google": (
        [{"error": {"code": 400, "message": "m", "status": "INVALID_ARGUMENT"}}], ("400", "INVALID_ARGUMENT", "m", 400),
    ),
    "Mistral": ({"object": "error", "message": "m", "type": "t", "code": "3230", "raw_status_code": 400},
                ("3230", "t", "m", 400)),
    "Mistral, what is wrong": (
        {"object": "error", "message": {"detail": [{"loc": ["body"], "msg": "a"}, {"msg": "b"}]}, "type": "t"},
        (None, "t", "a; b", None),
    ),
    "Mistral, the key": ({"detail": "m"}, (None, None, "m", None)),
    "x.ai": ({"code": "Client specified an invalid argument", "error": "m"},
             ("Client specified an invalid argument", None, "m", None)),
    "Hugging Face": ({"error": "m", "error_type": "overloaded"}, (None, "overloaded", "m", None)),
    "Hugging Face, several": ({"error": ["a", "b"]}, (None, None, "a; b", None)),
    "DeepInfra": ({"detail": {"error": "m"}}, (None, None, "m", None)),
    "LiteLLM": ({"error": {"message": "m", "type": "t", "code": "401"}}, ("401", "t", "m", 401)),
    "Databricks": ({"error_code": "BAD_REQUEST", "message": "m"}, ("BAD_REQUEST", None, "m", None)),
    "vLLM": ({"object": "error", "message": "m", "type": "BadRequestError", "code": 400},
             ("400", "BadRequestError", "m", 400)),
    "API management": ({"statusCode": 401, "message": "m"}, (None, None, "m", 401)),
    "Apigee": ({"fault": {"faultstring": "m", "detail": {"errorcode": "x"}}}, (None, None, "m", None)),
    "AWS": ({"__type": "ValidationException", "Message": "m"}, (None, "ValidationException", "m", None)),
    "an envelope in another": ({"error": {"error": {"message": "m", "code": "c"}}}, ("c", None, "m", None)),
    "Spring": ({"timestamp": 1, "status": 404, "error": "Not Found", "path": "/"}, (None, None, "Not Found", 404)),
    "a gateway": ("<html>502</html>", (None, None, "<html>502</html>", None)),
    "a gateway of long ago": (b"caf\xe9", (None, None, "caf\xe9", None)),
}  # fmt: skip


@pytest.mark.parametrize("vendor", ENVELOPES)
def test_an_error_is_told_in_the_words_of_its_server(vendor: str) -> None:
    body, expected = ENVELOPES[vendor]
    with pytest.raises(ProviderError) as raised:
        FORMAT.parse_response(body)
    error = raised.value
    assert (error.code, error.type, error.message, error.status) == expected


def nested(levels: int, key: str | None) -> Any:
    found: Any = "x"
    for _ in range(levels):
        found = [found] if key is None else {key: found}
    return found


@pytest.mark.parametrize("key", [None, "error", "message", "content"])
@pytest.mark.parametrize("levels", [10, 300, 3000])
def test_values_nested_too_deeply_are_refused_and_nothing_else_happens(levels: int, key: str | None) -> None:
    deep = nested(levels, key)
    call: Json = {"id": "a", "function": {"name": "f", "arguments": deep}}
    message: Json = {"role": "assistant", "content": deep, "reasoning": deep, "audio": deep, "tool_calls": [call]}
    for read in (
        lambda: FORMAT.parse_response(deep),
        lambda: FORMAT.parse_response({"error": deep}),
        lambda: FORMAT.parse_response({"choices": [{"message": message}], "usage": deep}),
        lambda: FORMAT.parse_request({"messages": [message], "tools": [{"function": deep}], "metadata": deep}),
        lambda: FORMAT.parse_turns(deep),
        lambda: FORMAT.assembler().feed({"choices": [{"delta": message}], "lane": deep}),
    ):
        with contextlib.suppress(CannotParse):
            read()
