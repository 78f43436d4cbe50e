"""Stores for integrations that are asynchronous: their tests are coroutines, which run in a loop of their own."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from tests.databases import Database
from threadkeep import AsyncStore, Store


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    """Run a test that is a coroutine in the loop of its fixture `runner`."""
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    names = inspect.signature(pyfuncitem.obj).parameters
    runner: Any = pyfuncitem.funcargs["runner"]
    runner.run(pyfuncitem.obj(**{name: pyfuncitem.funcargs[name] for name in names}))
    return True


@pytest.fixture
def runner() -> Iterator[asyncio.Runner]:
    with asyncio.Runner() as made:
        yield made


@pytest.fixture
def store(database: Database, face: str, runner: asyncio.Runner) -> Iterator[Store | AsyncStore]:
    """The store of a new tenant, on each kind of database: a Store or an AsyncStore."""
    tenant = uuid4().hex
    if face == "sync":
        with Store(database.url, tenants=True) as opened:
            yield opened.create_tenant(tenant)
        return
    opened_async = AsyncStore(database.url, tenants=True)
    try:
        yield runner.run(opened_async.create_tenant(tenant))
    finally:
        runner.run(opened_async.close())
