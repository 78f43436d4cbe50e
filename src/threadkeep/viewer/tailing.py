"""Following a conversation: an event whenever something was appended, or an answer begins or ends."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from itertools import count
from time import monotonic
from typing import Final

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from threadkeep.errors import NotFound
from threadkeep.store.overviews import is_answering
from threadkeep.store.store import Store
from threadkeep.viewer.pages import View
from threadkeep.viewer.thread import number_of_branch
from threadkeep.web.following import RECHECK_SECONDS, OpenStreams
from threadkeep.web.owners import Owner

SECONDS: Final = 1.0  # between two looks
LOOKS: Final = 600  # after so many, the browser asks again
MAX_FOLLOWED: Final = 20  # at once, by each owner in a process
RETRY_MS: Final = 3_000
NO_CONTENT: Final = 204  # tells browsers to stop asking

_streams = OpenStreams(MAX_FOLLOWED)


async def tail(view: View) -> Response:
    """Answer with events about a branch: its last position, and whether an answer is in progress."""
    if _streams.is_full(view.permission.owner):
        return Response(status_code=NO_CONTENT)
    name, branch = view.request.path_params["id"], number_of_branch(view)
    first = await view.read(look, name, branch)  # an error is answered as such
    return _Followed(_events(view, name, branch, first), view.permission.owner)


class _Followed(StreamingResponse):
    """Events to an owner, which count before they are sent: others may have begun to follow in the meantime."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], owner: Owner) -> None:
        super().__init__(events)
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, or tell the browser to stop asking."""
        if _streams.is_full(self._owner):
            await Response(status_code=NO_CONTENT)(scope, receive, send)
            return
        with _streams.one_more(self._owner):
            await super().__call__(scope, receive, send)


def look(store: Store, id: str, branch: int | None) -> dict[str, int | bool]:
    """Return the last position of a branch, and whether an answer is in progress."""
    conversation = store.get_conversation(id, branch=branch)
    return {"head": conversation.head, "open": is_answering(conversation)}


async def _events(view: View, id: str, branch: int | None, state: dict[str, int | bool]) -> AsyncIterator[str]:
    checked = monotonic()
    yield f"retry: {RETRY_MS}\n\n"
    told: dict[str, int | bool] = {}
    for number in count():
        if state != told:
            yield f"event: state\ndata: {json.dumps(state)}\n\n"
            told = state
        if number == LOOKS:
            return
        await asyncio.sleep(SECONDS)
        if monotonic() - checked >= RECHECK_SECONDS:
            if not await view.permission.holds():
                return
            checked = monotonic()
        try:
            state = await view.read(look, id, branch)
        except NotFound:  # deleted meanwhile: the browser asks again, and is told so
            return
