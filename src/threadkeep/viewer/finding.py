"""Search over all conversations."""

from __future__ import annotations

from typing import Any, Final

from markupsafe import Markup, escape
from starlette.responses import Response

from threadkeep.domain.pages import Page
from threadkeep.domain.printing import printable
from threadkeep.domain.stored import SearchResult
from threadkeep.viewer.listing import day_of
from threadkeep.viewer.pages import View

PAGE: Final = 30
ROLES: Final = ("user", "assistant", "system", "developer")


async def search_page(view: View) -> Response:
    """Show what matches a search, with the words marked, each with a link to its place."""
    text = view.query("q")
    found: Page[SearchResult] = Page([])
    filters: dict[str, Any] = {"user_id": view.query("user"), "role": view.query("role")}
    if text is not None:
        found = await view.store.search(
            text, status=None, since=day_of(view, "since"), until=day_of(view, "until"), after=view.query("after"),
            limit=PAGE, **filters,
        )  # fmt: skip
    hits = [(one, marked(one)) for one in found]
    is_first = view.query("after") is None
    return view.page("search.html", text=text, hits=hits, next=found.next, roles=ROLES, is_first=is_first)


def marked(result: SearchResult) -> Markup:
    """Return the snippet of a result as HTML with its matches marked."""
    parts, end = [], 0
    for start, stop in result.marks:
        parts += [escape(printable(result.snippet[end:start]))]
        parts += [Markup("<mark>{}</mark>").format(printable(result.snippet[start:stop]))]
        end = stop
    parts.append(escape(printable(result.snippet[end:])))
    return Markup("").join(parts)
