"""Finding items by their labels and ratings, in all conversations that a scope sees."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import itemgetter
from typing import Any

from sqlalchemy import Connection

from threadkeep.db.queries.annotations import annotated_items
from threadkeep.domain.ids import public_id_text
from threadkeep.domain.stored import Page, StoredItem
from threadkeep.errors import InvalidOption
from threadkeep.store.annotations import annotated, valid_rating
from threadkeep.store.item_reading import media_form, stored_items
from threadkeep.store.refs import ConversationRef, Scope
from threadkeep.store.transactions import Transactions
from threadkeep.store.validation import label_filter, optional_identifier, page_size, place_after, place_cursor


def list_annotated(
    transactions: Transactions, scope: Scope, wanted: Mapping[str, Any], media: object
) -> Page[StoredItem]:
    """A page of items; see `Store.list_items`, whose arguments `wanted` has by name."""
    labels, limit, form = label_filter(wanted["labels"]), page_size(wanted["limit"]), media_form(media)
    rating, owner = valid_rating(wanted["rating"]), optional_identifier("user_id", wanted["user_id"])
    after = place_cursor(wanted["after"])
    if not labels and rating is None:
        raise InvalidOption("It is not said which items are wanted.", hint="Pass labels= or rating=.")
    if scope.user is not None and owner not in {None, scope.user}:
        return Page([])
    parameters = scope.parameters(limit=limit + 1, rating=rating, owner=owner)
    if after is not None:
        parameters["after_key"], parameters["after_position"] = after
    for number, (name, value) in enumerate(sorted(labels.items())):
        parameters[f"key_{number}"], parameters[f"value_{number}"] = name, value

    def read(connection: Connection) -> Page[StoredItem]:
        statement = annotated_items(
            connection.dialect.name, labels=len(labels), rating=rating is not None, owner=owner is not None,
            scoped=scope.user is not None, after=after is not None,
        )  # fmt: skip
        rows = statement.fetch_all(connection, parameters)
        items = []
        for (key, public_id), some in groupby(rows, itemgetter(-2, -1)):
            ref = ConversationRef(scope, key, public_id_text(bytes(public_id)))
            items += stored_items(connection, ref, list(some), form)
        keys = [row[-2] for row in rows]
        page = annotated(connection, scope, keys[:limit], items[:limit])
        return Page(page, place_after(keys[limit - 1], page[-1].position) if len(rows) > limit else None)

    return transactions.read_any(read)
