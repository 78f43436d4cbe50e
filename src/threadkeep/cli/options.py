"""Options shared by several commands, their parsing, and the decorator that adds the options of all commands."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from functools import wraps
from typing import Annotated, Any, Final, Literal

import typer
from typer import Argument, Option

from threadkeep.cli.target import Target
from threadkeep.errors import InvalidOption, UnknownFormat
from threadkeep.formats import NAMES, FormatName

Text = str | None  # of optional options
MAX_PAGE: Final = 1000  # the most that a store lists at once

Url = Annotated[Text, Option("--url", metavar="URL", help="Database URL, as for `threadkeep --url`.")]
Tenant = Annotated[Text, Option("--tenant", metavar="NAME", help="Tenant, in a database shared by several.")]
Blobs = Annotated[
    Text,
    Option("--blobs", metavar="PLACE", help="Folder or s3://BUCKET/PREFIX of the media that are not in the database."),
]
AsJson = Annotated[bool, Option("--json", help="Print JSON.")]

ConversationId = Annotated[
    str, Argument(metavar="ID", help="Id of the conversation (conv_…), or its beginning.", show_default=False)
]
Owner = Annotated[Text, Option("--user", metavar="ID", help="Only if the conversation belongs to this user.")]
Branch = Annotated[int | None, Option("--branch", metavar="N", help="Branch number; default: the active branch.")]
WireFormat = Annotated[
    str, Option("--format", "-f", metavar="FORMAT", help=f"Wire format: {', '.join(NAMES)}.", show_default=False)
]
Labels = Annotated[list[str] | None, Option("--label", metavar="KEY=VALUE", help="Label; can be repeated.")]
OnlyUser = Annotated[Text, Option("--user", metavar="ID", help="Only for this user.")]
Status = Annotated[
    Literal["active", "archived", "all"], Option("--status", help="Only conversations with this status.")
]
Limit = Annotated[int, Option("--limit", metavar="N", help="Maximum number of results.")]
MaxRows = Annotated[int | None, Option("--limit", metavar="N", min=1, help="Maximum number of rows.")]
After = Annotated[Text, Option("--after", metavar="NEXT", help="Continue after an earlier page.")]
Yes = Annotated[bool, Option("--yes", help="Confirm; nothing is deleted without this option.")]
Since = Annotated[
    Text,
    Option("--since", metavar="WHEN", help="Start: 2026-11-01, a time with a zone, 30d, 2w, 12h ago, or today, week …"),
]
Until = Annotated[Text, Option("--until", metavar="WHEN", help="End (exclusive), in the same form.")]
TimeZone = Annotated[str, Option("--tz", metavar="ZONE", help="Time zone of dates, days and hours.")]

_DURATION: Final = re.compile(r"(?P<number>\d{1,9})(?P<unit>[hdw])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}
_DAY: Final = re.compile(r"\d{4}-\d\d-\d\d")
# The names of days -> the day that is meant, from today
_NAMED: Final[dict[str, Callable[[date], date]]] = {
    "today": lambda today: today,
    "week": lambda today: today - timedelta(today.weekday()),
    "month": lambda today: today.replace(day=1),
    "year": lambda today: today.replace(month=1, day=1),
}
_KEYWORD: Final = inspect.Parameter.KEYWORD_ONLY
_CONTEXT: Final = inspect.Parameter("context", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context)
# The options of all commands, as Typer reads them
_SHARED: Final = {
    "url": inspect.Parameter("url", _KEYWORD, default=None, annotation=Url),
    "tenant": inspect.Parameter("tenant", _KEYWORD, default=None, annotation=Tenant),
    "blobs": inspect.Parameter("blobs", _KEYWORD, default=None, annotation=Blobs),
    "as_json": inspect.Parameter("as_json", _KEYWORD, default=False, annotation=AsJson),
}


def on_target(*shared: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Turn a function that takes a `Target` and its own options into a command.

    It also has the options of all commands, or only those named here; they override the same ones before the command.
    One without a tenant refuses the tenant given before the command.
    """
    names = shared or tuple(_SHARED)

    def decorate(function: Callable[..., None]) -> Callable[..., None]:
        @wraps(function)
        def command(context: typer.Context, **values: Any) -> None:
            options = {name: values.pop(name) for name in names}
            target: Target = context.find_root().obj
            if "tenant" not in names and target.tenant is not None:
                raise InvalidOption(
                    f"`{context.command_path}` is about the whole database, with all tenants: leave --tenant out."
                )
            function(target.override(**options), **values)

        _, *own = inspect.signature(function, eval_str=True).parameters.values()
        parameters = [_CONTEXT, *own, *(_SHARED[name] for name in names)]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads both
        command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
        return command

    return decorate


def labels_of(texts: list[str] | None) -> dict[str, str]:
    """Parse labels from ``KEY=VALUE`` texts."""
    labels = {}
    for text in texts or ():
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise InvalidOption(f"--label {text!r} is not of the form KEY=VALUE.")
        labels[key] = value
    return labels


def status_of(option: Literal["active", "archived", "all"]) -> Literal["active", "archived"] | None:
    """Return a status as the library expects it: None means any."""
    return None if option == "all" else option


def format_name(text: str) -> FormatName:
    """Return the name of a wire format as the Python API expects it."""
    for name in NAMES:
        if name == text:
            return name
    raise UnknownFormat(text, sorted(NAMES))


def bounds_of(since: str | None, until: str | None, tz: str = "UTC") -> dict[str, date | datetime | None]:
    """Return the times given by `--since` and `--until`, as arguments for the library."""
    bounds = {"since": time_of("--since", since, tz), "until": time_of("--until", until, tz)}
    first, end = (_moment(bound, tz) for bound in bounds.values())
    if first is not None and end is not None and end < first:
        raise InvalidOption(f"--until {until!r} is before --since {since!r}. Exchange them.")
    return bounds


def _moment(bound: date | datetime | None, tz: str) -> datetime | None:
    """The beginning of a day, or the time itself."""
    if bound is None or isinstance(bound, datetime):
        return bound
    return datetime.combine(bound, time.min, _zone(tz))


def time_of(option: str, text: str | None, tz: str) -> date | datetime | None:
    """Return the date or time given by an option: ISO 8601, a number of hours, days or weeks ago, or a name.

    The names are today, week (its Monday), month and year (their first days).
    """
    if text is None:
        return None
    if text in _NAMED:
        return _NAMED[text](datetime.now(_zone(tz)).date())
    try:
        if _DURATION.fullmatch(text) is None:
            return _iso_time(text)
        ago, now = duration_of(text), datetime.now(_zone(tz))
        # Hours are elapsed hours, even if the clocks were changed in between.
        return now.astimezone(UTC) - ago if text.endswith("h") else now.date() - ago
    except (ValueError, OverflowError) as error:
        if isinstance(error, InvalidOption):
            raise
        if _DAY.fullmatch(text):
            raise InvalidOption(f"{option} {text!r} is not a day of the calendar.") from error
        raise InvalidOption(
            f"{option} {text!r} is not a time. Give a date (2026-11-01), a time with its zone (2026-11-01T12:00Z), "
            "how long ago it was (12h, 30d, 2w), or today, week, month or year for when these began."
        ) from error


def duration_of(text: str) -> timedelta:
    """Return a duration such as 30d, 2w or 12h; raise ValueError or OverflowError for anything else."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return timedelta(**{_UNITS[match["unit"]]: int(match["number"])})


def time_text(since: str | None, until: str | None) -> str:
    """Describe the period of a report in words."""
    match = _DURATION.fullmatch(since or "")
    if match and until is None:
        return f"last {match['number']} {_UNITS[match['unit']]}"
    if since in _NAMED and until is None:
        return since if since == "today" else f"this {since}"
    return " ".join(f"{word} {text}" for word, text in (("since", since), ("until", until)) if text is not None)


def _iso_time(text: str) -> date | datetime:
    try:
        return date.fromisoformat(text)
    except ValueError:
        at = datetime.fromisoformat(text)
    if at.tzinfo is None:
        raise ValueError(text)
    return at


def _zone(name: str) -> tzinfo:
    if name == "UTC":  # even if the system has no time zones
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidOption(
            f"--tz is not the name of a time zone: {name!r}. Use a name such as Europe/Paris."
        ) from error
