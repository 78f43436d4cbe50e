from __future__ import annotations

import copy
import pickle
from decimal import Decimal, localcontext
from typing import Any, get_args

import pytest

from threadkeep.db.queries.usage import COLUMNS, OF_CONVERSATION, OF_RESPONSE, TIMES
from threadkeep.domain.reports import SUMS, UsageFilters, UsageKey, UsageRow, UsageSum
from threadkeep.domain.usage import FIGURES, NormalizedUsage, Usage, figure


@pytest.mark.parametrize(
    ("value", "count"),
    [
        (5, 5),
        (0, 0),
        (5.0, 5),
        ("12", 12),
        (5.5, None),
        (True, None),
        ("x", None),
        ("-1", None),
        (-3, None),
        (-2.0, None),
        (10**18, None),
        (None, None),
        ([], None),
    ],
)
def test_a_count_is_a_whole_number(value: object, count: int | None) -> None:
    """Unknown is null, never zero."""
    assert figure(value) == count
    assert figure(float("nan")) is figure("9" * 30) is None


def test_a_count_that_counts_nothing_is_unknown_and_logged(caplog: pytest.LogCaptureFixture) -> None:
    usage = Usage(input_tokens=-4, output_tokens=5)
    assert (usage.input_tokens, usage.output_tokens) == (None, 5)
    assert [(one.name, one.levelname) for one in caplog.records] == [("threadkeep", "WARNING")]
    assert "-4 tokens" in caplog.text


def test_usage_has_the_figures_of_the_provider() -> None:
    usage = Usage(
        input_tokens=10,
        output_tokens=5,
        input_tokens_details={"cached_tokens": 4, "cache_creation_input_tokens": 2, "text_tokens": 6},
        output_tokens_details={"reasoning_tokens": 3},
    )
    assert (usage.cached_tokens, usage.cache_creation_input_tokens, usage.reasoning_tokens) == (4, 2, 3)
    assert usage.to_dict() == {
        "input_tokens": 10,
        "output_tokens": 5,
        "input_tokens_details": {"cached_tokens": 4, "cache_creation_input_tokens": 2, "text_tokens": 6},
        "output_tokens_details": {"reasoning_tokens": 3},
    }
    assert Usage.from_dict(usage.to_dict()) == usage


def test_flat_reasoning_tokens_move_into_the_details() -> None:
    """Only when there are no details."""
    assert Usage(reasoning_tokens=3).to_dict() == {"output_tokens_details": {"reasoning_tokens": 3}}
    assert Usage(reasoning_tokens=3, output_tokens_details={}).reasoning_tokens is None
    assert Usage.from_dict({"reasoning_tokens": 0}).reasoning_tokens == 0


def test_no_total_is_computed_in_the_figures_of_the_provider() -> None:
    assert Usage(input_tokens=1, output_tokens=2).total_tokens is None
    assert Usage().to_dict() == {}
    assert Usage().cached_tokens is None


@pytest.mark.parametrize(
    ("figures", "normalized"),
    [
        ({}, {}),
        ({"input_tokens": 1}, {"input_tokens": 1}),
        ({"input_tokens": 1, "output_tokens": 2}, {"input_tokens": 1, "output_tokens": 2, "total_tokens": 3}),
        (
            {"input_tokens": 1, "output_tokens": 2, "total_tokens": 9},
            {"input_tokens": 1, "output_tokens": 2, "total_tokens": 9},
        ),
        (
            {"input_tokens_details": {"cached_tokens": 4, "cache_write_tokens": 0}},
            {"cached_tokens": 4, "cache_write_tokens": 0},
        ),
        ({"input_tokens_details": {"cache_creation_input_tokens": 7}}, {"cache_write_tokens": 7}),
        ({"reasoning_tokens": 3}, {"reasoning_tokens": 3}),
    ],
)
def test_figures_of_the_same_name_are_the_normalized_ones(figures: dict[str, Any], normalized: dict[str, int]) -> None:
    """A format whose provider counts otherwise passes its own."""
    assert Usage.from_dict(figures).normalized == NormalizedUsage(**normalized)
    assert Usage.from_dict(figures).normalized.to_dict() == normalized
    given = NormalizedUsage(input_tokens=99)
    assert Usage(input_tokens=1, normalized=given).normalized is given


def test_the_raw_object_is_kept_beside() -> None:
    raw = {"prompt_tokens": 1, "cost": 0.5}
    assert Usage(raw=raw).raw == raw
    assert Usage(raw=raw) == Usage()
    assert Usage(raw=raw).to_dict() == {}
    with pytest.raises(AttributeError):
        Usage().input_tokens = 1  # type: ignore[misc]


def test_a_row_reads_keys_and_figures_as_attributes() -> None:
    row = UsageRow({"day": "2026-01-01", "model": None}, attempts=2, input_tokens=5, cost_nano=7, costs=1)
    values: tuple[Any, ...] = (row.day, row.model, row.attempts, row.input_tokens, row.output_tokens)
    assert values == ("2026-01-01", None, 2, 5, None)
    assert row.to_dict() == {
        "day": "2026-01-01",
        "model": None,
        "attempts": 2,
        **dict.fromkeys(
            (
                *FIGURES,
                "cache_known_tokens",
                "cache_hit_ratio",
                "latency_ms",
                "mean_latency_ms",
                "first_token_ms",
                "mean_first_token_ms",
            )
        ),
        "input_tokens": 5,
        "cost_nano": 7,
        "cost_usd": 7e-09,
        "mean_cost_usd": 7e-09,
        "costs": 1,
        "unknown_costs": 1,
        "latencies": 0,
        "first_tokens": 0,
    }
    with pytest.raises(AttributeError, match=r"'user_id'.*day, model"):
        _ = row.user_id
    measured = copy.copy(row)
    measured.percentiles = {"p50_latency_ms": 1.5}
    assert copy.deepcopy(measured) == pickle.loads(pickle.dumps(measured)) == measured != row
    assert (measured.p50_latency_ms, measured.to_dict()["p50_latency_ms"], row.p50_latency_ms) == (1.5, 1.5, None)
    assert copy.deepcopy(row) == pickle.loads(pickle.dumps(row)) == pickle.loads(pickle.dumps(row, 0)) == row
    assert {row, copy.copy(row)} == {row}
    assert row == UsageRow({"model": None, "day": "2026-01-01"}, attempts=2, input_tokens=5, cost_nano=7, costs=1)
    assert row != UsageRow({"day": "2026-01-01"}, attempts=2, input_tokens=5, cost_nano=7, costs=1)
    assert row != row.to_dict()
    assert repr(row).startswith("UsageRow({'day': '2026-01-01', 'model': None}, attempts=2, input_tokens=5, ")
    for name in ("attempts", "keys", "day"):
        with pytest.raises(AttributeError):
            setattr(row, name, 1)
    assert UsageRow.attempts is vars(UsageRow)["attempts"]  # tools look at it on the class, too


def test_ratios_count_only_what_is_known() -> None:
    row = UsageRow(
        {},
        input_tokens=300,
        cached_tokens=50,
        cost_nano=1_500_000_001,
        latency_ms=30,
        cache_known_tokens=200,
        latencies=2,
    )
    assert (row.cache_hit_ratio, row.mean_latency_ms, row.cost_usd) == (0.25, 15.0, Decimal("1.500000001"))
    unknown = UsageRow({}, input_tokens=300)
    assert (unknown.cache_hit_ratio, unknown.mean_latency_ms, unknown.cost_usd) == (None, None, None)
    assert UsageRow({}, cached_tokens=0, cache_known_tokens=0).cache_hit_ratio is None
    assert UsageRow({}, cached_tokens=6, cache_known_tokens=5).cache_hit_ratio is None


def test_dollars_are_exact_whatever_the_application_has_set_for_its_decimals() -> None:
    with localcontext(prec=3):
        assert UsageRow({}, cost_nano=123_456_789_012_345).cost_usd == Decimal("123456.789012345")


def test_the_types_of_reports_name_what_there_is() -> None:
    """Keys, filters and sums are those of the ledger; every key is an attribute of a row."""
    keys = get_args(UsageKey)
    assert set(keys) == {*TIMES, *COLUMNS, *OF_CONVERSATION, *OF_RESPONSE, "tenant"}
    assert set(UsageFilters.__annotations__) == {*COLUMNS, "labels"}
    assert set(get_args(UsageSum)) == set(SUMS) - {"costs", "latencies", "first_tokens"}
    assert [key for key in keys if getattr(UsageRow({key: 1}), key) != 1] == []
