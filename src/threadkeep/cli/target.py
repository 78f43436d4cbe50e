"""The database and tenant used by a command."""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from threadkeep.cli.output import note, print_json, print_table, print_text, record
from threadkeep.errors import InvalidOption, SchemaError, ThreadkeepError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from sqlalchemy import Engine

    from threadkeep import Conversation, Page, Store
    from threadkeep.blobs import BlobStore
    from threadkeep.cli.output import Column

DEFAULT_URL: Final = "sqlite:///threadkeep.db"
URL_VARIABLE: Final = "THREADKEEP_URL"
READ_URL_VARIABLE: Final = "THREADKEEP_READ_URL"
BLOBS_VARIABLE: Final = "THREADKEEP_BLOBS"
PAGE_SIZE: Final = 500  # rows read at once
SHOWN: Final = 3  # other tenants that are named
_ID: Final = re.compile(r"conv_[0-9a-f]{32}")
_BEGINNING: Final = re.compile(r"(?:conv_)?[0-9a-fA-F]{1,32}")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Target:
    """The database and tenant of a command (None: the default tenant), whether to print JSON, a replica, and media.

    `blobs` is the folder or bucket of the media; None: they are in the database.
    """

    url: str
    tenant: str | None
    is_json: bool
    read_url: str | None = None
    blobs: str | None = None

    def override(
        self, *, url: str | None = None, tenant: str | None = None, as_json: bool = False, blobs: str | None = None
    ) -> Target:
        """Return this target with the options of a command, if given. Another database has another replica, or none."""
        read_url = None if url else self.read_url
        return Target(
            url or self.url, self.tenant if tenant is None else tenant, as_json or self.is_json, read_url,
            self.blobs if blobs is None else blobs,
        )  # fmt: skip

    @property
    def blob_store(self) -> BlobStore | None:
        """Where the media are, if it is not the database."""
        from threadkeep.store.media.rows import blob_store_at

        return None if self.blobs is None else blob_store_at(self.blobs)

    @property
    def shown_url(self) -> str:
        """The URL without its password."""
        from threadkeep.db.engines import shown_url

        return shown_url(self.url)

    @property
    def is_missing(self) -> bool:
        """Whether the database is a file that does not exist."""
        from threadkeep.db.engines import is_file, parsed_url

        url = parsed_url(self.url)
        name = str(url.database)
        return is_file(url) and not name.startswith("file:") and not Path(name).exists()

    def check_exists(self) -> None:
        """Check that the database exists; a misspelled name must not create an empty one.

        Nor may a new database in memory look like an empty one.
        """
        from threadkeep.db.engines import is_in_memory, parsed_url

        if is_in_memory(parsed_url(self.url)):
            problem = f"{self.shown_url} is a database in memory, which is empty when a command begins."
            raise InvalidOption(problem, argument="url", hint="Give the URL of a file, such as sqlite:///chat.db.")
        if self.is_missing:
            raise SchemaError(
                f"There is no database {self.shown_url}.",
                hint=f"--url or {URL_VARIABLE} name another one; `import`, `restore`, `keys create`, `serve`, "
                "`record`, `tenants create` and `threadkeep db upgrade` create one.",
            )

    @contextmanager
    def store(
        self, *, user: str | None = None, all_tenants: bool = False, create: bool = False,
        first: Callable[[Store], object] = lambda _: None,
    ) -> Iterator[Store]:  # fmt: skip
        """Open the store of the tenant, or of all tenants; with `user`, only the data of that user.

        With `create`, a missing SQLite file is created, and a note is printed on stderr. What an empty database in
        memory refuses, also of `first`, creates no file.
        """
        from threadkeep import Store

        is_new = self.is_missing
        if not create:
            self.check_exists()
        with self._named_errors():
            blobs, has_tenants = self.blob_store, all_tenants or self.tenant is not None
            if is_new:
                with Store("sqlite://", tenants=has_tenants) as empty:
                    first(self._scoped(empty, user, all_tenants=all_tenants))
            with self.checked_parameters():
                store = Store(self.url, tenants=has_tenants, read_url=self.read_url, blobs=blobs)
            with store:
                if is_new:
                    note(f"threadkeep: created a new database, {self.shown_url}")
                yield self._scoped(store, user, all_tenants=all_tenants)

    def _scoped(self, store: Store, user: str | None, *, all_tenants: bool) -> Store:
        scoped = store if all_tenants or self.tenant is None else store.for_tenant(self.tenant)
        return scoped if user is None else scoped.for_user(user)

    @contextmanager
    def engine(self) -> Iterator[Engine]:
        """Provide an engine that can connect to the database, whatever the state of its schema."""
        from threadkeep.db.engines import engine_for

        with self.checked_parameters():
            engine = engine_for(self.url)
        try:
            with self._named_errors():
                with self.checked_parameters(), engine.connect():
                    pass
                yield engine
        finally:
            engine.dispose()

    @contextmanager
    def _named_errors(self) -> Iterator[None]:
        """Errors of the database get its URL as a note, which the message of the command shows."""
        from sqlalchemy.exc import SQLAlchemyError

        try:
            yield
        except SQLAlchemyError as error:
            if not getattr(error, "__notes__", None):  # of the database inside
                error.add_note(self.shown_url)
            raise

    @contextmanager
    def checked_parameters(self) -> Iterator[None]:
        """Report unknown URL parameters as a single kind of error; every driver reports them differently."""
        from threadkeep.db.engines import parsed_url

        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("error", message="Query string argument")
                yield
        except (TypeError, ValueError, AttributeError, Warning) as error:
            if isinstance(error, ThreadkeepError) or not parsed_url(self.url).query:
                raise
            raise InvalidOption(f"The parameters in the URL of {self.shown_url} cannot be used: {error}.") from error

    def report(self, value: Mapping[str, Any], text: str) -> None:
        """Print a result, as JSON or as text."""
        if self.is_json:
            print_json(value)
        else:
            print_text(text)

    def report_list(
        self,
        name: str,
        records: Sequence[Mapping[str, Any]],
        columns: Sequence[Column],
        *,
        empty: str = "",
        draw: Callable[[Sequence[Column], Sequence[Mapping[str, Any]]], None] = print_table,
        **beside: Any,
    ) -> None:
        """Print records, as JSON under `name` or as a table; a line on stderr tells if there are none, or more."""
        if self.is_json:
            print_json({name: records, **beside})
            return
        draw(columns, records)
        if empty and not records:
            note(f"threadkeep: {empty} in {self.shown_url}")
        elif beside.get("next") is not None:
            note(f"threadkeep: there are more: --after {beside['next']}")


def open_conversation(store: Store, id: str, branch: int | None = None) -> Conversation:
    """Open a conversation by its id, or by the beginning of its id if no other one begins like it."""
    return store.get_conversation(full_id(store, id), branch=branch)


def full_id(store: Store, id: str) -> str:
    """The id of the only conversation whose id begins like this; what cannot be the beginning of one stays as it is."""
    is_beginning = _BEGINNING.fullmatch(id) is not None and _ID.fullmatch(id) is None
    return store.complete_id(id) if is_beginning else id


def tenants_of(target: Target) -> list[dict[str, Any]]:
    """Return all tenants by name, with their time of creation."""
    from sqlalchemy import select

    from threadkeep import schema
    from threadkeep.db.engines import command_url
    from threadkeep.db.models import tenants

    target.check_exists()
    with target.engine() as engine, engine.connect() as connection:
        schema.check(connection, command_url(engine))
        rows = connection.execute(select(tenants.c.name, tenants.c.created_at).order_by(tenants.c.name))
        return [record(row, "name", "created_at") for row in rows]


def note_other_tenants(target: Target, what: str) -> None:
    """Say that what a command without --tenant prints or does is not about all there is."""
    if target.tenant is not None:
        return
    others = [row["name"] for row in tenants_of(target) if row["name"] != "default"]
    if others:
        more = f" and {len(others) - SHOWN} more" if len(others) > SHOWN else ""
        names = ", ".join(map(repr, others[:SHOWN])) + more
        note(f"threadkeep: {what} the tenant 'default'; use --tenant NAME for {names}")


def iterate(list_page: Callable[..., Page[T]]) -> Iterator[T]:
    """Iterate over everything in a listing of the library, page by page."""
    page = list_page(limit=PAGE_SIZE)
    yield from page
    while page.next is not None:
        page = list_page(after=page.next, limit=PAGE_SIZE)
        yield from page
