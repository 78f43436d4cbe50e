"""Checks of arguments, made before any transaction begins: each raises InvalidOption for what cannot be used."""

from __future__ import annotations

import base64
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta, tzinfo
from difflib import get_close_matches
from functools import wraps
from typing import Any, Final, TypeVar
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from threadkeep.db.queries.conversations import ACTIVE, ARCHIVED
from threadkeep.db.types import IDENTIFIER_BYTES, escaped
from threadkeep.domain import ids, jsontext
from threadkeep.domain.reports import midnight
from threadkeep.errors import InvalidOption, did_you_mean, shown

T = TypeVar("T")

MAX_NUMBER: Final = 2**31 - 1  # of branches and responses, in every database
MAX_POSITION: Final = 2**62
MAX_PAGE: Final = 1_000
CURSOR_NUMBERS: Final = 5  # of a page of a search
SKEW: Final = timedelta(minutes=5)  # by which a clock elsewhere may be ahead
_LOADED: Final = datetime.now(UTC)  # what came before has passed, whatever time it is
FIRST_MOMENT: Final = datetime(1970, 1, 1, tzinfo=UTC)
FIRST_DAY: Final = date(1000, 1, 1)  # that all databases and the arithmetic of dates take …
LAST_DAY: Final = date(9999, 12, 30)  # … and the last one
EARLIEST: Final = midnight(FIRST_DAY, UTC)
LATEST: Final = midnight(LAST_DAY, UTC)
_NUMBER: Final = re.compile(r"-?[0-9]{1,4000}")  # of no more digits than Python reads
MAX_LABELS: Final = 16  # that a filter has: a statement is made for each number of them
MAX_TITLE: Final = 1_000  # characters: lists show titles, many at once
MAX_PROPERTIES: Final = 16
MAX_PROPERTY_NAME: Final = 64  # characters, as OpenAI's APIs limit their metadata …
MAX_PROPERTY: Final = 512  # … and its values


def identifier(argument: str, value: object) -> str:
    """A name or id that is not empty and fits its column."""
    if not isinstance(value, str) or not value:
        raise InvalidOption(f"must be a string that is not empty, not {shown(value)}.", argument=argument)
    size = len(escaped(value).encode())
    if size > IDENTIFIER_BYTES:
        problem = f"has {size:,} bytes, at most {IDENTIFIER_BYTES} can be stored: {value[:40]!r}…"
        raise InvalidOption(problem, argument=argument, hint="Use a shorter id, or a hash of it.")
    return value


def optional_identifier(argument: str, value: object) -> str | None:
    """Like `identifier`; None stays None."""
    return None if value is None else identifier(argument, value)


def other_user(owner: str, user: object, argument: str = "user_id") -> InvalidOption:
    """The error for another user than the one whose store it is."""
    return InvalidOption(f"must be {owner!r}, whose store this is, not {shown(user)}.", argument=argument)


def whole_number(argument: str, value: object, limit: int = MAX_NUMBER) -> int:
    """A number to look something up by; one beyond its column becomes `limit`, because nothing is there either."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"must be a whole number, not {shown(value)}.", argument=argument)
    return max(-limit, min(value, limit))


def one_of(argument: str, value: object, words: Sequence[str]) -> str:
    """One of some words."""
    if not isinstance(value, str) or value not in words:
        raise InvalidOption(f"must be {' or '.join(map(repr, words))}, not {shown(value)}.", argument=argument)
    return value


def status_filter(value: Any) -> str | None:
    """The status of the conversations that are looked for; None for any."""
    if value not in (ACTIVE, ARCHIVED, None):
        problem = f"must be {ACTIVE!r}, {ARCHIVED!r} or None, for any, not {shown(value)}."
        raise InvalidOption(problem, argument="status")
    status: str | None = value
    return status


def refuse_misspelt(argument: str, word: str, known: Collection[str]) -> None:
    """Refuse a word that looks like a known one, and is none; others may be stored, too."""
    similar = [] if word in known else get_close_matches(word, known, n=1, cutoff=0.75)
    if similar:
        hint = f"{did_you_mean(similar)}Known words: {', '.join(known)}."
        raise InvalidOption(f"is the unknown word {shown(word)}.", argument=argument, hint=hint)


def page_size(limit: object, argument: str = "limit", *, most: int = MAX_PAGE) -> int:
    """How many rows a page shows: from 1 to MAX_PAGE, or fewer."""
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= most:
        raise InvalidOption(f"must be a number from 1 to {most:,}, not {shown(limit)}.", argument=argument)
    return limit


def cursor_position(cursor: str | int | None, argument: str = "after") -> int | None:
    """A position from the `next` of a page of items, responses or branches, or given as a number."""
    if cursor is None:
        return None
    if not isinstance(cursor, str):
        return whole_number(argument, cursor, MAX_POSITION)
    try:
        return whole_number(argument, int(cursor), MAX_POSITION)
    except ValueError as error:
        message = f"is not a position or the `next` of a page: {shown(cursor)}."
        raise InvalidOption(message, argument=argument) from error


def item_cursor(cursor: str | int | None, argument: str = "after") -> int | str | None:
    """A position, as `cursor_position` reads it, or the id of an item."""
    if isinstance(cursor, str) and _NUMBER.fullmatch(cursor) is None:
        return cursor
    return cursor_position(cursor, argument)


def item_argument(argument: str, item: object) -> int | str:
    """An item, given by its position or id (a call: also by its call id)."""
    return item if isinstance(item, str) else whole_number(argument, item, MAX_POSITION)


def cursor_after(at: datetime, key: int) -> str:
    """The `next` of a page of conversations that ends with this one."""
    text = f"{at.astimezone(UTC).isoformat(timespec='microseconds')} {key}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _cursor(decode: Callable[[str], T | None]) -> Callable[[object], T | None]:
    """A function that reads the `next` of a page; None before the first one."""

    @wraps(decode)
    def read(cursor: object) -> T | None:
        cause = None
        try:
            if cursor is None or (isinstance(cursor, str) and (found := decode(cursor)) is not None):
                return None if cursor is None else found
        except (ValueError, OverflowError) as error:  # binascii.Error is a ValueError, too
            cause = error
        raise InvalidOption(f"is not the `next` of a page: {shown(cursor)}.", argument="after") from cause

    return read


@_cursor
def conversation_cursor(cursor: str) -> tuple[datetime, int] | None:
    """When the last conversation of a page was active, and its key."""
    text, number = base64.urlsafe_b64decode(cursor.encode()).decode().split(" ")
    at, key = datetime.fromisoformat(text), int(number)
    return (at.astimezone(UTC), key) if at.tzinfo is not None and 0 <= key <= ids.MAX_KEY else None


def title_after(title: Any, key: int) -> str:
    """The `next` of a page of conversations in the order of their titles."""
    text = title.decode() if isinstance(title, bytes) else title
    return base64.urlsafe_b64encode(f"{key} {text}".encode()).decode()


@_cursor
def title_cursor(cursor: str) -> tuple[str, int] | None:
    """What the last conversation of a page was sorted by, and its key."""
    number, text = base64.urlsafe_b64decode(cursor.encode()).decode().split(" ", 1)
    return (text, int(number)) if 0 <= int(number) <= ids.MAX_KEY and "\x00" not in text else None


def place_after(key: int, position: int) -> str:
    """The `next` of a page of items of several conversations that ends with this one."""
    return base64.urlsafe_b64encode(f"{key} {position}".encode()).decode()


@_cursor
def place_cursor(cursor: str) -> tuple[int, int] | None:
    """The key of the conversation and the position of the last item of a page."""
    key, position = map(int, base64.urlsafe_b64decode(cursor.encode()).decode().split(" "))
    return (key, position) if 0 <= key <= ids.MAX_KEY and 0 <= position <= ids.MAX_KEY else None


@_cursor
def search_cursor(cursor: str) -> tuple[int, ...] | None:
    """The score and key of the last result of a page, and the bounds of keys; see `PageStart`."""
    numbers = tuple(map(int, cursor.split(".")))
    return numbers if len(numbers) == CURSOR_NUMBERS and all(0 <= number <= ids.MAX_KEY for number in numbers) else None


def title_text(title: object) -> str | None:
    """A title that can be stored."""
    if title is None:
        return None
    text = plain_text("title", title)
    if len(text) > MAX_TITLE:
        problem = f"has {len(text):,} characters, at most {MAX_TITLE:,} can be stored."
        raise InvalidOption(problem, argument="title", hint="Keep longer texts in items, properties or states.")
    return text


def plain_text(argument: str, text: object) -> str:
    """A text that a column of long text can hold."""
    if not isinstance(text, str) or "\x00" in text:
        raise InvalidOption(f"must be a string without U+0000, not {shown(text)}.", argument=argument)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        problem = f"has a lone surrogate at index {error.start}, which cannot be stored."
        raise InvalidOption(problem, argument=argument) from error
    return text


def label_texts(labels: object) -> dict[str, str]:
    """Return labels: strings by name."""
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise InvalidOption(f"must be a dict of strings, not {shown(labels)}.", argument="labels")
    for name, value in labels.items():
        try:
            identifier("labels", name)
            if value != "":
                identifier("labels", value)
        except InvalidOption as error:
            problem = f"cannot hold {shown({name: value})}: a name or value {error.message}"
            raise InvalidOption(problem, argument="labels", hint=error.hint) from None
    return dict(labels)


def label_filter(labels: object) -> dict[str, str]:
    """Return the labels that what is looked for has: at most 16."""
    if isinstance(labels, Mapping) and len(labels) > MAX_LABELS:
        problem = f"has {len(labels):,} pairs, at most {MAX_LABELS} can be looked for at once."
        raise InvalidOption(problem, argument="labels")
    return label_texts(labels)


def property_texts(properties: object) -> dict[str, str]:
    """Return the properties of a conversation: at most 16 strings by name."""
    if properties is None:
        return {}
    if not isinstance(properties, Mapping):
        raise InvalidOption(f"must be a dict of strings, not {shown(properties)}.", argument="properties")
    if len(properties) > MAX_PROPERTIES:
        problem = f"has {len(properties):,} pairs, at most {MAX_PROPERTIES} can be stored."
        raise InvalidOption(problem, argument="properties", hint="Keep larger values as a state: set_state(name, …).")
    for name, value in properties.items():
        if not isinstance(name, str) or not 0 < len(name) <= MAX_PROPERTY_NAME:
            rule = f"a name is a string of 1 to {MAX_PROPERTY_NAME} characters"
        elif not isinstance(value, str) or len(value) > MAX_PROPERTY:
            rule = f"a value is a string of at most {MAX_PROPERTY} characters"
        else:
            continue
        raise InvalidOption(f"cannot hold {shown({name: value})}: {rule}.", argument="properties")
    return dict(properties)


def column_names(by: object) -> tuple[str, ...]:
    """The columns that sums of usage are grouped by: one name or several."""
    if isinstance(by, str):
        return (by,)
    if isinstance(by, Iterable):
        names = tuple(by)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidOption(f"must be the name of a column or a list of names, not {shown(by)}.", argument="by")


def time_zone(tz: object) -> tzinfo:
    """The time zone of that name."""
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)  # type: ignore[arg-type]  # what is not a string raises TypeError
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        problem, hint = f"is not the name of a time zone: {shown(tz)}.", "Give a name such as Europe/Paris."
        raise InvalidOption(problem, argument="tz", hint=hint) from error


def past_moment(argument: str, value: object) -> datetime | None:
    """When something happened, in UTC: an aware datetime that has passed, or None."""
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        hint = "Write datetime(..., tzinfo=UTC), or call astimezone()."
        raise InvalidOption(f"must be an aware datetime, not {shown(value)}.", argument=argument, hint=hint)
    if value > _LOADED and value > datetime.now(UTC) + SKEW:
        raise InvalidOption(f"lies in the future: {shown(value)}.", argument=argument)
    if value < FIRST_MOMENT:
        raise InvalidOption(f"lies before {FIRST_MOMENT.date()}: {shown(value)}.", argument=argument)
    return value if value.tzinfo is UTC else value.astimezone(UTC)


def date_or_moment(argument: str, value: Any) -> date | datetime | None:
    """A bound of a time range: a date, an aware datetime, or None."""
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            problem = f"is a datetime without a time zone: {shown(value)}."
            raise InvalidOption(problem, argument=argument, hint="Give an aware one, or a date.")
        return value
    if not isinstance(value, date):
        raise InvalidOption(f"must be a date or an aware datetime, not {shown(value)}.", argument=argument)
    return value


def is_within_day(bound: datetime | None) -> bool:
    """Return whether a bound divides a UTC day."""
    return bound is not None and bound != moment_of(bound.date(), UTC)


def moment_of(bound: date | datetime | None, zone: tzinfo) -> Any:
    """A bound in UTC, within what all databases and the arithmetic of dates take; a date is a day in that zone."""
    if bound is None:
        return None
    try:
        moment = (bound if isinstance(bound, datetime) else midnight(bound, zone)).astimezone(UTC)
    except OverflowError:
        moment = EARLIEST if bound.year < FIRST_DAY.year else LATEST
    return min(max(moment, EARLIEST), LATEST)


def span_of(since: object, until: object, zone: tzinfo) -> tuple[Any, Any]:
    """The bounds of a span of time in UTC, see `moment_of`; InvalidOption where it ends before it begins."""
    first, end = moment_of(date_or_moment("since", since), zone), moment_of(date_or_moment("until", until), zone)
    if first is not None and end is not None and end < first:
        raise InvalidOption(f"is before since: {shown(until)}.", argument="until")
    return first, end


def moment_before(now: datetime, argument: str, age: object) -> datetime | None:
    """Return the time so many days (or a timedelta) ago; None stays None."""
    if age is None:
        return None
    if isinstance(age, int) and not isinstance(age, bool) and 0 <= age <= timedelta.max.days:
        age = timedelta(days=age)
    if not isinstance(age, timedelta) or age < timedelta(0):
        raise jsontext.mismatch(InvalidOption, "a whole number of days, from 0 on, or a timedelta", age, argument)
    first = datetime(1, 1, 1, tzinfo=UTC) + timedelta(days=1)  # nothing is older; all time zones can write it
    return now - age if age < now - first else first
