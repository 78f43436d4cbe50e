"""How calls pass: paths, headers, methods, and what is not recorded or stored."""

from __future__ import annotations

import json
import socket
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.recorder.conftest import Recorded, recorder, said
from tests.server.recorder.provider import JSON, Provider, Reply, serving, stream, whole
from tests.server.recorder.test_trouble import MESSAGES, PARTS, STREAM, post
from threadkeep import Store
from threadkeep.http import RecordedUpstream
from threadkeep.server.recorder.targets import RecordedRoute, passed_on

pytestmark = pytest.mark.one_database


@pytest.mark.parametrize(
    ("url", "path", "target"),
    [
        ("https://a.example", "/v1/messages", "/v1/messages"),
        ("https://a.example/v1", "/v1/messages", "/v1/messages"),
        ("https://a.example/v1", "/messages", "/v1/messages"),
        ("https://a.example/v1/", "", "/v1"),
        ("https://a.example/api", "/v1/x%2Fy", "/api/v1/x%2Fy"),
        ("https://a.example", "", "/"),
    ],
)
def test_paths_follow_the_base_url(url: str, path: str, target: str) -> None:
    assert RecordedUpstream("a", "messages", url).target(path, b"") == target.encode()


@pytest.mark.parametrize(
    ("method", "path", "route"),
    [
        ("POST", "/v1/messages", ("messages", None, None)),
        ("POST", "/messages", ("messages", None, None)),
        ("POST", "/anthropic/v1/messages", ("messages", None, None)),
        ("POST", "/v1/messages/count_tokens", None),
        ("POST", "/v1/threads/t/messages", None),
        ("GET", "/v1/messages", None),
        ("POST", "/v1/chat/completions", ("chat_completion", None, None)),
        ("POST", "/openai/deployments/d/chat/completions", ("chat_completion", None, None)),
        ("POST", "/v1/responses", ("open_responses", None, None)),
        ("POST", "/v1/responses/resp_1/cancel", ("open_responses", None, None, "resp_1")),
        ("GET", "/v1/responses/resp%201", ("open_responses", None, None, "resp 1")),
        ("GET", "/v1/responses/resp_1/input_items", None),
        ("DELETE", "/v1/responses/resp_1", None),
        ("POST", "/v1/responses/compact", ("open_responses", None, None, None, True)),
        ("POST", "/v1/responses/input_tokens", None),
        ("POST", "/v1beta/models/gemini-3-pro:generateContent", ("gemini", "gemini-3-pro", False)),
        ("POST", "/v1beta/models/gemini%203:streamGenerateContent", ("gemini", "gemini 3", True)),
        ("POST", "/v1beta/models/gemini-3-pro:countTokens", None),
        ("POST", "/v1beta/interactions", ("interactions", None, None)),
        ("POST", "/v1beta/interactions/int_1/cancel", ("interactions", None, None, "int_1")),
        ("GET", "/v1beta/interactions/int_1", ("interactions", None, None, "int_1")),
        ("POST", "/oauth/token", None),
    ],
)
def test_calls_that_have_a_model_answer_are_recorded(method: str, path: str, route: Any) -> None:
    assert RecordedRoute.of(method, path) == (None if route is None else RecordedRoute(*route))


def test_headers_about_a_connection_stay_on_it() -> None:
    given = [
        (b"Connection", b"close, X-Hop"), (b"x-hop", b"1"), (b"TE", b"trailers"), (b"X-Threadkeep-Key", b"secret"),
        (b"Set-Cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"authorization", b"Bearer of-the-provider"),
    ]  # fmt: skip
    assert passed_on(given) == [
        (b"set-cookie", b"a=1"), (b"set-cookie", b"b=2"), (b"authorization", b"Bearer of-the-provider"),
    ]  # fmt: skip


def test_a_length_beside_a_transfer_encoding_stays_on_its_connection() -> None:
    given = [(b"Content-Length", b"5"), (b"accept", b"*/*"), (b"Transfer-Encoding", b"chunked")]
    assert passed_on(given) == [(b"accept", b"*/*")]
    assert passed_on(given[:2]) == [(b"content-length", b"5"), (b"accept", b"*/*")]


def test_a_body_in_chunks_that_has_a_length_passes_in_chunks(database: Database) -> None:
    with recorder(database, parser="h11") as recorded:
        recorded.provider.says(whole("messages", "Fine."))
        url = httpx2.URL(recorded.url)
        head = "POST /v1/files HTTP/1.1\r\nhost: a\r\ncontent-length: 5\r\ntransfer-encoding: chunked\r\n\r\n"
        with socket.create_connection((url.host, url.port), timeout=20) as client:
            client.sendall(head.encode() + b"3\r\nabc\r\n0\r\n\r\n")
            status = client.recv(12)
        [call] = recorded.provider.calls
        assert (status, call.body, call.header("content-length")) == (b"HTTP/1.1 200", b"abc", None)


def test_cookies_of_the_viewer_stay_on_this_side() -> None:
    given = [
        (b"cookie", b"a=1; threadkeep_key=secret; b=x=2;threadkeep_form=f"), (b"cookie", b"threadkeep_key=secret"),
        (b"cookie", b"a=1;  b=2;"), (b"set-cookie", b"threadkeep_key=theirs; Path=/"),
        (b"set-cookie", b" =threadkeep_key=theirs"), (b"set-cookie", b"c=threadkeep_d"),
    ]  # fmt: skip
    assert passed_on(given) == [
        (b"cookie", b"a=1; b=x=2"), (b"cookie", b"a=1;  b=2;"), (b"set-cookie", b"c=threadkeep_d"),
    ]  # fmt: skip


def test_nothing_that_a_provider_answers_runs_in_a_browser(recorded: Recorded) -> None:
    page = b"<script>alert(1)</script>"
    own = {"content-type": "text/html", "x-content-type-options": "none", "content-security-policy": "img-src *"}
    recorded.provider.says(Reply(200, own, [page]))
    answer = httpx2.get(f"{recorded.url}/v1/page")
    assert (answer.content, answer.headers["content-type"]) == (page, "text/html")
    assert answer.headers.get_list("content-security-policy") == ["img-src *", "sandbox"]
    assert answer.headers.get_list("x-content-type-options") == ["nosniff"]


@pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "POST"])
def test_anything_else_passes_unrecorded(recorded: Recorded, method: str) -> None:
    recorded.provider.says(Reply(418, {"x-own": "ü", "content-length": "3"}, [] if method == "HEAD" else [b"tea"]))
    content = b"\x00\xff" if method in ("PUT", "PATCH", "POST") else None
    answer = httpx2.request(method, f"{recorded.url}/v1/x%2Fy%20?a=%2F&a=b+c&key", content=content)
    assert (answer.status_code, answer.headers["x-own"]) == (418, "ü")
    assert answer.content == (b"" if method == "HEAD" else b"tea")
    [call] = recorded.provider.calls
    assert (call.method, call.target, call.body) == (method, "/v1/x%2Fy%20?a=%2F&a=b+c&key", content or b"")
    assert (sum(recorded.counts.values()), recorded.conversations()) == (0, [])


def test_there_are_no_tunnels(recorded: Recorded) -> None:
    answer = httpx2.request("CONNECT", f"{recorded.url}/v1/page")
    assert (answer.status_code, recorded.provider.calls) == (405, [])


def test_the_head_of_an_answer_does_not_wait_for_its_body(recorded: Recorded) -> None:
    """It passes at once, and so does the end of an answer that breaks off before anything of its body came."""
    recorded.provider.says(
        Reply(200, {"content-length": "100000"}, [b"x" * 100_000], hold_after=0),
        Reply(200, {"content-length": "100000"}, [], breaks=True),
    )
    with httpx2.stream("GET", f"{recorded.url}/v1/files", timeout=20) as answer:
        assert answer.status_code == 200
        recorded.provider.release.set()
        assert len(answer.read()) == 100_000
    with httpx2.stream("GET", f"{recorded.url}/v1/files", timeout=20) as answer:
        assert answer.status_code == 200
        with pytest.raises(httpx2.RemoteProtocolError):
            answer.read()


def test_tokens_are_counted_unrecorded(recorded: Recorded) -> None:
    recorded.provider.says(Reply(200, JSON, [b'{"input_tokens": 7}']))
    answer = httpx2.post(f"{recorded.url}/v1/messages/count_tokens", json=MESSAGES)
    assert (answer.json(), recorded.conversations()) == ({"input_tokens": 7}, [])


def test_a_call_can_ask_not_to_be_recorded(recorded: Recorded) -> None:
    recorded.provider.says(whole("messages", "Fine."))
    assert post(recorded, headers={"x-threadkeep-record": "off"}).is_success
    assert (sum(recorded.counts.values()), recorded.conversations()) == (0, [])


def test_requests_without_a_length_pass_as_they_come(recorded: Recorded) -> None:
    recorded.provider.says(whole("messages", "Fine."))
    text = json.dumps(MESSAGES).encode()
    answer = httpx2.post(f"{recorded.url}/v1/messages", content=iter([text[:9], text[9:]]))
    [call] = recorded.provider.calls
    assert (answer.status_code, call.body, call.header("content-length")) == (200, text, None)
    recorded.wait_for(1)


def test_chunks_come_one_by_one(recorded: Recorded) -> None:
    recorded.provider.says(stream("messages", PARTS, hold_after=3))
    with httpx2.stream("POST", f"{recorded.url}/v1/messages", json=STREAM) as answer:
        chunks = answer.iter_raw()
        first = next(chunks)
        assert b"message_start" in first  # while the provider holds back the rest
        recorded.provider.release.set()
        assert b"message_stop" in b"".join(chunks)
    recorded.wait_for(1)


def test_names_lead_to_providers(database: Database) -> None:
    other = Provider()
    with serving(other) as url:
        upstreams = [RecordedUpstream("one", "messages", url), RecordedUpstream("two", "messages", f"{url}/base")]
        with recorder(database, upstreams=upstreams) as recorded:
            other.says(whole("messages", "Fine."), whole("messages", "Fine."), whole("messages", "Fine."))
            for path in ("/one/v1/messages", "/two/v1/messages", "/two/k/any/v1/messages"):
                assert httpx2.post(recorded.url + path, json=MESSAGES).is_success
            assert [call.target for call in other.calls] == ["/v1/messages", *["/base/v1/messages"] * 2]
            assert httpx2.post(f"{recorded.url}/three/v1/messages", json=MESSAGES).status_code == 404
            recorded.wait_for(3)
            rows = {row.provider: row.attempts for row in recorded.store.usage(by="provider")}
            assert rows == {"one": 1, "two": 2}


def test_a_gemini_stream_without_server_sent_events_is_recorded(recorded: Recorded) -> None:
    events = [{"candidates": [{"content": {"role": "model", "parts": [{"text": text}]}, "index": 0}]} for text in PARTS]
    events[-1]["candidates"][0]["finishReason"] = "STOP"
    recorded.provider.says(Reply(200, JSON, [json.dumps(events).encode()]))
    body = {"contents": [{"role": "user", "parts": [{"text": "Count."}]}]}
    httpx2.post(f"{recorded.url}/v1beta/models/gemini-3-pro:streamGenerateContent", json=body)
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    assert (said(conversation)[1], conversation.model) == ("assistant: One, two, three.", "gemini-3-pro")


def test_times_are_those_of_the_call(recorded: Recorded) -> None:
    recorded.provider.says(stream("messages", PARTS, pause=0.05))
    post(recorded, STREAM)
    recorded.wait_for(1)
    [conversation] = recorded.conversations()
    row = conversation.usage()
    assert row.latency_ms is not None
    assert row.first_token_ms is not None
    assert 100 <= row.first_token_ms < row.latency_ms < 60_000


def test_no_secret_is_stored(tmp_path: Path) -> None:
    secrets = [f"{kind}-SECRET-OF-A-CALL" for kind in ("bearer", "key", "cookie", "own", "tool", "server", "query")]
    bearer, key, cookie, own, tool, server, query = secrets
    file = tmp_path / "recorded.db"
    Store(f"sqlite:///{file}").close()
    database: Any = Database("sqlite", f"sqlite:///{file}")
    body = {
        **MESSAGES,
        "tools": [{"type": "mcp", "server_label": "m", "authorization": tool, "headers": {"X-Token": tool}}],
        "mcp_servers": [{"type": "url", "url": "https://m.example", "name": "m", "authorization_token": server}],
    }
    headers = {
        "Authorization": f"Bearer {bearer}", "x-api-key": key, "Cookie": cookie, "x-threadkeep-key": own,
        "x-refresh-token": bearer,
    }  # fmt: skip
    with recorder(database) as recorded:
        recorded.provider.says(whole("messages", "Fine."))
        url = f"{recorded.url}/v1/messages?key={query}"
        assert httpx2.post(url, json=body, headers=headers).is_success
        recorded.wait_for(1)
        assert tool.encode() in recorded.provider.calls[0].body
    stored = b"".join(part.read_bytes() for part in tmp_path.iterdir())
    assert b"Fine." in stored
    assert [secret for secret in secrets if secret.encode() in stored] == []
