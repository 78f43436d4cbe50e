"""The page of `examples/ag-ui` in Chromium, with two `threadkeep serve`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from playwright.sync_api import Browser

from tests.peers.pages import Chat, Site, built, served, speak_behind
from tests.viewer.browser.conftest import chromium, watching  # noqa: F401 - a fixture


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with served(built("ag-ui", tmp_path_factory.mktemp("ag-ui"))) as made:
        yield made


@pytest.fixture
def thread(request: pytest.FixtureRequest) -> str:
    """The id of the thread that the tabs show."""
    return str(request.node.name)


@pytest.fixture
def tabs(chromium: Browser, site: Site, thread: str) -> Iterator[list[Chat]]:  # noqa: F811
    """A thread in two tabs, with a server each."""
    site.provider.gate.clear()
    site.provider.payloads.clear()
    with ExitStack() as stack:
        views = [stack.enter_context(watching(chromium, address)) for address in site.addresses]
        yield [Chat(view.open(f"/#{thread}"), view.problems) for view in views]
        site.provider.gate.set()


def test_tools_that_ask_first_and_another_process(tabs: list[Chat], site: Site, thread: str) -> None:
    first, second = tabs
    first.say("Hello")
    first.settles("Hello", "1: about Hello")
    first.say("The weather?")
    first.button("Allow").click()
    texts = "Hello", "1: about Hello", "The weather?", "2: about The weather?", '3: about {"degrees":4}'
    first.settles(*texts)
    second.page.reload()
    second.settles(*texts)
    second.say("The weather?")
    second.button("Deny").click()
    more = "The weather?", "4: about The weather?", "5: about The user said no."
    second.settles(*texts, *more)
    assert site.messages(thread) == [*texts, *more]
    assert len(site.provider.payloads) == 5


def test_a_run_is_followed_by_another_process_and_stopped(tabs: list[Chat], site: Site, thread: str) -> None:
    first, second = tabs
    first.say("Go slowly")
    first.shows("Go slowly", "1: ")
    second.page.reload()
    second.shows("Go slowly", "1: ")
    second.button("Stop").click()
    for chat in tabs:
        chat.settles("Go slowly", "1: ")
    second.say("Hello")
    second.settles("Go slowly", "1: ", "Hello", "2: about Hello")
    assert site.messages(thread) == ["Go slowly", "1: ", "Hello", "2: about Hello"]


def test_the_tab_that_did_not_see_the_last_message_is_told(tabs: list[Chat], site: Site, thread: str) -> None:
    first, second = tabs
    speak_behind(first, second)
    refusal, logged = second.problems  # by the browser, and by the client
    assert "409 (Conflict)" in refusal
    assert logged.startswith("Agent execution failed: Error: HTTP 409")
    second.problems.clear()
    texts = "Hello", "1: about Hello", "And?", "2: about And?"
    assert (site.messages(thread), len(site.provider.payloads)) == ([*texts], 2)
