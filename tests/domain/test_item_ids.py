from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep.domain.ids import OTHER, PREFIXES, derived_id, new_public_id, own_id, place_of, public_id_text
from threadkeep.formats.canonical import items

TYPES = [*PREFIXES, "a_type_of_tomorrow"]


@given(st.sampled_from(TYPES), st.integers(0, 2**62))
def test_a_derived_id_names_its_place_and_is_one_that_openai_takes(kind: str, position: int) -> None:
    conversation = public_id_text(new_public_id())
    made = derived_id(kind, conversation, position)
    assert place_of(made) == (conversation, position)
    assert re.fullmatch(r"[a-z]+_[A-Za-z0-9]+", made)
    assert len(made) <= 64
    assert made.startswith(items.PREFIXES.get(kind, ""))


def test_every_type_has_a_prefix_of_its_own() -> None:
    assert len({OTHER, *PREFIXES.values()}) == len(PREFIXES) + 1


@pytest.mark.parametrize(
    "text", ["", "msg_1", "msg_" + "0" * 31, "msg_" + "0" * 32, "msg_" + "0" * 34, "msg_" + "A" * 33, "_" + "0" * 33]
)
def test_other_ids_name_no_place(text: str) -> None:
    """One id has one spelling: no capitals, and no zeros before the position."""
    assert place_of(text) is None


def test_an_item_has_the_id_that_was_given_to_it() -> None:
    block = {"type": "provider_item", "format": "open_responses", "payload": {"id": "x_1"}}
    assert own_id({"type": "message", "id": "msg_1"}) == "msg_1"
    assert own_id(block) == "x_1"
    assert own_id({**block, "format": "messages"}) is None
    assert own_id({"type": "message", "id": ""}) is None
    assert own_id({"type": "item_reference", "id": "msg_1"}) is None
