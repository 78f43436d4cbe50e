"""What of a request an explicit context cache can hold.

* A cache holds the system text, the tools, their configuration and the first contents, exactly as requests send them.
* The last turn is never in a cache: its thought signatures must be sent. Calls are not parted from their responses.
* A new cache ends where the user begins to speak, so that what is left of the request begins with the user; where the
  user has spoken only once (a long run of tools), with a turn of the model.
* A cache holds nothing that a later item may still change, and no dynamic context.
* The hash of a beginning covers all of it, and the model. The order of keys counts: the service sees it, too.

Source: Google's Gemini API reference, "Caching".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from threadkeep.domain.context_caches import Prefix
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.rendering import AS_IT_IS, RenderOptions
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.gemini.fields import USER
from threadkeep.formats.gemini.request import CACHED, RequestParts, write_request
from threadkeep.formats.shared.views import trigger_start

if TYPE_CHECKING:
    from threadkeep.domain.session import Session

_NAMED: Final = ("cachedContent", "cached_content")
_MODELS: Final = "models/"


@dataclass(slots=True)
class CacheablePrefixes:
    """The beginnings of a request; see `threadkeep.domain.context_caches.Prefixes`."""

    model: str
    head: JsonObject
    contents: Sequence[Any]
    found: Sequence[Prefix]
    goal: Prefix | None

    def body(self, prefix: Prefix, ttl: float) -> JsonObject:
        """The request that creates a cache of a beginning, for so many seconds."""
        model = self.model if "/" in self.model else f"{_MODELS}{self.model}"
        seconds = f"{ttl:.9f}".rstrip("0").rstrip(".")
        return {"model": model, **self.head, "contents": list(self.contents[: prefix.turns]), "ttl": f"{seconds}s"}


def prefixes(session: Session | Snapshot, options: RenderOptions = AS_IT_IS) -> CacheablePrefixes | None:
    """What of a request a cache can hold; None where the request has no model, or names a cache already."""
    parts = write_request(session, replace(options, dynamic_context=None, context_cache=None))
    if not isinstance(parts.model, str) or any(parts.head.get(key) is not None for key in _NAMED):
        return None
    head: JsonObject = {key: parts.head[key] for key in CACHED if key in parts.head}
    model = parts.model.removeprefix(_MODELS)
    contents = parts.contents()
    found: list[Prefix] = []
    digest = sha256(dumps([model, head])).digest()
    cuts = _cuts(parts)
    for turns, content in enumerate(contents[: max(cuts, default=0)], start=1):
        digest = sha256(digest + dumps(content)).digest()
        if turns in cuts:
            found.append(Prefix(turns, cuts[turns], digest))
    best = [prefix for prefix in found if parts.writer.contents[prefix.turns].role == USER] or found
    return CacheablePrefixes(model, head, contents, found, best[-1] if best else None)


def _cuts(parts: RequestParts) -> dict[int, int]:
    """After how many contents a cache may end, and the position of the last item in each of these beginnings."""
    entries, contents = parts.rendering.entries, parts.writer.contents
    if not contents:
        return {}
    ends = list(accumulate((max(content.places) for content in contents), max))
    starts = list(accumulate((min(content.places) for content in reversed(contents)), min))[::-1]
    trigger = entries[trigger_start(entries)].position
    return {
        turns: ends[turns - 1]
        for turns in range(1, min(parts.writer.stable() + 1, len(contents)))
        if 0 <= ends[turns - 1] < min(starts[turns], trigger) and not contents[turns].has_responses()
    }
