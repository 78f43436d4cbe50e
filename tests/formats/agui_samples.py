"""Messages and events of AG-UI: threads as clients keep them, and streams as agents send them."""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

PNG = "iVBORw0KGgo="
META: Json = {"acme": {"list": [1, None, {"deep": True}]}}


def user(content: Any = "Weather?", **keys: Any) -> Json:
    return {"id": "u1", "role": "user", "content": content, **keys}


def call(id_: str = "c1", arguments: str = '{"city": "Kiel"}', **keys: Any) -> Json:
    return {"id": id_, "type": "function", "function": {"name": "weather", "arguments": arguments}, **keys}


def assistant(content: str | None = None, *calls: Json, **keys: Any) -> Json:
    said = {} if content is None else {"content": content}
    return {"id": "a1", "role": "assistant", **said, **({"toolCalls": [*calls]} if calls else {}), **keys}


def tool(content: Any = "4", call_id: str = "c1", **keys: Any) -> Json:
    return {"id": f"t-{call_id}", "role": "tool", "toolCallId": call_id, "content": content, **keys}


THOUGHT: Json = {"id": "r1", "role": "reasoning", "content": "Hm."}
PLAN: Json = {"id": "p1", "role": "activity", "activityType": "PLAN", "content": {"steps": [{"title": "Look"}]}}
PARTS: list[Json] = [
    {"type": "text", "text": "And this?", "id": "x", "metadata": META},
    {"type": "image", "source": {"type": "data", "value": PNG, "mimeType": "image/png"}, "metadata": META},
    {"type": "image", "source": {"type": "url", "value": "https://img.example.org/a.png"}},
    {"type": "audio", "source": {"type": "data", "value": "UklGRg==", "mimeType": "audio/wav"}},
    {"type": "video", "source": {"type": "url", "value": "https://img.example.org/a.mp4", "mimeType": "video/mp4"}},
    {"type": "document", "id": "d", "source": {"type": "data", "value": "JVBERi0=", "mimeType": "application/pdf"},
     "metadata": {"filename": "a.pdf"}},
    {"type": "document", "source": {"type": "file", "value": "file-1", "provider": "openai"}},
]  # fmt: skip
# threads: what clients keep of them
THREADS: dict[str, list[Json]] = {
    "plain": [user(), assistant("Rain.")],
    "all roles": [
        {"id": "s", "role": "system", "content": "Be brief.", "metadata": META},
        {"id": "d", "role": "developer", "content": "Use tools.", "name": "dev"},
        user(name="Ann"), {**THOUGHT, "encryptedValue": "c2ln"}, assistant("Let me see.", call(), call("c2")), tool(),
        tool([PARTS[0], PARTS[1]], "c2"), PLAN, assistant("Rain.", id="a2", subagentRunId="sub1"),
    ],
    "parts": [user(PARTS), assistant("A sun.")],
    "calls": [
        user(), assistant(None, call(arguments="{", encryptedValue="c2ln", metadata=META), call("c2")),
        tool("", error="Away."), tool("Half.", "c2", error="Cut."), assistant("", call("c3")), tool("", "c3"),
    ],
    "waiting": [user(), assistant("", call())],
    "empty": [user(""), assistant(""), {**THOUGHT, "content": ""}, assistant(None, id="a2")],
    "nothing": [user(), assistant("Rain.", toolCalls=[]), {**assistant(None, id="a2"), "content": None}],
}  # fmt: skip
# what is of no version that is known: kept, and no other format's
STRANGE: list[Json] = [
    {"id": "h", "role": "hologram", "content": "Hi"},
    user([{"type": "smell", "source": {"type": "url", "value": "x:y"}}]),
    user(7),
    assistant("Hi", mood="calm"),
    assistant(None, {**call(), "type": "spell"}),
    assistant(None, {"id": "c", "type": "function", "function": {"name": "f", "arguments": {}}}),
    {"id": "t", "role": "tool", "content": "4"},
    user([{"type": "binary", "mimeType": "image/png", "data": PNG}]),
]

# Streams

STARTED: Json = {"type": "RUN_STARTED", "threadId": "t", "runId": "r"}
FINISHED: Json = {"type": "RUN_FINISHED", "threadId": "t", "runId": "r"}


def text(id_: str, *deltas: str, kind: str = "TEXT_MESSAGE", **keys: Any) -> list[Json]:
    begin = {"type": f"{kind}_START", "messageId": id_, **({"role": "reasoning"} if kind != "TEXT_MESSAGE" else {})}
    contents = [{"type": f"{kind}_CONTENT", "messageId": id_, "delta": delta, **keys} for delta in deltas]
    return [{**begin, **keys}, *contents, {"type": f"{kind}_END", "messageId": id_, **keys}]


def called(id_: str, *deltas: str, **keys: Any) -> list[Json]:
    begin = {"type": "TOOL_CALL_START", "toolCallId": id_, "toolCallName": "weather", **keys}
    return [
        begin, *({"type": "TOOL_CALL_ARGS", "toolCallId": id_, "delta": delta} for delta in deltas),
        {"type": "TOOL_CALL_END", "toolCallId": id_},
    ]  # fmt: skip


def result(id_: str, content: Any = "4") -> Json:
    return {"type": "TOOL_CALL_RESULT", "messageId": f"t-{id_}", "toolCallId": id_, "content": content}


STREAMS: dict[str, list[Json]] = {
    "text": text("a1", "Ra", "in."),
    "reasoning": [
        {"type": "REASONING_START", "messageId": "r"}, *text("r1", "H", "m.", kind="REASONING_MESSAGE"),
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "message", "entityId": "r1", "encryptedValue": "c2ln"},
        {"type": "REASONING_END", "messageId": "r"}, *text("a1", "Rain."),
    ],
    "calls": [
        *text("a1", "Let me see."), *called("c1", '{"city": ', '"Kiel"}', parentMessageId="a1"), *called("c2", "{}"),
        *called("c3", parentMessageId="a3"),
        {"type": "REASONING_ENCRYPTED_VALUE", "subtype": "tool-call", "entityId": "c2", "encryptedValue": "c2ln"},
        result("c1"), result("c2", [PARTS[0]]), *text("a4", "Cold."),
    ],
    "chunks": [
        {"type": "REASONING_MESSAGE_CHUNK", "messageId": "r1", "delta": "H"},
        {"type": "REASONING_MESSAGE_CHUNK", "delta": "m."},
        {"type": "TEXT_MESSAGE_CHUNK", "messageId": "a1", "role": "assistant", "delta": "Let "},
        {"type": "TEXT_MESSAGE_CHUNK", "delta": "me see."},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "c1", "toolCallName": "weather", "parentMessageId": "a1",
         "delta": '{"city"'},
        {"type": "TOOL_CALL_CHUNK", "delta": ': "Kiel"}'},
        {"type": "TOOL_CALL_CHUNK", "toolCallId": "c2", "toolCallName": "weather", "delta": "{}"},
    ],
    "metadata": [
        {"type": "TEXT_MESSAGE_START", "messageId": "a1", "role": "assistant", "name": "Bot",
         "metadata": {"a": {"b": 1}}},
        {"type": "TEXT_MESSAGE_CONTENT", "messageId": "a1", "delta": "Hi", "metadata": {"c": 2}},
        {"type": "TEXT_MESSAGE_END", "messageId": "a1", "metadata": {"a": {"d": 3}}},
    ],
    "agents": [
        {"type": "SUBAGENT_STARTED", "subagentRunId": "s1", "name": "Researcher"},
        {"type": "STEP_STARTED", "stepName": "look", "subagentRunId": "s1"},
        *text("a1", "Found.", subagentRunId="s1"),
        {"type": "STEP_FINISHED", "stepName": "look", "subagentRunId": "s1"},
        {"type": "SUBAGENT_FINISHED", "subagentRunId": "s1", "outcome": {"type": "success"}},
        *text("a2", "So it is."),
    ],
    "activities": [
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "p1", "activityType": "PLAN", "content": PLAN["content"]},
        {"type": "ACTIVITY_DELTA", "messageId": "p1", "activityType": "PLAN", "patch": [
            {"op": "add", "path": "/steps/-", "value": {"title": "Tell"}},
            {"op": "replace", "path": "/steps/0/title", "value": "Looked"},
            {"op": "copy", "from": "/steps/0", "path": "/first"}, {"op": "move", "from": "/first", "path": "/a~1b"},
            {"op": "test", "path": "/a~1b/title", "value": "Looked"}, {"op": "remove", "path": "/steps/1"},
        ]},
        {"type": "ACTIVITY_SNAPSHOT", "messageId": "p1", "activityType": "PLAN", "content": {}, "replace": False},
        *text("a1", "Done."),
    ],
    "snapshot": [
        *text("r1", "Hm.", kind="REASONING_MESSAGE"), *text("a1", "Wrong."),
        {"type": "MESSAGES_SNAPSHOT", "messages": [user(), assistant("Right.", call()), tool()]},
        *text("a2", "Cold."),
    ],
    "others": [
        {"type": "RAW", "event": {"any": 1}, "source": "langgraph"}, {"type": "CUSTOM", "name": "x", "value": None},
        {"type": "STATE_SNAPSHOT", "snapshot": {"a": [1]}},
        {"type": "STATE_DELTA", "delta": [{"op": "add", "path": "/a/0", "value": 0}]}, *text("a1", "Hi"),
    ],
}  # fmt: skip
