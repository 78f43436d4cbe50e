"""A conversation as one static HTML file, and as other files."""

from __future__ import annotations

import asyncio
import base64
from hashlib import sha256
from typing import Final

from markupsafe import Markup
from starlette.responses import Response

from threadkeep.errors import NotFound
from threadkeep.store import overviews
from threadkeep.store.store import Store
from threadkeep.viewer.pages import View, asset, environment
from threadkeep.viewer.texts import Budget
from threadkeep.viewer.thread import Group, Thread, groups_of, number_of_branch

PAGE: Final = 500  # items that are read at once
MAX_MARKDOWN: Final = 5_000_000  # characters that are read as Markdown
MAX_CELLS: Final = 50_000  # of tables
MAX_SECONDS: Final = 30.0  # of the processor's time, for Markdown


def html_of(store: Store, id: str, *, branch: int | None = None) -> str:
    """Return a branch of a conversation as an HTML document that needs no other file, and can run nothing.

    It has the items, the answers with what they cost, and pictures. Its content security policy allows nothing but its
    own style and pictures.

    Args:
        store: the database.
        id: the id of the conversation.
        branch: the number of the branch; None for the active one.

    Raises:
        NotFound: there is no such conversation or branch.
    """
    return _document(_read(store, id, branch))


def _read(store: Store, id: str, branch: int | None) -> list[tuple[int, Thread]]:
    """The pages of a branch, each with its first position."""
    conversation = store.get_conversation(id, branch=0)
    pages: list[tuple[int, Thread]] = []
    start: int | None = 0
    while start is not None:
        page = overviews.read_thread(conversation, branch, start, PAGE, media="inline")
        pages.append((start, Thread(conversation, page)))
        start = page.next
    return pages


def _document(pages: list[tuple[int, Thread]]) -> str:
    """The document of what was read."""
    groups: list[Group] = []
    budget = Budget(MAX_MARKDOWN, MAX_CELLS, MAX_SECONDS)
    for start, thread in pages:
        groups += groups_of(thread, start, budget)
    conversation, page = pages[-1][1]
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


async def export_file(view: View) -> Response:
    """Answer with a conversation as a file: HTML or Markdown of a branch, or everything as JSON Lines."""
    kind, name = view.request.path_params["kind"], view.request.path_params["id"]
    branch = number_of_branch(view)

    def read(store: Store) -> tuple[str, str, str]:
        if kind == "markdown":
            return store.get_conversation(name, branch=branch).to_markdown(), "text/markdown", "md"
        if kind == "jsonl":
            return "".join(store.export(conversation_ids=[name])), "application/x-ndjson", "jsonl"
        raise NotFound(f"There is no export as {kind[:40]!r}.")

    if kind == "html":
        pages = await view.read(_read, name, branch)
        text = await asyncio.to_thread(_document, pages)  # which may take a while: with no connection, nor the loop
        media_type, ending = "text/html", "html"
    else:
        text, media_type, ending = await view.read(read)
    headers = {"content-disposition": f"attachment; filename={name[:40]}.{ending}"}
    content = text.encode("utf-8", "backslashreplace")
    return Response(content, media_type=media_type, headers=headers)
