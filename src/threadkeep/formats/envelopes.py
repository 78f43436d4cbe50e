"""Error answers of all vendors, in one place: proxies answer in each other's shapes.

Known shapes: OpenAI, Azure, Groq, DeepSeek (`error` object with code, message, type); OpenRouter, Perplexity (integer
code); Gemini (integer code and status word); Anthropic (type error); x.ai (code and error text); Mistral (detail, or
object error with message); Bedrock and gateways (message); plain text.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.errors import CannotParse, ProviderError

_HTTP: Final = range(100, 600)
_LONGEST: Final = 200
# format -> a key that only its bodies have, and the type of its value
_SIGNS: Final[tuple[tuple[str, str, type], ...]] = (
    ("chat_completion", "choices", list),
    ("gemini", "candidates", list),
    ("converse", "output", dict),
    ("open_responses", "output", list),
    ("messages", "content", list),
)
# keys under which vendors put the words of an error, the most telling first
_MESSAGES: Final = ("message", "error", "detail", "msg", "error_description")


def json_body(body: Any) -> JsonObject:
    """The response body as a JSON object.

    Raises:
        ProviderError: it is text that is no JSON, as gateways answer when they fail.
        CannotParse: it is JSON, but no object.
    """
    if isinstance(body, bytes | bytearray | memoryview):
        body = bytes(body).decode("utf-8", "surrogatepass")
    if isinstance(body, str):
        body = _read(body)
    if isinstance(body, list) and len(body) == 1 and isinstance(body[0], dict) and "error" in body[0]:
        body = body[0]
    if not isinstance(body, dict):
        raise CannotParse(f"The response body is {shortened(body)}, not a JSON object. Pass the body as it came.")
    return body


def provider_error(body: JsonObject) -> ProviderError | None:
    """The error that an envelope states; None when the body is no error envelope."""
    error = body.get("error")
    if isinstance(error, dict):
        return _error_of(error)
    if isinstance(error, str) and error:
        return _error_of({**body, "message": error, "error": None})
    if error not in (None, "", [], False):
        return ProviderError(shortened(error))
    errors = body.get("errors")
    if isinstance(errors, list) and errors:
        return _error_of(errors[0]) if isinstance(errors[0], dict) else ProviderError(shortened(errors[0]))
    return _error_of(body, is_envelope=False)


def other_format(body: JsonObject, name: str) -> str:
    """A hint for an error message: the format that a body seems to be of, when it is another than that one."""
    found = next((format_name for format_name, key, kind in _SIGNS if isinstance(body.get(key), kind)), name)
    return "" if found == name else f" (it looks like one of {found})"


def shortened(value: Any) -> str:
    """A value for an error message."""
    text = value if isinstance(value, str) else repr(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _error_of(error: JsonObject, *, is_envelope: bool = True) -> ProviderError | None:
    code, kind = error.get("code"), error.get("type")
    if kind is None and isinstance(error.get("status"), str):
        kind = error["status"]
    message = next((_text(error[key]) for key in _MESSAGES if error.get(key)), None)
    if message is None and not (is_envelope and (_word(code) or _word(kind))):
        return None
    statuses = (error.get("status"), error.get("status_code"), error.get("http_status"), code)
    status = next((value for value in statuses if type(value) is int and value in _HTTP), None)
    return ProviderError(message, code=_word(code), type=_word(kind), status=status)


def _text(value: Any) -> str:
    """The words of an error; validation errors come as a list of objects with `msg`."""
    if isinstance(value, list):
        return "; ".join(_text(element) for element in value)
    if isinstance(value, dict):
        return next((str(value[key]) for key in _MESSAGES if value.get(key)), shortened(value))
    return str(value)


def _word(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


def _read(text: str) -> Any:
    try:
        return loads(text)
    except ValueError:
        raise ProviderError(shortened(text.strip()) or None) from None
