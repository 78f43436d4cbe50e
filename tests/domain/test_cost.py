"""Costs that providers report, and prices of one's own."""

from __future__ import annotations

from decimal import Decimal
from typing import Any

import pytest

from threadkeep import InvalidOption, Price
from threadkeep.domain.usage import MAX_COST, reported_cost, whole_nano


@pytest.mark.parametrize(
    ("usage", "nano"),
    [
        ({"cost": 0.00093}, 930_000),  # OpenRouter
        ({"cost": 0.0004970133333333333}, 497_013),
        ({"cost": 0}, 0),
        ({"cost": 1}, 10**9),
        ({"cost": "0.5"}, 5 * 10**8),
        ({"cost": {"input_tokens_cost": 1e-05, "request_cost": 0.005, "total_cost": 0.00507}}, 5_070_000),  # Perplexity
        ({"cost_in_usd_ticks": 9_243_500}, 924_350),  # xAI
        ({"cost_in_usd_ticks": 5}, 0),  # half a nano-dollar goes to the even number
        ({"cost_in_usd_ticks": 15}, 2),
        ({"cost_in_usd_ticks": 0}, 0),
        ({"cost": 1e-12}, 0),
        ({"cost": 1, "cost_in_usd_ticks": 10}, 1),
        (None, None),
        ({}, None),
        ({"total_tokens": 5}, None),
        ({"cost": None}, None),
        ({"cost": True}, None),
        ({"cost": -0.5}, None),
        ({"cost": "free"}, None),
        ({"cost": float("nan")}, None),
        ({"cost": float("inf")}, None),
        ({"cost": {"total_cost": None}}, None),
        ({"cost": [1]}, None),
        ({"cost": 10**7}, None),  # ten million dollars: no answer costs that
        ({"cost": "1e999999"}, None),
        ({"cost": "1e-999999"}, 0),
        # OpenRouter with a key of one's own: what the provider behind it bills comes on top of the fee
        ({"cost": 0.01, "is_byok": True, "cost_details": {"upstream_inference_cost": 0.2}}, 210_000_000),
        ({"cost": 0.01, "is_byok": False, "cost_details": {"upstream_inference_cost": 0.01}}, 10_000_000),
        ({"cost": 0, "is_byok": True, "cost_details": {"upstream_inference_cost": None}}, None),
        ({"cost": 0, "is_byok": True}, None),
    ],
)
def test_the_figure_of_the_provider(usage: dict[str, Any] | None, nano: int | None) -> None:
    assert reported_cost(usage) == nano


def test_amounts_are_whole_nano_dollars(caplog: pytest.LogCaptureFixture) -> None:
    assert [whole_nano(Decimal(text)) for text in ("0.5", "1.5", "2.500001", "0")] == [0, 2, 3, 0]
    assert not caplog.messages
    assert whole_nano(Decimal(MAX_COST)) is None
    assert ["1,000,000 USD" in message for message in caplog.messages] == [True]


@pytest.mark.parametrize(
    "given",
    [
        {"model": "", "input": 1, "output": 1},
        {"model": 7, "input": 1, "output": 1},
        {"model": "m", "input": -1, "output": 1},
        {"model": "m", "input": "free", "output": 1},
        {"model": "m", "input": None, "output": 1},
        {"model": "m", "input": 1, "output": float("nan")},
        {"model": "m", "input": 1, "output": 1, "cached": True},
        {"model": "m", "input": 1, "output": "1e999999"},
        {"model": "m", "input": 1, "output": 1, "provider": ["openai", "azure"]},
        {"model": "m", "input": 1, "output": 1, "provider": ""},
    ],
    ids=str,
)
def test_other_prices_are_refused(given: dict[str, Any]) -> None:
    wrong = list(given)[-1] if len(given) > 3 or given["output"] != 1 else "model" if given["model"] != "m" else "input"
    with pytest.raises(InvalidOption, match=f"^{wrong} must be") as caught:
        Price(**given)
    assert caught.value.argument == wrong


def test_whose_price_it_is() -> None:
    price = Price("llama-*", "0.1", 0.2, provider="mine")
    assert (price.input, price.output, price.cached) == (Decimal("0.1"), Decimal("0.2"), None)
    assert price.is_for("mine", "llama-3")
    assert not price.is_for("other", "llama-3")
    assert not price.is_for(None, "llama-3")
    assert not price.is_for("mine", "Llama-3")
    assert Price("m", 1, 1).is_for(None, "m")


@pytest.mark.parametrize(
    ("pattern", "model", "fits"),
    [
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5[1m]", True),
        ("claude-sonnet-4-5[1m]", "claude-sonnet-4-5m", False),
        ("m?", "mx", False),
        ("*[1m]", "claude[1m]", True),
        ("a.c", "abc", False),
        ("*", "two\nlines", True),
        ("m", "m\n", False),
        ("*a*b*c", "xaybacbc", True),
        ("a*a", "a", False),
        ("*a" * 20 + "*b", "a" * 200, False),  # at once
    ],
)
def test_only_the_asterisk_is_special(pattern: str, model: str, *, fits: bool) -> None:
    assert Price(pattern, 1, 1).is_for(None, model) is fits
