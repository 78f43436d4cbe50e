"""PostgreSQL with a synchronous replica, as Patroni keeps it: the primary is killed, and the replica promoted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import postgres_servers
from tests.cluster.servers import Postgres
from tests.cluster.writing import Writing, check_written, run_writers
from threadkeep import Store

pytestmark = pytest.mark.cluster


@pytest.fixture
def servers() -> Iterator[tuple[Postgres, Postgres]]:
    """A primary with the schema, which confirms nothing that its replica does not have."""
    with postgres_servers() as (primary, replica):
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'replica'")
        primary.sql("SELECT pg_reload_conf()")
        yield primary, replica


def test_a_promoted_replica_has_all_that_was_confirmed(servers: tuple[Postgres, Postgres]) -> None:
    """Writers find it by themselves, by a URL with both servers."""
    primary, replica = servers
    url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
    with Store(url) as store:
        writing = Writing(store.create_conversation(model="m").id)
        assert len(primary.sql("SELECT 1 FROM pg_stat_replication WHERE sync_state = 'sync'")) == 1

        def fail_over() -> None:
            primary.kill()
            replica.promote()

        run_writers([url], writing, fail_over)
        check_written(store, writing)
        assert store.create_conversation(model="m", input="written here").head == 0
    assert replica.sql("SELECT pg_is_in_recovery()") == [(False,)]
