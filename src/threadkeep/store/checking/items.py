"""The items of a conversation: their JSON, the columns made of it, their media, and their text for the search."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any, Final

from sqlalchemy import Connection, select, update

from threadkeep.db import tables
from threadkeep.domain.jsontext import loads
from threadkeep.domain.placeholders import REDACTED, without_content
from threadkeep.domain.searching import JSON_LIMIT, TITLE_POSITION, bounded, text_in
from threadkeep.errors import DamagedRow, InvalidItem
from threadkeep.formats.canonical.entries import Entry
from threadkeep.store.checking.conversations import ConversationCheck
from threadkeep.store.checking.search_index import check_index
from threadkeep.store.item_rows import encode_item
from threadkeep.store.media.cutting import SPLICED
from threadkeep.store.moving.records import Row
from threadkeep.store.refs import ConversationRef, Scope
from threadkeep.store.search.index import forget_documents, scope_of

# Columns that are made of the JSON of an item, and by which it is found
MADE: Final = ("item_id", "item_hash", "call_id", "call_hash", "type", "role", "status", "name")
_BATCH: Final = 200


def check_items(check: ConversationCheck) -> None:
    """Check the items of a conversation, and what belongs to them."""
    indexed = check.row["search_from"]
    for batch in _batches(check):
        positions = [row["position"] for row in batch]
        links = _by_position(check, tables.item_blobs, positions)
        documents = _by_position(check, tables.search_documents, positions)
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


def _batches(check: ConversationCheck) -> Iterator[list[Row]]:
    batch: list[Row] = []
    for row in check.pages(tables.items):
        batch.append(row)
        if len(batch) == _BATCH:
            yield batch
            batch = []
    if batch:
        yield batch


def _by_position(check: ConversationCheck, table: Any, positions: Sequence[int]) -> dict[int, list[Row]]:
    found: dict[int, list[Row]] = {}
    columns = [column for column in table.columns if column.name != "words"]
    conditions = [*check.of(table), table.c.position.between(positions[0], positions[-1])]
    for row in check.connection.execute(select(*columns).where(*conditions)).mappings():
        found.setdefault(row["position"], []).append(dict(row))
    return found


def _note(
    check: ConversationCheck, row: Row, code: str, problem: str, repair: str | None = None, **values: Any
) -> None:
    key = {**check.key, "position": row["position"]}
    check.findings.note(code, tables.items, key, problem, repair, **values)


def _entry_of(row: Row) -> Entry:
    payload, rest = (None if row[name] is None else row[name].encode() for name in ("payload", "rest"))
    return Entry(
        row["position"], row["type"], row["role"], row["turn"], row["seen"], row["call_id"], row["origin"],
        payload, rest, row["codec"] & ~SPLICED, row["maker"],
    )  # fmt: skip


def _check_item(check: ConversationCheck, row: Row) -> bool:
    """Check an item against its JSON; return whether that can be read."""
    try:
        columns = encode_item(_entry_of(row).item()).columns
    except (DamagedRow, InvalidItem) as error:
        _note(check, row, "json", f"its JSON cannot be read: {error.message}")
        return False
    wrong = {name: columns[name] for name in MADE if _value(row[name]) != columns[name]}
    if wrong:
        problem = f"{', '.join(wrong)} are not those of its JSON"
        _note(check, row, "columns", problem, "set them to those of the JSON", **wrong)
    if row["given"] is not None and not _is_object(row["given"]):
        _note(
            check, row, "json", "what was given cannot be read", "remove it: the item is read as it is sent", given=None
        )
    return True


def _value(value: Any) -> Any:
    return bytes(value) if isinstance(value, bytes | bytearray | memoryview) else value


def _is_object(text: str) -> bool:
    try:
        return isinstance(loads(text), dict)
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
            check.findings.add("media", tables.item_blobs, key, f"there is no place {link['splice_at']} in the text")


# Search


def _check_document(check: ConversationCheck, row: Row, documents: Sequence[Row]) -> None:
    text, found = _text_of(row), documents[0]["text"] if documents else ""
    if found != text and not (found == "" and _is_redacted(row)):
        what = "missing" if not documents else "that of another text" if text else "that of a text that is gone"
        _reindex(check, row["position"], f"its search document is {what}")
    elif documents and documents[0]["scope"] != _scope_of(check):
        _reindex(check, row["position"], "its search document is that of another user")


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
    return bool(item == without_content(item, REDACTED, call_id=row["call_id"], is_answer=row["seen"] is not None))


def _scope_of(check: ConversationCheck) -> str | None:
    return scope_of(check.connection, check.findings.tenant, check.row["user_id"])


def _check_other_documents(check: ConversationCheck) -> None:
    """The document of the title, and documents of positions without an item."""
    table, item = tables.search_documents, tables.items.c
    title = bounded(check.row["title"] or "")
    of_title = [*check.of(table), table.c.position == TITLE_POSITION]
    found = check.connection.execute(select(table.c.text).where(*of_title)).scalar() or ""
    if found != title and check.row["search_from"] is None:
        _reindex(check, TITLE_POSITION, "the search document of the title is missing or that of another one")
    there = select(item.position).where(
        item.tenant_id == table.c.tenant_id, item.conversation_id == table.c.conversation_id,
        item.position == table.c.position,
    )  # fmt: skip
    orphans = [*check.of(table), table.c.position > TITLE_POSITION, ~there.exists()]
    for position in check.connection.execute(select(table.c.position).where(*orphans)).scalars().all():
        _reindex(check, position, "there is a search document of an item that does not exist", is_gone=True)


def _reindex(check: ConversationCheck, position: int, problem: str, *, is_gone: bool = False) -> None:
    """Remove the document of a position; the next search makes it again, from that position on."""
    key = {**check.key, "position": position}
    mend = partial(_forget, check=check, position=position, is_gone=is_gone)
    check.findings.add("search", tables.search_documents, key, problem, "index the conversation again", mend)


def _forget(connection: Connection, check: ConversationCheck, position: int, *, is_gone: bool) -> None:
    ref = ConversationRef(Scope(check.findings.tenant), check.row["id"], "")
    table, row = tables.search_documents.c, tables.conversations
    forget_documents(connection, ref, *ref.rows_of(table), table.position == position)
    if is_gone:
        return
    start = max(position, 0) if position != TITLE_POSITION else check.row["next_position"]
    current = connection.execute(
        select(row.c.search_from).where(row.c.tenant_id == check.findings.tenant, row.c.id == check.row["id"])
    ).scalar()
    start = start if current is None else min(start, current)
    connection.execute(
        update(row)
        .where(row.c.tenant_id == check.findings.tenant, row.c.id == check.row["id"])
        .values(search_from=start)
    )
