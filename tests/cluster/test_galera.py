"""Three nodes of MariaDB with Galera: writers on each of them, one is killed, and joins again."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.conftest import own_folder, prepare, set_up
from tests.cluster.servers import GALERA, LOG, MARIADB_INSTALL, MARIADBD, GaleraNode, folder_for, running
from tests.cluster.writing import Writing, check_written, run_writers
from tests.ports import free_ports
from threadkeep import Store

pytestmark = pytest.mark.cluster

NODES = 3
ROWS = (
    "SELECT * FROM threadkeep_items ORDER BY tenant_id, conversation_id, position",
    "SELECT * FROM threadkeep_usage_records ORDER BY id",
    "SELECT * FROM threadkeep_conversations ORDER BY id",
)


@pytest.fixture(scope="module")
def nodes() -> Iterator[list[GaleraNode]]:
    """A cluster with the schema."""
    if not (MARIADBD and MARIADB_INSTALL and GALERA):
        pytest.skip("MariaDB with Galera is not installed: Debian's packages mariadb-server, galera-4, rsync")
    with folder_for("mysql") as folder:
        ports = free_ports(NODES * 4)
        made = [
            GaleraNode(folder / f"{number}", ports.pop(), number, [ports.pop() for _ in range(3)])
            for number in range(1, NODES + 1)
        ]
        prepare(*made)
        with running(*made):
            made[0].create()
            made[0].join()
            for node in made[1:]:
                own_folder(node.data, node.user)
                node.join(*made[: made.index(node)])
            made[0].sql("CREATE DATABASE chat")
            set_up(made[0].url("chat"))
            yield made


def conflicts(node: GaleraNode) -> int:
    """How many transactions were taken back on a node because another one was first."""
    return int(node.status("wsrep_local_cert_failures")) + int(node.status("wsrep_local_bf_aborts"))


def url_of(nodes: list[GaleraNode], first: int) -> str:
    """The URL of all nodes, beginning with one of them."""
    order = nodes[first:] + nodes[:first]
    return f"mariadb://root@{','.join(f'127.0.0.1:{node.port}' for node in order)}/chat"


def test_a_killed_node_loses_nothing_and_joins_again(nodes: list[GaleraNode]) -> None:
    """Its writers go on elsewhere, with their keys."""
    urls = [url_of(nodes, first) for first in range(NODES)]
    with Store(urls[0]) as store:
        writing = Writing(store.create_conversation(model="m").id)
    for node in nodes:
        node.catch_up("chat.threadkeep_conversations")
    run_writers(urls, writing, nodes[2].kill)
    LOG.info("Conflicts between nodes: %s", {node.number: conflicts(node) for node in nodes[:2]})
    nodes[2].join(*nodes[:2])
    shown = []
    for node in nodes:
        with Store(node.url("chat")) as store:
            node.sql("SET GLOBAL wsrep_sync_wait = 1")
            shown.append((check_written(store, writing), *(node.sql(rows, database="chat") for rows in ROWS)))
    assert shown[0] == shown[1] == shown[2]
