"""PostgreSQL with a synchronous replica, as Patroni keeps it: the primary is killed, and the replica promoted."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import prepare, set_up
from tests.cluster.servers import POSTGRES_BIN, Postgres, folder_for, free_ports, running
from tests.cluster.writing import Writing, check_written, run_writers
from threadkeep import Store

pytestmark = pytest.mark.cluster


@pytest.fixture
def servers() -> Iterator[tuple[Postgres, Postgres]]:
    """A primary with the schema, which confirms nothing that its replica does not have."""
    if not (POSTGRES_BIN / "initdb").exists():
        pytest.skip("PostgreSQL is not installed: initdb is missing")
    with folder_for("postgres") as folder:
        ports = free_ports(2)
        primary, replica = Postgres(folder / "primary", ports[0]), Postgres(folder / "replica", ports[1])
        prepare(primary, replica)
        with running(primary, replica):
            primary.create()
            primary.start()
            replica.copy(primary, "replica")
            replica.start()
            set_up(primary.url())
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
