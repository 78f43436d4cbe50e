"""Nobody finds what belongs to others by the REST API: every operation of the table is tried."""

from __future__ import annotations

import base64
from typing import Any

import httpx2
import pytest

from tests.factories import noise
from tests.http.conftest import Bridge
from tests.http.test_owners import BODY
from tests.http.test_rest import UPSTREAMS, Rest
from threadkeep.http import Owner, rest_app
from threadkeep.http.rest import models
from threadkeep.http.rest.operations import OPERATIONS, Operation

# a body of each kind that could be used
BODIES: dict[type, dict[str, Any]] = {
    models.NewConversation: {"title": "Mine"},
    models.ConversationChange: {"title": "Mine"},
    models.NewMessage: {"content": "Mine", "model": "m"},
    models.EditedMessage: {"content": "Mine", "model": "m"},
    models.Regeneration: {"model": "m"},
    models.NewBranch: {},
    models.ActiveBranch: {"branch": 0},
    models.FeedbackValue: {"rating": 1},
    models.Labels: {"labels": {"mine": "yes"}},
    models.SeenPosition: {},
    models.StateValue: {"value": 1},
}
NAMED = [one for one in OPERATIONS if "{" in one.path]
PICTURE = base64.b64encode(noise(20_000, seed=11)).decode()


@pytest.fixture
def known(served: Any) -> dict[str, str]:
    """What ann has: a value for each parameter of paths."""
    store = served.store.for_user("ann")
    conversation = served.call(store.create_conversation, model="m", external_id="of ann")
    picture = {"type": "input_image", "image_url": f"data:image/png;base64,{PICTURE}"}
    served.call(conversation.user, [picture])
    served.call(conversation.add_response, BODY, "open_responses")
    served.call(conversation.set_state, "draft", 1)
    [item, _] = served.call(conversation.transcript, media="reference")
    reference = item.canonical()["content"][0]["image_url"].removeprefix("threadkeep-media:")
    return {
        "conversation_id": conversation.id, "item_id": item.id, "response_id": "resp_of_ann", "name": "draft",
        "hash": reference,
    }  # fmt: skip


def asked(api: httpx2.Client, one: Operation, known: dict[str, str]) -> httpx2.Response:
    body = BODIES[one.body] if one.body is not None else None
    return api.request(one.method, one.path.format(**known), json=body)


def state_of(api: httpx2.Client, known: dict[str, str]) -> Any:
    path = f"/conversations/{known['conversation_id']}"
    return [api.get(path + end).json() for end in ("", "/messages", "/branches", "/states")]


def test_ann_finds_all_of_it(served: Any, known: dict[str, str]) -> None:
    """Otherwise the tests below would show nothing."""
    api = Rest(served).of("ann")
    for one in NAMED:
        if one.method == "GET":
            assert asked(api, one, known).status_code == 200, one.path


def test_every_operation_hides_what_belongs_to_others(served: Any, known: dict[str, str]) -> None:
    rest = Rest(served)
    before = state_of(rest.of("ann"), known)
    for place in (known, {**known, "conversation_id": "of ann"}):
        for one in NAMED:
            answer = asked(rest.of("ben"), one, place)
            assert answer.status_code == 404, (one.method, one.path, answer.text)
    mine = served.call(served.store.for_user("ben").create_conversation, model="m", input="Mine")
    for one in NAMED:  # their items in a conversation of one's own
        if "{item_id}" in one.path:
            answer = asked(rest.of("ben"), one, {**known, "conversation_id": mine.id})
            assert answer.status_code == 404, (one.method, one.path, answer.text)
    cursor = {"after": known["item_id"]}
    assert rest.of("ben").get(f"/conversations/{mine.id}/messages", params=cursor).status_code == 404
    again = rest.of("ben").post(f"/conversations/{mine.id}/regenerate", json={"item_id": known["item_id"]})
    assert again.status_code == 404
    fork = rest.of("ben").post(f"/conversations/{mine.id}/branches", json={"at": known["item_id"]})
    assert fork.status_code == 404
    assert state_of(rest.of("ann"), known) == before


def test_other_tenants_have_nothing(served: Any, known: dict[str, str]) -> None:
    served.tenant = f"{served.tenant} too"
    served.call(served._store.create_tenant, served.tenant)
    api = Rest(served).of("ann")
    for one in NAMED:
        assert asked(api, one, known).status_code == 404, (one.method, one.path)


def test_lists_and_reports_have_ones_own(served: Any, known: dict[str, str]) -> None:
    api = Rest(served).of("ben")
    assert api.get("/conversations", params={"status": "any"}).json()["data"] == []
    assert api.get("/search", params={"q": "Hello"}).json()["data"] == []
    assert api.get("/usage", params={"by": "model"}).json()["data"] == []
    assert api.get("/conversations", params={"user_id": "ann"}).json()["data"] == []
    assert len(Rest(served).of("ann").get("/search", params={"q": "Hello"}).json()["data"]) == 1


def test_a_key_is_needed_everywhere(served: Any, known: dict[str, str]) -> None:
    api = Rest(served).of("nobody")
    for one in OPERATIONS:
        answer = asked(api, one, known)
        assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key"), one.path
    assert api.get("/openapi.json").status_code == 200


@pytest.mark.parametrize("scope", ["read", "write", "usage"])
def test_scopes_allow_what_they_name(served: Any, known: dict[str, str], scope: Any) -> None:
    owner = Owner(user_id="ann", tenant=served.tenant, scopes=frozenset({scope}))
    application = rest_app(served._store, auth=lambda _: owner, upstreams=UPSTREAMS)
    api = httpx2.Client(transport=Bridge(served.runner, application), base_url="http://localhost/api")
    unknown = {**dict.fromkeys(known, "unknown"), "hash": "0" * 64}
    for one in OPERATIONS:
        status = asked(api, one, unknown).status_code
        assert (status == 403) == (one.scope != scope), (one.method, one.path, status)
        assert one.method != "GET" or one.scope in ("read", "usage")
        assert one.method == "GET" or one.scope == "write"
