"""Calls that wait for their outputs: decisions about them, and outputs, with which the model goes on."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field

from starlette.responses import Response

from threadkeep.domain.call_kinds import BY_OUTPUT, is_asynchronous, reference_of
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.stored import StoredItem
from threadkeep.formats.shared.pairing import CLIENT_CALLS, CLIENT_OUTPUTS
from threadkeep.http.answers import JsonAnswer
from threadkeep.http.problems import NO_RETRY, Problem
from threadkeep.http.requests import expected_head, idempotency_key
from threadkeep.http.rest.answering import Turn, answer, stored_turn, upstream_of
from threadkeep.http.rest.bodies import read_body
from threadkeep.http.rest.media import ReferredMedia
from threadkeep.http.rest.messages import content_of, conversation_on_branch, key_of_input
from threadkeep.http.rest.models import Denial, McpApproval, ToolOutput, ToolOutputs
from threadkeep.http.rest.objects import call_view, message_view, plain_list
from threadkeep.http.service import Call
from threadkeep.store.aio import check_request, in_transaction
from threadkeep.store.conversation import Conversation
from threadkeep.store.defaults import DENIED
from threadkeep.store.store import Store

_OpenCall = tuple[str | None, str]  # the id of a call and its kind


async def list_all(call: Call) -> Response:
    """List the calls that wait for their outputs, and tell whose turn it is."""
    conversation = await conversation_on_branch(call)
    waiting = [call_view(one) for one in await conversation.pending_calls()]
    return JsonAnswer({**plain_list(waiting), "next_step": await conversation.next_step()})


async def approve(call: Call) -> Response:
    """Approve a call, which is named by its `call_id` or the id of its item."""
    conversation, name = await conversation_on_branch(call), call.request.path_params["call_id"]
    found = await conversation.approve(name, decided_by=call.user_id, idempotency_key=idempotency_key(call.request))
    return JsonAnswer(call_view(found, is_whole=call.may_read))


async def deny(call: Call) -> Response:
    """Deny a call: the reason is its output, which is answered."""
    body = await read_body(call, Denial)
    conversation, name = await conversation_on_branch(call), call.request.path_params["call_id"]
    item = await conversation.deny(
        name, reason=body.reason or DENIED, decided_by=call.user_id, idempotency_key=idempotency_key(call.request)
    )
    return JsonAnswer(message_view(await conversation.get_item(item.position) if item.replayed else item))


async def create_outputs(call: Call) -> Response:
    """Append outputs of calls and, unless told otherwise, have the model go on with them."""
    body = await read_body(call, ToolOutputs)
    conversation = await conversation_on_branch(call)
    upstream = upstream_of(call, conversation, body) if body.answer else None
    given, content = await _items(call, body.tool_outputs), content_of(call, body)
    outputs = _Outputs(given, content, idempotency_key(call.request), key_of_input(call), expected_head(call.request))
    if upstream is not None:
        asked, model = upstream
        return await answer(call, conversation, asked, body, Turn(content, model, outputs.go_on, outputs.take_back))

    def store(inner: Store) -> tuple[Conversation, list[StoredItem]]:
        return outputs.say(inner.get_conversation(conversation.id, branch=conversation.branch))

    return JsonAnswer(stored_turn(*await in_transaction(call.store, store)), 201)


async def _items(call: Call, given: Sequence[ToolOutput | McpApproval]) -> list[JsonObject]:
    """Outputs as items, with media in the place of their references."""
    media, items = ReferredMedia(call, call.service.max_body_bytes), []
    for number, one in enumerate(given):
        item = one.model_dump(exclude_none=True)
        if isinstance(one, ToolOutput) and isinstance(one.output, list):
            item["output"] = await media.put_back(one.output, f"tool_outputs.{number}.output")
        items.append(item)
    return items


def _asynchronous_calls(face: Conversation, known: Collection[_OpenCall]) -> list[_OpenCall]:
    """The other asynchronous calls without an output, of the whole history: the model has gone on without."""
    waiting: dict[_OpenCall, None] = {}
    for item in face.session().items:
        data = item.to_dict()
        if item.type in CLIENT_CALLS and is_asynchronous(data):
            waiting[data["call_id"], CLIENT_CALLS[item.type]] = None
        elif item.type in CLIENT_OUTPUTS:
            waiting.pop((data.get("call_id", ""), CLIENT_OUTPUTS[item.type]), None)
    return [call for call in waiting if call not in known]


@dataclass(slots=True)
class _Outputs:
    """Outputs of calls, none or all of them.

    Attributes:
        given: the items.
        content: all that the request asks for.
        key: that of the request, which may be repeated.
        key_of_input: under which a repeated request finds them.
        head: the position where the branch must end before them; None for any.
        said: their positions.
    """

    given: list[JsonObject]
    content: JsonObject
    key: str | None
    key_of_input: str | None
    head: int | None
    said: list[int] = field(default_factory=list)
    is_repeated: bool = False

    def say(self, face: Conversation) -> tuple[Conversation, list[StoredItem]]:
        """Append them (blocking, inside a transaction); Problem for one that no call waits for."""
        self.is_repeated = self.key is not None and check_request(face, f"{self.key}:request", self.content)
        if not self.is_repeated:
            _check_calls(self.given, face)
        if not self.given:
            return face, []
        items = face.add_items(
            self.given, idempotency_key=self.key_of_input, expected_head=self.head, on_conflict="raise"
        )
        self.said = [item.position for item in items]
        if items[0].branch != face.branch:  # where an earlier request with this key said it
            face = face.on_branch(items[0].branch)
        page = face.items(after=self.said[0] - 1, limit=len(items), media="reference")
        return face, [item for item in page if item.position in self.said]

    def go_on(self, face: Conversation) -> tuple[Conversation, list[StoredItem]]:
        """Append them for a model to go on; Problem where it is not its turn then."""
        conversation, items = self.say(face)
        step = "model" if self.is_repeated else conversation.next_step()
        if step == "tools":
            problem = "Other calls wait for their outputs."
            raise Problem(409, problem, param="tool_outputs", code="tool_calls_pending", headers=NO_RETRY)
        if step == "user":
            problem = "There is nothing for the model to go on with: it is the user's turn."
            raise Problem(409, problem, param="tool_outputs", code="conflict", headers=NO_RETRY)
        return conversation, items

    def take_back(self, conversation: Conversation) -> None:
        """Remove them (blocking), unless a repeated request finds them."""
        if self.key is None:
            for position in reversed(self.said):
                conversation.remove_item(position, purge=True)


def _check_calls(given: Sequence[JsonObject], face: Conversation) -> None:
    """Raise Problem for an output that no call waits for; asynchronous calls wait for as long as it takes."""
    open_calls = [(call.call_id, CLIENT_CALLS[call.item.type]) for call in face.pending_calls()]
    has_later = False
    for number, item in enumerate(given):
        answered = reference_of(item) or "", CLIENT_OUTPUTS[item["type"]]
        if answered not in open_calls and not has_later:
            open_calls, has_later = [*open_calls, *_asynchronous_calls(face, open_calls)], True
        if answered not in open_calls:
            param = f"tool_outputs.{number}.{BY_OUTPUT[item['type']].output_key}"
            problem = f"{param}: no call {answered[0]!r} waits for an output of the type {item['type']!r}."
            raise Problem(400, problem, param=param, code="invalid_value")
        open_calls.remove(answered)
