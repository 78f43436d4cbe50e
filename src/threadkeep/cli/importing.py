"""``threadkeep import``: sessions, and requests of providers, from files into the database."""

from __future__ import annotations

import codecs
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any, BinaryIO, Final

import typer

from threadkeep.cli.files import STDIN, seekable
from threadkeep.cli.output import note, print_json, print_text, progress
from threadkeep.cli.place import AsJson, Labels, Tenant, Url, labels_of, opened, place_of
from threadkeep.errors import CannotParse, IdempotencyConflict, InvalidItem, InvalidOption

if TYPE_CHECKING:
    from threadkeep.domain.session import Session
    from threadkeep.store.store import Store

_TURN_LISTS: Final = frozenset({"messages", "contents"})  # keys of requests that no session has
Read = Callable[[Any], "Session"]
Source = tuple[str, BinaryIO]  # a name for messages, and the open file

Files = Annotated[
    list[str],
    typer.Argument(
        metavar="FILE...",
        help="A session (with --format: a request), a list of them, or one per line, as JSON; - is stdin.",
        show_default=False,
    ),
]
FormatName = Annotated[
    str | None,
    typer.Option("--format", "-f", metavar="FORMAT", help="The files hold requests of this wire format."),
]
Model = Annotated[
    str | None,
    typer.Option("--model", metavar="NAME", help="The model of requests that do not name it (gemini, converse)."),
]
User = Annotated[str | None, typer.Option("--user", metavar="ID", help="Whose conversations they will be.")]
Key = Annotated[
    str | None, typer.Option("--key", metavar="KEY", help="Idempotency key: a repeated import goes on where it ended.")
]


def import_sessions(
    context: typer.Context,
    *,
    files: Files,
    format: FormatName = None,
    model: Model = None,
    user: User = None,
    label: Labels = None,
    key: Key = None,
    url: Url = None,
    tenant: Tenant = None,
    as_json: AsJson = False,
) -> None:
    """Make conversations of sessions or requests and print their ids.

    All files are checked before anything is written. Conversations are written a few hundred at a time; if that fails
    half-way, the ids of those that were written are printed.
    """
    place = place_of(context, url, tenant, is_json=as_json)
    read, about = reader_of(format, model), {"user_id": user, "labels": labels_of(label)}
    ids: list[str] = []
    with ExitStack() as files_to_close:
        sources = [(name, files_to_close.enter_context(seekable(name))) for name in files]
        with progress("checking") as advance:
            count = sum(1 for _ in counted(sources, read, advance))
        try:
            with opened(place, is_made=True) as store, progress("importing", count) as advance:
                for batch in saved(store, sessions_of(sources, read), key, about):
                    ids.extend(batch)
                    advance(len(batch))
        finally:
            if place.is_json:
                print_json({"ids": ids})
            elif ids:
                print_text("\n".join(ids))
    if not count:
        note(f"threadkeep: there was nothing to import in {', '.join(map(shown_name, files))}")


def saved(store: Store, sessions: Iterator[Session], key: str | None, about: Any) -> Iterator[list[str]]:
    """The ids of sessions that were written, a few hundred at a time.

    Raises:
        IdempotencyConflict: the key was used for other content.
    """
    from threadkeep.store.shelf import in_batches

    for number, batch in enumerate(in_batches(sessions)):
        name = None if key is None else f"{key}.{number}"
        try:
            yield store.save_many(batch, idempotency_key=name, **about)
        except IdempotencyConflict as error:
            raise IdempotencyConflict(str(key)) from error


def shown_name(name: str) -> str:
    """A file's name for messages."""
    return "stdin" if name == STDIN else name


def reader_of(format: str | None, model: str | None) -> Read:
    """What makes a session of a JSON value: one that `to_dict` wrote, or a provider's request.

    Raises:
        UnknownFormat: there is no format of that name.
        InvalidOption: a model was given without a format.
    """
    from threadkeep.formats import get_format

    if format is None:
        if model is not None:
            raise InvalidOption("--model is for requests: say with --format what they are.")
        return _session_of
    wire = get_format(format)
    return lambda value: wire.parse_request(value, model=model)


def _session_of(value: Any) -> Session:
    """The session that `Session.to_dict` wrote.

    Raises:
        InvalidOption, InvalidItem: it is none.
    """
    from threadkeep.domain.session import Session

    if isinstance(value, dict) and not _TURN_LISTS.isdisjoint(value):
        raise InvalidOption("That is a provider's request, and no session. Say with --format of which wire format.")
    return Session.from_dict(value)


def counted(sources: Sequence[Source], read: Read, advance: Any) -> Iterator[Session]:
    """The sessions of all sources, each reported to a progress bar."""
    for session in sessions_of(sources, read):
        advance(1)
        yield session


def sessions_of(sources: Sequence[Source], read: Read) -> Iterator[Session]:
    """The sessions of all sources, in order, from their beginning.

    Raises:
        CannotParse: something is not JSON, or no request.
        InvalidOption, InvalidItem: something is no session; the message names the file and place.
    """
    for name, file in sources:
        file.seek(0)
        for place, value in json_values(file, shown_name(name)):
            if isinstance(value, list):
                for index, one in enumerate(value):
                    yield _session(one, f"{place}[{index}]", read)
            else:
                yield _session(value, place, read)


def json_values(file: BinaryIO, name: str) -> Iterator[tuple[str, Any]]:
    """The values of a JSON document, or of a document with one of them per line, each with its place.

    Raises:
        CannotParse: something is not JSON.
    """
    from threadkeep.domain.jsontext import loads

    is_first = True
    for number, line in enumerate(file, 1):
        text = line.removeprefix(codecs.BOM_UTF8) if number == 1 else line
        if not text.strip():
            continue
        place = f"{name}, line {number}"
        try:
            value = loads(text)
        except ValueError as error:
            rest = file.read() if is_first else b""
            if not rest.strip():
                raise CannotParse(f"{place} is not JSON: {error}.") from error
            yield name, _document(text + rest, name)
            return
        yield place, value
        is_first = False


def _document(text: bytes, name: str) -> Any:
    from threadkeep.domain.jsontext import loads

    try:
        return loads(text)
    except ValueError as error:
        raise CannotParse(
            f"{name} is not JSON: {error}. It must be one JSON document, or one session on each line."
        ) from error


def _session(value: Any, place: str, read: Read) -> Session:
    try:
        return read(value)
    except CannotParse as error:
        raise CannotParse(f"{place}: {error}") from error
    except (InvalidOption, InvalidItem) as error:
        raise type(error)(f"{place}: {error}") from error
