"""``threadkeep serve``, as a program of its own."""

from __future__ import annotations

import asyncio
import json
import re
import signal
import subprocess
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import httpx2
import openai
import pytest
from openai import OpenAI
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.routing import Route

from tests.cli.runs import PROGRAM, Cli
from tests.http.recorder.provider import Provider, whole
from tests.http.recorder.provider import serving as served_provider
from tests.http.servers import running
from threadkeep import Store
from threadkeep.web.keys import CACHE_SECONDS


@contextmanager
def serving(cli: Cli, *options: str, after: tuple[str, ...] = ()) -> Iterator[str]:
    """The base URL of a server that is ended as with Ctrl+C."""
    command = [*PROGRAM, *options, "serve", "--port", "0", *after]
    with subprocess.Popen(command, env=cli.environment(), stderr=subprocess.PIPE, text=True) as server:
        assert server.stderr is not None
        try:
            line = server.stderr.readline()
            if "created" in line:
                line = server.stderr.readline()
            found = re.search(r"http://[\d.]+:\d+/v1$", line.strip())
            assert found, line + server.stderr.read()
            yield found[0]
        finally:
            server.send_signal(signal.SIGINT)
            server.wait(30)


@pytest.mark.usefixtures("with_interrupts")
def test_clients_on_this_machine_are_served(cli: Cli, stored: str) -> None:
    with serving(cli) as base_url, OpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
        [item] = client.conversations.items.list(stored)
        assert item.type == "message"
        made = client.conversations.create(items=[{"role": "user", "content": "Hello"}])
        with pytest.raises(openai.AuthenticationError):
            client.conversations.retrieve(made.id, extra_headers={"Host": "example.com"})
    with cli.store() as store:
        assert store.get_conversation(made.id).head == 0


@pytest.mark.usefixtures("with_interrupts")
@pytest.mark.slow
def test_a_tenant_is_served_alone(cli: Cli, stored: str) -> None:
    with Store(cli.url, tenants=True) as store:
        store.create_tenant("acme").create_conversation(external_id="theirs")
    options = ("--tenant", "acme")
    with serving(cli, *options) as base_url, OpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
        assert client.conversations.retrieve("theirs").metadata == {}
        with pytest.raises(openai.NotFoundError):
            client.conversations.retrieve(stored)


@pytest.mark.usefixtures("with_interrupts")
@pytest.mark.slow
def test_a_missing_file_is_created(tmp_path: Path) -> None:
    cli = Cli(f"sqlite:///{tmp_path}/new.db")
    with serving(cli) as base_url, OpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
        assert client.conversations.create().object == "conversation"


@pytest.mark.usefixtures("with_interrupts")
def test_an_upstream_is_asked(cli: Cli) -> None:
    options = ("--upstream", "gone=chat_completion@http://127.0.0.1:9/v1")
    with (
        serving(cli, after=options) as base_url,
        OpenAI(base_url=base_url, api_key="any", max_retries=0) as client,
        pytest.raises(openai.InternalServerError, match="gone did not answer"),
    ):
        client.responses.create(model="any", input="Hello")


@pytest.mark.usefixtures("with_interrupts")
def test_with_keys_nobody_is_served_without(cli: Cli, stored: str) -> None:
    made = cli("keys", "create", "--user", "ada", "--scope", "read", "--json").json
    acme = Store(cli.url, tenants=True)
    theirs = acme.create_tenant("acme").create_conversation().id
    other = cli("keys", "create", "--tenant", "acme").out.strip()
    acme.close()
    with serving(cli, after=("--host", "0.0.0.0")) as address:
        base_url = address.replace("0.0.0.0", "127.0.0.1")
        with OpenAI(base_url=base_url, api_key=made["secret"], max_retries=0) as client:
            assert client.conversations.retrieve(stored).id == stored
            with pytest.raises(openai.PermissionDeniedError):
                client.conversations.create()
            with pytest.raises(openai.NotFoundError):
                client.conversations.retrieve(theirs)
            with pytest.raises(openai.AuthenticationError):
                client.with_options(api_key="any").conversations.retrieve(stored)
            assert client.with_options(api_key=other).conversations.retrieve(theirs).id == theirs
    with serving(cli, "--tenant", "acme") as base_url, OpenAI(base_url=base_url, api_key=made["secret"]) as client:
        with pytest.raises(openai.AuthenticationError):
            client.conversations.retrieve(stored)
        assert client.with_options(api_key=other).conversations.retrieve(theirs).id == theirs


@pytest.mark.slow
@pytest.mark.usefixtures("with_interrupts")
@pytest.mark.parametrize("tenant", [None, "acme"])
def test_keys_that_are_made_meanwhile_count_within_seconds(cli: Cli, stored: str, tenant: str | None) -> None:
    with Store(cli.url, tenants=True) as store:
        store.create_tenant("acme").create_conversation(external_id="theirs")
    named = () if tenant is None else ("--tenant", tenant)
    name = stored if tenant is None else "theirs"
    with serving(cli, *named) as base_url, OpenAI(base_url=base_url, api_key="any", max_retries=0) as client:
        assert client.conversations.retrieve(name).object == "conversation"
        secret = cli(*named, "keys", "create").out.strip()
        time.sleep(CACHE_SECONDS + 0.1)
        with pytest.raises(openai.AuthenticationError):
            client.conversations.retrieve(name)
        assert client.with_options(api_key=secret).conversations.retrieve(name).object == "conversation"


def test_keys_are_made_listed_and_revoked(cli: Cli) -> None:
    made = cli("keys", "create", "--user", "ada", "--scope", "read, usage", "--expires", "90d", "--label", "phone")
    assert re.fullmatch(r"tk_[0-9a-f]{16}_[A-Za-z0-9]{43}\n", made.out)
    [key] = cli("keys", "ls", "--json").json["keys"]
    assert key["id"] in made.err
    assert (key["user_id"], key["scopes"], key["label"], key["state"]) == ("ada", "read,usage", "phone", "valid")
    assert cli("keys", "ls").rows[0]["state"] == "valid"
    assert made.out.strip() not in cli("keys", "ls").out
    cli("keys", "revoke", key["id"])
    assert cli("keys", "ls", "--user", "ada").rows[0]["state"] == "revoked"
    assert cli("keys", "ls", "--user", "ben").out.count("\n") <= 1


def test_what_cannot_be_a_key_is_refused(cli: Cli) -> None:
    assert "everything" in cli("keys", "create", "--scope", "everything", code=2).err
    assert "--expires must be" in cli("keys", "create", "--expires", "soon", code=2).err
    assert "no tenant 'unknown'" in cli("keys", "create", "--tenant", "unknown", code=3).err
    assert "no key 'key_1'" in cli("keys", "revoke", "key_1", code=3).err


def test_what_cannot_be_served_is_refused(cli: Cli) -> None:
    assert "keys create" in cli("serve", "--host", "0.0.0.0", code=2).err
    assert "NAME=FORMAT@URL" in cli("serve", "--upstream", "nothing", code=2).err
    upstream = ("--upstream", "a=messages@https://a.example/v1")
    assert "--model must be" in cli("serve", *upstream, "--model", "claude-*=b", code=2).err
    assert "--model must say" in cli("serve", *upstream, "--upstream", "b=gemini@https://b.example", code=2).err
    assert "masked" in cli("serve", "--mask", "everything", code=2).err
    assert "no tenant 'unknown'" in cli("--tenant", "unknown", "serve", code=3).err


@pytest.mark.usefixtures("with_interrupts")
@pytest.mark.slow
def test_calls_of_an_upstream_are_recorded(cli: Cli) -> None:
    provider = Provider()
    provider.says(whole("messages", "Fine."), whole("messages", "Good."))
    with served_provider(provider) as url:
        upstream = ("--upstream", f"anthropic=messages@{url}/v1")
        hello = {"model": "claude-sonnet-5", "max_tokens": 9, "messages": [{"role": "user", "content": "Hello"}]}
        with serving(cli, after=upstream) as base_url:
            recording = base_url.removesuffix("/v1") + "/record/anthropic"
            assert httpx2.post(f"{recording}/v1/messages", json=hello).is_success
        command = [*PROGRAM, "record", "--port", "0", *upstream]
        with subprocess.Popen(command, env=cli.environment(), stderr=subprocess.PIPE, text=True) as program:
            assert program.stderr is not None
            line = program.stderr.readline().strip()
            recording = line.rpartition(" at ")[2]
            assert line.startswith(f"threadkeep: recording {url}/v1 in sqlite:///")
            headers = {"x-threadkeep-conversation": "second"}
            assert httpx2.post(f"{recording}/v1/messages", json=hello, headers=headers).is_success
            program.send_signal(signal.SIGINT)
            program.wait(30)
    with cli.store() as store:
        assert store.usage(by="provider")[0].attempts == 2
        second = store.find_conversation(external_id="second")
        assert second is not None
        assert len(second.transcript()) == 2


def test_what_cannot_be_recorded_is_refused(cli: Cli) -> None:
    assert "--upstream is required" in cli("record", code=2).err
    assert "NAME=FORMAT@URL" in cli("record", "--upstream", "nothing", code=2).err
    upstream = ("--upstream", "a=messages@https://a.example")
    assert "has no keys" in cli("record", *upstream, "--host", "0.0.0.0", code=2).err


async def half_an_answer(_request: Request) -> StreamingResponse:
    """The beginning of a provider's stream, which does not go on."""

    async def events() -> AsyncIterator[str]:
        choice = {"index": 0, "delta": {"role": "assistant", "content": "Half"}, "finish_reason": None}
        yield f"data: {json.dumps({'id': 'c1', 'model': 'm', 'choices': [choice]})}\n\n"
        await asyncio.sleep(60)

    return StreamingResponse(events(), media_type="text/event-stream")


def test_a_server_that_is_told_to_end_ends_streams_as_incomplete(cli: Cli) -> None:
    """Clients of both APIs get the last event, and what has come is stored."""
    provider = Starlette(routes=[Route("/v1/chat/completions", half_an_answer, methods=["POST"])])
    with running(provider) as url:
        command = [*PROGRAM, "serve", "--port", "0", "--upstream", f"half=chat_completion@{url}/v1"]
        with subprocess.Popen(command, env=cli.environment(), stderr=subprocess.PIPE, text=True) as server:
            assert server.stderr is not None
            base = server.stderr.readline().split()[-1].removesuffix("/v1")
            with httpx2.Client(base_url=base, timeout=30) as http:
                made = http.post("/api/conversations", json={"model": "m"}).json()["id"]
                streams = [
                    ("/v1/responses", {"model": "m", "input": "Hi", "stream": True}),
                    (f"/api/conversations/{made}/messages", {"content": "Hi", "stream": True}),
                ]
                with ExitStack() as stack:
                    lines = [
                        stack.enter_context(http.stream("POST", path, json=body)).iter_lines() for path, body in streams
                    ]
                    for one in lines:
                        while "Half" not in next(one):
                            pass
                    server.send_signal(signal.SIGTERM)
                    ends = [[line for line in one if line.startswith("event: ")][-1] for one in lines]
            assert ends == ["event: response.incomplete", "event: done"]
            assert server.wait(30) in (0, -signal.SIGTERM)
    with cli.store() as store:
        responses = [one for found in store.list_conversations() for one in found.responses()]
        assert [one.status for one in responses] == ["incomplete", "incomplete"]
        assert store.get_conversation(made).transcript()[-1].canonical()["content"][0]["text"] == "Half"
