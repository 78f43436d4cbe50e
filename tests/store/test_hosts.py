"""Stores on several hosts, as far as one server shows them; tests/cluster has those with several."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import make_url

from tests.databases import Database
from tests.store.watching import engine_of
from threadkeep import DatabaseUnavailable, Store

SERVERS = pytest.mark.parametrize("database", ["postgresql", "mariadb"], indirect=True)


def with_hosts(database: Database, *ports: int | None) -> str:
    """The URL of a database on several ports; None is the one of the server."""
    url = make_url(database.url)
    default = {"postgresql": 5432, "mariadb": 3306}[database.kind]
    hosts = ",".join(f"{url.host}:{port or url.port or default}" for port in ports)
    password = f":{url.password}" if url.password else ""
    return f"{url.drivername}://{url.username}{password}@{hosts}/{url.database}"


@SERVERS
@pytest.mark.parametrize("ports", [(None, 1), (1, None), (1, 2, None)])
def test_the_first_host_that_answers_is_used(database: Database, opened: Any, ports: tuple[int | None, ...]) -> None:
    store = opened(with_hosts(database, *ports))
    conversation = store.create_conversation(model="m", input="Hi")
    assert len(store.get_conversation(conversation.id).transcript()) == 1


@SERVERS
def test_no_host_that_answers_is_an_error(database: Database, opened: Any) -> None:
    with pytest.raises(DatabaseUnavailable):
        opened(with_hosts(database, 1, 2))


@pytest.mark.parametrize("database", ["postgresql"], indirect=True)  # on MariaDB it is the whole server, or none of it
def test_a_server_that_was_demoted_is_left(database: Database) -> None:
    """Its connections are given up, and the write goes to the one that took over."""
    with Store(with_hosts(database, None, None)) as store:
        conversation = store.create_conversation(model="m")
        with engine_of(store).connect() as connection:
            connection.exec_driver_sql("SET default_transaction_read_only = on")
        assert conversation.user("Hi").position == 0
