"""Each key and each variant that the vendors' SDKs know goes back as it came, and passes through the other formats."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Callable
from typing import Any

import pytest

from tests.conftest import MATRIX
from tests.formats import (
    spelling_chat_completion,
    spelling_converse,
    spelling_gemini,
    spelling_messages,
    spelling_open_responses,
)
from tests.formats.sdk_schema import schema, variants
from threadkeep.errors import CannotRender
from threadkeep.formats import NAMES, FormatName, get_format

pytestmark = pytest.mark.sampled

Json = dict[str, Any]

ROOTS: dict[str, tuple[FormatName, Callable[[Json], Json], Json]] = {
    "open_responses.request": ("open_responses", spelling_open_responses.leveled, {"model": "m", "input": "Hi"}),
    "chat_completion.request": ("chat_completion", spelling_chat_completion.levelled, {}),
    "messages.request": ("messages", spelling_messages.usual, {}),
    "messages.request.ga": ("messages", spelling_messages.usual, {}),
    "gemini.request.mldev": ("gemini", spelling_gemini.leveled, {}),
    "gemini.request.vertex": ("gemini", spelling_gemini.leveled, {}),
    "converse.request": ("converse", spelling_converse.leveled, {"messages": [{"role": "user", "content": []}]}),
}


@pytest.mark.parametrize("root", ROOTS)
def test_every_variant_goes_back_as_it_came(root: str) -> None:
    format_name, level, least = ROOTS[root]
    wire = get_format(format_name)
    for number, made in enumerate(variants(schema()["roots"][root])):
        request = least | {key: value for key, value in made.items() if value is not None}
        before = copy.deepcopy(request)
        session = wire.parse_request(request)
        try:
            payload = wire.render(session).payload
        except CannotRender:
            assert all(one["role"] == "system" for one in request["messages"])
            continue
        assert level(payload) == level(request)
        assert request == before
        for other in [NAMES[number % len(NAMES)]] if MATRIX == "quick" else NAMES:
            with contextlib.suppress(CannotRender):
                get_format(other).render(session)
