"""Labels and feedback of items: writing them, and reading them with the items."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any, Final

from sqlalchemy import Connection, insert

from threadkeep.db import backends, models
from threadkeep.db.queries.annotations import annotation_removal, feedback_at, feedback_of, labels_at
from threadkeep.db.queries.items import place_at
from threadkeep.domain.jsontext import JsonObject, mismatch
from threadkeep.domain.stored import Feedback, StoredItem
from threadkeep.errors import InvalidOption, TooLarge
from threadkeep.store.changes.feed import record_change
from threadkeep.store.work import erasures, idempotency, refs, states, validation
from threadkeep.store.work.handle import Handle

MAX_COMMENT: Final = 16_384  # characters
NOBODY: Final = ""  # in the column of whoever gave feedback

# Writes the annotation of the item at a position; what it returns is kept under the idempotency key
Write = Callable[[Connection, int, datetime], JsonObject]


# Writing


def label_item(handle: Handle, position: int | str, labels: Mapping[str, str] | None, key: str | None) -> None:
    """Replace the labels of an item; see `Conversation.label_item`."""
    ref, texts = handle.ref, validation.label_texts(labels)

    def write(connection: Connection, place: int, now: datetime) -> JsonObject:
        del now
        connection.execute(annotation_removal(models.item_labels), ref.parameters(position=place))
        if texts:
            rows = [ref.columns(position=place, key=name, value=value) for name, value in texts.items()]
            connection.execute(insert(models.item_labels), rows)
        return {}

    _write(handle, "label_item", position, texts, key, write)


def set_feedback(
    handle: Handle, position: int | str, rating: int | None, comment: str | None, user_id: str | None, key: str | None
) -> Feedback | None:
    """Store feedback on an item, or remove it; see `Conversation.set_feedback`."""
    # Who gives feedback: in a store for one user, that user
    scope = handle.ref.scope
    user = validation.optional_identifier("user_id", user_id)
    if scope.user is not None and user not in {None, scope.user}:
        raise validation.other_user(scope.user, user)
    ref, giver = handle.ref, scope.user or user or NOBODY
    number, text = valid_rating(rating), None if comment is None else validation.plain_text("comment", comment)
    if text is not None and len(text) > MAX_COMMENT:
        raise TooLarge(f"The comment has {len(text):,} characters; at most {MAX_COMMENT:,} can be stored.")

    def write(connection: Connection, place: int, now: datetime) -> JsonObject:
        if number is None and text is None:
            removal = annotation_removal(models.item_feedback, given_by=True)
            connection.execute(removal, ref.parameters(position=place, giver=giver))
        else:
            row = ref.columns(position=place, user_id=giver, rating=number, comment=text, updated_at=now)
            connection.execute(
                backends.backend_of(connection).insert_or_replace(
                    models.item_feedback, "rating", "comment", "updated_at"
                ),
                row,
            )
            erasures.check_users(connection, scope, [giver] if scope.user is None else ())
        return {"position": place, "at": now.isoformat()}

    outcome = _write(handle, "set_feedback", position, [number, text, giver], key, write)
    if number is None and text is None:
        return None
    return Feedback(outcome["position"], giver or None, number, text, datetime.fromisoformat(outcome["at"]))


def _write(handle: Handle, method: str, position: object, content: Any, key: str | None, write: Write) -> JsonObject:
    """Write an annotation of an item of the branch, once under a key; returns the outcome."""
    ref = handle.ref
    wanted = validation.item_argument("position", position)
    once = idempotency.IdempotencyKey.of(key, method, [ref.branch, wanted, content])

    def run(connection: Connection) -> JsonObject:
        now = datetime.now(UTC)
        states.lock_conversation(connection, ref)
        idempotency.idempotent(connection, ref, once, lambda outcome: outcome)
        outcome = write(connection, find_place(connection, ref, refs.lock_lineage(connection, ref), wanted), now)
        record_change(connection, ref)
        idempotency.keep_outcome(connection, ref.scope.tenant, ref.key, once, now, kind=method, **outcome)
        return outcome

    return handle.transactions.write(run, is_repeatable=once is not None)


def find_place(connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, wanted: int | str) -> int:
    """The position of an item of the branch, given by its position or id; NotFound."""
    if isinstance(wanted, str):
        return refs.position_of_id(connection, ref, lineage, wanted)
    found = connection.execute(place_at(), ref.parameters(position=wanted)).one_or_none()
    if found is None or not lineage.includes(ref.branch, wanted, found.branch):
        raise refs.position_not_found(ref, wanted, lineage.head)
    return wanted


def valid_rating(rating: object) -> int | None:
    """A whole number that fits its column; None stays None."""
    if rating is None or (type(rating) is int and abs(rating) <= validation.MAX_NUMBER):
        return rating
    raise mismatch(InvalidOption, f"a whole number, at most {validation.MAX_NUMBER:,}", rating, "rating")


# Reading


def list_feedback(handle: Handle, position: int | str | None) -> list[Feedback]:
    """The feedback on an item, or on all items of the branch; see `Conversation.feedback`."""
    ref, wanted = handle.ref, None if position is None else validation.item_argument("position", position)

    def read(connection: Connection) -> list[Feedback]:
        lineage = refs.get_lineage(connection, ref, refs.get_row(connection, ref))
        if wanted is not None:
            place = find_place(connection, ref, lineage, wanted)
            return _read_feedback(connection, ref.scope, [ref.key], [place]).get((ref.key, place), [])
        statement = feedback_of(scoped=ref.scope.user is not None)
        rows = connection.execute(statement, {**ref.scope.parameters(), **ref.parameters()})
        return [_feedback(*rest) for branch, *rest in rows if lineage.includes(ref.branch, rest[0], branch)]

    return handle.transactions.read_any(read)


def annotated(
    connection: Connection, scope: refs.Scope, keys: Sequence[int], items: Sequence[StoredItem]
) -> list[StoredItem]:
    """Stored items with their labels and feedback; `keys` are their conversations' keys, one for each item."""
    if not items:
        return []
    positions = [item.position for item in items]
    parameters = scope.parameters(keys=sorted(set(keys)), positions=sorted(set(positions)))
    labels: dict[tuple[int, int], dict[str, str]] = {}
    for key, position, name, value in connection.execute(labels_at(), parameters):
        labels.setdefault((key, position), {})[name] = value
    feedback = _read_feedback(connection, scope, parameters["keys"], parameters["positions"])
    places = zip(keys, positions, strict=True)
    return [
        replace(item, labels=labels.get(place, {}), feedback=tuple(feedback.get(place, ())))
        for item, place in zip(items, places, strict=True)
    ]


def _read_feedback(
    connection: Connection, scope: refs.Scope, keys: Sequence[int], positions: Sequence[int]
) -> dict[tuple[int, int], list[Feedback]]:
    """Feedback by conversation and position; a store for one user sees what that user gave."""
    found: dict[tuple[int, int], list[Feedback]] = {}
    parameters = scope.parameters(keys=keys, positions=positions)
    for key, *values in connection.execute(feedback_at(scoped=scope.user is not None), parameters):
        found.setdefault((key, values[0]), []).append(_feedback(*values))
    return found


def _feedback(position: int, giver: str, rating: int | None, comment: str | None, updated_at: datetime) -> Feedback:
    return Feedback(position, giver or None, rating, comment, updated_at)
