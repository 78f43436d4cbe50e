"""A conversation as one static HTML file, and as other files."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, Final

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from threadkeep.domain import media, stored
from threadkeep.errors import NotFound
from threadkeep.server.answers import PICTURES
from threadkeep.server.permissions import until_left
from threadkeep.store.conversation import Conversation
from threadkeep.store.moving import exporting
from threadkeep.store.reading import overviews
from threadkeep.store.store import Store
from threadkeep.viewer.pages import View, asset, environment
from threadkeep.viewer.texts import Budget
from threadkeep.viewer.thread import Group, Thread, groups_of, number_of_branch

PIECE_BYTES: Final = 256 * 1024  # of an export, and what its last line has beyond them
PAGE: Final = 500  # items that are read at once
MAX_MARKDOWN: Final = 5_000_000  # characters that are read as Markdown
MAX_CELLS: Final = 50_000  # of tables
MAX_SECONDS: Final = 10.0  # of the processor's time, for Markdown
MAX_TEXTS: Final = 50_000_000  # characters of all texts
MAX_PICTURES: Final = 50_000_000  # characters of all pictures, each counted as often as it is shown
# what is exported -> the ending of its file, and its media type
ENDINGS: Final = {
    "html": ("html", "text/html"), "markdown": ("md", "text/markdown"), "jsonl": ("jsonl", "application/x-ndjson"),
}  # fmt: skip


def html_of(store: Store, id: str, *, branch: int | None = None) -> str:
    """Return a branch of a conversation as an HTML document that needs no other file, and can run nothing.

    It has the items, the answers with what they cost, and pictures of up to 50 MB in all; of others their references.
    Its content security policy allows nothing but its own style and pictures.

    Args:
        store: the database.
        id: the id of the conversation.
        branch: the number of the branch; None for the active one.

    Raises:
        NotFound: there is no such conversation or branch.
    """
    pages = _read(store, id, branch)
    groups = _groups(pages, _budget())
    _take_in_pictures(store, pages[-1][1].conversation, groups)
    return _document(pages[-1][1], groups)


def _read(store: Store, id: str, branch: int | None) -> list[tuple[int, Thread]]:
    """The pages of a branch, each with its first position."""
    conversation = store.get_conversation(id, branch=0)
    pages: list[tuple[int, Thread]] = []
    start: int | None = 0
    while start is not None:
        page = overviews.read_thread(conversation, branch, start, PAGE)
        pages.append((start, Thread(conversation, page)))
        start = page.next
    return pages


def _budget() -> Budget:
    return Budget(MAX_MARKDOWN, MAX_CELLS, MAX_SECONDS, MAX_TEXTS)


def _groups(pages: Iterable[tuple[int, Thread]], budget: Budget) -> list[Group]:
    """What the document shows, with references to stored media."""
    return [group for start, thread in pages for group in groups_of(thread, start, budget)]


def _document(thread: Thread, groups: Sequence[Group]) -> str:
    """The document of a branch, of which this is the last page."""
    conversation, page = thread
    style = asset("viewer.css")[0].decode()
    values = {
        "conversation": conversation, "branch": page.branch, "totals": page.totals, "groups": groups, "base": None,
        "style": Markup(style), "policy": policy_for(style),  # noqa: S704 - our own file
    }  # fmt: skip
    return environment().get_template("export.html").render(values).lstrip()


def policy_for(style: str) -> str:
    """Return the policy of a document with this style, by its hash, and pictures that are in it."""
    digest = base64.b64encode(sha256(style.encode()).digest()).decode()
    return f"default-src 'none'; style-src 'sha256-{digest}'; img-src data:; base-uri 'none'; form-action 'none'"


# Pictures


def _take_in_pictures(store: Store, conversation: Conversation, groups: Iterable[Group]) -> None:
    """Replace references to stored pictures by these, until they are too many; others, and files, become notes.

    They are looked for among what the user of the conversation has.
    """
    if conversation.user_id is not None:
        store = store.for_user(conversation.user_id)
    known: dict[str, str | None] = {}
    left = MAX_PICTURES
    blocks = [block for group in groups for block in group.blocks]
    pieces = [
        piece for block in blocks for shown in (block, block.output) if shown is not None for piece in shown.pieces
    ]
    for piece in pieces:
        if not piece.is_stored:
            continue
        url = None
        if piece.kind == "image" and left > 0:
            url = known[piece.url] if piece.url in known else known.setdefault(piece.url, _data_url(store, piece.url))
        if url is not None:
            left = left - len(url) if len(url) <= left else 0
        if url is None or left <= 0:
            piece.kind, piece.text = "note", f"{piece.text} (not in this file: {media.REFERENCE}{piece.url})"
        else:
            piece.url = url
        piece.is_stored = False


def _data_url(store: Store, name: str) -> str | None:
    """A stored picture as a data URL; None for what no browser shows, or what is not there."""
    try:
        found = store.media(name)
    except NotFound:
        return None
    media_type = (found.media_type or "").lower()
    return f"data:{media_type};base64,{base64.b64encode(found.content).decode()}" if media_type in PICTURES else None


# Downloads


async def export_file(view: View) -> Response:
    """Answer with a conversation as a file: HTML or Markdown of a branch, or everything as JSON Lines."""
    kind, name = view.request.path_params["kind"], view.request.path_params["id"]
    if kind not in ENDINGS:
        raise NotFound(f"There is no export as {kind[:40]!r}.")
    ending, media_type = ENDINGS[kind]
    headers = {"content-disposition": f"attachment; filename={name[:40]}.{ending}"}
    if kind == "jsonl":
        pieces = _pieces_of_export(view, name)
        return _Download(await anext(pieces), pieces, media_type=media_type, headers=headers)
    with view.drawing.one_file(view.permission.owner):
        if kind == "html":
            # The document; it is made quickly, of nothing, once the client has left
            pages, budget = await view.read(_read, name, number_of_branch(view)), _budget()
            watching = asyncio.create_task(_end_when_left(view.request, budget))
            try:
                groups = await view.drawing.file(_groups, pages, budget)
            finally:
                watching.cancel()
                budget.end()
            last = pages[-1][1]
            await view.read(_take_in_pictures, last.conversation, groups)
            text = await view.drawing.file(_document, last, groups)
        else:
            # The same as `Conversation.to_markdown`, with references to stored media instead of their sizes
            conversation, items = await view.read(_read_items, name, number_of_branch(view))
            text = await view.drawing.file(exporting.with_facts, conversation.handle, items)
        content = await view.drawing.file(text.encode, "utf-8", "backslashreplace")
    return Response(content, media_type=media_type, headers=headers)


class _Download(StreamingResponse):
    """A file in pieces, which are closed when the client has it or has left."""

    def __init__(self, first: bytes, pieces: AsyncGenerator[bytes], **options: Any) -> None:
        super().__init__(_chained(first, pieces), **options)
        self._pieces = pieces

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the file."""
        try:
            await super().__call__(scope, receive, send)
        finally:
            await self._pieces.aclose()


async def _chained(first: bytes, pieces: AsyncGenerator[bytes]) -> AsyncGenerator[bytes]:
    yield first
    async for piece in pieces:
        yield piece


async def _pieces_of_export(view: View, id: str) -> AsyncGenerator[bytes]:
    """The lines of an export, some at a time; the next ones are read when the client has taken these."""
    with view.drawing.one_download(view.permission.owner):
        lines = await view.read(lambda store: store.export(conversation_ids=[id]))
        while piece := await view.read(_next_piece, lines):
            yield piece


def _next_piece(_store: Store, lines: Iterator[str]) -> bytes:
    """The next lines; they end with the one that makes them large enough."""
    piece = bytearray()
    for line in lines:
        piece += line.encode()
        if len(piece) >= PIECE_BYTES:
            break
    return bytes(piece)


async def _end_when_left(request: Request, budget: Budget) -> None:
    await until_left(request.receive)
    budget.end()


def _read_items(store: Store, id: str, branch: int | None) -> tuple[Conversation, list[stored.StoredItem]]:
    conversation = store.get_conversation(id, branch=branch)
    return conversation, conversation.transcript(media="reference")
