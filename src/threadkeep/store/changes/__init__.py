"""The change feed: writing it with what changes, reading it, following it, and waking those who follow it."""

from typing import TYPE_CHECKING

from threadkeep.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__, __path__)
