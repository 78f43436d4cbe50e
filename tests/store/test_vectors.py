"""The reference cases, through the database: saved by one store, read and rendered by another."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.formats.test_vectors import DECIDED
from tests.reference_cases import FORMATS, cases_in, error_of, with_patterns, without_ours
from threadkeep import Session

pytestmark = pytest.mark.one_face


def cases(*names: str) -> pytest.MarkDecorator:
    """The cases of these files, without the quirks of the reference and those that were decided otherwise."""
    found = [case for name in names for case in cases_in(name) if case["id"] not in DECIDED]
    found = [case for case in found if not case["about"].startswith("quirk")]
    return pytest.mark.parametrize("case", found, ids=[case["id"] for case in found])


@cases(*(f"{name}_request" for name in FORMATS))
def test_a_stored_session_is_rendered(store: Any, elsewhere: Any, case: dict[str, Any]) -> None:
    wire = case["id"].partition("/")[0]
    kept = store.save(Session.from_dict(case["session"]))
    resumed = elsewhere.get_conversation(kept.id)
    if "error" in case:
        with pytest.raises(error_of(case)):
            resumed.render(wire, strict=True)
    else:
        rendered = resumed.render(wire)
        assert rendered.payload == case["payload"]
        assert json.loads(rendered.body) == case["payload"]


@cases(*(f"{name}_response" for name in FORMATS))
def test_an_answer_is_stored(store: Any, elsewhere: Any, case: dict[str, Any]) -> None:
    wire = case["id"].partition("/")[0]
    conversation = store.create_conversation(model="any")
    if "error" in case:
        with pytest.raises(error_of(case)):
            conversation.add_response(case["body"], wire, headers=case.get("headers"))
        return
    expected = case["expect"]
    response = conversation.add_response(case["body"], wire, headers=case.get("headers"))
    items = [stored.item.to_dict() for stored in elsewhere.get_conversation(conversation.id).transcript()]
    if response.status == "incomplete" and items:  # the last item says so
        assert items[-1].pop("status") == "incomplete"
    if "items" in expected:
        assert with_patterns(without_ours(items), expected["items"]) == expected["items"]
    shown = {"text": response.text, "status": response.status, "model": response.model}
    assert shown == {name: expected.get(name, value) for name, value in shown.items()}
    assert [(row.format, row.status) for row in conversation.responses()] == [(wire, response.status)]


@cases("session_roundtrip")
def test_a_session_comes_back_from_the_database(store: Any, elsewhere: Any, case: dict[str, Any]) -> None:
    kept = store.save(Session.from_dict(case["session"]))
    assert elsewhere.get_conversation(kept.id).session().to_dict() == case["session"]


@cases("core_flows")
def test_a_conversation_goes_on(store: Any, elsewhere: Any, case: dict[str, Any]) -> None:
    """Every step is done by a store that has not seen the ones before."""
    public_id = store.save(Session.from_dict(case["session"])).id
    for number, step in enumerate(case["steps"]):
        conversation = (store, elsewhere)[number % 2].get_conversation(public_id)
        if "response" in step:
            conversation.add_response(step["response"], step["format"])
        else:
            conversation.add_items(step["input"])
    assert elsewhere.get_conversation(public_id).request_payload(case["format"]) == case["payload"]
    detached = elsewhere.get_conversation(public_id).session()
    assert detached.request_payload(case["format"]) == case["payload"]
