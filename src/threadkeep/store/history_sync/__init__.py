"""Bringing a conversation up to date with a history that a client keeps itself."""

from typing import TYPE_CHECKING

from threadkeep.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__, __path__)
