"""Coding agents: small files of the shapes that real ones have write the items, usage and links that were there."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import pytest

from threadkeep import Conversation, Store
from threadkeep.contrib.importers import import_from

pytestmark = pytest.mark.one_database

Json = dict[str, Any]
AT = "2026-03-01T09:30:00.000Z"
MS = 1772357400000
SHORT = {"message": "m", "function_call": "call", "function_call_output": "output", "reasoning": "thought"}


def lines(path: Path, *values: Json) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path


def found(store: Store, id_: str) -> Conversation:
    conversation = store.find_conversation(external_id=id_)
    assert conversation is not None
    return conversation


def shown(conversation: Conversation) -> list[str]:
    """The items of the active branch, shortly."""
    texts = []
    for one in conversation.transcript():
        item = one.given()
        said = item.get("output") or item.get("name") or item.get("summary") or item.get("content") or ""
        if not isinstance(said, str):
            said = "".join(part.get("text") or part.get("thinking") or "" for part in said)
        texts.append(f"{item.get('role') or SHORT.get(item['type'], item['type'])}: {said}")
    return texts


def usage(conversation: Conversation) -> list[tuple[Any, ...]]:
    """Model, calls, input, what of it was cached, output, and reasoning."""
    return [
        (row.model, row.attempts, row.input_tokens, row.cached_tokens, row.output_tokens, row.reasoning_tokens)
        for row in conversation.usage(by=("model",))
    ]


# pi


def pi(id_: str, parent: str | None, role: str, **more: Any) -> Json:
    message = {"role": role, "timestamp": MS, **more}
    return {
        "type": "message",
        "id": id_,
        "parentId": parent,
        "timestamp": "2026-03-01T09:30:01.500Z",
        "message": message,
    }


def pi_answer(id_: str, parent: str, api: str, *content: Json, **more: Any) -> Json:
    counts = {"input": 96, "output": 7, "cacheRead": 4, "cacheWrite": 0}
    about = {"api": api, "provider": "here", "model": "m", "responseId": f"r-{id_}", "stopReason": "stop"}
    return pi(id_, parent, "assistant", **{"content": content, "usage": counts, **about, **more})


PI_APIS = {
    "openai-responses": (
        json.dumps({"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "c2ln"}), "call_1|fc_1",
        "open_responses", {"id": "fc_1", "call_id": "call_1"},
    ),
    "anthropic-messages": ("c2ln", "call_1", "messages", {"call_id": "call_1"}),
    "openai-completions": ("reasoning_content", "call_1", "chat_completion", {"call_id": "call_1"}),
}  # fmt: skip


@pytest.mark.parametrize("api", PI_APIS)
def test_pi_keeps_what_the_api_that_was_spoken_needs(target: Store, tmp_path: Path, api: str) -> None:
    signature, call_id, format_, ids = PI_APIS[api]
    thought = {"type": "thinking", "thinking": "Hm.", "thinkingSignature": signature}
    call = {"type": "toolCall", "id": call_id, "name": "bash", "arguments": {"command": "ls"}}
    path = lines(
        tmp_path / "s.jsonl",
        {"type": "session", "version": 3, "id": "s1", "timestamp": AT, "cwd": "/w", "parentSession": "/x/1_s0.jsonl"},
        {"type": "model_change", "id": "0", "parentId": None, "timestamp": AT, "modelId": "m"},
        pi("1", "0", "user", content="List."),
        pi_answer("2", "1", api, thought, call),
        pi("3", "2", "toolResult", toolCallId=call_id, content=[{"type": "text", "text": "a.txt"}]),
        pi_answer("4", "3", api, {"type": "text", "text": "Bro"}, stopReason="error", usage={"input": 0, "output": 0}),
        pi_answer("5", "4", api, {"type": "text", "text": "One."}),
        {"type": "compaction", "id": "6", "parentId": "5", "timestamp": AT, "summary": "S.", "firstKeptEntryId": "5"},
        {"type": "session_info", "id": "7", "parentId": "6", "timestamp": AT, "name": "Files"},
    )
    report = import_from(target, path)
    session = found(target, "pi:s1")
    assert (session.title, session.labels["forked-from"], session.properties["cwd"]) == ("Files", "pi:s0", "/w")
    first, called, *others = [one for one in session.transcript() if one.item.type in ("reasoning", "function_call")]
    assert first.given().get("encrypted_content", "c2ln") == "c2ln"
    assert {key: called.given()[key] for key in ids} == ids
    assert (called.item.origin, others) == (format_, [])  # type: ignore[union-attr]
    assert shown(session)[2:] == ["call: bash", "output: a.txt", "assistant: One.", "compaction: S."]
    assert "One." in str(session.request_payload("chat_completion")["messages"][-1]["content"])
    assert usage(session) == [("m", 2, 200, 8, 14, None)]
    assert [row.latency_ms for row in session.usage(by=("model",))] == [3000]
    assert [branch.fork_position for branch in session.branches()] == [
        None,
        3,
    ]  # the answer that broke off is a variant
    assert (report.skipped, import_from(target, path).conversations.unchanged) == ([], 1)


def test_pi_has_the_prompt_and_the_tools_that_the_last_system_message_left(target: Store, tmp_path: Path) -> None:
    tools = [{"name": name, "description": "D.", "parameters": {"type": "object"}} for name in ("read", "bash")]
    first = {"a": "A.", "b": "B.", "c": "C."}
    path = lines(
        tmp_path / "s.jsonl",
        {"type": "session", "version": 3, "id": "s1", "timestamp": AT, "cwd": "/w"},
        pi("1", None, "system", content="Be brief.", sections=first, toolsAdded=tools),
        pi("2", "1", "user", content="List."),
        pi_answer("3", "2", "openai-completions", {"type": "text", "text": "Left."}),
        pi("4", "3", "system", content="", sections={"a": "Another way."}),
        pi("5", "2", "system", content="", sections={"a": None, "b": "Or B."}, toolsRemoved=[{"name": "bash"}]),
        pi_answer("6", "5", "openai-completions", {"type": "text", "text": "One."}),
    )
    report = import_from(target, path)
    payload = found(target, "pi:s1").request_payload("open_responses")
    assert payload["instructions"] == "Be brief.\n\nOr B.\n\nC."
    assert [tool["name"] for tool in payload["tools"]] == ["read"]
    assert (shown(found(target, "pi:s1")), report.skipped) == (["user: List.", "assistant: One."], [])


def test_pi_counts_calls_that_are_no_answers_and_leaves_out_what_it_took_back(target: Store, tmp_path: Path) -> None:
    """A tool's own calls are of a model that the file does not name."""
    used = {"input": 5, "output": 1, "cacheRead": 0, "cacheWrite": 0}
    call = {"type": "toolCall", "id": "c", "name": "ask", "namespace": "ext", "arguments": {}}
    edits = {"type": "context_edit", "timestamp": AT, "replacement": None}
    path = lines(
        tmp_path / "s.jsonl",
        {"type": "session", "version": 3, "id": "s1", "timestamp": AT, "cwd": "/w"},
        pi("1", None, "user", content="List."),
        pi_answer("2", "1", "openai-responses", call, usage={"input": 1, "output": 9, "reasoning": 4}),
        pi("3", "2", "toolResult", toolCallId="c", content=[{"type": "text", "text": "cut"}], usage=used),
        {**edits, "id": "4", "parentId": "3", "targetId": "2"},
        {**edits, "id": "5", "parentId": "4", "targetId": "3"},
        pi_answer("6", "5", "openai-responses", {"type": "text", "text": "One."}),
        {"type": "usage", "id": "7", "parentId": "6", "timestamp": AT, "kind": "warm", "model": "w", "usage": used},
        {
            "type": "compaction", "id": "8", "parentId": "7", "timestamp": AT, "summary": "S.", "firstKeptEntryId": "8",
            "usage": used,
        },
    )  # fmt: skip
    report = import_from(target, path)
    session = found(target, "pi:s1")
    assert shown(session) == ["user: List.", "assistant: One.", "compaction: S."]
    assert session.on_branch(0).items(limit=2).items[-1].given()["namespace"] == "ext"
    assert sorted(usage(session), key=str) == [
        ("m", 3, 1 + 100 + 5, 4, 9 + 7 + 1, 4), ("w", 1, 5, 0, 1, None), (None, 1, 5, 0, 1, None),
    ]  # fmt: skip
    assert (report.skipped, import_from(target, path).attempts) == ([], 0)


# Gemini CLI


def gemini(id_: str, kind: str, content: Any, **more: Any) -> Json:
    return {"id": id_, "timestamp": AT, "type": kind, "content": content, **more}


GEMINI_CALL = {"id": "c1", "name": "ls", "args": {}}
GEMINI_RESULT = [{"functionResponse": {"id": "c1", "name": "ls", "response": {"output": "a.txt"}}}]
TOKENS = {"input": 100, "output": 5, "cached": 4, "thoughts": 2, "tool": 0, "total": 107}
GEMINI_HEAD = {"sessionId": "s1", "projectHash": "p", "startTime": AT, "kind": "main"}


def test_gemini_cli_counts_the_last_line_of_a_message_and_takes_back_what_failed(target: Store, tmp_path: Path) -> None:
    answer = {"tokens": TOKENS, "model": "gemini-3-pro", "thoughts": [{"subject": "", "description": "Hm."}]}
    history = [
        gemini("1", "user", [{"text": "List."}]),
        gemini("2", "gemini", [{"text": "Hm.", "thought": True}, {"functionCall": GEMINI_CALL}], **answer),
        gemini("2", "user", GEMINI_RESULT),
        gemini("3", "user", GEMINI_RESULT),
        gemini("4", "gemini", [{"text": "One."}], **answer),
    ]
    begun = [GEMINI_HEAD, history[0], gemini("2", "gemini", "", **answer)]
    path = lines(tmp_path / "session-1.jsonl", *begun)
    import_from(target, path)  # while the tool is running
    rest = [
        gemini("2", "gemini", "", toolCalls=[{**GEMINI_CALL, "id": "ls__c1"}], **answer), history[3],
        gemini("4", "gemini", "One.", **answer),
        {"$set": {"sessionId": "s1"}}, {"$set": {"messages": history}}, gemini("5", "user", [{"text": "Fails."}]),
        {"$set": {"messages": history}}, GEMINI_HEAD, gemini("6", "user", [{"text": "And?"}]),
        gemini("7", "gemini", "No.", tokens=TOKENS, model="gemini-3-pro"),
    ]  # fmt: skip
    lines(path, *begun, *rest)
    second = lines(tmp_path / "session-2.jsonl", GEMINI_HEAD)
    report = import_from(target, [path, second])
    session = found(target, "gemini-cli:s1")
    assert shown(session) == [
        "user: List.", "thought: Hm.", "call: ls", 'output: {"output":"a.txt"}', "thought: Hm.", "assistant: One.",
        "user: And?", "assistant: No.",
    ]  # fmt: skip
    assert {one.given().get("call_id") for one in session.transcript()} == {"c1", None}
    assert usage(session) == [("gemini-3-pro", 3, 300, 12, 21, 6)]
    assert (report.conversations.read, report.skipped) == (1, [])


# opencode


class OpencodeDatabase:
    """Its tables, with what is added to them."""

    def __init__(self, path: Path) -> None:
        self.path = path
        with sqlite3.connect(path) as connection:
            connection.execute(
                "CREATE TABLE session (id, parent_id, directory, title, agent, model, revert, time_created)"
            )
            connection.execute("CREATE TABLE message (id, session_id, time_created, data)")
            connection.execute("CREATE TABLE part (id, message_id, session_id, time_created, data)")
        connection.close()

    def add(self, table: str, **row: Any) -> None:
        values = [json.dumps(value) if isinstance(value, dict) else value for value in row.values()]
        with sqlite3.connect(self.path) as connection:
            connection.execute(f"INSERT INTO {table} ({', '.join(row)}) VALUES ({', '.join('?' * len(row))})", values)
        connection.close()

    def say(self, session: str, id_: str, at: int, data: Json, *parts: Json) -> None:
        data = {"time": {"created": at, "completed": at + 5}, **data}
        self.add("message", id=id_, session_id=session, time_created=at, data=data)
        for number, part in enumerate(parts):
            self.add("part", id=f"{id_}.{number}", message_id=id_, session_id=session, time_created=at, data=part)


OPENCODE_USAGE = {"input": 96, "output": 5, "reasoning": 2, "cache": {"read": 4, "write": 0}}
FINISH = {"type": "step-finish", "reason": "stop", "tokens": OPENCODE_USAGE}
START = {"type": "step-start"}


def opencode_turn(database: OpencodeDatabase, session: str, at: int = MS) -> None:
    """A question, and an answer that called a tool, after a try that broke off."""
    about = {"openai": {"itemId": "rs_1", "reasoningEncryptedContent": "c2ln"}}
    state = {"status": "completed", "input": {"command": "ls"}, "output": "a.txt", "time": {"end": at + 4}}
    call = {"type": "tool", "tool": "bash", "callID": "c1", "state": state, "metadata": {"openai": {"itemId": "fc_1"}}}
    database.say(session, f"{session}1", at, {"role": "user"}, {"type": "text", "text": "List."})
    database.say(
        session, f"{session}2", at + 1, {"role": "assistant", "modelID": "m", "providerID": "here", "finish": "stop"},
        START, {"type": "text", "text": "Bro"}, START, {"type": "reasoning", "text": "Hm.", "metadata": about}, call,
        FINISH,
    )  # fmt: skip


def test_opencode_has_agents_forks_and_compactions(target: Store, tmp_path: Path) -> None:
    database = OpencodeDatabase(tmp_path / "opencode.db")
    for id_, parent in (("a", None), ("agent", "a"), ("fork", None)):
        database.add(
            "session", id=id_, parent_id=parent, directory="/w", title=f"T {id_}", agent="general", time_created=MS
        )
    opencode_turn(database, "a")
    opencode_turn(database, "agent", MS + 100)
    opencode_turn(database, "fork")
    answer = {"role": "assistant", "modelID": "m", "providerID": "here", "finish": "stop", "tokens": OPENCODE_USAGE}
    database.say("a", "a3", MS + 10, {"role": "user"}, {"type": "compaction", "auto": True})
    database.say("a", "a4", MS + 11, {**answer, "summary": True}, START, {"type": "text", "text": "Files."}, FINISH)
    database.say("a", "a5", MS + 20, {**answer, "time": {"created": MS + 20}}, START, {"type": "text", "text": "Not"})
    report = import_from(target, database.path)
    session, agent, fork = (found(target, f"opencode:{id_}") for id_ in ("a", "agent", "fork"))
    turn = ["user: List.", "thought: Hm.", "call: bash", "output: a.txt"]
    assert (shown(session), shown(agent), shown(fork)) == ([*turn, "compaction: Files."], turn, turn)
    assert agent.labels == {"agent": "general", "parent": "opencode:a", "source": "opencode"}
    assert fork.labels == {"forked-from": "opencode:a", "source": "opencode"}
    assert [usage(one) for one in (session, agent, fork)] == [[("m", 2, 200, 8, 14, 4)], [("m", 1, 100, 4, 7, 2)], []]
    thought = next(one for one in session.transcript() if one.item.type == "reasoning").given()
    assert (thought["id"], thought["encrypted_content"]) == ("rs_1", "c2ln")
    assert report.reasons == {"the last answer is not finished yet": 1}
    database.add("part", id="a5.1", message_id="a5", session_id="a", data={"type": "text", "text": " yet."})
    ended = {**answer, "time": {"created": MS + 20, "completed": MS + 30}}
    with sqlite3.connect(database.path) as connection:
        connection.execute("UPDATE message SET data = ? WHERE id = 'a5'", [json.dumps(ended)])
    connection.close()
    assert import_from(target, database.path).items.stored == 1
    assert shown(session)[-1] == "assistant: Not yet."


# qwen-code


def qwen(uuid: str, parent: str | None, kind: str, parts: list[Json] | None = None, **more: Any) -> Json:
    role = "model" if kind == "assistant" else "user"
    said = {} if parts is None else {"message": {"role": role, "parts": parts}}
    return {"uuid": uuid, "parentUuid": parent, "sessionId": "s1", "timestamp": AT, "type": kind, **said, **more}


def qwen_call(uuid: str, parent: str, number: int, **more: Any) -> Json:
    event = {
        "event.name": "qwen-code.api_response", "event.timestamp": AT, "response_id": f"resp_{number}", "model": "m",
        "duration_ms": 20, "ttft_ms": 10, "input_token_count": number, "output_token_count": 7,
        "cached_content_token_count": 4, "thoughts_token_count": 2, "auth_type": "openai", **more,
    }  # fmt: skip
    return qwen(uuid, parent, "system", subtype="ui_telemetry", systemPayload={"uiEvent": event})


def qwen_usage(number: int) -> Json:
    counts = {
        "promptTokenCount": number,
        "candidatesTokenCount": 7,
        "cachedContentTokenCount": 4,
        "thoughtsTokenCount": 2,
    }
    return {"usageMetadata": counts}


def test_qwen_code_counts_side_calls_and_agents_once(target: Store, tmp_path: Path) -> None:
    thought, call = {"text": "Hm.", "thought": True}, {"functionCall": {"id": "c1", "name": "agent", "args": {}}}
    result = {"functionResponse": {"id": "c1", "name": "agent", "response": {"output": "Done."}}}
    agent = {"agentId": "agent-1", "agentName": "general", "isSidechain": True}
    of_agent = {"subagent_id": "agent-1", "subagent_name": "general"}
    path = lines(
        tmp_path / "p/chats/s1.jsonl",
        qwen("1", None, "user", [{"text": "Ask one."}]),
        qwen_call("2", "1", 100),
        qwen("3", "2", "assistant", [thought, call], **qwen_usage(100)),
        qwen_call("4", "3", 200, **of_agent),
        qwen("5", "4", "tool_result", [result]),
        qwen_call("6", "5", 300, subagent_id="memory-1"),
        qwen_call("6e", "6", 0, output_token_count=0, **{"event.name": "qwen-code.api_error", "error_message": "No."}),
        *(
            qwen(uuid, parent, "system", subtype="chat_compression", systemPayload={
                "compressedHistory": [{"role": "user", "parts": [{"text": text}]}],
            })
            for uuid, parent, text in (("6c", "6e", "Ask one."), ("7", "6c", "Asked."))  # first, outputs were cut
        ),
    )  # fmt: skip
    lines(
        tmp_path / "p/subagents/s1/agent-agent-1.jsonl",
        qwen("a", None, "user", [{"text": "Well?"}], **agent),
        qwen("b", "a", "assistant", [thought], **agent, **qwen_usage(200)),
        qwen("c", "b", "assistant", [{"text": "Done."}], **agent),
    )
    report = import_from(target, tmp_path)
    session, other = found(target, "qwen-code:s1"), found(target, "qwen-code:s1/agent-1")
    assert shown(session) == ["user: Ask one.", "thought: Hm.", "call: agent", "output: Done.", "compaction: Asked."]
    assert shown(other) == ["user: Well?", "thought: Hm.", "assistant: Done."]
    assert (other.labels["parent"], other.labels["agent"]) == ("qwen-code:s1", "general")
    assert (usage(session), usage(other)) == ([("m", 3, 400, 8, 14, 4)], [("m", 1, 200, 4, 7, 2)])
    assert (report.attempts, report.responses.stored, report.skipped) == (4, 2, [])
    lines(path, *map(json.loads, path.read_text().splitlines()), qwen_call("8", "7", 400))
    again = import_from(target, path)  # a side call alone is new
    assert (again.attempts, again.conversations.unchanged) == (1, 1)


# cline

PROMPT = '<user_input mode="act">List.</user_input>'


def test_cline_shows_errors_that_no_model_said(target: Store, tmp_path: Path) -> None:
    """An answer right before one broke off; one that was not begun is nowhere."""
    none = dict.fromkeys(("inputTokens", "outputTokens", "cacheReadTokens", "cacheWriteTokens"), 0)
    begun = {"content": [{"type": "text", "text": "Bro"}], "modelInfo": {"id": "m"}, "metrics": none}
    error = {"content": "No connection.", "metadata": {"displayOnly": True, "displayRole": "error"}}
    messages = [
        {"id": "1", "role": "user", "content": PROMPT}, {"id": "2", "role": "assistant", **begun},
        {"id": "3", "role": "assistant", **error}, {"id": "4", "role": "user", "content": "Again."},
        {"id": "5", "role": "assistant", **error},
    ]  # fmt: skip
    (tmp_path / "s1.messages.json").write_text(json.dumps({"sessionId": "s1", "messages": messages}))
    report = import_from(target, tmp_path)
    session = found(target, "cline:s1")
    assert shown(session) == ["user: List.", "assistant: Bro", "user: Again."]
    assert [one.status for one in session.responses()] == ["incomplete"]
    assert (report.skipped, usage(session)) == ([], [])


def test_cline_is_read_with_the_file_about_the_session(target: Store, tmp_path: Path) -> None:
    metrics = {"inputTokens": 100, "outputTokens": 7, "cacheReadTokens": 4, "cacheWriteTokens": 0}
    answer = {"modelInfo": {"id": "m", "provider": "openai-compatible"}, "metrics": metrics}
    call = {"type": "tool_use", "id": "c1", "name": "run_commands", "input": {"commands": ["ls"]}}
    result = [{"query": "ls", "result": "a.txt", "success": True}]
    messages = [
        {"id": "1", "role": "user", "content": [{"type": "text", "text": PROMPT}], "ts": MS},
        {
            "id": "2",
            "role": "assistant",
            "content": [{"type": "thinking", "thinking": "Hm."}, call],
            "ts": MS + 9,
            **answer,
        },
        {
            "id": "3",
            "role": "user",
            "content": [{"type": "tool_result", "tool_use_id": "c1", "content": result}],
            "ts": MS,
        },
    ]
    value = {
        "version": 1,
        "updated_at": AT,
        "agent": "lead",
        "sessionId": "s1",
        "messages": messages,
        "system_prompt": "Be.",
    }
    about = {
        "session_id": "s1",
        "parent_session_id": "s0",
        "agent_id": "a1",
        "started_at": AT,
        "metadata": {"title": "T"},
    }
    (tmp_path / "s1.messages.json").write_text(json.dumps(value))
    (tmp_path / "s1.json").write_text(json.dumps(about))
    report = import_from(target, tmp_path / "s1.messages.json")
    session = found(target, "cline:s1")
    assert shown(session) == [
        "user: List.", "thought: Hm.", "call: run_commands", 'output: [{"query":"ls","result":"a.txt","success":true}]',
    ]  # fmt: skip
    assert (session.title, session.instructions, session.labels["parent"]) == ("T", "Be.", "cline:s0")
    assert (usage(session), report.skipped) == ([("m", 1, 100, 4, 7, None)], [])


# All of them


def broken(path: Path) -> list[Path]:
    """Damaged files of each agent, and one that is whole."""
    files = {
        "pi": {"type": "session", "id": "s", "timestamp": AT, "cwd": "/w"}, "gemini-cli": GEMINI_HEAD,
        "qwen-code": qwen("1", None, "user", [{"text": 1}, {"functionCall": 2}]),
    }  # fmt: skip
    odd: list[Json] = [
        {"id": [], "type": "message", "message": 3}, {"id": "1", "type": "gemini", "content": 4, "toolCalls": [5]},
        {"uuid": "1", "type": "assistant", "message": {"parts": [6, {"functionCall": []}]}, "usageMetadata": []},
        {"$set": {"messages": [7, {"id": 8}]}},
        {"id": "2", "type": "message", "message": {"role": "assistant", "content": [9]}},
    ]  # fmt: skip
    paths = [lines(path / f"{name}.jsonl", head, *odd) for name, head in files.items()]
    for one in paths:
        one.write_bytes(one.read_bytes() + b'{"cut": off')
    (path / "x.messages.json").write_text('{"sessionId": "x", "messages": [3, {"role": "assistant", "content": [4]}]}')
    (path / "y.messages.json").write_text('{"sessionId": "y", "messages": [')
    whole = lines(path / "whole.jsonl", {**GEMINI_HEAD, "sessionId": "whole"}, gemini("1", "user", [{"text": "Hi."}]))
    return [*paths, path / "x.messages.json", path / "y.messages.json", whole]


def test_damaged_files_hide_no_others(target: Store, tmp_path: Path) -> None:
    report = import_from(target, broken(tmp_path))
    assert shown(found(target, "gemini-cli:whole")) == ["user: Hi."]
    assert any("y.messages.json" in one.where for one in report.skipped)


ODD: Any = 5
CIRCLE = [
    {"type": "session", "id": "s", "timestamp": AT, "cwd": "/w"}, pi("1", "3", "user", content="One."),
    pi("2", "1", "user", content="Two."), pi("3", "2", "user", content="Three."),
    pi("4", None, "user", content="Four."),
]  # fmt: skip
GEMINI_ANSWER = {"model": "gemini-3-pro", "tokens": TOKENS}


@pytest.mark.parametrize(
    ("values", "texts", "why"),
    [
        (CIRCLE, ["One.", "Two.", "Three.", "Four."], "it follows itself; it begins a branch"),
        (
            [*CIRCLE[:1], pi_answer("1", "", "openai-responses", {"type": "text", "text": "One."}, ODD)],
            ["One."], "a part of a message is not an object",
        ),
        (
            [GEMINI_HEAD, gemini("1", "user", [{"text": "One."}, 7]), gemini("2", "gemini", "Two.", **GEMINI_ANSWER)],
            ["One.", "Two."], "a part of a message is not an object",
        ),
        (
            [GEMINI_HEAD, gemini("1", "gemini", "One.", toolCalls=[8, GEMINI_CALL], thoughts=[9], **GEMINI_ANSWER)],
            ["One.", "ls"], "a part of a message is not an object",
        ),
    ],
    ids=["pi in a circle", "pi", "gemini, a part", "gemini, a call"],
)  # fmt: skip
def test_what_is_damaged_is_reported_and_the_rest_is_there(
    target: Store, tmp_path: Path, values: list[Json], texts: list[str], why: str
) -> None:
    path = lines(tmp_path / "session.jsonl", *values)
    report = import_from(target, path)
    [conversation] = target.list_conversations()
    branches = [conversation.on_branch(branch.number) for branch in conversation.branches()]
    said = {one.position: one.given() for branch in branches for one in branch.items(limit=100)}
    shown = [item.get("name") or item["content"][0]["text"] for item in said.values() if item["type"] != "reasoning"]
    assert sorted(shown) == sorted(texts)
    assert [*report.reasons] == [why]
    assert import_from(target, path).items.stored == 0
