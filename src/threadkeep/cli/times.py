"""The options that say which time a command looks at."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

import typer

from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from datetime import tzinfo

AGO: Final = re.compile(r"(?P<amount>\d{1,6})(?P<unit>[hdw])")
DAYS: Final = {"d": 1, "w": 7}

Since = Annotated[
    str | None, typer.Option("--since", metavar="WHEN", help="2026-11-01, a time with its zone, or 30d, 2w, 12h ago.")
]
Until = Annotated[str | None, typer.Option("--until", metavar="WHEN", help="The same; exclusive.")]
TimeZone = Annotated[str, typer.Option("--tz", metavar="ZONE", help="Time zone of dates, days and hours.")]


def moment(option: str, text: str | None, tz: str) -> date | datetime | None:
    """The date or time that an option names: ISO 8601, or so many hours, days or weeks ago.

    Raises:
        InvalidOption: it is none of these, or there is no such time zone.
    """
    if text is None:
        return None
    ago = AGO.fullmatch(text)
    try:
        if ago is None:
            return _parsed(text)
        now, amount = datetime.now(_zone(tz)), int(ago["amount"])
        if ago["unit"] == "h":  # hours that have passed, whatever was done to the clocks there
            return now.astimezone(UTC) - timedelta(hours=amount)
        return now.date() - timedelta(days=amount * DAYS[ago["unit"]])
    except (ValueError, OverflowError) as error:
        if isinstance(error, InvalidOption):
            raise
        raise InvalidOption(
            f"{option} {text!r} is no time. Give a date (2026-11-01), a time with its zone (2026-11-01T12:00Z), "
            "or how long ago it was (12h, 30d, 2w)."
        ) from error


def time_text(since: str | None, until: str | None) -> str:
    """The time of a report, in the words of its options."""
    ago = AGO.fullmatch(since or "")
    parts = []
    if since is not None:
        units = {"h": "hours", "d": "days", "w": "weeks"}
        parts.append(f"last {ago['amount']} {units[ago['unit']]}" if ago and until is None else f"since {since}")
    return " ".join([*parts, *([f"until {until}"] if until is not None else [])])


def _parsed(text: str) -> date | datetime:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


def _zone(tz: str) -> tzinfo:
    from threadkeep.store.requests import checked_zone

    return checked_zone(tz)
