"""What is refused while it passes: bodies beyond the limit, and calls with keys that count no longer."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import httpx2
import pytest

from tests.databases import Database
from tests.http.recorder.conftest import recorder
from tests.http.recorder.provider import whole
from tests.http.recorder.test_trouble import MESSAGES, post
from threadkeep.http import Limits, RecordedUpstream

LIMITS = Limits(max_body_bytes=1_000)


def chunks() -> Iterator[bytes]:
    for _ in range(3):
        yield b"x" * 600


@pytest.mark.parametrize("path", ["/v1/messages", "/v1/files"])
def test_a_chunked_body_beyond_the_limit_is_refused(database: Database, path: str) -> None:
    with recorder(database, limits=LIMITS) as recorded:
        recorded.provider.says(*[whole("messages", "Fine.") for _ in range(2)])
        answer = httpx2.post(f"{recorded.url}{path}", content=chunks())
        assert (answer.status_code, answer.json()["error"]["message"]) == (413, "The body exceeds 1,000 bytes.")
        recorded.wait_until_idle()
        assert recorded.conversations() == []
        assert post(recorded, MESSAGES).status_code == 200


def test_the_rest_of_a_body_beyond_the_limit_is_not_read(database: Database) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        port = listening.getsockname()[1]
    nobody = RecordedUpstream("nobody", "messages", f"http://127.0.0.1:{port}")
    with recorder(database, upstreams=[nobody], limits=LIMITS) as recorded:
        assert httpx2.post(f"{recorded.url}/v1/messages", content=chunks()).status_code == 502
