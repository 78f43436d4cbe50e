"""Which database a command works on, and the options that all commands share."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Final

import typer

from threadkeep.cli.output import note
from threadkeep.errors import InvalidOption, SchemaError, ThreadkeepError

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from threadkeep.store.store import Store

DEFAULT_URL: Final = "sqlite:///threadkeep.db"
URL_VARIABLE: Final = "THREADKEEP_URL"
LARGEST_PAGE: Final = 1000  # what a store lists at once

Url = Annotated[str | None, typer.Option("--url", metavar="URL", help="Database, as for `threadkeep --url`.")]
Tenant = Annotated[str | None, typer.Option("--tenant", metavar="NAME", help="Tenant, as for `threadkeep --tenant`.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
Id = Annotated[str, typer.Argument(metavar="ID", help="Id of the conversation, conv_….", show_default=False)]
OfUser = Annotated[
    str | None, typer.Option("--user", metavar="ID", help="Whose conversation it has to be; default: anybody's.")
]
Branch = Annotated[int | None, typer.Option("--branch", metavar="N", help="Branch; default: the active one.")]
FormatName = Annotated[
    str,
    typer.Option("--format", "-f", metavar="FORMAT", help="Wire format, such as open_responses.", show_default=False),
]
Labels = Annotated[
    list[str] | None, typer.Option("--label", metavar="KEY=VALUE", help="Label; can be given several times.")
]


@dataclass(frozen=True, slots=True)
class Place:
    """The database and tenant of a command, and whether it prints JSON."""

    url: str
    tenant: str | None
    is_json: bool

    @property
    def shown(self) -> str:
        """The URL without its password."""
        from threadkeep.store.engines import shown_url

        return shown_url(self.url)


def place_of(context: typer.Context, url: str | None, tenant: str | None, *, is_json: bool) -> Place:
    """What a command's own options say; where they say nothing, the options before the command."""
    before: Place = context.find_root().obj
    return Place(url or before.url, before.tenant if tenant is None else tenant, is_json or before.is_json)


@contextmanager
def opened(place: Place, *, user: str | None = None, is_made: bool = False) -> Iterator[Store]:
    """The store of a place, or what of it is one user's.

    Where it `is_made`, a SQLite file that does not exist is set up, and stderr says so.

    Raises:
        InvalidOption, MissingExtra, SchemaError, NotFound: it cannot be opened.
    """
    with _store(place, has_tenants=place.tenant is not None, is_made=is_made) as store:
        found = store if place.tenant is None else store.for_tenant(place.tenant)
        yield found if user is None else found.for_user(user)


@contextmanager
def opened_for_all(place: Place, *, is_made: bool = False) -> Iterator[Store]:
    """The store of all tenants, to be used by their names; otherwise like `opened`."""
    with _store(place, has_tenants=True, is_made=is_made) as store:
        yield store


@contextmanager
def _store(place: Place, *, has_tenants: bool, is_made: bool) -> Iterator[Store]:
    from threadkeep.store.store import Store

    is_new = is_absent(place.url)
    if not is_made:
        must_exist(place)
    with named(place):
        with parameters_checked(place):
            store = Store(place.url, tenants=has_tenants)
        with store:
            if is_new:
                note(f"threadkeep: made a new database, {place.shown}")
            yield store


def must_exist(place: Place) -> None:
    """Check that there is a database: one that was only misspelt must not be made, and found to be empty.

    Raises:
        SchemaError: it is a SQLite file that does not exist.
        InvalidOption: it is no database URL.
    """
    if is_absent(place.url):
        raise SchemaError(
            f"There is no database {place.shown}. --url or {URL_VARIABLE} name another one; `threadkeep import` and "
            "`threadkeep db upgrade` make one."
        )


@contextmanager
def connected(place: Place) -> Iterator[Engine]:
    """The engine of a place, whatever the state of its schema.

    Raises:
        InvalidOption, MissingExtra: the URL cannot be used.
    """
    from threadkeep.store.engines import engine_for

    with parameters_checked(place):
        engine = engine_for(place.url)
    try:
        with named(place):
            with parameters_checked(place), engine.connect():
                pass
            yield engine
    finally:
        engine.dispose()


@contextmanager
def named(place: Place) -> Iterator[None]:
    """Errors of a database carry its URL as a note, which the message tells."""
    from sqlalchemy.exc import SQLAlchemyError

    try:
        yield
    except SQLAlchemyError as error:
        error.add_note(place.shown)
        raise


@contextmanager
def parameters_checked(place: Place) -> Iterator[None]:
    """What drivers say of parameters in a URL that they do not know, each in its own way, as one error.

    Raises:
        InvalidOption: the URL has such parameters.
    """
    from threadkeep.store.engines import parsed_url

    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("error", message="Query string argument")
            yield
    except (TypeError, ValueError, AttributeError, Warning) as error:
        if isinstance(error, ThreadkeepError) or not parsed_url(place.url).query:
            raise
        raise InvalidOption(f"The parameters in the URL of {place.shown} cannot be used: {error}.") from error


def is_absent(url: str) -> bool:
    """Whether it is a SQLite file that does not exist.

    Raises:
        InvalidOption: it is no database URL.
    """
    from threadkeep.store.engines import parsed_url

    target = parsed_url(url)
    is_file = target.get_backend_name() == "sqlite" and target.database not in {None, "", ":memory:"}
    return is_file and not str(target.database).startswith("file:") and not Path(str(target.database)).exists()


def labels_of(given: list[str] | None) -> dict[str, str]:
    """Labels from ``KEY=VALUE`` texts.

    Raises:
        InvalidOption: one of them is not of that form.
    """
    found = {}
    for text in given or ():
        key, sign, value = text.partition("=")
        if not sign or not key:
            raise InvalidOption(f"--label {text!r} is not of the form KEY=VALUE.")
        found[key] = value
    return found
