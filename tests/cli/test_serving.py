"""How `threadkeep serve` and `record` listen."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator
from contextlib import ExitStack, asynccontextmanager, suppress
from pathlib import Path

import pytest
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.cli.runs import Cli
from threadkeep import AsyncStore, InvalidOption, Price
from threadkeep.cli import serving
from threadkeep.cli.serving import listening_at, own_prices
from threadkeep.server.connections import ACCEPTED_AT_ONCE


def test_small_writes_wait_for_no_acknowledgement() -> None:
    with listening_at("127.0.0.1", 0) as (listening, _url), socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


def test_new_connections_do_not_wait_for_each_other() -> None:
    """Each pass of the event loop takes as long as what has come for all others: many are accepted in one."""
    many, passes, answered = 4 * ACCEPTED_AT_ONCE, 0, list[int]()

    async def count() -> None:
        nonlocal passes
        while True:
            passes += 1
            await asyncio.sleep(0)

    @asynccontextmanager
    async def counted(_application: Starlette) -> AsyncIterator[None]:
        counting = asyncio.create_task(count())
        yield
        counting.cancel()

    async def answer(_request: Request) -> Response:
        answered.append(passes)
        if len(answered) == many:
            signal.raise_signal(signal.SIGINT)
        return Response()

    async def stop() -> None: ...

    application = Starlette(routes=[Route("/", answer)], lifespan=counted)
    application.state.stop = stop
    with ExitStack() as stack:
        listening, _url = stack.enter_context(listening_at("127.0.0.1", 0))
        for _ in range(many):
            client = stack.enter_context(socket.create_connection(listening.getsockname()))
            client.sendall(b"GET / HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n")
        with suppress(KeyboardInterrupt):
            serving.run(application, listening, AsyncStore("sqlite://"))
    assert len(answered) == many
    assert answered[-1] - answered[0] < many / 2


def test_the_password_of_a_provider_is_not_shown(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "run", lambda *_: None)
    result = cli("record", "--port", "0", "--upstream", "a=messages@https://ann:hunter2@a.example/v1")
    assert "recording https://***@a.example/v1 in" in result.err
    assert "hunter2" not in result.err


@pytest.mark.parametrize("command", ["record", "serve"])
def test_calls_are_kept_in_a_spool(cli: Cli, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, command: str) -> None:
    served = []
    monkeypatch.setattr(serving, "run", lambda application, *_: served.append(application))
    directory = str(tmp_path / "spool")
    provider = "--upstream", "a=messages@https://a.example"
    assert cli(command, "--port", "0", *provider, "--spool", directory, "--spool-limit", "5").code == 0
    assert len(served) == 1
    assert sorted(len(one.name) for one in Path(directory).iterdir()) == [
        4,
        32,
    ]  # its lock, and the folder of a process


def started(cli: Cli, *arguments: str) -> str:
    """What the beginning of a server prints."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(serving, "run", lambda *_: None)
        return cli("serve", "--port", "0", *arguments).err


def test_what_a_server_lacks_is_said_when_it_starts(cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("A_B_API_KEY", raising=False)
    here, there = "a-b=messages@http://127.0.0.1:1", "a-b=messages@https://a.example"
    assert "no --upstream is given, so no model answers" in started(cli)
    assert "A_B_API_KEY is not set: a-b is asked without a key\n" in started(cli, "--upstream", there)
    monkeypatch.setenv("A_B_API_KEY", "secret")
    for upstream in (there, here):
        assert len(started(cli, "--upstream", upstream).splitlines()) == 2
        monkeypatch.delenv("A_B_API_KEY", raising=False)


@pytest.mark.parametrize(
    "arguments",
    [
        "serve --upstream a=responses@http://x", "serve --prices MISSING", "serve --mask bogus", "serve --spool calls",
        "serve --model a=b", "serve --saved-view a", "serve --host 0.0.0.0", "record --upstream a=messages@x",
        "record --upstream a=messages@http://x --prices MISSING", "record --upstream a=messages@http://x --host ::",
        "keys create --scope bogus", "keys create --expires soon", f"tenants create {'x' * 600}", "import FILE --user=",
        f"import FILE --key {'x' * 600}", "import --from codex FILE --user=",
    ],
)  # fmt: skip
def test_a_refused_command_leaves_no_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, arguments: str) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "FILE").write_text('{"input": "Hi"}')
    refused = Cli("sqlite:///new.db")(*arguments.split(), code=2)
    assert "created" not in refused.err
    assert [one.name for one in tmp_path.iterdir()] == ["FILE"]


@pytest.mark.parametrize("command", [["serve"], ["record", "--upstream", "a=messages@http://x"]])
def test_parameters_of_a_url_are_checked_by_servers(tmp_path: Path, command: list[str]) -> None:
    refused = Cli(f"sqlite:///{tmp_path}/new.db?bogus=1")(*command, code=2)
    assert "cannot be used" in refused.err
    assert list(tmp_path.iterdir()) == []


def test_a_tenant_that_is_missing_creates_no_database(tmp_path: Path) -> None:
    cli = Cli(f"sqlite:///{tmp_path}/new.db")
    assert "There is no tenant 'acme'." in cli("serve", "--port", "0", "--tenant", "acme", code=3).err
    assert list(tmp_path.iterdir()) == []


PRICE = '{"model": "my-*", "input": "0.10", "output": 0.4}'


def test_prices_of_your_own_are_read_from_a_file(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    file.write_text(f"[{PRICE}]")
    assert own_prices(file) == [Price("my-*", input="0.10", output="0.4")]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "cannot be read"), ("", "cannot be read"), ("{}", "a list of prices"), ("[1]", "entry 0 is 1"),
        (f'[{PRICE}, {{"model": "m"}}]', "entry 1 is"), (f'[{PRICE[:-1]}, "cache": 1}}]', "entry 0 is"),
        ('[{"model": "m", "input": -1, "output": 1}]', "an entry 0 whose input"),
    ],
)  # fmt: skip
def test_a_file_without_prices_is_refused(tmp_path: Path, text: str | None, said: str) -> None:
    file = tmp_path / "prices.json"
    if text is not None:
        file.write_text(text)
    with pytest.raises(InvalidOption, match=said) as refused:
        own_prices(file)
    assert refused.value.argument == "--prices"
