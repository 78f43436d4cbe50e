"""The three smaller reference systems in terms of threadkeep: what their cases do, done with a store.

A case names an operation in words. What the operation does there is done here with conversations in the database, and
the result is brought into the shape of the case: names of keys, flat tool calls, words for endings. What a case knows
beside the wire (task numbers, flags of the application) is no part of a message here.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

from google.genai import types

from tests.formats.messages_factories import merged
from tests.store.cache_decisions import Cache, cacheable, decided
from tests.store.estimates import tokens_of
from tests.store.seed_shapes import (
    ENDINGS,
    Json,
    as_given,
    as_written,
    cache_figures,
    checked,
    content_of,
    context_of,
    flat_item,
    nested_call,
    parts_in,
    position_of,
    text_of,
    texts_of,
    thoughts_of,
    wire_message,
)
from threadkeep import CannotParse, CannotRender, Response
from threadkeep.domain.context_caches import is_due, is_expired, tokens_outside
from threadkeep.domain.items import FunctionCallOutput
from threadkeep.domain.jsontext import dumps
from threadkeep.formats import get_format
from threadkeep.formats.canonical.entries import entry_of
from threadkeep.formats.messages.turns import cleaned_id
from threadkeep.formats.shared.cache_marks import mark_messages
from threadkeep.formats.shared.pairing import OUTPUTS, between_turns


class Seeds:
    """What the reference systems do, done by a store; `elsewhere` is another store that reads what it wrote."""

    def __init__(self, store: Any, elsewhere: Any) -> None:
        self._store, self._elsewhere = store, elsewhere

    def run(self, given: Json) -> Json:
        """The result of a case, under the names of its `expect`."""
        return OPERATIONS[given["op"]](self, given)

    # Requests

    def _imported(self, given: Json) -> Any:
        body = {"model": given["model"], "messages": given["messages"], "max_tokens": given["max_tokens"]}
        body |= {"tools": given["tools"]} if given.get("tools") else {}
        kept = self._store.import_request(body, "chat_completion")
        if given.get("reasoning_effort") is not None:
            kept.update(reasoning={"effort": given["reasoning_effort"]})
        return self._elsewhere.get_conversation(kept.id)

    def _body(self, given: Json, format_name: str) -> Json:
        before = copy.deepcopy(given)
        conversation = self._imported(given)
        stored = [item.item.to_dict() for item in conversation.transcript()]
        view = {"vision": given.get("vision_supported", True), "dialect": "compatible"}
        view |= {"cache": "auto"} if given.get("caching_enabled") else {}
        body = conversation.request_payload(format_name, **view)
        assert given == before
        assert [item.item.to_dict() for item in conversation.transcript()] == stored
        afterwards = {f"{name}_after": given.get(name) for name in ("messages", "tools")}
        return {"body": body, "stored_unchanged": True, **afterwards}

    def build_request_body(self, given: Json) -> Json:
        return self._body(given, "chat_completion")

    def build_anthropic_body(self, given: Json) -> Json:
        return self._body(given, "messages")

    def build_bedrock_body(self, given: Json) -> Json:
        return self._body(given, "converse")

    def build_responses_body(self, given: Json) -> Json:
        return self._body(given, "open_responses")

    def format_tool_results(self, given: Json) -> Json:
        conversation = self._store.create_conversation(model="any", dialect="compatible")
        conversation.user("go")
        calls = [nested_call(call) for call in given["response"]["tool_calls"] or []]
        message = {"role": "assistant", "content": None if calls else "nothing", "tool_calls": calls}
        conversation.add_response({"choices": [{"message": message, "finish_reason": None}]}, "chat_completion")
        results = {result["id"]: result["content"] for result in given["tool_results"]}
        outputs = [{"role": "tool", "tool_call_id": call_id, "content": one} for call_id, one in results.items()]
        for (item,) in get_format("chat_completion").parse_turns(outputs):
            conversation.add_item(item)
        resumed = self._elsewhere.get_conversation(conversation.id)
        messages = resumed.request_payload("chat_completion", tool_results="json")["messages"]
        return {"messages": [message for message in messages if message["role"] == "tool"]}

    def render_pair(self, given: Json) -> Json:
        conversation = self._store.create_conversation(model="claude-sonnet-4-5")
        conversation.user("go")
        call = {"type": "function_call", "call_id": given["tool_use_id"], "name": "f", "arguments": "{}"}
        conversation.add_item(call)
        conversation.add_function_call_output(call_id=given["tool_result_for"], output="done")
        turns = self._elsewhere.get_conversation(conversation.id).request_payload("messages")["messages"]
        blocks = [block for turn in turns for block in turn["content"]]
        (use,) = [block["id"] for block in blocks if block["type"] == "tool_use"]
        (result,) = [block["tool_use_id"] for block in blocks if block["type"] == "tool_result"]
        return {"tool_use_id": use, "tool_result_id": result}

    # Answers

    def _answer(self, given: Json, format_name: str) -> tuple[Response, Json]:
        """An answer as it was stored, and what all formats say of it."""
        conversation = self._store.create_conversation(model="any")
        conversation.user("go")
        response = conversation.add_response(given["body"], format_name)
        stored = self._elsewhere.get_conversation(conversation.id)
        raw = json.loads(stored.response_body(0))
        found: Json = {
            "content": text_of(stored.transcript()[1:]),
            "tool_calls": [flat_item(one.item) for one in stored.transcript() if one.item.type == "function_call"],
            "finish_reason": ENDINGS.get(format_name, {}).get(response.finish_reason or "", response.finish_reason),
        }
        found["tool_calls"] = found["tool_calls"] or None
        if thoughts := thoughts_of(stored.transcript()):
            found["reasoning_content"] = thoughts
        return response, {**found, "raw_api_usage": raw.get("usage") or {}}

    def parse_response(self, given: Json) -> Json:
        response, found = self._answer(given, "chat_completion")
        usage = response.usage
        figures = {
            "prompt_tokens": usage and usage.input_tokens,
            "completion_tokens": usage and usage.output_tokens,
            "total_tokens": usage and usage.total_tokens,
        }
        if found["raw_api_usage"].get("cost") is not None:
            figures["api_cost"] = found["raw_api_usage"]["cost"]
        return {"result": {**found, "usage": {**figures, **cache_figures(response, found["raw_api_usage"])}}}

    def parse_anthropic_response(self, given: Json) -> Json:
        response, found = self._answer(given, "messages")
        raw = found["raw_api_usage"]
        read, written = (raw.get(f"cache_{word}_input_tokens") or 0 for word in ("read", "creation"))
        taken, said = raw.get("input_tokens") or 0, raw.get("output_tokens") or 0
        # some gateways count the tokens of the cache as input
        prompt = taken - written if 0 < read + written <= taken else taken + read
        figures = {
            "prompt_tokens": prompt,
            "completion_tokens": said,
            "total_tokens": prompt - read + written + said,
            **cache_figures(response, raw),
        }
        return {"result": {**found, "usage": figures}}

    def parse_bedrock_response(self, given: Json) -> Json:
        response, found = self._answer(given, "converse")
        raw = found["raw_api_usage"]
        figures = {
            "prompt_tokens": (raw.get("inputTokens") or 0) + (raw.get("cacheReadInputTokens") or 0),
            "completion_tokens": raw.get("outputTokens"),
            "total_tokens": raw.get("totalTokens"),
        }
        positive = {name: value for name, value in cache_figures(response, raw).items() if value}
        return {"result": {**found, "usage": {**figures, **positive}}}

    # Histories

    def _history(self, messages: Sequence[Json]) -> Any:
        conversation = self._store.create_conversation(model="any")
        for message in messages:
            conversation.add_input(wire_message(message), "chat_completion")
        return conversation

    def _shown(self, conversation: Any, given: Sequence[Json]) -> Json:
        resumed = self._elsewhere.get_conversation(conversation.id).on_branch(conversation.branch)
        try:
            messages = resumed.request_payload("chat_completion")["messages"]
        except CannotRender:
            messages = []
        return {"messages": as_written(messages, given)}

    def append_all(self, given: Json) -> Json:
        return self._shown(self._history(given["messages"]), given["messages"])

    def render(self, given: Json) -> Json:
        """Messages of other tasks than those of the chain stand on other branches."""
        if "task_chain" not in given:
            return self.append_all(given)
        chain = [None, *given["task_chain"]]
        conversation = self._store.create_conversation(model="any")
        shown, last = conversation, -1
        for message in given["messages"]:
            is_shown = message.get("task_id") in chain
            if is_shown and shown.items(order="desc", limit=1).items and position_of(shown) != last:
                shown = shown.fork(at=last)
            (shown if is_shown else conversation).add_input(wire_message(message), "chat_completion")
            last = position_of(shown) if is_shown else last
        return self._shown(shown, given["messages"])

    def persist(self, given: Json) -> Json:
        """What is meant for one request alone is dynamic context, and never stored."""
        stored = [message for message in given["messages"] if not message.get("transient")]
        passing = [text for message in given["messages"] if message.get("transient") for text in texts_of(message)]
        conversation = self._history(stored)
        sent = conversation.request_payload("chat_completion", dynamic_context={"notes": passing})["messages"]
        assert all(text in json.dumps(sent, ensure_ascii=False) for text in passing)
        return self._shown(conversation, stored)

    def replace_system_prompt(self, given: Json) -> Json:
        body = {"model": "any", "messages": given["messages"]}
        conversation = self._store.import_request(body, "chat_completion")
        conversation.update(instructions=given["content"])
        return self._shown(conversation, given["messages"])

    def truncate_from(self, given: Json) -> Json:
        conversation = self._history(given["messages"])
        return self._shown(conversation.fork(at=given["index"] - 1), given["messages"])

    def repair_tool_pairs(self, given: Json) -> Json:
        return self.append_all(given)

    # Layers

    def assemble(self, given: Json) -> Json:
        """The static layer is the system text here; the case has it as the first text of the user."""
        conversation = self._store.create_conversation(model="gemini-2.5-flash", instructions=given["static"])
        turns: list[Json] = given.get("turns") or given.get("buffered") or []
        task = {"type": "user_task", "instruction": given.get("instruction") or ""}
        if task["instruction"].strip() and task not in turns[-1:]:
            turns = [*turns, task]
        for turn in turns:
            conversation.add_input(content_of(turn), "gemini")
        if given.get("cache_name"):
            conversation.update(extra={"cached_content": given["cache_name"]})
        dynamic, view = given["dynamic"], context_of(given["dynamic"])
        resumed = self._elsewhere.get_conversation(conversation.id)
        payload = resumed.request_payload("gemini", dynamic_context=view)
        contents = [as_given(checked(content), dumps(view).decode(), dynamic) for content in payload["contents"]]
        if "systemInstruction" in payload:
            contents.insert(0, {"role": "user", "parts": payload["systemInstruction"]["parts"]})
        return {"contents": contents, "cached_content": payload.get("cachedContent"), "tools": payload.get("tools")}

    # Plain functions

    def sanitize_tool_id(self, given: Json) -> Json:
        return {"id": cleaned_id(given["id"])}

    def merge_roles(self, given: Json) -> Json:
        before = copy.deepcopy(given["messages"])
        found = merged(given["messages"])
        assert given["messages"] == before
        return {"messages": found, "messages_after": given["messages"]}

    def stamp_cache_breakpoints(self, given: Json) -> Json:
        before = copy.deepcopy(given["body"])
        body = mark_messages(given["body"])
        assert given["body"] == before
        contents = [message.get("content") for message in body.get("messages") or []]
        blocks = [block for content in contents if isinstance(content, list) for block in content]
        marked = [index for index, block in enumerate(blocks) if "cache_control" in block]
        return {"body": body, "marked_block_indices": marked, "body_after": given["body"]}

    def identify_tool_result(self, given: Json) -> Json:
        items = [item for turn in get_format("chat_completion").parse_turns([given["message"]]) for item in turn]
        found = [item.call_id for item in items if isinstance(item, FunctionCallOutput) and item.call_id]
        return {"is_tool_result": bool(found), "tool_call_ids": found}

    def trim_slice(self, given: Json) -> Json:
        """What a compaction covers of a slice, and what a request shows of the outputs at its beginning."""
        turns = get_format("chat_completion").parse_turns([wire_message(message) for message in given["messages"]])
        items = [(number, item) for number, found in enumerate(turns) for item in found]
        entries = [
            entry_of(item.to_object(), position=place, turn=number) for place, (number, item) in enumerate(items)
        ]
        end = between_turns(entries)
        if end is None:
            return {"messages": []}
        start = next((place for place, entry in enumerate(entries) if entry.type not in OUTPUTS), len(entries))
        kept = sorted({number for number, _ in items[start : end + 1]})
        return {"messages": [given["messages"][number] for number in kept]}

    def estimate_tokens(self, given: Json) -> Json:
        return {"tokens": tokens_of(texts_of(message) for message in given["messages"])}

    # Caches

    def split_history(self, given: Json) -> Json:
        """The first version of that system cached from the threshold on, not beyond it."""
        cached, turns = given["cached_content_token_count"] or 0, given["turn_count"]
        tokens = tokens_outside(given["prompt_token_count"] or 0, cached)
        due = is_due(tokens + 1, given["cache_update_threshold"])
        held = cacheable(turns) if due else 0
        return {"cached_turns": held, "buffered_turns": turns - held}

    def token_summary(self, given: Json) -> Json:
        cached, prompt = given["cached_content_token_count"] or 0, given["prompt_token_count"] or 0
        outside = tokens_outside(prompt, cached, given.get("dynamic_tokens") or 0)
        return {"cached_tokens": cached, "current_prompt_tokens": prompt, "buffered_tokens": outside}

    def is_expired(self, given: Json) -> Json:
        return {"expired": is_expired(given["expire_time"], datetime.fromisoformat(given["now"]))}

    def cache_decision(self, given: Json) -> Json:
        """The service of the case does what the decision says; what it refuses is not known to be done."""
        entry: Json = given.get("registry") or {}
        held = given.get("cached_turn_count", 0)
        cache = Cache(entry["name"], entry.get("expire_time"), held) if entry else None
        edits = given.get("event") is not None
        due = not edits and is_due(given["buffered_tokens"], given["threshold"])
        now, turns = datetime.fromisoformat(given["now"]), given.get("turn_count", 0)
        found = decided(turns, cache, now, is_due=due, is_changed=edits)
        calls = [] if found.delete is None else [f"delete {found.delete}"]
        if found.action not in ("create", "replace"):
            name = entry["name"] if found.action == "reuse" else None
            return {"calls": calls, "cache_name": name, "cached_turn_count": 0 if edits else held}
        made = given.get("create_returns")
        calls.append(f"create turns[0:{found.turns}]")
        return {"calls": calls, "cache_name": made or None, "cached_turn_count": found.turns if made else held}

    # Signatures

    def keep_raw_response(self, given: Json) -> Json:
        """Whether the items of an answer say more than its text does."""
        assembler = get_format("gemini").assembler()
        for chunk in given["chunks"]:
            assembler.feed(chunk)
        items = [item.to_object() for item in assembler.response.output]
        return {"keep": any(item["type"] != "message" or "thought_signature" in json.dumps(item) for item in items)}

    def restore_model_turn(self, given: Json) -> Json:
        """An answer that cannot be read is stored as the text that the application has of it."""
        conversation = self._store.create_conversation(model="gemini-3-pro")
        conversation.user("go")
        try:
            record(conversation, given["raw_response"])
        except CannotParse:
            conversation.assistant(given["content"])
        contents = self._elsewhere.get_conversation(conversation.id).request_payload("gemini")["contents"]
        parts = [types.Part.model_validate(part) for part in contents[1]["parts"]]
        signatures = [part.thought_signature for part in parts]
        shown = [part.model_dump(by_alias=True, exclude_none=True, exclude={"thought_signature"}) for part in parts]
        text = "".join(part.text or "" for part in parts)
        found = {"role": contents[1]["role"], "parts": shown, "text": text}
        return {**found, "signature_hex": next((one.hex() for one in signatures if one), None)}


def record(conversation: Any, raw: str | None) -> None:
    """Store a Gemini answer: one body, or the chunks of a stream."""
    try:
        body = json.loads(raw or "")
    except ValueError as error:
        raise CannotParse("no JSON") from error
    chunks = body if isinstance(body, list) else [body]
    if not any(parts_in(chunk) for chunk in chunks):
        raise CannotParse("nothing was said")
    if isinstance(body, dict):
        conversation.add_response(body, "gemini")
        return
    with conversation.stream_response("gemini") as recorder:
        for chunk in chunks:
            recorder.feed(chunk)


# operation of a case -> what does it
OPERATIONS: dict[str, Callable[[Seeds, Json], Json]] = {
    **{
        name: getattr(Seeds, name)
        for name in dir(Seeds)
        if not name.startswith("_") and name not in ("run", "sanitize_tool_id", "trim_slice")
    },
    "sanitize_tool_id": Seeds.sanitize_tool_id,
    "sanitize_tool_use_id": Seeds.sanitize_tool_id,
    "trim_slice_for_compaction": Seeds.trim_slice,
}
