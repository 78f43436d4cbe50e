"""The REST API: conversations, messages, branches, and answers that go on after a lost connection."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Iterator
from typing import Any

import httpx2
import pytest
from starlette.routing import Route

from tests.factories import noise
from tests.server.callers import http_scope
from tests.server.conftest import Bridge
from tests.server.servers import running
from threadkeep import AsyncStore, InvalidOption, Store
from threadkeep.http import Owner, Upstream, UpstreamError, app, rest_app
from threadkeep.server.rest import reports, responses
from threadkeep.server.rest.application import ROUTES, openapi_text

WORDS = ["At ", "ten ", "o'clock."]


def chunk(model: str, text: str | None = None) -> dict[str, Any]:
    delta = {} if text is None else {"role": "assistant", "content": text}
    choice = {"index": 0, "delta": delta, "finish_reason": "stop" if text is None else None}
    return {"id": "chatcmpl-1", "model": model, "choices": [choice]}


async def ask(_payload: Any, model: str) -> Any:
    for word in WORDS:
        yield chunk(model, word)
    yield chunk(model)


async def refuse(_payload: Any, _model: str) -> Any:
    raise UpstreamError(429, None, "Too many.")
    yield


UPSTREAMS = {"m": Upstream("any", "chat_completion", ask), "busy": Upstream("busy", "chat_completion", refuse)}


class Rest:
    """Clients of the REST API over the store of a test."""

    def __init__(self, served: Any, **options: Any) -> None:
        made = rest_app(served._store, **{"auth": served.authenticate, "upstreams": UPSTREAMS, **options})
        self._transport = Bridge(served.runner, made)

    def of(self, user: str) -> httpx2.Client:
        headers = {"Authorization": f"Bearer {user}"}
        return httpx2.Client(transport=self._transport, base_url="http://localhost/api", headers=headers)


@pytest.fixture
def rest(served: Any) -> Rest:
    return Rest(served)


@pytest.fixture
def api(rest: Rest) -> httpx2.Client:
    return rest.of("ann")


@pytest.fixture
def chat(api: httpx2.Client) -> str:
    """The path of a conversation with one answered message."""
    path = f"/conversations/{post(api, '/conversations', model='m', instructions='Be brief.')['id']}"
    post(api, f"{path}/messages", content="When?")
    return path


def post(api: httpx2.Client, path: str, status: int = 201, **body: Any) -> Any:
    answer = api.post(path, json=body)
    assert answer.status_code == status, answer.text
    return answer.json()


def texts(api: httpx2.Client, chat: str, **params: Any) -> list[str]:
    found = api.get(f"{chat}/messages", params={"order": "asc", **params}).json()["data"]
    return [one["item"]["content"][0]["text"] for one in found]


def refusal(answer: httpx2.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


def test_a_conversation_is_made_changed_listed_and_deleted(api: httpx2.Client) -> None:
    made = post(api, "/conversations", title="Trains", labels={"app": "web"}, metadata={"k": "v"}, external_id="x1")
    assert (made["title"], made["labels"], made["metadata"], made["user_id"]) == (
        "Trains", {"app": "web"}, {"k": "v"}, "ann",
    )  # fmt: skip
    path = f"/conversations/{made['id']}"
    changed = api.patch(path, json={"title": None, "labels": None, "model": "m", "metadata": {"k": "w"}}).json()
    assert (changed["title"], changed["labels"], changed["model"], changed["metadata"]) == (None, {}, "m", {"k": "w"})
    assert api.get("/conversations/x1").json() == changed
    assert [one["id"] for one in api.get("/conversations").json()["data"]] == [made["id"]]
    assert api.patch(path, json={"status": "archived"}).json()["status"] == "archived"
    assert api.get("/conversations").json()["data"] == []
    assert len(api.get("/conversations", params={"status": "any"}).json()["data"]) == 1
    assert api.delete(path).json() == {"id": made["id"], "object": "conversation.deleted", "deleted": True}
    assert refusal(api.get(path))[0] == 404


def test_settings_are_those_of_the_conversation(served: Any) -> None:
    """Each answer is asked for with them; null removes one."""
    asked: list[Any] = []

    async def ask_so(payload: Any, model: str) -> Any:
        asked.append(payload)
        async for event in ask(payload, model):
            yield event

    api = Rest(served, upstreams={"*": Upstream("any", "chat_completion", ask_so)}).of("ann")
    settings: dict[str, Any] = {
        "temperature": 0.2,
        "top_p": 0.9,
        "max_output_tokens": 50,
        "reasoning": {"effort": "low"},
    }
    made = post(api, "/conversations", model="m", **settings, text={"verbosity": "high"})
    assert settings.items() <= made.items()
    path = f"/conversations/{made['id']}"
    post(api, f"{path}/messages", content="Hello")
    changed = api.patch(path, json={"temperature": 1, "top_p": None}).json()
    assert (changed["temperature"], changed["top_p"], changed["max_output_tokens"]) == (1, None, 50)
    post(api, f"{path}/messages", content="Hello again")
    names = ("temperature", "top_p", "reasoning_effort", "verbosity", "max_completion_tokens")
    assert [[payload.get(name) for name in names] for payload in asked] == [
        [0.2, 0.9, "low", "high", 50], [1, None, "low", "high", 50],
    ]  # fmt: skip
    for name, value in (("reasoning", "low"), ("temperature", "hot"), ("max_output_tokens", 1.5)):
        assert refusal(api.patch(path, json={name: value})) == (400, "invalid_value", name)


@pytest.mark.parametrize("more", [{}, {"title": "x"}], ids=["status alone", "more"])
def test_a_repeated_change_changes_nothing_again(api: httpx2.Client, more: dict[str, str]) -> None:
    path, headers = f"/conversations/{post(api, '/conversations')['id']}", {"Idempotency-Key": "k1"}
    body = {**more, "status": "archived"}
    assert api.patch(path, json=body, headers=headers).json()["status"] == "archived"
    for other in ({**body, "status": "active"}, more, {**body, "model": "m"}):
        assert refusal(api.patch(path, json=other, headers=headers))[:2] == (409, "idempotency_conflict")
    assert api.get(path).json()["status"] == "archived"
    assert api.patch(path, json={"title": "y", "status": "active"}).status_code == 200
    again = api.patch(path, json=body, headers=headers)
    assert (again.status_code, again.json()["title"], again.json()["status"]) == (200, "y", "active")


def test_problems_have_the_names_of_requests(api: httpx2.Client) -> None:
    assert refusal(api.get("/search")) == (400, "invalid_value", "q")
    assert refusal(api.get("/search", params={"q": "?!"})) == (400, "invalid_value", "q")
    assert refusal(api.get("/conversations", params={"status": "new"})) == (400, "invalid_value", "status")
    path, headers = f"/conversations/{post(api, '/conversations')['id']}/messages", {"Idempotency-Key": "k1"}
    assert api.post(path, json={"content": "Hi", "answer": False}, headers=headers).status_code == 201
    conflict = api.post(path, json={"content": "Ho", "answer": False}, headers=headers)
    assert refusal(conflict) == (409, "idempotency_conflict", None)
    assert conflict.json()["error"]["message"].startswith("The Idempotency-Key was used before, for another request.")


def test_problems_say_what_there_is_instead(api: httpx2.Client, chat: str) -> None:
    method = api.post(chat, json={"title": "Trains"})
    assert (method.status_code, method.headers["allow"]) == (405, "DELETE, GET, HEAD, PATCH")
    assert "this path takes DELETE, GET, HEAD, PATCH" in method.json()["error"]["message"]
    key = api.put(f"{chat}/active_branch", json={"number": 1})
    assert refusal(key)[2] == "number"
    assert key.json()["error"]["message"].endswith("the keys are branch.")


def test_a_change_that_is_refused_changes_nothing(api: httpx2.Client) -> None:
    path, headers = f"/conversations/{post(api, '/conversations')['id']}", {"Idempotency-Key": "k1"}
    refused = api.patch(path, json={"status": "archived", "metadata": {"k": "x" * 600}}, headers=headers)
    assert refused.status_code == 400
    assert api.get(path).json()["status"] == "active"
    assert api.patch(path, json={"status": "archived"}, headers=headers).json()["status"] == "archived"


def test_lists_come_in_pages(api: httpx2.Client) -> None:
    ids = [post(api, "/conversations")["id"] for _ in range(5)]
    found, after = [], None
    while True:
        page = api.get("/conversations", params={"limit": 2, "order": "asc", **({"after": after} if after else {})})
        found += [one["id"] for one in page.json()["data"]]
        after = page.json()["last_id"]
        if not page.json()["has_more"]:
            break
    assert found == ids


def test_a_message_is_answered(api: httpx2.Client) -> None:
    path = f"/conversations/{post(api, '/conversations', model='m', instructions='Be brief.')['id']}"
    turn = post(api, f"{path}/messages", content="When?")
    assert turn["message"]["item"]["content"][0]["text"] == "When?"
    assert turn["response"]["status"] == "completed"
    assert texts(api, path) == ["When?", "".join(WORDS)]
    assert api.get(path).json()["instructions"] == "Be brief."  # which stay
    response = turn["response"]["id"]
    assert api.get(f"/responses/{response}").json()["output"] == turn["response"]["output"]


def test_a_message_can_be_stored_alone(api: httpx2.Client) -> None:
    path = f"/conversations/{post(api, '/conversations')['id']}"
    turn = post(api, f"{path}/messages", content=[{"type": "input_text", "text": "Note"}], answer=False)
    assert turn["response"] is None
    assert texts(api, path) == ["Note"]
    assert post(api, f"{path}/regenerate", model="m")["branch"] == 0, "it has no answer yet"
    assert texts(api, path) == ["Note", "".join(WORDS)]


def test_a_repeated_message_is_stored_and_answered_once(api: httpx2.Client) -> None:
    path = f"/conversations/{post(api, '/conversations', model='m')['id']}"
    answers = [
        api.post(f"{path}/messages", json={"content": "When?"}, headers={"Idempotency-Key": "k1"}) for _ in range(2)
    ]
    assert [answer.status_code for answer in answers] == [201, 201]
    assert answers[0].json()["response"]["output"] == answers[1].json()["response"]["output"]
    assert answers[0].json()["message"] == answers[1].json()["message"]
    assert len(texts(api, path)) == 2
    other = api.post(f"{path}/messages", json={"content": "Where?"}, headers={"Idempotency-Key": "k1"})
    assert refusal(other)[:2] == (409, "idempotency_conflict")
    api.delete(f"{path}/messages/{answers[0].json()['message']['id']}")
    again = api.post(f"{path}/messages", json={"content": "When?"}, headers={"Idempotency-Key": "k1"})
    assert refusal(again)[0] == 404


@pytest.mark.parametrize("is_answered", [False, True])
def test_a_repeated_edit_returns_its_own_message(api: httpx2.Client, chat: str, *, is_answered: bool) -> None:
    """Wherever the branch ends by then; and no other one when it was removed since."""
    item = api.get(f"{chat}/messages", params={"order": "asc"}).json()["data"][0]["id"]

    def edit() -> httpx2.Response:
        body, headers = {"content": "Where?", "answer": is_answered}, {"Idempotency-Key": "k1"}
        return api.post(f"{chat}/messages/{item}/edit", json=body, headers=headers)

    first = edit().json()
    post(api, f"{chat}/messages", content="Private.", answer=False)
    again = edit().json()
    assert [again[key] for key in ("branch", "message")] == [first[key] for key in ("branch", "message")]
    assert (again["response"] or {}).get("output") == (first["response"] or {}).get("output")
    api.delete(f"{chat}/messages/{first['message']['id']}")
    assert refusal(edit())[0] == 404


PARTS = [{"type": "input_text", "text": "Look."}, {"type": "input_text", "text": "Where?"}]
SMALL = {"type": "input_image", "image_url": "data:image/gif;base64,R0lGODlhAAAAAAAAAAAA"}


@pytest.mark.parametrize("is_answered", [False, True])
@pytest.mark.parametrize("content", ["Where?", [*PARTS, SMALL]], ids=["text", "media"])
def test_a_repeated_message_is_on_its_branch_whichever_is_active(
    api: httpx2.Client, chat: str, content: Any, *, is_answered: bool
) -> None:
    first_item = api.get(f"{chat}/messages", params={"order": "asc"}).json()["data"][0]["id"]

    def say() -> Any:
        body, headers = {"content": content, "answer": is_answered}, {"Idempotency-Key": "k1"}
        answer = api.post(f"{chat}/messages", json=body, headers=headers)
        assert answer.status_code == 201, answer.text
        return answer.json()

    first = say()
    post(api, f"{chat}/messages/{first_item}/edit", content="Another.", answer=False)
    post(api, f"{chat}/messages", content="Private.", answer=False)
    before = texts(api, chat)
    again = say()
    assert (again["branch"], again["message"]) == (0, first["message"])
    assert (again["response"] or {}).get("id") == (first["response"] or {}).get("id")
    assert texts(api, chat) == before


def test_a_message_that_was_refused_is_answered_on_its_branch(served: Any) -> None:
    asked: list[Any] = []

    async def ask_later(payload: Any, model: str) -> Any:
        asked.append([part["text"] for message in payload["messages"] for part in message["content"]])
        if len(asked) == 1:
            raise UpstreamError(503, None, "Later.")
        async for event in ask(payload, model):
            yield event

    application = rest_app(
        served._store, auth=served.authenticate, upstreams={"m": Upstream("any", "chat_completion", ask_later)}
    )
    transport = Bridge(served.runner, application)
    api = httpx2.Client(transport=transport, base_url="http://localhost/api", headers={"Authorization": "Bearer ann"})
    chat, once = f"/conversations/{post(api, '/conversations', model='m')['id']}", {"Idempotency-Key": "k1"}
    base = post(api, f"{chat}/messages", content="Base.", answer=False)["message"]["id"]
    assert api.post(f"{chat}/messages", json={"content": "When?"}, headers=once).status_code == 503
    post(api, f"{chat}/messages/{base}/edit", content="Another.", answer=False)
    turn = api.post(f"{chat}/messages", json={"content": "When?"}, headers=once).json()
    assert (turn["branch"], asked[-1]) == (0, ["Base.", "When?"])
    assert texts(api, chat, branch=0) == ["Base.", "When?", "".join(WORDS)]
    assert texts(api, chat) == ["Another."]


def test_what_a_provider_refuses_leaves_nothing(api: httpx2.Client, chat: str) -> None:
    before = texts(api, chat)
    refused = api.post(f"{chat}/messages", json={"content": "More", "model": "busy"})
    assert refusal(refused) == (429, "upstream_error", None)
    assert texts(api, chat) == before
    missing = api.post(f"{chat}/messages", json={"content": "More", "model": "other"})
    assert refusal(missing) == (404, "model_not_found", "model")
    item = api.get(f"{chat}/messages", params={"order": "asc"}).json()["data"][0]["id"]
    edit: tuple[str, dict[str, str]] = (f"{chat}/messages/{item}/edit", {"content": "Zebra"})
    again: tuple[str, dict[str, str]] = (f"{chat}/regenerate", {})
    for path, body in [edit, again] * 3:
        assert api.post(path, json={**body, "model": "busy"}).status_code == 429
    assert texts(api, chat) == before
    assert api.get(f"{chat}/messages/{item}/siblings").json()["count"] == 1
    assert api.get("/search", params={"q": "zebra"}).json()["data"] == []
    branches = [(one["id"], one["head"], one["is_active"]) for one in api.get(f"{chat}/branches").json()["data"]]
    assert branches == [(0, 1, True), (1, -1, False), (2, 0, False)], "one for each place, which are used again"
    for number, (path, body) in enumerate((edit, again, again), 1):
        answer = api.post(path, json=body, params={"branch": 0})
        assert (answer.status_code, answer.json()["branch"]) == (201, number)
    assert texts(api, chat, branch=1) == ["Zebra", "".join(WORDS)]
    assert [one["id"] for one in api.get(f"{chat}/branches").json()["data"] if one["is_active"]] == [3]


def test_a_refused_edit_with_a_key_stays_for_its_repetition(api: httpx2.Client, chat: str) -> None:
    item = api.get(f"{chat}/messages", params={"order": "asc"}).json()["data"][0]["id"]
    for _ in range(2):
        refused = api.post(
            f"{chat}/messages/{item}/edit", json={"content": "No", "model": "busy"}, headers={"Idempotency-Key": "k1"}
        )
        assert refused.status_code == 429
    assert texts(api, chat) == ["No"]
    assert len(api.get(f"{chat}/branches").json()["data"]) == 2


@pytest.mark.parametrize("path", ["messages/{}/edit", "regenerate"])
def test_what_is_refused_on_another_branch_leaves_the_active_one(api: httpx2.Client, chat: str, path: str) -> None:
    item = api.get(f"{chat}/messages", params={"order": "asc"}).json()["data"][0]["id"]
    post(api, f"{chat}/messages/{item}/edit", content="Another.", answer=False)
    body = {"model": "busy"} | ({"content": "No"} if "edit" in path else {})
    refused = api.post(f"{chat}/{path.format(item)}", json=body, params={"branch": 0})
    assert refusal(refused) == (429, "upstream_error", None)
    assert [branch["id"] for branch in api.get(f"{chat}/branches").json()["data"] if branch["is_active"]] == [1]


@pytest.mark.parametrize("headers", [{}, {"Idempotency-Key": "k1"}], ids=["without a key", "with a key"])
@pytest.mark.parametrize("way", ["say", "edit", "regenerate"])
def test_a_refused_model_is_not_that_of_the_conversation(
    api: httpx2.Client, chat: str, way: str, headers: dict[str, str]
) -> None:
    item = api.get(f"{chat}/messages", params={"order": "asc"}).json()["data"][0]["id"]
    path, body = {
        "say": ("messages", {"content": "More"}),
        "edit": (f"messages/{item}/edit", {"content": "More"}),
        "regenerate": ("regenerate", {}),
    }[way]
    refused = api.post(f"{chat}/{path}", json={**body, "model": "busy"}, headers=headers)
    assert refusal(refused) == (429, "upstream_error", None)
    assert api.get(chat).json()["model"] == "m"


def test_a_model_that_another_request_has_set_meanwhile_stays(served: Any) -> None:
    conversation = served.call(served.store.for_user("ann").create_conversation, model="m")

    async def refuse_later(_payload: Any, _model: str) -> Any:
        await conversation.update(model="other", temperature=0.5)
        raise UpstreamError(404, None, "No such model.")
        yield

    application = rest_app(
        served._store, auth=served.authenticate, upstreams={"bad": Upstream("any", "chat_completion", refuse_later)}
    )
    api = httpx2.Client(
        transport=Bridge(served.runner, application), base_url="http://localhost/api",
        headers={"Authorization": "Bearer ann"},
    )  # fmt: skip
    answer = api.post(f"/conversations/{conversation.id}/messages", json={"content": "Hi", "model": "bad"})
    assert answer.status_code == 404
    found = served.call(served.store.get_conversation, conversation.id)
    assert (found.model, found.temperature) == ("other", 0.5)


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "content"),
        ({"content": 7}, "content"),
        ({"content": "x", "answer": "yes"}, "answer"),
        ({"content": "x", "stream": "yes"}, "stream"),
        ({"content": "x", "contents": "y"}, "contents"),
        ({"content": [{"type": "input_text"}], "answer": False}, None),
    ],
)
def test_what_is_no_message_is_refused(api: httpx2.Client, chat: str, body: Any, param: str | None) -> None:
    before = texts(api, chat)
    answer = api.post(f"{chat}/messages", json=body)
    assert answer.status_code == 400
    assert param is None or answer.json()["error"]["param"] == param
    assert texts(api, chat) == before


def test_other_versions_are_on_branches(api: httpx2.Client, chat: str) -> None:
    first, answer = api.get(f"{chat}/messages", params={"order": "asc"}).json()["data"]
    edited = post(api, f"{chat}/messages/{first['id']}/edit", content="Where?")
    assert texts(api, chat) == ["Where?", "".join(WORDS)]
    found = api.get(f"{chat}/messages/{edited['message']['id']}/siblings").json()
    assert (found["index"], found["count"]) == (1, 2)
    elsewhere = api.get(f"{chat}/messages/{first['id']}/siblings")
    assert (elsewhere.status_code, elsewhere.json()["error"]["code"]) == (404, "not_found")
    assert "Is it on another branch?" in elsewhere.json()["error"]["message"]
    assert api.get(f"{chat}/messages/{first['id']}/siblings", params={"branch": 0}).json()["index"] == 0
    again = post(api, f"{chat}/regenerate")
    assert again["branch"] == 2
    assert texts(api, chat) == ["Where?", "".join(WORDS)]
    branches = api.get(f"{chat}/branches").json()["data"]
    assert [(one["id"], one["is_active"]) for one in branches] == [(0, False), (1, False), (2, True)]
    assert api.put(f"{chat}/active_branch", json={"branch": 0}).json()["branch"] == 0
    assert texts(api, chat) == ["When?", "".join(WORDS)]
    assert texts(api, chat, branch=1)[0] == "Where?"
    fork = post(api, f"{chat}/branches", at=first["id"])
    assert (fork["branch"], fork["head"]) == (3, 0)
    assert texts(api, chat, branch=3) == ["When?"]
    assert answer["branch"] == 0
    for branch in ("x", "-1", "9" * 5000):
        assert refusal(api.get(f"{chat}/messages", params={"branch": branch})) == (400, "invalid_value", "branch")


def test_feedback_labels_states_and_marks(api: httpx2.Client, chat: str) -> None:
    item = api.get(f"{chat}/messages").json()["data"][0]["id"]
    rated = api.put(f"{chat}/messages/{item}/feedback", json={"rating": 1, "comment": "Good"}).json()
    assert [(one["user_id"], one["rating"], one["comment"]) for one in rated["feedback"]] == [("ann", 1, "Good")]
    assert api.put(f"{chat}/messages/{item}/labels", json={"labels": {"a": "b"}}).json()["labels"] == {"a": "b"}
    assert api.get(f"{chat}/messages/{item}").json()["labels"] == {"a": "b"}
    state = api.put(f"{chat}/states/draft", json={"value": {"text": "Hel"}}).json()
    assert (state["value"], state["version"]) == ({"text": "Hel"}, 1)
    assert api.get(f"{chat}/states/draft").json() == state
    assert refusal(api.get(f"{chat}/states/other"))[:2] == (404, "not_found")
    assert [one["is_unread"] for one in api.get("/conversations").json()["data"]] == [True]
    late = api.put(f"{chat}/states/draft", json={"value": 1, "expected_version": 0})
    assert refusal(late)[:2] == (409, "state_conflict")
    assert [one["name"] for one in api.get(f"{chat}/states").json()["data"]] == ["draft"]
    assert api.delete(f"{chat}/states/draft").status_code == 200
    assert api.delete(f"{chat}/states/draft").status_code == 404
    assert api.put(f"{chat}/seen", json={"position": 0}).json() == {"object": "seen", "user_id": "ann", "position": 0}
    assert api.delete(f"{chat}/messages/{item}", params={"purge": "true"}).json()["deleted"]
    assert len(texts(api, chat)) == 1


def test_states_come_in_pages(api: httpx2.Client, chat: str) -> None:
    """By name, all on one page unless asked otherwise; one ends early where its states are large."""
    large = "x" * 1_000_000
    names = [f"{number:02}" for number in range(18)]
    for name in names:
        assert api.put(f"{chat}/states/{name}", json={"value": large if name > "00" else 1}).status_code == 200
    found: list[list[str]] = []
    query: dict[str, Any] = {}
    while True:
        page = api.get(f"{chat}/states", params=query).json()
        found.append([one["name"] for one in page["data"]])
        assert (page["first_id"], page["last_id"]) == (found[-1][0], found[-1][-1])
        if not page["has_more"]:
            break
        query = {"after": page["last_id"]}
    assert found == [names[:17], names[17:]]
    few = api.get(f"{chat}/states", params={"limit": 2, "after": "03"}).json()
    assert ([one["name"] for one in few["data"]], few["has_more"]) == (["04", "05"], True)
    none = api.get(f"{chat}/states", params={"after": "99"}).json()
    assert (none["data"], none["last_id"], none["has_more"]) == ([], "", False)
    assert refusal(api.get(f"{chat}/states", params={"after": "x" * 300}))[::2] == (400, "after")


def test_search_and_usage(api: httpx2.Client, chat: str) -> None:
    [hit] = api.get("/search", params={"q": "clock"}).json()["data"]
    assert chat.endswith(hit["conversation_id"])
    assert [hit["snippet"][slice(*mark)] for mark in hit["marks"]] == ["clock"]
    assert refusal(api.get("/search"))[0] == 400
    [row] = api.get("/usage", params={"by": "model,day", "since": "2020-01-01"}).json()["data"]
    assert (row["model"], row["attempts"]) == ("m", 1)
    assert refusal(api.get("/usage", params={"since": "soon"})) == (400, "invalid_value", "since")
    assert refusal(api.get("/usage", params={"by": "colour"}))[0] == 400
    rows = api.get("/usage", params={"by": "title,label:team,property:plan,feedback"}).json()["data"]
    assert [row["attempts"] for row in rows] == [1]
    [row] = api.get("/usage", params={"percentiles": True}).json()["data"]
    assert row.keys() > {"p50_latency_ms", "p95_latency_ms", "p99_first_token_ms"}


def test_a_report_has_only_so_many_rows(api: httpx2.Client, chat: str, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        post(api, f"{chat}/messages", content="And then?")
    monkeypatch.setattr(reports, "MAX_ROWS", 2)
    many = api.get("/usage", params={"by": "response"})
    assert refusal(many) == (400, "too_many_rows", "by")
    assert "ask for a shorter period, or fewer columns" in many.json()["error"]["message"]
    [row] = api.get("/usage", params={"by": "model"}).json()["data"]
    assert row["attempts"] == 3
    monkeypatch.setattr(reports, "MAX_ROWS", 3)
    assert len(api.get("/usage", params={"by": "response"}).json()["data"]) == 3


def test_media_are_downloaded_by_their_reference(api: httpx2.Client) -> None:
    path, content = f"/conversations/{post(api, '/conversations')['id']}", b"\x89PNG\r\n\x1a\n" + noise(20_000, seed=3)
    url = f"data:image/png;base64,{base64.b64encode(content).decode()}"
    post(api, f"{path}/messages", content=[{"type": "input_image", "image_url": url}], answer=False)
    [item] = api.get(f"{path}/messages").json()["data"]
    reference = item["item"]["content"][0]["image_url"]
    assert len(reference) < 120
    found = api.get(f"/media/{reference}")
    assert (found.content, found.headers["content-type"]) == (content, "image/png")
    assert found.headers["x-content-type-options"] == "nosniff"
    assert found.headers["cache-control"] == "private, max-age=86400, immutable"
    assert found.headers["vary"] == "Authorization, Cookie, X-Threadkeep-Key, X-Threadkeep-User", (
        "one browser may have several users"
    )
    assert refusal(api.get("/media/unknown"))[0] == 400
    assert refusal(api.get(f"/media/{'0' * 64}"))[0] == 404


PICTURE = b"\x89PNG\r\n\x1a\n" + noise(20_000, seed=4)


def upload(api: httpx2.Client, content: bytes, kind: str | None = None) -> Any:
    answer = api.post("/media", content=content, headers={} if kind is None else {"content-type": kind})
    assert answer.status_code == 201, answer.text
    return answer.json()


def test_what_was_uploaded_is_part_of_messages(api: httpx2.Client, served: Any) -> None:
    chat, made = f"/conversations/{post(api, '/conversations', model='m')['id']}", upload(api, PICTURE)
    assert (made["object"], made["media_type"], made["size"]) == ("media", "image/png", len(PICTURE))
    parts = [
        {"type": "input_text", "text": "Look"}, {"type": "input_image", "image_url": made["id"]},
        {"type": "input_file", "file_data": made["id"], "filename": "a.png"},
    ]  # fmt: skip
    turn = post(api, f"{chat}/messages", content=parts, answer=False)
    shown = turn["message"]["item"]["content"]
    assert [shown[1]["image_url"], shown[2]["file_data"]] == [made["id"]] * 2, "an answer does not repeat media"
    found = api.get(made["url"].removeprefix("/api"))
    assert (found.content, found.headers["content-type"]) == (PICTURE, "image/png")
    conversation = served.call(served.store.get_conversation, chat.rpartition("/")[2])
    [said] = served.call(conversation.request_payload, "open_responses")["input"]
    url = f"data:image/png;base64,{base64.b64encode(PICTURE).decode()}"
    assert [part["image_url"] for part in said["content"][1:]] == [url] * 2, "a file that is an image is sent as one"
    path = f"{chat}/messages/{turn['message']['id']}/edit"
    edited = post(api, path, content=shown[1:2], answer=False)
    assert edited["message"]["item"]["content"][0]["image_url"] == made["id"], "nor does the client send them again"


def test_small_media_are_uploaded_too(api: httpx2.Client) -> None:
    chat, made = f"/conversations/{post(api, '/conversations')['id']}", upload(api, b"GIF89a" + bytes(9))
    post(api, f"{chat}/messages", content=[{"type": "input_image", "image_url": made["id"]}], answer=False)
    [found] = api.get(f"{chat}/messages").json()["data"]
    assert found["item"]["content"][0]["image_url"].startswith("data:image/gif;base64,R0lGODlh")


@pytest.mark.parametrize(
    ("kind", "expected"),
    [
        ("application/pdf; q=1", "application/pdf"), ("IMAGE/WEBP", "image/webp"), ("image", "image/png"),
        ("application/x-www-form-urlencoded", "image/png"), ("application/octet-stream", "image/png"),
    ],
)  # fmt: skip
def test_the_type_of_an_upload_is_that_of_its_request(api: httpx2.Client, kind: str, expected: str) -> None:
    assert upload(api, PICTURE, kind)["media_type"] == expected


def test_uploads_that_cannot_be_used_are_refused(served: Any) -> None:
    api = Rest(served, max_body_bytes=50_000).of("ann")
    assert refusal(api.post("/media"))[:2] == (400, "invalid_value")
    assert refusal(api.post("/media", files={"file": PICTURE})) == (400, "invalid_value", "Content-Type")
    assert refusal(api.post("/media", content=bytes(50_001)))[:2] == (413, "request_too_large")
    assert refusal(api.post("/media", content=iter([bytes(30_000)] * 2)))[:2] == (413, "request_too_large")
    path, made = f"/conversations/{post(api, '/conversations')['id']}/messages", upload(api, PICTURE)
    two, three = ([{"type": "input_image", "image_url": made["id"]}] * count for count in (2, 3))
    post(api, path, content=two, answer=False)
    answer = api.post(path, json={"content": three, "answer": False})
    assert refusal(answer)[:2] == (413, "request_too_large"), "a small request must not become a huge message"
    for unknown in ("threadkeep-media:", f"threadkeep-media:{'0' * 64}"):
        content = [{"type": "input_text", "text": "?"}, {"type": "input_image", "image_url": unknown}]
        answer = api.post(path, json={"content": content, "answer": False})
        assert refusal(answer) == (400, "invalid_value", "content.1.image_url")


# Streams


def events_in(text: str) -> list[tuple[str, str, Any]]:
    """The id, type and data of each event."""
    found = []
    for block in text.strip().split("\n\n"):
        fields = dict(line.split(": ", 1) for line in block.split("\n"))
        found.append((fields["id"], fields["event"], json.loads(fields["data"])))
    return found


def said(events: list[tuple[str, str, Any]]) -> str:
    return "".join(data["delta"] for _, kind, data in events if kind == "delta")


def test_a_stream_has_the_text_and_ends_with_what_was_stored(api: httpx2.Client, chat: str) -> None:
    answer = api.post(f"{chat}/messages", json={"content": "And then?", "stream": True})
    assert answer.headers["content-type"].startswith("text/event-stream")
    events = events_in(answer.text)
    assert [kind for _, kind, _ in events] == ["created", *["delta"] * len(WORDS), "done"]
    assert said(events) == "".join(WORDS)
    created, done = events[0][2], events[-1][2]["response"]
    assert done["id"] == created["response"]["id"]
    assert done["output"][0]["content"][0]["text"] == "".join(WORDS)


def test_a_stored_response_is_streamed_from_where_a_client_was(api: httpx2.Client, chat: str) -> None:
    events = events_in(api.post(f"{chat}/messages", json={"content": "And?", "stream": True}).text)
    path = f"/responses/{events[0][2]['response']['id']}/events"
    whole = "".join(WORDS)
    for count in range(1, len(events)):
        number = events[count - 1][0]
        rest = events_in(api.get(path, headers={"Last-Event-ID": number}).text)
        assert said(events[:count]) + said(rest) == whole
        assert rest[-1] == events[-1] or rest[-1][2]["response"]["output"] == events[-1][2]["response"]["output"]
    assert said(events_in(api.get(path).text)) == whole
    assert said(events_in(api.get(path, params={"after": "3"}).text)) == whole[3:]
    assert api.get(path, headers={"Last-Event-ID": "end"}).status_code == 204
    assert refusal(api.get(path, headers={"Last-Event-ID": "x"})) == (400, "invalid_value", "Last-Event-ID")


class Slow:
    """An upstream that goes on when it is told to."""

    def __init__(self) -> None:
        self.asked = 0
        self.allowed = 1

    async def ask(self, _payload: Any, model: str) -> Any:
        self.asked += 1
        for number, word in enumerate(WORDS * 20):
            while number >= self.allowed:  # noqa: ASYNC110 - the test is in another thread
                await asyncio.sleep(0.01)
            yield chunk(model, word)
        yield chunk(model)


@pytest.fixture
def two(database: Any) -> Iterator[tuple[httpx2.Client, httpx2.Client, Slow]]:
    """Two servers of the same database, and the model behind them."""
    slow = Slow()
    with Store(database.url, tenants=True) as store:
        name = f"two {id(slow)}"
        store.create_tenant(name)

    def application(store: AsyncStore) -> Any:
        table = {"m": Upstream("slow", "chat_completion", slow.ask)}
        return rest_app(store, auth=lambda _: Owner(user_id="ann", tenant=name), upstreams=table)

    stores = [AsyncStore(database.url, tenants=True) for _ in range(2)]
    with (
        running(application(stores[0]), stores[0]) as first,
        running(application(stores[1]), stores[1]) as second,
        httpx2.Client(base_url=f"{first}/api", timeout=30) as one,
        httpx2.Client(base_url=f"{second}/api", timeout=30) as other,
    ):
        yield one, other, slow


def begin(api: httpx2.Client, path: str) -> tuple[str, list[tuple[str, str, Any]]]:
    """Ask with a stream, and leave after the first piece of text; return the response's id, and the events."""
    events: list[tuple[str, str, Any]] = []
    with api.stream("POST", path, json={"content": "When?", "stream": True}) as stream:
        block = ""
        for line in stream.iter_lines():
            block += f"{line}\n"
            if not line:
                events += events_in(block)
                block = ""
            if len(events) == 2:
                break
    return events[0][2]["response"]["id"], events


def test_a_lost_connection_ends_no_answer(two: Any) -> None:
    """It goes on, and another process streams what is missing while it does; nothing is asked or said twice."""
    one, other, slow = two
    path = f"/conversations/{post(one, '/conversations', model='m')['id']}/messages"
    response, events = begin(one, path)
    assert said(events) == WORDS[0]
    slow.allowed = 30
    with other.stream("GET", f"/responses/{response}/events", headers={"Last-Event-ID": events[-1][0]}) as stream:
        block = ""
        for line in stream.iter_lines():
            block += f"{line}\n"
            if "delta" in block:
                slow.allowed = len(WORDS) * 20  # the rest, once something has come over
        rest = events_in(block)
    assert said(events) + said(rest) == "".join(WORDS * 20)
    assert len([kind for _, kind, _ in rest if kind == "delta"]) > 1
    assert rest[-1][2]["response"]["status"] == "completed"
    assert slow.asked == 1
    assert len(other.get(path).json()["data"]) == 2


def test_an_answer_in_the_background_is_cancelled_from_another_process(two: Any) -> None:
    one, other, slow = two
    path = f"/conversations/{post(one, '/conversations', model='m')['id']}/messages"
    turn = post(one, path, 202, content="When?", background=True)
    assert turn["response"]["status"] == "queued"
    response = turn["response"]["id"]
    assert other.post(f"/responses/{response}/cancel").status_code == 200
    slow.allowed = len(WORDS) * 20 - 1
    rest = events_in(other.get(f"/responses/{response}/events").text)
    assert rest[-1][2]["response"]["status"] == "cancelled"
    assert said(rest).startswith(WORDS[0])


# The document


def test_every_route_is_in_the_document(api: httpx2.Client, served: Any) -> None:
    document = api.get("/openapi.json").json()
    assert document["openapi"] == "3.1.0"
    routes = {
        (method, route.path.removeprefix("/api"))
        for route in rest_app(served._store).routes
        if isinstance(route, Route)
        for method in (route.methods or set()) - {"HEAD"}
    }
    described = {(method.upper(), path) for path, item in document["paths"].items() for method in item}
    assert routes - described == {("GET", "/openapi.json")}
    assert described <= routes
    names = [item["operationId"] for path in document["paths"].values() for item in path.values()]
    assert len(set(names)) == len(names) == len(ROUTES)
    assert all(item["summary"] for path in document["paths"].values() for item in path.values())


def test_the_document_is_made_once(served: Any) -> None:
    openapi_text.cache_clear()
    application = rest_app(served._store)

    async def ask() -> list[Any]:
        transport, url = httpx2.ASGITransport(app=application), "http://localhost/api"
        async with httpx2.AsyncClient(transport=transport, base_url=url) as http:
            return await asyncio.gather(*(http.get("/openapi.json") for _ in range(8)))

    answers = served.runner.run(ask())
    assert [answer.json()["servers"] for answer in answers] == [[{"url": "/api"}]] * 8
    assert openapi_text.cache_info().misses == 1


def test_what_can_be_got_can_be_asked_about(api: httpx2.Client, chat: str) -> None:
    for path in (chat, f"{chat}/messages", "/openapi.json"):
        got, head = api.get(path), api.head(path)
        assert (head.status_code, head.headers["content-type"]) == (got.status_code, "application/json")
    assert api.head(f"{chat}/tool_outputs").status_code == 405


@pytest.mark.parametrize(("scopes", "status"), [(None, 401), ({"read", "usage"}, 403)], ids=["no key", "its scope"])
@pytest.mark.parametrize("route", [one for one in ROUTES if one.methods != {"GET"}], ids=lambda one: one.unique_id)
def test_no_body_is_read_before_the_key_was_checked(served: Any, route: Any, scopes: Any, status: int) -> None:
    owner = None if scopes is None else Owner(user_id="ann", tenant=served.tenant, scopes=frozenset(scopes))
    [method], sent = route.methods, list[Any]()

    async def receive() -> Any:
        raise AssertionError

    async def send(message: Any) -> None:
        sent.append(message)

    scope = http_scope(f"/api{route.path}", method, {"content-type": "application/json"})
    served.runner.run(rest_app(served._store, auth=lambda _: owner)(scope, receive, send))
    assert sent[0]["status"] == status


@pytest.mark.parametrize("prefix", ["api", "/api/"])
def test_settings_are_checked(served: Any, prefix: str) -> None:
    with pytest.raises(InvalidOption, match="prefix"):
        rest_app(served._store, prefix=prefix)
    with Store("sqlite://") as store, pytest.raises(InvalidOption, match="AsyncStore"):
        rest_app(store)  # type: ignore[arg-type]


@pytest.mark.parametrize("make", [rest_app, app])
@pytest.mark.parametrize(
    ("upstreams", "expected"),
    [
        ({"*": "http://x"}, r"upstreams\['\*'\].* an Upstream, which http_upstream\(…\) makes of a URL"),
        ({"m": None}, "an Upstream"),
        ({1: UPSTREAMS["m"]}, "a model, or a pattern of models"),
        ([UPSTREAMS["m"]], "a mapping"),
    ],
)  # fmt: skip
def test_what_does_not_answer_is_no_upstream(served: Any, make: Any, upstreams: Any, expected: str) -> None:
    with pytest.raises(InvalidOption, match=expected):
        make(served._store, upstreams=upstreams)


def test_texts_are_those_of_streams() -> None:
    items: list[dict[str, Any]] = [
        {"type": "reasoning", "summary": []},
        {"type": "message", "content": "a"},
        {"type": "message", "content": [{"type": "output_text", "text": "b"}, {"type": "refusal", "refusal": "c"}]},
    ]
    assert responses.text_of(items) == "ab"
