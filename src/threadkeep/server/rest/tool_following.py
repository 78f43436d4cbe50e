"""Following an answer whose tools run in the server, from any process: as `tool_runs.ToolRun.events` gives it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field
from itertools import takewhile
from typing import Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared import answer_writing
from threadkeep.server import body_limits, service
from threadkeep.server.openai import responses
from threadkeep.server.rest import tool_runs
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader


@dataclass(slots=True)
class _Continuation:
    """What has come after an answer.

    Attributes:
        seen: the position up to which outputs were read.
        events: of outputs that were not read before, and, at the end of all, of calls that wait for a decision.
        first: the position of the first item of the answer, as it is stored.
        next_id: the id of the next answer.
        place: where its items begin.
        is_running: whether tools run.
        is_stopped: whether they were asked to stop.
    """

    seen: int
    events: list[JsonObject] = field(default_factory=list)
    first: int = 0
    next_id: str | None = None
    place: int = 0
    is_running: bool = False
    is_stopped: bool = False

    @property
    def is_over(self) -> bool:
        """Whether nothing more comes before the next answer, or at all."""
        return self.next_id is not None or not self.is_running


async def followed(call: service.Call, response_id: str, place: int) -> AsyncGenerator[JsonObject]:
    """Yield the events of an answer from its beginning on, and those after it.

    `place`: where its items begin, as far as that is known.
    """
    last, is_stopped = dict[str, Any](), False
    while True:
        response = await responses.read_object(call, response_id)
        async for event in tool_runs.each(responses.replay(call, response, -1)):
            if answer_writing.is_end(event):
                last = event
            else:
                yield event
        found = _Continuation(-1)
        while call.service.tools is not None:
            found = await call.read(_progress, call, response_id, found.seen)
            for event in found.events:
                yield event
            is_stopped = is_stopped or found.is_stopped
            if found.is_over:
                break
            await asyncio.sleep(responses.POLL_SECONDS)
        if found.next_id is None:
            break
        yield tool_runs.next_round(last, found.place, is_moved=found.first != place)
        response_id, place = found.next_id, found.place
    yield tool_runs.stopped(last) if is_stopped else last


def _read_outputs(reader: Reader, conversation: Conversation, found: _Continuation, upto: int) -> bool:
    """Read the outputs up to a position; whether nothing else was said, and there are not too many for one look."""
    page = reader.items(conversation, found.seen, body_limits.MAX_TOOLS, "asc", service.SMALL, upto=upto)
    outputs = [*takewhile(lambda one: one.item.type.endswith("_output"), page)]
    found.events = [
        {"type": answer_writing.OUTPUT, "item": one.item.to_object(), "position": one.position} for one in outputs
    ]
    found.seen = outputs[-1].position if outputs else found.seen
    found.is_running = len(outputs) == len(page) and (found.is_running or page.next is not None)
    return len(outputs) == len(page) and page.next is None


def _progress(reader: Reader, call: service.Call, response_id: str, seen: int) -> _Continuation:
    """What has come after an answer, behind a position (blocking)."""
    answer = responses.find(reader, response_id)
    conversation, stored = answer.conversation, answer.stored
    found = _Continuation(max(seen, stored.to_position), first=stored.from_position)
    if stored.status not in tool_runs.GOES_ON:
        return found
    state = tool_runs.running(reader, conversation)  # before the next answer is read, with which it ends
    found.is_running, found.is_stopped = state is not None, "stopped" in (state or ())
    next_id = reader.response_after(conversation, stored.number)
    following = None if next_id is None else responses.find(reader, next_id).stored
    upto = conversation.head if following is None else following.input_to
    if upto > found.seen and not _read_outputs(reader, conversation, found, upto):
        return found
    if following is not None:
        found.next_id, found.place = following.id, following.from_position
    if found.next_id is None and state is None and call.service.tools is not None:
        waiting = reader.pending_calls(conversation, None, body_limits.MAX_TOOLS, service.SMALL).items
        found.events += tool_runs.decisions(call.service.tools, waiting)
    return found
