"""POST /chat/completions: a model of any upstream answers, as clients of Chat Completions ask and read it.

A request is a turn like that of `POST /responses`, and what it is answered is made of the events of that.
Source: OpenAI's API reference, "Chat Completions".
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import ExitStack, aclosing
from dataclasses import dataclass, field
from typing import Any, Final

from starlette.responses import Response

from threadkeep.domain import formats
from threadkeep.domain.jsontext import JsonObject, dumps, dumps_finite
from threadkeep.domain.session import Session
from threadkeep.server import agent_tools, answers, body_limits, event_streams, origins, requests, sessions, turns
from threadkeep.server.openai import creation
from threadkeep.server.problems import Problem
from threadkeep.server.service import Call
from threadkeep.store.conversation import Conversation

_FORMAT: Final = "chat_completion"
_CUSTOM: Final = "custom"
# reason why an answer is incomplete -> why it has finished
_REASONS: Final = {"max_output_tokens": "length", "content_filter": "content_filter"}
_DONE: Final[JsonObject] = {"type": "done"}  # the end of a stream
# type of an event -> the key of what its text adds to
_TEXTS: Final = {
    "response.output_text.delta": "content",
    "response.refusal.delta": "refusal",
    "response.reasoning_text.delta": "reasoning_content",
    "response.reasoning_summary_text.delta": "reasoning_content",
}
_ARGUMENTS: Final = frozenset({"response.function_call_arguments.delta", "response.custom_tool_call_input.delta"})
_CALLS: Final = frozenset({"function_call", "custom_tool_call"})


async def create(call: Call) -> Response:
    """POST /chat/completions: plain, or as a stream."""
    body = await requests.body_object(call.request, call.service.max_body_bytes)
    turn = await _turn(call, body)
    with ExitStack() as counted:
        first, events = await turns.begin_answer(turn, counted)
    headers = turns.loss_headers(turn.rendered)
    if turn.options.is_stream:
        shown = CompletionChunks(bool((body.get("stream_options") or {}).get("include_usage")))
        chunks = shown.of(creation.chained(first, events, call.service))
        return ChunkStream(chunks, call.permission, headers=headers)
    async with call.service.attended(call.request):
        with call.service.waiting():
            response = (await creation.drained(events))["response"]
    return answers.JsonAnswer(completion_of(response), headers=headers)


# What is asked


@dataclass(slots=True)
class ChatInput(creation.ResponseInput):
    """The messages of a request.

    Attributes:
        session: what they are, where nothing is stored of them.
    """

    session: Session = field(kw_only=True)

    def say(self, face: Any) -> Conversation:
        """Say them in a new conversation of a store, or go on with the one that has them (blocking)."""
        if self.place is not None:
            return super(ChatInput, self).say(face)
        self.before = None
        self.stored = face.save(self.session)
        return self.stored


async def _turn(call: Call, body: JsonObject) -> turns.Turn:
    """The turn of a request; Problem for one that cannot be answered."""
    model = _checked_model(body, max(call.service.max_items, body_limits.MAX_INPUT))
    upstream = call.service.upstream(model)
    asked = {key: value for key, value in body.items() if key not in ("n", "stream", "store", "stream_options")}
    tools = agent_tools.AgentTools({})
    if upstream.format != _FORMAT:
        asked, tools = _as_functions(asked)
    session = formats.get_format(_FORMAT).parse_request(asked)
    is_stored = body.get("store") is True or call.service.store_false == "keep"
    options = turns.TurnOptions(
        model, None, None, bool(body.get("stream")), is_background=False, echoed={}, is_stored=is_stored, tools=tools
    )  # fmt: skip
    key = requests.idempotency_key(call.request)
    given = ChatInput(asked, session.clone_config(), [], key, None, None, call.user_id, session=session)
    if not is_stored:
        return await creation.stateless(call, upstream, options, given)
    once, owner = None if key is None else f"{key}:asked", call.permission.owner
    client = origins.ClientCall(_FORMAT, asked, call.request.headers, owner, upstream.name, key=once)
    given.place = await sessions.placed(call.store, client, call.service.locks)
    given.settings.update(instructions=given.place.instructions)  # with what leads the messages
    return turns.Turn(call, upstream, options, given.place, given)


def _checked_model(body: JsonObject, most: int) -> str:
    """The model of a request; Problem for what of it cannot be answered. It has so many messages at most."""
    body_limits.check_tools(body)
    model, messages = requests.required(body, "model"), requests.required(body, "messages")
    if not isinstance(model, str):
        raise Problem(400, "model must be a text.", param="model", code="invalid_type")
    if not isinstance(messages, list):
        raise Problem(400, "messages must be a list.", param="messages", code="invalid_type")
    body_limits.check_length("messages", messages, most, "messages")
    for index, message in enumerate(messages):
        if isinstance(message, dict):
            body_limits.check_parts(f"messages[{index}]", message)
    if body.get("n") not in (None, 1):
        raise Problem(400, "n must be 1: ask once for each answer.", param="n", code="unsupported_value")
    for name, kind in (("stream", bool), ("store", bool), ("stream_options", dict)):
        if not isinstance(body.get(name), kind | None):
            problem = f"{name} must be {'an object' if kind is dict else 'true or false'}."
            raise Problem(400, problem, param=name, code="invalid_type")
    return model


def _as_functions(body: JsonObject) -> tuple[JsonObject, agent_tools.AgentTools]:
    """A request whose custom tools are functions with an input, and what these stand for."""
    given = body.get("tools")
    tools = [_function_of(tool) for tool in given] if isinstance(given, list) else given
    names = {
        str(tool["custom"].get("name")): (_CUSTOM, None, str(tool["custom"].get("name")))
        for tool in given or () if _is_custom(tool)
    } if isinstance(given, list) else {}  # fmt: skip
    if not names:
        return body, agent_tools.AgentTools({})
    messages = [_with_functions(message) for message in body["messages"]]
    changed: JsonObject = {**body, "tools": tools, "messages": messages}
    choice: Any = body.get("tool_choice")
    if _is_custom(choice):
        changed["tool_choice"] = {"type": "function", "function": choice["custom"]}
    return changed, agent_tools.AgentTools(names)


def _is_custom(value: Any) -> bool:
    return isinstance(value, dict) and value.get("type") == _CUSTOM and isinstance(value.get(_CUSTOM), dict)


def _function_of(tool: Any) -> Any:
    if not _is_custom(tool):
        return tool
    [function] = agent_tools.as_functions({"tools": [{"type": _CUSTOM, **tool[_CUSTOM]}]})[0]["tools"]
    return {"type": "function", "function": {key: value for key, value in function.items() if key != "type"}}


def _with_functions(message: Any) -> Any:
    """A message whose calls of custom tools are calls of functions."""
    calls = message.get("tool_calls") if isinstance(message, dict) else None
    if not isinstance(calls, list):
        return message
    changed = []
    for call in calls:
        if _is_custom(call):
            arguments = dumps({"input": call[_CUSTOM].get("input")}).decode()
            function = {"name": call[_CUSTOM].get("name"), "arguments": arguments}
            changed.append({"id": call.get("id"), "type": "function", "function": function})
        else:
            changed.append(call)
    return {**message, "tool_calls": changed}


# What is answered


def completion_of(response: JsonObject) -> JsonObject:
    """Return a response as a completion; Problem for one that failed, or broke off."""
    reason = _finish_reason(response)
    message: JsonObject = {"role": "assistant", "content": None, "refusal": None}
    calls = list[JsonObject]()
    for item in response["output"]:
        if item["type"] in _CALLS:
            calls.append(_call_of(item))
            continue
        for key, text in _texts_in(item):
            message[key] = (message.get(key) or "") + text
    citations = [one for item in response["output"] for one in _citations_in(item)]
    message |= {"annotations": citations} if citations else {}
    message |= {"tool_calls": calls} if calls else {}
    choice = {"index": 0, "message": message, "logprobs": _logprobs_of(response), "finish_reason": reason}
    usage = _usage_of(response)
    return {**_head(response), "choices": [choice], **({"usage": usage} if usage else {})}


def _head(response: JsonObject, kind: str = "chat.completion") -> JsonObject:
    id_ = f"chatcmpl-{str(response['id']).partition('_')[2]}"
    return {"id": id_, "object": kind, "created": response["created_at"], "model": response["model"]}


def _finish_reason(response: JsonObject) -> str:
    if response["status"] == "completed":
        return "tool_calls" if any(item["type"] in _CALLS for item in response["output"]) else "stop"
    reason = (response.get("incomplete_details") or {}).get("reason")
    if response["status"] == "incomplete" and reason in _REASONS:
        return _REASONS[reason]
    error = response.get("error") or {"message": f"The answer is {response['status']}: it broke off."}
    raise Problem(502, error["message"], code=error.get("code") or "upstream_error", type="server_error")


def _texts_in(item: JsonObject) -> Iterator[tuple[str, str]]:
    """The texts of an item, each with the key of a message to which it belongs."""
    if item["type"] == "reasoning":
        for part in item.get("content") or item.get("summary") or ():
            yield "reasoning_content", part["text"]
    elif item["type"] == "message":
        for part in item["content"]:
            if part["type"] == "output_text":
                yield "content", part["text"]
            elif part["type"] == "refusal":
                yield "refusal", part["refusal"]


def _call_of(item: JsonObject) -> JsonObject:
    if item["type"] == "custom_tool_call":
        return {"id": item["call_id"], "type": _CUSTOM, _CUSTOM: {"name": item["name"], "input": item["input"]}}
    function = {"name": item["name"], "arguments": item["arguments"]}
    return {"id": item["call_id"], "type": "function", "function": function}


def _citations_in(item: JsonObject) -> Iterator[JsonObject]:
    keys = ("end_index", "start_index", "title", "url")
    for part in item["content"] if item["type"] == "message" else ():
        for one in part.get("annotations") or ():
            if one.get("type") == "url_citation" and all(key in one for key in keys):
                yield {"type": "url_citation", "url_citation": {key: one[key] for key in keys}}


def _logprobs_of(response: JsonObject) -> JsonObject | None:
    """The log probabilities of texts, where the upstream has given them."""
    parts = [part for item in response["output"] if item["type"] == "message" for part in item["content"]]
    tokens = [one for part in parts for one in part.get("logprobs") or ()]
    return {"content": tokens, "refusal": None} if tokens else None


def _usage_of(response: JsonObject) -> JsonObject | None:
    usage = response["usage"]
    if usage is None:
        return None
    return {
        "prompt_tokens": usage["input_tokens"],
        "completion_tokens": usage["output_tokens"],
        "total_tokens": usage["total_tokens"],
        "prompt_tokens_details": {"cached_tokens": usage["input_tokens_details"]["cached_tokens"]},
        "completion_tokens_details": {"reasoning_tokens": usage["output_tokens_details"]["reasoning_tokens"]},
    }


class CompletionChunks:
    """Makes the chunks of a completion of the events of a response."""

    def __init__(self, has_usage: bool) -> None:
        """Begin; the last chunk `has_usage` if the client asked for it."""
        self._has_usage, self._head = has_usage, dict[str, Any]()
        self._calls: dict[int, int] = {}  # place of a call in the output -> its place among the calls
        self._thoughts: dict[int, str] = {}  # place of a thought -> the type of the events that tell it
        self._sent: set[int] = set()  # places of calls of which arguments were sent

    async def of(self, events: AsyncGenerator[JsonObject]) -> AsyncGenerator[JsonObject]:
        """Yield the chunks of a stream of events."""
        async with aclosing(events) as all_of_them:
            async for event in all_of_them:
                for chunk in self._chunks(event):
                    yield chunk

    def _chunks(self, event: JsonObject) -> Iterator[JsonObject]:
        kind = event["type"]
        if kind == "response.created":
            self._head = _head(event["response"], "chat.completion.chunk")
            yield self._chunk({"role": "assistant", "content": ""})
        elif kind in _TEXTS:  # of thoughts, one of text and summary, which may say the same
            if "reasoning" not in kind or self._thoughts.setdefault(event["output_index"], kind) == kind:
                yield self._chunk({_TEXTS[kind]: event["delta"]})
        elif kind in _ARGUMENTS or kind.startswith("response.output_item."):
            yield from self._of_call(kind, event)
        elif kind in ("response.completed", "response.incomplete", "response.failed"):
            yield from self._end(event["response"])

    def _of_call(self, kind: str, event: JsonObject) -> Iterator[JsonObject]:
        place, item = event["output_index"], event.get("item", {})
        if kind == "response.output_item.added" and item["type"] in _CALLS:
            index = self._calls[place] = len(self._calls)
            call = _call_of(item)
            yield self._chunk({"tool_calls": [{"index": index, **call}]})
        elif kind in _ARGUMENTS:
            yield self._more(place, "input" if "custom" in kind else "arguments", event["delta"])
        elif kind == "response.output_item.done" and place in self._calls and place not in self._sent:
            key = "input" if item["type"] == "custom_tool_call" else "arguments"
            yield self._more(place, key, item[key])

    def _more(self, place: int, key: str, text: str) -> JsonObject:
        self._sent.add(place)
        holder = _CUSTOM if key == "input" else "function"
        return self._chunk({"tool_calls": [{"index": self._calls[place], holder: {key: text}}]})

    def _end(self, response: JsonObject) -> Iterator[JsonObject]:
        yield self._chunk({}, _finish_reason(response))
        if self._has_usage:
            yield {**self._head, "choices": [], "usage": _usage_of(response)}
        yield _DONE

    def _chunk(self, delta: JsonObject, reason: str | None = None) -> JsonObject:
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": reason}
        return {**self._head, "choices": [choice], **({"usage": None} if self._has_usage else {})}


class ChunkStream(event_streams.EventStream):
    """Chunks as clients of Chat Completions read them: without names, and with an end of their own."""

    def encoded(self, event: JsonObject) -> bytes:
        """Return a chunk, or the end."""
        return b"data: [DONE]\n\n" if event is _DONE else b"data: %b\n\n" % dumps_finite(event)

    def failed(self, event: Mapping[str, Any]) -> bytes:
        """Return an error in place of the end."""
        error = {"message": event["message"], "type": "server_error", "code": event["code"], "param": event["param"]}
        return b"data: %b\n\n" % dumps_finite({"error": error})
