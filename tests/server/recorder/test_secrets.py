"""What stays on this side: our keys, secrets that a provider repeats, what was sent in logs; and paths stay below."""

from __future__ import annotations

import asyncio
import base64
import json
import logging
from pathlib import Path
from typing import Any

import httpx2
import pytest

from tests.databases import Database
from tests.server.callers import http_scope
from tests.server.recorder.conftest import Recorded, recorder
from tests.server.recorder.provider import EVENTS, JSON, Reply, whole
from tests.server.recorder.test_trouble import MESSAGES, STREAM, post
from tests.waiting import wait_until
from threadkeep import Store
from threadkeep.domain.api_keys import new_secret
from threadkeep.http import Owner, RecordedUpstream
from threadkeep.server.recorder.secrets import CallSecrets, OwnKeys, leaves_base

OWN = new_secret(7)
SECRET = "canary-7f3a91c2d4"
UPWARDS = [
    "/../secret", "/v1/../../secret", "/v1/..", "/%2e%2e/secret", "/.%2E/secret", "/v1%2f..%2fsecret", "/..%5csecret",
    "/..\\secret", "/%252e%252e/secret", "/%25252e%25252e%25252fsecret", "/..;a=b/secret", "/.%09./secret",
    "/..%23/secret", "/..%3f/secret", "/..%3b%23/secret",
]  # fmt: skip
INSIDE = ["/v1/messages", "/v1/x%2Fy", "/v1/...", "/v1/a..b", "/v1/.well-known", "/v1/./x", "/v1/%2e.a/x", ""]


@pytest.mark.parametrize("path", UPWARDS)
def test_paths_that_lead_upwards_are_known(path: str) -> None:
    assert leaves_base(path)


@pytest.mark.parametrize("path", INSIDE)
def test_other_paths_do_not(path: str) -> None:
    assert not leaves_base(path)


def test_nothing_above_the_base_url_is_reached(recorded_under_base: Recorded) -> None:
    recorded = recorded_under_base
    with httpx2.Client() as client:
        for path in UPWARDS:
            for method, body in (("GET", None), ("POST", b"{}")):
                target = {"target": f"/provider{path}".encode()}
                answer = client.request(method, recorded.url, content=body, extensions=target)
                assert (answer.status_code, answer.json()["error"]["type"]) == (400, "api_error"), path
    assert recorded.provider.calls == []


def test_a_fragment_in_a_path_does_not_hide_where_it_leads() -> None:
    assert leaves_base("/v1/..#/secret")
    assert leaves_base("/..?/secret")
    assert not leaves_base("/v1/a#..")


@pytest.mark.parametrize("path", [b"/provider/.\xff./secret", b"/caf\xc3\xa9", b"/\xff", b"/%zz", b"/%4", b"/x%"])
def test_a_path_that_is_not_percent_encoded_is_refused(recorded_under_base: Recorded, path: bytes) -> None:
    sent: list[dict[str, Any]] = []

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        raise AssertionError

    async def send(message: dict[str, Any]) -> None:
        sent.append(message)

    scope = http_scope(path.decode("utf-8", "replace"), raw_path=path)
    asyncio.run(asyncio.wait_for(recorded_under_base.application(scope, receive, send), 20))
    assert sent[0]["status"] == 400
    assert recorded_under_base.provider.calls == []


@pytest.fixture
def recorded_under_base(tmp_path: Path) -> Any:
    with in_file(tmp_path, base="/llama") as made:
        yield made


def in_file(folder: Path, base: str = "", **options: Any) -> Any:
    """A recorder over a file, whose bytes can be looked through."""
    file = folder / "recorded.db"
    Store(f"sqlite:///{file}").close()
    database: Any = Database("sqlite", f"sqlite:///{file}")
    if base:
        options["upstreams"] = [RecordedUpstream("provider", "messages", f"http://127.0.0.1:9{base}")]
    return recorder(database, **options)


# Our keys


PATHS = [  # KEY stands for one of our keys
    "/provider/k/KEY/v1/messages", "/k/KEY/provider/v1/messages", "/provider/v1/k/KEY/messages",
    "/provider/v1/messages/k/KEY", "/provider/k/KEY/v1/k/KEY/messages", "/provider/KEY/v1/messages",
    "/provider/v1/messages?key=KEY", "/provider/v1/messages?a=1&x=u%3Ftoken%3DKEY&b=2",
]  # fmt: skip


@pytest.mark.parametrize("where", ["x-threadkeep-key", "elsewhere"])
def test_no_key_of_ours_reaches_a_provider(recorded: Recorded, where: str) -> None:
    encoded = OWN.replace("_", "%5F")
    headers = {
        "Referer": f"{recorded.url}/provider/k/{OWN}/v1/", "x-own": f"a {encoded} b", "x-other": "kept",
        "Authorization": f"Bearer {OWN}", "x-threadkeep-record": "off", where: OWN,
    }  # fmt: skip
    with httpx2.Client(headers=headers) as client:
        for path in PATHS:
            for key in (OWN, encoded):
                recorded.provider.says(whole("messages", "Fine."))
                target = {"target": path.replace("KEY", key).encode()}
                assert client.post(recorded.url, json=MESSAGES, extensions=target).is_success
    for call, path in zip(recorded.provider.calls[::2], PATHS, strict=True):
        assert call.target == "/v1/messages" + ("?a=1&b=2" if "a=1" in path else "")
    for call in recorded.provider.calls:
        assert not any(text in repr(call.headers) for text in (OWN, encoded))
        assert (call.header("x-other"), call.header("referer"), call.header("authorization")) == ("kept", None, None)


def test_a_key_opens_wherever_it_stands_in_the_path(database: Database) -> None:
    def who(request: Any) -> Owner | None:
        return Owner(tenant=names[0]) if request.headers.get("authorization") == f"Bearer {OWN}" else None

    names: list[str] = []
    with recorder(database, auth=who) as recorded:
        names.append(recorded.tenant)
        for path in PATHS[:5]:
            recorded.provider.says(whole("messages", "Fine."))
            assert httpx2.post(recorded.url + path.replace("KEY", OWN), json=MESSAGES).is_success
        for path in PATHS[5:]:
            assert httpx2.post(recorded.url + path.replace("KEY", OWN), json=MESSAGES).status_code == 401


def test_keys_that_an_application_made_are_taken_out_too() -> None:
    keys = OwnKeys(["key-of-ann", None])
    assert keys.path_without("/v1/k/key-of-ann/x/k/other/k") == "/v1/x/k/other/k"
    assert keys.query_without(b"a=key%2Dof-ann&b=1&c") == b"b=1&c"
    assert keys.are_in_header(b"referer", b"http://localhost/k/whose/x")
    assert not keys.are_in_header(b"referer", b"http://localhost/kept")


@pytest.mark.parametrize("query", [b"", b"a=%2F&a=b+c&key", b"&&", b"%ff=%00"])
def test_other_queries_stay_as_they_are(query: bytes) -> None:
    assert OwnKeys([]).query_without(query) == query


# What a provider repeats


def replies(text: str) -> dict[str, Reply]:
    error = {"type": "error", "error": {"type": "e", "message": f"Bad: {text}", "details": [{"given": text}]}}
    message = {**json.loads(whole("messages", text).chunks[0]), "stop_reason": "end_turn"}
    events = f"event: error\ndata: {json.dumps(error)}\n\n"
    return {
        "text": Reply(401, {"content-type": "text/plain"}, [f"No such key: {text}".encode()]),
        "json": Reply(401, JSON, [json.dumps(error).encode()]),
        "list": Reply(400, JSON, [json.dumps([error]).encode()]),
        "fine": Reply(200, JSON, [json.dumps(message).encode()]),
        "stream": Reply(200, EVENTS, [events.encode()]),
    }


def test_what_a_provider_repeats_of_credentials_is_not_stored(tmp_path: Path) -> None:
    secrets = [f"{SECRET}-{place}" for place in ("bearer", "key", "token", "cookie", "query")]
    bearer, key, token, cookie, query = secrets
    headers = {"Authorization": f"Bearer {bearer}", "x-api-key": key, "x-company-token": token}
    headers["Cookie"] = f"a=b; session={cookie}"
    with in_file(tmp_path) as recorded:
        for kind, reply in replies(" ".join(secrets)).items():
            recorded.provider.says(reply)
            body = STREAM if kind == "stream" else MESSAGES
            answer = post(recorded, body, headers=headers, params={"key": query})
            assert all(secret in answer.text for secret in secrets)  # the client gets what came
        recorded.wait_for(len(replies("")))
    stored = b"".join(part.read_bytes() for part in tmp_path.iterdir())
    assert [secret for secret in secrets if secret.encode() in stored] == []
    assert b"***" in stored


@pytest.mark.parametrize("value", ["", "ab", "  "])
def test_what_is_too_short_to_be_a_secret_changes_nothing(value: str) -> None:
    headers = {"authorization": f"Bearer {value}", "idempotency-key": "some-key-of-a-request"}
    assert CallSecrets(headers).hidden("a Bearer ab some-key-of-a-request") == "a Bearer ab some-key-of-a-request"


def test_secrets_are_found_as_json_writes_them() -> None:
    secret = 'pass"word\\'
    assert CallSecrets({"x-api-key": secret}).hidden(json.dumps({"a": secret})) == '{"a": "***"}'
    assert CallSecrets({"x-api-key": secret}).hidden_in({"a": [secret, 1]}) == {"a": ["***", 1]}


def test_basic_credentials_are_hidden_as_they_are_written() -> None:
    encoded = base64.b64encode(b"user:password").decode()
    assert CallSecrets({"authorization": f"Basic {encoded}"}).hidden(f"bad {encoded}") == "bad ***"


# Logs


def test_the_log_has_nothing_of_what_was_sent(recorded: Recorded, caplog: pytest.LogCaptureFixture) -> None:
    body = {**MESSAGES, "messages": [{"role": "user", "content": SECRET}]}
    unreadable = {"model": SECRET, "messages": SECRET, SECRET: SECRET}
    headers = {"x-api-key": SECRET, "x-threadkeep-key": SECRET, "X-Session-Id": SECRET, "x-threadkeep-user": SECRET}
    with caplog.at_level(logging.INFO):
        with recorded.gone_database():
            recorded.provider.says(*replies(SECRET).values())
            for stream in (False, False, False, False, True):
                assert SECRET in post(recorded, {**body, "stream": stream}, headers=headers).text
            recorded.wait_for(0, failed=5)
        recorded.provider.says(
            whole("messages", "Fine."),
            Reply(200, JSON, [SECRET.encode()]),
            Reply(200, EVENTS, [f"data: {{{SECRET}\n\n".encode()]),
        )
        post(recorded, unreadable, headers=headers)
        post(recorded, body, headers=headers)
        post(recorded, {**body, "stream": True}, headers=headers)
        wait_until(lambda: sum(recorded.counts.values()) == 8, lambda: str(recorded.counts))
    ours = [one for one in caplog.records if one.name.startswith("threadkeep")]
    assert any("is not recorded" in one.getMessage() for one in ours)
    assert SECRET not in "".join(f"{one.getMessage()} {one.exc_info}" for one in ours)
