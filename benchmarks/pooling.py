"""16 threads that append turns on PostgreSQL through PgBouncer in transaction mode, and directly.

Commits do not wait for the disk, which would hide what a pooler costs.
"""

from __future__ import annotations

import contextlib
import os
import random
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Final

import psycopg
from sqlalchemy import URL, make_url

from benchmarks.conversations import TURNS, append_turn
from benchmarks.databases import Database, postgres_database, postgres_missing
from benchmarks.report import Line
from benchmarks.scale import Scale
from threadkeep import Conversation, Store

THREADS: Final = 16
MUST: Final = 0.8  # of the rate of direct connections
WARM: Final = 6  # turns of each thread before the start: by then, psycopg has prepared what it prepares
START_SECONDS: Final = 10.0
PGBOUNCER: Final = shutil.which("pgbouncer", path=f"{os.environ.get('PATH', '')}:/usr/sbin:/usr/local/sbin")


def run(scale: Scale) -> list[Line]:
    if postgres_missing() is not None:
        return []
    if PGBOUNCER is None:
        print("SKIPPED: poolers. pgbouncer is not installed.", file=sys.stderr)
        return []
    with postgres_database() as database, pooled(database, PGBOUNCER) as behind:
        name = make_url(database.url).database
        with psycopg.connect(database.url, autocommit=True) as connection:
            connection.execute(f"ALTER DATABASE {name} SET synchronous_commit = off".encode())
        plain = replace(database, url=f"{database.url}?prepare_threshold=none")
        ways = {"direct": database, "direct, unprepared": plain, "pooled": behind}
        rates: dict[str, list[float]] = {name: [] for name in ways}
        order = list(ways)
        shuffle = random.Random(THREADS)
        with contextlib.ExitStack() as stack:
            stores = {name: stack.enter_context(way.store()) for name, way in ways.items()}
            for _ in range(scale.writer_rounds * 2):
                shuffle.shuffle(order)
                for name in order:
                    rates[name].append(_rate(stores[name], scale.turns))
    return [
        Line(
            what, "PostgreSQL", statistics.median(rates[base]), statistics.median(rates[ours]), must,
            unit="turns/s", is_least=True,
            measured=statistics.median(one / other for one, other in zip(rates[ours], rates[base], strict=True)),
        )
        for what, ours, base, must in (
            (f"{THREADS} threads through PgBouncer, over direct", "pooled", "direct", MUST),
            ("the same without prepared statements, over direct", "direct, unprepared", "direct", None),
        )
    ]  # fmt: skip


def _rate(store: Store, turns: int) -> float:
    """Turns a second of all threads, each with a conversation of its own; raises what a turn raises."""
    conversations = [store.create_conversation(model="m") for _ in range(THREADS)]
    barrier = threading.Barrier(THREADS + 1)

    def write(conversation: Conversation) -> None:
        for turn in range(WARM + turns):
            if turn == WARM:
                barrier.wait()
            append_turn(conversation, TURNS[turn % len(TURNS)])

    with ThreadPoolExecutor(THREADS) as pool:
        writing = [pool.submit(_checked(write, barrier), conversation) for conversation in conversations]
        barrier.wait()
        begin = time.perf_counter()
        for one in writing:
            one.result()
        seconds = time.perf_counter() - begin
    lost = [one.id for one in conversations if store.get_conversation(one.id).head + 1 != 2 * (WARM + turns)]
    if lost:
        raise AssertionError(f"Turns of {lost} are lost.")
    return THREADS * turns / seconds


def _checked(write: Callable[[Conversation], None], barrier: threading.Barrier) -> Callable[[Conversation], None]:
    def writing(conversation: Conversation) -> None:
        try:
            write(conversation)
        except BaseException:
            barrier.abort()
            raise

    return writing


@contextlib.contextmanager
def pooled(database: Database, program: str) -> Iterator[Database]:
    """The database behind a PgBouncer of our own."""
    with tempfile.TemporaryDirectory(prefix="threadkeep_bench_") as name:
        folder, url = Path(name), make_url(database.url)
        with socket.create_server(("127.0.0.1", 0)) as listener:
            port: int = listener.getsockname()[1]
        settings = folder / "pgbouncer.ini"
        settings.write_text(_settings(url, port))
        user = {}
        if os.getuid() == 0:  # it refuses to run as root
            user = {"user": "nobody"}
            folder.chmod(0o755)
            settings.chmod(0o644)
        process = subprocess.Popen(  # type: ignore[call-overload]
            [program, "-q", str(settings)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **user
        )
        try:
            _wait_for(port, process)
            behind = url.set(host="127.0.0.1", port=port)
            yield replace(database, url=behind.render_as_string(hide_password=False))
        finally:
            process.terminate()
            process.wait()


def _settings(url: URL, port: int) -> str:
    password = f" password={url.password}" if url.password else ""
    return (
        f"[databases]\n* = host={url.host} port={url.port or 5432} user={url.username}{password}\n"
        f"[pgbouncer]\nlisten_addr = 127.0.0.1\nlisten_port = {port}\nunix_socket_dir =\nauth_type = any\n"
        f"pool_mode = transaction\ndefault_pool_size = {THREADS}\nmax_client_conn = 200\n"
    )


def _wait_for(port: int, process: subprocess.Popen[bytes]) -> None:
    last = time.monotonic() + START_SECONDS
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if process.poll() is not None or time.monotonic() > last:
                raise
            time.sleep(0.05)
        else:
            return
