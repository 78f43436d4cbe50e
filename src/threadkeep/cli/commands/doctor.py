"""``threadkeep doctor``: checks a database."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated, Any, Final

import typer
from typer import Option

from threadkeep.cli.formatting import number_of
from threadkeep.cli.options import on_target
from threadkeep.cli.output import Column, note, progress, progress_callback
from threadkeep.cli.target import Target, tenants_of

if TYPE_CHECKING:
    from threadkeep import CheckReport

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
