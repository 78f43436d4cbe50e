"""Items of conversations, as OpenAI's Conversations API has them.

Source: OpenAI's API reference, "Conversations", items.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from starlette.responses import Response

from threadkeep.domain.jsontext import JsonObject, dumps, dumps_finite
from threadkeep.domain.stored import bytes_of
from threadkeep.errors import InvalidItem
from threadkeep.server import answers, body_limits, objects, pages
from threadkeep.server.objects import masked
from threadkeep.server.problems import Problem
from threadkeep.server.requests import PageQuery, body_object, expected_head, flag, idempotency_key, required
from threadkeep.server.service import Call
from threadkeep.store.conversation import Conversation
from threadkeep.store.reading.reader import Reader
from threadkeep.store.work.connections import made_aside
from threadkeep.store.work.refs import check_unique_ids

_ITEMS: Final = re.compile(r"^(?:items|input)\b")


async def create(call: Call) -> Response:
    """POST /conversations/{id}/items: appends items, all or none."""
    body = await body_object(call.request, call.service.max_body_bytes)
    conversation = await call.conversation()
    items = await given_items(call, required(body, "items"), into=conversation.id)
    head = expected_head(call.request)
    stored = await conversation.add_items(
        items,
        idempotency_key=idempotency_key(call.request),
        expected_head=head,
        on_conflict="raise",
        unique_ids=True,
        known=False,
    )
    etag = {"ETag": f'"{stored[-1].position}"'} if stored else None

    def text() -> bytes:
        data = [objects.item_object(item, masked(call)) for item in stored]
        return dumps_finite(pages.list_object(data, has_more=False))

    return answers.JsonAnswer(await made_aside(bytes_of(stored), text), headers=etag)


async def list_all(call: Call) -> Response:
    """GET /conversations/{id}/items: a page of them, newest first unless asked otherwise."""
    page = PageQuery.of(call.request)

    def read(reader: Reader) -> bytes:
        return pages.listed_items(reader, call.find(reader), page, lambda item: objects.item_object(item, masked(call)))

    return answers.JsonAnswer(await call.read(read))


async def retrieve(call: Call) -> Response:
    """GET /conversations/{id}/items/{item_id}."""
    id_ = call.request.path_params["item_id"]

    def read(reader: Reader) -> bytes:
        item = reader.first_item(call.find(reader), id_)
        return pages.item_text(item, lambda item: objects.item_object(item, masked(call)))

    return answers.JsonAnswer(await call.read(read))


async def delete(call: Call) -> Response:
    """DELETE /conversations/{id}/items/{item_id}: from what the model sees and, with ``purge=true``, for good."""
    purge = flag(call.request, "purge")
    id_ = call.request.path_params["item_id"]

    def read(reader: Reader) -> tuple[Conversation, int]:
        conversation = call.find(reader)
        return conversation, reader.first_item(conversation, id_).position

    conversation, position = await call.read(read)
    await call.store.face_of(conversation).remove_item(position, purge=purge)
    return answers.JsonAnswer(objects.conversation_object(await call.conversation(), is_whole=call.may_read))


async def given_items(
    call: Call, items: Any, name: str = "items", most: int = 0, *, into: str | None = None
) -> list[JsonObject]:
    """Return the items of a list, with what references in it stand for.

    An item that is referred to again, or is in the conversation `into` already, is one more item without its id.

    As many are accepted as the service says, or `most`, if that is more. What references stand for is limited, all
    together, as the body of a request is.
    """
    if not isinstance(items, list):
        raise Problem(400, f"{name} must be a list.", param=name, code="invalid_type")
    body_limits.check_length(name, items, max(call.service.max_items, most), "items")
    left, found = call.service.max_body_bytes, list[JsonObject]()
    known: dict[str, tuple[JsonObject, int]] = {}  # id -> item, and the size of its JSON text
    for index, item in enumerate(items):
        param = f"{name}[{index}]"
        reference = _reference(call, item, param)
        if reference is None:
            body_limits.check_parts(param, item)
            found.append(item)
            continue
        is_new = reference not in known
        if is_new:
            stored = await call.store.get_item(reference)
            is_new = stored.conversation_id != into
            given = {**stored.given(), "id": stored.id}
            known[reference] = given, len(dumps(given))
        given, size = known[reference]
        given = given if is_new else {key: value for key, value in given.items() if key != "id"}
        left -= size
        if left < 0:
            problem = f"The items that {name} refers to are too large together."
            raise Problem(413, problem, param=param, code="request_too_large")
        found.append(given)
    if into is None:  # otherwise, the store checks them where it looks for items with their ids
        with named(name):
            check_unique_ids({index: item["id"] for index, item in enumerate(found) if isinstance(item.get("id"), str)})
    return found


@contextmanager
def named(name: str) -> Iterator[None]:
    """Let errors of the store about items call them what the request does."""
    try:
        yield
    except InvalidItem as error:
        argument = _ITEMS.sub(name, error.argument or "")
        raise InvalidItem(error.message, argument=argument, hint=error.hint) from error


def _reference(call: Call, item: Any, param: str) -> str | None:
    """The id of the item that is meant; None for an item that is given itself."""
    if not isinstance(item, dict):
        raise Problem(400, f"{param} must be an object.", param=param, code="invalid_type")
    if item.get("type") != "item_reference" and set(item) != {"id"}:
        return None
    id_ = item.get("id")
    if not isinstance(id_, str):
        raise Problem(400, f"{param}.id must be the id of an item.", param=f"{param}.id", code="invalid_type")
    if not call.may_read:
        raise Problem(403, f"{param}: the key does not allow to read items.", param=param, code="missing_scope")
    return id_
