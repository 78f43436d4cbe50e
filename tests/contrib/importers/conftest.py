"""The store into which is imported: of a new tenant, on each kind of database."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import uuid4

import pytest

from tests.databases import Database
from threadkeep import Store


@pytest.fixture
def target(database: Database) -> Iterator[Store]:
    with Store(database.url, tenants=True) as opened:
        yield opened.create_tenant(uuid4().hex)
