"""How much is stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LargeConversation:
    """A conversation that takes much room.

    Attributes:
        id: its id.
        user_id: whose it is.
        title: for people.
        items: how many items it has, on all branches.
        item_bytes: bytes of their JSON text, media that are kept apart left out.
    """

    id: str
    user_id: str | None
    title: str | None
    items: int
    item_bytes: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """What a store holds, deleted conversations left out; sizes are bytes of content, without indexes.

    Attributes:
        active: conversations that the usual listings show.
        archived: conversations that were archived.
        branches: that were forked off.
        items: on all branches.
        item_bytes: their JSON text.
        responses: answers of providers.
        body_bytes: their raw bodies, compressed.
        media: pictures and files that are kept apart, once per content; None for a store of one user.
        media_bytes: their content; likewise.
        attempts: rows of the usage ledger, those of deleted conversations included.
        largest: the conversations with the most bytes of items, largest first.
    """

    active: int
    archived: int
    branches: int
    items: int
    item_bytes: int
    responses: int
    body_bytes: int
    media: int | None
    media_bytes: int | None
    attempts: int
    largest: Sequence[LargeConversation] = ()
