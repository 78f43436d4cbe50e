"""Items of conversations, as OpenAI's Conversations API has them.

Source: OpenAI's API reference, "Conversations", items.
"""

from __future__ import annotations

from typing import Any

from starlette.responses import Response

from threadkeep.domain.jsontext import JsonObject, dumps
from threadkeep.domain.stored import Page, StoredItem
from threadkeep.http.answers import JsonAnswer
from threadkeep.http.bounds import check_length, check_parts
from threadkeep.http.openai.objects import (
    conversation_object,
    item_object,
    list_object,
    listed_items,
    position_in,
    with_unique_ids,
)
from threadkeep.http.problems import Problem
from threadkeep.http.requests import PageQuery, body_object, expected_head, flag, idempotency_key, included, required
from threadkeep.http.service import Call


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
    )
    data = [item_object(item, masked(call)) for item in stored]
    etag = {"ETag": f'"{stored[-1].position}"'} if stored else None
    return JsonAnswer(list_object(data, has_more=False), headers=etag)


async def list_all(call: Call) -> Response:
    """GET /conversations/{id}/items: a page of them, newest first unless asked otherwise."""
    page = PageQuery.of(call.request)
    conversation = await call.conversation()

    async def read(after: str | None, limit: int) -> Page[StoredItem]:
        return await conversation.items(after=after, limit=limit, order=page.order)

    found = await listed_items(page, conversation, read, lambda item: item_object(item, masked(call)))
    return JsonAnswer(list_object(found.data, has_more=found.next is not None))


async def retrieve(call: Call) -> Response:
    """GET /conversations/{id}/items/{item_id}."""
    conversation = await call.conversation()
    item = await conversation.get_item(await position_in(conversation, call.request.path_params["item_id"]))
    [shown] = await with_unique_ids(conversation, [item])
    return JsonAnswer(item_object(shown, masked(call)))


async def delete(call: Call) -> Response:
    """DELETE /conversations/{id}/items/{item_id}: from what the model sees and, with ``purge=true``, for good."""
    purge = flag(call.request, "purge")
    conversation = await call.conversation()
    await conversation.remove_item(await position_in(conversation, call.request.path_params["item_id"]), purge=purge)
    return JsonAnswer(conversation_object(await call.conversation(), is_whole=call.may_read))


def masked(call: Call) -> frozenset[str]:
    """Return the values of `include` that are masked and were not asked for."""
    return call.service.masked - included(call.request)


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
    check_length(name, items, max(call.service.max_items, most), "items")
    left, found, ids = call.service.max_body_bytes, [], set[str]()
    known: dict[str, tuple[JsonObject, int]] = {}  # id -> item, and the size of its JSON text
    for index, item in enumerate(items):
        param = f"{name}[{index}]"
        reference = _reference(call, item, param)
        if reference is None:
            check_parts(param, item)
            _check_new(item, ids, param)
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
        ids.add(reference)
        left -= size
        if left < 0:
            problem = f"The items that {name} refers to are too large together."
            raise Problem(413, problem, param=param, code="request_too_large")
        found.append(given)
    return found


def _check_new(item: JsonObject, ids: set[str], param: str) -> None:
    """Add the id of an item to those of the items before it; Problem where one of them has it."""
    id_ = item.get("id")
    if not isinstance(id_, str):
        return
    if id_ in ids:
        problem = f"Duplicate item found with id {id_}. Remove duplicate items from your input and try again."
        raise Problem(400, problem, param=param, code="invalid_value")
    ids.add(id_)


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
