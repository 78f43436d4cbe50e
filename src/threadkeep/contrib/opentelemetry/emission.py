"""Spans and metrics of the calls that a store writes into its ledger, with their ids and figures and no content.

Figures have today's names of the conventions and those that these replaced, so that dashboards of either kind work.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

from opentelemetry.metrics import Meter, MeterProvider, get_meter_provider
from opentelemetry.trace import SpanKind, StatusCode, Tracer, TracerProvider, get_tracer_provider

from threadkeep.contrib.opentelemetry import names
from threadkeep.domain.usage import NANO, NormalizedUsage
from threadkeep.store.aio import AsyncStore
from threadkeep.store.store import Store
from threadkeep.store.usage import ledger, observing

SCOPE: Final = "threadkeep"
_MILLISECONDS: Final = 1_000_000  # in nanoseconds
# bucket boundaries that the conventions ask for
_SECONDS: Final = [0.01 * 2**power for power in range(14)]
_TOKENS: Final = [4**power for power in range(14)]
# format -> provider, where the application does not name it; a client of OpenAI's API speaks to many
_PROVIDERS: Final = {"messages": "anthropic", "gemini": "google", "interactions": "google", "converse": "aws"}
_OPERATIONS: Final = {"gemini": "generate_content"}  # format -> operation, if that is not chat
# figure -> attributes of the span
_USAGE: Final = {
    "input_tokens": (names.INPUT,),
    "output_tokens": (names.OUTPUT,),
    "cached_tokens": (names.CACHE_READ,),
    "cache_write_tokens": (names.CACHE_WRITE, names.CACHE_CREATION),
    "reasoning_tokens": (names.REASONING,),
}
# figure -> end of the name of its counter
_COUNTERS: Final = {
    "input_tokens": "input_tokens",
    "output_tokens": "output_tokens",
    "cached_tokens": "cache_read.input_tokens",
    "cache_write_tokens": "cache_write.input_tokens",
    "reasoning_tokens": "reasoning.output_tokens",
}
_TYPES: Final = {"input_tokens": "input", "output_tokens": "output"}  # figure -> token type of the older metric


def instrument(
    store: Store | AsyncStore,
    *,
    spans: bool = True,
    metrics: bool = True,
    tracer_provider: TracerProvider | None = None,
    meter_provider: MeterProvider | None = None,
) -> Callable[[], None]:
    """Emit a span and metrics for each call that a store writes into its ledger; return what ends that.

    The span is one of a call to a model, as long as the call took, and has `gen_ai.conversation.id`. Where SDKs are
    instrumented, their calls have spans and metrics already: leave them out here, or there.

    Args:
        store: the store; those derived from it, of tenants and users, are meant, too.
        spans: whether spans are emitted.
        metrics: whether metrics are emitted.
        tracer_provider: where spans go; by default to the global one.
        meter_provider: the same for metrics.
    """
    emitters: list[Callable[[observing.ObservedCall, Mapping[str, Any]], None]] = []
    if spans:
        emitters.append(_Spans((tracer_provider or get_tracer_provider()).get_tracer(SCOPE)))
    if metrics:
        emitters.append(_Metrics((meter_provider or get_meter_provider()).get_meter(SCOPE)))

    def observer(call: observing.ObservedCall) -> None:
        attempt = call.attempt
        provider = attempt.provider or _PROVIDERS.get(attempt.format, "openai")
        # What spans and metrics have: few values, the same again and again
        common = {
            names.OPERATION: _OPERATIONS.get(attempt.format, "chat"),
            names.PROVIDER: names.SYSTEMS.get(provider, provider),
            names.REQUEST_MODEL: call.request_model or attempt.model,
            names.RESPONSE_MODEL: attempt.model if call.response_id is not None else None,
        }
        attributes = {name: value for name, value in common.items() if value is not None}
        for emit in emitters:
            emit(call, attributes)

    return observing.add_observer(store, observer)


def _error_type(attempt: ledger.Attempt) -> str | None:
    """The class of what went wrong; None if nothing did."""
    if attempt.status != "failed":
        return None
    kind = (attempt.error or {}).get("type") or (attempt.error or {}).get("code")
    return str(kind) if kind else "_OTHER"  # what the conventions have for all that has no name


class _Spans:
    """Emits a span for each call."""

    def __init__(self, tracer: Tracer) -> None:
        self._tracer = tracer

    def __call__(self, call: observing.ObservedCall, common: Mapping[str, Any]) -> None:
        """Emit the span of a call, which has ended just now."""
        ended, attempt = time.time_ns(), call.attempt
        name = f"{common[names.OPERATION]} {common.get(names.REQUEST_MODEL, '')}".strip()
        own: dict[str, Any] = {  # what only spans have: ids and figures of one call
            names.CONVERSATION: call.conversation_id,
            names.RESPONSE_ID: call.response_id,
            names.FINISH_REASONS: None if call.finish_reason is None else [call.finish_reason],
            names.STREAM: True if call.is_stream else None,
            names.FIRST_CHUNK: None if attempt.first_token_ms is None else attempt.first_token_ms / 1000,
            names.COST: None if attempt.cost is None else attempt.cost.nano / NANO,
            names.ERROR: _error_type(attempt),
            names.SYSTEM: common[names.PROVIDER],
        }
        for figure, keys in _USAGE.items():
            own |= dict.fromkeys(keys, getattr(attempt.figures, figure))
        attributes = {**common, **{key: value for key, value in own.items() if value is not None}}
        start = ended - (attempt.latency_ms or 0) * _MILLISECONDS
        span = self._tracer.start_span(name, kind=SpanKind.CLIENT, attributes=attributes, start_time=start)
        if names.ERROR in attributes:
            span.set_status(StatusCode.ERROR)
        span.end(ended)


class _Metrics:
    """Counts the tokens of calls, and how long calls took."""

    def __init__(self, meter: Meter) -> None:
        def histogram(name: str, unit: str, description: str, boundaries: list[Any]) -> Any:
            return meter.create_histogram(name, unit, description, explicit_bucket_boundaries_advisory=boundaries)

        self._counters = {
            figure: meter.create_counter(
                f"gen_ai.client.inference.usage.{ending}", "{token}", "Tokens that calls of models used."
            )
            for figure, ending in _COUNTERS.items()
        }
        self._sizes = {
            figure: histogram(
                f"gen_ai.client.inference.operation.{figure}", "{token}", "Tokens of one call of a model.", _TOKENS
            )
            for figure in _TYPES
        }
        self._tokens = histogram("gen_ai.client.token.usage", "{token}", "Tokens of one call of a model.", _TOKENS)
        ends, begins = "How long calls of models took.", "When the first part of an answer came."
        self._durations, self._first_chunks = (
            [histogram(f"gen_ai.client.{family}.{name}", "s", text, _SECONDS) for family in ("inference", "operation")]
            for name, text in (("duration", ends), ("time_to_first_chunk", begins))
        )

    def __call__(self, call: observing.ObservedCall, common: Mapping[str, Any]) -> None:
        """Count a call."""
        attempt, error = call.attempt, _error_type(call.attempt)
        self._count(attempt.figures, common)
        if attempt.latency_ms is not None:
            failed = common if error is None else {**common, names.ERROR: error}
            for duration in self._durations:
                duration.record(attempt.latency_ms / 1000, failed)
        if attempt.first_token_ms is not None:
            for first_chunk in self._first_chunks:
                first_chunk.record(attempt.first_token_ms / 1000, common)

    def _count(self, figures: NormalizedUsage, common: Mapping[str, Any]) -> None:
        for figure, counter in self._counters.items():
            if value := getattr(figures, figure):
                counter.add(value, {**common, names.MODALITY: "unknown"})
        for figure, kind in _TYPES.items():
            value = getattr(figures, figure)
            if value is not None:
                self._sizes[figure].record(value, common)
                self._tokens.record(value, {**common, names.KIND: kind})
