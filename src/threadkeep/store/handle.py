"""What the sync and the async conversation have in common: everything but waiting."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from functools import cached_property
from typing import Any, TypeVar

from threadkeep.domain.items import Item, call_output, item_from, items_from, message_of
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.options import json_output_text, settings_with, thinking
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.domain.stored import Branch, Page, StoredItem, StoredResponse
from threadkeep.domain.tools import Tool, tools_from, with_tools, without_tool
from threadkeep.domain.usage import UsageRow
from threadkeep.domain.wire import Rendered, get_format
from threadkeep.errors import HeadConflict, InvalidOption
from threadkeep.store.actions.branches import activate, fork_and_open, list_branches
from threadkeep.store.actions.changes import Change, change_and_open
from threadkeep.store.actions.detaching import detached
from threadkeep.store.actions.entries import Loaded, load
from threadkeep.store.actions.items import Appended, Window, append_items, item_id_of, stored_item, stored_items
from threadkeep.store.actions.opening import Opened, get
from threadkeep.store.actions.reading import body_of, list_responses
from threadkeep.store.actions.responses import Stored, record_attempt, store_answer
from threadkeep.store.actions.usage import Question, usage_of_conversation
from threadkeep.store.answers import Call, ParsedBody, answer_of, attempt_of, failure_of, parsed_body
from threadkeep.store.contents import Contents
from threadkeep.store.place import Place, once, optional_identifier
from threadkeep.store.plans import Plan, as_it_is
from threadkeep.store.requests import (
    ABOUT,
    How,
    View,
    append_of,
    checked_labels,
    checked_title,
    page_size,
    position_of_page,
    render_options,
)
from threadkeep.store.state import State

T = TypeVar("T")


class Handle:
    """A conversation, pinned to one of its branches. Not to be shared between threads or tasks.

    `replayed` is True when an earlier call with the same idempotency key had created it.
    """

    replayed: bool = False

    def __init__(self, found: Opened, contents: Contents) -> None:
        self._found = found
        self._contents = contents

    @cached_property
    def _place(self) -> Place:
        return self._found.place()

    @cached_property
    def _state(self) -> State:
        return State(self._found)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.id} branch {self.branch}>"

    @property
    def id(self) -> str:
        """The id to keep: ``conv_`` and 32 hexadecimal digits."""
        return self._place.public_id

    @property
    def branch(self) -> int:
        """The number of the branch this handle is on."""
        return self._place.branch

    @property
    def head(self) -> int:
        """The position of the last item on this branch that the handle knows of; -1 when there is none."""
        return self._state.head

    @property
    def external_id(self) -> str | None:
        """The application's own id."""
        found: str | None = self._state.facts.external_id
        return found

    @property
    def user_id(self) -> str | None:
        """Whose conversation it is."""
        found: str | None = self._state.facts.user_id
        return found

    @property
    def title(self) -> str | None:
        """A title for people."""
        found: str | None = self._state.facts.title
        return found

    @property
    def labels(self) -> dict[str, str]:
        """The application's own labels; never sent to a provider."""
        text = self._state.facts.labels
        return {} if text is None else loads(text)

    @property
    def status(self) -> str:
        """``active`` or ``archived``."""
        found: str = self._state.facts.status
        return found

    @property
    def created_at(self) -> datetime:
        """When it was created, aware, in UTC."""
        found: datetime = self._state.facts.created_at
        return found

    @property
    def last_activity_at(self) -> datetime:
        """When it was last appended to, as far as this handle has read, aware, in UTC."""
        found: datetime = self._state.facts.last_activity_at
        return found

    @property
    def settings(self) -> JsonObject:
        """A copy of the session options that are set."""
        return dict(self._state.settings)

    @property
    def model(self) -> str | None:
        """The model that requests name."""
        return self._state.settings.get("model")

    @property
    def instructions(self) -> str | None:
        """The instructions that lead every request."""
        return self._state.settings.get("instructions")

    @property
    def tools(self) -> list[JsonObject]:
        """A copy of the tool definitions, in order."""
        return list(self._state.tools)

    # Plans: what the faces run.

    def _adding(
        self, method: str, items: Sequence[Item], how: How, author_id: str | None = None
    ) -> Plan[list[StoredItem]]:
        append = append_of(method, items, how, author_id)

        def finish(done: Appended) -> list[StoredItem]:
            if not done.is_replayed and done.branch == self.branch:
                self._state.appended(append.drafts, done.first, done.revision)
            return [
                StoredItem(
                    id=item_id_of(self._place, done.first + offset),
                    position=done.first + offset,
                    branch=done.branch,
                    turn=None,
                    item=item,
                    replayed=done.is_replayed,
                    author_id=author_id,
                )
                for offset, item in enumerate(items)
            ]

        return self._writing(append_items, append, finish=finish, is_keyed=append.once is not None)

    def _saying(self, role: str, content: Any, how: How, author_id: str | None) -> Plan[StoredItem]:
        return _first(self._adding(role, [message_of(role, content)], how, author_id))

    def _adding_one(self, item: Any, how: How, author_id: str | None) -> Plan[StoredItem]:
        return _first(self._adding("add_item", [item_from(item)], how, author_id))

    def _adding_many(self, items: Iterable[Any], how: How, author_id: str | None) -> Plan[list[StoredItem]]:
        return self._adding("add_items", items_from(items), how, author_id)

    def _outputting(
        self, call_id: str | None, output: Any, result: Any, status: str | None, how: How
    ) -> Plan[StoredItem]:
        item = call_output(call_id, output, result, status)
        return _first(self._adding("add_function_call_output", [item], how))

    def _answering(self, body: Any, format: str, rendered: Rendered | None, how: How, call: Call) -> Plan[Response]:
        parsed = parsed_body(body, format, call.get("headers"))
        if parsed.response is None:
            return self._failing(parsed, format, how, call)
        response, answer = parsed.response, answer_of(parsed, format, self.head, rendered, how, call)

        def finish(done: Stored) -> Response:
            if done.head is not None:
                raise HeadConflict(-1 if answer.guard.expected_head is None else answer.guard.expected_head, done.head)
            if done.is_replayed:
                return response.model_copy(update={"replayed": True})
            if done.branch == self.branch:
                seen = answer.input_to
                self._state.appended(answer.drafts, done.first, done.revision, turn=done.first, seen=seen)
            return response

        return self._writing(store_answer, answer, finish=finish, is_keyed=answer.once is not None)

    def _failing(self, parsed: ParsedBody, format: str, how: How, call: Call) -> Plan[Response]:
        """An error envelope: its ledger row is written, then the error is raised."""
        attempt, key = failure_of(parsed, format, how, call)

        def finish(_: bool) -> Response:
            raise parsed.error if parsed.error is not None else AssertionError

        return self._writing(record_attempt, attempt, key, finish=finish, is_keyed=key is not None)

    def _attempting(
        self, format: str, error: Any, model: str | None, status: str, idempotency_key: str | None, call: Call
    ) -> Plan[bool]:
        attempt = attempt_of(format, call, error=error, model=model or self.model, status=status)
        content = {"format": format, "error": attempt.error, "model": attempt.model, "status": status}
        key = once(idempotency_key, "record_attempt", content)
        return self._writing(record_attempt, attempt, key, is_keyed=key is not None)

    def _loading(self, finish: Callable[[Loaded], T]) -> Plan[T]:
        return Plan(load, (self._place, self._contents, self._state.known), finish)

    def _rendering(self, format: str, view: View) -> Plan[Rendered]:
        wire, options = get_format(format), render_options(view)
        return self._loading(lambda loaded: wire.render(self._state.absorb(loaded), options))

    def _detaching(self) -> Plan[Session]:
        return self._reading(detached, self._contents)

    def _listing_items(
        self, before: int | str | None, after: int | str | None, limit: int, order: str
    ) -> Plan[Page[StoredItem]]:
        if order not in {"asc", "desc"}:
            raise InvalidOption(f'order is "asc" or "desc", not {order!r}.')
        is_descending = order == "desc"
        bounds = {"after": position_of_page(after), "before": position_of_page(before)}
        if is_descending and after is not None:  # the page behind a descending one lies before it
            bounds = {"after": None, "before": position_of_page(after)}
        window = Window(**bounds, limit=page_size(limit), is_descending=is_descending)

        def finish(found: list[StoredItem]) -> Page[StoredItem]:
            return Page(found, str(found[-1].position) if len(found) == window.limit else None)

        return self._reading(stored_items, window, finish=finish)

    def _transcribing(self) -> Plan[list[StoredItem]]:
        return self._reading(stored_items, Window(limit=None))

    def _getting_item(self, position: int) -> Plan[StoredItem]:
        return self._reading(stored_item, position)

    def _listing_responses(self, after: int | str | None, limit: int) -> Plan[Page[StoredResponse]]:
        start, size = position_of_page(after), page_size(limit)

        def finish(found: list[StoredResponse]) -> Page[StoredResponse]:
            return Page(found, str(found[-1].number) if len(found) == size else None)

        return self._reading(list_responses, -1 if start is None else start, size, finish=finish)

    def _reading_body(self, number: int) -> Plan[bytes]:
        return self._reading(body_of, number)

    def _listing_branches(self, after: int | str | None, limit: int) -> Plan[Page[Branch]]:
        start, size = position_of_page(after), page_size(limit)

        def finish(found: list[Branch]) -> Page[Branch]:
            return Page(found, str(found[-1].number) if len(found) == size else None)

        return self._reading(list_branches, -1 if start is None else start, size, finish=finish)

    def _opening_branch(self, number: int) -> Plan[Opened]:
        return Plan(get, (self._place.scope, "id", self._place.key, self._contents, number))

    def _forking(self, at: int | None, idempotency_key: str | None) -> Plan[Opened]:
        key = once(idempotency_key, "fork", [self.branch, at])
        return self._writing(fork_and_open, at, key, self._contents, is_keyed=key is not None)

    def _activating(self, number: int) -> Plan[None]:
        return self._writing(activate, number, self._contents, finish=self._take)

    def _updating(self, options: Mapping[str, Any], idempotency_key: str | None) -> Plan[None]:
        about = {name: value for name, value in options.items() if name in ABOUT}
        others = {name: value for name, value in options.items() if name not in ABOUT}
        settings_with({}, others)  # what cannot be used is refused before anything is begun
        values: dict[str, Any] = {
            name: optional_identifier(name, about[name]) for name in ("user_id", "external_id") if name in about
        }
        if "title" in about:
            values["title"] = checked_title(about["title"])
        key = once(idempotency_key, "update", dict(options))
        return self._changing(
            Change(
                values=values,
                settings=(lambda settings: settings_with(settings, others)) if others else None,
                labels=checked_labels(about["labels"]) if "labels" in about else None,
                once=key,
            )
        )

    def _setting(self, method: str, change: Callable[[JsonObject], JsonObject]) -> Plan[None]:
        return self._changing(Change(settings=change, method=method))

    def _asking_json(self, schema: Mapping[str, Any], options: Mapping[str, Any]) -> Plan[None]:
        def change(settings: JsonObject) -> JsonObject:
            return settings_with(settings, {"text": json_output_text(settings.get("text"), schema, **options)})

        return self._setting("json_output", change)

    def _thinking(self, enabled: bool | None, options: Mapping[str, Any]) -> Plan[None]:
        found = thinking(enabled, **options)
        return self._setting("think", lambda settings: settings_with(settings, {"reasoning": found}))

    def _registering(self, tools: Sequence[Tool], idempotency_key: str | None = None) -> Plan[list[Tool]]:
        key = once(idempotency_key, "register_tools", [tool.to_dict() for tool in tools])
        change = Change(tools=lambda found: with_tools(found, tools), method="register_tools", once=key)
        return _giving(self._changing(change), lambda: list(tools))

    def _removing_tool(self, name: str) -> Plan[Tool | None]:
        removed: list[Tool | None] = [None]

        def remove(tools: Sequence[JsonObject]) -> Sequence[JsonObject]:
            left, removed[0] = without_tool(tools, name)
            return left

        return _giving(self._changing(Change(tools=remove, method="remove_tool")), lambda: removed[0])

    def _clearing_tools(self) -> Plan[list[Tool]]:
        removed: list[Tool] = []

        def clear(tools: Sequence[JsonObject]) -> Sequence[JsonObject]:
            removed[:] = tools_from(tools)
            return []

        return _giving(self._changing(Change(tools=clear, method="clear_tools")), lambda: removed)

    def _archiving(self, status: str) -> Plan[None]:
        return self._changing(Change(values={"status": status}, method="archive"))

    def _reporting(self, by: Sequence[str]) -> Plan[Any]:
        question = Question(by=tuple(by), conversation=self._place.key)
        finish: Callable[[list[UsageRow]], Any] = (lambda rows: rows) if by else (lambda rows: rows[0])
        return Plan(usage_of_conversation, (self._place, question), finish)

    def _changing(self, change: Change) -> Plan[None]:
        return self._writing(
            change_and_open, change, self._contents, finish=self._take, is_keyed=change.once is not None
        )

    def _take(self, found: Opened) -> None:
        self._state.changed(found)

    def _reading(self, action: Callable[..., Any], *arguments: Any, finish: Callable[[Any], T] = as_it_is) -> Plan[T]:
        return Plan(action, (self._place, *arguments), finish)

    def _writing(
        self, action: Callable[..., Any], *arguments: Any, finish: Callable[[Any], T] = as_it_is, is_keyed: bool = False
    ) -> Plan[T]:
        return Plan(action, (self._place, *arguments), finish, is_write=True, is_keyed=is_keyed)


def _first(plan: Plan[list[StoredItem]]) -> Plan[StoredItem]:
    return replace(plan, finish=lambda result: plan.finish(result)[0])  # type: ignore[arg-type, return-value]


def _giving(plan: Plan[None], result: Callable[[], T]) -> Plan[T]:
    def finish(found: Any) -> T:
        plan.finish(found)
        return result()

    return replace(plan, finish=finish)  # type: ignore[arg-type, return-value]
