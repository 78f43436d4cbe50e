"""A stored conversation."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Literal, Self, TypeVar, Unpack, overload

from threadkeep.domain.items import UNSET
from threadkeep.domain.option_types import ChangedOptions
from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.domain.stored import Branch, Page, StoredItem, StoredResponse, SyncResult
from threadkeep.domain.tools import FunctionTool, Tool, ToolRegistry, default_registry, tools_from
from threadkeep.domain.usage import UsageRow
from threadkeep.domain.wire import Rendered
from threadkeep.store.actions.opening import Opened
from threadkeep.store.answers import Call
from threadkeep.store.contents import Contents
from threadkeep.store.database import SyncRunner
from threadkeep.store.face_views import SyncViews
from threadkeep.store.handle_changes import Changes
from threadkeep.store.handle_reads import Reads
from threadkeep.store.handle_writes import Writes
from threadkeep.store.recorder import Recorder
from threadkeep.store.recording import LEASE_SECONDS
from threadkeep.store.requests import How, OnConflict

T = TypeVar("T")


class Conversation(Writes, SyncViews, Reads, Changes):
    """A conversation in the database.

    Made by a Store. It reads what is new when it renders, and remembers what it has read.
    """

    def __init__(self, found: Opened, contents: Contents, runner: SyncRunner) -> None:
        super().__init__(found, contents)
        self._runner = runner
        self._remembers = runner.remembers

    def user(self, content: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Append a user message: text, a content part, a dict, or a list of them.

        In `how`: `idempotency_key` (the same key and content writes once), `expected_head` (the position where the
        branch must end, -1: empty), and `on_conflict` ("raise", "append" or "branch"), for when it ends elsewhere or
        a response is in progress there, which "append" ends.

        Raises:
            InvalidItem, InvalidOption, NotFound, HeadConflict, ResponseInProgress, IdempotencyConflict, TooLarge.
        """
        return self._run(self._saying("user", content, how, author_id))

    def assistant(self, content: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Append an assistant message; a text becomes `output_text`. Options in `how` and errors as `user`."""
        return self._run(self._saying("assistant", content, how, author_id))

    def system(self, content: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Append a system message. Options in `how` and errors as `user`."""
        return self._run(self._saying("system", content, how, author_id))

    def developer(self, content: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Append a developer message. Options in `how` and errors as `user`."""
        return self._run(self._saying("developer", content, how, author_id))

    def add_item(self, item: Any, *, author_id: str | None = None, **how: Unpack[How]) -> StoredItem:
        """Append an item of any type: a typed item, or a dict in the way of Open Responses. The rest is as `user`."""
        return self._run(self._adding_one(item, how, author_id))

    def add_items(self, items: Iterable[Any], *, author_id: str | None = None, **how: Unpack[How]) -> list[StoredItem]:
        """Append several items, all or none; options in `how` and errors as `user`."""
        return self._run(self._adding_many(items, how, author_id))

    def add_function_call_output(
        self,
        *,
        call_id: str | None,
        output: Any = UNSET,
        result: Any = UNSET,
        status: str | None = None,
        **how: Unpack[How],
    ) -> StoredItem:
        """Append what a called function returned: text or content parts (`result` is another name of `output`).

        Options in `how` (`idempotency_key`, `expected_head`, `on_conflict`) and errors as `user`.
        """
        return self._run(self._outputting(call_id, output, result, status, how))

    def add_input(self, turns: Any, format: str, **how: Unpack[How]) -> list[StoredItem]:
        """Append a provider's turns (messages, contents, items): user turns, tool results, as they stand in a request.

        Outputs that do not name their call go to the open calls of the stored history. Options and errors as `user`.
        """
        return self._run(self._inputting(turns, format, how))

    def sync_request(self, payload: Any, format: str, **how: Unpack[How]) -> SyncResult:
        """Append what is new in the history of a request that a client holds itself; nothing where it only echoes.

        Histories are compared by what their turns say, not by ids, marks, borders or reasoning. Of a history that was
        cut at its beginning only what is new is appended; one that differs goes on a branch of its own, which
        `branch` of the result names (this handle stays). Instructions and settings stay as they are stored.
        Options and errors as `user`.

        Raises:
            UnknownFormat, CannotParse: it is no request.
        """
        return self._run(self._syncing(payload, format, how))

    def add_response(
        self,
        body: Any,
        format: str,
        *,
        rendered: Rendered | None = None,
        idempotency_key: str | None = None,
        expected_head: int | None = None,
        on_conflict: OnConflict = "raise",
        provider: str | None = None,
        latency_ms: float | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Append a provider's answer in one transaction: items, response, raw body, and a row of the usage ledger.

        `body` is a dict, JSON text, or an object of the provider's SDK; `rendered` is the request it answers. With an
        `idempotency_key` (one for each answer, such as its id) the same answer is stored once. Where the branch does
        not end at `expected_head`, `on_conflict` says what happens: "raise", "append" all the same, or on a new
        "branch".

        Raises:
            ProviderError: the body is an error; its ledger row is written.
            HeadConflict, ResponseInProgress: it cannot be appended there; the ledger row is written.
            UnknownFormat, CannotParse, InvalidItem, NotFound, IdempotencyConflict, TooLarge: nothing was written.
        """
        how: How = {"idempotency_key": idempotency_key, "expected_head": expected_head, "on_conflict": on_conflict}
        call: Call = {"provider": provider, "latency_ms": latency_ms, "headers": headers}
        return self._run(self._answering(body, format, rendered, how, call))

    def stream_response(
        self,
        format: str,
        *,
        rendered: Rendered | None = None,
        idempotency_key: str | None = None,
        expected_head: int | None = None,
        on_conflict: OnConflict = "raise",
        provider: str | None = None,
        latency_ms: float | None = None,
        headers: Mapping[str, str] | None = None,
        lease: float = LEASE_SECONDS,
    ) -> Recorder:
        """A recorder of a streamed answer: a context manager whose `feed` takes each of the provider's events.

        At the end of the `with` statement the response is written like that of `add_response`, with its status
        (`completed`, `incomplete`, `cancelled`, `failed`), and is in `.response`. Latency is measured unless told.
        When nothing was fed for `lease` seconds the next writer may end it. A branch has one response in progress:
        `on_conflict` says what to do about another one, "append" ends that one. Other options as `add_response`.

        Raises:
            ResponseInProgress, HeadConflict, UnknownFormat, InvalidOption, NotFound, IdempotencyConflict: on entering.
        """
        how: How = {"idempotency_key": idempotency_key, "expected_head": expected_head, "on_conflict": on_conflict}
        call: Call = {"provider": provider, "latency_ms": latency_ms, "headers": headers}
        return Recorder(self._recording(format, rendered, how, call, lease), self._runner)

    def record_attempt(
        self,
        format: str,
        *,
        error: Any = None,
        model: str | None = None,
        status: str = "failed",
        provider: str | None = None,
        latency_ms: float | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Write down a call that gave no response (a timeout, say): one row of the usage ledger.

        Raises:
            UnknownFormat, InvalidOption, NotFound, IdempotencyConflict: nothing was written.
        """
        self._run(
            self._attempting(
                format, error, model, status, idempotency_key, {"provider": provider, "latency_ms": latency_ms}
            )
        )

    def session(self) -> Session:
        """A detached copy: options, tools and the items of this branch."""
        return self._run(self._detaching())

    def clone_config(self) -> Session:
        """A detached session with the same options and tools, without items."""
        return self._run(self._cloning_config())

    def items(
        self,
        *,
        before: int | str | None = None,
        after: int | str | None = None,
        limit: int = 100,
        order: Literal["asc", "desc"] = "asc",
    ) -> Page[StoredItem]:
        """A page of this branch's items: those after or before a position (exclusive), oldest or newest first."""
        return self._run(self._listing_items(before, after, limit, order))

    def get_item(self, position: int) -> StoredItem:
        """The item at a position of this branch.

        Raises:
            NotFound: there is none.
        """
        return self._run(self._getting_item(position))

    def transcript(self) -> list[StoredItem]:
        """All items of this branch, in order."""
        return self._run(self._transcribing())

    def responses(self, *, after: int | str | None = None, limit: int = 100) -> Page[StoredResponse]:
        """A page of the responses of all branches, oldest first."""
        return self._run(self._listing_responses(after, limit))

    def response_body(self, number: int) -> bytes:
        """The raw body of a response.

        Raises:
            NotFound: there is none, or it has expired.
        """
        return self._run(self._reading_body(number))

    @overload
    def usage(self, *, by: tuple[()] = ()) -> UsageRow: ...  # type: ignore[overload-overlap]  # () is empty
    @overload
    def usage(self, *, by: Sequence[str] | str) -> list[UsageRow]: ...
    def usage(self, *, by: Sequence[str] | str = ()) -> UsageRow | list[UsageRow]:
        """What this conversation used: one UsageRow, or with `by` ("response", "model", "day" …) a list of them."""
        return self._run(self._reporting(by))

    def fork(self, at: int | None = None, *, idempotency_key: str | None = None) -> Self:
        """A handle on a new branch with the items up to and including a position (default: all; -1: none).

        Raises:
            NotFound: this branch has no such position.
        """
        found, is_replayed = self._run(self._forking(at, idempotency_key))
        return self._handle(found, is_replayed=is_replayed)

    def on_branch(self, number: int) -> Self:
        """A handle on another branch.

        Raises:
            NotFound: there is none of that number.
        """
        return self._handle(self._run(self._opening_branch(number)))

    def branches(self, *, after: int | str | None = None, limit: int = 100) -> Page[Branch]:
        """A page of the conversation's branches."""
        return self._run(self._listing_branches(after, limit))

    def set_active_branch(self, number: int, *, idempotency_key: str | None = None) -> None:
        """Make a branch the one that `get_conversation` opens.

        Raises:
            NotFound: there is none of that number.
        """
        self._run(self._activating(number, idempotency_key))

    def update(self, *, idempotency_key: str | None = None, **options: Unpack[ChangedOptions]) -> None:
        """Change session options (None takes one out), `title`, `labels` (all of them), `user_id` or `external_id`.

        Raises:
            InvalidOption: an option is unknown or cannot be used; nothing was written.
        """
        self._run(self._updating(options, idempotency_key))

    def json_output(
        self,
        schema: Mapping[str, Any],
        *,
        name: str = "response",
        strict: bool | None = None,
        description: str | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Ask for answers that are JSON of this schema. Errors as `update`."""
        self._run(
            self._asking_json(schema, {"name": name, "strict": strict, "description": description}, idempotency_key)
        )

    def think(
        self,
        enabled: bool | None = None,
        *,
        effort: str | None = None,
        budget_tokens: int | None = None,
        idempotency_key: str | None = None,
    ) -> None:
        """Ask for reasoning of an effort or within a budget; ``think(False)`` takes that back. Errors as `update`."""
        self._run(self._thinking(enabled, {"effort": effort, "budget_tokens": budget_tokens}, idempotency_key))

    def register_tool(
        self,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        *,
        idempotency_key: str | None = None,
        **extra: Any,
    ) -> Tool:
        """Offer a function to the model; one of the same name is replaced in its place. Errors as `update`."""
        return (
            self._run(
                self._registering(
                    "register_tool", [FunctionTool(name, description, parameters, strict, **extra)], idempotency_key
                )
            )
        )[0]

    def register_tools(self, tools: ToolRegistry | Iterable[Any], *, idempotency_key: str | None = None) -> list[Tool]:
        """Offer the tools of a registry, or of a list of definitions (functions and built-in tools)."""
        return self._run(self._registering("register_tools", tools_from(tools), idempotency_key))

    def use_tools(
        self, *names: str, registry: ToolRegistry | None = None, idempotency_key: str | None = None
    ) -> list[Tool]:
        """Offer tools of a registry (default: the module's own) by name; all of them without names.

        Raises:
            ToolNotFound: the registry has no such tool.
        """
        return self._run(
            self._registering("use_tools", (registry or default_registry()).chosen(names), idempotency_key)
        )

    def remove_tool(self, name: str, *, idempotency_key: str | None = None) -> Tool | None:
        """Offer a tool no longer; returns its definition, None when there was none."""
        return self._run(self._removing_tool(name, idempotency_key))

    def clear_tools(self, *, idempotency_key: str | None = None) -> list[Tool]:
        """Offer no tools any more; returns their definitions."""
        return self._run(self._clearing_tools(idempotency_key))

    def archive(self, *, idempotency_key: str | None = None) -> None:
        """Take the conversation out of the usual listings. It can still be read and appended to."""
        self._run(self._archiving("archived", idempotency_key))

    def unarchive(self, *, idempotency_key: str | None = None) -> None:
        """Take the conversation back into the usual listings."""
        self._run(self._archiving("active", idempotency_key))

    def _handle(self, found: Opened, *, is_replayed: bool = False) -> Self:
        made = type(self)(found, self._contents, self._runner)
        made.replayed = is_replayed
        return made
