"""Requests as they are looked at: with references in place of stored media, which are not read."""

from __future__ import annotations

import base64
import re
from dataclasses import replace
from typing import Any, Final

from threadkeep.domain.media import REFERENCE
from threadkeep.domain.rendering import Rendered
from threadkeep.formats import FormatName
from threadkeep.formats.canonical.entries import Entry
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.store import overviews, rendering
from threadkeep.store.conversation import Conversation
from threadkeep.store.handle import Handle, HandleCache
from threadkeep.store.history import HistoryPage
from threadkeep.store.media.cutting import MARK
from threadkeep.viewer.texts import json_text

_FILLED: Final = b"  "  # makes the length of a mark a multiple of 3, so that its base64 needs no padding
_MARK: Final = re.compile(rf"{MARK.pattern.decode()}(?:{_FILLED.decode()})?")
_ENCODED: Final = re.compile(base64.b64encode(b"threadkeep-mark").decode() + "[A-Za-z0-9+/]{112}")


def request_of(conversation: Conversation, format: FormatName, upto: int) -> Rendered:
    """Return the request that showed the items up to a position; `text_of` shows its payload.

    Media of 8 KiB or more are marks in it, which are base64 as media are: formats treat both alike.

    Raises:
        CannotRender: the provider would reject any request rendered from this conversation.
    """
    handle = overviews.handle_of(conversation)
    looked_at = _LookedAt(handle.resources, handle.transactions, handle.conversation)
    return rendering.render(looked_at, format, {"upto": upto})


def text_of(rendered: Rendered) -> str:
    """Return the payload of such a request as JSON on several lines, with references to media."""
    return _MARK.sub(_reference, _ENCODED.sub(_decoded, json_text(rendered.payload)))


class _LookedAt(Handle):
    """A conversation of which the media are not read."""

    __slots__ = ()

    @property
    def cache(self) -> HandleCache:
        """What has been read."""
        if not self._cache:
            self._cache.append(_MarkedCache(self.conversation, None, is_marked=True))
        return self._cache[0]


class _MarkedCache(HandleCache):
    """What has been read of such a conversation; nothing of it is kept for others."""

    def update(self, page: HistoryPage) -> Snapshot | None:
        """Return the snapshot that requests are rendered from, with marks in base64."""
        return super().update(replace(page, entries=[_encoded(entry) for entry in page.entries]))


def _encoded(entry: Entry) -> Entry:
    payload, rest = (
        None if text is None else MARK.sub(lambda mark: base64.b64encode(mark[0] + _FILLED), text)
        for text in (entry.payload, entry.rest)
    )
    return entry._replace(payload=payload, rest=rest)


def _decoded(match: re.Match[str]) -> str:
    """The mark that base64 stands for; what somebody wrote that looks like one stays as it is."""
    text: Any = base64.b64decode(match[0])
    return match[0] if MARK.match(text) is None else text.decode("ascii", "replace")


def _reference(mark: re.Match[str]) -> str:
    return REFERENCE + mark[1]
