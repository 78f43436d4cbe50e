"""Content and tools in the shape of another API: read by their shape, or refused with what to call instead."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from threadkeep import InvalidItem, InvalidOption, Session, ToolRegistry, formats

pytestmark = pytest.mark.one_face

Json = dict[str, Any]

PNG = b"\x89PNG\r\n\x1a\n"
DATA = base64.b64encode(PNG).decode()
PICTURE = f"data:image/png;base64,{DATA}"
DOCUMENT = f"data:application/pdf;base64,{DATA}"
MP4 = f"data:video/mp4;base64,{DATA}"
MP3 = f"data:audio/mpeg;base64,{DATA}"
# what it is, in whose shape -> the part, and what is stored
PARTS: dict[str, tuple[Json, Json]] = {
    "a picture by URL, Chat Completions": (
        {"type": "image_url", "image_url": {"url": "https://img.example/a.png", "detail": "low"}},
        {"type": "input_image", "url": "https://img.example/a.png", "detail": "low"},
    ),
    "a picture as data, Chat Completions": (
        {"type": "image_url", "image_url": {"url": PICTURE}},
        {"type": "input_image", "url": PICTURE},
    ),
    "a picture, servers that speak Chat Completions": (
        {"type": "image_url", "image_url": PICTURE},
        {"type": "input_image", "url": PICTURE},
    ),
    "a file, Chat Completions": (
        {"type": "file", "file": {"file_data": DOCUMENT, "filename": "a.pdf"}},
        {"type": "input_file", "url": DOCUMENT, "filename": "a.pdf"},
    ),
    "a sound, Chat Completions": (
        {"type": "input_audio", "input_audio": {"data": DATA, "format": "mp3"}},
        {"type": "input_file", "url": MP3},
    ),
    "a video, servers that speak Chat Completions": (
        {"type": "video_url", "video_url": {"url": MP4}},
        {"type": "input_video", "url": MP4},
    ),
    "a document, Mistral": (
        {"type": "document_url", "document_url": "https://docs.example/a.pdf"},
        {"type": "input_file", "url": "https://docs.example/a.pdf"},
    ),
    "a picture as data, Anthropic": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}},
        {"type": "input_image", "url": PICTURE},
    ),
    "a picture as bytes, Anthropic": (
        {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": PNG}},
        {"type": "input_image", "url": PICTURE},
    ),
    "a picture by URL, Anthropic": (
        {"type": "image", "source": {"type": "url", "url": "https://img.example/a.png"}},
        {"type": "input_image", "url": "https://img.example/a.png"},
    ),
    "a document, Anthropic": (
        {
            "type": "document", "title": "a.pdf",
            "source": {"type": "base64", "media_type": "application/pdf", "data": DATA},
        },
        {"type": "input_file", "url": DOCUMENT, "filename": "a.pdf"},
    ),
    "a picture, Gemini": (
        {"inlineData": {"mimeType": "image/png", "data": DATA}},
        {"type": "input_image", "url": PICTURE},
    ),
    "a picture as bytes, Gemini's SDK": (
        {"inline_data": {"mime_type": "image/png", "data": PNG}},
        {"type": "input_image", "url": PICTURE},
    ),
    "a file, Gemini": (
        {"fileData": {"mimeType": "application/pdf", "fileUri": "gs://bucket/a.pdf"}},
        {"type": "input_file", "url": "gs://bucket/a.pdf", "media_type": "application/pdf"},
    ),
    "a picture as bytes, Bedrock": (
        {"image": {"format": "png", "source": {"bytes": PNG}}},
        {"type": "input_image", "url": PICTURE},
    ),
    "a picture in base64, Bedrock": (
        {"image": {"format": "png", "source": {"bytes": DATA}}},
        {"type": "input_image", "url": PICTURE},
    ),
    "a document, Bedrock": (
        {"document": {"format": "pdf", "name": "a", "source": {"bytes": PNG}}},
        {"type": "input_file", "url": DOCUMENT, "filename": "a.pdf"},
    ),
    "a video, Bedrock": (
        {"video": {"format": "mp4", "source": {"bytes": PNG}}},
        {"type": "input_video", "url": MP4},
    ),
}  # fmt: skip
SCHEMA: Json = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
GOOGLES: Json = {"type": "OBJECT", "properties": {"city": {"type": "STRING"}}, "required": ["city"]}
ABOUT: Json = {"name": "weather", "description": "Say the weather"}
# whose shape -> the tool
TOOLS: dict[str, Json] = {
    "Open Responses": {"type": "function", **ABOUT, "parameters": SCHEMA},
    "Chat Completions": {"type": "function", "function": {**ABOUT, "parameters": SCHEMA}},
    "Anthropic": {**ABOUT, "input_schema": SCHEMA},
    "Anthropic, with a type": {"type": "custom", **ABOUT, "input_schema": SCHEMA},
    "Gemini": {"functionDeclarations": [{**ABOUT, "parameters": GOOGLES}]},
    "Gemini, JSON Schema": {"functionDeclarations": [{**ABOUT, "parametersJsonSchema": SCHEMA}]},
    "Gemini's SDK": {"function_declarations": [{**ABOUT, "parameters_json_schema": SCHEMA}]},
    "one declaration of Gemini": {**ABOUT, "parametersJsonSchema": SCHEMA},
    "Bedrock": {"toolSpec": {**ABOUT, "inputSchema": {"json": SCHEMA}}},
    "MCP": {**ABOUT, "inputSchema": SCHEMA},
}
FLAT = {name: tool.get("toolSpec", tool) for name, tool in TOOLS.items() if "name" in tool or "toolSpec" in tool}


def schemas(payload: Json) -> list[Any]:
    """The names and schemas of the tools of a request of any format."""
    tools = payload.get("tools") or payload["toolConfig"]["tools"]
    tools = tools[0].get("functionDeclarations", tools)
    keys = ("parameters", "parametersJsonSchema", "parameters_json_schema", "input_schema", "inputSchema")
    inner = [tool.get("function", tool.get("toolSpec", tool)) for tool in tools]
    found = [(tool["name"], next(tool[key] for key in keys if key in tool)) for tool in inner]
    return [(name, schema.get("json", schema)) for name, schema in found]


@pytest.mark.parametrize("shape", PARTS)
def test_content_in_the_shape_of_another_api_is_read(conversation: Any, elsewhere: Any, shape: str) -> None:
    part, stored = PARTS[shape]
    item = conversation.user(["Look", part]).item
    assert item.to_dict()["content"] == [{"type": "input_text", "text": "Look"}, stored | native_of(item)]
    found = elsewhere.get_conversation(conversation.id)
    assert found.get_item(0).item == item
    plain = Session(model=conversation.model)
    plain.user(["Look", stored])
    for name in formats.NAMES:
        rendered, usual = found.render(name), plain.render(name)
        assert rendered.payload == usual.payload
        assert [loss for loss in rendered.losses if loss.code != "native"] == usual.losses


def native_of(item: Any) -> Json:
    native = item.content[1].native
    return {} if native is None else {"native": native}


def test_a_picture_in_any_shape_reaches_every_provider(conversation: Any) -> None:
    for part, stored in PARTS.values():
        if stored == {"type": "input_image", "url": PICTURE}:
            conversation.user([part])
    for name in formats.NAMES:
        rendered = conversation.render(name)
        assert rendered.body.count(DATA.encode()) == 8
        assert not rendered.losses


def test_outputs_of_tools_are_read_as_content_is(conversation: Any, elsewhere: Any) -> None:
    conversation.user("Go")
    conversation.add_item({"type": "function_call", "call_id": "c", "name": "draw", "arguments": "{}"})
    parts = [part for part, stored in PARTS.values() if stored == {"type": "input_image", "url": PICTURE}]
    conversation.add_function_call_output(call_id="c", output=parts)
    found = elsewhere.get_conversation(conversation.id)
    assert found.get_item(2).item.to_dict()["output"] == [{"type": "input_image", "url": PICTURE}] * len(parts)


def test_all_ways_in_read_the_same(store: Any) -> None:
    part, stored = PARTS["a picture as data, Anthropic"]
    for given in ([part], ["Look", part], part, [{"role": "user", "content": [part]}]):
        conversation = store.create_conversation(model="m", input=given)
        assert conversation.get_item(0).item.to_dict()["content"][-1] == stored
    conversation.add_items([{"type": "message", "role": "user", "content": part}])
    assert conversation.get_item(1).item.to_dict()["content"] == [stored]


def test_keys_that_only_the_provider_has_go_back_there(conversation: Any) -> None:
    part = {**PARTS["a picture by URL, Anthropic"][0], "cache_control": {"type": "ephemeral"}}
    conversation.user([part, "Look"])
    assert conversation.request_payload("messages")["messages"][0]["content"][0] == part
    assert [loss.code for loss in conversation.render("gemini").losses] == ["native"]


def test_what_came_from_a_wire_stays_as_it_came(conversation: Any, elsewhere: Any) -> None:
    """A type that only another format has, in a request of Open Responses: some server may know it."""
    said = {"type": "message", "role": "user", "content": [PARTS["a picture as data, Anthropic"][0]]}
    conversation.add_input([said], "open_responses")
    found = elsewhere.get_conversation(conversation.id)
    assert found.request_payload("open_responses")["input"][0]["content"] == said["content"]
    session = Session.from_dict(found.session().to_dict())
    assert session.request_payload("open_responses")["input"][0]["content"] == said["content"]


@pytest.mark.parametrize(
    ("part", "name"),
    [
        ({"type": "tool_result", "tool_use_id": "c", "content": "sunny"}, "messages"),
        ({"type": "tool_use", "id": "c", "name": "weather", "input": {}}, "messages"),
        ({"type": "document", "source": {"type": "base64", "data": object()}}, "messages"),
        ({"type": "image_url", "image_url": {"uri": PICTURE}}, "chat_completion"),
        ({"functionResponse": {"name": "weather", "response": {}}}, "gemini"),
        ({"inlineData": "image"}, "gemini"),
        ({"toolResult": {"toolUseId": "c", "content": []}}, "converse"),
        ({"image": {"source": {}}}, "converse"),
    ],
)
def test_what_is_no_content_names_what_takes_it(conversation: Any, part: Json, name: str) -> None:
    for content in (part, ["Look", part]):
        with pytest.raises(InvalidItem, match=f"(?s)content.*add_input.*{name}"):
            conversation.user(content)
    assert not conversation.items().items


@pytest.mark.parametrize(
    ("turn", "name"),
    [
        ({"role": "user", "parts": [{"text": "Hi"}]}, "gemini"),
        ({"role": "assistant", "content": None, "tool_calls": []}, "chat_completion"),
        ({"role": "tool", "tool_call_id": "c", "content": "sunny"}, "chat_completion"),
    ],
)
def test_a_turn_of_another_format_is_no_item(conversation: Any, turn: Json, name: str) -> None:
    with pytest.raises(InvalidItem, match=f"add_input.*{name}"):
        conversation.add_item(turn)


def test_a_part_is_no_item() -> None:
    with pytest.raises(InvalidItem, match="content of a message"):
        Session(model="m").add_item(PARTS["a picture as data, Anthropic"][0])


@pytest.mark.parametrize("shape", TOOLS)
def test_a_tool_in_any_shape_keeps_its_schema(store: Any, elsewhere: Any, shape: str) -> None:
    conversation = store.create_conversation(model="m", input="Hi", tools=[TOOLS[shape]])
    later = store.create_conversation(model="m", input="Hi")
    later.register_tools([TOOLS[shape]])
    for made in (conversation, later):
        found = elsewhere.get_conversation(made.id)
        assert found.tools[0]["parameters"] == SCHEMA
        for name in formats.NAMES:
            rendered = found.render(name)
            back = GOOGLES if (shape, name) == ("Gemini", "gemini") else SCHEMA
            assert schemas(rendered.payload) == [("weather", back)]
            assert b"Say the weather" in rendered.body
            assert not rendered.losses


@pytest.mark.parametrize("shape", FLAT)
def test_a_definition_may_be_passed_as_arguments(conversation: Any, shape: str) -> None:
    keys = {key: value for key, value in FLAT[shape].items() if key != "type"}
    conversation.register_tool(**keys)
    registry = ToolRegistry()
    registry.register(**keys, handler=lambda city: f"sunny in {city}")
    assert conversation.tools[0]["parameters"] == registry.definitions[0].parameters == SCHEMA
    assert registry.invoke("weather", {"city": "Oslo"}) == "sunny in Oslo"


def test_several_declarations_are_several_tools(conversation: Any) -> None:
    declared = [{"name": "one", "parameters": GOOGLES}, {"name": "two"}]
    tools = conversation.register_tools([{"functionDeclarations": declared, "googleSearch": {}}])
    assert [tool.key for tool in tools] == ["one", "two", "provider_tool"]
    conversation.user("Hi")
    assert conversation.request_payload("gemini")["tools"] == [{"functionDeclarations": declared, "googleSearch": {}}]


def test_parameters_go_before_what_others_call_them(conversation: Any) -> None:
    tool = conversation.register_tool("weather", parameters=SCHEMA, input_schema={"type": "object"})
    assert tool.parameters == SCHEMA


@pytest.mark.parametrize(
    ("tool", "where"),
    [
        ({"toolSpec": {"inputSchema": {"json": SCHEMA}}}, "name"),
        ({"input_schema": SCHEMA}, "name"),
        ({"toolSpec": {"name": "x", "inputSchema": {"json": 3}}}, "parameters"),
        ({"functionDeclarations": [{"name": "x", "parameters": object()}]}, r"tools\[0\]"),
    ],
)
def test_what_is_no_tool_in_any_shape_is_refused(tool: Json, where: str) -> None:
    with pytest.raises(InvalidOption, match=where):
        Session(model="m", tools=[tool])
