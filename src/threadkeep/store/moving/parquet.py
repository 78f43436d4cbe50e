"""Parquet files with exact types, written a row group at a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from os import PathLike
from typing import IO, Any, Final

from threadkeep.errors import MissingExtra

ROW_GROUP: Final = 100_000  # rows, in columns of a few megabytes

# What a column holds. Money is given in billionths of a dollar, and written as dollars.
TEXT, NUMBER, DATE, MOMENT, MONEY, RATIO = "text", "number", "date", "moment", "money", "ratio"


def write(
    file: str | PathLike[str] | IO[bytes], kinds: Mapping[str, str], batches: Iterable[Sequence[Sequence[Any]]],
    *, feature: str,
) -> int:  # fmt: skip
    r"""Write batches of rows, each with a value for each column (`kinds`, by name); return the number of rows.

    Text is UTF-8: a lone surrogate is written as an escape, such as ``\ud800``. Moments are microseconds in UTC.

    Raises:
        MissingExtra: pyarrow, which `feature` needs, is not installed.
    """
    try:
        import pyarrow as pa  # noqa: PLC0415 - an extra
        from pyarrow import parquet  # noqa: PLC0415
    except ImportError as error:
        raise MissingExtra("parquet", feature) from error
    types = {
        TEXT: pa.string(), NUMBER: pa.int64(), DATE: pa.date32(), MOMENT: pa.timestamp("us", tz="UTC"),
        MONEY: pa.decimal128(28, 9), RATIO: pa.float64(),
    }  # fmt: skip

    def column(kind: str, values: Sequence[Any]) -> Any:
        if kind == MONEY:  # which has the same bits as the number of billionths
            return pa.array(values, pa.int64()).cast(pa.decimal128(28, 0)).view(types[MONEY])
        try:
            return pa.array(values, types[kind])
        except UnicodeEncodeError:
            return pa.array([None if one is None else one.encode("utf-8", "backslashreplace") for one in values]).cast(
                types[kind]
            )

    schema = pa.schema([(name, types[kind]) for name, kind in kinds.items()])
    count, waiting = 0, []
    with parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        for batch in batches:
            if not batch:
                continue
            columns = zip(kinds.values(), zip(*batch, strict=True), strict=True)
            waiting.append(pa.Table.from_arrays([column(*one) for one in columns], schema=schema))
            count += len(batch)
            if sum(map(len, waiting)) >= ROW_GROUP:
                writer.write_table(pa.concat_tables(waiting))
                waiting = []
        writer.write_table(pa.concat_tables([*waiting, schema.empty_table()]))
    return count
