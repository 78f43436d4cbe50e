"""usage."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from datetime import UTC, date, datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from pyarrow import parquet

from tests.cli.bodies import ANSWER
from tests.cli.runs import Cli
from tests.factories import a_call, an_output
from tests.store.ledger import attempt_at
from threadkeep import InvalidOption, Store, UsageRow
from threadkeep.cli import usage_plot
from threadkeep.cli.options import time_of, time_text
from threadkeep.cli.output import bar, dollars, milliseconds, number_of, percent, short, size
from threadkeep.cli.usage_table import measure_of


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


def test_usage_of_conversations_with_labels(cli: Cli, used: str) -> None:
    with cli.store() as store:
        store.get_conversation(used).update(labels={"team": "a", "tier": "1"})
    assert cli("usage", "--label", "team=a", "--label", "tier=1").rows[0]["attempts"] == "3"
    assert cli("usage", "--label", "team=a", "--label", "tier=2").rows[0]["attempts"] == "0"


def test_unknown_figures_are_null_in_json(cli: Cli, used: str) -> None:
    result = cli("usage", "--json").json["usage"]
    assert result[0]["total_tokens"] == 34
    assert result[0]["reasoning_tokens"] is None


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
        (["--since", "month"], "3"),
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
        ["--figure", "colour"],
        ["--plot", "usage.svg"],
        ["--by", "day", "--plot", "usage.png"],
        ["--limit", "0"],
        ["--limit", "many"],
        ["--format", "colour"],
        ["--csv", "--json"],
    ],
)
def test_questions_that_have_no_answer(cli: Cli, args: list[str]) -> None:
    result = cli("usage", *args, code=2)
    assert result.err.startswith("threadkeep: ")
    assert len(result.err.splitlines()) == 1


def test_a_terminal_gets_a_total(cli: Cli, used: str) -> None:
    shown = cli.on_terminal("usage", "--by", "model")
    assert "total" in shown
    assert "34" in shown
    assert "total\t" not in cli("usage", "--by", "model").out


def test_times() -> None:
    today = datetime.now(UTC).date()
    assert time_of("--since", None, "UTC") is None
    assert time_of("--since", "2026-11-01", "UTC") == date(2026, 11, 1)
    assert time_of("--since", "2026-11-01T12:00Z", "UTC") == datetime(2026, 11, 1, 12, tzinfo=UTC)
    assert time_of("--since", "2w", "UTC") == today - timedelta(days=14)
    hours = time_of("--since", "12h", "UTC")
    assert isinstance(hours, datetime)
    assert abs(datetime.now(UTC) - timedelta(hours=12) - hours) < timedelta(minutes=1)
    for days in (90, 180, 270):  # clocks that change in between change nothing
        passed = datetime.now(UTC) - time_of("--since", f"{days * 24}h", "Europe/Berlin")  # type: ignore[operator]
        assert abs(passed - timedelta(days=days)) < timedelta(minutes=1)
    first = today.replace(day=1)
    named = {"today": today, "week": today - timedelta(today.weekday()), "month": first, "year": first.replace(month=1)}
    assert {name: time_of("--since", name, "UTC") for name in named} == named
    for text in ("2026-11-31", "2026-13-01", "2027-02-29"):
        with pytest.raises(InvalidOption, match=f"--until '{text}' is not a day of the calendar"):
            time_of("--until", text, "UTC")
    for text in ("soon", "2026-11-01T12:00", "999999999w"):
        with pytest.raises(InvalidOption, match=f"--until '{text}' is not a time"):
            time_of("--until", text, "UTC")


@pytest.mark.parametrize(
    ("since", "until"),
    [
        ("2026-02-01", "2026-01-01"),
        ("1d", "1w"),
        ("2026-01-01T01:00Z", "2026-01-01"),
        ("2026-01-01", "2026-01-01T01:00+02:00"),
        ("9999-12-31", "0001-01-01"),
    ],
)
@pytest.mark.parametrize("command", [["usage"], ["tools"], ["search", "weather"]])
def test_a_period_does_not_end_before_it_begins(
    cli: Cli, used: str, since: str, until: str, command: list[str]
) -> None:
    refused = cli(*command, "--since", since, "--until", until, code=2).err
    assert f"--until '{until}' is before --since '{since}'. Exchange them." in refused
    cli(*command, "--since", since, "--until", since)


# Exports


def test_csv_has_exact_figures(cli: Cli, used: str) -> None:
    result = list(csv.DictReader(io.StringIO(cli("usage", "--by", "model", "--csv").out)))
    assert [(row["model"], row["attempts"], row["total_tokens"]) for row in result] == [
        ("gpt-5.4", "1", "17"),
        ("gpt-5.4-mini", "2", "17"),
    ]
    assert (result[0]["cost_nano"], result[0]["cost_usd"], result[0]["mean_cost_usd"]) == (
        "105000", "0.000105000", "0.000105",
    )  # fmt: skip
    assert result[0]["cached_tokens"] == result[0]["cache_known_tokens"] == result[0]["mean_latency_ms"] == ""


def test_percentiles_are_columns_of_all_outputs(cli: Cli, used: str, tmp_path: Path) -> None:
    with Store(cli.url) as store:
        conversation = store.get_conversation(used)
        for latency in range(1, 101):
            conversation.record_attempt(
                "open_responses", model="slow", latency_ms=latency * 100, first_token_ms=latency
            )
    args = ("usage", "--by", "model", "--model", "slow", "--percentiles")
    path = tmp_path / "usage.parquet"
    cli(*args, "--parquet", str(path))
    [as_csv] = csv.DictReader(io.StringIO(cli(*args, "--csv").out))
    [plain], [as_json], [as_parquet] = (
        cli(*args).rows,
        cli(*args, "--json").json["usage"],
        parquet.read_table(path).to_pylist(),
    )
    for found in (as_csv, plain, as_json, as_parquet):
        for name, wanted in (("p50", 50), ("p95", 95), ("p99", 99)):
            assert float(found[f"{name}_latency_ms"]) == pytest.approx(wanted * 100, rel=0.01)
            assert float(found[f"{name}_first_token_ms"]) == pytest.approx(wanted, rel=0.01)
    assert "p95" in cli.on_terminal(*args)
    assert "p95" not in cli.on_terminal(*args[:-1])


def test_parquet_has_types(cli: Cli, used: str, tmp_path: Path) -> None:
    path = tmp_path / "usage.parquet"
    done = cli("usage", "--by", "day,model,hour,response", "--parquet", str(path))
    assert (done.out, done.err) == ("", f"threadkeep: wrote {path}\n")
    table = parquet.read_table(path)
    kinds = {name: str(table.schema.field(name).type) for name in table.schema.names}
    assert kinds["day"] == "date32[day]"
    assert kinds["hour"] == "timestamp[us, tz=UTC]"
    assert (kinds["model"], kinds["response"], kinds["attempts"]) == ("string", "int64", "int64")
    assert kinds["cost_usd"].startswith("decimal128")
    rows = table.to_pylist()
    assert [row["total_tokens"] for row in rows] == [17, 17, None]
    assert rows[0]["day"] == rows[0]["hour"].date() == datetime.now(UTC).date()
    assert rows[0]["cost_usd"] == Decimal("0.000105")


def test_the_ledger_is_exported_for_all_tenants(cli: Cli, tmp_path: Path) -> None:
    with Store(cli.url, tenants=True) as root:
        for tenant in ("one", "two"):
            conversation = root.create_tenant(tenant).create_conversation()
            attempt_at(conversation, *(datetime.now(UTC) - timedelta(days=days) for days in (2, 3, 9)))
    place = str(tmp_path / "usage")
    done = cli("--tenant", "one", "export-usage", place, "--since", "5d")
    assert done.out == f"2 days with 2 attempts written to {place}; 0 unchanged, 0 removed.\n"
    assert cli("export-usage", place, "--json").json == {"written": 4, "unchanged": 2, "removed": 0, "attempts": 4}
    files = tmp_path.glob("usage/usage_attempts/*/tenant=two/data.parquet")
    assert [parquet.read_metadata(file).num_rows for file in files] == [1, 1, 1]
    assert "PLACE 'gs://bucket' is neither" in cli("export-usage", "gs://bucket", code=2).err
    assert "--since '1 week' is not a time" in cli("export-usage", place, "--since", "1 week", code=2).err


def test_an_export_says_why_it_is_empty(cli: Cli, tmp_path: Path) -> None:
    with Store(cli.url) as store:
        attempt_at(store.create_conversation(), datetime.now(UTC))
    done = cli("export-usage", str(tmp_path / "usage"))
    assert done.out.endswith("removed. A day is written once it has been over for an hour (UTC): not today.\n")


def test_pictures(cli: Cli, used: str, tmp_path: Path) -> None:
    for name in ("usage.svg", "usage.html"):
        done = cli("usage", "--by", "day,model", "--since", "7d", "--plot", str(tmp_path / name))
        assert (done.out, done.err) == ("", f"threadkeep: wrote {tmp_path / name}\n")
    svg, page = (tmp_path.joinpath(name).read_text() for name in ("usage.svg", "usage.html"))
    ET.fromstring(svg)
    for text in ("Cost by model per day, last 7 days", "gpt-5.4-mini", "Without 1 of 3 calls"):
        assert text in svg
        assert text in page
    assert page.startswith("<!doctype html>")
    assert '<td class="key">gpt-5.4</td>' in page


def test_a_picture_is_drawn_the_same_again(cli: Cli, used: str, tmp_path: Path) -> None:
    for name in ("one.svg", "other.svg"):
        cli("usage", "--by", "model", "--plot", str(tmp_path / name))
    assert tmp_path.joinpath("one.svg").read_bytes() == tmp_path.joinpath("other.svg").read_bytes()


@pytest.mark.parametrize("names", [["<b>", "$a$ & $b$"], ["\ud800", "\x00", "\ufffe", "a\nb\tc"], ["x" * 200, None]])
def test_no_name_spoils_a_picture(tmp_path: Path, names: list[str | None]) -> None:
    rows = [UsageRow({"model": name}, attempts=1, total_tokens=5) for name in names]
    for name in ("usage.svg", "usage.html"):
        usage_plot.check_plot(tmp_path / name, ["model"])
        usage_plot.write_plot(tmp_path / name, ["model"], rows)
    assert "<b>" not in tmp_path.joinpath("usage.html").read_text()
    ET.fromstring(tmp_path.joinpath("usage.svg").read_text())


def test_every_series_has_its_name_in_the_legend(tmp_path: Path) -> None:
    names = ["_private", "x" * 200, "a\nb", "others", "m1", "m2", "m3", "m4", "m5"]
    rows = [
        UsageRow({"day": date(2026, 1, day), "model": name}, attempts=20 - number)
        for number, name in enumerate(names)
        for day in (1, 2)
    ]
    usage_plot.check_plot(tmp_path / "usage.svg", ["day", "model"])
    usage_plot.write_plot(tmp_path / "usage.svg", ["day", "model"], rows)
    texts = [one.text for one in ET.fromstring(tmp_path.joinpath("usage.svg").read_text()).iter() if one.text]
    assert {"_private", "x" * 29 + "\u2026", "a\\nb", "others", "m1", "m2", "m3", "all others"} <= set(texts)


@pytest.mark.slow
def test_a_year_of_hours_is_drawn_at_once(tmp_path: Path) -> None:
    """Each hour has its column, in a file that browsers show."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        UsageRow({"hour": begin + timedelta(hours=hour), "model": f"m{hour % 3}"}, attempts=hour)
        for hour in range(8760)
    ]
    usage_plot.check_plot(tmp_path / "usage.svg", ["hour", "model"])
    usage_plot.write_plot(tmp_path / "usage.svg", ["hour", "model"], rows)
    drawn = tmp_path.joinpath("usage.svg").read_text()
    assert drawn.count('<rect class="k') == 8759 + 3  # the first hour had no calls; three names
    assert len(drawn) < 2_000_000


def test_all_days_have_a_place_in_a_picture() -> None:
    """Also those without usage; what is unknown is not drawn as zero."""
    days = [date(2026, 2, 27), date(2026, 3, 2)]
    rows = [UsageRow({"day": day, "model": "m"}, attempts=1, total_tokens=5) for day in days]
    rows.append(UsageRow({"day": days[0], "model": "other"}, attempts=1))
    result = usage_plot.plot_of(["model", "day"], rows, "total_tokens", "last week")
    assert result.axis == [days[0], date(2026, 2, 28), date(2026, 3, 1), days[1]]
    assert result.series == {"m": [5.0, 0.0, 0.0, 5.0]}
    assert result.title == "Tokens by model per day, last week"
    flat = usage_plot.plot_of(["model"], rows, "total_tokens")
    assert (flat.axis, flat.series) == (["m", "other"], {"": [10.0, 0.0]})
    assert flat.unknown == {"other"}


def test_keys_that_read_alike_are_not_drawn_as_one() -> None:
    users = ["unknown", None]
    rows = [
        UsageRow({"day": date(2026, 1, 1), "user_id": user}, attempts=number + 1) for number, user in enumerate(users)
    ]
    assert usage_plot.plot_of(["user_id"], rows, "attempts").axis == ["unknown (2)", "unknown"]
    assert usage_plot.plot_of(["user_id", "day"], rows, "attempts").series == {"unknown (2)": [2.0], "unknown": [1.0]}
    pairs = [{"provider": "a / b", "model": "c"}, {"provider": "a", "model": "b / c"}]
    drawn = usage_plot.plot_of(["provider", "model"], [UsageRow(pair, attempts=1) for pair in pairs], "attempts")
    assert (drawn.axis, drawn.series) == (["a / b / c", "a / b / c (2)"], {"": [1.0, 1.0]})


def test_months_weeks_and_hours_follow_each_other() -> None:
    def places(kind: str, *times: Any) -> Any:
        return usage_plot.plot_of([kind], [UsageRow({kind: at}, attempts=1) for at in times], "attempts").axis

    assert places("month", date(2025, 11, 1), date(2026, 2, 1)) == [
        date(2025, 11, 1), date(2025, 12, 1), date(2026, 1, 1), date(2026, 2, 1),
    ]  # fmt: skip
    assert places("week", date(2026, 2, 23), date(2026, 3, 9)) == [
        date(2026, 2, 23), date(2026, 3, 2), date(2026, 3, 9),
    ]  # fmt: skip
    begin = datetime(2026, 3, 29, 0, tzinfo=timezone(timedelta(hours=1)))
    end = datetime(2026, 3, 29, 4, tzinfo=timezone(timedelta(hours=2)))
    assert [at.astimezone(UTC).hour for at in places("hour", begin, end)] == [23, 0, 1, 2]


def test_many_series_are_drawn_as_others() -> None:
    rows = [UsageRow({"day": date(2026, 1, 1), "model": f"m{number}"}, attempts=number + 1) for number in range(30)]
    result = usage_plot.plot_of(["day", "model"], rows, "attempts")
    assert [*result.series] == [f"m{number}" for number in range(29, 22, -1)] + ["others"]
    assert result.series["others"] == [float(sum(range(1, 24)))]
    flat = usage_plot.plot_of(["model"], rows, "attempts")
    assert (len(flat.axis), flat.axis[-1], flat.series[""][-1]) == (26, "others", 15.0)


# Tables for people


def test_bars_and_groups_on_a_terminal(cli: Cli, used: str) -> None:
    shown = cli.on_terminal("usage", "--by", "status,model")
    lines = [line.split() for line in shown.splitlines()]
    assert next(line for line in lines if "gpt-5.4" in line)[:6] == ["completed", "gpt-5.4", "1", "12", "5", "17"]
    assert "█" in shown
    assert "cached" not in shown  # no provider reported it


def test_a_narrow_terminal_keeps_its_bars(cli: Cli, used: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Cli, "environment", lambda self, old=Cli.environment: {**old(self), "COLUMNS": "64"})
    shown = cli.on_terminal("usage", "--by", "model")
    assert "█" in shown
    assert "total" not in shown.splitlines()[1]


def test_figures_for_people() -> None:
    shown = [
        (short(None), "-"), (short(0), "0"), (short(99_999), "99,999"), (short(100_000), "100k"),
        (short(1_234_567), "1.23M"), (short(98_765_432), "98.8M"), (short(5 * 10**12), "5.00T"),
        (dollars(None), "-"), (dollars(0), "0.000000"), (dollars(12_345_678_900), "12.35"),
        (dollars(123_456_789), "0.1235"), (dollars(1_234), "0.000001"), (dollars(4_000, decimals=2), "<0.01"),
        (percent(None), "-"), (percent(0.256), "26%"),
        (milliseconds(None), "-"), (milliseconds(999), "999 ms"), (milliseconds(2_250), "2.2 s"),
        (size(None), "-"), (size(1_023), "1,023 B"), (size(1_536), "1.5 KiB"), (size(3 * 2**50), "3,072.0 TiB"),
        (bar(1, 1, 3), "███"), (bar(1, 2, 1), "▌"), (bar(1, 10**6, 4), "▏"), (bar(0, 5, 4), ""), (bar(None, 5, 4), ""),
        (bar(1, 2, 4, is_plain=True), "##"),
        (time_text("30d", None), "last 30 days"), (time_text("2w", "2026-01-01"), "since 2w until 2026-01-01"),
        (time_text(None, None), ""), (time_text(None, "1d"), "until 1d"),
    ]  # fmt: skip
    assert [text for text, _ in shown] == [expected for _, expected in shown]


def test_what_a_picture_shows() -> None:
    assert measure_of([UsageRow({}, attempts=2, total_tokens=1, cost_nano=5, costs=2)]) == "cost_nano"
    assert measure_of([UsageRow({}, attempts=2, total_tokens=1, cost_nano=5, costs=1)]) == "total_tokens"
    assert measure_of([UsageRow({}, attempts=2)]) == "attempts"


# Days, tools, sizes


def test_days_are_summed_up(cli: Cli, used: str) -> None:
    with cli.store() as store:
        attempt_at(store.get_conversation(used), datetime.now(UTC) - timedelta(days=3), figures={"input_tokens": 1})
    before = cli("usage", "--by", "day").out
    assert cli("db", "reconcile").out in {"2 days rolled up, 0 repaired.\n", "3 days rolled up, 0 repaired.\n"}
    assert cli("db", "reconcile", "--tenant", "default", "--json").json == {"filled": 0, "repaired": 0}
    assert cli("usage", "--by", "day").out == before
    cli("db", "reconcile", "--tenant", "missing", code=3)


def test_costs_are_computed_again(cli: Cli, used: str) -> None:
    march = datetime(2026, 3, 1, 12, tzinfo=UTC)
    usage = {"input_tokens": 100, "output_tokens": 10}
    with cli.store() as store:
        attempt_at(store.get_conversation(used), march, model="gpt-5.4", figures=usage, usage=usage, cost=1)
    span = ("--since", "2026-03-01", "--until", "2026-03-02")
    assert cli("db", "reprice", *span).out == "1 cost of 1 attempt changed, 0 kept.\n"
    assert cli("db", "reprice", *span, "--json").json == {"attempts": 1, "changed": 0, "kept": 0}
    cli("db", "reprice", "--tenant", "missing", code=3)
    cli("db", "reprice", "--since", "2026-03-02", "--until", "2026-03-01", code=2)


def test_nothing_is_summed_up_where_nothing_is(cli: Cli) -> None:
    assert cli("db", "reconcile").out == "0 days rolled up, 0 repaired.\n"


def test_numbers_of_things() -> None:
    assert [number_of(count, "day") for count in (0, 1, 2_000)] == ["0 days", "1 day", "2,000 days"]
    assert [number_of(count, "body", "bodies") for count in (1, 2)] == ["1 body", "2 bodies"]


def test_tools(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.get_conversation(stored).add_items([a_call("x", "find"), an_output("x"), a_call("y", "find")])
    assert cli("tools").rows == [{"name": "find", "calls": "2", "unanswered": "1", "failed": "0"}]
    assert cli("tools", "--since", "1d", "--user", "ada", "--json").json["tools"][0]["calls"] == 2
    [by_day] = cli("tools", "--by", "day", "--percentiles").rows
    assert (by_day["period"], by_day["calls"]) == (f"{datetime.now(UTC):%Y-%m-%d}", "2")
    assert float(by_day["p95"]) >= 0
    assert re.search(r"find .* \d+ ms", plain(cli.on_terminal("tools", "--percentiles")))
    assert "no tool was called" in cli("tools", "--user", "bob").err


def test_stats(cli: Cli, used: str, tmp_path: Path) -> None:
    result = cli("stats", "--json").json
    assert (result["active"], result["responses"], result["attempts"]) == (1, 2, 3)
    assert [one["id"] for one in result["largest"]] == [used]
    plain = cli("stats").out
    assert f"items\t{result['items']}\n" in plain
    assert used in plain
    cli("db", "upgrade", "--url", f"sqlite:///{tmp_path}/empty.db")
    assert used not in cli("stats", "--largest", "1", "--url", f"sqlite:///{tmp_path}/empty.db").out
    assert "Largest conversations" in cli.on_terminal("stats")
    cli("stats", "--largest", "0", code=2)
    assert "media\t\n" in cli("stats", "--user", "ada").out  # the media of one user are not counted


# Costs and means


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


@pytest.fixture
def priced(cli: Cli) -> Cli:
    """Three calls on three models: two have a cost, and one of these has a latency."""
    with cli.store() as store:
        conversation = store.create_conversation(model="gpt-5.4")
        for number, (model, cost, latency) in enumerate([("a", 0.25, 2500), ("a", None, None), ("b", 0.0005, None)]):
            usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15, "cost": cost}
            answer = {**ANSWER, "id": f"resp_{number}", "model": model, "usage": usage}
            conversation.add_response(answer, "open_responses", latency_ms=latency)
    return cli


def test_json_has_costs_in_dollars(priced: Cli) -> None:
    rows = {row["model"]: row for row in priced("usage", "--by", "model", "--json").json["usage"]}
    assert {model: (row["cost_usd"], row["cost_nano"], row["costs"]) for model, row in rows.items()} == {
        "a": (0.25, 250_000_000, 1),
        "b": (0.0005, 500_000, 1),
    }
    with priced.store() as store:
        [row] = store.usage()
        assert row.to_dict()["cost_usd"] == float(row.cost_usd or 0) == 0.2505
        assert json.loads(json.dumps(row.to_dict())) == row.to_dict()
    assert UsageRow({}).to_dict()["cost_usd"] is UsageRow({}).mean_cost_usd is None


@pytest.mark.slow
def test_a_cost_that_is_partly_unknown_is_marked(priced: Cli) -> None:
    shown = [line.split() for line in plain(priced.on_terminal("usage", "--by", "model")).splitlines()]
    costs = {line[0]: [word for word in line if word == "≥" or "." in word] for line in shown if len(line) > 2}
    assert (costs["a"], costs["b"], costs["total"]) == (["2.5", "≥", "0.2500"], ["0.0005"], ["2.5", "≥", "0.2505"])
    assert "≥: the cost is known of 2 of 3 calls" in " ".join(map(" ".join, shown))
    assert "≥" not in priced.on_terminal("usage", "--by", "model", "--model", "b")
    assert ">= 0.2505" in plain(priced.on_terminal("usage", PYTHONIOENCODING="ascii"))
    assert dollars(4_000, decimals=2, at_least="≥ ") == "≥ 0.00"


@pytest.mark.parametrize(
    ("figure", "texts"),
    [
        ("mean_cost_usd", ["Mean cost of a call by model", "$0.25", "Without 1 of 3 calls"]),
        ("mean_latency_ms", ["Mean latency by model", "2.5 s", "unknown"]),
        ("cache_hit_ratio", ["Share of the input that came from caches by model", "unknown"]),
    ],
)
def test_means_can_be_drawn(priced: Cli, tmp_path: Path, figure: str, texts: list[str]) -> None:
    for by in ("model", "day,model", "hour"):
        path = tmp_path / f"{by}.svg"
        priced("usage", "--by", by, "--figure", figure, "--plot", str(path))
        ET.fromstring(path.read_text())
    drawn = tmp_path.joinpath("model.svg").read_text()
    assert [text for text in texts if text not in drawn] == []
    assert priced.on_terminal("usage", "--by", "model", "--figure", figure)


def test_means_are_not_added_up() -> None:
    def row(day: int, model: str, **sums: int) -> UsageRow:
        return UsageRow({"day": date(2026, 1, day), "model": model}, attempts=9, **sums)

    many = [row(1, f"m{number}", latency_ms=100, latencies=10) for number in range(8)]
    rows = [*many, row(1, "x", latency_ms=400, latencies=1), row(1, "y", latency_ms=800, latencies=2), row(2, "z")]
    rows.append(row(3, "m0", latency_ms=30, latencies=1))
    drawn = usage_plot.plot_of(["day", "model"], rows, "mean_latency_ms").series
    assert drawn["m0"] == [10.0, pytest.approx(math.nan, nan_ok=True), 30.0]
    assert drawn["others"][0] == (100 + 400 + 800) / (10 + 1 + 2)
    assert "z" not in drawn
    ratio = [UsageRow({"model": "m"}, attempts=3, input_tokens=9, cached_tokens=2, cache_known_tokens=8)]
    assert usage_plot.plot_of(["model"], ratio, "cache_hit_ratio").series == {"": [0.25]}


def test_every_label_of_a_time_is_another_one() -> None:
    winter, summer = timezone(timedelta(hours=1)), timezone(timedelta(hours=2))
    begin = datetime(2026, 10, 24, 22, tzinfo=UTC)
    hours = [begin + timedelta(hours=hour) for hour in range(72)]
    changing = [at.astimezone(summer if hour < 3 else winter) for hour, at in enumerate(hours)]
    days = [date(2025, 12, 1) + timedelta(days=day) for day in range(800)]
    for kind, times in (("hour", hours), ("hour", changing), ("day", days), ("week", days[::7]), ("day", days[:20])):
        labels = usage_plot.time_labels(kind, times)
        assert len(set(labels)) == len(times)
        assert all(f"{at.day} {at:%b}" in label for at, label in zip(times, labels, strict=True))
    assert usage_plot.time_labels("hour", hours)[:3] == ["22:00\n24 Oct 2026", "23:00\n24 Oct", "00:00\n25 Oct"]
    assert usage_plot.time_labels("hour", changing)[2:4] == ["02:00+02:00\n25 Oct", "02:00+01:00\n25 Oct"]
    assert usage_plot.time_labels("month", [date(2025, 1, 1), date(2026, 1, 1)]) == ["Jan\n2025", "Jan\n2026"]
