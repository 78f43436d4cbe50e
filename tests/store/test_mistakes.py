"""Mistakes that look plausible: none of them passes in silence, in Python."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from datetime import date
from typing import Any, Final, NamedTuple

import pytest

from threadkeep import (
    Conflict,
    InputFile,
    InputImage,
    Message,
    Rendered,
    Session,
    Store,
    ThreadkeepError,
    ToolRegistry,
    UnknownItem,
    UnknownPart,
)

pytestmark = pytest.mark.parametrize("database", ["sqlite"], indirect=True)

NAN, INF = math.nan, math.inf
PICTURE = "https://example.org/a.png"
OUTPUT: Final = {"type": "function_call_output", "call_id": "c1", "output": "rain"}
OTHER: Final = {"type": "custom_tool_call", "call_id": "c2", "name": "sql", "input": "SELECT 1"}
BODY: Final = {
    "id": "r1", "model": "m", "choices": [{"finish_reason": "stop", "message": {"role": "assistant", "content": "Hi"}}],
}  # fmt: skip


class Talk(NamedTuple):
    """A conversation in which the call c1 waits, and its store."""

    store: Any
    conversation: Any

    def part(self, **part: Any) -> Any:
        return self.conversation.user([part])

    def item(self, **item: Any) -> Any:
        return self.conversation.add_item(item)

    def picture(self, url: Any) -> Any:
        return self.conversation.user([InputImage(url)])

    def output(self, call_id: Any, output: Any = "rain", **options: Any) -> Any:
        return self.conversation.add_function_call_output(call_id=call_id, output=output, **options)

    def render(self, **view: Any) -> Rendered:
        rendered: Rendered = self.conversation.render("chat_completion", **view)
        return rendered


def _async_tool() -> Any:
    registry = ToolRegistry()

    async def weather(city: str) -> str:
        return city

    registry.register(weather)
    return registry.invoke("weather", {"city": "Oslo"})


def _second_edit(talk: Talk) -> Any:
    position = talk.conversation.user("x").position
    return talk.conversation.edit(position, "")


MESSAGE: Final = {"type": "mesage", "role": "user", "content": "Hi"}
UNKNOWN_ITEM: Final = "type is the unknown type of item 'mesage'. Did you mean 'message'"
NO_URL: Final = "must be a URL such as"

# what is done -> what the error says
REFUSED: dict[str, tuple[Callable[[Talk], Any], str]] = {
    # types
    "part input_img": (lambda t: t.part(type="input_img", image_url=PICTURE), r"Did you mean 'input_image'"),
    "part inputtext": (lambda t: t.part(type="inputtext", text="x"), r"content\[0\].type is .* Did you mean 'input_t"),
    "part input-text": (lambda t: t.part(type="input-text", text="x"), "Did you mean 'input_text'"),
    "part Input_Text": (lambda t: t.part(type="Input_Text", text="x"), "Did you mean 'input_text'"),
    "part of a new type": (lambda t: t.part(type="hologram", x=1), "pass UnknownPart"),
    "part ouput_text": (
        lambda t: t.conversation.assistant([{"type": "ouput_text", "text": "x"}]), "Did you mean 'output_text'",
    ),
    "part in an output": (lambda t: t.output("c1", [{"type": "input_img"}]), r"output\[0\].type is the unknown"),
    "part of a Message": (lambda _: Message("user", [{"type": "input_img"}]), r"content\[0\].type is the unknown"),
    "part of a session": (lambda _: Session(input=[{"type": "input_text", "text": "a"}, {"type": "imput"}]), "unknown"),
    "part of an edit": (lambda t: t.conversation.edit(0, [{"type": "input_img"}]), "unknown type of content part"),
    "item mesage": (lambda t: t.item(**MESSAGE), UNKNOWN_ITEM),
    "item hologram": (lambda t: t.item(type="hologram"), "pass UnknownItem"),
    "item fuction_call": (lambda t: t.item(type="fuction_call", name="f"), "Did you mean 'function_call'"),
    "item function_call_ouput": (lambda t: t.item(type="function_call_ouput"), "Did you mean 'function_call_output'"),
    "items": (lambda t: t.conversation.add_items([{"role": "user", "content": "x"}, MESSAGE]), r"items\[1\].type"),
    "item of a new conversation": (lambda t: t.store.create_conversation(input=[MESSAGE]), r"input\[0\].type"),
    "item of a turn": (lambda t: t.conversation.add_turn([MESSAGE], BODY, "chat_completion"), UNKNOWN_ITEM),
    "item of a session": (lambda _: Session().add_item(MESSAGE), UNKNOWN_ITEM),
    "format of a provider's item": (
        lambda t: t.item(type="provider_item", format="mesages", payload={}), "format is the unknown word 'mesages'",
    ),
    "format of a provider's part": (lambda t: t.part(type="provider_item", format="gemni", payload={}), "'gemini'"),
    "type of a tool": (
        lambda t: t.store.create_conversation(tools=[{"type": "functon", "name": "f"}]), r"tools\[0\].type .*'fun",
    ),
    # roles and statuses
    "role usr": (lambda t: t.item(role="usr", content="x"), "role is the unknown role 'usr'. Did you mean 'user'"),
    "role User": (lambda t: t.item(role="User", content="x"), "Did you mean 'user'"),
    "role bot": (lambda t: t.item(role="bot", content="x"), "Roles: user, assistant"),
    "role model": (lambda t: t.item(role="model", content="x"), "Roles: user, assistant"),
    "no role": (lambda t: t.item(type="message", rol="user", content="x"), "role is missing"),
    "status of an output": (lambda t: t.output("c1", status="complete"), "Did you mean 'completed'"),
    "status of a message": (lambda t: t.item(role="user", content="x", status="complted"), "status is the unknown"),
    # content
    "message without content": (lambda t: t.item(type="message", role="user"), "content is missing"),
    "message with contents": (lambda t: t.item(role="user", contents="x"), "content is missing"),
    "message with text": (lambda t: t.item(role="assistant", text="x"), "content is missing"),
    "content that is None": (lambda t: t.item(role="user", content=None), "content is missing"),
    "content without parts": (lambda t: t.item(role="user", content=[]), "content is empty"),
    "Message without content": (lambda t: t.conversation.add_item(Message("user")), "content is empty"),
    "empty text": (lambda t: t.conversation.user(""), "content is empty in a message with the role user"),
    "no parts": (lambda t: t.conversation.user([]), "content is empty"),
    "empty part": (lambda t: t.conversation.user([""]), "content is empty"),
    "empty edit": (_second_edit, "content is empty"),
    "empty input": (lambda t: t.store.create_conversation(input=""), "content is empty"),
    "empty system text": (lambda t: t.store.create_conversation(system=""), "content is empty"),
    "text under another key": (lambda t: t.part(type="input_text", txt="x"), r"content\[0\].text is missing"),
    # media
    "picture without a source": (lambda t: t.part(type="input_image"), "has no source"),
    "picture with a misspelt source": (lambda t: t.part(type="input_image", img_url=PICTURE), "has no source"),
    "picture with a reference": (lambda t: t.part(type="input_image", reference="threadkeep-media:0"), "has no source"),
    "file without a source": (lambda t: t.part(type="input_file", filename="a.pdf"), "has no source"),
    "picture with two sources": (
        lambda t: t.part(type="input_image", image_url=PICTURE, file_id="file_1"), "has more than one source",
    ),
    "path of a picture": (lambda t: t.picture("pictures/cat.png"), NO_URL),
    "name of a picture": (lambda t: t.picture("cat.png"), NO_URL),
    "path with a drive": (lambda t: t.picture("C:\\cat.png"), NO_URL),
    "URL of a local file": (lambda t: t.picture("file:///tmp/cat.png"), "data=Path"),
    "empty URL": (lambda t: t.picture(""), NO_URL),
    "path of a file": (lambda t: t.conversation.user([InputFile("report.pdf")]), NO_URL),
    "base64 without a data URL": (lambda t: t.picture("iVBORw0KGgo="), NO_URL),
    "data URL without base64": (lambda t: t.picture("data:image/png;base64,@@"), "does not contain base64"),
    "picture in an output": (lambda t: t.output("c1", [InputImage("cat.png")]), r"output\[0\].url"),
    "reference as a URL": (lambda t: t.picture(f"threadkeep-media:{'0' * 64}"), "no provider can read"),
    # numbers
    "state NaN": (lambda t: t.conversation.set_state("a", NAN), "finite"),
    "state with infinity": (lambda t: t.conversation.set_state("a", {"b": [INF]}), "finite"),
    "state of an append": (lambda t: t.conversation.user("x", states={"a": NAN}), "finite"),
    "NaN in an item": (lambda t: t.item(role="user", content="x", score=NAN), "item.score must be a finite number"),
    "infinity in a part": (lambda t: t.part(type="input_text", text="x", score=-INF), r"content\[0\].score must be"),
    "NaN in arguments": (
        lambda t: t.item(type="function_call", call_id="c9", name="f", arguments={"x": NAN}), "arguments.x must be",
    ),
    "temperature NaN": (lambda t: t.store.create_conversation(temperature=NAN), "temperature must be a number"),
    "NaN in extra": (lambda t: t.conversation.update(extra={"messages": {"x": NAN}}), "extra.messages.x must be"),
    "infinity in a schema": (lambda t: t.conversation.json_output({"maximum": INF}), "finite"),
    "NaN in a tool": (lambda t: t.conversation.register_tool("f", "d", {"default": NAN}), "parameters.default must be"),
    "latency NaN": (lambda t: t.conversation.add_response(BODY, "chat_completion", latency_ms=NAN), "latency_ms"),
    # calls
    "output without a call": (lambda t: t.output("nope"), "has no call 'nope'. pending_calls"),
    "output without an id": (lambda t: t.output(""), "call_id must be a string that is not empty"),
    "item without output": (lambda t: t.item(type="function_call_output", call_id="c1"), "output is missing"),
    "second output": (lambda t: (t.output("c1"), t.output("c1", "snow")), "The call 'c1' has an output already"),
    "second output as an item": (lambda t: (t.output("c1"), t.item(**OUTPUT)), "has an output already"),
    "two outputs at once": (lambda t: t.conversation.add_items([OUTPUT, OUTPUT]), "has an output already"),
    "output before its call": (
        lambda t: t.conversation.add_items([{**OUTPUT, "call_id": "c2"}, OTHER]), "has no call 'c2'",
    ),
    "output of another kind": (lambda t: (t.item(**OTHER), t.output("c2")), "answers: it is of a custom_tool_call"),
    "call without a name": (lambda t: t.item(type="function_call", call_id="c3", name=""), "name must be a string"),
    "asynchronous tool": (lambda _: _async_tool(), "'weather' is asynchronous; nothing was run. Call await"),
    "reference without an id": (lambda t: t.item(type="item_reference", id=""), "id must be a string"),
    # options
    "empty model": (lambda t: t.store.create_conversation(model=""), "model must be text that is not blank"),
    "empty model of an update": (lambda t: t.conversation.update(model=" "), "model must be text"),
    "empty model of an import": (
        lambda t: t.store.import_request({"messages": [{"role": "user", "content": "x"}]}, "messages", model=""), "not",
    ),
    "misspelt word": (lambda t: t.conversation.update(tool_choice="atuo"), "Did you mean 'auto'"),
    "upto behind the end": (lambda t: t.render(upto=99), "upto lies behind the last item, which is at position 1: 99"),
    "upto of a session": (lambda _: Session(input="x", model="m").render("messages", upto=1), "at position 0: 1"),
    "span that ends before it begins": (
        lambda t: t.store.usage(since=date(2026, 2, 1), until=date(2026, 1, 1)), "until is before since",
    ),
    "span of tools": (
        lambda t: t.store.tool_usage(since=date(2026, 2, 1), until=date(2026, 1, 1)), "until is before since",
    ),
    "format of usage": (lambda t: t.store.usage(format="mesages"), "Did you mean 'messages'"),
}  # fmt: skip

# what is stored, because a provider or another library may have it like that -> what rendering reports
REPORTED: dict[str, tuple[Callable[[Talk], Any], str]] = {
    "lonely output in a provider's turns": (
        lambda t: (
            t.output("c1"),
            t.conversation.add_input([{"role": "tool", "tool_call_id": "nope", "content": "x"}], "chat_completion"),
        ),
        "orphan_output",
    ),
    "lonely output taken as it is": (
        lambda t: t.conversation.add_item({**OUTPUT, "call_id": "nope"}, known=False), "orphan_output",
    ),
    "arguments that broke off": (
        lambda t: t.item(type="function_call", call_id="c4", name="f", arguments='{"city": "Os'), "malformed_arguments",
    ),
    "new type of item": (lambda t: t.conversation.add_item(UnknownItem(type="hologram", x=1)), "item"),
    "new type of part": (lambda t: t.conversation.user(["a", UnknownPart(type="hologram")]), "part"),
    "reference of others": (lambda t: t.item(type="item_reference", id="msg_of_others"), "item"),
}  # fmt: skip


@pytest.fixture
def talk(store: Store) -> Talk:
    conversation = store.create_conversation(model="m", input="Is it raining?")
    conversation.add_item({"type": "function_call", "call_id": "c1", "name": "weather", "arguments": "{}"})
    return Talk(store, conversation)


def test_plausible_mistakes_are_refused_with_what_is_wrong_and_where(talk: Talk) -> None:
    failures = {}
    for mistake, (make, problem) in REFUSED.items():
        conversation = talk.conversation.fork()
        try:
            make(Talk(talk.store, conversation))
        except ThreadkeepError as error:
            if not re.search(problem, str(error)):
                failures[mistake] = str(error)
        else:
            failures[mistake] = "silent"
    assert (failures, len(REFUSED)) == ({}, 87)


def test_what_a_provider_may_have_is_stored_and_reported(talk: Talk) -> None:
    failures = {}
    for mistake, (make, code) in REPORTED.items():
        conversation = talk.conversation.fork()
        make(Talk(talk.store, conversation))
        rendered = conversation.render("chat_completion")
        codes = {report.code for report in (*rendered.losses, *rendered.repairs)}
        if code not in codes:
            failures[mistake] = codes
    assert failures == {}


def test_white_space_is_stored_and_reported_where_providers_refuse_it(store: Store) -> None:
    conversation = store.create_conversation(model="m", input="Hi")
    conversation.assistant("Hello.")
    conversation.user(" \n")
    refused, taken = conversation.render("messages"), conversation.render("open_responses")
    assert "blank_text" in [report.code for report in (*refused.losses, *refused.repairs)]
    assert (*taken.losses, *taken.repairs) == ()


def test_an_output_of_a_call_that_the_provider_stores_is_taken(talk: Talk) -> None:
    talk.conversation.update(previous_response_id="resp_1")
    assert talk.output("c_of_the_provider").item.output == "rain"


def test_the_second_output_is_refused_also_where_it_raced(talk: Talk) -> None:
    talk.render()
    other = talk.store.get_conversation(talk.conversation.id)
    other.add_function_call_output(call_id="c1", output="snow")
    with pytest.raises(Conflict, match="has an output already"):
        talk.output("c1")


def test_a_repeated_output_is_replayed(talk: Talk) -> None:
    first = talk.output("c1", idempotency_key="k")
    again = talk.output("c1", idempotency_key="k")
    assert (again.position, again.replayed) == (first.position, True)
