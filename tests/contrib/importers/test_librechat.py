"""Conversations that LibreChat exported."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from threadkeep import Conversation, Message, Store
from threadkeep.contrib.importers import import_from

ROOT = "00000000-0000-0000-0000-000000000000"
AT = "2025-03-01T09:30:00.000Z"
CALL = {"id": "t1", "name": "weather", "args": '{"city": "Lyon"}', "output": "rain", "type": "tool_call"}


def user(id_: str, parent: str, text: str) -> dict[str, Any]:
    return {"messageId": id_, "parentMessageId": parent, "isCreatedByUser": True, "text": text, "createdAt": AT}


def answer(id_: str, parent: str, text: str = "", **more: Any) -> dict[str, Any]:
    said = {"messageId": id_, "parentMessageId": parent, "isCreatedByUser": False, "text": text, "createdAt": AT}
    return said | {"model": "gpt-5.4", **more}


CONTENT = [
    {"type": "think", "think": "I look."}, {"type": "text", "text": "One moment."},
    {"type": "tool_call", "tool_call": CALL}, {"type": "text", "text": {"value": "Yes."}},
]  # fmt: skip
FLAT = [
    user("1", ROOT, "Is it raining?"),
    answer("2", "1", content=CONTENT),
    answer("3", "1", "No."),
    user("4", "2", "Sure?"),
]
SAID = [
    ["Is it raining?", "reasoning", "One moment.", "function_call", "function_call_output", "Yes.", "Sure?"],
    ["Is it raining?", "No."],
]


def as_tree(messages: list[dict[str, Any]], parent: str = ROOT) -> list[dict[str, Any]]:
    """The same messages with those that follow them below them, as recursive exports have them."""
    return [
        one | {"children": as_tree(messages, one["messageId"])} for one in messages if one["parentMessageId"] == parent
    ]


def exported(folder: Path, **values: Any) -> Path:
    about = {"conversationId": "k1", "endpoint": "openAI", "title": "Rain", "exportAt": "09:30:00", "branches": True}
    path = folder / "rain.json"
    path.write_text(json.dumps(about | {"options": {"model": "gpt-5.4", "promptPrefix": "Be brief."}} | values))
    return path


def found(store: Store) -> Conversation:
    conversation = store.find_conversation(external_id="librechat:k1")
    assert conversation is not None
    return conversation


def said(conversation: Conversation) -> list[str]:
    return [one.item.text if isinstance(one.item, Message) else one.item.type for one in conversation.transcript()]


@pytest.mark.parametrize(
    "messages",
    [
        {"recursive": False, "messages": FLAT},
        {"recursive": True, "messages": as_tree(FLAT)},
        {"messagesTree": as_tree(FLAT)},
    ],
    ids=["flat", "recursive", "tree"],
)
def test_a_conversation_has_all_branches(target: Store, tmp_path: Path, messages: dict[str, Any]) -> None:
    path = exported(tmp_path, **messages)
    first, second = import_from(target, path), import_from(target, path)
    conversation = found(target)
    assert [said(conversation.on_branch(number)) for number in (0, 1)] == SAID
    assert (conversation.title, conversation.model, conversation.instructions) == ("Rain", "gpt-5.4", "Be brief.")
    assert (first.items.stored, first.skipped, first.sources) == (8, [], {"librechat": 1})
    assert (second.items.unchanged, second.conversations.unchanged) == (8, 1)
    item = conversation.get_item(0)
    assert item.created_at is not None
    assert item.created_at.year == 2025
    assert not target.check().findings


def test_messages_without_parents_follow_one_another(tmp_path: Path) -> None:
    messages = [{key: value for key, value in one.items() if key != "parentMessageId"} for one in FLAT[:2]]
    with Store("sqlite://") as store:
        import_from(store, exported(tmp_path, messages=messages))
        assert said(found(store)) == SAID[0][:-1]


def test_broken_entries_are_reported(tmp_path: Path) -> None:
    messages: list[Any] = [
        user("1", ROOT, "Hello"), 7, answer("2", "1", "out of credit", error=True),
        answer("3", "1", content=[{"type": "image_file"}, CONTENT[1], "?"], files=[{"filename": "a"}]),
        user("4", "gone", "Who?"),
    ]  # fmt: skip
    with Store("sqlite://") as store:
        report = import_from(store, exported(tmp_path, messages=messages))
        assert said(found(store).on_branch(0)) == ["Hello", "One moment."]
        assert said(found(store).on_branch(1)) == ["Who?"]
        assert set(report.reasons) == {
            "it is not an object", "the answer is an error", "a part of the type 'image_file' is not imported",
            "a part of the type None is not imported", "a file is not in the export",
            "what it follows is missing; it begins a branch",
        }  # fmt: skip


def test_a_file_without_an_id_is_reported(tmp_path: Path) -> None:
    with Store("sqlite://") as store:
        report = import_from(store, exported(tmp_path, conversationId=7, messages=[]))
        assert report.reasons == {"it has no id": 1}
