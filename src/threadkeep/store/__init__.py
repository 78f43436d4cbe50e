"""Use cases: the only layer that opens a transaction."""

from typing import TYPE_CHECKING

from threadkeep.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__, __path__)
