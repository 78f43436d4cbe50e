"""Base64 media leaves the payload of an item and is spliced back wherever the item is read."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

import pytest

from tests.factories import a_message, a_picture, an_output, noise
from tests.store.watching import Tables
from threadkeep import Session, data_url
from threadkeep.domain.content import InputFile, InputImage
from threadkeep.store.media.cutting import BLOB_BYTES

pytestmark = pytest.mark.one_face

BIG = BLOB_BYTES * 3 // 4 + 3  # bytes whose base64 is just over the limit


def urls(item: Any) -> list[str]:
    return [part.to_dict()["url"] for part in item.content]


def test_a_picture_leaves_the_payload(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    content = noise(30_000)
    conversation.user(["Look", a_picture(content)])
    [row] = tables.rows("items", "position")
    assert len(row["payload"]) < 300
    [blob] = tables.rows("blobs")
    assert (blob["hash"], blob["content"]) == (sha256(content).digest(), content)
    [link] = tables.rows("item_blobs")
    assert row["payload"][: link["splice_at"]].endswith("data:image/png;base64,")
    found = elsewhere.get_conversation(conversation.id)
    expected = a_picture(content)["image_url"]
    assert found.get_item(0).item.content[1].to_dict()["url"] == expected
    assert found.session().items[0].content[1].to_dict()["url"] == expected
    for wire in ("open_responses", "chat_completion"):
        assert expected.encode() in found.request_body(wire)
        assert found.request_body(wire) == conversation.request_body(wire)
    assert json.loads(found.request_body("open_responses"))["input"][0]["content"][1]["image_url"] == expected


@pytest.mark.parametrize(("size", "blobs"), [(BIG - 6, 0), (BIG, 1), (BIG + 1, 1), (BIG + 2, 1), (1_000_000, 1)])
def test_small_pictures_stay(conversation: Any, elsewhere: Any, tables: Tables, size: int, blobs: int) -> None:
    picture = a_picture(noise(size))
    conversation.user([picture])
    assert tables.counts()["blobs"] == blobs
    assert urls(elsewhere.get_conversation(conversation.id).get_item(0).item) == [picture["image_url"]]


def test_the_same_picture_is_kept_once(store: Any, tables: Tables) -> None:
    picture, other = a_picture(noise(20_000)), a_picture(noise(20_000, seed=1), "image/jpeg")
    one, two = (store.create_conversation(model="m") for _ in range(2))
    one.user([picture, "and", other, picture])
    two.user([picture])
    two.user([a_picture(noise(20_000), "image/webp")])
    assert (tables.counts()["blobs"], tables.counts()["item_blobs"]) == (2, 5)
    assert urls(store.get_conversation(two.id).get_item(0).item) == [picture["image_url"]]
    found = store.get_conversation(one.id).get_item(0).item.to_dict()["content"]
    assert [part.get("url") for part in found] == [picture["image_url"], None, other["image_url"], picture["image_url"]]


def test_pictures_may_touch(store: Any, elsewhere: Any, tables: Tables) -> None:
    """Two pictures with nothing between them but the JSON around them, at offsets counted in bytes."""
    pictures = [a_picture(noise(9_000, seed=seed)) for seed in range(5)]
    conversation = store.create_conversation(model="m")
    conversation.user([pictures[0], "é👩" * 50, *pictures[1:]])
    assert tables.counts()["item_blobs"] == 5
    found = elsewhere.get_conversation(conversation.id).get_item(0).item.to_dict()["content"]
    assert [part["url"] for part in found if "url" in part] == [picture["image_url"] for picture in pictures]


def test_outputs_of_tools_hold_media(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    picture = a_picture(noise(20_000))
    output = [
        {"type": "input_text", "text": "Seen"},
        picture,
        {"type": "input_file", "file_data": file_data(noise(30_000)), "filename": "a.pdf"},
    ]
    conversation.add_item(an_output("c", output), known=False)
    assert tables.counts()["blobs"] == 2
    found = elsewhere.get_conversation(conversation.id).get_item(0).item.to_dict()["output"]
    assert [part.get("url") for part in found] == [None, picture["image_url"], output[2]["file_data"]]
    assert found[2]["filename"] == "a.pdf"


def file_data(content: bytes, kind: str = "application/pdf") -> str:
    return f"data:{kind};base64,{base64.b64encode(content).decode()}"


NOT_ROUND = {
    "line breaks": lambda text: text[:76] + "\n" + text[76:],
    "no padding": lambda text: text.rstrip("="),
    "too much padding": lambda text: text + "=",
    "loose bits": lambda text: text[:-2] + "B=",
    "URL alphabet": lambda text: text[:-4] + "_-A=",
    "a blank": lambda text: text[:76] + " " + text[76:],
    "something behind": lambda text: text + "#x",
}


@pytest.mark.parametrize("change", NOT_ROUND.values(), ids=NOT_ROUND)
def test_text_that_would_not_come_back_stays(conversation: Any, elsewhere: Any, tables: Tables, change: Any) -> None:
    text = change(base64.b64encode(noise(20_000)).decode())  # ends with one "="
    url = f"data:image/png;base64,{text}"
    conversation.add_item({"role": "user", "content": [{"type": "input_image", "image_url": url}]}, known=False)
    assert urls(elsewhere.get_conversation(conversation.id).get_item(0).item) == [url]
    assert tables.counts()["blobs"] == 0


def test_nothing_is_searched_for_in_text(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    """A text that looks like media, or like a place for it, is a text."""
    url = a_picture(noise(20_000))["image_url"]
    texts = [f"My picture: {url}", f'"{url}"', f'{{"image_url": "{url}"}}', "<blob 0>"]
    for text in texts:
        conversation.user(text)
    found = elsewhere.get_conversation(conversation.id)
    assert [item.item.content[0].text for item in found.transcript()] == texts
    assert tables.counts()["item_blobs"] == 0


def test_media_of_native_blocks_is_kept(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    """An image that a provider made, and blocks of other providers, have their own keys for it."""
    data = base64.b64encode(noise(50_000)).decode()
    items = [
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": data},
        {"type": "provider_item", "format": "messages", "payload": {"type": "image", "source": {"data": data}}},
    ]
    conversation.add_items(items)
    assert (tables.counts()["blobs"], tables.counts()["item_blobs"]) == (1, 2)
    found = elsewhere.get_conversation(conversation.id)
    assert [stored.item.to_dict() for stored in found.transcript()] == items
    assert data.encode() in found.request_body("open_responses")


def test_files_and_pictures_of_the_builder(store: Any, elsewhere: Any, tables: Tables) -> None:
    content = noise(30_000)
    conversation = store.create_conversation(model="m")
    conversation.user(
        [InputImage(data=content, media_type="image/png"), InputFile(url=data_url(content, "application/pdf"))]
    )
    assert (tables.counts()["blobs"], tables.counts()["item_blobs"]) == (1, 2)
    image, file = elsewhere.get_conversation(conversation.id).get_item(0).item.content
    assert (image.data, file.data) == (content, content)


def test_media_is_found_on_every_branch(conversation: Any, elsewhere: Any) -> None:
    pictures = [a_picture(noise(9_000, seed=seed)) for seed in range(3)]
    conversation.user([pictures[0]])
    fork = conversation.fork()
    conversation.user([pictures[1]])
    fork.user([pictures[2]])
    for branch, expected in ((0, pictures[:2]), (1, [pictures[0], pictures[2]])):
        found = elsewhere.get_conversation(conversation.id, branch=branch)
        assert [urls(stored.item)[0] for stored in found.transcript()] == [part["image_url"] for part in expected]
        assert [urls(stored.item)[0] for stored in found.items(order="desc", limit=1)] == [expected[-1]["image_url"]]


def test_an_answer_may_hold_media(conversation: Any, elsewhere: Any, tables: Tables) -> None:
    data = base64.b64encode(noise(40_000)).decode()
    call = {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": data}
    body = {"id": "resp_1", "status": "completed", "output": [call], "usage": {}}
    conversation.add_response(body, "open_responses")
    assert tables.counts()["blobs"] == 1
    found = elsewhere.get_conversation(conversation.id)
    assert found.get_item(0).item.to_dict()["result"] == data
    assert json.loads(found.response_body(0)) == body


def test_a_saved_session_keeps_its_media(store: Any, elsewhere: Any, tables: Tables) -> None:
    picture = a_picture(noise(20_000))
    session = Session.from_dict(
        {"model": "m", "input": [{"role": "user", "content": [picture]}, a_message("What is it?")]}
    )
    saved = store.save(session)
    many = store.save_many([session, session])
    assert tables.counts()["blobs"] == 1
    for public_id in (saved.id, *many):
        assert elsewhere.get_conversation(public_id).session().to_dict() == session.to_dict()
    copy = store.copy_conversation(saved.id)
    assert copy.request_body("open_responses") == saved.request_body("open_responses")
