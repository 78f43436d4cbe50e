"""Rows as JSON objects and back, by the types of their columns: whatever the database, a row has one JSON text.

Text stays text, also where it is JSON: its exact bytes matter. Hashes are hexadecimal digits, other bytes base64, times
and days ISO 8601 in UTC. A column that is NULL is left out.
"""

from __future__ import annotations

import binascii
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, date, datetime
from functools import cache
from hashlib import sha256
from typing import Any, Final, NamedTuple

from sqlalchemy import BigInteger, Column, Date, Integer, LargeBinary, SmallInteger, Table

from threadkeep.db.base import written_columns
from threadkeep.db.types import IDENTIFIER_BYTES, EscapedText, Identifier, UtcDateTime, escaped
from threadkeep.domain.jsontext import JsonObject, canonical
from threadkeep.errors import shown

Row = dict[str, Any]
_MODULUS: Final = 1 << 256


class _Codec(NamedTuple):
    """How the values of a column are written, and read again: ValueError or TypeError for what is none."""

    encode: Callable[[Any], Any]
    decode: Callable[[Any], Any]


def encode_row(table: Table, row: Mapping[str, Any], without: Iterable[str] = ("tenant_id",)) -> JsonObject:
    """A row as a JSON object, without some of its columns."""
    return {
        name: encode(value) for name, encode in _encoders(table, frozenset(without)) if (value := row[name]) is not None
    }


def decode_row(table: Table, record: Any, beside: Mapping[str, Any]) -> Row:
    """The row of a JSON object, with the columns `beside` it; ValueError says what is wrong with it."""
    if not isinstance(record, dict):
        raise ValueError(f"the row is not an object but {shown(record)}")  # noqa: TRY004 - as all that is wrong with it
    codecs = _codecs(table)
    if not record.keys() <= codecs.keys() or not beside.keys().isdisjoint(record):
        unknown = min(name for name in record if name not in codecs or name in beside)
        raise ValueError(f"there is no column {unknown!r}")
    row: Row = {}
    for name, is_nullable in _columns(table):
        if name in beside:
            row[name] = beside[name]
        elif (value := record.get(name)) is not None:
            try:
                row[name] = codecs[name].decode(value)
            except (ValueError, TypeError, OverflowError) as error:
                raise ValueError(f"{name} cannot be {shown(value)}") from error
        elif is_nullable:
            row[name] = None
        else:
            raise ValueError(f"{name} is missing")
    return row


class Digest:
    """A checksum of rows in any order: databases sort texts differently."""

    def __init__(self) -> None:
        self._sum, self.count = 0, 0

    def add(self, table: str, record: JsonObject) -> None:
        """Take another row into account."""
        self._sum += int.from_bytes(sha256(canonical([table, record])).digest(), "big")
        self.count += 1

    def hex(self) -> str:
        """The checksum."""
        return f"{self._sum % _MODULUS:064x}"


@cache
def _columns(table: Table) -> list[tuple[str, bool]]:
    """The names of columns, and whether they may be NULL."""
    return [(column.name, bool(column.nullable)) for column in written_columns(table)]


@cache
def _encoders(table: Table, without: frozenset[str]) -> list[tuple[str, Callable[[Any], Any]]]:
    return [(name, codec.encode) for name, codec in _codecs(table).items() if name not in without]


@cache
def _codecs(table: Table) -> dict[str, _Codec]:
    return {
        str(column.name): _codec_of(column) for column in written_columns(table)
    }  # orjson takes no other kind of key


def _codec_of(column: Column[Any]) -> _Codec:
    kind = column.type
    if isinstance(kind, UtcDateTime):
        return _Codec(_moment_text, _moment)
    if isinstance(kind, Date):
        return _Codec(date.isoformat, date.fromisoformat)
    if isinstance(kind, LargeBinary):
        length = kind.length
        if length is None:
            return _Codec(lambda value: b64encode(value).decode("ascii"), _bytes)
        return _Codec(lambda value: bytes(value).hex(), lambda value: _hash(value, length))
    if isinstance(kind, Integer):
        bits = 63 if isinstance(kind, BigInteger) else 15 if isinstance(kind, SmallInteger) else 31
        return _Codec(int, lambda value: _number(value, 1 << bits))
    if isinstance(kind, Identifier):
        return _Codec(str, _name)
    return _Codec(str, _text if isinstance(kind, EscapedText) else _storable_text)


def _moment_text(value: datetime) -> str:
    return value.astimezone(UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")


def _moment(value: str) -> datetime:
    moment = datetime.fromisoformat(value)
    if moment.tzinfo is None:
        raise ValueError(value)
    return moment.astimezone(UTC)


def _bytes(value: str) -> bytes:
    try:
        return b64decode(_text(value), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from error


def _hash(value: str, length: int) -> bytes:
    digest = bytes.fromhex(value)
    if len(digest) != length:
        raise ValueError(value)
    return digest


def _number(value: object, limit: int) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or not -limit <= value < limit:
        raise ValueError(value)
    return value


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError(value)
    return value


def _name(value: object) -> str:
    text = _text(value)
    if len(escaped(text).encode()) > IDENTIFIER_BYTES:
        raise ValueError(text)
    return text


def _storable_text(value: object) -> str:
    """A text that is stored as it is, so that it may not contain what a database cannot hold."""
    text = _text(value)
    if "\x00" in text:
        raise ValueError(text)
    text.encode()  # no lone surrogates
    return text
