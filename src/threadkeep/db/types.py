"""Column types that mean the same on SQLite, PostgreSQL and MySQL/MariaDB."""

from __future__ import annotations

import re
from datetime import UTC, date, datetime
from typing import Any, Final

from sqlalchemy import BINARY, VARBINARY, DateTime, LargeBinary, String, Text
from sqlalchemy.engine import Dialect
from sqlalchemy.types import TypeDecorator, TypeEngine

from threadkeep.domain.ids import public_id_bytes, public_id_text
from threadkeep.errors import NotFound

IDENTIFIER_BYTES: Final = 255

_BYTES: Final = (bytes, bytearray)

MYSQL: Final = ("mysql", "mariadb")

_UNSTORABLE: Final = re.compile("[\\\\\x00\ud800-\udfff]")
_ESCAPED: Final = re.compile(r"\\(\\|u[0-9a-f]{4})")


def is_plain(text: str) -> bool:
    """Whether there is certainly nothing to escape in a text, as in nearly all."""
    return text.isascii() and "\\" not in text and "\x00" not in text


def escaped(text: str) -> str:
    r"""A text that every database takes: U+0000, lone surrogates and ``\`` become ``\u0000``, ``\ud800`` and ``\\``."""
    if is_plain(text) or not _UNSTORABLE.search(text):
        return text
    return _UNSTORABLE.sub(lambda match: "\\\\" if match[0] == "\\" else f"\\u{ord(match[0]):04x}", text)


def unescaped(text: str) -> str:
    """The text before `escaped`."""
    if "\\" not in text:
        return text
    return _ESCAPED.sub(lambda match: "\\" if match[1] == "\\" else chr(int(match[1][1:], 16)), text)


def name_from(value: Any) -> str | None:
    """The text that was escaped; drivers return it as text, or as bytes in UTF-8."""
    if value is None:
        return None
    return unescaped(value.decode() if isinstance(value, _BYTES) else value)


def date_of(value: Any) -> date:
    """A day as the drivers give it."""
    if isinstance(value, datetime):
        return value.date()
    return value if isinstance(value, date) else date.fromisoformat(value)


# Types of one database, by the names that its dialect knows. SQLAlchemy's own are in the packages of the dialects, and
# to load those of all databases would take longer than anything else at the start of a program.


class LongText(Text):
    """Text of any length on MySQL, compared byte for byte."""

    __visit_name__ = "LONGTEXT"
    charset = "utf8mb4"

    def __init__(self) -> None:
        super().__init__(collation="utf8mb4_bin")


class LongBlob(LargeBinary):
    """Bytes of any length on MySQL."""

    __visit_name__ = "LONGBLOB"


class PlainBytes(LargeBinary):
    """Bytes on SQLite, whose driver takes and gives them as they are."""

    def bind_processor(self, dialect: Dialect) -> None:
        """None: SQLAlchemy would wrap each of them."""

    def result_processor(self, dialect: Dialect, coltype: object) -> None:
        """None: SQLAlchemy would copy each of them."""


class Microseconds(DateTime):
    """A moment on MySQL, which otherwise drops fractions of seconds."""

    __visit_name__ = "DATETIME"
    fsp = 6


class TsVector(TypeEngine[str]):
    """The words of a text on PostgreSQL."""

    __visit_name__ = "TSVECTOR"


class TsQuery(TypeEngine[str]):
    """A search for such words."""

    __visit_name__ = "TSQUERY"


class Identifier(TypeDecorator[str]):
    """A short name or id, compared byte for byte.

    VARBINARY on MySQL, whose `_bin` collations ignore trailing blanks. The length (`IDENTIFIER_BYTES` of the escaped
    text in UTF-8) is validated with the arguments.
    """

    impl = String(IDENTIFIER_BYTES).with_variant(VARBINARY(IDENTIFIER_BYTES), *MYSQL)
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> Any:
        """To the database."""
        if value is None:
            return None
        text = escaped(value)
        return text.encode() if dialect.name in MYSQL else text

    def bind_processor(self, dialect: Dialect) -> Any:
        """The same in fewer calls: hardly any value has to be escaped."""
        return super().bind_processor(dialect) if dialect.name in MYSQL else escaped_or_none

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's hook
        """From the database."""
        return name_from(value)


# Text of any length; LONGTEXT with a binary collation on MySQL.
BigText: Final = Text().with_variant(LongText(), *MYSQL)

# The words of a text as the database's index takes them: folded already, so that MySQL compares them byte for byte.
Words: Final = BigText.with_variant(TsVector(), "postgresql")

# Bytes of any length; LONGBLOB on MySQL.
BigBinary: Final = LargeBinary().with_variant(LongBlob(), *MYSQL).with_variant(PlainBytes(), "sqlite")


def Hash(length: int) -> TypeEngine[bytes]:  # noqa: N802 - reads as the type it makes
    """A digest or UUID of fixed length."""
    return LargeBinary(length).with_variant(BINARY(length), *MYSQL).with_variant(PlainBytes(length), "sqlite")


class PublicId(TypeDecorator[str]):
    """The id of a conversation: ``conv_…`` in Python, its 16 bytes in the database, which are also taken as they are.

    ValueError for a text that cannot be the id of a conversation.
    """

    __module__ = "threadkeep.models"  # where it is public: Alembic writes it into the revisions of an application
    impl = Hash(16)
    cache_ok = True

    def process_bind_param(self, value: str | bytes | None, dialect: Dialect) -> bytes | None:  # noqa: ARG002 - SQLAlchemy's hook
        """To the database."""
        if value is None or isinstance(value, _BYTES):
            return value
        try:
            return public_id_bytes(value)
        except NotFound as error:
            raise ValueError(error.message) from error

    def process_result_value(self, value: Any, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's hook
        """From the database."""
        return None if value is None else public_id_text(bytes(value))


class EscapedText(TypeDecorator[str]):
    """Provider's text of any length in a column of its own, escaped like an `Identifier`."""

    impl = BigText
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's hook
        """To the database."""
        return None if value is None else escaped(value)

    def bind_processor(self, dialect: Dialect) -> Any:  # noqa: ARG002 - SQLAlchemy's hook
        """The same in fewer calls."""
        return escaped_or_none

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:  # noqa: ARG002 - SQLAlchemy's hook
        """From the database."""
        return None if value is None else unescaped(value)


class UtcDateTime(TypeDecorator[datetime]):
    """A moment in UTC with microseconds; aware in Python."""

    impl = DateTime().with_variant(Microseconds(), *MYSQL).with_variant(DateTime(timezone=True), "postgresql")
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """To the database."""
        if value is None:
            return None
        moment = value.astimezone(UTC)
        return moment if dialect.name == "postgresql" else moment.replace(tzinfo=None)

    def bind_processor(self, dialect: Dialect) -> Any:
        """On SQLite: the text that SQLAlchemy writes, in a fifth of the time."""
        return _sqlite_moment if dialect.name == "sqlite" else super().bind_processor(dialect)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:  # noqa: ARG002 - SQLAlchemy's hook
        """From the database."""
        if value is None:
            return None
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


def escaped_or_none(value: str | None) -> str | None:
    """The same of a value that may be NULL, for the columns that hold such texts."""
    return None if value is None else escaped(value)


def _sqlite_moment(value: datetime | None) -> str | None:
    if value is None:
        return None
    moment = value if value.tzinfo is UTC else value.astimezone(UTC)
    return f"{moment.date().isoformat()} {moment.time().isoformat('microseconds')}"  # without the offset, which is slow
