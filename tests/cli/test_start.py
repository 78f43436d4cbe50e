"""What commands load: the time that they take to start."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from tests.cli.runs import Cli

# Packages that take long to import, and that nobody needs who only looks …
HEAVY = {
    "alembic", "boto3", "genai_prices", "numpy", "rich", "sqlalchemy.dialects.mysql", "sqlalchemy.dialects.postgresql",
    "sqlalchemy.ext.asyncio", "threadkeep.models", "threadkeep.store.aio", "threadkeep.store.writing.importing",
    "threadkeep.store.moving.exporting", "threadkeep.store.writing.responses",
}  # fmt: skip
# … what is for items as objects of Python
TYPED = {"pydantic", "threadkeep.domain.items", "threadkeep.domain.tools", "threadkeep.store.writing.appending"}
# command -> its arguments after the id of a conversation, if it takes one
LISTS = {
    "ls": (), "search": ("France", "--by", "conversation", "--user", "ada"), "usage": ("--by", "model"), "tools": (),
    "stats": (), "changes": (), "branches": (None,), "title": (None,), "label": (None,),
}  # fmt: skip
READS = {"show": (None,), "tree": (None,)}
QUICK = ("search", "show")
LOOKS = [pytest.param(name, marks=() if name in QUICK else pytest.mark.slow, id=name) for name in ({**LISTS, **READS})]
RUN = r"""
import sys
from threadkeep.cli import app
for command in "\n".join(sys.argv[1:]).split("\n;\n"):
    try:
        app(command.split("\n"))
    except SystemExit:
        pass
print(*sys.modules, file=sys.stderr)
"""


def loaded_by(cli: Cli, *args: str) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", RUN, *args],
        env=cli.environment() | {"PYTHONPATH": os.pathsep.join(sys.path)}, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return set(done.stderr.split())


@pytest.mark.parametrize("command", LOOKS)
def test_a_command_that_looks_loads_little(cli: Cli, stored: str, command: str) -> None:
    arguments = [argument or stored for argument in ({**LISTS, **READS})[command]]
    modules = loaded_by(cli, command, *arguments)
    assert modules & (HEAVY | TYPED) == set()
    assert len(modules) < 550
    if command in LISTS:
        assert "threadkeep.store.reading.items" not in modules
    commands = {name for name in modules if name.startswith("threadkeep.cli.commands.")}
    assert len(commands) == 1


def test_a_search_that_finds_nothing_loads_little(cli: Cli, stored: str) -> None:
    assert cli("search", "Atlantis", "--user", "ada").out.count("\n") == 1  # the names of the columns
    assert loaded_by(cli, "search", "Atlantis", "--user", "ada") & (HEAVY | TYPED) == set()


def test_what_needs_no_database_loads_none(cli: Cli) -> None:
    """All of them in one process."""
    modules = loaded_by(cli, "--version", ";", "--help", ";", "ls", "--help", ";", "ls", "--nope")
    assert any(name.startswith("threadkeep.cli.commands.") for name in modules)  # the one of `ls`
    assert {"sqlalchemy", "pydantic", "threadkeep.store.store"} & modules == set()


def test_use_cases_are_loaded_when_they_are_called(cli: Cli, stored: str) -> None:
    code = (
        "import sys; from threadkeep import Store; store = Store(sys.argv[1]); "
        "conversation = store.get_conversation(sys.argv[2]); before = set(sys.modules); conversation.user('Hi'); "
        "print(*(name in before for name in ('pydantic', 'threadkeep.store.writing.appending'))); "
        "print('threadkeep.store.writing.appending' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code, cli.url, stored], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False", "True"]


def test_a_server_without_the_rest_api_loads_no_fastapi() -> None:
    code = (
        "import sys; from threadkeep.http import app, recorder_app, site; print('fastapi' in sys.modules); "
        "from threadkeep.http import *; print(rest_app.__module__, tool_context.__module__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    rest = "threadkeep.server.rest"
    assert done.stdout.split() == ["False", f"{rest}.application", f"{rest}.tool_runs"]
