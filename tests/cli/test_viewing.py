"""``threadkeep view``, and the pages of ``threadkeep serve``, as programs of their own."""

from __future__ import annotations

import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.cli.runs import PROGRAM, Cli
from threadkeep import Store

ADDRESS = re.compile(r"http://127\.0\.0\.1:\d+/\S*$")


@contextmanager
def opened(cli: Cli, *command: str, lines: int = 1) -> Iterator[str]:
    """The address that is printed for a browser, in the line of that number; the program is ended as with Ctrl+C."""
    with subprocess.Popen(
        [*PROGRAM, *command, "--port", "0"], env=cli.environment(), stderr=subprocess.PIPE, text=True
    ) as server:
        assert server.stderr is not None
        try:
            line = [server.stderr.readline() for _ in range(lines)][-1]
            found = ADDRESS.search(line.strip())
            assert found, line
            yield found[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


@pytest.mark.slow
@pytest.mark.usefixtures("with_interrupts")
def test_one_browser_opens_the_address(cli: Cli, stored: str) -> None:
    browser, other = httpx2.Client(), httpx2.Client(follow_redirects=True)
    with opened(cli, "view", "--no-browser", "--saved-view", "Failed=/?errors=1") as address, browser, other:
        site = address.partition("?")[0]
        assert browser.get(site).status_code == 401
        assert browser.get(address, follow_redirects=True).url == site
        assert other.get(address).status_code == 401
        assert stored in browser.get(site).text
        assert 'href="/?errors=1&amp;view=Failed"' in browser.get(site).text
        assert browser.get(f"{site}c/{stored}").status_code == 200
        assert browser.get(site, headers={"Host": "example.com"}).status_code == 401


@pytest.mark.slow
@pytest.mark.usefixtures("with_interrupts")
def test_a_server_has_the_pages_and_keeps_no_request_that_never_begins(cli: Cli, stored: str) -> None:
    command = ("serve", "--saved-view", "Failed=/?errors=1")
    with opened(cli, *command, lines=2) as address, httpx2.Client(follow_redirects=True) as browser:
        place, is_closed = urlsplit(address), pytest.raises((BrokenPipeError, ConnectionResetError))
        with socket.create_connection((place.hostname, place.port), timeout=20) as peer, is_closed:
            peer.sendall(b"GET /" + b"x" * 50_000_000)
        assert stored in browser.get(address).text
        assert ">Failed</a>" in browser.get(address).text
        assert httpx2.get(address.partition("?")[0]).status_code == 401


@pytest.mark.usefixtures("with_interrupts")
@pytest.mark.slow
def test_only_a_user_or_tenant_is_shown(cli: Cli) -> None:
    with cli.store() as store:
        store.create_conversation(user_id="ann", title="of ann")
        store.create_conversation(user_id="ben", title="of ben")
    with Store(cli.url, tenants=True) as store:
        store.create_tenant("acme").create_conversation(title="of acme")

    def shown(*options: str) -> set[str]:
        with opened(cli, *options, "--no-browser") as address, httpx2.Client(follow_redirects=True) as browser:
            return set(re.findall(r">(of \w+)<", browser.get(address).text))

    assert shown("view", "--user", "ann") == {"of ann"}
    assert shown("--tenant", "acme", "view") == {"of acme"}


@pytest.mark.usefixtures("with_interrupts")
@pytest.mark.slow
def test_all_tenants_are_shown_with_what_they_used(cli: Cli) -> None:
    cli("tenants", "create", "acme")
    with Store(cli.url, tenants=True) as store:
        call = store.for_tenant("acme").create_conversation(title="of acme")
        call.record_attempt("chat_completion", model="m", latency_ms=90)
    with (
        opened(cli, "view", "--all-tenants", "--no-browser") as address,
        httpx2.Client(follow_redirects=True) as browser,
    ):
        page = browser.get(address)
        assert page.url.path == "/tenants"
        assert ">acme</a>" in page.text
        assert "of acme" not in browser.get(page.url.join("/tenant?name=acme")).raise_for_status().text


@pytest.mark.usefixtures("with_interrupts")
@pytest.mark.slow
def test_with_keys_the_pages_ask_for_one(cli: Cli, stored: str) -> None:
    made = [cli("keys", "create", "--label", "browser", *user).out for user in ((), ("--user", "ann"))]
    secrets = [secret for text in made for secret in re.findall(r"tk_\w+", text)]
    with opened(cli, "serve", "--saved-view", "Ben=/?user=ben", lines=2) as address:
        for secret, is_for_all in zip(secrets, (True, False), strict=True):
            with httpx2.Client(follow_redirects=True) as browser:
                form = re.search(r'name="form" value="([^"]+)"', browser.get(address).text)
                assert form
                fields, origin = {"form": form[1], "key": secret}, {"Origin": address.rstrip("/")}
                html = browser.post(f"{address}sign-in", data=fields, headers=origin).text
                assert (stored in html, "Ben" in html) == (is_for_all, is_for_all)


def test_what_cannot_be_shown_is_refused(cli: Cli) -> None:
    assert "no tenant 'unknown'" in cli("--tenant", "unknown", "view", "--no-browser", code=3).err
    for options in (["--tenant", "acme", "view"], ["view", "--user", "ann"]):
        assert "about all tenants" in cli(*options, "--all-tenants", "--no-browser", code=2).err
    for view, problem in {"Failed": "must be NAME=ADDRESS", "Failed=/c/x": "begins with one of"}.items():
        assert problem in cli("view", "--no-browser", "--saved-view", view, code=2).err
