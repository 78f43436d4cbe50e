"""What terminals show: narrow ones, and such without colours."""

from __future__ import annotations

import re

import pytest
from rich.cells import cell_len

from tests.cli.bodies import ANSWER
from tests.cli.runs import Cli

STYLES = re.compile(r"\x1b\[[0-9;]*m")
COLOURS = re.compile(r"\x1b\[(?:[0-9]+;)*(?:3[0-9]|9[0-7])[;m]")
TITLE = "Häuser in 東京 🧵 and a title that goes on and on, up to the end"


@pytest.fixture
def used(cli: Cli, stored: str) -> str:
    """A conversation with a long title and a user, and figures of ten digits."""
    with cli.store() as store:
        conversation = store.get_conversation(stored)
        conversation.update(title=TITLE, user_id="somebody@example.org")
        usage = {"input_tokens": 98_765, "output_tokens": 43_210, "total_tokens": 141_975}
        conversation.add_response(ANSWER | {"usage": usage}, "open_responses", provider="somebody")
    return stored


def plain(text: str) -> str:
    return STYLES.sub("", text)


@pytest.mark.parametrize("columns", [60, 80, 200])
def test_a_list_has_the_columns_that_there_is_room_for(cli: Cli, used: str, columns: int) -> None:
    shown = plain(cli.on_terminal("ls", COLUMNS=str(columns)))
    titles = shown.split("─")[0].split()
    assert {60: ["id", "last_activity"], 80: ["id", "last_activity", "title"]}.get(columns, titles) == titles
    assert ("user" in titles) == (columns > 80)
    assert max(map(cell_len, shown.splitlines())) <= columns
    if columns == 200:
        assert TITLE in shown


@pytest.mark.parametrize("columns", [40])
@pytest.mark.parametrize("command", ["ls", "stats"])
def test_an_id_is_never_cut(cli: Cli, used: str, command: str, columns: int) -> None:
    assert f" {used} " in plain(cli.on_terminal(command, COLUMNS=str(columns)))


@pytest.mark.parametrize("columns", [20, 80])
def test_a_figure_is_never_cut(cli: Cli, used: str, columns: int) -> None:
    shown = plain(cli.on_terminal("usage", "--by", "model", COLUMNS=str(columns)))
    assert {"gpt-5.4", "98,765", "43,210"} <= set(shown.split())
    assert "…" not in shown


@pytest.mark.parametrize("command", [["show", "ID"], ["search", "capital"], ["ls"]])
@pytest.mark.slow
def test_colours_can_be_turned_off(cli: Cli, used: str, command: list[str]) -> None:
    args = [used if arg == "ID" else arg for arg in command]
    assert not COLOURS.search(cli.on_terminal(*args, NO_COLOR="1"))
    assert "\x1b" not in cli.on_terminal(*args, TERM="dumb")
    assert "\x1b[1m" in cli.on_terminal(*args)


def test_there_are_colours_otherwise(cli: Cli, used: str) -> None:
    assert COLOURS.search(cli.spawn_on_terminal("show", used))
    assert COLOURS.search(cli.on_terminal("show", used))
    assert COLOURS.search(cli.on_terminal("show", used, NO_COLOR=""))
