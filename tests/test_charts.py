"""The charts of other libraries beside threadkeep, and of the server beside a bare pass-through."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.chart import drawn, served
from benchmarks.report import ANSWERS

SVG = "{http://www.w3.org/2000/svg}"
ROOT = Path(__file__).parents[1]


def figures(**ratios: float) -> dict[str, Any]:
    column = {name: {"seconds": ratio / 1000, "over_threadkeep": ratio} for name, ratio in ratios.items()}
    return {"sqlite": {"tables": [{"what": "Append a turn", "columns": {"N=200": column}}]}}


def bars(svg: str) -> dict[str, float]:
    """The lengths of bars by class."""
    found = ET.fromstring(svg).iter(f"{SVG}rect")
    return {bar.attrib["class"]: float(bar.attrib["width"]) for bar in found}


def test_bars_grow_with_the_logarithm_of_the_time() -> None:
    widths = bars(drawn(figures(threadkeep=1.0, other=10.0)))
    assert widths["peer"] == pytest.approx(2 * widths["own"])


def test_what_takes_longer_than_the_scale_has_its_longest_bar_and_its_figure() -> None:
    svg = drawn(figures(threadkeep=1.0, other=1234.0))
    assert bars(svg)["peer"] == pytest.approx(3 * bars(svg)["own"])
    assert "1234x, 1.23 s" in svg


def test_a_library_that_was_refused_is_left_out() -> None:
    found = figures(threadkeep=1.0)
    found["sqlite"]["tables"][0]["columns"]["N=200"]["other"] = {"error": "OperationalError: database is locked"}
    assert bars(drawn(found)).keys() == {"own"}


def test_the_same_figures_give_the_same_file() -> None:
    assert drawn(figures(threadkeep=1.0, other=3.0)) == drawn(figures(threadkeep=1.0, other=3.0))


def calls(**over: dict[str, float]) -> dict[str, Any]:
    """The figures of answers over those of the bare pass-through, and of the other build."""
    names = {"bare": "over a bare pass-through", "other": "over the other build"}
    return {"lines": [{"what": f"{ANSWERS}, {names[base]}", "database": "SQLite", **over[base]} for base in over]}


def test_calls_are_shown_beside_the_pass_through_and_the_build_before() -> None:
    svg = served(calls(bare={"value": 0.1, "cpu_ratio": 5.0}, other={"value": 4.0, "cpu_ratio": 0.5}))
    shown = [text.text for text in ET.fromstring(svg).iter(f"{SVG}text") if str(text.text).endswith("x")]
    assert shown == ["1x", "0.1x", "0.025x", "1x", "5x", "10x"]


def test_without_another_build_there_is_no_bar_of_it() -> None:
    svg = served(calls(bare={"value": 0.1, "cpu_ratio": 5.0}))
    assert bars(svg).keys() == {"floor", "own"}


def test_the_chart_of_the_server_shows_the_figures_that_are_kept() -> None:
    """After a change of these: ``python -m benchmarks.chart benchmarks/serving.json docs/assets/server.svg``."""
    figures_of_server = json.loads((ROOT / "benchmarks/serving.json").read_text())
    assert (ROOT / "docs/assets/server.svg").read_text() == served(figures_of_server)
