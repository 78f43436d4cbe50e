"""Ids of files: they are sent to the provider that has the file, and to no other."""

from __future__ import annotations

from typing import Any

import pytest

from threadkeep import Session
from threadkeep.formats import FormatName, get_format

Json = dict[str, Any]

FILE: Json = {"type": "input_file", "file_id": "file-1", "filename": "a.pdf"}
PICTURE: Json = {"type": "input_image", "file_id": "file-2"}
INLINE: Json = {"type": "input_image", "image_url": "https://img.example.org/a.png"}


def asked(*parts: Json, maker: str | None = "openai/gpt-5.4", origin: str = "open_responses") -> Session:
    """A question with files, which a provider has answered, and another question."""
    session = Session(model="gpt-5.4")
    session.add_item({"type": "message", "role": "user", "content": [*parts, {"type": "input_text", "text": "Read."}]})
    if maker is not None:
        said = {"type": "output_text", "text": "Done."}
        answer = {"type": "message", "role": "assistant", "content": [said], "origin": origin}
        session.add_item(answer, maker=maker)
        session.user("And now?")
    return session


def lost(session: Session, format_name: FormatName, **options: Any) -> list[tuple[int | None, str, str]]:
    losses = session.render(format_name, **options).losses
    return [(loss.position, loss.path, loss.detail) for loss in losses if loss.code == "media"]


@pytest.mark.parametrize("provider", [None, "openai"])
def test_the_provider_that_has_answered_gets_the_ids_again(provider: str | None) -> None:
    session = asked(FILE, PICTURE)
    assert lost(session, "open_responses", provider=provider) == []
    assert b'"file_id":"file-1"' in session.render("open_responses", provider=provider).body
    assert lost(asked(FILE), "chat_completion", provider=provider) == []


@pytest.mark.parametrize(
    ("format_name", "provider"),
    [
        ("open_responses", "azure"),
        ("open_responses", "xai"),
        ("chat_completion", "mistral"),
        ("messages", None),
        ("messages", "openai"),
        ("gemini", None),
        ("converse", None),
    ],
)
def test_another_provider_gets_notes_in_their_place(format_name: FormatName, provider: str | None) -> None:
    session = asked(FILE, INLINE, PICTURE)
    reported = lost(session, format_name, provider=provider)
    assert (0, "content[0]", "The file 'file-1' was left out: only openai has it.") in reported
    assert (0, "content[2]", "The file 'file-2' was left out: only openai has it.") in reported
    body = session.render(format_name, provider=provider).body
    assert b"[file not included: a.pdf]" in body
    assert b"file-1" not in body


def test_files_of_tool_outputs_likewise() -> None:
    session = Session(model="gpt-5.4")
    session.user("Draw.")
    call = {"type": "function_call", "call_id": "c1", "name": "draw", "arguments": "{}", "origin": "open_responses"}
    session.add_item(call, maker="openai/gpt-5.4")
    session.add_item({"type": "function_call_output", "call_id": "c1", "output": [PICTURE]})
    said = {"type": "message", "role": "assistant", "content": [], "origin": "open_responses"}
    session.add_item(said, maker="azure/gpt-5.4")
    assert lost(session, "open_responses", provider="azure") == []
    assert [place for _, place, _ in lost(session, "open_responses", provider="openai")] == ["output[0]"]


def test_what_nobody_has_answered_is_sent() -> None:
    assert lost(asked(FILE, maker=None), "open_responses", provider="azure") == []


def test_a_request_that_nobody_has_answered_tells_by_its_format() -> None:
    content = [{"type": "document", "source": {"type": "file", "file_id": "file_1"}}, {"type": "text", "text": "Read."}]
    request = {"model": "claude-opus-5", "max_tokens": 9, "messages": [{"role": "user", "content": content}]}
    session = get_format("messages").parse_request(request)
    assert lost(session, "messages") == []
    assert [path for _, path, _ in lost(session, "open_responses")] == ["content[0]"]
