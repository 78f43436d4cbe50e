"""What endpoints take besides a body: who calls, the conversation in the path, and parameters."""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime
from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import Depends, Header, Query, Request, Security
from fastapi.openapi.models import HTTPBearer
from fastapi.security.base import SecurityBase
from pydantic import AfterValidator, BeforeValidator, PlainValidator, WithJsonSchema
from pydantic_core import PydanticCustomError

from threadkeep.domain.jsontext import JsonObject
from threadkeep.server import owners, requests
from threadkeep.server.service import Call, authorized
from threadkeep.store.aio import AsyncConversation
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader, read

T = TypeVar("T")

# Who calls


class Key(SecurityBase):
    """A key that has a scope, as a dependency: the call of its owner."""

    def __init__(self, scope: owners.Scope) -> None:
        self.model, self.scheme_name, self._scope = HTTPBearer(), "key", scope

    async def __call__(self, request: Request) -> Call:
        """Return the call of the owner; Problem if there is none, or the scope is lacking."""
        if isinstance(request, ReadRequest) and request.key is self:
            return request.call
        return await authorized(request, self._scope)


class ReadRequest(Request):
    """A request whose key was checked before its body was read, which is JSON whatever its Content-Type said."""

    def __init__(self, key: Key, call: Call, body: JsonObject) -> None:
        scope = call.request.scope
        headers = [pair for pair in scope["headers"] if pair[0] != b"content-type"]
        super().__init__({**scope, "headers": headers}, call.request.receive)
        self.key, self.call, self._given = key, call, body

    async def body(self) -> bytes:
        """Return that there is something, even where the body is empty."""
        return b"{}"

    async def json(self) -> JsonObject:
        """Return the body."""
        return self._given


Reading = Annotated[Call, Security(Key("read"), scopes=["read"])]
Writing = Annotated[Call, Security(Key("write"), scopes=["write"])]
ReadingUsage = Annotated[Call, Security(Key("usage"), scopes=["usage"])]

# Parameters. Those that may be absent have a schema of their own, for null cannot be sent.


def _schema(type: str, **others: Any) -> WithJsonSchema:
    return WithJsonSchema({"type": type, **others})


def _moment(text: str) -> date | datetime:
    kinds: tuple[type[date], ...] = (date, datetime)
    for kind in kinds:
        try:
            return kind.fromisoformat(text)
        except ValueError:
            continue
    raise PydanticCustomError("moment", "must be a date, or a time with its zone, in ISO 8601")


_EVENT: Final = _schema("string", pattern="^([0-9]{1,9}|end)$")
_DAY: Final = _schema("string", description="A date, or a time with its zone.")

After = Annotated[
    str | None, AfterValidator(lambda text: text or None), _schema("string"),
    Query(description="The `last_id` of the page before."),
]  # fmt: skip
Limit = Annotated[int, Query(ge=1, le=requests.MAX_LIMIT, description="How many objects a page has at most.")]
Order = Annotated[Literal["asc", "desc"], Query(description="Oldest or newest first.")]
Status = Annotated[
    Literal["active", "archived"] | None, BeforeValidator(requests.status_of),
    _schema("string", enum=["active", "archived", "any"]), Query(description="Which of them."),
]  # fmt: skip
UserId = Annotated[str | None, _schema("string", minLength=1, maxLength=60), Query(description="Only those of a user.")]
Branch = Annotated[
    int | None, _schema("integer", minimum=0, maximum=2**31 - 1),
    Query(ge=0, le=2**31 - 1, description="A branch; default: the active one."),
]  # fmt: skip
Purge = Annotated[bool, Query(description="Whether its content is deleted for good.")]
Media = Annotated[
    Literal["inline", "reference"],
    Query(description="Whether large images and files are in the messages, or their addresses on this server."),
]
Variants = Annotated[bool, Query(description="Whether items have the variants at their places.")]
Since = Annotated[date | None, PlainValidator(_moment), _DAY, Query(description="From then on.")]
Until = Annotated[date | None, PlainValidator(_moment), _DAY, Query(description="Up to then, exclusive.")]
IdempotencyKey = Annotated[
    str | None, AfterValidator(requests.checked_key), _schema("string", minLength=1, maxLength=60, pattern="^[!-~]+$"),
    Header(alias="Idempotency-Key", description="A repeated request with the same key gets the same answer."),
]  # fmt: skip
IfMatch = Annotated[
    int | None, BeforeValidator(requests.head_of), _schema("string", pattern='^"-?[0-9]{1,9}"$'),
    Header(
        alias="If-Match",
        description="The position in quotes where the conversation is to end; otherwise the answer is 409.",
    ),
]  # fmt: skip
LastEventId = Annotated[str | None, _EVENT, Header(alias="Last-Event-ID", description="The last event that came.")]
AfterEvent = Annotated[str, _EVENT, Query(description="The same, as a query.")]

# The conversation in the path


def find_on_branch(reader: Reader, call: Call, id: str, branch: int | None) -> Conversation:
    """Return a conversation on a branch (blocking)."""
    conversation = call.find(reader, id)
    return conversation if branch is None else reader.on_branch(conversation, branch)


async def on_conversation(call: Call, id: str, branch: int | None, function: Callable[[Conversation], T]) -> T:
    """Return what a function makes of a conversation (blocking), which is opened with the same switch to a worker."""
    return await call.store.run_sync(lambda store: function(read(store, find_on_branch, call, id, branch)))


async def readable(call: Reading, conversation_id: str, branch: Branch = None) -> AsyncConversation:
    """Open the conversation in the path, on the branch that the query names."""
    return call.store.face_of(await call.read(find_on_branch, call, conversation_id, branch))


async def writable(call: Writing, conversation_id: str, branch: Branch = None) -> AsyncConversation:
    """The same, for who may write."""
    return call.store.face_of(await call.read(find_on_branch, call, conversation_id, branch))


Readable = Annotated[AsyncConversation, Depends(readable)]
Writable = Annotated[AsyncConversation, Depends(writable)]
