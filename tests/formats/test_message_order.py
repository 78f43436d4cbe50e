"""Which message may stand where in Chat Completions, by dialect and model; and pictures and files of tool outputs."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.factories import Json, answer, assistant, call, codes, output, render, user
from threadkeep import LossError
from threadkeep.domain.rendering import Rendered, RenderOptions
from threadkeep.formats import FormatName, get_format

PICTURE = {"type": "input_image", "image_url": "data:image/png;base64,iVBORw0KGgo="}
FILE = {"type": "input_file", "file_data": "data:application/pdf;base64,JVBERi0=", "filename": "a.pdf"}
NOTE = "System message:"
QWEN, MISTRAL, GEMMA, R1 = "qwen3.8-27b", "mistral-small-latest", "google/gemma-3-12b-it", "deepseek-r1"


def chat(*items: Any, dialect: str | None = None, strict: bool = False, **settings: Any) -> Rendered:
    options = RenderOptions(strict=strict, dialect=dialect)
    return render("chat_completion", *items, options=options, **settings)


def outline(rendered: Rendered) -> list[str]:
    """Roles and texts."""
    return [f"{message['role']}: {text_of(message)}" for message in rendered.payload["messages"]]


def text_of(message: Json) -> str:
    content = message["content"]
    if content is None:
        return "calls"
    parts = [{"text": content}] if isinstance(content, str) else content
    return "|".join(str(part.get("text", part.get("type"))).replace("\n\n", " ") for part in parts)


# System text

INNER = [user("Hi"), assistant("Hello."), user("Moved.", role="system"), user("Well?")]


@pytest.mark.parametrize("role", ["system", "developer"])
@pytest.mark.parametrize(
    ("dialect", "model"),
    [("compatible", "any"), ("compatible", QWEN), ("mistral", "any"), (None, MISTRAL), ("minimax", "MiniMax-M2"),
     (None, QWEN),
     ("openrouter", "qwen/qwen3.6-27b"), ("compatible", GEMMA), (None, "sonar-pro")],
)  # fmt: skip
def test_inner_system_text_is_the_users_where_it_may_only_lead(dialect: str | None, model: str, role: str) -> None:
    items = [*INNER[:2], user("Moved.", role=role), INNER[3]]
    found = chat(*items, dialect=dialect, model=model, instructions="Be brief.")
    roles = [line.partition(":")[0] for line in outline(found)]
    assert "system" not in roles[1:]
    assert "developer" not in roles
    assert "Moved." in str(found.payload["messages"][3]["content"])
    assert codes(found) == ([], ["role"])


@pytest.mark.parametrize(
    ("dialect", "roles"),
    [
        (None, ["system", "user", "assistant", "developer", "user"]),
        ("openai", ["system", "user", "assistant", "developer", "user"]),
        ("openrouter", ["system", "user", "assistant", "developer", "user"]),
        ("deepseek", ["system", "user", "assistant", "system", "user"]),
        ("zai", ["system", "user", "assistant", "system", "user"]),
    ],
)
def test_it_stays_at_its_place_elsewhere(dialect: str | None, roles: list[str]) -> None:
    items = [*INNER[:2], user("Moved.", role="developer"), INNER[3]]
    found = chat(*items, dialect=dialect, model="any", instructions="Be brief.")
    assert [message["role"] for message in found.payload["messages"]] == roles


def test_leading_system_text_is_one_message() -> None:
    items = [user("a", role="developer"), user("b", role="system"), user("Hi")]
    found = chat(*items, dialect="compatible", model=QWEN, instructions="Be brief.")
    assert outline(found) == ["system: Be brief. a b", "user: Hi"]
    assert codes(found) == ([], [])


def test_a_model_without_system_text_gets_it_as_the_users() -> None:
    found = chat(user("Hi"), model="gemma-2-9b-it", dialect="compatible", instructions="Be brief.")
    assert outline(found) == [f"user: {NOTE} Be brief. Hi"]


def test_the_responses_api_of_other_hosts_takes_leading_system_text_alone() -> None:
    items = [user("a", role="developer"), *INNER]
    found = render("open_responses", *items, dialect="compatible")
    assert [item["role"] for item in found.payload["input"]] == ["system", "user", "assistant", "user", "user"]
    beside = render("open_responses", *items, dialect="compatible", instructions="Be brief.")
    assert [item["role"] for item in beside.payload["input"]] == ["user", "user", "assistant", "user", "user"]
    assert (codes(found), codes(beside)) == (([], ["role"]), ([], ["role", "role"]))
    assert render("open_responses", *items).payload["input"][0]["role"] == "developer"


# Alternation and fillers


@pytest.mark.parametrize(
    ("model", "items", "expected", "repairs"),
    [
        (MISTRAL, [user("a"), user("b")], ["user: a|b"], []),
        (GEMMA, [user("a"), assistant("b"), assistant("c"), user("d")], ["user: a", "assistant: b|c", "user: d"], []),
        (R1, [user("a"), user("b"), assistant("c")], ["user: a|b", "assistant: c"], []),
        (GEMMA, [assistant("a"), user("b")], ["user: ...", "assistant: a", "user: b"], ["leading_assistant"]),
        (MISTRAL, [user("a"), call(), output(), user("b")],
         ["user: a", "assistant: calls", "tool: done", "assistant: ...", "user: b"], ["turn_order"]),
        (MISTRAL, [user("a"), assistant("b")], ["user: a", "assistant: b", "user: ..."], ["last_turn"]),
        (MISTRAL, [user("a"), call(), output()], ["user: a", "assistant: calls", "tool: done"], []),
        ("anthropic/claude-opus-4.6", [user("a"), assistant("b")], ["user: a", "assistant: b", "user: ..."],
         ["last_turn"]),
        ("anthropic/claude-sonnet-4.5", [user("a"), assistant("b")], ["user: a", "assistant: b"], []),
        ("sonar", [user("a"), assistant("b")], ["user: a", "assistant: b", "user: ..."], ["last_turn"]),
        (MISTRAL, [assistant("")], ["user: ..."], ["blank_text", "blank_text"]),
        (MISTRAL, [user("a"), assistant(""), user("b")], ["user: a|b"], ["blank_text"]),
        ("claude-sonnet-4-5", [user("a"), assistant(" "), user("b")], ["user: a", "user: b"], ["blank_text"]),
        ("claude-sonnet-4-5", [user("a", " ")], ["user: a| "], []),
        ("claude-sonnet-4-5", [user(" ", PICTURE)], ["user: image_url"], ["blank_text"]),
        ("gpt-5.4", [user("a"), user("b"), assistant("c")], ["user: a", "user: b", "assistant: c"], []),
    ],
)  # fmt: skip
def test_turns_stand_as_the_model_takes_them(
    model: str, items: list[Any], expected: list[str], repairs: list[str]
) -> None:
    found = chat(*items, model=model)
    assert outline(found) == expected
    assert codes(found) == ([], repairs)
    if {"turn_order", "last_turn", "leading_assistant"} & set(repairs):
        with pytest.raises(LossError):
            chat(*items, model=model, strict=True)


def test_a_last_message_of_the_assistant_is_continued_by_mistrals_own_api() -> None:
    found = chat(user("a"), assistant("b"), dialect="mistral", model=MISTRAL)
    assert found.payload["messages"][-1] == {"role": "assistant", "content": "b", "prefix": True}


def test_calls_of_claude_have_no_empty_text_next_to_them() -> None:
    said = answer(assistant(" "), call(), origin="open_responses")
    found = chat(user("a"), said, output(), dialect="compatible", model="anthropic/claude-opus-4.6")
    assert found.payload["messages"][1]["content"] is None
    assert codes(found) == ([], ["blank_text"])


@pytest.mark.parametrize("dialect", ["mistral", "moonshot"])
def test_an_assistant_message_without_text_and_calls_is_left_out(dialect: str) -> None:
    found = chat(user("a"), answer(assistant(""), origin="messages"), user("b"), dialect=dialect, model="any")
    assert "assistant" not in [message["role"] for message in found.payload["messages"]]
    assert codes(found) == ([], ["blank_text"])


@pytest.mark.parametrize("model", [QWEN, MISTRAL, GEMMA, "sonar", "claude-opus-5", "gpt-5.4"])
def test_an_imported_request_goes_back_as_it_came(model: str) -> None:
    roles = ["system", "assistant", "user", "user", "system"]
    body = {"model": model, "messages": [{"role": role, "content": role} for role in roles]}
    session = get_format("chat_completion").parse_request(body)
    assert session.request_payload("chat_completion") == body
    session.user("more")
    assert session.request_payload("chat_completion")["messages"][:5] == body["messages"]


@pytest.mark.parametrize("model", [QWEN, MISTRAL, GEMMA, R1, "sonar", "claude-opus-5", "gpt-5.4"])
@pytest.mark.parametrize("dialect", [None, "compatible"])
def test_what_is_stable_stays_while_the_conversation_grows(model: str, dialect: str | None) -> None:
    items = [
        user("s", role="system"), user("t", role="developer"), assistant("a"), user("b"), user("c"), assistant("d"),
        assistant("e"), call("1"), output("1", [PICTURE]), user("f"), user("g", role="system"), assistant(""),
        user("h"),
    ]  # fmt: skip
    before: list[Json] = []
    stable = 0
    for count in range(1, len(items) + 1):
        found = chat(*items[:count], model=model, dialect=dialect)
        messages = found.payload["messages"]
        assert messages[:stable] == before[:stable]
        before, stable = messages, found.stable
    assert stable > 4


# Pictures and files of tool outputs


@pytest.mark.parametrize("dialect", [None, "compatible", "minimax", "openai", "openrouter", "zai"])
@pytest.mark.parametrize(("part", "kind"), [(PICTURE, "image_url"), (FILE, "file")])
def test_pictures_and_files_of_outputs_go_into_a_user_message(dialect: str | None, part: Json, kind: str) -> None:
    taken = [{"type": "input_text", "text": "Taken."}, part]
    items = [user("Look."), call("a"), call("b", "other"), output("a", taken), output("b", "x"), user("Well?")]
    found = chat(*items, dialect=dialect, model="any")
    assert [message["role"] for message in found.payload["messages"]] == [
        "user", "assistant", "tool", "tool", "user", "user",
    ]  # fmt: skip
    assert [text_of(message) for message in found.payload["messages"][2:5]] == [
        "Taken.", "x", f"Output of lookup:|{kind}",
    ]  # fmt: skip
    assert codes(found) == ([], ["tool_media"])


def test_an_output_that_is_a_picture_alone_says_where_it_is() -> None:
    found = chat(user("Look."), call(), output("c1", [PICTURE]), dialect="compatible", model="any")
    assert found.payload["messages"][2]["content"] == "[The output is in the next user message.]"
    noted = render(
        "chat_completion", user("Look."), call(), output("c1", [PICTURE]), options=RenderOptions(vision=False)
    )
    assert "removed" in text_of(noted.payload["messages"][2])
    assert codes(noted) == ([], [])


@pytest.mark.parametrize("format_name", ["open_responses", "messages", "gemini", "converse"])
def test_formats_whose_outputs_hold_pictures_keep_them_there(format_name: FormatName) -> None:
    found = render(format_name, user("Look."), call(), output("c1", [PICTURE]), model="claude-sonnet-4-5")
    assert "tool_media" not in codes(found)[1]
