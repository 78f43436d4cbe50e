"""What stands in answers alone does not go back: the SDKs' output types beside their input types."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterable, Iterator
from typing import Any

import anthropic.types as messages_types
import anthropic.types.beta as messages_beta
import openai.types.chat as chat_types
import openai.types.responses as responses_types
import pytest
from pydantic import TypeAdapter
from typing_extensions import is_typeddict

from threadkeep import Session, Store

Json = dict[str, Any]

# format -> what it answers with, and what it takes back
TYPES: dict[str, tuple[Any, Any]] = {
    "open_responses": (responses_types.ResponseOutputItem, responses_types.ResponseInputItemParam),
    "messages": (messages_types.ContentBlock, messages_types.ContentBlockParam),
    "messages.beta": (messages_beta.BetaContentBlock, messages_beta.BetaContentBlockParam),
    "chat_completion": (chat_types.ChatCompletionMessage, chat_types.ChatCompletionAssistantMessageParam),
}
# what only answers have, as types and keys, or keys and values
CREATED_BY = (
    *("function_call_output", "computer_call_output", "tool_search_call", "tool_search_output", "compaction"),
    *("shell_call", "shell_call_output", "shell_call_output.output", "apply_patch_call", "apply_patch_call_output"),
    "custom_tool_call_output",
)
ROLES = ("assistant", "critic", "discriminator", "system", "tool", "unknown", "user")
CITED = ("char", "page", "content_block")
CITATIONS = {f"text.citations.{kind}_location.file_id" for kind in CITED}
OF_RESULTS = {f"mcp_tool_result.content.citations.{kind}_location.file_id" for kind in CITED}
LEFT_OUT: dict[str, set[str]] = {
    "open_responses": {
        *(f"{kind}.created_by" for kind in CREATED_BY),
        *("custom_tool_call_output.status", "computer_call_output.status=failed"),
        *(f"additional_tools.role={role}" for role in ROLES),
    },
    "chat_completion": {"audio.data", "audio.expires_at", "audio.transcript"},
}
# what goes back nevertheless: Anthropic's types take whole blocks of answers, too, and OpenAI takes whole messages
SENT: dict[str, set[str]] = {
    "messages": CITATIONS,
    "messages.beta": CITATIONS | OF_RESULTS,
    "chat_completion": {"annotations"},
}


# The comparison


def plain(annotation: Any) -> Any:
    """An annotation without what is said about it."""
    while typing.get_origin(annotation) in (typing.Annotated, typing.Required, typing.NotRequired):
        annotation = typing.get_args(annotation)[0]
    return annotation


def members(annotation: Any) -> Iterator[Any]:
    """The types that a union, and the lists in it, are made of."""
    annotation = plain(annotation)
    origin = typing.get_origin(annotation)
    is_list = isinstance(origin, type) and issubclass(origin, Iterable) and not issubclass(origin, dict)
    if origin in (typing.Union, types.UnionType) or is_list:
        for inner in typing.get_args(annotation):
            yield from members(inner)
    else:
        yield annotation


def fields(kind: Any) -> Json | None:
    """The keys of an object type, as they are on the wire, with their annotations."""
    if hasattr(kind, "model_fields"):
        return {field.alias or name: field.annotation for name, field in kind.model_fields.items()}
    return typing.get_type_hints(kind, include_extras=True) if is_typeddict(kind) else None


def words(annotation: Any) -> set[Any]:
    """The values that an annotation names."""
    return {
        word for one in members(annotation) if typing.get_origin(one) is typing.Literal for word in typing.get_args(one)
    }


def type_words(kind: Any) -> set[Any]:
    return words((fields(kind) or {}).get("type", str))


def only_in(output: Any, given: Any, path: tuple[str, ...], seen: set[Any]) -> Iterator[str]:
    """The keys and values that the output types have, and the input types do not."""
    inputs = [one for one in members(given) if is_typeddict(one)]
    for kind in members(output):
        named = type_words(kind)
        matching = [one for one in inputs if type_words(one) & named] or [one for one in inputs if not named]
        if not fields(kind) or not matching or (kind, path) in seen:
            continue
        seen.add((kind, path))
        place = (*path, *(named if len(named) == 1 and (not path or len([*members(output)]) > 2) else ()))
        for key, annotation in (fields(kind) or {}).items():
            known = [found[key] for one in matching if key in (found := fields(one) or {})]
            name = ".".join((*place, key))
            if not known:
                yield name
                continue
            taken = set().union(*map(words, known))
            if key != "type" and taken and str not in {one for annotated in known for one in members(annotated)}:
                yield from (f"{name}={word}" for word in words(annotation) - taken)
            yield from only_in(annotation, typing.Union[tuple(known)], (*place, key), seen)  # noqa: UP007 - of a list


@pytest.mark.parametrize("name", TYPES)
def test_a_key_that_only_answers_have_is_in_a_table(name: str) -> None:
    output, given = TYPES[name]
    assert set(only_in(output, given, (), set())) == LEFT_OUT.get(name, set()) | SENT.get(name, set())


# What is sent

LEAST: dict[str, Json] = {
    "function_call_output": {"call_id": "c1", "output": "x"},
    "computer_call_output": {"call_id": "c1", "output": {"type": "computer_screenshot", "image_url": "data:,"}},
    "tool_search_call": {"id": "ts_1", "call_id": None, "arguments": {}, "execution": "server", "status": "completed"},
    "tool_search_output": {"id": "to_1", "call_id": None, "tools": [], "execution": "server", "status": "completed"},
    "compaction": {"id": "cmp_1", "encrypted_content": "x"},
    "shell_call": {"id": "sh_1", "call_id": "c1", "action": {"commands": ["ls"]}, "status": "completed"},
    "shell_call_output": {
        "id": "so_1", "call_id": "c1", "status": "completed", "max_output_length": None,
        "output": [{"stdout": "a", "stderr": "", "outcome": {"type": "exit", "exit_code": 0}, "created_by": "u1"}],
    },
    "apply_patch_call": {
        "id": "ap_1", "call_id": "c1", "status": "completed", "operation": {"type": "delete_file", "path": "a"},
    },
    "apply_patch_call_output": {"id": "ao_1", "call_id": "c1", "status": "completed", "output": None},
    "custom_tool_call_output": {"id": "co_1", "call_id": "c1", "output": "x", "status": "completed"},
    "some_future_call": {"id": "fut_1", "what": {"created_by": "its own"}},
}  # fmt: skip
# the call that an output needs before it
CALLS: dict[str, Json] = {
    "function_call_output": {"type": "function_call", "call_id": "c1", "name": "f", "arguments": "{}"},
    "computer_call_output": {
        "type": "computer_call", "id": "cu_1", "call_id": "c1", "pending_safety_checks": [], "status": "completed",
        "action": {"type": "wait"},
    },
    "shell_call_output": {"type": "shell_call", **LEAST["shell_call"]},
    "apply_patch_call_output": {"type": "apply_patch_call", **LEAST["apply_patch_call"]},
    "custom_tool_call_output": {"type": "custom_tool_call", "call_id": "c1", "name": "f", "input": "x"},
}  # fmt: skip


def answered(store: Store, *items: Json) -> Any:
    """A conversation with an answer of these items."""
    conversation = store.create_conversation(model="gpt-5.4", input="Hi")
    body = {"id": "resp_1", "object": "response", "created_at": 1, "model": "gpt-5.4", "status": "completed"}
    conversation.add_response({**body, "output": list(items)}, "open_responses")
    return conversation


@pytest.mark.parametrize("kind", LEAST)
def test_output_keys_are_stored_and_not_sent(kind: str) -> None:
    least = {"type": kind, **LEAST[kind]}
    marks = {"created_by": "u1", "_agents_tool_title": "T", "_agents_tool_description": "D"}
    before = [CALLS[kind]] if kind in CALLS else []
    with Store("sqlite://") as store:
        conversation = answered(store, *before, least | marks)
        rendered = conversation.render("open_responses")
        sent = next(item for item in rendered.payload["input"] if item.get("type") == kind)
        stored = conversation.items().items[-1].item.to_dict()
    assert sent.keys() <= least.keys() - ({"status"} if kind == "custom_tool_call_output" else set())
    assert all("created_by" not in chunk for chunk in sent.get("output") or () if isinstance(chunk, dict))
    repairs = [repair.code for repair in rendered.repairs if repair.code != "missing_output"]
    assert (sent.get("what"), rendered.losses, repairs) == (least.get("what"), [], [])
    assert stored["created_by"] == "u1"
    if kind in {name for pair in CALLS.items() for name in (pair[0], pair[1]["type"])}:
        TypeAdapter(responses_types.ResponseInputItemParam).validate_python(sent)


@pytest.mark.parametrize(
    ("kind", "key", "value", "nearest"),
    [
        ("computer_call_output", "status", "failed", "incomplete"),
        *(("additional_tools", "role", role, "developer") for role in ROLES),
    ],
)
def test_values_that_only_answers_have_become_the_nearest_of_the_input(
    kind: str, key: str, value: str, nearest: str
) -> None:
    item = {"type": kind, **LEAST.get(kind, {"id": "at_1", "tools": []}), key: value}
    with Store("sqlite://") as store:
        conversation = answered(store, *([CALLS[kind]] if kind in CALLS else []), item)
        conversation.user("Go on")
        for _ in range(2):  # the second time from what is kept
            rendered = conversation.render("open_responses")
            sent = next(one for one in rendered.payload["input"] if one["type"] == kind)
            assert sent == item | {key: nearest}
            assert [(repair.code, repair.path) for repair in rendered.repairs] == [("range", key)]


def test_messages_lose_no_key_that_an_answer_of_another_format_had() -> None:
    """Annotations go back to Chat Completions as they came."""
    note = {"type": "url_citation", "url_citation": {"url": "u", "title": "t", "start_index": 0, "end_index": 1}}
    message = {"role": "assistant", "content": "Hi", "annotations": [note]}
    session = Session(model="gpt-5.4", input="Hi")
    session.add_response({"choices": [{"message": message, "finish_reason": "stop"}]}, "chat_completion")
    sent = session.render("chat_completion").payload["messages"][1]
    assert sent["annotations"] == [note]
