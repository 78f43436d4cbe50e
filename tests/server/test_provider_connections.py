"""Connections to providers: what is sent over them, what comes back, and when one is used again."""

from __future__ import annotations

import asyncio
import shutil
import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

import httpx2
import pytest
import uvloop

from threadkeep.server import provider_connections
from threadkeep.server.provider_connections import MAX_HEAD_BYTES, ProviderClient

CHUNKED: Final = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n2\r\nHi\r\n"
HI: Final = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nHi"
LOOPS: Final = pytest.mark.parametrize("run", [asyncio.run, uvloop.run], ids=["asyncio", "uvloop"])


class Provider:
    """Answers each request with the next script: bytes, None to close the connection, "stay" to leave it open."""

    def __init__(self, *scripts: Any) -> None:
        self.scripts, self.asked, self.connections = list(scripts), list[bytes](), 0
        self.writers: list[asyncio.StreamWriter] = []
        self.over = asyncio.Event()

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self.writers.append(writer)
        with suppress(ConnectionError, asyncio.IncompleteReadError):
            while self.scripts:
                head = await reader.readuntil(b"\r\n\r\n")
                body = b""
                if b"content-length: " in head.lower():
                    length = head.lower().partition(b"content-length: ")[2].partition(b"\r\n")[0]
                    body = await reader.readexactly(int(length))
                elif b"chunked" in head.lower():
                    body = await reader.readuntil(b"0\r\n\r\n")
                self.asked.append(head + body)
                for part in self.scripts.pop(0):
                    if part is None:
                        writer.close()
                        return
                    if part == "stay":
                        await self.over.wait()
                        return
                    writer.write(part)
                    await writer.drain()
        writer.close()


def provided(
    run: Any, provider: Provider, work: Callable[[ProviderClient, str], Awaitable[None]], *, seconds: float = 5.0,
    **options: Any,
) -> None:  # fmt: skip
    async def running() -> None:
        server = await asyncio.start_server(provider.serve, "127.0.0.1", 0, limit=2**22, **options)
        client = ProviderClient(5.0, seconds, 2)
        scheme = "https" if "ssl" in options else "http"
        try:
            await work(client, f"{scheme}://127.0.0.1:{server.sockets[0].getsockname()[1]}")
        finally:
            await client.aclose()
            provider.over.set()
            await asyncio.sleep(0.03)
            for writer in provider.writers:
                writer.close()
            server.close()

    run(running())


async def answered(client: ProviderClient, url: str, **options: Any) -> httpx2.Response:
    response = await client.send(httpx2.Request("POST", url, **{"content": b"?", **options}))
    try:
        await response.aread()
    finally:
        await response.aclose()
    return response


async def pieces(*given: bytes) -> AsyncIterator[bytes]:
    for piece in given:
        yield piece


@LOOPS
@pytest.mark.parametrize(
    ("script", "body"),
    [
        ([HI], b"Hi"),
        ([HI[:20], HI[20:]], b"Hi"),
        ([b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\nH\r\n1\r\ni\r\n0\r\n\r\n"], b"Hi"),
        ([CHUNKED + b"0\r\nx-after: 1\r\n\r\n"], b"Hi"),
        ([b"HTTP/1.1 103 Early Hints\r\nlink: </x>\r\n\r\n", HI], b"Hi"),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" + HI], b"Hi"),
        ([b"HTTP/1.1 204 No Content\r\n\r\n"], b""),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n"], b""),
    ],
)  # fmt: skip
def test_a_connection_serves_one_request_after_the_other(run: Any, script: list[bytes], body: bytes) -> None:
    provider = Provider(script, script)

    async def work(client: ProviderClient, url: str) -> None:
        for _ in range(2):
            assert (await answered(client, url)).content == body

    provided(run, provider, work)
    assert (provider.connections, len(provider.asked)) == (1, 2)


@LOOPS
@pytest.mark.parametrize(
    ("script", "method"),
    [
        ([b"HTTP/1.1 200 OK\r\n\r\nHi", None], "POST"),
        ([b"HTTP/1.0 200 OK\r\ncontent-length: 2\r\n\r\nHi", "stay"], "POST"),
        ([b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 2\r\n\r\nHi", "stay"], "POST"),
        ([HI + HI, "stay"], "POST"),
        ([b"HTTP/1.1 101 Switching\r\nupgrade: x\r\nconnection: upgrade\r\n\r\n", "stay"], "POST"),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n", "stay"], "HEAD"),
    ],
    ids=["until-closed", "http-1.0", "close", "unasked", "switched", "head"],
)  # fmt: skip
def test_a_connection_that_cannot_be_used_again_is_closed(run: Any, script: list[Any], method: str) -> None:
    provider = Provider(script, [HI])

    async def work(client: ProviderClient, url: str) -> None:
        first = await client.send(httpx2.Request(method, url, content=b"?"))
        assert await first.aread() in (b"Hi", b"")
        await first.aclose()
        assert (await answered(client, url)).content == b"Hi"

    provided(run, provider, work)
    assert provider.connections == 2


@LOOPS
@pytest.mark.parametrize(
    ("script", "came", "error"),
    [
        ([None], None, httpx2.RemoteProtocolError),
        ([b"no HTTP at all\r\n\r\n"], None, httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\nx: " + b"y" * MAX_HEAD_BYTES, "stay"], None, httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 100 Continue\r\n\r\n" * 5_000, "stay"], None, httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nHi", None], b"Hi", httpx2.RemoteProtocolError),
        ([CHUNKED, None], b"Hi", httpx2.RemoteProtocolError),
        ([CHUNKED + b"!", None], b"Hi", httpx2.RemoteProtocolError),
        ([CHUNKED + b"0\r\nx: " + b"y" * 3 * MAX_HEAD_BYTES, "stay"], b"Hi", httpx2.RemoteProtocolError),
        ([b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\nHi", "stay"], b"Hi", httpx2.ReadTimeout),
        (["stay"], None, httpx2.ReadTimeout),
    ],
    ids=["nothing", "no-http", "head", "continues", "short", "cut", "damaged", "trailers", "stalls", "silent"],
)  # fmt: skip
def test_what_came_before_an_error_is_read_first(
    run: Any, script: list[Any], came: bytes | None, error: type[Exception]
) -> None:
    async def work(client: ProviderClient, url: str) -> None:
        if came is None:
            with pytest.raises(error):
                await answered(client, url)
            return
        response = await client.send(httpx2.Request("POST", url, content=b"?"))
        await asyncio.sleep(0.05)  # it breaks off before it is read
        body = response.aiter_raw()
        assert await anext(body) == came
        with pytest.raises(error):
            await anext(body)
        await response.aclose()

    provided(run, Provider(script), work, seconds=0.3)


@LOOPS
def test_a_request_is_sent_as_it_is(run: Any) -> None:
    provider = Provider([HI], [HI], [HI])
    headers = [(b"X-One", b"caf\xe9"), (b"x-one", b"2"), (b"content-length", b"4")]

    async def work(client: ProviderClient, url: str) -> None:
        await answered(client, url, headers=headers, content=b"body", extensions={"target": b"/a%2Fb/../c?d=%20|"})
        await answered(client, url, headers=headers, content=pieces(b"bo", b"", b"dy"))
        await answered(client, url, content=pieces(b"bo", b"dy"))

    provided(run, provider, work)
    assert provider.asked[0].startswith(b"POST /a%2Fb/../c?d=%20| HTTP/1.1\r\n")
    assert b"X-One: caf\xe9\r\nx-one: 2\r\n" in provider.asked[0]
    assert provider.asked[1].endswith(b"\r\n\r\nbody")
    assert provider.asked[2].endswith(b"\r\n\r\n2\r\nbo\r\n2\r\ndy\r\n0\r\n\r\n")


@pytest.mark.parametrize(
    "options",
    [
        {"extensions": {"target": b"/ HTTP/1.1\r\nx: y"}},
        {"headers": [(b"x", b"y\r\nz: a")]},
        {"headers": [(b"x y", b"z")]},
        {"headers": {"content-length": "5"}, "content": pieces(b"1234")},
        {"headers": {"content-length": "3"}, "content": pieces(b"1234")},
    ],
    ids=["target", "value", "name", "short", "long"],
)  # fmt: skip
def test_what_would_be_read_as_another_request_is_not_sent(options: Any) -> None:
    provider = Provider([HI])

    async def work(client: ProviderClient, url: str) -> None:
        with pytest.raises(httpx2.LocalProtocolError):
            await answered(client, url, **options)

    provided(asyncio.run, provider, work)
    assert not provider.asked


@LOOPS
def test_a_provider_that_has_answered_need_not_take_the_rest_of_a_request(run: Any) -> None:
    """A refusal of a body that is too large comes before its end, which is not read any more."""

    async def refuse(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 413 Too Large\r\ncontent-length: 0\r\n\r\n")
        await provider.over.wait()
        writer.close()

    provider = Provider()
    provider.serve = refuse  # type: ignore[method-assign]

    async def work(client: ProviderClient, url: str) -> None:
        async with asyncio.timeout(4):
            response = await answered(client, url, content=pieces(*[b"x" * 100_000] * 100))
        assert response.status_code == 413

    provided(run, provider, work)


@LOOPS
def test_no_more_is_received_than_is_read(run: Any) -> None:
    size = 20_000_000
    provider = Provider([b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n" % size, bytes(size)])

    async def work(client: ProviderClient, url: str) -> None:
        response = await client.send(httpx2.Request("POST", url, content=b"?"))
        await asyncio.sleep(0.2)
        found = [len(piece) async for piece in response.aiter_raw()]
        assert (sum(found), max(found) < 1_000_000) == (size, True)

    provided(run, provider, work)


@LOOPS
def test_a_connection_that_was_closed_meanwhile_is_not_used(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider([HI, None], [HI], [HI])

    async def work(client: ProviderClient, url: str) -> None:
        for _ in range(2):
            assert (await answered(client, url)).content == b"Hi"
            await asyncio.sleep(0.05)
        monkeypatch.setattr(provider_connections, "KEPT_SECONDS", 0.0)
        assert (await answered(client, url)).content == b"Hi"

    provided(run, provider, work)
    assert provider.connections == 3


@LOOPS
def test_who_leaves_an_answer_closes_its_connection(run: Any) -> None:
    provider = Provider([HI[:-1], "stay"], [HI])

    async def work(client: ProviderClient, url: str) -> None:
        response = await client.send(httpx2.Request("POST", url, content=b"?"))
        await response.aclose()
        asking = asyncio.create_task(answered(client, url))
        assert (await asking).content == b"Hi"

    provided(run, provider, work)
    assert provider.connections == 2


@LOOPS
def test_all_addresses_of_a_host_are_tried(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Also while the first one does not answer; those that come too late are closed."""
    provider, made = Provider([HI]), list[Any]()
    connect = provider_connections._connect

    async def some(info: tuple[Any, ...]) -> socket.socket:
        made.append(info[4][0])
        if info[4][0] == "127.0.0.2":
            await asyncio.sleep(30)
        if info[4][0] == "127.0.0.3":
            raise OSError("refused")
        return await connect(info)

    monkeypatch.setattr(provider_connections, "_connect", some)
    monkeypatch.setattr(provider_connections, "STAGGERED_SECONDS", 0.02)

    async def work(client: ProviderClient, url: str) -> None:
        port = int(url.rpartition(":")[2])
        loop = asyncio.get_running_loop()

        async def addresses(*_: Any, **__: Any) -> list[Any]:
            hosts = ["127.0.0.2", "127.0.0.3", "127.0.0.1"]
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (host, port)) for host in hosts]

        monkeypatch.setattr(type(loop), "getaddrinfo", addresses, raising=False)
        assert (await answered(client, url)).content == b"Hi"

    provided(asyncio.run, provider, work)
    assert made == ["127.0.0.2", "127.0.0.3", "127.0.0.1"]


def test_without_an_address_or_a_server_there_is_no_answer() -> None:
    async def work(client: ProviderClient, _url: str) -> None:
        with socket.create_server(("127.0.0.1", 0)) as taken:
            port = taken.getsockname()[1]
        for url in (f"http://127.0.0.1:{port}", "http://nowhere.invalid", f"http://{'x' * 80}.example"):
            with pytest.raises(httpx2.ConnectError):
                await answered(client, url)

    provided(asyncio.run, Provider(), work)


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl, which makes a certificate, is missing")
@LOOPS
def test_over_tls_the_certificate_is_checked(run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    making = (
        "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -keyout key.pem -out cert.pem -days 2"
    )
    names = ["-subj", "/CN=test", "-addext", "subjectAltName=IP:127.0.0.1"]
    subprocess.run([*making.split(), *names], cwd=tmp_path, check=True, capture_output=True)
    serving = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    serving.load_cert_chain(tmp_path / "cert.pem", tmp_path / "key.pem")
    trusting = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
    provider = Provider([HI], [HI])

    async def work(client: ProviderClient, url: str) -> None:
        with pytest.raises(httpx2.ConnectError):
            await answered(client, url)
        monkeypatch.setattr(provider_connections, "ssl_context", lambda: trusting)
        for _ in range(2):
            assert (await answered(client, url)).content == b"Hi"

    provided(run, provider, work, ssl=serving)


def test_a_proxy_of_the_environment_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    provider = Provider([HI])

    async def work(_client: ProviderClient, url: str) -> None:
        monkeypatch.setenv("http_proxy", url)
        client = ProviderClient(5.0, 5.0, 1)
        assert (await answered(client, "http://provider.invalid/v1")).content == b"Hi"
        await client.aclose()

    provided(asyncio.run, provider, work)
    assert provider.asked[0].startswith(b"POST http://provider.invalid/v1 HTTP/1.1\r\n")
