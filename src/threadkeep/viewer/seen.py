"""What the model saw: the request of an answer in any format, what was lost and repaired, the body, and differences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from difflib import SequenceMatcher
from typing import Any, Final, NamedTuple

from starlette.responses import Response

from threadkeep.domain.rendering import Loss, Rendered, Repair
from threadkeep.domain.stored import StoredResponse
from threadkeep.errors import CannotRender, NotFound, UnknownFormat
from threadkeep.formats import NAMES, FormatName
from threadkeep.store import overviews
from threadkeep.store.conversation import Conversation
from threadkeep.store.store import Store
from threadkeep.viewer.pages import View
from threadkeep.viewer.texts import json_text

VIEWS: Final = ("request", "changes", "body")
MAX_SHOWN: Final = 200_000  # characters of a request or body
MAX_LINES: Final = 4_000  # of requests that are compared
CONTEXT: Final = 3  # unchanged lines around changes
_SHORT: Final = 400  # characters of a line of a difference


class Line(NamedTuple):
    """A line of a difference: "add", "del", "same" or "gap", and its text."""

    kind: str
    text: str


@dataclass(slots=True)
class Seen:
    """The request of an answer.

    Attributes:
        format: the format it is rendered in; the answer's own is exactly what was sent, if that was recorded.
        rendered: the request; None if it cannot be rendered, which `problem` explains.
        lines: the differences to the request of the answer before.
        body: the provider's body, as text; None if it is not kept.
    """

    conversation: Conversation
    response: StoredResponse
    before: StoredResponse | None
    format: str
    rendered: Rendered | None = None
    problem: str | None = None
    lines: Sequence[Line] = ()
    body: str | None = None
    losses: Sequence[Loss] = ()
    repairs: Sequence[Repair] = field(default=())


async def seen_page(view: View) -> Response:
    """Show the request of an answer, what is new in it, or the body that the provider sent."""
    params = view.request.path_params
    shown = view.query("show") or "request"
    if shown not in VIEWS:
        raise NotFound(f"There is no view {shown[:40]!r} of a request.")
    seen = await view.read(read_seen, params["id"], number_of(params["number"]), view.query("format"), shown)
    text = None if seen.rendered is None else shortened(json_text(seen.rendered.payload))
    return view.page("seen.html", seen=seen, text=text, shown=shown, formats=NAMES, views=VIEWS)


async def body_file(view: View) -> Response:
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
        raise NotFound(f"There is no response {text[:40]!r}.")
    return int(text)


def read_seen(store: Store, id: str, number: int, format: str | None, shown: str) -> Seen:
    """Return the request of an answer as it is shown.

    Raises:
        NotFound: there is no such answer.
        UnknownFormat: there is no such format.
    """
    first = store.get_conversation(id, branch=0)
    conversation, response, before = overviews.response_with_previous(first, number)
    seen = Seen(conversation, response, before, response.format if format is None else format)
    if shown == "body":
        seen.body = _body(conversation, number)
        return seen
    seen.rendered, seen.problem = _render(conversation, response, seen.format)
    if seen.rendered is not None:
        seen.losses, seen.repairs = seen.rendered.losses, seen.rendered.repairs
    if shown == "changes" and seen.rendered is not None and before is not None:
        earlier, _ = _render(conversation, before, seen.format)
        old = [] if earlier is None else lines_of(earlier.payload)
        seen.lines = list(difference(old, lines_of(seen.rendered.payload)))
    return seen


def _render(conversation: Conversation, response: StoredResponse, name: str) -> tuple[Rendered | None, str | None]:
    try:
        return conversation.render(format_named(name), upto=response.input_to), None
    except CannotRender as error:
        return None, str(error)


def format_named(name: str) -> FormatName:
    """Return the format of that name.

    Raises:
        UnknownFormat: there is none.
    """
    for known in NAMES:
        if known == name:
            return known
    raise UnknownFormat(name, sorted(NAMES))


def _body(conversation: Conversation, number: int) -> str | None:
    try:
        text = conversation.response_body(number).decode("utf-8", "replace")
    except NotFound:
        return None
    return shortened(json_text(text))


def shortened(text: str) -> str:
    """Return a text, or its beginning."""
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[:MAX_SHOWN]}\n… ({len(text):,} characters in all)"


# Differences


def lines_of(payload: Any) -> list[str]:
    """Return a request as lines that can be compared, each of bounded length."""
    lines = json_text(payload).splitlines()[:MAX_LINES]
    return [line if len(line) <= _SHORT else f"{line[:_SHORT]}… ({len(line):,} characters)" for line in lines]


def difference(old: Sequence[str], new: Sequence[str]) -> Iterator[Line]:
    """Yield what is new and what is gone, with some unchanged lines around it."""
    matcher = SequenceMatcher(None, old, new, autojunk=False) if len(old) * len(new) < 10**6 else None
    operations = _common_ends(old, new) if matcher is None else matcher.get_opcodes()
    for kind, first, last, begin, end in operations:
        if kind == "equal":
            yield from _context(new[begin:end], is_first=begin == 0, is_last=end == len(new))
            continue
        yield from (Line("del", f"- {line}") for line in old[first:last])
        yield from (Line("add", f"+ {line}") for line in new[begin:end])


def _common_ends(old: Sequence[str], new: Sequence[str]) -> list[tuple[str, int, int, int, int]]:
    """What differs between two long requests: everything between their common beginning and their common end."""
    shortest = min(len(old), len(new))
    head = next((number for number in range(shortest) if old[number] != new[number]), shortest)
    tail = next((number for number in range(shortest - head) if old[-1 - number] != new[-1 - number]), shortest - head)
    return [
        ("equal", 0, head, 0, head),
        ("replace", head, len(old) - tail, head, len(new) - tail),
        ("equal", len(old) - tail, len(old), len(new) - tail, len(new)),
    ]


def _context(lines: Sequence[str], *, is_first: bool, is_last: bool) -> Iterator[Line]:
    before = 0 if is_first else CONTEXT
    after = 0 if is_last else CONTEXT
    if len(lines) <= before + after + 1:
        yield from (Line("same", f"  {line}") for line in lines)
        return
    yield from (Line("same", f"  {line}") for line in lines[:before])
    hidden = len(lines) - before - after
    yield Line("gap", f"  … {hidden:,} {'line' if hidden == 1 else 'lines'} as before …")
    yield from (Line("same", f"  {line}") for line in lines[len(lines) - after :])
