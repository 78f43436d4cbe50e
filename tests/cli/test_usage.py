"""usage."""

from __future__ import annotations

from datetime import UTC, date, datetime, timedelta

import pytest

from tests.cli.bodies import ANSWER
from tests.cli.runs import Cli
from threadkeep import InvalidOption
from threadkeep.cli.usage import moment


@pytest.fixture
def used(cli: Cli, stored: str) -> str:
    with cli.store() as store:
        conversation = store.get_conversation(stored)
        conversation.add_response(ANSWER, "open_responses", provider="openai")
        conversation.add_response({**ANSWER, "id": "resp_2", "model": "gpt-5.4-mini"}, "open_responses")
        conversation.record_attempt("open_responses", error="timeout", model="gpt-5.4-mini")
    return stored


def test_usage_is_one_row_without_by(cli: Cli, used: str) -> None:
    row = cli("usage").rows[0]
    assert (row["attempts"], row["input_tokens"], row["output_tokens"]) == ("3", "24", "10")
    assert row["cached_tokens"] == ""


def test_unknown_figures_are_null_in_json(cli: Cli, used: str) -> None:
    found = cli("usage", "--json").json["usage"]
    assert found[0]["total_tokens"] == 34
    assert found[0]["reasoning_tokens"] is None


def test_usage_by_several_columns(cli: Cli, used: str) -> None:
    together = cli("usage", "--by", "day,model").rows
    assert together == cli("usage", "--by", "day", "--by", "model").rows
    assert [(row["day"], row["model"], row["attempts"]) for row in together] == [
        (f"{datetime.now(UTC):%Y-%m-%d}", "gpt-5.4", "1"),
        (f"{datetime.now(UTC):%Y-%m-%d}", "gpt-5.4-mini", "2"),
    ]


def test_usage_by_conversation_names_the_public_id(cli: Cli, used: str) -> None:
    assert [row["conversation_id"] for row in cli("usage", "--by", "conversation_id").rows] == [used]
    assert cli("usage", "--conversation", used).rows[0]["attempts"] == "3"


@pytest.mark.parametrize(
    ("args", "attempts"),
    [
        (["--since", "1d"], "3"),
        (["--since", "2h"], "3"),
        (["--until", "1w"], "0"),
        (["--since", "2026-01-01", "--until", "2026-01-02"], "0"),
        (["--user", "ada"], "3"),
        (["--user", "bob"], "0"),
        (["--model", "gpt-5.4-mini"], "2"),
        (["--provider", "openai"], "1"),
        (["--format", "open_responses"], "3"),
        (["--status", "failed"], "1"),
        (["--since", "1d", "--tz", "Europe/Berlin"], "3"),
    ],
)
def test_usage_filters(cli: Cli, used: str, args: list[str], attempts: str) -> None:
    assert cli("usage", *args).rows[0]["attempts"] == attempts


def test_usage_in_the_order_of_a_figure(cli: Cli, used: str) -> None:
    rows = cli("usage", "--by", "model", "--order-by", "attempts", "--limit", "1").rows
    assert [row["model"] for row in rows] == ["gpt-5.4-mini"]


@pytest.mark.parametrize(
    "args",
    [
        ["--by", "colour"],
        ["--order-by", "colour"],
        ["--since", "yesterday"],
        ["--since", "999999w"],
        ["--since", "2026-11-01T12:00"],
        ["--since", "1d", "--tz", "Mars/Base"],
        ["--by", "day,day"],
        ["--limit", "0"],
        ["--limit", "many"],
    ],
)
def test_questions_that_have_no_answer(cli: Cli, args: list[str]) -> None:
    found = cli("usage", *args, code=2)
    assert found.err.startswith("threadkeep: ")
    assert len(found.err.splitlines()) == 1


def test_a_terminal_gets_a_total(cli: Cli, used: str) -> None:
    shown = cli.on_terminal("usage", "--by", "model")
    assert "total" in shown
    assert "34" in shown
    assert "total\t" not in cli("usage", "--by", "model").out


def test_times() -> None:
    today = datetime.now(UTC).date()
    assert moment("--since", None, "UTC") is None
    assert moment("--since", "2026-11-01", "UTC") == date(2026, 11, 1)
    assert moment("--since", "2026-11-01T12:00Z", "UTC") == datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert moment("--since", "2w", "UTC") == today - timedelta(days=14)
    hours = moment("--since", "12h", "UTC")
    assert isinstance(hours, datetime)
    assert abs(datetime.now(UTC) - timedelta(hours=12) - hours) < timedelta(minutes=1)
    with pytest.raises(InvalidOption, match="--until 'soon' is no time"):
        moment("--until", "soon", "UTC")
