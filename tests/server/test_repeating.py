"""Requests that are repeated: while the first one goes on, after it, and after its answer was deleted."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from typing import Any

import httpx2
import pytest

from tests.server.scripts import FORMATS, Scripted, script
from threadkeep.http import Limits, Owner, Upstream, UpstreamError, app, rest_app, site
from threadkeep.server.turns import Turn

KEY = {"Idempotency-Key": "one"}
FORMAT: Any = "chat_completion"


class Slow:
    """An upstream whose answer is held back after its first words."""

    def __init__(self, texts: Sequence[str] = ("Once ", "only.")) -> None:
        self.bills, self.texts = 0, texts
        self.begun, self.release = asyncio.Event(), asyncio.Event()
        self.upstream = Upstream("slow", FORMAT, self.ask)

    async def ask(self, _payload: Any, _model: str) -> AsyncGenerator[Any]:
        self.bills += 1
        for number, event in enumerate(script(FORMAT, list(self.texts)) if self.texts else []):
            if number == 2:
                self.begun.set()
                await self.release.wait()
            yield event


async def call(application: Any, path: str, body: Any, **headers: str | None) -> httpx2.Response:
    given = {"Authorization": "Bearer ann", **KEY, **headers}
    transport = httpx2.ASGITransport(app=application, raise_app_exceptions=False)
    async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
        sent = {name: value for name, value in given.items() if value is not None}
        return await http.post(path, json=body, headers=sent)


def faces(served: Any, slow: Slow | Scripted) -> dict[str, Any]:
    options: Any = {"auth": served.authenticate, "prefix": "", "upstreams": {"m": slow.upstream}}
    return {"openai": app(served._store, **options), "rest": rest_app(served._store, **options)}


MESSAGES = [{"role": "user", "content": "How often?"}]


@pytest.mark.parametrize(
    ("path", "asked"),
    [
        ("/responses", {"input": "How often?"}),
        ("/responses", {"input": MESSAGES, "store": False}),
        ("/chat/completions", {"messages": MESSAGES, "store": True}),
    ],
    ids=["responses", "not stored", "chat"],
)
def test_users_with_the_same_key_have_answers_of_their_own(served: Any, path: str, asked: Any) -> None:
    async def run() -> None:
        model = Scripted(FORMAT)
        application = app(
            served._store, auth=served.authenticate, prefix="", upstreams={"m": model.upstream}, store_false="keep"
        )
        ids: dict[str, set[str]] = {"Bearer ann": set(), "Bearer ben": set()}
        for key, found in (*ids.items(), *ids.items()):
            model.will_say("Once.")
            answer = await call(application, path, {"model": "m", **asked}, Authorization=key)
            assert answer.status_code == 200, answer.text
            found.add(answer.json()["id"])
        assert (len(model.payloads), [len(found) for found in ids.values()]) == (2, [1, 1])
        assert len(set.union(*ids.values())) == 2

    served.runner.run(run())


@pytest.mark.parametrize("face", ["openai", "rest"])
def test_a_request_that_is_repeated_later_gets_the_same_answer(served: Any, face: str) -> None:
    """To the second in which it began."""

    async def run() -> list[Any]:
        model, path, body = Scripted(FORMAT), "/responses", {"model": "m", "input": "How often?"}
        model.will_say("Once.")
        if face == "rest":
            conversation = await served.store.for_user("ann").create_conversation(model="m")
            path, body = f"/conversations/{conversation.id}/messages", {"content": "How often?"}
        application = faces(served, model)[face]
        first = await call(application, path, body)
        await asyncio.sleep(1.1)
        return [first.json(), (await call(application, path, body)).json()]

    first, again = served.runner.run(run())
    assert first == again


@pytest.mark.parametrize("more", [{}, {"stream": True}], ids=["plain", "stream"])
@pytest.mark.parametrize("place", ["new", "conversation", "previous_response_id", "rest"])
def test_a_request_that_is_repeated_while_it_goes_on_is_not_answered_twice(
    served: Any, more: dict[str, Any], place: str
) -> None:
    async def run() -> tuple[httpx2.Response, list[httpx2.Response], httpx2.Response, int]:
        slow, store = Slow(), served.store.for_user("ann")
        found = faces(served, slow)
        application, path, body = found["openai"], "/responses", {"model": "m", "input": "How often?", **more}
        if place != "new":
            conversation = await store.create_conversation(model="m", input="Hello")
        if place == "conversation":
            body["conversation"] = conversation.id
        elif place == "previous_response_id":
            given = {"id": "resp_0", "output": [{"type": "message", "role": "assistant", "content": "Hi"}]}
            await conversation.add_response({**given, "model": "m", "status": "completed"}, "open_responses")
            body["previous_response_id"] = "resp_0"
        elif place == "rest":
            path, body = f"/conversations/{conversation.id}/messages", {"content": "How often?", **more}
            application = found["rest"]
        first = asyncio.ensure_future(call(application, path, body))
        await slow.begun.wait()
        meanwhile = [await call(application, path, {**body, **changes}) for changes in ({}, {"stream": True}, more)]
        slow.release.set()
        return await first, meanwhile, await call(application, path, body), slow.bills

    first, meanwhile, later, bills = served.runner.run(run())
    assert (first.is_success, bills) == (True, 1)
    for answer in meanwhile:
        assert (answer.status_code, answer.json()["error"]["code"]) == (409, "request_in_progress"), answer.text
        assert answer.headers["retry-after"]
        assert "x-should-retry" not in answer.headers  # clients of OpenAI repeat it
    assert later.is_success
    assert "Once only." in later.text.replace('","delta":"', "") or more


def test_another_request_meanwhile_finds_the_conversation_locked(served: Any) -> None:
    async def run(content: Any) -> tuple[httpx2.Response, Any]:
        slow, conversation = Slow(), await served.store.for_user("ann").create_conversation(input="Hello")
        application = faces(served, slow)["openai"]
        body = {"model": "m", "input": content, "conversation": conversation.id, "instructions": "Be brief."}
        first = asyncio.ensure_future(call(application, "/responses", body))
        await slow.begun.wait()
        changed = {**body, "instructions": "Be rude."}
        other = await call(application, "/responses", changed, **{"Idempotency-Key": "two"})
        slow.release.set()
        await first
        return other, await conversation.clone_config()

    for content in ("How often?", None):
        other, found = served.runner.run(run(content))
        assert (other.status_code, other.json()["error"]["code"]) == (400, "conversation_locked")
        assert found.instructions == "Be brief."


@pytest.mark.parametrize("place", ["openai", "rest"])
def test_a_repeated_request_leaves_the_settings_that_came_since(served: Any, place: str) -> None:
    async def run() -> tuple[str | None, int]:
        slow, conversation = Slow(), await served.store.for_user("ann").create_conversation(model="m")
        slow.release.set()
        application, path, body = faces(served, slow)[place], "/responses", {"model": "m"}
        if place == "openai":
            body |= {"input": "How often?", "conversation": conversation.id}
        else:
            path, body["content"] = f"/conversations/{conversation.id}/messages", "How often?"
        first = await call(application, path, body)
        await conversation.update(model="another")
        again = await call(application, path, body)
        assert (first.is_success, again.is_success) == (True, True)
        return (await served.store.get_conversation(conversation.id)).model, slow.bills

    assert served.runner.run(run()) == ("another", 1)


@pytest.mark.parametrize("place", ["openai", "rest"])
@pytest.mark.parametrize("texts", [["Once."], [""]], ids=["an answer", "nothing"])
@pytest.mark.parametrize("is_stream", [False, True])
def test_an_answer_that_was_deleted_is_not_found_under_its_key(
    served: Any, texts: list[str], place: str, *, is_stream: bool
) -> None:
    async def run() -> tuple[str, httpx2.Response, int]:
        slow = Slow(texts)
        slow.release.set()
        application, path, body = faces(served, slow)[place], "/responses", {"model": "m", "stream": is_stream}
        body |= {"input": "How often?"} if place == "openai" else {"content": "How often?"}
        if place == "rest":
            conversation = await served.store.for_user("ann").create_conversation(model="m")
            path = f"/conversations/{conversation.id}/messages"
        first = await call(application, path, {**body, "stream": False})
        found = first.json()
        await served.store.delete_response((found if place == "openai" else found["response"])["id"])
        return first.text, await call(application, path, body), slow.bills

    _, again, bills = served.runner.run(run())
    assert (again.status_code, again.json()["error"]["code"], bills) == (404, "not_found", 1)


def test_the_events_of_a_response_end_when_it_is_deleted(served: Any) -> None:
    http = served.http()
    conversation = served.call(served.store.for_user("ann").create_conversation, model="m", input="Hi")
    given = {"id": "resp_0", "object": "response", "model": "m", "status": "completed", "output": []}
    served.call(conversation.add_response, given, "open_responses")
    assert http.get("/responses/resp_0", params={"stream": True}).is_success
    served.call(served.store.delete_response, "resp_0")
    for query in ({}, {"stream": True}, {"stream": True, "starting_after": 1}):
        assert http.get("/responses/resp_0", params=query).status_code == 404


@pytest.mark.parametrize("key", ["", " "], ids=repr)
@pytest.mark.parametrize(
    ("face", "path"),
    [
        ("openai", "/responses"), ("openai", "/conversations"), ("openai", "/conversations/{}/items"),
        ("rest", "/conversations"), ("rest", "/conversations/{}/messages"),
    ],
)  # fmt: skip
def test_an_empty_key_is_refused(served: Any, face: str, path: str, key: str) -> None:
    """It would be one key for all requests of all users."""

    async def run() -> tuple[httpx2.Response, int]:
        slow, conversation = Slow(), await served.store.for_user("ann").create_conversation(model="m")
        slow.release.set()
        bodies: dict[str, dict[str, Any]] = {
            "/responses": {"model": "m", "input": "Hi"},
            "/conversations/{}/items": {"items": []},
            "/conversations/{}/messages": {"content": "Hi"},
        }
        headers = {"Idempotency-Key": key}
        answer = await call(faces(served, slow)[face], path.format(conversation.id), bodies.get(path, {}), **headers)
        return answer, slow.bills

    answer, bills = served.runner.run(run())
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"], bills) == (400, "invalid_value", "Idempotency-Key", 0)


# What is an answer, and what is a refusal


def ended(format_: str) -> list[Any]:
    """The events of an answer that ended at its limit before anything was said: all tokens went to reasoning."""
    chunk = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "m"}
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "m", "content": []}
    response = {"id": "resp_of_provider", "object": "response", "model": "m", "output": []}
    limit = {"status": "incomplete", "incomplete_details": {"reason": "max_output_tokens"}}
    found: dict[str, list[Any]] = {
        "chat_completion": [
            {**chunk, "choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]},
            {**chunk, "choices": [{"index": 0, "delta": {}, "finish_reason": "length"}]},
        ],
        "open_responses": [
            {"type": "response.created", "response": {**response, "status": "in_progress"}},
            {"type": "response.incomplete", "response": {**response, **limit}},
        ],
        "messages": [
            {"type": "message_start", "message": {**message, "usage": {"input_tokens": 3, "output_tokens": 1}}},
            {"type": "message_delta", "delta": {"stop_reason": "max_tokens"}, "usage": {"output_tokens": 500}},
            {"type": "message_stop"},
        ],
        "gemini": [{"responseId": "abc", "candidates": [{"index": 0, "finishReason": "MAX_TOKENS"}]}],
        "interactions": [
            {"event_type": "interaction.completed", "interaction": {"id": "int_1", "status": "budget_exceeded"}}
        ],
        "converse": [{"messageStart": {"role": "assistant"}}, {"messageStop": {"stopReason": "max_tokens"}}],
    }
    return found[format_]


@pytest.mark.parametrize("face", ["openai", "rest"])
@pytest.mark.parametrize("format_", FORMATS)
def test_an_answer_that_ended_before_any_output_is_not_asked_for_again(served: Any, format_: Any, face: str) -> None:
    found, bills = twice(served, face, format_, ended(format_))
    assert [one["status"] for one in found] == ["incomplete"] * 2
    assert (found[0]["id"], found[0]["output"], bills) == (found[1]["id"], [], 1)


@pytest.mark.parametrize("said", ["", "Half an "], ids=["nothing", "a part"])
def test_an_answer_that_was_cut_off_is_not_asked_for_again(served: Any, said: str) -> None:
    """A provider may bill it, even if nothing came."""

    async def run() -> tuple[Any, int]:
        slow, body = Slow([said]), {"model": "m", "input": "How often?"}
        application = faces(served, slow)["openai"]
        first = asyncio.ensure_future(call(application, "/responses", body))
        await slow.begun.wait()
        first.cancel()
        await asyncio.wait([first])
        slow.release.set()
        return (await call(application, "/responses", body)).json(), slow.bills

    found, bills = served.runner.run(run())
    assert (found["status"], len(found["output"]), bills) == ("cancelled", len(said) > 0, 1)


@pytest.mark.parametrize("face", ["openai", "rest"])
@pytest.mark.parametrize(
    "events",
    [
        [{"error": {"message": "Overloaded", "code": 529}}],
        [],
        [*script(FORMAT, [])[:1], UpstreamError(502, None, "It is gone.")],
        [UpstreamError(429, None, "Not now.")],
    ],
    ids=["failed", "nothing", "gone", "refused"],
)
def test_what_failed_before_any_output_is_asked_for_again(served: Any, events: list[Any], face: str) -> None:
    found, bills = twice(served, face, FORMAT, events)
    assert (found[1]["status"], bills) == ("completed", 2)


@pytest.mark.parametrize("face", ["openai", "rest"])
def test_a_request_that_ended_before_anybody_was_asked_is_answered_when_it_is_repeated(
    served: Any, face: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its time may be over while it is stored, in a database that is slow: no provider can bill it."""
    rendered = Turn._rendered

    async def run() -> tuple[int, httpx2.Response, int]:
        model = Scripted(FORMAT)
        model.will_say("Now.")
        conversation = await served.store.for_user("ann").create_conversation(model="m")
        path, body = "/responses", {"model": "m", "conversation": conversation.id, "input": "When?"}
        if face == "rest":
            path, body = f"/conversations/{conversation.id}/messages", {"content": "When?"}
        application, loop = faces(served, model)[face], asyncio.get_running_loop()

        def interrupted(*args: Any) -> Any:
            loop.call_soon_threadsafe(first.cancel)
            return rendered(*args)

        with monkeypatch.context() as patch:
            patch.setattr(Turn, "_rendered", interrupted)
            first = asyncio.ensure_future(call(application, path, body))
            await asyncio.wait([first])
        asked = len(model.payloads)
        again = await call(application, path, body)
        assert [item.to_object()["role"] for item in await conversation.transcript()] == ["user", "assistant"]
        return asked, again, len(model.payloads)

    asked, again, bills = served.runner.run(run())
    assert (asked, again.is_success, "Now." in again.text, bills) == (0, True, True, 1)


@pytest.mark.parametrize("place", ["new", "conversation", "rest"])
def test_what_was_asked_is_not_kept_where_a_request_ends_before_its_answer_begins(served: Any, place: str) -> None:
    """As after `max_seconds`: the client has got nothing, and asks again."""
    asked = asyncio.Event()

    async def ask(_payload: Any, _model: str) -> AsyncGenerator[Any]:
        if not asked.is_set():
            asked.set()
            await asyncio.Event().wait()
        for event in script(FORMAT, ["Now."]):
            yield event

    async def run() -> list[list[str]]:
        store = served.store.for_user("ann")
        options: Any = {"auth": served.authenticate, "prefix": "", "upstreams": {"m": Upstream("late", FORMAT, ask)}}
        application = rest_app(served._store, **options) if place == "rest" else app(served._store, **options)
        path, body = "/responses", {"model": "m", "input": "When?"}
        if place != "new":
            conversation = await store.create_conversation(model="m")
            body["conversation"] = conversation.id
        if place == "rest":
            path, body = f"/conversations/{conversation.id}/messages", {"content": "When?"}
        first = asyncio.ensure_future(call(application, path, body, **{"Idempotency-Key": None}))
        await asked.wait()
        first.cancel()
        await asyncio.wait([first])
        assert first.cancelled()
        assert (await call(application, path, body, **{"Idempotency-Key": None})).is_success
        return [[one.item.text for one in await talk.items()] for talk in await store.list_conversations()]

    assert served.runner.run(run()) == [["When?", "Now."]]


def twice(served: Any, face: str, format_: Any, events: list[Any]) -> tuple[list[Any], int]:
    """The answers to a request and its repetition, and how often the model was asked."""
    upstream = Scripted(format_)
    upstream.scripts = [events]
    upstream.will_say("Now.")

    async def run() -> list[Any]:
        application = faces(served, upstream)[face]
        path, body = "/responses", {"model": "m", "input": "How often?"}
        if face == "rest":
            conversation = await served.store.for_user("ann").create_conversation(model="m")
            path, body = f"/conversations/{conversation.id}/messages", {"content": "How often?"}
        found: list[Any] = []
        for _ in range(2):
            answer = (await call(application, path, body)).json()
            found.append(answer.get("response") if face == "rest" else answer)
        return found

    return served.runner.run(run()), len(upstream.payloads)


@pytest.mark.parametrize(
    ("face", "with_key"),
    [
        ("openai", False),
        ("rest", True),
        pytest.param("openai", True, marks=pytest.mark.slow),
        pytest.param("rest", False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.one_database
def test_clients_repeat_what_took_too_long_only_with_a_key(served: Any, face: str, *, with_key: bool) -> None:
    """Else a message would be there twice, and the provider would be asked, and paid, once more."""

    async def run() -> tuple[httpx2.Response, int]:
        slow, store = Slow(), served.store.for_user("ann")
        conversation = await store.create_conversation(model="m")
        made = faces(served, slow)[face]
        application = site({"": made}, limits=Limits(max_seconds=3))
        path, body = "/responses", {"model": "m", "input": "How often?", "conversation": conversation.id}
        if face == "rest":
            path, body = f"/conversations/{conversation.id}/messages", {"content": "How often?", "answer": True}
        answer = await call(application, path, body, **{"Idempotency-Key": "one" if with_key else None})
        slow.release.set()
        await asyncio.gather(*made.state.service._tasks)
        return answer, slow.bills

    answer, bills = served.runner.run(run())
    assert (answer.status_code, bills) == (504, 1)
    assert answer.headers.get("x-should-retry") == (None if with_key else "false")


def test_clients_repeat_what_took_too_long_before_a_model_was_asked(served: Any) -> None:
    async def never(_request: Any) -> Owner:
        await asyncio.Event().wait()
        raise AssertionError

    application = site({"": app(served._store, auth=never, prefix="")}, limits=Limits(max_seconds=0.1))
    answer = served.runner.run(call(application, "/responses", {"model": "m", "input": "Hi"}))
    assert answer.status_code == 504
    assert "x-should-retry" not in answer.headers
