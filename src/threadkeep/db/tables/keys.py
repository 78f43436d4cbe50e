"""Keys of the server's API."""

from __future__ import annotations

from typing import Final

from sqlalchemy import Index, UniqueConstraint

from threadkeep.db.base import column, key, optional, references, table
from threadkeep.db.types import Hash, Identifier, UtcDateTime

# A key of the server's API: whose it is, and what it allows. Of its secret, there is only a hash.
api_keys: Final = table(
    "api_keys",
    key("id"),  # a part of the secret, by which the row is found
    column("secret_hash", Hash(32)),
    optional("user_id", Identifier),  # NULL for all users of the tenant
    column("scopes", Identifier),  # in alphabetical order, with commas
    optional("label", Identifier),  # the application's own words
    column("created_at", UtcDateTime),
    optional("last_used_at", UtcDateTime),  # written once an hour at most
    optional("expires_at", UtcDateTime),
    optional("revoked_at", UtcDateTime),
    references("tenants", tenant_id="id"),
    UniqueConstraint("id", "tenant_id", name="id"),
    Index("user", "user_id", "tenant_id", "id"),
)
