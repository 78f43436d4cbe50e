"""A real Chromium, and a server over a month of conversations."""

from __future__ import annotations

import asyncio
import shutil
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, expect, sync_playwright

from threadkeep import AsyncStore, Store
from threadkeep.cli.demo_month import PRICES, fill
from threadkeep.viewer import app

NAMES = ("chromium", "chromium-browser", "google-chrome")
WAIT_MILLISECONDS = 60_000  # for what a page does in a moment


@contextmanager
def serving(url: str, *, tenants: bool = False, **options: Any) -> Iterator[str]:
    """The address of a viewer with these options over a database, in a thread of its own."""
    store = AsyncStore(url, tenants=tenants)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        config = uvicorn.Config(app(store, **options), log_level="warning", timeout_graceful_shutdown=1)
        server = uvicorn.Server(config)

        async def serve() -> None:
            try:
                await server.serve(sockets=[listening])
            finally:
                await store.close()

        thread = Thread(target=asyncio.run, args=[serve()])
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            server.should_exit = True
            thread.join(30)
            assert not thread.is_alive()


@pytest.fixture(scope="session")
def month(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The URL of a database with a month of conversations."""
    url = f"sqlite:///{tmp_path_factory.mktemp('month')}/month.db"
    with Store(url, prices=PRICES) as store:
        fill(store, datetime.now(UTC).replace(microsecond=0), lambda _: None)
    return url


@pytest.fixture(scope="session")
def site(month: str) -> Iterator[str]:
    with serving(month) as address:
        yield address


@pytest.fixture(scope="module")  # its event loop runs in this thread, where others need theirs
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        pytest.skip("there is no Chromium on this machine: apt-get install chromium")
    expect.set_options(timeout=WAIT_MILLISECONDS)
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox", "--disable-dev-shm-usage"])
        yield browser
        browser.close()


class Watched:
    """A page, and what it should not do: dialogs, requests to others, violations of its policy, errors."""

    def __init__(self, context: BrowserContext, address: str) -> None:
        self.page, self.address = context.new_page(), address
        self.dialogs: list[str] = []
        self.requests: list[str] = []
        self.problems: list[str] = []
        self.page.on("dialog", self._dialog)
        context.on("request", lambda request: self.requests.append(request.url))
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("console", self._console)

    def _dialog(self, dialog: Any) -> None:
        self.dialogs.append(dialog.message)
        dialog.dismiss()

    def _console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(message.text)

    def open(self, path: str) -> Page:
        response = self.page.goto(self.address + path)
        assert response is not None
        assert response.status == 200, path
        return self.page

    def check(self) -> None:
        """Nothing happened that should not."""
        elsewhere = [url for url in self.requests if not url.startswith((self.address, "data:"))]
        assert (self.dialogs, elsewhere, self.problems) == ([], [], [])


@contextmanager
def watching(chromium: Browser, address: str, **options: Any) -> Iterator[Watched]:
    context = chromium.new_context(**options)
    context.set_default_timeout(WAIT_MILLISECONDS)
    watched = Watched(context, address)
    try:
        yield watched
        watched.check()
    finally:
        context.close()


@pytest.fixture
def view(chromium: Browser, site: str) -> Iterator[Watched]:
    """A wide window over the month; what it should not do is checked at the end."""
    with watching(chromium, site, viewport={"width": 1280, "height": 860}) as watched:
        yield watched


@pytest.fixture(scope="session")
def axe() -> str:
    """The program that finds what people who use assistive technology cannot use."""
    import axe_playwright_python  # noqa: PLC0415 - its file is wanted

    [file] = Path(axe_playwright_python.__path__[0]).rglob("axe.min.js")
    return file.read_text()
