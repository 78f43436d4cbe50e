"""A conversation as one static HTML file, and as other files."""

from __future__ import annotations

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
MAX_MARKDOWN: Final = 2_000_000  # characters of these that are read as Markdown
MAX_CELLS: Final = 50_000  # of their tables


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
    conversation = store.get_conversation(id, branch=0)
    groups: list[Group] = []
    start: int | None = 0
    while start is not None:
        page = overviews.read_thread(conversation, branch, start, PAGE, media="inline")
        groups += groups_of(Thread(conversation, page), start, Budget(MAX_MARKDOWN, MAX_CELLS))
        start = page.next
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
        if kind == "html":
            return html_of(store, name, branch=branch), "text/html", "html"
        if kind == "markdown":
            return store.get_conversation(name, branch=branch).to_markdown(), "text/markdown", "md"
        if kind == "jsonl":
            return "".join(store.export(conversation_ids=[name])), "application/x-ndjson", "jsonl"
        raise NotFound(f"There is no export as {kind[:40]!r}.")

    text, media_type, ending = await view.read(read)
    headers = {"content-disposition": f"attachment; filename={name[:40]}.{ending}"}
    content = text.encode("utf-8", "backslashreplace")
    return Response(content, media_type=media_type, headers=headers)
