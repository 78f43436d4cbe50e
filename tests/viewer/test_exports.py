"""Conversations as files, and following them while they are written."""

from __future__ import annotations

import asyncio
import base64
import json
import re
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import anyio
import httpx2
import pytest

from tests.cli.runs import Cli
from tests.server.callers import http_scope
from tests.viewer.conftest import Pages
from tests.viewer.samples import PNG, with_tools
from threadkeep import Conversation, Store
from threadkeep.domain.media import REFERENCE
from threadkeep.server.permissions import stream_quota
from threadkeep.viewer import exporting, html_of, thread
from threadkeep.viewer.thread import look

POLICY = re.compile(r'<meta http-equiv="Content-Security-Policy" content="([^"]*)">')


def long_conversation(pages: Pages) -> Conversation:
    conversation = with_tools(pages.store)
    url = f"data:image/png;base64,{base64.b64encode(PNG + bytes(9_000)).decode()}"
    conversation.user([{"type": "input_image", "image_url": url}])
    conversation.add_items([{"role": "user", "content": f"number {number}"} for number in range(600)])
    return conversation


def test_one_file_has_everything(pages: Pages) -> None:
    conversation = long_conversation(pages)
    html = html_of(pages.store, conversation.id)
    for text in ("Trains", "<strong>10:02</strong>", "timetable", "100 in", "Overloaded", "number 0", "number 599"):
        assert text in html
    assert html.count('<article class="item') == conversation.head  # an output is within its call
    assert 'src="data:image/png;base64,' in html


def a_picture(number: int) -> dict[str, Any]:
    content = PNG + bytes([number]) * 9_000
    return {"type": "input_image", "image_url": f"data:image/png;base64,{base64.b64encode(content).decode()}"}


def test_pictures_of_a_file_have_a_limit(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    one, other = a_picture(1), a_picture(2)
    monkeypatch.setattr(exporting, "MAX_PICTURES", 3 * len(one["image_url"]) + 1)
    conversation = pages.store.create_conversation(user_id="ann")
    for part in (one, other, one, other, one):
        conversation.user([part])
    downloaded = pages.client().get(f"/c/{conversation.id}/export/html").text
    for html in (html_of(pages.store, conversation.id), downloaded):
        assert re.findall(r'src="(data:[^"]*)"', html) == [one["image_url"], other["image_url"], one["image_url"]]
        names = re.findall(r"image \(not in this file: threadkeep-media:(\w{64})\)", html)
        assert [pages.store.media(name).content[-1] for name in names] == [2, 1]


def test_files_and_pictures_that_no_browser_shows_are_named(pages: Pages) -> None:
    conversation = pages.store.create_conversation()
    data = base64.b64encode(b"<svg onload=alert(1)>" * 1_000).decode()
    svg = {"type": "input_image", "image_url": f"data:image/svg+xml;base64,{data}"}
    conversation.user([svg, {"type": "input_file", "filename": "a.txt", "file_data": f"data:text/plain;base64,{data}"}])
    html = html_of(pages.store, conversation.id)
    assert "image (not in this file: threadkeep-media:" in html
    assert "a.txt (not in this file: threadkeep-media:" in html
    assert data[:100] not in html


def test_a_reference_to_what_others_have_is_only_named(pages: Pages) -> None:
    pages.store.create_conversation(user_id="ben").user([a_picture(1)])
    name = sha256(PNG + bytes([1]) * 9_000).hexdigest()
    conversation = pages.store.create_conversation(user_id="ann")
    image = {"type": "input_image", "image_url": f"{REFERENCE}{name}"}
    conversation.add_item({"role": "user", "content": [image]}, known=False)
    assert f"image (not in this file: {REFERENCE}{name})" in html_of(pages.store, conversation.id)


def test_markdown_has_references_to_media(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    path = f"/c/{conversation.id}/export/markdown"
    assert pages.client().get(path).text == conversation.to_markdown()
    conversation.user([a_picture(1)])
    name = sha256(PNG + bytes([1]) * 9_000).hexdigest()
    assert f"[image: {REFERENCE}{name}\\]" in pages.client().get(path).text


def test_one_file_needs_no_other_and_can_run_nothing(pages: Pages) -> None:
    conversation = long_conversation(pages)
    conversation.user("<script>alert(1)</script>")
    html = html_of(pages.store, conversation.id)
    assert "<script" not in html
    assert "<link" not in html
    assert not re.search(r'(src|href|action)="(?!data:|#)', html)
    style = re.search(r"<style>(.*?)</style>", html, re.DOTALL)
    policy = POLICY.search(html)
    assert style
    assert policy
    digest = base64.b64encode(sha256(style[1].encode()).digest()).decode()
    assert f"style-src 'sha256-{digest}'" in policy[1].replace("&#39;", "'")
    assert "default-src 'none'" in policy[1].replace("&#39;", "'")


def test_files_can_be_downloaded(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    for kind, beginning in (("html", "<!doctype html>"), ("markdown", "# Trains"), ("jsonl", "{")):
        response = pages.client().get(f"/c/{conversation.id}/export/{kind}")
        assert response.text.startswith(beginning)
        assert response.headers["content-disposition"].startswith("attachment")
        assert pages.client("ben").get(f"/c/{conversation.id}/export/{kind}").status_code == 404
    assert "Not found" in pages.get(f"/c/{conversation.id}/export/other", status=404)
    assert "Not found" in pages.get(f"/c/{conversation.id}/export/html?branch=9", status=404)


def test_an_export_is_sent_while_it_is_read(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    """By each owner one at a time; one whose client leaves is read no further."""
    monkeypatch.setattr(exporting, "PIECE_BYTES", 10_000)
    conversation = long_conversation(pages)
    application, pieces, read = pages.application(), list[bytes](), list[int]()
    next_piece, expected = exporting._next_piece, "".join(pages.store.export(conversation_ids=[conversation.id]))

    def counted(*args: Any) -> bytes:
        read.append(1)
        return next_piece(*args)

    async def download(most: int) -> None:
        left = asyncio.Event()

        async def receive() -> dict[str, Any]:
            await left.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            pieces.append(message.get("body", b""))
            if len(pieces) == 2:
                async with httpx2.AsyncClient(transport=transport, base_url="http://localhost") as http:
                    answer = await http.get(request["path"], headers={"Authorization": "Bearer ann"})
                assert (answer.status_code, answer.headers["retry-after"]) == (429, "5")
            if len(pieces) == most:
                left.set()
                await anyio.sleep_forever()

        await application(request, receive, send)

    transport = httpx2.ASGITransport(app=application)
    request = {**following(conversation), "path": f"/c/{conversation.id}/export/jsonl"}
    monkeypatch.setattr(exporting, "_next_piece", counted)
    pages.runner.run(download(0))
    assert b"".join(pieces).decode().splitlines()[1:] == expected.splitlines()[1:]  # the first one has the time
    assert len(read) == len([piece for piece in pieces if piece]) + 1 > 10
    pieces.clear()
    read.clear()
    pages.runner.run(download(4))
    assert (len(read), application.state.viewer.drawing._downloads) == (3, set())


def test_a_state_changes_with_an_answer(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    assert look(pages.store, conversation.id, None) == {"head": 3, "open": False}
    conversation.user("And then?")
    with conversation.stream_response("chat_completion") as recorder:
        assert look(pages.store, conversation.id, None) == {"head": 4, "open": True}
        recorder.feed({"id": "a", "choices": [{"index": 0, "delta": {"content": "Hi"}, "finish_reason": "stop"}]})
    assert look(pages.store, conversation.id, None) == {"head": 5, "open": False}


def following(conversation: Conversation) -> dict[str, Any]:
    """The request of a browser of ann that follows a conversation."""
    return http_scope(f"/c/{conversation.id}/tail", headers={"authorization": "Bearer ann"})


def follow(pages: Pages, conversation: Conversation, then: Callable[[], object], most: int) -> list[int]:
    """Follow a conversation, and do something after each event; returns the heads of so many events."""
    application = pages.application()
    heads: list[int] = []

    async def run() -> None:
        async def receive() -> dict[str, Any]:
            await anyio.sleep_forever()
            raise AssertionError

        async def send(message: dict[str, Any]) -> None:
            for line in message.get("body", b"").decode().splitlines():
                if line.startswith("data: "):
                    heads.append(json.loads(line[6:])["head"])
                    if len(heads) == most:
                        group.cancel_scope.cancel()
                    await anyio.to_thread.run_sync(then)

        with anyio.fail_after(30):
            async with anyio.create_task_group() as group:
                group.start_soon(application, following(conversation), receive, send)

    pages.runner.run(run())
    return heads


def test_whoever_follows_is_told(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    assert follow(pages, conversation, lambda: conversation.user("More"), most=2) == [3, 4]


def test_a_conversation_that_is_deleted_is_followed_no_longer(pages: Pages, caplog: pytest.LogCaptureFixture) -> None:
    """The browser asks again, and learns that it does not exist."""
    conversation = with_tools(pages.store)
    assert follow(pages, conversation, lambda: pages.store.delete_conversation(conversation.id), most=2) == [3]
    assert not caplog.records
    assert pages.client().get(f"/c/{conversation.id}/tail").status_code == 404


def test_only_so_many_follow_though_they_begin_at_once(pages: Pages, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(thread, "_streams", stream_quota(5))
    conversation = with_tools(pages.store)
    application = pages.application()

    async def follow_one() -> int:
        statuses: list[int] = []

        async def receive() -> dict[str, Any]:
            await all_begun.wait()
            return {"type": "http.disconnect"}

        async def send(message: dict[str, Any]) -> None:
            if message["type"] == "http.response.start":
                statuses.append(message["status"])
                begun.append(message["status"])
                if len(begun) == 12:
                    all_begun.set()

        await application(following(conversation), receive, send)
        return statuses[0]

    async def follow_all() -> list[int]:
        return await asyncio.wait_for(asyncio.gather(*(follow_one() for _ in range(12))), 30)

    begun: list[int] = []
    all_begun = asyncio.Event()
    assert sorted(pages.runner.run(follow_all())) == [200] * 5 + [204] * 7
    assert not thread._streams._taken


def test_new_items_come_as_a_fragment(pages: Pages) -> None:
    conversation = with_tools(pages.store)
    conversation.user("<i>More</i>")
    html = pages.get(f"/c/{conversation.id}/items?from=4")
    assert 'data-last="4"' in html
    assert "&lt;i&gt;More&lt;/i&gt;" in html
    assert "<html" not in html


def test_the_command_line_writes_the_file(tmp_path: Path) -> None:
    cli = Cli(f"sqlite:///{tmp_path}/chat.db")
    with Store(cli.url) as store:
        conversation = with_tools(store)
    file = tmp_path / "trains.html"
    cli("export", conversation.id, "--html", "--output", str(file))
    assert "<strong>10:02</strong>" in file.read_text()
    assert "takes one conversation" in cli("export", "--html", code=2).err
    assert "takes one conversation" in cli("export", conversation.id, "--html", "--markdown", code=2).err
