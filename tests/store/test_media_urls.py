"""Requests that carry URLs of the application's storage in place of media, which are not read then."""

from __future__ import annotations

import base64
import json
from hashlib import sha256
from typing import Any

import pytest

from tests.factories import a_picture, an_answer, an_output, noise
from tests.store.watching import statements_of
from threadkeep import InvalidOption
from threadkeep.formats import NAMES, get_format

pytestmark = pytest.mark.one_face

URL = "https://files.example/{hash}.{extension}?type={media_type}"
BIG = noise(20_000)
HASH = sha256(BIG).hexdigest()
DATA = base64.b64encode(BIG).decode()
PDF = noise(9_000, seed=1)
PDF_HASH = sha256(PDF).hexdigest()
PDF_DATA = base64.b64encode(PDF).decode()
PICTURE_URL = f"https://files.example/{HASH}.png?type=image/png"
PDF_URL = f"https://files.example/{PDF_HASH}.pdf?type=application/pdf"
A_PDF = {"type": "input_file", "file_data": f"data:application/pdf;base64,{PDF_DATA}", "filename": "a.pdf"}
SMALL = a_picture(noise(100))

# format -> how it sends the picture and the document
SENT: dict[str, tuple[Any, Any]] = {
    "open_responses": (
        {"type": "input_image", "image_url": PICTURE_URL},
        {"type": "input_file", "file_url": PDF_URL, "filename": "a.pdf"},
    ),
    "chat_completion": (
        {"type": "image_url", "image_url": {"url": PICTURE_URL}},
        {"type": "file", "file": {"filename": "a.pdf", "file_data": A_PDF["file_data"]}},
    ),
    "messages": (
        {"type": "image", "source": {"type": "url", "url": PICTURE_URL}},
        {"type": "document", "source": {"type": "url", "url": PDF_URL}, "title": "a.pdf"},
    ),
    "gemini": (
        {"fileData": {"mimeType": "image/png", "fileUri": PICTURE_URL}},
        {"fileData": {"mimeType": "application/pdf", "fileUri": PDF_URL}},
    ),
    "interactions": (
        {"type": "image", "mime_type": "image/png", "uri": PICTURE_URL},
        {"type": "document", "mime_type": "application/pdf", "uri": PDF_URL},
    ),
    "converse": (
        {"image": {"format": "png", "source": {"bytes": DATA}}},
        {"document": {"format": "pdf", "name": "a", "source": {"bytes": PDF_DATA}}},
    ),
    "pydantic_ai": (
        {"kind": "image-url", "url": PICTURE_URL},
        {"kind": "document-url", "url": PDF_URL, "identifier": "a.pdf"},
    ),
    "ui_messages": (
        {"type": "file", "mediaType": "image/png", "url": PICTURE_URL},
        {"type": "file", "mediaType": "application/pdf", "url": PDF_URL, "filename": "a.pdf"},
    ),
    "ag_ui": (
        {"type": "image", "source": {"type": "url", "value": PICTURE_URL, "mimeType": "image/png"}},
        {
            "type": "document",
            "source": {"type": "url", "value": PDF_URL, "mimeType": "application/pdf"},
            "metadata": {"filename": "a.pdf"},
        },
    ),
}


def parts(rendered: Any, format: Any) -> list[Any]:
    payload = json.loads(rendered.body)
    turns = payload[get_format(format).signs.turns]
    found: list[Any] = turns[0].get("content") or turns[0].get("parts")
    return found[0]["content"] if format == "pydantic_ai" else found


@pytest.fixture
def shared(conversation: Any) -> Any:
    conversation.user([a_picture(BIG), A_PDF, SMALL])
    return conversation


@pytest.mark.parametrize("format", NAMES)
def test_requests_carry_urls_where_the_format_takes_them(elsewhere: Any, shared: Any, format: str) -> None:
    found = elsewhere.get_conversation(shared.id)
    rendered = found.render(format, media_url=URL)
    assert {loss.code for loss in rendered.losses} <= ({"title"} if format in ("gemini", "interactions") else set())
    assert tuple(parts(rendered, format)[:2]) == SENT[format]
    plain = found.render(format)
    assert parts(rendered, format)[2:] == parts(plain, format)[2:], "small media stay inline"
    assert rendered.losses == plain.losses
    assert DATA.encode() in plain.body


def test_converse_takes_objects_in_s3(shared: Any, elsewhere: Any) -> None:
    found = elsewhere.get_conversation(shared.id)
    rendered = found.render("converse", media_url="s3://bucket/media/{hash}")
    picture, document, *_ = parts(rendered, "converse")
    assert picture == {"image": {"format": "png", "source": {"s3Location": {"uri": f"s3://bucket/media/{HASH}"}}}}
    assert document["document"]["source"] == {"s3Location": {"uri": f"s3://bucket/media/{PDF_HASH}"}}
    assert document["document"]["format"] == "pdf"


def blobs_read(found: Any, format: str, **view: Any) -> int:
    with statements_of(found) as seen:
        found.render(format, **view)
    return sum("threadkeep_blobs" in statement for statement in seen)


def test_media_are_read_only_where_they_are_sent(shared: Any, elsewhere: Any) -> None:
    expected = {"open_responses": 0, "messages": 0, "gemini": 0, "chat_completion": 1, "converse": 1}
    counts = {name: blobs_read(elsewhere.get_conversation(shared.id), name, media_url=URL) for name in expected}
    assert counts == expected


def test_a_request_is_as_short_as_its_history(elsewhere: Any, conversation: Any) -> None:
    conversation.user([a_picture(noise(5_000_000))])
    assert len(elsewhere.get_conversation(conversation.id).request_body("messages", media_url=URL)) < 500


def test_only_what_is_new_is_read_again(shared: Any, elsewhere: Any) -> None:
    found = elsewhere.get_conversation(shared.id)
    first = found.render("open_responses", media_url=URL)
    found.add_response(an_answer("A cat."), "open_responses", rendered=first)
    found.user(["And this?", a_picture(noise(9_000, seed=3))])
    with statements_of(found) as seen:
        second = found.render("open_responses", media_url=URL)
    assert sum("threadkeep_items" in statement for statement in seen) == 1
    assert second.body == elsewhere.get_conversation(shared.id).request_body("open_responses", media_url=URL)
    assert json.loads(second.body)["input"][0] == json.loads(first.body)["input"][0]
    other = "https://other.example/{hash}"
    assert found.render("messages", media_url=other).body.count(b"other.example") == 3
    assert found.request_body("messages") == elsewhere.get_conversation(shared.id).request_body("messages")


def test_changes_of_others_are_seen(shared: Any, elsewhere: Any) -> None:
    found = elsewhere.get_conversation(shared.id)
    found.render("messages", media_url=URL)
    shared.update(instructions="Be brief.")
    rendered = found.render("messages", media_url=URL)
    assert b"Be brief." in rendered.body
    assert PICTURE_URL.encode() in rendered.body
    found.update(instructions="Be long.")
    assert b"Be long." in found.request_body("messages", media_url=URL)
    assert b"Be long." in found.request_body("messages")


@pytest.mark.parametrize("is_fresh", [True, False])
def test_an_earlier_request_is_rendered_with_its_urls(shared: Any, elsewhere: Any, is_fresh: bool) -> None:
    sent = shared.render("open_responses", media_url=URL)
    shared.add_response(an_answer("A cat."), "open_responses", rendered=sent)
    shared.user([a_picture(noise(9_000))])
    found = elsewhere.get_conversation(shared.id) if is_fresh else shared
    assert found.responses().items[0].view["media_url"] == URL
    assert found.request_body("open_responses", upto=0) == sent.body
    assert found.request_body("open_responses", upto=0, media_url=URL) == sent.body
    assert DATA.encode() in found.request_body("open_responses", upto=0, media_url=None)


def test_outputs_of_tools(conversation: Any, elsewhere: Any) -> None:
    conversation.user("Look")
    conversation.add_item({"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"})
    conversation.add_item(an_output("c", [a_picture(BIG), A_PDF]))
    found = elsewhere.get_conversation(conversation.id)
    for name, urls in (("open_responses", 2), ("messages", 2), ("chat_completion", 0), ("gemini", 0)):
        body, plain = found.request_body(name, media_url=URL), found.request_body(name)
        assert body.count(b"files.example") == urls, name
        assert body.count(DATA.encode()) == (0 if urls else plain.count(DATA.encode())), name


def test_requests_go_back_to_their_own_format_with_urls(store: Any, elsewhere: Any) -> None:
    """What came as base64 in a format goes back by URL; what the format says beside it stays."""
    source = {"type": "base64", "media_type": "image/png", "data": DATA}
    image = {"type": "image", "source": source, "cache_control": {"type": "ephemeral"}}
    request = {"model": "m", "max_tokens": 9, "messages": [{"role": "user", "content": [image]}]}
    found = elsewhere.get_conversation(store.import_request(request, "messages").id)
    [shown] = parts(found.render("messages", media_url=URL), "messages")
    assert shown == {**image, "source": {"type": "url", "url": PICTURE_URL}}
    inline = {"inlineData": {"mimeType": "image/png", "data": DATA}}
    gemini = {"contents": [{"role": "user", "parts": [inline]}]}
    found = elsewhere.get_conversation(store.import_request(gemini, "gemini", model="gemini-3-pro").id)
    assert parts(found.render("gemini", media_url=URL), "gemini") == [SENT["gemini"][0]]


def test_native_blocks_stay_as_they_came(conversation: Any, elsewhere: Any) -> None:
    block = {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": DATA}}
    conversation.user([{"type": "provider_item", "format": "messages", "payload": block}])
    found = elsewhere.get_conversation(conversation.id)
    assert parts(found.render("messages", media_url=URL), "messages") == [block]


def test_what_looks_like_a_mark_is_text(conversation: Any, elsewhere: Any) -> None:
    texts = [f"threadkeep-mark:{HASH}:{'0' * 16}", f"threadkeep-media:{HASH}", PICTURE_URL]
    conversation.user([a_picture(BIG), *texts])
    found = elsewhere.get_conversation(conversation.id)
    shown = parts(found.render("open_responses", media_url=URL), "open_responses")
    assert [part["text"] for part in shown[1:]] == texts


def test_other_view_options_hold(shared: Any, elsewhere: Any) -> None:
    found = elsewhere.get_conversation(shared.id)
    body = found.request_body("messages", media_url=URL, vision=False)
    assert PICTURE_URL.encode() not in body.replace(b"[image not included: " + PICTURE_URL.encode(), b"")
    assert PDF_URL.encode() in body


def test_within_the_callers_transaction(store: Any, shared: Any, watching: Any, face: str) -> None:
    if face == "async":
        pytest.skip("hosts of the async store are shown elsewhere")
    with watching.begin() as host:
        inside = store.within(host).get_conversation(shared.id)
        inside.user([a_picture(noise(9_000))])
        assert inside.request_body("messages", media_url=URL).count(b"files.example") == 3


@pytest.mark.parametrize(
    "template",
    [
        "", "https://files.example/", "{hash}", "https://files.example/{hash}{other}", "https://files.example/{hash",
        "https://files.example/{hash!r}", "https://files.example/{hash.x}", "https://files.example/{} {hash}", 3, True,
        "data:{hash}", "https://files.example/{hash}\n",
    ],
)  # fmt: skip
def test_templates_that_make_no_urls_are_refused(conversation: Any, template: Any) -> None:
    conversation.user("Hi")
    with pytest.raises(InvalidOption, match="media_url"):
        conversation.render("messages", media_url=template)
