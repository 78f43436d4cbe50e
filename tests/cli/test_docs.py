"""The page about the command line: complete, and its examples run."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_args

import pytest
import typer

from tests.cli.bodies import ANSWER, EVENTS, REQUEST, SESSION
from tests.cli.runs import Cli
from threadkeep.cli import app
from threadkeep.cli.failures import EXIT_CODES
from threadkeep.domain.reports import UsageKey
from threadkeep.formats import NAMES

PAGE = Path(__file__).parent.parent.parent.joinpath("docs/cli.md").read_text()


def commands(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, Any]]:
    """All commands that do something, by their full names."""
    for name, inner in command.commands.items():
        if hasattr(inner, "commands"):
            yield from commands(inner, (*path, name))
        else:
            yield " ".join((*path, name)), inner


ROOT: Any = typer.main.get_command(app)
COMMANDS = dict(commands(ROOT))


def section(title: str) -> str:
    result = re.search(rf"^## `threadkeep {title}`$(.*?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL)
    assert result, f"docs/cli.md has no section ## `threadkeep {title}`"
    return result[1]


def test_the_commands_are_these() -> None:
    assert set(COMMANDS) == {
        "ls", "show", "branches", "tree", "render", "import", "append", "search", "reindex", "changes", "usage",
        "export-usage", "tools", "stats", "title", "label", "fork", "archive", "unarchive", "delete", "export",
        "restore", "copy", "backup", "doctor", "retain", "erase-user", "serve", "record", "view", "mcp", "init", "demo",
        "keys create", "keys ls", "keys revoke",
        "tenants ls", "tenants create", "tenants delete",
        "db upgrade", "db current", "db check", "db reconcile", "db reprice",
        "db sql",
    }  # fmt: skip


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_has_a_help_text(name: str, cli: Cli) -> None:
    assert COMMANDS[name].help
    assert COMMANDS[name].help.splitlines()[0].endswith(".")
    shown = cli(*name.split(), "--help").out
    assert COMMANDS[name].help.splitlines()[0] in shown
    assert [parameter.name for parameter in COMMANDS[name].params if not parameter.help] == []


@pytest.mark.parametrize("name", COMMANDS)
def test_every_command_and_option_stands_in_the_page(name: str) -> None:
    text = section(name)
    shared = {"--url", "--tenant", "--blobs", "--json", "--help"}
    options = {option for parameter in COMMANDS[name].params for option in parameter.opts if option.startswith("--")}
    assert {option for option in options - shared if f"`{option}" not in text} == set()


@pytest.mark.parametrize("group", [(), ("db",), ("tenants",)])
def test_no_summary_is_cut_off_in_the_list_of_commands(group: tuple[str, ...], cli: Cli) -> None:
    listed = cli(*group, "--help").out.partition("Commands:\n")[2]
    assert listed
    assert "..." not in listed


def test_the_help_lists_formats_and_columns(cli: Cli) -> None:
    def words(*args: str) -> set[str]:
        return set(re.findall(r"\w+", cli(*args, "--help").out))

    assert set(NAMES) <= words("render") & words("append") & words("import")
    assert set(get_args(UsageKey)) <= words("usage")


def test_the_shared_options_stand_in_the_page() -> None:
    options = {option for parameter in ROOT.params for option in parameter.opts}
    assert {option for option in options if f"`{option}" not in PAGE} == set()


def test_the_exit_codes_stand_in_the_page() -> None:
    rows = re.findall(r"^\| (\d+) \| (.+?) \|$", PAGE, re.MULTILINE)
    assert {int(code) for code, _ in rows} == {0, *EXIT_CODES.values()}
    texts = {int(code): text for code, text in rows}
    assert {kind.__name__ for kind, code in EXIT_CODES.items() if f"`{kind.__name__}`" not in texts[code]} == set()


def test_the_examples_run(cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tmp_path.joinpath("session.json").write_text(json.dumps(SESSION))
    tmp_path.joinpath("answer.json").write_text(json.dumps(ANSWER))
    tmp_path.joinpath("request.json").write_text(json.dumps(REQUEST))
    tmp_path.joinpath("events.txt").write_text("".join(f"data: {json.dumps(event)}\n\n" for event in EVENTS))
    stored = cli("import", "session.json").out.strip()
    key = cli("keys", "create", "--json").json["id"]
    lines = [line for block in re.findall(r"```console\n(.*?)```", PAGE, re.DOTALL) for line in block.splitlines()]
    examples = [line.removeprefix("$ threadkeep ") for line in lines if line.startswith("$ threadkeep ")]
    assert len(examples) >= len(COMMANDS)
    for example in sorted(examples, key=lambda line: line.startswith("delete ")):  # which takes the conversation away
        args = shlex.split(example.partition(" | ")[0].partition(" > ")[0], comments=True)
        cli(*(stored if arg.startswith("conv_") else key if arg.startswith("key_") else arg for arg in args))
