"""Removing a month of raw bodies on PostgreSQL: dropping its partition over deleting its rows.

For each, how long `retain()` takes, the write-ahead log that it writes, and the longest append meanwhile.
"""

from __future__ import annotations

import time
from datetime import UTC, date, datetime, timedelta
from typing import Final

from benchmarks.databases import Database, postgres_database, postgres_missing
from benchmarks.housekeeping import appending
from benchmarks.report import Line
from benchmarks.scale import Scale
from threadkeep.db.models import response_bodies

MUST: Final = 0.1
BYTES: Final = 512  # of a body, which cannot be compressed
BATCH: Final = 100_000
TODAY: Final = datetime.now(UTC).date()
MONTH: Final = (TODAY.replace(day=1) - timedelta(days=40)).replace(day=1)

_FILL: Final = (
    f"INSERT INTO {response_bodies.name} (tenant_id, conversation_id, number, codec, body, created_at) "
    "SELECT (SELECT id FROM threadkeep_tenants), n / 4, n % 4, 0, piece.body, "
    f"timestamptz '{MONTH} 00:00:00+00' + n * interval '1 second' "
    "FROM generate_series({first}, {last}) AS n CROSS JOIN LATERAL (SELECT n AS row, string_agg("
    f"decode(md5(n::text || part::text), 'hex'), NULL) AS body FROM generate_series(1, {BYTES // 16}) AS part) AS piece"
)


def run(scale: Scale) -> list[Line]:
    if postgres_missing() is not None:
        return []
    with postgres_database() as plain, postgres_database(monthly_bodies=MONTH) as monthly:
        deleting, dropping = (_measured(database, scale.bodies) for database in (plain, monthly))
    what = f"retention of a month of {scale.bodies:,} raw bodies, dropping over deleting"
    judged = (("time", MUST), ("write-ahead log (s for GB)", MUST), ("longest append meanwhile", None))
    return [
        Line(f"{what}: {name}", "PostgreSQL", floor, ours, must)
        for (name, must), floor, ours in zip(judged, deleting, dropping, strict=True)
    ]


def _measured(database: Database, count: int) -> tuple[float, float, float]:
    """The seconds, the gigabytes of the write-ahead log, and the longest append."""
    with database.store() as store, database.store() as other:
        store.create_conversation()  # the first one makes the tenant
        driver = database.driver()
        driver.write("SET session_replication_role = replica", ())  # the rows belong to no conversation
        for first in range(0, count, BATCH):
            driver.write(_FILL.format(first=first, last=min(first + BATCH, count) - 1).replace("%", "%%"), ())
            driver.commit()
        driver.write(f"ANALYZE {response_bodies.name}", ())
        driver.commit()
        before = driver.read("SELECT pg_current_wal_lsn()")[0][0]
        begun = time.perf_counter()
        with appending(other) as waits:
            removed = store.retain(raw_bodies=TODAY - _following(MONTH)).raw_bodies
        seconds = time.perf_counter() - begun
        written = float(driver.read("SELECT pg_wal_lsn_diff(pg_current_wal_lsn(), %s)", (before,))[0][0])
        driver.close()
    assert removed == count, removed
    print(f"{removed:,} raw bodies: {seconds:.2f} s, {written / 1e6:.1f} MB; appends: {len(waits)}, {max(waits):.3f} s")
    return seconds, written / 1e9, max(waits)


def _following(month: date) -> date:
    return (month + timedelta(days=32)).replace(day=1)
