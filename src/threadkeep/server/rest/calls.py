"""Calls that wait for their outputs: decisions about them, and outputs, with which the model goes on."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from fastapi import Response

from threadkeep.domain import call_kinds, jsontext, stored
from threadkeep.domain.items import item_from_object
from threadkeep.errors import shown
from threadkeep.formats.shared.pairing import CLIENT_CALLS, CLIENT_OUTPUTS
from threadkeep.server import answers, pages, problems, requests, service
from threadkeep.server.rest import answering, deps, messages, models, objects, routing, tool_runs
from threadkeep.server.rest.media import ReferredMedia
from threadkeep.store import loops
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.calls import asynchronous_calls, waiting_calls
from threadkeep.store.reading.reader import Reader
from threadkeep.store.store import Store
from threadkeep.store.work.connections import made_of
from threadkeep.store.work.idempotency import check_request
from threadkeep.store.work.refs import DENIED

router = routing.api_router("/conversations/{conversation_id}")


@router.get("/tool_calls", response_model=models.ToolCalls)
async def list_tool_calls(
    call: deps.Reading, conversation_id: str, after: deps.After = None, limit: deps.Limit = requests.MAX_LIMIT,
    branch: deps.Branch = None,
) -> Response:  # fmt: skip
    """List the calls that wait for their outputs, and tell whose turn it is."""

    def read(reader: Reader) -> bytes:
        conversation = deps.find_on_branch(reader, call, conversation_id, branch)
        page = reader.pending_calls(conversation, after, limit, pages.MAX_BYTES)
        listed = pages.list_object([objects.call_view(one) for one in page], has_more=page.next is not None)
        listed |= {"last_id": page.next or listed["last_id"], "next_step": reader.next_step(conversation)}
        return made_of(sum(len(one.arguments) for one in page), lambda: jsontext.dumps_finite(listed))

    return answers.JsonAnswer(await call.read(read))


@router.post("/tool_calls/{call_id}/approve", response_model=models.ToolCall)
async def approve(
    call: deps.Writing, conversation: deps.Writable, call_id: str, key: deps.IdempotencyKey = None
) -> Response:
    """Approve a call, which is named by its `call_id` or the id of its item; the answer leaves its arguments out."""
    found = await conversation.approve(call_id, decided_by=call.user_id, idempotency_key=key)
    return answers.JsonAnswer({**objects.call_view(found, is_whole=call.may_read), "arguments": None})


@router.post("/tool_calls/{call_id}/deny", response_model=models.MessageObject)
async def deny(
    call: deps.Writing, conversation: deps.Writable, call_id: str, body: models.Denial,
    key: deps.IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Deny a call: the reason is its output, which is answered."""
    if call.service.tools is not None:
        await conversation.run_sync(tool_runs.check_denial, call.service.tools, call_id)
    item = await conversation.deny(call_id, reason=body.reason or DENIED, decided_by=call.user_id, idempotency_key=key)
    return answers.JsonAnswer(
        objects.message_view(await conversation.get_item(item.position) if item.replayed else item)
    )


@router.post("/tool_outputs", **routing.answered_with(models.AnsweredOutputs))
async def create_outputs(
    call: deps.Writing, conversation: deps.Writable, body: models.ToolOutputs, key: deps.IdempotencyKey = None,
    head: deps.IfMatch = None,
) -> Response:  # fmt: skip
    """Append outputs of calls and, unless `answer` is false, have the model go on with them."""
    upstream = answering.upstream_of(call, conversation, body) if body.answer else None
    given, content = await _items(call, body.tool_outputs), messages.content_of(call, body)
    outputs = _Outputs(given, content, key, messages.key_of_input(key), head, call.service.tools)
    if upstream is not None:
        asked, model = upstream
        return await answering.answer(
            call, conversation, asked, body, answering.MessageInput(content, model, outputs.go_on, outputs.take_back)
        )

    def store(inner: Store) -> tuple[Conversation, list[stored.StoredItem]]:
        return outputs.say(inner.get_conversation(conversation.id, branch=conversation.branch))

    return answers.JsonAnswer(answering.stored_turn(*await call.store.run_in_transaction(store)), 201)


async def _items(
    call: service.Call, given: Sequence[models.ToolOutput | models.McpApproval]
) -> list[jsontext.JsonObject]:
    """Outputs as items, with media in the place of their references."""
    media, items = ReferredMedia(call, call.service.max_body_bytes), []
    for number, one in enumerate(given):
        item = one.model_dump(exclude_none=True)
        if isinstance(one, models.ToolOutput) and isinstance(one.output, list):
            item["output"] = await media.put_back(one.output, f"tool_outputs.{number}.output")
        items.append(item)
    return items


@dataclass(slots=True)
class _Outputs:
    """Outputs of calls, none or all of them.

    Attributes:
        given: the items.
        content: all that the request asks for.
        key: of the request, which may be repeated.
        key_of_input: under which a repeated request finds them.
        head: the position where the branch must end before them; None for any.
        tools: those that run in the server, which gives their outputs itself.
        said: their positions.
    """

    given: list[jsontext.JsonObject]
    content: jsontext.JsonObject
    key: str | None
    key_of_input: str | None
    head: int | None
    tools: loops.ToolLoop | None
    said: list[int] = field(default_factory=list)
    is_repeated: bool = False

    def say(self, face: Conversation) -> tuple[Conversation, list[stored.StoredItem]]:
        """Append them (blocking, inside a transaction); Problem for one that no call waits for."""
        self.is_repeated = self.key is not None and check_request(face.handle, f"{self.key}:request", self.content)
        if not self.is_repeated:
            _check_calls(self.given, face, self.tools)
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

    def go_on(self, face: Conversation) -> tuple[Conversation, list[stored.StoredItem]]:
        """Append them for a model to go on; Problem where it is not its turn then."""
        conversation, items = self.say(face)
        step = "model" if self.is_repeated else conversation.next_step()
        if step == "tools":
            problem = "Other calls wait for their outputs."
            raise problems.Problem(
                409, problem, param="tool_outputs", code="tool_calls_pending", headers=problems.NO_RETRY
            )
        if step == "user":
            problem = "There is nothing for the model to go on with: it is the user's turn."
            raise problems.Problem(409, problem, param="tool_outputs", code="conflict", headers=problems.NO_RETRY)
        return conversation, items

    def take_back(self, conversation: Conversation) -> None:
        """Remove them (blocking), unless a repeated request finds them."""
        if self.key is None:
            for position in reversed(self.said):
                conversation.remove_item(position, purge=True)


def _check_calls(given: Sequence[jsontext.JsonObject], face: Conversation, tools: loops.ToolLoop | None) -> None:
    """Raise Problem for an output that no call waits for; asynchronous calls wait for as long as it takes."""
    open_calls = [(call_id, CLIENT_CALLS[item["type"]], item) for call_id, item in waiting_calls(face.handle)]
    known, later = {call[:2] for call in open_calls}, set[str]()
    for number, item in enumerate(given):
        call_id = call_kinds.reference_of(item) or ""
        answered = call_id, CLIENT_OUTPUTS[item["type"]]
        if call_id not in later and answered not in (call[:2] for call in open_calls):
            later.add(call_id)
            found = [(call_id, CLIENT_CALLS[call["type"]], call) for call in asynchronous_calls(face.handle, call_id)]
            open_calls += [call for call in found if call[:2] not in known]
        place = next((place for place, call in enumerate(open_calls) if call[:2] == answered), None)
        param = f"tool_outputs.{number}.{call_kinds.BY_OUTPUT[item['type']].output_key}"
        if place is None:
            problem = f"{param}: no call {shown(call_id)} waits for an output of the type {item['type']!r}."
            raise problems.Problem(400, problem, param=param, code="invalid_value")
        tool_runs.check_output(tools, item_from_object(open_calls.pop(place)[2]), param)
