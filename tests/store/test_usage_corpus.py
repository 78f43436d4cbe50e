"""Recorded usage objects of all formats, streams included: their figures add up to what the provider says in total."""

from __future__ import annotations

import gzip
import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.wires import SPOKEN
from threadkeep import ProviderError
from threadkeep.domain.formats import get_format
from threadkeep.domain.usage import Usage
from threadkeep.errors import CannotParse

ROOT = Path(__file__).parents[2]
CORPUS = Path(os.environ.get("THREADKEEP_CORPUS", ROOT.parent / "shared" / "corpus"))
TOTALS = ("total_tokens", "totalTokens", "totalTokenCount")


def usages(name: str) -> Iterator[tuple[str, Usage]]:
    path = CORPUS / f"{name}.jsonl.gz"
    if not path.exists():
        pytest.skip(f"there is no recorded traffic in {CORPUS}; set THREADKEEP_CORPUS")
    wire = get_format(name)
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        for line in lines:
            one = json.loads(line)
            try:
                if one["events"] is None:
                    response = wire.parse_response(one["response"])
                else:
                    assembler: Any = wire.assembler()
                    for event in one["events"]:
                        assembler.feed(event)
                    response = assembler.response
            except (CannotParse, ProviderError):
                continue
            if response.usage is not None:
                yield one["id"], response.usage


@pytest.mark.parametrize("name", SPOKEN)
def test_figures_add_up(name: str) -> None:
    compared = 0
    for found, usage in usages(name):
        figures, raw = usage.normalized, usage.raw or {}
        if figures.output_tokens is None:  # blocked before anything was said
            continue
        assert figures.input_tokens is not None, found
        assert figures.total_tokens == figures.input_tokens + figures.output_tokens, found
        if name != "chat_completion":  # where xAI on Azure states more cached tokens than input
            assert figures.input_tokens >= max(figures.cached_tokens or 0, figures.cache_write_tokens or 0), found
        total = next((raw[key] for key in TOTALS if key in raw), None)
        if total is not None:
            compared += 1
            assert figures.total_tokens == total, found
    assert compared > 100 or name == "messages"  # which tells no totals
