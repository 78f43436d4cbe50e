"""Threads that share a conversation: each request is one state of it, whoever was faster."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from threading import Event, current_thread
from typing import Any, Final

import pytest
from sqlalchemy import Engine, event

from tests.databases import Database
from tests.factories import a_completion, noise
from tests.store.watching import engine_of
from threadkeep import Conversation, Store

FORMAT: Final = "open_responses"


class Slow:
    """Threads that stop when they have read items or media, or are about to commit, until they may go on."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._stops: dict[str, tuple[str, Event, Event]] = {}  # by thread: at what, when it is there, when it may go on

    def begin(self, name: str, call: Callable[[], Any], *, until: str = "read") -> Future[Any]:
        """Call something in a thread; return when that has come so far."""
        self._stops[name] = until, Event(), Event()
        pool = self._stack.enter_context(ThreadPoolExecutor(1, thread_name_prefix=name))
        result = pool.submit(call)
        assert self._stops[name][1].wait(20)
        return result

    def go_on(self, name: str) -> None:
        self._stops[name][2].set()

    def listen(self, engine: Engine) -> None:
        """Stop the threads that work with an engine."""
        for name, function in (("after_cursor_execute", self._after_statement), ("commit", self._before_commit)):
            event.listen(engine, name, function)
            self._stack.callback(event.remove, engine, name, function)

    def _after_statement(self, _connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "threadkeep_items" in statement:
            self._stop("read")
        if "threadkeep_blobs" in statement:
            self._stop("media")

    def _before_commit(self, _connection: Any) -> None:
        self._stop("commit")

    def _stop(self, at: str) -> None:
        until, is_there, may_go_on = self._stops.get(current_thread().name.partition("_")[0], ("", Event(), Event()))
        if until == at and not is_there.is_set():
            is_there.set()
            assert may_go_on.wait(20)


@contextmanager
def slow(store: Store) -> Iterator[Slow]:
    with ExitStack() as stack:
        threads = Slow(stack)
        threads.listen(engine_of(store))
        yield threads


@pytest.fixture
def stores(database: Database) -> Iterator[tuple[Store, Store]]:
    """A store, and that of another process."""
    with Store(database.url) as store, Store(database.url) as elsewhere:
        yield store, elsewhere


def said(conversation: Conversation) -> list[str]:
    """The texts of the next request."""
    return [item["content"][0]["text"] for item in conversation.request_payload(FORMAT)["input"]]


def test_a_request_has_no_hole(stores: tuple[Store, Store]) -> None:
    """What somebody read first, and took in last, takes the place of what another goes on from."""
    store, elsewhere = stores
    conversation = store.create_conversation(model="m", input="0")
    shared, theirs = store.get_conversation(conversation.id), elsewhere.get_conversation(conversation.id)
    with slow(store) as threads:
        oldest = threads.begin("oldest", lambda: said(shared))
        for number in range(1, 4):
            theirs.user(str(number))
        theirs.update(title="Changed")
        assert said(shared) == ["0", "1", "2", "3"]
        theirs.user("4")
        newest = threads.begin("newest", lambda: said(shared))
        threads.go_on("oldest")
        assert oldest.result(20) in (["0"], ["0", "1", "2", "3"], ["0", "1", "2", "3", "4"])
        threads.go_on("newest")
        assert newest.result(20) == ["0", "1", "2", "3", "4"]
    assert said(shared) == ["0", "1", "2", "3", "4"]


def test_what_was_removed_does_not_come_back_with_a_change(stores: tuple[Store, Store]) -> None:
    """An old state is no newer because somebody has changed options since."""
    store, elsewhere = stores
    conversation = store.create_conversation(model="m", input="0")
    conversation.user("removed")
    shared, theirs = store.get_conversation(conversation.id), elsewhere.get_conversation(conversation.id)
    with slow(store) as threads:
        oldest = threads.begin("oldest", lambda: said(shared))
        theirs.remove_item(1)
        assert said(shared) == ["0"]
        change = threads.begin("change", lambda: shared.update(title="Changed"), until="commit")
        threads.go_on("oldest")
        oldest.result(20)
        threads.go_on("change")
        change.result(20)
    assert said(shared) == ["0"]
    assert said(store.get_conversation(conversation.id)) == ["0"]


def test_a_request_names_the_options_that_it_has(stores: tuple[Store, Store]) -> None:
    """Also where what it shows takes more than one look at the database."""
    store, _ = stores
    file = base64.b64encode(noise(20_000)).decode()
    part = {"type": "input_file", "filename": "a.pdf", "file_data": f"data:application/pdf;base64,{file}"}
    conversation = store.create_conversation(model="before", input=[{"role": "user", "content": [part]}])
    shared, url = store.get_conversation(conversation.id), "https://media.example/{hash}"
    with slow(store) as threads:
        request = threads.begin("request", lambda: shared.render("chat_completion", media_url=url), until="media")
        shared.update(model="after")
        threads.go_on("request")
        rendered = request.result(20)
    assert rendered.payload["model"] == "before"
    shared.add_response(a_completion("Ho"), "chat_completion", rendered=rendered)
    assert shared.render("chat_completion", upto=0).payload["model"] == "before"
