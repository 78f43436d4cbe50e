"""PostgreSQL with a synchronous replica, as Patroni keeps it: the primary is killed, and the replica promoted."""

from __future__ import annotations

from collections.abc import Iterator
from threading import Thread

import pytest

from tests.cluster.conftest import postgres_servers, wait_for_servers
from tests.cluster.servers import LOG, Postgres
from tests.cluster.writing import Writing, check_written, run_writers
from threadkeep import Store

pytestmark = pytest.mark.cluster


def wait_for_a_commit(primary: Postgres, replica: Postgres) -> None:
    """Wait until a first commit is confirmed; PostgreSQL itself would wait for ever, whatever the limit of time."""
    message = "SELECT pg_logical_emit_message(true, 'tests', 'the first commit')"
    commit = Thread(target=primary.sql, args=(message,), daemon=True)
    commit.start()
    wait_for_servers(lambda: not commit.is_alive(), primary, replica)


@pytest.fixture
def servers() -> Iterator[tuple[Postgres, Postgres]]:
    """A primary with the schema, which confirms nothing that its replica does not have."""
    with postgres_servers() as (primary, replica):
        primary.sql("ALTER SYSTEM SET synchronous_standby_names = 'replica'")
        primary.sql("SELECT pg_reload_conf()")
        states = "SELECT sync_state, state, sent_lsn, flush_lsn, reply_time FROM pg_stat_replication"
        wait_for_servers(lambda: [state for state, *_ in primary.sql(states)] == ["sync"], primary, replica)
        wait_for_a_commit(primary, replica)
        yield primary, replica
        if primary.process is not None:  # the test failed before it killed it
            LOG.info("Replicas of the primary: %s", primary.sql(states))


def test_a_promoted_replica_has_all_that_was_confirmed(servers: tuple[Postgres, Postgres]) -> None:
    """Writers find it by themselves, by a URL with both servers."""
    primary, replica = servers
    url = f"postgresql://postgres@127.0.0.1:{primary.port},127.0.0.1:{replica.port}/postgres"
    with Store(url) as store:
        writing = Writing(store.create_conversation(model="m").id)

        def fail_over() -> None:
            primary.kill()
            replica.promote()

        run_writers([url], writing, fail_over)
        check_written(store, writing)
        assert store.create_conversation(model="m", input="written here").head == 0
    assert replica.sql("SELECT pg_is_in_recovery()") == [(False,)]
