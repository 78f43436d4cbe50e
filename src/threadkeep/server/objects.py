"""The objects of OpenAI's API: conversations, items, and stored responses, whatever format they came in."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from math import isfinite
from typing import Any, Final, TypeVar

from threadkeep import errors, formats
from threadkeep.domain import ids, items, stored
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.printing import redact
from threadkeep.domain.response import Response
from threadkeep.domain.stored import StoredResponse
from threadkeep.domain.usage import Usage
from threadkeep.formats.canonical import entries, view
from threadkeep.formats.canonical.entries import Snapshot, entry_of
from threadkeep.server import agent_tools, service
from threadkeep.server.owners import shown_name
from threadkeep.server.sealed import sealed, sealed_rest
from threadkeep.store.aio import AsyncConversation
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.responses import ResponseDetails
from threadkeep.store.work.caches import Config

# value of `include` -> the type of the items, or of their parts, and the key that it asks for
INCLUDED: Final = {
    "file_search_call.results": ("file_search_call", "results"),
    "web_search_call.results": ("web_search_call", "results"),
    "code_interpreter_call.outputs": ("code_interpreter_call", "outputs"),
    "reasoning.encrypted_content": ("reasoning", "encrypted_content"),
    "message.output_text.logprobs": ("output_text", "logprobs"),
}


def conversation_object(
    conversation: AsyncConversation | Conversation | stored.ConversationSummary, *, is_whole: bool = True
) -> JsonObject:
    """Return a conversation as OpenAI's clients read it, with what threadkeep knows besides.

    What users wrote is left out unless it `is_whole`.
    """
    hidden: JsonObject = {} if is_whole else {"metadata": {}, "title": None, "labels": {}, "external_id": None}
    return {
        "id": conversation.id,
        "object": "conversation",
        "created_at": int(conversation.created_at.timestamp()),
        "metadata": dict(conversation.properties),
        "title": conversation.title,
        "labels": dict(conversation.labels),
        "external_id": shown_name(conversation.external_id, conversation.user_id),
        "user_id": conversation.user_id,
        "status": conversation.status,
        **hidden,
    }


def summary_object(summary: stored.ConversationSummary) -> JsonObject:
    """Return a conversation as lists have it."""
    return {
        **conversation_object(summary),
        "last_activity_at": int(summary.last_activity_at.timestamp()),
        "preview": summary.preview,
        "item_count": summary.item_count,
        "is_unread": summary.is_unread,
    }


def item_object(item: stored.StoredItem, masked: Collection[str] = ()) -> JsonObject:
    """Return an item as OpenAI's clients validate it, without the parts whose values of `include` are masked."""
    return without_masked(item.canonical(), masked)


def partial_item(item: items.Item, conversation_id: str, position: int, masked: Collection[str] = ()) -> JsonObject:
    """Return an item of an answer in progress as `item_object` does once it is stored at that position."""
    given = item.to_object()
    id_ = ids.own_id(given) or ids.derived_id(item.type, conversation_id, position)
    return without_masked(view.canonical_item(entries.entry_of(given, position=-1), id_), masked)


def without_masked(found: JsonObject, masked: Collection[str]) -> JsonObject:
    """Return an item without the parts whose values of `include` are masked."""
    for name in masked:
        kind, key = INCLUDED[name]
        for holder in (found, *_parts(found)):
            if holder.get("type") == kind:
                holder.pop(key, None)
    return found


def _parts(item: JsonObject) -> list[JsonObject]:
    content = item.get("content")
    return [part for part in content if isinstance(part, dict)] if isinstance(content, list) else []


# ---------------------------------------------------------------------------------------------------------------------
# Responses

T = TypeVar("T")
_OWN: Final = "open_responses"
_STATUSES: Final = frozenset({"completed", "failed", "in_progress", "cancelled", "queued", "incomplete"})
_FILTERED: Final = "content_filter"
_REASONS: Final = frozenset({"max_output_tokens", "max_messages", _FILTERED, "steered"})
# what stands for keys that clients require: Open Responses has more of them than OpenAI
_REQUIRED: Final[JsonObject] = {
    "frequency_penalty": 0.0, "instructions": None, "max_output_tokens": None, "max_tool_calls": None, "metadata": {},
    "parallel_tool_calls": True, "presence_penalty": 0.0, "prompt_cache_key": None, "reasoning": None,
    "safety_identifier": None, "service_tier": "default", "temperature": 1.0, "text": {}, "tool_choice": "auto",
    "tools": [], "top_logprobs": 0, "top_p": 1.0, "truncation": "disabled", "user": None,
}  # fmt: skip
# … in objects among these
_TEXT: Final[JsonObject] = {"format": {"type": "text"}}
_SCHEMA: Final[JsonObject] = {"description": None, "strict": False}
_REASONING: Final[JsonObject] = {"effort": None, "summary": None}
_FUNCTION: Final[JsonObject] = {"description": None, "parameters": None, "strict": None}
# what a request says of itself, with what stands for it: no provider is asked with it
BESIDES: Final[JsonObject] = {"background": False, "previous_response_id": None}
# keys of requests that the answer repeats
ECHOED: Final = (
    "background", "frequency_penalty", "instructions", "max_output_tokens", "max_tool_calls", "metadata",
    "parallel_tool_calls", "presence_penalty", "previous_response_id", "prompt_cache_key", "reasoning",
    "safety_identifier", "service_tier", "temperature", "text", "tool_choice", "tools", "top_logprobs", "top_p",
    "truncation", "user",
)  # fmt: skip
# what the application may have set, and a user of it need not see; other tools may have keys of services in them
_HOSTS: Final = frozenset({"instructions", "prompt_cache_key", "safety_identifier", "user"})
SHOWN_TOOLS: Final = ("function", "custom")
_ASKED: Final = "asked as open_responses"  # a key of what formats remember of options
_CODE: Final = "server_error"  # of errors that other providers gave


def masked(call: service.Call) -> frozenset[str]:
    """Return the values of `include` that are masked and were not asked for."""
    return call.service.masked - call.included


def details_object(call: service.Call, details: ResponseDetails, id: str) -> JsonObject:
    """Return a response that was read as clients read it."""
    return stored_object(details, id, masked(call), is_whole=call.may_read, is_sealed=call.is_sealed)


def stored_object(
    details: ResponseDetails, id: str, masked: Collection[str] = (), *, is_whole: bool = True, is_sealed: bool = False
) -> JsonObject:
    """Return a stored response as clients read it, with the id by which it was asked for.

    Unless it `is_whole`, it has no settings of its request, nor what the provider repeats of them. If it `is_sealed`,
    it has what only its provider can read.
    """
    tools = agent_tools.AgentTools(details.asked.get(agent_tools.FUNCTIONS, {}))
    output = [tools.called(item_object(item, masked)) for item in details.items]
    provider = (details.stored.view or {}).get("provider")
    if is_sealed and provider is not None:
        given = [item.to_object() for item in details.items]
        output = [sealed(*pair, provider) for pair in zip(output, given, strict=True)]
        output += sealed_rest(output, given, provider)
    asked = asked_for(details) if is_whole else None
    ended = details.items[-1].created_at if details.items else None
    return {**response_object(details.stored, details.body, output, asked, ended, details.parsed), "id": id}


def asked_for(details: ResponseDetails) -> JsonObject:
    """Return the settings of the request of a response, as its answer repeats them."""
    cache = details.options.format_cache
    if _ASKED not in cache:  # most conversations have the settings of others
        cache[_ASKED] = _settings_of(details.options)
    settings: JsonObject = cache[_ASKED]
    return settings | {key: value for key, value in details.asked.items() if key != agent_tools.FUNCTIONS}


def _settings_of(options: Config) -> JsonObject:
    """Settings as Open Responses has them; none where they do not stand together."""
    entry = entry_of({"type": "message", "role": "user", "content": []}, position=0)
    snapshot = Snapshot({"model": "", **options.settings}, options.tools, [entry])
    try:
        asked = formats.get_format(_OWN).render(snapshot).payload
    except errors.CannotRender:
        return {}
    return _shown({key: asked[key] for key in ("model", *ECHOED) if asked.get(key) is not None})


def _shown(settings: Mapping[str, Any]) -> JsonObject:
    """Settings, also as a provider repeats them, without those that only the application knows."""
    found = {key: value for key, value in settings.items() if key not in _HOSTS}
    if isinstance(tools := found.get("tools"), list):
        found["tools"] = [tool for tool in tools if isinstance(tool, Mapping) and tool.get("type") in SHOWN_TOOLS]
    return found


def with_settings(settings: Mapping[str, Any], response: Mapping[str, Any]) -> JsonObject:
    """Return a response that repeats the settings of its request, with the default of each that it does not have."""
    whole = {**_REQUIRED, **BESIDES, **settings, "store": True, **response}
    whole["text"] = _completed(whole["text"], _TEXT)
    if _kind_of(text := whole["text"].get("format")) == "json_schema":
        whole["text"]["format"] = {**_SCHEMA, **{key: value for key, value in text.items() if value is not None}}
    if whole["reasoning"] is not None:
        whole["reasoning"] = _completed(whole["reasoning"], _REASONING)
    if isinstance(whole["tools"], list):
        whole["tools"] = [{**_FUNCTION, **one} if _kind_of(one) == "function" else one for one in whole["tools"]]
    return whole


def _completed(value: Any, required: JsonObject) -> JsonObject:
    given = value if isinstance(value, Mapping) else {}
    return required | {key: one for key, one in given.items() if one is not None}


def _kind_of(value: Any) -> Any:
    return value.get("type") if isinstance(value, Mapping) else None


def response_object(
    stored: StoredResponse,
    body: bytes | None,
    output: Sequence[JsonObject],
    asked: Mapping[str, Any] | None = None,
    ended: datetime | None = None,
    parsed: Response | None = None,
) -> JsonObject:
    """Return a response with its output and all keys that clients require.

    Args:
        stored: where the response is stored.
        body: its raw body; None if there is none (any more).
        output: its items, as clients validate them.
        ended: when these were stored; None if there are none.
        asked: the settings of its request; None to tell none, nor what the provider repeats of them.
        parsed: what the body means, if that is known.
    """
    raw, parsed = _parsed(stored, body, parsed)
    found: JsonObject = {**(asked or {})}
    if stored.format == _OWN and asked is not None:
        found |= {key: value for key, value in _shown(raw).items() if value or _may_be_empty(key, value)}
    status, details = _ending(stored, parsed)
    completed_at = _moment(stored, raw, "completed_at", ended) if status == "completed" else None
    response: JsonObject = {
        "id": stored.id,
        "object": "response",
        "created_at": _moment(stored, raw, "created_at"),
        "completed_at": completed_at,
        "model": stored.model or found.get("model") or "",
        "status": status,
        "output": list(output),
        "usage": usage_object(parsed.usage) if parsed is not None else None,
        "error": _error(stored, raw) if status == "failed" else None,
        "incomplete_details": details,
        "conversation": {"id": stored.conversation_id},
    }
    return with_settings(found, response)


def _may_be_empty(key: str, value: Any) -> bool:
    """Whether a provider repeats the setting of a request where its value is empty, rather than having none."""
    return key not in BESIDES and (value is not None or key not in _REQUIRED)


def _parsed(stored: StoredResponse, body: bytes | None, known: Response | None) -> tuple[JsonObject, Response | None]:
    """The raw body as JSON, and what it means; nothing of a body that is no JSON object, as of failed streams.

    Of an answer that is whole and came in another format, only what it means is needed, which may be known.
    """
    if known is not None and stored.status == "completed" and stored.format != _OWN:
        return {}, known
    if body is None:
        return {}, None
    try:
        raw = loads(body)
        if not isinstance(raw, dict):
            return {}, None
        return raw, Response.parse(raw, stored.format)  # type: ignore[arg-type]  # stored, so known
    except (ValueError, errors.FormatError):
        return {}, None


def _moment(stored: StoredResponse, raw: Mapping[str, Any], key: str, at: datetime | None = None) -> int:
    """A time in whole seconds: as a provider of this API gave it, or else as it was stored."""
    given = raw.get(key) if stored.format == _OWN else None
    if isinstance(given, int | float) and not isinstance(given, bool) and isfinite(given):
        return int(given)
    return int((at or stored.created_at).timestamp())


def usage_object(usage: Usage | None) -> JsonObject | None:
    """Return token counts with all keys that clients require; None if the output was not counted."""
    if usage is None or usage.normalized.output_tokens is None:
        return None
    counted = usage.normalized
    input_tokens, output_tokens = counted.input_tokens or 0, usage.normalized.output_tokens
    return {
        "input_tokens": input_tokens,
        "input_tokens_details": {
            "cached_tokens": counted.cached_tokens or 0,
            "cache_write_tokens": counted.cache_write_tokens or 0,
        },
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": counted.reasoning_tokens or 0},
        "total_tokens": counted.total_tokens or input_tokens + output_tokens,
    }


def _ending(stored: StoredResponse, parsed: Response | None) -> tuple[str, JsonObject | None]:
    """The status of OpenAI, where no answer fails because a filter has stopped it, and why it is not complete."""
    details = parsed.incomplete_details if parsed is not None else None
    reason = details.get("reason") if isinstance(details, Mapping) else None
    status = stored.status if stored.status in _STATUSES else "completed"
    if status == "failed" and reason == _FILTERED and stored.format != _OWN:
        status = "incomplete"
    return status, {"reason": reason} if status == "incomplete" and reason in _REASONS else None


def _error(stored: StoredResponse, raw: Mapping[str, Any]) -> JsonObject:
    given = next((error for error in (raw.get("error"), stored.error) if isinstance(error, Mapping)), {})
    message = redact(given.get("message"))  # errors may repeat the request with its key
    code = given.get("code") if stored.format == _OWN else None
    return {
        "code": code if isinstance(code, str) else _CODE,
        "message": message if isinstance(message, str) else "The response failed.",
    }
