"""Requests as the installed SDKs send them: what arrives at a provider is what was rendered."""

from __future__ import annotations

import asyncio
import functools
import inspect
import operator
import typing
from collections.abc import Iterator
from typing import Any

import openai.types.chat.completion_create_params as chat_params
import openai.types.responses.response_create_params as response_params
import pytest
from anthropic.types import message_create_params
from anthropic.types.beta import message_create_params as beta_params
from google.genai import types as google_types

from tests.conftest import MATRIX
from tests.formats import spelling_gemini
from tests.formats.loopback import Provider, close, provider
from threadkeep import AsyncStore, CannotRender, InvalidOption, Session, Store, data_url
from threadkeep.domain.options import OPTIONS
from threadkeep.domain.rendering import Rendered
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.gemini import sending as gemini
from threadkeep.formats.shared import sending

pytestmark = [pytest.mark.sampled, pytest.mark.share(3)]

Json = dict[str, Any]
Service = tuple[Provider, Json, asyncio.Runner]

# format -> the methods that send its requests: client, and where the method is
METHODS: dict[FormatName, tuple[str, ...]] = {
    "open_responses": (
        "openai.responses.create", "openai.responses.parse", "openai.responses.stream",
        "openai.responses.with_raw_response.create", "openai.responses.with_streaming_response.create",
        "async_openai.responses.create", "async_openai.responses.parse", "async_openai.responses.stream",
        "async_openai.responses.with_raw_response.create",
    ),
    "chat_completion": (
        "openai.chat.completions.create", "openai.chat.completions.parse", "openai.chat.completions.stream",
        "openai.chat.completions.with_raw_response.create", "async_openai.chat.completions.create",
        "async_openai.chat.completions.parse", "async_openai.chat.completions.stream",
        "async_openai.chat.completions.with_streaming_response.create",
    ),
    "messages": (
        "anthropic.messages.create", "anthropic.messages.parse", "anthropic.messages.stream",
        "anthropic.messages.with_raw_response.create", "anthropic.beta.messages.create",
        "anthropic.beta.messages.parse", "anthropic.beta.messages.stream", "async_anthropic.messages.create",
        "async_anthropic.messages.parse", "async_anthropic.messages.stream", "async_anthropic.beta.messages.create",
        "async_anthropic.beta.messages.with_raw_response.create", "async_anthropic.beta.messages.stream",
    ),
    "gemini": (
        "google.models.generate_content", "google.models.generate_content_stream",
        "async_google.models.generate_content", "async_google.models.generate_content_stream",
    ),
    "interactions": ("google.interactions.create", "async_google.interactions.create"),
    "converse": ("amazon.converse", "amazon.converse_stream"),
}  # fmt: skip
MODELS: dict[str, str] = {
    "open_responses": "gpt-5.4",
    "chat_completion": "gpt-5.4",
    "messages": "claude-haiku-4-5",
    "gemini": "gemini-2.5-flash",
    "interactions": "gemini-2.5-flash",
    "converse": "amazon.nova-pro-v1:0",
}
FUNCTION: Json = {
    "type": "function", "name": "find", "strict": True,
    "parameters": {
        "type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"], "additionalProperties": False,
    },
}  # fmt: skip
SCHEMA: Json = {
    "type": "object",
    "properties": {"a": {"type": "string"}},
    "required": ["a"],
    "additionalProperties": False,
}
# session option -> settings of a session that has it
SETTINGS: dict[str, Json] = {
    "model": {},
    "instructions": {"instructions": "Be brief."},
    "previous_response_id": {"previous_response_id": "resp_0"},
    "conversation": {"conversation": "conv_0"},
    "temperature": {"temperature": 0.4},
    "top_p": {"top_p": 0.8},
    "presence_penalty": {"presence_penalty": 0.2},
    "frequency_penalty": {"frequency_penalty": 0.1},
    "max_output_tokens": {"max_output_tokens": 500},
    "max_tool_calls": {"max_tool_calls": 3},
    "top_logprobs": {"top_logprobs": 2},
    "parallel_tool_calls": {"parallel_tool_calls": False, "tools": [FUNCTION]},
    "stream": {"stream": False},
    "background": {"background": True},
    "store": {"store": True},
    "include": {"include": ["reasoning.encrypted_content"]},
    "tool_choice": {"tool_choice": "required", "tools": [FUNCTION]},
    "metadata": {"metadata": {"user_id": "u1"}},
    "text": {"text": {"format": {"type": "json_schema", "name": "answer", "schema": SCHEMA, "strict": True}}},
    "reasoning": {"reasoning": {"effort": "low"}},
    "stream_options": {"stream_options": {"include_usage": True}},
    "truncation": {"truncation": "auto"},
    "service_tier": {"service_tier": "flex"},
    "safety_identifier": {"safety_identifier": "s1"},
    "prompt": {"prompt": {"id": "pmpt_1"}},
    "prompt_cache_key": {"prompt_cache_key": "k1"},
    "prompt_cache_retention": {"prompt_cache_retention": "24h"},
    "prompt_cache_options": {"prompt_cache_options": {"mode": "explicit"}},
    "context_management": {"context_management": [{"type": "compaction", "compact_threshold": 1000}]},
    "moderation": {"moderation": {"model": "omni-moderation-latest"}},
    "access_programs": {"access_programs": ["a"]},
    "image": {"image": {"quality": "low"}},
    "dialect": {"dialect": "compatible"},
    "provider": {"provider": "azure"},
    "extra": {
        "extra": {
            "seed": 7, "stop": ["x"], "stop_sequences": ["x"], "top_k": 4, "n": 1, "logit_bias": {"5": 1},
            "candidate_count": 1, "response_modalities": ["TEXT"], "media_resolution": "MEDIA_RESOLUTION_LOW",
            "safety_settings": [{"category": "HARM_CATEGORY_HARASSMENT", "threshold": "BLOCK_NONE"}],
            "cached_content": "cachedContents/c1",
            "guardrail_config": {"guardrailIdentifier": "g", "guardrailVersion": "1"},
            "additional_model_request_fields": {"top_k": 4, "bytes": "aW1n"},
            "additional_model_response_field_paths": ["/a"],
            "performance_config": {"latency": "optimized"}, "prompt_variables": {"a": {"text": "b"}},
        }
    },
    "user": {"user": "u1"},
}  # fmt: skip
# keys of a vendor, under names of the SDKs' own parameters among them
VENDOR: Json = {
    "vendor_key": {"a": None, "b_c": [1, None]}, "timeout": 5, "extra_headers": {"x": "y"}, "extra_body": {"z": 1},
    "text_format": "x", "output_format": {"type": "x"}, "response_id": "r", "http_options": {"x": 1},
}  # fmt: skip
PICTURE = {"type": "input_image", "url": data_url(b"\x89PNG\xfb\xff", "image/png")}


@pytest.fixture(scope="module")
def service() -> Iterator[Service]:
    with provider() as came, asyncio.Runner() as runner:
        clients = came.clients()
        yield came, clients, runner
        runner.run(close(clients))


def method_of(clients: Json, path: str) -> Any:
    client, _, rest = path.partition(".")
    return operator.attrgetter(rest)(clients[client])


async def send(method: Any, arguments: Json) -> None:
    """Call a method of an SDK, and have what it returns sent and read."""
    result = method(**arguments)
    if inspect.isawaitable(result):
        result = await result
    if hasattr(result, "__aenter__"):
        async with result as opened:
            if hasattr(opened, "__aiter__"):
                _ = [event async for event in opened]
    elif hasattr(result, "__enter__"):
        with result as opened:
            _ = list(opened) if hasattr(opened, "__iter__") else None
    elif hasattr(result, "__anext__"):
        _ = [event async for event in result]
    elif hasattr(result, "__next__"):
        _ = list(result)
    elif isinstance(result, dict) and "stream" in result:
        result["stream"].close()


def arrived(service: Service, path: str, rendered: Rendered, **options: Any) -> Json:
    """What a provider gets when a method sends a request."""
    came, clients, runner = service
    method = method_of(clients, path)
    arguments = rendered.arguments(method, **options)
    count = len(came.bodies)
    try:
        runner.run(send(method, arguments))
    except Exception as error:
        if len(came.bodies) == count:
            raise AssertionError(f"{path} sent nothing: {error!r}") from error
    assert len(came.bodies) == count + 1
    return came.bodies[-1]


def as_sent(format_name: str, path: str, payload: Json, model: str) -> tuple[Json, str]:
    """The body that should arrive, and how its path ends."""
    if format_name == "gemini":
        return payload, f"/models/{model}:{'streamGenerateContent' if path.endswith('stream') else 'generateContent'}"
    if format_name == "converse":
        return {key: value for key, value in payload.items() if key != "modelId"}, path.partition(".")[2].replace(
            "_", "-"
        )
    if path.endswith(".stream"):
        payload = {**payload, "stream": True}
    elif path.endswith("completions.parse"):
        payload = {**payload, "stream": False}
    return payload, ""


def same(format_name: str, one: Json, other: Json) -> bool:
    if format_name == "gemini":
        return spelling_gemini.leveled(one) == spelling_gemini.leveled(other)
    return one == other


def session_of(format_name: str, **settings: Any) -> Session:
    return Session(**({"model": MODELS[format_name], "input": "Give me JSON."} | settings))


SOME = slice(None, None, 5 if MATRIX == "quick" else 1)  # first the plain method of a sync client
EVERY = [pytest.param(format_name, path, id=path) for format_name, paths in METHODS.items() for path in paths[SOME]]


def test_each_session_option_is_sent() -> None:
    assert SETTINGS.keys() == OPTIONS.keys()


@pytest.mark.parametrize(("format_name", "path"), EVERY)
def test_what_arrives_is_what_was_rendered(service: Any, format_name: FormatName, path: str) -> None:
    wrong = []
    for option, settings in SETTINGS.items():
        rendered = session_of(format_name, **settings).render(format_name)
        shown = rendered
        if option == "stream_options" and path.endswith(".stream"):  # which only a request for a stream has
            shown = session_of(format_name, **settings, stream=True).render(format_name)
        body, end = as_sent(format_name, path, shown.payload, MODELS[format_name])
        got = arrived(service, path, rendered)
        if not same(format_name, got, body) or not service[0].paths[-1].endswith(end):
            wrong.append((option, got, body))
    assert wrong == []


@pytest.mark.parametrize(("format_name", "path"), EVERY)
def test_pictures_calls_and_signatures_arrive(service: Any, format_name: FormatName, path: str) -> None:
    lax = {**FUNCTION, "name": "lax", "strict": None, "parameters": {"type": "object", "properties": {}}}
    session = session_of(format_name, tools=[FUNCTION, lax], input=["What is this?", PICTURE])
    session.add_item(
        {"type": "function_call", "call_id": "call_1", "name": "find", "arguments": '{"q":null,"bytes":"aW1n"}'}
    )
    session.add_function_call_output("call_1", '{"data":"aW1n","none":null}')
    session.user("And now?")
    rendered = session.render(format_name)
    got = arrived(service, path, rendered)
    assert same(format_name, got, as_sent(format_name, path, rendered.payload, "")[0])


@pytest.mark.parametrize(("format_name", "path"), [one for one in EVERY if one.values[0] != "converse"])
def test_keys_of_vendors_arrive_whatever_their_names_are(service: Any, format_name: FormatName, path: str) -> None:
    rendered = session_of(format_name, extra={format_name: VENDOR}).render(format_name)
    got = arrived(service, path, rendered)
    assert {key: got.get(key) for key in VENDOR} == VENDOR


@pytest.mark.parametrize("path", METHODS["gemini"])
def test_what_the_types_of_google_genai_refuse_arrives(service: Any, path: str) -> None:
    settings = {"temperature": 0.5, "vendorKey": 1, "tools": 5, "responseSchema": {"type": "OBJECT", "properties": {}}}
    native = {"generationConfig": settings, "temperature": 0.1, "automaticFunctionCalling": {"disable": True}}
    payload = {
        "contents": [{"role": "user", "parts": [{"text": "Hi", "vendorPart": {"a": None}}]}],
        "tools": [{"vendorTool": {}}],
        **native,
    }
    rendered = get_format("gemini").parse_request(payload, model="gemini-2.5-flash").render("gemini")
    assert rendered.payload == payload
    assert arrived(service, path, rendered) == payload


def test_the_model_of_a_method_is_the_one_of_the_conversation(service: Service) -> None:
    with Store("sqlite://") as store:
        for format_name, paths in METHODS.items():
            rendered = store.create_conversation(model=MODELS[format_name], input="Hi").render(format_name)
            arguments = rendered.arguments(method_of(service[1], paths[0]))
            assert arguments.get("model", arguments.get("modelId")) == MODELS[format_name]


async def rendered_by(store: AsyncStore, format_name: FormatName) -> Rendered:
    conversation = await store.create_conversation(model=MODELS[format_name], input="Hi", temperature=0.5)
    return await conversation.render(format_name)


@pytest.mark.parametrize("format_name", METHODS)
def test_stored_conversations_are_sent_by_sync_and_async_clients(service: Service, format_name: FormatName) -> None:
    async def both() -> list[Rendered]:
        async with AsyncStore("sqlite://") as store:
            return [await rendered_by(store, format_name)]

    for rendered in asyncio.run(both()):
        for path in METHODS[format_name]:
            body, _ = as_sent(format_name, path, rendered.payload, "")
            assert same(format_name, arrived(service, path, rendered), body)


@pytest.mark.parametrize(
    "path",
    [
        "openai.responses.create",
        "openai.chat.completions.create",
        "anthropic.messages.create",
        "async_openai.chat.completions.create",
    ],
)
@pytest.mark.parametrize("asked", [None, False, True])
@pytest.mark.parametrize("stream", [False, True])
def test_a_stream_is_asked_for_by_the_call_or_by_the_request(
    service: Service, path: str, asked: bool | None, stream: bool
) -> None:
    format_name: FormatName = next(name for name, paths in METHODS.items() if path in paths)
    rendered = session_of(format_name, **({} if asked is None else {"stream": asked})).render(format_name)
    assert arrived(service, path, rendered, stream=stream) == rendered.payload | {"stream": stream}
    assert rendered.payload.get("stream") is asked


@pytest.mark.parametrize("path", ["create", "stream", "with_raw_response.create"])
@pytest.mark.parametrize("service_of", ["responses", "chat.completions"])
@pytest.mark.parametrize("asked", [None, False, True])
def test_options_of_a_stream_are_sent_with_a_stream_alone(
    service: Service, service_of: str, path: str, asked: bool | None
) -> None:
    format_name: FormatName = "open_responses" if service_of == "responses" else "chat_completion"
    options = {"include_obfuscation": False} | ({} if service_of == "responses" else {"include_usage": True})
    settings = {"stream_options": options} | ({} if asked is None else {"stream": asked})
    rendered = session_of(format_name, **settings).render(format_name)
    method = f"openai.{service_of}.{path}"
    assert arrived(service, method, rendered, stream=True)["stream_options"] == options
    if path != "stream":
        assert "stream_options" not in arrived(service, method, rendered, stream=False)


def test_a_vendor_that_takes_no_options_of_a_stream_gets_none(service: Service) -> None:
    settings = {"stream_options": {"include_usage": True}, "dialect": "mistral"}
    rendered = session_of("chat_completion", **settings).render("chat_completion")
    assert "stream_options" not in arrived(service, "openai.chat.completions.create", rendered, stream=True)


@pytest.mark.parametrize(
    ("path", "stream", "problem"),
    [
        ("openai.responses.stream", False, "stream always streams."),
        ("openai.chat.completions.parse", True, "parse does not stream."),
        ("anthropic.messages.parse", True, "parse does not stream."),
        ("google.models.generate_content", True, "generate_content does not stream."),
        ("google.models.generate_content_stream", False, "generate_content_stream always streams."),
        ("amazon.converse", True, "converse does not stream."),
        ("amazon.converse_stream", False, "converse_stream always streams."),
    ],
)
def test_a_method_that_cannot_do_so_is_refused(service: Service, path: str, stream: bool, problem: str) -> None:
    format_name: FormatName = next(name for name, paths in METHODS.items() if path in paths)
    with pytest.raises(InvalidOption, match=problem):
        session_of(format_name).render(format_name).arguments(method_of(service[1], path), stream=stream)


def test_a_request_for_a_stream_is_not_sent_by_a_method_that_returns_none(service: Service) -> None:
    rendered = session_of("messages", stream=True).render("messages")
    with pytest.raises(InvalidOption, match="The request asks for a stream, and parse returns none"):
        rendered.arguments(service[1]["anthropic"].messages.parse)
    assert "stream" not in rendered.arguments(service[1]["anthropic"].messages.parse, stream=False)
    assert "stream" not in rendered.arguments(service[1]["anthropic"].messages.stream)


@pytest.mark.parametrize(
    ("format_name", "path", "left_out"),
    [
        ("messages", "anthropic.messages.count_tokens", {"max_tokens", "temperature", "stream"}),
        ("messages", "anthropic.beta.messages.count_tokens", {"max_tokens", "temperature", "stream"}),
        ("open_responses", "openai.responses.input_tokens.count", {"max_output_tokens", "temperature", "stream"}),
        ("open_responses", "openai.responses.compact", {"max_output_tokens", "temperature", "stream", "tools"}),
    ],
)
def test_methods_that_ask_for_no_answer_get_what_they_take(
    service: Service, format_name: FormatName, path: str, left_out: set[str]
) -> None:
    """The services refuse other keys there."""
    settings: Json = {"temperature": 0.5, "max_output_tokens": 500, "stream": True, "tools": [FUNCTION]}
    rendered = session_of(format_name, **settings).render(format_name)
    expected = {key: value for key, value in rendered.payload.items() if key not in left_out}
    assert arrived(service, path, rendered) == expected


def test_names_of_betas_are_sent_as_a_header(service: Service) -> None:
    rendered = session_of("messages", extra={"messages": {"betas": ["a-1", "b-2"]}}).render("messages")
    expected = {key: value for key, value in rendered.payload.items() if key != "betas"}
    for path in METHODS["messages"]:
        assert arrived(service, path, rendered) in (expected, expected | {"stream": True})
        assert service[0].headers[-1]["anthropic-beta"].startswith("a-1,b-2")


def test_a_partial_method_is_asked_as_the_method_is(service: Service) -> None:
    clients = service[1]
    rendered = session_of("converse", input=["Hi", PICTURE]).render("converse")
    whole = rendered.arguments(clients["amazon"].converse)
    assert rendered.arguments(functools.partial(clients["amazon"].converse, requestMetadata={"a": "b"})) == whole
    rendered = session_of("messages", temperature=0.5).render("messages")
    create = functools.partial(clients["anthropic"].messages.create, timeout=5)
    assert rendered.arguments(create)["extra_body"] == {"temperature": 0.5}


def completion(model: str, messages: list[Json], **others: Any) -> None:
    """A method that sends what it gets."""


def ask(model: str, messages: list[Json]) -> None:
    """A method with few parameters."""


def test_a_method_that_takes_any_keyword_gets_the_payload() -> None:
    """As those of LiteLLM do."""
    rendered = session_of("chat_completion", temperature=0.5).render("chat_completion")
    assert rendered.arguments(completion) == rendered.payload
    assert rendered.arguments(completion, stream=True) == rendered.payload | {"stream": True}


def test_bytes_of_boto3_are_where_its_model_has_them(service: Service) -> None:
    session = session_of(
        "converse", input=["Hi", PICTURE], extra={"additional_model_request_fields": {"bytes": "aW1n"}}
    )
    session.add_item({"type": "function_call", "call_id": "c1", "name": "find", "arguments": '{"bytes":"aW1n"}'})
    arguments = session.render("converse").arguments(service[1]["amazon"].converse)
    assert arguments["messages"][0]["content"][1]["image"]["source"] == {"bytes": b"\x89PNG\xfb\xff"}
    assert arguments["messages"][1]["content"][0]["toolUse"]["input"] == {"bytes": "aW1n"}
    assert arguments["additionalModelRequestFields"] == {"bytes": "aW1n"}


# What cannot be sent


def test_what_a_method_has_no_place_for_is_refused(service: Service) -> None:
    rendered = session_of("converse", extra={"converse": {"vendorKey": 1}}).render("converse")
    with pytest.raises(CannotRender, match=r"converse cannot send vendorKey\. Leave it out"):
        rendered.arguments(service[1]["amazon"].converse)
    rendered = session_of("chat_completion", temperature=0.5, top_p=1).render("chat_completion")
    with pytest.raises(CannotRender, match="ask cannot send temperature, top_p"):
        rendered.arguments(ask)


@pytest.mark.parametrize(
    ("format_name", "path", "problem"),
    [
        ("messages", "openai.responses.create", "create takes no messages. Pass the method that sends requests of the"),
        ("open_responses", "anthropic.messages.create", "create takes no input."),
        ("gemini", "openai.responses.create", "create is no method that takes contents and a config"),
        ("gemini", "google.chats.create", "create is no method that takes contents and a config"),
        ("converse", "anthropic.messages.create", "create is no method of a Bedrock client that takes messages"),
        ("converse", "amazon.invoke_model", "invoke_model is no method of a Bedrock client that takes messages"),
        ("converse", "amazon.get_paginator", "get_paginator is no method of a Bedrock client"),
        ("pydantic_ai", "openai.responses.create", "No method of an SDK sends requests of the format pydantic_ai"),
    ],
)
def test_a_method_for_other_requests_is_refused(
    service: Service, format_name: FormatName, path: str, problem: str
) -> None:
    rendered = Session(model="m", input="Hi").render(format_name)
    with pytest.raises(InvalidOption, match=problem):
        rendered.arguments(method_of(service[1], path))


@pytest.mark.parametrize("format_name", METHODS)
@pytest.mark.parametrize("odd", [None, "messages.create", 5, {}])
def test_what_is_no_method_is_refused(format_name: FormatName, odd: Any) -> None:
    with pytest.raises(InvalidOption, match="method must be a method of an SDK, not"):
        session_of(format_name).render(format_name).arguments(odd)


def test_text_that_is_no_base64_is_refused_by_its_place(service: Service) -> None:
    content = [{"image": {"format": "png", "source": {"bytes": "é"}}}]
    payload = {"modelId": "m", "messages": [{"role": "user", "content": content}]}
    rendered = get_format("converse").parse_request(payload).render("converse")
    with pytest.raises(CannotRender, match=r"messages\.0\.content\.0\.image\.source\.bytes is not base64"):
        rendered.arguments(service[1]["amazon"].converse)


# The tables, compared with the SDKs


def keys_of(*kinds: Any) -> set[str]:
    return {key for kind in kinds for key in typing.get_type_hints(kind)}


BODIES: dict[str, set[str]] = {
    "open_responses": keys_of(response_params.ResponseCreateParamsStreaming),
    "chat_completion": keys_of(chat_params.CompletionCreateParamsStreaming),
    "messages": keys_of(message_create_params.MessageCreateParamsStreaming, beta_params.MessageCreateParamsStreaming),
}


@pytest.mark.parametrize("format_name", BODIES)
def test_parameters_that_are_no_keys_of_a_request_are_in_the_table(service: Service, format_name: str) -> None:
    more = {"messages": ["anthropic.beta.messages.tool_runner"], "open_responses": []}.get(format_name, [])
    for path in [*METHODS[typing.cast("FormatName", format_name)], *more]:
        parameters = sending.parameters_of(method_of(service[1], path)) or frozenset()
        assert parameters - BODIES[format_name] <= sending.NO_KEYS
        assert parameters & BODIES[format_name] & sending.NO_KEYS <= sending.KEYS.get(format_name, frozenset())


def test_each_field_of_a_config_of_google_genai_is_in_a_table() -> None:
    tables = [*gemini.NEXT_TO_CONFIG, *gemini.INSIDE, *gemini.APART]
    assert sorted(tables) == sorted(google_types.GenerateContentConfig.model_fields)
