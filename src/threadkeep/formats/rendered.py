"""A rendered request that orjson may write as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from operator import attrgetter
from typing import Final

import orjson

from threadkeep.domain.jsontext import PLAIN, dumps, encode
from threadkeep.domain.wire import Entry, Rendered, Snapshot

_codec: Final = attrgetter("codec")


@dataclass
class PlainRendered(Rendered):
    """A request of values that were all read by orjson, so that its body needs no second look at each of them."""

    @cached_property
    def body(self) -> bytes:
        """The request as JSON, UTF-8."""
        if isinstance(self.source, bytes):
            return self.source
        try:
            return orjson.dumps(self.source)
        except TypeError:  # arguments are stored as text, and may hold longer integers once they are read
            return dumps(self.source)


def is_plain(snapshot: Snapshot, entries: Sequence[Entry]) -> bool:
    """Whether orjson writes everything that a request of these entries can hold."""
    return not any(map(_codec, entries)) and encode([snapshot.settings, snapshot.tools])[1] == PLAIN
