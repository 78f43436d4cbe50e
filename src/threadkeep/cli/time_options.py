"""The options that say which time a command looks at, and how long something is kept."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Final

from typer import Option

from threadkeep.cli.options import Text
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from datetime import tzinfo

_DURATION: Final = re.compile(r"(?P<number>\d{1,9})(?P<unit>[hdw])")
_UNITS: Final = {"h": "hours", "d": "days", "w": "weeks"}

Since = Annotated[
    Text, Option("--since", metavar="WHEN", help="2026-11-01, a time with its zone, or 30d, 2w, 12h ago.")
]
Until = Annotated[Text, Option("--until", metavar="WHEN", help="The same; exclusive.")]
TimeZone = Annotated[str, Option("--tz", metavar="ZONE", help="Time zone of dates, days and hours.")]


def bounds_of(since: str | None, until: str | None, tz: str = "UTC") -> dict[str, date | datetime | None]:
    """The times that `--since` and `--until` name, as arguments of the library.

    Raises:
        InvalidOption: one of them is not a time, or there is no such time zone.
    """
    return {"since": time_of("--since", since, tz), "until": time_of("--until", until, tz)}


def time_of(option: str, text: str | None, tz: str) -> date | datetime | None:
    """The date or time that an option names: ISO 8601, or so many hours, days or weeks ago.

    Raises:
        InvalidOption: it is none of these, or there is no such time zone.
    """
    if text is None:
        return None
    try:
        if _DURATION.fullmatch(text) is None:
            return _iso_time(text)
        ago, now = duration_of(text), datetime.now(_zone(tz))
        # Hours are those that have passed, even if the clocks were changed in between.
        return now.astimezone(UTC) - ago if text.endswith("h") else now.date() - ago
    except (ValueError, OverflowError) as error:
        if isinstance(error, InvalidOption):
            raise
        raise InvalidOption(
            f"{option} {text!r} is not a time. Give a date (2026-11-01), a time with its zone (2026-11-01T12:00Z), "
            "or how long ago it was (12h, 30d, 2w)."
        ) from error


def duration_of(text: str) -> timedelta:
    """A length of time such as 30d, 2w or 12h.

    Raises:
        ValueError: it is not written like that.
        OverflowError: it is too long for a timedelta.
    """
    match = _DURATION.fullmatch(text)
    if match is None:
        raise ValueError(text)
    return timedelta(**{_UNITS[match["unit"]]: int(match["number"])})


def time_text(since: str | None, until: str | None) -> str:
    """The time of a report, in words."""
    match = _DURATION.fullmatch(since or "")
    if match and until is None:
        return f"last {match['number']} {_UNITS[match['unit']]}"
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
    if name == "UTC":  # also where the system has no time zones
        return UTC
    from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

    try:
        return ZoneInfo(name)
    except (ZoneInfoNotFoundError, ValueError, OSError) as error:
        raise InvalidOption(f"--tz is not the name of a time zone: {name!r}. Give one such as Europe/Paris.") from error
