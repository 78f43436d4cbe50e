"""Moving commands: exports and reading them back, copies to other databases, and backups."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Final, TextIO

import typer
from typer import Argument, Option

from threadkeep.cli.failures import about
from threadkeep.cli.options import OnlyUser, Text, on_target
from threadkeep.cli.output import STDIN, note, number_of, open_input, progress, progress_callback, record, size
from threadkeep.cli.target import Target, note_other_tenants, open_conversation
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from collections.abc import Iterator

    from threadkeep import CopyReport, Difference, Store

DIFFERENT: Final = 4  # exit code of a copy that is not the same, as of a conflict

Ids = Annotated[
    list[str] | None,
    Argument(metavar="[ID...]", help="Only these conversations (ids, or their beginnings).", show_default=False),
]
Output = Annotated[Text, Option("--output", "-o", metavar="FILE", help="Write to this new file; default: stdout.")]
Html = Annotated[
    bool, Option("--html", help="One conversation as a HTML file for browsers, which cannot be imported again.")
]
Markdown = Annotated[bool, Option("--markdown", help="Readable Markdown, which cannot be imported again.")]
ToBlobs = Annotated[Text, Option("--to-blobs", metavar="PLACE", help="Folder or bucket for the media of the target.")]
To = Annotated[str, Option("--to", metavar="URL", help="URL of the target database.", show_default=False)]
ToTenant = Annotated[Text, Option("--to-tenant", metavar="NAME", help="Tenant in the target; default: the same.")]


@on_target()
def export(
    target: Target,
    *,
    ids: Ids = None,
    user: OnlyUser = None,
    output: Output = None,
    markdown: Markdown = False,
    html: Html = False,
) -> None:
    """Write conversations to a file, completely, as JSON Lines.

    `threadkeep restore` reads it back, into any database. Without ids, the file contains everything of the tenant or
    user, with the usage ledger.
    """
    if html and (markdown or ids is None or len(ids) != 1):
        raise InvalidOption("takes one conversation, and cannot be combined with --markdown.", argument="--html")
    with target.store(user=user) as store, _open_output(output) as file:
        chosen = None if not ids else [open_conversation(store, one).id for one in ids]
        if html and chosen:
            from threadkeep.viewer import html_of

            texts: Iterable[str] = [html_of(store, chosen[0])]
        elif markdown:
            texts = _markdown(store, chosen)
        else:
            texts = store.export(conversation_ids=chosen)
        with progress("exported") as advance:
            for text in texts:
                file.write(text)
                advance(1)
    if chosen is None:
        note_other_tenants(target, "this is about")
    if output is not None:
        count = Path(output).stat().st_size
        what = _exported(target, user, chosen)
        target.report({"file": output, "bytes": count}, f"{what} exported to {output} ({size(count)}).")


def _exported(target: Target, user: str | None, chosen: list[str] | None) -> str:
    if chosen is not None:
        return number_of(len(chosen), "conversation")
    return f"The user {user!r}" if user is not None else f"The tenant {target.tenant or 'default'!r}"


def _markdown(store: Store, ids: list[str] | None) -> Iterator[str]:
    """Conversations as Markdown, with a rule between them."""
    from threadkeep.cli.target import iterate

    if ids is None:
        ids = [one.id for one in iterate(lambda **page: store.list_conversations(status=None, **page))]
    for number, one in enumerate(ids):
        yield ("\n---\n\n" if number else "") + store.get_conversation(one).to_markdown()


@contextmanager
def _open_output(name: str | None) -> Iterator[TextIO]:
    """A new file, which is removed if the command fails; or stdout."""
    if name is None:
        yield sys.stdout
        return
    path = Path(name)
    try:
        file = path.open("x", encoding="utf-8", errors="surrogatepass", newline="\n")
    except (OSError, ValueError) as error:
        reason = (
            "it exists already" if isinstance(error, FileExistsError) else getattr(error, "strerror", None) or error
        )
        raise InvalidOption(f"Cannot write {name!r}: {reason}.") from error
    try:
        with file:
            yield file
    except BaseException:
        path.unlink(missing_ok=True)
        raise


@on_target()
def restore(
    target: Target,
    *,
    file: Annotated[str, Argument(metavar="FILE", help="An export; - is stdin.", show_default=False)],
    user: OnlyUser = None,
    refuse: Annotated[bool, Option("--refuse", help="Fail if a conversation is there already.")] = False,
) -> None:
    """Read an export back.

    Ids are kept. Conversations that are there already are left as they are, so that the command can be repeated. A
    backup is no export but a database: open it with --url, or put it in the place of another one.
    """
    from threadkeep.store.moving.restoring import begun_export

    with open_input(file) as source:
        lines = begun_export(source)  # before a file is created
        with target.store(user=user, create=True) as store:
            report = store.import_export(lines, existing="refuse" if refuse else "skip")
    name = "stdin" if file == STDIN else file
    target.report(
        record(report, "conversations", "skipped", "attempts"),
        f"{number_of(report.conversations, 'conversation')} and {number_of(report.attempts, 'row')} of the ledger "
        f"imported from {name}; {report.skipped:,} there already.",
    )


@on_target()
def copy(
    target: Target, *, to: To, to_tenant: ToTenant = None, to_blobs: ToBlobs = None, user: OnlyUser = None
) -> None:
    """Copy a database, tenant or user to another database.

    The databases can be of different kinds. What is there already is not copied again, so that an interrupted copy can
    be continued. At the end, both are compared, row by row; the exit code is 4 if they differ. What only the other
    database has, because it was deleted here since, is listed. Without --tenant and --user, all tenants are copied.
    """
    all_tenants = target.tenant is None and user is None and to_tenant is None
    other = Target(to, to_tenant or target.tenant, target.is_json, blobs=to_blobs)
    with (
        target.store(user=user, all_tenants=all_tenants) as source,
        about("--to"),
        _opened(other, all_tenants=all_tenants) as found,
        progress("copied") as advance,
    ):
        report = source.copy_to(found, progress=progress_callback(advance))
    shown = [_shown(one) for one in report.differences]
    names = ("conversations", "skipped", "attempts", "compared", "figures", "different", "is_equal", "extra", "extras")
    target.report(record(report, *names) | {"differences": shown}, _sentence(report, other))
    if not target.is_json:
        for one in shown:
            note(f"threadkeep: different: {one['conversation_id'] or 'the ledger'}: {one['reason'] or one['tables']}")
        for extra in report.extras:
            note(f"threadkeep: only in {other.shown_url}: {extra}")
    if not report.is_equal:
        raise typer.Exit(DIFFERENT)


@contextmanager
def _opened(target: Target, *, all_tenants: bool) -> Iterator[Store]:
    """The target of a copy; a missing tenant is created."""
    from threadkeep import NotFound

    if target.tenant is None:
        with target.store(all_tenants=all_tenants, create=True) as store:
            yield store
        return
    with target.store(all_tenants=True, create=True) as store:
        try:
            found = store.for_tenant(target.tenant)
        except NotFound:
            found = store.create_tenant(target.tenant)
        yield found


def _shown(difference: Difference) -> dict[str, Any]:
    return {
        "conversation_id": difference.conversation_id, "tables": ", ".join(difference.tables),
        "reason": difference.reason,
    }  # fmt: skip


def _sentence(report: CopyReport, target: Target) -> str:
    found = "and equal" if report.is_equal else f"and {report.different:,} different"
    found += f"; {report.extra:,} only there" if report.extra else ""
    return (
        f"{number_of(report.conversations, 'conversation')} and {number_of(report.attempts, 'row')} of the ledger "
        f"copied to {target.shown_url}; {report.skipped:,} there already; {report.compared:,} compared {found}."
    )


@on_target("url", "as_json")
def backup(
    target: Target, *, file: Annotated[str, Argument(metavar="FILE", help="A new file.", show_default=False)]
) -> None:
    """Copy a SQLite database, with all tenants, while it is in use."""
    with target.store(all_tenants=True) as store, progress("pages") as advance:
        count = store.backup(file, progress=progress_callback(advance))
    target.report({"file": file, "bytes": count}, f"{target.shown_url} copied to {file} ({size(count)}).")
