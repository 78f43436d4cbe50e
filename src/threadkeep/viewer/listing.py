"""The list of conversations: filters, what they cost, and pages; and the search over all of them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from markupsafe import Markup, escape
from starlette.responses import Response

from threadkeep.domain.printing import printable
from threadkeep.domain.stored import ConversationSummary, Page, SearchResult
from threadkeep.errors import InvalidOption
from threadkeep.store.reading.overviews import CallSums, call_sums, list_matching, previews, search_matching
from threadkeep.store.store import Store
from threadkeep.viewer.filters import bar_of, day_of, labels_of, period_of
from threadkeep.viewer.pages import View

PAGE: Final = 50
# The filters of the list that are its own, and whether it has a field for each
OWN: Final = {"status": True, "errors": True, "on": False, "through": False, "provider": False}
STATUSES: Final = {"active": "active", "archived": "archived", "any": None}
_NEW: Final = CallSums()


class Listing(NamedTuple):
    """A page of conversations, with what the ledger says of each."""

    page: Page[ConversationSummary]
    sums: Mapping[str, CallSums]


def read_list(store: Store, wanted: Mapping[str, Any]) -> Listing:
    """Return a page of conversations, and their sums."""
    page = list_matching(store, wanted)
    return Listing(page, call_sums(store, [summary.id for summary in page]))


async def list_page(view: View) -> Response:
    """Show conversations, those with the newest activity first."""
    wanted = wanted_of(view)
    listing = await view.read(read_list, {**wanted, "after": view.query("after"), "limit": PAGE})
    rows = [(summary, listing.sums.get(summary.id, _NEW)) for summary in listing.page]
    is_first = "after" not in view.request.query_params
    values = {"rows": rows, "next": listing.page.next, "bar": bar_of(view, OWN, ["live"]), "is_first": is_first}
    return view.page("list.html", view.live(), **values)


def wanted_of(view: View) -> dict[str, Any]:
    """Return the filters in the address as arguments of the list.

    Raises:
        InvalidOption: one of them cannot be used.
    """
    status = view.query("status") or "active"
    if status not in STATUSES:
        raise InvalidOption(f"must be one of {', '.join(STATUSES)}, not {status[:40]!r}.", argument="status")
    wanted = {"status": STATUSES[status], "user_id": view.query("user"), "labels": labels_of(view)}
    return {**wanted, **period_of(view).bounds(), "calls": _calls(view)}


def _calls(view: View) -> dict[str, Any]:
    """What is asked of calls: all of it of the same one."""
    calls: dict[str, Any] = {name: value for name in ("model", "provider") if (value := view.query(name)) is not None}
    if view.query("errors") is not None:
        calls["status"] = "failed"
    if (day := day_of(view, "on")) is not None:
        calls["day"] = (day, day_of(view, "through") or day)
    return calls


RESULTS: Final = 30
ROLES: Final = ("user", "assistant", "system", "developer")


async def search_page(view: View) -> Response:
    """Show what matches a search, with the words marked, each with a link to its place."""
    text = view.query("q")
    found: Page[SearchResult] = Page([])
    wanted: dict[str, Any] = {"role": view.query("role"), "labels": labels_of(view), "model": view.query("model")}
    wanted |= {**period_of(view).bounds(), "user_id": view.query("user"), "after": view.query("after")}
    if text is not None:
        found = await view.read(search_matching, text, {**wanted, "limit": RESULTS})
    hits = [(one, marked(one)) for one in found]
    opened = await view.read(previews, [one.conversation_id for one in found if one.title is None])
    is_first = view.query("after") is None
    values = {"text": text, "hits": hits, "previews": opened, "next": found.next, "roles": ROLES, "is_first": is_first}
    return view.page("search.html", bar=bar_of(view, {"role": True}, ["q"]), **values)


def marked(result: SearchResult) -> Markup:
    """Return the snippet of a result as HTML with its matches marked."""
    parts, end = [], 0
    for start, stop in result.marks:
        parts += [escape(printable(result.snippet[end:start]))]
        parts += [Markup("<mark>{}</mark>").format(printable(result.snippet[start:stop]))]
        end = stop
    parts.append(escape(printable(result.snippet[end:])))
    return Markup("").join(parts)
