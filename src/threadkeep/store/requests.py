"""From what callers say to what actions take: arguments are checked here, before any transaction begins."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, tzinfo
from typing import Final, Literal, TypedDict
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from threadkeep.domain.items import Item, Message
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import shown
from threadkeep.domain.session import Session
from threadkeep.domain.wire import AS_IT_IS, RenderOptions, Turns
from threadkeep.errors import InvalidOption
from threadkeep.store.actions.conversations import Filter, NewConversation
from threadkeep.store.actions.items import MAX_PAGE, Append
from threadkeep.store.actions.numbers import ANYWHERE, Guard
from threadkeep.store.drafts import drafted
from threadkeep.store.place import MAX_POSITION, identifier, once, optional_identifier, whole

OnConflict = Literal["raise", "append", "branch"]


class How(TypedDict, total=False):
    """How something is appended.

    `idempotency_key`: the same key with the same content gives the first result, and writes nothing.
    `expected_head`: the position where the branch must end (-1: it must be empty).
    `on_conflict`: when it ends elsewhere, or a response is in progress there, "raise" HeadConflict or
    ResponseInProgress, "append" all the same (which ends that response), or append on a new "branch".
    """

    idempotency_key: str | None
    expected_head: int | None
    on_conflict: OnConflict


class About(TypedDict, total=False):
    """What the application knows of a conversation."""

    user_id: str | None
    title: str | None
    labels: Mapping[str, str] | None
    external_id: str | None


ABOUT: Final = frozenset(About.__annotations__)


class View(TypedDict, total=False):
    """What of a conversation a request shows, and how.

    `strict`: raise LossError instead of reporting losses.
    `upto`: show the items up to and including this position; where the request of that time was recorded (`rendered=`
    of `add_response`), exactly as it was sent.
    `server_state`: "none" sends the whole history, also where the provider holds it.
    `vision=False`: a note in the place of each picture. `reasoning=False`: no reasoning of earlier answers.
    `cache="auto"`: marks for the provider's prompt cache on tools, system text and the end of the history; for Gemini
    the name of the longest explicit cache that holds the beginning of the request (`plan_context_cache`) instead of it.
    `account`: the account at the provider, where caches were made for several.
    `window`: `Turns(20, step=10)` shows the last 20 to 29 turns, and moves once in ten.
    `dynamic_context`: what is true now, as JSON before the history; with `dynamic_context_at="tail"` right before what
    the model is to answer. It is recorded with the request, and never part of the history.
    `dialect`: the vendor that the request goes to, where it speaks a format in its own way.
    """

    strict: bool
    upto: int | None
    server_state: Literal["auto", "none"]
    vision: bool
    reasoning: bool
    cache: Literal["auto"] | None
    window: Turns | None
    dynamic_context: JsonObject | None
    dynamic_context_at: Literal["front", "tail"]
    dialect: str | None
    account: str


def render_options(view: View) -> RenderOptions:
    """The options of a render.

    Raises:
        InvalidOption: there is no such option, or it has another value.
    """
    if not view:
        return AS_IT_IS
    unknown = set(view) - set(View.__annotations__)
    if unknown:
        raise InvalidOption(f"render has no option {min(unknown)!r}; it has {', '.join(View.__annotations__)}.")
    return RenderOptions(**view)


def append_of(method: str, items: Sequence[Item], how: How, author_id: str | None = None) -> Append:
    """Items to be appended.

    Raises:
        InvalidItem, InvalidOption: they cannot be stored.
    """
    author = optional_identifier("author_id", author_id)
    objects = [item.to_object() for item in items]
    key = once(how.get("idempotency_key"), method, {"items": objects, "author_id": author}) if how else None
    drafts = [drafted(found, author_id=author or author_of(item)) for item, found in zip(items, objects, strict=True)]
    return Append(drafts, key, guard_of(how))


def author_of(item: Item) -> str | None:
    """Who wrote a message, where the message says so.

    Raises:
        InvalidOption: it does not fit its column.
    """
    return optional_identifier("author_id", item.author_id) if isinstance(item, Message) else None


def guard_of(how: How) -> Guard:
    """Where the caller expects the branch to end.

    Raises:
        InvalidOption: an option is unknown or cannot be used.
    """
    if not how:
        return ANYWHERE
    unknown = set(how) - set(How.__annotations__)
    if unknown:
        raise InvalidOption(f"There is no option {min(unknown)!r}; there are {', '.join(How.__annotations__)}.")
    expected = how.get("expected_head")
    if expected is not None:
        expected = whole("expected_head", expected, MAX_POSITION)
        if expected < -1:
            raise InvalidOption(f"expected_head is a position, or -1 for an empty branch, not {expected}.")
    return Guard(expected, how.get("on_conflict", "raise"))


def new_conversation(
    session: Session,
    about: About,
    idempotency_key: str | None,
    scope_user: str | None,
    method: str = "create_conversation",
) -> NewConversation:
    """A session on its way into rows.

    Raises:
        InvalidItem, InvalidOption: it cannot be stored.
    """
    if not isinstance(session, Session):
        raise InvalidOption(f"{shown(session)} is no Session. Make one with Session(...) or Session.from_dict(...).")
    unknown = set(about) - set(About.__annotations__)
    if unknown:
        raise InvalidOption(f"There is no option {min(unknown)!r}; there are {', '.join(About.__annotations__)}.")
    user_id = optional_identifier("user_id", about.get("user_id"))
    if scope_user is not None and user_id not in {None, scope_user}:
        raise InvalidOption(f"This store is for the user {scope_user!r}; it makes no conversations for {user_id!r}.")
    external_id = optional_identifier("external_id", about.get("external_id"))
    title, labels = checked_title(about.get("title")), checked_labels(about.get("labels"))
    owner = scope_user or user_id
    settings = dict(session.settings)
    if session.response_boundary:
        settings["response_boundary"] = session.response_boundary
    if session.imported is not None:
        settings["imported"] = session.imported.to_dict()
    key = None
    if idempotency_key is not None:
        content = [session.to_dict(), owner, external_id, title, labels]
        key = once(idempotency_key, method, content)
    return NewConversation(
        settings=settings,
        tools=session.tools,
        drafts=[drafted(item.to_object(), author_id=author_of(item)) for item in session.items],
        turns=turn_positions(session.turns),
        once=key,
        user_id=owner,
        external_id=external_id,
        title=title,
        labels=labels,
    )


def turn_positions(turns: Sequence[int | None]) -> list[int | None]:
    """Turn numbers of a session as the positions at which the turns begin."""
    starts: dict[int, int] = {}
    return [None if turn is None else starts.setdefault(turn, place) for place, turn in enumerate(turns)]


def checked_title(title: object) -> str | None:
    """A title.

    Raises:
        InvalidOption: it is no text that can be stored.
    """
    if title is None:
        return None
    if not isinstance(title, str) or "\x00" in title:
        raise InvalidOption(f"title is a text without U+0000, not {title!r}.")
    try:
        title.encode()
    except UnicodeEncodeError as error:
        raise InvalidOption(f"title holds a lone surrogate at {error.start}; it cannot be stored.") from error
    return title


def checked_labels(labels: object) -> dict[str, str]:
    """Labels: texts by names.

    Raises:
        InvalidOption: a name or value is no text, or too long.
    """
    if labels is None:
        return {}
    if not isinstance(labels, Mapping):
        raise InvalidOption(f"labels is an object of texts, not {labels!r}.")
    return {
        identifier("The name of a label", name): value if value == "" else identifier(f"The label {name!r}", value)
        for name, value in labels.items()
    }


def listing_of(
    user_id: str | None, labels: Mapping[str, str] | None, status: str | None, after: str | None, limit: int
) -> Filter:
    """Which conversations to list.

    Raises:
        InvalidOption: a filter or page cannot be used.
    """
    if status not in {None, "active", "archived"}:
        raise InvalidOption(f'status is "active", "archived" or None (both), not {status!r}.')
    return Filter(
        user_id=optional_identifier("user_id", user_id),
        labels=checked_labels(labels),
        status=status,
        after=None if after is None else _page_key(after),
        limit=page_size(limit),
    )


def columns_of(by: object) -> tuple[str, ...]:
    """What sums of usage are grouped by: one name or several.

    Raises:
        InvalidOption: it is neither.
    """
    if isinstance(by, str):
        return (by,)
    if isinstance(by, Iterable):
        names = tuple(by)
        if all(isinstance(name, str) for name in names):
            return names
    raise InvalidOption(f"by is the name of a column, or a list of names, not {shown(by)}.")


def checked_zone(tz: object) -> tzinfo:
    """The time zone of that name.

    Raises:
        InvalidOption: there is none.
    """
    if tz == "UTC":
        return UTC
    try:
        return ZoneInfo(tz)  # type: ignore[arg-type]  # what is no text raises TypeError
    except (ZoneInfoNotFoundError, ValueError, TypeError, OSError) as error:
        raise InvalidOption(f"There is no time zone {shown(tz)}. Give a name such as Europe/Paris.") from error


def page_size(limit: object, name: str = "limit") -> int:
    """How many things a page shows; `name` is what the caller calls it.

    Raises:
        InvalidOption: it is no number from 1 to MAX_PAGE.
    """
    if isinstance(limit, bool) or not isinstance(limit, int) or not 1 <= limit <= MAX_PAGE:
        raise InvalidOption(f"{name} is a number from 1 to {MAX_PAGE}, not {limit!r}.")
    return limit


def page_name(at: datetime, key: int) -> str:
    """The `next` of a page that ends with this conversation."""
    text = f"{at.astimezone(UTC).isoformat(timespec='microseconds')} {key}"
    return base64.urlsafe_b64encode(text.encode()).decode()


def _page_key(name: str) -> tuple[datetime, int]:
    try:
        text, number = base64.urlsafe_b64decode(name.encode()).decode().split(" ")
        at, key = datetime.fromisoformat(text), int(number)
    except (ValueError, AttributeError, binascii.Error) as error:
        raise InvalidOption(f"after={name!r} is not the `next` of a page.") from error
    if at.tzinfo is None or not 0 <= key < 2**63:
        raise InvalidOption(f"after={name!r} is not the `next` of a page.")
    return at, key


def position_of_page(after: str | int | None, name: str = "after") -> int | None:
    """A position from the `next` of a page of items or branches; `name` is what the caller calls it.

    Raises:
        InvalidOption: it is no number.
    """
    if after is None:
        return None
    if not isinstance(after, str):
        return whole(name, after, MAX_POSITION)
    try:
        return int(after)
    except ValueError as error:
        raise InvalidOption(f"{name}={after!r} is not a position, nor the `next` of a page.") from error
