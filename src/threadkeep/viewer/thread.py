"""The page of a conversation: its items, the answers they came in with what these cost, and its other branches.

Following a conversation: an event whenever something was appended, or an answer begins or ends.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from time import monotonic
from typing import Any, Final, NamedTuple

from starlette.responses import Response, StreamingResponse
from starlette.types import Receive, Scope, Send

from threadkeep.domain.stored import Branch
from threadkeep.errors import NotFound
from threadkeep.server import owners, permissions
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading import overviews
from threadkeep.store.reading.overviews import LedgerCall, ResponseFacts, ThreadPage, is_answering
from threadkeep.store.store import Store
from threadkeep.viewer.blocks import Block, blocks_of
from threadkeep.viewer.pages import View
from threadkeep.viewer.texts import Budget, first_line, json_text

PAGE: Final = 50  # items
ROOT: Final = -1  # the position before the first item


@dataclass(slots=True)
class Variants:
    """The branches that go on differently after the same item: their numbers, and which of them is shown."""

    branches: Sequence[int]
    index: int


@dataclass(slots=True)
class Group:
    """What stands together on the page: a response, an item of its own, or a call without any.

    Attributes:
        blocks: the items.
        response: the response they came in.
        calls: its calls of the provider; mostly one.
        variants: the other branches that begin here.
        error: the error of the response or its calls, as text.
        error_message: what it says, on one line.
    """

    blocks: list[Block] = field(default_factory=list)
    response: ResponseFacts | None = None
    calls: list[LedgerCall] = field(default_factory=list)
    variants: Variants | None = None
    error: str | None = None
    error_message: str = ""


class Thread(NamedTuple):
    """A conversation, and a page of it."""

    conversation: Conversation
    page: ThreadPage


def read_thread(store: Store, id: str, branch: int | None, start: int) -> Thread:
    """Return a page of a branch: the items from a position on, and the calls behind them."""
    conversation = store.get_conversation(id, branch=0)
    return Thread(conversation, overviews.read_thread(conversation, branch, start, PAGE))


def number_of_branch(view: View) -> int | None:
    """Return the branch in the address; None for the active one."""
    return view.number("branch")


async def thread_page(view: View) -> Response:
    """Show a conversation, from a position on."""
    start = view.number("from", 0) or 0
    thread = await view.read(read_thread, view.request.path_params["id"], number_of_branch(view), start)
    return await view.drawn(_rendered, view, "thread.html", thread, start)


async def fragment(view: View) -> Response:
    """Show only the items from a position on, for pages that follow a conversation."""
    start = view.number("from", 0) or 0
    thread = await view.read(read_thread, view.request.path_params["id"], number_of_branch(view), start)
    return await view.drawn(_rendered, view, "fragment.html", thread, start)


def _rendered(view: View, template: str, thread: Thread, start: int) -> Response:
    return view.page(template, view.live(), **values_of(thread, start))


def values_of(thread: Thread, start: int) -> dict[str, Any]:
    """Return what the template of a conversation shows."""
    page, head = thread.page, thread.page.head
    return {
        "conversation": thread.conversation, "branch": page.branch, "groups": groups_of(thread, start, Budget()),
        "totals": page.totals, "branches": page.branches, "marks": page.marks, "start": start,
        "next": page.next, "head": head, "previous": max(0, start - PAGE), "newest": max(0, head - PAGE + 1),
        "size": PAGE,
        "last": thread.page.items[-1].position if thread.page.items else start - 1,
        "is_open": any(response.is_open for response in thread.page.responses),
    }  # fmt: skip


def groups_of(thread: Thread, start: int, budget: Budget) -> list[Group]:
    """Return what is on the page, in order; `start` is its first position, `budget` limits its texts."""
    places = [item.position for item in thread.page.items]
    before = dict(zip(places, [start - 1, *places], strict=False))
    branches = {branch.number: branch for branch in thread.page.branches}
    answers = {answer.from_position: answer for answer in thread.page.responses}
    calls: dict[int | None, list[LedgerCall]] = {}
    for call in thread.page.calls:
        calls.setdefault(call.response, []).append(call)
    groups: list[Group] = []
    shown: set[int] = set()
    waiting = thread.page.marks.get("waiting", ())
    for block in blocks_of(thread.page.items, budget):
        block.decision, block.is_waiting = thread.page.decisions.get(block.position), block.position in waiting
        answer = _answer_of(block, thread.page.responses, answers)
        if answer is not None and groups and groups[-1].response is answer:
            groups[-1].blocks.append(block)
            continue
        variants = variants_at(block, before[block.position], branches)
        groups.append(Group([block], answer, [] if answer is None else calls.get(answer.number, []), variants))
        if answer is not None:
            shown.add(answer.number)
    lineage = _lineage(thread.page.branch, branches)
    empty = [one for one in thread.page.responses if one.number not in shown and _is_on(one, lineage)]
    for answer in empty:
        _insert(groups, Group([], answer, calls.get(answer.number, [])), answer.created_at)
    for call in calls.get(None, ()):
        _insert(groups, Group([], None, [call]), call.occurred_at)
    return [_with_error(group, budget) for group in groups]


def _with_error(group: Group, budget: Budget) -> Group:
    errors = [one.error for one in (group.response, *group.calls) if one is not None and one.error is not None]
    if errors:
        group.error = budget.take(json_text(errors[0]))
        group.error_message = first_line(message_of(errors[0]))
    return group


def message_of(error: Any) -> str:
    """Return the message within an error of a provider; empty if it has none.

    >>> message_of({"type": "error", "error": {"message": "Overloaded"}})
    'Overloaded'
    """
    while isinstance(error, Mapping):
        if isinstance(message := error.get("message"), str):
            return message
        error = error.get("error")
    return error if isinstance(error, str) else ""


def _answer_of(
    block: Block, answers: Sequence[ResponseFacts], by_start: Mapping[int, ResponseFacts]
) -> ResponseFacts | None:
    """The response that an item came in, which may have begun on the page before."""
    turn = block.stored.turn
    if turn is None:
        return None
    found = by_start.get(turn)
    if found is None:
        found = next((one for one in answers if one.from_position <= block.position <= one.to_position), None)
    return found if found is not None and found.to_position >= block.position else None


def _insert(groups: list[Group], group: Group, at: Any) -> None:
    """Put what has no items behind what was stored before it."""
    index = len(groups)
    while index and (time := _time_of(groups[index - 1])) is not None and time > at:
        index -= 1
    groups.insert(index, group)


def _time_of(group: Group) -> Any:
    if group.blocks:
        return group.blocks[0].created_at
    return group.response.created_at if group.response is not None else group.calls[0].occurred_at


# Branches


def _owner(position: int, number: int, branches: Mapping[int, Branch]) -> int:
    """The branch on which a position of a branch is stored."""
    while (branch := branches.get(number)) is not None and branch.parent is not None:
        if branch.fork_position is None or position > branch.fork_position:
            break
        number = branch.parent
    return number


def _lineage(number: int, branches: Mapping[int, Branch]) -> dict[int, int]:
    """The branches that a branch consists of, and up to which position."""
    parts, limit = {number: 2**62}, 2**62
    while (branch := branches.get(number)) is not None and branch.parent is not None:
        limit = min(limit, ROOT if branch.fork_position is None else branch.fork_position)
        number = branch.parent
        parts[number] = limit
    return parts


def _is_on(answer: ResponseFacts, lineage: Mapping[int, int]) -> bool:
    """Whether a response without items was asked for on a branch."""
    return answer.to_position < answer.from_position and answer.input_to < lineage.get(answer.branch, -2)


def variants_at(block: Block, before: int, branches: Mapping[int, Branch]) -> Variants | None:
    """Return the branches that go on differently after a position, as `siblings` does; None if there is only one."""
    forks = [number for number, one in branches.items() if one.parent is not None and one.fork_position == before]
    if not forks:
        return None
    trunk = _owner(before, branches[forks[0]].parent or 0, branches) if before > ROOT else 0
    numbers = [
        number for number in sorted({*forks, trunk} & branches.keys()) if branches[number].head_position > before
    ]
    if block.stored.branch not in numbers or len(numbers) == 1:
        return None
    return Variants(numbers, numbers.index(block.stored.branch))


SECONDS: Final = 1.0  # between two looks
LOOKS: Final = 600  # after so many, the browser asks again
MAX_FOLLOWED: Final = 20  # at once, by each owner in a process
RETRY_MS: Final = 3_000
NO_CONTENT: Final = 204  # tells browsers to stop asking

_streams = permissions.stream_quota(MAX_FOLLOWED)


async def tail(view: View) -> Response:
    """Answer with events about a branch: its last position, and whether an answer is in progress."""
    if _streams.is_full(view.permission.owner.name):
        return Response(status_code=NO_CONTENT)
    name, branch = view.request.path_params["id"], number_of_branch(view)
    first = await view.read(look, name, branch)  # an error is answered as such
    if view.request.method == "HEAD":
        return Response(media_type=_Followed.media_type)
    return _Followed(_events(view, name, branch, first), view.permission.owner)


class _Followed(StreamingResponse):
    """Events to an owner, which count before they are sent: others may have begun to follow in the meantime."""

    media_type = "text/event-stream"

    def __init__(self, events: AsyncIterator[str], owner: owners.Owner) -> None:
        super().__init__(events)
        self._owner = owner

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events, or tell the browser to stop asking."""
        if _streams.is_full(self._owner.name):
            await Response(status_code=NO_CONTENT)(scope, receive, send)
            return
        with _streams.taking(self._owner.name):
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
        if monotonic() - checked >= permissions.RECHECK_SECONDS:
            if not await view.permission.holds():
                return
            checked = monotonic()
        try:
            state = await view.read(look, id, branch)
        except NotFound:  # deleted meanwhile: the browser asks again, and is told so
            return
