"""Sessions that are recorded and imported: one conversation with one bill, also where no header names the session."""

from __future__ import annotations

import json
import re
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.server.recorder.conftest import Recorded, said
from tests.server.recorder.provider import EVENTS, JSON, Reply
from threadkeep.contrib.importers import import_from

Json = dict[str, Any]
SESSION = "0f8fad5b-d9cb-469f-a165-70867728950e"
AT = "2026-11-01T08:00:00.000Z"
MS = 1793520000000


REMINDER = "<session-context>\nToday.\n</session-context>\n"


def question(turn: int) -> str:
    return f"question {turn}"


def answer(turn: int) -> str:
    return f"answer {turn}"


def request(turns: int) -> Json:
    """A request of Chat Completions with so many questions, as all of these clients can send it."""
    messages: list[Json] = [{"role": "system", "content": "Be brief."}]
    for turn in range(turns):
        parts = [{"type": "text", "text": text} for text in (REMINDER, question(turn))]
        messages += [{"role": "user", "content": parts}, {"role": "assistant", "content": answer(turn)}]
    return {"model": "m", "messages": messages[:-1]}


def reply(turn: int) -> Reply:
    message = {"role": "assistant", "content": answer(turn)}
    body = {
        "id": f"resp_{turn}", "object": "chat.completion", "created": 1, "model": "m",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": turn + 1, "total_tokens": turn + 11},
    }  # fmt: skip
    text = json.dumps(body).encode()
    return Reply(200, {**JSON, "content-length": str(len(text))}, [text])


def pi(folder: Path, turns: int) -> None:
    """It writes the ids of answers; over Responses, a header names the session."""
    lines: list[Json] = [{"type": "session", "version": 3, "id": SESSION, "timestamp": AT, "cwd": "/w"}]
    for turn in range(turns):
        usage = {"input": 10, "output": turn + 1, "cacheRead": 0, "cacheWrite": 0}
        made = {"api": "openai-completions", "provider": "p", "model": "m", "usage": usage, "stopReason": "stop"}
        asked = {"role": "user", "content": [{"type": "text", "text": question(turn)}]}
        said = {"role": "assistant", "content": [{"type": "text", "text": answer(turn)}]}
        for message in (asked, {**said, **made, "responseId": f"resp_{turn}"}):
            parent = lines[-1]["id"] if len(lines) > 1 else None
            line = {"type": "message", "id": f"{len(lines)}", "parentId": parent, "timestamp": AT}
            lines.append({**line, "message": {**message, "timestamp": MS}})
    (folder / f"{SESSION}.jsonl").write_text("\n".join(map(json.dumps, lines)))


def cline(folder: Path, turns: int) -> None:
    """It writes no ids of answers."""
    messages: list[Json] = []
    for turn in range(turns):
        metrics = {"inputTokens": 10, "outputTokens": turn + 1, "cacheReadTokens": 0, "cacheWriteTokens": 0}
        for role, text in (("user", question(turn)), ("assistant", answer(turn))):
            message = {"id": f"{role}_{turn}", "role": role, "content": [{"type": "text", "text": text}], "ts": MS}
            model = {"modelInfo": {"id": "m", "provider": "openai-compatible"}, "metrics": metrics}
            messages.append({**message, **(model if role == "assistant" else {})})
    value = {"version": 1, "sessionId": SESSION, "messages": messages, "system_prompt": "Be brief."}
    (folder / f"{SESSION}.messages.json").write_text(json.dumps(value))


CLIENTS: dict[str, tuple[Any, dict[str, str]]] = {
    "pi, named": (pi, {"session-id": SESSION}), "pi before 1.5.1, named": (pi, {"session_id": SESSION}),
    "pi with Codex's provider, named": (pi, {"session-id": SESSION, "originator": "pi"}),
    "pi over Messages, named": (pi, {"x-session-affinity": SESSION, "user-agent": "pi/1.6.0 (linux)"}), "pi": (pi, {}),
    "cline": (cline, {}),
}  # fmt: skip
ORDERS: dict[str, list[str]] = {
    "recorded first": ["record", "record", "import", "import"],
    "imported first": ["write", "import", "record", "import"],
    "in turns": ["record", "import", "write", "import", "record", "import", "import"],
    "unrecorded turns at the end": ["record", "write", "write", "write", "write", "import", "import"],
}


@pytest.mark.share(3)
@pytest.mark.parametrize("client", CLIENTS)
@pytest.mark.parametrize("order", ORDERS)
def test_a_session_is_one_conversation_with_one_bill(
    recorded: Recorded, tmp_path: Path, client: str, order: str
) -> None:
    (write, headers), turns, calls = CLIENTS[client], 0, 0
    for step in ORDERS[order]:
        if step == "import":
            is_new = recorded.conversations() == []
            assert import_from(recorded.store, tmp_path, dry_run=True).created == is_new
            assert import_from(recorded.store, tmp_path).skipped == []
            continue
        turns += 1
        if step == "record":
            recorded.provider.says(reply(turns - 1))
            httpx2.post(f"{recorded.url}/v1/chat/completions", json=request(turns), headers=headers)
            recorded.wait_for(calls := calls + 1)
        write(tmp_path, turns)
    [conversation] = recorded.conversations()
    assert conversation.external_id == f"{write.__name__}:{SESSION}"
    lines = [line.partition(": ")[2].removeprefix(REMINDER) for line in said(conversation)]
    assert lines == [text for turn in range(turns) for text in (question(turn), answer(turn))]
    assert [branch.number for branch in conversation.branches()] == [0]
    [bill] = recorded.store.usage()
    assert (bill.attempts, bill.output_tokens) == (turns, sum(range(1, turns + 1)))
    assert not recorded.store.check().findings


CUT = "answer 0, of which"  # as far as it came
ENDED = {"displayOnly": True, "displayRole": "error"}


def broken() -> Reply:
    """A stream that breaks off before its end."""
    head = {"id": "resp_0", "object": "chat.completion.chunk", "created": 1, "model": "m"}
    deltas = [{"role": "assistant", "content": ""}, *({"content": piece} for piece in re.findall(r"\S+\s*", CUT))]
    chunks = [{**head, "choices": [{"index": 0, "delta": delta, "finish_reason": None}]} for delta in deltas]
    events = [f"data: {json.dumps(chunk)}\n\n".encode() for chunk in chunks]
    return Reply(200, {**EVENTS}, events, breaks=True)


def cut_cline(folder: Path, turns: int, kept: str) -> None:
    """It writes as much of the first answer as it has read, without usage, and the error, which is only displayed."""
    cline(folder, turns)
    file = folder / f"{SESSION}.messages.json"
    value = json.loads(file.read_text())
    value["messages"][1] |= {"content": [{"type": "text", "text": kept}]}
    value["messages"][1]["metrics"] = dict.fromkeys(value["messages"][1]["metrics"], 0)
    error = {"id": "error_0", "role": "assistant", "content": [{"type": "text", "text": "It broke."}], "ts": MS}
    value["messages"].insert(2, {**error, "metadata": ENDED})
    file.write_text(json.dumps(value))


def cut_pi(folder: Path, turns: int, kept: str) -> None:
    """It writes the answer with its error, and does not send it again."""
    pi(folder, turns)
    file = folder / f"{SESSION}.jsonl"
    lines = [json.loads(line) for line in file.read_text().splitlines()]
    usage = dict.fromkeys(lines[2]["message"]["usage"], 0)
    lines[2]["message"] |= {"content": [{"type": "text", "text": kept}], "usage": usage, "stopReason": "error"}
    file.write_text("\n".join(map(json.dumps, lines)))


BROKEN: dict[str, Any] = {"cline": cut_cline, "pi": cut_pi}


@pytest.mark.parametrize("kept", [CUT, "answer 0,"], ids=["all of it", "its beginning"])
@pytest.mark.parametrize("client", BROKEN)
@pytest.mark.parametrize("order", ORDERS)
def test_an_answer_that_broke_off_is_there_once(
    recorded: Recorded, tmp_path: Path, client: str, order: str, kept: str
) -> None:
    """As much of it as is known first, without what its client displayed; it has no usage, by either way."""
    turns, calls = 0, 0
    for step in ORDERS[order]:
        if step == "import":
            assert import_from(recorded.store, tmp_path).skipped == []
            continue
        turns += 1
        if step == "record":
            recorded.provider.says(reply(turns - 1) if turns > 1 else broken())
            asked = request(turns)
            if turns > 1 and client == "cline":
                asked["messages"][2]["content"] = kept
            elif turns > 1:
                del asked["messages"][2]
            with suppress(httpx2.RemoteProtocolError):
                httpx2.post(f"{recorded.url}/v1/chat/completions", json={**asked, "stream": True})
            recorded.wait_for(calls := calls + 1)
        BROKEN[client](tmp_path, turns, kept)
    [conversation] = recorded.conversations()
    branches = [conversation.on_branch(branch.number) for branch in conversation.branches()]
    texts = {one.position: one.item.text for branch in branches for one in branch.items()}  # type: ignore[union-attr]
    first = CUT if ORDERS[order][0] == "record" else kept
    expected = [text for turn in range(turns) for text in (question(turn), answer(turn))]
    shown = [text.removeprefix(REMINDER) for _, text in sorted(texts.items())]
    assert shown == [expected[0], first, *expected[2:]]
    [bill] = recorded.store.usage()
    assert bill.output_tokens == sum(range(2, turns + 1)) or None
    assert not recorded.store.check().findings


def test_what_others_have_is_left_alone(recorded: Recorded, tmp_path: Path) -> None:
    """Twins cannot be told apart; a conversation with a name, or of another user, is no one else's."""
    for user in ("ann", "ben"):
        recorded.provider.says(reply(0))
        httpx2.post(
            f"{recorded.url}/v1/chat/completions", json=request(1), headers={"x-threadkeep-conversation": f"of-{user}"}
        )
    recorded.wait_for(2)
    cline(tmp_path, 1)
    assert import_from(recorded.store, tmp_path).created == 1
    assert {one.external_id for one in recorded.conversations()} == {"of-ann", "of-ben", f"cline:{SESSION}"}
