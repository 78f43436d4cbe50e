"""Keys of the server's API: what they allow, and the secrets that prove them."""

from __future__ import annotations

import hmac
import re
import secrets
import string
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Final, Literal, TypeAlias

ApiScope: TypeAlias = Literal["read", "write", "usage"]
"""What a key allows: to read, to write, or to read reports about usage."""
SCOPES: Final[frozenset[ApiScope]] = frozenset({"read", "write", "usage"})

ID_PREFIX: Final = "key_"
SECRET: Final = re.compile(r"tk_([0-9a-f]{16})_[A-Za-z0-9]{43}")
_LETTERS: Final = string.ascii_letters + string.digits
_ID: Final = re.compile(rf"{ID_PREFIX}([0-9a-f]{{16}})")


@dataclass(frozen=True, slots=True)
class ApiKey:
    """A key of the server's API, without its secret.

    Attributes:
        id: its id: ``key_`` and the 16 digits with which its secret begins, after ``tk_``.
        tenant: the name of its tenant.
        user_id: the user whose conversations it shows; None for all users of the tenant.
        scopes: what it allows.
        label: the application's own words; None without any.
        created_at: when it was made; aware, in UTC, as the others.
        last_used_at: when it was last used, to the hour; None if it never was.
        expires_at: from when on it is refused; None for never.
        revoked_at: when it was revoked; None if it was not.
    """

    id: str
    tenant: str
    user_id: str | None
    scopes: frozenset[ApiScope]
    label: str | None
    created_at: datetime
    last_used_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None

    def is_valid(self, now: datetime) -> bool:
        """Return whether it is accepted at a time (aware)."""
        return self.revoked_at is None and (self.expires_at is None or now < self.expires_at)


@dataclass(frozen=True, slots=True)
class NewApiKey:
    """A key that was just made.

    Attributes:
        key: the key.
        secret: what its holder sends with requests. It is stored nowhere, and cannot be shown again.
    """

    key: ApiKey
    secret: str = field(repr=False)


def new_secret(number: int) -> str:
    """Return a new secret, with 256 random bits, for the key with this number: a double click selects all of it."""
    return f"tk_{number:016x}_{''.join(secrets.choice(_LETTERS) for _ in range(43))}"


def number_in(secret: object) -> int | None:
    """Return the number of the key that a secret belongs to; None for a text that is the secret of none."""
    found = SECRET.fullmatch(secret) if isinstance(secret, str) else None
    return None if found is None else int(found[1], 16)


def key_id(number: int) -> str:
    """Return the id of the key with this number."""
    return f"{ID_PREFIX}{number:016x}"


def key_number(id: object) -> int | None:
    """Return the number of a key by its id; None for what is the id of none."""
    found = _ID.fullmatch(id) if isinstance(id, str) else None
    return None if found is None else int(found[1], 16)


def secret_hash(secret: str) -> bytes:
    """Return what is stored of a secret. It has so many random bits that a fast hash cannot be reversed."""
    return sha256(secret.encode()).digest()


def is_secret_of(secret: str, stored: bytes) -> bool:
    """Return whether a secret has this hash; takes the same time wherever they differ."""
    return hmac.compare_digest(secret_hash(secret), stored)
