"""Items without their media: references in their place, and the media by reference."""

from __future__ import annotations

import base64
from hashlib import sha256
from typing import Any

import pytest

from tests.factories import a_picture, an_output, noise
from tests.store.watching import statements_of
from threadkeep import InvalidOption, NotFound

pytestmark = pytest.mark.one_face

BIG = noise(20_000)
PICTURE = a_picture(BIG)
HASH = sha256(BIG).hexdigest()
REFERENCE = f"threadkeep-media:{HASH}"


def parts(stored: Any) -> list[Any]:
    item = stored.item.to_dict()
    return [
        part.get("url") or part.get("file_data") or part.get("text") for part in item.get("content", item.get("output"))
    ]


def test_references_take_the_place_of_data_urls(conversation: Any, elsewhere: Any) -> None:
    small = a_picture(noise(100))
    conversation.user(["Look", PICTURE, "and", PICTURE, small])
    conversation.add_item(
        an_output("c", [{"type": "input_file", "file_data": PICTURE["image_url"], "filename": "a"}]), known=False
    )
    shown = ["Look", REFERENCE, "and", REFERENCE, small["image_url"]]
    found = elsewhere.get_conversation(conversation.id)
    first = found.get_item(0, media="reference")
    assert parts(first) == shown
    assert parts(elsewhere.get_item(first.id, media="reference")) == shown
    for items in (found.transcript(media="reference"), found.items(media="reference")):
        assert [parts(item) for item in items] == [shown, [REFERENCE]]
    assert parts(found.items(order="desc", limit=1, media="reference").items[0]) == [REFERENCE]
    assert parts(found.get_item(0))[1] == PICTURE["image_url"], "they are inline by default"


def test_references_take_the_place_of_base64(conversation: Any, elsewhere: Any) -> None:
    data = base64.b64encode(BIG).decode()
    items: list[dict[str, Any]] = [
        {"type": "image_generation_call", "id": "ig_1", "status": "completed", "result": data},
        {"type": "provider_item", "format": "messages", "payload": {"type": "image", "source": {"data": data}}},
    ]
    conversation.add_items(items)
    image, block = elsewhere.get_conversation(conversation.id).transcript(media="reference")
    assert image.item.to_dict() == {**items[0], "result": REFERENCE}
    assert block.item.to_dict() == {**items[1], "payload": {"type": "image", "source": {"data": REFERENCE}}}


def test_media_are_returned_by_hash_and_by_reference(conversation: Any, elsewhere: Any) -> None:
    conversation.user([PICTURE])
    for name in (HASH, REFERENCE):
        media = elsewhere.media(name)
        assert (media.content, media.media_type, media.size, media.hash) == (BIG, "image/png", len(BIG), HASH)
    assert "content" not in repr(media)


def test_a_reference_is_no_media(conversation: Any, elsewhere: Any) -> None:
    """What people write is text, whatever it looks like."""
    conversation.user([PICTURE, REFERENCE])
    found = elsewhere.get_conversation(conversation.id)
    assert parts(found.get_item(0)) == [PICTURE["image_url"], REFERENCE]
    assert found.request_body("open_responses").count(REFERENCE.encode()) == 1


@pytest.mark.parametrize("name", ["", "x", HASH.upper(), f"{REFERENCE}0", "threadkeep-media:", None, 3, b"y"])
def test_what_names_no_media_is_refused(store: Any, name: Any) -> None:
    with pytest.raises(InvalidOption, match="hash"):
        store.media(name)


def test_other_forms_are_refused(conversation: Any) -> None:
    for wrong in ("marked", "", None, True):
        for call in (conversation.items, conversation.transcript, lambda **form: conversation.get_item(0, **form)):
            with pytest.raises(InvalidOption, match="media"):
                call(media=wrong)


# Whose media


def test_only_media_of_own_conversations_are_found(store: Any, stores: Any, face: str, tenant: str) -> None:
    ann = store.create_conversation(model="m", user_id="ann")
    ann.user([PICTURE])
    stores.get(face).create_tenant(f"{tenant} 2")
    for other in (store.for_user("bob"), stores.get(face).for_tenant(f"{tenant} 2")):
        with pytest.raises(NotFound):
            other.media(HASH)
    assert store.for_user("ann").media(HASH).content == BIG
    store.create_conversation(model="m", user_id="bob").user([PICTURE])
    assert store.for_user("bob").media(HASH).content == BIG
    store.delete_conversation(ann.id)
    with pytest.raises(NotFound):
        store.for_user("ann").media(HASH)
    assert store.for_user("bob").media(HASH).content == BIG


def test_media_of_a_hidden_conversation_are_gone_at_once(store: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    conversation = store.create_conversation(model="m")
    conversation.user([PICTURE])

    def interrupted(*_: Any, **__: Any) -> bool:
        raise KeyboardInterrupt

    monkeypatch.setattr("threadkeep.store.removing.retention.purging.purge_batch", interrupted)
    with pytest.raises(KeyboardInterrupt):
        store.delete_conversation(conversation.id)
    with pytest.raises(NotFound):
        store.media(HASH)


# Their types

WAVE = b"RIFF____WAVEfmt " + BIG
DATA = base64.b64encode(BIG).decode()


def native(payload: Any, format: str = "messages") -> dict[str, Any]:
    return {"type": "provider_item", "format": format, "payload": payload}


# What is stored -> the media type that is found
TYPES: dict[str, tuple[Any, str | None]] = {
    "a data URL": ({"role": "user", "content": [a_picture(BIG, "image/webp")]}, "image/webp"),
    "a data URL with parameters": (
        {"role": "user", "content": [{"type": "input_image", "image_url": f"data:image/gif;q=1;base64,{DATA}"}]},
        "image/gif",
    ),
    "Messages": (native({"type": "x", "source": {"media_type": "image/jpeg", "data": DATA}}), "image/jpeg"),
    "Gemini": (native({"x": {"data": DATA, "mimeType": "video/mp4"}}, "gemini"), "video/mp4"),
    "Chat Completions": (native({"input_audio": {"data": DATA, "format": "mp3"}}, "chat_completion"), "audio/mpeg"),
    "Converse": (native({"odd": {"format": "png", "source": {"bytes": DATA}}}, "converse"), "image/png"),
    "a neighbour": (native([{"media_type": "image/png", "x": {}}, {"data": DATA}]), None),
    "an image call": ({"type": "image_generation_call", "output_format": "webp", "result": DATA}, "image/webp"),
    "nothing": (native({"data": DATA}), None),
    "their beginning": (native({"data": base64.b64encode(WAVE).decode()}), "audio/wav"),
    "bytes": (native({"data": DATA, "mime_type": "application/octet-stream"}), "application/octet-stream"),
}  # fmt: skip


@pytest.mark.parametrize("name", TYPES)
def test_the_type_of_media_is_found(conversation: Any, store: Any, name: str) -> None:
    item, media_type = TYPES[name]
    conversation.add_item(item)
    content = WAVE if name == "their beginning" else BIG
    assert store.media(sha256(content).hexdigest()).media_type == media_type


# What is read


def test_five_megabytes_are_not_read(conversation: Any, elsewhere: Any) -> None:
    conversation.user([a_picture(noise(5_000_000))])
    found = elsewhere.get_conversation(conversation.id)
    with statements_of(found) as seen:
        [item] = found.transcript(media="reference")
    assert parts(item)[0].startswith("threadkeep-media:")
    assert not [statement for statement in seen if "threadkeep_blobs" in statement]
