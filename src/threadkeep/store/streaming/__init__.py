"""Streamed responses: stored while they arrive, and recovered when their recorder is gone."""

from typing import TYPE_CHECKING

from threadkeep.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__, __path__)
