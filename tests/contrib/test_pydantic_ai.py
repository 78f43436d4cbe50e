"""The conversation store of Pydantic AI: messages of every kind, agents, scopes, forks and conflicts."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from copy import deepcopy
from random import Random
from typing import Any
from uuid import uuid4

import httpx2
import pytest
from pydantic_ai import Agent
from pydantic_ai.conversation import Conversation
from pydantic_ai.conversation_store import ConversationConflict, ConversationRecord
from pydantic_ai.messages import (
    BinaryContent,
    ModelRequest,
    ModelResponse,
    RetryFeedbackPart,
    RetryInfo,
    RetryPromptPart,
    TextPart,
    ThinkingPart,
    ToolCallPart,
    ToolReturnPart,
    UserPromptPart,
)
from pydantic_ai.models.function import FunctionModel
from pydantic_ai.models.test import TestModel
from pydantic_ai.tools import DeferredToolRequests, DeferredToolResults
from pydantic_ai.ui.ag_ui import AGUIAdapter
from pydantic_ai.ui.vercel_ai import VercelAIAdapter
from pydantic_ai.usage import RequestUsage
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.conftest import is_set
from tests.contrib.pydantic_messages import a_message
from tests.store.watching import statements_of
from threadkeep import AsyncStore, InvalidItem, InvalidOption, Session, Store
from threadkeep.contrib.pydantic_ai import ThreadkeepConversationStore, message_history

AnyStore = Store | AsyncStore
pytestmark = pytest.mark.usefixtures("runner")  # the loop of tests that are coroutines
MESSAGES = 2_000 if is_set("THREADKEEP_LONG") else 200


@pytest.fixture
def kept(store: AnyStore) -> ThreadkeepConversationStore:
    return ThreadkeepConversationStore(store)


def said(*texts: str) -> list[Any]:
    return [
        ModelResponse(parts=[TextPart(text)]) if number % 2 else ModelRequest(parts=[UserPromptPart(text)])
        for number, text in enumerate(texts)
    ]


def new_id() -> str:
    return uuid4().hex


# Messages


async def test_messages_of_every_kind_come_back_equal(kept: ThreadkeepConversationStore) -> None:
    messages = [a_message(Random(seed)) for seed in range(MESSAGES)]
    conversation = Conversation(messages=deepcopy(messages), conversation_id=new_id())
    await kept.save(conversation)
    loaded = await kept.load(conversation.conversation_id)
    assert loaded is not None
    assert loaded.messages == messages
    entries = await kept.load_entries(conversation.conversation_id, limit=7)
    assert entries is not None
    assert [entry.message for entry in entries] == messages[-7:]


DETAIL: Any = {"type": "missing", "loc": ("b",), "msg": "Field required"}
RETRIES: list[Any] = [
    lambda: RetryFeedbackPart(content=[DETAIL], retry=RetryInfo(cause="validation_error")),
    lambda: RetryFeedbackPart(
        content=[DETAIL, DETAIL | {"input": {"a": 1}}], retry=RetryInfo(cause="validation_error")
    ),
    lambda: RetryFeedbackPart(content="again", retry=RetryInfo(cause="model_retry")),
    lambda: RetryPromptPart(content=[DETAIL], tool_name="add", tool_call_id="c1"),
    lambda: RetryPromptPart(content=[], tool_name="add", tool_call_id="c1"),
    lambda: RetryPromptPart(content=[DETAIL]),
]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.filterwarnings("ignore:.*RetryPromptPart.*")
@pytest.mark.parametrize("retry", RETRIES, ids=range(len(RETRIES)))
async def test_details_of_errors_without_their_input_are_read_again(
    kept: ThreadkeepConversationStore, retry: Any
) -> None:
    """As `errors(include_input=False)` gives them: Pydantic AI writes them, but does not read its own JSON."""
    call = ToolCallPart("add", {"a": 1}, tool_call_id="c1")
    history = [*said("Add one."), ModelResponse(parts=[call]), ModelRequest(parts=[retry()]), *said("Go on.")]
    await kept.save(Conversation(messages=history, conversation_id="sums"), scope="u")
    loaded = await kept.load("sums", scope="u")
    assert loaded is not None
    assert [message.kind for message in loaded.messages] == [message.kind for message in history]
    talk = await kept.conversation("sums")
    assert talk is not None
    assert len(message_history(await talk.render("pydantic_ai"))) >= len(history)


async def test_a_message_that_could_not_be_read_again_is_refused(kept: ThreadkeepConversationStore) -> None:
    odd = ModelResponse(parts=[ThinkingPart("", id=5)])  # type: ignore[arg-type]
    unwritable = ModelRequest(parts=[ToolReturnPart("f", object(), "c1")])
    messages: list[Any] = [odd, unwritable]
    for number, message in enumerate(messages):
        with pytest.raises(InvalidItem, match=r"could not be read again|cannot be written as JSON"):
            await kept.save(Conversation(messages=[*said("Hi"), message], conversation_id=f"odd{number}"), scope="u")
        assert await kept.conversation(f"odd{number}") is None


async def test_what_was_said_can_be_searched_and_rendered(kept: ThreadkeepConversationStore) -> None:
    picture = BinaryContent(b"\x89PNG\xfb\xff", media_type="image/png")
    messages: list[Any] = [
        ModelRequest(parts=[UserPromptPart(["Is it raining in Lyon?", picture])], instructions="Be brief."),
        ModelResponse(parts=[ToolCallPart("weather", {"city": "Lyon"}, "c1")], model_name="gpt-5.4"),
        ModelRequest(parts=[ToolReturnPart("weather", {"rain": True}, "c1")]),
        ModelResponse(parts=[TextPart("It is.")], model_name="gpt-5.4"),
    ]
    id_ = new_id()
    await kept.save(Conversation(messages=messages, conversation_id=id_))
    conversation = await kept.conversation(id_)
    assert conversation is not None
    rendered = await conversation.render("chat_completion")
    assert list(rendered.losses) == []
    roles = [message["role"] for message in rendered.payload["messages"]]
    assert roles == ["system", "user", "assistant", "tool", "assistant"]
    assert rendered.payload["messages"][1]["content"][1]["image_url"]["url"] == "data:image/png;base64,iVBOR/v/"
    assert rendered.payload["messages"][3]["content"] == '{"rain":true}'
    assert (await conversation.request_payload("messages"))["messages"][1]["content"][0]["type"] == "tool_use"


async def test_usage_and_costs_are_in_the_ledger(kept: ThreadkeepConversationStore) -> None:
    usage = RequestUsage(input_tokens=100, cache_read_tokens=80, output_tokens=10)
    answer = ModelResponse(parts=[TextPart("Yes.")], usage=usage, model_name="gpt-5.4", provider_name="openai")
    conversation = Conversation(messages=[*said("Is it?"), answer], conversation_id=new_id())
    await kept.save(conversation)
    await kept.fork(conversation.conversation_id, new_conversation_id=(fork_id := new_id()))
    stored, fork = await kept.conversation(conversation.conversation_id), await kept.conversation(fork_id)
    assert stored is not None
    assert fork is not None
    (row,) = await stored.usage(by=("model", "provider"))
    assert (row.model, row.provider, row.attempts) == ("gpt-5.4", "openai", 1)
    assert (row.input_tokens, row.cached_tokens, row.output_tokens) == (100, 80, 10)
    assert (await fork.usage()).attempts == 0


async def test_redacted_messages_are_read_without_their_content(kept: ThreadkeepConversationStore) -> None:
    id_ = new_id()
    await kept.save(Conversation(messages=said("My password is swordfish", "Thank you."), conversation_id=id_))
    conversation = await kept.conversation(id_)
    assert conversation is not None
    await conversation.redact_item(0)
    loaded = await kept.load(id_)
    assert loaded is not None
    assert len(loaded.messages) == 2
    assert "swordfish" not in repr(loaded.messages)
    assert "[redacted]" in repr(loaded.messages[0])


async def test_conversations_of_other_origin_are_message_history(store: AnyStore) -> None:
    made = store.create_conversation(model="gpt-5.4")
    conversation: Any = await made if isinstance(made, Awaitable) else made

    async def call(method: str, *arguments: Any, **options: Any) -> Any:
        result = getattr(conversation, method)(*arguments, **options)
        return await result if isinstance(result, Awaitable) else result

    await call("user", ["What is this?", {"type": "input_image", "image_url": "data:image/png;base64,iVBORw=="}])
    await call("add_item", {"type": "function_call", "call_id": "c1", "name": "look", "arguments": '{"at": 1}'})
    await call("add_function_call_output", call_id="c1", output="a teapot")
    await call("assistant", "A teapot.")
    history = message_history(await call("render", "pydantic_ai"))
    assert [type(message) for message in history] == [ModelRequest, ModelResponse, ModelRequest, ModelResponse]
    assert history[1].parts[0] == ToolCallPart("look", '{"at": 1}', "c1")
    returned = history[2].parts[0]
    assert isinstance(returned, ToolReturnPart)
    assert (returned.tool_name, returned.content) == ("look", "a teapot")
    result = await Agent(TestModel(custom_output_text="Indeed.")).run("Sure?", message_history=history)
    assert result.output == "Indeed."
    seen: list[Any] = []

    def model(messages: list[Any], _info: Any) -> ModelResponse:
        seen.extend(messages)
        return ModelResponse(parts=[TextPart("Quite.")])

    result = await Agent(FunctionModel(model)).run("Really?", message_history=history)
    assert result.output == "Quite."
    assert [type(part).__name__ for message in seen for part in message.parts] == [
        "UserPromptPart", "ToolCallPart", "ToolReturnPart", "TextPart", "UserPromptPart",
    ]  # fmt: skip


def test_what_is_rendered_in_another_format_is_no_history() -> None:
    with pytest.raises(InvalidOption, match="not rendered in the format pydantic_ai"):
        message_history(Session(model="m", input="Hi").render("messages"))


async def test_a_saved_conversation_is_rendered_as_its_messages(kept: ThreadkeepConversationStore) -> None:
    messages = [a_message(Random(seed)) for seed in range(30)]
    await kept.save(Conversation(messages=deepcopy(messages), conversation_id=(id_ := new_id())))
    conversation = await kept.conversation(id_)
    assert conversation is not None
    assert message_history(await conversation.render("pydantic_ai")) == messages


async def test_records_are_read_in_few_statements(kept: ThreadkeepConversationStore, store: AnyStore) -> None:
    if isinstance(store, AsyncStore):
        return  # the same statements
    for _ in range(8):
        await kept.save(Conversation(messages=said("One"), conversation_id=new_id()))
    with statements_of(store) as seen:
        assert len(await kept.list_conversations()) == 8
    assert len([statement for statement in seen if statement.startswith("SELECT")]) <= 4


# Agents


async def test_agents_continue_where_the_last_run_ended(kept: ThreadkeepConversationStore) -> None:
    agent, id_ = Agent(TestModel()), new_id()

    @agent.tool_plain
    def weather(city: str) -> str:
        return f"rain in {city}"

    for turn in range(3):
        conversation = await kept.load(id_) or Conversation(conversation_id=id_)
        result = await agent.run(f"question {turn}", conversation=conversation)
        assert await kept.save(result) != []
    loaded = await kept.load(id_)
    assert loaded is not None
    assert loaded.usage.requests == result.conversation.usage.requests > 3
    assert loaded.messages == result.conversation.messages


async def test_a_run_that_waits_for_a_decision_is_continued_later(kept: ThreadkeepConversationStore) -> None:
    agent = Agent(TestModel(), output_type=[str, DeferredToolRequests])

    @agent.tool_plain(requires_approval=True)
    def refund(euros: int) -> str:
        return f"{euros} euros"

    id_ = new_id()
    await kept.save(await agent.run("Give it back", conversation=Conversation(conversation_id=id_)))
    waiting = await kept.load(id_)
    assert waiting is not None
    assert waiting.deferred_tool_requests is not None
    (call,) = waiting.deferred_tool_requests.approvals
    results = DeferredToolResults(approvals={call.tool_call_id: True})
    await kept.save(await agent.run(conversation=waiting, deferred_tool_results=results))
    finished = await kept.load(id_)
    assert finished is not None
    assert finished.deferred_tool_requests is None


# Whose it is


async def test_a_scope_keeps_a_conversation_to_its_owner(kept: ThreadkeepConversationStore, store: AnyStore) -> None:
    id_ = new_id()
    await kept.save(Conversation(messages=said("Hello"), conversation_id=id_), scope="ann")
    assert await kept.load(id_, scope="ben") is None
    assert [record.conversation_id for record in await kept.list_conversations(scope="ann")] == [id_]
    assert await kept.list_conversations(scope="ben") == []
    with pytest.raises(ConversationConflict):
        await kept.save(Conversation(messages=said("Mine"), conversation_id=id_), scope="ben")
    await kept.delete(id_, scope="ben")
    conversation = await kept.conversation(id_)
    assert conversation is not None
    assert conversation.user_id == "ann"
    bens = ThreadkeepConversationStore(store.for_user("ben"))
    assert await bens.load(id_) is None
    assert await bens.list_conversations() == []
    entries = await kept.load_entries(id_)
    assert entries is not None
    with pytest.raises(LookupError):
        await bens.read_entry(entries[0].id)


async def test_what_was_deleted_is_gone_and_forks_keep_theirs(kept: ThreadkeepConversationStore) -> None:
    id_ = new_id()
    (first, second) = await kept.save(Conversation(messages=said("One", "Two"), conversation_id=id_))
    fork = await kept.fork(id_, at=1)
    await kept.delete(id_)
    assert await kept.load(id_) is None
    assert await kept.conversation(id_) is None
    loaded = await kept.load(fork.conversation_id)
    assert loaded is not None
    assert loaded.messages == said_again(fork)
    assert (await kept.read_entry(first.id)).message == first.message
    with pytest.raises(LookupError):
        await kept.read_entry(second.id)


def said_again(conversation: Conversation) -> list[Any]:
    return list(conversation.messages)


async def test_a_conversation_of_the_application_is_left_alone(
    kept: ThreadkeepConversationStore, store: AnyStore
) -> None:
    made = store.create_conversation(external_id="theirs", input="Hello")
    if isinstance(made, Awaitable):
        await made
    assert await kept.load("theirs") is None
    with pytest.raises(ConversationConflict):
        await kept.save(Conversation(messages=said("Mine"), conversation_id="theirs"))


async def test_a_conflict_leaves_nothing_behind(kept: ThreadkeepConversationStore) -> None:
    id_ = new_id()
    (entry,) = await kept.save(Conversation(messages=said("One"), conversation_id=id_))
    record = await kept.read_record(id_)
    assert record is not None
    stray = type(entry)(parent_id="nobody", message=entry.message)
    with pytest.raises(ConversationConflict):
        await kept.write_record(
            ConversationRecord(conversation_id=new_id(), head_id=stray.id), new_entries=[stray], expected_revision=None
        )
    with pytest.raises(LookupError):
        await kept.read_entry(stray.id)
    with pytest.raises(ConversationConflict):
        await kept.delete_record(id_, expected_revision="another")
    assert await kept.read_record(id_) == record


async def test_of_two_writers_one_wins(kept: ThreadkeepConversationStore) -> None:
    id_ = new_id()
    await kept.save(Conversation(messages=said("One"), conversation_id=id_))
    loaded = [await kept.load(id_) for _ in range(4)]
    for number, conversation in enumerate(loaded):
        assert conversation is not None
        conversation.messages.append(ModelResponse(parts=[TextPart(str(number))]))
    saves = [kept.save(conversation) for conversation in loaded if conversation is not None]
    outcomes = await asyncio.gather(*saves, return_exceptions=True)
    assert [type(one) for one in outcomes if isinstance(one, BaseException)] == [ConversationConflict] * 3
    final = await kept.load(id_)
    assert final is not None
    assert len(final.messages) == 2
    created = [kept.save(Conversation(messages=said("New"), conversation_id="new")) for _ in range(4)]
    outcomes = await asyncio.gather(*created, return_exceptions=True)
    assert [type(one) for one in outcomes if isinstance(one, BaseException)] == [ConversationConflict] * 3


async def test_branches_are_branches_of_the_conversation(kept: ThreadkeepConversationStore) -> None:
    id_ = new_id()
    await kept.save(Conversation(messages=said("One", "Two", "Three"), conversation_id=id_))
    loaded = await kept.load(id_)
    assert loaded is not None
    branched = await kept.branch(id_, at=1, expected_revision=loaded.revision)
    branched.messages.append(ModelResponse(parts=[TextPart("Other")]))
    await kept.save(branched)
    conversation = await kept.conversation(id_)
    assert conversation is not None
    texts = [getattr(item.item, "text", None) for item in await conversation.transcript()]
    assert texts == ["One", "Other"]
    record = await kept.read_record(id_)
    assert record is not None
    back = await kept.branch(id_, from_entry=record.branches[0], expected_revision=branched.revision)
    assert [part.content for message in back.messages for part in message.parts] == ["One", "Two", "Three"]  # type: ignore[union-attr]
    conversation = await kept.conversation(id_)
    assert conversation is not None
    assert len(await conversation.transcript()) == 3


def test_what_is_no_store_is_refused() -> None:
    with pytest.raises(InvalidOption, match="store must be a Store"):
        ThreadkeepConversationStore("sqlite://")  # type: ignore[arg-type]


# Front ends


def a_request(path: str, text: str) -> dict[str, Any]:
    if path == "/vercel":
        message = {"id": uuid4().hex, "role": "user", "parts": [{"type": "text", "text": text}]}
        return {"trigger": "submit-message", "id": "front", "messages": [message]}
    return {
        "threadId": "front", "runId": uuid4().hex, "state": {}, "tools": [], "context": [], "forwardedProps": {},
        "messages": [{"id": uuid4().hex, "role": "user", "content": text}],
    }  # fmt: skip


@pytest.mark.parametrize("path", ["/vercel", "/ag-ui"])
async def test_adapters_for_front_ends_hold_the_history_on_the_server(
    kept: ThreadkeepConversationStore, path: str
) -> None:
    agent = Agent(TestModel(custom_output_text="It is."))
    adapter: Any = {"/vercel": VercelAIAdapter, "/ag-ui": AGUIAdapter}[path]

    async def chat(request: Request) -> Response:
        answer: Response = await adapter.dispatch_request(
            request, agent=agent, conversation_store=kept, conversation_scope=request.headers["X-User"]
        )
        return answer

    transport = httpx2.ASGITransport(app=Starlette(routes=[Route(path, chat, methods=["POST"])]))
    async with httpx2.AsyncClient(transport=transport, base_url="http://front") as browser:
        for text in ("Is it raining?", "Still?"):
            answer = await browser.post(path, json=a_request(path, text), headers={"X-User": "ann"})
            assert answer.status_code == 200
            assert "conversation" in answer.text
        foreign = await browser.post(path, json=a_request(path, "Hers?"), headers={"X-User": "ben"})
        assert foreign.status_code == 404
    loaded = await kept.load("front", scope="ann")
    assert loaded is not None
    assert [type(message) for message in loaded.messages] == [ModelRequest, ModelResponse] * 2


# Other processes and owners


async def test_erasing_a_user_erases_the_conversations_of_that_scope(
    kept: ThreadkeepConversationStore, store: AnyStore
) -> None:
    for scope in ("ann", "ben"):
        await kept.save(Conversation(messages=said("Hello", "Hi"), conversation_id=f"of {scope}"), scope=scope)
    erased = store.erase_user("ann", vacuum=False)
    if isinstance(erased, Awaitable):
        await erased
    assert await kept.load("of ann") is None
    assert [record.conversation_id for record in await kept.list_conversations()] == ["of ben"]


async def test_items_appended_by_other_means_are_left_out_of_the_history(kept: ThreadkeepConversationStore) -> None:
    messages = said("One", "Two")
    await kept.save(Conversation(messages=list(messages), conversation_id="mixed"))
    conversation = await kept.conversation("mixed")
    assert conversation is not None
    await conversation.user("From elsewhere")
    loaded = await kept.load("mixed")
    assert loaded is not None
    assert loaded.messages == messages
    loaded.messages.append(ModelRequest(parts=[UserPromptPart("Three")]))
    await kept.save(loaded)
    again = await kept.load("mixed")
    assert again is not None
    assert again.messages == loaded.messages
