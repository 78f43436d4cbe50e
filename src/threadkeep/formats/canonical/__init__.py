"""How an item is stored in a row: its payload as Open Responses sends it, and an overlay of everything else."""

from typing import TYPE_CHECKING

from threadkeep.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__, __path__)
