"""What scripted upstreams answer: one turn in the events of each format."""

from __future__ import annotations

import gzip
import sys
import zlib
from collections.abc import AsyncGenerator, Callable
from importlib import import_module
from typing import Any

import brotli

from threadkeep.http import Upstream

zstd: Any = import_module("compression.zstd" if sys.version_info >= (3, 14) else "backports.zstd")

ARGUMENTS = '{"city":"Paris"}'
CALL = "call_1"
COMPRESS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress, "deflate": zlib.compress, "br": brotli.compress, "zstd": zstd.compress,
}  # fmt: skip


def _open_responses(texts: list[str], *, calls: bool) -> list[dict[str, Any]]:
    message = {"type": "message", "id": "msg_of_provider", "role": "assistant", "status": "completed"}
    part = {"type": "output_text", "text": "".join(texts), "annotations": []}
    call = {"type": "function_call", "id": "fc_of_provider", "call_id": CALL, "name": "look", "arguments": ARGUMENTS}
    head = {"id": "resp_of_provider", "object": "response", "model": "gpt-5.4"}
    usage = {"input_tokens": 11, "output_tokens": 7, "total_tokens": 18}
    output = [{**message, "content": [part]}, *([call] if calls else [])]
    events: list[dict[str, Any]] = [
        {"type": "response.created", "response": {**head, "status": "in_progress", "output": []}},
        {"type": "response.output_item.added", "output_index": 0, "item": {**message, "content": []}},
        *(
            {"type": "response.output_text.delta", "item_id": message["id"], "output_index": 0, "content_index": 0,
             "delta": text}
            for text in texts
        ),
        {"type": "response.output_item.done", "output_index": 0, "item": output[0]},
    ]  # fmt: skip
    if calls:
        events.append({"type": "response.output_item.done", "output_index": 1, "item": call})
    completed = {**head, "status": "completed", "output": output, "usage": usage}
    return [*events, {"type": "response.completed", "response": completed}]


def _chat_completion(texts: list[str], *, calls: bool) -> list[dict[str, Any]]:
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "model": "gpt-5.4"}
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": ""}, *({"content": text} for text in texts)]
    if calls:
        function = {"name": "look", "arguments": ""}
        deltas.append({"tool_calls": [{"index": 0, "id": CALL, "type": "function", "function": function}]})
        deltas.append({"tool_calls": [{"index": 0, "function": {"arguments": ARGUMENTS}}]})
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    end = {"index": 0, "delta": {}, "finish_reason": "tool_calls" if calls else "stop"}
    usage = {"prompt_tokens": 11, "completion_tokens": 7, "total_tokens": 18}
    return [*chunks, {**head, "choices": [end]}, {**head, "choices": [], "usage": usage}]


def _messages(texts: list[str], *, calls: bool) -> list[dict[str, Any]]:
    message = {"id": "msg_01", "type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": []}
    events: list[dict[str, Any]] = [
        {"type": "message_start", "message": {**message, "usage": {"input_tokens": 11, "output_tokens": 1}}},
        {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}},
        *({"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": text}} for text in texts),
        {"type": "content_block_stop", "index": 0},
    ]
    if calls:
        block = {"type": "tool_use", "id": CALL, "name": "look", "input": {}}
        delta = {"type": "input_json_delta", "partial_json": ARGUMENTS}
        events += [
            {"type": "content_block_start", "index": 1, "content_block": block},
            {"type": "content_block_delta", "index": 1, "delta": delta},
            {"type": "content_block_stop", "index": 1},
        ]
    stop = {"stop_reason": "tool_use" if calls else "end_turn"}
    return [*events, {"type": "message_delta", "delta": stop, "usage": {"output_tokens": 7}}, {"type": "message_stop"}]


def _gemini(texts: list[str], *, calls: bool) -> list[dict[str, Any]]:
    parts: list[dict[str, Any]] = [{"text": text} for text in texts]
    if calls:
        parts.append({"functionCall": {"id": CALL, "name": "look", "args": {"city": "Paris"}}})
    head = {"responseId": "abc", "modelVersion": "gemini-3-pro"}
    events = [{**head, "candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]} for part in parts]
    usage = {"promptTokenCount": 11, "candidatesTokenCount": 7, "totalTokenCount": 18}
    end = {"content": {"role": "model", "parts": [{"text": ""}]}, "finishReason": "STOP", "index": 0}
    return [*events, {**head, "candidates": [end], "usageMetadata": usage}]


def _interactions(texts: list[str], *, calls: bool) -> list[dict[str, Any]]:
    interaction = {"id": "int_1", "object": "interaction", "model": "gemini-3-pro", "status": "in_progress"}
    usage = {"total_input_tokens": 11, "total_output_tokens": 7, "total_tokens": 18}
    deltas: list[tuple[str, dict[str, Any], list[Any]]] = [
        ("model_output", {}, [{"type": "text", "text": text} for text in texts])
    ]
    if calls:
        call = {"id": CALL, "name": "look", "arguments": {}}
        deltas.append(("function_call", call, [{"type": "arguments_delta", "arguments": ARGUMENTS}]))
    events: list[dict[str, Any]] = [{"event_type": "interaction.created", "interaction": interaction}]
    for index, (kind, keys, grows) in enumerate(deltas):
        events.append({"event_type": "step.start", "index": index, "step": {"type": kind, **keys}})
        events += [{"event_type": "step.delta", "index": index, "delta": delta} for delta in grows]
        events.append({"event_type": "step.stop", "index": index})
    ended = {**interaction, "status": "requires_action" if calls else "completed", "usage": usage}
    return [*events, {"event_type": "interaction.completed", "interaction": ended}]


def _converse(texts: list[str], *, calls: bool) -> list[dict[str, Any]]:
    events: list[dict[str, Any]] = [
        {"messageStart": {"role": "assistant"}},
        *({"contentBlockDelta": {"contentBlockIndex": 0, "delta": {"text": text}}} for text in texts),
        {"contentBlockStop": {"contentBlockIndex": 0}},
    ]
    if calls:
        use = {"toolUseId": CALL, "name": "look"}
        events += [
            {"contentBlockStart": {"contentBlockIndex": 1, "start": {"toolUse": use}}},
            {"contentBlockDelta": {"contentBlockIndex": 1, "delta": {"toolUse": {"input": ARGUMENTS}}}},
            {"contentBlockStop": {"contentBlockIndex": 1}},
        ]
    usage = {"inputTokens": 11, "outputTokens": 7, "totalTokens": 18}
    return [
        *events,
        {"messageStop": {"stopReason": "tool_use" if calls else "end_turn"}},
        {"metadata": {"usage": usage}},
    ]


FORMATS: Any = {
    "open_responses": _open_responses, "chat_completion": _chat_completion, "messages": _messages, "gemini": _gemini,
    "interactions": _interactions, "converse": _converse,
}  # fmt: skip


def script(format_: str, texts: list[str], *, calls: bool = False) -> list[dict[str, Any]]:
    """The events of an answer with this text, piece by piece, and a call of `look` after it."""
    events: list[dict[str, Any]] = FORMATS[format_](texts, calls=calls)
    return events


class Scripted:
    """An upstream that answers with the next script, and remembers what it was asked."""

    def __init__(self, format_: Any) -> None:
        self.format = format_
        self.scripts: list[list[Any]] = []
        self.payloads: list[dict[str, Any]] = []
        self.models: list[str] = []
        self.upstream = Upstream(f"scripted-{format_}", format_, self.ask)

    def will_say(self, *texts: str, calls: bool = False) -> None:
        self.scripts.append(script(self.format, list(texts), calls=calls))

    async def ask(self, payload: dict[str, Any], model: str) -> AsyncGenerator[Any]:
        self.payloads.append(payload)
        self.models.append(model)
        for event in self.scripts.pop(0):
            if isinstance(event, Exception):
                raise event
            yield event
