"""Nobody finds what belongs to others by the REST API: every operation is tried."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Any, NamedTuple

import httpx2
import pytest

from tests.factories import noise
from tests.server.conftest import Bridge
from tests.server.scripts import Scripted
from tests.server.test_owners import BODY
from tests.server.test_rest import UPSTREAMS, Rest
from threadkeep import InvalidOption
from threadkeep.domain.jsontext import loads
from threadkeep.http import Owner, rest_app
from threadkeep.server.owners import Scope
from threadkeep.server.rest import models, thread_models
from threadkeep.server.rest.application import ROUTES, openapi_text

# a body of each kind that could be used
BODIES: dict[type, dict[str, Any]] = {
    models.NewConversation: {"title": "Mine"},
    models.ConversationChange: {"title": "Mine"},
    models.NewMessage: {"content": "Mine", "model": "m"},
    models.EditedMessage: {"content": "Mine", "model": "m"},
    models.Regeneration: {"model": "m"},
    thread_models.ChatTurn: {"id": "mine", "messages": [{"id": "m", "role": "user", "parts": []}], "model": "m"},
    thread_models.AgentRun: {
        "threadId": "mine",
        "runId": "r",
        "messages": [{"id": "m", "role": "user", "content": "Mine"}],
        "forwardedProps": {"model": "m"},
    },
    models.NewBranch: {},
    models.ActiveBranch: {"branch": 0},
    models.FeedbackValue: {"rating": 1},
    models.Labels: {"labels": {"mine": "yes"}},
    models.SeenPosition: {},
    models.StateValue: {"value": 1},
    models.Denial: {"reason": "Mine"},
    models.ToolOutputs: {"tool_outputs": [{"call_id": "call_of_ann", "output": "Mine"}], "model": "m"},
}


class Operation(NamedTuple):
    """What can be asked: `body` is the model of its body, if that is JSON."""

    method: str
    path: str
    scope: str
    body: Any
    takes_bytes: bool

    @classmethod
    def of(cls, route: Any) -> Operation:
        [method] = route.methods
        described = DOCUMENT["paths"][route.path][method.lower()]
        [scope] = described["security"][0]["key"]
        body = route.body_field and route.body_field.field_info.annotation
        return cls(method, route.path, scope, body, "requestBody" in described and body is None)


DOCUMENT = loads(openapi_text())
OPERATIONS = [Operation.of(route) for route in ROUTES]
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
        "conversation_id": conversation.id, "chat_id": conversation.id, "thread_id": conversation.id,
        "item_id": item.id, "response_id": "resp_of_ann", "name": "draft",
        "hash": reference, "call_id": "call_of_ann", "user_id": "ann",
    }  # fmt: skip


def asked(api: httpx2.Client, one: Operation, known: dict[str, str]) -> httpx2.Response:
    path = one.path.format(**known)
    if one.takes_bytes:
        return api.request(one.method, path, content=b"Mine", headers={"content-type": "text/plain"})
    return api.request(one.method, path, json=BODIES[one.body] if one.body is not None else None)


def state_of(api: httpx2.Client, known: dict[str, str]) -> Any:
    path = f"/conversations/{known['conversation_id']}"
    return [api.get(path + end).json() for end in ("", "/messages", "/branches", "/states")]


def test_ann_finds_all_of_it(served: Any, known: dict[str, str]) -> None:
    """Otherwise the tests below would show nothing."""
    api = Rest(served).of("ann")
    for one in NAMED:
        if one.method == "GET":
            assert asked(api, one, known).status_code in (200, 204), one.path


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


def test_what_is_foreign_is_told_like_what_is_unknown(served: Any, known: dict[str, str]) -> None:
    api = Rest(served).of("ben")
    unknown = {name: f"unknown_{name}" for name in known} | {"conversation_id": f"conv_{'0' * 32}", "hash": "0" * 64}
    unknown["chat_id"] = unknown["thread_id"] = unknown["conversation_id"]
    for one in NAMED:
        told = []
        for place in (known, unknown):
            answer = asked(api, one, place)
            text = answer.text
            for name, value in place.items():
                text = text.replace(value, name)
            told.append((answer.status_code, text, answer.headers.keys()))
        assert told[0] == told[1], (one.method, one.path)


def test_a_reference_to_the_media_of_others_brings_no_model_anything(served: Any, known: dict[str, str]) -> None:
    """Items may have any text in the place of a URL; their pictures stay where they are."""
    model = Scripted("chat_completion")
    model.will_say("What picture?")
    http = served.http("ben", upstreams={"*": model.upstream})
    part = {"type": "input_image", "image_url": f"threadkeep-media:{known['hash']}"}
    items = [{"role": "user", "content": [{"type": "input_text", "text": "What is it?"}, part]}]
    made = http.post("/conversations", json={"items": items}).json()
    http.post("/responses", json={"model": "m", "input": "Tell me.", "conversation": made["id"]})
    shown = http.get(f"/conversations/{made['id']}/items").text
    for text in (str(model.payloads[0]), shown):
        assert PICTURE[100:200] not in text
    assert Rest(served).of("ben").get(f"/media/{known['hash']}").status_code == 404


def for_user(served: Any, user: str | bytes, owner: str = "") -> httpx2.Client:
    """A client of somebody who may see what all users have, and asks for one."""
    headers: Any = {"Authorization": f"Bearer {owner}", "x-threadkeep-user": user}
    api = Rest(served).of(owner)
    api.headers.update(headers)
    return api


def test_whoever_calls_for_a_user_has_what_that_user_has(served: Any, known: dict[str, str]) -> None:
    """One key is enough for an application that knows its users: it names them, and mixes nothing up."""
    backend = for_user(served, "ben")
    for one in NAMED:
        answer = asked(backend, one, known)
        assert answer.status_code == 404, (one.method, one.path, answer.text)
    made = backend.post("/conversations", json={"external_id": "of ann"}, headers={"idempotency-key": "1"}).json()
    assert made["user_id"] == "ben"
    again = for_user(served, "ann").post("/conversations", json={"title": "Trip"}, headers={"idempotency-key": "1"})
    assert (again.json()["user_id"], again.json()["title"]) == ("ann", "Trip")
    for client in (backend, Rest(served).of("ben")):
        assert [one["id"] for one in client.get("/conversations").json()["data"]] == [made["id"]]
    assert len(Rest(served).of("").get("/conversations").json()["data"]) == 3


@pytest.mark.parametrize(("user", "encoding"), [("zoë", "utf-8"), ("zoë", "latin-1"), ("佐", "utf-8")])
def test_a_user_is_named_in_utf_8_or_latin_1(served: Any, user: str, encoding: str) -> None:
    made = for_user(served, user.encode(encoding)).post("/conversations", json={}).json()
    assert made["user_id"] == user


@pytest.mark.parametrize(
    ("owner", "user", "status", "code"),
    [("", "", 400, "invalid_value"), ("", "u" * 256, 400, "invalid_value"), ("ann", "ben", 403, "wrong_user")],
)
def test_a_user_who_cannot_be_is_refused(served: Any, owner: str, user: str, status: int, code: str) -> None:
    """Nobody sees what all have, or writes for somebody else, by mistake."""
    for answer in (
        for_user(served, user, owner).post("/conversations", json={}),
        served.http(owner).get("/conversations", headers={"x-threadkeep-user": user}),
    ):
        assert (answer.status_code, answer.json()["error"]["code"]) == (status, code), answer.text
    assert not served.call(served.store.list_conversations).items
    assert for_user(served, "ann", "ann").post("/conversations", json={}).json()["user_id"] == "ann"


def test_nobody_uses_the_uploads_of_others(served: Any) -> None:
    """Nor learns whether somebody has the same: what is unknown and what is foreign are told the same."""
    rest, content = Rest(served), noise(20_000, seed=12)
    headers = {"content-type": "image/png"}
    made = rest.of("ann").post("/media", content=content, headers=headers).json()
    chat = f"/conversations/{rest.of('ben').post('/conversations', json={}).json()['id']}"

    def tried(id_: str) -> list[tuple[int, str]]:
        body = {"content": [{"type": "input_image", "image_url": id_}], "answer": False}
        answers = [rest.of("ben").get(f"/media/{id_}"), rest.of("ben").post(f"{chat}/messages", json=body)]
        name = id_.removeprefix("threadkeep-media:")
        return [(answer.status_code, answer.text.replace(name, "")) for answer in answers]

    assert [status for status, _ in tried(made["id"])] == [404, 400]
    assert tried(made["id"]) == tried(f"threadkeep-media:{'0' * 64}")
    assert rest.of("ben").get(f"{chat}/messages").json()["data"] == []
    own = rest.of("ben").post("/media", content=content, headers={"content-type": "application/pdf"}).json()
    assert {**made, "media_type": "application/pdf", "expires_at": own["expires_at"]} == own
    assert rest.of("ben").get(made["url"].removeprefix("/api")).headers["content-type"] == "application/octet-stream"


@pytest.mark.parametrize("owner", ["ann", ""])
def test_a_user_is_erased_by_a_key_of_that_user_or_of_all(served: Any, known: dict[str, str], owner: str) -> None:
    rest = Rest(served)
    kept = rest.of("ben").post("/conversations", json={"title": "Mine"}).json()
    answer = rest.of(owner).delete("/users/ann")
    assert answer.json() == {"id": "ann", "object": "user.erased", "conversations": 1, "attempts": 1, "items": 0}
    assert rest.of("").get(f"/conversations/{known['conversation_id']}").status_code == 404
    assert rest.of("").get("/usage", params={"by": "user_id"}).json()["data"][0]["user_id"] is None
    assert rest.of("ben").get(f"/conversations/{kept['id']}").json()["title"] == "Mine"
    assert rest.of(owner).delete("/users/ann").json()["conversations"] == 0


def test_an_item_is_redacted_on_all_branches(served: Any, known: dict[str, str]) -> None:
    api, path = Rest(served).of("ann"), f"/conversations/{known['conversation_id']}"
    fork = api.post(f"{path}/branches", json={}).json()["branch"]
    url = f"{path}/messages/{known['item_id']}/redact"
    for _ in range(2):
        answer = api.post(url, headers={"idempotency-key": "once"})
        assert answer.json() == {"id": known["item_id"], "object": "conversation.item.redacted", "redacted": True}
    for branch in (0, fork):
        item = api.get(f"{path}/messages/{known['item_id']}", params={"branch": branch}).json()["item"]
        assert item["content"] == [{"type": "input_text", "text": "[redacted]"}]
    assert api.get(f"/media/{known['hash']}").status_code == 404


def test_other_tenants_have_nothing(served: Any, known: dict[str, str]) -> None:
    served.tenant = f"{served.tenant} too"
    served.call(served._store.create_tenant, served.tenant)
    api = Rest(served).of("ann")
    for one in NAMED:
        answer = asked(api, one, known)
        if "{user_id}" in one.path:  # the user of that tenant
            assert answer.json()["conversations"] == 0
        else:
            assert answer.status_code == 404, (one.method, one.path)
    served.tenant = served.tenant.removesuffix(" too")
    assert Rest(served).of("ann").get(f"/conversations/{known['conversation_id']}").status_code == 200


def test_reports_over_all_tenants_need_a_scope_that_no_key_of_a_tenant_has(served: Any, known: dict[str, str]) -> None:
    def asked(owner: Owner) -> httpx2.Response:
        transport = Bridge(served.runner, rest_app(served._store, auth=lambda _: owner))
        with httpx2.Client(transport=transport, base_url="http://localhost") as client:
            return client.get("/api/usage", params={"by": "tenant,model"})

    every: frozenset[Scope] = frozenset({"read", "write", "usage", "tenants"})
    rows = asked(Owner(scopes=every)).json()["data"]
    assert served.tenant in {row["tenant"] for row in rows}
    assert asked(Owner()).json()["error"]["code"] == "missing_scope"
    assert asked(Owner(tenant=served.tenant)).status_code == 403
    for owner in (Owner(tenant=served.tenant, scopes=every), Owner(user_id="ann", scopes=every)):
        answer = asked(owner)
        assert (answer.status_code, "data" in answer.json()) == (400, False)
    with pytest.raises(InvalidOption, match="scopes"):
        served.call(served._store.keys.create, scopes=["usage", "tenants"])


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


# Names and keys that others use


def test_nobody_learns_which_names_and_keys_others_use(served: Any) -> None:
    """An `external_id` and an `Idempotency-Key` of another user are free."""
    rest, answers = Rest(served), []
    for user in ("ann", "ben"):
        body = {"external_id": "trip", "title": f"Of {user}"}
        answers.append(rest.of(user).post("/conversations", json=body, headers={"Idempotency-Key": "k"}))
    assert [answer.status_code for answer in answers] == [201, 201]
    assert [answer.json()["external_id"] for answer in answers] == ["trip", "trip"]
    assert answers[0].json()["id"] != answers[1].json()["id"]
    for user, answer in zip(("ann", "ben"), answers, strict=True):
        assert rest.of(user).get("/conversations/trip").json()["title"] == f"Of {user}"
        again = rest.of(user).post("/conversations", json={"external_id": "trip"})
        assert (again.status_code, again.json()["error"]["code"]) == (400, "invalid_value")
        body = {"external_id": "trip", "title": f"Of {user}"}
        repeated = rest.of(user).post("/conversations", json=body, headers={"Idempotency-Key": "k"})
        assert repeated.json()["id"] == answer.json()["id"]
        other = rest.of(user).post("/conversations", json={"title": "?"}, headers={"Idempotency-Key": "k"})
        assert other.status_code == 409
    made = rest.of("ben").post("/conversations", json={}).json()["id"]
    assert rest.of("ben").patch(f"/conversations/{made}", json={"external_id": "trip"}).status_code == 400
    changed = rest.of("ann").patch("/conversations/trip", json={"external_id": "journey"})
    assert (changed.status_code, changed.json()["external_id"]) == (200, "journey")
    assert rest.of("ben").patch(f"/conversations/{made}", json={"external_id": "journey"}).status_code == 200


def test_names_that_the_application_gave_are_found_and_taken(served: Any) -> None:
    rest, store = Rest(served), served.store.for_user("ann")
    made = served.call(store.create_conversation, external_id="trip")
    assert rest.of("ann").get("/conversations/trip").json()["id"] == made.id
    assert rest.of("ann").post("/conversations", json={"external_id": "trip"}).status_code == 400
    assert rest.of("ann").patch("/conversations/trip", json={"external_id": "trip"}).json()["external_id"] == "trip"
    assert served.call(store.get_conversation, made.id).external_id == "trip"
    assert rest.of("ben").post("/conversations", json={"external_id": "trip"}).status_code == 201
    assert rest.of("").get("/conversations/trip").json()["id"] == made.id


def test_keys_of_openais_api_are_those_of_their_user(served: Any) -> None:
    headers = {"Idempotency-Key": "k"}
    made = [served.http(user).post("/conversations", json={"metadata": {"a": user}}, headers=headers) for user in "ab"]
    assert [answer.status_code for answer in made] == [200, 200]


# Writing without reading

SECRET = "canary-7f3a91"


def test_who_may_only_write_is_told_nothing_that_is_stored(served: Any) -> None:
    store = served.store.for_user("ann")
    conversation = served.call(
        store.create_conversation, model="m", title=SECRET, instructions=SECRET, labels={"a": SECRET},
        properties={"a": SECRET}, external_id=SECRET, input=SECRET,
    )  # fmt: skip
    body = {"id": "resp_of_ann", "object": "response", "model": "m", "status": "completed", "output": [
        {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": SECRET}]},
    ]}  # fmt: skip
    stored = served.call(conversation.add_response, body, "open_responses")
    item = served.call(conversation.transcript)[0].id
    served.call(conversation.set_feedback, item, comment=SECRET)
    served.call(conversation.register_tools, [{"type": "function", "name": "look", "description": SECRET}])
    asked_for = {"type": "function_call", "call_id": "call_1", "name": SECRET, "arguments": f'{{"a":"{SECRET}"}}'}
    served.call(conversation.add_items, [asked_for, {**asked_for, "call_id": SECRET}])
    owner = Owner(user_id="ann", tenant=served.tenant, scopes=frozenset({"write"}))
    rest = httpx2.Client(
        transport=Bridge(served.runner, rest_app(served._store, auth=lambda _: owner)), base_url="http://localhost/api"
    )
    openai = served.http(auth=lambda _: owner)
    one = f"/conversations/{conversation.id}"
    reference = {"items": [{"type": "item_reference", "id": item}]}
    calls: list[tuple[httpx2.Client, str, str, Any, int]] = [
        (rest, "POST", "/responses/resp_of_ann/cancel", None, 200),
        (rest, "PATCH", one, {}, 200),
        (rest, "POST", f"{one}/tool_calls/call_1/approve", None, 200),
        (rest, "POST", f"{one}/tool_calls/call_1/deny", {}, 409),
        (rest, "POST", f"{one}/tool_outputs", {"tool_outputs": [{"call_id": "other", "output": "x"}]}, 404),
        (
            rest, "POST", f"{one}/tool_outputs",
            {"tool_outputs": [{"call_id": "other", "output": "x"}], "answer": False}, 400,
        ),
        (
            rest, "POST", f"{one}/tool_outputs",
            {"tool_outputs": [{"call_id": "call_1", "output": "x"}], "answer": False}, 201,
        ),
        (rest, "PUT", f"{one}/active_branch", {"branch": 0}, 200),
        (rest, "POST", f"{one}/branches", {}, 201),
        (rest, "PUT", f"{one}/messages/{item}/feedback", {"rating": 1}, 200),
        (rest, "PUT", f"{one}/messages/{item}/labels", {"labels": {}}, 200),
        (openai, "POST", "/responses/resp_of_ann/cancel", None, 200),
        (openai, "POST", one, {"metadata": {}}, 200),
        (openai, "POST", f"{one}/items", reference, 403),
        (openai, "POST", "/conversations", reference, 403),
        (openai, "DELETE", f"{one}/items/{item}", None, 200),
    ]  # fmt: skip
    for http, method, path, given, status in calls:
        answer = http.request(method, path, json=given)
        assert answer.status_code == status, (path, answer.text)
        assert SECRET not in answer.text, path
    assert stored.status == "completed"


@pytest.mark.parametrize("user", ["ann", None])
def test_who_may_only_write_refers_to_own_uploads_alone(served: Any, user: str | None) -> None:
    """Otherwise a model could tell what is on a picture that the key cannot download."""
    contents = [noise(20_000, seed=seed) for seed in (13, 14, 15)]
    stored = f"data:image/png;base64,{base64.b64encode(contents[0]).decode()}"
    made = served.call(served.store.for_user("ann").create_conversation)
    served.call(made.user, [{"type": "input_image", "image_url": stored}])
    names = [f"threadkeep-media:{sha256(one).hexdigest()}" for one in contents]
    served.call(served.store.for_user("ben").upload_media, contents[2])
    owner = Owner(user_id=user, tenant=served.tenant, scopes=frozenset({"write"}))
    rest = httpx2.Client(
        transport=Bridge(served.runner, rest_app(served._store, auth=lambda _: owner)), base_url="http://localhost/api"
    )
    assert rest.post("/media", content=contents[1]).json()["id"] == names[1]

    def said(name: str) -> int:
        body = {"content": [{"type": "input_image", "image_url": name}], "answer": False}
        return rest.post(f"/conversations/{made.id}/messages", json=body).status_code

    assert [said(name) for name in names] == [400, 201, 400]
    assert [rest.get(f"/media/{name}").status_code for name in names] == [403] * 3
    assert len(served.call(made.transcript)) == 2


def test_who_may_only_write_is_not_told_what_others_have_set_since(served: Any) -> None:
    """A repeated request to create a conversation finds it as it is now."""
    owner = Owner(user_id="ann", tenant=served.tenant, scopes=frozenset({"write"}))
    rest = httpx2.Client(
        transport=Bridge(served.runner, rest_app(served._store, auth=lambda _: owner)), base_url="http://localhost/api"
    )
    for number, http in enumerate((rest, served.http(auth=lambda _: owner))):
        headers = {"Idempotency-Key": f"k{number}"}
        made = http.post("/conversations", json={}, headers=headers).json()["id"]
        conversation = served.call(served.store.get_conversation, made)
        served.call(
            conversation.update, title=SECRET, instructions=SECRET, labels={"a": SECRET}, properties={"a": SECRET},
            external_id=f"{SECRET} {number}",
        )  # fmt: skip
        again = http.post("/conversations", json={}, headers=headers)
        assert again.json()["id"] == made
        assert SECRET not in again.text


@pytest.mark.parametrize("format_", ["open_responses", "chat_completion"])
def test_an_answer_tells_who_may_only_write_no_settings_that_are_stored(served: Any, format_: str) -> None:
    """Neither those of the conversation, nor what the provider repeats of them: only what the model says."""
    model = Scripted(format_)
    tool = {"type": "function", "name": SECRET, "description": SECRET, "parameters": {}}
    form = {"format": {"type": "json_schema", "name": SECRET, "schema": {}}}
    repeated = {"instructions": SECRET, "tools": [tool], "text": form}
    made = served.call(
        served.store.for_user("ann").create_conversation, model="m", instructions=SECRET, tools=[tool], text=form,
        metadata={"a": SECRET},
    )  # fmt: skip
    owner = Owner(user_id="ann", tenant=served.tenant, scopes=frozenset({"write"}))
    options: Any = {"auth": lambda _: owner, "upstreams": {"m": model.upstream}}
    calls = [
        (Rest(served, **options).of("ann"), f"/conversations/{made.id}/messages", {"content": "Weather?"}),
        (served.http(**options), "/responses", {"model": "m", "conversation": made.id, "input": "Weather?"}),
    ]
    for http, path, body in calls:
        for way in ({}, {"stream": True}):
            model.will_say("Sunny.")
            if format_ == "open_responses":
                model.scripts[0][-1]["response"] |= repeated
            answer = http.post(path, json={**body, **way})
            assert answer.is_success
            assert "Sunny." in answer.text
            assert SECRET not in answer.text
