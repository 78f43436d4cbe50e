"""Ids of items, as they stand in the payloads: a vendor whose own have a form takes no others."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from operator import methodcaller
from typing import Final

from threadkeep.formats.canonical.packed import Glance

NO_FORM: Final[Mapping[str, str]] = {}  # ids of items that are of any form
_ID: Final = b'{"id":"'  # how an item with an id begins, see wire_item
has_id: Final = methodcaller("startswith", _ID)


def ids_of(payloads: Iterable[bytes]) -> set[bytes]:
    """The ids of items that have one, each as it stands in the payload up to the first quote in it."""
    start = len(_ID)
    return {payload[: payload.find(b'"', start)] for payload in payloads}


def has_other_id(payload: bytes | None, kind: str, own_ids: Mapping[str, str]) -> bool:
    """Whether the id of an item is not of the form that the vendor's own have."""
    form = own_ids.get(kind)
    return form is not None and payload is not None and has_id(payload) and not payload.startswith(_ID + form.encode())


def have_other_ids(texts: Sequence[bytes], others: Iterable[Glance], own_ids: Mapping[str, str]) -> bool:
    """The same of items of which all but `others` are messages."""
    kinds = {index: kind for index, kind, _, _ in others}
    return any(has_other_id(text, kinds.get(index, "message"), own_ids) for index, text in enumerate(texts))
