"""Whether rows that are named by a hash of their content are used by others."""

from __future__ import annotations

from typing import Any

from sqlalchemy import Column, ColumnElement, or_, select


def is_referred_to(hash_: Column[Any], *references: Column[Any]) -> ColumnElement[bool]:
    """A condition for rows of a table: one of these columns has their hash, in a row of the same tenant.

    Each row takes a look into the indexes of references; for EXISTS, PostgreSQL would read all rows that have any.
    """
    tenant = hash_.table.c.tenant_id
    users = (
        select(reference).where(reference.table.c.tenant_id == tenant, reference == hash_).limit(1).scalar_subquery()
        for reference in references
    )
    return or_(*(user.is_not(None) for user in users))
