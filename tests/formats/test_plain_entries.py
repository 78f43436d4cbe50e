"""Items that are stored as they stand take a short way to their rows, with the same result as the long one."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.domain.jsonvalues import TEXT
from threadkeep.formats.canonical import entries
from threadkeep.formats.canonical.entries import entry_of

VALUES = st.one_of(TEXT, st.sampled_from(["", "{}", '{"a": 1}', "[NaN]", "completed", "failed", "x" * 65]), st.none())
CALLS = st.fixed_dictionaries(
    {"type": st.just("function_call"), "call_id": VALUES, "name": VALUES, "arguments": VALUES},
    optional={"origin": st.sampled_from(["messages", "open_responses"]), "status": VALUES},
)
OUTPUTS = st.fixed_dictionaries(
    {"type": st.just("function_call_output"), "call_id": VALUES, "output": VALUES},
    optional={"origin": st.sampled_from(["messages", "open_responses"]), "status": VALUES},
)


def entry_the_long_way(item: dict[str, Any]) -> Any:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(entries, "_plain_payload", lambda _: None)
        return entry_of(item, position=0)


@given(st.one_of(CALLS, OUTPUTS))
def test_calls_and_outputs_have_the_same_entry(item: dict[str, Any]) -> None:
    assert entry_of(item, position=0) == entry_the_long_way(item)
