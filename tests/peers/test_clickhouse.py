"""ClickHouse, as chDB, reads an exported ledger from a bucket: the queries of docs/warehouse.md, types and tenants."""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from tests.store.blob_stores import s3_client, s3_server
from tests.store.test_usage_export import HOSTILE, a_quarter, attempts_of, queries
from threadkeep import Store
from threadkeep.blobs import S3Blobs

chdb = pytest.importorskip("chdb", reason="chdb is not installed: pip install chdb")
PLACE = "https://my-bucket.s3.amazonaws.com/usage"
ATTEMPTS = f"s3('{PLACE}/usage_attempts/*/*/*.parquet', 'Parquet')"


class Bucket:
    """A bucket to export to, which ClickHouse reads."""

    def __init__(self, address: str) -> None:
        self._client, self._name = s3_client(address), f"usage-{uuid4().hex}"
        self._client.create_bucket(Bucket=self._name)
        self._url = f"{address}/{self._name}/usage"
        self.place = S3Blobs(self._name, prefix="usage/", client=self._client)

    def ask(self, sql: str) -> list[list[Any]]:
        """The rows of a query; numbers are as they are written, and large ones are texts."""
        here = sql.strip().rstrip(";").replace(PLACE, self._url).replace("'Parquet')", "'test', 'test', 'Parquet')")
        return [json.loads(line) for line in str(chdb.query(here, "JSONCompactEachRow")).splitlines()]


@pytest.fixture
def root(tmp_path: Path) -> Iterator[Store]:
    with Store(f"sqlite:///{tmp_path / 'chat.db'}", tenants=True) as root:
        yield root


@pytest.fixture
def bucket() -> Iterator[Bucket]:
    with s3_server() as address:
        yield Bucket(address)


def test_clickhouse_runs_the_queries_of_the_page(root: Store, bucket: Bucket) -> None:
    expected = a_quarter(root)
    root.export_usage(bucket.place)
    weeks, percentiles = queries("ClickHouse")
    settings = "output_format_json_quote_decimals = 1"
    found = bucket.ask(weeks.replace(";", f", {settings};"))
    assert [
        (week, model, int(attempts), None if usd is None else Decimal(usd)) for week, model, attempts, usd in found
    ] == [(week.isoformat(), *rest) for week, *rest in expected]
    assert [(model, int(hour)) for model, hour, _ in bucket.ask(percentiles)] == [("m0", 12), ("m1", 12), ("m2", 12)]


def test_types_are_exact(root: Store, bucket: Bucket) -> None:
    attempts_of(root, "one", 1)
    root.export_usage(bucket.place)
    columns = ("id", "occurred_at", "input_tokens", "cost_nano", "cost_usd", "day")
    [types] = bucket.ask(
        f"SELECT {', '.join(f'toTypeName({name})' for name in columns)} FROM {ATTEMPTS} "
        "SETTINGS use_hive_partitioning = 1"
    )
    assert [one.removeprefix("Nullable(").removesuffix(")") for one in types[:1]] == ["String"]
    assert types[1:] == [
        "Nullable(DateTime64(6, 'UTC'))", "Nullable(Int64)", "Nullable(Int64)", "Nullable(Decimal(28, 9))", "Date",
    ]  # fmt: skip


def test_tenants_are_exact_in_the_files_and_escaped_in_folders(root: Store, bucket: Bucket) -> None:
    for tenant in HOSTILE:
        attempts_of(root, tenant, 1)
    root.export_usage(bucket.place)
    found = bucket.ask(f"SELECT tenant_name, tenant FROM {ATTEMPTS} SETTINGS use_hive_partitioning = 1")
    assert {name for name, _ in found} == {one.encode("utf-8", "backslashreplace").decode() for one in HOSTILE}
    assert ["a/b=c%d", "a%2Fb%3Dc%25d"] in found
