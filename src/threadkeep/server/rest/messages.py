"""Messages: what is said, what others think of it, and other versions of it on branches."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

from fastapi import Response

from threadkeep.domain import jsontext, stored
from threadkeep.server import pages, requests, sessions
from threadkeep.server.answers import JsonAnswer
from threadkeep.server.rest import deps, media, models, routing
from threadkeep.server.rest.answering import MessageInput, answer, stored_turn, upstream_of
from threadkeep.server.rest.objects import conversation_view, message_view, seconds, siblings_view
from threadkeep.server.service import Call
from threadkeep.server.upstreams import Upstream
from threadkeep.store.aio import AsyncConversation
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader

router = routing.api_router("/conversations/{conversation_id}")


@router.get("/messages", response_model=models.Listed[models.MessageObject])
async def list_messages(
    call: deps.Reading, conversation_id: str, after: deps.After = None, limit: deps.Limit = requests.DEFAULT_LIMIT,
    order: deps.Order = "desc", branch: deps.Branch = None, *, variants: deps.Variants = False,
) -> Response:  # fmt: skip
    """List the items of a branch, newest first unless asked otherwise; with ``variants=true``, "2 of 3" of each."""
    page = requests.PageQuery(after, limit, order)
    how: dict[str, Any] = {"annotations": True, "media": "reference", "variants": variants}

    def read(reader: Reader) -> bytes:
        conversation = deps.find_on_branch(reader, call, conversation_id, branch)
        return pages.listed_items(reader, conversation, page, message_view, **how)

    return JsonAnswer(await call.read(read))


@router.get("/messages/{item_id}", response_model=models.MessageObject)
async def retrieve_message(
    call: deps.Reading, conversation_id: str, item_id: str, branch: deps.Branch = None
) -> Response:
    """Retrieve an item."""

    def read(reader: Reader) -> bytes:
        conversation = deps.find_on_branch(reader, call, conversation_id, branch)
        item = reader.item(conversation, item_id, annotations=True, media="reference")
        return pages.item_text(item, message_view)

    return JsonAnswer(await call.read(read))


@router.post("/messages", **routing.answered_with(models.Answered))
async def create_message(
    call: deps.Writing, conversation_id: str, body: models.NewMessage, branch: deps.Branch = None,
    key: deps.IdempotencyKey = None, head: deps.IfMatch = None,
) -> Response:  # fmt: skip
    """Append a message of the user and, unless `answer` is false, have the model answer it."""
    conversation = await deps.writable(call, conversation_id, branch) if body.answer else None
    asked = None if conversation is None else upstream_of(call, conversation, body)
    content = await media.with_media(call, body.content)
    options: dict[str, Any] = {"expected_head": head, "on_conflict": "raise", "idempotency_key": key_of_input(key)}
    said: list[int] = []

    def say(face: Conversation) -> tuple[Conversation, stored.StoredItem]:
        item = face.user(content, **options)
        said[:] = [item.position]
        if item.branch != face.branch:  # where an earlier request with this key said it
            face = face.on_branch(item.branch)
        is_read = item.replayed or media.has_media(body.content)  # for its time, and with media by reference
        return face, face.get_item(item.position, media="reference") if is_read else item

    def take_back(face: Conversation) -> None:
        if key is None:
            face.remove_item(said[0], purge=True)

    if conversation is None or asked is None:
        return JsonAnswer(stored_turn(*await deps.on_conversation(call, conversation_id, branch, say)), 201)
    upstream, model = asked
    return await answer(call, conversation, upstream, body, MessageInput(content_of(call, body), model, say, take_back))


@router.post("/messages/{item_id}/edit", **routing.answered_with(models.Answered))
async def edit_message(
    call: deps.Writing, conversation: deps.Writable, item_id: str, body: models.EditedMessage,
    key: deps.IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Say something else in the place of a message, on a branch of its own, which becomes the active one."""
    upstream = upstream_of(call, conversation, body) if body.answer else None
    content = await media.with_media(call, body.content)
    if upstream is None:
        edited = await conversation.edit(item_id, content, idempotency_key=key_of_input(key))
        return JsonAnswer(stored_turn(edited, await edited.get_item(edited.head, media="reference")), 201)
    return await _answered(call, conversation, upstream, body, _Version(key_of_input(key), item_id, content))


@router.post("/regenerate", **routing.answered_with(models.Answered))
async def regenerate(
    call: deps.Writing, conversation: deps.Writable, body: models.Regeneration, key: deps.IdempotencyKey = None
) -> Response:
    """Have the model answer again, on a branch of its own, which becomes the active one."""
    upstream = upstream_of(call, conversation, body)
    return await _answered(call, conversation, upstream, body, _Version(key_of_input(key), body.item_id))


async def _answered(
    call: Call, conversation: AsyncConversation, asked: tuple[Upstream, str], body: models.Asking, version: _Version
) -> Response:
    """The answer to another version; where a refused request has left a branch for it, on that one."""
    upstream, model = asked
    turn = MessageInput(content_of(call, body), model, version.say, version.take_back)
    try:
        return await answer(call, conversation, upstream, body, turn)
    except _UnusedBranch as found:
        version.place = found.place
        return await answer(call, conversation, upstream, body, turn)


def key_of_input(key: str | None) -> str | None:
    """Return under which key a repeated request finds what was said."""
    return None if key is None else f"{key}:input"


def content_of(call: Call, body: models.Asking) -> jsontext.JsonObject:
    """All that a request asks for, but for the way it is answered."""
    request = call.request
    return {"path": request.url.path, "body": body.model_dump(exclude={"stream", "background"})}


class _UnusedBranch(Exception):
    """There is a branch at this place on which nothing is: the one that was made is taken back."""

    def __init__(self, place: int) -> None:
        super().__init__(place)
        self.place = place


@dataclass(slots=True)
class _Version:
    """Another version of a message or an answer, on a branch which becomes the active one.

    Attributes:
        key: under which a repeated request finds the branch, which stays then; without one, nothing is left on it, and
            the next version at its place is made there.
        item_id: what it is a version of; None for the newest answer.
        content: what the user says instead; None for another answer.
        place: the position after which an unused branch was found; None if none was.
        former: the branch on which the conversation went on before.
        said: the position of the message.
    """

    key: str | None
    item_id: str | None
    content: models.Content | None = None
    place: int | None = None
    former: int | None = None
    said: int | None = None

    def say(self, face: Conversation) -> tuple[Conversation, stored.StoredItem | None]:
        """Say it (blocking); return the conversation, on its branch, and the message.

        Raises:
            _UnusedBranch: it could be on a branch that is there, and is to be said again with its place.
        """
        self.former = face.handle.conversation.row.active_branch
        made = self._on_unused(face) or self._on_new(face)
        if self.content is None:
            return made, None
        self.said = made.head
        return made, made.get_item(self.said, media="reference")

    def _on_unused(self, face: Conversation) -> Conversation | None:
        found = None if self.place is None else sessions.unused_branch(face, self.place)
        if found is not None:
            found.set_active_branch(found.branch)
            if self.content is not None:
                found.user(self.content)
        return found

    def _on_new(self, face: Conversation) -> Conversation:
        if self.content is None:
            made = face.regenerate(self.item_id, idempotency_key=self.key)
        else:
            made = face.edit(cast("str", self.item_id), self.content, idempotency_key=self.key)
        if self.key is None and self.place is None and made.branch != face.branch:
            [branch] = face.branches(after=made.branch - 1, limit=1)
            place = cast("int", branch.fork_position)
            found = sessions.unused_branch(face, place)
            if found is not None and found.branch != made.branch:
                raise _UnusedBranch(place)
        return made

    def take_back(self, made: Conversation) -> None:
        """Let the conversation go on where it did, unless another branch was chosen since (blocking)."""
        if self.key is not None:
            return
        if self.said is not None:
            made.remove_item(self.said, purge=True)
        if self.former is not None and made.handle.conversation.row.active_branch == made.branch:
            made.set_active_branch(self.former)


@router.delete("/messages/{item_id}", response_model=models.Deleted)
async def delete_message(
    conversation: deps.Writable, item_id: str, key: deps.IdempotencyKey = None, *, purge: deps.Purge = False
) -> Response:
    """Remove an item from what the model sees; with ``purge=true``, for good."""
    await conversation.remove_item(item_id, purge=purge, idempotency_key=key)
    return JsonAnswer({"id": item_id, "object": "conversation.item.deleted", "deleted": True})


@router.post("/messages/{item_id}/redact", response_model=models.Redacted)
async def redact_message(conversation: deps.Writable, item_id: str, key: deps.IdempotencyKey = None) -> Response:
    """Remove the content of an item for good, on all branches; the item stays, with its type and ids."""
    await conversation.redact_item(item_id, idempotency_key=key)
    return JsonAnswer({"id": item_id, "object": "conversation.item.redacted", "redacted": True})


async def _annotated(call: Call, conversation: AsyncConversation, item_id: str) -> Response:
    item = await conversation.get_item(item_id, annotations=True, media="reference")
    return JsonAnswer(message_view(item, is_whole=call.may_read))


@router.put("/messages/{item_id}/feedback", response_model=models.MessageObject)
async def set_feedback(
    call: deps.Writing, conversation: deps.Writable, item_id: str, body: models.FeedbackValue,
    key: deps.IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Say what one thinks of an item."""
    await conversation.set_feedback(item_id, rating=body.rating, comment=body.comment, idempotency_key=key)
    return await _annotated(call, conversation, item_id)


@router.put("/messages/{item_id}/labels", response_model=models.MessageObject)
async def set_labels(
    call: deps.Writing, conversation: deps.Writable, item_id: str, body: models.Labels,
    key: deps.IdempotencyKey = None,
) -> Response:  # fmt: skip
    """Replace the labels of an item."""
    await conversation.label_item(item_id, body.labels, idempotency_key=key)
    return await _annotated(call, conversation, item_id)


# Branches


@router.get("/messages/{item_id}/siblings", response_model=models.SiblingsObject)
async def list_siblings(conversation: deps.Readable, item_id: str) -> Response:
    """Tell the variants at the place of an item."""
    return JsonAnswer(siblings_view(await conversation.siblings(item_id)))


@router.get("/branches", response_model=models.Listed[models.BranchObject])
async def list_branches(
    call: deps.Reading, conversation_id: str, after: deps.After = None, limit: deps.Limit = requests.DEFAULT_LIMIT
) -> Response:
    """List the branches of a conversation."""
    conversation = await call.conversation(conversation_id)
    found = await conversation.branches(after=after, limit=limit)
    data = [
        {
            "id": one.number, "object": "branch", "parent": one.parent, "fork_position": one.fork_position,
            "head": one.head_position, "is_active": one.is_active, "created_at": seconds(one.created_at),
        }
        for one in found
    ]  # fmt: skip
    named = pages.list_object(data, has_more=found.next is not None)
    return JsonAnswer({**named, "first_id": str(named["first_id"]), "last_id": found.next or str(named["last_id"])})


@router.post("/branches", status_code=201, response_model=models.ConversationObject)
async def fork(
    call: deps.Writing, conversation: deps.Writable, body: models.NewBranch, key: deps.IdempotencyKey = None
) -> Response:
    """Fork a branch, on which the conversation can go on differently."""
    made = await conversation.fork(body.at, idempotency_key=key)
    return JsonAnswer(conversation_view(made, is_whole=call.may_read), 201)


@router.put("/active_branch", response_model=models.ConversationObject)
async def set_active_branch(
    call: deps.Writing, conversation_id: str, body: models.ActiveBranch, key: deps.IdempotencyKey = None
) -> Response:
    """Choose the branch on which the conversation goes on."""
    conversation = await call.conversation(conversation_id)
    await conversation.set_active_branch(body.branch, idempotency_key=key)
    return JsonAnswer(conversation_view(await call.conversation(conversation_id), is_whole=call.may_read))
