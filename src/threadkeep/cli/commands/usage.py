"""``threadkeep usage`` and ``threadkeep tools``: report usage, and how often tools were called."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal, get_args

import typer
from typer import Argument, Option

from threadkeep.cli import options, output, usage_plot, usage_table
from threadkeep.cli.options import Text, format_name, on_target
from threadkeep.cli.target import Target, full_id
from threadkeep.domain.reports import UsageKey
from threadkeep.errors import InvalidOption, ThreadkeepError

if TYPE_CHECKING:
    from threadkeep import UsageRow

By = Annotated[
    list[str] | None,
    Option(
        "--by", metavar="COLUMN,…", help=f"Group by these columns: {', '.join(get_args(UsageKey))}; and label:NAME …"
    ),
]
Model = Annotated[Text, Option("--model", metavar="NAME", help="Only for this model.")]
Provider = Annotated[Text, Option("--provider", metavar="NAME", help="Only for this provider.")]
Format = Annotated[Text, Option("--format", metavar="NAME", help="Only for this wire format.")]
Conversation = Annotated[Text, Option("--conversation", metavar="ID", help="Only for this conversation.")]
Status = Annotated[Text, Option("--status", metavar="NAME", help="Only with this status, such as failed.")]
OrderBy = Annotated[
    Text, Option("--order-by", metavar="FIGURE", help="Sort by this figure, largest first, such as total_tokens.")
]
Percentiles = Annotated[bool, Option("--percentiles", help="Add p50, p95 and p99 of latencies.")]
AsCsv = Annotated[bool, Option("--csv", help="Print CSV.")]
Parquet = Annotated[Path | None, Option("--parquet", metavar="FILE", help="Write a Parquet file.")]
Plot = Annotated[Path | None, Option("--plot", metavar="FILE", help="Write a plot: .svg or .html.")]
FigureName = Annotated[
    Text, Option("--figure", metavar="FIGURE", help="The figure shown by bars and plots, such as total_tokens.")
]
Period = Annotated[
    Literal["day", "week", "month"] | None, Option("--by", metavar="TIME", help="One row per day, week or month.")
]
TOOL_LATENCIES: Final = tuple(
    output.Column(name, f"{name}_latency_ms", is_number=True, is_duration=True) for name in ("p50", "p95", "p99")
)
TOOLS: Final = (
    output.Column("name"),
    *(output.Column(name, is_number=True) for name in ("calls", "unanswered", "failed")),
)


@on_target()
def usage(
    target: Target,
    *,
    by: By = None,
    since: options.Since = None,
    until: options.Until = None,
    tz: options.TimeZone = "UTC",
    user: options.OnlyUser = None,
    label: options.Labels = None,
    model: Model = None,
    provider: Provider = None,
    format: Format = None,
    conversation: Conversation = None,
    status: Status = None,
    order_by: OrderBy = None,
    limit: options.MaxRows = None,
    figure: FigureName = None,
    percentiles: Percentiles = False,
    as_csv: AsCsv = False,
    parquet: Parquet = None,
    plot: Plot = None,
) -> None:
    """Report attempts, tokens and costs.

    A figure that no provider reported is left empty; it is never zero.
    """
    columns = [name for name in map(str.strip, ",".join(by or ()).split(",")) if name]
    measure = _checked_figure(figure, order_by)
    if as_csv and target.is_json:
        raise InvalidOption("Use either --csv or --json, not both.")
    usage_plot.check_plot(plot, columns)
    given = {
        **options.bounds_of(since, until, tz), "tz": tz, "user_id": user, "model": model, "provider": provider,
        "format": format if format is None else format_name(format), "conversation_id": conversation, "status": status,
        "labels": options.labels_of(label),
    }  # fmt: skip
    filters: dict[str, Any] = {name: value for name, value in given.items() if value is not None}
    filters["percentiles"] = percentiles
    is_table = not any((target.is_json, as_csv, parquet, plot))
    grouping: dict[str, Any] = {"by": columns, "order_by": order_by, "limit": limit}  # the store checks the names
    rows, total = _read(target, grouping, filters, is_table=is_table)
    _write(parquet, usage_table.write_parquet, columns, rows)
    _write(plot, usage_plot.write_plot, columns, rows, measure=measure, about=options.time_text(since, until))
    if is_table:
        _print_table(target, columns, rows, total, measure)
    elif target.is_json:
        output.print_json({"usage": [record_of(row) for row in rows]})
    elif as_csv:
        typer.echo(usage_table.csv_text(columns, rows), nl=False)


def _read(
    target: Target, grouping: dict[str, Any], filters: dict[str, Any], *, is_table: bool
) -> tuple[list[UsageRow], UsageRow | None]:
    """The rows of a report and, for a table on a terminal, their total."""
    is_of_all = "tenant" in grouping["by"]
    if is_of_all and target.tenant is not None:
        raise InvalidOption("--by tenant is about all tenants: leave --tenant out.")
    with target.store(all_tenants=is_of_all) as store:
        if "conversation_id" in filters and not is_of_all:
            filters["conversation_id"] = full_id(store, filters["conversation_id"])
        rows = store.usage(**grouping, **filters)
        has_total = grouping["by"] and is_table and not is_of_all and output.is_terminal()
        return rows, store.usage(**filters)[0] if has_total else None


def _print_table(
    target: Target, columns: list[str], rows: Sequence[UsageRow], total: UsageRow | None, measure: str | None
) -> None:
    """Print a report for people, or as lines, with notes on stderr."""
    usage_table.print_usage(columns, rows, total, figure=measure)
    usage_table.note_unknown_costs(rows, total)
    if not any(row.attempts for row in rows):
        output.note(f"threadkeep: no matching attempts in the ledger of {target.shown_url}")


def _write(path: Path | None, write: Callable[..., None], *args: Any, **kwargs: Any) -> None:
    """Write a file, if requested, and print a note on stderr."""
    if path is None:
        return
    try:
        write(path, *args, **kwargs)
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ThreadkeepError(f"Cannot write {str(path)!r}: {reason}.") from error
    output.note(f"threadkeep: wrote {path}")


def _checked_figure(figure: str | None, order_by: str | None) -> str | None:
    """Return the figure shown by bars and plots: the given one, or the one that rows are ordered by."""
    if figure is not None and figure not in usage_plot.TITLES:
        raise InvalidOption(f"--figure must be one of {', '.join(usage_plot.TITLES)}, not {figure!r}.")
    return figure or (order_by if order_by in usage_plot.TITLES else None)


def record_of(row: UsageRow) -> dict[str, Any]:
    """Return a row as JSON: keys and figures."""
    return {name: _cell(value) for name, value in row.to_dict().items()}


def _cell(value: Any) -> Any:
    return output.key_text(value) if isinstance(value, date) else value


@on_target("url", "tenant", "as_json")
def export_usage(
    target: Target,
    *,
    place: Annotated[str, Argument(metavar="PLACE", help="Folder or s3://BUCKET/PREFIX.", show_default=False)],
    since: Annotated[Text, Option("--since", metavar="DAY", help="Leave earlier days as they are (UTC).")] = None,
) -> None:
    """Write the ledger as Parquet files, for a data warehouse.

    Each day that is over gets a file with its attempts, and one with their sums, in the folders of the tenant. A
    repeated command writes what is new or has changed. Without --tenant, all tenants are exported.
    """
    first = options.time_of("--since", since, "UTC")
    with target.store(all_tenants=target.tenant is None) as store, output.progress("attempts exported") as advance:
        report = store.export_usage(place, since=first, progress=output.progress_callback(advance))
    is_empty = not report.written and not report.unchanged
    hint = " A day is written once it has been over for an hour (UTC): not today." if is_empty else ""
    target.report(
        output.record(report, "written", "unchanged", "removed", "attempts"),
        f"{output.number_of(report.written, 'day')} with {output.number_of(report.attempts, 'attempt')} written to "
        f"{place}; {report.unchanged:,} unchanged, {report.removed:,} removed.{hint}",
    )


@on_target()
def tools(
    target: Target,
    *,
    since: options.Since = None,
    until: options.Until = None,
    tz: options.TimeZone = "UTC",
    user: options.OnlyUser = None,
    limit: options.MaxRows = None,
    by: Period = None,
    percentiles: Percentiles = False,
) -> None:
    """Report how often each tool was called.

    The most frequently called tools come first. A call is unanswered while it has no output, and failed if its output
    says so. Its latency is the time until its output was stored.
    """
    bounds: dict[str, Any] = options.bounds_of(since, until, tz)
    with target.store() as store:
        found = store.tool_usage(**bounds, by=by, tz=tz, user_id=user, limit=limit, percentiles=percentiles)
    columns = [*([output.Column("period")] if by else []), *TOOLS, *(TOOL_LATENCIES if percentiles else [])]
    names = [column.key or column.title for column in columns]
    records = [{name: _cell(getattr(tool, name)) for name in names} for tool in found]
    target.report_list("tools", records, columns, empty="no tool was called")
