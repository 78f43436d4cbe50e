"""What all endpoints share: the store, who may call, and the limits; and how a handler becomes an endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, TypeAlias

from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response

from threadkeep.domain.objects import mismatch
from threadkeep.errors import InvalidOption, LeaseLost, NotFound
from threadkeep.http.problems import Problem
from threadkeep.http.provider_answers import MAX_ANSWER_BYTES
from threadkeep.http.rooms import Rooms
from threadkeep.http.unattended import Unattended
from threadkeep.http.unstored import Unstored
from threadkeep.http.upstreams import Upstream
from threadkeep.store.aio import AsyncConversation, AsyncStore
from threadkeep.web.courses import note_cost
from threadkeep.web.following import OpenStreams, Permission, until_left
from threadkeep.web.names import find_named
from threadkeep.web.owners import Authenticate, Scope, owner_of

logger = logging.getLogger(__name__)

MAX_BODY_BYTES: Final = 16 * 1024 * 1024
MAX_ITEMS: Final = 20  # OpenAI's limit for one request


@dataclass(frozen=True, slots=True)
class Service:
    """The settings of the server.

    Attributes:
        store: the database.
        authenticate: tells the owner of a request; None for everybody on this machine.
        max_body_bytes: the largest body of a request, in bytes.
        max_items: how many items a request may bring.
        masked: the values of `include` without which items lack what these values stand for.
        max_answer_bytes: the longest answer of a provider that is read, in bytes.
        upstreams: who answers: model, or a pattern of models, to its upstream.
        streams: those that are followed.
        unattended: the answers that nobody waits for.
        rooms: the large requests to upstreams that are being answered.
        unstored: the answers that wait for the database.
    """

    store: AsyncStore
    authenticate: Authenticate | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    max_items: int = MAX_ITEMS
    masked: frozenset[str] = frozenset()
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)
    max_answer_bytes: int = MAX_ANSWER_BYTES
    streams: OpenStreams = field(default_factory=OpenStreams)
    unattended: Unattended = field(default_factory=Unattended)
    rooms: Rooms = field(default_factory=Rooms)
    unstored: Unstored = field(default_factory=Unstored)
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _waiting: set[asyncio.Task[Any]] = field(default_factory=set)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def is_closing(self) -> bool:
        """Whether the server ends."""
        return self._closing.is_set()

    def in_background(self, work: Coroutine[Any, Any, Any], counted: ExitStack) -> asyncio.Task[Any]:
        """Let work go on after its request was answered; what it is counted in is left when it ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        task.add_done_callback(lambda _: counted.close())
        return task

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the task of a request waits for a model: `close` interrupts it.

        If its time is over meanwhile or later, its client is told not to repeat it.
        """
        note_cost()
        task = asyncio.current_task()
        if task is None or task in self._waiting:
            yield
            return
        self._waiting.add(task)
        try:
            yield
        finally:
            self._waiting.discard(task)

    @asynccontextmanager
    async def attended(self, request: Request) -> AsyncIterator[None]:
        """While a client waits for a model, whose request was read: when it leaves, what is awaited is cancelled.

        Raises:
            ClientDisconnect: it has left.
        """
        presence, now = asyncio.timeout(None), asyncio.get_running_loop().time

        async def listen() -> None:
            await until_left(request.receive)
            presence.reschedule(now())

        try:
            async with presence:
                listening = asyncio.ensure_future(listen())
                try:
                    yield
                finally:
                    listening.cancel()
        except TimeoutError as error:
            if not presence.expired():
                raise
            raise ClientDisconnect from error

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if isinstance(error, LeaseLost | NotFound):
            logger.info("A response in the background was ended or deleted by somebody else.")
        elif error is not None:
            logger.error("A response in the background failed.", exc_info=error)

    async def close(self) -> None:
        """End all answers that models are giving; what has come of them is stored as incomplete."""
        if not self.is_closing:
            self._closing.set()
            for task in (*self._tasks, *self._waiting):
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)
        await self.unstored.close()

    async def disconnect(self) -> None:
        """Close the connections to upstreams."""
        for upstream in {id(one): one for one in self.upstreams.values()}.values():
            await upstream.close()


class Call(NamedTuple):
    """A request of somebody who may make it.

    Attributes:
        request: the HTTP request.
        store: the store, limited to what its owner has.
        service: the settings.
        permission: who makes it.
    """

    request: Request
    store: AsyncStore
    service: Service
    permission: Permission

    @property
    def may_read(self) -> bool:
        """Whether its owner may see what is stored, besides what the request brings."""
        return "read" in self.permission.owner.scopes

    @property
    def user_id(self) -> str | None:
        """The user whose data are all that it sees; None for all users."""
        return self.permission.owner.user_id

    async def conversation(self, name: str = "conversation_id") -> AsyncConversation:
        """Open the conversation in the path: by its id, or by the application's own."""
        return await open_conversation(self, self.request.path_params[name])


Handler: TypeAlias = Callable[[Call], Awaitable[Response]]


async def open_conversation(call: Call, id: str) -> AsyncConversation:
    """Open a conversation by its id, or by the application's own (`external_id`)."""
    try:
        return await call.store.get_conversation(id)
    except NotFound as error:
        found = await find_named(call.store, id, call.user_id)
        if found is None:
            raise Problem(404, f"Conversation with id '{id}' not found.", code="not_found") from error
        return found


def check_settings(store: object, prefix: str = "") -> None:
    """Raise InvalidOption for what is no store of a server, or no beginning of its paths."""
    if not isinstance(store, AsyncStore):
        raise mismatch(InvalidOption, "an AsyncStore", store, "store")
    if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
        raise InvalidOption('must be empty, or begin with "/" and not end with it.', argument="prefix")


def check_limit(name: str, value: object) -> None:
    """Raise InvalidOption for what is no limit of bytes."""
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise mismatch(InvalidOption, "a number of bytes above 0", value, name)


def endpoint(scope: Scope, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that calls a handler for owners who have a scope."""

    async def answer(request: Request) -> Response:
        service: Service = request.app.state.service
        owner = await owner_of(request, service.authenticate)
        if owner is None:
            raise Problem(401, "No valid key was given.", code="invalid_api_key")
        if scope not in owner.scopes:
            raise Problem(403, f"The key does not allow this: it lacks the scope {scope!r}.", code="missing_scope")
        try:
            store = await owner.store(service.store)
        except NotFound as error:
            raise Problem(401, "The key is for a tenant that does not exist.", code="invalid_api_key") from error
        return await handler(Call(request, store, service, Permission(request, service.authenticate, owner, scope)))

    return answer
