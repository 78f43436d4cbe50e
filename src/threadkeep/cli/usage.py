"""``threadkeep usage``: what was used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from threadkeep.cli.exports import csv_text, write_parquet
from threadkeep.cli.figures import key_text
from threadkeep.cli.files import written
from threadkeep.cli.output import is_terminal, note, print_json
from threadkeep.cli.place import AsJson, Place, Tenant, Url, opened, place_of
from threadkeep.cli.plots import TITLES, write_plot
from threadkeep.cli.plots import check_kind as check_plot
from threadkeep.cli.times import Since, TimeZone, Until, moment, time_text
from threadkeep.cli.usage_table import print_usage
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep.domain.usage import UsageRow

Text = str | None
By = Annotated[
    list[str] | None,
    typer.Option("--by", metavar="COLUMN,…", help="A row for each hour, day, week, month, model, user_id … of these."),
]
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
    columns, measure = columns_of(by), checked_figure(figure, order_by)
    check_forms(columns, plot, is_csv=as_csv, is_json=place.is_json)
    given = {
        "since": moment("--since", since, tz), "until": moment("--until", until, tz), "tz": tz,
        "user_id": user, "model": model, "provider": provider, "format": checked_format(format),
        "conversation_id": conversation, "status": status,
    }  # fmt: skip
    question: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    is_table = not (place.is_json or as_csv or parquet or plot)
    with opened(place) as store:
        rows = store.usage(by=columns, order_by=order_by, limit=limit, **question)
        total = store.usage(**question) if columns and is_table and is_terminal() else []
    report = Report(columns, rows, total[0] if total else None, measure, time_text(since, until))
    write_files(report, parquet, plot)
    if place.is_json:
        print_json({"usage": [row_object(row) for row in rows]})
    elif as_csv:
        typer.echo(csv_text(columns, rows), nl=False)
    elif is_table:
        print_report(report, place)


@dataclass(frozen=True, slots=True)
class Report:
    """What was used: a row for each combination of the columns `by`, and what to say of it."""

    by: Sequence[str]
    rows: Sequence[UsageRow]
    total: UsageRow | None
    measure: str | None
    about: str


def write_files(report: Report, parquet: Path | None, plot: Path | None) -> None:
    """Write a report as the files that were asked for.

    Raises:
        MissingExtra: a library for it is not installed.
        ThreadkeepError: a file cannot be written.
    """
    if parquet is not None:
        with written(parquet):
            write_parquet(parquet, report.by, report.rows)
    if plot is not None:
        with written(plot):
            write_plot(plot, report.by, report.rows, measure=report.measure, about=report.about)
    for path in (parquet, plot):
        if path is not None:
            note(f"threadkeep: wrote {path}")


def print_report(report: Report, place: Place) -> None:
    """Print a report as a table."""
    print_usage(report.by, report.rows, report.total, figure=report.measure)
    if not any(row.attempts for row in report.rows):
        note(f"threadkeep: no such attempt is in the ledger of {place.shown}")


def check_forms(columns: Sequence[str], plot: Path | None, *, is_csv: bool, is_json: bool) -> None:
    """Check that a report can be printed and drawn as it was asked for.

    Raises:
        InvalidOption: there are two forms for the output, or no picture can be drawn.
    """
    if is_csv and is_json:
        raise InvalidOption("The output is one thing: give either --csv or --json.")
    if plot is not None:
        check_plot(plot, columns)


def columns_of(by: Sequence[str] | None) -> list[str]:
    """The columns that --by names, between commas or one by one."""
    return [name.strip() for text in by or () for name in text.split(",") if name.strip()]


def checked_format(name: str | None) -> str | None:
    """The name of a wire format.

    Raises:
        UnknownFormat: there is none of that name.
    """
    from threadkeep.formats import get_format

    return None if name is None else get_format(name).name


def checked_figure(figure: str | None, order_by: str | None) -> str | None:
    """What bars show: what was asked for, else what the rows are ordered by.

    Raises:
        InvalidOption: there is no such figure.
    """
    if figure is not None and figure not in TITLES:
        raise InvalidOption(f"--figure is one of {', '.join(TITLES)}, not {figure!r}.")
    return figure or (order_by if order_by in TITLES else None)


def row_object(row: UsageRow) -> Mapping[str, Any]:
    """A row as JSON: keys and figures."""
    from threadkeep.domain.usage import ROW_FIGURES

    figures = {name: getattr(row, name) for name in ROW_FIGURES}
    return {
        **{name: key_text(value) if isinstance(value, date) else value for name, value in row.keys.items()},
        **figures,
    }
