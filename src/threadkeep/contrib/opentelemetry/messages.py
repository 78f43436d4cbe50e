"""Messages of OpenTelemetry as a request and an answer of Chat Completions.

* Instructions become a first system message, each output of a tool a message of its own.
* Calls without an id get one, and outputs that name no call answer the calls before them in their order.
* Parts that Chat Completions does not have (compactions, calls of the provider's own tools) are kept as they are.

Source: the JSON schemas of messages in open-telemetry/semantic-conventions-genai.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from typing import Any, Final

from threadkeep.contrib.opentelemetry import names
from threadkeep.domain.jsontext import JsonObject, dumps

FORMAT: Final = "chat_completion"
# attribute of a request -> key of Chat Completions
_SETTINGS: Final = {
    names.REQUEST_MODEL: "model",
    "gen_ai.request.temperature": "temperature",
    "gen_ai.request.top_p": "top_p",
    "gen_ai.request.max_tokens": "max_completion_tokens",
    "gen_ai.request.frequency_penalty": "frequency_penalty",
    "gen_ai.request.presence_penalty": "presence_penalty",
    "gen_ai.request.seed": "seed",
    "gen_ai.request.choice.count": "n",
    "gen_ai.request.reasoning.level": "reasoning_effort",
    "gen_ai.request.stream": "stream",
}
# attribute of a response -> where Chat Completions counts it
_COUNTS: Final = {
    names.INPUT: ("prompt_tokens",),
    names.OUTPUT: ("completion_tokens",),
    names.CACHE_READ: ("prompt_tokens_details", "cached_tokens"),
    names.CACHE_CREATION: ("prompt_tokens_details", "cache_write_tokens"),
    names.CACHE_WRITE: ("prompt_tokens_details", "cache_write_tokens"),
    "gen_ai.usage.audio.input_tokens": ("prompt_tokens_details", "audio_tokens"),
    names.REASONING: ("completion_tokens_details", "reasoning_tokens"),
    "gen_ai.usage.audio.output_tokens": ("completion_tokens_details", "audio_tokens"),
}
# finish reasons of the conventions, and of Gemini where these have none -> of Chat Completions
_REASONS: Final = {
    "tool_call": "tool_calls",
    "compaction": "stop",
    "MALFORMED_FUNCTION_CALL": "error",
    "UNEXPECTED_TOOL_CALL": "error",
    **dict.fromkeys(
        ("SAFETY", "RECITATION", "LANGUAGE", "BLOCKLIST", "PROHIBITED_CONTENT", "SPII", "IMAGE_SAFETY"),
        "content_filter",
    ),
}
_AUDIO: Final = {"audio/mpeg": "mp3", "audio/x-wav": "wav"}  # media type -> format of a sound, else what follows the /


class _Calls:
    """The calls of a history that wait for their outputs, in their order."""

    def __init__(self) -> None:
        self._open: list[str] = []
        self._numbers = count()

    def called(self, given: object) -> str:
        """Return the id of a call, which is given or made."""
        call_id = given if isinstance(given, str) and given else f"call_{next(self._numbers)}"
        self._open.append(call_id)
        return call_id

    def answered(self, given: object) -> str:
        """Return the id of the call that an output answers."""
        if given not in self._open:
            given = self._open[0] if self._open else self.called(given)
        call_id = str(given)
        self._open.remove(call_id)
        return call_id


def request_of(
    instructions: Sequence[JsonObject],
    inputs: Iterable[JsonObject],
    tools: Iterable[JsonObject],
    attributes: Mapping[str, Any],
) -> JsonObject:
    """Return the request of Chat Completions that a call says the same as."""
    calls, messages = _Calls(), []
    if instructions:
        messages.append({"role": "system", "content": _content(instructions)})
    for message in inputs:
        messages += _messages(message, calls)
    settings = {key: attributes[name] for name, key in _SETTINGS.items() if attributes.get(name) not in (None, "")}
    stop = attributes.get("gen_ai.request.stop_sequences")
    if stop:
        settings["stop"] = list(stop)
    functions = [_tool(tool) for tool in tools]
    return {**settings, "messages": messages, **({"tools": functions} if functions else {})}


def response_of(
    outputs: Sequence[JsonObject], attributes: Mapping[str, Any], error: JsonObject | None = None
) -> JsonObject:
    """Return the answer of Chat Completions that a call got; `error`: why it is not whole."""
    reasons = list(attributes.get(names.FINISH_REASONS) or ())
    choices = []
    for index, message in enumerate(outputs or [{"role": "assistant", "parts": []}]):
        reason = str(reasons[index] if index < len(reasons) else message.get("finish_reason") or "")
        choice = {"index": index, "message": _assistant(message, _Calls())}
        if error is not None:
            choices.append({**choice, "finish_reason": None, "error": error})
        else:
            choices.append({**choice, "finish_reason": _REASONS.get(reason, reason) or None})
    fields = {"id": attributes.get(names.RESPONSE_ID), "model": _model(attributes), "usage": _usage(attributes)}
    return {"object": "chat.completion", **{key: value for key, value in fields.items() if value}, "choices": choices}


def chunk_of(body: JsonObject) -> JsonObject:
    """Return an answer as an event of a stream that has not ended; of several choices, the first one."""
    message = body["choices"][0]["message"]
    calls = [{**call, "index": index} for index, call in enumerate(message.get("tool_calls") or ())]
    choice = {"index": 0, "delta": {**message, **({"tool_calls": calls} if calls else {})}, "finish_reason": None}
    return {**body, "object": "chat.completion.chunk", "choices": [choice]}


def _model(attributes: Mapping[str, Any]) -> Any:
    return attributes.get(names.RESPONSE_MODEL) or attributes.get(names.REQUEST_MODEL)


def _usage(attributes: Mapping[str, Any]) -> JsonObject:
    usage: JsonObject = {}
    for name, (*path, key) in _COUNTS.items():
        if attributes.get(name) is not None:
            place = usage
            for step in path:
                place = place.setdefault(step, {})
            place[key] = attributes[name]
    return usage


def _tool(tool: JsonObject) -> JsonObject:
    """A tool; tools that are no functions only have their type and name."""
    if tool.get("type") != "function":
        return {key: value for key, value in tool.items() if value is not None}
    keys = ("name", "description", "parameters")
    return {"type": "function", "function": {key: tool[key] for key in keys if tool.get(key) is not None}}


# Messages


def _messages(message: JsonObject, calls: _Calls) -> list[JsonObject]:
    """The messages that a message is there: one for each output of a tool, and one for the rest."""
    parts = message.get("parts") or []
    outputs = [part for part in parts if part.get("type") == "tool_call_response"]
    rest = [part for part in parts if part.get("type") != "tool_call_response"]
    messages: list[JsonObject] = [
        {"role": "tool", "tool_call_id": calls.answered(part.get("id")), "content": _output(part.get("response"))}
        for part in outputs
    ]
    if message.get("role") == "assistant":
        messages.append(_assistant({**message, "parts": rest}, calls))
    elif rest or not outputs:
        name = {"name": message["name"]} if message.get("name") else {}
        messages.append({"role": message.get("role") or "user", **name, "content": _content(rest)})
    return messages


def _assistant(message: JsonObject, calls: _Calls) -> JsonObject:
    parts = message.get("parts") or []
    called = [part for part in parts if part.get("type") == "tool_call"]
    thoughts = [str(part.get("content") or "") for part in parts if part.get("type") == "reasoning"]
    said = [part for part in parts if part.get("type") not in ("tool_call", "reasoning")]
    made: JsonObject = {"role": "assistant", "content": _content(said) if said else None}
    if any(thoughts):
        made["reasoning_content"] = "\n".join(thoughts)
    if called:
        made["tool_calls"] = [_call(part, calls) for part in called]
    return made


def _call(part: JsonObject, calls: _Calls) -> JsonObject:
    arguments = part.get("arguments")
    text = arguments if isinstance(arguments, str) else dumps({} if arguments is None else arguments).decode()
    function = {"name": part.get("name") or "", "arguments": text}
    return {"id": calls.called(part.get("id")), "type": "function", "function": function}


def _output(response: Any) -> Any:
    """What a tool returned: a text, texts, or the JSON of anything else."""
    if isinstance(response, str):
        return response
    if isinstance(response, list) and response and all(_is_text(part) for part in response):
        return [{"type": "text", "text": part["text"]} for part in response]
    return dumps(response).decode()


def _is_text(part: Any) -> bool:
    return isinstance(part, dict) and part.get("type") == "text" and isinstance(part.get("text"), str)


# Parts


def _content(parts: Sequence[JsonObject]) -> Any:
    """The content of a message; a lone text is a string."""
    wires = [_PARTS.get(str(part.get("type")), _as_it_is)(part) for part in parts]
    match wires:
        case []:
            return ""
        case [{"type": "text", "text": text}]:
            return text
    return wires


def _as_it_is(part: JsonObject) -> JsonObject:
    return {key: value for key, value in part.items() if value is not None}


def _text(part: JsonObject) -> JsonObject:
    return {"type": "text", "text": str(part.get("content") or "")}


def _blob(part: JsonObject) -> JsonObject:
    """Bytes: a picture, a sound, or a file."""
    media_type, data = part.get("mime_type") or "application/octet-stream", str(part.get("content") or "")
    url = f"data:{media_type};base64,{data}"
    if part.get("modality") == "audio":
        sound = _AUDIO.get(media_type, media_type.partition("/")[2])
        return {"type": "input_audio", "input_audio": {"data": data, "format": sound}}
    if part.get("modality") == "image":
        return {"type": "image_url", "image_url": {"url": url}}
    return {"type": "file", "file": {"file_data": url}}


def _uri(part: JsonObject) -> JsonObject:
    """What is somewhere else: a picture, a video, or a document."""
    kind = {"image": "image_url", "video": "video_url"}.get(str(part.get("modality")))
    uri = str(part.get("uri") or "")
    return {"type": "document_url", "document_url": uri} if kind is None else {"type": kind, kind: {"url": uri}}


def _file(part: JsonObject) -> JsonObject:
    return {"type": "file", "file": {"file_id": str(part.get("file_id") or "")}}


# type of a part -> what it is in Chat Completions; others are kept as they are
_PARTS: Final[Mapping[str, Callable[[JsonObject], JsonObject]]] = {
    "text": _text,
    "blob": _blob,
    "uri": _uri,
    "file": _file,
}
