"""Numbers that are not finite, which JSON has not: they are refused in bodies, and no answer has one."""

from __future__ import annotations

import json
from typing import Any

import httpx2
import pytest

from tests.server.test_bounds import model, openai_api, refusal, rest  # noqa: F401 - fixtures

pytestmark = pytest.mark.one_database

NUMBERS = ["NaN", "Infinity", "-Infinity", "1e999", "1" + "0" * 400 + ".5"]
MESSAGE = '{"role": "user", "content": [{"type": "input_text", "text": "Hi"}, {"more": %s}]}'
# which API, method, path, body, and where the number is in it
BODIES = [
    ("openai", "POST", "/conversations", '{"metadata": {"a": %s}}', "metadata.a"),
    ("openai", "POST", "/conversations", f'{{"items": [{MESSAGE}]}}', "items[0].content[1].more"),
    ("openai", "POST", "{chat}/items", f'{{"items": [{MESSAGE}]}}', "items[0].content[1].more"),
    ("openai", "POST", "/responses", f'{{"model": "m", "input": [{MESSAGE}]}}', "input[0].content[1].more"),
    ("openai", "POST", "/responses", '{"model": "m", "input": "Hi", "temperature": %s}', "temperature"),
    ("rest", "POST", "/conversations", '{"temperature": %s}', "temperature"),
    ("rest", "PATCH", "{chat}", '{"text": {"a": [%s]}}', "text.a[0]"),
    ("rest", "PUT", "{chat}/states/s", '{"value": %s}', "value"),
    ("rest", "PUT", "{chat}/states/s", '{"value": {"grid": [[0.5], [1, %s]]}}', "value.grid[1][1]"),
    ("rest", "POST", "{chat}/messages", '{"content": [{"type": "input_text", "a": %s}]}', "content[0].a"),
    ("rest", "POST", "{chat}/tool_outputs", '{"tool_outputs": [{"output": {"a": %s}}]}', "tool_outputs[0].output.a"),
]


@pytest.fixture
def apis(openai_api: httpx2.Client, rest: httpx2.Client) -> dict[str, httpx2.Client]:  # noqa: F811 - their values
    return {"openai": openai_api, "rest": rest}


@pytest.mark.parametrize(
    ("api", "method", "path", "body", "place"), BODIES, ids=[f"{one[2]} {one[4]}" for one in BODIES]
)
def test_a_number_that_is_not_finite_is_refused_by_its_place(
    apis: dict[str, httpx2.Client], api: str, method: str, path: str, body: str, place: str
) -> None:
    chat = f"/conversations/{apis['rest'].post('/conversations', json={}).json()['id']}"
    for number in NUMBERS:
        answer = apis[api].request(method, path.format(chat=chat), content=body % number)
        assert refusal(answer) == (400, "invalid_value", place)
        assert f"{place} must be a finite number" in answer.json()["error"]["message"]
    assert apis["rest"].get(f"{chat}/messages").json()["data"] == []


def strictly(answer: httpx2.Response) -> Any:
    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON: {answer.text}")

    return json.loads(answer.text.rpartition("data: ")[2], parse_constant=refuse)


def test_what_providers_have_sent_is_answered_with_null(served: Any, apis: dict[str, httpx2.Client]) -> None:
    """The store keeps what came, also where it is not JSON."""
    conversation = served.call(served.store.for_user("ann").create_conversation, model="m", input="Weather?")
    call = {
        "type": "function_call", "call_id": "call_1", "name": "look", "arguments": '{"a": NaN, "b": ["\\ud800"]}',
        "score": float("inf"),
    }  # fmt: skip
    body = {"id": "resp_1", "object": "response", "status": "completed", "model": "m", "output": [call]}
    served.call(conversation.add_response, body, "open_responses")
    chat = f"/conversations/{conversation.id}"
    [waiting] = strictly(apis["rest"].get(f"{chat}/tool_calls"))["data"]
    assert waiting["arguments"] == {"a": None, "b": ["\ud800"]}
    for api, path in (
        ("openai", f"{chat}/items"), ("openai", "/responses/resp_1"), ("openai", "/responses/resp_1?stream=true"),
        ("rest", f"{chat}/messages"), ("rest", "/responses/resp_1"), ("rest", "/responses/resp_1/events"),
    ):  # fmt: skip
        answer = apis[api].get(path)
        assert answer.status_code == 200
        strictly(answer)
