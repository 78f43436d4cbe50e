"""Stored texts where people read them: without characters that a terminal would obey, or that are invisible.

Secrets are taken out of messages of errors before these are stored or logged.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, Final

from threadkeep.domain.jsontext import MAX_DEPTH

# Stored texts come from anywhere. Of the characters that a terminal would obey, or that are invisible, only those are
# printed that a text needs: between emoji and behind them, and in the words of scripts whose letters join.
_EMOJI: Final = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_JOINING: Final = r"\u0620-\u0dff\u1000-\u109f\u1780-\u18af\ua840-\ua87f\ua8e0-\ua8ff\ua980-\ua9df\U00011000-\U000114df"
_IDEOGRAPHS: Final = r"\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_NEEDED: Final = (
    rf"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])|(?<=[{_EMOJI}])[\ufe0e\ufe0f]|(?<=[#*0-9])\ufe0f(?=\u20e3)"
    rf"|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])|(?<=[\u1820-\u18aa])[\u180b-\u180f]"
    rf"|(?<=[{_IDEOGRAPHS}])[\U000e0100-\U000e01ef]"
)
_CONTROLS: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff"
)

_UNPRINTABLE: Final = rf"{_NEEDED}|([{_CONTROLS}])"  # compiled when the first text needs it: most do not


def printable(text: str) -> str:
    """A text with control characters, except line breaks and tabs, invisible ones and lone surrogates as escapes."""
    return _escaped(text, _escape)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def printable_json(text: str) -> str:
    """The JSON text of the same value, with the same characters written as escapes of JSON."""
    return _escaped(text, lambda one: re.sub("....", r"\\u\g<0>", one.encode("utf-16-be", "surrogatepass").hex()))


def _escaped(text: str, escape: Callable[[str], str]) -> str:
    if text.isascii() and text.isprintable():
        return text
    return re.sub(_UNPRINTABLE, lambda match: escape(match[1]) if match[1] else match[0], text)


HIDDEN: Final = "***"

# Headers, and parameters; the last ones only where a URL has them
_HEADERS: Final = r"(?:proxy-)?authorization|(?:x-)?(?:goog-|ms-)?api-?key|x-amz-security-token"
_NAMES: Final = (
    rf"{_HEADERS}|api_key|(?:access|refresh|id|auth)[-_]token|client[-_]secret|subscription-key|passw(?:or)?d"
    r"|(?:x-(?:amz|goog)-)?(?:signature|credential)"
)
_PARAMETERS: Final = rf"{_NAMES}|key|token|sig|secret|auth|awsaccesskeyid"
_SCHEMES: Final = r"(?:basic|bearer|digest|token|api-?key|key|negotiate|aws4-hmac-sha256)\s+"
_START: Final = r"(?<![^\W_])"
_QUOTE: Final = r"\\*[\"']"
_VALUE: Final = r"[^\s\"'\\<>&#,;)\]}]+"


def _pattern(before: str, secret: str) -> re.Pattern[str]:
    return re.compile(f"({before}){secret}", re.IGNORECASE | re.DOTALL)


_SECRETS: Final = (
    # scheme://user:password@host
    _pattern(r"://[^\s/?#@:\"']*:", r"(?:[^\s/?#\"']*|(?!\d+[/?#])[^\s@\"']{0,200})(?=@)"),
    # ?key=…, also where the URL is itself a parameter of one
    _pattern(rf"(?:[?&]|%3f|%26)(?:{_PARAMETERS})(?:=|%3d)", rf"(?:(?!%26){_VALUE[:-1]})+"),
    # "authorization": "…", in JSON, a dict, or a list of pairs, of texts or bytes
    _pattern(rf"{_START}(?:{_NAMES}){_QUOTE}\s*[:=,]\s*\[?b?(?P<quote>{_QUOTE})", r".*?(?=(?P=quote))"),
    _pattern(rf"{_START}(?:(?:{_HEADERS})\s*:\s*|(?:{_NAMES})=)", rf"(?:{_SCHEMES})?(?:{_QUOTE})?{_VALUE}"),
    # Bearer …, but not words about it
    _pattern(r"\bbearer(?:\s+|%20)", rf"(?!(?:auth\w*|tokens?|realm|error|scope|is|was|not)\b){_VALUE}"),
    # Keys that their providers mark as such, and JSON Web Tokens
    re.compile(
        r"(?:(?<![\w-])|(?<=\\[nrt]))(?:"
        r"(sk-|gsk_|xai-|hf_|gh[pousr]_|nvapi-|pplx-|AIza|ya29\.|ABSK|AKIA|ASIA)[\w-]{6,}|(?=eyJ)[\w-]+\.[\w-]+\.[\w-]*)"
    ),
)
_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)


def redact(value: Any, depth: int = 0) -> Any:
    """A text, or the texts in a JSON value, without secrets: ``***`` stands in their place, nothing else changes.

    Secrets are passwords and keys in URLs, values of ``Authorization`` and API key headers, what follows ``Bearer``,
    and keys that look like keys of known providers.
    """
    if isinstance(value, str):
        for pattern in _SECRETS:
            value = pattern.sub(lambda match: f"{match[1] or ''}{HIDDEN}", value)
        return value
    if depth > MAX_DEPTH:  # too deep to be stored
        return value
    if isinstance(value, dict):
        return {
            key: HIDDEN
            if isinstance(inner, str | list) and _SECRET_NAME.fullmatch(str(key))
            else redact(inner, depth + 1)
            for key, inner in value.items()
        }
    return [redact(inner, depth + 1) for inner in value] if isinstance(value, list | tuple) else value
