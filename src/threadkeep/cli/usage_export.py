"""Usage reports as CSV and Parquet."""

from __future__ import annotations

import csv
import io
from collections.abc import Sequence
from datetime import UTC
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from threadkeep.cli.formatting import key_text
from threadkeep.errors import MissingExtra

if TYPE_CHECKING:
    from threadkeep import UsageRow

COUNTS: Final = (
    "attempts", "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens",
    "total_tokens", "cost_nano", "costs", "latency_ms", "latencies",
)  # fmt: skip
DERIVED: Final = ("cost_usd", "cache_hit_ratio", "mean_latency_ms")
DAYS: Final = ("day", "week", "month")


def csv_text(by: Sequence[str], rows: Sequence[UsageRow]) -> str:
    """The rows as CSV (RFC 4180) with a line of titles; what is unknown is empty."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    writer.writerow([*by, *COUNTS, *DERIVED])
    for row in rows:
        figures = [getattr(row, name) for name in (*COUNTS, *DERIVED)]
        writer.writerow([*(key_text(row.keys[name]) for name in by), *figures])
    return buffer.getvalue()


def write_parquet(path: Path, by: Sequence[str], rows: Sequence[UsageRow]) -> None:
    """Write the rows as a Parquet file, with hours in UTC."""
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise MissingExtra("parquet", "--parquet") from error
    kinds: dict[str, Any] = {
        **dict.fromkeys(by, pa.string()),
        **dict.fromkeys(DAYS, pa.date32()),
        "hour": pa.timestamp("us", tz="UTC"),
        "response": pa.int64(),
        **dict.fromkeys(COUNTS, pa.int64()),
        "cost_usd": pa.decimal128(28, 9),
        "cache_hit_ratio": pa.float64(),
        "mean_latency_ms": pa.float64(),
    }
    names = [*by, *COUNTS, *DERIVED]
    columns = {name: [_value(row, name, by) for row in rows] for name in names}
    table = pa.table(
        {name: pa.array(values, type=kinds[name]) for name, values in columns.items()},
        schema=pa.schema([(name, kinds[name]) for name in names]),
    )
    parquet.write_table(table, path)


def _value(row: UsageRow, name: str, by: Sequence[str]) -> Any:
    if name not in by:
        return getattr(row, name)
    key = row.keys[name]
    if name == "hour":
        return key.astimezone(UTC)
    if key is None or name in {*DAYS, "response"}:
        return key
    return str(key).encode("utf-8", "backslashreplace").decode()  # Parquet has no lone surrogates
