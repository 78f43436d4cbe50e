"""``threadkeep usage``: what was used."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from threadkeep.cli.output import Cell, Column, is_terminal, note, print_json, print_table
from threadkeep.cli.place import AsJson, Tenant, Url, opened, place_of
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from datetime import tzinfo

    from threadkeep.domain.usage import UsageRow

AGO: Final = re.compile(r"(?P<amount>\d{1,6})(?P<unit>[hdw])")
DAYS: Final = {"d": 1, "w": 7}
FIGURES: Final = (
    "attempts",
    "input_tokens",
    "cached_tokens",
    "cache_write_tokens",
    "output_tokens",
    "reasoning_tokens",
    "total_tokens",
)
COST: Final = "cost_nano"
OPTIONAL: Final = ("cache_write_tokens", COST)  # left out for people where there is nothing of it
NANO: Final = 10**9


Text = str | None
By = Annotated[
    list[str] | None,
    typer.Option("--by", metavar="COLUMN,…", help="A row for each day, model, provider, format, user_id … of these."),
]
Since = Annotated[
    Text, typer.Option("--since", metavar="WHEN", help="2026-11-01, a time with its zone, or 30d, 2w, 12h ago.")
]
Until = Annotated[Text, typer.Option("--until", metavar="WHEN", help="The same; exclusive.")]
TimeZone = Annotated[str, typer.Option("--tz", metavar="ZONE", help="Time zone of dates.")]
User = Annotated[Text, typer.Option("--user", metavar="ID", help="Only of this user.")]
Model = Annotated[Text, typer.Option("--model", metavar="NAME", help="Only of this model.")]
Provider = Annotated[Text, typer.Option("--provider", metavar="NAME", help="Only of this provider.")]
Format = Annotated[Text, typer.Option("--format", metavar="NAME", help="Only of this wire format.")]
OneId = Annotated[Text, typer.Option("--conversation", metavar="ID", help="Only of this conversation.")]
Status = Annotated[Text, typer.Option("--status", metavar="NAME", help="Only of this status, such as failed.")]
OrderBy = Annotated[Text, typer.Option("--order-by", metavar="FIGURE", help="Largest first, such as total_tokens.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many rows.")]


def usage(
    context: typer.Context,
    *,
    by: By = None,
    since: Since = None,
    until: Until = None,
    tz: TimeZone = "UTC",
    user: User = None,
    model: Model = None,
    provider: Provider = None,
    format: Format = None,
    conversation: OneId = None,
    status: Status = None,
    order_by: OrderBy = None,
    limit: Limit = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print what was used: calls and tokens.

    A figure that no provider reported stays empty; it is never zero.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    given = {
        "user_id": user,
        "model": model,
        "provider": provider,
        "format": format,
        "conversation_id": conversation,
        "status": status,
    }
    columns = [name.strip() for text in by or () for name in text.split(",") if name.strip()]
    question: dict[str, Any] = {
        "since": moment("--since", since, tz),
        "until": moment("--until", until, tz),
        "tz": tz,
        **{name: value for name, value in given.items() if value is not None},
    }
    with opened(place) as store:
        rows = store.usage(by=columns, order_by=order_by, limit=limit, **question)
        total = store.usage(**question) if columns and is_terminal() and not place.is_json else []
    if place.is_json:
        print_json({"usage": [row_object(row) for row in rows]})
        return
    print_usage(columns, rows, total[0] if total else None)
    if not rows:
        note(f"threadkeep: nothing was used in {place.shown}")


def print_usage(
    by: Sequence[str], rows: Sequence[UsageRow], total: UsageRow | None = None, *, is_aligned: bool | None = None
) -> None:
    """Print rows of the ledger's sums as a table; where it is aligned, with short titles and without empty columns."""
    figures = [*FIGURES, COST]
    is_readable = is_terminal() if is_aligned is None else is_aligned
    if is_readable:
        figures = [name for name in figures if name not in OPTIONAL or any(getattr(row, name) for row in rows)]
    titles = [_title(name) if is_readable else name for name in figures]
    cells = _readable_figures if is_readable else _figures
    columns = [Column(name) for name in by] + [Column(title, is_number=True) for title in titles]
    last = None
    if total is not None:
        last = [*("total" if place == 0 else "" for place in range(len(by))), *cells(total, figures)]
    lines = [[*(_key(row.keys[name]) for name in by), *cells(row, figures)] for row in rows]
    print_table(columns, lines, last, is_aligned=is_aligned)


def row_object(row: UsageRow) -> Mapping[str, Any]:
    """A row as JSON: keys and figures."""
    return {name: value.isoformat() if isinstance(value, date) else value for name, value in row.to_dict().items()}


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
        if ago["unit"] == "h":
            return now - timedelta(hours=amount)
        return now.date() - timedelta(days=amount * DAYS[ago["unit"]])
    except (ValueError, OverflowError) as error:
        if isinstance(error, InvalidOption):
            raise
        raise InvalidOption(
            f"{option} {text!r} is no time. Give a date (2026-11-01), a time with its zone (2026-11-01T12:00Z), "
            "or how long ago it was (12h, 30d, 2w)."
        ) from error


def _parsed(text: str) -> date | datetime:
    try:
        return date.fromisoformat(text)
    except ValueError:
        return datetime.fromisoformat(text)


def _zone(tz: str) -> tzinfo:
    from threadkeep.store.requests import checked_zone

    return checked_zone(tz)


def _title(name: str) -> str:
    return "cost, $" if name == COST else name.removesuffix("_tokens").replace("_", " ")


def _key(value: Any) -> Cell:
    return value.isoformat() if isinstance(value, date) else None if value is None else str(value)


def _figures(row: UsageRow, names: Sequence[str]) -> list[Cell]:
    return [getattr(row, name) for name in names]


def _readable_figures(row: UsageRow, names: Sequence[str]) -> list[Cell]:
    """The figures, the cost in dollars."""
    figures = _figures(row, names)
    return [
        f"{value / NANO:.6f}" if name == COST and isinstance(value, int) else value
        for name, value in zip(names, figures, strict=True)
    ]
