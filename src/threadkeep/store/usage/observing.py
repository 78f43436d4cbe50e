"""Observers: functions called for each row that a store writes into its ledger; loaded where there are any."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from threadkeep.store.aio import AsyncStore
    from threadkeep.store.store import Store
    from threadkeep.store.usage.ledger import Attempt
    from threadkeep.store.work.handle import Handle

LOG = logging.getLogger("threadkeep")


@dataclass(frozen=True, slots=True)
class ObservedCall:
    """A call to a provider that was written into the ledger just now.

    Attributes:
        conversation_id: the id of its conversation.
        attempt: its row: format, provider, model, status, times, figures, cost, error.
        request_model: the model of the conversation, which was asked as far as is known.
        response_id: the provider's id of the response; None if it has none, or there is no response.
        finish_reason: why the response ended, in the provider's word.
        is_stream: whether the response came as a stream.
    """

    conversation_id: str
    attempt: Attempt
    request_model: str | None
    response_id: str | None = None
    finish_reason: str | None = None
    is_stream: bool = False


Observer: TypeAlias = Callable[[ObservedCall], None]


def add_observer(store: Store | AsyncStore, observer: Observer) -> Callable[[], None]:
    """Call a function for each call, in this store and stores derived from it; return a function that ends that.

    It is called after the transaction, or the unit of work, in the thread or greenlet that stores the call; in the
    application's own transaction (`within`), before that ends. It should be fast; what it raises is logged.
    """
    sync: Any = getattr(store, "sync", store)
    observers: list[Observer] = sync.handle.resources.observers
    observers.append(observer)

    def end() -> None:
        if observer in observers:
            observers.remove(observer)

    return end


def tell(
    handle: Handle, attempt: Attempt, columns: Mapping[str, Any] | None = None, *, is_stream: bool = False
) -> None:
    """Tell the observers of a call; `columns` are its response's, if there is one."""
    columns = columns or {}
    call = ObservedCall(
        handle.ref.public_id,
        attempt,
        handle.cache.conversation.settings.get("model"),
        columns.get("provider_response_id"),
        columns.get("finish_reason"),
        is_stream,
    )

    if handle.transactions.sees_commit:
        handle.transactions.after_commit(lambda _: announce(call, handle.resources.observers))
    else:
        announce(call, handle.resources.observers)


def announce(call: ObservedCall, observers: Sequence[Observer]) -> None:
    """Call the observers with a call that is stored; what they raise is logged."""
    for observer in list(observers):
        try:
            observer(call)
        except Exception:  # the call is stored, whatever becomes of the news
            LOG.exception("An observer of calls has failed.")
