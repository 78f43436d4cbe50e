"""Administration commands: schema, tenants, statistics, retention, erasure and checks."""

from __future__ import annotations

from dataclasses import asdict
from datetime import date, timedelta
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Argument, Option

from threadkeep.cli import output
from threadkeep.cli.options import MAX_PAGE, OnlyUser, Since, Text, Until, Yes, bounds_of, duration_of, on_target
from threadkeep.cli.output import Column, note, number_of, progress, progress_callback, size
from threadkeep.cli.target import Target, note_other_tenants, tenants_of
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep import CheckReport
    from threadkeep.domain.reports import Backlog


schema_commands = typer.Typer(help="Create, upgrade and check the tables.")
tenant_commands = typer.Typer(help="List, create and delete tenants.")
TENANTS: Final = (output.Column("name"), output.Column("created_at", is_time=True, no_wrap=True, drop_order=1))
Name = Annotated[str, Argument(metavar="NAME", help="The tenant's name.", show_default=False)]
Partitions = Annotated[
    int | None,
    Option(
        "--partitions", metavar="N", show_default=False,
        help="PostgreSQL: create the tables that grow with every item with so many partitions each, 2 to 128.",
    ),
]  # fmt: skip
MonthlyBodies = Annotated[
    Text,
    Option(
        "--monthly-bodies", metavar="MONTH",
        help="PostgreSQL: create the table of raw bodies with a partition for each month from this one on: 2026-11.",
    ),
]  # fmt: skip
FIGURES: Final = (
    "active", "archived", "branches", "items", "responses", "media", "attempts", "item_bytes", "body_bytes",
    "media_bytes",
)  # fmt: skip
# The readable output: title, count, bytes
LINES: Final = (
    ("conversations", "active", None), ("archived conversations", "archived", None), ("branches", "branches", None),
    ("items", "items", "item_bytes"), ("responses, with their raw bodies", "responses", "body_bytes"),
    ("pictures and files", "media", "media_bytes"), ("rows of the usage ledger", "attempts", None),
)  # fmt: skip
OVERVIEW: Final = (output.Column(""), output.Column("count", is_number=True), output.Column("size", is_number=True))
DUE: Final = (
    output.Column("due", "kind"),
    output.Column("count", is_number=True),
    output.Column("oldest", is_time=True, no_wrap=True),
)
LARGEST: Final = (
    output.Column("id", no_wrap=True), output.Column("user", "user_id", drop_order=2),
    output.Column("items", is_number=True), output.Column("size", is_number=True),
    output.Column("title", drop_order=1),
)  # fmt: skip


@schema_commands.command("upgrade")
@on_target("url", "as_json")
def upgrade(target: Target, *, partitions: Partitions = None, monthly_bodies: MonthlyBodies = None) -> None:
    """Create the tables, or upgrade them to the latest schema."""
    from threadkeep import schema
    from threadkeep.db.engines import parsed_url
    from threadkeep.db.partitions import checked_month, checked_partitions

    first, dialect, is_new = _month(monthly_bodies), parsed_url(target.url).get_backend_name(), target.is_missing
    checked_partitions(partitions, dialect)  # before a file is created
    checked_month(first, dialect)
    with target.engine() as engine:
        before = schema.current(engine)
        schema.upgrade(engine, partitions=partitions, monthly_bodies=first)
        now = schema.current(engine)
    if is_new:
        output.note(f"threadkeep: created a new database, {target.shown_url}")
    change = "already" if before == now else f"now (before: {before or 'no tables'})"
    target.report({"before": before, "revision": now}, f"{target.shown_url} is at {now} {change}.")


@schema_commands.command("current")
@on_target("url", "as_json")
def current(target: Target) -> None:
    """Print the schema revision, or `none`."""
    from threadkeep import schema

    revision = None
    if not target.is_missing:  # a read-only command must not create the file
        with target.engine() as engine:
            revision = schema.current(engine)
    target.report({"revision": revision, "newest": schema.HEAD}, revision or "none")


@schema_commands.command("check")
@on_target("url", "as_json")
def check(target: Target) -> None:
    """Check that the schema matches this version.

    If it does not, the error says which command to run.
    """
    from threadkeep import schema
    from threadkeep.db.engines import command_url

    target.check_exists()
    with target.engine() as engine:
        schema.check(engine, command_url(engine))
    target.report({"revision": schema.HEAD}, f"{target.shown_url} is at {schema.HEAD}, as it should be.")


@schema_commands.command("reconcile")
@on_target()
def reconcile(target: Target) -> None:
    """Roll up past days of the usage ledger, and repair wrong sums.

    Reports are the same without it, but faster with it: run it once a day. Without --tenant, it processes all tenants.
    """
    names = [tenant["name"] for tenant in tenants_of(target)] if target.tenant is None else [target.tenant]
    filled = repaired = 0
    if names:
        with target.store(all_tenants=True) as store:
            for name in names:
                result = store.for_tenant(name).reconcile_usage()
                filled, repaired = filled + result.filled, repaired + result.repaired
    target.report(
        {"filled": filled, "repaired": repaired}, f"{number_of(filled, 'day')} rolled up, {repaired:,} repaired."
    )


@schema_commands.command("reprice")
@on_target()
def reprice(target: Target, *, since: Since = None, until: Until = None) -> None:
    """Compute costs again, with the installed list of prices.

    Costs that providers reported, and those from an application's own prices, stay. Without --tenant, it processes all
    tenants.
    """
    bounds: dict[str, Any] = bounds_of(since, until)
    names = [tenant["name"] for tenant in tenants_of(target)] if target.tenant is None else [target.tenant]
    counts = dict.fromkeys(("attempts", "changed", "kept"), 0)
    if names:
        with target.store(all_tenants=True) as store:
            for name in names:
                result = store.for_tenant(name).recompute_costs(**bounds)
                counts = {figure: count + getattr(result, figure) for figure, count in counts.items()}
    changed, kept = number_of(counts["changed"], "cost"), counts["kept"]
    target.report(counts, f"{changed} of {number_of(counts['attempts'], 'attempt')} changed, {kept:,} kept.")


@schema_commands.command("sql")
@on_target("url", "as_json")
def sql(
    target: Target,
    *,
    dialect: Annotated[
        Text, Option("--dialect", metavar="NAME", help="sqlite, postgresql, mysql or mariadb; default: from the URL.")
    ] = None,
    partitions: Partitions = None,
    monthly_bodies: MonthlyBodies = None,
) -> None:
    """Print the SQL of an upgrade, without running it.

    This is the SQL that `db upgrade` runs on an empty database.
    """
    from threadkeep import schema
    from threadkeep.db.engines import parsed_url

    name = dialect or parsed_url(target.url).get_backend_name()
    text = schema.upgrade_sql(name, partitions=partitions, monthly_bodies=_month(monthly_bodies))
    target.report({"dialect": name, "sql": text}, text.rstrip())


@tenant_commands.command("ls")
@on_target("url", "as_json")
def ls(target: Target) -> None:
    """List tenants by name.

    The tenant `default` contains everything stored without a tenant.
    """
    target.report_list("tenants", tenants_of(target), TENANTS, empty="no tenants")


@tenant_commands.command("create")
@on_target("url", "as_json")
def create(target: Target, *, name: Name) -> None:
    """Create a tenant, to be selected with --tenant."""
    with target.store(all_tenants=True, create=True, first=lambda empty: empty.create_tenant(name)) as store:
        store.create_tenant(name)
    target.report({"name": name}, f"Created the tenant {name!r} in {target.shown_url}.")


@tenant_commands.command("delete")
@on_target("url", "as_json")
def delete(target: Target, *, name: Name, yes: Yes = False) -> None:
    """Delete a tenant with all its conversations and its ledger."""
    if not yes:
        raise InvalidOption(f"This deletes the tenant {name!r} and everything in it for good. Use --yes to confirm.")
    with target.store(all_tenants=True) as store:
        store.delete_tenant(name)
    target.report({"name": name}, f"Deleted the tenant {name!r} from {target.shown_url}.")


@on_target()
def stats(
    target: Target,
    *,
    largest: Annotated[
        int,
        Option("--largest", metavar="N", min=1, max=MAX_PAGE, help="How many of the largest conversations to list."),
    ] = 10,
    user: OnlyUser = None,
) -> None:
    """Print how much is stored, and the largest conversations.

    This reads every row, so it takes a while in a large database.
    """
    with target.store(user=user) as store:
        statistics = asdict(store.statistics(largest=largest))
    if target.is_json:
        output.print_json(statistics)
    elif output.is_terminal():
        counts = [
            {"": title, "count": statistics[count], "size": "" if bytes_ is None else size(statistics[bytes_])}
            for title, count, bytes_ in LINES
        ]
        output.print_table(OVERVIEW, counts)
        if statistics["largest"]:
            output.print_text("Largest conversations", is_bold=True)
            output.print_table(LARGEST, [one | {"size": size(one["item_bytes"])} for one in statistics["largest"]])
    else:
        output.print_text("\n".join(f"{name}\t{output.cell_text(statistics[name]) or ''}" for name in FIGURES) + "\n")
        if statistics["largest"]:
            output.print_table(LARGEST, [one | {"size": one["item_bytes"]} for one in statistics["largest"]])


@on_target()
def retain(
    target: Target,
    *,
    raw_bodies: Annotated[
        Text, Option("--raw-bodies", metavar="TIME", help="Keep raw response bodies for this long: 30d, 2w.")
    ] = None,
    content: Annotated[
        Text,
        Option("--content", metavar="TIME", help="Keep conversations for this long after the last activity: 365d."),
    ] = None,
    changes: Annotated[
        Text, Option("--changes", metavar="TIME", help="Keep the change feed for this long: 7d.")
    ] = None,
    whole_months: Annotated[
        bool, Option("--whole-months", help="Keep raw bodies until all bodies of their month are due (UTC).")
    ] = False,
    dry_run: Annotated[bool, Option("--dry-run", help="Only count what would be removed.")] = False,
    backlog: Annotated[
        bool, Option("--backlog", help="Only tell how much is due and how old it is, without counting all of it.")
    ] = False,
) -> None:
    """Remove content older than a given age; the ledger is kept."""
    given = {"raw_bodies": raw_bodies, "content": content, "changes": changes}
    ages = {name: _checked_duration(f"--{name.replace('_', '-')}", text) for name, text in given.items()}
    if not any(text is not None for text in given.values()):
        hint = "Use --raw-bodies TIME, --content TIME or --changes TIME to say how long to keep something."
        raise InvalidOption(hint)
    if backlog:
        with target.store() as store:
            _report_backlog(target, store.backlog(**ages, whole_months=whole_months))
        note_other_tenants(target, "this is about")
        return
    with target.store() as store, output.progress("removed") as advance:
        report = store.retain(
            **ages, dry_run=dry_run, whole_months=whole_months, progress=output.progress_callback(advance)
        )
    bodies = number_of(report.raw_bodies, "raw body", "raw bodies")
    told = f", and {number_of(report.changes, 'change')} of the feed" if changes is not None else ""
    target.report(
        {"dry_run": dry_run} | output.record(report, "raw_bodies", "conversations", "changes"),
        f"{number_of(report.conversations, 'conversation')} and {bodies}{told} "
        f"{'would be ' if dry_run else ''}removed.",
    )
    note_other_tenants(target, "this is about")


def _report_backlog(target: Target, backlog: Backlog) -> None:
    """What is due of each kind that an age was given for, and deleted conversations that still have rows."""
    kinds = ("raw_bodies", "conversations", "changes")
    found = {kind: getattr(backlog, kind) for kind in kinds}
    due = [
        {"kind": kind} | output.record(one, "count", "is_least", "oldest")
        for kind, one in found.items()
        if one is not None
    ]
    if target.is_json:
        output.print_json({"due": due, "deleted": backlog.deleted})
        return
    output.print_table(DUE, [one | {"count": f"{one['count']:,}{'+' if one['is_least'] else ''}"} for one in due])
    if backlog.deleted:
        left = number_of(backlog.deleted, "deleted conversation")
        output.print_text(f"Of {left}, rows are left, which the command removes without --backlog.")


@on_target()
def erase_user(
    target: Target,
    user: Annotated[str, Argument(metavar="USER", help="The user's id.")],
    *,
    no_vacuum: Annotated[
        bool, Option("--no-vacuum", help="Do not rewrite the whole file at the end (SQLite).")
    ] = False,
    yes: Yes = False,
) -> None:
    """Remove a user's content; anonymous figures are kept."""
    if not yes:
        raise InvalidOption(f"This removes all content of the user {user!r} for good. Use --yes to confirm.")
    with target.store() as store, output.progress("erased") as advance:
        report = store.erase_user(user, progress=output.progress_callback(advance), vacuum=not no_vacuum)
    rows, items = number_of(report.attempts, "row"), number_of(report.items, "item")
    target.report(
        output.record(report, "conversations", "attempts", "items", "is_scrubbed"),
        f"{number_of(report.conversations, 'conversation')} removed; {rows} of the ledger and {items} of others made "
        "anonymous.",
    )
    note_other_tenants(target, "this is about")
    if not (report.conversations or report.attempts or report.items):
        output.note(f"threadkeep: there was nothing of a user {user!r}.")
    if report.is_scrubbed is False and not no_vacuum and not target.is_json:
        output.print_text("A reader blocked the last step: run the command again to empty the write-ahead log.")


def _month(text: str | None) -> date | None:
    """Parse a month such as 2026-11."""
    try:
        return None if text is None else date.fromisoformat(f"{text}-01")
    except ValueError as error:
        raise InvalidOption(f"--monthly-bodies must be a month such as 2026-11, not {text!r}.") from error


def _checked_duration(option: str, text: str | None) -> timedelta | None:
    """Parse a duration such as 30d, 2w or 12h."""
    try:
        return None if text is None else duration_of(text)
    except (ValueError, OverflowError) as error:
        raise InvalidOption(f"{option} must be a duration such as 30d, 2w or 12h, not {text!r}.") from error


UNHEALTHY: Final = 1
FINDINGS: Final = (
    Column("tenant", drop_order=1), Column("code"), Column("conversation", "conversation_id"), Column("table"),
    Column("key", drop_order=2), Column("problem"), Column("repair"), Column("repaired", "is_repaired"),
)  # fmt: skip


@on_target()
def doctor(
    target: Target,
    *,
    repair: Annotated[bool, Option("--repair", help="Mend what can be mended without inventing content.")] = False,
) -> None:
    """Check that all rows fit together, and explain what does not.

    Nothing is written without --repair. Without --tenant, all tenants are checked. The exit code is 1 if problems
    remain.
    """
    names = [tenant["name"] for tenant in tenants_of(target)] if target.tenant is None else [target.tenant]
    records: list[dict[str, Any]] = []
    reports: list[CheckReport] = []
    if names:
        with target.store(all_tenants=True) as store:
            for name in names:
                with progress("checked") as advance:
                    report = store.for_tenant(name).check(repair=repair, progress=progress_callback(advance))
                reports.append(report)
                records += [{"tenant": name, **asdict(finding)} for finding in report.findings]
    conversations, found, repaired = (
        sum(getattr(report, name) for report in reports) for name in ("conversations", "found", "repaired")
    )
    is_healthy = found == repaired
    beside = {"conversations": conversations, "found": found, "repaired": repaired, "is_healthy": is_healthy}
    if records or target.is_json:
        target.report_list("findings", records, FINDINGS, **beside)
    problems = "no problems" if not found else number_of(found, "problem")
    note(f"threadkeep: {number_of(conversations, 'conversation')} checked, {problems} found, {repaired:,} repaired")
    if not is_healthy:
        raise typer.Exit(UNHEALTHY)
