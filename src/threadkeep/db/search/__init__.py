"""Full-text search: each database has its own kind of index, and its own language for what is searched for.

Documents are rows of `search_documents`. Servers index a column of these; SQLite's index is a table of its own.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from importlib import import_module
from logging import getLogger
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection

from threadkeep.db.backends import NAMES, Connected
from threadkeep.domain import printing

if TYPE_CHECKING:
    from threadkeep.db.queries.search import Matching, SearchQuery, Shape
    from threadkeep.domain.searching import Vocabulary

LOG: Final = getLogger("threadkeep.search")
REBUILD_HINT: Final = "Rebuild it with store.reindex(rebuild=True) or `threadkeep reindex --rebuild`."


class FewDocuments(NamedTuple):
    """The key of the newest match, and whether all matches are candidates."""

    newest: int
    is_whole: bool


class SearchIndex:
    """The index of a kind of database; what is here is for an index that a server keeps of the table.

    Attributes:
        reads_near: whether the documents of a question that is limited to some conversations, if these are few, are
            read one by one, without the index.
        seeks_conversations: whether the conversations of documents are looked up one by one: to read all takes longer.
    """

    reads_near = seeks_conversations = False

    # What is indexed

    def words(self, text: str, vocabulary: Vocabulary | None = None) -> str | None:
        """The words of a text as the column `words` takes them; `vocabulary` is for many texts."""
        raise NotImplementedError

    def scope(self, tenant: int, user: str | None) -> str | None:
        """The word of a user in documents, where the index has one; elsewhere, a search starts at conversations."""
        del tenant, user
        return None

    def add(self, connection: Connection, tenant: int, ids: Sequence[int]) -> None:
        """Let documents be found."""

    def remove(self, connection: Connection, tenant: int, ids: Sequence[int]) -> None:
        """Let documents not be found any more, before their rows are changed or removed."""

    def remove_where(
        self, connection: Connection, where: Sequence[ColumnElement[bool]], parameters: Mapping[str, Any]
    ) -> None:
        """The same with documents that meet some conditions."""

    def merge(self, connection: Connection) -> None:
        """Let nothing be left in the index of documents that were removed."""

    def merge_all(self, connection: Connection) -> bool:
        """The same in many transactions; return False if the index is broken, and has to be rebuilt."""
        del connection
        return True

    def make(self, connection: Connection) -> None:
        """Make the index of all documents, unless it exists; SchemaError where it cannot be made."""

    def remake(self, connection: Connection) -> None:
        """Make the index, which all tenants share, again of the documents that there are."""

    def count_missing(self, connection: Connection, tenant: int, key: int) -> int:
        """How many documents of a conversation the index does not have."""
        del connection, tenant, key
        return 0

    def update_statistics(self, connection: Connection) -> None:
        """Let the server count what it plans searches by."""

    # What is searched for

    def prepare(self, connection: Connection) -> None:
        """Give a connection what its searches need."""

    def planned_for_values(self, connection: Connection) -> AbstractContextManager[None]:
        """Let the statements of this block be planned for their values."""
        del connection
        return nullcontext()

    def terms(self, query: SearchQuery) -> tuple[tuple[int, bool, bool], ...]:
        """What a statement depends on: of each term, how many words, whether it is a prefix, and whether excluded."""
        del query
        return ()

    def parameters(
        self, tenant: int, query: SearchQuery, conversations: Sequence[int], *, is_near: bool
    ) -> dict[str, Any]:
        """The parameters for what is searched for, in the language of the index."""
        raise NotImplementedError

    def matching(self, shape: Shape) -> Matching:
        """Which documents match."""
        raise NotImplementedError

    def few_documents(
        self, connection: Connection, query: SearchQuery, shape: Shape, parameters: Mapping[str, Any]
    ) -> FewDocuments | None:
        """Return what is known of the matches if the index counts words sooner than they are counted in the texts.

        Scores are the same. None: not so, because there are too many documents, or the query has too many terms.
        """
        del connection, query, shape, parameters
        return None

    def rank(self, value: Any) -> Any:
        """The score of a candidate, from the value that `matching` has of it."""
        return value


@cache
def index_named(name: str) -> SearchIndex:
    """The index of a backend, by its name."""
    found: SearchIndex = import_module(f"{__name__}.{name}").INDEX
    return found


def search_of(connected: Connected) -> SearchIndex:
    """The index of the database of a connection or an engine; its module is loaded when it is needed."""
    return index_named(NAMES[connected.dialect.name])


def reason_of(error: Exception) -> str:
    """Return the message of a driver, without the statement, its values, and passwords."""
    return str(printing.redact(str(getattr(error, "orig", None) or error)))


def log_broken_index(error: Exception) -> None:
    """Log why documents that were removed are still in the index, and what to do."""
    LOG.warning("The search index does not forget documents: %s. %s", reason_of(error), REBUILD_HINT)
