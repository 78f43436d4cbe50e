"""Sessions of Claude Code: lines, answers in pieces, rewinds, agents, growth."""

from __future__ import annotations

import json
from pathlib import Path
from random import Random
from typing import Any
from uuid import UUID

import pytest

from tests.contrib.importers.claude_code_files import BEGUN, Session, a_session
from threadkeep import Conversation, Message, Store
from threadkeep.contrib.importers import SourceReport, import_from
from threadkeep.store.work.validation import MAX_TITLE

pytestmark = pytest.mark.one_database


def texts_of(conversation: Conversation) -> list[str]:
    return [item.item.text for item in conversation.items(limit=1000) if isinstance(item.item, Message)]


def written(folder: Path, session: Session) -> Path:
    path = folder / f"{session.id}.jsonl"
    path.write_text(session.text())
    return path


def found(store: Store, session: Session) -> Conversation:
    conversation = store.find_conversation(external_id=f"claude-code:{session.id}")
    assert conversation is not None
    return conversation


def counts(report: SourceReport) -> dict[str, dict[str, int]]:
    return {name: getattr(report, name).values() for name in ("conversations", "items", "responses")}


@pytest.mark.parametrize("seed", range(4))
def test_everything_is_stored_once(target: Store, tmp_path: Path, seed: int) -> None:
    session = a_session(seed, turns=8)
    path = written(tmp_path, session)
    first, second = import_from(target, path), import_from(target, path)

    assert first.items.values() == {"stored": session.items, "unchanged": 0, "skipped": 0}
    assert first.responses.stored == first.attempts == session.responses
    assert first.reasons.get("it is not JSON", 0) == session.broken
    assert second.items.values() == {"stored": 0, "unchanged": session.items, "skipped": 0}
    assert (second.responses.unchanged, second.attempts) == (session.responses, 0)
    assert texts_of(found(target, session)) == session.texts
    assert sum(row.output_tokens or 0 for row in target.usage()) == session.output_tokens
    assert not target.check().findings


@pytest.mark.parametrize("seed", range(4))
def test_a_session_that_grows_gets_what_is_new(target: Store, tmp_path: Path, seed: int) -> None:
    session = a_session(seed, turns=4)
    before = import_from(target, written(tmp_path, session))
    for _ in range(3):
        stored, read = session.items, session.responses
        session.grow(2)
        report = import_from(target, written(tmp_path, session))
        assert report.items.values() == {"stored": session.items - stored, "unchanged": stored, "skipped": 0}
        assert report.attempts == session.responses - read
        assert texts_of(found(target, session)) == session.texts
    assert before.created == 1
    assert sum(row.output_tokens or 0 for row in target.usage()) == session.output_tokens
    assert not target.check().findings


def test_a_file_that_is_read_while_it_is_written_loses_nothing(target: Store, tmp_path: Path) -> None:
    """Wherever the file ends at the moment, even within an answer or a line."""
    session = a_session(7, turns=3)
    text = session.text()
    path = tmp_path / f"{session.id}.jsonl"
    for end in range(0, len(text), 997):
        path.write_text(text[:end])
        if end:
            import_from(target, path, "claude-code")
    path.write_text(text)
    import_from(target, path)
    assert texts_of(found(target, session)) == session.texts
    assert target.statistics().items == session.items
    assert not target.check().findings


@pytest.mark.parametrize("is_read_between", [False, True])
def test_calls_of_one_answer_are_one_response_though_results_stand_between(
    target: Store, tmp_path: Path, *, is_read_between: bool
) -> None:
    """As it was sent, and counted once; what an import has stored before the next call came stays beside it."""
    session = Session(Random(14))
    session.prompt("Look")
    session.answer(None, calls=2)
    head, one, other = session.lines[:2], session.lines[2:4], session.lines[4:]
    result = json.loads(other[0])
    session.lines = [*head, one[0], other[0], json.dumps(json.loads(one[1]) | {"parentUuid": result["uuid"]}), other[1]]
    session.last = session.line("system", None, session.last, subtype="turn_duration")
    session.answer("Seen")
    lines = session.lines
    if is_read_between:
        session.lines = lines[:4]
        import_from(target, written(tmp_path, session))
        session.lines = lines
    for _ in range(2):
        report = import_from(target, written(tmp_path, session))
    conversation = found(target, session)
    kinds = ["message", "reasoning", *("function_call",) * 2, *("function_call_output",) * 2, "reasoning", "message"]
    assert [item.item.type for item in conversation.items()] == kinds
    assert len({one.provider_response_id for one in conversation.responses()}) == 2
    assert [one.status for one in conversation.responses()] == ["completed"] * (3 if is_read_between else 2)
    assert conversation.usage().attempts == 2
    assert is_read_between or conversation.usage().output_tokens == session.output_tokens
    assert (report.items.stored, report.attempts, report.skipped) == (0, 0, [])
    assert not target.check().findings


def test_times_models_and_places_are_those_of_the_session(target: Store, tmp_path: Path) -> None:
    session = a_session(1)
    import_from(target, written(tmp_path, session), user="ada")
    conversation = found(target, session)
    assert (conversation.user_id, conversation.created_at) == ("ada", BEGUN)
    assert conversation.labels == {"source": "claude-code"}
    assert conversation.properties == {"cwd": "/srv/ada/shop", "git_branch": "main", "version": "2.0.14"}
    times = [item.created_at for item in conversation.items(limit=1000)]
    assert times == sorted(times, key=str)
    assert times[0] == BEGUN
    assert {response.model for response in conversation.responses()} == {"claude-sonnet-4-5"}
    assert {row.day for row in target.usage(by="day")} == {BEGUN.date()}


def test_a_dry_run_says_the_same_and_writes_nothing(target: Store, tmp_path: Path) -> None:
    session = a_session(2)
    path = written(tmp_path, session)
    dry, wet = import_from(target, path, dry_run=True), import_from(target, path)
    assert counts(dry) == counts(wet)
    assert dry.is_dry_run
    assert dry.attempts == 0
    assert counts(import_from(target, path, dry_run=True)) == counts(import_from(target, path))


def test_a_dry_run_writes_nothing(target: Store, tmp_path: Path) -> None:
    import_from(target, written(tmp_path, a_session(2)), dry_run=True)
    assert not list(target.list_conversations())


def test_what_was_said_in_threadkeep_meanwhile_stays_on_its_branch(target: Store, tmp_path: Path) -> None:
    session = Session(Random(3))
    session.prompt("Hello")
    session.answer("Hello!")
    import_from(target, written(tmp_path, session))
    found(target, session).user("continued here")
    session.prompt("continued there")
    session.answer("I see.")
    import_from(target, written(tmp_path, session))

    conversation = found(target, session)
    assert texts_of(conversation) == ["Hello", "Hello!", "continued there", "I see."]
    assert texts_of(conversation.on_branch(0)) == ["Hello", "Hello!", "continued here"]


def test_a_resumed_session_does_not_count_usage_again(target: Store, tmp_path: Path) -> None:
    """Its file begins with a copy of the lines of the other one."""
    session = a_session(4)
    import_from(target, written(tmp_path, session))
    resumed = Session(Random(99))
    resumed.lines = [line.replace(session.id, resumed.id) for line in session.lines]
    report = import_from(target, written(tmp_path, resumed))
    assert (report.items.stored, report.responses.stored, report.attempts) == (session.items, session.responses, 0)


def test_agents_of_a_session_are_conversations_of_their_own(target: Store, tmp_path: Path) -> None:
    session = Session(Random(5))
    session.prompt("Review it")
    session.line("user", {"role": "user", "content": "You review"}, None, isSidechain=True, agentId="a1b2")
    session.answer("Done")
    import_from(target, written(tmp_path, session))
    agent = target.find_conversation(external_id=f"claude-code:{session.id}/a1b2")
    assert agent is not None
    assert (texts_of(agent), agent.labels["parent"]) == (["You review"], f"claude-code:{session.id}")
    assert texts_of(found(target, session)) == ["Review it", "Done"]


def test_the_title_of_the_user_goes_before_others(target: Store, tmp_path: Path) -> None:
    session = a_session(6)
    session.lines.append(json.dumps({"type": "custom-title", "customTitle": "Shop", "sessionId": session.id}))
    session.lines.append(json.dumps({"type": "ai-title", "aiTitle": "About a shop", "sessionId": session.id}))
    import_from(target, written(tmp_path, session))
    assert found(target, session).title == "Shop"


def test_a_title_is_cut_where_it_is_too_long(target: Store, tmp_path: Path) -> None:
    session = a_session(6)
    session.lines.append(json.dumps({"type": "custom-title", "customTitle": "x" * 5_000, "sessionId": session.id}))
    import_from(target, written(tmp_path, session))
    assert found(target, session).title == "x" * (MAX_TITLE - 1) + "…"


def test_a_compacted_session_stays_one_conversation(target: Store, tmp_path: Path) -> None:
    session = Session(Random(8))
    session.prompt("First")
    session.answer("Yes")
    session.last = session.line("system", None, None, subtype="compact_boundary", logicalParentUuid=session.last)
    session.last = session.line("user", {"role": "user", "content": "A summary"}, session.last, isCompactSummary=True)
    session.prompt("Go on")
    import_from(target, written(tmp_path, session))
    conversation = found(target, session)
    assert texts_of(conversation) == ["First", "Yes", "Go on"]
    request = str(conversation.request_payload("messages")["messages"])
    assert [text in request for text in ("First", "A summary", "Go on")] == [False, True, True]


def costs(session: Session, calls: int, output: int) -> None:
    """The running totals of a session: so many calls with 9 tokens in, and the tokens out."""
    usage = {"inputTokens": 9 * calls, "outputTokens": output, "cacheReadInputTokens": 0}
    totals = {"type": "cost-state", "sessionId": session.id, "modelUsage": {"claude-sonnet-4-5": usage}}
    session.lines.append(json.dumps(totals))


def test_a_compaction_keeps_what_it_preserves_and_its_call_counts(target: Store, tmp_path: Path) -> None:
    session = Session(Random(9))
    session.prompt("First")
    session.answer("Yes")
    costs(session, 1, session.output_tokens)
    anchor, preserved = str(UUID(int=7)), session.last
    metadata = {"preservedMessages": {"anchorUuid": anchor, "uuids": [preserved]}}
    boundary = session.line(
        "system", None, None, subtype="compact_boundary", logicalParentUuid=session.last, compactMetadata=metadata
    )
    session.line("user", {"role": "user", "content": "A summary"}, boundary, isCompactSummary=True, uuid=anchor)
    costs(session, 2, session.output_tokens + 33)
    session.last = anchor
    session.prompt("Go on")
    for _ in range(2):
        report = import_from(target, written(tmp_path, session))
    conversation = found(target, session)
    contents = [str(one["content"]) for one in conversation.request_payload("messages")["messages"]]
    kept = ("A summary", "Yes", "Go on")
    assert all(text in content for content, text in zip(contents, kept, strict=True))
    assert (conversation.usage().attempts, conversation.usage().output_tokens) == (2, session.output_tokens + 33)
    assert (report.items.stored, report.attempts, report.skipped) == (0, 0, [])


def test_errors_of_the_api_are_calls_and_no_messages(target: Store, tmp_path: Path) -> None:
    session = Session(Random(10))
    session.prompt("First")
    error = {"message": "Overloaded", "status": 529}
    session.last = session.line("system", None, session.last, subtype="api_error", error=error)
    told = {"id": "x", "role": "assistant", "model": "<synthetic>", "content": [{"type": "text", "text": "API Error"}]}
    session.last = session.line("assistant", told, session.last, isApiErrorMessage=True)
    session.prompt("Again")
    session.answer("Yes")
    import_from(target, written(tmp_path, session))
    conversation = found(target, session)
    assert texts_of(conversation) == ["First", "Again", "Yes"]
    attempts = {row.status: row.attempts for row in conversation.usage(by=("status",))}
    assert attempts == {"failed": 2, "completed": 1}


def test_what_the_program_says_has_it_as_its_author(target: Store, tmp_path: Path) -> None:
    """It is sent as it is; previews are without it, and without blocks of the program."""
    session = Session(Random(12))
    session.prompt("Typed.")
    resume = {"role": "user", "content": "Your answer was cut off. Go on."}
    none = {"id": "x", "role": "assistant", "model": "<synthetic>", "content": [{"type": "text", "text": "None."}]}
    session.last = session.line("user", resume, session.last, isMeta=True)
    session.last = session.line("assistant", none, session.last)
    command = "<command-name>/compact</command-name>\n<command-args></command-args>"
    session.last = session.line("user", {"role": "user", "content": command}, session.last)
    import_from(target, written(tmp_path, session))
    conversation = found(target, session)
    authors = [None, "program:claude-code", "program:claude-code", None]
    assert [one.author_id for one in conversation.items()] == authors
    assert [one.preview for one in target.list_summaries()] == ["Typed."]
    conversation.update(model="claude-sonnet-5")
    assert resume["content"] in str(conversation.request_payload("messages")["messages"])


def test_an_agent_has_its_type_its_call_and_its_request(target: Store, tmp_path: Path) -> None:
    session = Session(Random(11))
    session.line("user", {"role": "user", "content": "Do it"}, None, isSidechain=True, agentId="a1")
    tool = {"name": "Read", "description": "Reads.", "input_schema": {"type": "object"}}
    shape = {"system": [{"type": "text", "text": "You are an agent."}], "tools": [tool]}
    params = {"model": "claude-sonnet-4-5", "max_tokens": 64, "betas": ["x"]}
    for line in ({"type": "api-request-shape", "shape": shape}, {"type": "api-request", "params": params}):
        session.lines.append(json.dumps({**line, "sessionId": session.id}))
    (tmp_path / "agent-a1.jsonl").write_text(session.text())
    about = {"agentType": "Explore", "description": "Looks", "toolUseId": "toolu_1"}
    (tmp_path / "agent-a1.meta.json").write_text(json.dumps(about))
    report = import_from(target, tmp_path)
    agent = target.find_conversation(external_id=f"claude-code:{session.id}/a1")
    assert agent is not None
    assert {"agent": "a1", "parent": f"claude-code:{session.id}"}.items() <= agent.labels.items()
    assert {"agent_type": "Explore", "call_id": "toolu_1"}.items() <= agent.properties.items()
    request = agent.request_payload("messages")
    assert (request["system"], request["max_tokens"], request["tools"]) == (shape["system"], 64, [tool])
    assert report.skipped == []


def test_a_fork_leaves_the_usage_of_its_copies_to_the_session_that_it_is_from(target: Store, tmp_path: Path) -> None:
    session = Session(Random(12))
    session.prompt("First")
    session.answer("Yes")
    fork = Session(Random(13), last=session.last)
    for line in map(json.loads, session.lines):
        fork.lines.append(json.dumps({**line, "sessionId": fork.id, "requestSessionId": session.id}))
    fork.prompt("Other")
    fork.answer("No")
    for one in (fork, session):
        written(tmp_path, one)
    import_from(target, tmp_path)
    bills = [found(target, one).usage().output_tokens for one in (session, fork)]
    assert bills == [session.output_tokens, fork.output_tokens]
    assert texts_of(found(target, fork)) == ["First", "Yes", "Other", "No"]
    assert found(target, fork).labels["forked-from"] == f"claude-code:{session.id}"


# usage, stop reason and blocks of the lines of an answer -> its output
THOUGHT = {"type": "thinking", "thinking": "", "signature": "c2ln"}
LINES: dict[str, tuple[list[tuple[int, str | None, dict[str, Any]]], int | None]] = {
    "the final figure on each line": (
        [(90, "tool_use", THOUGHT), (90, "tool_use", {"type": "text", "text": "I look."})], 90
    ),
    "a placeholder on the first line": ([(1, None, THOUGHT), (90, "end_turn", {"type": "text", "text": "Yes."})], 90),
    "the final figure first": ([(90, "end_turn", THOUGHT), (1, None, {"type": "text", "text": "Yes."})], 90),
    "placeholders alone": ([(4, None, THOUGHT), (4, None, {"type": "text", "text": "Yes."})], None),
    "a stream that was cut, with a stop reason": ([(1, "end_turn", THOUGHT)], None),
    "one word": ([(1, "end_turn", {"type": "text", "text": "Yes"})], 1),
}  # fmt: skip


@pytest.mark.parametrize("how", LINES)
def test_placeholders_of_streams_are_no_counts(target: Store, tmp_path: Path, how: str) -> None:
    lines, expected = LINES[how]
    session = Session(Random(1))
    session.prompt("Is it?")
    for output, reason, block in lines:
        message = {
            "id": "msg_1", "type": "message", "role": "assistant", "model": "claude-sonnet-4-5", "content": [block],
            "stop_reason": reason, "usage": {"input_tokens": 9, "output_tokens": output},
        }  # fmt: skip
        session.last = session.line("assistant", message, session.last)
    path = tmp_path / f"{session.id}.jsonl"
    path.write_text(session.text())
    import_from(target, path)
    (row,) = target.usage(by=("status",))
    assert (row.input_tokens, row.output_tokens) == (9, expected)
    assert row.status == ("incomplete" if "cut" in how else "completed")


def test_totals_that_estimate_what_broke_off_are_no_call(target: Store, tmp_path: Path) -> None:
    session = Session(Random(15))
    session.prompt("First")
    session.answer("Yes")
    costs(session, 1, session.output_tokens + 6)
    assert import_from(target, written(tmp_path, session)).attempts == 1
