"""How many things one request may bring to either API: more would keep the server from answering others."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from typing import Any

import httpx2
import pytest
from pydantic import ValidationError

from tests.server.conftest import Bridge
from tests.server.scripts import Scripted
from threadkeep.http import rest_app
from threadkeep.server.body_limits import check_values
from threadkeep.server.problems import Problem
from threadkeep.server.rest.models import ToolOutputs
from threadkeep.store.work.states import MAX_STATE_BYTES

PART = {"type": "input_text", "text": "a"}
HELLO = {"role": "user", "content": "Hello"}
MANY = {"role": "user", "content": [PART] * 1_001}


@pytest.fixture
def model() -> Scripted:
    return Scripted("chat_completion")


@pytest.fixture
def openai_api(served: Any, model: Scripted) -> httpx2.Client:
    api: httpx2.Client = served.http(upstreams={"m": model.upstream})
    return api


@pytest.fixture
def rest(served: Any, openai_api: httpx2.Client) -> Iterator[httpx2.Client]:
    made = rest_app(served._store, auth=served.authenticate)
    transport = Bridge(served.runner, made)
    with httpx2.Client(transport=transport, base_url="http://localhost/api", headers=openai_api.headers) as client:
        yield client


def tools(count: int) -> list[Any]:
    return [{"type": "function", "name": f"f{number}", "parameters": {}, "strict": False} for number in range(count)]


def refusal(answer: httpx2.Response) -> tuple[int, str, str | None]:
    error = answer.json()["error"]
    return answer.status_code, error["code"], error["param"]


@pytest.mark.parametrize(
    ("asked", "param"),
    [
        ({"input": [HELLO] * 2_001}, "input"),
        ({"input": [HELLO, MANY]}, "input[1].content"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": [PART] * 1_001}]}, "input[0].output"),
        ({"input": "Hello", "tools": tools(513)}, "tools"),
    ],
)
def test_a_question_with_too_many_things_is_refused(
    openai_api: httpx2.Client, model: Scripted, asked: dict[str, Any], param: str
) -> None:
    answer = openai_api.post("/responses", json={"model": "m", **asked})
    assert refusal(answer) == (400, "array_above_max_length", param)
    assert "at most" in answer.json()["error"]["message"]
    assert model.payloads == []
    assert openai_api.get("/conversations").json()["data"] == []


def test_a_long_history_and_many_tools_are_not_too_many(openai_api: httpx2.Client, model: Scripted) -> None:
    model.will_say("Yes.")
    history = [{"role": "user", "content": [PART]}] * 2_000
    answer = openai_api.post("/responses", json={"model": "m", "input": history, "tools": tools(512)})
    assert answer.status_code == 200, answer.text
    assert len(model.payloads[0]["tools"]) == 512
    assert len(model.payloads[0]["messages"]) == 2_000


def test_an_item_with_too_many_parts_is_not_appended(openai_api: httpx2.Client) -> None:
    path = f"/conversations/{openai_api.post('/conversations', json={}).json()['id']}/items"
    assert refusal(openai_api.post(path, json={"items": [HELLO, MANY]})) == (
        400, "array_above_max_length", "items[1].content",
    )  # fmt: skip
    assert refusal(openai_api.post("/conversations", json={"items": [MANY]}))[2] == "items[0].content"
    assert openai_api.get(path).json()["data"] == []
    assert openai_api.post(path, json={"items": [{**MANY, "content": [PART] * 1_000}]}).status_code == 200


def test_a_message_with_too_many_parts_is_not_said(rest: httpx2.Client) -> None:
    path = f"/conversations/{rest.post('/conversations', json={}).json()['id']}/messages"
    said = rest.post(path, json={"content": [PART] * 1_000, "answer": False})
    assert said.status_code == 201, said.text
    places = (path, f"{path}/{said.json()['message']['id']}/edit")
    for place in places:
        answer = rest.post(place, json={"content": [PART] * 1_001, "answer": False})
        assert refusal(answer) == (400, "array_above_max_length", "content")
    assert len(rest.get(path).json()["data"]) == 1


@pytest.mark.parametrize("value", [[0] * 50_000, {str(number): {} for number in range(50_000)}, [[[0] * 25_000] * 2]])
def test_a_body_with_too_many_values_is_refused(openai_api: httpx2.Client, rest: httpx2.Client, value: Any) -> None:
    """Also where there is no list to be counted, as in a schema."""
    schema = {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object", "properties": value}}}
    path = f"/conversations/{openai_api.post('/conversations', json={}).json()['id']}"
    for answer in (
        openai_api.post("/responses", json={"model": "m", "input": "Hello", "text": schema}),
        openai_api.post("/conversations", json={"metadata": {}, "more": value}),
        openai_api.post(path, json={"metadata": {}, "more": value}),
        openai_api.post(f"{path}/items", json={"items": [{**HELLO, "more": {"value": value}}]}),
        rest.post("/conversations", json={"labels": value}),
        rest.post(f"{path}/messages", json={"content": [{**PART, "more": value}]}),
    ):
        assert refusal(answer) == (413, "request_too_large", None)
    assert openai_api.get(f"{path}/items").json()["data"] == []
    assert len(openai_api.get("/conversations").json()["data"]) == 1


def test_a_state_may_have_many_values(rest: httpx2.Client) -> None:
    """They are kept as one text, which has a limit of its own."""
    path = f"/conversations/{rest.post('/conversations', json={}).json()['id']}/states/grid"
    assert rest.put(path, json={"value": [0] * 60_000}).status_code == 200
    russian = "\u0416" * (MAX_STATE_BYTES // 2 - 1)  # escaped in the request, to three times the size
    assert rest.put(path, content=json.dumps({"value": russian})).status_code == 200
    assert refusal(rest.put(path, content=json.dumps({"value": russian + "xx"})))[:2] == (413, "request_too_large")


def test_more_than_a_state_can_have_is_refused_before_it_is_read(rest: httpx2.Client) -> None:
    path = f"/conversations/{rest.post('/conversations', json={}).json()['id']}/states/grid"
    answer = rest.put(path, json={"value": [[]] * 600_000})
    assert answer.json()["error"]["message"].startswith("The body has more than 524,288 values")
    answer = rest.put(path, json={"value": "x" * 4_000_000})
    assert answer.json()["error"]["message"] == "The body exceeds 3,146,752 bytes."
    assert rest.get(path.rpartition("/")[0]).json()["data"] == []


def test_a_body_with_metadata_alone_is_small(openai_api: httpx2.Client) -> None:
    path = f"/conversations/{openai_api.post('/conversations', json={}).json()['id']}"
    metadata = {f"{number:02}".ljust(64, "\U0001f600"): "\U0001f600" * 512 for number in range(16)}
    answer = openai_api.post(path, content=json.dumps({"metadata": metadata}))  # with everything escaped
    assert answer.json()["metadata"] == metadata
    large = openai_api.post(path, json={"metadata": {}, "more": "x" * 300_000})
    assert refusal(large)[:2] == (413, "request_too_large")
    assert openai_api.get(path).json()["metadata"] == metadata


@pytest.mark.parametrize(
    ("value", "count"),
    [
        ({}, 0), ({"a": 1}, 1), ({"a": []}, 1), ({"a": [[]]}, 2), ({"a": [{}, {}]}, 3), ({"a": [1, [2, {"b": 3}]]}, 6),
        ({"a": '[,{"\\'}, 1), ({'",[': '\\",{[', "b": "\\\\"}, 2), ({"a": ["[ ]", "{}"], "b": {"c": {"d": {}}}}, 6),
    ],
)  # fmt: skip
@pytest.mark.parametrize("indent", [None, 2])
def test_values_are_counted_where_they_are(value: Any, count: int, indent: int | None) -> None:
    text = json.dumps(value, indent=indent).replace("[]", "[ \n]").encode()
    check_values(text, count)
    if count:
        with pytest.raises(Problem, match="more than"):
            check_values(text, count - 1)


def test_a_text_with_many_commas_is_one_value(rest: httpx2.Client) -> None:
    path = f"/conversations/{rest.post('/conversations', json={}).json()['id']}/messages"
    text = ', "[{\\' * 60_000
    assert rest.post(path, json={"content": text, "answer": False}).status_code == 201


@pytest.mark.parametrize("text", [b'""' * 6_000_000 + b"," * 60_000, b'{"a":"' + b'\\",' * 4_000_000, b"[ " * 60_000])
def test_what_is_no_json_is_not_counted_for_long(text: bytes) -> None:
    began = time.process_time()
    with suppress(Problem):
        check_values(text)
    assert time.process_time() - began < 1


def test_a_conversation_and_an_item_have_at_most_64_labels(rest: httpx2.Client) -> None:
    few, many = ({f"k{number}": "v" for number in range(count)} for count in (64, 65))
    made = rest.post("/conversations", json={"labels": few}).json()
    assert made["labels"] == few
    path = f"/conversations/{made['id']}"
    item = rest.post(f"{path}/messages", json={"content": "Hello", "answer": False}).json()["message"]
    assert rest.put(f"{path}/messages/{item['id']}/labels", json={"labels": few}).json()["labels"] == few
    for answer in (
        rest.post("/conversations", json={"labels": many}),
        rest.patch(path, json={"labels": many}),
        rest.put(f"{path}/messages/{item['id']}/labels", json={"labels": many}),
    ):
        assert refusal(answer) == (400, "invalid_value", "labels")
        assert "at most 64 items" in answer.json()["error"]["message"]
    [listed] = rest.get("/conversations").json()["data"]
    assert listed["labels"] == few
    assert rest.get(f"{path}/messages/{item['id']}").json()["labels"] == few


def test_of_many_unknown_keys_the_first_is_named(rest: httpx2.Client) -> None:
    """An error for each of them would take longer than the request, and keep all others waiting."""
    path = f"/conversations/{rest.post('/conversations', json={}).json()['id']}"
    body = {"value": 1, **{f"k{number}": 1 for number in range(20_000)}}
    answer = rest.put(f"{path}/states/s", json=body)
    assert refusal(answer) == (400, "invalid_value", "k0")
    labels = {"labels": {f"k{number}": 1 for number in range(20_000)}}
    item = rest.post(f"{path}/messages", json={"content": "Hello", "answer": False}).json()["message"]
    for answer in (rest.patch(path, json=labels), rest.put(f"{path}/messages/{item['id']}/labels", json=labels)):
        assert refusal(answer) == (400, "invalid_value", "labels")


MANY_KEYS = {f"k{number}": 1 for number in range(90)}
APPROVAL = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}


@pytest.mark.parametrize(
    ("output", "param"),
    [
        (MANY_KEYS, ".k0"),
        ({"call_id": "c", "output": "x", **MANY_KEYS}, ".k0"),
        (APPROVAL | MANY_KEYS, ".k0"),
        ({"call_id": "c", "output": [1] * 90}, ".output"),
        ({"call_id": 1, "output": 1, "status": 1}, ".call_id"),
        (1, ""),
    ],
)
def test_of_many_outputs_the_first_that_is_wrong_is_named(rest: httpx2.Client, output: Any, param: str) -> None:
    """However many keys and values are wrong in it: each of them would take as long as the first."""
    body = {"tool_outputs": [output] * 512}
    path = f"/conversations/{rest.post('/conversations', json={}).json()['id']}/tool_outputs"
    assert refusal(rest.post(path, json=body)) == (400, "invalid_value", f"tool_outputs.0{param}")
    with pytest.raises(ValidationError) as refused:
        ToolOutputs.model_validate(body)
    assert refused.value.error_count() <= 5


def test_an_error_repeats_little_of_what_was_sent(rest: httpx2.Client) -> None:
    answer = rest.post("/conversations", json={"k" * 100_000: 1})
    assert answer.status_code == 400
    assert len(answer.content) < 5_000
