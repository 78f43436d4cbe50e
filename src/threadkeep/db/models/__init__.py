"""The tables: one place that says what is stored."""

from threadkeep.db.base import Base
from threadkeep.db.models import conversations, items, responses, usage

__all__ = ["Base", "conversations", "items", "responses", "usage"]
