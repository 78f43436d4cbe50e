"""Who and where: the tenant and user whose data a use case may see, and the conversation and branch it works on."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from threadkeep.domain.ids import CONVERSATION_PREFIX
from threadkeep.errors import InvalidOption, NotFound, shown

if TYPE_CHECKING:
    from threadkeep.store.media.stores import BlobStore

TENANT_WIDE: Final = 0  # stands for a conversation where an idempotency key belongs to the tenant


class ConfigHashes(NamedTuple):
    """The names of stored session options and of a stored tool set (None: no tools)."""

    config: bytes
    tools: bytes | None


@dataclass(frozen=True, slots=True)
class Scope:
    """A tenant, and one user of it where the store is scoped to a user; `blobs` is where its media are kept, if set."""

    tenant: int
    user: str | None = None
    blobs: BlobStore | None = field(default=None, repr=False, compare=False)

    def parameters(self, **values: Any) -> dict[str, Any]:
        """Statement parameters: the tenant, the user of a scoped store, and `values`."""
        if self.user is None:
            return {"tenant": self.tenant, **values}
        return {"tenant": self.tenant, "user": self.user, **values}

    def check_all_users(self, what: str, call: str) -> None:
        """Refuse a call that concerns all users in a store that is for one user only."""
        if self.user is not None:
            problem = f"{what}, and this store is for the user {self.user!r} only."
            raise InvalidOption(problem, hint=f"Call {call} on the store that for_user() was called on.")


@dataclass(frozen=True, slots=True)
class ConversationRef:
    """A conversation, seen by a scope: `key` in the database, `public_id` outside."""

    scope: Scope
    key: int
    public_id: str

    def parameters(self, **values: Any) -> dict[str, Any]:
        """Parameters of statements that name the conversation, and `values`."""
        return {"tenant": self.scope.tenant, "key": self.key, **values}

    def rows_of(self, table: Any) -> list[Any]:
        """Conditions for the rows of the conversation in a table, whose columns are given."""
        return [table.tenant_id == self.scope.tenant, table.conversation_id == self.key]

    def columns(self, **values: Any) -> dict[str, Any]:
        """The columns of such a row that name the conversation, and `values`."""
        return {"tenant_id": self.scope.tenant, "conversation_id": self.key, **values}

    @property
    def public_bytes(self) -> bytes:
        """The public id as its row holds it; nothing is to be checked, because it was made from that."""
        return bytes.fromhex(self.public_id[len(CONVERSATION_PREFIX) :])

    def not_found(self) -> NotFound:
        """The error for a conversation that does not exist (any more), or not for this scope."""
        return conversation_not_found(self.public_id)


@dataclass(frozen=True, slots=True)
class BranchRef(ConversationRef):
    """A branch of a conversation, seen by a scope."""

    branch: int = 0

    def on(self, branch: int) -> BranchRef:
        """Another branch of the same conversation."""
        return self if branch == self.branch else replace(self, branch=branch)


def tenant_not_found() -> NotFound:
    """The error for rows of a tenant that does not exist (any more)."""
    return NotFound("The tenant of this store was deleted, or the connection is to another database.")


def conversation_not_found(id: object) -> NotFound:
    """The error for an id or key under which a scope has no conversation."""
    hint = "Check the id, and that the store has the right database, tenant and user."
    return NotFound(f"There is no conversation {shown(id)}.", hint=hint)
