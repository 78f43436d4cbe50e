"""Whether SQLite's index of the search has the documents of a conversation: it is a table of its own.

On other databases the index belongs to the table of documents, and is kept by the database.
"""

from __future__ import annotations

from sqlalchemy.exc import DatabaseError

from threadkeep.db import tables
from threadkeep.db.queries import search as queries
from threadkeep.store.checking.conversations import ConversationCheck
from threadkeep.store.search.index import REBUILD_HINT, reason_of


def check_index(check: ConversationCheck) -> None:
    """Check that a search finds the documents of a conversation.

    Where it does not, only the whole index can be made again: it may refuse to take them.
    """
    connection, table = check.connection, tables.search_documents
    if connection.dialect.name != "sqlite" or connection.execute(queries.HAS_INDEX).first() is None:
        return  # an index that does not exist is made of all documents
    place = {"tenant": check.findings.tenant, "key": check.row["id"]}
    try:
        missing = connection.execute(queries.NOT_INDEXED, place).scalar_one()
    except DatabaseError as error:
        check.findings.add("search", table, check.key, f"the index cannot be read: {reason_of(error)}", REBUILD_HINT)
        return
    if missing:
        problem = f"{missing} of its documents are not in the index"
        check.findings.add("search", table, check.key, problem, REBUILD_HINT)
