"""How a request may end, by format and model: what the model does not continue is followed by a filler, or reported."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.factories import Json, assistant, call, codes, output, render, user
from threadkeep import LossError, Store
from threadkeep.domain.rendering import RenderOptions
from threadkeep.formats import FormatName, get_format
from threadkeep.formats.shared.provider_rules import FILLER

NEW, OLD = "claude-opus-5", "claude-sonnet-4-5"
ENDS_WITH_ANSWER = [user("Hi"), assistant("Hello.")]
THINKING = {"type": "thinking", "thinking": "Hm.", "signature": "EqQB"}


def last_role(payload: Json) -> str:
    turns = payload.get("messages") or payload["contents"]
    return str(turns[-1]["role"])


@pytest.mark.parametrize(
    ("format_name", "model", "role", "reports"),
    [
        ("messages", NEW, "user", ([], ["last_turn"])),
        ("messages", "claude-sonnet-4-6", "user", ([], ["last_turn"])),
        ("messages", "claude-fable-5", "user", ([], ["last_turn"])),
        ("messages", OLD, "assistant", ([], [])),
        ("messages", "kimi-k3", "assistant", ([], [])),
        ("converse", "us.anthropic.claude-opus-4-6-v1", "user", ([], ["last_turn"])),
        ("converse", "arn:aws:bedrock:eu-west-1::foundation-model/anthropic.claude-sonnet-5-v1:0", "user",
         ([], ["last_turn"])),
        ("converse", "anthropic.claude-sonnet-4-5-20250929-v1:0", "assistant", ([], [])),
        ("converse", "amazon.nova-pro-v1:0", "assistant", ([], [])),
        ("converse", "meta.llama3-8b-instruct-v1:0", "user", ([], ["last_turn"])),
        ("converse", "us.meta.llama4-scout-17b-instruct-v1:0", "user", ([], ["last_turn"])),
        ("gemini", "gemini-3-pro", "model", ([], ["last_turn"])),
    ],
)  # fmt: skip
def test_a_last_turn_of_the_assistant_by_model(
    format_name: FormatName, model: str, role: str, reports: tuple[list[str], list[str]]
) -> None:
    found = render(format_name, *ENDS_WITH_ANSWER, model=model)
    assert (last_role(found.payload), codes(found)) == (role, reports)
    assert found.stable <= len(ENDS_WITH_ANSWER) - 1  # a later append takes the filler away
    if reports != ([], []):
        with pytest.raises(LossError):
            render(format_name, *ENDS_WITH_ANSWER, model=model, options=RenderOptions(strict=True))


@pytest.mark.parametrize("format_name", ["messages", "converse"])
@pytest.mark.parametrize("last", [user("Go on."), call("a")])
def test_a_last_turn_of_the_user_or_of_results_needs_no_filler(format_name: FormatName, last: Any) -> None:
    items = [user("Hi"), assistant("Hello."), last, *([output("a")] if last["type"] == "function_call" else [])]
    found = render(format_name, *items, model=f"anthropic.{NEW}")
    assert FILLER not in str(found.payload["messages"])
    assert codes(found) == ([], ["tool_history"] if format_name == "converse" and "call_id" in last else [])


@pytest.mark.parametrize("format_name", ["messages", "converse"])
def test_a_blank_last_message_of_the_user_leaves_the_assistant_last(format_name: FormatName) -> None:
    found = render(format_name, *ENDS_WITH_ANSWER, user(" \n "), model=f"anthropic.{NEW}")
    assert last_role(found.payload) == "user"
    assert codes(found) == ([], ["blank_text", "last_turn"])


def interrupted(model: str, *blocks: Json) -> Any:
    """A conversation whose last answer broke off after these blocks."""
    talk = Store("sqlite://").create_conversation(model=model, input="Hi")
    usage = {"input_tokens": 1, "output_tokens": 1}
    head = {"id": "m", "type": "message", "role": "assistant", "content": [], "model": "c", "usage": usage}
    with talk.stream_response("messages") as recorder:
        recorder.feed({"type": "message_start", "message": head})
        for index, block in enumerate(blocks):
            recorder.feed({"type": "content_block_start", "index": index, "content_block": block})
            recorder.feed({"type": "content_block_stop", "index": index})
    return talk


def test_an_interrupted_answer_is_followed_by_a_filler_where_it_is_not_continued() -> None:
    found = interrupted(NEW, {"type": "text", "text": "Half an"}).render("messages")
    assert [message["role"] for message in found.payload["messages"]] == ["user", "assistant", "user"]
    assert codes(interrupted(OLD, {"type": "text", "text": "Half an"}).render("messages")) == ([], [])


def test_what_ends_with_thinking_is_reported_for_models_that_take_a_prefill() -> None:
    found = interrupted(OLD, THINKING).render("messages")
    assert found.payload["messages"][-1]["content"] == [THINKING]
    assert codes(found) == (["refused"], [])
    assert codes(interrupted(NEW, THINKING).render("messages")) == ([], ["last_turn"])


def test_an_answer_that_the_service_paused_is_sent_back_as_it_is() -> None:
    use = {"type": "server_tool_use", "id": "srvtoolu_1", "name": "web_search", "input": {"query": "x"}}
    found = interrupted(NEW, {"type": "text", "text": "Searching."}, use).render("messages")
    assert last_role(found.payload) == "assistant"
    assert codes(found) == ([], [])


@pytest.mark.parametrize(
    ("format_name", "request_body"),
    [
        ("messages", {"model": NEW, "max_tokens": 9, "messages": [
            {"role": "user", "content": "Hi"}, {"role": "assistant", "content": "{"}]}),
        ("converse", {"modelId": f"anthropic.{NEW}", "messages": [
            {"role": "user", "content": [{"text": "Hi"}]}, {"role": "assistant", "content": [{"text": "{"}]}]}),
    ],
)  # fmt: skip
def test_an_imported_request_goes_back_as_it_came_and_is_reported(format_name: FormatName, request_body: Json) -> None:
    found = get_format(format_name).parse_request(request_body).render(format_name)
    assert found.payload == request_body
    assert codes(found) == (["refused"], [])
