"""What answers cost: the provider's own figure first, then the application's prices, then those of genai-prices."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import ROUND_UP, Decimal, localcontext
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import unquote

import pytest
from genai_prices.data_snapshot import get_snapshot
from hypothesis import given
from hypothesis import strategies as st

from tests.corpus import recorded
from tests.factories import an_answer
from tests.store.watching import Tables
from threadkeep import AsyncStore, InvalidOption, Price, ProviderError, Store
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Cost, NormalizedUsage
from threadkeep.errors import CannotParse
from threadkeep.formats import FormatName, get_format
from threadkeep.store.usage.billing import UNITS, BillableCall
from threadkeep.store.usage.prices import PriceBook, PriceSheet

NOW = datetime(2026, 11, 1, 12, tzinfo=UTC)
BOOK = PriceBook()
FIGURES = NormalizedUsage(input_tokens=1_000, cached_tokens=400, cache_write_tokens=100, output_tokens=50)


def served(**given: Any) -> BillableCall:
    known: dict[str, Any] = {
        "format": "open_responses", "provider": None, "model": "gpt-5.4", "figures": FIGURES, "usage": {},
        "terms": {}, "at": NOW,
    }  # fmt: skip
    return BillableCall(**(known | given))


def listed(cost: Cost | None) -> int:
    """A cost from the list of genai-prices."""
    assert cost is not None
    assert json.loads(cost.price)["source"].startswith("genai-prices ")
    return cost.nano


# The list


def priced() -> list[tuple[Any, Any]]:
    """The models of the list, with their providers, that are found by their own names."""
    return [
        (provider, model)
        for provider in get_snapshot().providers
        for model in provider.models
        if provider.find_model(model.id) is model and all(sign not in model.id for sign in "*?[")
    ]


TOKENS = st.integers(0, 300_000)


@given(st.deferred(lambda: st.sampled_from(priced())), TOKENS, TOKENS, TOKENS, TOKENS)
def test_tokens_cost_what_the_list_says(found: Any, rest: int, cached: int, written: int, output: int) -> None:
    """The same figure as genai-prices computes, for every model that it knows, at every size."""
    provider, model = found
    figures = NormalizedUsage(
        input_tokens=rest + cached + written, cached_tokens=cached, cache_write_tokens=written, output_tokens=output
    )
    ours = BOOK.cost(served(provider=provider.id, model=model.id, figures=figures))
    usage = {
        "input_tokens": figures.input_tokens, "cache_read_tokens": cached, "cache_write_tokens": written,
        "output_tokens": output,
    }  # fmt: skip
    prices = model.get_prices(NOW)
    theirs = model.calc_price(usage, provider, genai_request_timestamp=NOW).total_price * 10**9
    if any(vars(prices).get(name) is not None for name in ("input_mtok", "output_mtok", "requests_kcount")):
        assert listed(ours) == theirs.to_integral_value()
    else:
        assert ours is None or theirs == ours.nano


@pytest.mark.parametrize(
    ("given", "nano"),
    [
        # $2.5, $0.25 and $15 a million; what goes into the cache costs like other input
        ({}, 600 * 2_500 + 400 * 250 + 50 * 15_000),
        ({"terms": {"service_tier": "default"}}, 600 * 2_500 + 400 * 250 + 50 * 15_000),
        ({"terms": {"service_tier": "priority"}}, 600 * 5_000 + 400 * 500 + 50 * 30_000),
        ({"model": "gpt-5.4-2026-03-05"}, 600 * 2_500 + 400 * 250 + 50 * 15_000),
        # $3, $0.3, $3.75 and $15; an hour in the cache costs $6; a search $0.01
        ({"model": "claude-sonnet-4-5"}, 500 * 3_000 + 400 * 300 + 100 * 3_750 + 50 * 15_000),
        (
            {"model": "claude-sonnet-4-5", "usage": {"cache_creation": {"ephemeral_1h_input_tokens": 60}}},
            500 * 3_000 + 400 * 300 + 40 * 3_750 + 60 * 6_000 + 50 * 15_000,
        ),
        (
            {"model": "claude-sonnet-4-5", "usage": {"server_tool_use": {"web_search_requests": 3}}},
            500 * 3_000 + 400 * 300 + 100 * 3_750 + 50 * 15_000 + 3 * 10_000_000,
        ),
        # parts are at most the whole
        (
            {"model": "claude-sonnet-4-5", "usage": {"cache_creation": {"ephemeral_1h_input_tokens": 10**6}}},
            500 * 3_000 + 400 * 300 + 100 * 6_000 + 50 * 15_000,
        ),
        # another price from 200,000 tokens on
        (
            {"model": "claude-sonnet-4-5", "figures": NormalizedUsage(input_tokens=200_001, output_tokens=1)},
            200_001 * 6_000 + 22_500,
        ),
    ],
    ids=str,
)
def test_prices_of_the_list(given: dict[str, Any], nano: int) -> None:
    assert listed(BOOK.cost(served(**given))) == nano


@pytest.mark.parametrize(
    "given",
    [
        {"model": None},
        {"model": "my-own-model"},
        {"provider": "my-own-gateway"},
        {"figures": NormalizedUsage()},
        {"figures": NormalizedUsage(input_tokens=5)},
        {"figures": NormalizedUsage(output_tokens=5)},
        {"model": "gpt-5.4", "provider": "anthropic"},
    ],
    ids=str,
)
def test_what_nobody_knows_costs_null(given: dict[str, Any]) -> None:
    assert BOOK.cost(served(**given)) is None


@pytest.mark.parametrize("name", sorted(name for name in UNITS if UNITS[name].paths))
def test_a_unit_is_counted_wherever_usage_objects_have_it(name: str) -> None:
    """A look at the first keys is enough to know that a usage object counts none."""
    unit = UNITS[name]
    sheet = PriceSheet.of(SimpleNamespace(**{name: Decimal(1)}), "anyone")
    assert sheet.counts({"input_tokens": 5, "other": {"nested": 7}}) == {}
    for path in unit.paths:
        for place in path.split(" + "):
            keys, _, word = place.rstrip("]").partition("[")
            usage: Any = [{"modality": word, "tokenCount": 7}] if word else 7
            for key in reversed(keys.split(".")):
                usage = {key: usage}
            assert sheet.counts({"other": 1, **usage}) == {unit.name or name: 7}


def test_no_more_cached_input_is_billed_than_there_was_input() -> None:
    some, all_cached = (
        BOOK.cost(served(figures=NormalizedUsage(input_tokens=249, cached_tokens=cached, output_tokens=40)))
        for cached in (416, 249)
    )
    assert listed(some) == listed(all_cached)


def test_the_price_is_written_down_with_its_version() -> None:
    found = BOOK.cost(served())
    assert found is not None
    price = json.loads(found.price)
    assert price.pop("source").startswith("genai-prices 0.")
    assert price == {"model": "openai/gpt-5.4", "input_mtok": "2.5", "cache_read_mtok": "0.25", "output_mtok": "15"}


def test_converse_is_a_service_of_aws() -> None:
    model = "us.anthropic.claude-sonnet-4-5-20250929-v1:0"
    assert BOOK.cost(served(model=model)) is None
    assert listed(BOOK.cost(served(model=model, format="converse"))) > 0


def test_a_list_that_fails_fails_nothing(caplog: pytest.LogCaptureFixture) -> None:
    broken = PriceBook()
    assert broken.cost(served(model=["no", "text"])) is None
    assert "genai-prices failed" in caplog.text


# Own prices


def test_own_prices_come_before_the_list() -> None:
    book = PriceBook(
        [
            Price("gpt-5.4", input=1, output="2.5", provider="azure"),
            Price("gpt-*", input=3, output=4, cached="0.5", cache_write=6),
        ]
    )
    azure, other = book.cost(served(provider="azure")), book.cost(served())
    assert azure == Cost(
        1_000 * 1_000 + 50 * 2_500, '{"source":"own","model":"gpt-5.4","input_mtok":"1","output_mtok":"2.5"}'
    )
    assert other is not None
    assert other.nano == 500 * 3_000 + 400 * 500 + 100 * 6_000 + 50 * 4_000
    assert listed(book.cost(served(model="claude-sonnet-4-5"))) > 0
    assert book.cost(served(figures=NormalizedUsage())) is None


def test_the_provider_knows_best() -> None:
    book = PriceBook([Price("*", input=1, output=1)])
    assert book.cost(served(usage={"cost": 0.5}, model=None)) == Cost(500_000_000, '{"source":"provider"}')


def test_the_arithmetic_of_the_application_changes_no_cost() -> None:
    book, given = PriceBook([Price("mine", input="1.23456789", output=1)]), {"model": "mine"}
    cases = [served(**given), served(), served(usage={"cost": "0.123456789"})]
    honest = [book.cost(case) for case in cases]
    with localcontext(prec=3, rounding=ROUND_UP):
        assert [PriceBook([Price("mine", input="1.23456789", output=1)]).cost(case) for case in cases] == honest


@pytest.mark.parametrize("prices", ["gpt", {"gpt": 1}, [1], 7, [Price], {"input": 1}])
def test_other_lists_of_prices_are_refused(prices: Any) -> None:
    for kind in (Store, AsyncStore):
        with pytest.raises(InvalidOption, match="Price"):
            kind("sqlite://", prices=prices)


# In the ledger


def test_the_ledger_keeps_cost_and_price(store: Any, tables: Tables) -> None:
    conversation = store.create_conversation(model="gpt-5.4")
    usage = {"input_tokens": 1_000, "output_tokens": 50, "total_tokens": 1_050}
    conversation.add_response(an_answer("Hi", usage=usage), "open_responses")
    conversation.add_response(an_answer("Hi", usage={**usage, "cost": 0.125}), "open_responses", provider="openrouter")
    conversation.add_response(an_answer("Hi", model="nobody's", usage=usage), "open_responses")
    conversation.record_attempt("open_responses", error="timeout")
    rows = tables.rows("usage_records", "id")
    assert [row["cost_nano"] for row in rows] == [1_000 * 2_500 + 50 * 15_000, 125_000_000, None, None]
    assert [None if row["price"] is None else json.loads(row["price"])["source"][:8] for row in rows] == [
        "genai-pr", "provider", None, None,
    ]  # fmt: skip
    [total] = store.usage()
    assert (total.cost_nano, total.costs, total.attempts) == (3_250_000 + 125_000_000, 2, 4)
    assert total.cost_usd == Decimal("0.12825")


def test_a_store_has_prices_of_its_own(tmp_path: Path) -> None:
    prices = [Price("mine", input="0.5", output=1)]
    with Store(f"sqlite:///{tmp_path}/own.db", prices=prices) as store:
        for one in (store, store.for_user("ann")):
            conversation = one.create_conversation(model="asked")
            conversation.add_response(an_answer("Hi", model="mine"), "open_responses")
            assert store.get_conversation(conversation.id).usage().cost_nano == 10 * 500 + 5 * 1_000
            with conversation.stream_response("open_responses") as recorder:
                recorder.feed({"type": "response.completed", "response": an_answer("Hi", model="mine")})
            assert conversation.usage().cost_nano == 2 * (10 * 500 + 5 * 1_000)
            left = conversation.stream_response("open_responses")
            left.__enter__()
            left.feed({"type": "response.completed", "response": an_answer("Hi", model="mine")})
            with conversation.stream_response("open_responses", on_conflict="append"):
                assert conversation.usage().cost_nano == 3 * (10 * 500 + 5 * 1_000), "the next writer ended it"


# Recorded answers

VENDORS = {
    "api.openai.com": "openai", "api.anthropic.com": "anthropic", "generativelanguage.googleapis.com": "google",
    "aiplatform.googleapis.com": "google", "api.groq.com": "groq", "api.deepseek.com": "deepseek",
    "bedrock-runtime.us-east-1.amazonaws.com": "aws", "bedrock-runtime.<aws_region>.amazonaws.com": "aws",
    "openrouter.ai": "openrouter", "api.x.ai": "x-ai", "api.perplexity.ai": "perplexity",
}  # fmt: skip
FLAVOURS = {"open_responses": "responses", "chat_completion": "chat"}


def answers(name: FormatName) -> Iterator[tuple[dict[str, Any], Response]]:
    """Recorded bodies with a usage, and how they are read."""
    for one in recorded(name).values():
        if one["vendor"] in VENDORS and isinstance(one["response"], dict):
            try:
                response = get_format(name).parse_response(one["response"])
            except (CannotParse, ProviderError):
                continue
            if response.usage is not None:
                yield one, response


def independent(one: dict[str, Any], provider_id: str, model: str) -> tuple[str, int] | None:
    """The figure in the body, else what genai-prices finds in the body by its own reading; None where it cannot."""
    body = one["response"]
    usage = body.get("usage") or {}
    if "cost_in_usd_ticks" in usage:
        return "provider", round(Decimal(usage["cost_in_usd_ticks"]) / 10)
    cost = usage.get("cost")
    if cost is not None:
        dollars = cost["total_cost"] if isinstance(cost, dict) else cost
        upstream = usage["cost_details"]["upstream_inference_cost"] if usage.get("is_byok") else 0
        return "provider", round((Decimal(str(dollars)) + Decimal(str(upstream))) * 10**9)
    snapshot = get_snapshot()
    provider = snapshot.find_provider(None, provider_id, None)
    flavours = [extractor.api_flavor for extractor in provider.extractors or ()]
    flavour = FLAVOURS.get(one["format"], "default")
    try:
        _, found = provider.extract_usage(body, api_flavor=flavour if flavour in flavours else "default")
        _, priced = snapshot.find_provider_model(model, provider, None, None)
        return "list", round(priced.calc_price(found, provider, genai_request_timestamp=NOW).total_price * 10**9)
    except (AttributeError, LookupError, ValueError):  # figures that it does not understand, models it does not know
        return None


def is_left_out(usage: dict[str, Any]) -> bool:
    """Whether genai-prices leaves out something: other models, tiers of Vertex AI, audio of models with one price."""
    heard = (usage.get("prompt_tokens_details") or {}).get("audio_tokens")
    kinds = {entry["type"] for entry in usage.get("iterations") or ()}
    return bool(heard) or not kinds <= {"message"} or usage.get("trafficType", "ON_DEMAND") not in ("ON_DEMAND", 1)


@pytest.mark.parametrize("name", ["open_responses", "chat_completion", "messages", "gemini", "converse"])
def test_recorded_answers_cost_what_others_compute(name: FormatName) -> None:
    compared = 0
    for one, response in answers(name):
        provider = VENDORS[one["vendor"]]
        model = response.model or unquote(one["path"].partition("/model/")[2].partition("/")[0])
        wanted = independent(one, provider, model)
        assert response.usage is not None
        found = BOOK.cost(
            served(
                format=name, provider=provider, model=model, figures=response.usage.normalized,
                usage=response.usage.raw,
            )
        )  # fmt: skip
        if wanted is not None and not is_left_out(response.usage.raw or {}):
            compared += 1
            assert found is not None, one["id"]
            assert (found.nano, "provider" in found.price) == (wanted[1], wanted[0] == "provider"), one["id"]
    assert compared > 100
