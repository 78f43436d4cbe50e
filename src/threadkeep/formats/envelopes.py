"""Error answers of all vendors, in one place: proxies answer in each other's shapes.

Known shapes: OpenAI, Azure, Groq, DeepSeek (`error` object with code, message, type); OpenRouter, Perplexity (integer
code); Gemini (integer code and status word); Anthropic (type error); x.ai (code and error text); Mistral (detail, or
object error with message); Bedrock (message, __type) and gateways (message, status code, fault); Hugging Face (error
text or texts); LiteLLM (status as text); plain text.
"""

from __future__ import annotations

import re
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.objects import shown
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
# format -> what the events of its streams have that no other's have: a key and the type of its value
_EVENT_SIGNS: Final[tuple[tuple[str, str, type], ...]] = (
    ("chat_completion", "choices", list),
    ("gemini", "candidates", list),
    ("converse", "messageStart", dict),
    ("converse", "contentBlockDelta", dict),
)
# format -> how the types of its events begin
_EVENT_TYPES: Final = (
    ("open_responses", ("response.",)),
    ("messages", ("message_", "content_block_")),
)
# keys under which vendors put the words of an error, the most telling first
_MESSAGES: Final = ("message", "error", "faultstring", "detail", "msg", "error_description", "Message")
_CODES: Final = ("code", "error_code", "errorCode")
_TYPES: Final = ("type", "__type", "error_type")
_STATUSES: Final = ("status", "status_code", "http_status", "statusCode", "raw_status_code", "code")
_DIGITS: Final = re.compile(r"[1-5][0-9]{2}")


def json_body(body: Any) -> JsonObject:
    """The response body as a JSON object.

    Raises:
        ProviderError: it is text that is no JSON, as gateways answer when they fail.
        CannotParse: it is JSON, but no object.
    """
    if isinstance(body, bytes | bytearray | memoryview):
        body = _decoded(bytes(body))
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
        return ProviderError(_text(error) if isinstance(error, list) else shortened(error))
    errors = body.get("errors")
    if isinstance(errors, list) and errors:
        return _error_of(errors[0]) if isinstance(errors[0], dict) else ProviderError(shortened(errors[0]))
    return _error_of(body, is_envelope=False)


def other_format(body: JsonObject, name: str) -> str:
    """A hint for an error message: the format that a body seems to be of, when it is another than that one."""
    found = next((format_name for format_name, key, kind in _SIGNS if isinstance(body.get(key), kind)), name)
    return "" if found == name else f" (it looks like one of {found})"


def other_stream(event: JsonObject, name: str) -> str | None:
    """The format that an event is plainly of, when it is another than that one."""
    kind = str(event.get("type"))
    found = {format_name for format_name, key, of in _EVENT_SIGNS if isinstance(event.get(key), of)}
    found |= {format_name for format_name, beginnings in _EVENT_TYPES if kind.startswith(beginnings)}
    return found.pop() if len(found) == 1 and name not in found else None


def shortened(value: Any) -> str:
    """A value for an error message."""
    try:
        text = value if isinstance(value, str) else repr(value)
    except (RecursionError, ValueError):  # nested too deeply, or an integer of too many digits
        text = shown(value)
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def _error_of(error: JsonObject, *, is_envelope: bool = True) -> ProviderError | None:
    inner = next((error[key] for key in ("error", "fault") if isinstance(error.get(key), dict)), None)
    if inner and not error.get("message"):
        error = inner
    code = next((found for key in _CODES if (found := _word(error.get(key))) is not None), None)
    kind = next((found for key in _TYPES if (found := _word(error.get(key))) is not None), None)
    if kind is None and isinstance(error.get("status"), str):
        kind = _word(error["status"])
    message = next((_text(error[key]) for key in _MESSAGES if error.get(key)), None)
    if message is None and not (is_envelope and (code or kind)):
        return None
    status = next((number for key in _STATUSES if (number := _status(error.get(key))) is not None), None)
    return ProviderError(message, code=code, type=kind, status=status)


def _status(value: Any) -> int | None:
    """An HTTP status, which proxies give as text, too."""
    if isinstance(value, str) and _DIGITS.fullmatch(value):
        value = int(value)
    return value if type(value) is int and value in _HTTP else None


def _text(value: Any, levels: int = 4) -> str:
    """The words of an error; validation errors come as a list of objects with `msg`."""
    if isinstance(value, list) and levels:
        return "; ".join(_text(element, levels - 1) for element in value)
    if isinstance(value, dict) and levels:
        found = next((value[key] for key in _MESSAGES if value.get(key)), None)
        return shortened(value) if found is None else _text(found, levels - 1)
    return value if isinstance(value, str) else shortened(value)


def _word(value: Any) -> str | None:
    return str(value) if isinstance(value, str | int) and not isinstance(value, bool) and value != "" else None


def _decoded(body: bytes) -> str:
    """The text of a body; gateways do not always answer in UTF-8."""
    try:
        return body.decode("utf-8", "surrogatepass")
    except UnicodeDecodeError:
        return body.decode("latin-1")


def _read(text: str) -> Any:
    try:
        return loads(text)
    except ValueError:
        raise ProviderError(shortened(text.strip()) or None) from None
