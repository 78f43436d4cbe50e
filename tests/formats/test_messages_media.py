"""Media, cache marks and citations of the Messages API, beyond the vectors."""

from __future__ import annotations

from typing import Any

import pytest

from tests.formats.factories import assistant, call, codes, output, user
from tests.formats.messages_factories import rendered
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import LossError
from threadkeep.formats import get_format

TOOL = {"type": "function", "name": "lookup", "parameters": {"type": "object"}}
PDF = "data:application/pdf;base64,JVBERi0="
PNG = "data:image/png;base64,aW1n"


# Media


@pytest.mark.parametrize(
    ("part", "block", "losses", "repairs"),
    [
        (
            {"type": "input_image", "image_url": "data:image/jpg;base64,aW1n"},
            {"type": "image", "source": {"type": "base64", "media_type": "image/jpeg", "data": "aW1n"}},
            [],
            [],
        ),
        (
            {"type": "input_image", "image_url": "data:image/tiff;base64,aW1n"},
            "[image not included: image/tiff]",
            ["media"],
            [],
        ),
        (
            {"type": "input_image", "image_url": "data:image/png;base64,#"},
            "[image not included: image/png]",
            ["data_url"],
            [],
        ),
        ({"type": "input_image"}, "[image not included: no source]", ["image_source"], []),
        (
            {"type": "input_file", "file_data": PNG},
            {"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "aW1n"}},
            [],
            ["file_as_image"],
        ),
        (
            {"type": "input_file", "file_data": "data:text/csv;base64,YSxi", "filename": "t.csv"},
            {
                "type": "document",
                "source": {"type": "text", "media_type": "text/plain", "data": "a,b"},
                "title": "t.csv",
            },
            [],
            [],
        ),
        (
            {"type": "input_file", "file_data": "data:application/zip;base64,UEs="},
            "[file not included: application/zip]",
            ["media"],
            [],
        ),
        (
            {
                "type": "input_file",
                "file_id": "file_1",
                "citations": {"enabled": True},
                "cache_control": {"type": "ephemeral"},
            },
            {
                "type": "document",
                "source": {"type": "file", "file_id": "file_1"},
                "citations": {"enabled": True},
                "cache_control": {"type": "ephemeral"},
            },
            [],
            [],
        ),
        (
            {"type": "input_video", "video_url": "https://v.example.org/a"},
            "[video not included: https://v.example.org/a]",
            ["media"],
            [],
        ),
    ],
)
def test_media_become_blocks_or_notes(part: dict[str, Any], block: Any, losses: list[str], repairs: list[str]) -> None:
    found = rendered(user(part))
    expected = {"type": "text", "text": block} if isinstance(block, str) else block
    assert found.payload["messages"][0]["content"] == [expected]
    assert codes(found) == (losses, repairs)
    if losses:
        with pytest.raises(LossError):
            rendered(user(part), options=RenderOptions(strict=True))


# Cache marks and citations


def marked(value: str, ttl: str | None = None) -> dict[str, Any]:
    return {
        "type": "input_text",
        "text": value,
        "cache_control": {"type": "ephemeral", **({"ttl": ttl} if ttl else {})},
    }


def test_four_marks_are_taken_and_the_oldest_of_the_messages_go_first() -> None:
    tool = {**TOOL, "cache_control": {"type": "ephemeral"}}
    items = [user(marked("Manual."), role="system"), user(marked("1")), assistant(marked("2")), user(marked("3"))]
    found = rendered(*items, tools=[tool], extra={"cache_control": {"type": "ephemeral"}})
    blocks = [message["content"][0] for message in found.payload["messages"]]
    assert ["cache_control" in block for block in blocks] == [False, False, True]
    assert "cache_control" in found.payload["tools"][0]
    assert "cache_control" in found.payload["system"][0]
    assert "cache_control" in found.payload
    assert codes(found) == (["cache_mark"], [])


def test_an_hour_behind_five_minutes_counts_for_five_minutes() -> None:
    found = rendered(user(marked("1", "1h"), marked("2"), marked("3", "1h")))
    marks = [block["cache_control"].get("ttl") for block in found.payload["messages"][0]["content"]]
    assert marks == ["1h", None, None]
    assert codes(found) == (["cache_mark"], [])


def test_marks_within_results_count() -> None:
    picture = {"type": "input_image", "image_url": PNG, "cache_control": {"type": "ephemeral"}}
    found = rendered(user("Go"), call("a"), output("a", [picture] * 5))
    inner = found.payload["messages"][2]["content"][0]["content"]
    assert ["cache_control" in block for block in inner] == [False, True, True, True, True]


AUTO = RenderOptions(cache="auto")
SHORT, HOUR = {"type": "ephemeral"}, {"type": "ephemeral", "ttl": "1h"}


def test_marks_are_set_on_tools_system_text_and_the_growing_end() -> None:
    texts = [{"type": "input_text", "text": f"b{number}"} for number in range(25)]
    found = rendered(user(*texts), instructions="Be brief.", tools=[TOOL], options=AUTO).payload
    assert found["tools"][0]["cache_control"] == SHORT
    assert found["system"][0]["cache_control"] == SHORT
    blocks = found["messages"][0]["content"]
    assert [index for index, block in enumerate(blocks) if "cache_control" in block] == [9, 24]


def test_what_is_marked_stays_and_comes_before_shorter_marks() -> None:
    found = rendered(user(marked("Hi", "1h")), instructions="Be brief.", options=AUTO)
    assert found.payload["system"][0]["cache_control"] == HOUR
    assert found.payload["messages"][0]["content"][0]["cache_control"] == HOUR
    assert codes(found) == ([], [])


def test_a_mark_never_changes_the_shape_of_content() -> None:
    wire_format = get_format("messages")
    session = wire_format.parse_request({"model": "m", "messages": [{"role": "user", "content": "Hi"}], "system": "x"})
    payload = wire_format.render(session, AUTO).payload
    assert (payload["messages"], payload["system"]) == ([{"role": "user", "content": "Hi"}], "x")


def test_citations_are_as_the_first_document_has_them() -> None:
    cited = {"type": "input_file", "file_data": PDF, "citations": {"enabled": True}}
    plain = {"type": "input_file", "file_data": PDF}
    for first, second, enabled in ((cited, plain, True), (plain, cited, False)):
        found = rendered(user(first), assistant("Yes."), user("Go"), call("a"), output("a", [second]))
        block = found.payload["messages"][4]["content"][0]["content"][0]
        assert block["citations"] == {"enabled": enabled}
        assert codes(found) == (["citations"], [])


def test_an_answer_with_a_schema_has_no_citations() -> None:
    cited = {"type": "input_file", "file_data": PDF, "citations": {"enabled": True}}
    found = rendered(user(cited), text={"format": {"type": "json_schema", "schema": {}}})
    assert found.payload["messages"][0]["content"][0]["citations"] == {"enabled": False}
