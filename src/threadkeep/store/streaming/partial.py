"""What has come of a response that is being streamed, read from what its recorder has stored: from any process."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, NamedTuple

from sqlalchemy import Connection

from threadkeep.db.queries.streams import parts_after, stream_of
from threadkeep.domain.formats import get_format
from threadkeep.domain.jsontext import loads
from threadkeep.domain.response import Response
from threadkeep.store.handle import Handle
from threadkeep.store.lineage import get_row

if TYPE_CHECKING:
    from threadkeep.formats.shared.streams import StreamAssembler


class _News(NamedTuple):
    """The format of a response in progress, and the parts that were not read before."""

    format: str
    parts: Sequence[Any]


class PartialReader:
    """Reads a response in progress again and again: at each look, only the parts that have come since."""

    def __init__(self, handle: Handle, number: int) -> None:
        self._handle, self._number = handle, number
        self._assembler: StreamAssembler | None = None
        self._part = 0  # the last one that was read; the first one has no events
        self._rest: list[str] = []  # the beginning of an event whose end is in a later part
        self._is_readable = True
        self._partial: Response | None = None

    def read(self) -> Response | None:
        """Return what is stored so far; None if the response has ended, or there is none with that number."""
        news = self._handle.transactions.read(self._news)
        if news is None:
            return None
        if self._assembler is None:
            self._assembler = get_format(news.format).assembler()
        if news.parts or self._partial is None:
            self._take(self._assembler, news.parts)
            self._partial = self._assembler.partial
        return self._partial

    def _news(self, connection: Connection) -> _News | None:
        ref = self._handle.ref
        get_row(connection, ref)
        row = connection.execute(stream_of(), ref.parameters(number=self._number)).one_or_none()
        if row is None or row.open_branch is None:
            return None
        parameters = ref.parameters(number=self._number, part=self._part)
        return _News(row.format, connection.execute(parts_after(), parameters).all())

    def _take(self, assembler: StreamAssembler, parts: Sequence[Any]) -> None:
        """Feed the events of parts; what cannot be understood ends what can be shown."""
        *lines, rest = "".join(part.content for part in parts).split("\n")
        if lines:
            lines[0], self._rest = "".join([*self._rest, lines[0]]), []
        self._rest.append(rest)
        if parts:
            self._part = parts[-1].part
        if self._is_readable:
            self._is_readable = False
            with suppress(Exception):
                for line in lines:
                    assembler.feed(loads(line))
                self._is_readable = True
