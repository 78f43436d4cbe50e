"""Media of Converse: formats, sources, names of documents, and the way back."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from botocore.session import Session
from botocore.validate import ParamValidator

from tests.formats.factories import assistant, call, codes, output, snapshot, user
from tests.formats.validity_converse import refused, request_shape
from threadkeep.domain.rendering import Rendered
from threadkeep.formats import get_format
from threadkeep.formats.converse.media import DocumentNames, document_name

Json = dict[str, Any]
FORMAT = get_format("converse")
PIXEL = "data:image/png;base64,iVBORw0KGgo="
PDF = "data:application/pdf;base64,JVBERi0="


def image(url: str | None, **keys: Any) -> Json:
    return {"type": "input_image", **({} if url is None else {"image_url": url}), **keys}


def file(url: str | None, **keys: Any) -> Json:
    return {"type": "input_file", **({} if url is None else {"file_data": url}), **keys}


def video(url: str, **keys: Any) -> Json:
    return {"type": "input_video", "video_url": url, **keys}


def render(*items: Any, **settings: Any) -> Rendered:
    rendered = FORMAT.render(snapshot(*items, **settings))
    assert refused(rendered.payload) == []
    return rendered


def block_of(part: Json) -> tuple[Json, Rendered]:
    """The block of a part in a user message, behind a text."""
    rendered = render(user("look", part))
    _, *blocks = rendered.payload["messages"][0]["content"]
    return (blocks[0] if blocks else {}), rendered


@pytest.mark.parametrize(
    ("part", "expected"),
    [
        (image(PIXEL), {"image": {"format": "png", "source": {"bytes": "iVBORw0KGgo="}}}),
        (image("s3://pics/a.JPG"), {"image": {"format": "jpeg", "source": {"s3Location": {"uri": "s3://pics/a.JPG"}}}}),
        (image("data:image/jpg;base64,aW1n", media_type="image/webp"),
         {"image": {"format": "webp", "source": {"bytes": "aW1n"}}}),
        (file(PDF), {"document": {"format": "pdf", "name": "document-*", "source": {"bytes": "JVBERi0="}}}),
        (file("data:text/plain,a%20b", filename="n.txt"),
         {"document": {"format": "txt", "name": "n", "source": {"bytes": "YSBi"}}}),
        (file(None, file_url="s3://docs/x/a.v2.docx"),
         {"document": {"format": "docx", "name": "a-v2", "source": {"s3Location": {"uri": "s3://docs/x/a.v2.docx"}}}}),
        (file("data:image/gif;base64,aW1n", filename="a.gif"),
         {"image": {"format": "gif", "source": {"bytes": "aW1n"}}}),
        (file("data:audio/mpeg;base64,aW1n"), {"audio": {"format": "mp3", "source": {"bytes": "aW1n"}}}),
        (file("data:video/quicktime;base64,aW1n"), {"video": {"format": "mov", "source": {"bytes": "aW1n"}}}),
        (video("data:video/mp4;base64,aW1n"), {"video": {"format": "mp4", "source": {"bytes": "aW1n"}}}),
        (video("s3://clips/a.3gp"), {"video": {"format": "three_gp", "source": {"s3Location": {"uri": "s3://clips/a.3gp"}}}}),
    ],
)  # fmt: skip
def test_media_become_blocks(part: Json, expected: Json) -> None:
    block, rendered = block_of(part)
    if "document" in block and expected["document"]["name"] == "document-*":
        assert block["document"]["name"].startswith("document-")
        block["document"]["name"] = "document-*"
    assert block == expected
    assert rendered.losses == []


@pytest.mark.parametrize(
    ("part", "text", "code"),
    [
        (image(None), "[image not included: no source]", "image_source"),
        (image(None, file_id="file_1"), "[image not included: file_1]", "media"),
        (image("https://img.test/a.png"), "[image not included: https://img.test/a.png]", "media"),
        (image("data:image/png;base64,###"), "[image not included: image/png]", "data_url"),
        (image("s3://B/a.png"), "[image not included: s3://B/a.png]", "media"),
        (image("s3://" + "b" * 1030 + "/a.png"), "[image not included: long URL]", "media"),
        (file(None), "[file not included: no source]", "file_source"),
        (file(None, file_id="file_1"), "[file not included: file_1]", "media"),
        (file("data:application/zip;base64,aW1n"), "[file not included: application/zip]", "media"),
        (video("s3://clips/a.avi"), "[video not included: s3://clips/a.avi]", "media"),
        (video(""), "[video not included: no source]", "media"),
    ],
)
def test_media_that_cannot_be_sent_become_a_note(part: Json, text: str, code: str) -> None:
    block, rendered = block_of(part)
    assert block == {"text": text}
    assert codes(rendered)[0] == [code]


def test_a_video_of_the_web_is_left_out() -> None:
    block, rendered = block_of(video("https://clips.test/a.mp4"))
    assert block == {}
    assert codes(rendered) == (["media"], [])


def test_a_textual_file_of_another_type_goes_as_plain_text() -> None:
    block, rendered = block_of(file("data:application/json;base64,e30=", filename="a.json"))
    assert block == {"document": {"format": "txt", "name": "a", "source": {"bytes": "e30="}}}
    assert codes(rendered) == (["media"], [])


@pytest.mark.parametrize("part", [image(PIXEL), file(PDF), video("s3://clips/a.mp4")])
def test_an_assistant_message_holds_no_media(part: Json) -> None:
    rendered = render(user("hi"), assistant("see", part))
    assert rendered.payload["messages"][1]["content"] == [{"text": "see"}]
    assert codes(rendered) == (["media"], [])


def test_a_tool_result_holds_no_sound() -> None:
    rendered = render(user("go"), call("a"), output("a", [file("data:audio/mpeg;base64,aW1n"), image(PIXEL)]))
    kinds = [next(iter(one)) for one in rendered.payload["messages"][2]["content"][0]["toolResult"]["content"]]
    assert kinds == ["text", "image"]
    assert codes(rendered)[0] == ["media"]


def test_a_document_has_a_text_beside_it() -> None:
    rendered = render(user(file(PDF, filename="a.pdf")), assistant("b"), user("c", file(PDF, filename="d.pdf")))
    assert rendered.payload["messages"][0]["content"][1] == {"text": "..."}
    assert len(rendered.payload["messages"][2]["content"]) == 2
    assert codes(rendered) == ([], ["document_text"])


@pytest.mark.parametrize(
    ("filename", "name"),
    [
        ("a.pdf", "a"),
        ("folder/a.b.pdf", "a-b"),
        ("a   b.pdf", "a b"),
        (" a .pdf", "a"),
        ("tab\there.pdf", "tab-here"),
        ("x" * 300, "x" * 200),
        (".hidden", "-hidden"),
    ],
)
def test_names_of_documents_are_what_the_service_takes(filename: str, name: str) -> None:
    assert document_name({"filename": filename}, PDF) == name


def test_a_document_without_a_name_gets_a_neutral_one_that_stays() -> None:
    assert document_name({}, PDF) == document_name({"filename": "/"}, PDF)
    assert document_name({}, PDF) != document_name({}, PIXEL)


def test_names_of_documents_come_once() -> None:
    names = DocumentNames()
    names.keep("kept")
    found = [names.unique(name) for name in ("plan", "plan-2", "plan", "plan", "kept", "x" * 200, "x" * 200)]
    assert found == ["plan", "plan-2", "plan-3", "plan-4", "kept-2", "x" * 200, "x" * 198 + "-2"]


# The way back


@pytest.mark.parametrize(
    ("block", "part"),
    [
        ({"image": {"format": "png", "source": {"bytes": "aW1n"}}},
         {"type": "input_image", "url": "data:image/png;base64,aW1n"}),
        ({"image": {"format": "png", "source": {"s3Location": {"uri": "s3://pics/a", "bucketOwner": "1" * 12}}}},
         {"type": "input_image", "url": "s3://pics/a", "media_type": "image/png"}),
        ({"image": {"format": "tiff", "source": {"bytes": "aW1n"}, "error": {"message": "x"}}},
         {"type": "input_image", "url": "data:image/tiff;base64,aW1n"}),
        ({"document": {"format": "docx", "name": "Plan B", "source": {"bytes": "aW1n"}}},
         {"type": "input_file", "filename": "Plan B.docx"}),
        ({"document": {"name": "a_b", "source": {"text": "hello"}, "context": "c", "citations": {"enabled": True}}},
         {"type": "input_file", "filename": "a_b", "url": "data:text/plain;base64,aGVsbG8="}),
        ({"document": {"format": "md", "name": "n", "source": {"content": [{"text": "a"}, {"text": "b"}]}}},
         {"type": "input_file", "filename": "n.md", "url": "data:text/plain;base64,YQpi"}),
        ({"document": {"format": "pdf", "name": "n", "source": {"s3Location": {"uri": "s3://docs/n.pdf"}}}},
         {"type": "input_file", "filename": "n.pdf", "url": "s3://docs/n.pdf"}),
        ({"document": {"name": "n", "source": {"bytes": "JVBERi0="}}}, {"type": "input_file", "filename": "n"}),
        ({"document": {"name": "n", "source": {"s3Location": {"uri": "s3://docs/n"}}}},
         {"type": "input_file", "filename": "n", "url": "s3://docs/n"}),
        ({"video": {"format": "mpg", "source": {"bytes": "aW1n"}}}, {"type": "input_video"}),
        ({"audio": {"format": "x-aac", "source": {"bytes": "aW1n"}}}, {"type": "input_file"}),
    ],
)  # fmt: skip
def test_blocks_are_parts_that_go_back_as_they_came(block: Json, part: Json) -> None:
    payload = {"messages": [{"role": "user", "content": [block, {"text": "look"}]}]}
    session = FORMAT.parse_request(payload)
    found = session.items[0].to_dict()["content"][0]
    assert part.items() <= found.items()
    assert session.request_payload("converse")["messages"] == payload["messages"]


@pytest.mark.parametrize(
    "block",
    [
        {"image": {"format": "png", "source": {"elsewhere": 1}}},
        {"image": {"format": "png", "source": {"bytes": ""}}},
        {"document": {"name": "n"}},
        {"video": "odd"},
    ],
)
def test_media_of_another_shape_stay_blocks(block: Json) -> None:
    payload = {"messages": [{"role": "user", "content": [block, {"text": "x"}]}]}
    session = FORMAT.parse_request(payload)
    assert session.items[0].type == "provider_item"
    assert session.request_payload("converse") == payload


def test_a_name_that_is_sent_again_gets_a_number() -> None:
    document = {"document": {"format": "pdf", "name": "a", "source": {"bytes": "JVBERi0="}}}
    session = FORMAT.parse_request({"messages": [{"role": "user", "content": [{"text": "x"}, document]}]}, model="m")
    session.user([{"type": "input_file", "url": PDF, "filename": "a.pdf"}])
    for turn in FORMAT.parse_turns({"role": "user", "content": [document]}):
        session.add_items(turn, turn=session.new_turn())
    payload = session.request_payload("converse")
    names = [block["document"]["name"] for block in payload["messages"][0]["content"] if "document" in block]
    assert names == ["a", "a-2", "a-3"]
    assert refused(payload) == []


# Bytes, as boto3 has them


def test_bytes_are_read_as_base64() -> None:
    content = [{"text": "x"}, {"image": {"format": "png", "source": {"bytes": b"img"}}}]
    given = {"messages": [{"role": "user", "content": content}]}
    sent = FORMAT.parse_request(given).request_payload("converse")
    assert sent["messages"][0]["content"][1]["image"]["source"] == {"bytes": base64.b64encode(b"img").decode()}
    hidden = {"reasoningContent": {"redactedContent": b"secret"}}
    body = {"output": {"message": {"content": [hidden]}}, "stopReason": "end_turn"}
    (item,) = FORMAT.parse_response(body).output
    assert item.to_dict()["content"] == [{"type": "redacted_thinking", "data": "c2VjcmV0"}]


def test_a_request_can_be_given_to_boto3() -> None:
    rendered = render(user("x", image(PIXEL)), call("a", arguments='{"bytes":"aW1n"}'), output("a"))
    keys = {"aws_access_key_id": "x", "aws_secret_access_key": "x", "region_name": "us-east-1"}
    arguments = rendered.arguments(Session().create_client("bedrock-runtime", **keys).converse)
    first, second, _ = arguments["messages"]
    assert first["content"][1]["image"]["source"]["bytes"] == base64.b64decode("iVBORw0KGgo=")
    assert second["content"][0]["toolUse"]["input"] == {"bytes": "aW1n"}
    assert not ParamValidator().validate(arguments, request_shape()).has_errors()
