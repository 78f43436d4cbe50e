"""Values of every type that the vendors' SDKs have: stored, sent back, streamed, and turned into every other format.

The values are made from the types of the installed SDKs (`sdk_values`): the least of each, one more for each key and
each alternative, and full ones. Nothing of them is lost without a report, and what is sent fits the types of the
target, without any key that these do not have. A quick run takes the least values and a share of the others.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.conftest import MATRIX
from tests.corpus import recorded
from tests.formats import sdk_news, sdk_totals
from tests.formats.sdk_accepted import ACCEPTED
from tests.formats.sdk_requests import requests
from tests.formats.sdk_samples import elements
from tests.formats.sdk_schema import PACKAGES, PYDANTIC, known, schema
from tests.formats.sdk_strict import refused, unfit
from tests.formats.sdk_trials import LEVELS, SOURCES, formats_of_sources, tried
from tests.formats.sdk_values import Maker
from tests.formats.test_ui_messages import CHATS
from threadkeep.errors import CannotRender
from threadkeep.formats import NAMES, FormatName, get_format

pytestmark = [pytest.mark.sampled, pytest.mark.share(3)]

Json = dict[str, Any]

IS_WHOLE = MATRIX != "quick"
KNOWN = Path(__file__).with_name("sdk_known_types.json")
# values that the type of their SDK refuses by a validator, which its schema does not tell of
ODD = {
    "pydantic_ai.message": re.compile(r"speaker|CompactionPart|citations|SpeechPart|\.cost$"),
    "ag_ui.event": re.compile(r"StateDelta|ActivityDelta"),
    "google.config": re.compile(r"\.tools$"),
}


@pytest.mark.parametrize("source", SOURCES)
def test_every_value_is_kept_or_reported(source: str) -> None:
    trial = tried(source, is_whole=IS_WHOLE)
    assert trial.counts["values"] > 0
    if IS_WHOLE:
        assert sdk_totals.of(source, trial) == sdk_totals.recorded()[source], "the figures are old: run make docs"
    assert dict(trial.wrong) == {}


# models that differ in what they refuse
MODELS: dict[str, tuple[str, ...]] = {
    "open_responses": ("gpt-5.4", "o3"),
    "chat_completion": ("gpt-5.4", "gpt-4.1"),
    "messages": ("claude-haiku-4-5", "claude-opus-4-6", "claude-opus-4-8", "claude-sonnet-5", "claude-fable-5"),
    "gemini": ("gemini-2.5-pro", "gemini-3-pro-preview"),
    "interactions": ("gemini-3.1-pro-preview",),
    "converse": ("amazon.nova-pro-v1:0", "anthropic.claude-sonnet-5-v1:0", "anthropic.claude-opus-4-6-v1:0"),
}


def falsely_lost(format_name: FormatName, request: Json, model: str | None) -> list[str]:
    """The losses of an imported request that goes back equal."""
    wire, level = get_format(format_name), LEVELS[format_name]
    try:
        rendered = wire.render(wire.parse_request(request, model=None if "agent" in request else model))
    except CannotRender:
        return []
    return [loss.detail for loss in rendered.losses if level(dict(rendered.payload)) == level(request)]


@pytest.mark.parametrize("format_name", MODELS)
def test_a_request_that_goes_back_equal_has_lost_nothing(format_name: FormatName) -> None:
    wrong = []
    for element in requests():
        for number, sample in enumerate(element.samples() if element.format_name == format_name else ()):
            for model in MODELS[format_name] if IS_WHOLE or number % 9 == 0 else ():
                named = {} if format_name in ("gemini", "converse") or "agent" in sample.value else {"model": model}
                wrong += [(sample.label, model, *falsely_lost(format_name, {**sample.value, **named}, model))]
    assert [one for one in wrong if len(one) > 2] == []
    assert wrong != []


@pytest.mark.parametrize("format_name", MODELS)
def test_a_recorded_request_that_goes_back_equal_has_lost_nothing(format_name: FormatName) -> None:
    lost = {
        name: falsely_lost(format_name, one["request"], one.get("model")) for name, one in recorded(format_name).items()
    }
    assert {name: details for name, details in lost.items() if details} == {}


@pytest.mark.parametrize("target", NAMES)
def test_chats_of_pages_go_to_every_format_by_its_types(target: FormatName) -> None:
    """UIMessages, whose types are in no Python package, with each of their parts alone and all at once."""
    wrong = []
    for name, messages in CHATS.items():
        session = get_format("ui_messages").parse_request({"messages": messages}, model="m")
        with contextlib.suppress(CannotRender):
            rendered = get_format(target).render(session)
            is_kept = target == "ui_messages" and name.startswith(("strange", "empty", "part", "all parts"))
            wrong += [] if is_kept else [(name, error) for error in unfit(rendered.payload, target)]
    assert wrong == []


@pytest.mark.parametrize("root", PYDANTIC)
def test_values_are_such_as_the_sdk_takes(root: str) -> None:
    """What the generator makes, least or full, fits the type that it was made of."""
    made = Maker(schema(root), is_whole=False).variants(schema(root))
    odd = ODD.get(root)
    samples = [sample for number, sample in enumerate(made) if IS_WHOLE or number % 10 == 0]
    wrong = [(sample.label, error) for sample in samples for error in refused(sample.value, root)]
    assert [one for one in wrong if odd is None or not odd.search(one[0])] == []


@pytest.mark.parametrize("package", PACKAGES)
def test_every_type_of_the_installed_sdk_is_known(package: str) -> None:
    """A release that brings a type fails here by its name: look at it, and run ``make sdk-news ARGS=--accept``."""
    recorded, installed = json.loads(KNOWN.read_text())[package], sorted(known(package))
    assert [name for name in installed if name not in recorded] == [], f"new types of {PACKAGES[package]}"
    assert [name for name in recorded if name not in installed] == [], f"types that {PACKAGES[package]} no longer has"


def test_news_of_a_release_name_types_fields_and_words() -> None:
    old = {"openai": {"version": "1", "types": {"A": ["x: string"], "B": ["= low"]}}}
    new = {"openai": {"version": "2", "types": {"A": ["x: string", "y?: integer"], "C": ["z: any"]}}}
    assert list(sdk_news.news(old, new)) == [
        "openai 1 -> 2",
        "  - B",
        "  A",
        "    + y?: integer",
        "  + C",
        "      z: any",
    ]
    assert list(sdk_news.news(old, old)) == ["openai 1: the newest release is the pinned one"]


def test_every_accepted_difference_has_a_reason() -> None:
    assert [one for one in ACCEPTED if len(one.reason.split()) < 5] == []


def test_each_kind_of_sdk_has_elements() -> None:
    assert tuple(formats_of_sources()) == SOURCES
    counts = Counter(element.source for element in elements())
    assert counts["openai.responses.input"] > 30
    assert counts["openai.responses.output"] > 25
    assert counts["anthropic.beta.message"] > 20
    assert counts["bedrock.request"] > 10
    assert counts["pydantic_ai.request"] > 10
