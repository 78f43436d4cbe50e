"""``threadkeep import``: imports sessions, provider requests and the histories of other software from files."""

from __future__ import annotations

import codecs
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from reprlib import repr as short_repr
from threading import Event
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

from typer import Argument, Option

from threadkeep.cli.failures import in_shell_words
from threadkeep.cli.options import Labels, Text, format_name, labels_of, on_target
from threadkeep.cli.output import STDIN, Column, note, number_of, open_input, print_json, print_text, progress
from threadkeep.cli.target import Target
from threadkeep.domain.jsontext import loads
from threadkeep.errors import CannotParse, IdempotencyConflict, InvalidItem, InvalidOption
from threadkeep.formats import NAMES

if TYPE_CHECKING:
    from threadkeep import Session, Store
    from threadkeep.contrib.importers import SourceReport
    from threadkeep.contrib.importers.discovery import ClientReport


MEBIBYTE: Final = 1 << 20
SHOWN: Final = 20  # reasons …
PLACES: Final = 3  # … and places of each
AIDER: Final = ".aider.chat.history.md"
NOWHERE: Final = "sqlite://"  # an empty database in memory


def is_software(files: Sequence[str]) -> bool:
    """Return whether the files were written by other software, by their contents: all of them, or none.

    Raises:
        InvalidOption: some are, and others are not.
    """
    if any(Path(name).name == AIDER for name in files):
        problem = "The history of aider is a text for people, without ids, usage and calls, so it is not imported."
        raise InvalidOption(problem, hint="Run aider through threadkeep record to store its calls.")
    known = {name: _is_recognized(name) for name in files}
    if len(set(known.values())) > 1:
        mine = next(name for name, is_known in known.items() if is_known)
        other = next(name for name, is_known in known.items() if not is_known)
        raise InvalidOption(f"{mine!r} is a file of other software, {other!r} is not. Import them one after the other.")
    return any(known.values())


def _is_recognized(name: str) -> bool:
    """Whether a file, or a file in a folder, is one of other software. A pipe could be read only once."""
    from threadkeep.contrib.importers import inputs_of
    from threadkeep.contrib.importers.engine import find_source

    if "://" in name:
        return True
    is_place = name != STDIN and (Path(name).is_file() or Path(name).is_dir())
    return is_place and any(find_source(one) is not None for one in inputs_of(name))


def import_software(
    target: Target, files: Sequence[str], source: str | None, *, user: str | None, dry_run: bool
) -> None:
    """Import the conversations, with a progress bar, and print what was done."""
    from threadkeep.contrib.importers import import_from, inputs_of
    from threadkeep.contrib.importers.engine import SOURCES

    if source is not None and source not in SOURCES:
        raise InvalidOption(f"must be one of {', '.join((AUTO, *SOURCES))}, not {source!r}.", argument="--from")
    if STDIN in files:
        raise InvalidOption("Files of other software cannot be read from stdin. Name the file.")
    total = sum(one.size for one in inputs_of(files)) // MEBIBYTE
    is_first = dry_run and target.is_missing
    if is_first:  # nothing is imported yet; nor does a dry run make the file
        note(f"threadkeep: there is no database {target.shown_url} yet; an import creates it")
        target = target.override(url=NOWHERE)
    with (
        target.store(create=is_first or not dry_run, first=lambda empty: user is None or empty.for_user(user)) as store,
        progress("MiB read", total) as advance,
    ):
        shown = 0

        def show(kind: str, count: int) -> None:
            nonlocal shown
            if kind == "bytes" and count // MEBIBYTE > shown:
                advance(count // MEBIBYTE - shown)
                shown = count // MEBIBYTE

        report = import_from(store, files, source, user=user, dry_run=dry_run, progress=show)
    target.report(_record(report), _sentence(report))
    if not target.is_json:
        note_skipped(report)


AUTO: Final = "auto"
CLIENT_COLUMNS: Final = (
    Column("client"),
    Column("files", is_number=True),
    Column("bytes", is_number=True),
    Column("unchanged", is_number=True),
    Column("sessions", is_number=True),
    Column("new", is_number=True),
    Column("items", is_number=True),
)


def import_clients(target: Target, folders: Sequence[str], *, user: str | None, dry_run: bool, follow: bool) -> None:
    """Import what clients have stored below a folder, and print what was found; with `follow`, go on until stopped."""
    from threadkeep.contrib.importers import discovery

    home = Path(folders[0]).expanduser()
    if len(folders) != 1 or not home.is_dir():
        raise InvalidOption("--from auto takes one folder, the home of a user: threadkeep import --from auto ~")
    if dry_run and follow:
        raise InvalidOption("is not for a dry run.", argument="--follow")
    is_first = dry_run and target.is_missing
    if is_first:
        note(f"threadkeep: there is no database {target.shown_url} yet; an import creates it")
    with (
        (target.override(url=NOWHERE) if is_first else target).store(
            create=is_first or not dry_run, first=lambda empty: user is None or empty.for_user(user)
        ) as store,
        stopped_by_signals() as stop,
    ):
        marks = discovery.FileMarks.of(store, f"{target.url} {target.tenant} {user}")
        found = discovery.Discovery(store, home, marks, user=user, dry_run=dry_run, stop=stop)
        try:
            with progress("bytes read") as advance:
                found.run(advance)
            if follow:
                note("threadkeep: following; Ctrl+C ends it")
                found.follow(lambda: note(f"threadkeep: {_sentence(_sum(found.clients))}"))
        finally:
            marks.save()
    _report_clients(target, found.clients, home)


def _report_clients(target: Target, clients: Mapping[str, ClientReport], home: Path) -> None:
    """Print what was found of each client, and what became of it."""
    records = [_client_record(client) for client in clients.values()]
    if not records:
        note(f"threadkeep: no client has stored anything in {home}")
    if records or target.is_json:
        target.report_list("clients", records, CLIENT_COLUMNS)
    if records and not target.is_json:
        note(f"threadkeep: {_sentence(_sum(clients))}")
        note_skipped(_sum(clients))


def _client_record(client: ClientReport) -> dict[str, object]:
    """A line of the table, and the report for programs."""
    return {
        "client": client.source, "files": client.files, "bytes": client.size, "unchanged": client.unchanged,
        "sessions": client.report.conversations.read, "new": client.report.created,
        "items": client.report.items.stored, "report": _record(client.report),
    }  # fmt: skip


def _sum(clients: Mapping[str, ClientReport]) -> SourceReport:
    from threadkeep.contrib.importers import SourceReport

    total = SourceReport(is_dry_run=any(client.report.is_dry_run for client in clients.values()))
    for client in clients.values():
        total.add(client.report)
    return total


@contextmanager
def stopped_by_signals() -> Iterator[Event]:
    """An event that is set by the first SIGINT or SIGTERM; the second one ends the process."""
    stop = Event()
    before: dict[int, Any] = {}

    def handle(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, before[number])

    for number in (signal.SIGINT, signal.SIGTERM):
        before[number] = signal.signal(number, handle)
    try:
        yield stop
    finally:
        for name, handler in before.items():
            signal.signal(name, handler)


def note_skipped(report: SourceReport) -> None:
    """Say on stderr what was skipped, the most frequent reasons first."""
    reasons = sorted(report.reasons.items(), key=lambda one: -one[1])
    for reason, count in reasons[:SHOWN]:
        places = [one.where for one in report.skipped if one.why == reason]
        places[PLACES:] = ["…"] if len(places) > PLACES or not places else []
        note(f"threadkeep: skipped {count:,}: {reason} ({'; '.join(places)})")
    if len(reasons) > SHOWN:
        note(f"threadkeep: and for {len(reasons) - SHOWN:,} other reasons; --json lists them")


def _record(report: SourceReport) -> dict[str, object]:
    """The report for programs."""
    counts = {name: {"read": getattr(report, name).read} for name in ("conversations", "items", "responses")}
    value = asdict(report)
    return value | {name: read | value[name] for name, read in counts.items()}


def _sentence(report: SourceReport) -> str:
    conversations = report.conversations
    verb = "would be imported" if report.is_dry_run else "imported"
    return (
        f"{number_of(conversations.stored, 'conversation')} {verb} ({report.created:,} new), "
        f"with {number_of(report.items.stored, 'item')} and {number_of(report.responses.stored, 'response')}; "
        f"{conversations.unchanged:,} unchanged, {conversations.skipped:,} skipped."
    )


BATCH: Final = 50  # sessions written in one transaction
_NOT_JSON: Final = "If the file is one of other software, name that with --from."
# key that sessions do not have -> what has it, and how that is imported
_NO_SESSIONS: Final = {
    "threadkeep_export": "This is an export. `threadkeep restore FILE` reads it back.",
    **dict.fromkeys(
        ("messages", "contents", "message_history"),
        "This is a provider's request, not a session. Give its wire format with --format.",
    ),
    **dict.fromkeys(
        ("role", "kind", "type"),
        'This is a message, not a session. Put the list of them into a request, such as {"messages": […]}, and give '
        "its wire format with --format.",
    ),
}
Parse = Callable[[Any], "Session"]
Source = tuple[str, BinaryIO]  # a name for messages, and the open file

Files = Annotated[
    list[str] | None,
    Argument(
        metavar="FILE...",
        help="JSON: a session (with --format: a request), a list of them, or one per line; - is stdin. "
        "Or files of other software.",
        show_default=False,
    ),
]
FormatName = Annotated[
    Text,
    Option(
        "--format", "-f", metavar="FORMAT", help=f"The files contain requests in this wire format: {', '.join(NAMES)}."
    ),
]
Model = Annotated[
    Text, Option("--model", metavar="NAME", help="The model of requests that do not name it (gemini, converse).")
]
User = Annotated[Text, Option("--user", metavar="ID", help="The user who will own the conversations.")]
From = Annotated[
    Text,
    Option(
        "--from",
        metavar="NAME",
        help="The software whose files they are; by default, their contents tell. auto: FILE is the home of a user, "
        "by default yours, and what clients have stored there is imported.",
    ),
]
Follow = Annotated[
    bool, Option("--follow", help="With --from auto: go on while clients work, until SIGINT or SIGTERM.")
]
DryRun = Annotated[bool, Option("--dry-run", help="Check the files, report what would be imported, and write nothing.")]
Key = Annotated[
    Text, Option("--key", metavar="KEY", help="Idempotency key: a repeated import continues where it stopped.")
]


@on_target()
def import_sessions(
    target: Target,
    *,
    files: Files = None,
    source: From = None,
    format: FormatName = None,
    model: Model = None,
    user: User = None,
    label: Labels = None,
    key: Key = None,
    dry_run: DryRun = False,
    follow: Follow = False,
) -> None:
    """Create conversations from files and print their ids.

    The files contain sessions or provider requests. All of them are checked before anything is written. Conversations
    are written in batches; if a batch fails, the ids of the conversations already written are printed.

    Or the files were written by other software, named with --from or detected from their contents. Each of their
    conversations is stored once; what cannot be read is reported.
    """
    options = {"--format": format, "--model": model, "--label": label, "--key": key}
    if source == AUTO or follow:
        _check_given(
            options if source == AUTO else {"--follow": True}, "" if source == AUTO else " without --from auto"
        )
        import_clients(target, files or ["~"], user=user, dry_run=dry_run, follow=follow)
        return
    if not files:
        raise InvalidOption("is missing: name a file, or - for stdin.", argument="FILE")
    if _is_of_software(files, source, options):
        import_software(target, files, source, user=user, dry_run=dry_run)
        return
    info = {"user_id": user, "labels": labels_of(label)}
    _import_own(target, files, _parser_of(format, model), key, info, dry_run=dry_run)


def _import_own(
    target: Target, files: Sequence[str], parse: Parse, key: str | None, info: dict[str, Any], *, dry_run: bool
) -> None:
    """Import sessions or requests, and print the ids of their conversations."""
    ids: list[str] = []

    def check(empty: Store) -> None:
        list(_save_batches(empty, islice(_sessions_in(sources, parse), 1), key, info))

    with ExitStack() as open_files:
        sources = [
            ("stdin" if name == STDIN else name, open_files.enter_context(open_input(name, seekable=True)))
            for name in files
        ]
        count = 0
        with progress("checking") as advance:
            for _ in _sessions_in(sources, parse):
                count += 1
                advance(1)
        if dry_run:
            text = f"{number_of(count, 'conversation')} would be imported."
            print_json({"conversations": count}) if target.is_json else print_text(text)
            return
        try:
            with target.store(create=True, first=check) as store, progress("importing", count) as advance:
                for batch in _save_batches(store, _sessions_in(sources, parse), key, info):
                    ids.extend(batch)
                    advance(len(batch))
        finally:
            if target.is_json:
                print_json({"ids": ids})
            elif ids:
                print_text("\n".join(ids))
    if not count:
        note(f"threadkeep: nothing to import in {', '.join(name for name, _ in sources)}")


def _is_of_software(files: Sequence[str], source: str | None, options: dict[str, Any]) -> bool:
    """Whether other software wrote the files; InvalidOption for options that are not for them."""
    if source is None and (options["--format"] is not None or not is_software(files)):
        return False
    _check_given(options)
    return True


def _check_given(options: dict[str, Any], more: str = "") -> None:
    """Refuse options that are not for files of other software."""
    given = next((name for name, value in options.items() if value), None)
    if given is not None:
        raise InvalidOption(f"is not for files of other software{more}.", argument=given)


def _save_batches(
    store: Store, sessions: Iterator[Session], key: str | None, info: dict[str, Any]
) -> Iterator[list[str]]:
    """Write sessions; yield the ids of each batch that was written."""
    number = 0
    while batch := list(islice(sessions, BATCH)):
        try:
            yield store.save_many(batch, idempotency_key=None if key is None else f"{key}.{number}", **info)
        except IdempotencyConflict as error:
            raise IdempotencyConflict(str(key)) from error
        number += 1


def _parser_of(format: str | None, model: str | None) -> Parse:
    """Return a function that turns a JSON value into a session: one written by `Session.to_dict`, or a request."""
    from threadkeep.formats import get_format

    if format is None:
        if model is not None:
            raise InvalidOption("--model is for requests: give their wire format with --format.")
        return _parse_session
    wire = get_format(format_name(format))
    return lambda value: wire.parse_request(value, model=model)


def _parse_session(value: Any) -> Session:
    """Return the session written by `Session.to_dict`."""
    from threadkeep import Session

    if not isinstance(value, dict):
        raise InvalidOption(f"{short_repr(value)} is not a session. Give a JSON object.")
    if problem := next((problem for key, problem in _NO_SESSIONS.items() if key in value), None):
        raise InvalidOption(problem)
    return Session.from_dict(value)


def _sessions_in(sources: Sequence[Source], parse: Parse) -> Iterator[Session]:
    """Iterate over the sessions of all sources, in order, from the beginning."""
    for name, file in sources:
        file.seek(0)
        for path, value in _json_values(file, name):
            is_list = isinstance(value, list)
            for index, element in enumerate(value if is_list else [value]):
                try:
                    session = parse(element)
                except (CannotParse, InvalidOption, InvalidItem) as error:
                    kind = next(kind for kind in (CannotParse, InvalidOption, InvalidItem) if isinstance(error, kind))
                    place = f"{path}[{index}]" if is_list else path
                    raise kind(f"{place}: {in_shell_words(error, {})}") from error
                yield session


def _json_values(file: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    """Iterate over the values of a JSON document, or of a file with one value per line, with their paths."""
    is_first = True
    for number, line in enumerate(file, 1):
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not text.strip():
            continue
        path = f"{name}, line {number}"
        try:
            value = loads(text)
        except ValueError as error:
            rest = file.read() if is_first else b""
            if not rest.strip():
                raise CannotParse(f"{path} is not JSON: {error}.", hint=_NOT_JSON) from error
            path, value = name, _json_document(text + rest, name)
        yield path, value
        is_first = False


def _json_document(text: bytes, name: str) -> Any:
    from threadkeep.store.moving.restoring import refuse_database

    try:
        return loads(text)
    except ValueError as error:
        refuse_database(text)
        problem = f"{name} is not JSON: {error}. It must be one JSON document, or one session per line."
        raise CannotParse(problem, hint=_NOT_JSON) from error
