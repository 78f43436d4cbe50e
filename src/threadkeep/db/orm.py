"""Classes of SQLAlchemy's ORM by name, for annotations: it takes long to import, and few programs use it."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sqlalchemy.orm import Session as Session  # noqa: PLC0414 - for those that import this module
    from sqlalchemy.orm import scoped_session as scoped_session  # noqa: PLC0414


def __getattr__(name: str) -> Any:
    """A class of the ORM, which is imported now (PEP 562)."""
    return getattr(import_module("sqlalchemy.orm"), name)
