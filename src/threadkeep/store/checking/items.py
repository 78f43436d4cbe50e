"""The items of a conversation: their JSON, the columns made of it, their media, and their text for the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import cache, partial
from itertools import islice
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy.exc import DatabaseError
from sqlalchemy.types import NullType

from threadkeep.db import backends, models
from threadkeep.db.search import REBUILD_HINT, reason_of, search_of
from threadkeep.db.types import EscapedText, Identifier, UtcDateTime
from threadkeep.domain import items, jsontext
from threadkeep.domain.searching import JSON_LIMIT, TITLE_POSITION, bounded, text_in
from threadkeep.errors import DamagedRow, InvalidItem
from threadkeep.formats.canonical.entries import ItemEntry
from threadkeep.store.checking.conversations import ConversationCheck
from threadkeep.store.checking.findings import Findings
from threadkeep.store.media.cutting import SPLICED
from threadkeep.store.moving.contents import Row
from threadkeep.store.search.index import forget_documents
from threadkeep.store.work import item_rows, refs


def check_index(check: ConversationCheck) -> None:
    """Check that a search finds the documents of a conversation.

    Where it does not, only the whole index can be made again: it may refuse to take them.
    """
    connection, table = check.connection, models.search_documents
    try:
        missing = search_of(connection).count_missing(connection, check.findings.tenant, check.row["id"])
    except DatabaseError as error:
        check.findings.add("search", table, check.key, f"the index cannot be read: {reason_of(error)}", REBUILD_HINT)
        return
    if missing:
        problem = f"{missing} of its documents are not in the index"
        check.findings.add("search", table, check.key, problem, REBUILD_HINT)


# ---------------------------------------------------------------------------------------------------------------------
# The items of a conversation: their JSON, the columns made of it, their media, and their text for the search

# Columns that are made of the JSON of an item, and by which it is found
MADE: Final = ("item_id", "item_hash", "call_id", "call_hash", "type", "role", "status", "name")
_BATCH: Final = 200


def check_items(check: ConversationCheck) -> None:
    """Check the items of a conversation, and what belongs to them."""
    indexed = check.row["search_from"]
    rows = iter(check.pages(models.items))
    while batch := list(islice(rows, _BATCH)):
        positions = [row["position"] for row in batch]
        links = _by_position(check, models.item_blobs, positions)
        documents = _by_position(check, models.search_documents, positions)
        for row in batch:
            position = row["position"]
            is_readable = _check_item(check, row)
            _check_media(check, row, links.get(position, []))
            if row["branch"] not in check.lineages and row["branch"] >= 0:
                _note(check, row, "branch", f"its branch {row['branch']} does not exist")
            if is_readable and (indexed is None or position < indexed):  # else its text may be in the index alone
                _check_document(check, row, documents.get(position, []))
    _check_other_documents(check)
    check_index(check)


def _by_position(check: ConversationCheck, table: Any, positions: Sequence[int]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    columns = [column for column in table.columns if column.name != "words"]
    conditions = [*check.of(table), table.c.position.between(positions[0], positions[-1])]
    for row in check.connection.execute(sa.select(*columns).where(*conditions)).mappings():
        found.setdefault(row["position"], []).append(dict(row))
    return found


def _note(
    check: ConversationCheck, row: Row, code: str, problem: str, repair: str | None = None, **values: Any
) -> None:
    key = {**check.key, "position": row["position"]}
    check.findings.note(code, models.items, key, problem, repair, **values)


def _entry_of(row: Row) -> ItemEntry:
    payload, rest = (None if row[name] is None else row[name].encode() for name in ("payload", "rest"))
    return ItemEntry(
        row["position"], row["type"], row["role"], row["turn"], row["seen"], row["call_id"], row["origin"],
        payload, rest, row["codec"] & ~SPLICED, row["maker"],
    )  # fmt: skip


def _check_item(check: ConversationCheck, row: Row) -> bool:
    """Check an item against its JSON; return whether that can be read."""
    try:
        columns = item_rows.encode_item(_entry_of(row).item()).columns
    except (DamagedRow, InvalidItem) as error:
        _note(check, row, "json", f"its JSON cannot be read: {error.message}")
        return False
    wrong = {name: columns[name] for name in MADE if _value(row[name]) != columns[name]}
    if wrong:
        problem = f"{', '.join(wrong)} do not match its JSON"
        _note(check, row, "columns", problem, "set them from the JSON", **wrong)
    if row["given"] is not None and not _is_object(row["given"]):
        _note(
            check, row, "json", "what was given cannot be read", "remove it: the item is read as it is sent", given=None
        )
    return True


def _value(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value


def _is_object(text: str) -> bool:
    try:
        return isinstance(jsontext.loads(text), dict)
    except ValueError:
        return False


def _check_media(check: ConversationCheck, row: Row, links: Sequence[Row]) -> None:
    if bool(links) != bool(row["codec"] & SPLICED):
        if links:
            codec = row["codec"] | SPLICED
            _note(
                check,
                row,
                "media",
                "it has media, and its codec says it has none",
                f"set codec to {codec}",
                codec=codec,
            )
        else:
            _note(check, row, "media", "its codec says it has media, and there are none")
    for link in links:
        text = row["payload" if link["part"] == 0 else "rest"]
        if text is None or not 0 <= link["splice_at"] <= len(text.encode()):
            key = {name: link[name] for name in ("conversation_id", "position", "part", "ordinal")}
            check.findings.add("media", models.item_blobs, key, f"there is no place {link['splice_at']} in the text")


# Search


def _check_document(check: ConversationCheck, row: Row, documents: Sequence[Row]) -> None:
    text, found = _text_of(row), documents[0]["text"] if documents else ""
    if found != text and not (found == "" and _is_redacted(row)):
        what = "missing" if not documents else "of another text" if text else "of a removed text"
        _reindex(check, row["position"], f"its search document is {what}")
    elif documents:
        scope = search_of(check.connection).scope(check.findings.tenant, check.row["user_id"])
        if documents[0]["scope"] != scope:
            _reindex(check, row["position"], "its search document names another user")


def _text_of(row: Row) -> str:
    """The text by which an item is found."""
    json = row["payload"] if row["payload"] is not None else row["rest"]
    try:
        return "" if row["branch"] < 0 or json is None else text_in(row["type"], json[:JSON_LIMIT])
    except Exception:  # noqa: BLE001 - as when it is indexed: a damaged row has no text
        return ""


def _is_redacted(row: Row) -> bool:
    """Whether nothing of an item is left that a redaction would remove; redacting it has removed its document."""
    try:
        item = _entry_of(row).item()
    except DamagedRow:
        return False
    return bool(
        item == items.without_content(item, items.REDACTED, call_id=row["call_id"], is_answer=row["seen"] is not None)
    )


def _check_other_documents(check: ConversationCheck) -> None:
    """The document of the title, and documents of positions without an item."""
    table, item = models.search_documents, models.items.c
    title = bounded(check.row["title"] or "")
    of_title = [*check.of(table), table.c.position == TITLE_POSITION]
    found = check.connection.execute(sa.select(table.c.text).where(*of_title)).scalar() or ""
    if found != title and check.row["search_from"] is None:
        _reindex(check, TITLE_POSITION, "the search document of the title is missing or outdated")
    there = sa.select(item.position).where(
        item.tenant_id == table.c.tenant_id, item.conversation_id == table.c.conversation_id,
        item.position == table.c.position,
    )  # fmt: skip
    orphans = [*check.of(table), table.c.position > TITLE_POSITION, ~there.exists()]
    for position in check.connection.execute(sa.select(table.c.position).where(*orphans)).scalars().all():
        _reindex(check, position, "there is a search document of an item that does not exist", is_gone=True)


def _reindex(check: ConversationCheck, position: int, problem: str, *, is_gone: bool = False) -> None:
    """Remove the document of a position; the next search makes it again, from that position on."""
    key = {**check.key, "position": position}
    mend = partial(_forget, check=check, position=position, is_gone=is_gone)
    check.findings.add("search", models.search_documents, key, problem, "index the conversation again", mend)


def _forget(connection: sa.Connection, check: ConversationCheck, position: int, *, is_gone: bool) -> None:
    ref = refs.ConversationRef(refs.Scope(check.findings.tenant), check.row["id"], "")
    table, row = models.search_documents.c, models.conversations
    forget_documents(connection, ref, *ref.rows_of(table), table.position == position)
    if is_gone:
        return
    start = max(position, 0) if position != TITLE_POSITION else check.row["next_position"]
    current = connection.execute(
        sa.select(row.c.search_from).where(row.c.tenant_id == check.findings.tenant, row.c.id == check.row["id"])
    ).scalar()
    start = start if current is None else min(start, current)
    connection.execute(
        sa.update(row)
        .where(row.c.tenant_id == check.findings.tenant, row.c.id == check.row["id"])
        .values(search_from=start)
    )


# ---------------------------------------------------------------------------------------------------------------------
# Whether values are what is read from their columns: SQLite takes anything in each of them

SECONDS: Final = 19  # the length of a time without fractions of seconds
COUNTED: Final = "+0 days"  # lets SQLite count the days, and find that a month has fewer
# How values of a type are stored -> what they are
_STORED: Final = {
    (sa.BigInteger, sa.Integer, sa.SmallInteger): ("integer", "a number"),
    (sa.LargeBinary,): ("blob", "bytes"),
    (sa.Text, Identifier, EscapedText): ("text", "text"),
}


def check_types(findings: Findings) -> None:
    """Find values of another type than their column, which cannot be read, and neither can the rest of the row."""
    if backends.backend_of(findings.connection).checks_types:
        return
    for table in models.METADATA.sorted_tables:
        statement, key, checked = _rows_with_wrong_values(table)
        for row in findings.connection.execute(statement, {"tenant": findings.tenant}):
            found = dict(zip(key, row, strict=False))
            for (name, what), is_wrong in zip(checked.items(), row[len(key) :], strict=True):
                if is_wrong:
                    findings.add("type", table, found, f"{name} is not {what}")


@cache
def _rows_with_wrong_values(table: sa.Table) -> tuple[sa.Select[Any], list[str], dict[str, str]]:
    """The statement, the key that its rows begin with, and what the columns hold that it says of which are wrong."""
    wrong = {name: (what, is_wrong) for name, what, is_wrong in _wrong_values(table)}
    key = {
        column.name: sa.type_coerce(column, NullType()) for column in table.primary_key if column.name != "tenant_id"
    }
    flags = [is_wrong for _, is_wrong in wrong.values()]
    owner = table.c.id if table is models.tenants else table.c.tenant_id
    columns: list[sa.ColumnElement[Any]] = [*key.values(), *flags]
    statement = sa.select(*columns).where(owner == sa.bindparam("tenant"), sa.or_(*flags))
    return statement, [*key], {name: what for name, (what, _) in wrong.items()}


def _wrong_values(table: sa.Table) -> Iterator[tuple[str, str, sa.ColumnElement[bool]]]:
    """The columns of a table with what they hold, and the condition that a value is something else."""
    for column in table.c:
        value: sa.ColumnElement[Any] = sa.type_coerce(column, NullType())
        if isinstance(column.type, UtcDateTime):
            yield column.name, "a time", _is_given(value, _is_no_time(value))
        elif isinstance(column.type, sa.Date):
            yield column.name, "a day", _is_given(value, sa.func.date(value, COUNTED).is_distinct_from(value))
        elif table is not models.items or column.name not in MADE:  # those are made again
            stored, what = next(found for types, found in _STORED.items() if isinstance(column.type, types))
            yield column.name, what, _is_given(value, sa.func.typeof(value) != stored)


def _is_given(value: sa.ColumnElement[Any], is_wrong: sa.ColumnElement[bool]) -> sa.ColumnElement[bool]:
    return sa.and_(value.is_not(None), is_wrong)


def _is_no_time(value: sa.ColumnElement[Any]) -> sa.ColumnElement[bool]:
    """Whether a value is something else than a time with or without fractions of seconds."""
    seconds, rest = sa.func.substr(value, 1, SECONDS), sa.func.substr(value, SECONDS + 1)
    is_fraction = sa.and_(rest.op("GLOB")(".[0-9]*"), ~rest.op("GLOB")(".*[^0-9]*"))
    return sa.or_(
        sa.func.typeof(value) != "text",
        sa.func.datetime(seconds, COUNTED).is_distinct_from(seconds),
        ~sa.or_(rest == "", is_fraction),
    )
