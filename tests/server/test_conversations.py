"""Conversations and their items, through OpenAI's client."""

from __future__ import annotations

from typing import Any

import httpx2
import openai
import pytest

from tests.server.conftest import Bridge
from tests.server.scripts import Scripted
from threadkeep import AsyncStore
from threadkeep.http import rest_app

PICTURE = "data:image/png;base64,iVBORw0KGgo="
HELLO = {"type": "message", "role": "user", "content": "Hello"}


def said(items: Any) -> list[str]:
    return [part.text for item in items for part in item.content]


def words(count: int) -> list[Any]:
    return [{"role": "user", "content": str(number)} for number in range(count)]


def test_a_conversation_lives(client: Any) -> None:
    made = client.conversations.create(metadata={"topic": "demo"}, items=[HELLO])
    assert made.object == "conversation"
    assert client.conversations.retrieve(made.id).metadata == {"topic": "demo"}
    assert said(client.conversations.items.list(made.id)) == ["Hello"]
    assert client.conversations.update(made.id, metadata={"topic": "other"}).metadata == {"topic": "other"}
    assert client.conversations.update(made.id, metadata=None).metadata == {}
    gone = client.conversations.delete(made.id)
    assert (gone.id, gone.object, gone.deleted) == (made.id, "conversation.deleted", True)
    with pytest.raises(openai.NotFoundError):
        client.conversations.retrieve(made.id)


def test_an_empty_body_is_enough(client: Any) -> None:
    made = client.conversations.create()
    assert made.metadata == {}
    page = client.conversations.items.list(made.id)
    assert (page.data, page.has_more, page.last_id) == ([], False, "")


def test_items_come_as_clients_validate_them(client: Any) -> None:
    made = client.conversations.create()
    stored = client.conversations.items.create(
        made.id,
        items=[
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What is this?"},
                    {"type": "input_image", "image_url": PICTURE},
                ],
            },
            {"type": "reasoning", "summary": [], "encrypted_content": "opaque"},
            {"type": "function_call", "call_id": "call_1", "name": "look", "arguments": "{}"},
            {"type": "function_call_output", "call_id": "call_1", "output": "A cat"},
            {"role": "assistant", "content": "A cat."},
        ],
    )
    prefixes = ["msg", "rs", "fc", "fco", "msg"]
    assert [item.id.split("_")[0] for item in stored.data] == prefixes
    assert (stored.first_id, stored.last_id) == (stored.data[0].id, stored.data[-1].id)
    for item in stored.data:
        assert client.conversations.items.retrieve(item.id, conversation_id=made.id) == item
    copied = client.conversations.create(items=[item.to_dict() for item in stored.data])
    assert [item.id for item in client.conversations.items.list(copied.id, order="asc")] == [
        item.id for item in stored.data
    ]


def test_each_item_is_stored_once(client: Any) -> None:
    made = client.conversations.create(items=[{**HELLO, "id": "msg_own"}, *words(4)])
    held = [item.to_dict() for item in client.conversations.items.list(made.id, order="asc")]
    twice = [{**HELLO, "id": "msg_new"}] * 2
    for items, index in ([held[0]], 0), ([held[3]], 0), ([*words(1), held[4]], 1), (held, 0), (twice, 1):
        with pytest.raises(openai.BadRequestError) as refusal:
            client.conversations.items.create(made.id, items=items)
        assert refusal.value.param == f"items[{index}].id"
    assert [item.id for item in client.conversations.items.list(made.id, order="asc")] == [one["id"] for one in held]
    with pytest.raises(openai.BadRequestError) as refusal:
        client.conversations.create(items=twice)
    assert refusal.value.param == "items[1].id"


def test_a_request_with_a_key_is_repeated_with_its_items(client: Any) -> None:
    made, key = client.conversations.create(), {"Idempotency-Key": "one"}
    added = [
        client.conversations.items.create(made.id, items=[{**HELLO, "id": "msg_own"}], extra_headers=key)
        for _ in range(2)
    ]
    assert added[0] == added[1]
    assert len(client.conversations.items.list(made.id).data) == 1


def test_a_removed_item_may_be_added_again(client: Any) -> None:
    made = client.conversations.create(items=[{**HELLO, "id": "msg_own"}])
    client.conversations.items.delete("msg_own", conversation_id=made.id)
    client.conversations.items.create(made.id, items=[{**HELLO, "id": "msg_own"}])
    assert said(client.conversations.items.list(made.id)) == ["Hello"]


@pytest.mark.parametrize("order", ["asc", "desc"])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_items_of_servers_that_repeat_their_ids_are_all_listed(
    served: Any, client: Any, order: str, limit: int
) -> None:
    made = client.conversations.create()
    conversation = served.call(served.store.get_conversation, made.id)
    for number in range(4):
        message = {"type": "message", "id": "msg_0", "role": "assistant", "content": str(number)}
        served.call(conversation.add_item, message)
        served.call(conversation.user, f"after {number}")
    expected = [text for number in range(4) for text in (str(number), f"after {number}")]
    listed = list(client.conversations.items.list(made.id, order=order, limit=limit))
    assert said(listed) == (expected if order == "asc" else expected[::-1])
    assert len({item.id for item in listed}) == len(listed)
    for item in listed:
        assert client.conversations.items.retrieve(item.id, conversation_id=made.id) == item
    client.conversations.items.delete(
        next(item.id for item in listed if said([item]) == ["2"]), conversation_id=made.id
    )
    assert "2" not in said(client.conversations.items.list(made.id, order=order, limit=limit))


def test_all_items_are_paged_once_in_either_order(client: Any) -> None:
    made = client.conversations.create(items=words(20))
    client.conversations.items.create(made.id, items=words(20))
    expected = [str(number) for number in [*range(20), *range(20)]]
    for order in ("asc", "desc"):
        found = said(client.conversations.items.list(made.id, order=order, limit=7))
        assert found == (expected if order == "asc" else expected[::-1])
    assert len(client.conversations.items.list(made.id).data) == 20


def test_a_removed_item_is_not_found(client: Any) -> None:
    made = client.conversations.create(items=words(3))
    first, second, third = (item.id for item in client.conversations.items.list(made.id, order="asc"))
    assert client.conversations.items.delete(second, conversation_id=made.id).id == made.id
    client.conversations.items.delete(third, conversation_id=made.id, extra_query={"purge": "true"})
    assert [item.id for item in client.conversations.items.list(made.id)] == [first]
    with pytest.raises(openai.NotFoundError):
        client.conversations.items.retrieve(second, conversation_id=made.id)


def test_references_stand_for_items_of_the_same_owner(client: Any, served: Any) -> None:
    made = client.conversations.create(items=[{**HELLO, "id": "msg_hello"}])
    other = client.conversations.create(items=[{"type": "item_reference", "id": "msg_hello"}])
    assert said(client.conversations.items.list(other.id)) == ["Hello"]
    stranger = served.client("ben")
    with pytest.raises(openai.NotFoundError):
        stranger.conversations.create(items=[{"type": "item_reference", "id": "msg_hello"}])
    assert stranger.get("/conversations", cast_to=object)["data"] == []
    assert made.id != other.id


@pytest.mark.parametrize("place", ["/conversations", "/conversations/{}/items", "/responses"])
def test_an_item_that_is_referred_to_counts_each_time_and_is_loaded_once(
    served: Any, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    loaded, load = [], AsyncStore.get_item

    async def noting(store: AsyncStore, id: str) -> Any:
        loaded.append(id)
        return await load(store, id)

    monkeypatch.setattr(AsyncStore, "get_item", noting)
    upstream = Scripted("chat_completion")
    http = served.http(max_body_bytes=5_000, upstreams={"m": upstream.upstream})
    items = [{**HELLO, "id": "msg_long", "content": "x" * 1_000}, {**HELLO, "id": "msg_short"}]
    path = place.format(http.post("/conversations", json={"items": items}).json()["id"])
    for count, status in ((4, 200), (5, 413)):
        loaded.clear()
        upstream.will_say("Yes.")
        references = [*({"type": "item_reference", "id": "msg_long"} for _ in range(count)), {"id": "msg_short"}]
        answer = http.post(path, json={"model": "m", "input": references} if "resp" in path else {"items": references})
        assert answer.status_code == status, answer.text
        assert loaded == ["msg_long", "msg_short"][: 2 if status == 200 else 1]
    error = answer.json()["error"]
    assert (error["code"], error["param"]) == ("request_too_large", "input[4]" if "resp" in path else "items[4]")


def test_a_repeated_request_writes_nothing(client: Any) -> None:
    once = {"Idempotency-Key": "one"}
    made = [client.conversations.create(items=[HELLO], extra_headers=once) for _ in range(2)]
    assert made[0].id == made[1].id
    again = {"Idempotency-Key": "two"}
    added = [client.conversations.items.create(made[0].id, items=[HELLO], extra_headers=again) for _ in range(2)]
    assert added[0] == added[1]
    assert said(client.conversations.items.list(made[0].id)) == ["Hello", "Hello"]
    with pytest.raises(openai.ConflictError) as refusal:
        client.conversations.items.create(made[0].id, items=words(1), extra_headers=again)
    assert refusal.value.response.headers["x-should-retry"] == "false"


def test_an_append_can_expect_an_end(client: Any) -> None:
    made = client.conversations.with_raw_response.create(items=[HELLO])
    id_, etag = made.parse().id, made.headers["etag"]
    assert etag == '"0"'
    client.conversations.items.create(id_, items=[HELLO], extra_headers={"If-Match": etag})
    with pytest.raises(openai.ConflictError) as refusal:
        client.conversations.items.create(id_, items=[HELLO], extra_headers={"If-Match": etag})
    assert refusal.value.code == "head_conflict"
    assert len(client.conversations.items.list(id_).data) == 2


@pytest.mark.parametrize(
    ("items", "param"),
    [
        (None, "items"),
        ("text", "items"),
        (["text"], "items[0]"),
        ([HELLO, {"type": 1}], "items[1].type"),
        (words(21), "items"),
        ([{"type": "item_reference", "id": 7}], "items[0].id"),
    ],
)
def test_bad_items_are_refused_as_a_whole(client: Any, items: Any, param: str) -> None:
    made = client.conversations.create()
    with pytest.raises(openai.BadRequestError) as refusal:
        client.post(f"/conversations/{made.id}/items", cast_to=object, body={"items": items})
    assert refusal.value.type == "invalid_request_error"
    assert refusal.value.param == param
    assert client.conversations.items.list(made.id).data == []


@pytest.mark.parametrize(
    "metadata", [{"k" * 65: "v"}, {"k": "v" * 513}, {str(number): "v" for number in range(17)}, {"k": 1}, "text"]
)
def test_metadata_has_its_limits(client: Any, metadata: Any) -> None:
    with pytest.raises(openai.BadRequestError) as refusal:
        client.conversations.create(metadata=metadata)
    assert str(refusal.value.param).startswith("metadata")
    client.conversations.create(metadata={"k" * 64: "v" * 512})


@pytest.mark.parametrize(
    ("query", "status", "param"),
    [
        ({"limit": "0"}, 400, "limit"),
        ({"limit": "101"}, 400, "limit"),
        ({"limit": "9" * 5000}, 400, "limit"),
        ({"limit": "0" * 8 + "9" * 5000}, 400, "limit"),
        ({"limit": "000000001000"}, 400, "limit"),
        ({"limit": "²"}, 400, "limit"),
        ({"order": "up"}, 400, "order"),
        ({"after": "msg_unknown"}, 404, None),
    ],
)
def test_pages_are_checked(client: Any, http: Any, query: dict[str, str], status: int, param: str | None) -> None:
    made = client.conversations.create(items=[HELLO])
    answer = http.get(f"/conversations/{made.id}/items", params=query)
    assert answer.status_code == status
    assert answer.json()["error"]["param"] == param


def test_masked_parts_come_when_they_are_asked_for(served: Any) -> None:
    client = served.client(masked=["reasoning.encrypted_content"])
    thought: Any = {"type": "reasoning", "summary": [], "encrypted_content": "opaque"}
    made = client.conversations.create(items=[thought])
    [plain] = client.conversations.items.list(made.id)
    assert plain.encrypted_content is None
    [whole] = client.conversations.items.list(made.id, include=["reasoning.encrypted_content"])
    assert whole.encrypted_content == "opaque"


def test_conversations_are_listed_page_by_page(client: Any, served: Any) -> None:
    made = [client.conversations.create(items=[HELLO]).id for _ in range(5)]
    found: list[str] = []
    after: dict[str, Any] = {}
    while True:
        page = client.get("/conversations", cast_to=object, options={"params": {"limit": 2, **after}})
        found += [one["id"] for one in page["data"]]
        if not page["has_more"]:
            break
        after = {"after": page["last_id"]}
    assert found == made[::-1]
    labelled = served.call(served.store.create_conversation, user_id="ann", labels={"kind": "demo"}, title="Demo")
    [one] = client.get("/conversations", cast_to=object, options={"params": {"labels[kind]": "demo"}})["data"]
    assert (one["id"], one["title"], one["labels"]) == (labelled.id, "Demo", {"kind": "demo"})


def test_few_labels_are_looked_for_at_once(served: Any, http: Any) -> None:
    """The statements of lists are kept: they must not grow with what anybody asks for."""
    with httpx2.Client(
        transport=Bridge(served.runner, rest_app(served._store, auth=served.authenticate)),
        base_url="http://localhost/api",
        headers=http.headers,
    ) as rest:
        for face in (http, rest):
            for count, status in ((16, 200), (17, 400)):
                answer = face.get("/conversations", params={f"labels[k{number}]": "v" for number in range(count)})
                assert answer.status_code == status, answer.text
            error = answer.json()["error"]
            assert (error["param"], error["message"]) == (
                "labels", "labels has 17 pairs, at most 16 can be looked for at once."
            )  # fmt: skip


def test_an_application_finds_conversations_by_its_own_ids(client: Any, served: Any) -> None:
    served.call(served.store.create_conversation, user_id="ann", external_id="ticket 7", input="Hello")
    found = client.conversations.retrieve("ticket 7")
    assert found.id.startswith("conv_")
    assert said(client.conversations.items.list("ticket 7")) == ["Hello"]


def test_errors_are_objects(http: Any) -> None:
    for answer, status in (
        (http.get("/unknown"), 404),
        (http.put("/conversations"), 405),
        (http.post("/conversations", content=b"{"), 400),
        (http.post("/conversations", content=b"[]"), 400),
        (http.post("/conversations", content=b"x" * 20_000_000), 413),
        (http.post("/conversations/conv_unknown", json={}), 400),
    ):
        assert answer.status_code == status
        assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
        assert answer.headers["x-request-id"].startswith("req_")


@pytest.mark.parametrize("pattern", ["m", "m*", "*"])
def test_models_are_those_that_upstreams_answer_for(served: Any, pattern: str) -> None:
    client = served.client(
        upstreams={pattern: Scripted("chat_completion").upstream, "vendor/m2": Scripted("messages").upstream}
    )
    assert [model.id for model in client.models.list()] == (["m", "vendor/m2"] if pattern == "m" else ["vendor/m2"])
    found = client.models.retrieve("m")
    assert (found.id, found.object, found.owned_by) == ("m", "model", "scripted-chat_completion")
    assert client.models.retrieve("vendor/m2").owned_by == "scripted-messages"
    if pattern != "*":
        with pytest.raises(openai.NotFoundError) as refusal:
            client.models.retrieve("unknown")
        assert refusal.value.code == "model_not_found"


@pytest.mark.parametrize("prefix", ["/v1", ""])
@pytest.mark.parametrize(
    ("method", "path", "status", "says"),
    [
        ("GET", "/chat/completions/chatcmpl-1", 404, "with resp_ in place of chatcmpl-"),
        ("POST", "/embeddings", 404, "provider"),
        ("GET", "/responses", 405, "POST"),
        ("POST", "/files", 404, "media"),
        ("PUT", "/conversations", 405, "PUT"),
        ("GET", "/something", 404, "does not have this path"),
    ],
)
def test_what_is_not_served_says_what_to_do_instead(
    served: Any, prefix: str, method: str, path: str, status: int, says: str
) -> None:
    transport = Bridge(served.runner, served.application(prefix=prefix))
    with httpx2.Client(transport=transport, base_url="http://localhost" + prefix) as http:
        answer = http.request(method, path, headers={"Authorization": "Bearer ann"}, json={})
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]


def test_an_id_stands_for_one_item(client: openai.OpenAI) -> None:
    """Twice in a request, or of an item that is there: refused in the words that clients of OpenAI know."""
    said: Any = {"type": "message", "role": "user", "content": "Hi"}
    named: Any = {**said, "id": "msg_1"}
    talk = client.conversations.create(items=[named])
    refused: list[tuple[str, Any, dict[str, Any]]] = [
        ("items[2].id", client.conversations.create, {"items": [named, said, named]}),
        ("items[1].id", client.conversations.items.create, {"conversation_id": talk.id, "items": [named, named]}),
        ("items[0].id", client.conversations.items.create, {"conversation_id": talk.id, "items": [named]}),
    ]
    for param, ask, body in refused:
        with pytest.raises(openai.BadRequestError, match="Duplicate item found with id msg_1: ") as error:
            ask(**body)
        assert error.value.param == param
    assert [item.id for item in client.conversations.items.list(talk.id)] == ["msg_1"]
