"""The completion hook under OpenTelemetry's own instrumentations of openai, anthropic and google-genai."""

from __future__ import annotations

import asyncio
import json
import tomllib
from collections.abc import Callable, Iterator
from importlib.metadata import entry_points
from pathlib import Path
from threading import Thread
from typing import Any
from uuid import uuid4

import openai
import pytest
from google.genai import types
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.sampling import ALWAYS_OFF
from opentelemetry.util.genai.completion_hook import CompletionHook, load_completion_hook
from opentelemetry.util.genai.handler import TelemetryHandler
from opentelemetry.util.genai.types import InputMessage, OutputMessage, TextPart

from tests.contrib.telemetry import CLAUDE, GEMINI, GPT, PARAMETERS, Application, chat, instrumented
from tests.databases import Database
from tests.server.recorder.conftest import said
from tests.server.recorder.provider import EVENTS, JSON, Provider, Reply, failure, serving, sse, stream, whole
from threadkeep import Store
from threadkeep.contrib.opentelemetry import ThreadkeepCompletionHook, conversation_context
from threadkeep.contrib.opentelemetry.hook import completion_hook

ROOT = Path(__file__).parents[2]
EVENTS_VARIABLE = "OTEL_INSTRUMENTATION_GENAI_EMIT_EVENT"


@pytest.fixture(scope="module")
def served() -> Iterator[tuple[Provider, str]]:
    provider = Provider()
    with serving(provider) as url:
        yield provider, url


@pytest.fixture
def application(
    database: Database, served: tuple[Provider, str], monkeypatch: pytest.MonkeyPatch
) -> Iterator[Application]:
    """An application of a tenant of its own, whose SDKs are instrumented."""
    tenant, (provider, url), tracers = uuid4().hex, served, TracerProvider()
    provider.replies.clear()
    monkeypatch.setenv(EVENTS_VARIABLE, "false")  # is put back at the end: one of the instrumentations sets it
    with Store(database.url, tenants=True) as store:
        scoped = store.create_tenant(tenant)
        hook = ThreadkeepCompletionHook(database.url, tenant=tenant)
        try:
            with instrumented(hook, tracers):
                yield Application(provider, url, scoped, hook, tracers)
        finally:
            hook.close()


def body(format_: str, text: str, **changes: Any) -> Reply:
    """An answer of a provider with other keys than usual."""
    reply = whole(format_, text)
    changed = json.dumps({**json.loads(reply.chunks[0]), **changes}).encode()
    return Reply(200, {**JSON, "content-length": str(len(changed))}, [changed])


# What is stored of each SDK


@pytest.mark.parametrize("streams", [False, True])
def test_calls_of_tools_with_openai(application: Application, streams: bool) -> None:
    tools: Any = [{"type": "function", "function": {"name": "look", "parameters": PARAMETERS}}]
    messages: Any = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Weather in Paris?"}]
    asked: Any = {"model": GPT, "tools": tools, "temperature": 0.5, "stream": streams}
    if streams:
        asked["stream_options"] = {"include_usage": True}
    text, replies = "Let me look.", (stream if streams else whole)
    texts: Any = ["Let me ", "look."] if streams else text
    call = {"id": "call_1", "type": "function", "function": {"name": "look", "arguments": '{"city": "Paris"}'}}
    with application.openai() as client:
        application.provider.says(replies("chat_completion", texts, calls=True), whole("chat_completion", "Rain."))
        answer: Any = client.chat.completions.create(messages=messages, **asked)
        list(answer)
        messages += [
            {"role": "assistant", "content": "Let me look.", "tool_calls": [call]},
            {"role": "tool", "tool_call_id": "call_1", "content": "It rains."},
        ]
        client.chat.completions.create(messages=messages, model=GPT, tools=tools)
    [conversation] = application.stored()
    assert said(conversation) == [
        "user: Weather in Paris?", "assistant: Let me look.", 'look({"city":"Paris"})', "= It rains.",
        "assistant: Rain.",
    ]  # fmt: skip
    assert (conversation.model, conversation.instructions, conversation.temperature) == (GPT, "Be brief.", None)
    assert [tool["name"] for tool in conversation.tools] == ["look"]
    assert [response.finish_reason for response in conversation.responses()] == ["tool_calls", "stop"]
    [row] = application.store.usage(by=("provider", "model", "status"))
    assert (row.provider, row.model, row.status, row.attempts) == ("openai", GPT, "completed", 2)
    assert (row.input_tokens, row.output_tokens) == (22, 14)
    assert row.cost_usd


@pytest.mark.parametrize("streams", [False, True])
def test_calls_of_tools_with_anthropic(application: Application, streams: bool) -> None:
    tool: Any = {"name": "look", "input_schema": PARAMETERS}
    question: Any = {"role": "user", "content": "Weather in Paris?"}
    asked: Any = {"model": CLAUDE, "max_tokens": 100, "system": "Be brief.", "tools": [tool]}
    with application.anthropic() as client:
        if streams:
            application.provider.says(stream("messages", ["Let me ", "look."], calls=True))
            with client.messages.stream(messages=[question], **asked) as events:
                answer = events.get_final_message()
        else:
            application.provider.says(whole("messages", "Let me look.", calls=True))
            answer = client.messages.create(messages=[question], **asked)
        result: Any = {"type": "tool_result", "tool_use_id": "call_1", "content": "It rains."}
        history: Any = [
            question,
            {"role": "assistant", "content": [block.to_dict() for block in answer.content]},
            {"role": "user", "content": [result, {"type": "text", "text": "So?"}]},
        ]
        usage = {"input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5}
        application.provider.says(body("messages", "Rain.", id="msg_02", usage={**usage, "output_tokens": 7}))
        client.messages.create(messages=history, **asked)
    [conversation] = application.stored()
    assert said(conversation) == [
        "user: Weather in Paris?", "assistant: Let me look.", 'look({"city":"Paris"})', "= It rains.", "user: So?",
        "assistant: Rain.",
    ]  # fmt: skip
    assert (conversation.instructions, conversation.max_output_tokens) == ("Be brief.", 100)
    first, second = conversation.responses()
    assert [first.finish_reason, second.finish_reason] == ["tool_calls", "stop"]
    assert second.provider_response_id == "msg_02"
    row = conversation.usage()
    assert (row.input_tokens, row.cached_tokens, row.cache_write_tokens, row.output_tokens) == (11 + 95, 80, 5, 14)
    assert [row.provider for row in application.store.usage(by="provider")] == ["anthropic"]


@pytest.mark.parametrize("streams", [False, True])
def test_calls_of_tools_with_google_genai(application: Application, streams: bool) -> None:
    function = types.FunctionDeclaration(name="look", parameters_json_schema=PARAMETERS)
    tools: Any = [types.Tool(function_declarations=[function])]
    config = types.GenerateContentConfig(tools=tools, system_instruction="Be brief.", temperature=0.5)
    question = types.Content(role="user", parts=[types.Part(text="Weather in Paris?")])
    with application.gemini() as client:
        asked: Any = {"model": GEMINI, "contents": [question], "config": config}
        if streams:
            application.provider.says(stream("gemini", ["Let me look."], calls=True))
            list(client.models.generate_content_stream(**asked))
        else:
            application.provider.says(whole("gemini", "Let me look.", calls=True))
            client.models.generate_content(**asked)
        called = types.FunctionCall(id="call_1", name="look", args={"city": "Paris"})
        answer = types.Content(role="model", parts=[types.Part(text="Let me look."), types.Part(function_call=called)])
        result = types.FunctionResponse(id="call_1", name="look", response={"result": "It rains."})
        application.provider.says(whole("gemini", "Rain."))
        asked["contents"] = [question, answer, types.Content(role="user", parts=[types.Part(function_response=result)])]
        client.models.generate_content(**asked)
    [conversation] = application.stored()
    assert said(conversation) == [
        "user: Weather in Paris?", "assistant: Let me look.", 'look({"city":"Paris"})', '= {"result":"It rains."}',
        "assistant: Rain.",
    ]  # fmt: skip
    assert (conversation.model, conversation.instructions, conversation.temperature) == (GEMINI, "Be brief.", 0.5)
    [row] = application.store.usage(by=("provider", "status"))
    assert (row.provider, row.status, row.attempts) == ("google", "completed", 2)
    assert (row.input_tokens, row.output_tokens) == (22, 14)


@pytest.mark.parametrize("streams", [False, True])
def test_the_responses_api(application: Application, streams: bool) -> None:
    with application.openai() as client:
        reply = stream("open_responses", ["Lyon."]) if streams else whole("open_responses", "Lyon.")
        application.provider.says(reply)
        answer: Any = client.responses.create(model=GPT, input="Where?", instructions="Be brief.", stream=streams)
        list(answer)
    [conversation] = application.stored()
    assert said(conversation) == ["user: Where?", "assistant: Lyon."]
    assert conversation.instructions == "Be brief."
    [response] = conversation.responses()
    assert (response.provider_response_id, response.status) == ("resp_of_provider", "completed")
    usage = conversation.usage()
    assert (usage.input_tokens, usage.output_tokens) == (11, 7)


def test_times_of_streams(application: Application) -> None:
    with application.openai() as client:
        application.provider.says(stream("chat_completion", ["One ", "two."], pause=0.01))
        assert chat(client, "Count.", stream=True) == "One two."
    [conversation] = application.stored()
    [row] = application.store.usage(by="model", user_id=None)
    assert conversation.usage().attempts == row.attempts == 1
    assert (row.latency_ms or 0) >= (row.first_token_ms or 0) > 0


def test_asyncio(application: Application) -> None:
    async def ask() -> None:
        async with application.async_openai() as client:
            messages: Any = [{"role": "user", "content": "Hello!"}]
            await client.chat.completions.create(model=GPT, messages=messages)

    application.provider.says(whole("chat_completion", "Hi."))
    asyncio.run(ask())
    [conversation] = application.stored()
    assert said(conversation) == ["user: Hello!", "assistant: Hi."]


def test_what_the_conventions_count_of_tokens(application: Application) -> None:
    usage = {
        "prompt_tokens": 100, "completion_tokens": 50, "total_tokens": 150,
        "prompt_tokens_details": {"cached_tokens": 60, "cache_write_tokens": 10},
        "completion_tokens_details": {"reasoning_tokens": 40},
    }  # fmt: skip
    with application.openai() as client:
        application.provider.says(body("chat_completion", "Hi.", usage=usage))
        chat(client, "Hello!")
    [conversation] = application.stored()
    row = conversation.usage()
    assert (row.input_tokens, row.cached_tokens, row.cache_write_tokens) == (100, 60, 10)
    assert (row.output_tokens, row.reasoning_tokens) == (50, 40)


# Which conversation a call belongs to


def test_calls_without_a_name_are_told_apart_by_their_history(application: Application) -> None:
    with application.openai() as client:
        for answer, history in (
            ("A.", ["Hello!"]),
            ("B.", ["Hello!"]),
            ("A2.", ["Hello!", "A.", "More."]),
            ("B2.", ["Hello!", "B.", "More."]),
            ("A3.", ["Hello!", "A.", "Other."]),
        ):
            application.provider.says(body("chat_completion", answer, id=f"chatcmpl-{answer}"))
            chat(client, *history)
    first, second = application.stored()
    assert said(second) == ["user: Hello!", "assistant: B.", "user: More.", "assistant: B2."]
    assert said(first) == ["user: Hello!", "assistant: A.", "user: Other.", "assistant: A3."]
    assert said(first.on_branch(0)) == ["user: Hello!", "assistant: A.", "user: More.", "assistant: A2."]


def test_a_call_names_its_conversation_and_its_user(application: Application) -> None:
    with application.openai() as client:
        for answer in ("A.", "B."):
            application.provider.says(body("chat_completion", answer, id=f"chatcmpl-{answer}"))
        with conversation_context("chat-17", user_id="ann"):
            chat(client, "Hello!")
            chat(client, "Hello!", "A.", "More.")
    [conversation] = application.stored()
    assert (conversation.external_id, conversation.user_id) == ("chat-17", "ann")
    assert said(conversation) == ["user: Hello!", "assistant: A.", "user: More.", "assistant: B."]


def test_a_history_that_the_provider_holds_goes_on_in_the_named_conversation(application: Application) -> None:
    with application.openai() as client, conversation_context("chat-18"):
        for question, answer in (("Where?", "Lyon."), ("And then?", "Nice.")):
            previous = {"previous_response_id": "resp_of_provider"} if question == "And then?" else {}
            application.provider.says(whole("open_responses", answer))
            asked: Any = {"model": GPT, "input": question, **previous}
            client.responses.create(**asked)
    [conversation] = application.stored()
    assert said(conversation) == ["user: Where?", "assistant: Lyon.", "user: And then?", "assistant: Nice."]
    assert len(list(conversation.branches())) == 1


def test_a_call_that_names_the_response_before_goes_on_from_it(application: Application) -> None:
    handler = TelemetryHandler(tracer_provider=application.tracers, completion_hook=application.hook)
    for number, (question, answer, previous) in enumerate(
        [("Where?", "Lyon.", None), ("And then?", "Nice.", "resp_0"), ("Or?", "Nancy.", "resp_0")]
    ):
        with handler.inference("openai", request_model=GPT) as call:
            call.previous_response_id = previous
            call.input_messages = [InputMessage("user", [TextPart(question)])]
            call.output_messages = [OutputMessage("assistant", [TextPart(answer)], "stop")]
            call.response_id = f"resp_{number}"
    [conversation] = application.stored()
    assert said(conversation.on_branch(0)) == [
        "user: Where?",
        "assistant: Lyon.",
        "user: And then?",
        "assistant: Nice.",
    ]
    assert said(conversation.on_branch(1)) == ["user: Where?", "assistant: Lyon.", "user: Or?", "assistant: Nancy."]


def test_the_same_answer_is_stored_once(application: Application) -> None:
    with application.openai() as client:
        for _ in range(2):
            application.provider.says(whole("chat_completion", "Hi."))
            chat(client, "Hello!")
        application.provider.says(whole("chat_completion", "Hello to you."))  # of a server that repeats its ids
        chat(client, "Hello!")
    assert len(application.stored()) == 2
    assert application.hook.counts() == {"stored": 2, "duplicate": 1, "failed": 0, "dropped": 0, "unknown": 0}


def test_agents_and_workflows_are_told_by_their_calls(application: Application) -> None:
    handler = TelemetryHandler(tracer_provider=application.tracers, completion_hook=application.hook)
    asked, answered = (
        [InputMessage("user", [TextPart("Hello!")])],
        [OutputMessage("assistant", [TextPart("Hi.")], "stop")],
    )
    with handler.workflow("greeting") as workflow:
        workflow.input_messages, workflow.output_messages = asked, answered
        with handler.inference("openai", request_model=GPT) as call:
            call.input_messages, call.output_messages = asked, answered
    [conversation] = application.stored()
    assert said(conversation) == ["user: Hello!", "assistant: Hi."]


# Failures


def test_a_refused_call_is_in_the_ledger_and_a_repeated_one_goes_on(application: Application) -> None:
    with application.openai() as client:
        application.provider.says(failure(429, "Too many."), whole("chat_completion", "Hi."))
        with pytest.raises(openai.RateLimitError):
            chat(client, "Hello!")
        chat(client, "Hello!")
    [conversation] = application.stored()
    assert said(conversation) == ["user: Hello!", "assistant: Hi."]
    assert application.ledger() == {"failed": 1, "completed": 1}


def test_a_stream_that_breaks_off_is_stored_as_far_as_it_came(application: Application) -> None:
    chunks = sse("chat_completion", ["One ", "two "])[:-3]
    application.provider.says(Reply(200, EVENTS, chunks, breaks=True))
    with application.openai() as client, pytest.raises(openai.APIConnectionError):
        chat(client, "Count.", stream=True)
    [conversation] = application.stored()
    assert said(conversation) == ["user: Count.", "assistant: One two "]
    assert application.ledger() == {"failed": 1}


# client -> the format that its provider speaks, and how it asks for a stream
STREAMS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "openai": (
        "chat_completion",
        lambda client: client.chat.completions.create(
            model=GPT, messages=[{"role": "user", "content": "Count."}], stream=True
        ),
    ),
    "anthropic": (
        "messages",
        lambda client: client.messages.create(
            model=CLAUDE, max_tokens=9, messages=[{"role": "user", "content": "Count."}], stream=True
        ),
    ),
    "gemini": ("gemini", lambda client: client.models.generate_content_stream(model=GEMINI, contents="Count.")),
}


@pytest.mark.parametrize("name", STREAMS)
def test_a_stream_that_is_left_is_incomplete(application: Application, name: str) -> None:
    format_, ask = STREAMS[name]
    application.provider.says(stream(format_, ["One ", "two."], pause=0.01))
    with getattr(application, name)() as client:
        chunks = ask(client)
        for chunk in chunks:
            if "One" in str(chunk):
                break
        chunks.close()
    [conversation] = application.stored()
    assert said(conversation) == ["user: Count.", "assistant: One "]
    [response] = conversation.responses()
    assert response.status == "incomplete"
    assert application.ledger() == {"incomplete": 1}


def test_two_threads(application: Application) -> None:
    rounds = 4

    def talk(name: str) -> None:
        history = [f"Hello, I am {name}."]
        with application.openai() as client, conversation_context(name):
            for _ in range(rounds):
                history += [chat(client, *history), "More."]

    application.provider.says(*(body("chat_completion", f"{n}.", id=f"chatcmpl-{n}") for n in range(2 * rounds)))
    threads = [Thread(target=talk, args=(name,)) for name in ("ann", "ben")]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    conversations = application.stored()
    assert sorted(conversation.external_id for conversation in conversations) == ["ann", "ben"]
    for conversation in conversations:
        lines = said(conversation)
        assert [line.partition(":")[0] for line in lines] == ["user", "assistant"] * rounds
        assert len(list(conversation.branches())) == 1


# How it is found, and what it needs


def test_the_entry_point(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As the package declares it, whatever is installed where the tests run."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["entry-points"]
    [(group, entries)] = declared.items()
    folder = tmp_path / "declared_by_tests-1.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: declared-by-tests\nVersion: 1\n")
    lines = [f"[{group}]", *(f"{name} = {target}" for name, target in entries.items())]
    (folder / "entry_points.txt").write_text("\n".join(lines))
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OTEL_INSTRUMENTATION_GENAI_COMPLETION_HOOK", "threadkeep")
    monkeypatch.setenv("THREADKEEP_URL", f"sqlite:///{tmp_path}/calls.db")
    monkeypatch.setenv("THREADKEEP_USER", "ann")
    tmp_path.joinpath("media").mkdir()
    monkeypatch.setenv("THREADKEEP_BLOBS", str(tmp_path / "media"))
    completion_hook.cache_clear()
    assert "threadkeep" in entry_points(group=group).names
    loaded = load_completion_hook()
    again = load_completion_hook()
    hook = completion_hook()
    try:
        assert isinstance(hook, CompletionHook)
        assert loaded._wrapped is again._wrapped is hook  # type: ignore[attr-defined]
        handler = TelemetryHandler(tracer_provider=TracerProvider(), completion_hook=loaded)
        with handler.inference("openai", request_model=GPT) as call:
            call.input_messages = [InputMessage("user", [TextPart("Hello!")])]
        assert hook.flush(30)
    finally:
        hook.close()
        completion_hook.cache_clear()
    with Store(f"sqlite:///{tmp_path}/calls.db") as store:
        [conversation] = store.list_conversations(user_id="ann")
        assert said(conversation) == ["user: Hello!"]


def test_spans_that_are_not_recorded_need_events(
    application: Application, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    handler = TelemetryHandler(tracer_provider=TracerProvider(sampler=ALWAYS_OFF), completion_hook=application.hook)

    def ask() -> None:
        with handler.inference("openai", request_model=GPT) as call:
            call.input_messages = [InputMessage("user", [TextPart("Hello!")])]
            call.output_messages = [OutputMessage("assistant", [TextPart("Hi.")], "stop")]
            call.input_tokens, call.output_tokens = 3, 2

    monkeypatch.setenv(EVENTS_VARIABLE, "false")
    ask()
    assert application.hook.counts() == {"stored": 0, "duplicate": 0, "failed": 0, "dropped": 0, "unknown": 1}
    assert "Hello" not in caplog.text
    monkeypatch.setenv(EVENTS_VARIABLE, "true")
    ask()
    [conversation] = application.stored()
    assert (conversation.usage().input_tokens, conversation.usage().output_tokens) == (3, 2)
