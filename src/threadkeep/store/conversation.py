"""A stored conversation."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import cache, partial
from importlib import import_module
from inspect import CO_COROUTINE, CO_VARKEYWORDS
from types import FunctionType
from typing import Any, Final, Literal, Self, TypeVar, Unpack, overload

from threadkeep import public as tk
from threadkeep.domain import items as item_objects
from threadkeep.domain import jsontext
from threadkeep.domain import tools as tool_objects
from threadkeep.formats import FormatName
from threadkeep.store import context_caches
from threadkeep.store.history_sync import sync
from threadkeep.store.moving import exporting
from threadkeep.store.reading import calls, items, lists, rendering, siblings
from threadkeep.store.reading import responses as stored_responses
from threadkeep.store.removing import redaction, removal
from threadkeep.store.streaming import lifecycle, recorder, writer
from threadkeep.store.usage import ledger, reports
from threadkeep.store.work import positions, refs
from threadkeep.store.work import states as _states
from threadkeep.store.work.handle import ConversationAttributes, Handle, refusing_others
from threadkeep.store.work.refs import CACHE_CLAIM_SECONDS, CACHE_SECONDS, CACHE_THRESHOLD, DENIED, LEASE_SECONDS
from threadkeep.store.writing import annotations as _annotations
from threadkeep.store.writing import appending as _items
from threadkeep.store.writing import approvals, attempts, branches, importing, responses, updates, variants

T = TypeVar("T")
_GROUP: Final = re.compile(r"Unpack\[tk\.(\w+)\]")  # how the keyword arguments of methods are annotated


def refuses_unknown_names(cls: type[T]) -> type[T]:
    """Let the public methods of a class refuse keyword arguments that they do not have, and say what may be meant."""
    for name, method in list(vars(cls).items()):
        if isinstance(method, FunctionType) and (name == "__init__" or not name.startswith("_")):
            code, annotations = method.__code__, map(str, method.__annotations__.values())
            group = next(filter(None, map(_GROUP.fullmatch, annotations)), None)
            if not code.co_flags & CO_COROUTINE and (group or not code.co_flags & CO_VARKEYWORDS):
                count = code.co_argcount + code.co_kwonlyargcount
                names = [name for name in code.co_varnames[code.co_posonlyargcount : count] if name != "self"]
                setattr(cls, name, refusing_others(method, cache(partial(_names, names, group and group[1]))))
    return cls


def _names(own: Sequence[str], group: str | None) -> Mapping[str, Any]:
    """The names of a method's keyword arguments: its own, and those in a public TypedDict."""
    more = {} if group is None else getattr(import_module("threadkeep"), group).__annotations__
    return dict.fromkeys(own) | more


@refuses_unknown_names
class Conversation(ConversationAttributes):
    """A stored conversation, on one of its branches.

    Created by a Store. It keeps the items it has read and, for each request, only reads new ones. Open the conversation
    separately in each thread or task; a shared object may read items twice.
    """

    def __init__(self, handle: Handle, *, replayed: bool = False) -> None:
        self.handle, self.replayed = handle, replayed

    def user(
        self, content: tk.Content, *, author_id: str | None = None, **options: Unpack[tk.AppendOptions]
    ) -> tk.StoredItem:
        """Append a user message: text, a content part, a dict, or a list of these.

        Options: `idempotency_key` (a repeated call with the same key and content writes nothing), `expected_head` (the
        position where the branch must end; -1 if empty), and `on_conflict` ("raise", "append" or "branch"), which
        decides what happens if the branch ends elsewhere or a response is in progress on it. "append" ends that
        response. `states` are written in the same transaction (see `set_state`).

        Raises:
            InvalidItem, InvalidOption: the content or an option cannot be used.
            NotFound: the conversation was deleted, or belongs to someone else.
            HeadConflict, ResponseInProgress: the branch has changed or is in use, and `on_conflict` is "raise".
            StateConflict: a state of `states` has another version than expected.
            IdempotencyConflict: the key was used before with different content.
            TooLarge: a value exceeds a limit. In all of these cases, nothing was written.
        """
        return _items.append_message(self.handle, "user", content, options, author_id)

    def assistant(
        self, content: tk.Content, *, author_id: str | None = None, **options: Unpack[tk.AppendOptions]
    ) -> tk.StoredItem:
        """Append an assistant message; text becomes `output_text`. Options and errors as for `user`."""
        return _items.append_message(self.handle, "assistant", content, options, author_id)

    def system(
        self, content: tk.Content, *, author_id: str | None = None, **options: Unpack[tk.AppendOptions]
    ) -> tk.StoredItem:
        """Append a system message. Options and errors as for `user`."""
        return _items.append_message(self.handle, "system", content, options, author_id)

    def developer(
        self, content: tk.Content, *, author_id: str | None = None, **options: Unpack[tk.AppendOptions]
    ) -> tk.StoredItem:
        """Append a developer message. Options and errors as for `user`."""
        return _items.append_message(self.handle, "developer", content, options, author_id)

    def add_item(
        self,
        item: tk.ItemInput,
        *,
        author_id: str | None = None,
        known: bool = True,
        **options: Unpack[tk.AppendOptions],
    ) -> tk.StoredItem:
        """Append an item of any type: a typed item, or an Open Responses dict. Options and errors as for `user`.

        InvalidItem is raised for what no model would see: a dict of an unknown type, media without a source, an output
        of a call that is not there or has one already. With ``known=False``, the item is taken as it is, as a provider
        or library has it.
        """
        return _items.append_item(self.handle, item, options, author_id, known=known)

    def add_items(
        self,
        items: Iterable[tk.ItemInput],
        *,
        author_id: str | None = None,
        unique_ids: bool = False,
        known: bool = True,
        **options: Unpack[tk.AppendOptions],
    ) -> list[tk.StoredItem]:
        """Append several items, all or none. `known`, options and errors as for `add_item`.

        With `unique_ids`, InvalidItem is raised for an item whose id another one, or an item of the branch, has: for
        input of clients, which may send what is stored once more.
        """
        return _items.append_items(self.handle, items, options, author_id, unique_ids=unique_ids, known=known)

    def add_function_call_output(
        self,
        *,
        call_id: str | None,
        output: item_objects.Output | None = jsontext.UNSET,
        result: item_objects.Output | None = jsontext.UNSET,
        status: str | None = None,
        **options: Unpack[tk.AppendOptions],
    ) -> tk.StoredItem:
        """Append the result of a function call: text or content parts (`result` is an alias of `output`).

        Options (`idempotency_key`, `expected_head`, `on_conflict`) and errors as for `user`.
        """
        return _items.append_call_output(self.handle, call_id, output, result, status, options)

    def pending_calls(self) -> list[tk.PendingCall]:
        """Return the calls on this branch that wait for an output, with their arguments and decisions, in order.

        Calls with the same id are in the order in which outputs with it answer them. A call that had no output when the
        model went on is not among them: later requests say that its result is missing. Neither is one whose arguments
        broke off.
        """
        return calls.pending_calls(self.handle)

    def next_step(self) -> tk.NextStep:
        """Return whose turn it is on this branch: "tools" if calls wait for an output, also for a decision about them.

        Otherwise "model" if it ends with a message of the user or an output that was not answered, and "user" in all
        other cases: it is empty, or ends with a response. After one that failed, you decide: `render` has the same
        request again, `regenerate` one on a branch of its own, and a loop that asked by itself might ask for ever.
        Compactions and system messages mean no turn.
        """
        return calls.next_step(self.handle)

    def approve(
        self, call: str | int, *, decided_by: str | None = None, idempotency_key: str | None = None
    ) -> tk.PendingCall:
        """Approve a call and return it. It is given by its `call_id`, its position or its item's id.

        `decided_by` is your id of the person who decided.

        Raises:
            NotFound: there is no such call on this branch.
            Conflict: it was approved or denied before, has an output, another call with its id is answered first, or
                the model has gone on without it.
            InvalidOption, IdempotencyConflict: nothing was written; an id that names two calls is refused, too.
        """
        return approvals.approve(self.handle, call, decided_by, idempotency_key)

    def deny(
        self,
        call: str | int,
        *,
        reason: str = DENIED,
        decided_by: str | None = None,
        idempotency_key: str | None = None,
    ) -> tk.StoredItem:
        """Deny a call, and append its output, which is the `reason`; return that. Errors as for `approve`.

        Raises:
            ResponseInProgress: the branch is in use; nothing was written.
        """
        return approvals.deny(self.handle, call, reason, decided_by, idempotency_key)

    def add_input(self, turns: Any, format: FormatName, **options: Unpack[tk.AppendOptions]) -> list[tk.StoredItem]:
        """Append turns in a provider's format (messages, contents, items), such as user turns and tool results.

        Outputs that do not name their call are matched with the open calls of the stored history. Options and errors as
        for `user`.
        """
        return importing.add_input(self.handle, turns, format, options)

    def sync_request(self, payload: Any, format: FormatName, **options: Unpack[tk.AppendOptions]) -> tk.SyncResult:
        """Append only what is new in the history of a request from a client that keeps its own history.

        Histories are compared by the content of their turns, not by ids, cache marks, turn boundaries or reasoning. If
        the client cut off the beginning of the history, only what is new is appended. A history that differs goes to a
        new branch, named by `branch` of the result; this conversation stays on its branch. The stored instructions and
        settings are not changed. Options and errors as for `user`.

        Raises:
            UnknownFormat, CannotParse: the payload is not a request in that format.
        """
        return sync.sync_request(self.handle, payload, format, options)

    def add_response(
        self, body: Any, format: FormatName, *, rendered: tk.Rendered | None = None, idempotency_key: str | None = None,
        expected_head: int | None = None, on_conflict: tk.OnConflict = "raise", provider: str | None = None,
        latency_ms: float | None = None, first_token_ms: float | None = None, occurred_at: datetime | None = None,
        headers: Mapping[str, str] | None = None, states: Mapping[str, Any] | None = None,
        base_url: str | None = None, service_tier: str | None = None,
    ) -> tk.Response:  # fmt: skip
        """Append a provider's response in one transaction: items, response, raw body, and a row in the usage ledger.

        `body` is a dict, JSON text, or an object from the provider's SDK; `rendered` is the request it responds to.
        With an `idempotency_key` (one per response, such as its id), the same response is only stored once.
        `on_conflict` decides what happens if the branch does not end at `expected_head`: "raise", "append" anyway, or
        append to a new "branch". `states` are written in the same transaction (see `set_state`). `occurred_at` is when
        the provider gave it, for importers. Prices may depend on `base_url`, the URL of the provider or gateway, and on
        `service_tier`, where the body does not say it, as "batch".

        Raises:
            ProviderError: the body is an error; its ledger row was written.
            HeadConflict, ResponseInProgress: the branch has changed or is in use; the ledger row was written.
            UnknownFormat, CannotParse, InvalidItem, NotFound, IdempotencyConflict, StateConflict, TooLarge: nothing was
                written.
        """
        options: positions.AppendOptions = {
            "idempotency_key": idempotency_key, "expected_head": expected_head, "on_conflict": on_conflict,
            "states": states,
        }  # fmt: skip
        call: ledger.CallInfo = {
            "provider": provider, "latency_ms": latency_ms, "first_token_ms": first_token_ms,
            "occurred_at": occurred_at, "headers": headers, "base_url": base_url, "service_tier": service_tier,
        }  # fmt: skip
        return responses.add_response(self.handle, body, format, rendered, options, call)

    def add_turn(
        self, input: Any, body: Any, format: FormatName, *, rendered: tk.Rendered | None = None,
        idempotency_key: str | None = None, expected_head: int | None = None, on_conflict: tk.OnConflict = "raise",
        provider: str | None = None, latency_ms: float | None = None, first_token_ms: float | None = None,
        occurred_at: datetime | None = None, headers: Mapping[str, str] | None = None,
        states: Mapping[str, Any] | None = None, base_url: str | None = None, service_tier: str | None = None,
    ) -> tk.StoredTurn:  # fmt: skip
        """Append a whole turn in one transaction: what was asked, and the provider's response to it; return both.

        `input` is text or content of a user message, an item or a list of items, or turns in the provider's format, as
        for `add_input`. Options and errors as for `add_response`; if the body is an error, `input` is not stored, and
        only the ledger row is written.
        """
        options: positions.AppendOptions = {
            "idempotency_key": idempotency_key, "expected_head": expected_head, "on_conflict": on_conflict,
            "states": states,
        }  # fmt: skip
        call: ledger.CallInfo = {
            "provider": provider, "latency_ms": latency_ms, "first_token_ms": first_token_ms,
            "occurred_at": occurred_at, "headers": headers, "base_url": base_url, "service_tier": service_tier,
        }  # fmt: skip
        return importing.add_turn(self.handle, input, body, format, rendered, options, call)

    def stream_response(
        self, format: FormatName, *, rendered: tk.Rendered | None = None, idempotency_key: str | None = None,
        expected_head: int | None = None, on_conflict: tk.OnConflict = "raise", provider: str | None = None,
        latency_ms: float | None = None, first_token_ms: float | None = None,
        headers: Mapping[str, str] | None = None, states: Mapping[str, Any] | None = None, lease: float = LEASE_SECONDS,
        base_url: str | None = None, service_tier: str | None = None,
    ) -> tk.Recorder:  # fmt: skip
        """Return a recorder for a streamed response: a context manager with `feed`, which takes the provider's events.

        When the `with` statement ends, the response is stored as by `add_response`, with its status (`completed`,
        `incomplete`, `cancelled` or `failed`), and is available as `.response`. Latency is measured unless `latency_ms`
        is given. The recorder renews its lease automatically. If it stops doing so for `lease` seconds, the next writer
        may end the response. A branch can have only one response in progress; if there is another one, `on_conflict`
        decides, and "append" ends it. `states` are written with the response, unless it fails or is left by an error.
        Other options as for `add_response`.

        Raises:
            ResponseInProgress, HeadConflict, UnknownFormat, InvalidOption, NotFound, IdempotencyConflict: on entering.
            StateConflict: on entering, or at the end; then the response is stored, and the states are not.
        """
        options: positions.AppendOptions = {
            "idempotency_key": idempotency_key, "expected_head": expected_head, "on_conflict": on_conflict,
            "states": states,
        }  # fmt: skip
        call: ledger.CallInfo = {
            "provider": provider, "latency_ms": latency_ms, "first_token_ms": first_token_ms, "headers": headers,
            "base_url": base_url, "service_tier": service_tier,
        }  # fmt: skip
        return recorder.Recorder(writer.stream_response(self.handle, format, rendered, options, call, lease))

    def cancel_response(self, number: int | None = None) -> bool:
        """Ask the recorder of a response in progress to stop: the one on this branch, or the one with that number.

        Its `cancel_requested` becomes true with its next batch of events, or when it renews its lease; then the
        response ends as `cancelled`. Returns whether one was in progress and had a recorder.

        Raises:
            NotFound: there is no response with that number.
        """
        return lifecycle.cancel_response(self.handle, number)

    def partial_response(self, number: int | None = None) -> tk.Response | None:
        """Return what has come of a response in progress: the one on this branch, or the one with that number.

        Whichever process records it, what is stored is up to a second behind. None if no such response is in progress.
        """
        return recorder.partial_response(self.handle, number)

    def record_attempt(
        self, format: FormatName, *, error: Any = None, model: str | None = None, status: str | None = None,
        usage: tk.Usage | tk.NormalizedUsage | Mapping[str, Any] | None = None, response: int | str | None = None,
        provider: str | None = None, latency_ms: float | None = None, first_token_ms: float | None = None,
        occurred_at: datetime | None = None, idempotency_key: str | None = None, base_url: str | None = None,
        service_tier: str | None = None,
    ) -> None:  # fmt: skip
        """Record a call as a row in the usage ledger: one without a response, or one whose items are stored already.

        `usage` is the provider's usage object in this format, or a Usage or NormalizedUsage; its cost is computed as
        usual. `response` (number or id) names a stored response, whose model and status apply unless others are given.
        Without one, the status is `completed` if there is usage and no error, else `failed`.

        Raises:
            UnknownFormat, InvalidOption, NotFound, IdempotencyConflict: nothing was written.
        """
        call: ledger.CallInfo = {
            "provider": provider, "latency_ms": latency_ms, "first_token_ms": first_token_ms,
            "occurred_at": occurred_at, "base_url": base_url, "service_tier": service_tier,
        }  # fmt: skip
        report = attempts.Report(error, model, status, usage, response)
        attempts.report_attempt(self.handle, format, call, report, idempotency_key)

    def compact(
        self,
        *,
        upto: int | None = None,
        summary: str | None = None,
        item: Any = None,
        **options: Unpack[tk.AppendOptions],
    ) -> tk.StoredItem:
        """Replace the items up to a position (None: all) with a summary in future requests. Nothing is deleted.

        `item` is a provider's own compaction item: OpenAI's, which stands for all but the user's messages in requests
        in its format, or Anthropic's block, whose text other formats get. Turns are compacted as a whole, and
        so are calls with their outputs; `upto` of the returned item says where the summary actually ends. `transcript`
        still returns all items, and `undo_compaction` reverts the last compaction. Options as for `user`.

        Raises:
            InvalidOption, InvalidItem: there is nothing to compact, or not exactly one of `summary` and `item` is
                given.
            NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict: nothing was written.
        """
        return variants.compact(self.handle, upto, summary, item, options)

    def undo_compaction(self, **options: Unpack[tk.AppendOptions]) -> tk.StoredItem:
        """Revert the last compaction. Options as for `user`.

        Raises:
            InvalidOption: there is no compaction.
        """
        return variants.undo_compaction(self.handle, options)

    def pop(self, **options: Unpack[tk.AppendOptions]) -> tk.StoredItem | None:
        """Remove the newest item of this branch and return it; None if the branch is empty.

        Of several callers at the same time, each gets another item. Options and errors as for `user`, except that
        `on_conflict` cannot be "branch". A repeated call with the same key returns the item without its content.
        """
        return removal.pop(self.handle, options)

    def remove_item(self, position: int | str, *, purge: bool = False, idempotency_key: str | None = None) -> None:
        """Remove an item from this branch; other branches keep it.

        It is neither listed nor rendered any more. If no other branch has it, a search does not find it and, with
        `purge`, its row is deleted.

        Raises:
            NotFound: this branch has no such item.
            ResponseInProgress, IdempotencyConflict: nothing was removed.
        """
        removal.remove_item(self.handle, position, purge, idempotency_key)

    def clear(self, *, purge: bool = True, idempotency_key: str | None = None) -> None:
        """Remove all items from this branch, as `remove_item` does. Options and tools stay."""
        removal.clear(self.handle, purge, idempotency_key)

    def redact_item(self, position: int | str, *, idempotency_key: str | None = None) -> None:
        """Remove the content of an item for good, on all branches; the item stays, with its type, ids and names.

        Its text becomes ``[redacted]``, and the arguments of a call ``{}``. Its media, its search document and the raw
        body of the response that it came in are deleted. What repeats the call that stored it, with its idempotency
        key, gets IdempotencyConflict.

        Raises:
            NotFound: the conversation has no such item.
            ResponseInProgress, IdempotencyConflict: nothing was changed.
        """
        redaction.redact_item(self.handle, position, idempotency_key)

    def render(self, format: FormatName, **view: Unpack[tk.ViewOptions]) -> tk.Rendered:
        """Render the next request for a provider, with its losses and repairs. Only reads what is new.

        `view` can contain `strict` (raise LossError instead of reporting losses), `upto`, `window`, `vision`,
        `reasoning`, `cache`, `dynamic_context`, `dynamic_context_at`, `dialect` and `server_state`: see `ViewOptions`,
        and the page Views of the documentation.

        Raises:
            UnknownFormat, InvalidOption, NotFound: the format, an option or the conversation cannot be used.
            CannotRender: the provider would reject any request rendered from this conversation.
            LossError: `strict` is set and the request is not exact.
        """
        return rendering.render(self.handle, format, view)

    def request_payload(self, format: FormatName, **view: Unpack[tk.ViewOptions]) -> jsontext.JsonObject:
        """Return the next request as a dict.

        Options (`strict`, `upto` …) and errors as for `render`.
        """
        return rendering.render(self.handle, format, view).payload

    def request_body(self, format: FormatName, **view: Unpack[tk.ViewOptions]) -> bytes:
        """Return the next request as JSON in UTF-8, which is the fastest way.

        Options (`strict`, `upto` …) and errors as for `render`.
        """
        return rendering.render(self.handle, format, view).body

    def plan_context_cache(
        self,
        format: FormatName,
        *,
        threshold: int = CACHE_THRESHOLD,
        ttl: float | timedelta = CACHE_SECONDS,
        dynamic_tokens: int = 0,
        lease: float | timedelta = CACHE_CLAIM_SECONDS,
        **view: Unpack[tk.ViewOptions],
    ) -> tk.CachePlan:
        """Plan an explicit cache (Gemini's `cachedContent`) of what requests have in common; return a `CachePlan`.

        A new cache is worthwhile if at least `threshold` tokens of the latest request were not cached (-1: never). It
        then holds everything except the last turn. `dynamic_tokens` is the number of these tokens that belong to the
        dynamic context, if you know it. All conversations of the tenant that begin alike share a cache, within one
        `account` (your name for a project or API key of the provider). A worker that is asked to create a cache has a
        claim on it for `lease` seconds, while the others wait. `ttl` is the lifetime of the cache in seconds. `view`
        takes the options of `render`; use the same ones for the requests.

        Raises:
            InvalidOption, UnknownFormat: the provider has no such caches, or an option cannot be used.
            NotFound, CannotRender: there is nothing to cache.
        """
        policy = context_caches.CachePolicy.of(threshold, ttl, lease, dynamic_tokens)
        return context_caches.plan_context_cache(self.handle, format, policy, rendering.render_options(view))

    def record_context_cache(
        self, plan: tk.CachePlan, *, name: str | None, expires_at: datetime | str | None = None
    ) -> tk.CachePlan:
        """Record the outcome of a plan: the `name` of the new cache, or None if it could not be created.

        `expires_at` is the time the provider returned (text or datetime); by default, the planned time. From then on,
        requests with `cache="auto"` use the cache. Returns the resulting plan; delete the caches listed in its `delete`
        at the provider.

        Raises:
            InvalidOption: it is not a plan to create a cache, or a value cannot be used.
            NotFound: the conversation was deleted.
        """
        return context_caches.record_context_cache(self.handle, plan, name, expires_at)

    def session(self) -> tk.Session:
        """Return a detached copy: options, tools and the items of this branch."""
        return rendering.detach(self.handle)

    def clone_config(self) -> tk.Session:
        """Return a detached session with the same options and tools, without items."""
        return rendering.clone_config(self.handle)

    def items(
        self,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        limit: int = 100,
        order: Literal["asc", "desc"] = "asc",
        annotations: bool = False,
        variants: bool = False,
        media: Literal["inline", "reference"] = "inline",
    ) -> tk.Page[tk.StoredItem]:
        """Return a page of this branch's items: those after or before a position or item id (exclusive).

        They come oldest first, or newest first with ``order="desc"``; `after` then continues towards older items. Of
        several items with that id, it is the one that leaves no item to be shown twice. With `annotations`, labels and
        feedback of the items are read, too; with `variants`, the variants at their places (`siblings`).

        With `media="reference"`, media of 8 KiB or more are not read: `Store.media` returns them by their references.

        Raises:
            InvalidOption: an argument cannot be used.
            NotFound: the branch has no item with that id.
        """
        return items.list_items(
            self.handle, before, after, limit, order, media, annotations=annotations, variants=variants
        )

    def get_item(
        self, position: int | str, *, annotations: bool = False, media: Literal["inline", "reference"] = "inline"
    ) -> tk.StoredItem:
        """Return the item of this branch at a position, or with an id; the newest one if several have that id.

        With `annotations`, its labels and feedback are read, too. `media` as for `items`.

        Raises:
            NotFound: the branch has no such item.
        """
        return items.get_item(self.handle, position, media, annotations=annotations)

    def label_item(
        self, position: int | str, labels: Mapping[str, str] | None, *, idempotency_key: str | None = None
    ) -> None:
        """Replace the labels of an item of this branch, given by its position or id; None removes them.

        Raises:
            NotFound: the branch has no such item.
            InvalidOption, IdempotencyConflict: nothing was written.
        """
        _annotations.label_item(self.handle, position, labels, idempotency_key)

    def set_feedback(
        self,
        position: int | str,
        *,
        rating: int | None = None,
        comment: str | None = None,
        user_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> tk.Feedback | None:
        """Store what a user thinks of an item, instead of what the user said before; without both, remove that.

        `rating` is a whole number in the application's own scale. In a store for one user, `user_id` is that user.

        Raises:
            NotFound: the branch has no such item.
            InvalidOption, TooLarge, IdempotencyConflict: nothing was written.
        """
        return _annotations.set_feedback(self.handle, position, rating, comment, user_id, idempotency_key)

    def feedback(self, position: int | str | None = None) -> list[tk.Feedback]:
        """Return the feedback on an item, or on all items of this branch; in a store for one user, that user's own.

        Raises:
            NotFound: the branch has no such item.
        """
        return _annotations.list_feedback(self.handle, position)

    def mark_seen(self, user_id: str | None = None, *, position: int | None = None, move_back: bool = False) -> tk.Seen:
        """Note that a user has seen everything so far, or everything up to a position, on all branches.

        By default, it is the user of the store, or else of the conversation. A mark does not move back, so that a
        device that lags behind marks nothing as unread, unless `move_back` is set.

        Raises:
            InvalidOption: the store is limited to another user, or there is no user.
        """
        return lists.mark_seen(self.handle, user_id, position, move_back=move_back)

    def seen(self, user_id: str | None = None) -> tk.Seen | None:
        """Return how far a user has read; None for one who has not marked anything as seen. Users as `mark_seen`."""
        return lists.find_seen(self.handle, user_id)

    def transcript(
        self, *, last: int | None = None, media: Literal["inline", "reference"] = "inline"
    ) -> list[tk.StoredItem]:
        """Return all items of this branch in order, or only the `last` ones. `media` as for `items`."""
        return items.list_all_items(self.handle, last, media)

    def to_markdown(self) -> str:
        """Return this branch as readable Markdown, in which no text can pretend to be anything else."""
        return exporting.to_markdown(self.handle)

    def responses(self, *, after: int | str | None = None, limit: int = 100) -> tk.Page[tk.StoredResponse]:
        """Return a page of the responses on all branches, oldest first."""
        return stored_responses.list_responses(self.handle, after, limit)

    def get_response(self, response: int | str) -> tk.StoredResponse:
        """Return a response by its number or id (the provider's: the newest one with it).

        Raises:
            NotFound: there is no such response.
        """
        return stored_responses.get_response(self.handle, response)

    def input_items(
        self,
        response: int | str,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        limit: int = 100,
        order: Literal["asc", "desc"] = "asc",
    ) -> tk.Page[tk.StoredItem]:
        """Return a page of the items that the request of a response contained, as `items` does. Errors as there."""
        return stored_responses.list_input(self.handle, response, after, before, limit, order)

    def output_items(self, response: int | str) -> list[tk.StoredItem]:
        """Return the items of a response, in order, except those that were removed since."""
        return stored_responses.list_output(self.handle, response)

    def response_body(self, number: int) -> bytes:
        """Return the raw body of a response.

        Raises:
            NotFound: there is no such body, or it was removed by `retain`.
        """
        return stored_responses.read_body(self.handle, number)

    @overload
    def usage(self, *, by: tuple[()] = ()) -> tk.UsageRow: ...  # type: ignore[overload-overlap]  # () is empty
    @overload
    def usage(self, *, by: Sequence[tk.UsageKey] | tk.UsageKey) -> list[tk.UsageRow]: ...
    def usage(self, *, by: Sequence[tk.UsageKey] | tk.UsageKey = ()) -> tk.UsageRow | list[tk.UsageRow]:
        """Return the usage of this conversation.

        Without `by`, the result is a single UsageRow; with `by` ("response", "model", "day" …), a list of them.
        """
        return reports.usage_of_conversation(self.handle, by)

    def fork(
        self, at: int | str | None = None, *, before: int | str | None = None, idempotency_key: str | None = None
    ) -> Self:
        """Create a branch with the items up to and including one (default: all; -1: none), and return it.

        The item is given by its position or id. With `before`, the branch contains the items before that item.

        Raises:
            NotFound: this branch has no such item.
            InvalidOption: both `at` and `before` are given.
        """
        conversation, is_replayed = branches.fork(self.handle, at, before, idempotency_key)
        return self._on(conversation, replayed=is_replayed)

    def siblings(self, position: int | str) -> tk.Siblings:
        """Return the variants at the place of an item, given by its position or id: all items that follow the same one.

        An item that came in a response, or in a message with others, stands for the first of these.

        Raises:
            NotFound: this branch has no such item.
        """
        return siblings.siblings(self.handle, position)

    def edit(
        self,
        position: int | str,
        content: tk.Content,
        *,
        author_id: str | None = None,
        idempotency_key: str | None = None,
    ) -> Self:
        """Create a branch with another user message in the place of one, given by its position or id; return it.

        It becomes the active branch, and its `head` is the new message, also if the call is repeated with the same key.
        Nothing on this branch changes.

        Raises:
            NotFound: this branch has no such item.
            InvalidOption: the item is not a message of the user.
            InvalidItem, IdempotencyConflict, TooLarge: nothing was written.
        """
        conversation, written = variants.edit(self.handle, position, content, author_id, idempotency_key)
        return self._on(conversation, replayed=written is not None, head=written)

    def regenerate(self, position: int | str | None = None, *, idempotency_key: str | None = None) -> Self:
        """Create a branch that ends before the newest answer, and return it, ready to be rendered.

        An answer is everything that follows a message of the user; `position` selects another one, by any of its items
        or by the message that it answers. The branch becomes the active one. A message that has no answer, because the
        model failed before any output, is to be answered on this branch.

        Raises:
            NotFound: this branch has no such item.
            InvalidOption: the user has said nothing.
            IdempotencyConflict: nothing was written.
        """
        conversation, is_replayed = variants.regenerate(self.handle, position, idempotency_key)
        return self._on(conversation, replayed=is_replayed)

    def on_branch(self, number: int) -> Self:
        """Return the conversation on another branch.

        Raises:
            NotFound: there is no branch with that number.
        """
        return self._on(branches.open_branch(self.handle, number))

    def branches(self, *, after: int | str | None = None, limit: int = 100) -> tk.Page[tk.Branch]:
        """Return a page of the conversation's branches."""
        return branches.list_branches(self.handle, after, limit)

    def set_active_branch(self, number: int, *, idempotency_key: str | None = None) -> None:
        """Choose the branch that `get_conversation` opens.

        Raises:
            NotFound: there is no branch with that number.
        """
        updates.set_active_branch(self.handle, number, idempotency_key)

    def state(self, name: str) -> tk.State | None:
        """Return the state with that name, or None."""
        return _states.find_state(self.handle, name)

    def states(self, *, after: str | None = None, limit: int = 100) -> list[tk.State]:
        """Return the states, by name: all of them, or a page of those whose names come after one."""
        return _states.list_states(self.handle, after, limit)

    def set_state(
        self, name: str, value: Any, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> tk.State:
        """Write a small JSON value of the conversation, for all branches, and return it with its version.

        With `expected_version`, it is only written if the state still has that version (0: if it does not exist).

        Raises:
            StateConflict: the state has another version.
            InvalidOption, TooLarge, IdempotencyConflict: it is not JSON, has over 1 MiB, or is the 101st state.
        """
        return _states.set_state(self.handle, name, value, expected_version, idempotency_key)

    def delete_state(
        self, name: str, *, expected_version: int | None = None, idempotency_key: str | None = None
    ) -> bool:
        """Delete a state; return whether there was one. Errors as for `set_state`."""
        return _states.delete_state(self.handle, name, expected_version, idempotency_key)

    def update(self, *, idempotency_key: str | None = None, **options: Unpack[tk.UpdateOptions]) -> None:
        """Change session options (None removes one), `title`, `user_id`, `external_id`, or all `labels` (`properties`).

        Raises:
            InvalidOption: an option is unknown or cannot be used; nothing was written.
        """
        updates.update(self.handle, options, idempotency_key)

    def json_output(
        self,
        schema: Mapping[str, Any],
        *,
        name: str = "response",
        strict: bool | None = None,
        description: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Ask for responses in JSON that match this schema. Errors as for `update`."""
        options = {"name": name, "strict": strict, "description": description}
        updates.request_json(self.handle, schema, options, idempotency_key)

    def think(
        self,
        enabled: bool | None = None,
        *,
        effort: str | None = None,
        budget_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Ask for reasoning with an effort or a token budget; ``think(False)`` removes the setting.

        Errors as for `update`.
        """
        options = {"effort": effort, "budget_tokens": budget_tokens}
        updates.think(self.handle, enabled, options, idempotency_key)

    def register_tool(
        self,
        /,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        *,
        idempotency_key: str | None = None,
        **extra: Any,
    ) -> tk.Tool:
        """Offer a function to the model. A tool with the same name is replaced. Errors as for `update`."""
        tool = tool_objects.FunctionTool(name, description, parameters, strict, **extra)
        return updates.add_tools(self.handle, "register_tool", [tool], idempotency_key)[0]

    def register_tools(
        self, tools: tk.ToolRegistry | Iterable[tk.Tool | Mapping[str, Any]], *, idempotency_key: str | None = None
    ) -> list[tk.Tool]:
        """Offer the tools of a registry, or of a list of definitions (functions and built-in tools); return them."""
        return updates.add_tools(self.handle, "register_tools", tool_objects.tools_from(tools), idempotency_key)

    def use_tools(
        self, *names: str, registry: tk.ToolRegistry | None = None, idempotency_key: str | None = None
    ) -> list[tk.Tool]:
        """Offer tools of a registry by name, or all of them; return them. By default, from the default registry.

        Raises:
            ToolNotFound: the registry has no such tool.
        """
        tools = tool_objects.source_registry(registry).chosen(names)
        return updates.add_tools(self.handle, "use_tools", tools, idempotency_key)

    def remove_tool(self, name: str, *, idempotency_key: str | None = None) -> tk.Tool | None:
        """Stop offering a tool; return its definition, or None if there was no such tool."""
        return updates.remove_tool(self.handle, name, idempotency_key)

    def clear_tools(self, *, idempotency_key: str | None = None) -> list[tk.Tool]:
        """Stop offering all tools; return their definitions."""
        return updates.clear_tools(self.handle, idempotency_key)

    def archive(self, *, idempotency_key: str | None = None) -> None:
        """Hide the conversation from listings by default. It can still be read and appended to."""
        updates.set_status(self.handle, "archived", idempotency_key)

    def unarchive(self, *, idempotency_key: str | None = None) -> None:
        """Show the conversation in listings again."""
        updates.set_status(self.handle, "active", idempotency_key)

    def _on(self, conversation: refs.ConversationState, *, replayed: bool = False, head: int | None = None) -> Self:
        handle = self.handle.on(conversation)
        if head is not None:
            handle.cache.know(conversation, head)
        return type(self)(handle, replayed=replayed)
