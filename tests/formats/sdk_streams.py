"""Answers as the events in which their providers stream them, made from whole bodies."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any, Final

Json = dict[str, Any]


def events_of(body: Json, format_name: str) -> list[Json]:
    """The events of a stream that says the same as a body."""
    return list(STREAMS[format_name](copy.deepcopy(body)))


def halves(text: str) -> list[str]:
    """A text in two pieces, as it comes."""
    middle = max(1, len(text) // 2)
    return [piece for piece in (text[:middle], text[middle:]) if piece]


def _responses(body: Json) -> Iterator[Json]:
    """Items as they are added and done; texts and arguments piece by piece."""
    started = {**body, "status": "in_progress", "output": []}
    yield {"type": "response.created", "sequence_number": 0, "response": started}
    for index, item in enumerate(body["output"]):
        place = {"output_index": index, "item_id": item.get("id", ""), "sequence_number": 1}
        yield {"type": "response.output_item.added", **place, "item": _begun(item)}
        for number, part in enumerate(item["content"] if item.get("type") == "message" else ()):
            yield from _parts_of_message(part, {**place, "content_index": number})
        if item.get("type") == "function_call":
            for piece in halves(item["arguments"]):
                yield {"type": "response.function_call_arguments.delta", **place, "delta": piece}
        yield {"type": "response.output_item.done", **place, "item": item}
    yield {"type": "response.completed", "sequence_number": 9, "response": body}


def _begun(item: Json) -> Json:
    begun: dict[str, Json] = {"message": {"content": []}, "function_call": {"arguments": ""}}
    empty = begun.get(str(item.get("type")), {})
    return {**item, **empty, **({"status": "in_progress"} if "status" in item else {})}


def _parts_of_message(part: Json, place: Json) -> Iterator[Json]:
    if part["type"] in ("output_text", "refusal"):
        key = "text" if part["type"] == "output_text" else "refusal"
        kind = "response.output_text.delta" if key == "text" else "response.refusal.delta"
        yield {"type": "response.content_part.added", **place, "part": {**part, key: ""}}
        for piece in halves(part[key]):
            yield {"type": kind, **place, "delta": piece}
    else:
        yield {"type": "response.content_part.added", **place, "part": part}
    yield {"type": "response.content_part.done", **place, "part": part}


def _chat(body: Json) -> Iterator[Json]:
    """Deltas of one choice; what the API does not stream piece by piece comes whole."""
    head = {key: value for key, value in body.items() if key not in ("choices", "usage")}
    choice = body["choices"][0]
    message = dict(choice["message"])

    def chunk(delta: Json, **keys: Any) -> Json:
        one = {"index": 0, "delta": delta, "finish_reason": None, **keys}
        return {**head, "object": "chat.completion.chunk", "choices": [one]}

    text, calls = message.pop("content", None), message.pop("tool_calls", None) or []
    refusal, function = message.pop("refusal", None), message.pop("function_call", None)
    yield chunk({"role": message.pop("role"), "content": None if text is None else ""})
    for key, said in (("content", text), ("refusal", refusal)):
        for piece in halves(said or ""):
            yield chunk({key: piece})
    if message:
        yield chunk(message)
    for index, call in enumerate(calls):
        kind, key = ("function", "arguments") if call["type"] == "function" else ("custom", "input")
        yield chunk({"tool_calls": [{**call, "index": index, kind: {**call[kind], key: ""}}]})
        for piece in halves(call[kind][key]):
            yield chunk({"tool_calls": [{"index": index, kind: {key: piece}}]})
    if function:
        yield chunk({"function_call": {**function, "arguments": ""}})
        yield chunk({"function_call": {"arguments": function["arguments"]}})
    yield chunk({}, finish_reason=choice["finish_reason"])
    if body.get("usage"):
        yield {**head, "object": "chat.completion.chunk", "choices": [], "usage": body["usage"]}


# kind of block -> the keys of it that come in deltas, with the kinds of these
_DELTAS: Final = {
    "text": {"text": ("text_delta", "text")},
    "thinking": {"thinking": ("thinking_delta", "thinking"), "signature": ("signature_delta", "signature")},
}
_WHOLE: Final = frozenset({"signature"})  # keys that come in one delta
_SEALED: Final = ("content", "encrypted_content")
_CALLS: Final = frozenset({"tool_use", "server_tool_use", "mcp_tool_use"})


def _messages(body: Json) -> Iterator[Json]:
    """Blocks that begin empty; texts, thoughts and inputs piece by piece, citations one by one."""
    ending = {key: body[key] for key in ("stop_reason", "stop_sequence", "stop_details", "container") if key in body}
    start = {**body, "content": [], "stop_reason": None}
    yield {"type": "message_start", "message": {key: start[key] for key in start if key != "stop_sequence"}}
    for index, block in enumerate(body["content"]):
        yield from _block_events(block, index)
    managed = {"context_management": body["context_management"]} if "context_management" in body else {}
    yield {"type": "message_delta", "delta": ending, "usage": body.get("usage", {}), **managed}
    yield {"type": "message_stop"}


def _block_events(block: Json, index: int) -> Iterator[Json]:
    keys = _DELTAS.get(block["type"], {})
    begun = {**block, **dict.fromkeys(keys.keys() & block.keys(), "")}
    citations = begun.pop("citations", None) if block["type"] == "text" else None
    if block["type"] in _CALLS:
        begun["input"] = {}
    if block["type"] == "compaction":
        begun |= dict.fromkeys({"content", "encrypted_content"} & block.keys())
    yield {"type": "content_block_start", "index": index, "content_block": begun}
    deltas: list[Json] = [
        {"type": kind, target: piece}
        for key, (kind, target) in keys.items()
        for piece in ([block[key]] if key in _WHOLE and key in block else halves(block.get(key) or ""))
    ]
    deltas += [{"type": "citations_delta", "citation": citation} for citation in citations or ()]
    if block["type"] in _CALLS:
        deltas += [{"type": "input_json_delta", "partial_json": piece} for piece in halves(json.dumps(block["input"]))]
    if block["type"] == "compaction":
        deltas.append({"type": "compaction_delta", **{key: block[key] for key in _SEALED if key in block}})
    for delta in deltas:
        yield {"type": "content_block_delta", "index": index, "delta": delta}
    yield {"type": "content_block_stop", "index": index}


def _gemini(body: Json) -> Iterator[Json]:
    """A chunk for each part, and one with the end."""
    candidate = body["candidates"][0]
    head = {key: value for key, value in body.items() if key not in ("candidates", "usageMetadata")}
    for part in candidate["content"]["parts"]:
        yield {**head, "candidates": [{"content": {**candidate["content"], "parts": [part]}}]}
    ending = {key: value for key, value in candidate.items() if key != "content"}
    usage = {"usageMetadata": body["usageMetadata"]} if "usageMetadata" in body else {}
    yield {**head, "candidates": [ending], **usage}


def _converse(body: Json) -> Iterator[Json]:
    """Blocks of the kinds that ConverseStream has."""
    yield {"messageStart": {"role": "assistant"}}
    for index, block in enumerate(body["output"]["message"]["content"]):
        (key, value), *_ = block.items()
        place = {"contentBlockIndex": index}
        start, deltas = _converse_parts(key, value)
        if start:
            yield {"contentBlockStart": {**place, "start": start}}
        for delta in deltas:
            yield {"contentBlockDelta": {**place, "delta": delta}}
        yield {"contentBlockStop": place}
    yield {"messageStop": {"stopReason": body["stopReason"]}}
    yield {"metadata": {"usage": body["usage"], "metrics": body["metrics"]}}


def _converse_parts(key: str, value: Any) -> tuple[Json | None, list[Json]]:
    """What a block begins with, and its deltas."""
    if key == "text":
        return None, [{"text": piece} for piece in halves(value)]
    if key == "toolUse":
        start = {name: inner for name, inner in value.items() if name != "input"}
        return {"toolUse": start}, [{"toolUse": {"input": piece}} for piece in halves(json.dumps(value["input"]))]
    if key == "toolResult":
        start = {name: inner for name, inner in value.items() if name != "content"}
        return {"toolResult": start}, [{"toolResult": [one]} for one in value["content"]]
    if key == "reasoningContent":
        thought = value.get("reasoningText")
        if thought is None:
            return None, [{"reasoningContent": value}]
        signed = [{"reasoningContent": {"signature": thought["signature"]}}] if "signature" in thought else []
        return None, [*({"reasoningContent": {"text": piece}} for piece in halves(thought["text"])), *signed]
    if key == "image" and "bytes" in value["source"]:
        return {"image": {"format": value["format"]}}, [{"image": {"source": value["source"]}}]
    if key == "citationsContent":
        texts = [{"text": one["text"]} for one in value.get("content", ()) if "text" in one]
        return None, [*texts, *({"citation": one} for one in value.get("citations", ()))]
    return None, []


def steps_events(steps: list[Json]) -> Iterator[Json]:
    """Steps of the Interactions API: what each begins with, and the rest in deltas."""
    for index, step in enumerate(steps):
        begun, deltas = _pieces(step)
        yield {"event_type": "step.start", "index": index, "step": begun}
        yield from ({"event_type": "step.delta", "index": index, "delta": delta} for delta in deltas)
        yield {"event_type": "step.stop", "index": index}


def _interactions(body: Json) -> Iterator[Json]:
    begun = {**body, "status": "in_progress", "steps": []}
    yield {"event_type": "interaction.created", "interaction": begun}
    yield from steps_events(body["steps"])
    ended = {key: value for key, value in body.items() if key != "steps"}
    yield {"event_type": "interaction.completed", "interaction": ended}


def _pieces(step: Json) -> tuple[Json, list[Json]]:
    """What a step begins with, and the deltas that bring the rest of it."""
    begun: Json = {key: step[key] for key in ("type", "id", "call_id", "name", "server_name") if key in step}
    match step["type"]:
        case "model_output" if "error" not in step:
            return begun, [delta for content in step.get("content", ()) for delta in _content_deltas(content)]
        case "thought":
            deltas = [{"type": "thought_summary", "content": one} for one in step.get("summary", ())]
            signed = {"signature": step["signature"]} if "signature" in step else {}
            return begun, [*deltas, *([{"type": "thought_signature", **signed}] if signed else [])]
        case "function_call":
            text = json.dumps(step["arguments"])
            return begun, [{"type": "arguments_delta", "arguments": part} for part in (text[:4], text[4:])]
        case kind if kind.endswith(("_call", "_result")):
            return begun, [{"type": kind, **{key: value for key, value in step.items() if key not in begun}}]
    return step, []


def _content_deltas(content: Json) -> list[Json]:
    if content["type"] != "text":
        return [content]
    deltas = [{"type": "text", "text": part} for part in (content["text"][:1], content["text"][1:])]
    found = content.get("annotations")
    return [*deltas, *([{"type": "text_annotation_delta", "annotations": found}] if found else [])]


STREAMS: Final[dict[str, Callable[[Json], Iterator[Json]]]] = {
    "open_responses": _responses,
    "chat_completion": _chat,
    "messages": _messages,
    "gemini": _gemini,
    "converse": _converse,
    "interactions": _interactions,
}
# blocks of Converse that its streams do not have
NOT_STREAMED: Final = frozenset(
    {
        "document", "video", "audio", "guardContent", "cachePoint", "searchResult", "toolAddition", "toolRemoval",
    }
)  # fmt: skip


def has_events(body: Json, format_name: str) -> bool:
    """Whether a stream can say the same as a body."""
    if format_name == "gemini":  # arguments that come in pieces are whole in a body
        return not any(
            {"partialArgs", "willContinue"} & part.get("functionCall", {}).keys()
            for part in body["candidates"][0]["content"]["parts"]
        )
    if format_name != "converse":
        return True
    return all(
        not NOT_STREAMED & block.keys()
        and ("image" not in block or _is_streamed_image(block["image"]))
        and {"content", "citations"} <= block.get("citationsContent", {"content": [], "citations": []}).keys()
        for block in body["output"]["message"]["content"]
    )


def _is_streamed_image(image: Json) -> bool:
    return set(image) == {"format", "source"} and "bytes" in image["source"]
