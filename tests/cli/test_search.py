"""search and reindex."""

from __future__ import annotations

import pytest

from tests.cli.runs import Cli


@pytest.fixture
def talk(cli: Cli) -> str:
    with cli.store() as store:
        conversation = store.create_conversation(title="A\ttrip", user_id="ada", labels={"app": "quiz"})
        conversation.user("What is the weather in Paris?")
        conversation.assistant("The weather is \x1b[31mfine.")
        return conversation.id


def test_results_are_tab_separated_in_a_pipe(cli: Cli, talk: str) -> None:
    (result,) = cli("search", "paris", "weather").rows
    created = result.pop("created")
    assert created.endswith("Z")
    assert result == {
        "conversation": talk, "position": "0", "branch": "0", "type": "message", "role": "user", "user": "ada",
        "title": "A\\ttrip", "snippet": "What is the weather in Paris?",
    }  # fmt: skip


def test_results_as_json(cli: Cli, talk: str) -> None:
    result = cli("search", "trip", "--json").json
    assert result["next"] is None
    (title,) = result["results"]
    assert (title["type"], title["position"], title["marks"]) == ("title", None, [[2, 6]])
    assert title["score"] > 0


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (["weather"], 2),
        (["weather -paris"], 1),
        (["--", "weather", "-paris"], 1),
        (["weather", "--role", "assistant"], 1),
        (["weather", "--type", "title"], 0),
        (["weather", "--user", "bob"], 0),
        (["weather", "--user", "ada", "--label", "app=quiz"], 2),
        (["weather", "--label", "app=other"], 0),
        (["weather", "--status", "archived"], 0),
        (["weather", "--status", "all"], 2),
        (["weather", "--since", "1d"], 2),
        (["weather", "--until", "2026-01-01"], 0),
    ],
)
def test_filters(cli: Cli, talk: str, args: list[str], count: int) -> None:
    assert len(cli("search", *args).rows) == count


def test_one_conversation(cli: Cli, talk: str) -> None:
    with cli.store() as store:
        store.create_conversation(input="weather")
    assert len(cli("search", "weather").rows) == 3
    assert len(cli("search", "weather", "--conversation", talk).rows) == 2


def test_it_goes_on_after_a_page(cli: Cli, talk: str) -> None:
    first = cli("search", "weather", "--limit", "1")
    second = cli("search", "weather", "--limit", "1", "--after", first.err.split()[-1])
    assert {row["position"] for row in (*first.rows, *second.rows)} == {"0", "1"}
    assert "--after" not in second.err


def test_nothing_found(cli: Cli, talk: str) -> None:
    result = cli("search", "elsewhere")
    assert result.rows == []
    assert "nothing found" in result.err


def test_nothing_to_look_for(cli: Cli) -> None:
    assert "no word to search for" in cli("search", "…", code=2).err


def test_matches_are_bold_on_a_terminal(cli: Cli, talk: str) -> None:
    shown = cli.on_terminal("search", "weather")
    assert "What is the \x1b[1mweather\x1b[0m in Paris?" in shown
    assert "\\x1b[31mfine" in shown
    assert talk in shown
    assert "ada  A trip\x1b" in shown


def test_reindex(cli: Cli, talk: str) -> None:
    assert cli("reindex", "--json").json == {"documents": 3}
    assert cli("reindex").out.startswith("0 texts are new")
    assert cli("reindex", "--rebuild", "--json").json == {"documents": 3}
    assert len(cli("search", "weather").rows) == 2
