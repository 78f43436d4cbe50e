"""Spans and metrics of what a store writes into its ledger, by the names and types of the conventions."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.semconv._incubating.attributes import gen_ai_attributes
from opentelemetry.semconv._incubating.metrics import gen_ai_metrics
from opentelemetry.semconv.attributes import error_attributes
from opentelemetry.trace import SpanKind, StatusCode
from opentelemetry.util.genai.handler import TelemetryHandler

from tests.server.scripts import script
from threadkeep import AsyncStore, NormalizedUsage, ProviderError, Store
from threadkeep.contrib.opentelemetry import conversation_context, instrument, names
from threadkeep.contrib.opentelemetry.spans import ConversationSpans

AnyStore = Store | AsyncStore
pytestmark = pytest.mark.usefixtures("runner")  # the loop of tests that are coroutines
ANSWER = {
    "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": "The secret answer."}],
    "usage": {
        "input_tokens": 10, "cache_read_input_tokens": 80, "cache_creation_input_tokens": 5, "output_tokens": 7,
    },
}  # fmt: skip

# The types of attributes by the conventions: what is set must be one of these, and of that type.
# Names that the package opentelemetry-semantic-conventions has not yet, or not any more, are in NEW.
TYPES: dict[str, type] = {
    "gen_ai.operation.name": str, "gen_ai.provider.name": str, "gen_ai.system": str, "gen_ai.request.model": str,
    "gen_ai.request.stream": bool, "gen_ai.response.model": str, "gen_ai.response.id": str,
    "gen_ai.response.finish_reasons": tuple, "gen_ai.response.time_to_first_chunk": float,
    "gen_ai.conversation.id": str, "gen_ai.usage.input_tokens": int, "gen_ai.usage.output_tokens": int,
    "gen_ai.usage.cache_read.input_tokens": int, "gen_ai.usage.cache_write.input_tokens": int,
    "gen_ai.usage.cache_creation.input_tokens": int, "gen_ai.usage.reasoning.output_tokens": int,
    "gen_ai.usage.cost": float, "error.type": str, "gen_ai.token.type": str, "gen_ai.token.modality": str,
}  # fmt: skip
NEW = {"gen_ai.usage.cache_write.input_tokens", "gen_ai.token.modality"}
OTHERS = {"gen_ai.usage.cost"}  # of tools that read spans, not of the conventions
REQUIRED = {"gen_ai.operation.name", "gen_ai.provider.name"}  # of all spans and metrics
TIME, SIZE, COUNT = ("Histogram", "s"), ("Histogram", "{token}"), ("Sum", "{token}")
# metric -> its instrument, and whether the package has it
METRICS = {
    "gen_ai.client.token.usage": (SIZE, True),
    "gen_ai.client.operation.duration": (TIME, True),
    "gen_ai.client.operation.time_to_first_chunk": (TIME, True),
    "gen_ai.client.inference.duration": (TIME, False),
    "gen_ai.client.inference.time_to_first_chunk": (TIME, False),
    "gen_ai.client.inference.operation.input_tokens": (SIZE, False),
    "gen_ai.client.inference.operation.output_tokens": (SIZE, False),
    "gen_ai.client.inference.usage.input_tokens": (COUNT, False),
    "gen_ai.client.inference.usage.output_tokens": (COUNT, False),
    "gen_ai.client.inference.usage.cache_read.input_tokens": (COUNT, False),
    "gen_ai.client.inference.usage.cache_write.input_tokens": (COUNT, False),
    "gen_ai.client.inference.usage.reasoning.output_tokens": (COUNT, False),
}


class Telemetry:
    """What an application emits, in memory."""

    def __init__(self) -> None:
        self.exporter, self.reader = InMemorySpanExporter(), InMemoryMetricReader()
        self.tracers, self.meters = TracerProvider(), MeterProvider([self.reader])
        self.tracers.add_span_processor(ConversationSpans())
        self.tracers.add_span_processor(SimpleSpanProcessor(self.exporter))

    def instrument(self, store: AnyStore, **options: Any) -> Callable[[], None]:
        return instrument(store, tracer_provider=self.tracers, meter_provider=self.meters, **options)

    def spans(self) -> list[Any]:
        return list(self.exporter.get_finished_spans())

    def metrics(self) -> dict[str, Any]:
        data = self.reader.get_metrics_data()
        scopes = [] if data is None else [one for resource in data.resource_metrics for one in resource.scope_metrics]
        return {metric.name: metric for scope in scopes for metric in scope.metrics}

    def points(self) -> dict[str, list[Any]]:
        return {name: list(metric.data.data_points) for name, metric in self.metrics().items()}

    def instruments(self) -> dict[str, tuple[str, str]]:
        """The kind and unit of each metric."""
        return {name: (type(metric.data).__name__, metric.unit) for name, metric in self.metrics().items()}


@pytest.fixture
def telemetry() -> Iterator[Telemetry]:
    made = Telemetry()
    yield made
    made.tracers.shutdown()
    made.meters.shutdown()


def texts_of(module: Any) -> set[str]:
    """The constants of a module."""
    return {value for value in vars(module).values() if isinstance(value, str)}


async def maybe(value: Any) -> Any:
    """The result of a method of either face."""
    return await value if inspect.isawaitable(value) else value


async def a_conversation(store: AnyStore, **options: Any) -> Any:
    conversation = await maybe(store.create_conversation(model="claude-sonnet-5", **options))
    await maybe(conversation.user("The secret question?"))
    return conversation


async def test_a_response(store: AnyStore, telemetry: Telemetry) -> None:
    telemetry.instrument(store)
    conversation = await a_conversation(store)
    await maybe(conversation.add_response(ANSWER, "messages", provider="anthropic", latency_ms=1500))
    [span] = telemetry.spans()
    assert (span.name, span.kind) == ("chat claude-sonnet-5", SpanKind.CLIENT)
    assert span.end_time - span.start_time == 1_500_000_000
    attributes = dict(span.attributes)
    cost = attributes.pop("gen_ai.usage.cost")
    assert 0 < cost < 0.01
    assert attributes == {
        "gen_ai.operation.name": "chat", "gen_ai.provider.name": "anthropic", "gen_ai.system": "anthropic",
        "gen_ai.request.model": "claude-sonnet-5", "gen_ai.response.model": "claude-sonnet-5",
        "gen_ai.response.id": "msg_1", "gen_ai.response.finish_reasons": ("end_turn",),
        "gen_ai.conversation.id": conversation.id, "gen_ai.usage.input_tokens": 95,
        "gen_ai.usage.output_tokens": 7, "gen_ai.usage.cache_read.input_tokens": 80,
        "gen_ai.usage.cache_write.input_tokens": 5, "gen_ai.usage.cache_creation.input_tokens": 5,
    }  # fmt: skip
    points = telemetry.points()
    assert points["gen_ai.client.inference.usage.input_tokens"][0].value == 95
    assert points["gen_ai.client.inference.usage.cache_read.input_tokens"][0].value == 80
    assert points["gen_ai.client.inference.operation.output_tokens"][0].sum == 7
    assert points["gen_ai.client.inference.duration"][0].sum == points["gen_ai.client.operation.duration"][0].sum == 1.5
    old = {point.attributes["gen_ai.token.type"]: point.sum for point in points["gen_ai.client.token.usage"]}
    assert old == {"input": 95, "output": 7}


async def test_a_stream(store: AnyStore, telemetry: Telemetry) -> None:
    telemetry.instrument(store)
    conversation = await a_conversation(store)
    recorder = conversation.stream_response("gemini")
    events = script("gemini", ["The secret ", "answer."])
    if isinstance(store, Store):
        with recorder:
            for event in events:
                recorder.feed(event)
    else:
        async with recorder:
            for event in events:
                await recorder.feed(event)
    [span] = telemetry.spans()
    assert span.name == "generate_content claude-sonnet-5"
    wanted = {
        "gen_ai.provider.name": "gcp.gemini", "gen_ai.request.stream": True, "gen_ai.response.model": "gemini-3-pro",
        "gen_ai.response.finish_reasons": ("STOP",), "gen_ai.usage.input_tokens": 11,
    }  # fmt: skip
    assert {name: span.attributes[name] for name in wanted} == wanted
    assert span.attributes["gen_ai.response.time_to_first_chunk"] >= 0
    assert "gen_ai.client.inference.time_to_first_chunk" in telemetry.points()


async def test_reported_calls_and_failures(store: AnyStore, telemetry: Telemetry) -> None:
    telemetry.instrument(store)
    conversation = await a_conversation(store)
    usage = NormalizedUsage(input_tokens=3, output_tokens=2)
    for _ in range(2):  # once under one key
        await maybe(conversation.record_attempt("messages", usage=usage, idempotency_key="k"))
    await maybe(conversation.record_attempt("messages", error=TimeoutError("secret"), latency_ms=20))
    error = {"type": "error", "error": {"type": "overloaded_error", "message": "secret"}}
    with pytest.raises(ProviderError):
        await maybe(conversation.add_response(error, "messages"))
    reported, timeout, overloaded = telemetry.spans()
    assert reported.attributes["gen_ai.usage.output_tokens"] == 2
    assert [one.attributes.get("error.type") for one in (reported, timeout, overloaded)] == [
        None, "TimeoutError", "overloaded_error",
    ]  # fmt: skip
    assert [one.status.status_code for one in (reported, timeout)] == [StatusCode.UNSET, StatusCode.ERROR]
    [duration] = telemetry.points()["gen_ai.client.inference.duration"]
    assert (duration.count, duration.attributes["error.type"]) == (1, "TimeoutError")


async def test_names_and_types_are_those_of_the_conventions(store: AnyStore, telemetry: Telemetry) -> None:
    telemetry.instrument(store)
    conversation = await a_conversation(store)
    usage = NormalizedUsage(input_tokens=9, output_tokens=5, cached_tokens=3, cache_write_tokens=2, reasoning_tokens=1)
    await maybe(conversation.record_attempt("messages", usage=usage, latency_ms=9, first_token_ms=3))
    await maybe(conversation.record_attempt("messages", error="secret"))
    await maybe(conversation.add_response(ANSWER, "messages"))
    points = telemetry.points()
    emitted = [span.attributes for span in telemetry.spans()]
    emitted += [point.attributes for several in points.values() for point in several]
    for attributes in emitted:
        assert attributes.keys() >= REQUIRED
        for name, value in attributes.items():
            assert isinstance(value, TYPES[name]), name
    known = {*texts_of(gen_ai_attributes), error_attributes.ERROR_TYPE}
    assert {name for attributes in emitted for name in attributes} - known == NEW | OTHERS
    assert telemetry.instruments() == {name: instrument for name, (instrument, _) in METRICS.items()}
    for name, several in points.items():
        extra = {"gen_ai.token.modality": "inference.usage.", "gen_ai.token.type": "client.token."}
        assert {one for one, part in extra.items() if part in name} == several[0].attributes.keys() & extra.keys()
    assert "secret" not in repr(emitted)


def test_instruments_are_those_that_the_conventions_create(telemetry: Telemetry) -> None:
    meter = telemetry.meters.get_meter("conventions")
    for name in texts_of(gen_ai_metrics) & METRICS.keys():
        getattr(gen_ai_metrics, f"create_{name.replace('.', '_')}")(meter).record(1)
    assert telemetry.instruments() == {name: instrument for name, (instrument, is_known) in METRICS.items() if is_known}


def test_values_are_those_of_the_conventions() -> None:
    providers = {one.value for one in gen_ai_attributes.GenAiProviderNameValues}
    assert {*names.SYSTEMS.values()} - providers == {"moonshot_ai"}  # which is newer than the package
    operations = {one.value for one in gen_ai_attributes.GenAiOperationNameValues}
    assert operations >= names.INFERENCES


async def test_spans_say_what_those_of_opentelemetry_itself_say(store: AnyStore, telemetry: Telemetry) -> None:
    handler = TelemetryHandler(tracer_provider=telemetry.tracers)
    telemetry.instrument(store)
    conversation = await a_conversation(store)
    await maybe(conversation.add_response(ANSWER, "messages"))
    with conversation_context(conversation), handler.inference("anthropic", request_model="claude-sonnet-5") as call:
        call.response_id, call.response_model_name, call.finish_reasons = "msg_1", "claude-sonnet-5", ["end_turn"]
        call.input_tokens, call.output_tokens = 95, 7
        call.cache_read_input_tokens, call.cache_write_input_tokens = 80, 5
    ours, theirs = telemetry.spans()
    assert (ours.name, ours.kind) == (theirs.name, theirs.kind)
    assert {name: ours.attributes.get(name) for name in theirs.attributes} == dict(theirs.attributes)


async def test_it_is_a_child_of_the_span_of_the_application(store: AnyStore, telemetry: Telemetry) -> None:
    telemetry.instrument(store)
    conversation = await a_conversation(store)
    with telemetry.tracers.get_tracer("application").start_as_current_span("answer"):
        await maybe(conversation.add_response(ANSWER, "messages"))
    child, parent = telemetry.spans()
    assert child.parent.span_id == parent.context.span_id


async def test_a_repeated_response_is_told_once(store: AnyStore, telemetry: Telemetry) -> None:
    telemetry.instrument(store)
    conversation = await a_conversation(store)
    for _ in range(2):
        await maybe(conversation.add_response(ANSWER, "messages", idempotency_key="msg_1"))
    assert len(telemetry.spans()) == 1


async def test_either_can_be_left_out_and_it_ends(store: AnyStore, telemetry: Telemetry) -> None:
    ends = telemetry.instrument(store, spans=False), telemetry.instrument(store.for_user("ann"), metrics=False)
    conversation = await a_conversation(store)
    await maybe(conversation.add_response(ANSWER, "messages"))
    assert len(telemetry.spans()) == 1
    for end in ends:
        end()
        end()
    await maybe(conversation.add_response({**ANSWER, "id": "msg_2"}, "messages"))
    assert len(telemetry.spans()) == 1
    assert telemetry.points()["gen_ai.client.inference.usage.output_tokens"][0].value == 7


async def test_what_fails_there_does_not_fail_here(store: AnyStore, caplog: pytest.LogCaptureFixture) -> None:
    telemetry = Telemetry()
    telemetry.instrument(store)
    telemetry.tracers.add_span_processor(Failing())
    conversation = await a_conversation(store)
    await maybe(conversation.add_response(ANSWER, "messages"))
    assert len(await maybe(conversation.transcript())) == 2
    assert "An observer of calls has failed." in caplog.text


class Failing(ConversationSpans):
    """A processor that fails."""

    def on_start(self, *_: Any, **__: Any) -> None:
        raise RuntimeError("no")


# The context


async def test_spans_inside_of_the_context_have_the_conversation(store: AnyStore, telemetry: Telemetry) -> None:
    conversation, tracer = await a_conversation(store), telemetry.tracers.get_tracer("application")

    async def work(name: Any) -> None:
        with conversation_context(name), tracer.start_as_current_span("outer"):
            await asyncio.sleep(0)
            tracer.start_span("inner").end()

    await asyncio.gather(work(conversation), work("chat-17"))
    tracer.start_span("outside").end()
    found = sorted((span.name, span.attributes.get("gen_ai.conversation.id")) for span in telemetry.spans()[:-1])
    assert found == sorted((name, id_) for name in ("inner", "outer") for id_ in (conversation.id, "chat-17"))
    assert telemetry.spans()[-1].attributes == {}
