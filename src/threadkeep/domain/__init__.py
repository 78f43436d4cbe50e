"""What a conversation is made of: items, content, tools, options, responses and usage.

This layer knows no database and no provider; the formats and the store are written in its terms.
"""

from typing import TYPE_CHECKING

from threadkeep.lazy import lazy_modules

if not TYPE_CHECKING:
    __getattr__ = lazy_modules(__name__, __path__)
