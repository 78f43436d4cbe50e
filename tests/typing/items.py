"""What type checkers know of items, content and tools. Never run: mypy checks it, see test_types.py."""

from __future__ import annotations

from typing import Any, assert_never, assert_type

from threadkeep import (
    AsyncConversation,
    BuiltinTool,
    Compaction,
    Content,
    Conversation,
    FunctionCall,
    FunctionCallOutput,
    FunctionTool,
    InputFile,
    InputImage,
    InputText,
    InputVideo,
    Item,
    ItemReference,
    Message,
    OutputText,
    Page,
    Part,
    ProviderItem,
    ProviderPart,
    Reasoning,
    ReasoningText,
    Refusal,
    Response,
    Session,
    StoredItem,
    SummaryText,
    Text,
    Tool,
    UnknownItem,
    UnknownPart,
)


def items_are_narrowed_by_isinstance(item: Item) -> str | None:
    if isinstance(item, Message):
        item.contents  # type: ignore[attr-defined]  # noqa: B018
        assert_type(item.content, list[Part])
        assert_type(item.author_id, str | None)
        return item.text
    item.content  # type: ignore[union-attr]  # noqa: B018
    if isinstance(item, FunctionCall | FunctionCallOutput):
        return item.call_id
    assert_type(item, Reasoning | Compaction | ItemReference | ProviderItem | UnknownItem)
    return item.id if isinstance(item, Reasoning) else None


def items_are_narrowed_by_match(item: Item) -> str | None:
    match item:
        case Message(role="user"):
            return item.text
        case Message():
            return item.phase
        case FunctionCall(name=name, arguments=arguments):
            assert_type(arguments, str)
            return name
        case FunctionCallOutput(output=output):
            assert_type(output, str | list[Part] | None)
            return None
        case Reasoning(encrypted_content=blob):
            return blob
        case Compaction() | ItemReference():
            return item.id
        case ProviderItem(format=name):
            return name
        case UnknownItem(type=kind):
            return kind
        case _:
            assert_never(item)


def parts_are_narrowed(part: Part) -> str | None:
    match part:
        case InputText() | OutputText() | Text() | ReasoningText() | SummaryText():
            part.txt  # type: ignore[union-attr]  # noqa: B018
            return part.text
        case Refusal():
            return part.refusal
        case InputImage() | InputFile() | InputVideo():
            assert_type(part.data, bytes | None)
            return part.url
        case ProviderPart():
            return part.format
        case UnknownPart():
            return part.type
        case _:
            assert_never(part)


def aliases_work_at_run_time_too(value: object) -> None:
    if isinstance(value, Item):
        assert_type(value, Item)
    elif isinstance(value, Part):
        assert_type(value, Part)


def constructors_take_extras_but_no_wrong_types(data: bytes) -> list[Part]:
    InputText(txt="Hello!")  # type: ignore[call-arg]
    InputText(text=5)  # type: ignore[arg-type]
    InputImage(5)  # type: ignore[arg-type]
    Refusal(text="No.")  # type: ignore[call-arg]
    return [
        InputText(text="Hello!", cache_control={"type": "ephemeral"}),
        OutputText(text="Hello!", annotations=[]),
        InputImage("https://example.org/a.png", detail="low"),
        InputFile(data=data, media_type="application/pdf", filename="a.pdf"),
        InputVideo(url="https://example.org/a.mp4"),
        Refusal(refusal="No."),
    ]


def items_are_made(content: Content) -> list[Item]:
    Message("user", 5)  # type: ignore[arg-type]
    Message(content="Hello!")  # type: ignore[call-arg]
    FunctionCall("add")  # type: ignore[call-arg]
    FunctionCallOutput("call_1", 5)  # type: ignore[arg-type]
    return [
        Message("user", content, author_id="ann"),
        FunctionCall("add", "call_1", {"a": 1}),
        FunctionCallOutput("call_1", [InputText(text="3")]),
        Reasoning(encrypted_content="blob"),
    ]


def messages_take_content(conversation: Conversation, session: Session) -> None:
    conversation.user(5)  # type: ignore[arg-type]
    conversation.user([5])  # type: ignore[list-item]
    conversation.usr("Hello!")  # type: ignore[attr-defined]
    conversation.add_item("Hello!")  # type: ignore[arg-type]
    conversation.add_function_call_output(call_id="call_1", output=5)  # type: ignore[arg-type]
    session.user(None)  # type: ignore[arg-type]
    assert_type(conversation.user("Hello!"), StoredItem)
    assert_type(conversation.user(["What is this?", InputImage("https://example.org/a.png")]), StoredItem)
    assert_type(conversation.system({"type": "input_text", "text": "Be brief."}), StoredItem)
    assert_type(conversation.add_items([Message("user", "Hello!"), {"role": "user"}]), list[StoredItem])
    assert_type(session.user("Hello!"), Message)
    assert_type(session.add_item({"role": "user"}), Item)


async def so_do_those_of_asyncio(conversation: AsyncConversation) -> None:
    await conversation.user(5)  # type: ignore[arg-type]
    stored = await conversation.user("Hello!")
    stored.items  # type: ignore[attr-defined]  # noqa: B018
    assert_type(stored.item, Item)


def what_is_read_is_typed(conversation: Conversation, response: Response) -> None:
    assert_type(conversation.items(), Page[StoredItem])
    assert_type(conversation.transcript()[0].item, Item)
    assert_type(response.output, list[Item])
    assert_type(response.tool_calls, list[FunctionCall])
    assert_type(response.text, str | None)
    response.txt  # type: ignore[attr-defined]  # noqa: B018


def tools_are_typed(session: Session) -> dict[str, Any] | None:
    FunctionTool(5)  # type: ignore[arg-type]
    session.register_tools(["add"])  # type: ignore[list-item]
    session.register_tools([{"name": "add"}, FunctionTool("add", parameters={}), BuiltinTool(type="mcp", server="a")])
    assert_type(session.tool_definitions, list[Tool])
    tool = session.tool_definitions[0]
    tool.parameters  # type: ignore[attr-defined]  # noqa: B018
    return tool.parameters if isinstance(tool, FunctionTool) else None
