"""Pages of other sites that may call the server from a browser."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Final

from starlette.applications import Starlette
from starlette.middleware.cors import CORSMiddleware

from threadkeep.errors import InvalidOption
from threadkeep.web.tracing import HEADER

EXPOSED: Final = ("etag", "location", "retry-after", "x-threadkeep-losses", HEADER)  # headers that pages can read
_METHODS: Final = ("DELETE", "GET", "PATCH", "POST", "PUT")
_SECONDS: Final = 600  # for which a browser need not ask again
_ORIGIN: Final = re.compile(r"https?://(?:\[[0-9a-f:.]+\]|[a-z0-9.-]+)(?::[0-9]{1,5})?")
ANY: Final = "*"


def allow_origins(application: Starlette, origins: Collection[str]) -> None:
    """Let pages of these origins call an application; raise InvalidOption for what is no origin."""
    for origin in origins:
        if origin != ANY and not _ORIGIN.fullmatch(origin):
            hint = "An origin is as browsers send it, such as https://chat.example or http://localhost:5173; * is any."
            raise InvalidOption(f"has {origin!r}, which is no origin.", argument="cors", hint=hint)
    if origins:
        application.add_middleware(
            CORSMiddleware, allow_origins=[*origins], allow_methods=_METHODS, allow_headers=["*"],
            expose_headers=EXPOSED, max_age=_SECONDS,
        )  # fmt: skip
