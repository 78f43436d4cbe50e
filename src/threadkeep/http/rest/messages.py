"""Messages: what is said, what others think of it, and other versions of it on branches."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any, Final, cast

from starlette.responses import Response

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.stored import Page, StoredItem
from threadkeep.http.answers import JsonAnswer
from threadkeep.http.openai.objects import list_object, listed_items
from threadkeep.http.problems import Problem
from threadkeep.http.requests import PageQuery, expected_head, flag, idempotency_key
from threadkeep.http.rest.answering import Turn, answer, stored_turn, upstream_of
from threadkeep.http.rest.bodies import read_body, seconds
from threadkeep.http.rest.media import has_media, with_media
from threadkeep.http.rest.models import (
    ActiveBranch,
    Asking,
    Content,
    EditedMessage,
    FeedbackValue,
    Labels,
    NewBranch,
    NewMessage,
    Regeneration,
)
from threadkeep.http.rest.objects import conversation_view, message_view
from threadkeep.http.service import Call
from threadkeep.http.upstreams import Upstream
from threadkeep.store.aio import AsyncConversation, active_branch, conversation_on, on_conversation, unused_branch
from threadkeep.store.conversation import Conversation

_BRANCH: Final = re.compile(r"[0-9]{1,9}")


async def conversation_on_branch(call: Call) -> AsyncConversation:
    """Open the conversation in the path, on the branch that the query names."""
    conversation, branch = await call.conversation(), call.request.query_params.get("branch")
    if branch is None:
        return conversation
    if not _BRANCH.fullmatch(branch):
        raise Problem(400, "branch must be the number of a branch.", param="branch", code="invalid_value")
    return await conversation.on_branch(int(branch))


async def list_all(call: Call) -> Response:
    """List the items of a branch, newest first unless asked otherwise."""
    page = PageQuery.of(call.request)
    conversation = await conversation_on_branch(call)

    async def read(after: str | None, limit: int) -> Page[StoredItem]:
        return await conversation.items(
            after=after, limit=limit, order=page.order, annotations=True, media="reference"
        )  # fmt: skip

    found = await listed_items(page, conversation, read, message_view)
    return JsonAnswer(list_object(found.data, has_more=found.next is not None))


async def retrieve(call: Call) -> Response:
    """Retrieve an item."""
    conversation = await conversation_on_branch(call)
    return JsonAnswer(await _stored_message(call, conversation, call.request.path_params["item_id"]))


async def _stored_message(call: Call, conversation: AsyncConversation, id_: str) -> JsonObject:
    """An item as it is stored."""
    item = await conversation.get_item(id_, annotations=True, media="reference")
    return message_view(item, is_whole=call.may_read)


async def create(call: Call) -> Response:
    """Append a message of the user and, unless told otherwise, have the model answer it."""
    body = await read_body(call, NewMessage)
    conversation = await conversation_on_branch(call)
    upstream = upstream_of(call, conversation, body) if body.answer else None
    content, key = await with_media(call, body.content), key_of_input(call)
    options: dict[str, Any] = {
        "expected_head": expected_head(call.request), "on_conflict": "raise", "idempotency_key": key,
    }  # fmt: skip
    said: list[int] = []

    def say(face: Conversation) -> tuple[Conversation, StoredItem]:
        item = face.user(content, **options)
        said[:] = [item.position]
        if item.branch != face.branch:  # where an earlier request with this key said it
            face = face.on_branch(item.branch)
        is_read = item.replayed or has_media(body.content)  # for its time, and with media by reference
        return face, face.get_item(item.position, media="reference") if is_read else item

    def take_back(face: Conversation) -> None:
        if key is None:
            face.remove_item(said[0], purge=True)

    if upstream is None:
        said_on, item = await on_conversation(conversation, say)
        return JsonAnswer(stored_turn(conversation_on(call.store, said_on), item), 201)
    asked, model = upstream
    return await answer(call, conversation, asked, body, Turn(content_of(call, body), model, say, take_back))


async def edit(call: Call) -> Response:
    """Say something else in the place of a message, on a branch of its own, which becomes the active one."""
    body = await read_body(call, EditedMessage)
    conversation = await conversation_on_branch(call)
    upstream = upstream_of(call, conversation, body) if body.answer else None
    item_id, content = call.request.path_params["item_id"], await with_media(call, body.content)
    key = key_of_input(call)
    if upstream is None:
        edited = await conversation.edit(item_id, content, idempotency_key=key)
        return JsonAnswer(stored_turn(edited, await edited.get_item(edited.head, media="reference")), 201)
    return await _answered(call, conversation, upstream, body, _Version(key, item_id, content))


async def regenerate(call: Call) -> Response:
    """Have the model answer again, on a branch of its own, which becomes the active one."""
    body = await read_body(call, Regeneration)
    conversation = await conversation_on_branch(call)
    upstream = upstream_of(call, conversation, body)
    return await _answered(call, conversation, upstream, body, _Version(key_of_input(call), body.item_id))


async def _answered(
    call: Call, conversation: AsyncConversation, asked: tuple[Upstream, str], body: Asking, version: _Version
) -> Response:
    """The answer to another version; where a refused request has left a branch for it, on that one."""
    upstream, model = asked
    turn = Turn(content_of(call, body), model, version.say, version.take_back)
    try:
        return await answer(call, conversation, upstream, body, turn)
    except _UnusedBranch as found:
        version.place = found.place
        return await answer(call, conversation, upstream, body, turn)


def key_of_input(call: Call) -> str | None:
    """Under which a repeated request finds what was said."""
    key = idempotency_key(call.request)
    return None if key is None else f"{key}:input"


def content_of(call: Call, body: Asking) -> JsonObject:
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
    content: Content | None = None
    place: int | None = None
    former: int | None = None
    said: int | None = None

    def say(self, face: Conversation) -> tuple[Conversation, StoredItem | None]:
        """Say it (blocking); return the conversation, on its branch, and the message.

        Raises:
            _UnusedBranch: it could be on a branch that is there, and is to be said again with its place.
        """
        self.former = active_branch(face)
        made = self._on_unused(face) or self._on_new(face)
        if self.content is None:
            return made, None
        self.said = made.head
        return made, made.get_item(self.said, media="reference")

    def _on_unused(self, face: Conversation) -> Conversation | None:
        found = None if self.place is None else unused_branch(face, self.place)
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
        if self.key is None and self.place is None:
            [branch] = face.branches(after=made.branch - 1, limit=1)
            place = cast("int", branch.fork_position)
            found = unused_branch(face, place)
            if found is not None and found.branch != made.branch:
                raise _UnusedBranch(place)
        return made

    def take_back(self, made: Conversation) -> None:
        """Let the conversation go on where it did, unless somebody has chosen another branch since (blocking)."""
        if self.key is not None:
            return
        if self.said is not None:
            made.remove_item(self.said, purge=True)
        if self.former is not None and active_branch(made) == made.branch:
            made.set_active_branch(self.former)


async def delete(call: Call) -> Response:
    """Remove an item from what the model sees; with ``purge=true``, for good."""
    purge = flag(call.request, "purge")
    conversation, id_ = await conversation_on_branch(call), call.request.path_params["item_id"]
    await conversation.remove_item(id_, purge=purge, idempotency_key=idempotency_key(call.request))
    return JsonAnswer({"id": id_, "object": "conversation.item.deleted", "deleted": True})


async def set_feedback(call: Call) -> Response:
    """Say what one thinks of an item."""
    body = await read_body(call, FeedbackValue)
    conversation, id_ = await conversation_on_branch(call), call.request.path_params["item_id"]
    await conversation.set_feedback(
        id_, rating=body.rating, comment=body.comment, idempotency_key=idempotency_key(call.request)
    )  # fmt: skip
    return JsonAnswer(await _stored_message(call, conversation, id_))


async def set_labels(call: Call) -> Response:
    """Replace the labels of an item."""
    body = await read_body(call, Labels)
    conversation, id_ = await conversation_on_branch(call), call.request.path_params["item_id"]
    await conversation.label_item(id_, body.labels, idempotency_key=idempotency_key(call.request))
    return JsonAnswer(await _stored_message(call, conversation, id_))


# Branches


async def siblings(call: Call) -> Response:
    """Tell the variants at the place of an item."""
    conversation = await conversation_on_branch(call)
    found = await conversation.siblings(call.request.path_params["item_id"])
    variants = [{"branch": one.branch, "position": one.position} for one in found.variants]
    return JsonAnswer({"object": "siblings", "index": found.index, "count": found.count, "variants": variants})


async def list_branches(call: Call) -> Response:
    """List the branches of a conversation."""
    conversation, page = await call.conversation(), PageQuery.of(call.request)
    found = await conversation.branches(after=page.after, limit=page.limit)
    data = [
        {
            "id": one.number, "object": "branch", "parent": one.parent, "fork_position": one.fork_position,
            "head": one.head_position, "is_active": one.is_active, "created_at": seconds(one.created_at),
        }
        for one in found
    ]  # fmt: skip
    named = list_object(data, has_more=found.next is not None)
    return JsonAnswer({**named, "first_id": str(named["first_id"]), "last_id": found.next or str(named["last_id"])})


async def fork(call: Call) -> Response:
    """Fork a branch, on which the conversation can go on differently."""
    body = await read_body(call, NewBranch)
    conversation = await conversation_on_branch(call)
    made = await conversation.fork(body.at, idempotency_key=idempotency_key(call.request))
    return JsonAnswer(conversation_view(made, is_whole=call.may_read), 201)


async def set_active_branch(call: Call) -> Response:
    """Choose the branch on which the conversation goes on."""
    body = await read_body(call, ActiveBranch)
    conversation = await call.conversation()
    await conversation.set_active_branch(body.branch, idempotency_key=idempotency_key(call.request))
    return JsonAnswer(conversation_view(await call.conversation(), is_whole=call.may_read))
