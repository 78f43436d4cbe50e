"""What all endpoints share: the store, who may call, and the limits; and how a handler becomes an endpoint."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Hashable, Iterator, Mapping
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from inspect import isawaitable
from typing import Any, Concatenate, Final, Literal, NamedTuple, ParamSpec, TypeAlias, TypeVar

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from threadkeep.domain.jsontext import mismatch
from threadkeep.errors import InvalidOption, LeaseLost, NotFound
from threadkeep.server import permissions, problems, provider_answers, request_state, requests, sessions
from threadkeep.server.owners import Authenticate, Owner, Scope, check_once, known_names, owner_of
from threadkeep.server.quotas import GrowthQuota, Quota
from threadkeep.server.unstored import Memories, StoreFalse, Unstored
from threadkeep.server.upstreams import Upstream, upstream_for
from threadkeep.store import loops
from threadkeep.store.aio import AsyncConversation, AsyncStore
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader, read

P = ParamSpec("P")
T = TypeVar("T")
# What the model is told in chats: a text, or a function of the owner of the first request and the client's id of a chat
Instructions: TypeAlias = str | Callable[[Owner, str | None], str | Awaitable[str | None] | None]

logger = logging.getLogger(__name__)

MAX_BACKGROUND: Final = 100  # responses in the background of an owner at once, in each API of a process
MAX_BACKGROUND_IN_ALL: Final = 1_000
MAX_REQUEST_BYTES: Final = 64 * 1024 * 1024  # of a request to an upstream; no provider takes more
OF_OWNER: Final = 2 * MAX_REQUEST_BYTES  # of all large requests of an owner that are being answered …
IN_ALL: Final = 4 * MAX_REQUEST_BYTES  # … and of all owners
MAX_SOCKETS: Final = 100  # WebSockets of an owner at once, in each API of a process
MAX_SOCKETS_IN_ALL: Final = 1_000
SMALL: Final = 1024 * 1024  # bytes of a request that does not count
MAX_BODY_BYTES: Final = 16 * 1024 * 1024
MAX_ITEMS: Final = 20  # OpenAI's limit for one request
SEALED: Final = "reasoning.encrypted_content"  # the value of `include` that asks for what only providers can read


def background_quota(most: int = MAX_BACKGROUND, in_all: int = MAX_BACKGROUND_IN_ALL) -> Quota:
    """Return the quota of responses in the background."""
    text = "Too many answers are in progress in the background{key}"
    return Quota(most, in_all, text=text, code="too_many_in_background")


def answer_quota(most: int, **options: Any) -> GrowthQuota:
    """Return the quota of the bytes of answers in progress, of which each may have so many; `options`: of the quota."""
    text = "Too many bytes of answers are in progress{key}"
    return GrowthQuota(2 * most, 4 * most, text=text, code="too_many_answer_bytes", **options)


def request_quota() -> Quota:
    """Return the quota of the bytes of large requests to upstreams."""
    text = "Too many large conversations are being answered{key}"
    return Quota(OF_OWNER, IN_ALL, text=text, code="too_many_large_requests")


def socket_quota(most: int = MAX_SOCKETS, in_all: int = MAX_SOCKETS_IN_ALL) -> Quota:
    """Return the quota of WebSockets."""
    return Quota(most, in_all, text="Too many WebSockets are open{key}", code="too_many_websockets")


def socket_bytes_quota() -> Quota:
    """Return the quota of the bytes of WebSockets: messages that are being answered, and responses not stored."""
    text = "Too many bytes of WebSockets are in memory{key}"
    return Quota(OF_OWNER, IN_ALL, text=text, code="too_many_websocket_bytes")


def checked_size(size: int) -> int:
    """Return the bytes of a request to an upstream; Problem where there are too many."""
    if size > MAX_REQUEST_BYTES:
        text = f"The history of the conversation is too large to be sent: it has {size:,} bytes, of at most"
        problem = f"{text} {MAX_REQUEST_BYTES:,}."
        raise problems.Problem(413, problem, param="conversation", code="request_too_large")
    return size


def stopping() -> problems.Problem:
    """Return the 503 response during shutdown."""
    text, headers = "The server is stopping.", {"retry-after": "1"}
    return problems.Problem(503, text, code="stopping", type="server_error", headers=headers)


@dataclass(frozen=True, slots=True)
class Service:
    """What the endpoints of one application share: its store, settings and quotas, and the answers in progress.

    Attributes:
        store: the database.
        authenticate: tells the owner of a request; None for everybody on this machine.
        max_body_bytes: the largest body of a request, in bytes.
        max_items: how many items a request may bring.
        masked: the values of `include` without which items lack what these values stand for.
        max_answer_bytes: the longest answer of a provider that is read, in bytes.
        max_answer_seconds: for how long one is read.
        upstreams: who answers: model, or a pattern of models, to its upstream.
        streams: those that are followed.
        background: limits concurrent background responses.
        request_bytes: limits the large requests to upstreams that are being answered, in bytes.
        answer_bytes: limits the bytes of answers in progress, by how long one may be.
        unstored: the answers that wait for the database.
        store_false: what is kept of requests with `store: false`: their row in the ledger, or all.
        memories: where those are answered of which nothing else is kept.
        sockets: limits WebSockets.
        socket_bytes: limits what they have in memory, in bytes.
        locks: of the places where conversations are found of those that are kept.
        tools: those of the application that run in the server, within an answer.
        instructions: those of the application, with which conversations begin; None: clients give them.
    """

    store: AsyncStore
    authenticate: Authenticate | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    max_items: int = MAX_ITEMS
    masked: frozenset[str] = frozenset()
    upstreams: Mapping[str, Upstream] = field(default_factory=dict)
    max_answer_bytes: int = provider_answers.MAX_ANSWER_BYTES
    max_answer_seconds: float = provider_answers.ANSWER_SECONDS
    streams: Quota = field(default_factory=permissions.stream_quota)
    background: Quota = field(default_factory=background_quota)
    request_bytes: Quota = field(default_factory=request_quota)
    answer_bytes: GrowthQuota = field(init=False)
    unstored: Unstored = field(default_factory=Unstored)
    store_false: StoreFalse = "ledger"
    memories: Memories = field(default_factory=Memories)
    sockets: Quota = field(default_factory=socket_quota)
    socket_bytes: Quota = field(default_factory=socket_bytes_quota)
    locks: sessions.Locks = field(default_factory=sessions.Locks)
    tools: loops.ToolLoop | None = None
    instructions: Instructions | None = None
    _tasks: set[asyncio.Task[Any]] = field(default_factory=set)
    _waiting: set[asyncio.Task[Any]] = field(default_factory=set)
    _closing: asyncio.Event = field(default_factory=asyncio.Event)

    def __post_init__(self) -> None:
        object.__setattr__(self, "answer_bytes", answer_quota(self.max_answer_bytes))

    @property
    def is_closing(self) -> bool:
        """Whether the server ends."""
        return self._closing.is_set()

    def is_busy(self) -> bool:
        """Whether a model is giving an answer, over HTTP, over a WebSocket or in the background."""
        return bool(self._tasks or self._waiting or self.answer_bytes.growing_count)

    def check_open(self, owner: Hashable) -> None:
        """Raise Problem during shutdown, when no answer may begin, or QuotaExceeded where there is no room for one."""
        if self.is_closing:
            raise stopping()
        self.answer_bytes.check(owner)

    def upstream(self, model: str) -> Upstream:
        """Return who answers for a model; Problem if nobody does."""
        found = upstream_for(model, self.upstreams)
        if found is None:
            problem = f"The model '{model}' does not exist: the server has no upstream for it (--upstream, --model)."
            raise problems.Problem(404, problem, param="model", code="model_not_found")
        return found

    def in_background(self, work: Coroutine[Any, Any, Any], counted: ExitStack) -> asyncio.Task[Any]:
        """Let work go on after its request was answered; what it is counted in is left when it ends."""
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        task.add_done_callback(lambda _: counted.close())
        return task

    async def instructions_for(self, owner: Owner, name: str | None) -> str | None:
        """Return the application's instructions for a conversation that begins, of which a client has its own id.

        Raises:
            TypeError: the application's function returns something else.
        """
        if self.instructions is None or isinstance(self.instructions, str):
            return self.instructions
        made: Any = self.instructions(owner, name)
        text = await made if isawaitable(made) else made
        if text is None or isinstance(text, str):
            return text
        raise TypeError(f"instructions must return a text or None, not a value of the type {type(text).__name__}")

    def check_instructions(self, *, are_given: bool, param: str = "instructions") -> None:
        """Raise Problem for a client that gives instructions which the application sets."""
        if are_given and self.instructions is not None:
            text = "The application sets the instructions of its conversations: leave them out."
            raise problems.Problem(403, text, param=param, code="instructions_set")

    @contextmanager
    def waiting(self) -> Iterator[None]:
        """While the task of a request waits for a model: `close` interrupts it.

        From here on, a 504 asks the client not to repeat the request.
        """
        request_state.forbid_retry()
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
        is_over = False
        async with permissions.Attendance() as attendance:
            attendance.until(permissions.until_left(request.receive))
            yield
            is_over = True
        if not is_over:
            raise ClientDisconnect

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
        await self.memories.close()

    async def disconnect(self) -> None:
        """Close the connections to upstreams."""
        for upstream in {id(one): one for one in self.upstreams.values()}.values():
            await upstream.close()


class Call(NamedTuple):
    """A request whose owner may make it.

    Attributes:
        request: the HTTP request.
        store: the store, limited to what its owner has.
        service: the settings.
        permission: who makes it.
        included: the values of `include` in its query, or its body.
    """

    request: Request
    store: AsyncStore
    service: Service
    permission: permissions.Permission
    included: frozenset[str] = frozenset()

    @property
    def may_read(self) -> bool:
        """Whether its owner may see what is stored, besides what the request brings."""
        return "read" in self.permission.owner.scopes

    @property
    def is_sealed(self) -> bool:
        """Whether its client asked for what only providers can read."""
        return SEALED in self.included

    @property
    def user_id(self) -> str | None:
        """The user whose data are all that it sees; None for all users."""
        return self.permission.owner.user_id

    async def conversation(self, id: str | None = None) -> AsyncConversation:
        """Open the conversation with an id, or the application's own; None is that in the path."""
        return self.store.face_of(await self.read(self.find, id))

    async def read(self, function: Callable[Concatenate[Reader, P], T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Return what a function makes of a reader of the store (blocking), in one transaction."""
        return await self.store.run_sync(read, function, *args, **kwargs)

    def find(self, reader: Reader, id: str | None = None) -> Conversation:
        """Return the conversation with an id, or the application's own; None is that in the path (blocking)."""
        wanted: str = self.request.path_params["conversation_id"] if id is None else id
        try:
            return reader.conversation(wanted)
        except NotFound as error:
            found = next(filter(None, map(reader.named, known_names(wanted, self.user_id))), None)
            if found is None:
                raise problems.Problem(404, f"Conversation with id '{wanted}' not found.", code="not_found") from error
            return found


Handler: TypeAlias = Callable[[Call], Awaitable[Response]]


def check_settings(store: object, prefix: str = "", upstreams: object = None) -> None:
    """Raise InvalidOption for what is no store of a server, no beginning of its paths, or not who answers."""
    if not isinstance(store, AsyncStore):
        raise mismatch(InvalidOption, "an AsyncStore", store, "store")
    if prefix and (not prefix.startswith("/") or prefix.endswith("/")):
        raise InvalidOption('must be empty, or begin with "/" and not end with it.', argument="prefix")
    if not isinstance(upstreams, Mapping | None):
        raise mismatch(InvalidOption, "a mapping from models to Upstreams", upstreams, "upstreams")
    for model, upstream in (upstreams or {}).items():
        if not isinstance(model, str):
            raise mismatch(InvalidOption, "a model, or a pattern of models, as each key", model, "upstreams")
        if not isinstance(upstream, Upstream):
            needed = "an Upstream, which http_upstream(…) makes of a URL,"
            raise mismatch(InvalidOption, needed, upstream, f"upstreams[{model!r}]")


def check_instructions(given: object) -> None:
    """Raise InvalidOption for what are no `Instructions`."""
    if given is not None and not isinstance(given, str) and not callable(given):
        raise mismatch(InvalidOption, "a text, or a function of the owner and the id of a chat", given, "instructions")


def check_limit(name: str, value: object, unit: Literal["bytes", "seconds"] = "bytes") -> None:
    """Raise InvalidOption for what is no limit of bytes, which are whole, or of seconds."""
    kinds = int if unit == "bytes" else int | float
    if isinstance(value, bool) or not isinstance(value, kinds) or not value > 0:
        raise mismatch(InvalidOption, f"a number of {unit} above 0", value, name)


async def authorized(request: Request, scope: Scope) -> Call:
    """Return a request as a call of its owner; Problem if it has none, or one who lacks the scope."""
    service: Service = request.app.state.service
    check_once(request.headers, "Idempotency-Key", "If-Match")
    owner = await owner_of(request, service.authenticate)
    if owner is None:
        raise _no_key()
    if scope not in owner.scopes:
        raise problems.Problem(403, f"The key does not allow this: it lacks the scope {scope!r}.", code="missing_scope")
    try:
        store = await owner.store(service.store, request_state.request_start(request.scope))
    except NotFound as error:
        raise problems.Problem(401, "The key is for a tenant that does not exist.", code="invalid_api_key") from error
    permission = permissions.Permission(request, service.authenticate, owner, scope)
    return Call(request, store, service, permission, requests.included(request))


def _no_key() -> problems.Problem:
    return problems.Problem(401, "No valid key was given.", code="invalid_api_key")


async def unserved(request: Request, error: HTTPException) -> Exception:
    """Return with what a request for a path or method that is not served is answered: `Allow` has all of its methods.

    Without a key, it is answered as for any other path. Other errors are returned as they are.
    """
    if error.status_code not in (404, 405):
        return error
    service: Service = request.app.state.service
    try:
        if await owner_of(request, service.authenticate) is None:
            return _no_key()
    except Exception as failure:  # noqa: BLE001 - it is answered
        return failure
    routes = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    methods = {method for route in routes for method in route.methods}
    allowed = ", ".join(sorted(methods))
    known = f"{error.detail}: this path takes {allowed}"
    detail = _missing(request) if error.status_code == 404 else known  # noqa: PLR2004 - not found
    return HTTPException(error.status_code, detail, {"Allow": allowed} if methods else None)


def _missing(request: Request) -> str:
    """What is said of a path that is not served: also why, where the prefix is in the path of a mount already."""
    prefix, root = request.app.state.prefix, request.scope.get("root_path", "")
    text = "This server does not have this path"
    if not prefix or not root.endswith(prefix) or request.scope["path"].startswith(f"{root}{prefix}/"):
        return text
    return f"{text}: the application is mounted at {root}, where its paths begin with {prefix}. Give it prefix=''"


def endpoint(scope: Scope, handler: Handler) -> Callable[[Request], Awaitable[Response]]:
    """Return the endpoint that calls a handler for owners who have a scope."""

    async def answer(request: Request) -> Response:
        return await handler(await authorized(request, scope))

    return answer
