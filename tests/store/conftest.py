"""Stores on the three databases, sync and async. Every test has a tenant of its own."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any
from uuid import uuid4

import pytest
from sqlalchemy import Engine, create_engine

from tests.databases import Database
from tests.store.faces import blocking_store, opening
from tests.store.watching import Tables
from threadkeep import Store


class Stores:
    """The stores of one database: kept open for the tests of a module, because opening takes time."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._opened: dict[tuple[str, str], Any] = {}

    def get(self, face: str, name: str = "first") -> Any:
        """A store with tenants; another name is another store, with an engine and a memory of its own."""
        key = (face, name)
        if key not in self._opened:
            self._opened[key] = (
                Store(self._url, tenants=True)
                if face == "sync"
                else blocking_store(self._url, self._runner, tenants=True)
            )
        return self._opened[key]

    def close(self) -> None:
        for store in self._opened.values():
            store.close()
        self._runner.close()


@pytest.fixture(scope="module")
def stores(database: Database) -> Iterator[Stores]:
    made = Stores(database.url)
    yield made
    made.close()


@pytest.fixture
def tenant(stores: Stores) -> str:
    """The name of a new tenant."""
    name = uuid4().hex
    stores.get("sync").create_tenant(name)
    return name


@pytest.fixture
def store(stores: Stores, face: str, tenant: str) -> Any:
    """The store of the test's tenant."""
    return stores.get(face).for_tenant(tenant)


@pytest.fixture
def elsewhere(stores: Stores, face: str, tenant: str) -> Any:
    """Another store for the same tenant, as another process would open it."""
    return stores.get(face, "elsewhere").for_tenant(tenant)


@pytest.fixture
def conversation(store: Any) -> Any:
    """A conversation without items."""
    return store.create_conversation(model="gpt-5.4")


@pytest.fixture(scope="module")
def watching(database: Database) -> Iterator[Engine]:
    """An engine for looking past the store."""
    made = create_engine(database.engine().url, pool_pre_ping=True)
    yield made
    made.dispose()


@pytest.fixture
def tables(watching: Engine, store: Any) -> Iterator[Tables]:
    """The rows of the test's tenant."""
    with watching.connect() as connection:
        yield Tables(connection, store.handle.scope.tenant)


@pytest.fixture
def opened(face: str) -> Iterator[Callable[..., Any]]:
    """Opens stores of a face, which are closed at the end."""
    with opening(face) as open_store:
        yield open_store
