"""The ledger as Parquet files: what DuckDB reads is what reports say, and a run writes what has changed, whole."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote
from uuid import uuid4

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from pyarrow import parquet

from tests.store.blob_stores import later, s3_client, s3_server
from tests.store.ledger import attempt_at
from tests.store.watching import statements_of
from threadkeep import InvalidOption, Price, Store, UsageExportReport
from threadkeep.blobs import FolderBlobs, S3Blobs
from threadkeep.domain.reports import SUMS, last_day
from threadkeep.store.moving import usage_files
from threadkeep.store.moving.usage_files import FETCHED

duckdb = pytest.importorskip("duckdb", reason="duckdb is not installed: pip install duckdb")

USER = "ada lovelace"
KEYS = ("day", "provider", "model", "format", "status")
DAYS = "hive_types = {'day': DATE, 'tenant': VARCHAR}, union_by_name = false"
TYPES = {
    "tenant_name": "VARCHAR", "id": "VARCHAR", "occurred_at": "TIMESTAMP WITH TIME ZONE", "conversation": "VARCHAR",
    "response": "BIGINT", "user_id": "VARCHAR", "provider": "VARCHAR", "model": "VARCHAR", "format": "VARCHAR",
    "status": "VARCHAR", "tool_set": "VARCHAR", "input_tokens": "BIGINT", "cached_tokens": "BIGINT",
    "cache_write_tokens": "BIGINT", "output_tokens": "BIGINT", "reasoning_tokens": "BIGINT", "total_tokens": "BIGINT",
    "cost_nano": "BIGINT", "latency_ms": "BIGINT", "first_token_ms": "BIGINT", "cost_usd": "DECIMAL(28,9)",
    "price": "VARCHAR", "terms": "VARCHAR", "day": "DATE", "tenant": "VARCHAR",
}  # fmt: skip


def noon(days_ago: int) -> datetime:
    """So many days before the first one that is not over: a day is, some time after its midnight."""
    at = last_day(datetime.now(UTC)) + timedelta(days=1 - days_ago)
    return datetime(at.year, at.month, at.day, 12, microsecond=123_456, tzinfo=UTC)


def read(folder: Path, columns: str = "*", table: str = "usage_attempts", rest: str = "") -> Any:
    """What DuckDB reads."""
    files = folder / table / "*" / "*" / "*.parquet"
    return duckdb.connect().sql(f"SELECT {columns} FROM read_parquet('{files}', {DAYS}) {rest}")


def figures(folder: Path) -> tuple[list[Any], list[Any]]:
    """The sums of both tables, by all keys; without files there are none."""
    if not any(folder.rglob("*.parquet")):
        return [], []
    known = "CASE WHEN cached_tokens <= input_tokens THEN {0} END"
    counted = {
        "attempts": "count(*)", "costs": "count(cost_nano)", "latencies": "count(latency_ms)",
        "first_tokens": "count(first_token_ms)", "cached_tokens": f"sum({known.format('cached_tokens')})",
        "cache_known_tokens": f"sum({known.format('input_tokens')})",
    }  # fmt: skip
    keys = ", ".join(KEYS)
    attempts = ", ".join(counted.get(name, f"sum({name})") for name in SUMS)
    sums = ", ".join(f"sum({name})" for name in SUMS)
    return tuple(
        read(folder, f"{keys}, {columns}, sum(cost_usd)", table, f"GROUP BY {keys} ORDER BY ALL").fetchall()
        for table, columns in (("usage_attempts", attempts), ("usage_by_day", sums))
    )


def expected(store: Any) -> list[Any]:
    """The same by the store's own report."""
    rows = store.usage(by=KEYS, until=last_day(datetime.now(UTC)) + timedelta(days=1))
    lines = [(*row.keys.values(), *(getattr(row, name) for name in SUMS), row.cost_usd) for row in rows]
    return sorted(lines, key=lambda line: [(one is None, str(one)) for one in line[:5]])


def check(store: Any, folder: Path) -> None:
    attempts, sums = figures(folder)
    assert sums == attempts == expected(store)


@pytest.fixture
def used(store: Any) -> Any:
    """A conversation with attempts on three days that are over, and one of today."""
    conversation = store.create_conversation(model="m", user_id=USER, input="Hi")
    for days_ago in (400, 3, 2, 0):
        about: dict[str, Any] = {"provider": "openai", "model": "gpt-5.4", "latency_ms": 420}
        tokens = {"input_tokens": 10, "cached_tokens": 4, "output_tokens": 3, "total_tokens": 13}
        attempt_at(conversation, noon(days_ago), figures=tokens, cost=123_456_789, **about)
        attempt_at(conversation, noon(days_ago), status="failed", figures={"input_tokens": 5, "cached_tokens": 6})
    return conversation


def test_types_and_sums_are_exact(store: Any, used: Any, tmp_path: Path) -> None:
    assert store.export_usage(tmp_path) == UsageExportReport(written=3, attempts=6)
    rows = read(tmp_path)
    assert dict(zip(rows.columns, map(str, rows.types), strict=True)) == TYPES
    check(store, tmp_path)
    columns = "tenant = tenant_name, conversation, user_id, cost_usd, day, epoch_us(occurred_at)"
    [found] = read(tmp_path, columns, rest=f"WHERE day = '{noon(2).date()}' AND cost_nano IS NOT NULL").fetchall()
    microseconds = (noon(2) - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
    assert found == (True, used.id, USER, Decimal("0.123456789"), noon(2).date(), microseconds)


def test_all_files_of_a_table_have_one_schema(store: Any, used: Any, tmp_path: Path) -> None:
    store.export_usage(tmp_path)
    for table in ("usage_attempts", "usage_by_day"):
        files = [*(tmp_path / table).rglob("*.parquet")]
        assert len(files) == 3
        assert len({str(parquet.read_schema(file)) for file in files}) == 1


def late(store: Any, conversation: Any) -> None:
    attempt_at(conversation, noon(3), figures={"input_tokens": 7}, cost=1)


def restored(store: Any, conversation: Any) -> None:
    """A day that had nothing."""
    attempt_at(conversation, noon(9), figures={"input_tokens": 7})


CHANGES: dict[str, tuple[Callable[[Any, Any], Any], UsageExportReport]] = {
    "nothing": (lambda _s, _c: None, UsageExportReport(unchanged=3)),
    "an attempt of today": (lambda _s, c: attempt_at(c, noon(0)), UsageExportReport(unchanged=3)),
    "a late attempt": (late, UsageExportReport(written=1, unchanged=2, attempts=3)),
    "a new day": (restored, UsageExportReport(written=1, unchanged=3, attempts=1)),
    "days that are rolled up": (lambda s, _c: s.fill_usage_days(), UsageExportReport(unchanged=3)),
    "an erasure": (lambda s, _c: s.erase_user(USER), UsageExportReport(written=3, attempts=6)),
    "a deletion": (lambda s, c: s.delete_conversation(c.id), UsageExportReport(written=3, attempts=6)),
}


@pytest.mark.share(3)
@pytest.mark.parametrize("change", CHANGES)
def test_a_second_run_writes_what_has_changed(store: Any, used: Any, tmp_path: Path, change: str) -> None:
    store.export_usage(tmp_path)
    make, report = CHANGES[change]
    make(store, used)
    assert store.export_usage(tmp_path) == report
    check(store, tmp_path)
    assert store.export_usage(tmp_path).written == 0


@pytest.mark.one_face
def test_statements_are_a_fixed_number_and_two_for_each_day_that_is_written(
    store: Any, used: Any, tmp_path: Path
) -> None:
    def selects(days: int) -> int:
        with statements_of(store) as seen:
            assert store.export_usage(tmp_path).written == days
        return sum(statement.startswith("SELECT") for statement in seen)

    assert (selects(3), selects(0)) == (2 + 2 * 3, 2)
    late(store, used)
    assert selects(1) == 2 + 2


@pytest.mark.parametrize("change", ["an erasure", "a deletion"])
def test_what_is_erased_is_in_no_file(store: Any, used: Any, tmp_path: Path, change: str) -> None:
    store.export_usage(tmp_path)
    CHANGES[change][0](store, used)
    store.export_usage(tmp_path)
    assert read(tmp_path, "count(conversation)").fetchall() == [(0,)]
    content = b"".join(file.read_bytes() for file in tmp_path.rglob("*") if file.is_file())
    assert used.id.encode() not in content
    assert (USER.encode() in content) == (
        change == "a deletion"
    )  # the figures of a deleted conversation stay the user's


# All tenants of a database, and places


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'chat.db'}", tenants=True) as root:
        yield root


def attempts_of(root: Store, tenant: str, *days: int, **about: Any) -> Any:
    conversation = root.create_tenant(tenant).create_conversation(user_id=USER)
    attempt_at(conversation, *map(noon, days), figures={"total_tokens": 13}, **about)
    return conversation


def test_all_tenants_are_written_and_deleted_ones_removed(root: Store, tmp_path: Path) -> None:
    folder = tmp_path / "usage"
    for tenant in ("one", "two"):
        attempts_of(root, tenant, 1, 2)
    assert root.export_usage(folder) == UsageExportReport(written=4, attempts=4)
    assert root.for_tenant("one").export_usage(folder) == UsageExportReport(unchanged=2)
    root.delete_tenant("two")
    assert root.for_tenant("one").export_usage(folder) == UsageExportReport(unchanged=2)
    assert root.export_usage(folder) == UsageExportReport(unchanged=2, removed=2)
    assert read(folder, "DISTINCT tenant").fetchall() == [("one",)]
    assert [one.name for one in folder.rglob("tenant=two") if any(one.iterdir())] == []


def test_earlier_days_are_left_as_they_are(root: Store, tmp_path: Path) -> None:
    folder = tmp_path / "usage"
    conversation = attempts_of(root, "one", 1, 2, 9)
    since = noon(5).date()
    assert root.export_usage(folder, since=since) == UsageExportReport(written=2, attempts=2)
    attempt_at(conversation, noon(8), noon(2))
    assert root.export_usage(folder, since=since) == UsageExportReport(written=1, unchanged=1, attempts=2)
    assert root.export_usage(folder) == UsageExportReport(written=2, unchanged=2, attempts=2)


def test_new_costs_are_a_change_also_where_rows_exchange_them(root: Store, tmp_path: Path) -> None:
    folder, conversation = tmp_path / "usage", attempts_of(root, "one", 1)
    for cost in (1, 2):
        attempt_at(conversation, noon(2), cost=cost)
    root.export_usage(folder)
    with root.handle.transactions.engine.begin() as connection:  # type: ignore[union-attr]
        swapped = "UPDATE threadkeep_usage_records SET cost_nano = 3 - cost_nano"
        assert connection.exec_driver_sql(f"{swapped} WHERE cost_nano IS NOT NULL").rowcount == 2
    assert root.export_usage(folder) == UsageExportReport(written=1, unchanged=1, attempts=2)


@pytest.fixture(scope="module")
def bucket() -> Iterator[tuple[Any, str]]:
    with s3_server() as address:
        client, name = s3_client(address), f"usage-{uuid4().hex}"
        client.create_bucket(Bucket=name)
        yield client, name


def test_a_bucket_has_the_same_files_as_a_folder(root: Store, tmp_path: Path, bucket: tuple[Any, str]) -> None:
    client, name = bucket
    place, folder = S3Blobs(name, prefix="warehouse/", client=client), tmp_path / "usage"
    for tenant in ("one", "a/b c=ü%"):
        attempts_of(root, tenant, 1, 2)
    for _ in range(2):
        assert root.export_usage(place) == root.export_usage(folder)
        names = sorted(place.names("", later()))
        assert names == sorted(one.relative_to(folder).as_posix() for one in folder.rglob("*") if one.is_file())
        for one in names:
            if one.endswith(".parquet"):
                (tmp_path / "copy").write_bytes(place.get(one))
                assert parquet.read_table(tmp_path / "copy").equals(parquet.read_table(folder / one, partitioning=None))
        root.for_tenant("one").erase_user(USER)
    root.delete_tenant("one")
    root.export_usage(place)
    assert not [one for one in place.names("", later()) if "tenant=one" in one]


WRONG: list[Any] = [None, 1, b"x", "", "gs://bucket", object()]


@pytest.mark.parametrize("wrong", WRONG)
def test_other_places_are_refused(root: Store, wrong: Any) -> None:
    with pytest.raises(InvalidOption, match="place"):
        root.export_usage(wrong)


def test_the_store_of_a_user_and_a_file_are_refused(root: Store, tmp_path: Path) -> None:
    store = root.create_tenant("one")
    with pytest.raises(InvalidOption, match=r"all users.*'bob' only"):
        store.for_user("bob").export_usage(tmp_path / "usage")
    for wrong in (tmp_path / "chat.db", tmp_path / "no" / "folder"):
        with pytest.raises(InvalidOption, match="is no folder"):
            store.export_usage(wrong)
    with pytest.raises(InvalidOption, match="since"):
        store.export_usage(tmp_path / "usage", since="yesterday")  # type: ignore[arg-type]
    with pytest.raises(InvalidOption, match="progress"):
        store.export_usage(tmp_path / "usage", progress=1)  # type: ignore[arg-type]


# Names of tenants

HOSTILE = [
    "default", "007", "a/b=c%d", "..", "Zoë 東京", "x'y\"z", "+ space", "back\\slash", "[a]{b}*?", "a:b#c^d",
    "tab\there", "__HIVE_DEFAULT_PARTITION__", "true", "2026-11-29", "nul\0", "NULL", "lone \ud800", "lone \\ud800",
    "/" * 255, "ü" * 120, "." * 255, "A", "a",
]  # fmt: skip


def test_engines_read_tenants_of_any_name(root: Store, tmp_path: Path) -> None:
    for tenant in HOSTILE:
        attempts_of(root, tenant, 1)
    root.export_usage(tmp_path / "usage")
    found = read(tmp_path / "usage", "tenant_name, tenant").fetchall()
    texts = [one.encode("utf-8", "backslashreplace").decode() for one in HOSTILE]
    assert sorted(name for name, _ in found) == sorted(texts)
    other = {name for name, tenant in found if name != tenant}
    assert other == {"__HIVE_DEFAULT_PARTITION__", "lone \\ud800", "/" * 255, "." * 255}
    assert root.export_usage(tmp_path / "usage").unchanged == len(HOSTILE)
    root.delete_tenant("/" * 255)
    assert root.export_usage(tmp_path / "usage").removed == 1


@given(st.lists(st.text(min_size=1), min_size=2, max_size=2, unique=True))
@example(["lone \ud800", "lone \\ud800"])
@example(["a" * 300, "a" * 301])
def test_folders_of_tenants_are_different_and_are_read_as_hive_reads_them(names: list[str]) -> None:
    one, other = map(usage_files.tenant_folder, names)
    assert one != other
    assert not set("/\\:\0\n") & set(one)
    assert len(one.encode()) <= 255
    value = one.removeprefix("tenant=")
    assert "^" in value or unquote(value) == names[0]


# Runs that end early


class Killed(BaseException):
    """Ends a run wherever it is."""


class Ending(FolderBlobs):
    """A folder that ends the run before or after its n-th change."""

    def __init__(self, path: Path, changes: int, *, after: bool) -> None:
        super().__init__(path)
        self.left, self.after = changes, after

    def _change(self, change: Callable[[], None]) -> None:
        self.left -= 1
        if self.left == 0 and not self.after:
            raise Killed
        change()
        if self.left == 0:
            raise Killed

    def put_file(self, name: str, content: IO[bytes], media_type: str | None = None) -> None:
        self._change(lambda: FolderBlobs.put_file(self, name, content, media_type))

    def delete(self, name: str) -> None:
        self._change(lambda: FolderBlobs.delete(self, name))


@pytest.mark.parametrize("after", [False, True])
def test_the_next_run_completes_one_that_ended_anywhere(root: Store, tmp_path: Path, *, after: bool) -> None:
    folder = tmp_path / "usage"
    folder.mkdir()
    conversation, changes = attempts_of(root, "one", 1, 2, 3), 0
    attempts_of(root, "gone", 1)
    root.export_usage(folder)
    store = root.for_tenant("one")
    root.delete_tenant("gone")
    while True:
        changes += 1
        place = Ending(folder, changes, after=after)
        attempt_at(conversation, noon(1), noon(changes % 3 + 4))
        try:
            root.export_usage(place)
        except Killed:
            for file in folder.rglob("*.parquet"):
                parquet.read_table(file)
            if changes % 2:
                continue
            root.export_usage(folder)
        check(store, folder)
        if place.left > 0:
            break
    assert changes > 5
    assert not [one for one in folder.rglob("*") if one.is_file() and "gone" in str(one)]


KILLED = """
import os, signal, sys
from threadkeep import Store
from threadkeep.blobs import FolderBlobs

class Half:
    def __init__(self, content):
        self.content = content
    def read(self, size=-1):
        if self.content.tell():
            os.kill(os.getpid(), signal.SIGKILL)
        return self.content.read(1000)

class Folder(FolderBlobs):
    def put_file(self, name, content, media_type=None):
        super().put_file(name, Half(content) if name == sys.argv[3] else content, media_type)

with Store(sys.argv[1]) as store:
    store.export_usage(Folder(sys.argv[2]))
"""


@pytest.mark.slow
@pytest.mark.skipif(os.name != "posix", reason="processes are killed by a signal of POSIX")
def test_a_killed_process_leaves_no_part_of_a_file(tmp_path: Path) -> None:
    url, folder = f"sqlite:///{tmp_path / 'chat.db'}", tmp_path / "usage"
    folder.mkdir()
    with Store(url) as store:
        attempt_at(store.create_conversation(), *map(noon, range(1, 4)), figures={"total_tokens": 13})
        day = noon(2).date().isoformat()
        names = [f"{table}/day={day}/tenant=default/data.parquet" for table in ("usage_attempts", "usage_by_day")]
        for name in [*names, "manifest/tenant=default/days.json"]:
            run = subprocess.run([sys.executable, "-c", KILLED, url, folder, name], check=False, timeout=60)
            assert run.returncode == -signal.SIGKILL
            assert (folder / name).parent in {one.parent for one in folder.rglob("*.part")}
            for file in folder.rglob("*.parquet"):
                parquet.read_table(file)
            store.export_usage(folder)
            check(store, folder)
            attempt_at(store.create_conversation(), noon(2))
            for one in folder.rglob("*.part"):
                os.utime(one, (0, 0))  # as if it were of another day
    with Store(url, tenants=True) as root:
        root.export_usage(folder)
    assert not [*folder.rglob("*.part")]


# Whatever happens

STEPS = st.lists(
    st.sampled_from(["export", "export since", "late", "erase", "delete", "roll up", "reprice", "new"]),
    min_size=3, max_size=10,
)  # fmt: skip


@pytest.mark.sampled
@given(STEPS)
def test_an_export_has_what_the_ledger_has_whatever_happened(tmp_path_factory: Any, steps: list[str]) -> None:
    folder = tmp_path_factory.mktemp("run") / "usage"
    with Store("sqlite://", prices=[Price("m", input="1", output="2")]) as store:
        conversation = store.create_conversation(user_id=USER)
        for number, step in enumerate(steps):
            if step.startswith("export"):
                store.export_usage(folder, since=noon(3).date() if step == "export since" else None)
            elif step == "late":
                usage = {"input_tokens": number, "output_tokens": 3, "total_tokens": number + 3}
                about: dict[str, Any] = {"model": "m", "occurred_at": noon(number % 5 + 1)}
                conversation.record_attempt("open_responses", usage=usage, **about)
            elif step == "erase":
                store.erase_user(USER)
                conversation = store.create_conversation(user_id=USER)
            elif step in {"delete", "new"}:
                if step == "delete":
                    store.delete_conversation(conversation.id)
                conversation = store.create_conversation(user_id="bob")
            elif step == "roll up":
                store.fill_usage_days()
            else:
                store.recompute_costs()
        store.export_usage(folder)
        check(store, folder)
        if any(folder.rglob("*.parquet")):
            users = read(folder, "user_id, count(*)", rest="GROUP BY ALL").fetchall()
            until = last_day(datetime.now(UTC)) + timedelta(days=1)
            assert dict(users) == {row.user_id: row.attempts for row in store.usage(by="user_id", until=until)}


def test_a_large_day_is_written_in_row_groups(tmp_path: Path) -> None:
    rows = [("a text",)] * FETCHED

    def batches() -> Iterator[list[tuple[str]]]:
        for _ in range(45):
            yield [*rows]

    assert usage_files.write_parquet(tmp_path / "x", {"t": usage_files.TEXT}, batches(), feature="") == 45 * FETCHED
    about = parquet.read_metadata(tmp_path / "x")
    assert [about.row_group(n).num_rows for n in range(about.num_row_groups)] == [100_000, 100_000, 25_000]


# The queries of the documentation


def queries(engine: str) -> list[str]:
    """The SQL of docs/warehouse.md for an engine, by its comment."""
    page = (Path(__file__).parents[2] / "docs" / "warehouse.md").read_text()
    blocks = re.findall(r"^```sql\n-- (\w+)[^\n]*\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    found = [sql for name, sql in blocks if name == engine]
    assert found
    return found


def a_quarter(root: Store) -> list[tuple[Any, ...]]:
    """Attempts of some weeks, and their sums by week and model as the query for weeks shows them."""
    store = root.create_tenant("one")
    conversation = store.create_conversation(user_id=USER)
    for number in range(60):
        about: dict[str, Any] = {"model": f"m{number % 3}", "latency_ms": 100 + number}
        attempt_at(conversation, noon(1 + number), cost=None if number % 3 == 2 else 10**9 + number, **about)
    until = last_day(datetime.now(UTC)) + timedelta(days=1)
    rows = store.usage(by=("week", "model"), since=date(2026, 1, 1), until=until)
    return sorted(
        ((row.week, row.model, row.attempts, row.cost_usd) for row in rows),
        key=lambda row: (row[0], row[3] is None, -(row[3] or 0)),
    )


def test_duckdb_runs_the_queries_of_the_page(root: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    expected_weeks = a_quarter(root)
    root.export_usage(tmp_path / "usage")
    monkeypatch.chdir(tmp_path)
    views, weeks, percentiles = queries("DuckDB")
    with duckdb.connect() as connection:
        connection.execute(views)
        assert connection.execute(weeks).fetchall() == expected_weeks
        found = connection.execute(percentiles).fetchall()
    assert [(model, hour) for model, hour, _ in found] == [("m0", 12), ("m1", 12), ("m2", 12)]
    assert found[0][2] == pytest.approx([128.5, 154.15, 156.43])
