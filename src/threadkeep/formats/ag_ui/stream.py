"""The events of a run: they become the new messages that a client makes of them, and how the run ended.

* Texts and reasoning grow under the ids of their messages, arguments under the ids of calls. A chunk begins what its id
  names, if that has not begun, and goes on with the last one of its sub-agent where it names none.
* A result stands behind the message of its call. Snapshots of messages replace what has come; those before the last
  message of the user, and those of the input that `RUN_STARTED` repeats, are no answers.
* Activities and the state are patched. `RUN_FINISHED` says that the run is whole, `RUN_ERROR` that it failed.

Source: AG-UI 1.0, `Event`; its client, `defaultApplyEvents`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, dumps, loads
from threadkeep.domain.response import Response
from threadkeep.errors import CannotParse
from threadkeep.formats.ag_ui import fields
from threadkeep.formats.ag_ui.response import ANSWER, parse_response
from threadkeep.formats.shared import streams

# type of an event -> the method that takes it
_TAKERS: Final = {
    "RUN_STARTED": "take_started",
    "RUN_FINISHED": "take_finished",
    "RUN_ERROR": "take_finished",
    **dict.fromkeys(("TEXT_MESSAGE_START", "REASONING_MESSAGE_START"), "take_begin"),
    **dict.fromkeys(("TEXT_MESSAGE_CONTENT", "REASONING_MESSAGE_CONTENT"), "take_grow"),
    **dict.fromkeys(("TEXT_MESSAGE_END", "REASONING_MESSAGE_END"), "take_end"),
    "REASONING_ENCRYPTED_VALUE": "take_sealed",
    "TOOL_CALL_START": "take_call",
    "TOOL_CALL_ARGS": "take_arguments",
    "TOOL_CALL_END": "take_called",
    "TOOL_CALL_RESULT": "take_result",
    **dict.fromkeys(fields.CHUNKS, "take_chunk"),
    "MESSAGES_SNAPSHOT": "take_messages",
    **dict.fromkeys(("STATE_SNAPSHOT", "STATE_DELTA"), "take_state"),
    "ACTIVITY_SNAPSHOT": "take_activity",
    "ACTIVITY_DELTA": "take_activity_delta",
}


class RunAssembler(streams.StreamAssembler):
    """Puts the events of a run together; `feed` each of them, then take `response`."""

    def __init__(self, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(fields.NAME, parse_response, headers)
        self._run: JsonObject = {}
        self._messages: list[JsonObject] = []
        self._texts = streams.GrowingTexts()
        self._open: set[str] = set()  # ids of messages whose text is coming
        self._calls: dict[str, JsonObject] = {}  # id -> the call
        self._open_calls: set[str] = set()
        self._chunked: dict[Any, tuple[str, str]] = {}  # sub-agent -> kind and id of what its last chunk was of
        self._asked: set[Any] = set()  # ids of the messages of the input

    # What has come

    @property
    def body(self) -> JsonObject:
        """The messages as far as they have come, and what is known of the run; not to be changed."""
        return self.body_between(0, None) if self.has_events else {}

    def body_between(self, first: int, last: int | None) -> JsonObject:
        """The body with these messages."""
        self._texts.settle_all()
        return {**self._run, ANSWER: self._messages[first:last]}

    @property
    def element_count(self) -> int:
        """How many messages have come."""
        return len(self._messages)

    def is_whole(self, element: int) -> bool:
        """Whether a message will not grow, as far as the stream tells."""
        message = self._messages[element]
        calls = message.get("toolCalls") or ()
        return message.get("id") not in self._open and not any(call["id"] in self._open_calls for call in calls)

    def is_apart(self, element: int) -> bool:
        """Whether a message is one item."""
        return "toolCalls" not in self._messages[element]

    @property
    def open_calls(self) -> Collection[object]:
        """The ids of calls whose arguments are still coming."""
        return list(self._open_calls)

    def parsed(self, body: JsonObject, first: int) -> Response:
        """The response of the messages from `first` on; a run that ended without saying how was a success."""
        response = super().parsed(body, first)
        is_silent = self.is_ended and response.finish_reason is None
        return response.model_copy(update={"finish_reason": "success"}) if is_silent else response

    def output_in(self, event: JsonObject) -> bool:
        """Whether an event brings a message or a part of it."""
        return event.get("type") not in fields.QUIET

    def is_last(self, event: JsonObject) -> bool:
        """Whether the run has ended."""
        return event.get("type") in ("RUN_FINISHED", "RUN_ERROR")

    def error_in(self, event: JsonObject) -> Any:
        """The error of a run that failed."""
        if event.get("type") != "RUN_ERROR":
            return None
        return {key: event[key] for key in ("message", "code") if event.get(key) is not None}

    # Events

    def add(self, event: JsonObject) -> None:
        """Take an event into the messages."""
        kind = event.get("type")
        if not isinstance(kind, str):
            raise CannotParse("The event has no type.", hint="Feed the events of a run of AG-UI.")
        if kind not in fields.CHUNKS and kind not in fields.OTHERS:
            self._close_chunks(event.get("subagentRunId"))
        if kind in _TAKERS:
            getattr(self, _TAKERS[kind])(event)
        elif kind not in fields.OTHERS:
            self.problems.append(f"{kind!r} is no event of AG-UI 1.0.")

    def take_started(self, event: JsonObject) -> None:
        """Begin a run."""
        self._run |= {key: event[key] for key in ("threadId", "runId", "parentRunId") if event.get(key) is not None}
        given = event.get("input")
        messages = given.get("messages") if isinstance(given, dict) else None
        for message in messages if isinstance(messages, list) else ():
            self._asked.add(message.get("id") if isinstance(message, dict) else None)

    def take_finished(self, event: JsonObject) -> None:
        """End the run."""
        self._run |= {key: event[key] for key in ("outcome", "result", "usage") if event.get(key) is not None}
        self._open.clear()
        self.is_ended = event["type"] == "RUN_FINISHED"

    def _message(self, event: JsonObject, role: str, id_: Any = None, **keys: Any) -> JsonObject:
        """The message that an event is of; a new one if there is none."""
        id_ = event.get("messageId") if id_ is None else id_
        index = self._index(id_)
        if index is None:
            owner = {key: event[key] for key in ("subagentRunId", "name") if event.get(key) is not None}
            index = len(self._messages)
            self._messages.append({"id": id_, "role": role, **keys, **owner})
        self.note_change(index)
        return self._messages[index]

    def _index(self, id_: Any) -> int | None:
        places = range(len(self._messages) - 1, -1, -1)
        return next((index for index in places if self._messages[index].get("id") == id_), None)

    def take_begin(self, event: JsonObject) -> None:
        """Begin a text or reasoning."""
        is_text = event["type"].startswith("TEXT")
        role = event.get("role") or "assistant" if is_text else "reasoning"
        message = _with_metadata(self._message(event, role, content=""), event)
        if message["role"] == "activity":
            self.problems.append(f"The text of {event.get('messageId')!r} has the id of an activity.")
        else:
            self._open.add(str(event.get("messageId")))

    def take_grow(self, event: JsonObject) -> None:
        """Add to a text or reasoning."""
        if str(event.get("messageId")) not in self._open:
            self.problems.append(f"A {event['type']} of {event.get('messageId')!r} came without its start.")
            return
        message = _with_metadata(self._message(event, ""), event)
        if not isinstance(message.get("content"), str):
            message["content"] = ""
        self._texts.grow(message, "content", event.get("delta"))

    def take_end(self, event: JsonObject) -> None:
        """End a text or reasoning."""
        if str(event.get("messageId")) in self._open:
            self._texts.settle(_with_metadata(self._message(event, ""), event), "content")
            self._open.discard(str(event.get("messageId")))

    def take_sealed(self, event: JsonObject) -> None:
        """Take what only a provider reads, of a message or a call."""
        id_ = event.get("entityId")
        holder: JsonObject | None = self._calls.get(str(id_))
        if event.get("subtype") != "tool-call":
            index = self._index(id_)
            holder = None if index is None else self._messages[index]
        if holder is None:
            self.problems.append(f"The encrypted value of {id_!r} came without it.")
            return
        holder["encryptedValue"] = event.get("encryptedValue")
        self.note_change(0)

    # Calls

    def take_call(self, event: JsonObject) -> None:
        """Begin a call, in the message of the assistant that it names."""
        call_id = str(event.get("toolCallId"))
        call = self._calls.get(call_id)
        if call is None:
            parent = event.get("parentMessageId")
            index = self._index(parent)
            if parent is None or (index is not None and self._messages[index]["role"] != "assistant"):
                parent = call_id
            call = {"id": call_id, "type": "function", "function": {"name": "", "arguments": ""}}
            self._message(event, "assistant", parent).setdefault("toolCalls", []).append(call)
            self._calls[call_id] = call
        call["function"]["name"] = event.get("toolCallName")
        _with_metadata(call, event)
        self._open_calls.add(call_id)

    def _call(self, event: JsonObject) -> JsonObject | None:
        call = self._calls.get(str(event.get("toolCallId")))
        if call is None:
            self.problems.append(f"A {event['type']} of {event.get('toolCallId')!r} came without its start.")
            return None
        self.note_change(self._owner(call["id"]))
        return _with_metadata(call, event)

    def _owner(self, call_id: str) -> int:
        """The index of the message with a call; that behind the last one if there is none."""
        for index, message in enumerate(self._messages):
            if any(call["id"] == call_id for call in message.get("toolCalls") or ()):
                return index
        return len(self._messages)

    def take_arguments(self, event: JsonObject) -> None:
        """Add to the arguments of a call."""
        if (call := self._call(event)) is not None:
            self._texts.grow(call["function"], "arguments", event.get("delta"))

    def take_called(self, event: JsonObject) -> None:
        """End a call."""
        if (call := self._call(event)) is not None:
            self._texts.settle(call["function"], "arguments")
            self._open_calls.discard(call["id"])

    def take_result(self, event: JsonObject) -> None:
        """Take the output of a call, which an agent has run itself."""
        keys = {key: event[key] for key in ("toolCallId", "content", "subagentRunId") if event.get(key) is not None}
        message = {"id": event.get("messageId"), "role": event.get("role") or "tool", **keys}
        index = self._owner(str(event.get("toolCallId"))) + 1
        while index < len(self._messages) and self._messages[index]["role"] == "tool":
            index += 1
        self.note_change(min(index, len(self._messages)))
        self._messages.insert(index, _with_metadata(message, event))

    # Chunks

    def take_chunk(self, event: JsonObject) -> None:
        """Take a chunk as the beginning and the piece that it stands for."""
        begin, grow, key = fields.CHUNKS[event["type"]]
        lane = event.get("subagentRunId")
        last = self._chunked.get(lane)
        id_ = event.get(key)
        if last is None or last[0] != key + begin or id_ not in (None, last[1]):
            self._close_chunks(lane)
            if not isinstance(id_, str):
                self.problems.append(f"A {event['type']} names nothing that it goes on with.")
                return
            getattr(self, _TAKERS[begin])({**event, "type": begin})
            self._chunked[lane] = last = (key + begin, id_)
        if event.get("delta") is not None:
            plain = {name: value for name, value in event.items() if name != "metadata"}
            getattr(self, _TAKERS[grow])({**plain, "type": grow, key: last[1]})

    def _close_chunks(self, lane: Any) -> None:
        kind, id_ = self._chunked.pop(lane, ("", ""))
        if kind.startswith("toolCallId"):
            self.take_called({"type": "TOOL_CALL_END", "toolCallId": id_})
        elif kind:
            self.take_end({"type": "TEXT_MESSAGE_END", "messageId": id_})

    # Snapshots and patches

    def take_messages(self, event: JsonObject) -> None:
        """Take the messages of the thread in the place of those that have come."""
        given = event.get("messages")
        messages = [one for one in given if isinstance(one, dict)] if isinstance(given, list) else []
        users = [index for index, one in enumerate(messages) if one.get("role") == "user"]
        new = [one for one in messages[users[-1] + 1 if users else 0 :] if one.get("id") not in self._asked]
        roles = {one.get("role") for one in messages}
        ids = {one.get("id") for one in messages}
        # As the client does, which keeps what agents may leave out of their snapshots
        kept = [
            one for one in self._messages
            if one.get("id") not in ids and one["role"] in ("activity", "reasoning") and one["role"] not in roles
        ]  # fmt: skip
        self._texts.settle_all()
        self._messages = [*kept, *loads(dumps(new))]
        self._calls = {call["id"]: call for one in self._messages for call in one.get("toolCalls") or ()}
        self._open_calls &= self._calls.keys()
        self.note_change(0)

    def take_state(self, event: JsonObject) -> None:
        """Take the state of the application, or how it has changed."""
        if event["type"] == "STATE_SNAPSHOT":
            self._run["state"] = event.get("snapshot")
            return
        try:
            self._run["state"] = patched(self._run.get("state", {}), event.get("delta"))
        except ValueError as error:
            self.problems.append(f"The state was not patched: {error}.")

    def take_activity(self, event: JsonObject) -> None:
        """Take an activity; one that is there stays if it is not to be replaced."""
        index = self._index(event.get("messageId"))
        if index is None or event.get("replace", True) is not False:
            before = {} if index is None else self._messages[index]
            index = len(self._messages) if index is None else index
            message = {"id": event.get("messageId"), "role": "activity"}
            message |= {
                key: event[key] for key in ("activityType", "content", "subagentRunId") if event.get(key) is not None
            }
            if before.get("role") == "activity" and "metadata" in before:
                message["metadata"] = before["metadata"]
            self._messages[index : index + 1] = [message]
        self.note_change(index)
        _with_metadata(self._messages[index], event)

    def take_activity_delta(self, event: JsonObject) -> None:
        """Change an activity."""
        index = self._index(event.get("messageId"))
        if index is None or self._messages[index]["role"] != "activity":
            self.problems.append(f"An ACTIVITY_DELTA of {event.get('messageId')!r} came without its activity.")
            return
        message = _with_metadata(self._messages[index], event)
        self.note_change(index)
        try:
            message["content"] = patched(message.get("content") or {}, event.get("patch"))
            message["activityType"] = event.get("activityType")
        except ValueError as error:
            self.problems.append(f"The activity {event.get('messageId')!r} was not patched: {error}.")


def _with_metadata(holder: JsonObject, event: JsonObject) -> JsonObject:
    """A message or call with the metadata of an event, key by key."""
    if isinstance(event.get("metadata"), dict):
        holder["metadata"] = {**(holder.get("metadata") or {}), **event["metadata"]}
    return holder


def assembler(headers: Mapping[str, str] | None = None) -> RunAssembler:
    """Return an assembler, which combines the events of a run into a response."""
    return RunAssembler(headers)


# ---------------------------------------------------------------------------------------------------------------------
# JSON Patch, by which events change states and activities. Source: RFC 6902, RFC 6901; AG-UI 1.0, `JsonPatch`.


def patched(value: Any, patch: Any) -> Any:
    """The value that a patch makes of another one, which is not changed.

    Raises:
        ValueError: an operation is none, or does not fit.
    """
    value = loads(dumps(value))
    for operation in patch if isinstance(patch, list) else ():
        try:
            value = _applied(value, operation)
        except (KeyError, IndexError, TypeError, AttributeError) as error:
            raise ValueError(f"the operation {operation!r} does not fit") from error
    return value


def _applied(value: Any, operation: Any) -> Any:
    kind, path = operation["op"], _steps(operation["path"])
    match kind:
        case "add":
            return _put(value, path, operation["value"])
        case "replace":
            _at(value, path)
            return _put(value, path, operation["value"], is_new=False)
        case "remove":
            return _removed(value, path)
        case "move":
            source = _steps(operation["from"])
            moved = _at(value, source)
            return _put(_removed(value, source), path, moved)
        case "copy":
            return _put(value, path, loads(dumps(_at(value, _steps(operation["from"])))))
        case "test":
            if dumps(_at(value, path)) != dumps(operation["value"]):
                raise ValueError(f"{operation['path']!r} is not what it should be")
            return value
    raise ValueError(f"{kind!r} is no operation")


def _steps(pointer: str) -> list[str]:
    head, *steps = pointer.split("/")
    if head:
        raise ValueError(f"{pointer!r} is no JSON pointer")
    return [step.replace("~1", "/").replace("~0", "~") for step in steps]


def _key(holder: Any, step: str, *, is_new: bool = False) -> Any:
    """The key or index that a step names."""
    if isinstance(holder, dict):
        return step
    if is_new and step == "-":
        return len(holder)
    if not step.isdecimal() or (len(step) > 1 and step[0] == "0") or int(step) >= len(holder) + is_new:
        raise IndexError(step)
    return int(step)


def _at(value: Any, path: list[str]) -> Any:
    for step in path:
        value = value[_key(value, step)]
    return value


def _put(value: Any, path: list[str], new: Any, *, is_new: bool = True) -> Any:
    if not path:
        return new
    holder = _at(value, path[:-1])
    key = _key(holder, path[-1], is_new=is_new)
    if isinstance(holder, list) and is_new:
        holder.insert(key, new)
    else:
        holder[key] = new
    return value


def _removed(value: Any, path: list[str]) -> Any:
    if not path:
        return None
    holder = _at(value, path[:-1])
    del holder[_key(holder, path[-1])]
    return value
