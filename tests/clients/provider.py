"""A provider on this machine that answers by what a prompt asks for, in four formats, and notes each call.

A prompt names its script, as in `[[tool:one]]`. What was called since then, and which tools there are, say how far the
script is: calls may come in any order, as those of agents do. Each call has token counts of its own.
"""

from __future__ import annotations

import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from threading import Lock
from typing import Any

from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, Response, StreamingResponse
from starlette.routing import Route

from threadkeep.domain.formats import get_format
from threadkeep.http import Upstream

Json = dict[str, Any]
MARK = re.compile(r"\[\[(\w+):([\w-]+)\]\]")
# what the last message of a request for a summary says, of those with tools
SUMMARY = re.compile(r"TEXT ONLY|state_snapshot")
MEMORY = re.compile("Managed memory")  # and where a client's own agent reads the history, to remember something
SUMMARIZED = "The user wanted something said, and it was said with the help of the shell."
ENDINGS = {"responses": "open_responses", "completions": "chat_completion", "messages": "messages"}
CALLS = {"tool": 1, "full": 1, "pair": 2}  # how many tools are called at once, by the kind of a script
AGENTS = 2  # of one turn
FULL = 1_000_000  # tokens of a request that is as long as the context of a model: clients compact their history


@dataclass
class Call:
    """A call of a client, and what it was answered."""

    number: int
    format: str
    payload: Json
    headers: dict[str, str]
    thought: str = ""
    text: str = ""
    calls: Sequence[tuple[str, str, Json]] = ()  # ids, names and arguments
    fault: str = ""  # of those that were not answered whole: error or break
    script: str = ""  # whose prompt it answers; empty for what no one typed
    input_tokens: int = 0

    @property
    def id(self) -> str:
        return f"resp_{self.number}"

    @property
    def output_tokens(self) -> int:
        return 100 + self.number

    @property
    def signature(self) -> str:
        return f"c2lnbmVk{self.number:04}"


@dataclass
class Provider:
    """It answers with the calls of `shell` and `agent`: the names of a client's tools, and arguments for them.

    A name with a dot is that of a tool in a namespace.
    """

    shell: tuple[str, Json]
    agent: tuple[str, Json] | None = None  # its arguments have the prompt as `{prompt}`
    wait: str = ""  # for an agent, by its id, if its client has such a tool
    calls: list[Call] = field(default_factory=list)
    has_thoughts: bool = True
    _done: set[str] = field(default_factory=set)
    _lock: Lock = field(default_factory=Lock)

    @property
    def application(self) -> Starlette:
        return Starlette(routes=[Route("/{path:path}", self._answer, methods=["GET", "HEAD", "POST"])])

    @property
    def answered(self) -> list[Call]:
        return [call for call in self.calls if not call.fault]

    async def _answer(self, request: Request) -> Response:
        path = request.path_params["path"]
        format_ = "gemini" if "enerateContent" in path else ENDINGS.get(path.rpartition("/")[2])
        if request.method != "POST" or format_ is None:
            return JSONResponse({"data": [], "object": "list"}, 200 if request.method == "HEAD" else 404)
        payload = await request.json()
        with self._lock:
            call = Call(len(self.calls), format_, payload, dict(request.headers))
            self.calls.append(call)
            self._script(call)
        if call.fault == "error":
            error = {"type": "overloaded_error", "message": "Try again.", "code": 503, "status": "UNAVAILABLE"}
            return JSONResponse({"type": "error", "error": error}, 503, {"retry-after": "0"})
        if not (payload.get("stream") or "stream" in path):
            return JSONResponse(WHOLE[format_](call))

        async def texts() -> AsyncIterator[str]:
            events = list(STREAMS[format_](call))
            for event in events[: len(events) // 2] if call.fault else events:
                named = f"event: {event['type']}\n" if format_ in ("messages", "open_responses") else ""
                yield f"{named}data: {json.dumps(event)}\n\n"
            if call.fault:
                raise ConnectionAbortedError
            if format_ == "chat_completion":
                yield "data: [DONE]\n\n"

        return StreamingResponse(texts(), media_type="text/event-stream")

    def upstream(self, format_: Any) -> Upstream:
        """It as an upstream of a server, in one format, which is asked as one at a URL is."""
        api = get_format(format_).api
        changes = {} if api is None else api.changes

        async def ask(payload: Json, _model: str) -> AsyncGenerator[Any]:
            payload = {**payload, **changes}
            with self._lock:
                call = Call(len(self.calls), format_, payload, {})
                self.calls.append(call)
                self._script(call)
            for event in STREAMS[format_](call):
                yield event

        return Upstream("here", format_, ask)

    def _script(self, call: Call) -> None:
        """Decide what a call is answered."""
        said = list(_said(call.payload))
        marked = [(at, found) for at, (who, text) in enumerate(said) if who == "user" and (found := MARK.findall(text))]
        at, marks = marked[-1] if marked else (0, [("side", "call")])
        kind, name = marks[-1]
        outputs = [text for who, text in said[at:] if who == "tool"]
        step = len(outputs)
        last = next((text for who, text in reversed(said) if who == "user"), "")
        tools = str(call.payload.get("tools"))
        call.input_tokens = 1_000 + 10 * call.number
        if "responseJsonSchema" in str(call.payload):
            call.text = json.dumps({"complexity_reasoning": "Simple.", "complexity_score": 1})
        elif SUMMARY.search(last) or (not call.payload.get("tools") and "summar" in MARK.sub("", last).lower()):
            call.input_tokens += FULL if any("[[full:" in text for _, text in said) else 0
            tag = "state_snapshot" if "state_snapshot" in last else "summary"
            call.text = f"<{tag}>{SUMMARIZED} That was summed up by call {call.number}.</{tag}>"
        elif MEMORY.search(last) or (f"'{self.shell[0]}'" not in tools and self.shell[0] != "none"):
            call.text = f"A side answer, number {call.number}, which nobody had asked for by typing anything."
        else:
            call.script = f"{kind}:{name}"
            call.thought = f"Thought {call.number}." if self.has_thoughts else ""
            if kind in ("error", "break") and call.script not in self._done:
                self._done.add(call.script)
                call.fault, call.text = kind, f"Broken {name}, before it was said whole."
            elif kind == "agents" and not step and self.agent is not None:
                prompts = (f"[[tool:{name}-{child}]] Say {child}." for child in ("left", "right")[:AGENTS])
                call.calls = [
                    (f"call_{call.number}_{index}", self.agent[0], _filled(self.agent[1], prompt))
                    for index, prompt in enumerate(prompts)
                ]
            elif kind == "agents" and AGENTS <= step < 2 * AGENTS and self.wait:
                waited = {"targets": [json.loads(outputs[step - AGENTS])["agent_id"]], "timeout_ms": 60_000}
                call.calls = [(f"call_{call.number}_0", self.wait, waited)]
            elif kind in CALLS and not step and self.shell[0] != "none":
                call.calls = [(f"call_{call.number}_{index}", *self.shell) for index in range(CALLS[kind])]
            else:
                call.text = f"What was asked for was said. Done {name}, as call {call.number}."
                call.input_tokens += FULL if kind == "full" else 0


def _filled(arguments: Json, prompt: str) -> Json:
    return {key: value.format(prompt=prompt) if isinstance(value, str) else value for key, value in arguments.items()}


def _said(payload: Json) -> Iterator[tuple[str, str]]:
    """Who said what in a request: each text of a user, and each output of a tool."""
    turns = payload.get("messages") or payload.get("input") or payload.get("contents") or []
    for turn in [{"role": "user", "content": turns}] if isinstance(turns, str) else turns:
        if str(turn.get("type", "")).endswith("_output"):
            yield "tool", str(turn.get("output"))
            continue
        content = turn.get("content") or turn.get("parts") or []
        for part in [{"text": content}] if isinstance(content, str) else content:
            if part.get("type") == "tool_result" or "functionResponse" in part or turn.get("role") == "tool":
                yield "tool", ""
            elif isinstance(part.get("text"), str):
                yield str(turn.get("role")), part["text"]


# The answers in each format: as a stream, and whole


def _named(name: str) -> Json:
    space, _, bare = name.rpartition(".")
    return {"name": bare} | ({"namespace": space} if space else {})


def _response(call: Call, output: list[Json], status: str = "completed") -> Json:
    usage = {
        "input_tokens": call.input_tokens, "input_tokens_details": {"cached_tokens": 4},
        "output_tokens": call.output_tokens, "output_tokens_details": {"reasoning_tokens": 3},
        "total_tokens": call.input_tokens + call.output_tokens,
    }  # fmt: skip
    head = {"id": call.id, "object": "response", "created_at": 1, "model": call.payload.get("model"), "status": status}
    return {**head, "output": output, **({"usage": usage} if status == "completed" else {})}


def _output(call: Call) -> list[Json]:
    output: list[Json] = []
    if call.thought:
        summary = [{"type": "summary_text", "text": call.thought}]
        output.append(
            {"type": "reasoning", "id": f"rs_{call.number}", "summary": summary, "encrypted_content": call.signature}
        )
    if call.text:
        part = {"type": "output_text", "text": call.text, "annotations": []}
        output.append(
            {
                "type": "message",
                "id": f"msg_{call.number}",
                "role": "assistant",
                "status": "completed",
                "content": [part],
            }
        )
    for id_, name, arguments in call.calls:
        output.append(
            {
                "type": "function_call",
                "id": f"fc_{id_}",
                "call_id": id_,
                **_named(name),
                "arguments": json.dumps(arguments),
                "status": "completed",
            }
        )
    return output


def _open_responses(call: Call) -> Iterator[Json]:
    output = _output(call)
    yield {"type": "response.created", "response": _response(call, [], "in_progress")}
    for index, item in enumerate(output):
        begun = {**item, "status": "in_progress"}
        begun |= {key: [] for key in ("content", "summary") if key in item}
        begun |= {"arguments": ""} if "arguments" in item else {}
        place = {"output_index": index, "item_id": item["id"]}
        yield {"type": "response.output_item.added", "output_index": index, "item": begun}
        if item["type"] == "message":
            place["content_index"] = 0
            [part] = item["content"]
            yield {"type": "response.content_part.added", **place, "part": {**part, "text": ""}}
            for piece in re.findall(r"\S+\s*", part["text"]):
                yield {"type": "response.output_text.delta", **place, "delta": piece}
            yield {"type": "response.output_text.done", **place, "text": part["text"]}
            yield {"type": "response.content_part.done", **place, "part": part}
        elif item["type"] == "reasoning":
            place["summary_index"] = 0
            [part] = item["summary"]
            yield {"type": "response.reasoning_summary_part.added", **place, "part": {**part, "text": ""}}
            yield {"type": "response.reasoning_summary_text.delta", **place, "delta": part["text"]}
            yield {"type": "response.reasoning_summary_text.done", **place, "text": part["text"]}
            yield {"type": "response.reasoning_summary_part.done", **place, "part": part}
        else:
            yield {"type": "response.function_call_arguments.delta", **place, "delta": item["arguments"]}
            yield {"type": "response.function_call_arguments.done", **place, "arguments": item["arguments"]}
        yield {"type": "response.output_item.done", "output_index": index, "item": item}
    yield {"type": "response.completed", "response": _response(call, output)}


def _chat_usage(call: Call) -> Json:
    return {
        "prompt_tokens": call.input_tokens, "completion_tokens": call.output_tokens,
        "total_tokens": call.input_tokens + call.output_tokens, "prompt_tokens_details": {"cached_tokens": 4},
        "completion_tokens_details": {"reasoning_tokens": 3},
    }  # fmt: skip


def _chat_head(call: Call, kind: str) -> Json:
    return {"id": call.id, "object": kind, "created": 1, "model": call.payload.get("model")}


def _chat_calls(call: Call) -> list[Json]:
    return [
        {"index": index, "id": id_, "type": "function", "function": {"name": name, "arguments": json.dumps(arguments)}}
        for index, (id_, name, arguments) in enumerate(call.calls)
    ]


def _chat_completion(call: Call) -> Iterator[Json]:
    deltas: list[Json] = [{"role": "assistant", "content": ""}]
    if call.thought:
        deltas.append({"reasoning_content": call.thought})
    deltas += [{"content": piece} for piece in re.findall(r"\S+\s*", call.text)]
    deltas += [{"tool_calls": [made]} for made in _chat_calls(call)]
    head = _chat_head(call, "chat.completion.chunk")
    for delta in deltas:
        yield {**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]}
    yield {**head, "choices": [{"index": 0, "delta": {}, "finish_reason": "tool_calls" if call.calls else "stop"}]}
    if (call.payload.get("stream_options") or {}).get("include_usage"):
        yield {**head, "choices": [], "usage": _chat_usage(call)}


def _whole_chat(call: Call) -> Json:
    message: Json = {"role": "assistant", "content": call.text or None}
    if call.calls:
        message["tool_calls"] = _chat_calls(call)
    choice = {"index": 0, "message": message, "finish_reason": "tool_calls" if call.calls else "stop"}
    return {**_chat_head(call, "chat.completion"), "choices": [choice], "usage": _chat_usage(call)}


def _blocks(call: Call) -> list[Json]:
    thought = {"type": "thinking", "thinking": call.thought, "signature": call.signature}
    return [
        *([thought] if call.thought else []),
        *([{"type": "text", "text": call.text}] if call.text else []),
        *({"type": "tool_use", "id": id_, "name": name, "input": given} for id_, name, given in call.calls),
    ]


def _message(call: Call, content: list[Json], usage: Json, stop: str | None = None) -> Json:
    head = {"id": call.id, "type": "message", "role": "assistant", "model": call.payload.get("model")}
    return {**head, "content": content, "stop_reason": stop, "stop_sequence": None, "usage": usage}


def _messages(call: Call) -> Iterator[Json]:
    asked = {"input_tokens": call.input_tokens - 4, "cache_read_input_tokens": 4, "cache_creation_input_tokens": 0}
    yield {"type": "message_start", "message": _message(call, [], {**asked, "output_tokens": 1})}
    for index, block in enumerate(_blocks(call)):
        begun = {**block, **dict.fromkeys(block.keys() & {"thinking", "signature", "text"}, "")}
        deltas: list[Json] = []
        if block["type"] == "text":
            deltas = [{"type": "text_delta", "text": piece} for piece in re.findall(r"\S+\s*", block["text"])]
        elif block["type"] == "thinking":
            deltas = [
                {"type": "thinking_delta", "thinking": block["thinking"]},
                {"type": "signature_delta", "signature": block["signature"]},
            ]
        else:
            begun["input"] = {}
            deltas = [{"type": "input_json_delta", "partial_json": json.dumps(block["input"])}]
        yield {"type": "content_block_start", "index": index, "content_block": begun}
        for delta in deltas:
            yield {"type": "content_block_delta", "index": index, "delta": delta}
        yield {"type": "content_block_stop", "index": index}
    stop = {"stop_reason": "tool_use" if call.calls else "end_turn", "stop_sequence": None}
    yield {"type": "message_delta", "delta": stop, "usage": {"output_tokens": call.output_tokens}}
    yield {"type": "message_stop"}


def _whole_message(call: Call) -> Json:
    usage = {"input_tokens": call.input_tokens - 4, "cache_read_input_tokens": 4, "output_tokens": call.output_tokens}
    return _message(call, _blocks(call), usage, "tool_use" if call.calls else "end_turn")


def _gemini_parts(call: Call) -> list[Json]:
    parts: list[Json] = [{"text": call.thought, "thought": True}] if call.thought else []
    parts += [{"text": piece} for piece in re.findall(r"\S+\s*", call.text)]
    for id_, name, arguments in call.calls:
        parts.append({"functionCall": {"id": id_, "name": name, "args": arguments}, "thoughtSignature": call.signature})
    return parts


def _gemini(call: Call) -> Iterator[Json]:
    head = {"responseId": call.id, "modelVersion": "gemini-3-pro"}
    for part in _gemini_parts(call):
        yield {**head, "candidates": [{"content": {"role": "model", "parts": [part]}, "index": 0}]}
    yield _whole_gemini(call, [{"text": ""}])


def _whole_gemini(call: Call, parts: list[Json] | None = None) -> Json:
    usage = {
        "promptTokenCount": call.input_tokens, "cachedContentTokenCount": 4, "thoughtsTokenCount": 3,
        "candidatesTokenCount": call.output_tokens - 3, "totalTokenCount": call.input_tokens + call.output_tokens,
    }  # fmt: skip
    content = {"role": "model", "parts": _gemini_parts(call) if parts is None else parts}
    ended = {"content": content, "finishReason": "STOP", "index": 0}
    head = {"responseId": call.id, "modelVersion": "gemini-3-pro"}
    return {**head, "candidates": [ended], "usageMetadata": usage}


STREAMS: dict[str, Callable[[Call], Iterator[Json]]] = {
    "open_responses": _open_responses, "chat_completion": _chat_completion, "messages": _messages, "gemini": _gemini,
}  # fmt: skip
WHOLE: dict[str, Callable[[Call], Json]] = {
    "open_responses": lambda call: _response(call, _output(call)), "chat_completion": _whole_chat,
    "messages": _whole_message, "gemini": _whole_gemini,
}  # fmt: skip
