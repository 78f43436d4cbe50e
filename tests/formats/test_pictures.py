"""The number and size of pictures and documents: limits are reported, and a view keeps the newest pictures."""

from __future__ import annotations

import base64
import json
import struct
from typing import Any

import pytest

from tests.formats.factories import Json, call, codes, output, render, snapshot, user
from threadkeep import InvalidOption, LossError
from threadkeep.domain.rendering import RenderOptions
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.shared.pictures import OMITTED, longer_side
from threadkeep.formats.shared.provider_rules import MEGABYTE

JPEG = (
    b"\xff\xd8\xff\xe0" + struct.pack(">H", 4) + b"\0\0\xff\xc2" + struct.pack(">HBHH", 17, 8, 2532, 1170) + b"\0" * 20
)


def png(width: int = 10, height: int = 10, size: int = 0) -> str:
    head = b"\x89PNG\r\n\x1a\n" + struct.pack(">I", 13) + b"IHDR" + struct.pack(">II", width, height)
    return data_url(head + b"\0" * size)


def data_url(content: bytes, media_type: str = "image/png") -> str:
    return f"data:{media_type};base64,{base64.b64encode(content).decode()}"


def picture(url: str = "") -> Json:
    return {"type": "input_image", "image_url": url or png()}


def document(name: str) -> Json:
    return {"type": "input_file", "filename": f"{name}.pdf", "file_data": "data:application/pdf;base64,JVBERi0="}


def shots(count: int, url: str = "") -> list[Any]:
    """Messages with a picture each."""
    return [user(f"Screen {number}.", picture(url)) for number in range(count)]


# Limits


@pytest.mark.parametrize(
    ("format_name", "model", "dialect", "most"),
    [
        ("messages", "claude-sonnet-4-5", None, 100),
        ("converse", "anthropic.claude-sonnet-4-5-20250929-v1:0", None, 100),
        ("converse", "amazon.nova-pro-v1:0", None, 20),
        ("converse", "us.meta.llama4-scout-17b-instruct-v1:0", None, 8),
        ("converse", "us.meta.llama3-2-90b-instruct-v1:0", None, 1),
        ("chat_completion", "pixtral-large-latest", "mistral", 8),
        ("chat_completion", "anthropic/claude-opus-4.6", "openrouter", 100),
    ],
)
def test_more_pictures_than_the_provider_takes_are_sent_and_reported(
    format_name: FormatName, model: str, dialect: str | None, most: int
) -> None:
    def made(count: int, **options: Any) -> Any:
        options = {"dialect": dialect, **options}
        return render(format_name, *shots(count), model=model, options=RenderOptions(**options))

    assert codes(made(most))[0] == []
    assert codes(made(most + 1))[0] == ["refused"]
    assert json.dumps(made(most + 1).payload).count(png()[30:]) == most + 1
    with pytest.raises(LossError):
        made(most + 1, strict=True)
    kept = made(most + 1, pictures="auto", strict=True)
    assert json.dumps(kept.payload).count(png()[30:]) == most
    assert "pictures" in codes(kept)[1]


def test_newer_claude_takes_more() -> None:
    assert codes(render("messages", *shots(101), model="claude-opus-4-6")) == ([], [])
    assert codes(render("messages", *shots(601), model="claude-opus-4-6")) == (["refused"], [])


LARGE = png(1170, 2532)


@pytest.mark.parametrize(
    ("items", "losses", "kept"),
    [
        (shots(20, LARGE), [], 20),
        (shots(21, LARGE), ["refused"], 20),
        ([*shots(24), *shots(1, LARGE)], ["refused"], 20),
        (shots(25), [], 25),
        (shots(1, png(8001, 10)), ["refused"], 0),
        (shots(1, png(size=5 * MEGABYTE)), ["refused"], 0),
        ([user("Go"), call(), output("c1", [picture(LARGE)] * 21)], ["refused"], 20),
        ([user(document("a")), *shots(100)], ["refused"], 99),
    ],
)
def test_the_size_of_pictures_counts_with_their_number(items: list[Any], losses: list[str], kept: int) -> None:
    found = render("messages", *items, model="claude-sonnet-4-5")
    assert codes(found) == (losses, [])
    fitting = render("messages", *items, model="claude-sonnet-4-5", options=RenderOptions(pictures="auto"))
    assert codes(fitting)[0] == []
    assert json.dumps(fitting.payload).count('"image"') == kept


@pytest.mark.parametrize(("count", "losses"), [(5, []), (6, ["refused"])])
def test_bedrock_takes_five_documents(count: int, losses: list[str]) -> None:
    items = [user("See.", document(str(number))) for number in range(count)]
    assert codes(render("converse", *items, model="anthropic.claude-sonnet-4-5"))[0] == losses


# The view


@pytest.mark.parametrize("format_name", NAMES)
def test_the_newest_pictures_are_kept_and_earlier_ones_noted(format_name: FormatName) -> None:
    items = [
        user("a", picture(png(1)), picture(png(2))), call(), output("c1", [picture(png(3))]),
        user("b", picture(png(4))),
    ]  # fmt: skip
    found = render(format_name, *items, model="openai:gpt-5.4", options=RenderOptions(pictures=2))
    text = json.dumps(found.payload)
    sent = [width for width in (1, 2, 3, 4) if png(width).partition(",")[2] in text]
    assert (sent, text.count(OMITTED)) == ([3, 4], 2)
    assert codes(found)[0] == []
    assert "pictures" in codes(found)[1]


def test_the_view_is_recorded_and_shows_an_earlier_request_again() -> None:
    options = RenderOptions(pictures=1)
    found = get_format("messages").render(snapshot(*shots(3)), options)
    assert RenderOptions.recorded(found.view) == options


def test_what_was_counted_is_remembered_while_the_conversation_grows() -> None:
    wire, memo = get_format("messages"), {}  # type: ignore[var-annotated]
    for count in (3, 5, 2, 9):
        conversation = snapshot(*shots(count, png(8001)), model="claude-sonnet-4-5")
        conversation.memo = memo
        (loss,) = wire.render(conversation).losses
        assert loss.detail.startswith(f"{count} images")


@pytest.mark.parametrize("value", [-1, True, "all", 1.5])
def test_a_number_of_pictures_that_is_none_is_refused(value: Any) -> None:
    with pytest.raises(InvalidOption, match="pictures"):
        RenderOptions(pictures=value)


@pytest.mark.parametrize(
    ("url", "side"),
    [
        (png(1170, 2532), 2532),
        (data_url(b"GIF89a" + struct.pack("<HH", 7, 9)), 9),
        (data_url(JPEG), 2532),
        (data_url(b"RIFF\0\0\0\0WEBPVP8X" + b"\0" * 8 + b"\x09\0\0\x13\0\0"), 20),
        (data_url(b"RIFF\0\0\0\0WEBPVP8L" + b"\0" * 5 + (9 | 19 << 14).to_bytes(4, "little")), 20),
        (data_url(b"RIFF\0\0\0\0WEBPVP8 " + b"\0" * 10 + struct.pack("<HH", 10, 20)), 20),
        (data_url(b"\x89PNG"), 0),
        (data_url(b"\xff\xd8\xff"), 0),
        (data_url(b"BM"), 0),
        ("data:image/png;base64,%%%", 0),
    ],
)
def test_the_longer_side_is_read_from_the_header(url: str, side: int) -> None:
    assert longer_side(url) == side
