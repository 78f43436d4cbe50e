"""Where a use case works: whose data it may see, in which conversation, on which branch."""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import sha256
from typing import Any, Final

from threadkeep.db.types import IDENTIFIER_BYTES, escaped
from threadkeep.domain.jsontext import canonical
from threadkeep.errors import InvalidOption, NotFound

TENANT_WIDE: Final = 0  # stands for a conversation in `appends` where a key belongs to the tenant
MAX_NUMBER: Final = 2**31 - 1  # of branches and responses, in every database
MAX_POSITION: Final = 2**62

# The hashes of session options and of a tool set
Configuration = tuple[bytes, bytes | None]


@dataclass(frozen=True, slots=True)
class Scope:
    """A tenant, and one user of it where the store is scoped to a user."""

    tenant: int
    user: str | None = None

    def bound(self, **values: Any) -> dict[str, Any]:
        """Statement parameters: the tenant, the user of a scoped store, and `values`."""
        found: dict[str, Any] = {"tenant": self.tenant, **values}
        if self.user is not None:
            found["user"] = self.user
        return found

    @property
    def is_scoped(self) -> bool:
        """Whether it is for one user only."""
        return self.user is not None


@dataclass(frozen=True, slots=True)
class Place:
    """A branch of a conversation, seen by a scope."""

    scope: Scope
    key: int
    public_id: str
    branch: int = 0

    def missing(self) -> NotFound:
        """The error for a conversation that is not there (any more), or not for this scope."""
        return NotFound(
            f"There is no conversation {self.public_id!r} here. It was deleted, or belongs to somebody else."
        )


@dataclass(frozen=True, slots=True)
class Once:
    """An idempotency key with the hash of what is written under it."""

    key: str
    request_hash: bytes


def once(key: str | None, method: str, arguments: Any) -> Once | None:
    """The key of a call, with the hash of its method and arguments.

    Raises:
        InvalidOption: the key is empty or too long.
    """
    if key is None:
        return None
    return Once(identifier("idempotency_key", key), sha256(canonical([method, arguments])).digest())


def identifier(option: str, value: object) -> str:
    """A name or id that fits its column.

    Raises:
        InvalidOption: it is no text, empty, or longer than the column.
    """
    if not isinstance(value, str) or not value:
        raise InvalidOption(f"{option} must be a text that is not empty, not {value!r}.")
    size = len(escaped(value).encode())
    if size > IDENTIFIER_BYTES:
        raise InvalidOption(
            f"{option} has {size:,} bytes, at most {IDENTIFIER_BYTES} can be stored: {value[:40]!r}… "
            "Use a shorter id, or a hash of it."
        )
    return value


def whole(option: str, value: object, limit: int = MAX_NUMBER) -> int:
    """A number to look something up by; one beyond its column is cut to `limit`, because nothing is there either.

    Raises:
        InvalidOption: it is no whole number.
    """
    if isinstance(value, bool) or not isinstance(value, int):
        raise InvalidOption(f"{option} is a whole number, not {value!r}.")
    return max(-limit, min(value, limit))


def optional_identifier(option: str, value: object) -> str | None:
    """Like `identifier`; None stays None."""
    return None if value is None else identifier(option, value)
