"""The page of `examples/use-chat` in Chromium, with two `threadkeep serve`."""

from __future__ import annotations

import base64
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser, expect

from tests.peers.pages import Chat, Site, built, served, speak_behind
from tests.viewer.browser.conftest import chromium, watching  # noqa: F401 - a fixture

PNG = base64.b64decode(
    "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with served(built("use-chat", tmp_path_factory.mktemp("use-chat"))) as made:
        yield made


@pytest.fixture
def tabs(chromium: Browser, site: Site, request: pytest.FixtureRequest) -> Iterator[list[Chat]]:  # noqa: F811
    """A chat in two tabs, with a server each."""
    site.provider.gate.clear()
    site.provider.payloads.clear()
    with ExitStack() as stack:
        views = [stack.enter_context(watching(chromium, address)) for address in site.addresses]
        yield [Chat(view.open(f"/#{request.node.name}"), view.problems) for view in views]
        site.provider.gate.set()


def test_what_is_said_is_answered_once_and_loaded_by_another_process(
    tabs: list[Chat], site: Site, chat_id: str
) -> None:
    first, second = tabs
    first.say("Hello")
    first.settles("Hello", "1: about Hello")
    first.say("The weather?")
    first.button("Allow").click()
    texts = "Hello", "1: about Hello", "The weather?", "2: about The weather?", '3: about {"degrees":4}'
    first.settles(*texts)
    second.page.reload()
    second.settles(*texts)
    assert site.messages(chat_id) == [*texts]
    second.say("The weather?")
    second.button("Deny").click()
    second.settles(*texts, "The weather?", "4: about The weather?", "5: about The user said no.")
    assert len(site.provider.payloads) == 5


def test_an_answer_is_stopped(tabs: list[Chat], site: Site, chat_id: str) -> None:
    first, second = tabs
    first.say("Go slowly")
    first.shows("Go slowly", "1: ")
    first.button("Stop").click()
    first.settles("Go slowly", "1: ")
    second.page.reload()
    second.settles("Go slowly", "1: ")
    second.say("Hello")
    second.settles("Go slowly", "1: ", "Hello", "2: about Hello")
    assert site.messages(chat_id) == ["Go slowly", "1: ", "Hello", "2: about Hello"]


def test_another_process_goes_on_with_an_answer_when_its_page_is_reloaded(
    tabs: list[Chat], site: Site, chat_id: str
) -> None:
    first, second = tabs
    first.say("Go slowly")
    first.shows("Go slowly", "1: ")
    first.page.goto("about:blank")
    second.page.reload()
    second.shows("Go slowly", "1: ")
    second.page.reload()
    second.shows("Go slowly", "1: ")
    site.provider.gate.set()
    second.settles("Go slowly", "1: about Go slowly")
    assert (site.messages(chat_id), len(site.provider.payloads)) == (["Go slowly", "1: about Go slowly"], 1)


def test_the_tab_that_did_not_see_the_last_message_is_told(tabs: list[Chat], site: Site, chat_id: str) -> None:
    first, second = tabs
    speak_behind(first, second)
    assert second.problems == ["Failed to load resource: the server responded with a status of 409 (Conflict)"]
    second.problems.clear()
    texts = "Hello", "1: about Hello", "And?", "2: about And?"
    assert (site.messages(chat_id), len(site.provider.payloads)) == ([*texts], 2)
    second.button("Load again").click()
    second.settles(*texts)
    second.say("Hello?")
    second.settles(*texts, "Hello?", "3: about Hello?")


def test_a_picture_is_kept(tabs: list[Chat], site: Site, chat_id: str) -> None:
    first, second = tabs
    first.page.get_by_label("Pictures").set_input_files({"name": "dot.png", "mimeType": "image/png", "buffer": PNG})
    first.say("What is this?")
    first.settles("What is this?", "1: about What is this?")
    second.page.reload()
    for chat in tabs:
        expect(chat.page.get_by_role("img", name="dot.png")).to_have_count(1)
    image = site.provider.payloads[0]["messages"][0]["content"][0]["image_url"]["url"]
    assert base64.b64decode(image.partition(",")[2]) == PNG


def test_messages_are_edited_and_answered_again(tabs: list[Chat], site: Site, chat_id: str) -> None:
    first, second = tabs
    first.say("One")
    first.settles("One", "1: about One")
    first.button("Again").click()
    first.settles("One", "2: about One")
    first.button("Edit").click()
    first.say("Two", "Send instead")
    first.settles("Two", "3: about Two")
    second.page.reload()
    second.settles("Two", "3: about Two")
    expect(second.page.locator("article.user footer")).to_contain_text("2 of 2")
    second.button("Previous").click()
    second.settles("One", "2: about One")  # the newest below it
    expect(second.page.locator("article.assistant footer")).to_contain_text("2 of 2")
    second.page.locator("article.assistant footer").get_by_role("button", name="Previous").click()
    second.settles("One", "1: about One")
    second.page.locator("article.user footer").get_by_role("button", name="Next").click()
    second.settles("Two", "3: about Two")


@pytest.fixture
def chat_id(request: pytest.FixtureRequest) -> str:
    """The id of the chat that the tabs show."""
    return str(request.node.name)
