"""Rollouts of Codex as releases with `history_mode: paginated` write them: forks, agents, and compactions."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from tests.contrib.importers.test_exports import found
from threadkeep import Conversation, Store
from threadkeep.contrib.importers import import_from
from threadkeep.domain.items import Message

MAIN, FORK, SECOND, AGENT = ("0199aaaa-0001", "0199aaaa-0002", "0199aaaa-0003", "0199aaaa-0004")
Lines = list[tuple[str, dict[str, Any]]]


def meta(id_: str, **more: Any) -> tuple[str, dict[str, Any]]:
    base = {"text": "You are a coding agent."}
    return "session_meta", {"id": id_, "cwd": "/x", "base_instructions": base, "history_mode": "paginated", **more}


def forked(id_: str, origin: str, end: int) -> tuple[str, dict[str, Any]]:
    base = {"thread_id": origin, "end_ordinal_exclusive": end, "end_byte_offset": 1}
    return meta(id_, forked_from_id=origin, history_base=base)


def message(role: str, text: str) -> tuple[str, dict[str, Any]]:
    kind = "output_text" if role == "assistant" else "input_text"
    return "response_item", {"type": "message", "role": role, "content": [{"type": kind, "text": text}]}


def usage(response_id: str, output: int, total: int) -> Lines:
    """The usage of a response, and once more, as every release writes it."""
    counts = {"input_tokens": 100, "cached_input_tokens": 0, "output_tokens": output}
    totals = {"input_tokens": 0, "cached_input_tokens": 0, "output_tokens": total}
    return [
        ("token_usage_record", {"response_id": response_id, "usage": counts, "thread_token_usage": totals}),
        ("event_msg", {"type": "token_count", "info": {"total_token_usage": totals, "last_token_usage": counts}}),
    ]


def turn(number: int, total: int) -> Lines:
    asked = [message("user", f"question {number}"), message("assistant", f"answer {number}")]
    return [("turn_context", {"model": "gpt-5.5"}), *asked, *usage(f"resp_{number}", number, total)]


def write(folder: Path, id_: str, lines: Lines, first: int = 0) -> None:
    day = folder / "sessions/2026/11/28"
    day.mkdir(parents=True, exist_ok=True)
    texts = [
        json.dumps({"timestamp": "2026-11-01T08:00:00Z", "ordinal": ordinal, "type": kind, "payload": payload})
        for ordinal, (kind, payload) in enumerate(lines, first)
    ]
    (day / f"rollout-2026-11-28T08-00-00-{id_}.jsonl").write_text("\n".join(texts))


def said(conversation: Conversation) -> list[str]:
    return [item.item.text for item in conversation.items() if isinstance(item.item, Message)]


def bill(conversation: Conversation) -> list[int]:
    """The output tokens of its calls."""
    return sorted(row.output_tokens or 0 for row in conversation.usage(by=("response",)))


def test_a_fork_and_a_fork_of_it_begin_with_what_the_others_have(target: Store, tmp_path: Path) -> None:
    developer = message("developer", "Be brief.")
    write(tmp_path, MAIN, [meta(MAIN), developer, *turn(1, 1), *turn(2, 3)])
    write(tmp_path, FORK, [forked(FORK, MAIN, 7), *turn(3, 4), *turn(4, 8)], 7)
    write(tmp_path, SECOND, [forked(SECOND, FORK, 13), *turn(5, 9)], 13)
    for _ in range(2):
        report = import_from(target, tmp_path)
    main, fork, second = (found(target, "codex", id_) for id_ in (MAIN, FORK, SECOND))
    assert [text.rpartition(" ")[2] for text in said(second)] == ["1", "1", "3", "3", "5", "5"]
    assert [bill(one) for one in (main, fork, second)] == [[1, 2], [3, 4], [5]]
    assert {one.instructions for one in (main, fork, second)} == {"You are a coding agent.\n\nBe brief."}
    assert [one.labels.get("forked-from") for one in (main, fork, second)] == [None, f"codex:{MAIN}", f"codex:{FORK}"]
    assert (report.items.stored, report.attempts, report.skipped) == (0, 0, [])


def test_a_fork_whose_beginning_is_gone_says_so(target: Store, tmp_path: Path) -> None:
    write(tmp_path, FORK, [forked(FORK, MAIN, 6), *turn(3, 4)], 6)
    report = import_from(target, tmp_path)
    assert report.reasons == {"the session with which it begins is not there": 1}
    assert said(found(target, "codex", FORK)) == ["question 3", "answer 3"]


def test_an_agent_has_its_parent_and_what_it_is(target: Store, tmp_path: Path) -> None:
    source = {"subagent": {"thread_spawn": {"parent_thread_id": MAIN, "agent_role": "explorer"}}}
    lines = [meta(AGENT, parent_thread_id=MAIN, source=source, agent_nickname="Hegel"), *turn(1, 1)]
    write(tmp_path, AGENT, lines)
    import_from(target, tmp_path)
    agent = found(target, "codex", AGENT)
    assert {"agent": AGENT, "parent": f"codex:{MAIN}"}.items() <= agent.labels.items()
    assert {"agent_role": "explorer", "agent_name": "Hegel"}.items() <= agent.properties.items()


def test_an_agent_that_inherits_a_history_begins_with_a_copy_that_counts_elsewhere(
    target: Store, tmp_path: Path
) -> None:
    """The turn that started it goes on there; what other agents write to it is no answer."""
    thought: dict[str, Any] = {"type": "reasoning", "id": "rs_1", "summary": []}
    call = {"type": "function_call", "call_id": "call_1", "name": "spawn_agent", "arguments": "{}"}
    spawning: Lines = [message("user", "Start one."), ("response_item", thought), ("response_item", call)]
    own = ("event_msg", {"type": "thread_settings_applied", "thread_id": AGENT, "thread_settings": {}})
    content = [{"type": "input_text", "text": "Look."}]
    root = "/root"
    told = {"type": "agent_message", "author": root, "recipient": f"{root}/a", "content": content}
    task = ("response_item", told)
    said_there = [task, message("assistant", "I see."), *usage("resp_2", 2, 2)]
    aborted = ("event_msg", {"type": "turn_aborted"})
    write(tmp_path, MAIN, [meta(MAIN), *spawning, *usage("resp_1", 1, 1)])
    write(tmp_path, AGENT, [meta(AGENT, parent_thread_id=MAIN, forked_from_id=MAIN), meta(MAIN), *spawning, aborted,
                            own, *said_there])  # fmt: skip
    report = import_from(target, tmp_path)
    main, agent = (found(target, "codex", id_) for id_ in (MAIN, AGENT))
    assert (bill(main), bill(agent), report.skipped) == ([1], [2], [])
    places = [(one.provider_response_id, one.status, one.from_position, one.to_position) for one in agent.responses()]
    assert places == [(None, "completed", 1, 2), ("resp_2", "completed", 4, 4)]


def test_compactions_stand_for_what_came_before(target: Store, tmp_path: Path) -> None:
    kept = [message("user", "question 1")[1]]
    summary = "Here is a summary: the question was answered."
    record = {"usage": {"input_tokens": 100, "output_tokens": 7}}
    by_provider = {
        "message": "", "replacement_history": [*kept, {"type": "compaction", "encrypted_content": "c2VjcmV0"}],
        "compaction_response_id": "resp_8", "latest_token_usage_record": record,
    }  # fmt: skip
    asked, newer = message("user", "question 3")[1], "Here is a summary of that and of the rest."
    by_text = {"message": "Summary.", "replacement_history": [asked, message("user", summary)[1]]}
    again = {"message": "Summary.", "replacement_history": [asked, message("user", newer)[1]]}
    write(tmp_path, MAIN, [meta(MAIN), *turn(1, 1), ("compacted", by_provider), *turn(2, 10)])
    write(tmp_path, FORK, [meta(FORK), *turn(3, 3), ("compacted", by_text), *turn(4, 7)])
    write(tmp_path, AGENT, [meta(AGENT), *turn(3, 3), ("compacted", by_text), *turn(4, 7), ("compacted", again)])
    import_from(target, tmp_path)
    provider, text, twice = (found(target, "codex", id_) for id_ in (MAIN, FORK, AGENT))
    assert [part.get("text", part.get("encrypted_content")) for part in wire(provider)] == [
        "question 1", "c2VjcmV0", "question 2", "answer 2",
    ]  # fmt: skip
    shown = [["question 3", summary, "question 4", "answer 4"], ["question 3", "question 4", newer]]
    for conversation, texts in zip((text, twice), shown, strict=True):  # with what the user had said, as it is sent
        assert [words in str(part) for words, part in zip(texts, wire(conversation), strict=True)] == [True] * len(
            texts
        )
    assert bill(provider) == [1, 2, 7]
    assert "#" not in "".join(str(one.external_id) for one in target.list_conversations(status=None))


def wire(conversation: Conversation) -> list[dict[str, Any]]:
    """The parts of the messages of its next request, and its other items."""
    items = conversation.request_payload("open_responses")["input"]
    return [part for item in items for part in item.get("content") or [item]]


def test_a_turn_that_was_aborted_is_incomplete_and_a_fast_one_has_its_tier(target: Store, tmp_path: Path) -> None:
    fast = ("event_msg", {"type": "thread_settings_applied", "thread_settings": {"service_tier": "priority"}})
    cut = [message("user", "Go on."), message("assistant", "I was")]
    write(tmp_path, MAIN, [meta(MAIN), fast, *turn(1, 1), *cut, ("event_msg", {"type": "turn_aborted"})])
    report = import_from(target, tmp_path)
    conversation = found(target, "codex", MAIN)
    assert [one.status for one in conversation.responses()] == ["completed", "incomplete"]
    assert report.skipped == []


def test_a_file_that_is_as_it_was_is_not_read_again(target: Store, tmp_path: Path) -> None:
    write(tmp_path, MAIN, [meta(MAIN), *turn(1, 1), message("user", "x" * 10_000)])
    [path] = tmp_path.rglob("*.jsonl")
    first = import_from(target, tmp_path)
    about = path.stat()
    path.write_bytes(path.read_bytes()[:5_000] + b"?" * (about.st_size - 5_000))
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns))
    second = import_from(target, tmp_path)
    assert (second.items.unchanged, second.responses.unchanged) == (first.items.stored, first.responses.stored)
    assert second.skipped == []
    os.utime(path, ns=(about.st_atime_ns, about.st_mtime_ns + 1))
    [why] = import_from(target, tmp_path).reasons
    assert "not JSON" in why
