"""What the model saw: the request of an answer in any format, what was lost and repaired, the body, and differences."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from starlette.responses import Response

from threadkeep.domain.rendering import Loss, Rendered, Repair
from threadkeep.domain.stored import StoredResponse
from threadkeep.errors import CannotRender, NotFound, UnknownFormat
from threadkeep.formats import NAMES, FormatName
from threadkeep.store import overviews
from threadkeep.store.conversation import Conversation
from threadkeep.store.store import Store
from threadkeep.viewer.differences import Line, difference, lines_of
from threadkeep.viewer.pages import View
from threadkeep.viewer.requests import request_of, text_of
from threadkeep.viewer.texts import json_text

VIEWS: Final = ("request", "changes", "body")
MAX_SHOWN: Final = 200_000  # characters of a request or body


@dataclass(slots=True)
class Seen:
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


async def seen_page(view: View) -> Response:
    """Show the request of an answer, what is new in it, or the body that the provider sent."""
    params = view.request.path_params
    shown = view.query("show") or "request"
    if shown not in VIEWS:
        raise NotFound(f"There is no view {shown[:40]!r} of a request.")
    seen = await view.read(read_seen, params["id"], number_of(params["number"]), view.query("format"), shown)
    return await view.drawn(_rendered, view, seen, shown)


def _rendered(view: View, seen: Seen, shown: str) -> Response:
    """The page."""
    text, lines = None, _changes(seen) if shown == "changes" else ()
    if shown == "body" and seen.body is not None:
        text = shortened(json_text(seen.body.decode("utf-8", "replace")))
    elif shown == "request" and seen.rendered is not None:
        text = shortened(text_of(seen.rendered))
    return view.page("seen.html", seen=seen, text=text, lines=lines, shown=shown, formats=NAMES, views=VIEWS)


def _changes(seen: Seen) -> Sequence[Line]:
    """The differences to the request of the answer before."""
    if seen.rendered is None or seen.before is None:
        return ()
    old = [] if seen.earlier is None else lines_of(text_of(seen.earlier))
    return list(difference(old, lines_of(text_of(seen.rendered))))


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
    """Return the request of an answer, and what else is shown of it.

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
    if shown == "changes" and seen.rendered is not None and before is not None:
        seen.earlier, _ = _render(conversation, before, seen.format)
    return seen


def _render(conversation: Conversation, response: StoredResponse, name: str) -> tuple[Rendered | None, str | None]:
    try:
        return request_of(conversation, format_named(name), response.input_to), None
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


def _body(conversation: Conversation, number: int) -> bytes | None:
    try:
        return conversation.response_body(number)
    except NotFound:
        return None


def shortened(text: str) -> str:
    """Return a text, or its beginning."""
    if len(text) <= MAX_SHOWN:
        return text
    return f"{text[:MAX_SHOWN]}\n… ({len(text):,} characters in all)"
