"""The search on SQLite: FTS5, whose index is a table of its own and stores no text."""

from __future__ import annotations

import sqlite3
from collections.abc import Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from typing import Any, Final

import sqlalchemy as sa
from sqlalchemy import ColumnElement, Connection, bindparam, func, select
from sqlalchemy.exc import OperationalError, SQLAlchemyError

from threadkeep.db import search, types
from threadkeep.db.base import SEARCH_INDEX as INDEX_NAME
from threadkeep.db.driver import Statement
from threadkeep.db.models import conversations, search_documents
from threadkeep.db.queries.conversations import of_tenant
from threadkeep.db.search import DOCUMENTS, OF_TALKS, TALKS, Matching, SearchQuery, Shape, parted
from threadkeep.domain import searching
from threadkeep.errors import SchemaError

SCORE: Final = "threadkeep_score"  # the function that a connection is given
MERGED_PAGES: Final = 500  # in one transaction
MERGED: Final = 2  # changes of a merge that has merged something
_BROKEN: Final = (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_ERROR)  # what an index says that lacks something

# It stores no text, so a deletion has to state the words to remove.
CREATE_INDEX: Final = sa.text(
    f"CREATE VIRTUAL TABLE IF NOT EXISTS {INDEX_NAME} "
    "USING fts5(words, scope, content='', columnsize=0, tokenize='unicode61 remove_diacritics 2')"
)
DROP_INDEX: Final = sa.text(f"DROP TABLE IF EXISTS {INDEX_NAME}")
# For an index that is too damaged to be opened: without its entry, the tables of FTS5 are plain tables.
FORGET_INDEX: Final = [
    sa.text("PRAGMA writable_schema=ON"),
    sa.text(f"DELETE FROM sqlite_master WHERE type = 'table' AND name = '{INDEX_NAME}'"),  # noqa: S608 - a constant
    sa.text("PRAGMA writable_schema=RESET"),
    *(sa.text(f"DROP TABLE IF EXISTS {INDEX_NAME}_{part}") for part in ("data", "idx", "config")),
]
HAS_INDEX: Final = sa.text(f"SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = '{INDEX_NAME}'")  # noqa: S608 - a constant
# What a document is found in, as words of their own: the tenant, the conversation, the type, and the user, who may
# become another one, so that the document keeps whose it was. The search has conditions on all of them, too.
_SCOPE: Final = (
    "'t' || tenant_id || ' c' || conversation_id || CASE type WHEN 'message' THEN '' ELSE ' y' || hex(type) END"
    " || coalesce(' ' || scope, '')"
)
_INDEXED: Final = f"id, coalesce(words, text), {_SCOPE} FROM {search_documents.name}"
_IDS: Final[sa.BindParameter[Any]] = bindparam("ids", expanding=True)
_BY_ID: Final = "WHERE tenant_id = :tenant AND id IN :ids"
INDEX_DOCUMENTS: Final = sa.text(
    f"INSERT INTO {INDEX_NAME} (rowid, words, scope) SELECT {_INDEXED} {_BY_ID}"
).bindparams(_IDS)
UNINDEX_DOCUMENTS: Final = sa.text(
    f"INSERT INTO {INDEX_NAME} ({INDEX_NAME}, rowid, words, scope) SELECT 'delete', {_INDEXED} {_BY_ID}"
).bindparams(_IDS)
MERGE_INDEX: Final = sa.text(f"INSERT INTO {INDEX_NAME} ({INDEX_NAME}) VALUES ('optimize')")  # noqa: S608 - a constant
# How many documents of a conversation are not found by its word
NOT_INDEXED: Final = sa.text(
    f"SELECT count(*) FROM {search_documents.name} WHERE tenant_id = :tenant AND conversation_id = :key "  # noqa: S608 - constants
    f"AND id NOT IN (SELECT rowid FROM {INDEX_NAME} WHERE {INDEX_NAME} MATCH 'scope : c' || :key)"
)
INDEX_ALL: Final = sa.text(f"INSERT INTO {INDEX_NAME} (rowid, words, scope) SELECT {_INDEXED}")
# What the index knows of all its documents: how many there are, first
TOTALS: Final = Statement(sa.text(f"SELECT block FROM {INDEX_NAME}_data WHERE id = 1"))  # noqa: S608 - a constant
# For its own score, FTS5 looks at all documents with the words, and those of the tenant: that is as fast as to count
# words of a match in Python where there are so many documents for each match
PER_MATCH: Final = 16


class _FtsIndex(search.SearchIndex):
    """A document is indexed under words of its tenant, conversation, type and user, too."""

    def words(self, text: str, vocabulary: searching.Vocabulary | None = None) -> str | None:
        return searching.respelled(text, vocabulary)

    def scope(self, tenant: int, user: str | None) -> str | None:
        return None if user is None else user_token(tenant, user)

    def add(self, connection: Connection, tenant: int, ids: Sequence[int]) -> None:
        connection.execute(INDEX_DOCUMENTS, {"tenant": tenant, "ids": ids})

    def remove(self, connection: Connection, tenant: int, ids: Sequence[int]) -> None:
        connection.execute(UNINDEX_DOCUMENTS, {"tenant": tenant, "ids": ids})

    def remove_where(
        self, connection: Connection, where: Sequence[ColumnElement[bool]], parameters: Mapping[str, Any]
    ) -> None:
        words = func.coalesce(DOCUMENTS.words, DOCUMENTS.text)
        scope: ColumnElement[str] = sa.literal_column(_SCOPE)
        names = [INDEX_NAME, "rowid", "words", "scope"]
        removed = select(sa.literal_column("'delete'"), DOCUMENTS.id, words, scope).where(*where)
        index = sa.table(INDEX_NAME, *map(sa.column, names))
        connection.execute(sa.insert(index).from_select(names, removed), parameters)

    def merge(self, connection: Connection) -> None:
        connection.execute(MERGE_INDEX)
        lower_levels(connection.connection.driver_connection)

    def merge_all(self, connection: Connection) -> bool:
        driver: Any = connection.connection.driver_connection
        try:
            merge_index(driver)
        except sqlite3.DatabaseError as error:
            if error.sqlite_errorcode & 0xFF not in _BROKEN:
                raise
            driver.rollback()
            search.log_broken_index(error)
            return False
        return True

    def make(self, connection: Connection) -> None:
        if connection.execute(HAS_INDEX).first() is not None:
            return
        try:
            connection.execute(CREATE_INDEX)
        except OperationalError as error:
            if "no such module" not in search.reason_of(error):
                raise
            raise SchemaError("This Python's SQLite is built without FTS5, which the search needs.") from error
        connection.execute(INDEX_ALL)

    def remake(self, connection: Connection) -> None:
        try:
            connection.execute(DROP_INDEX)
        except SQLAlchemyError:
            for statement in FORGET_INDEX:
                connection.execute(statement)
        self.make(connection)

    def count_missing(self, connection: Connection, tenant: int, key: int) -> int:
        """Of one that does not exist, nothing is missing: it is made of all documents."""
        if connection.execute(HAS_INDEX).first() is None:
            return 0
        count: int = connection.execute(NOT_INDEXED, {"tenant": tenant, "key": key}).scalar_one()
        return count

    def prepare(self, connection: Connection) -> None:
        if not connection.info.get(SCORE):
            driver: Any = connection.connection.dbapi_connection
            driver.create_function(SCORE, 3, searching.score_of, deterministic=True)
            connection.info[SCORE] = True

    def parameters(
        self, tenant: int, query: SearchQuery, conversations: Sequence[int], *, is_near: bool
    ) -> dict[str, Any]:
        del is_near
        return {"match": _fts5(tenant, query, conversations), "wanted": searching.question_of(query.terms)}

    def matching(self, shape: Shape) -> Matching:
        """The index comes first, newest documents first, so that nothing is sorted: a plus keeps others from it."""
        index, is_match = _matched(shape)
        source = index.join(search_documents, DOCUMENTS.id == sa.literal_column(f"+{INDEX_NAME}.rowid", sa.BigInteger))
        words = func.coalesce(DOCUMENTS.words, DOCUMENTS.text)
        size = func.length(sa.cast(words, sa.LargeBinary))
        score: ColumnElement[Any] = sa.Function(SCORE, words, bindparam("wanted"), size, type_=sa.Double)
        if shape.is_counted:
            divisor = searching.per_length(size) / _count(index, is_match)
            score = func.coalesce((1 + searching.REPEATS) / (1 + divisor), score)
        return source, [is_match], index.c.rowid, score

    def few_documents(
        self, connection: Connection, query: SearchQuery, shape: Shape, parameters: Mapping[str, Any]
    ) -> search.FewDocuments | None:
        wanted, _ = parted(query.terms)
        if len(wanted) > 1 or searching.overlaps_itself(wanted[0]):
            return None
        most = parameters["candidates"]
        totals = b"".join(block or b"" for (block,) in TOTALS.fetch_all(connection, {}))
        documents, _ = _number_at(totals + b"\0", 0)  # nothing: there has never been a document, or it is damaged
        needed, is_whole = documents // PER_MATCH + 1, documents <= most
        if needed > most:
            return None
        counted = {**parameters, "candidates": needed if is_whole else most}
        ((count, newest),) = _newest_matches(shape).fetch_all(connection, counted)
        return search.FewDocuments(newest, is_whole or count < most) if count >= needed else None


INDEX: Final = _FtsIndex()


def _matched(shape: Shape) -> tuple[sa.TableClause, ColumnElement[bool]]:
    """The index, and the condition of what matches."""
    name: ColumnElement[Any] = sa.literal_column(INDEX_NAME)
    match: ColumnElement[Any] = bindparam("match", type_=sa.Text)
    if "conversation" in shape.filters:
        this = select(sa.cast(TALKS.id, sa.Text)).where(*of_tenant(conversations), OF_TALKS["conversation"])
        match = match.concat(" AND {scope} : c").concat(func.coalesce(this.correlate(None).scalar_subquery(), "0"))
    return sa.table(INDEX_NAME, sa.column("rowid", sa.BigInteger)), name.op("MATCH", is_comparison=True)(match)


@lru_cache(maxsize=256)
def _newest_matches(shape: Shape) -> Statement:
    """How many documents match, up to `candidates`, whatever their conversations are, and the key of the newest."""
    index, is_match = _matched(shape)
    key, top = index.c.rowid, bindparam("top", type_=sa.BigInteger)
    newest = select(key).where(is_match, key <= top).order_by(key.desc()).limit(bindparam("candidates"))
    return Statement(select(func.count(), func.max(newest.subquery("newest").c.rowid)))


def _count(index: sa.TableClause, is_match: ColumnElement[bool]) -> ColumnElement[Any]:
    """How often the only term occurs in a document. FTS5 says it in C, but only as a part of its own score.

    For a count, that is rarity * count / (count + k), where counts are weighted by column. A large weight leaves the
    rarity, and the words of the scope, of which each document has one, say what k is. Where that is 0, as all counts
    have the same score, this is NULL.
    """
    scale = select(
        (_bm25("0, 1e30") / _bm25("0, 1") - 1).label("once"), _bm25("1e30, 0").label("rarity")
    ).select_from(index).where(is_match).limit(1).cte("scale")  # fmt: skip
    once, rarity = (select(column).scalar_subquery() for column in scale.c)
    return func.round(once / (rarity / _bm25("1, 0") - 1))


def _bm25(weights: str) -> ColumnElement[Any]:
    return sa.literal_column(f"bm25({INDEX_NAME}, {weights})", sa.Double)


def user_token(tenant: int, user: str) -> str:
    """The word of a user in the scope of documents."""
    return "u" + blake2b(f"{tenant} {types.escaped(user)}".encode(), digest_size=8).hexdigest()


def type_token(type_: str) -> str | None:
    """The word of a type; messages, which nearly all are, have none."""
    return None if type_ == "message" else f"y{types.escaped(type_).encode().hex()}"


def _fts5(tenant: int, query: SearchQuery, conversations: Sequence[int]) -> str:
    """A query in the language of FTS5. It ends in what it is searched in, for a condition that comes behind it."""
    wanted, excluded = (
        [f'"{" ".join(term.words)}"' + (" *" if term.is_prefix else "") for term in some]
        for some in parted(query.terms)
    )
    words = f"({' AND '.join(wanted)})" + (f" NOT ({' OR '.join(excluded)})" if excluded else "")
    scope = [f"t{tenant}"]
    if query.user is not None:
        scope.append(user_token(tenant, query.user))
    if query.type is not None and (token := type_token(query.type)):
        scope.append(token)
    inside = " AND ".join(scope)
    if conversations:
        inside += f" AND ({' OR '.join(f'c{key}' for key in conversations)})"
    return f"{{words}} : ({words}) AND {{scope}} : ({inside})"


# ---------------------------------------------------------------------------------------------------------------------
# The levels of the index, of which most releases of FTS5 have no limit

MOST: Final = 128  # levels, from which on they become fewer
KEPT: Final = 64  # as many as newer releases of FTS5 have
_STRUCTURE: Final = 10  # the row that says which parts are on which level
_COOKIE: Final = 4  # bytes in front of all numbers
_NEWER: Final = b"\xff\x00\x00\x01"  # behind the cookie, where more is said of the parts
_EMPTY: Final = b"\x00\x00"  # a level on which nothing is, nor is merged
_SHIFT: Final = 7  # bits of a number in one byte


def lower_levels(driver: Any) -> None:
    """Leave out empty levels of the index, if there are many; in the transaction of the driver's connection.

    Call it directly after a merge of everything, when all lower ones are empty.
    """
    if fewer_levels(_read(driver)) is None:
        return
    driver.execute("SAVEPOINT threadkeep_levels")  # FTS5 writes what it has in memory, and forgets at a ROLLBACK
    driver.execute("ROLLBACK TO threadkeep_levels")
    driver.execute("RELEASE threadkeep_levels")
    if (structure := fewer_levels(_read(driver))) is not None:
        driver.execute(f"UPDATE {INDEX_NAME}_data SET block = ? WHERE id = ?", [structure, _STRUCTURE])  # noqa: S608 - a constant


def _read(driver: Any) -> bytes:
    found = driver.execute(f"SELECT block FROM {INDEX_NAME}_data WHERE id = ?", [_STRUCTURE]).fetchone()  # noqa: S608 - a constant
    return bytes(found[0]) if found is not None else b""


def fewer_levels(structure: bytes) -> bytes | None:
    """A structure record without lower levels; None if it has only so many, or something is on these."""
    cookie, rest = structure[:_COOKIE], structure[_COOKIE:]
    if not rest or rest.startswith(_NEWER):
        return None
    count, start = _number_at(rest, 0)
    _, behind_parts = _number_at(rest, start)
    _, body = _number_at(rest, behind_parts)
    surplus = (count - KEPT) * len(_EMPTY)
    if count <= MOST or rest[body : body + surplus].strip(b"\x00"):
        return None
    return cookie + bytes([KEPT]) + rest[start:body] + rest[body + surplus :]


def _number_at(data: bytes, index: int) -> tuple[int, int]:
    """The number that begins at an index, seven bits a byte, and where the next one begins."""
    number = 0
    while True:
        byte = data[index]
        number, index = number << _SHIFT | byte & 0x7F, index + 1
        if byte < 1 << _SHIFT:
            return number, index


def merge_index(driver: Any) -> None:
    """Merge all parts of the index into one, in many transactions."""
    for (name,) in driver.execute("SELECT name FROM sqlite_master WHERE name = ?", [INDEX_NAME]).fetchall():
        pages = -MERGED_PAGES  # less than 0: of all parts, then go on with these
        while True:
            before = driver.total_changes
            driver.execute(f"INSERT INTO {name}({name}, rank) VALUES ('merge', ?)", [pages])  # noqa: S608 - a table of the schema
            is_done = driver.total_changes - before < MERGED
            if pages < 0:
                lower_levels(driver)
            driver.commit()
            if is_done:
                break
            pages = MERGED_PAGES
