"""``threadkeep import --from``: conversations of other software."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Final

from threadkeep.cli.file_io import STDIN
from threadkeep.cli.formatting import number_of
from threadkeep.cli.output import note, progress
from threadkeep.cli.target import Target
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep.contrib.importers import ImportReport

MEBIBYTE: Final = 1 << 20
SHOWN: Final = 20  # reasons
NOWHERE: Final = "sqlite://"  # an empty database in memory


def is_software(files: Sequence[str]) -> bool:
    """Return whether the files are those of other software, by their contents: all of them, or none.

    Raises:
        InvalidOption: some are, and others are not.
    """
    known = {name: _is_recognized(name) for name in files}
    if len(set(known.values())) > 1:
        mine = next(name for name, is_known in known.items() if is_known)
        other = next(name for name, is_known in known.items() if not is_known)
        raise InvalidOption(f"{mine!r} is a file of other software, {other!r} is not. Import them one after the other.")
    return any(known.values())


def _is_recognized(name: str) -> bool:
    """Whether a file, or a file in a folder, is one of other software. A pipe could be read only once."""
    from threadkeep.contrib.importers import inputs_of
    from threadkeep.contrib.importers.registry import find_source

    if "://" in name:
        return True
    is_place = name != STDIN and (Path(name).is_file() or Path(name).is_dir())
    return is_place and any(find_source(one) is not None for one in inputs_of(name))


def import_software(
    target: Target, files: Sequence[str], source: str | None, *, user: str | None, dry_run: bool
) -> None:
    """Import the conversations, with a progress bar, and print what was done."""
    from threadkeep.contrib.importers import import_from, inputs_of

    if STDIN in files:
        raise InvalidOption("Files of other software cannot be read from stdin. Name the file.")
    total = sum(one.size for one in inputs_of(files)) // MEBIBYTE
    is_first = dry_run and target.is_missing
    if is_first:  # nothing is imported yet; nor does a dry run make the file
        note(f"threadkeep: there is no database {target.shown_url} yet; an import creates it")
        target = target.override(url=NOWHERE)
    with target.store(create=is_first or not dry_run) as store, progress("MiB read", total) as advance:
        shown = 0

        def show(kind: str, count: int) -> None:
            nonlocal shown
            if kind == "bytes" and count // MEBIBYTE > shown:
                advance(count // MEBIBYTE - shown)
                shown = count // MEBIBYTE

        report = import_from(store, files, source, user=user, dry_run=dry_run, progress=show)
    target.report(_record(report), _sentence(report))
    if not target.is_json:
        _print_reasons(report)


def _record(report: ImportReport) -> dict[str, object]:
    """The report for programs."""
    counts = {name: {"read": getattr(report, name).read} for name in ("conversations", "items", "responses")}
    value = asdict(report)
    return value | {name: read | value[name] for name, read in counts.items()}


def _sentence(report: ImportReport) -> str:
    conversations = report.conversations
    verb = "would be imported" if report.is_dry_run else "imported"
    return (
        f"{number_of(conversations.stored, 'conversation')} {verb} ({report.created:,} new), "
        f"with {number_of(report.items.stored, 'item')} and {number_of(report.responses.stored, 'response')}; "
        f"{conversations.unchanged:,} unchanged, {conversations.skipped:,} skipped."
    )


def _print_reasons(report: ImportReport) -> None:
    """Say on stderr what was skipped, the most frequent reasons first."""
    reasons = sorted(report.reasons.items(), key=lambda one: -one[1])
    for reason, count in reasons[:SHOWN]:
        first = next(one.where for one in report.skipped if one.why == reason)
        note(f"threadkeep: skipped {count:,}: {reason} ({first})")
    if len(reasons) > SHOWN:
        note(f"threadkeep: and for {len(reasons) - SHOWN:,} other reasons; --json lists them")
