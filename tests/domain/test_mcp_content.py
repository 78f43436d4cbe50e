"""Results of MCP tools as outputs: whole and in parts, as objects of the SDK and as JSON in either spelling."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable
from typing import Any

import mcp_types as mcp
import pytest

from threadkeep import FunctionCallOutput, InvalidItem, Session, Store
from threadkeep.formats import NAMES, FormatName

Json = dict[str, Any]

TEXT = mcp.TextContent(type="text", text="found")
IMAGE = mcp.ImageContent(type="image", data="iVBORw==", mime_type="image/png")
AUDIO = mcp.AudioContent(type="audio", data="AAAA", mime_type="audio/wav")
BODY = mcp.TextResourceContents(uri="file:///a.txt", text="body", mime_type="text/plain")
RESOURCE = mcp.EmbeddedResource(type="resource", resource=BODY)
BLOB = mcp.BlobResourceContents(uri="file:///a%20b.pdf", blob="JVBERi0=", mime_type="application/pdf")
PICTURE = mcp.BlobResourceContents(uri="https://a.example/p.png", blob="iVBORw==", mime_type="image/png")
LINK = mcp.ResourceLink(type="resource_link", uri="file:///z", name="z", mime_type="text/plain")
LINKED: Json = {"type": "resource_link", "uri": "file:///z", "name": "z", "mimeType": "text/plain"}

# how a value of the SDK reaches the store
FORMS: dict[str, Callable[[Any], Any]] = {
    "object": lambda value: value,
    "snake": lambda value: value.model_dump(),
    "camel": lambda value: value.model_dump(mode="json", by_alias=True),
    "bare": lambda value: value.model_dump(mode="json", by_alias=True, exclude_none=True),
}


def text(value: str) -> Json:
    return {"type": "input_text", "text": value}


PNG: Json = {"type": "input_image", "url": "data:image/png;base64,iVBORw=="}
# a block of MCP -> the parts that it becomes
BLOCKS: list[tuple[Any, list[Json]]] = [
    (TEXT, [text("found")]),
    (IMAGE, [PNG]),
    (AUDIO, [{"type": "input_file", "url": "data:audio/wav;base64,AAAA"}]),
    (RESOURCE, [text("file:///a.txt\nbody")]),
    (
        mcp.EmbeddedResource(type="resource", resource=BLOB),
        [
            text("file:///a%20b.pdf"),
            {"type": "input_file", "url": "data:application/pdf;base64,JVBERi0=", "filename": "a b.pdf"},
        ],
    ),
    (mcp.EmbeddedResource(type="resource", resource=PICTURE), [text("https://a.example/p.png"), PNG]),
]


def output_of(value: Any) -> Json:
    """An output as it is stored, in its public form."""
    return FunctionCallOutput(call_id="c1", output=value).to_dict()


def texts(parts: list[Json]) -> list[Json]:
    """Parts with one type for texts: JSON of one that is not more than that may be of this library, too."""
    return [{**part, "type": "input_text"} if part["type"] == "text" else part for part in parts]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(("block", "parts"), BLOCKS)
def test_a_block_becomes_parts(block: Any, parts: list[Json], form: str) -> None:
    value = FORMS[form](block)
    assert texts(output_of([value])["output"]) == parts
    whole = output_of({"content": [value], "isError": False})
    assert (whole["output"], whole.get("status")) == (parts, None)
    if form == "object" or block is not TEXT:
        assert output_of(value)["output"] == parts


@pytest.mark.parametrize("form", FORMS)
def test_a_link_becomes_its_json(form: str) -> None:
    (part,) = output_of([FORMS[form](LINK)])["output"]
    assert json.loads(part["text"]) == LINKED


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("is_error", [False, True])
def test_a_whole_result_says_whether_the_tool_failed(form: str, is_error: bool) -> None:
    result = mcp.CallToolResult(content=[TEXT, IMAGE, LINK], is_error=is_error)
    stored = output_of(FORMS[form](result))
    assert stored["output"][:2] == [text("found"), PNG]
    assert stored.get("status") == ("failed" if is_error else None)
    stated = FunctionCallOutput(call_id="c1", output=FORMS[form](result), status="incomplete")
    assert stated.status == "incomplete"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("structured", "said", "added"),
    [
        ({"a": 1}, "found", ['{"a": 1}']),
        ({"a": [1, None]}, '{"a":[1,null]}', []),  # servers say it as text, too
        ({"result": 5}, "5", []),  # as the SDK wraps what is no object
        ({"result": "found"}, "found", []),
        ({"result": [1]}, "[2]", ['{"result": [1]}']),
    ],
)
def test_structured_content_is_sent_once(structured: Any, said: str, added: list[str], form: str) -> None:
    block = mcp.TextContent(type="text", text=said)
    result = mcp.CallToolResult(content=[block], structured_content=structured)
    assert [part["text"] for part in output_of(FORMS[form](result))["output"]] == [said, *added]


def test_a_result_may_hold_nothing_but_structured_content() -> None:
    assert output_of({"structuredContent": {"a": 1}})["output"] == [text('{"a": 1}')]
    assert output_of(mcp.CallToolResult(content=[]))["output"] == []


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("name", NAMES)
def test_what_no_model_sees_is_kept_and_reported(name: FormatName, form: str) -> None:
    marked = mcp.TextContent(type="text", text="found", annotations=mcp.Annotations(priority=1), _meta={"a": 1})
    session = answered(FORMS[form](mcp.CallToolResult(content=[marked], _meta={"b": 2})))
    found = session.items[-1].to_object()
    assert found["native"] == {"mcp": {"_meta": {"b": 2}}}
    assert found["output"][0]["native"]["mcp"]["_meta"] == {"a": 1}
    assert found["output"][0]["native"]["mcp"]["annotations"]["priority"] == 1
    assert [loss.code for loss in session.render(name).losses] == ["native", "native"]


def answered(output: Any) -> Session:
    session = Session(model="m", input="Look it up.")
    session.add_item({"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"})
    session.add_function_call_output("c1", output)
    return session


@pytest.mark.parametrize("name", NAMES)
def test_every_format_gets_the_texts_or_reports_them(name: FormatName) -> None:
    session = answered(mcp.CallToolResult(content=[TEXT, RESOURCE, LINK], is_error=True))
    rendered = session.render(name)
    body = json.dumps(rendered.payload)
    assert all(word in body for word in ("found", "file:///a.txt", "body", "file:///z"))
    assert {loss.code for loss in rendered.losses} <= {"status"}


@pytest.mark.parametrize("form", FORMS)
def test_results_are_stored(form: str) -> None:
    result = FORMS[form](mcp.CallToolResult(content=[TEXT, RESOURCE], is_error=True))
    with Store("sqlite://") as store:
        conversation = store.create_conversation(model="m", input="Look it up.")
        conversation.add_item({"type": "function_call", "call_id": "c1", "name": "find", "arguments": "{}"})
        stored = conversation.add_function_call_output(call_id="c1", output=result)
        again = store.get_conversation(conversation.id).items().items[-1].item
    assert stored.item.to_dict() == again.to_dict()
    assert again.to_dict()["output"] == [text("found"), text("file:///a.txt\nbody")]
    assert again.to_dict()["status"] == "failed"


def test_blocks_of_mcp_stand_in_messages_too() -> None:
    """As a prompt of a server has them."""
    session, content = Session(model="m"), [TEXT, IMAGE, RESOURCE]
    session.user(typing.cast("Any", content))
    assert session.items[0].to_dict()["content"] == [text("found"), PNG, text("file:///a.txt\nbody")]


@pytest.mark.parametrize(
    ("odd", "problem"),
    [
        ({"content": "found", "isError": True}, r"output\.content must be a list of blocks"),
        ({"content": [5], "isError": True}, r"output\[0\] must be a content part"),
        ([{"type": "resource"}], r"output\[0\]\.resource must be a resource with text or a blob"),
        ([{"type": "resource", "resource": {"uri": "file:///a"}}], "must be a resource with text or a blob"),
        ({"answer": 5}, "output must be text or a list of content parts"),
    ],
)
def test_what_is_no_result_is_refused(odd: Any, problem: str) -> None:
    with pytest.raises(InvalidItem, match=problem):
        FunctionCallOutput(call_id="c1", output=odd)
