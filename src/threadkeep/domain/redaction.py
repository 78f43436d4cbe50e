"""Secrets in messages of errors: taken out before a message is stored or logged."""

from __future__ import annotations

import re
from typing import Any, Final

from threadkeep.domain.jsontext import MAX_DEPTH

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
    and keys that look like those of known providers.
    """
    if isinstance(value, str):
        for pattern in _SECRETS:
            value = pattern.sub(lambda match: f"{match[1] or ''}{HIDDEN}", value)
        return value
    if depth > MAX_DEPTH:  # too deep to be stored
        return value
    if isinstance(value, dict):
        return {key: _redacted(str(key), inner, depth + 1) for key, inner in value.items()}
    return [redact(inner, depth + 1) for inner in value] if isinstance(value, list | tuple) else value


def _redacted(name: str, value: Any, depth: int) -> Any:
    """The value of a key."""
    is_secret = isinstance(value, str | list) and _SECRET_NAME.fullmatch(name)
    return HIDDEN if is_secret else redact(value, depth)
