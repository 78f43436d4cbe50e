"""Sessions of the OpenAI Agents SDK in threadkeep: `ThreadkeepSession`, and `UsageHooks` for the ledger.

Needs the extra ``agents``.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias
from urllib.parse import quote
from uuid import uuid4

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.stored import Page, SearchResult, StoredItem
from threadkeep.domain.usage import Usage
from threadkeep.errors import InvalidOption, MissingExtra
from threadkeep.store.aio import AsyncConversation, AsyncStore, async_face, uninterrupted
from threadkeep.store.store import Store
from threadkeep.store.work.validation import identifier

try:
    import agents  # noqa: F401 - whether it is there
except ImportError as error:
    raise MissingExtra("agents", "threadkeep.contrib.openai_agents") from error

from agents import Agent, ModelResponse, RunHooks, SessionSettings, TResponseInputItem
from agents.memory.session_settings import coerce_session_settings, resolve_session_limit
from agents.models.fake_id import FAKE_RESPONSES_ID
from agents.result import RunResultBase
from agents.run_context import RunContextWrapper

__all__ = ["ThreadkeepSession", "UsageHooks"]

FORMAT: Final = "open_responses"  # the items of the SDK are those of the Responses API
UserId: TypeAlias = str | Callable[[Any], str]
WRAPPED: Final = "agents:item"  # the type that items are stored with which are none of the Responses API
_KEY: Final = "_threadkeep_key"  # of a response that has no id of its own


class ThreadkeepSession:
    """A session of the Agents SDK that is a conversation in threadkeep; pass it to `Runner.run` as ``session=``.

    The conversation is created by the first write. Its `external_id` is the session's id, with a `user_id` before it if
    there is one, so that users can have sessions of the same name. Items are returned exactly as they were added.

    Args:
        session_id: the id of the session, unique within the store, or for the user.
        store: a `Store`, whose methods then run in worker threads, or an `AsyncStore`.
        user_id: whose session it is, or a function that returns that for the context of a run. Sessions of other users
            are not found.
        model: the model that the conversation is created with, which names calls of agents without a model of their
            own in the ledger.
        session_settings: as for sessions of the SDK: `limit` is how many of the newest items runs get.
        branch: the branch of the conversation; None: its active one.

    Raises:
        InvalidOption: an argument cannot be used.
    """

    session_settings: SessionSettings | None

    def __init__(
        self,
        session_id: str,
        store: Store | AsyncStore,
        *,
        user_id: UserId | None = None,
        model: str | None = None,
        session_settings: SessionSettings | dict[str, Any] | None = None,
        branch: int | None = None,
    ) -> None:
        self.session_id = identifier("session_id", session_id)
        self.session_settings = coerce_session_settings(session_settings or SessionSettings())
        self._store, self._user_id = async_face(store), user_id
        self._model, self._branch = model, branch

    async def get_items(
        self, limit: int | None = None, *, wrapper: RunContextWrapper[Any] | None = None
    ) -> list[TResponseInputItem]:
        """Return the newest `limit` items, oldest first; by default as many as `session_settings` says, or all."""
        last = resolve_session_limit(limit, self.session_settings)
        conversation = await self._find(wrapper)
        if conversation is None:
            return []
        items = await conversation.transcript(last=None if last is None or last < 0 else last)
        return [_read(item) for item in items]

    async def add_items(
        self, items: list[TResponseInputItem], *, wrapper: RunContextWrapper[Any] | None = None
    ) -> None:
        """Append items, all or none. It is not interrupted if the task is cancelled.

        Raises:
            InvalidItem, TooLarge: an item cannot be stored; nothing was written.
        """
        if items:
            await uninterrupted(self._add(items, wrapper))

    async def pop_item(self, *, wrapper: RunContextWrapper[Any] | None = None) -> TResponseInputItem | None:
        """Remove the newest item and return it; None if there is none. Of several callers, each gets another item."""
        return await uninterrupted(self._pop(wrapper))

    async def clear_session(self, *, wrapper: RunContextWrapper[Any] | None = None) -> None:
        """Remove all items. The conversation, its other branches and its usage stay."""
        await uninterrupted(self._clear(wrapper))

    async def conversation(self, *, wrapper: RunContextWrapper[Any] | None = None) -> AsyncConversation:
        """Return the conversation, which is created if there is none: its branches, states, requests and usage.

        Raises:
            NotFound: it has no such branch.
        """
        conversation = await self._find(wrapper)
        if conversation is not None:
            return conversation
        store, external_id = self._place(wrapper)
        options: Any = {} if self._model is None else {"model": self._model}
        try:
            conversation = await store.create_conversation(external_id=external_id, **options)
        except InvalidOption:  # another task may have created it meanwhile
            found = await self._find(wrapper)
            if found is None:
                raise
            return found
        return conversation if self._branch is None else await conversation.on_branch(self._branch)

    async def search(
        self, text: str, *, limit: int = 20, wrapper: RunContextWrapper[Any] | None = None
    ) -> Page[SearchResult]:
        """Return what matches in this session, best matches first. Arguments and errors as for `Store.search`."""
        conversation = await self._find(wrapper)
        if conversation is None:
            return Page([], None)
        store, _ = self._place(wrapper)
        return await store.search(text, conversation_id=conversation.id, status=None, limit=limit)

    async def record(self, result: RunResultBase, *, model: str | None = None, provider: str | None = None) -> None:
        """Record the usage of all responses of a run in the ledger, each once.

        `model` is the model that was called: by default, the one of the last agent of the run, or of the conversation.
        """
        for response in result.raw_responses:
            name = model or _model_of(result.last_agent)
            await self.record_response(response, model=name, provider=provider, wrapper=result.context_wrapper)

    async def record_response(
        self,
        response: ModelResponse,
        *,
        model: str | None = None,
        provider: str | None = None,
        wrapper: RunContextWrapper[Any] | None = None,
    ) -> None:
        """Record the usage of one response in the ledger, unless that was done before."""
        await uninterrupted(self._record(response, model, provider, wrapper))

    async def _add(self, items: Sequence[Any], wrapper: RunContextWrapper[Any] | None) -> None:
        conversation = await self.conversation(wrapper=wrapper)
        await conversation.add_items([_written(item) for item in items], on_conflict="append", known=False)

    async def _pop(self, wrapper: RunContextWrapper[Any] | None) -> TResponseInputItem | None:
        conversation = await self._find(wrapper)
        item = None if conversation is None else await conversation.pop(on_conflict="append")
        return None if item is None else _read(item)

    async def _clear(self, wrapper: RunContextWrapper[Any] | None) -> None:
        conversation = await self._find(wrapper)
        if conversation is not None:
            await conversation.clear()

    async def _record(
        self, response: ModelResponse, model: str | None, provider: str | None, wrapper: RunContextWrapper[Any] | None
    ) -> None:
        conversation = await self.conversation(wrapper=wrapper)
        await conversation.record_attempt(
            FORMAT, status="completed", model=model, provider=provider, usage=_usage_of(response),
            idempotency_key=_key_of(response),
        )  # fmt: skip

    async def _find(self, wrapper: RunContextWrapper[Any] | None) -> AsyncConversation | None:
        store, external_id = self._place(wrapper)
        conversation = await store.find_conversation(external_id=external_id)
        if conversation is None or self._branch is None:
            return conversation
        return await conversation.on_branch(self._branch)

    def _place(self, wrapper: RunContextWrapper[Any] | None) -> tuple[AsyncStore, str]:
        """The store of the user, and the external id of the conversation there."""
        user_id = self._user_id
        if callable(user_id):
            if wrapper is None:
                hint = "Pass wrapper=RunContextWrapper(context)."
                raise InvalidOption(
                    "is a function of the context, which only runs have.", argument="user_id", hint=hint
                )
            user_id = user_id(wrapper.context)
        if user_id is None:
            return self._store, self.session_id
        return self._store.for_user(user_id), f"{quote(user_id, safe='')}/{self.session_id}"


class UsageHooks(RunHooks[Any]):
    """Hooks of a run that record the usage of each response in the ledger as it comes: ``hooks=UsageHooks(session)``.

    What a run used is then known even if it fails later. A class of your own hooks can extend it.

    Args:
        session: the session of the run.
        model: the model that is called; by default, the one of the agent, or of the conversation.
        provider: the name of the provider in the ledger.
    """

    def __init__(self, session: ThreadkeepSession, *, model: str | None = None, provider: str | None = None) -> None:
        self._session, self._model, self._provider = session, model, provider

    async def on_llm_end(self, context: RunContextWrapper[Any], agent: Agent[Any], response: ModelResponse) -> None:
        """Record the usage of the response."""
        model = self._model or _model_of(agent)
        await self._session.record_response(response, model=model, provider=self._provider, wrapper=context)


def _written(item: Any) -> Any:
    """An item as it is stored: sessions that wrap others, such as EncryptedSession, add items of their own shape."""
    is_foreign = isinstance(item, Mapping) and item.get("type") is None and item.get("role") is None
    return {"type": WRAPPED, "item": item} if is_foreign else item


def _read(stored: StoredItem) -> TResponseInputItem:
    """An item as it was added."""
    value: Any = stored.given()
    given: TResponseInputItem = value["item"] if value.get("type") == WRAPPED else value
    return given


def _model_of(agent: Any) -> str | None:
    """The name of an agent's model, if it has one of its own."""
    model = getattr(agent, "model", None)
    name = model if isinstance(model, str) else getattr(model, "model", None)
    return name if isinstance(name, str) and name else None


def _usage_of(response: ModelResponse) -> Usage:
    """The usage of a response: the provider's object, if the SDK kept it, and the SDK's figures."""
    usage = response.usage
    written = getattr(usage.input_tokens_details, "cache_write_tokens", None)
    inputs = {"cached_tokens": usage.input_tokens_details.cached_tokens, "cache_write_tokens": written}
    outputs = {"reasoning_tokens": usage.output_tokens_details.reasoning_tokens}
    return Usage(
        input_tokens=usage.input_tokens,
        output_tokens=usage.output_tokens,
        total_tokens=usage.total_tokens,
        input_tokens_details={name: value for name, value in inputs.items() if value is not None},
        output_tokens_details=outputs,
        raw=response.raw_usage,
    )


def _key_of(response: ModelResponse) -> str:
    """What a response is recorded under: the same for a copy of it that was read from a saved run."""
    if response.response_id and response.response_id != FAKE_RESPONSES_ID:
        output = [_plain(item) for item in response.output]
        content = dumps([response.response_id, output, _usage_of(response).to_dict()])
        return f"agents:{hashlib.sha256(content).hexdigest()}"
    key = getattr(response, _KEY, None) or f"agents:{uuid4().hex}"
    object.__setattr__(response, _KEY, key)
    return key


def _plain(item: Any) -> JsonObject:
    value: JsonObject = item.model_dump(mode="json") if hasattr(item, "model_dump") else dict(item)
    return value
