"""Plans of a conversation that read: requests, items, responses, branches, usage."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from threadkeep.domain.session import Session
from threadkeep.domain.stored import Branch, Page, StoredItem, StoredResponse
from threadkeep.domain.usage import UsageRow
from threadkeep.errors import InvalidOption
from threadkeep.store.actions.branches import list_branches
from threadkeep.store.actions.detaching import detached, options_of
from threadkeep.store.actions.items import Window, stored_item, stored_items
from threadkeep.store.actions.opening import Opened, get
from threadkeep.store.actions.reading import body_of, list_responses
from threadkeep.store.actions.usage import Question, usage_of_conversation
from threadkeep.store.handle import Handle
from threadkeep.store.place import MAX_POSITION, whole
from threadkeep.store.plans import Plan
from threadkeep.store.requests import columns_of, page_size, position_of_page

T = TypeVar("T")


class Reads(Handle):
    """Reading."""

    def _detaching(self) -> Plan[Session]:
        return self._reading(detached, self._contents)

    def _cloning_config(self) -> Plan[Session]:
        return self._reading(options_of, self._contents)

    def _listing_items(
        self, before: int | str | None, after: int | str | None, limit: int, order: str
    ) -> Plan[Page[StoredItem]]:
        if order not in {"asc", "desc"}:
            raise InvalidOption(f'order is "asc" or "desc", not {order!r}.')
        is_descending = order == "desc"
        bounds = {"after": position_of_page(after), "before": position_of_page(before, "before")}
        if is_descending and after is not None:  # the page behind a descending one lies before it
            bounds = {"after": None, "before": position_of_page(after)}
        size = page_size(limit)
        window = Window(**bounds, limit=size + 1, is_descending=is_descending)

        def finish(found: list[StoredItem]) -> Page[StoredItem]:
            return Page.of(found, size, lambda item: str(item.position))

        return self._reading(stored_items, window, finish=finish)

    def _transcribing(self) -> Plan[list[StoredItem]]:
        return self._reading(stored_items, Window(limit=None))

    def _getting_item(self, position: int) -> Plan[StoredItem]:
        return self._reading(stored_item, whole("position", position, MAX_POSITION))

    def _listing_responses(self, after: int | str | None, limit: int) -> Plan[Page[StoredResponse]]:
        start, size = position_of_page(after), page_size(limit)

        def finish(found: list[StoredResponse]) -> Page[StoredResponse]:
            return Page.of(found, size, lambda response: str(response.number))

        return self._reading(list_responses, -1 if start is None else whole("after", start), size + 1, finish=finish)

    def _reading_body(self, number: int) -> Plan[bytes]:
        return self._reading(body_of, whole("number", number))

    def _listing_branches(self, after: int | str | None, limit: int) -> Plan[Page[Branch]]:
        start, size = position_of_page(after), page_size(limit)

        def finish(found: list[Branch]) -> Page[Branch]:
            return Page.of(found, size, lambda branch: str(branch.number))

        return self._reading(list_branches, -1 if start is None else whole("after", start), size + 1, finish=finish)

    def _opening_branch(self, number: int) -> Plan[Opened]:
        branch = whole("The number of a branch", number)
        return Plan(get, (self._place.scope, "id", self._place.key, self._contents, branch))

    def _reporting(self, by: Sequence[str]) -> Plan[UsageRow | list[UsageRow]]:
        question = Question(by=columns_of(by), conversation=self._place.key)
        finish: Callable[[list[UsageRow]], UsageRow | list[UsageRow]] = (
            (lambda rows: rows) if by else (lambda rows: rows[0])
        )
        return Plan(usage_of_conversation, (self._place, question), finish)
