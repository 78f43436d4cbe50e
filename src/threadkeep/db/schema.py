"""The database schema and its version: what users (as `threadkeep.schema`) and the command line call.

The revisions are Alembic's and travel with the package. Version numbers are kept in a table of their own, so that
threadkeep shares a database with an application's own Alembic.
"""

from __future__ import annotations

import io
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from sqlalchemy import Connection, Engine, inspect, text
from sqlalchemy.exc import SQLAlchemyError

from threadkeep.db.models import Base
from threadkeep.db.types import MYSQL
from threadkeep.errors import SchemaError, SchemaMissing, SchemaOutOfDate, SchemaTooNew

if TYPE_CHECKING:
    from alembic.config import Config

VERSION_TABLE: Final = "threadkeep_version"
HEAD: Final = "v0_1_0_e"  # the newest revision; a test holds it against the files
REVISIONS: Final = ("v0_1_0_a", "v0_1_0_b", "v0_1_0_c", "v0_1_0_d", "v0_1_0_e")  # all of them, oldest first
# Views for people who write SQL -> the revision that made them
VIEWS: Final = dict.fromkeys(("usage_by_day", "usage_attempts", "messages_text", "tool_calls"), "v0_1_0_c")

# SQLite's full-text index, and the tables that FTS5 keeps for it
_SEARCH_TABLES: Final = ("search_index", *(f"search_index_{name}" for name in ("config", "data", "docsize", "idx")))
# Everything of threadkeep's that a database may list as a table: for the `include_name` of an application's Alembic
TABLES: Final = frozenset({*Base.metadata.tables, VERSION_TABLE, *_SEARCH_TABLES})

_LOCK_NAME: Final = "threadkeep_schema"
_LOCK_NUMBER: Final = 7_236_001_954_283  # PostgreSQL's advisory locks have numbers
_LOCK_SECONDS: Final = 300


def migrations_folder() -> Path:
    """Where the revisions are: in the installed package, else in the checkout."""
    package = Path(__file__).resolve().parent.parent
    packed = package / "migrations"
    return packed if packed.is_dir() else package.parent.parent / "migrations"


def current(engine: Engine | Connection) -> str | None:
    """The revision of a database; None when it has no tables of threadkeep."""
    if isinstance(engine, Engine):
        with engine.connect() as connection:
            return current(connection)
    if not inspect(engine).has_table(VERSION_TABLE):
        return None
    found: str | None = engine.execute(text(f"SELECT version_num FROM {VERSION_TABLE}")).scalar()  # noqa: S608 - a constant
    return found


def check(engine: Engine | Connection) -> None:
    """Make sure that a database has the tables this version needs.

    Raises:
        SchemaMissing, SchemaOutOfDate, SchemaTooNew: it has not; the message says which command to run.
    """
    found = current(engine)
    if found == HEAD:
        return
    if found is None:
        raise SchemaMissing(HEAD)
    raise (SchemaOutOfDate if found in REVISIONS else SchemaTooNew)(found, HEAD)


def upgrade(engine: Engine, revision: str = "head") -> None:
    """Bring a database to the newest schema, or to `revision`; nothing happens when it is there already.

    Several processes may call it at once: one upgrades, the others wait.

    Raises:
        SchemaTooNew: the database is of a newer release.
        SchemaError: another application has tables of these names, rows break a foreign key afterwards (SQLite), or
            another upgrade does not end.
    """
    with _upgrading(engine) as connection:
        found = current(connection)
        if found is None:
            _check_names(connection)
        if found is not None and found not in _known():
            raise SchemaTooNew(found, HEAD)
        _command("upgrade", connection, revision)


def downgrade(engine: Engine, revision: str = "base") -> None:
    """Take a database back to an older schema, by default to none. Data of newer tables is lost."""
    with _upgrading(engine) as connection:
        _command("downgrade", connection, revision)


def upgrade_sql(dialect: str, revision: str = "head") -> str:
    """The SQL that `upgrade` runs on an empty database of that dialect (sqlite, postgresql, mysql, mariadb)."""
    config = _config()
    config.output_buffer = io.StringIO()
    config.attributes["dialect"] = dialect
    from alembic import command  # noqa: PLC0415 - Alembic is slow to import and only upgrades need it

    command.upgrade(config, revision, sql=True)
    return config.output_buffer.getvalue()


def is_empty(connection: Connection) -> bool:
    """Whether a database has no tables at all."""
    return not inspect(connection).get_table_names()


def _check_names(connection: Connection) -> None:
    """Refuse tables of another application under the names of ours, which a crashed upgrade may have left."""
    inspector = inspect(connection)
    tables = Base.metadata.tables
    foreign = []
    for name in sorted(tables.keys() & set(inspector.get_table_names())):
        needed = {column.name for column in tables[name].columns if not column.nullable}
        if not needed <= {column["name"] for column in inspector.get_columns(name)}:
            foreign.append(name)
    if foreign:
        raise SchemaError(
            f"The database has tables of another application under names that threadkeep needs: {', '.join(foreign)}. "
            "Give threadkeep a database of its own, or on PostgreSQL a schema (docs/production.md)."
        )


def _known() -> set[str]:
    from alembic.script import ScriptDirectory  # noqa: PLC0415 - as above

    return {script.revision for script in ScriptDirectory.from_config(_config()).walk_revisions()}


def _config() -> Config:
    from alembic.config import Config  # noqa: PLC0415 - as above

    config = Config()
    config.set_main_option("script_location", str(migrations_folder()).replace("%", "%%"))
    return config


def _command(name: str, connection: Connection, revision: str) -> None:
    from alembic import command  # noqa: PLC0415 - as above

    config = _config()
    config.attributes["connection"] = connection
    getattr(command, name)(config, revision)


@contextmanager
def _upgrading(engine: Engine) -> Iterator[Connection]:
    """A connection with a transaction in which nobody else upgrades."""
    with engine.connect() as connection:
        if engine.dialect.name == "sqlite":
            with _upgrading_sqlite(connection):
                yield connection
        elif engine.dialect.name in MYSQL:
            with _locked_mysql(connection):
                yield connection
                connection.commit()
        else:
            with connection.begin():
                connection.execute(text("SELECT pg_advisory_xact_lock(:number)"), {"number": _LOCK_NUMBER})
                yield connection


@contextmanager
def _upgrading_sqlite(connection: Connection) -> Iterator[None]:
    """Foreign keys are off: batch mode drops tables, and a cascade would empty their children."""
    driver: Any = connection.connection.driver_connection
    isolation, driver.isolation_level = driver.isolation_level, None
    connection.exec_driver_sql("PRAGMA foreign_keys=OFF")
    try:
        with connection.begin() if not connection.in_transaction() else connection.get_transaction() as transaction:  # type: ignore[union-attr]
            connection.exec_driver_sql("BEGIN IMMEDIATE")
            views = _without_views(connection)
            yield
            _restore(connection, views)
            broken = connection.exec_driver_sql("PRAGMA foreign_key_check").all()
            if broken:
                transaction.rollback()
                raise SchemaError(
                    f"The upgrade was taken back: it would leave rows without their parents: {broken[:5]}."
                )
    finally:
        connection.exec_driver_sql("PRAGMA foreign_keys=ON")
        driver.isolation_level = isolation


def _without_views(connection: Connection) -> dict[str, str]:
    """Drop all views, also the application's own: batch mode cannot copy a table that one of them reads."""
    found = connection.exec_driver_sql("SELECT name, sql FROM sqlite_master WHERE type = 'view' ORDER BY rowid").all()
    for name, _ in found:
        connection.exec_driver_sql(f"DROP VIEW {_quoted(name)}")
    return {row.name: row.sql for row in found}


def _restore(connection: Connection, views: Mapping[str, str]) -> None:
    """Make the views again, but for ours that the revision has made anew, or does not have."""
    there = set(inspect(connection).get_view_names())
    version = current(connection)
    for name, sql in views.items():
        since = VIEWS.get(name, REVISIONS[0])
        is_known = version not in REVISIONS or REVISIONS.index(version) >= REVISIONS.index(since)
        if name not in there and (name not in VIEWS or (version is not None and is_known)):
            connection.exec_driver_sql(sql)


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


@contextmanager
def _locked_mysql(connection: Connection) -> Iterator[None]:
    lock = {"name": _LOCK_NAME, "seconds": _LOCK_SECONDS}
    if connection.execute(text("SELECT GET_LOCK(:name, :seconds)"), lock).scalar() != 1:
        raise SchemaError(
            f"Another upgrade holds the lock {_LOCK_NAME!r} for {_LOCK_SECONDS} seconds. Try again later."
        )
    try:
        yield
    finally:
        try:
            connection.execute(text("SELECT RELEASE_LOCK(:name)"), {"name": _LOCK_NAME})
            connection.commit()
        except SQLAlchemyError:
            connection.invalidate()  # the lock goes with the connection


__all__ = ["HEAD", "TABLES", "Base", "check", "current", "downgrade", "upgrade", "upgrade_sql"]
