"""Plans of a conversation that change its options, tools or status."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.options import json_output_text, settings_with, thinking
from threadkeep.domain.tools import Tool, tools_from, with_tools, without_tool
from threadkeep.errors import InvalidOption
from threadkeep.store.actions.branches import activate
from threadkeep.store.actions.changes import Change, Changed, change
from threadkeep.store.handle import Handle
from threadkeep.store.place import once, optional_identifier, whole
from threadkeep.store.plans import Plan
from threadkeep.store.requests import ABOUT, checked_labels, checked_title

T = TypeVar("T")


class Changes(Handle):
    """Changing."""

    def _updating(self, options: Mapping[str, Any], idempotency_key: str | None) -> Plan[None]:
        about = {name: value for name, value in options.items() if name in ABOUT}
        others = {name: value for name, value in options.items() if name not in ABOUT}
        settings_with({}, others, sorted(ABOUT))  # what cannot be used is refused before anything is begun
        values: dict[str, Any] = {
            name: optional_identifier(name, about[name]) for name in ("user_id", "external_id") if name in about
        }
        owner = self._place.scope.user
        if owner is not None and values.get("user_id", owner) != owner:
            raise InvalidOption(
                f"This store is for the user {owner!r}; it cannot give a conversation to somebody else."
            )
        if "title" in about:
            values["title"] = checked_title(about["title"])
        wanted = Change(
            values=values,
            settings=(lambda settings: settings_with(settings, others)) if others else None,
            labels=checked_labels(about["labels"]) if "labels" in about else None,
            once=once(idempotency_key, "update", dict(options)),
        )
        return self._changing(wanted, _nothing)

    def _asking_json(
        self, schema: Mapping[str, Any], options: Mapping[str, Any], idempotency_key: str | None
    ) -> Plan[None]:
        json_output_text(None, schema, **options)  # as above

        def merge(settings: JsonObject) -> JsonObject:
            return settings_with(settings, {"text": json_output_text(settings.get("text"), schema, **options)})

        key = once(idempotency_key, "json_output", [schema, options])
        return self._changing(Change(settings=merge, method="json_output", once=key), _nothing)

    def _thinking(self, enabled: bool | None, options: Mapping[str, Any], idempotency_key: str | None) -> Plan[None]:
        found = {"reasoning": thinking(enabled, **options)}
        key = once(idempotency_key, "think", found)
        wanted = Change(settings=lambda settings: settings_with(settings, found), method="think", once=key)
        return self._changing(wanted, _nothing)

    def _registering(self, method: str, tools: Sequence[Tool], idempotency_key: str | None) -> Plan[list[Tool]]:
        key = once(idempotency_key, method, [tool.to_dict() for tool in tools])
        wanted = Change(tools=lambda found: with_tools(found, tools), method=method, once=key)
        return self._changing(wanted, lambda _: list(tools))

    def _removing_tool(self, name: str, idempotency_key: str | None) -> Plan[Tool | None]:
        key = once(idempotency_key, "remove_tool", name)
        wanted = Change(tools=lambda found: without_tool(found, name)[0], method="remove_tool", once=key)
        return self._changing(wanted, lambda removed: removed[0] if removed else None)

    def _clearing_tools(self, idempotency_key: str | None) -> Plan[list[Tool]]:
        key = once(idempotency_key, "clear_tools", None)
        return self._changing(Change(tools=lambda _: [], method="clear_tools", once=key), list)

    def _archiving(self, status: str, idempotency_key: str | None) -> Plan[None]:
        key = once(idempotency_key, "archive", status)
        return self._changing(Change(values={"status": status}, method="archive", once=key), _nothing)

    def _activating(self, number: int, idempotency_key: str | None) -> Plan[None]:
        number = whole("The number of a branch", number)
        key = once(idempotency_key, "set_active_branch", number)
        return self._writing(
            activate, number, key, self._contents, finish=self._taking(_nothing), is_keyed=key is not None
        )

    def _changing(self, wanted: Change, result: Callable[[list[Tool]], T]) -> Plan[T]:
        """The plan of a change; `result` makes of the tools that it removed what the caller gets."""
        is_keyed = wanted.once is not None
        return self._writing(change, wanted, self._contents, finish=self._taking(result), is_keyed=is_keyed)

    def _taking(self, result: Callable[[list[Tool]], T]) -> Callable[[Changed], T]:
        def finish(done: Changed) -> T:
            self._state.changed(done.conversation)
            return result(tools_from(done.removed_tools))

        return finish


def _nothing(_: list[Tool]) -> None:
    """For changes that return nothing."""
