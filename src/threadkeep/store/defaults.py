"""Defaults of arguments, apart from the use cases, which are loaded when they are called."""

from __future__ import annotations

from typing import Final

DENIED: Final = "The call was denied."
FEED_LAG: Final = 60.0  # seconds
LEASE_SECONDS: Final = 5.0  # a recorder that died blocks nobody for longer

# Explicit caches
CACHE_THRESHOLD: Final = 20_000  # tokens outside the cache
CACHE_SECONDS: Final = 3_600
CACHE_CLAIM_SECONDS: Final = 120.0
