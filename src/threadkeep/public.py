"""The public names for annotations of public classes: each is imported when the annotation is resolved."""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from threadkeep import *  # noqa: F403


def __getattr__(name: str) -> Any:
    """A public name (PEP 562)."""
    return getattr(import_module("threadkeep"), name)
