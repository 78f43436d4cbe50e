"""The dashboard: sums, charts with their tables, links to what is counted, CSV; and the search."""

from __future__ import annotations

import csv
import html
import io
import re
from datetime import UTC, datetime, timedelta

import pytest

from tests.viewer.conftest import MAX_STATEMENTS, Pages
from tests.viewer.samples import answer, with_tools
from threadkeep.domain.charts import Day, columns, lines
from threadkeep.viewer import Owner
from threadkeep.viewer.texts import MAX_DECIMALS, UNKNOWN, axis_count, axis_duration, money, money_padding


def test_sums_and_what_they_lead_to(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    html = pages.get("/usage")
    today = datetime.now(UTC).date()
    for text in ("240", "60.0 %", "33.3 %", 'href="/?model=gpt-5.4&', "gpt-5.4", f"on={today}", "1.2 s", "Trains",
                 f"/c/{conversation.id}", "user=ann"):  # fmt: skip
        assert text in html, text
    for address in set(re.findall(r'href="(/[^"#]*)"', html)):
        assert pages.client().get(address.replace("&amp;", "&")).status_code == 200, address


def called(pages: Pages, user: str, *, provider: str = "openai", latency_ms: int = 100) -> None:
    """A conversation of a user that called the model of the same name."""
    conversation = pages.store.create_conversation(user_id=user, title=f"of {user}", model=f"model-{user}")
    conversation.user("Hello")
    body = {**answer("Hi"), "model": f"model-{user}"}
    conversation.add_response(body, "chat_completion", provider=provider, latency_ms=latency_ms)


def listed(pages: Pages, path: str, pattern: str) -> set[tuple[str, ...]]:
    """The titles behind each link of a page whose address fits."""
    links = {html.unescape(link) for link in re.findall(r'href="(/\?[^"#]*)"', pages.get(path))}
    found = [link for link in links if re.search(pattern, link)]
    return {tuple(re.findall(r'class="title" href="[^"]+">([^<]+)<', pages.get(link))) for link in found}


@pytest.mark.parametrize("filters", ["user=ann", "model=model-ann", "provider=ours", "user=ann&model=model-ann"])
def test_figures_lead_to_what_fits_the_filters(pages: Pages, filters: str) -> None:
    called(pages, "ann", provider="ours", latency_ms=100)
    called(pages, "ben", latency_ms=90_000)
    for pattern in (r"on=[\d-]+&status", "model=", "user="):
        assert listed(pages, f"/usage?{filters}", pattern) == {("of ann",)}, pattern
    page = pages.get(f"/usage?{filters}")
    assert "model-ben" not in page
    assert "min 30 s" not in page


def test_latencies_are_those_of_all_calls_by_day_and_by_model(pages: Pages) -> None:
    for number in range(1, 101):
        called(pages, "ann" if number > 50 else "ben", latency_ms=100 * number)
    table = r'{}</(?:th|a></th)>((?:<td class="n">[^<]*</td>){{4}})</tr>'
    found = pages.get("/usage")
    for key, latencies in {
        str(datetime.now(UTC).date()): (5.0, 9.5, 9.9),
        "model-ben": (2.5, 4.8, 5.0),
        "model-ann": (7.5, 9.8, 10.0),
    }.items():
        [figures] = re.findall(table.format(key), found)
        shown = [float(text) for text in re.findall(r">([\d.]+) s<", figures)]
        assert shown == pytest.approx(latencies, rel=0.02), key


def test_a_cost_that_leaves_calls_out_says_so(pages: Pages) -> None:
    conversation = pages.store.create_conversation(model="m")
    conversation.record_attempt("chat_completion", usage={"prompt_tokens": 1, "cost": 0.5})
    assert "<dd>$0.500</dd>" in pages.get("/usage")
    conversation.record_attempt("chat_completion", error="timeout", status="failed")
    page = pages.get("/usage")
    assert "<dd>≥ $0.500</dd>" in page
    assert "The cost is known of 1 of 2 calls." in page


def test_models_and_users_lead_to_the_days_that_are_shown(pages: Pages) -> None:
    called(pages, "ann")
    today = datetime.now(UTC).date()
    for name in ("model=model-ann", "user=ann"):
        address = html.unescape(pages.get("/usage?days=7"))
        assert re.search(rf'href="/\?[^"]*{name}[^"]*"', address)
        assert f"on={today - timedelta(6)}&through={today}" in address
        assert listed(pages, "/usage?days=7", name) == {("of ann",)}


def test_only_what_an_owner_has_is_counted(pages: Pages) -> None:
    with_tools(pages.store)
    assert "Trains" in pages.get("/usage", user="ann")
    assert "No calls in these days" in pages.get("/usage", user="ben")
    assert "Trains" not in pages.get("/usage", user="ben")


def test_titles_need_the_scope_for_reading(pages: Pages) -> None:
    with_tools(pages.store)
    owner = Owner(tenant=pages.tenant, scopes=frozenset({"usage"}))
    html = pages.client("", auth=lambda _: owner).get("/usage").text
    assert "Trains" not in html
    assert 'href="/c/' not in html
    reader = Owner(tenant=pages.tenant, scopes=frozenset({"read"}))
    assert pages.client("", auth=lambda _: reader).get("/usage").status_code == 403


@pytest.mark.parametrize(
    ("query", "shown"),
    [
        ("days=7", "Tokens by day"),
        ("tz=Asia/Tokyo", "Tokens by day"),
        ("model=gpt-5.4&user=ann", "Tokens by day"),
        ("since=2026-01-01&until=2026-03-01", "No calls in these days"),
    ],
)
def test_other_periods(pages: Pages, query: str, shown: str) -> None:
    with_tools(pages.store)
    page = pages.get(f"/usage?{query}")
    assert [text for text in ("Tokens by day", "No calls in these days") if text in page] == [shown]


@pytest.mark.parametrize("query", ["days=x", "days=0", "tz=Nowhere", "since=2020-01-01&until=2026-01-01", "since=x"])
def test_periods_that_cannot_be_shown(pages: Pages, query: str) -> None:
    assert "This cannot be shown" in pages.get(f"/usage?{query}", status=400)


@pytest.mark.parametrize("path", ["/usage", "/usage.csv", "/usage/tools"])
@pytest.mark.parametrize("query", ["until=0001-01-01", "until=9999-12-31", "since=0001-01-01&until=0001-02-01"])
def test_days_at_the_ends_of_the_calendar(pages: Pages, path: str, query: str) -> None:
    assert "must be a day from 1970-01-01 to 9998-12-31" in pages.get(f"{path}?{query}", status=400)


@pytest.mark.parametrize("path", ["/usage", "/usage.csv", "/usage/tools"])
@pytest.mark.parametrize("day", ["1970-01-01", "9998-12-31"])
@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
def test_the_first_and_the_last_day_in_any_time_zone(pages: Pages, path: str, day: str, zone: str) -> None:
    assert pages.client().get(f"{path}?until={day}&tz={zone}").status_code == 200


@pytest.mark.parametrize("day", ["0001-01-01", "9999-12-31"])
def test_days_of_the_list_at_the_ends_of_the_calendar(pages: Pages, day: str) -> None:
    for name in ("since", "until", "on"):
        pages.get(f"/?{name}={day}")


def test_sums_as_csv(pages: Pages) -> None:
    with_tools(pages.store, user="=cmd()")
    response = pages.client().get("/usage.csv?by=user_id,model")
    [row] = csv.DictReader(io.StringIO(response.text))
    assert (row["user_id"], row["model"], row["total_tokens"]) == ("'=cmd()", "gpt-5.4", "240")
    assert "must be some of" in pages.get("/usage.csv?by=secret", status=400)


def test_pages_take_a_few_statements(pages: Pages) -> None:
    for number in range(15):
        with_tools(pages.store, user=f"user {number}").update(title=f"Trains {number}" if number % 2 else None)
    with_tools(pages.store).fork(at=0).user("And then?")
    assert pages.statements("/usage") <= MAX_STATEMENTS
    assert pages.statements("/usage?tz=Asia/Tokyo") <= MAX_STATEMENTS
    assert pages.statements("/search?q=train") <= MAX_STATEMENTS


def test_how_often_functions_were_called(pages: Pages) -> None:
    with_tools(pages.store)
    html = pages.get("/usage/tools")
    assert re.search(r"timetable.*<td class=\"n\">\d+ ms</td><td class=\"n\">\d+ ms</td></tr>", html)
    assert re.search(r'q=timetable">timetable</a>.*?<td class="n">1</td><td class="n">0</td>', html, re.DOTALL)
    assert "No function was called" in pages.get("/usage/tools", user="ben")
    assert pages.statements("/usage/tools") <= MAX_STATEMENTS


def test_search_results_lead_to_their_place(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    conversation.user("<b>train</b>")
    html = pages.get("/search?q=train")
    assert "<mark>train</mark>" in html
    assert "&lt;b&gt;<mark>train</mark>&lt;/b&gt;" in html
    assert f'href="/c/{conversation.id}?branch=0&amp;from=4#p4"' in html
    assert "Nothing was found" in pages.get("/search?q=train", user="ben")
    assert "Nothing was found" in pages.get("/search?q=nowhere")
    assert "All words have to occur" in pages.get("/search")
    assert "This cannot be shown" in pages.get("/search?q=%22", status=400)


def test_search_results_have_pages(pages: Pages) -> None:
    conversation = pages.store.create_conversation()
    conversation.add_items([{"role": "user", "content": f"apple {number}"} for number in range(35)])
    first = pages.get("/search?q=apple")
    following = re.search(r'rel="next" href="([^"]+)"', first)
    assert following
    second = pages.get("/search" + following[1].replace("&amp;", "&"))
    found = [set(re.findall(r"#p(\d+)\"", html)) for html in (first, second)]
    assert found[0] | found[1] == {str(number) for number in range(35)}
    assert not found[0] & found[1]


# Geometry


def test_columns_fill_the_height_and_keep_their_order() -> None:
    chart = columns([Day("a", (1, 1), "two"), Day("b", (4, 0), "four")], str)
    low, high = chart.columns
    (below, above), (only,) = low.parts, high.parts
    assert (below[2], above[2]) == ("k1", "k2")
    assert below[0] == pytest.approx(above[0] + above[1])
    assert only[1] == pytest.approx(2 * (below[1] + above[1]))
    assert only[0] == pytest.approx(8)


def test_lines_are_interrupted_where_nothing_is_known() -> None:
    [line] = lines(["a", "b", "c", "d"], [[1.0, None, 2.0, 3.0]], str).lines
    assert re.sub(r"[\d. ]+", "", line.path) == "MML"
    assert len(line.points) == 3


def test_a_chart_of_nothing() -> None:
    assert columns([], str).columns == []
    assert lines([], [[]], str).lines[0].path == ""


def test_a_period_ends_today(pages: Pages) -> None:
    html = pages.get("/usage?days=7")
    today = datetime.now(UTC).date()
    assert f"{today - timedelta(6)} to {today}" in html


@pytest.mark.parametrize(("query", "current"), [("", ["30"]), ("?days=7", ["7"]), ("?since=2026-01-01&days=7", [])])
def test_the_current_range_is_marked(pages: Pages, query: str, current: list[str]) -> None:
    assert re.findall(r'aria-current="true">(?:<span.*?</span>)?(\d+) days', pages.get(f"/usage{query}")) == current


def test_axes_have_one_unit() -> None:
    assert [axis_count(value, 20_000) for value in (0, 500, 5_000, 20_000)] == ["0", "0.5k", "5k", "20k"]
    assert [axis_count(value, 900) for value in (0, 450, 900)] == ["0", "450", "900"]
    assert [axis_duration(value, 1_200) for value in (0, 300, 1_200)] == ["0", "0.3 s", "1.2 s"]
    assert [axis_duration(value, 800) for value in (0, 200)] == ["0", "200 ms"]


@pytest.mark.parametrize("nano", [None, 0, 1_000, 12_345_678, 459_000_000, 73_780_000_000])
def test_decimal_points_of_costs_are_below_each_other(nano: int | None) -> None:
    text = money(nano) + money_padding(nano)
    assert text == UNKNOWN or len(text.partition(".")[2]) == MAX_DECIMALS
