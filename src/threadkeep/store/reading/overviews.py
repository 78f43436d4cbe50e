"""Overviews: conversations with what they cost and what people said of them, and the calls behind the items of a page.

What people look at takes more than one table at once. Each of these reads it in a few statements, whose number does not
depend on how much is shown.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Final, NamedTuple, cast

from sqlalchemy import Connection

from threadkeep.db import driver, types
from threadkeep.db.queries import conversations
from threadkeep.db.queries import overviews as statements
from threadkeep.domain import jsontext, reports, stored
from threadkeep.domain.ids import public_id_bytes, public_id_text
from threadkeep.domain.running import Approval, Decision
from threadkeep.errors import NotFound
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading import lists, responses
from threadkeep.store.reading.items import ItemWindow, read_window
from threadkeep.store.search import query as searching
from threadkeep.store.store import Store
from threadkeep.store.usage.reports import UsageQuery, run_query
from threadkeep.store.work import positions, refs

MAX_CALLS: Final = 500  # of a page
MAX_BRANCHES: Final = 200
MAX_MARKS: Final = 1_000  # of a conversation
MARKS: Final = statements.MARKS
NEARBY: Final = 20  # responses before one, among which the one before it on its branch is looked for


@dataclass(slots=True)
class CallSums:
    """What the ledger says of a conversation, and people of its items.

    Attributes:
        calls, failed: the number of calls, and of those that failed.
        total_tokens, cost_nano: None if no call reported them; the cost is in nano-USD.
        models: the models that were called.
        marks: how often people said something about items, by the kinds of `MARKS`.
    """

    calls: int = 0
    failed: int = 0
    total_tokens: int | None = None
    cost_nano: int | None = None
    models: list[str] = field(default_factory=list)
    marks: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LedgerCall:
    """A call of a provider: its row in the ledger, and the error as JSON, if it has one.

    Attributes:
        response: the number of the response it gave; None if it gave none.
        occurred_at: when; aware, in UTC.
        latency_ms, first_token_ms: milliseconds.
        cost_nano: the cost in nano-USD.
    """

    response: int | None
    occurred_at: datetime
    provider: str | None
    model: str | None
    format: str
    status: str | None
    latency_ms: int | None
    first_token_ms: int | None
    input_tokens: int | None
    cached_tokens: int | None
    cache_write_tokens: int | None
    output_tokens: int | None
    reasoning_tokens: int | None
    total_tokens: int | None
    cost_nano: int | None
    error: Any


@dataclass(frozen=True, slots=True)
class ResponseFacts:
    """A response of a page: the range of its items, how it ended, whether it is in progress, and its settings' hash."""

    number: int
    branch: int
    format: str
    model: str | None
    status: str | None
    finish_reason: str | None
    provider_response_id: str | None
    input_to: int
    from_position: int
    to_position: int
    error: Any
    incomplete_details: Any
    created_at: datetime
    config_hash: bytes
    is_open: bool


class ThreadPage(NamedTuple):
    """A page of a conversation.

    Attributes:
        branch: the number of its branch.
        head: the last position of the branch; -1 if it is empty.
        items: the items, with labels, feedback and references to media.
        next: the position from which the next page goes on; None on the last page.
        responses: the responses behind them, and those without items that were asked for there.
        calls: the calls of these responses, and the calls from the time of the page without a response.
        totals: the usage of the whole conversation.
        branches: all branches, if there are several; else none.
        decisions: what was decided about calls of the page, by position.
        marks: the kinds of `MARKS` -> their positions on the branch, also beyond the page, the last ones first.
    """

    branch: int
    head: int
    items: Sequence[stored.StoredItem]
    next: int | None
    responses: Sequence[ResponseFacts]
    calls: Sequence[LedgerCall]
    totals: reports.UsageRow
    branches: Sequence[stored.Branch]
    decisions: Mapping[int, Approval]
    marks: Mapping[str, Sequence[int]]


def list_matching(store: Store, wanted: Mapping[str, Any]) -> stored.Page[stored.ConversationSummary]:
    """Return a page of summaries by the arguments of `Store.list_summaries`, and some that only pages have.

    Args:
        store: the store.
        wanted: the arguments; also `since` and `until` (the time of the last activity), and `calls`: conversations
            among whose newest calls is one with this "model" or "status", or on a "day" between two.
    """
    defaults = {
        "user_id": None, "labels": None, "status": "active", "unread_by": None, "seen_by": None,
        "order_by": "activity", "order": None, "after": None, "limit": 50,
    }  # fmt: skip
    return lists.list_summaries(store.handle.transactions, store.handle.scope, {**defaults, **wanted})


def search_matching(store: Store, text: str, wanted: Mapping[str, Any]) -> stored.Page[stored.SearchResult]:
    """Return a page of results by the arguments of `Store.search`, and `model`, one that the conversation called."""
    defaults = {"status": None, "conversation_id": None, "type": None}
    query = searching.search_query(text, **{**defaults, **wanted})
    return searching.search(store.handle.transactions, store.handle.searched_scope, query)


def call_sums(store: Store, ids: Sequence[str]) -> dict[str, CallSums]:
    """Return what the ledger says of conversations, and people of their items, by ids; those without calls, too."""
    found: dict[str, CallSums] = {}
    if not ids:
        return found
    scope, names = store.handle.scope, list(map(public_id_bytes, ids))

    def read(connection: Connection) -> tuple[Sequence[Any], Sequence[Any]]:
        marks = connection.execute(statements.marks_of(scope.tenant, names, scope.user)).all()
        keys = list({row.id for row in marks})
        return marks, connection.execute(statements.sums_of(scope.tenant, keys)).all() if keys else ()

    marks, rows = store.handle.transactions.read_any(read)
    keys = {row.id: bytes(row.public_id) for row in marks}
    for row in marks:
        sums = found.setdefault(public_id_text(keys[row.id]), CallSums())
        if kind := types.name_from(row.kind):
            sums.marks[kind] = row.count
    for row in rows:
        sums = found[public_id_text(keys[row.conversation_id])]
        sums.calls += row.calls
        sums.failed += int(row.failed or 0)
        for name in ("total_tokens", "cost_nano"):
            value = getattr(row, name)
            if value is not None:
                setattr(sums, name, (getattr(sums, name) or 0) + int(value))
        if row.model is not None:
            sums.models.append(str(types.name_from(row.model)))
    return found


def previews(store: Store, ids: Iterable[str | None]) -> dict[str, str]:
    """Return the previews of conversations by their ids; None, and those where nothing was said, are missing."""
    names = [public_id_bytes(one) for one in dict.fromkeys(ids) if one is not None]
    if not names:
        return {}
    scope = store.handle.scope

    def read(connection: Connection) -> dict[str, str]:
        rows: Any = connection.execute(statements.opened_of(scope.tenant, names)).all()
        found = lists.previews_of(connection, scope, rows)
        return {public_id_text(bytes(row.public_id)): found[row.id] for row in rows if row.id in found}

    return store.handle.transactions.read_any(read)


def read_thread(conversation: Conversation, branch: int | None, start: int, limit: int) -> ThreadPage:
    """Return the page of a branch (None: the active one) that begins at a position, in one transaction.

    `conversation` is open on its first branch.

    Raises:
        NotFound: there is no such branch.
    """
    handle = conversation.handle
    row = handle.conversation.row
    ref = handle.ref.on(row.active_branch if branch is None else branch)
    window = ItemWindow(start - 1 if start else None, limit=limit + 1, media="reference")

    def read(connection: Connection) -> ThreadPage:
        rows: Sequence[Any] = []
        if row.next_branch > 1:
            rows = connection.execute(conversations.branches_of(), ref.parameters(after=0, limit=MAX_BRANCHES)).all()
        known = [refs.lineage_from(one) for one in rows if one.number == ref.branch]
        lineage = known[0] if known else refs.get_lineage(connection, ref, row)
        page = plain_page(connection, ref, lineage, window, start)
        annotated = _annotated(connection, ref, lineage, page.items)
        return page._replace(
            items=annotated.items,
            totals=run_query(connection, ref.scope, UsageQuery(conversation=ref.key))[0],
            branches=_branches(row, rows) if rows else (),
            decisions=annotated.decisions,
            marks=annotated.marks,
        )

    return handle.transactions.read_any(read)


def plain_page(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, window: ItemWindow, start: int
) -> ThreadPage:
    """The page of a window, which has an item more; without annotations, totals and branches."""
    found, limit = read_window(connection, ref, lineage, window), (window.limit or 0) - 1
    items, following = found[:limit], next(iter(found[limit:]), None)
    time = _call_window(items, following, start)
    calls = connection.execute(statements.calls_of(ref.scope.tenant, ref.key, time, MAX_CALLS)).all()
    return ThreadPage(
        ref.branch,
        lineage.head,
        items,
        None if following is None else following.position,
        list({one.response_number: _facts(one) for one in calls if one.response_number is not None}.values()),
        [_call(one) for one in calls if one.call_format is not None],
        reports.UsageRow({}),
        (),
        {},
        {},
    )


def _call_window(
    items: Sequence[stored.StoredItem], following: stored.StoredItem | None, start: int
) -> statements.CallWindow:
    """What calls belong to a page: the first page has all that came before, the last one all that came after."""
    positions = [item.position for item in items] or [start]
    since = items[0].created_at if items and start else None
    until = None if following is None else following.created_at
    return statements.CallWindow(positions[0] if start else 0, positions[-1], since, until)


def _branches(row: driver.LazyRow, rows: Sequence[Any]) -> list[stored.Branch]:
    """All branches, with the one that a conversation begins with."""
    active = row.active_branch
    found = [stored.Branch(0, None, None, row.head_position, is_active=active == 0, created_at=row.created_at)]
    for one in rows:
        place = (one.number, one.parent, one.fork_position, one.head_position)
        found.append(stored.Branch(*place, is_active=active == one.number, created_at=one.created_at))
    return found


class _Annotations(NamedTuple):
    """Items with their labels and feedback, and what a `ThreadPage` has besides."""

    items: Sequence[stored.StoredItem]
    decisions: Mapping[int, Approval]
    marks: Mapping[str, Sequence[int]]


def _annotated(
    connection: Connection, ref: refs.BranchRef, lineage: refs.Lineage, items: Sequence[stored.StoredItem]
) -> _Annotations:
    """What is said about items, which is read at once."""
    if not items:
        return _Annotations([], {}, {})
    positions = [item.position for item in items]
    labels: dict[int, dict[str, str]] = {}
    feedback: dict[int, list[stored.Feedback]] = {}
    decisions: dict[int, Approval] = {}
    marks: dict[str, list[int]] = {}
    scope = ref.scope
    statement = statements.annotations_of(scope.tenant, ref.key, ref.branch, scope.user, positions, MAX_MARKS)
    for row in connection.execute(statement):
        kind, text = str(types.name_from(row.kind)), types.name_from(row.text)
        if row.branch is not None:
            if lineage.includes(ref.branch, row.position, row.branch):
                marks.setdefault(kind, []).insert(0, row.position)
        elif kind == "label":
            labels.setdefault(row.position, {})[row.name] = str(text)
        elif kind == "feedback":
            given = stored.Feedback(row.position, row.name or None, row.rating, text, row.updated_at)
            feedback.setdefault(row.position, []).append(given)
        else:
            decisions[row.position] = Approval(cast("Decision", kind), text, row.name, row.updated_at)
    annotated = [
        replace(item, labels=labels.get(item.position, {}), feedback=tuple(feedback.get(item.position, ())))
        for item in items
    ]
    return _Annotations(annotated, decisions, marks)


class ResponseContext(NamedTuple):
    """A response, the conversation on the branch of it, and the response before it on that branch."""

    conversation: Conversation
    response: stored.StoredResponse
    before: stored.StoredResponse | None


def response_with_previous(conversation: Conversation, number: int) -> ResponseContext:
    """Return a response of a conversation that is open on its first branch, and the one before it.

    Raises:
        NotFound: there is no such response.
    """
    handle = conversation.handle
    ref, state = handle.ref, handle.conversation

    def read(connection: Connection) -> tuple[Sequence[Any], refs.ConversationState]:
        found = (
            connection.execute(statements.responses_upto(ref.scope.tenant, ref.key, number, NEARBY)).mappings().all()
        )
        if not found or found[0]["number"] != number:
            hint = "Responses are counted from 0."
            raise NotFound(f"{ref.public_id} has no response {number}.", hint=hint)
        branch = found[0]["branch"]
        if not branch:
            return found, state
        return found, replace(state, branch=branch, fork=refs.get_lineage(connection, ref.on(branch), state.row))

    rows, opened = handle.transactions.read_any(read)
    response, *earlier = (responses.stored_response(row, ref.public_id) for row in rows)
    limits = {part.branch: part.last for part in opened.lineage.parts} | {response.branch: response.input_to}
    before = (one for one in earlier if -1 <= one.input_to < min(response.input_to, limits.get(one.branch, -2) + 1))
    return ResponseContext(Conversation(handle.on(opened)), response, next(before, None))


def is_answering(conversation: Conversation) -> bool:
    """Return whether an answer is in progress on the branch of a conversation."""
    ref = conversation.handle.ref
    statement = statements.open_response(ref.scope.tenant, ref.key, ref.branch)
    found = conversation.handle.transactions.read_any(lambda connection: connection.execute(statement).scalar())
    return found is not None


def _call(row: Any) -> LedgerCall:
    values = {name: getattr(row, f"call_{name}") for name in statements.CALL}
    return LedgerCall(**values | {"error": _json(values["error"], "usage_records")})


def _facts(row: Any) -> ResponseFacts:
    values = {name: getattr(row, f"response_{name}") for name in statements.RESPONSE}
    is_open, is_lost = values.pop("open_branch") is not None, values.pop("is_lost")
    values["status"] = positions.INCOMPLETE if is_lost else values["status"]
    texts = {name: _json(values[name], "responses") for name in ("error", "incomplete_details")}
    values["config_hash"] = bytes(values["config_hash"])
    return ResponseFacts(**values | texts, is_open=is_open and not is_lost)


def _json(text: str | None, table: str) -> Any:
    return None if text is None else jsontext.loads_stored(text, table, "an error")


# ---------------------------------------------------------------------------------------------------------------------
# How large the request is that the history of a conversation makes, without reading it


def settings_bytes(conversation: Conversation) -> int:
    """Return how many bytes the settings and tools of a conversation have, as it was opened."""
    opened = conversation.handle.cache.conversation
    return sum(len(jsontext.dumps(one)) for one in (opened.settings, *opened.tools))


def request_bytes(conversation: Conversation, most: int, upto: int | None = None) -> int:
    """Return about how many bytes the items of this branch have in a request, with their media in base64.

    Where all branches together have at most `most`, it covers all of them. `upto`: the last position that counts.
    """
    handle = conversation.handle
    return handle.transactions.read(lambda connection: read_request_bytes(connection, handle.ref, most, upto))


def read_request_bytes(connection: Connection, ref: refs.BranchRef, most: int, upto: int | None = None) -> int:
    """The same, of a branch."""
    size = _in_request(statements.sizes_of().fetch_all(connection, ref.parameters()))
    if size <= most:
        return size
    lineage, size = refs.get_lineage(connection, ref, refs.get_row(connection, ref)), 0
    ranges = lineage.ranges(ref.branch, -1, lineage.head if upto is None else upto)
    for first in range(0, len(ranges), refs.MAX_RANGES):
        count, parameters = refs.range_parameters(ranges[first : first + refs.MAX_RANGES])
        rows = statements.sizes_in(count).fetch_all(connection, parameters | ref.parameters())
        size += _in_request(rows)
    return size


def range_bytes(connection: Connection, ref: refs.BranchRef, after: int, upto: int) -> int:
    """Return about how many bytes the items of a branch have between positions, with their media in base64."""
    count, parameters = refs.range_parameters([(ref.branch, after, upto)])
    return _in_request(statements.sizes_in(count).fetch_all(connection, parameters | ref.parameters()))


def _in_request(rows: Sequence[driver.Row]) -> int:
    [(texts, media)] = rows
    return int(texts) + int(media) * 4 // 3
