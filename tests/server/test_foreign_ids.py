"""Ids of others in every field of bodies and queries: they are like ids of nothing, and show and change nothing."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from typing import Any

import httpx2
import pytest

from tests.server.conftest import Bridge, Served
from tests.server.scripts import Scripted
from tests.server.test_rest_owners import known  # noqa: F401 - a fixture
from threadkeep.domain.ids import response_id
from threadkeep.http import app, rest_app

MADE = re.compile(r"\b[a-z]+_[0-9a-f]{32,}|\b1[0-9]{9}\b|\"position\":\d+")
WORDS = "Hello"  # what the model told ann
Ids = dict[str, str]


def message(content: Any, **more: Any) -> Any:
    return {"role": "user", "content": content, **more}


def parts(ids: Ids) -> list[Any]:
    """Contents that name something."""
    media = f"threadkeep-media:{ids['hash']}"
    return [
        [{"type": "input_image", "image_url": media}], [{"type": "input_image", "file_id": ids["hash"]}],
        [{"type": "input_file", "file_data": media, "filename": "a.png"}], [{"type": "input_file", "file_id": media}],
        [{"type": "input_audio", "input_audio": {"data": media, "format": "wav"}}],
    ]  # fmt: skip


def items(ids: Ids) -> list[Any]:
    """Items that name something."""
    return [
        *({"type": "item_reference", "id": ids[name]} for name in ("item_id", "response_id", "call_id", "answer_id")),
        *(message("Mine", id=ids[name]) for name in ("item_id", "answer_id", "conversation_id")),
        {"type": "function_call_output", "call_id": ids["call_id"], "output": "Mine"},
        {"type": "function_call", "call_id": ids["call_id"], "name": "look", "arguments": "{}", "id": ids["item_id"]},
        {"type": "reasoning", "id": ids["item_id"], "summary": [], "encrypted_content": ids["answer_id"]},
        {"type": "compaction", "id": ids["item_id"], "encrypted_content": ids["item_id"]},
        {"type": "mcp_approval_response", "approval_request_id": ids["call_id"], "approve": True},
        *map(message, parts(ids)),
    ]


def to_openai(ids: Ids, mine: Ids) -> Iterator[tuple[str, str, Any, Any]]:
    """Requests of OpenAI's API: method, path, body and query."""
    asked = {"model": "m", "input": "Mine"}
    for item in items(ids):
        yield "POST", "/conversations", {"items": [item]}, {}
        yield "POST", f"/conversations/{mine['conversation_id']}/items", {"items": [item]}, {}
        yield "POST", "/responses", {**asked, "input": [message("Mine"), item]}, {}
    for name in ("conversation_id", "external_id", "own_id", "response_id"):
        yield "POST", "/responses", {**asked, "conversation": ids[name]}, {}
        yield "POST", "/responses", {**asked, "conversation": {"id": ids[name]}}, {}
        yield "POST", "/responses", {**asked, "previous_response_id": ids[name], "background": name == "own_id"}, {}
        yield "POST", "/responses", {**asked, "prompt": {"id": ids[name]}, "prompt_cache_key": ids[name]}, {}
        for path in ("/conversations", f"/conversations/{mine['conversation_id']}/items"):
            yield "GET", path, None, {"after": ids[name]}
    for path in (f"/conversations/{mine['conversation_id']}/items", f"/responses/{mine['response_id']}/input_items"):
        yield "GET", path, None, {"after": ids["item_id"]}
        yield "GET", path, None, {"after": ids["answer_id"]}
    yield "GET", "/conversations", None, {"user_id": "ann"}
    yield "GET", f"/responses/{mine['response_id']}", None, {"stream": "true", "starting_after": ids["item_id"]}


def to_rest(ids: Ids, mine: Ids) -> Iterator[tuple[str, str, Any, Any]]:
    """Requests of the REST API."""
    chat = f"/conversations/{mine['conversation_id']}"
    for content in parts(ids):
        yield "POST", f"{chat}/messages", {"content": content, "model": "m"}, {}
        yield "POST", f"{chat}/messages/{mine['item_id']}/edit", {"content": content, "model": "m"}, {}
        output = {"type": "function_call_output", "call_id": ids["call_id"], "output": content}
        yield "POST", f"{chat}/tool_outputs", {"tool_outputs": [output], "model": "m"}, {}
    yield "POST", f"{chat}/tool_outputs", {"tool_outputs": [{"call_id": ids["call_id"], "output": "Mine"}]}, {}
    approval = {"type": "mcp_approval_response", "approval_request_id": ids["call_id"], "approve": True}
    yield "POST", f"{chat}/tool_outputs", {"tool_outputs": [approval], "model": "m"}, {}
    yield "POST", f"{chat}/tool_calls/{ids['call_id']}/approve", None, {}
    yield "PUT", f"{chat}/states/{ids['name']}", {"value": 1, "expected_version": 1}, {}
    for name in ("conversation_id", "item_id", "answer_id", "own_id"):
        yield "POST", f"{chat}/regenerate", {"item_id": ids[name], "model": "m"}, {}
        yield "POST", f"{chat}/branches", {"at": ids[name]}, {}
        yield "PUT", f"{chat}/messages/{ids[name]}/feedback", {"rating": 1}, {}
        yield "PUT", f"{chat}/messages/{ids[name]}/labels", {"labels": {"a": "b"}}, {}
        for path in ("/conversations", f"{chat}/messages", f"{chat}/states", f"{chat}/branches"):
            yield "GET", path, None, {"after": ids[name], "user_id": "ann"}
        yield "GET", "/search", None, {"q": WORDS, "conversation_id": ids[name], "after": ids[name], "user_id": "ann"}
        yield "GET", f"/responses/{mine['response_id']}/events", None, {"after": ids[name]}
    yield "PATCH", chat, {"external_id": ids["external_id"], "metadata": {"a": ids["item_id"]}}, {}
    yield "POST", "/conversations", {"external_id": ids["external_id"], "labels": {"a": ids["item_id"]}}, {}


FACES: dict[str, tuple[Any, Callable[[Ids, Ids], Iterator[tuple[str, str, Any, Any]]]]] = {
    "openai": (app, to_openai), "rest": (rest_app, to_rest),
}  # fmt: skip


def all_ids(found: Ids) -> Ids:
    own = {"own_id": response_id(found["conversation_id"], 0), "external_id": "of ann"}
    return {**found, **own}


def unknown(ids: Ids) -> Ids:
    """Ids of the same form, of nothing."""
    others = str.maketrans("0123456789abcdef", "fedcba9876543210")
    return {name: value[:-3] + value[-3:].translate(others) for name, value in ids.items()}


def everything(served: Served, user: str) -> Any:
    """What a user has."""
    store = served.store.for_user(user)
    talks = list(served.call(store.list_conversations, status=None))
    return [
        (talk.id, talk.labels, talk.external_id, talk.properties,
         [(one.position, one.item.to_object()) for one in served.call(talk.transcript)],
         [(one.number, one.status) for one in served.call(talk.responses)])
        for talk in talks
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("face", FACES)
def test_ids_of_others_are_like_ids_of_nothing(served: Served, known: Ids, face: str) -> None:  # noqa: F811
    """With the key of a user, and with one for all users that names that user."""
    make, requests = FACES[face]
    scripted = Scripted("chat_completion")
    application = make(served._store, auth=served.authenticate, prefix="", upstreams={"*": scripted.upstream})
    http = httpx2.Client(transport=Bridge(served.runner, application), base_url="http://localhost")
    ann = served.call(served.store.for_user("ann").get_conversation, known["conversation_id"])
    ids = all_ids({**known, "answer_id": served.call(ann.transcript)[1].id})
    before = everything(served, "ann")
    differences = []
    for number, _ in enumerate(list(requests(ids, ids))):
        told = []
        for given in (ids, unknown(ids)):
            own = served.call(served.store.for_user("ben").create_conversation, model="m", input="Mine")
            body = {"id": "resp_of_ben", "object": "response", "model": "m", "status": "completed", "output": []}
            served.call(own.add_response, body, "open_responses")
            item = served.call(own.transcript)[0].id
            mine = {"conversation_id": own.id, "item_id": item, "response_id": response_id(own.id, 0)}
            method, path, content, query = list(requests(given, mine))[number]
            scripted.scripts.clear()
            scripted.payloads.clear()
            scripted.will_say("Yours.")
            headers = {"Authorization": f"Bearer {('ben', '')[number % 2]}", "x-threadkeep-user": "ben"}
            answer = http.request(method, path, json=content, params=query, headers=headers)
            text = answer.text + json.dumps(scripted.payloads)
            assert WORDS not in text, (method, path, content, query)
            for name in sorted(given, key=lambda name: -len(given[name])):
                text = re.sub(rf"\b{re.escape(given[name])}\b", f"<{name}>", text)
            told.append((answer.status_code, MADE.sub("…", text)))
        if told[0] != told[1]:
            differences.append((method, path, content, query, *told))
    assert differences == []
    assert everything(served, "ann") == before
