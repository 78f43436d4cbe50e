"""The values of the SDKs' types in conversations: each item, message, block and part in a request or an answer."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from tests.formats.sdk_schema import choices, name_of, resolved, schema
from tests.formats.sdk_values import Maker, Sample
from threadkeep.domain.formats import OpenCall
from threadkeep.domain.session import Session
from threadkeep.formats import FormatName, get_format

Json = dict[str, Any]

ASKED: Final = "Hi"
GONE_ON: Final = "Go on"
# format -> the model of its requests, a turn of the user, and one of the model
MODELS: Final[dict[str, str]] = {
    "open_responses": "gpt-5.4",
    "chat_completion": "gpt-5.4",
    "messages": "claude-sonnet-5",
    "gemini": "gemini-2.5-pro",
    "converse": "anthropic.claude-sonnet-5-v1:0",
    "interactions": "gemini-3.1-pro-preview",
    "pydantic_ai": "gpt-5.4",
    "ag_ui": "gpt-5.4",
}


@dataclass(frozen=True)
class Element:
    """A type whose values stand in the turns of a request or an answer."""

    source: str  # the root, and where in it
    name: str
    format_name: FormatName
    kind: Json
    root: Json
    hold: Callable[[Any], tuple[list[Any], list[Any], list[Any]]]  # the turns before a value, its own, those after it
    is_answer: bool = False
    is_appended: bool = False  # to a conversation, and not part of a request

    @property
    def is_request(self) -> bool:
        """Whether a value is a whole request."""
        return self.source.endswith(" options")

    def samples(self) -> list[Sample]:
        """The least value first, then one more for each key and variant, and full ones."""
        maker = Maker(self.root, is_whole=False)
        found = list(maker.variants(self.kind))
        full = [Sample(f"{self.name} full {turn}", maker.full(self.kind, turn=turn)) for turn in range(4)]
        for sample in full:
            if all(sample.value != other.value for other in found):
                found.append(sample)
        return found


def turn(format_name: str, role: str, content: Any) -> Json:
    """A turn in the terms of a format."""
    if format_name == "gemini":
        return {"role": "model" if role == "assistant" else role, "parts": content}
    return {"role": role, "content": content}


def said(format_name: str, role: str, text: str) -> Json:
    """A turn that says a text."""
    if format_name == "pydantic_ai":
        if role == "assistant":
            return {"kind": "response", "parts": [{"part_kind": "text", "content": text}]}
        return {"kind": "request", "parts": [{"part_kind": "user-prompt", "content": text}]}
    if format_name == "interactions":
        kind = "model_output" if role == "assistant" else "user_input"
        return {"type": kind, "content": [{"type": "text", "text": text}]}
    if format_name == "ag_ui":
        return {"id": f"m-{text}", "role": role, "content": text}
    content: Any = {"gemini": [{"text": text}], "converse": [{"text": text}]}.get(format_name, text)
    return turn(format_name, role, content)


def request(format_name: str, turns: list[Any]) -> Json:
    """A request with these turns."""
    key = get_format(format_name).signs.turns  # type: ignore[arg-type]  # a name of a format
    model = {} if format_name in ("gemini", "converse", "pydantic_ai", "ag_ui") else {"model": MODELS[format_name]}
    return {**model, **({"max_tokens": 4096} if format_name == "messages" else {}), key: turns}


# Items of the Responses API

ITEM_PARTNERS: Final = {
    "mcp_approval_request": ("mcp_approval_response", "id", "approval_request_id"),
    "tool_search_call": ("tool_search_output", "call_id", "call_id"),
    "program": ("program_output", "call_id", "call_id"),
    "local_shell_call": ("local_shell_call_output", "call_id", "id"),
}
LAST_ONES: Final = frozenset({"compaction_trigger"})


@cache
def _least_items() -> dict[str, Json]:
    root = schema("openai.responses.input")
    made = [Maker(root).least(kind, ("partner",)) for kind in choices(root)]
    return {str(item.get("type")): item for item in made}


def _partner(item: Json) -> tuple[list[Any], list[Any]]:
    """The call of an output, or the output of a call."""
    kind, least = str(item.get("type")), _least_items()
    pairs = {call: (f"{call}_output", "call_id", "call_id") for call in least if f"{call}_output" in least}
    pairs |= ITEM_PARTNERS
    for call, (output, call_key, output_key) in pairs.items():
        if kind == call and item.get(call_key):
            return [], [{**least[output], output_key: item[call_key]}]
        if kind == output and item.get(output_key):
            return [{**least[call], call_key: item[output_key]}], []
    return [], []


def _item(value: Any) -> tuple[list[Any], list[Any], list[Any]]:
    before, after = _partner(value)
    asked, gone_on = said("open_responses", "user", ASKED), said("open_responses", "user", GONE_ON)
    if value.get("type") in LAST_ONES:
        return [asked], [value], []
    return [asked, *before], [value, *_led_to(value)], [*after, gone_on]


def _led_to(value: Json) -> list[Json]:
    """What reasoning led to, without which it does not go back."""
    if value.get("type") != "reasoning":
        return []
    part = {"type": "output_text", "text": "Sure.", "annotations": []}
    return [{"type": "message", "id": "msg_2", "role": "assistant", "status": "completed", "content": [part]}]


# Messages of Chat Completions


def _message(value: Json) -> tuple[list[Any], list[Any], list[Any]]:
    before, after = [said("chat_completion", "user", ASKED)], [said("chat_completion", "user", GONE_ON)]
    function = {"name": "lookup", "arguments": "{}"}
    if value["role"] == "tool":
        call = {"id": value["tool_call_id"], "type": "function", "function": function}
        before.append({"role": "assistant", "content": None, "tool_calls": [call]})
    if value["role"] == "function":
        before.append({"role": "assistant", "content": None, "function_call": {**function, "name": value["name"]}})
    outputs = [{"role": "tool", "tool_call_id": c["id"], "content": "done"} for c in value.get("tool_calls") or ()]
    if value.get("function_call"):
        outputs.append({"role": "function", "name": value["function_call"]["name"], "content": "done"})
    return before, [value], [*outputs, *after]


# Blocks of Messages, parts of Gemini, blocks of Converse

SERVER_TOOLS: Final = {
    "web_search_tool_result": "web_search",
    "web_fetch_tool_result": "web_fetch",
    "code_execution_tool_result": "code_execution",
    "bash_code_execution_tool_result": "bash_code_execution",
    "text_editor_code_execution_tool_result": "text_editor_code_execution",
    "tool_search_tool_result": "tool_search_tool_bm25",
    "advisor_tool_result": "advisor",
}


def _block(role: str) -> Callable[[Any], tuple[list[Any], list[Any], list[Any]]]:
    def hold(value: Json) -> tuple[list[Any], list[Any], list[Any]]:
        kind, before, own, after = value["type"], [], [value], []
        asked, gone_on = said("messages", "user", ASKED), said("messages", "user", GONE_ON)
        if kind == "tool_use":
            after = [turn("messages", "user", [{"type": "tool_result", "tool_use_id": value["id"], "content": "done"}])]
        elif kind == "tool_result":
            call = {"type": "tool_use", "id": value["tool_use_id"], "name": "lookup", "input": {}}
            before = [turn("messages", "assistant", [call])]
        elif kind in SERVER_TOOLS:
            call = {"type": "server_tool_use", "id": value["tool_use_id"], "name": SERVER_TOOLS[kind], "input": {}}
            own = [call, value]
        elif kind == "server_tool_use":
            own = [value, _server_result(value)]
        elif kind == "mcp_tool_use":
            own = [value, {"type": "mcp_tool_result", "tool_use_id": value["id"], "content": "done", "is_error": False}]
        elif kind == "mcp_tool_result":
            call = {"type": "mcp_tool_use", "id": value["tool_use_id"], "name": "f", "server_name": "s", "input": {}}
            own = [call, value]
        return [asked, *before], [turn("messages", role, own)], [*after, gone_on]

    return hold


@cache
def _least_blocks() -> dict[str, Json]:
    root = schema("anthropic.beta.response")
    made = [Maker(root).least(kind, ("partner",)) for kind in _union(root["properties"]["content"], root)]
    return {str(block["type"]): block for block in made}


def _server_result(call: Json) -> Json:
    """The result of a server tool."""
    results = {tool: kind for kind, tool in SERVER_TOOLS.items()}
    kind = results.get(call["name"], "tool_search_tool_result")
    return {**_least_blocks()[kind], "tool_use_id": call["id"]}


def _part(role: str) -> Callable[[Any], tuple[list[Any], list[Any], list[Any]]]:
    def hold(value: Json) -> tuple[list[Any], list[Any], list[Any]]:
        before, after = [], []
        call, result = value.get("functionCall"), value.get("functionResponse")
        either: Json = call or result or {}
        linked = {"id": either["id"]} if "id" in either else {}
        if call:
            response = {"name": call.get("name"), "response": {"output": "done"}, **linked}
            after = [turn("gemini", "user", [{"functionResponse": response}])]
        if result:
            called = {"name": result.get("name"), "args": {}, **linked}
            before = [turn("gemini", "assistant", [{"functionCall": called}])]
        asked, gone_on = said("gemini", "user", ASKED), said("gemini", "user", GONE_ON)
        return [asked, *before], [turn("gemini", role, [value])], [*after, gone_on]

    return hold


def _converse_block(role: str) -> Callable[[Any], tuple[list[Any], list[Any], list[Any]]]:
    def hold(value: Json) -> tuple[list[Any], list[Any], list[Any]]:
        before, after, content = [], [], [value]
        is_of_server = role == "assistant" and value.get("toolUse", {}).get("type") == "server_tool_use"
        if is_of_server or ("toolResult" in value and role == "assistant"):
            content = _with_server_tool(value)
        elif "toolUse" in value:
            result = {"toolUseId": value["toolUse"]["toolUseId"], "content": [{"text": "done"}]}
            after = [turn("converse", "user", [{"toolResult": result}])]
        elif "toolResult" in value:
            call = {"toolUseId": value["toolResult"]["toolUseId"], "name": "lookup", "input": {}}
            before = [turn("converse", "assistant", [{"toolUse": call}])]
        elif "document" in value or "cachePoint" in value:
            content = [{"text": "Look:"}, value]
        asked, gone_on = said("converse", "user", ASKED), said("converse", "user", GONE_ON)
        return [asked, *before], [turn("converse", role, content)], [*after, gone_on]

    return hold


def _with_server_tool(value: Json) -> list[Json]:
    """A call of a server tool and its result, one of which is the value."""
    if "toolUse" in value:
        kind = {"type": f"{value['toolUse']['name']}_result"}
        return [
            value,
            {"toolResult": {"toolUseId": value["toolUse"]["toolUseId"], "content": [{"text": "done"}], **kind}},
        ]
    call = {"toolUseId": value["toolResult"]["toolUseId"], "name": "lookup", "input": {}, "type": "server_tool_use"}
    return [{"toolUse": call}, value]


# Steps of the Interactions API


def _step(value: Json) -> tuple[list[Any], list[Any], list[Any]]:
    asked, gone_on = said("interactions", "user", ASKED), said("interactions", "user", GONE_ON)
    if value["type"] == "function_call":
        result = {"type": "function_result", "call_id": value["id"], "name": value["name"], "result": "done"}
        return [asked], [value], [result, gone_on]
    if value["type"] == "function_result":
        call = {"type": "function_call", "id": value["call_id"], "name": value.get("name", "lookup"), "arguments": {}}
        return [asked, call], [value], [gone_on]
    return [asked], [value], [gone_on]


# Parts of Pydantic AI


def _agent_part(kind: str) -> Callable[[Any], tuple[list[Any], list[Any], list[Any]]]:
    def hold(value: Json) -> tuple[list[Any], list[Any], list[Any]]:
        part_kind, parts, before, after = value["part_kind"], [value], [], []
        name, call_id = value.get("tool_name"), value.get("tool_call_id")
        linked = {"tool_name": name or "lookup", "tool_call_id": call_id}
        if part_kind == "tool-call":
            after = [{"kind": "request", "parts": [{"part_kind": "tool-return", "content": "done", **linked}]}]
        elif part_kind == "tool-return" or (part_kind == "retry-prompt" and name):
            before = [{"kind": "response", "parts": [{"part_kind": "tool-call", "args": {}, **linked}]}]
        elif part_kind == "builtin-tool-call":
            parts = [value, {"part_kind": "builtin-tool-return", "content": "done", **linked}]
        elif part_kind == "builtin-tool-return":
            parts = [{"part_kind": "builtin-tool-call", "args": {}, **linked}, value]
        asked, gone_on = said("pydantic_ai", "user", ASKED), said("pydantic_ai", "user", GONE_ON)
        return [asked, *before], [{"kind": kind, "parts": parts}], [*after, gone_on]

    return hold


# Messages of AG-UI


def _thread_message(value: Json) -> tuple[list[Any], list[Any], list[Any]]:
    before, after = [said("ag_ui", "user", ASKED)], [said("ag_ui", "user", GONE_ON)]
    function = {"name": "lookup", "arguments": "{}"}
    if value["role"] == "tool":
        call = {"id": value["toolCallId"], "type": "function", "function": function}
        before.append({"id": "a0", "role": "assistant", "toolCalls": [call]})
    outputs = [
        {"id": f"t-{call['id']}", "role": "tool", "toolCallId": call["id"], "content": "done"}
        for call in value.get("toolCalls") or ()
    ]
    return before, [value], [*outputs, *after]


# All of them


def _union(kind: Json, root: Json) -> list[Json]:
    """The alternatives of a type, of a list's elements, and of what may be null."""
    found = []
    for one in choices(resolved(kind, root)):
        if one.get("type") == "array":
            found += _union(one["items"], root)
        elif one.get("type") not in ("null", "string"):
            found.append(one)
    return found


def _named(kind: Json) -> str:
    return name_of(kind)


@cache
def elements() -> tuple[Element, ...]:
    """Each type that may stand in the turns of a request or an answer."""
    providers = itertools.chain(_of_openai(), _of_anthropic(), _of_google(), _of_steps(), _of_bedrock())
    return tuple(itertools.chain(providers, _of_pydantic_ai(), _of_ag_ui()))


def _of_openai() -> Iterator[Element]:
    for source in ("openai.responses.input", "openai.conversations.item", "openai.responses.output"):
        root = schema(source)
        for kind in choices(root):
            is_answer, is_appended = source.endswith("output"), source.endswith("item")
            yield Element(source, _named(kind), "open_responses", kind, root, _item, is_answer, is_appended)
    root = schema("openai.chat.message")
    for kind in choices(root):
        yield Element("openai.chat.message", _named(kind), "chat_completion", kind, root, _message)
    root = schema("openai.chat.response")
    kind = {"$ref": "#/$defs/ChatCompletionMessage"}
    yield Element("openai.chat.response", _named(kind), "chat_completion", kind, root, _message, is_answer=True)


def _of_anthropic() -> Iterator[Element]:
    for prefix, name in (("anthropic.messages", ""), ("anthropic.beta", "Beta")):
        answer = schema(f"{prefix}.response")
        answers = _union(answer["properties"]["content"], answer)
        tags = {resolved(kind, answer)["properties"]["type"]["const"] for kind in answers}
        root = schema(f"{prefix}.message")
        blocks = _union(root["$defs"][f"{name}AssistantMessageParam"]["properties"]["content"], root)
        for kind in blocks:
            given = resolved(kind, root)
            if "properties" not in given:
                continue
            tag = given["properties"]["type"].get("const")
            if prefix == "anthropic.beta" and tag is None:
                continue
            role = "assistant" if tag in tags - {"text"} else "user"
            yield Element(f"{prefix}.message", _named(kind), "messages", kind, root, _block(role))
        for kind in answers:
            yield Element(
                f"{prefix}.response", _named(kind), "messages", kind, answer, _block("assistant"), is_answer=True
            )


def _of_google() -> Iterator[Element]:
    for source, role in (("google.content", "user"), ("google.content", "assistant"), ("google.response", "assistant")):
        root = schema(source)
        kind = {"$ref": "#/$defs/Part"}
        yield Element(source, f"Part of {role}", "gemini", kind, root, _part(role), source == "google.response")


def _of_steps() -> Iterator[Element]:
    root = schema("google.interactions.step")
    for kind in choices(root):
        yield Element("google.interactions.step", _named(kind), "interactions", kind, root, _step)
    for kind in choices(root):
        if _named(kind) not in ("UserInputStep", "FunctionResultStep"):
            yield Element(
                "google.interactions.response", _named(kind), "interactions", kind, root, _step, is_answer=True
            )


def _of_bedrock() -> Iterator[Element]:
    of_the_model = {"toolUse", "reasoningContent", "citationsContent"}
    for source in ("bedrock.request", "bedrock.response"):
        root = schema(source)
        for kind in root["$defs"]["ContentBlock"]["oneOf"]:
            key = kind["title"]
            role = "assistant" if key in of_the_model or source == "bedrock.response" else "user"
            yield Element(
                source,
                f"ContentBlock.{key}",
                "converse",
                kind,
                root,
                _converse_block(role),
                source.endswith("response"),
            )


def _of_pydantic_ai() -> Iterator[Element]:
    root = schema("pydantic_ai.message")
    for owner, kind in (("ModelRequest", "request"), ("ModelResponse", "response")):
        for part in _union(root["$defs"][owner]["properties"]["parts"], root):
            yield Element(f"pydantic_ai.{kind}", _named(part), "pydantic_ai", part, root, _agent_part(kind))


def _of_ag_ui() -> Iterator[Element]:
    root = schema("ag_ui.message")
    for kind in choices(root):
        yield Element("ag_ui.message", _named(kind), "ag_ui", kind, root, _thread_message)


# Conversations with a value


@dataclass(frozen=True)
class Placed:
    """A conversation that holds a value, and the positions of what it became."""

    session: Session
    start: int | None  # None: it is no item, but a request
    end: int | None
    own: list[Any]  # the turns that hold the value

    def has(self, position: int | None) -> bool:
        """Whether a report with this position is about the value."""
        if self.start is None or self.end is None:
            return True
        return position is not None and self.start <= position < self.end


def placed(element: Element, value: Any) -> Placed:
    """A conversation with a value of an element in it: imported, or with an answer that has it."""
    before, own, after = element.hold(value)
    wire = get_format(element.format_name)
    if element.is_request:
        return Placed(wire.parse_request(value, model=MODELS[element.format_name]), None, None, own)
    start = len(wire.parse_request(request(element.format_name, before), model=MODELS[element.format_name]).items)
    if not (element.is_answer or element.is_appended):
        whole = request(element.format_name, [*before, *own, *after])
        session = wire.parse_request(whole, model=MODELS[element.format_name])
        upto = request(element.format_name, [*before, *own])
        end = len(wire.parse_request(upto, model=MODELS[element.format_name]).items)
        return Placed(session, start, end, own)
    session = wire.parse_request(request(element.format_name, before), model=MODELS[element.format_name])
    session.imported = None
    if element.is_appended:
        for items in wire.parse_turns(own):
            session.add_items(items, turn=session.new_turn())
        end = len(session.items)
        for items in wire.parse_turns(after):
            session.add_items(items, turn=session.new_turn())
        return Placed(session, start, end, own)
    response = wire.parse_response(body(element, own))
    session.add_response(response)
    end = len(session.items)
    calls = [OpenCall(call.call_id, call.name) for call in response.tool_calls]
    for items in wire.parse_turns(after, calls):
        session.add_items(items, turn=session.new_turn())
    return Placed(session, start, end, own)


def body(element: Element, own: list[Any]) -> Json:
    """A response body whose content is these turns."""
    match element.format_name:
        case "open_responses":
            least = Maker(schema("openai.responses.response")).least(schema("openai.responses.response"))
            return {**least, "status": "completed", "output": own}
        case "chat_completion":
            choice = {"index": 0, "finish_reason": "stop", "logprobs": None, "message": own[0]}
            if own[0].get("tool_calls"):
                choice["finish_reason"] = "tool_calls"
            return {"id": "c1", "object": "chat.completion", "created": 1, "model": "gpt-5.4", "choices": [choice]}
        case "messages":
            usage = {"input_tokens": 1, "output_tokens": 1}
            is_call = any(block["type"] == "tool_use" for block in own[0]["content"])
            said_by = {"type": "message", "role": "assistant", "model": "claude-sonnet-5", "content": own[0]["content"]}
            return {"id": "msg_1", **said_by, "stop_reason": "tool_use" if is_call else "end_turn", "usage": usage}
        case "gemini":
            return {"candidates": [{"content": own[0], "finishReason": "STOP"}], "responseId": "r1"}
        case "converse":
            is_call = any("toolUse" in block for block in own[0]["content"])
            usage = {"inputTokens": 1, "outputTokens": 1, "totalTokens": 2}
            reason = "tool_use" if is_call else "end_turn"
            return {"output": {"message": own[0]}, "stopReason": reason, "usage": usage, "metrics": {"latencyMs": 1}}
        case "interactions":
            status = "requires_action" if own[0]["type"] == "function_call" else "completed"
            return {"id": "i1", "status": status, "model": "gemini-3-pro", "steps": own}
    raise AssertionError(element.format_name)
