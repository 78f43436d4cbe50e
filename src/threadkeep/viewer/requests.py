"""Requests as they are looked at: with references in place of stored media, which are not read.

What the model saw: the request of an answer in any format, what was lost and repaired, the body, and differences.

Differences between two requests, line by line.
"""

from __future__ import annotations

import base64
import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from difflib import Match, SequenceMatcher
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from threadkeep import errors, formats
from threadkeep.domain.media import REFERENCE
from threadkeep.domain.rendering import Loss, Rendered, Repair
from threadkeep.domain.stored import StoredResponse
from threadkeep.formats.canonical import entries
from threadkeep.store.conversation import Conversation
from threadkeep.store.media.cutting import MARK
from threadkeep.store.reading import history, overviews, rendering
from threadkeep.store.store import Store
from threadkeep.store.work.handle import Handle, HandleCache
from threadkeep.viewer import blocks, pages, texts

_FILLED: Final = b"  "  # makes the length of a mark a multiple of 3, so that its base64 needs no padding
_MARK: Final = re.compile(rf"{MARK.pattern.decode()}(?:{_FILLED.decode()})?")
_ENCODED: Final = re.compile(base64.b64encode(b"threadkeep-mark").decode() + "[A-Za-z0-9+/]{112}")


def request_of(conversation: Conversation, format: formats.FormatName, upto: int) -> Rendered:
    """Return the request that showed the items up to a position; `text_of` shows its payload.

    Media of 8 KiB or more are marks in it, which are base64 as media are: formats treat both alike.

    Raises:
        CannotRender: the provider would reject any request rendered from this conversation.
    """
    handle = conversation.handle
    looked_at = _LookedAt(handle.resources, handle.transactions, handle.conversation)
    return rendering.render(looked_at, format, {"upto": upto})


def text_of(rendered: Rendered) -> str:
    """Return the payload of such a request as JSON on several lines, with references to media."""
    return _MARK.sub(_reference, _ENCODED.sub(_decoded, texts.json_text(rendered.payload)))


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

    def update(self, page: history.HistoryPage) -> entries.Snapshot | None:
        """Return the snapshot that requests are rendered from, with marks in base64."""
        return super().update(replace(page, entries=[_encoded(entry) for entry in page.entries]))


def _encoded(entry: entries.ItemEntry) -> entries.ItemEntry:
    payload, rest = (
        None if text is None else MARK.sub(lambda mark: base64.b64encode(mark[0] + _FILLED), text)
        for text in (entry.payload, entry.rest)
    )
    return entry._replace(payload=payload, rest=rest)


def _decoded(match: re.Match[str]) -> str:
    """The mark that base64 stands for; a text that only looks like one stays as it is."""
    text: Any = base64.b64decode(match[0])
    return match[0] if MARK.match(text) is None else text.decode("ascii", "replace")


def _reference(mark: re.Match[str]) -> str:
    return REFERENCE + mark[1]


MAX_LINES: Final = 4_000  # of requests that are compared
MAX_STEPS: Final = 2_000_000  # of comparing them
CONTEXT: Final = 3  # unchanged lines around changes
_SHORT: Final = 400  # characters of a line of a difference


class DifferenceLine(NamedTuple):
    """A line of a difference: "add", "del", "same" or "gap", and its text."""

    kind: str
    text: str


class Comparison(SequenceMatcher[str]):
    """Compares lines in a bounded number of steps: what exceeds it counts as replaced.

    Looking for a common block takes a step for each pair of equal lines, and there may be as many blocks as lines: if
    lines repeat, the steps grow with the cube of their number.

    Attributes:
        steps: how many were taken, or asked for in vain.
    """

    def __init__(self, old: Sequence[str], new: Sequence[str], most: int | None = None) -> None:
        self.steps, self._most = 0, MAX_STEPS if most is None else most
        self._old, self._counts = old, Counter(new)
        super().__init__(None, old, new, autojunk=False)

    def find_longest_match(self, alo: int = 0, ahi: int | None = None, blo: int = 0, bhi: int | None = None) -> Match:
        """Return the longest common block of two ranges; none once there are no more steps."""
        if self.steps < self._most:
            self.steps += sum(1 + self._counts[line] for line in self._old[alo:ahi])
        if self.steps >= self._most:
            return Match(alo, blo, 0)
        return super().find_longest_match(alo, ahi, blo, bhi)


def lines_of(text: str) -> list[str]:
    """Return the lines of a request that can be compared, each of bounded length."""
    lines = text.splitlines()[:MAX_LINES]
    return [line if len(line) <= _SHORT else f"{line[:_SHORT]}… ({len(line):,} characters)" for line in lines]


def difference(old: Sequence[str], new: Sequence[str]) -> Iterator[DifferenceLine]:
    """Yield what is new and what is gone, with some unchanged lines around it."""
    # How many lines two requests have in common at their beginning, and at their end
    shortest = min(len(old), len(new))
    head = next((number for number in range(shortest) if old[number] != new[number]), shortest)
    tail = next((number for number in range(shortest - head) if old[-1 - number] != new[-1 - number]), shortest - head)
    last, end = len(old) - tail, len(new) - tail
    yield from _context(new[:head], is_first=True, is_last=head == len(new))
    old, middle = old[head:last], new[head:end]
    for kind, first, upto, begin, stop in Comparison(old, middle).get_opcodes():
        if kind == "equal":
            yield from _context(middle[begin:stop], is_first=False, is_last=False)
            continue
        yield from (DifferenceLine("del", f"- {line}") for line in old[first:upto])
        yield from (DifferenceLine("add", f"+ {line}") for line in middle[begin:stop])
    if end < len(new):
        yield from _context(new[end:], is_first=False, is_last=True)


def _context(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[DifferenceLine]:
    before = 0 if is_first else CONTEXT
    after = 0 if is_last else CONTEXT
    if len(lines) <= before + after + 1:
        yield from (DifferenceLine("same", f"  {line}") for line in lines)
        return
    yield from (DifferenceLine("same", f"  {line}") for line in lines[:before])
    hidden = len(lines) - before - after
    yield DifferenceLine("gap", f"  … {hidden:,} {'line' if hidden == 1 else 'lines'} as before …")
    yield from (DifferenceLine("same", f"  {line}") for line in lines[len(lines) - after :])


VIEWS: Final = ("request", "changes", "body")
MAX_SHOWN: Final = 200_000  # characters of a request or body


@dataclass(slots=True)
class RequestView:
    """The request of an answer.

    Attributes:
        format: the format it is rendered in; the answer's own is exactly what was sent, if that was recorded.
        rendered: the request; None if it cannot be rendered, which `problem` explains.
        earlier: the request of the answer before, if they are compared.
        body: the provider's body; None if it is not kept.
    """

    conversation: Conversation
    response: StoredResponse
    before: StoredResponse | None
    format: str
    rendered: Rendered | None = None
    problem: str | None = None
    earlier: Rendered | None = None
    body: bytes | None = None

    @property
    def losses(self) -> Sequence[Loss]:
        """What the format cannot express."""
        return () if self.rendered is None else self.rendered.losses

    @property
    def repairs(self) -> Sequence[Repair]:
        """What was changed so that the request is accepted."""
        return () if self.rendered is None else self.rendered.repairs


async def seen_page(view: pages.View) -> Response:
    """Show the request of an answer, what is new in it, or the body that the provider sent."""
    params = view.request.path_params
    shown = view.query("show") or "request"
    if shown not in VIEWS:
        raise errors.NotFound(f"There is no view {shown[:40]!r} of a request.")
    seen = await view.read(read_seen, params["id"], number_of(params["number"]), view.query("format"), shown)
    return await view.drawn(_rendered, view, seen, shown)


def _rendered(view: pages.View, seen: RequestView, shown: str) -> Response:
    """The page."""
    text, lines = None, _changes(seen) if shown == "changes" else ()
    if shown == "body" and seen.body is not None:
        text = texts.json_text(seen.body.decode("utf-8", "replace"))
    elif shown == "request" and seen.rendered is not None:
        text = text_of(seen.rendered)
    piece = None if text is None else blocks.data_piece(text, texts.Budget(), MAX_SHOWN)
    return view.page("seen.html", seen=seen, piece=piece, lines=lines, shown=shown, formats=formats.NAMES, views=VIEWS)


def _changes(seen: RequestView) -> Sequence[DifferenceLine]:
    """The differences to the request of the answer before."""
    if seen.rendered is None or seen.before is None:
        return ()
    old = [] if seen.earlier is None else lines_of(text_of(seen.earlier))
    return list(difference(old, lines_of(text_of(seen.rendered))))


async def body_file(view: pages.View) -> Response:
    """Answer with the body that the provider sent, as a file."""
    params = view.request.path_params
    number = number_of(params["number"])

    def read(store: Store) -> bytes:
        return store.get_conversation(params["id"], branch=0).response_body(number)

    name = f"response-{number}.json"
    headers = {"content-disposition": f"attachment; filename={name}"}
    return Response(await view.read(read), media_type="application/json", headers=headers)


def number_of(text: str) -> int:
    """Return the number of a response in an address.

    Raises:
        NotFound: it is none.
    """
    if not (text.isascii() and text.isdecimal() and len(text) < 10):  # noqa: PLR2004 - 32 bits
        raise errors.NotFound(f"There is no response {text[:40]!r}.")
    return int(text)


def read_seen(store: Store, id: str, number: int, format: str | None, shown: str) -> RequestView:
    """Return the request of an answer, and what else is shown of it.

    Raises:
        NotFound: there is no such answer.
        UnknownFormat: there is no such format.
    """
    first = store.get_conversation(id, branch=0)
    conversation, response, before = overviews.response_with_previous(first, number)
    seen = RequestView(conversation, response, before, response.format if format is None else format)
    if shown == "body":
        seen.body = _body(conversation, number)
        return seen
    seen.rendered, seen.problem = _render(conversation, response, seen.format)
    if shown == "changes" and seen.rendered is not None and before is not None:
        seen.earlier, _ = _render(conversation, before, seen.format)
    return seen


def _render(conversation: Conversation, response: StoredResponse, name: str) -> tuple[Rendered | None, str | None]:
    try:
        return request_of(conversation, format_named(name), response.input_to), None
    except errors.CannotRender as error:
        return None, str(error)


def format_named(name: str) -> formats.FormatName:
    """Return the format of that name.

    Raises:
        UnknownFormat: there is none.
    """
    for known in formats.NAMES:
        if known == name:
            return known
    raise errors.UnknownFormat(name, sorted(formats.NAMES))


def _body(conversation: Conversation, number: int) -> bytes | None:
    try:
        return conversation.response_body(number)
    except errors.NotFound:
        return None
