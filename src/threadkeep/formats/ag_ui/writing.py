"""Writing the events of a run: of an answer that is being given.

What a client makes of the events are the messages that a render of the stored answer gives. Where that is more than the
events can say, as with arguments that were cut off, `needs_snapshot` tells so. To a client, a call with the id of an
earlier one is that call, so events of it are not written.

Source: AG-UI 1.0, `Event`; its client, `verifyEvents`, which refuses the end of a run in which anything is open, and
`defaultApplyEvents`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from threadkeep.domain import tools
from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.formats.ag_ui.parts import PARAGRAPH
from threadkeep.formats.shared.answer_writing import CALLS, AnswerEnd, AnswerText, AnswerWriter, free_id, has_failed
from threadkeep.formats.shared.arguments import is_json

PROTOCOL: Final = "1.0"
# path of a count in the usage of a response -> its name here
_COUNTS: Final = {
    ("input_tokens",): "inputTokens",
    ("output_tokens",): "outputTokens",
    ("total_tokens",): "totalTokens",
    ("output_tokens_details", "reasoning_tokens"): "reasoningTokens",
    ("input_tokens_details", "cached_tokens"): "cachedInputTokens",
    ("input_tokens_details", "cache_write_tokens"): "cacheWriteInputTokens",
}


@dataclass(slots=True)
class RunWriter(AnswerWriter):
    """Makes events of a run of the events of an answer.

    Attributes:
        thread_id: the id of the thread.
        run_id: the id of the run.
        known_calls: the ids of the calls that the client has.
        known_ids: the ids of the messages that it has.
        needs_snapshot: whether a client has to be sent the messages as they are stored, before the end.
        end: how the answer ended, once it has.
    """

    thread_id: str
    run_id: str
    known_calls: Collection[str] = field(init=False, default=())
    known_ids: Collection[Any] = field(init=False, default=())
    needs_snapshot: bool = field(init=False, default=False)
    end: AnswerEnd | None = field(init=False, default=None)
    _message: str | None = field(init=False, default=None)  # the id of the open message
    _caller: str | None = field(init=False, default=None)  # of the message that the next call is of
    _thoughts: list[str] = field(init=False, default_factory=list)  # ids of open reasoning
    _calls: dict[str, str] = field(init=False, default_factory=dict)  # id of an open call -> its arguments so far
    _usage: list[JsonObject] = field(init=False, default_factory=list)  # of each answer that has ended

    @property
    def _run(self) -> JsonObject:
        return {"threadId": self.thread_id, "runId": self.run_id}

    def begin(self, state: Any = None, messages: Sequence[JsonObject] | None = None) -> Iterator[JsonObject]:
        """The first events, with what a client does not know: the state, and the messages before the answer."""
        yield {"type": "RUN_STARTED", **self._run, "protocolVersion": PROTOCOL}
        if state is not None:
            yield {"type": "STATE_SNAPSHOT", "snapshot": state}
        if messages is not None:
            yield {"type": "MESSAGES_SNAPSHOT", "messages": [*messages]}

    def text_begun(self, text: AnswerText) -> Iterator[JsonObject]:
        """Begin reasoning, or a message; other texts of the same message are paragraphs."""
        if text.kind == "reasoning":
            self._caller = None
            id_ = f"msg_{text.id}"
            self._thoughts.append(id_)
            yield {"type": "REASONING_START", "messageId": id_}
            yield {"type": "REASONING_MESSAGE_START", "messageId": id_, "role": "reasoning"}
        elif self._message is not None:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message, "delta": PARAGRAPH}
        else:
            self._message = self._caller = free_id(text.position, self.known_ids)
            yield {"type": "TEXT_MESSAGE_START", "messageId": self._message, "role": "assistant"}

    def text_grown(self, text: AnswerText, delta: str) -> Iterator[JsonObject]:
        """Add to reasoning or a message."""
        if text.kind == "reasoning":
            yield {"type": "REASONING_MESSAGE_CONTENT", "messageId": f"msg_{text.id}", "delta": delta}
        else:
            yield {"type": "TEXT_MESSAGE_CONTENT", "messageId": self._message, "delta": delta}

    def text_ended(self, text: AnswerText, _item: JsonObject) -> Iterator[JsonObject]:
        """End reasoning; a message ends with its item."""
        if text.kind == "reasoning":
            yield from self._close(messages=False)

    def message_ended(self, _item: JsonObject, _position: int) -> Iterator[JsonObject]:
        """End a message."""
        yield from self._close()

    def call_begun(self, item: JsonObject, position: int) -> Iterator[JsonObject]:
        """Begin a call of a function; the text of a custom tool comes whole, as arguments."""
        if item["type"] == CALLS[0] and item["call_id"] not in self.known_calls:
            yield self._begun(item, position)

    def _begun(self, item: JsonObject, position: int) -> JsonObject:
        """The beginning of a call, of the message before it if that is of this answer."""
        self._caller = self._caller or free_id(position, self.known_ids)
        self._calls[item["call_id"]] = ""
        call = {"toolCallId": item["call_id"], "toolCallName": item["name"]}
        return {"type": "TOOL_CALL_START", **call, "parentMessageId": self._caller}

    def call_grown(self, call_id: str, delta: str) -> Iterator[JsonObject]:
        """Add to the arguments of a call."""
        if call_id in self._calls:
            self._calls[call_id] += delta
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": delta}

    def call_ended(self, item: JsonObject, position: int) -> Iterator[JsonObject]:
        """End a call."""
        call_id = item["call_id"]
        if call_id in self.known_calls:
            self.needs_snapshot = True
            return
        if call_id not in self._calls:
            yield self._begun(item, position)
        given = item["arguments"] if item["type"] == CALLS[0] else dumps({"input": item.get("input") or ""}).decode()
        sent = self._calls.pop(call_id)
        if tools.was_cut_off(item) or not is_json(given) or not given.startswith(sent):
            self.needs_snapshot = True
        elif given != sent:
            yield {"type": "TOOL_CALL_ARGS", "toolCallId": call_id, "delta": given[len(sent) :]}
        yield {"type": "TOOL_CALL_END", "toolCallId": call_id}

    def _close(self, *, messages: bool = True) -> Iterator[JsonObject]:
        for id_ in self._thoughts:
            yield {"type": "REASONING_MESSAGE_END", "messageId": id_}
            yield {"type": "REASONING_END", "messageId": id_}
        self._thoughts.clear()
        if messages and self._message is not None:
            yield {"type": "TEXT_MESSAGE_END", "messageId": self._message}
            self._message = None

    def output_given(self, item: JsonObject, position: int) -> Iterator[JsonObject]:
        """The output of a call, as a message; the event cannot say that it failed, or what is no text."""
        self._caller, said = None, item["output"]
        if has_failed(item) or not isinstance(said, str):
            self.needs_snapshot = True
        call = {"toolCallId": item["call_id"], "role": "tool"}
        content = said if isinstance(said, str) else dumps(said).decode()
        yield {"type": "TOOL_CALL_RESULT", "messageId": f"msg_{position}", **call, "content": content}

    def next_answer(self, end: AnswerEnd, *, is_moved: bool) -> Iterator[JsonObject]:
        """End what is open, and note the usage of an answer."""
        self._usage += _usage_of(end.response)
        yield from self._end_all(is_moved=is_moved)
        self._caller = None

    def ended(self, end: AnswerEnd) -> Iterator[JsonObject]:
        """End what is open: it is not stored as it came."""
        self.end = end
        self._usage += _usage_of(end.response)
        yield from self._end_all()

    def _end_all(self, *, is_moved: bool = False) -> Iterator[JsonObject]:
        if is_moved or self._message is not None or self._thoughts or self._calls:
            self.needs_snapshot = True
        yield from self._close()
        for call_id in self._calls:
            yield {"type": "TOOL_CALL_END", "toolCallId": call_id}
        self._calls.clear()

    def finish(self, waiting: Sequence[str] = (), interrupts: Sequence[JsonObject] = ()) -> JsonObject:
        """The last event.

        Args:
            waiting: the ids of calls that wait for outputs of clients.
            interrupts: what else the thread waits for.
        """
        end = self.end or AnswerEnd("completed", None, "", {})
        usage: JsonObject = {"usage": self._usage} if self._usage else {}
        if end.has_failed:
            error = end.response.get("error")
            code = error.get("code") if isinstance(error, dict) else None
            return {"type": "RUN_ERROR", "message": end.error, **({"code": str(code)} if code else {}), **usage}
        event: JsonObject = {"type": "RUN_FINISHED", **self._run, **usage}
        if end.status == "cancelled":
            return {**event, "outcome": {"type": "cancelled"}}
        if end.status == "incomplete":
            event["result"] = {"status": end.status, "reason": end.reason}
        if interrupts:
            return {**event, "outcome": {"type": "interrupt", "interrupts": [*interrupts]}}
        pending = {"pendingToolCallIds": [*waiting]} if waiting else {}
        return {**event, "outcome": {"type": "success", **pending}}


def _usage_of(response: JsonObject) -> list[JsonObject]:
    """The usage of a response under the names of AG-UI; none where there is none."""
    counts: JsonObject = {}
    for path, name in _COUNTS.items():
        value: Any = response.get("usage")
        for key in path:
            value = value.get(key) if isinstance(value, Mapping) else None
        if isinstance(value, int):
            counts[name] = value
    if not counts:
        return []
    model = response.get("model")
    return [{**({"model": model} if isinstance(model, str) else {}), **counts}]
