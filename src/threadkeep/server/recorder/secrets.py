"""What of a call is secret: our own keys, which no provider sees, and the caller's, which are not stored."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from typing import Any, Final
from urllib.parse import unquote, unquote_to_bytes

from threadkeep.domain.api_keys import SECRET
from threadkeep.domain.printing import HIDDEN

KEY_SEGMENT: Final = "k"  # the segment of a path after which our key comes
_MIN_LENGTH: Final = 6  # characters of a secret; shorter ones are found in any text
_MAX_ENCODINGS: Final = 8  # of a text, one in the other; nobody decodes more
# names of headers and parameters whose values are secrets
_SECRET_NAMES: Final = re.compile(r"auth|cookie|credential|key|passw|secret|signature|\bsig\b|token", re.IGNORECASE)
_OTHER_NAMES: Final = frozenset({"idempotency-key"})
_SCHEME: Final = re.compile(r"(?:[A-Za-z][\w-]*\s+(?=\S)|bearer$)", re.IGNORECASE)  # of a value of Authorization


def unquoted(text: str) -> str:
    """Return a text of a URL without its percent-encoding, however often it was encoded."""
    for _ in range(_MAX_ENCODINGS if "%" in text else 0):
        text, before = unquote(text), text
        if text == before:
            break
    return text


def is_own(segment: str) -> bool:
    """Return whether a segment of a path is one of threadkeep's keys."""
    return SECRET.fullmatch(unquote(segment)) is not None


def leaves_base(path: str) -> bool:
    """Return whether a path leads upwards, however it is written: encoded, with backslashes, or as ``..;x``."""
    segments = re.split(r"[/\\]", re.sub(r"[\x00-\x20]", "", unquoted(path)))
    return any(re.split(r"[;#?]", segment, maxsplit=1)[0] == ".." for segment in segments)


class OwnKeys:
    """Our keys in a call: those that it is made with, and whatever looks like one of threadkeep's."""

    def __init__(self, known: Iterable[str | None]) -> None:
        """`known` are the keys that the call is made with, which an application may have made itself."""
        self._known = frozenset(key for key in known if key)
        self._long = [key for key in self._known if len(key) >= _MIN_LENGTH]

    def are_in(self, text: str) -> bool:
        """Return whether a part of a URL, or the value of a header, has a key in it."""
        plain = unquoted(text)
        return SECRET.search(plain) is not None or any(key in plain for key in self._long)

    def path_without(self, path: str) -> str:
        """Return a path without keys, and without the segments that announce them."""
        kept: list[str] = []
        for segment in path.split("/"):
            is_announced = bool(kept) and kept[-1] == KEY_SEGMENT
            if is_announced and unquoted(segment) in self._known:
                kept.pop()
            elif self.are_in(segment):
                if is_announced:
                    kept.pop()
            else:
                kept.append(segment)
        return "/".join(kept)

    def query_without(self, query: bytes) -> bytes:
        """Return a query without the parameters that have a key in them."""
        return b"&".join(pair for pair in query.split(b"&") if not self.are_in(pair.decode("latin-1")))

    def are_in_header(self, name: bytes, value: bytes) -> bool:
        """Return whether a header has a key in it; also one that names a page whose address may have one."""
        text = value.decode("latin-1")
        return self.are_in(text) or (name == b"referer" and f"/{KEY_SEGMENT}/" in unquoted(text))


class CallSecrets:
    """The secrets that a call brings for its provider, which may repeat them in what it answers."""

    def __init__(self, headers: Mapping[str, str], query: bytes = b"") -> None:
        given = [(name, value) for name, value in headers.items() if name.lower() not in _OTHER_NAMES]
        given += [_pair(part) for part in query.split(b"&")]
        named = [text for name, value in given if _SECRET_NAMES.search(name) for text in _texts_in(name, value)]
        found = {text for text in named if len(text) >= _MIN_LENGTH}
        found |= {json.dumps(text)[1:-1] for text in found}
        self._secrets = sorted(found, key=len, reverse=True)

    @property
    def longest(self) -> int:
        """How many bytes the longest secret has."""
        return max((len(secret.encode("utf-8", "surrogateescape")) for secret in self._secrets), default=0)

    def hidden(self, text: str) -> str:
        """Return a text with ``***`` in the place of each secret."""
        for secret in self._secrets:
            text = text.replace(secret, HIDDEN)
        return text

    def hidden_bytes(self, text: bytes) -> bytes:
        """Return a text in UTF-8, or anything else, with ``***`` in the place of each secret."""
        for secret in self._secrets:
            text = text.replace(secret.encode("utf-8", "surrogateescape"), HIDDEN.encode())
        return text

    def hidden_in(self, value: Any) -> Any:
        """Return a JSON value whose texts have no secrets."""
        if isinstance(value, str):
            return self.hidden(value)
        if isinstance(value, dict):
            return {key: self.hidden_in(inner) for key, inner in value.items()}
        return [self.hidden_in(inner) for inner in value] if isinstance(value, list) else value


def _pair(part: bytes) -> tuple[str, str]:
    name, _, value = part.partition(b"=")
    return unquote_to_bytes(name).decode("utf-8", "replace"), unquote_to_bytes(value).decode("utf-8", "replace")


def _texts_in(name: str, value: str) -> list[str]:
    """What of a value is secret: of a header with a scheme, what follows it; of cookies, the value of each."""
    if name.lower() == "cookie":
        return [part.partition("=")[2].strip() or part.strip() for part in value.split(";")]
    return [_SCHEME.sub("", value.strip(), count=1)]
