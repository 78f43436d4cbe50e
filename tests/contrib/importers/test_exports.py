"""Exports of ChatGPT, Claude.ai and Codex: counts, branches, media, growth, interruption, and what is broken."""

from __future__ import annotations

import json
import sqlite3
import zipfile
from collections.abc import Callable, Container, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from threading import current_thread
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from sqlalchemy.exc import OperationalError

from tests.contrib.importers.claude_code_files import a_session
from tests.contrib.importers.export_files import BEGUN, PNG, Export, Rollout, a_rollout, chatgpt, claude_ai
from threadkeep import Conversation, FunctionCallOutput, Message, Store
from threadkeep.contrib.importers import SOURCES, Input, Skipped, Transcript, import_from
from threadkeep.contrib.importers.engine import find_source, get_source

# maker of an export -> the source that it is of
EXPORTS = ((chatgpt, "chatgpt"), (claude_ai, "claude-ai"))
Make = Callable[..., Export]
exports = pytest.mark.parametrize(("make", "source"), EXPORTS, ids=[source for _, source in EXPORTS])


def texts_of(conversation: Conversation) -> list[str]:
    return [item.item.text for item in conversation.items(limit=1000) if isinstance(item.item, Message)]


def found(store: Store, source: str, id: str) -> Conversation:
    conversation = store.find_conversation(external_id=f"{source}:{id}")
    assert conversation is not None
    return conversation


@exports
@pytest.mark.parametrize("seed", range(3))
def test_counts_reconcile_and_what_is_imported_twice_is_stored_once(
    target: Store, tmp_path: Path, make: Make, source: str, seed: int
) -> None:
    export = make(seed)
    path = export.write(tmp_path)
    first, second = import_from(target, path), import_from(target, path)

    assert first.sources == {source: 1}
    assert first.conversations.values() == {"stored": len(export.items), "unchanged": 0, "skipped": 0}
    assert first.items.stored == sum(export.items.values()) == target.statistics().items
    assert sum(first.reasons.values()) == export.broken == len(first.skipped)
    assert second.conversations.values() == {"stored": 0, "unchanged": len(export.items), "skipped": 0}
    assert second.items.unchanged == first.items.stored
    assert {id_: texts_of(found(target, source, id_)) for id_ in export.texts} == export.texts
    assert not target.check().findings


@exports
def test_an_export_of_a_later_day_brings_what_is_new(target: Store, tmp_path: Path, make: Make, source: str) -> None:
    """Also branches of conversations that were there already."""
    for turns in (1, 3, 6):
        import_from(target, (export := make(11, 4, turns)).write(tmp_path))
        assert target.statistics().items == sum(export.items.values())
        assert {id_: texts_of(found(target, source, id_)) for id_ in export.texts} == export.texts
    assert not target.check().findings


@exports
def test_an_import_that_was_interrupted_goes_on(target: Store, tmp_path: Path, make: Make, source: str) -> None:
    export = make(5, 6)

    def interrupt(kind: str, count: int) -> None:
        if (kind, count) == ("conversations", 3):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_from(target, export.write(tmp_path), progress=interrupt)
    assert target.statistics().active == 3
    report = import_from(target, export.write(tmp_path))
    assert report.conversations.values() == {"stored": 3, "unchanged": 3, "skipped": 0}
    assert target.statistics().items == sum(export.items.values())


@contextmanager
def failing_commits(store: Store, which: Container[int], *, happen: bool = False) -> Iterator[list[str]]:
    """Have some COMMITs fail, after all if they `happen`; yields the names of the threads that do them."""
    dialect: Any = store.handle.root.engine.dialect
    commit, threads = dialect.do_commit, list[str]()

    def fail(connection: sqlite3.Connection) -> None:
        threads.append(current_thread().name)
        fails = len(threads) in which
        (connection.rollback if fails and not happen else connection.commit)()
        if fails:
            raise sqlite3.OperationalError("disk I/O error")

    dialect.do_commit = fail
    try:
        yield threads
    finally:
        dialect.do_commit = commit


@pytest.mark.one_database
@pytest.mark.parametrize("happen", [False, True])
@pytest.mark.parametrize("which", [1, 3, 5])
def test_a_commit_that_fails_is_done_again(target: Store, tmp_path: Path, which: int, *, happen: bool) -> None:
    """It is done by a thread while the next conversation is read."""
    export, told = chatgpt(5, 5), list[int]()

    def note(kind: str, count: int) -> None:
        told.extend([count] if kind == "conversations" else [])

    with failing_commits(target, {which}, happen=happen) as threads:
        report = import_from(target, export.write(tmp_path), progress=note)
    assert current_thread().name not in {*threads} - {*threads[which : which + 1]}
    assert (report.conversations.stored, report.items.stored) == (len(export.items), sum(export.items.values()))
    assert told == [*range(1, 6)]
    assert target.statistics().items == report.items.stored
    assert report.responses.stored == target.statistics().responses
    assert not target.check().findings


@pytest.mark.one_database
def test_a_commit_that_fails_twice_ends_the_import_before_the_next_conversation(target: Store, tmp_path: Path) -> None:
    export, told = chatgpt(5, 5), list[int]()
    path = export.write(tmp_path)
    with failing_commits(target, range(3, 100)), pytest.raises(OperationalError, match="disk I/O"):
        import_from(target, path, progress=lambda kind, count: told.extend([count] if kind == "conversations" else []))
    assert told == [1, 2]
    assert target.statistics().active == 2
    assert import_from(target, path).conversations.values() == {"stored": 3, "unchanged": 2, "skipped": 0}
    assert target.statistics().items == sum(export.items.values())


def test_what_reports_progress_may_fail(target: Store, tmp_path: Path) -> None:
    """It is called while the next conversation is about to be written, which is none of its failure."""

    def fail(kind: str, count: int) -> None:
        if (kind, count) == ("conversations", 3):
            raise ValueError("enough")

    with pytest.raises(ValueError, match="enough"):
        import_from(target, chatgpt(5, 6).write(tmp_path), progress=fail)
    assert target.statistics().active == 3


def test_a_session_in_two_files_in_a_row_is_one(target: Store, tmp_path: Path) -> None:
    """The second one is found although the first one is just being committed."""
    session = a_session(1, 5)
    for name in ("first", "second"):
        (tmp_path / name).mkdir()
        (tmp_path / name / f"{session.id}.jsonl").write_text(session.text())
    report = import_from(target, tmp_path)
    assert report.conversations.values() == {"stored": 1, "unchanged": 1, "skipped": 0}
    assert target.statistics().items == report.items.stored == report.items.unchanged


@exports
def test_an_archive_is_read_as_its_file(target: Store, tmp_path: Path, make: Make, source: str) -> None:
    export = make(3)
    report = import_from(target, export.archive(tmp_path))
    assert (report.sources, report.conversations.stored) == ({source: 1}, len(export.items))


@exports
def test_a_file_that_is_cut_off_is_imported_up_to_there(target: Store, tmp_path: Path, make: Make, source: str) -> None:
    path = make(3).write(tmp_path)
    text = path.read_text()
    path.write_text(text[: len(text) * 2 // 3])
    report = import_from(target, path)
    assert 0 < report.conversations.stored < 3
    assert any("is not JSON" in reason for reason in report.reasons)


@exports
def test_a_conversation_that_cannot_be_stored_does_not_stop_the_others(
    target: Store, tmp_path: Path, make: Make, source: str
) -> None:
    export = make(3)
    target.create_conversation(external_id=f"{source}:{next(iter(export.items))}", input="mine")
    report = import_from(target, export.write(tmp_path))
    assert report.conversations.values() == {"stored": len(export.items) - 1, "unchanged": 0, "skipped": 1}
    assert report.items.skipped == next(iter(export.items.values()))


def a_message(role: str, content: Any, **more: Any) -> dict[str, Any]:
    return {"author": {"role": role}, "content": content, "create_time": BEGUN, "recipient": "all", **more}


def a_chat(*messages: dict[str, Any]) -> list[Any]:
    mapping: dict[str, Any] = {
        f"n{number}": {"parent": f"n{number - 1}" if number else None, "children": [], "message": message}
        for number, message in enumerate(messages)
    }
    return [{"conversation_id": "c", "title": "T", "create_time": BEGUN, "mapping": mapping}]


def test_images_of_chatgpt_come_from_the_archive(target: Store, tmp_path: Path) -> None:
    pointers = [
        {"content_type": "image_asset_pointer", "asset_pointer": f"file-service://{id_}"}
        for id_ in ("file-AbC", "file-Gone")
    ]
    content = {"content_type": "multimodal_text", "parts": [*pointers, "What is it?"]}
    Export(a_chat(a_message("user", content))).archive(tmp_path, **{"file-AbC-photo.png": PNG})
    import_from(target, tmp_path / "export.zip")
    item = found(target, "chatgpt", "c").get_item(0).item
    assert isinstance(item, Message)
    image, gone, text = item.to_dict()["content"]
    assert image["url"].startswith("data:image/png;base64,")
    assert (gone["file_id"], text["text"]) == ("file-Gone", "What is it?")
    assert target.statistics().media == 1


@pytest.mark.parametrize(
    ("id_", "name"),
    [
        ("file-Gone", "conversations.json"),
        ("file-Gone", "user.json"),
        ("file-Gone", "chat.html"),
        ("file-Gone", "photo.png"),  # of which there are two
        ("conversations", None),
        ("user", None),
        ("conversations.json", "conversations.json"),
    ],
)
def test_what_is_not_in_an_archive_is_no_other_file_of_it(
    target: Store, tmp_path: Path, id_: str, name: str | None
) -> None:
    metadata = {"attachments": [{"id": id_, "name": name}]}
    content = {"content_type": "text", "parts": ["What is it?"]}
    photos = {"a/photo.png": PNG, "b/photo.png": PNG[:-1]}
    Export(a_chat(a_message("user", content, metadata=metadata))).archive(
        tmp_path, **{"chat.html": b"<p>Hello</p>"}, **photos
    )
    import_from(target, tmp_path / "export.zip")
    item = found(target, "chatgpt", "c").get_item(0).item
    expected = {"type": "input_file", "file_id": id_} | ({} if name is None else {"filename": name})
    if id_ == name:  # a name is no id that a provider knows
        expected = {"type": "input_text", "text": f"[file not included: {name}]"}
    assert item.to_dict()["content"][1] == expected
    assert target.statistics().media == 0


@pytest.mark.parametrize(
    ("id_", "name", "member"),
    [
        ("file-AbC", "data.json", "file-AbC-data.json"),
        ("file_00AbC", "page.html", "file_00AbC-sanitized.html"),
        ("file-Gone", "photo.png", "files/photo.png"),
        ("photo.png", "photo.png", "photo.png"),
    ],
)
def test_attachments_are_found_by_their_ids_or_a_name_that_is_the_only_one(
    target: Store, tmp_path: Path, id_: str, name: str, member: str
) -> None:
    metadata = {"attachments": [{"id": id_, "name": name}]}
    content = {"content_type": "text", "parts": ["What is it?"]}
    Export(a_chat(a_message("user", content, metadata=metadata))).archive(tmp_path, **{member: PNG})
    import_from(target, tmp_path / "export.zip")
    assert target.statistics().media == 1


def test_what_a_tool_of_chatgpt_says_is_the_output_of_its_call(target: Store, tmp_path: Path) -> None:
    """What it says without a call, or after its output, is said by the developer."""
    said = [{"content_type": "text", "parts": [text]} for text in ("one", "two", "three")]
    call = a_message("assistant", {"content_type": "code", "text": '{"q": 1}'}, recipient="search")
    Export(a_chat(call, *(a_message("tool", content) for content in said))).write(tmp_path)
    import_from(target, tmp_path / "conversations.json", "chatgpt")
    _, output, *others = [item.item for item in found(target, "chatgpt", "c").items()]
    assert isinstance(output, FunctionCallOutput)
    assert [other.role for other in others if isinstance(other, Message)] == ["developer", "developer"]


@pytest.mark.parametrize(
    ("attached", "is_missing"),
    [
        ({"attachments": [{"extracted_content": "[file not included: b.txt]"}]}, False),
        ({"attachments": [{"file_name": "b.txt"}]}, True),
        ({"files": [{"file_name": "b.txt"}]}, True),
    ],
)
def test_a_file_of_claude_ai_is_missing_whatever_the_text_of_another_one_says(
    target: Store, tmp_path: Path, attached: Any, *, is_missing: bool
) -> None:
    export = claude_ai(1)
    conversation = next(value for value in export.values if isinstance(value, dict) and "chat_messages" in value)
    conversation["chat_messages"][0].update(attached)
    export.write(tmp_path)
    report = import_from(target, tmp_path / "conversations.json", "claude-ai")
    assert any("not the file" in why for why in report.reasons) == is_missing
    item = found(target, "claude-ai", conversation["uuid"]).get_item(0).item
    assert item.to_dict()["content"][-1]["text"] == "[file not included: b.txt]"


def test_a_file_of_claude_ai_without_parents_is_linear(target: Store, tmp_path: Path) -> None:
    export = claude_ai(2, 1, 3)
    conversation = next(value for value in export.values if isinstance(value, dict) and "chat_messages" in value)
    for message in conversation["chat_messages"]:
        del message["parent_message_uuid"]
    import_from(target, export.write(tmp_path))
    assert target.statistics().branches == 0
    assert target.statistics().items == sum(export.items.values())


@pytest.mark.parametrize("seed", range(3))
def test_a_rollout_of_codex_is_stored_once_with_its_usage(target: Store, tmp_path: Path, seed: int) -> None:
    rollout = a_rollout(seed)
    for turns in (0, 2, 0):
        rollout.grow(turns)
        report = import_from(target, rollout.write(tmp_path))
        assert report.sources == {"codex": 1}
    conversation = found(target, "codex", rollout.id)
    (usage,) = target.usage(by="model")
    assert (usage.model, usage.attempts) == ("gpt-5-codex", rollout.responses)
    assert (usage.input_tokens, usage.output_tokens) == (rollout.total["input_tokens"], rollout.total["output_tokens"])
    assert report.items.values() == {"stored": 0, "unchanged": rollout.items, "skipped": 0}
    assert texts_of(conversation) == rollout.texts
    assert conversation.properties["branch"] == "main"
    assert conversation.request_payload("open_responses")["instructions"] == "Be brief."
    assert not target.check().findings


def a_session_of_codex(*lines: tuple[str, dict[str, Any]]) -> str:
    meta = ("session_meta", {"id": "0199", "timestamp": "2026-09-10T08:00:00.000Z", "cwd": "/x"})
    head = {"timestamp": "2026-09-10T08:00:00.000Z"}
    return "".join(json.dumps({**head, "type": kind, "payload": payload}) + "\n" for kind, payload in (meta, *lines))


def counts_of_codex(input: int, output: int) -> dict[str, int]:
    return {"input_tokens": input, "cached_input_tokens": input // 2, "output_tokens": output}


QUESTION = ("response_item", {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]})
CALLED = ("response_item", {"type": "function_call", "name": "shell", "arguments": "{}", "call_id": "c1"})
RETURNED = ("response_item", {"type": "function_call_output", "call_id": "c1", "output": "ok"})
SAID = (
    "response_item", {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "Done."}]}
)  # fmt: skip


def usage_record(**fields: Any) -> tuple[str, dict[str, Any]]:
    return "token_usage_record", fields


def token_count(total: dict[str, int], last: dict[str, int]) -> tuple[str, dict[str, Any]]:
    info = {"total_token_usage": total, "last_token_usage": last}
    return "event_msg", {"type": "token_count", "info": info}


# what a session of a newer release has -> input, cached and output tokens of its responses
RECORDS: dict[str, tuple[list[tuple[str, dict[str, Any]]], list[tuple[int, int, int]]]] = {
    "totals of the turn": (
        [
            QUESTION, CALLED, usage_record(turn_token_usage=counts_of_codex(100, 10)), RETURNED,
            SAID, usage_record(turn_token_usage=counts_of_codex(300, 25)),
        ],
        [(100, 50, 10), (200, 100, 15)],
    ),
    "totals of two turns": (
        [
            QUESTION, SAID, usage_record(turn_token_usage=counts_of_codex(100, 10)),
            QUESTION, SAID, usage_record(turn_token_usage=counts_of_codex(300, 25)),
        ],
        [(100, 50, 10), (300, 150, 25)],
    ),
    "totals of the thread": (
        [
            QUESTION, SAID,
            usage_record(thread_token_usage=counts_of_codex(100, 10), turn_token_usage=counts_of_codex(100, 10)),
            QUESTION, SAID,
            usage_record(thread_token_usage=counts_of_codex(400, 35), turn_token_usage=counts_of_codex(300, 25)),
        ],
        [(100, 50, 10), (300, 150, 25)],
    ),
    "the usage of each response, written twice": (
        [
            QUESTION, CALLED,
            *[usage_record(response_id="r1", usage=counts_of_codex(100, 10), turn_token_usage=counts_of_codex(100, 10))]
            * 2,
            RETURNED, SAID,
            usage_record(response_id="r2", usage=counts_of_codex(200, 15), turn_token_usage=counts_of_codex(300, 25)),
        ],
        [(100, 50, 10), (200, 100, 15)],
    ),
    "both kinds of records": (
        [
            QUESTION, CALLED, usage_record(response_id="r1", usage=counts_of_codex(100, 10)), RETURNED,
            token_count(counts_of_codex(100, 10), counts_of_codex(100, 10)),
            SAID, usage_record(response_id="r2", usage=counts_of_codex(200, 15)),
            token_count(counts_of_codex(300, 25), counts_of_codex(200, 15)),
            token_count(counts_of_codex(300, 25), counts_of_codex(200, 15)),
        ],
        [(100, 50, 10), (200, 100, 15)],
    ),
    "an older session that was resumed": (
        [
            QUESTION, SAID, token_count(counts_of_codex(100, 10), counts_of_codex(100, 10)),
            QUESTION, SAID, usage_record(response_id="r2", usage=counts_of_codex(200, 15)),
            token_count(counts_of_codex(300, 25), counts_of_codex(200, 15)),
        ],
        [(100, 50, 10), (200, 100, 15)],
    ),
}  # fmt: skip


@pytest.mark.parametrize("records", RECORDS)
def test_usage_records_of_codex_count_each_response_once(target: Store, tmp_path: Path, records: str) -> None:
    lines, expected = RECORDS[records]
    path = tmp_path / "rollout-2026-09-10T08-00-00-0199.jsonl"
    path.write_text(a_session_of_codex(*lines))
    for _ in range(2):
        report = import_from(target, path)
    rows = found(target, "codex", "0199").usage(by=("response",))
    assert [(row.input_tokens, row.cached_tokens, row.output_tokens) for row in rows] == expected
    assert not report.skipped


def test_a_turn_of_codex_that_was_taken_back_is_a_branch(target: Store, tmp_path: Path) -> None:
    rollout = a_rollout(1, 1)
    kept = list(rollout.texts)
    rollout.grow(2)
    rollout.line("event_msg", {"type": "thread_rolled_back", "num_turns": 2})
    rollout.texts = kept
    rollout.grow(1)
    import_from(target, rollout.write(tmp_path))
    assert texts_of(found(target, "codex", rollout.id)) == rollout.texts
    assert target.statistics().branches == 1


@pytest.mark.parametrize(
    "origin",
    [{"forked_from_id": "01990001"}, {"source": {"subagent": {"thread_spawn": {"parent_thread_id": "01990001"}}}}],
    ids=["fork", "agent"],
)
def test_what_a_fork_of_codex_has_copied_is_used_once(target: Store, tmp_path: Path, origin: dict[str, Any]) -> None:
    parent, fork = a_rollout(1), Rollout(Random(2), "01990002")
    fork.begin(**origin)
    fork.copy(parent)
    fork.grow(2)
    report = import_from(target, [fork.write(tmp_path), parent.write(tmp_path)])
    assert texts_of(found(target, "codex", fork.id)) == fork.texts
    assert found(target, "codex", fork.id).usage().attempts == fork.responses
    assert target.usage(by="model")[0].input_tokens == fork.total["input_tokens"]  # which counts on from the parent's
    assert report.reasons["the usage of what was copied from another session counts there"] == parent.responses
    assert report.attempts == parent.responses + fork.responses


def test_rollouts_of_the_first_releases_are_read(target: Store, tmp_path: Path) -> None:
    lines = [
        {"id": "old", "timestamp": "2025-05-01T08:00:00.000Z", "instructions": None},
        {"record_type": "state"},
        {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hello"}]},
    ]
    (tmp_path / "rollout.jsonl").write_text("\n".join(map(json.dumps, lines)))
    import_from(target, tmp_path / "rollout.jsonl")
    assert texts_of(found(target, "codex", "old")) == ["Hello"]


def test_a_folder_is_told_by_the_contents_of_its_files(target: Store, tmp_path: Path) -> None:
    chatgpt(1).write(tmp_path, "a.json")
    claude_ai(1).write(tmp_path, "b.json")
    a_rollout(1).write(tmp_path)
    (tmp_path / "notes.txt").write_text("nothing")
    report = import_from(target, tmp_path)
    assert report.sources == {"chatgpt": 1, "claude-ai": 1, "codex": 1}
    assert [one.where for one in report.skipped if one.why == "no source recognizes it"] == [
        str(tmp_path / "notes.txt")
    ]


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from([
        "id", "uuid", "mapping", "message", "parent", "content", "parts", "content_type", "author", "role", "type",
        "chat_messages", "sender", "text", "payload", "timestamp", "info", "usage", "parentUuid", "sessionId",
        "metadata", "attachments", "name", "input", "thoughts", "current_node", "conversation_id", "children",
        "messages", "$set", "parentId", "stopReason", "systemPayload", "toolCalls", "tokens", "summary",
    ]), inner | st.sampled_from([
        "tool_use", "tool_result", "assistant", "user", "tool", "response_item", "session", "gemini", "error",
    ]), max_size=6),
    max_leaves=15,
)  # fmt: skip


LINES = ("claude-code", "codex", "qwen-code", "gemini-cli", "pi")  # sources of JSON Lines
CIRCLE = [{"id": "a", "parentId": "a", "message": {"stopReason": "error"}}, {"id": "b", "parentId": "a"}]


@given(values=st.lists(values, max_size=3), name=st.sampled_from((*LINES, "cline", "chatgpt", "claude-ai")))
@example(values=[{"type": "session"}, *CIRCLE, {"type": []}], name="pi")
@example(values=[{"$set": {"messages": ["a", {"id": "b", "type": []}]}}], name="gemini-cli")
@example(values=[{"uuid": "a", "type": "user", "message": {"parts": [5, "a", {"text": []}]}}], name="qwen-code")
def test_no_json_fails_an_import(tmp_path_factory: pytest.TempPathFactory, values: list[Any], name: str) -> None:
    """Whatever it is, it is a conversation, or reported."""
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text("\n".join(map(json.dumps, values)) if name in LINES else json.dumps(values))
    read = list(get_source(name).read(Input(str(path), path)))
    assert all(isinstance(one, Skipped | Transcript) for one in read)
    find_source(Input(str(path), path))


def test_every_source_has_its_name() -> None:
    assert [get_source(name).name for name in SOURCES] == list(SOURCES)


def test_an_archive_that_is_damaged_is_reported(target: Store, tmp_path: Path) -> None:
    path = chatgpt(1).archive(tmp_path)
    data = bytearray(path.read_bytes())
    data[200:260] = bytes(60)
    path.write_bytes(data)
    report = import_from(target, path, "chatgpt")
    assert report.reasons


def test_an_archive_without_conversations_is_reported(target: Store, tmp_path: Path) -> None:
    path = tmp_path / "photos.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("photo.png", PNG)
    assert [one.why for one in import_from(target, path, "chatgpt").skipped] == [
        f"the rest cannot be read: {path} has no file with conversations."
    ]
