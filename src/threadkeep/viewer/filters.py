"""Filters: the parameters of addresses that all pages share, the bar that shows them, and links that keep them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qsl

from threadkeep.errors import InvalidOption
from threadkeep.server.owners import Scope
from threadkeep.store.work.validation import moment_of, time_zone
from threadkeep.viewer.texts import first_line, query_text

if TYPE_CHECKING:
    from starlette.datastructures import QueryParams

    from threadkeep.viewer.pages import View

# A parameter -> what a chip says of its value. These stay from page to page; others belong to some of them
SHARED: Final = {
    "user": "user {}", "label": "{}", "model": "model {}", "days": "last {} days", "since": "from {}",
    "until": "to {}", "tz": "days of {}",
}  # fmt: skip
OWN: Final = {
    "status": "status {}", "errors": "failed calls", "provider": "provider {}", "on": "calls from {}",
    "through": "calls to {}", "role": "role {}",
}  # fmt: skip
DEFAULTS: Final = (("status", "active"), ("tz", "UTC"))
NAME: Final = "view"  # the parameter with the name of the filters
MAX_NAME: Final = 80
# The pages that have filters, and the scope that each of them needs
PAGES: Final[Mapping[str, Scope]] = {"/": "read", "/search": "read", "/usage": "usage", "/usage/tools": "usage"}
FIELDS: Final = frozenset({"user", "model", "since", "until"})  # of every bar
RANGES: Final = (7, 30, 90)  # days that can be chosen at once
MAX_DAYS: Final = 366


class Period(NamedTuple):
    """The days that are shown, both included, and whose days they are; None for any."""

    first: date | None
    last: date | None
    zone: str

    def bounds(self) -> dict[str, datetime | None]:
        """The moments of their beginning and their end."""
        zone = time_zone(self.zone)
        end = None if self.last is None else min(self.last, date.max - timedelta(1)) + timedelta(1)
        return {"since": moment_of(self.first, zone), "until": moment_of(end, zone)}


def period_of(view: View, days: int | None = None) -> Period:
    """Return the days in the address; by default so many, the last of which is today.

    Raises:
        InvalidOption: it has none that can be used.
    """
    zone = view.query("tz") or "UTC"
    place, first, last = time_zone(zone), day_of(view, "since"), day_of(view, "until")
    length = view.number("days", days, 1)
    if length is not None and first is None:
        last = last or datetime.now(place).date()
        first = date.fromordinal(max(1, last.toordinal() - min(length, MAX_DAYS) + 1))
    return Period(first, last, zone)


def day_of(view: View, name: str) -> date | None:
    """Return a day in the address.

    Raises:
        InvalidOption: it is none.
    """
    text = view.query(name)
    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError as error:
        raise InvalidOption(f"must be a day such as 2026-11-22, not {text[:40]!r}.", argument=name) from error


def labels_of(view: View) -> dict[str, str]:
    """Return the labels in the address; of two with the same name, the last one.

    Raises:
        InvalidOption: one of them is none.
    """
    return dict(map(_label, filter(str.strip, view.request.query_params.getlist("label"))))


def _label(text: str) -> tuple[str, str]:
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise InvalidOption("must look like name=value.", argument="label")
    return name.strip(), value.strip()


Pair = tuple[str, str]


def shared_pairs(params: QueryParams) -> list[Pair]:
    """Return the filters of an address that stay from page to page."""
    return _pairs(params, SHARED)


def _pairs(params: QueryParams, names: Iterable[str]) -> list[Pair]:
    """The filters of these names that narrow anything, each as often as it counts."""
    known = set(names)
    found: dict[Any, Pair] = {}
    for name, text in params.multi_items():
        value = text.strip()
        if name in known and value and (name, value) not in DEFAULTS:
            key = (name, value.partition("=")[0].strip()) if name == "label" else name
            found[key] = (name, value)
    return [pair for pair in found.values() if pair[0] != "days" or "since" not in found]


class FilterChip(NamedTuple):
    """A filter: what it says, and the address of the page without it."""

    text: str
    without: str


class DayRange(NamedTuple):
    """A number of last days: the address that has them, or lacks them where they are chosen already."""

    days: int
    address: str
    is_current: bool
    is_chosen: bool


class FilterBar(NamedTuple):
    """The filters of a page.

    Attributes:
        chips: those in the address, apart from ranges.
        hidden: those that the form sends without having a field for them.
        ranges: how many last days can be chosen at once.
        clear: the address without filters.
        pairs: all of them, and what stays with them.
        name: what the address calls them; None without a name.
        saved: the views that the server names, each with its address.
    """

    chips: list[FilterChip]
    hidden: list[Pair]
    ranges: list[DayRange]
    clear: str
    pairs: list[Pair]
    name: str | None
    saved: list[Pair]

    @property
    def is_narrowed(self) -> bool:
        """Whether there are any filters, or a name."""
        return bool(self.chips or self.name or any(one.is_chosen for one in self.ranges))


def bar_of(view: View, own: Mapping[str, bool], keeping: Iterable[str] = (), days: int | None = None) -> FilterBar:
    """Return the bar of a page.

    Args:
        view: the page.
        own: the parameters that not all pages have, or have a field for, and whether this page has one.
        keeping: parameters that are no filters, and stay.
        days: how many days it shows by default.
    """
    params, words = view.request.query_params, SHARED | OWN
    pairs = _pairs(params, [*SHARED, *own])
    kept = [(name, params[name]) for name in keeping if params.get(name)]

    def without(*names: str, but: Pair | None = None) -> list[Pair]:
        return [*kept, *(pair for pair in pairs if pair[0] not in names and pair != but)]

    chosen = next((value for name, value in pairs if name == "days"), None)
    is_timed = any(name in ("days", "since", "until") for name, _ in pairs)
    current = chosen if is_timed or days is None else str(days)
    ranges = []
    for number in RANGES:
        timeless, is_chosen = without("days", "since", "until"), chosen == str(number)
        address = f"?{query_text(timeless if is_chosen else [*timeless, ('days', number)])}"
        ranges.append(DayRange(number, address, current == str(number), is_chosen))
    chips = [
        FilterChip(words[name].format(value), f"?{query_text(without(but=(name, value)))}")
        for name, value in pairs
        if name != "days" or all(value != str(number) for number in RANGES)
    ]
    fields = FIELDS | {name for name, has_field in own.items() if has_field}
    hidden = [pair for pair in pairs if pair[0] not in fields]
    name = view.query(NAME)
    name = None if name is None else first_line(name, MAX_NAME)
    return FilterBar(chips, hidden, ranges, f"?{query_text(kept)}", without(), name, view.saved_views())


class SavedView(NamedTuple):
    """Filters with a name: a path of the viewer, and the query behind it, in which the name is, too."""

    name: str
    path: str
    query: str

    @classmethod
    def of(cls, name: str, address: str) -> SavedView:
        """Return the view of an address without what is before the viewer's own path, such as ``/?errors=1&days=7``.

        Raises:
            InvalidOption: it has no name, or is not the address of a page with filters.
        """
        path, _, query = address.partition("?")
        if not name.strip() or path not in PAGES:
            problem = f"must have a name, and an address that begins with one of {', '.join(PAGES)}; {name}={address}"
            raise InvalidOption(f"{problem} has not.", argument="saved_views")
        pairs = [pair for pair in parse_qsl(query) if pair[0] != NAME]
        return cls(name, path, query_text([*pairs, (NAME, name)]))
