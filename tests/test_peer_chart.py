"""The chart of other libraries beside threadkeep."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree as ET

import pytest

from benchmarks.peers.chart import drawn

SVG = "{http://www.w3.org/2000/svg}"


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
