"""db, and opening a database."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import sqlalchemy

from tests.cli.bodies import SESSION
from tests.cli.runs import Cli
from tests.databases import Database
from threadkeep import Session, Store, schema


@pytest.fixture
def nowhere(tmp_path: Path) -> Cli:
    """A SQLite file that does not exist."""
    return Cli(f"sqlite:///{tmp_path / 'new.db'}")


def test_a_database_without_tables_is_upgraded(empty_database: Database) -> None:
    cli = Cli(empty_database.url)
    assert cli("db", "current").out == "none\n"
    assert " db upgrade`" in cli("db", "check", code=7).err
    assert cli("db", "upgrade", "--json").json == {"before": None, "revision": schema.HEAD}
    assert cli("db", "current", "--json").json == {"revision": schema.HEAD, "newest": schema.HEAD}
    assert schema.HEAD in cli("db", "check").out
    assert "already" in cli("db", "upgrade").out
    assert cli("ls").rows == []


def test_a_database_must_be_upgraded_before_it_is_used(empty_database: Database) -> None:
    cli = Cli(empty_database.url)
    assert " db upgrade`" in cli("ls", code=7).err
    cli("db", "upgrade")
    assert cli("ls").rows == []


def test_to_look_makes_no_file(nowhere: Cli, tmp_path: Path) -> None:
    assert nowhere("db", "current").out == "none\n"
    nowhere("db", "sql")
    for command in (
        ["ls"],
        ["show", "conv_1"],
        ["render", "conv_1", "-f", "gemini"],
        ["search", "x"],
        ["reindex"],
        ["usage"],
        ["tools"],
        ["stats"],
        ["retain", "--content", "1d"],
        ["erase-user", "ada", "--yes"],
        ["tenants", "ls"],
        ["tenants", "delete", "acme", "--yes"],
        ["db", "check"],
        ["db", "reconcile"],
    ):
        assert f"There is no database {nowhere.url}. " in nowhere(*command, code=7).err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("option", "problem"),
    [
        (("--partitions", "1"), "--partitions must be a number from 2 to 128, not 1. 16 is a good number"),
        (("--partitions", "16"), "--partitions are for PostgreSQL, not for sqlite. Leave them out here."),
        (
            ("--monthly-bodies", "2019-12"),
            "--monthly-bodies must be a date of a month from 2020-01 to this one, not 2019-12.",
        ),
        (("--monthly-bodies", "2026-01"), "--monthly-bodies are for PostgreSQL, not for sqlite. Leave them out here."),
    ],
)
def test_an_upgrade_that_is_refused_makes_no_file(
    nowhere: Cli, tmp_path: Path, option: tuple[str, str], problem: str
) -> None:
    assert problem in nowhere("db", "upgrade", *option, code=2).err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [["import", "-"], ["tenants", "create", "acme"], ["db", "upgrade"]])
def test_a_new_sqlite_file_is_announced(nowhere: Cli, command: list[str]) -> None:
    result = nowhere(*command, input='{"input": "Hello"}')
    assert result.err.startswith(f"threadkeep: created a new database, {nowhere.url}\n")
    assert "created a new database" not in nowhere("ls").err


@pytest.mark.parametrize("dialect", ["sqlite", "postgresql", "mysql", "mariadb"])
def test_sql_of_every_dialect(nowhere: Cli, dialect: str) -> None:
    result = nowhere("db", "sql", "--dialect", dialect, "--json").json
    assert result["dialect"] == dialect
    assert "CREATE TABLE" in result["sql"]
    assert result["sql"].strip() == nowhere("db", "sql", "--dialect", dialect).out.strip()


def test_sql_is_for_the_dialect_of_the_url() -> None:
    assert Cli("mariadb://root@nowhere/x")("db", "sql", "--json").json["dialect"] == "mariadb"
    assert "oracle" in Cli("oracle://x")("db", "sql", code=2).err


@pytest.mark.parametrize(
    ("url", "code", "message"),
    [
        ("nonsense", 2, "not a database URL"),
        ("oracle://me@here/x", 2, "SQLite, PostgreSQL, MySQL and MariaDB"),
        ("sqlite:////nowhere/at/all/x.db", 2, "There is no directory '/nowhere/at/all'"),
        ("postgresql://me:secret@127.0.0.1:1/x", 1, "connection failed: "),
        ("mysql://me:secret@127.0.0.1:1/x", 1, "(2003, "),
    ],
)
@pytest.mark.parametrize("command", [["ls"], ["db", "upgrade"], ["db", "check"], ["import", "-"]])
def test_databases_that_cannot_be_used(url: str, code: int, message: str, command: list[str]) -> None:
    if url.startswith("sqlite") and command in (["ls"], ["db", "check"]):
        code, message = 7, "There is no database"
    result = Cli(url)(*command, code=code)
    assert message in result.err
    assert re.fullmatch(r"threadkeep: [^\n]+\n", result.err)
    assert "secret" not in result.err
    if code == 1:
        assert url.replace("secret", "***") in result.err
        assert result.err.endswith(". Start the server, or give a URL with its host and port.\n")


def test_a_file_that_is_no_database(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("Not a database. " * 100)
    cli = Cli(f"sqlite:///{tmp_path}/notes.txt")
    for command in (["ls"], ["db", "check"], ["db", "upgrade"]):
        told = cli(*command, code=1).err
        assert re.search(r"(The database says|notes\.txt cannot be opened): file is not a database", told)
        assert "Give a URL with the file of a database; if this was one, restore a backup." in told


@pytest.mark.parametrize("empty_database", ["postgresql", "mariadb"], indirect=True)
def test_what_a_server_refuses_is_told_with_advice(empty_database: Database) -> None:
    url = sqlalchemy.make_url(empty_database.url)
    missing = url.set(database="nothing_of_this_name").render_as_string(hide_password=False)
    assert "Create it on the server, or give a URL with another one." in Cli(missing)("ls", code=1).err
    if empty_database.kind == "mariadb":
        stranger = url.set(username="nobody", password="wrong").render_as_string(hide_password=False)
        told = Cli(stranger)("ls", code=1).err
        assert "Give a URL with a user and password that the server knows." in told
        assert "wrong" not in told


def test_a_password_among_the_parameters_is_not_shown(empty_database: Database) -> None:
    name = "timeout" if empty_database.kind == "sqlite" else "connect_timeout"
    cli = Cli(f"{empty_database.url}?{name}=70")
    for command in (["db", "upgrade"], ["db", "check"], ["ls"]):
        result = cli(*command)
        assert empty_database.url in result.out + result.err
        assert "=70" not in result.out + result.err


@pytest.mark.parametrize("parameter", ["foo=secret", "connect_timeout=secret", "timeout=secret", "charset=secret"])
@pytest.mark.parametrize("command", [["ls"], ["db", "upgrade"]])
def test_parameters_that_a_driver_does_not_take(empty_database: Database, command: list[str], parameter: str) -> None:
    if empty_database.kind == "sqlite" and sqlalchemy.__version__.startswith("2.0."):
        pytest.skip("SQLAlchemy 2.0 passes over what the driver of SQLite does not know")
    Cli(empty_database.url)("db", "upgrade")
    result = Cli(f"{empty_database.url}?{parameter}")(*command, code=1 if empty_database.kind == "postgresql" else 2)
    assert empty_database.url in result.err
    assert re.fullmatch(r"threadkeep: [^\n]+\n", result.err)


def test_a_database_of_a_newer_release_is_left_alone(empty_database: Database) -> None:
    cli = Cli(empty_database.url)
    cli("db", "upgrade")
    with empty_database.engine().begin() as connection:
        connection.exec_driver_sql("UPDATE threadkeep_version SET version_num = 'v9_0_0_a'")
    for command in (["ls"], ["db", "check"], ["db", "upgrade"]):
        assert "v9_0_0_a" in cli(*command, code=7).err


def test_the_commands_work_on_every_database(database: Database) -> None:
    name = "cli"
    with Store(database.url, tenants=True) as store:
        store.create_tenant(name).save(Session.from_dict(SESSION), user_id="ada")
    cli = Cli(database.url)
    (row,) = cli("--tenant", name, "ls").rows
    answer = '{"id":"c","model":"m","choices":[{"message":{"content":"Paris"}}],"usage":{"prompt_tokens":3}}'
    cli("--tenant", name, "append", row["id"], "-", "-f", "chat_completion", input=answer)
    assert "Paris" in cli("--tenant", name, "show", row["id"]).out
    assert "Paris" in cli("--tenant", name, "render", row["id"], "-f", "open_responses").out
    assert cli("--tenant", name, "usage", "--by", "day,user_id").rows[0]["input_tokens"] == "3"
    assert len(cli("--tenant", name, "import", "-", input='{"input":"hi"}').out.split()) == 1
    cli("show", row["id"], code=3)


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)
def test_commands_read_from_a_replica(
    database: Database, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """… of this database: with another one, the replica in the environment is ignored."""
    cli = Cli(database.url)
    with cli.store() as store:
        stored = store.create_conversation(model="m").id
    nowhere = sqlalchemy.make_url(cli.url).set(port=1).render_as_string(hide_password=False)

    def is_asked(*args: str) -> bool:
        caplog.clear()
        assert cli(*args).rows[0]["id"] == stored
        return "does not answer" in caplog.text

    assert not is_asked("--read-url", cli.url, "ls")
    assert is_asked("--read-url", nowhere, "ls")
    assert is_asked("--url", cli.url, "--read-url", nowhere, "ls")
    monkeypatch.setenv("THREADKEEP_READ_URL", nowhere)
    assert is_asked("ls")
    assert not is_asked("--url", cli.url, "ls")
    assert not is_asked("ls", "--url", cli.url)
    assert "--read-url names no replica" in cli("--read-url", "sqlite://", "ls", code=2).err


def test_partitions_are_for_postgresql(cli: Cli) -> None:
    message = cli("db", "upgrade", "--partitions", "4", code=2).err
    assert "PostgreSQL" in message
    assert "CREATE TABLE threadkeep_items_p3 PARTITION OF" in cli(
        "db", "sql", "--dialect", "postgresql", "--partitions", "4"
    ).out.replace("\n", " ")


def test_months_are_for_postgresql(cli: Cli) -> None:
    assert "for PostgreSQL, not for sqlite" in cli("db", "upgrade", "--monthly-bodies", "2026-01", code=2).err
    assert "a month such as 2026-11, not 'now'" in cli("db", "upgrade", "--monthly-bodies", "now", code=2).err
    sql = cli("db", "sql", "--dialect", "postgresql", "--monthly-bodies", "2026-01").out
    assert "CREATE TABLE IF NOT EXISTS threadkeep_response_bodies_y2026m02 PARTITION OF" in sql


def test_a_backlog_tells_what_is_due(cli: Cli) -> None:
    with Store(cli.url) as store:
        store.create_conversation(model="m", input="Hi")
    table = cli("retain", "--content", "365d", "--changes", "30d", "--backlog").out
    assert [line.split("\t")[:2] for line in table.splitlines()[1:]] == [["conversations", "0"], ["changes", "0"]]
    found = cli("retain", "--raw-bodies", "0d", "--content", "0d", "--backlog", "--json").json
    counts = [(one["kind"], one["count"], one["is_least"]) for one in found["due"]]
    assert counts == [("raw_bodies", 0, False), ("conversations", 1, False)]
    assert found["deleted"] == 0


def test_retention_ends_interrupted_deletions(cli: Cli) -> None:
    with Store(cli.url) as store:
        store.create_conversation(model="m", input="Hi")
    engine = sqlalchemy.create_engine(cli.url)
    with engine.begin() as connection:  # as `threadkeep delete` does at first
        connection.exec_driver_sql("UPDATE threadkeep_conversations SET status = 'deleted'")
    engine.dispose()
    told = cli("retain", "--content", "365d", "--backlog").out
    assert "Of 1 deleted conversation, rows are left, which the command removes without --backlog." in told
    cli("retain", "--content", "365d", "--dry-run")
    assert cli("retain", "--content", "365d", "--backlog", "--json").json["deleted"] == 1
    cli("retain", "--content", "365d")
    assert cli("retain", "--content", "365d", "--backlog", "--json").json["deleted"] == 0
