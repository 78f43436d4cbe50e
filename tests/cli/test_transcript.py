"""Items as a person reads them."""

from __future__ import annotations

from typing import Any

import pytest

from threadkeep.domain import content, items
from threadkeep.domain.transcripts import ITEMS, PARTS, lines_of, preview_lines, title_of

PIXEL = "data:image/png;base64,iVBORw0KGgo="


def user(*parts: Any) -> dict[str, Any]:
    return {"type": "message", "role": "user", "content": list(parts)}


CASES: list[tuple[dict[str, Any], str, list[str]]] = [
    (user({"type": "input_text", "text": "a\nb"}), "user", ["a", "b"]),
    (user({"type": "input_image", "url": PIXEL}), "user", ["[image: image/png, 8 bytes]"]),
    (user({"type": "input_image", "url": "https://x.org/a.png", "detail": "low"}), "user",
     ["[image: https://x.org/a.png, detail low]"]),
    (user({"type": "input_image", "file_id": "file_1"}), "user", ["[image: file file_1]"]),
    (user({"type": "input_file", "filename": "a.txt", "file_data": "abc"}), "user", ["[file: a.txt, abc]"]),
    (user({"type": "input_file", "url": "data:text/plain,abc"}), "user", ["[file: text/plain, 3 bytes]"]),
    (user({"type": "input_video"}), "user", ["[video: without a source]"]),
    (user({"type": "provider_item", "format": "messages", "payload": {"a": 1}}), "user",
     ['[only for messages: {"a": 1}]']),
    (user({"type": "hologram", "size": 3}), "user", ['{"type": "hologram", "size": 3}']),
    ({"type": "message", "role": "assistant", "content": [{"type": "refusal", "refusal": "No."}]}, "assistant",
     ["[refusal] No."]),
    ({"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "x", "annotations": [1, 2]}]},
     "assistant", ["x", "[annotations: 2]"]),
    ({"type": "function_call", "name": "f", "call_id": "c", "arguments": '{"a":1}'}, "call f (c)", ['{"a":1}']),
    ({"type": "function_call_output", "call_id": "c", "output": "1\n2"}, "output (c)", ["1", "2"]),
    ({"type": "function_call_output", "call_id": "c", "output": None}, "output (c)", []),
    ({"type": "function_call_output", "call_id": "c", "output": [{"type": "input_image", "url": PIXEL}]}, "output (c)",
     ["[image: image/png, 8 bytes]"]),
    ({"type": "reasoning", "summary": [{"type": "summary_text", "text": "s"}], "encrypted_content": "xyz",
      "content": [{"type": "reasoning_text", "text": "t"}]}, "reasoning",
     ["s", "t", "[encrypted by the provider: 3 characters]"]),
    ({"type": "reasoning", "origin": "messages", "content": [
        {"type": "thinking", "thinking": "t" * 99, "signature": "c2ln"}, {"type": "redacted_thinking", "data": "xyz"},
        {"type": "thinking", "thinking": "", "signature": "c2ln"}]}, "reasoning",
     ["t" * 99, "[encrypted by the provider: 3 characters]", "[encrypted by the provider: 4 characters]"]),
    ({"type": "compaction", "encrypted_content": "xyz"}, "compaction", ["[encrypted by the provider: 3 characters]"]),
    ({"type": "compaction"}, "compaction", ["[replaces everything before it]"]),
    ({"type": "item_reference", "id": "msg_1"}, "item_reference", ["[item msg_1, kept by the provider]"]),
    ({"type": "provider_item", "format": "gemini", "payload": [1]}, "provider_item", ["[only for gemini: [1]]"]),
    ({"type": "web_search_call", "status": "completed", "origin": "open_responses"}, "web_search_call",
     ['{"status": "completed"}']),
]  # fmt: skip


@pytest.mark.parametrize(("item", "title", "lines"), CASES, ids=map(str, range(len(CASES))))
def test_an_item_in_words(item: dict[str, Any], title: str, lines: list[str]) -> None:
    shown = items.item_from_object(item).to_dict()
    assert (title_of(shown), lines_of(shown)) == (title, lines)


def test_every_known_type_has_its_lines() -> None:
    assert set(ITEMS) == set(items.ITEMS)
    assert set(PARTS) == set(content.PARTS)


def test_an_outline_is_short_and_says_what_it_cut() -> None:
    lines = preview_lines(
        {"model": "m", "input": [{"text": "x" * 900}, 7], "deep": {"a": {"b": {"c": {"d": {"e": {"f": 1}}}}}}}
    )
    assert lines[0] == 'model: "m"'
    assert "  - 7" in lines
    assert any("(900 characters)" in line for line in lines)
    assert '"f"' not in lines[-1]
    assert max(map(len, lines)) <= 110
