"""``threadkeep usage``: what was used."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer

from threadkeep.cli.exports import csv_text, write_parquet
from threadkeep.cli.figures import key_text
from threadkeep.cli.output import is_terminal, note, print_json
from threadkeep.cli.place import AsJson, Tenant, Url, opened, place_of
from threadkeep.cli.plots import TITLES, write_plot
from threadkeep.cli.plots import check_kind as check_plot
from threadkeep.cli.usage_table import print_usage
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from datetime import tzinfo

    from threadkeep.domain.usage import UsageRow

AGO: Final = re.compile(r"(?P<amount>\d{1,6})(?P<unit>[hdw])")
DAYS: Final = {"d": 1, "w": 7}


Text = str | None
By = Annotated[
    list[str] | None,
    typer.Option("--by", metavar="COLUMN,…", help="A row for each hour, day, week, month, model, user_id … of these."),
]
Since = Annotated[
    Text, typer.Option("--since", metavar="WHEN", help="2026-11-01, a time with its zone, or 30d, 2w, 12h ago.")
]
Until = Annotated[Text, typer.Option("--until", metavar="WHEN", help="The same; exclusive.")]
TimeZone = Annotated[str, typer.Option("--tz", metavar="ZONE", help="Time zone of dates, days and hours.")]
User = Annotated[Text, typer.Option("--user", metavar="ID", help="Only of this user.")]
Model = Annotated[Text, typer.Option("--model", metavar="NAME", help="Only of this model.")]
Provider = Annotated[Text, typer.Option("--provider", metavar="NAME", help="Only of this provider.")]
Format = Annotated[Text, typer.Option("--format", metavar="NAME", help="Only of this wire format.")]
OneId = Annotated[Text, typer.Option("--conversation", metavar="ID", help="Only of this conversation.")]
Status = Annotated[Text, typer.Option("--status", metavar="NAME", help="Only of this status, such as failed.")]
OrderBy = Annotated[Text, typer.Option("--order-by", metavar="FIGURE", help="Largest first, such as total_tokens.")]
Limit = Annotated[int | None, typer.Option("--limit", metavar="N", min=1, help="At most so many rows.")]
AsCsv = Annotated[bool, typer.Option("--csv", help="Print CSV.")]
Parquet = Annotated[Path | None, typer.Option("--parquet", metavar="FILE", help="Write a Parquet file.")]
Plot = Annotated[Path | None, typer.Option("--plot", metavar="FILE", help="Draw a picture: .svg, .png or .html.")]
FigureName = Annotated[
    Text, typer.Option("--figure", metavar="FIGURE", help="What bars and pictures show, such as total_tokens.")
]


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
    figure: FigureName = None,
    as_csv: AsCsv = False,
    parquet: Parquet = None,
    plot: Plot = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Print what was used: calls, tokens, costs.

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
    measure = checked_figure(figure, order_by)
    if plot is not None:
        check_plot(plot, columns)
    is_file = parquet is not None or plot is not None
    is_table = not (place.is_json or as_csv or is_file)
    with opened(place) as store:
        rows = store.usage(by=columns, order_by=order_by, limit=limit, **question)
        total = store.usage(**question) if columns and is_table and is_terminal() else []
    if parquet is not None:
        write_parquet(parquet, columns, rows)
        note(f"threadkeep: wrote {parquet}")
    if plot is not None:
        write_plot(plot, columns, rows, measure=measure, about=time_text(since, until))
        note(f"threadkeep: wrote {plot}")
    if place.is_json:
        print_json({"usage": [row_object(row) for row in rows]})
    elif as_csv:
        typer.echo(csv_text(columns, rows), nl=False)
    elif is_table:
        print_usage(columns, rows, total[0] if total else None, figure=measure)
        if not any(row.attempts for row in rows):
            note(f"threadkeep: nothing was used in {place.shown}")


def checked_figure(figure: str | None, order_by: str | None) -> str | None:
    """What bars show: what was asked for, else what the rows are ordered by.

    Raises:
        InvalidOption: there is no such figure.
    """
    if figure is not None and figure not in TITLES:
        raise InvalidOption(f"--figure is one of {', '.join(TITLES)}, not {figure!r}.")
    return figure or (order_by if order_by in TITLES else None)


def time_text(since: str | None, until: str | None) -> str:
    """The time of a report, in the words of its options."""
    ago = AGO.fullmatch(since or "")
    parts = []
    if since is not None:
        units = {"h": "hours", "d": "days", "w": "weeks"}
        parts.append(f"last {ago['amount']} {units[ago['unit']]}" if ago and until is None else f"since {since}")
    return " ".join([*parts, *([f"until {until}"] if until is not None else [])])


def row_object(row: UsageRow) -> Mapping[str, Any]:
    """A row as JSON: keys and figures."""
    from threadkeep.domain.usage import ROW_FIGURES

    figures = {name: getattr(row, name) for name in ROW_FIGURES}
    return {
        **{name: key_text(value) if isinstance(value, date) else value for name, value in row.keys.items()},
        **figures,
    }


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
