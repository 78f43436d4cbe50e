"""Answers that are asked for again: polled in the background, cancelled, or streamed on; and compactions."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from google import genai
from google.genai import types

from tests.databases import Database
from tests.server.recorder.conftest import Recorded, recorder, said
from tests.server.recorder.provider import EVENTS, JSON, Reply, failure, sse, whole
from tests.waiting import wait_until

QUESTION, ID = "Weather in Paris?", "resp_of_provider"


def answer(status: str, **more: Any) -> Reply:
    """A response in the background: of one that has ended, the whole body."""
    if status == "completed":
        body = json.loads(whole("open_responses", "It rains.").chunks[0])
    else:
        body = {"id": ID, "object": "response", "model": "gpt-5.4", "status": status, "output": []}
    return Reply(200, JSON, [json.dumps({**body, "created_at": 1, "background": True, **more}).encode()])


def events(*, first: int = 0, last: int | None = None) -> Reply:
    """The stream of that response, or a part of it."""
    return Reply(200, EVENTS, sse("open_responses", ["It ", "rains."])[first:last])


def client(recorded: Recorded) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{recorded.url}/v1", api_key="sk-of-the-provider", max_retries=0)


def check_answered(recorded: Recorded) -> None:
    """There is one response, and one attempt, with the usage of the answer."""
    [conversation] = recorded.conversations()
    assert said(conversation) == [f"user: {QUESTION}", "assistant: It rains."]
    found = conversation.usage()
    assert (found.attempts, found.input_tokens, found.output_tokens) == (1, 11, 7)
    [response] = conversation.responses()
    assert (response.status, response.provider_response_id) == ("completed", ID)
    [row] = recorded.store.usage(by=("provider", "status"))
    assert (row.provider, row.status, row.attempts) == ("provider", "completed", 1)


def test_an_answer_that_is_polled_belongs_to_its_call(recorded: Recorded) -> None:
    recorded.provider.says(answer("queued"), answer("queued"), answer("in_progress"), *[answer("completed")] * 3)
    with client(recorded) as openai_:
        made = openai_.responses.create(model="gpt-5.4", input=QUESTION, background=True)
        while made.status in ("queued", "in_progress"):
            made = openai_.responses.retrieve(made.id)
        recorded.wait_for(2)
        check_answered(recorded)
        openai_.responses.retrieve(made.id)
        openai_.responses.retrieve(made.id)
    recorded.wait_until_idle()
    recorded.wait_for(2)
    check_answered(recorded)


def test_what_follows_an_answer_that_was_polled_goes_on_with_it(recorded: Recorded) -> None:
    recorded.provider.says(answer("queued"), answer("completed"), whole("open_responses", "Take an umbrella."))
    with client(recorded) as openai_:
        made = openai_.responses.create(model="gpt-5.4", input=QUESTION, background=True)
        openai_.responses.retrieve(made.id)
        openai_.responses.create(model="gpt-5.4", input="And now?", previous_response_id=made.id)
    recorded.wait_for(3)
    [conversation] = recorded.conversations()
    texts = [QUESTION, "It rains.", "And now?", "Take an umbrella."]
    assert [line.partition(": ")[2] for line in said(conversation)] == texts


def test_an_answer_that_is_cancelled_is_stored_as_cancelled(recorded: Recorded) -> None:
    recorded.provider.says(answer("in_progress"), answer("cancelled"), answer("cancelled"))
    with client(recorded) as openai_:
        made = openai_.responses.create(model="gpt-5.4", input=QUESTION, background=True)
        openai_.responses.cancel(made.id)
        openai_.responses.retrieve(made.id)
    recorded.wait_for(2)
    [conversation] = recorded.conversations()
    assert [response.status for response in conversation.responses()] == ["cancelled"]
    assert [(row.status, row.attempts) for row in recorded.store.usage(by=("status",))] == [("cancelled", 1)]


def test_an_answer_that_failed_in_the_background_is_one_attempt(recorded: Recorded) -> None:
    error = {"code": "server_error", "message": "The model is gone."}
    recorded.provider.says(answer("queued"), answer("failed", error=error))
    with client(recorded) as openai_:
        openai_.responses.retrieve(openai_.responses.create(model="gpt-5.4", input=QUESTION, background=True).id)
    recorded.wait_for(2)
    assert [(row.status, row.attempts) for row in recorded.store.usage(by=("status",))] == [("failed", 1)]


def test_a_stream_that_broke_off_and_goes_on_is_one_call(recorded: Recorded) -> None:
    broken = events(last=3)
    broken.breaks = True
    recorded.provider.says(broken, events(first=3))
    with client(recorded) as openai_:
        asked: Any = {"model": "gpt-5.4", "input": QUESTION, "background": True, "stream": True}
        with pytest.raises(openai.APIConnectionError):
            list(openai_.responses.create(**asked))
        rest = openai_.responses.retrieve(ID, stream=True, starting_after=2)
        assert [event.type for event in rest][-1] == "response.completed"
    assert recorded.provider.calls[-1].target == f"/v1/responses/{ID}?starting_after=2&stream=true"
    recorded.wait_for(2)
    check_answered(recorded)


def test_a_stream_that_its_client_left_and_polls_is_one_call(recorded: Recorded) -> None:
    left = events()
    left.hold_after = 3
    recorded.provider.says(left, answer("in_progress"), answer("completed"))
    with client(recorded) as openai_:
        asked: Any = {"model": "gpt-5.4", "input": QUESTION, "background": True, "stream": True}
        with openai_.responses.create(**asked) as stream:
            next(iter(stream))
            wait_until(lambda: [list(one.responses()) for one in recorded.conversations()] not in ([], [[]]))
        openai_.responses.retrieve(ID)
        openai_.responses.retrieve(ID)
    recorded.wait_for(2)
    check_answered(recorded)


def test_an_answer_that_was_not_recorded_is_none_of_ours(recorded: Recorded) -> None:
    recorded.provider.says(answer("completed"), failure(404, "It has expired."))
    with client(recorded) as openai_:
        assert openai_.responses.retrieve(ID).output_text == "It rains."
        with pytest.raises(openai.NotFoundError):
            openai_.responses.retrieve(ID)
    recorded.wait_until_idle()
    recorded.wait_for(0)
    assert recorded.conversations() == []


def test_an_answer_that_was_whole_stays_as_it_is(recorded: Recorded) -> None:
    recorded.provider.says(whole("open_responses", "It rains."), answer("completed"))
    with client(recorded) as openai_:
        openai_.responses.retrieve(openai_.responses.create(model="gpt-5.4", input=QUESTION).id)
    recorded.wait_for(1)
    recorded.wait_until_idle()
    check_answered(recorded)


def test_an_interaction_in_the_background_is_one_call(recorded: Recorded) -> None:
    made = json.loads(whole("interactions", "It rains.").chunks[0])
    replies = {"in_progress": {**made, "status": "in_progress", "steps": [], "usage": None}, "completed": made}
    recorded.provider.says(*(Reply(200, JSON, [json.dumps(body).encode()]) for body in replies.values()))
    options = types.HttpOptions(base_url=recorded.url)
    with genai.Client(api_key="AIza-of-the-provider", http_options=options) as google:
        asked: Any = google.interactions.create(model="gemini-3-pro", input=QUESTION, background=True)
        google.interactions.get(asked.id)
    recorded.wait_for(2)
    [conversation] = recorded.conversations()
    assert said(conversation) == [f"user: {QUESTION}", "assistant: It rains."]
    assert (conversation.usage().attempts, conversation.usage().output_tokens) == (1, 7)


def test_an_answer_in_the_background_comes_out_of_a_spool(database: Database, tmp_path: Any) -> None:
    with recorder(database, spool=tmp_path) as recorded:
        recorded.provider.says(answer("queued"), answer("in_progress"), answer("completed"))
        with client(recorded) as openai_:
            made = openai_.responses.create(model="gpt-5.4", input=QUESTION, background=True)
            openai_.responses.retrieve(made.id)
            openai_.responses.retrieve(made.id)
        recorded.wait_for(2)
        check_answered(recorded)


def test_a_compaction_is_on_the_bill_alone(recorded: Recorded) -> None:
    """The next call has it in its history, and what its client asks before it is in no conversation."""
    item = {"type": "compaction", "id": "cmp_1", "encrypted_content": "opaque"}
    usage = {"input_tokens": 900, "output_tokens": 30, "total_tokens": 930}
    body = {"id": "resp_2", "object": "response.compaction", "created_at": 1, "output": [item], "usage": usage}
    recorded.provider.says(Reply(200, JSON, [json.dumps(body).encode()]), failure(429, "Slow down."))
    with client(recorded) as openai_:
        asked: Any = {"model": "gpt-5.4", "input": [{"role": "user", "content": QUESTION}]}
        assert openai_.responses.compact(**asked).output[0].type == "compaction"
        with pytest.raises(openai.RateLimitError):
            openai_.responses.compact(**asked)
    recorded.wait_for(2)
    assert recorded.conversations() == []
    rows = recorded.store.usage(by=("model", "status"), order_by="attempts")
    assert sorted((row.model, row.status, row.total_tokens) for row in rows) == [
        ("gpt-5.4", "completed", 930), ("gpt-5.4", "failed", None),
    ]  # fmt: skip
