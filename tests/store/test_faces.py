"""The synchronous and the asynchronous face have the same names and signatures."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from tests.databases import Database
from threadkeep import (
    ApiKeys,
    AsyncApiKeys,
    AsyncChangeWatcher,
    AsyncConversation,
    AsyncStore,
    AsyncUnitOfWork,
    ChangeWatcher,
    Conversation,
    InvalidOption,
    Store,
    UnitOfWork,
)
from threadkeep.store.aio import AsyncRecorder
from threadkeep.store.streaming.recorder import Recorder

PAIRS = [
    (Store, AsyncStore), (UnitOfWork, AsyncUnitOfWork), (Conversation, AsyncConversation), (Recorder, AsyncRecorder),
    (ChangeWatcher, AsyncChangeWatcher), (ApiKeys, AsyncApiKeys),
]  # fmt: skip
# The ways from one face to the other, and SQLAlchemy's blocking connection
ONE_SIDED = {"face_of", "run_sync", "connection"}
# Methods that only make another face of the same store, a recorder, a watcher, an iterator or a context manager.
PLAIN = {"after", "begin", "within", "for_user", "stream_response", "set_states", "set_times", "export", "watch"}


def public(kind: type) -> dict[str, Any]:
    return {name: inspect.getattr_static(kind, name) for name in dir(kind) if not name.startswith("_")}


def parameters(function: Any) -> list[tuple[str, Any, Any]]:
    found = inspect.signature(function).parameters.values()
    return [(parameter.name, parameter.kind, parameter.default) for parameter in found]


@pytest.mark.parametrize(("sync", "awaited"), PAIRS)
def test_both_faces_have_the_same_names(sync: type, awaited: type) -> None:
    assert set(public(sync)) - ONE_SIDED == set(public(awaited)) - ONE_SIDED


@pytest.mark.parametrize(("sync", "awaited"), PAIRS)
def test_methods_are_coroutines_with_the_same_parameters(sync: type, awaited: type) -> None:
    twins = public(awaited)
    for name, method in public(sync).items():
        if inspect.isfunction(method) and name not in ONE_SIDED:
            assert inspect.iscoroutinefunction(twins[name]) == (name not in PLAIN), name
            assert parameters(method) == parameters(twins[name]), name


@pytest.mark.parametrize(("sync", "awaited"), PAIRS)
def test_annotations_differ_by_the_face_only(sync: type, awaited: type) -> None:
    twins = public(awaited)
    for name, method in public(sync).items():
        if inspect.isfunction(method) and name != "within":  # takes a connection of its own kind
            told = inspect.get_annotations(twins[name])
            assert inspect.get_annotations(method) == {
                key: str(getattr(value, "__forward_arg__", value)).replace("Async", "") for key, value in told.items()
            }


def test_signatures_and_names_are_those_of_the_awaited_face() -> None:
    def told(method: Any) -> tuple[str, str]:
        return method.__qualname__, inspect.signature(method).return_annotation

    assert told(AsyncStore.create_conversation) == ("AsyncStore.create_conversation", "AsyncConversation")
    assert told(AsyncStore.list_conversations) == ("AsyncStore.list_conversations", "Page[AsyncConversation]")
    assert told(AsyncConversation.user) == ("AsyncConversation.user", "tk.StoredItem")
    assert told(AsyncConversation.stream_response)[1] == "tk.AsyncRecorder"


@pytest.mark.parametrize(("sync", "awaited"), PAIRS)
def test_attributes_are_plain(sync: type, awaited: type) -> None:
    twins = public(awaited)
    attributes = {name for name, value in public(sync).items() if not inspect.isfunction(value)}
    attributes -= {"keys", *ONE_SIDED}  # another face, too
    assert all(twins[name] is public(sync)[name] for name in attributes)


def test_the_context_managers_close_the_store(database: Database) -> None:
    async def use() -> str:
        async with AsyncStore(database.url) as store:
            return (await store.create_conversation(model="m")).id

    public_id = asyncio.run(use())
    with Store(database.url) as store:
        assert store.get_conversation(public_id).model == "m"


def test_an_async_store_opens_with_its_first_call(database: Database) -> None:
    """Also when it is called for a user first, or by several tasks at once."""

    async def use() -> list[str | None]:
        store = AsyncStore(database.url)
        made = await asyncio.gather(
            *(store.for_user("ann").create_conversation(model="m") for _ in range(3)), store.create_conversation()
        )
        await store.close()
        return [conversation.user_id for conversation in made]

    assert asyncio.run(use()) == ["ann", "ann", "ann", None]


def test_both_faces_use_the_same_tenant(database: Database) -> None:
    async def use() -> str:
        async with AsyncStore(database.url) as store:
            return (await store.create_conversation(external_id="shared")).id

    public_id = asyncio.run(use())
    with Store(database.url) as store:
        found = store.find_conversation(external_id="shared")
        assert found is not None
        assert found.id == public_id


@pytest.mark.parametrize("url", ["oracle://host/db", "no url at all", "postgresql+pg8000x://host/db"])
def test_a_url_of_no_database_is_refused(url: str) -> None:
    for kind in (Store, AsyncStore):
        with pytest.raises((InvalidOption, ImportError)):
            kind(url)


def test_an_async_store_on_a_server_takes_no_sync_engine(database: Database) -> None:
    engine = database.engine()
    if database.kind != "sqlite":
        with pytest.raises(InvalidOption, match="AsyncEngine"):
            AsyncStore(engine)
