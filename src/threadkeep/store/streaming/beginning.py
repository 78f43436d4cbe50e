"""Beginning a streamed response together with what comes before it: all of it is stored, or nothing."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from sqlalchemy import Connection

from threadkeep.errors import Conflict, NotFound
from threadkeep.store.finding import reopen_conversation
from threadkeep.store.handle import Handle
from threadkeep.store.states import lock_conversation
from threadkeep.store.streaming.writer import StreamWriter
from threadkeep.store.transactions import HostTransactions, Transactions


def started_at_once(
    transactions: Transactions, make: Callable[[Connection, HostTransactions], StreamWriter]
) -> StreamWriter:
    """Return a writer that was made, and has started, in one transaction.

    `make` is called again when the transaction has to be repeated. If the answer to a COMMIT was lost, the response may
    be there already: then it is gone on with.
    """
    last: StreamWriter | None = None

    def work(connection: Connection) -> StreamWriter:
        nonlocal last
        if last is not None and last.has_started(connection):
            return last
        last = make(connection, transactions.within(connection))
        last.start()
        return last

    writer = transactions.write(work, is_repeatable=True)
    writer.go_on(transactions)
    return writer


def locked(handle: Handle, connection: Connection, transactions: HostTransactions) -> Handle:
    """Return a handle for a conversation as it is now, inside a transaction whose end its other writers wait for.

    Raises:
        NotFound: the conversation, or the branch, does not exist any more.
    """
    ref = handle.ref
    lock_conversation(connection, ref)
    conversation = reopen_conversation(connection, ref, handle.resources.configs, ref.branch)
    return Handle(handle.resources, transactions, conversation)


def undone(writer: StreamWriter, undo: Callable[[Handle], None]) -> Callable[[Connection], None]:
    """Return what takes back, inside a transaction, what was stored before a response; others may have been faster."""

    def work(connection: Connection) -> None:
        handle = writer.handle
        with suppress(NotFound, Conflict):
            undo(locked(handle, connection, handle.transactions.within(connection)))

    return work
