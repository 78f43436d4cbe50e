"""Imports for different users: a conversation of another user is not written into, and that is reported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from threadkeep import Message, Store
from threadkeep.contrib.importers import SourceReport, import_from

ROOT = "00000000-0000-4000-8000-000000000000"


def an_export(folder: Path, *texts: str) -> Path:
    """What Claude.ai exports of one conversation, "c-1", in which these are said in turns."""
    names = [ROOT, *(f"{text}-id" for text in texts)]
    messages = [
        {"uuid": name, "parent_message_uuid": parent, "sender": sender, "text": text}
        for name, parent, sender, text in zip(
            names[1:], names, ("human", "assistant") * len(texts), texts, strict=False
        )
    ]
    path = folder / "conversations.json"
    path.write_text(json.dumps([{"uuid": "c-1", "name": "One", "chat_messages": messages}]))
    return path


def said(store: Store) -> dict[str | None, list[str]]:
    """What is said in all conversations, by their users."""
    return {
        one.user_id: [item.item.text for item in one.items() if isinstance(item.item, Message)]
        for one in store.list_conversations()
    }


def is_refused(report: SourceReport) -> bool:
    """Whether the one conversation belongs to another user, and the report says so."""
    assert (report.conversations.stored, report.items.stored, report.attempts) == (0, 0, 0)
    [skipped] = report.skipped
    return (report.conversations.skipped, report.items.skipped) == (1, 3) and "not belong to this user" in skipped.why


@pytest.mark.parametrize("dry_run", [False, True], ids=["import", "dry-run"])
@pytest.mark.parametrize("is_scoped", [False, True], ids=["user", "for-user"])
@pytest.mark.parametrize("owner", ["bob", None])
def test_what_belongs_to_another_user_is_not_written_into(
    target: Store, tmp_path: Path, owner: str | None, *, is_scoped: bool, dry_run: bool
) -> None:
    import_from(target, an_export(tmp_path, "Hello", "Hi"), user=owner)
    path = an_export(tmp_path, "Alice", "was", "here")
    store, user = (target.for_user("alice"), None) if is_scoped else (target, "alice")
    assert is_refused(import_from(store, path, user=user, dry_run=dry_run))
    assert said(target) == {owner: ["Hello", "Hi"]}
    assert target.statistics().branches == 0


def test_a_user_whom_the_source_names_is_another_one_as_well(target: Store, tmp_path: Path) -> None:
    def chats(user: str, *texts: str) -> Path:
        messages: dict[str, Any] = {}
        for text in texts:
            messages[text] = {"id": text, "parentId": next(reversed(messages), None), "role": "user", "content": text}
        chat = {"title": "One", "history": {"currentId": texts[-1], "messages": messages}}
        path = tmp_path / "chats.json"
        path.write_text(json.dumps([{"id": "chat-1", "user_id": user, "title": "One", "chat": chat}]))
        return path

    import_from(target, chats("bob", "Hello"))
    assert is_refused(import_from(target, chats("alice", "Alice", "was", "here")))
    assert import_from(target, chats("bob", "Hello", "again")).items.stored == 1
    assert said(target) == {"bob": ["Hello", "again"]}


def test_what_a_user_has_imported_grows_with_and_without_the_user(target: Store, tmp_path: Path) -> None:
    for texts, user in ((["Hello"], "bob"), (["Hello", "Hi"], "bob"), (["Hello", "Hi", "again"], None)):
        assert import_from(target, an_export(tmp_path, *texts), user=user).items.stored == 1
    assert import_from(target.for_user("bob"), tmp_path / "conversations.json").conversations.unchanged == 1
    assert said(target) == {"bob": ["Hello", "Hi", "again"]}
