"""tenants, and the figures of one tenant or user."""

from __future__ import annotations

import pytest

from tests.cli.bodies import SESSION
from tests.cli.runs import Cli
from tests.databases import Database
from threadkeep import Session, Store, schema


@pytest.fixture
def shared(empty_database: Database) -> Cli:
    """A database for several tenants that has none yet."""
    schema.upgrade(empty_database.engine())
    return Cli(empty_database.url)


def names(cli: Cli) -> list[str]:
    return [row["name"] for row in cli("tenants", "ls").rows]


def test_tenants_are_made_listed_and_deleted(shared: Cli) -> None:
    assert names(shared) == []
    assert "no tenants" in shared("tenants", "ls").err
    assert "Created the tenant 'acme'" in shared("tenants", "create", "acme").out
    assert shared("tenants", "create", "Ölmühle", "--json").json == {"name": "Ölmühle"}
    assert names(shared) == ["acme", "Ölmühle"]
    assert [one["name"] for one in shared("tenants", "ls", "--json").json["tenants"]] == ["acme", "Ölmühle"]
    with Store(shared.url, tenants=True) as store:
        store.for_tenant("acme").save(Session.from_dict(SESSION))
    assert len(shared("ls", "--tenant", "acme").rows) == 1
    assert shared("ls", "--tenant", "Ölmühle").rows == []
    assert "Deleted the tenant 'acme'" in shared("tenants", "delete", "acme", "--yes").out
    assert names(shared) == ["Ölmühle"]
    shared("ls", "--tenant", "acme", code=3)


def test_usage_of_all_tenants(shared: Cli) -> None:
    with Store(shared.url, tenants=True) as store:
        for name, attempts in (("acme", 2), ("zoo", 1)):
            conversation = store.create_tenant(name).create_conversation(model="m")
            for _ in range(attempts):
                conversation.record_attempt("open_responses", model="m")
    rows = shared("usage", "--by", "tenant,model").rows
    assert [(row["tenant"], row["model"], row["attempts"]) for row in rows] == [("acme", "m", "2"), ("zoo", "m", "1")]
    assert "zoo" in shared.on_terminal("usage", "--by", "tenant")
    assert "leave --tenant out" in shared("usage", "--by", "tenant", "--tenant", "acme", code=2).err


def test_an_erasure_says_that_there_was_nothing(shared: Cli) -> None:
    with Store(shared.url) as store:
        store.create_conversation(model="m", user_id="ada")
    assert "nothing" not in shared("erase-user", "ada", "--yes").err
    assert "there was nothing of a user 'ada'" in shared("erase-user", "ada", "--yes").err


def test_ls_says_that_there_are_other_tenants(shared: Cli) -> None:
    assert "--tenant" not in shared("ls").err
    for name in ("acme", "bravo", "charlie", "delta"):
        shared("tenants", "create", name)
    told = "use --tenant NAME for 'acme', 'bravo', 'charlie' and 1 more"
    assert told in shared("ls").err
    assert told in shared("ls", "--json").err
    assert "--tenant" not in shared("ls", "--tenant", "acme").err


@pytest.mark.parametrize(
    "command", ["retain --raw-bodies 0d", "retain --content 0d --backlog", "erase-user u --yes", "export"]
)
def test_what_removes_or_keeps_says_that_there_are_other_tenants(shared: Cli, command: str) -> None:
    """A cron job that forgets --tenant removes nothing of theirs, and keeps nothing."""
    assert "--tenant" not in shared(*command.split()).err
    shared("tenants", "create", "acme")
    assert "this is about the tenant 'default'; use --tenant NAME for 'acme'" in shared(*command.split()).err
    assert "--tenant" not in shared(*command.split(), "--tenant", "acme").err


def test_nothing_is_deleted_without_a_yes(shared: Cli) -> None:
    shared("tenants", "create", "acme")
    assert "--yes" in shared("tenants", "delete", "acme", code=2).err
    assert names(shared) == ["acme"]


def test_what_is_stored_without_a_tenant_is_of_the_default_one(shared: Cli) -> None:
    shared("ls")
    assert names(shared) == []
    shared("import", "-", "--format", "open_responses", input='{"model": "m", "input": "Hi"}')
    assert names(shared) == ["default"]


def test_names_that_cannot_be_used(shared: Cli) -> None:
    shared("tenants", "create", "acme")
    assert "There is a tenant 'acme' already" in shared("tenants", "create", "acme", code=2).err
    assert "empty" in shared("tenants", "create", "", code=2).err
    assert "bytes" in shared("tenants", "create", "x" * 5000, code=2).err
    assert "There is no tenant 'other'" in shared("tenants", "delete", "other", "--yes", code=3).err


def test_figures_of_one_user(cli: Cli, stored: str) -> None:
    assert cli("stats", "--user", "ada", "--json").json["active"] == 1
    assert cli("stats", "--user", "bob", "--json").json["active"] == 0


@pytest.mark.parametrize("command", ["db upgrade", "db current", "db check", "db sql", "tenants ls", "backup x.db"])
def test_commands_about_the_whole_database_refuse_a_tenant(shared: Cli, command: str) -> None:
    refused = shared("--tenant", "acme", *command.split(), code=2).err
    assert refused.endswith("is about the whole database, with all tenants: leave --tenant out.\n")
    assert "No such option" in shared(*command.split(), "--tenant", "acme", code=2).err
