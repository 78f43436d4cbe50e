"""Keys of the server's API: made, listed, found by their secret, and revoked."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Any, Final, NamedTuple

from sqlalchemy import ColumnElement, Connection, Row, Select, insert, or_, select, update

from threadkeep.db import models
from threadkeep.domain import api_keys as key_objects
from threadkeep.domain import ids, stored
from threadkeep.errors import InvalidOption, NotFound, shown
from threadkeep.store.work import validation
from threadkeep.store.work.handle import StoreHandle

USE_INTERVAL: Final = timedelta(hours=1)  # between two writes of when a key was last used
_TABLE: Final = models.api_keys.c


class KeyScope(NamedTuple):
    """Whose keys are seen.

    Attributes:
        tenant: the key of the tenant; None for all tenants.
        user: the user; None for all users.
    """

    tenant: int | None
    user: str | None

    @property
    def conditions(self) -> list[ColumnElement[bool]]:
        """What rows must meet."""
        values = ((_TABLE.tenant_id, self.tenant), (_TABLE.user_id, self.user))
        return [column == value for column, value in values if value is not None]


class ApiKeys:
    """The keys of the server's API: `Store.keys`.

    A store of one tenant, or one user, has the keys of that tenant or user. A store with tenants has the keys of all
    tenants; keys are made in the store of one tenant (`for_tenant`).

    Attributes:
        all_tenants: whether these are the keys of all tenants.
    """

    def __init__(self, handle: StoreHandle) -> None:
        self._handle, self._transactions, self.all_tenants = handle, handle.transactions, handle.needs_tenant

    def create(
        self,
        *,
        user_id: str | None = None,
        scopes: Iterable[key_objects.ApiScope] = key_objects.SCOPES,
        label: str | None = None,
        expires_at: datetime | None = None,
    ) -> key_objects.NewApiKey:
        """Make a key, and return it with its secret, which is shown only here: there is no other copy of it.

        `user_id` is the user whose conversations it shows (None: all users'), `scopes` what it allows, and `expires_at`
        an aware datetime from which on it is refused (None: never).

        Raises:
            InvalidOption: an argument cannot be used, or the store has tenants and none was chosen.
        """
        given = _checked(user_id, scopes, label, expires_at)
        scope = self._handle.new_scope
        if scope.user is not None and given["user_id"] not in {None, scope.user}:
            raise validation.other_user(scope.user, given["user_id"])
        given["user_id"] = given["user_id"] or scope.user
        number = ids.new_key()
        secret = key_objects.new_secret(number)
        row = {
            "tenant_id": scope.tenant, "id": number, "secret_hash": key_objects.secret_hash(secret), **given,
            "created_at": datetime.now(UTC), "last_used_at": None, "revoked_at": None,
        }  # fmt: skip

        def write(connection: Connection) -> key_objects.ApiKey:
            connection.execute(insert(models.api_keys), row)
            found = connection.execute(_statement(KeyScope(scope.tenant, None)).where(_TABLE.id == number)).one()
            return _key_of(found)

        return key_objects.NewApiKey(self._transactions.write(write), secret)

    def list(
        self, *, user_id: str | None = None, after: str | None = None, limit: int = 100
    ) -> stored.Page[key_objects.ApiKey]:
        """Return a page of keys, oldest first, also of those that expired or were revoked; `user_id`: of that user.

        Raises:
            InvalidOption: an argument cannot be used, or `after` is not the `next` of a page.
        """
        user, most, start = validation.optional_identifier("user_id", user_id), validation.page_size(limit), 0
        if after is not None:
            start = _number("after", after)
        found = self._key_scope()
        if found is None:
            return stored.Page([])
        statement = _statement(found).where(_TABLE.id > start)
        if user is not None:
            statement = statement.where(_TABLE.user_id == user)
        statement = statement.order_by(_TABLE.id).limit(most + 1)
        rows = self._transactions.read(lambda connection: connection.execute(statement).all())
        return stored.Page.of([_key_of(row) for row in rows], most, lambda key: key.id)

    def revoke(self, id: str) -> key_objects.ApiKey:
        """Refuse a key from now on, and return it. Servers that know it notice after a few seconds.

        A key that was revoked before stays as it is.

        Raises:
            NotFound: there is no key with that id.
        """
        number, found = key_objects.key_number(id), self._key_scope()
        if number is None or number > ids.MAX_KEY or found is None:
            raise _no_key(id)
        conditions = [*found.conditions, _TABLE.id == number]

        def write(connection: Connection) -> key_objects.ApiKey:
            change = update(models.api_keys).where(*conditions, _TABLE.revoked_at.is_(None))
            connection.execute(change.values(revoked_at=datetime.now(UTC)))
            row = connection.execute(_statement(found).where(_TABLE.id == number)).one_or_none()
            if row is None:
                raise _no_key(id)
            return _key_of(row)

        return self._transactions.write(write, is_repeatable=True)

    def find(self, secret: str) -> key_objects.ApiKey | None:
        """Return the key that a secret belongs to; None for one that is unknown, expired or revoked."""
        number, found = key_objects.number_in(secret), self._key_scope()
        if number is None or number > ids.MAX_KEY or found is None:
            return None
        statement = _statement(found).where(_TABLE.id == number)
        rows = self._transactions.read(lambda connection: connection.execute(statement).all())
        for row in rows:
            if key_objects.is_secret_of(secret, bytes(row.secret_hash)):
                key = _key_of(row)
                return key if key.is_valid(datetime.now(UTC)) else None
        return None

    def note_use(self, id: str) -> None:
        """Note that a key is used now, unless that was noted within the last hour. An unknown id is ignored."""
        number, found = key_objects.key_number(id), self._key_scope()
        if number is None or number > ids.MAX_KEY or found is None:
            return
        now = datetime.now(UTC)
        is_due = or_(_TABLE.last_used_at.is_(None), _TABLE.last_used_at < now - USE_INTERVAL)
        change = update(models.api_keys).where(*found.conditions, _TABLE.id == number, is_due)
        self._transactions.write(
            lambda connection: connection.execute(change.values(last_used_at=now)), is_repeatable=True
        )

    def exist(self) -> bool:
        """Return whether a key was ever made, even if it has expired or was revoked since."""
        found = self._key_scope()
        if found is None:
            return False
        statement = select(_TABLE.id).where(*found.conditions).limit(1)
        return self._transactions.read(lambda connection: connection.execute(statement).first()) is not None

    def _key_scope(self) -> KeyScope | None:
        """Whose keys are seen; None for a tenant that does not exist yet."""
        if self.all_tenants:
            self._handle.root.open(self._transactions)
            return KeyScope(None, None)
        scope = self._handle.scope
        return KeyScope(scope.tenant, scope.user) if scope.tenant else None


def _statement(scope: KeyScope) -> Select[Any]:
    names = models.tenants.c
    statement = select(models.api_keys, names.name.label("tenant"))
    return statement.join_from(models.api_keys, models.tenants, names.id == _TABLE.tenant_id).where(*scope.conditions)


def _key_of(row: Row[Any]) -> key_objects.ApiKey:
    scopes: Any = row.scopes.split(",")
    return key_objects.ApiKey(
        key_objects.key_id(row.id), row.tenant, row.user_id, frozenset(scopes), row.label,
        row.created_at, row.last_used_at, row.expires_at, row.revoked_at,
    )  # fmt: skip


def _checked(user_id: object, scopes: object, label: object, expires_at: object) -> dict[str, Any]:
    if isinstance(scopes, str) or not isinstance(scopes, Iterable):
        raise InvalidOption(f"must be a list of scopes, not {shown(scopes)}.", argument="scopes")
    names = list(scopes)
    unknown = [name for name in names if not isinstance(name, str) or name not in key_objects.SCOPES]
    if unknown or not names:
        problem = f"cannot have {shown(unknown[0])}." if unknown else "must not be empty."
        raise InvalidOption(problem, argument="scopes", hint=f"Known are {', '.join(sorted(key_objects.SCOPES))}.")
    return {
        "user_id": validation.optional_identifier("user_id", user_id),
        "scopes": ",".join(sorted(set(names))),
        "label": validation.optional_identifier("label", label),
        "expires_at": _future_moment(expires_at),
    }


def _future_moment(value: object) -> datetime | None:
    if value is None:
        return None
    if not isinstance(value, datetime) or value.tzinfo is None:
        hint = "Write datetime(..., tzinfo=UTC), or call astimezone()."
        raise InvalidOption(f"must be an aware datetime, not {shown(value)}.", argument="expires_at", hint=hint)
    if value <= datetime.now(UTC):
        raise InvalidOption(f"must lie in the future, not {shown(value)}.", argument="expires_at")
    try:
        return value.astimezone(UTC)
    except OverflowError as error:
        raise InvalidOption(f"is too late: {shown(value)}.", argument="expires_at") from error


def _number(argument: str, id: object) -> int:
    number = key_objects.key_number(id)
    if number is None:
        raise InvalidOption(f"is not the `next` of a page: {shown(id)}.", argument=argument)
    return min(number, ids.MAX_KEY)


def _no_key(id: object) -> NotFound:
    return NotFound(f"There is no key {shown(id)}.", hint="keys.list() has their ids.")
