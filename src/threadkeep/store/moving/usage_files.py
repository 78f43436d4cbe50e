"""The ledger and its sums of days as Parquet files, one for each day and tenant: tables for engines that read folders.

A manifest for each tenant has a fingerprint of each day that has files. A run compares it with the database, and
replaces the files of days that differ, each at once. A day is in the manifest before it has files: a run that was
killed leaves none that the next one does not know of.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import partial
from itertools import groupby
from operator import itemgetter
from os import PathLike, fspath
from tempfile import TemporaryFile
from typing import IO, Any, Final

import sqlalchemy as sa

from threadkeep.db import functions, models, types
from threadkeep.db.queries import conversations, usage
from threadkeep.domain import ids, jsontext, reports
from threadkeep.errors import InvalidOption, MissingExtra
from threadkeep.store.media import rows, stores
from threadkeep.store.moving import contents
from threadkeep.store.removing.batches import Progress
from threadkeep.store.work import refs
from threadkeep.store.work.handle import StoreHandle
from threadkeep.store.work.transactions import Transactions
from threadkeep.store.work.validation import span_of

ROW_GROUP: Final = 100_000  # rows, in columns of a few megabytes
# What a column holds. Money is given in billionths of a dollar, and written as dollars.
TEXT, NUMBER, DATE, MOMENT, MONEY, RATIO = "text", "number", "date", "moment", "money", "ratio"
VERSION: Final = 1  # of the files; those of another one are all written again
FETCHED: Final = 5_000  # rows
SAVED_DAYS, SAVED_ATTEMPTS = 100, 1_000_000  # are written before the manifest is
ATTEMPTS, SUMS = "usage_attempts", "usage_by_day"  # the tables, named as the views are
MANIFEST, DAYS = "manifest", "days.json"
Place = stores.FolderBlobs | stores.S3Blobs
NULL: Final = "__HIVE_DEFAULT_PARTITION__"  # how Hive writes NULL
MAX_NAME: Final = 255 - len("tenant=")  # bytes of a folder's name

_PRIMES: Final = (1_000_003, 8191)
_UNSAFE: Final = re.compile(r"""[\x00-\x1f"#%'*/:=?\\\x7f{\[\]^]""")  # as Hive has it
_WIDTH: Final = 1 + len(usage.KEYS)  # of a day and what its sums are told apart by
_LEDGER: Final[Any] = models.usage_records.c
_FIGURES: Final = (
    "input_tokens", "cached_tokens", "cache_write_tokens", "output_tokens", "reasoning_tokens", "total_tokens",
    "cost_nano", "latency_ms", "first_token_ms",
)  # fmt: skip
# Columns as the views have them, without `day` and `tenant`, which are the names of folders; what they hold
KINDS: Final = {
    ATTEMPTS: {
        "tenant_name": TEXT, "id": TEXT, "occurred_at": MOMENT, "conversation": TEXT,
        "response": NUMBER,
        **dict.fromkeys(("user_id", "provider", "model", "format", "status", "tool_set"), TEXT),
        **dict.fromkeys(_FIGURES, NUMBER), "cost_usd": MONEY, "price": TEXT,
        "terms": TEXT,
    },
    SUMS: {
        **dict.fromkeys(("tenant_name", *usage.KEYS), TEXT), **dict.fromkeys(reports.SUMS, NUMBER),
        "cost_usd": MONEY,
    },
}  # fmt: skip


@dataclass(slots=True)
class UsageExportReport:
    """What `export_usage` did. A day is one of a tenant, with a file in each of the two tables.

    Attributes:
        written: how many days were written: new ones, and those that had changed.
        unchanged: how many were left as they are.
        removed: how many are gone, since their tenant was deleted.
        attempts: how many attempts were written.
    """

    written: int = 0
    unchanged: int = 0
    removed: int = 0
    attempts: int = 0


def export_usage(
    handle: StoreHandle, place: object, since: date | None, progress: Progress | None
) -> UsageExportReport:
    """Write what has changed, of a tenant or of all; see `Store.export_usage`."""
    transactions = handle.transactions
    handle.root.open(transactions)
    scope = None if handle.needs_tenant else handle.scope
    if scope is not None:
        scope.check_all_users("The ledger is exported for all users", "export_usage()")
    if not (progress is None or callable(progress)):
        raise jsontext.mismatch(InvalidOption, "a function", progress, "progress")
    first, _ = span_of(since, None, UTC)
    export = _Export(transactions, _place(place), None if first is None else first.date(), progress)
    there = {tenant_folder(name): (key, name) for key, name in transactions.read(partial(_tenants, scope=scope))}
    if scope is None:
        export.clean({*there})
    for folder, (key, name) in there.items():
        _Tenant(export, key, name, folder).write()
    return export.report


def tenant_folder(name: str) -> str:
    """The name of a tenant's folders: as Hive writes it or, where that cannot be read back, shortened, with a hash."""
    text = name.encode("utf-8", "backslashreplace").decode()
    value = _hive_escaped(text)
    if text != name or value == NULL or len(value.encode()) > MAX_NAME:
        digest = hashlib.sha256(types.escaped(name).encode()).hexdigest()[:32]
        value = f"{_hive_escaped(text[:40])}^{digest}"  # there is no ^ in other names
    return f"tenant={value}"


def _hive_escaped(text: str) -> str:
    return _UNSAFE.sub(lambda match: f"%{ord(match[0]):02X}", text)


def _place(place: object) -> Place:
    """A folder, which is created, or a bucket by its URL, or what was given."""
    if isinstance(place, stores.FolderBlobs | stores.S3Blobs):
        return place
    if not isinstance(place, str | PathLike) or not isinstance(name := fspath(place), str):
        raise jsontext.mismatch(InvalidOption, "a folder or the URL of a bucket", place, "place")
    return rows.blob_store_at(name, "place", creates=True)


class _Export:
    """A run."""

    def __init__(self, transactions: Transactions, blobs: Place, since: date | None, progress: Progress | None) -> None:
        self.transactions, self.blobs, self.since = transactions, blobs, since
        self.last = reports.last_day(datetime.now(UTC))
        self.report, self._progress = UsageExportReport(), progress

    def clean(self, folders: set[str]) -> None:
        """Remove the files of tenants that are gone, and what writers left a day ago that were killed."""
        now = datetime.now(UTC)
        if isinstance(self.blobs, stores.FolderBlobs):
            for _ in self.blobs.names("", now - timedelta(days=1)):
                pass
        for name in [*self.blobs.names(f"{MANIFEST}/", now + timedelta(days=1))]:
            folder = name.removeprefix(f"{MANIFEST}/").removesuffix(f"/{DAYS}")
            if folder not in folders:
                gone = _Tenant(self, 0, "", folder)
                for day in [*gone.days]:
                    gone.remove(day)
                self.blobs.delete(name)

    def put(self, table: str, day: str, folder: str, file: IO[bytes]) -> None:
        """Write a file, or replace it at once."""
        file.seek(0)
        self.blobs.put_file(_file_name(table, day, folder), file, "application/vnd.apache.parquet")

    def count(self, attempts: int) -> None:
        """Count a day that was written."""
        self.report.written += 1
        self.report.attempts += attempts
        if self._progress is not None:
            self._progress("attempts", self.report.attempts)


def _file_name(table: str, day: str, folder: str) -> str:
    return f"{table}/day={day}/{folder}/data.parquet"


class _Tenant:
    """The files of a tenant, and their manifest: a fingerprint for each day, None for one that is being written."""

    def __init__(self, export: _Export, key: int, name: str, folder: str) -> None:
        self._export, self._key, self._name, self._folder = export, key, name, folder
        self._manifest = f"{MANIFEST}/{folder}/{DAYS}"
        try:
            known = jsontext.loads(export.blobs.get(self._manifest))
        except KeyError:
            known = {}
        self.days: dict[str, str | None] = known.get("days", {})

    def write(self) -> None:
        """Write the days that are new or have changed, and remove those that are gone."""
        export = self._export
        found = dict(export.transactions.read(self._fingerprints))
        first = "" if export.since is None else export.since.isoformat()
        gone = [day for day in self.days if day >= first and day not in found]
        changed = [day for day, fingerprint in found.items() if self.days.get(day) != fingerprint]
        export.report.unchanged += len(found) - len(changed)
        if not gone and not changed:
            return
        self.days |= dict.fromkeys(changed)
        self._save()
        days = attempts = 0
        for day in changed:
            count = self._write_day(day)
            days, attempts = days + 1, attempts + count
            if days >= SAVED_DAYS or attempts >= SAVED_ATTEMPTS:
                self._save()
                days = attempts = 0
        for day in gone:
            self.remove(day)
        self._save()

    def remove(self, day: str) -> None:
        """Remove the files of a day."""
        for table in KINDS:
            self._export.blobs.delete(_file_name(table, day, self._folder))
        self._export.report.removed += 1
        self.days.pop(day, None)

    def _save(self) -> None:
        content = {"version": VERSION, "tenant": self._name, "days": dict(sorted(self.days.items()))}
        self._export.blobs.put(self._manifest, jsontext.dumps(content), "application/json")

    def _write_day(self, day: str) -> int:
        """Write the files of a day, both of the same moment; return the number of attempts."""
        at = date.fromisoformat(day)
        with TemporaryFile() as attempts, TemporaryFile() as sums:

            def read(connection: sa.Connection) -> tuple[str, int]:
                contents.begin_snapshot(connection, self._export.transactions)
                rows = [row for _, rows in _days(connection, self._key, at) for row in rows]
                for file in (attempts, sums):  # of a read that is repeated
                    file.seek(0)
                    file.truncate()
                pages = _attempts(connection, self._key, at, self._name)
                count = write_parquet(attempts, KINDS[ATTEMPTS], pages, feature="export_usage()")
                lines = [[(self._name, *_sums(row)) for row in rows]]
                write_parquet(sums, KINDS[SUMS], lines, feature="export_usage()")
                return _fingerprint(rows), count

            fingerprint, count = self._export.transactions.read(read)
            self._export.put(ATTEMPTS, day, self._folder, attempts)
            self._export.put(SUMS, day, self._folder, sums)
        self.days[day] = fingerprint
        self._export.count(count)
        return count

    def _fingerprints(self, connection: sa.Connection) -> list[tuple[str, str]]:
        export = self._export
        contents.begin_snapshot(connection, export.transactions)
        found = _days(connection, self._key, export.since, export.last)
        return [(day.isoformat(), _fingerprint(rows)) for day, rows in found]


# ---------------------------------------------------------------------------------------------------------------------
# Reading


def _tenants(connection: sa.Connection, scope: refs.Scope | None) -> list[tuple[int, str]]:
    row = models.tenants.c
    statement = sa.select(row.id, row.name).order_by(row.id)
    if scope is not None:
        statement = statement.where(row.id == scope.tenant)
    return [(key, name) for key, name in connection.execute(statement)]


def _joined() -> sa.FromClause:
    """Attempts with the conversations that are not deleted."""
    row = models.conversations.c
    here = row.tenant_id == _LEDGER.tenant_id, row.id == _LEDGER.conversation_id, row.status != conversations.DELETED
    return models.usage_records.outerjoin(models.conversations, sa.and_(*here))


def _days(
    connection: sa.Connection, tenant: int, first: date | None, last: date | None = None
) -> Iterator[tuple[date, list[Sequence[Any]]]]:
    """The sums of each day from `first` to `last` (None: that day alone), and what else shows that a row has changed.

    Rows are only changed by erasing a user, deleting a conversation, linking a response and computing costs again.
    """
    cost = (_LEDGER.cost_nano % _PRIMES[0]) * (_LEDGER.id % _PRIMES[1])  # differs where rows exchange theirs
    changing = [
        sa.func.count(_LEDGER.user_id),
        sa.func.count(_LEDGER.response),
        sa.func.count(models.conversations.c.id),
    ]
    keys = [_LEDGER.day, *(_LEDGER[name] for name in usage.KEYS)]
    where = [_LEDGER.tenant_id == tenant]
    if last is None:
        where.append(_LEDGER.day == first)
    else:
        where += [_LEDGER.day <= last, *([] if first is None else [_LEDGER.day >= first])]
    statement = (
        sa.select(*keys, *usage.ledger_sums(), *changing, functions.integer_sum(cost))
        .select_from(_joined()).where(*where).group_by(*keys).order_by(_LEDGER.day)
        .execution_options(stream_results=True, yield_per=FETCHED)
    )  # fmt: skip
    with connection.execute(statement) as result:
        for day, found in groupby(result, itemgetter(0)):
            rows = sorted(found, key=_order)
            yield day, [(*row[:_WIDTH], *(None if one is None else int(one) for one in row[_WIDTH:])) for row in rows]


def _order(row: Sequence[Any]) -> list[tuple[bool, str]]:
    return [(one is None, one or "") for one in row[1:_WIDTH]]


def _fingerprint(rows: Sequence[Sequence[Any]]) -> str:
    """A digest of the sums of a day."""
    return hashlib.sha256(repr((VERSION, [row[1:] for row in rows])).encode()).hexdigest()[:32]


def _sums(row: Sequence[Any]) -> Sequence[Any]:
    """A row of sums as in its file, with the cost once more."""
    keys_and_sums = row[1 : len(KINDS[SUMS]) - 1]
    return (*keys_and_sums, keys_and_sums[len(usage.KEYS) + reports.SUMS.index("cost_nano")])


def _attempts(connection: sa.Connection, tenant: int, day: date, name: str) -> Iterator[list[tuple[Any, ...]]]:
    """The attempts of a day as rows of their file, a batch at a time."""
    known = {"conversation": models.conversations.c.public_id, "tool_set": _LEDGER.tool_set_hash,
        "cost_usd": _LEDGER.cost_nano}  # fmt: skip
    columns = [known[one] if one in known else _LEDGER[one] for one in [*KINDS[ATTEMPTS]][1:]]
    statement = (
        sa.select(*columns).select_from(_joined()).where(_LEDGER.tenant_id == tenant, _LEDGER.day == day)
        .execution_options(stream_results=True, yield_per=FETCHED)
    )  # fmt: skip
    with connection.execute(statement) as result:
        for page in result.partitions():
            yield [
                (
                    name, str(key), at, None if public is None else ids.public_id_text(bytes(public)), *about,
                    None if tools is None else bytes(tools).hex(), *rest,
                )
                for key, at, public, *about, tools, rest in ((*row[:10], row[10:]) for row in page)
            ]  # fmt: skip


def write_parquet(
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
