"""Statements on explicit context caches."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Final

from sqlalchemy import Delete, Select, Update, and_, bindparam, delete, false, or_, select, update

from threadkeep.db.functions import now
from threadkeep.db.models import context_caches, conversations, responses, usage_records
from threadkeep.db.queries.conversations import itself, of_conversation, of_tenant

# Columns and parameters of one cache, and of one that still belongs to a claim
_NAMED: Final = {"account": "cache_account", "model": "cache_model"}
_ONE: Final = {**_NAMED, "hash": "cache_hash"}
_CLAIMED: Final = {**_ONE, "token": "cache_token"}


@cache
def caches_of() -> Select[Any]:
    """The caches of these hashes, those that are being created included, with the time of the database as `now`."""
    hashes = context_caches.c.hash.in_(bindparam("hashes", expanding=True))
    return select(context_caches, now().label("now")).where(*of_tenant(context_caches, **_NAMED), hashes)


@cache
def caches_made_by() -> Select[Any]:
    """The caches that a conversation created for an account, of all models."""
    table = context_caches.c
    made = select(context_caches).where(*of_conversation(context_caches, account="cache_account"))
    return made.order_by(table.expires_at, table.hash)


@cache
def locked_cache() -> Select[Any]:
    """One cache, locked."""
    return select(context_caches).where(*of_tenant(context_caches, **_ONE)).with_for_update()


@cache
def cache_change() -> Update:
    """Changes one cache; values come with the execution."""
    return update(context_caches).where(*of_tenant(context_caches, **_ONE))


@cache
def cache_sharing() -> Update:
    """Marks a cache as used by others, if it still belongs to that claim."""
    return update(context_caches).where(*of_tenant(context_caches, **_CLAIMED)).values(is_shared=1)


@cache
def cache_removal(*, unshared: bool = False) -> Delete:
    """Removes one cache, if it still belongs to that claim, and with `unshared` only if no other one uses it."""
    where = [context_caches.c.is_shared == 0] if unshared else []
    return delete(context_caches).where(*of_tenant(context_caches, **_CLAIMED), *where)


@cache
def locked_conversation(*, scoped: bool) -> Select[Any]:
    """A conversation, locked: others who plan caches for it wait."""
    return select(conversations.c.id).where(*itself(scoped=scoped)).with_for_update()


def newest_answers(ranges: Sequence[tuple[int, int, int]], count: int) -> Select[Any]:
    """The newest answers in one format on these parts of a conversation, as (branch, after, up to), and their usage."""
    answer, used = responses.c, usage_records.c
    same_conversation = and_(used.tenant_id == answer.tenant_id, used.conversation_id == answer.conversation_id)
    joined = responses.join(usage_records, and_(same_conversation, used.response == answer.number))
    here = [
        and_(answer.branch == branch, answer.to_position > after, answer.to_position <= upto)
        for branch, after, upto in ranges
    ]
    where = [*of_conversation(responses, format="format"), used.input_tokens.is_not(None), or_(false(), *here)]
    columns = (answer.number, used.input_tokens, used.cached_tokens, answer.to_position)
    return select(*columns).select_from(joined).where(*where).order_by(answer.number.desc()).limit(count)
