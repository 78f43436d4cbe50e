"""Local time: when the clocks of a time zone change, and where days begin."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo

_DAY = timedelta(days=1)
_SECOND = timedelta(seconds=1)


def offset_at(zone: tzinfo, at: datetime) -> int:
    """By how many seconds local time is ahead of UTC."""
    return round((at.astimezone(zone).utcoffset() or timedelta()).total_seconds())


def changes_of(zone: tzinfo, since: datetime, until: datetime) -> tuple[list[datetime], tuple[int, ...]]:
    """The moments in a span of time at which the clocks change, and the offsets before, between and after them.

    Two changes within a day and a half that cancel each other would be missed; no zone has them.
    """
    at, end = since.astimezone(UTC).replace(microsecond=0), until.astimezone(UTC).replace(microsecond=0) + _SECOND
    offsets, changes = [offset_at(zone, at)], list[datetime]()
    while at < end:
        later = min(at + _DAY, end)
        while offset_at(zone, later) != offsets[-1]:
            change = _change(zone, at, later)
            changes.append(change)
            offsets.append(offset_at(zone, change))
            at = change
        at = later
    return changes, tuple(offsets)


def _change(zone: tzinfo, before: datetime, after: datetime) -> datetime:
    """The first second of another offset."""
    offset = offset_at(zone, before)
    while after - before > _SECOND:
        middle = (before + (after - before) / 2).replace(microsecond=0)
        if offset_at(zone, middle) == offset:
            before = middle
        else:
            after = middle
    return after


def midnight(day: date, zone: tzinfo) -> datetime:
    """The moment at which a day begins in a time zone."""
    return datetime(day.year, day.month, day.day, tzinfo=zone)


def ranges_of(days: Sequence[date]) -> list[tuple[date, date]]:
    """Days, in order, as ranges without gaps."""
    ranges: list[tuple[date, date]] = []
    for day in days:
        if ranges and day - ranges[-1][1] == _DAY:
            ranges[-1] = ranges[-1][0], day
        else:
            ranges.append((day, day))
    return ranges


def gaps_of(ranges: Sequence[tuple[date, date]], first: date, last: date) -> list[tuple[date, date]]:
    """The days from `first` to `last` that are in none of these ranges, as ranges."""
    gaps, day = [], first
    for start, end in ranges:
        if day < start:
            gaps.append((day, start - _DAY))
        day = end + _DAY
    return [*gaps, (day, last)] if day <= last else gaps
