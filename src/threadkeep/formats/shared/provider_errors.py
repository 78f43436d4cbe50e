"""Errors of all vendors, in one place: proxies send each other's shapes.

Known shapes: OpenAI, Azure, Groq, DeepSeek (`error` object with code, message, type); OpenRouter, Perplexity (integer
code); Gemini (integer code and status word); Anthropic (type error); x.ai (code and error text); Mistral (detail, or
object error with message); Bedrock (message, __type) and gateways (message, status code, fault); Hugging Face (error
text or texts); LiteLLM (status as text); plain text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.formats import format_names, get_format
from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotParse, ProviderError, shown

if TYPE_CHECKING:
    from threadkeep.domain.formats import ErrorKeys

SENT_BODY: Final = "Pass the body as the provider sent it."  # the hint where a body is not of a format
_HTTP: Final = range(100, 600)
_LONGEST: Final = 200
# keys under which vendors put the words of an error, the most telling first
_MESSAGES: Final = ("message", "error", "faultstring", "detail", "msg", "error_description", "Message")
_CODES: Final = ("code", "error_code", "errorCode")
_TYPES: Final = ("type", "__type", "error_type")
_STATUSES: Final = ("status", "status_code", "http_status", "statusCode", "raw_status_code", "code")
_DIGITS: Final = re.compile(r"[1-5][0-9]{2}")


def provider_error(body: JsonObject, format_name: str | None = None) -> ProviderError | None:
    """The error that a body states, in the way of a format's provider or of any other; None when it states none."""
    keys = None if format_name is None else get_format(format_name).error_keys
    if keys is not None and (own := _own_error(body, keys)) is not None:
        return own
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


def _own_error(body: JsonObject, keys: ErrorKeys) -> ProviderError | None:
    """The error that a body states in the way of a single provider."""
    for holder in (body, *map(body.get, keys.holders)):
        if not isinstance(holder, dict):
            continue
        kind, code = holder.get(keys.type), holder.get(keys.code)
        message = next((holder[key] for key in keys.messages if holder.get(key)), holder.get(keys.messages[-1]))
        if isinstance(kind or code or message, str):
            return ProviderError(None if message is None else str(message), type=kind, code=code)
    return None


def not_a_response(body: JsonObject, name: str, problem: str) -> CannotParse:
    """The error for a body that is no response of this format; its hint names the format that it seems to be of."""
    formats = [(other, get_format(other).signs.body.items()) for other in format_names()]
    like = next((other for other, signs in formats if any(isinstance(body.get(key), of) for key, of in signs)), name)
    hint = SENT_BODY if like == name else f"It looks like a response of {like}: pass {like!r} as the format."
    return CannotParse(f"{problem}: {shortened(body)}.", hint=hint)


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
    code, kind = _first_word(error, _CODES), _first_word(error, _TYPES)
    if kind is None and isinstance(error.get("status"), str):
        kind = _first_word(error, ("status",))
    message = next((_text(error[key]) for key in _MESSAGES if error.get(key)), None)
    if message is None and not (is_envelope and (code or kind)):
        return None
    status = next((number for key in _STATUSES if (number := _status(error.get(key))) is not None), None)
    return ProviderError(message, code=code, type=kind, status=status)


def _first_word(error: JsonObject, keys: Iterable[str]) -> str | None:
    words = (error[key] for key in keys if isinstance(error.get(key), str | int))
    return next((str(word) for word in words if word != "" and not isinstance(word, bool)), None)


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
        inner = next((value[key] for key in _MESSAGES if value.get(key)), None)
        return shortened(value) if inner is None else _text(inner, levels - 1)
    return value if isinstance(value, str) else shortened(value)
