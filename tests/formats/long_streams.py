"""Streams of any length in each format: of calls, of one text, of one input, of parts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

Event = dict[str, Any]
Stream = Callable[[int], Iterator[Event]]
PIECE = "word "


def chunk(finish_reason: str | None = None, **delta: Any) -> Event:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "c", "object": "chat.completion.chunk", "model": "m", "choices": [choice]}


def chat_calls(count: int) -> Iterator[Event]:
    yield chunk(role="assistant", content="So: ")
    for n in range(count):
        function = {"name": "look_up", "arguments": ""}
        yield chunk(tool_calls=[{"index": n, "id": f"c{n}", "type": "function", "function": function}])
        for text in ('{"n":', f"{n}}}"):
            yield chunk(tool_calls=[{"index": n, "function": {"arguments": text}}])
    yield chunk("tool_calls")


def chat_calls_cut_off(count: int) -> Iterator[Event]:
    *begun, _last = chat_calls(count)
    yield from begun
    yield chunk("length")


def chat_texts(key: str) -> Stream:
    def stream(count: int) -> Iterator[Event]:
        for _ in range(count):
            yield chunk(**{key: PIECE})
        yield chunk("stop")

    return stream


def chat_details(count: int) -> Iterator[Event]:
    """Reasoning as it comes from hosts that say it twice."""
    for _ in range(count):
        yield chunk(reasoning=PIECE, reasoning_details=[{"type": "reasoning.text", "index": 0, "text": PIECE}])
    yield chunk("stop")


def chat_sound(count: int) -> Iterator[Event]:
    for _ in range(count):
        yield chunk(audio={"id": "a", "data": "AAEC"})
    yield chunk("stop")


def chat_input(count: int) -> Iterator[Event]:
    yield chunk(tool_calls=[{"index": 0, "id": "c", "type": "function", "function": {"name": "f", "arguments": ""}}])
    for _ in range(count):
        yield chunk(tool_calls=[{"index": 0, "function": {"arguments": PIECE}}])
    yield chunk("tool_calls")


def response_start() -> Event:
    return {"type": "response.created", "response": {"object": "response", "model": "m", "status": "in_progress"}}


def response_calls(count: int) -> Iterator[Event]:
    yield response_start()
    for n in range(count):
        item = {"id": f"fc{n}", "type": "function_call", "call_id": f"c{n}", "name": "f", "arguments": ""}
        place = {"output_index": n, "item_id": f"fc{n}"}
        yield {"type": "response.output_item.added", "output_index": n, "item": {**item, "status": "in_progress"}}
        for text in ('{"n":', f"{n}}}"):
            yield {"type": "response.function_call_arguments.delta", **place, "delta": text}
        whole = {**item, "arguments": f'{{"n":{n}}}', "status": "completed"}
        yield {"type": "response.output_item.done", "output_index": n, "item": whole}


def response_texts(kind: str, place: str) -> Stream:
    def stream(count: int) -> Iterator[Event]:
        yield response_start()
        for _ in range(count):
            yield {"type": f"response.{kind}.delta", "output_index": 0, place: 0, "delta": PIECE}

    return stream


def response_parts(count: int) -> Iterator[Event]:
    yield response_start()
    for n in range(count):
        yield {"type": "response.output_text.delta", "output_index": 0, "content_index": n, "delta": PIECE}


def message_start() -> Event:
    message = {"id": "m", "type": "message", "role": "assistant", "model": "m", "content": []}
    return {"type": "message_start", "message": message}


def message_blocks(count: int, block: Callable[[int], Event], delta: Event) -> Iterator[Event]:
    yield message_start()
    for n in range(count):
        yield {"type": "content_block_start", "index": n, "content_block": block(n)}
        yield {"type": "content_block_delta", "index": n, "delta": delta}
        yield {"type": "content_block_stop", "index": n}
    yield {"type": "message_delta", "delta": {"stop_reason": "end_turn"}}
    yield {"type": "message_stop"}


def message_calls(count: int) -> Iterator[Event]:
    def block(n: int) -> Event:
        return {"type": "tool_use", "id": f"c{n}", "name": "f", "input": {}}

    yield from message_blocks(count, block, {"type": "input_json_delta", "partial_json": '{"n":1}'})


def message_parts(count: int) -> Iterator[Event]:
    yield from message_blocks(count, lambda _: {"type": "text", "text": ""}, {"type": "text_delta", "text": PIECE})


def message_texts(block: Event, delta: Event) -> Stream:
    def stream(count: int) -> Iterator[Event]:
        yield message_start()
        yield {"type": "content_block_start", "index": 0, "content_block": dict(block)}
        for _ in range(count):
            yield {"type": "content_block_delta", "index": 0, "delta": delta}
        yield {"type": "content_block_stop", "index": 0}

    return stream


def gemini_chunk(*parts: Event, **candidate: Any) -> Event:
    content = {"role": "model", "parts": [*parts]}
    return {"candidates": [{"content": content, **candidate}], "modelVersion": "m", "responseId": "r"}


def gemini_calls(count: int) -> Iterator[Event]:
    for n in range(count):
        yield gemini_chunk({"text": PIECE}, {"functionCall": {"name": "f", "args": {"n": n}}})
    yield gemini_chunk(finishReason="STOP")


def gemini_texts(**keys: Any) -> Stream:
    def stream(count: int) -> Iterator[Event]:
        for _ in range(count):
            yield gemini_chunk({"text": PIECE, **keys})

    return stream


def gemini_parts(count: int) -> Iterator[Event]:
    for _ in range(count):
        yield gemini_chunk({"text": PIECE, "thoughtSignature": "c2ln"})


def gemini_input(path: str) -> Stream:
    """Arguments that come piece by piece: as one text, or one element after the other."""

    def stream(count: int) -> Iterator[Event]:
        yield gemini_chunk({"functionCall": {"name": "f", "willContinue": True}})
        for n in range(count):
            piece = {"jsonPath": path.format(n), "stringValue": PIECE}
            yield gemini_chunk({"functionCall": {"partialArgs": [piece], "willContinue": True}})

    return stream


def converse_blocks(count: int, start: Callable[[int], Event] | None, delta: Event) -> Iterator[Event]:
    yield {"messageStart": {"role": "assistant"}}
    for n in range(count):
        if start is not None:
            yield {"contentBlockStart": {"contentBlockIndex": n, "start": start(n)}}
        yield {"contentBlockDelta": {"contentBlockIndex": n, "delta": delta}}
        yield {"contentBlockStop": {"contentBlockIndex": n}}
    yield {"messageStop": {"stopReason": "end_turn"}}


def converse_calls(count: int) -> Iterator[Event]:
    def start(n: int) -> Event:
        return {"toolUse": {"toolUseId": f"c{n}", "name": "f"}}

    yield from converse_blocks(count, start, {"toolUse": {"input": '{"n":1}'}})


def converse_parts(count: int) -> Iterator[Event]:
    yield from converse_blocks(count, None, {"text": PIECE})


def converse_texts(delta: Event) -> Stream:
    def stream(count: int) -> Iterator[Event]:
        yield {"messageStart": {"role": "assistant"}}
        for _ in range(count):
            yield {"contentBlockDelta": {"contentBlockIndex": 0, "delta": delta}}

    return stream


CALLS: dict[str, Stream] = {
    "open_responses": response_calls,
    "chat_completion": chat_calls,
    "messages": message_calls,
    "gemini": gemini_calls,
    "converse": converse_calls,
}
# one text, or one input of a call, that comes in very many pieces
TEXTS: list[tuple[str, str, Stream]] = [
    ("open_responses", "text", response_texts("output_text", "content_index")),
    ("open_responses", "summary", response_texts("reasoning_summary_text", "summary_index")),
    ("open_responses", "input", response_texts("function_call_arguments", "content_index")),
    ("chat_completion", "text", chat_texts("content")),
    ("chat_completion", "reasoning", chat_texts("reasoning_content")),
    ("chat_completion", "details", chat_details),
    ("chat_completion", "unknown", chat_texts("of_this_host")),
    ("chat_completion", "input", chat_input),
    ("chat_completion", "sound", chat_sound),
    ("messages", "text", message_texts({"type": "text", "text": ""}, {"type": "text_delta", "text": PIECE})),
    ("messages", "thinking", message_texts(
        {"type": "thinking", "thinking": ""}, {"type": "thinking_delta", "thinking": PIECE})),
    ("messages", "input", message_texts(
        {"type": "tool_use", "id": "c", "name": "f"}, {"type": "input_json_delta", "partial_json": PIECE})),
    ("gemini", "text", gemini_texts()),
    ("gemini", "thought", gemini_texts(thought=True)),
    ("gemini", "input", gemini_input("$.text")),
    ("converse", "text", converse_texts({"text": PIECE})),
    ("converse", "reasoning", converse_texts({"reasoningContent": {"text": PIECE}})),
    ("converse", "input", converse_texts({"toolUse": {"input": PIECE}})),
    ("converse", "result", converse_texts({"toolResult": [{"text": PIECE}]})),
    ("converse", "redacted", converse_texts({"reasoningContent": {"redactedContent": "AAEC"}})),
]  # fmt: skip
# one item of very many parts
PARTS: list[tuple[str, str, Stream]] = [
    ("open_responses", "parts", response_parts),
    ("messages", "parts", message_parts),
    ("gemini", "parts", gemini_parts),
    ("gemini", "elements", gemini_input("$.list[{}]")),
    ("gemini", "names", gemini_input("$.n{}")),
    ("converse", "parts", converse_parts),
]
ALL: list[tuple[str, str, Stream]] = [
    *((name, "calls", stream) for name, stream in CALLS.items()),
    ("chat_completion", "cut off", chat_calls_cut_off),
    *TEXTS,
    *PARTS,
]
