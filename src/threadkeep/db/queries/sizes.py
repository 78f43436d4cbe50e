"""Statements on how much a conversation holds."""

from __future__ import annotations

from functools import cache, lru_cache

from sqlalchemy import ColumnElement, func, select

from threadkeep.db.driver import Statement
from threadkeep.db.queries.conversations import of_conversation
from threadkeep.db.queries.items import in_ranges
from threadkeep.db.tables import blobs, item_blobs, items


@cache
def sizes_of(dialect: str) -> Statement:
    """The bytes of all items of a conversation, and of their media, each as often as it is in an item."""
    return _sizes(dialect, [items.c.branch >= 0])


@lru_cache(maxsize=256)
def sizes_in(dialect: str, ranges: int) -> Statement:
    """The same for some ranges. Parameters as of `in_ranges`."""
    return _sizes(dialect, [in_ranges(ranges)])


def _sizes(dialect: str, which: list[ColumnElement[bool]]) -> Statement:
    size = func.length if dialect == "sqlite" else func.octet_length  # the only one that each of them has
    texts = [func.coalesce(func.sum(size(column)), 0) for column in (items.c.payload, items.c.rest)]
    is_item = (items.c.tenant_id == item_blobs.c.tenant_id) & (items.c.position == item_blobs.c.position)
    is_item &= items.c.conversation_id == item_blobs.c.conversation_id
    is_blob = (blobs.c.tenant_id == item_blobs.c.tenant_id) & (blobs.c.hash == item_blobs.c.hash)
    media = select(func.coalesce(func.sum(blobs.c.size), 0)).select_from(
        item_blobs.join(items, is_item).join(blobs, is_blob)
    )
    return Statement(
        select(
            select(texts[0] + texts[1]).where(*of_conversation(items), *which).scalar_subquery().label("texts"),
            media.where(*of_conversation(item_blobs), *which).scalar_subquery().label("media"),
        )
    )
