"""What the sync and the async store have in common: everything but waiting."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import Any, Final

from sqlalchemy import Connection

from threadkeep.db import schema
from threadkeep.domain.ids import public_id_bytes
from threadkeep.domain.objects import shown
from threadkeep.domain.session import Session
from threadkeep.domain.statistics import Statistics
from threadkeep.domain.stored import Page
from threadkeep.domain.usage import ToolUsage, UsageRow
from threadkeep.errors import InvalidOption, SchemaMissing
from threadkeep.store.actions.changes import find_and_hide
from threadkeep.store.actions.days import fill_batch, mend_batch
from threadkeep.store.actions.opening import Opened, create_and_open, create_batch, find, get, list_and_open
from threadkeep.store.actions.statistics import statistics
from threadkeep.store.actions.tool_usage import ToolQuestion, tool_usage
from threadkeep.store.actions.usage import Question, usage
from threadkeep.store.contents import Contents
from threadkeep.store.endings import LeftBehind
from threadkeep.store.incoming import request_session
from threadkeep.store.place import Scope, identifier, once, optional_identifier, whole
from threadkeep.store.plans import Plan, Steps
from threadkeep.store.requests import (
    About,
    checked_zone,
    columns_of,
    listing_of,
    new_conversation,
    page_name,
    page_size,
)
from threadkeep.store.sweeping import (
    Erased,
    Progress,
    Retained,
    collecting,
    deleting_tenant,
    erasing,
    kept_for,
    no_progress,
    purging,
    purging_deleted,
    retaining,
)

DEFAULT_TENANT: Final = "default"
CHOOSE_TENANT: Final = "This store has tenants: choose one with for_tenant(name), or make one with create_tenant(name)."
IMPORTED_AT_ONCE: Final = 50  # conversations in one transaction


class Shelf:
    """The scope of a store, and the plans that its faces run."""

    _scope_found: Scope | None
    _has_tenants: bool
    _searches: bool
    _contents: Contents

    @property
    def _scope(self) -> Scope:
        if self._scope_found is None:
            self._not_with_tenants()
            raise InvalidOption("This store is not open yet: use it with `async with`, or await one of its methods.")
        return self._scope_found

    @property
    def _searched_scope(self) -> Scope:
        if not self._searches:
            raise InvalidOption("This store was opened with search=False. Open it without, and what it has is found.")
        return self._scope

    def _user_scope(self, user_id: str) -> Scope:
        user = identifier("user_id", user_id)
        if self._scope.user not in {None, user}:
            raise InvalidOption(f"This store is for the user {self._scope.user!r}, it cannot be for {user!r} as well.")
        return replace(self._scope, user=user)

    def _only_with_tenants(self) -> None:
        if not self._has_tenants:
            raise InvalidOption("Tenants are for a store that was opened with tenants=True.")

    def _not_with_tenants(self) -> None:
        if self._has_tenants:
            raise InvalidOption(CHOOSE_TENANT)

    def _creating(self, session: Session, about: About, idempotency_key: str | None) -> Plan[tuple[Opened, bool]]:
        new = new_conversation(session, about, idempotency_key, self._scope.user)
        arguments = (self._scope, new, self._contents)
        return Plan(create_and_open, arguments, is_write=True, is_keyed=new.once is not None)

    def _copying(self, id: str, session: Session, about: About, key: str | None) -> Plan[tuple[Opened, bool]]:
        """The plan of a copy; its key is for the original's id, because the original may have grown since."""
        new = new_conversation(session, about, None, self._scope.user)
        content = [id, new.user_id, new.external_id, new.title, dict(new.labels)]
        new = replace(new, once=once(key, "copy_conversation", content))
        arguments = (self._scope, new, self._contents)
        return Plan(create_and_open, arguments, is_write=True, is_keyed=new.once is not None)

    def _importing_request(
        self, payload: Any, format: str, how: tuple[str | None, bool | None], about: About, key: str | None,
        options: Mapping[str, Any],
    ) -> Plan[tuple[Opened, bool]]:  # fmt: skip
        session = request_session(payload, format, *how, options)
        new = new_conversation(session, about, key, self._scope.user, "import_request")
        arguments = (self._scope, new, self._contents)
        return Plan(create_and_open, arguments, is_write=True, is_keyed=new.once is not None)

    def _importing(
        self, batch: Sequence[Session], about: About, idempotency_key: str | None, number: int
    ) -> Plan[list[str]]:
        new = [new_conversation(session, about, None, self._scope.user) for session in batch]
        key = None
        if idempotency_key is not None:
            content = [[session.to_dict() for session in batch], dict(about), self._scope.user]
            key = once(f"{identifier('idempotency_key', idempotency_key)}#{number}", "save_many", content)
        return Plan(create_batch, (self._scope, new, key), is_write=True, is_keyed=key is not None)

    def _getting(self, id: str, branch: int | None = None) -> Plan[Opened]:
        number = None if branch is None else whole("branch", branch)
        return Plan(get, (self._scope, "public_id", public_id_bytes(id), self._contents, number))

    def _finding(self, external_id: str) -> Plan[Opened | None]:
        return Plan(find, (self._scope, "external_id", identifier("external_id", external_id), self._contents))

    def _listing(
        self,
        user_id: str | None,
        labels: Mapping[str, str] | None,
        status: str | None,
        after: str | None,
        limit: int,
    ) -> Plan[Page[Opened]]:
        wanted = listing_of(user_id, labels, status, after, limit)

        def finish(found: list[Opened]) -> Page[Opened]:
            return Page.of(found, limit, lambda one: page_name(one.facts.last_activity_at, one.facts.id))

        return Plan(list_and_open, (self._scope, replace(wanted, limit=limit + 1), self._contents), finish)

    def _hiding(self, id: str, idempotency_key: str | None) -> Plan[int]:
        key = once(idempotency_key, "delete_conversation", [id, self._scope.user])
        return Plan(find_and_hide, (self._scope, id, key), is_write=True, is_keyed=key is not None)

    def _purging(self, key: int) -> Steps[None]:
        yield from purging(self._scope.tenant, key, self._endings())
        yield from collecting(self._scope.tenant)

    def _purging_deleted(self) -> Steps[int]:
        return purging_deleted(self._scope.tenant, self._endings())

    def _deleting_tenant(self) -> Steps[None]:
        return deleting_tenant(self._scope.tenant, self._endings())

    def _erasing(self, user_id: str, progress: Progress | None, *, scrubs: bool) -> Steps[Erased]:
        user = self._user_scope(user_id).user or ""
        tell = progress or no_progress
        found = yield from erasing(self._scope.tenant, user, tell, scrubs=scrubs, endings=self._endings())
        self._contents.forget()
        return found

    def _retaining(
        self, raw_bodies: object, content: object, progress: Progress | None, *, is_dry: bool
    ) -> Steps[Retained]:
        if self._scope.is_scoped:
            raise InvalidOption("What is kept how long is a question for the whole store, not for one user's.")
        bodies, contents = kept_for("raw_bodies", raw_bodies), kept_for("content", content)
        if bodies is None and contents is None:
            raise InvalidOption("Say how long something is kept: raw_bodies= or content=, in days.")
        tell = progress or no_progress
        return retaining(self._scope.tenant, bodies, contents, tell, is_dry=is_dry, endings=self._endings())

    def _endings(self) -> LeftBehind:
        """What the ledger keeps of responses in progress whose conversation goes, at the store's prices."""
        return LeftBehind(self._contents.prices)

    def _reporting(
        self,
        by: Sequence[str] | str,
        since: date | None,
        until: date | None,
        tz: str,
        order_by: str | None,
        limit: int | None,
        filters: Mapping[str, Any],
    ) -> Plan[list[UsageRow]]:
        question = Question(
            by=columns_of(by),
            since=_bound("since", since),
            until=_bound("until", until),
            zone=checked_zone(tz),
            filters=filters,
            order_by=order_by,
            limit=limit,
        )
        return Plan(usage, (self._scope, question))

    def _counting_calls(
        self, since: date | None, until: date | None, tz: str, user_id: str | None, limit: int | None
    ) -> Plan[list[ToolUsage]]:
        question = ToolQuestion(
            since=_bound("since", since),
            until=_bound("until", until),
            zone=checked_zone(tz),
            user_id=optional_identifier("user_id", user_id),
            limit=None if limit is None else page_size(limit),
        )
        return Plan(tool_usage, (self._scope, question))

    def _measuring(self, largest: int) -> Plan[Statistics]:
        return Plan(statistics, (self._scope, page_size(largest, "largest")))

    def _filling(self) -> Plan[int]:
        return Plan(fill_batch, (self._all_users(),), is_write=True, is_keyed=True)

    def _mending(self, after: date | None) -> Plan[tuple[date | None, int]]:
        return Plan(mend_batch, (self._all_users(), after), is_write=True, is_keyed=True)

    def _all_users(self) -> int:
        if self._scope.is_scoped:
            raise InvalidOption(f"Days are summed over all users, and this store is for {self._scope.user!r} only.")
        return self._scope.tenant


def _bound(name: str, value: object) -> date | datetime | None:
    if value is None:
        return None
    if isinstance(value, datetime):
        if value.tzinfo is None:
            raise InvalidOption(f"{name} is a datetime without a time zone: {value!r}. Give an aware one, or a date.")
        return value
    if not isinstance(value, date):
        raise InvalidOption(f"{name} is a date or an aware datetime, not {value!r}.")
    return value


def must_be_set_up(connection: Connection) -> bool:
    """Whether this is an empty SQLite database, which is set up on opening.

    Raises:
        SchemaMissing, SchemaOutOfDate, SchemaTooNew: it has not the schema that this version needs.
    """
    try:
        schema.check(connection)
    except SchemaMissing:
        if connection.dialect.name != "sqlite":
            raise
        if schema.is_empty(connection):
            return True
        schema.check(connection)  # somebody else set it up meanwhile, or the tables are another application's
    return False


def in_batches(sessions: Iterable[Session], size: int = IMPORTED_AT_ONCE) -> Iterable[list[Session]]:
    """Sessions in lists of at most `size`.

    Raises:
        InvalidOption: this is no iterable of sessions.
    """
    if not isinstance(sessions, Iterable):
        raise InvalidOption(f"{shown(sessions)} is no list of sessions. Give an iterable of Session.")
    batch: list[Session] = []
    for session in sessions:
        batch.append(session)
        if len(batch) == size:
            yield batch
            batch = []
    if batch:
        yield batch
