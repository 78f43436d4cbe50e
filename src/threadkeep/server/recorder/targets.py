"""Where a call goes: to which provider, with which key of ours, and what of it is recorded.

Source: the API references of OpenAI (Responses, Chat Completions), Anthropic (Messages) and Google (Gemini,
Interactions).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import pairwise
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote, unquote, urlsplit

from threadkeep.domain.formats import STATEFUL
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.server.recorder.secrets import KEY_SEGMENT, OwnKeys, is_own
from threadkeep.server.upstreams import checked_url, spoken_format, upstream_parts

Headers: TypeAlias = Sequence[tuple[bytes, bytes]]

_OWN: Final = b"x-threadkeep-"  # headers for us, which no provider sees
_OWN_COOKIE: Final = b"threadkeep_"  # what the names of the viewer's cookies begin with; no provider reads or sets them
# headers about one connection, which a proxy does not pass on (RFC 9110, 7.6.1)
_HOP_BY_HOP: Final = frozenset(
    {
        b"connection", b"expect", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"proxy-connection",
        b"te", b"trailer", b"transfer-encoding", b"upgrade",
    }
)  # fmt: skip


@cache
def _routes() -> Mapping[str, Sequence[tuple[re.Pattern[str], FormatName]]]:
    """How the path of a call ends that has a model answer, or asks for such an answer again, and in which format.

    By method.
    """
    apis = [(name, get_format(name).api) for name in NAMES]
    routes: list[tuple[FormatName, str]] = [(name, api.route) for name, api in apis if api is not None and api.route]
    again = [(name, f"{route}/(?P<response>[^/]+)") for name, route in routes if name in STATEFUL]
    asides = [(name, f"{route}/(?P<aside>compact)") for name, route in routes if name == "open_responses"]
    cancelled = [(name, f"{route}/cancel") for name, route in again]
    by_method: Mapping[str, Sequence[tuple[FormatName, str]]] = {"GET": again, "POST": [*routes, *asides, *cancelled]}
    return {method: [(re.compile(route), name) for name, route in ends] for method, ends in by_method.items()}


@dataclass(frozen=True, slots=True)
class RecordedUpstream:
    """A provider whose calls are recorded.

    Attributes:
        name: what the ledger calls it, and the segment of the path that leads to it.
        format: the format it speaks.
        url: its base URL, to which the rest of a call's path is appended.
    """

    name: str
    format: FormatName
    url: str

    def __post_init__(self) -> None:
        spoken_format(self.format)
        object.__setattr__(self, "url", checked_url(self.url))

    @classmethod
    def named(cls, text: str) -> RecordedUpstream:
        """Return the upstream that ``NAME=FORMAT@URL`` describes; errors as for `named_upstream`."""
        return cls(*upstream_parts(text))

    def target(self, path: str, query: bytes) -> bytes:
        """Return path and query of the provider for what follows our base URL, percent-encoded as it came.

        The path of the provider's URL is not repeated: clients of some providers bring the version of the API along.
        """
        base = quote(urlsplit(self.url).path, safe="/%:@!$&'()*+,;=~-._")
        found = path if base and (path == base or path.startswith(f"{base}/")) else base + path
        return (found or "/").encode("ascii") + (b"?" + query if query else b"")


class RecordedRoute(NamedTuple):
    """What is called, if a model is to answer.

    Attributes:
        format: the format of the request and its answer.
        model: the model in the path; None if the request names it.
        is_stream: whether the path asks for a stream; None if the request says so.
        response: the provider's id of an answer that is asked for again, or cancelled; None for a new one.
        is_aside: whether it is on the bill alone: a compaction, which comes back with the history of the next call.
    """

    format: FormatName
    model: str | None = None
    is_stream: bool | None = None
    response: str | None = None
    is_aside: bool = False

    @classmethod
    def of(cls, method: str, path: str) -> RecordedRoute | None:
        """Return what a call asks for; None for any other call."""
        for pattern, format_ in _routes().get(method, ()):
            if found := pattern.fullmatch(path):
                groups = found.groupdict()
                if "response" in groups:
                    return cls(format_, response=unquote(groups["response"]))
                if "model" not in groups:
                    return cls(format_, is_aside="aside" in groups)
                return cls(format_, unquote(groups["model"]), groups["method"] == "streamGenerateContent")
        return None


class CallTarget(NamedTuple):
    """Where a call goes.

    Attributes:
        upstream: the provider.
        key: our key in the path; None if there is none.
        path: what follows our base URL, percent-encoded as it came; a key after its beginning is still in it.
    """

    upstream: RecordedUpstream
    key: str | None
    path: str

    @classmethod
    def of(cls, scope: Mapping[str, Any], upstreams: Mapping[str, RecordedUpstream]) -> CallTarget | None:
        """Return where a call goes: ``/NAME/…`` or ``/NAME/k/KEY/…``; None for an unknown name.

        A single upstream needs no name.
        """
        raw = scope.get("raw_path") or quote(scope["path"]).encode()
        segments = raw.decode("ascii", "replace").split("/")[1 + scope.get("root_path", "").rstrip("/").count("/") :]
        key, segments = _without_key(segments)
        if segments and segments[0] in upstreams:
            upstream = upstreams[segments.pop(0)]
        elif len(upstreams) == 1:
            [upstream] = upstreams.values()
        else:
            return None
        if key is None:
            key, segments = _without_key(segments)
        if key is None:
            key = next((unquote(two) for one, two in pairwise(segments) if one == KEY_SEGMENT and is_own(two)), None)
        return cls(upstream, key, "".join(f"/{segment}" for segment in segments))


def _without_key(segments: list[str]) -> tuple[str | None, list[str]]:
    if len(segments) > 1 and segments[0] == KEY_SEGMENT:
        return unquote(segments[1]), segments[2:]
    return None, segments


def passed_on(
    headers: Iterable[tuple[bytes, bytes]], *, without: frozenset[bytes] = frozenset(), keys: OwnKeys | None = None
) -> Headers:
    """Return the headers that are for the other side, as they are and in their order; none that has one of our keys."""
    given = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in given if name == b"connection" for word in value.split(b",")}
    left_out = _HOP_BY_HOP | named | without
    if any(name == b"transfer-encoding" for name, _ in given):
        left_out |= {b"content-length"}  # which does not count beside it (RFC 9112, 6.3)
    passed = [(name, value) for name, value in given if name not in left_out and not name.startswith(_OWN)]
    if keys is not None:
        passed = [(name, value) for name, value in passed if not keys.are_in_header(name, value)]
    return [(name, rest) for name, value in passed if (rest := _without_own_cookies(name, value)) is not None]


def _without_own_cookies(name: bytes, value: bytes) -> bytes | None:
    """The value of a header without cookies of our own; None if there is nothing else in it."""
    if name == b"set-cookie":
        return None if _is_own_cookie(value) else value
    if name != b"cookie" or _OWN_COOKIE not in value:
        return value
    return b";".join(cookie for cookie in value.split(b";") if not _is_own_cookie(cookie)).strip() or None


def _is_own_cookie(cookie: bytes) -> bool:
    return cookie.lstrip(b" \t=").startswith(_OWN_COOKIE)  # cookies may have no name, as in "=name=value"
