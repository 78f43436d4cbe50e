"""Connections to providers: plain and encrypted, through a proxy, and where a host does not answer."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import uvloop

from threadkeep.server.provider_connections import ProviderClient, ProviderConnection

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"
Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]
both_loops = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


@asynccontextmanager
async def serving(serve: Serve, **options: Any) -> AsyncIterator[int]:
    """The port of a server."""
    tasks = set[asyncio.Task[None] | None]()

    async def served(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.current_task())
        try:
            await serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):  # the client has left
            pass
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(served, "127.0.0.1", **options)
    async with server:
        yield server.sockets[0].getsockname()[1]
    for task in filter(None, tasks):
        task.cancel()
    await asyncio.gather(*filter(None, tasks), return_exceptions=True)
    await asyncio.sleep(0)  # then their connections are closed


async def answered(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, answer: bytes = ANSWER) -> None:
    """Answer each request."""
    while True:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        await reader.readexactly(int((head + b"\r").partition(b"content-length: ")[2].partition(b"\r")[0] or 0))
        writer.write(answer)


@pytest.fixture
def certificate(tmp_path: Path) -> tuple[Path, Path]:
    """A certificate of localhost, and its key."""
    paths = tmp_path / "cert.pem", tmp_path / "key.pem"
    command = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=localhost"]
    command += ["-addext", "subjectAltName=DNS:localhost", "-out", str(paths[0]), "-keyout", str(paths[1])]
    subprocess.run(command, check=True, capture_output=True)
    return paths


@both_loops
def test_a_connection_serves_one_call_after_the_other(run: Any) -> None:
    async def ports(url: str) -> list[int]:
        found = []
        async with ProviderClient() as client:
            for body in (b"x", b"y" * 3_000_000, b"z"):
                async with client.stream("POST", url, content=body) as response:
                    stream = response.extensions["network_stream"]
                    assert isinstance(stream, ProviderConnection)
                    assert await response.aread() == b"ok"
                    found.append(stream.get_extra_info("client_addr")[1])
        return found

    async def asked() -> int:
        async with serving(answered, limit=4_000_000) as port:
            return len({*await ports(f"http://localhost:{port}")})  # where nothing listens on ::1

    assert run(asked()) == 1


@both_loops
def test_a_connection_that_its_provider_has_closed_serves_no_other_call(run: Any) -> None:
    async def once(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER)

    async def asked() -> list[str]:
        async with serving(once) as port, ProviderClient() as client:
            found = []
            for _ in range(3):
                found.append((await client.get(f"http://127.0.0.1:{port}")).text)
                await asyncio.sleep(0.05)
            return found

    assert run(asked()) == ["ok"] * 3


@both_loops
@pytest.mark.parametrize("is_trusted", [True, False])
def test_an_encrypted_connection_is_verified(run: Any, is_trusted: bool, certificate: tuple[Path, Path]) -> None:
    context = ssl.create_default_context(cafile=str(certificate[0]) if is_trusted else None)

    async def asked() -> str:
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(*certificate)
        async with serving(answered, ssl=own) as port, ProviderClient(verify=context) as client:
            text = [(await client.post(f"https://localhost:{port}", content=b"x" * 500_000)).text for _ in range(2)]
            return "".join(text)

    if is_trusted:
        assert run(asked()) == "okok"
    else:
        with pytest.raises(httpx2.ConnectError, match="certificate verify failed"):
            run(asked())


@both_loops
def test_a_proxy_of_the_environment_is_asked(
    run: Any, certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked_for: list[bytes] = []

    async def proxy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = await reader.readuntil(b"\r\n\r\n")
        asked_for.append(head.split(b" ")[0])
        port = int(head.split(b" ")[1].rpartition(b":")[2])
        writer.write(b"HTTP/1.1 200 OK\r\n\r\n")
        there, back = await asyncio.open_connection("127.0.0.1", port)

        async def passed(source: asyncio.StreamReader, target: asyncio.StreamWriter) -> None:
            while data := await source.read(65536):
                target.write(data)
            target.close()

        try:
            await asyncio.gather(passed(reader, back), passed(there, writer))
        finally:
            back.transport.abort()

    async def asked() -> str:
        own = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        own.load_cert_chain(*certificate)
        async with serving(answered, ssl=own) as port, serving(proxy) as proxy_port:
            monkeypatch.setenv("HTTPS_PROXY", f"http://127.0.0.1:{proxy_port}")
            context = ssl.create_default_context(cafile=str(certificate[0]))
            async with (
                ProviderClient(verify=context) as client,
                client.stream("GET", f"https://localhost:{port}") as response,
            ):
                assert isinstance(response.extensions["network_stream"], ProviderConnection)
                return (await response.aread()).decode()

    assert (run(asked()), asked_for) == ("ok", [b"CONNECT"])


@both_loops
def test_what_does_not_answer_is_named(run: Any) -> None:
    async def silent(reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await reader.read()

    async def cut(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(ANSWER[:-1])

    async def reset(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
        writer.transport.abort()

    async def failure(port: int) -> type[Exception]:
        async with ProviderClient(timeout=0.2) as client:
            try:
                await client.post(f"http://127.0.0.1:{port}", content=b"x")
            except httpx2.HTTPError as error:
                return type(error)
        raise AssertionError

    async def failures() -> list[type[Exception]]:
        with socket.create_server(("127.0.0.1", 0)) as closed:
            port = closed.getsockname()[1]
        found = [await failure(port)]
        for serve in (silent, cut, reset):
            async with serving(serve) as port:
                found.append(await failure(port))
        return found

    expected = [httpx2.ConnectError, httpx2.ReadTimeout, httpx2.RemoteProtocolError, httpx2.ReadError]
    assert run(failures()) == expected


@both_loops
def test_a_provider_that_reads_nothing_has_a_limit_of_time(run: Any) -> None:
    async def silent(_reader: asyncio.StreamReader, _writer: asyncio.StreamWriter) -> None:
        await asyncio.sleep(5)

    async def asked() -> None:
        async with serving(silent) as port, ProviderClient(timeout=0.2) as client:
            await client.post(f"http://127.0.0.1:{port}", content=b"x" * 50_000_000)

    with pytest.raises(httpx2.WriteTimeout):
        run(asked())
