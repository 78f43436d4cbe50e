"""Media of items: taken out of their texts, kept in the database or in a blob store, and put back."""

from typing import TYPE_CHECKING

from threadkeep.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__, __path__)
