"""Nothing that a provider is known to refuse is sent without a word: it is mended, reported, or raises.

The conversations were written from the providers' documentation and public reports of their errors, provider by
provider, and not from the tables that requests are made by.
"""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.refusals import anthropic, bedrock, google, openai, pydantic_ai, vendors
from tests.formats.refusals.rows import ABSENT, Provider, Refusal
from threadkeep import LossError, Session
from threadkeep.errors import ThreadkeepError
from threadkeep.formats.shared.reports import LOSSES, REPAIRS

PROVIDERS: list[Provider] = [
    openai.RESPONSES, openai.CHAT, openai.AZURE, anthropic.MESSAGES, google.GEMINI, bedrock.CLAUDE, bedrock.NOVA,
    bedrock.OTHERS, *vendors.VENDORS, pydantic_ai.HISTORY,
]  # fmt: skip
LEAST = 10  # for each of the formats
ROWS = [
    pytest.param(provider, refusal, id=f"{provider.name}: {refusal.name}")
    for provider in PROVIDERS
    for refusal in provider.refusals
]


def conversation(provider: Provider, refusal: Refusal) -> Session:
    """A conversation that is refused as it stands."""
    session = Session(model=refusal.model or provider.model, **refusal.options)
    session.register_tools(refusal.tools)
    session.add_items(refusal.items, known=False)
    return session


def at(payload: Any, place: str) -> Any:
    """What stands at a place of a request."""
    for key in place.split("."):
        if isinstance(payload, list):
            payload = payload[int(key)] if int(key) < len(payload) else ABSENT
        else:
            payload = payload.get(key, ABSENT) if isinstance(payload, dict) else ABSENT
    return payload


@pytest.mark.share(3)
@pytest.mark.parametrize(("provider", "refusal"), ROWS)
def test_what_is_refused_is_not_sent_without_a_word(provider: Provider, refusal: Refusal) -> None:
    session, view = conversation(provider, refusal), {**provider.view, **refusal.view}
    if refusal.raises is not None:
        with pytest.raises(ThreadkeepError, match=refusal.raises):
            session.render(provider.format, **view)
        return
    rendered = session.render(provider.format, **view)
    found = sorted(report.code for report in [*rendered.losses, *rendered.repairs])
    assert found == sorted(refusal.reported.split())
    assert found or refusal.sent  # what stands for it means the same
    assert {place: at(rendered.payload, place) for place in refusal.sent} == refusal.sent
    if rendered.losses:
        with pytest.raises(LossError):
            session.render(provider.format, **view, strict=True)


def test_what_is_refused_has_a_source() -> None:
    refusals = [refusal for provider in PROVIDERS for refusal in provider.refusals]
    assert [one for one in refusals if not one.source.startswith("https://")] == []
    assert {code for one in refusals for code in one.reported.split()} <= {*LOSSES, *REPAIRS}


def test_each_format_has_enough_of_them() -> None:
    counts: dict[str, int] = {}
    for provider in PROVIDERS:
        counts[provider.format] = counts.get(provider.format, 0) + len(provider.refusals)
    assert min(counts.values()) >= LEAST
    assert len(counts) == 6
