"""`threadkeep init`: its files are complete, start as its last lines say, and nothing is written over."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx2
import pytest
import yaml
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from tests.cli.runs import Cli
from tests.ports import free_ports
from tests.server.scripts import script
from tests.server.servers import running
from tests.waiting import listens, wait_until
from threadkeep import Store
from threadkeep.cli import serving
from threadkeep.cli.commands.init import KINDS

FORMATS = {"chat/completions": "chat_completion", "responses": "open_responses"}  # by the end of a path


@contextmanager
def provider() -> Iterator[tuple[str, list[Any]]]:
    """A provider on loopback: its address, and what it was asked."""
    asked: list[Any] = []

    async def answer(request: Request) -> Response:
        asked.append(await request.json())
        events = script(FORMATS[request.path_params["end"]], ["At ten."], calls=False)
        return Response("".join(f"data: {json.dumps(event)}\n\n" for event in events), media_type="text/event-stream")

    with running(Starlette(routes=[Route("/v1/{end:path}", answer, methods=["POST"])])) as url:
        yield f"{url}/v1", asked


@pytest.fixture
def cli(tmp_path: Path) -> Cli:
    return Cli(f"sqlite:///{tmp_path}/chat.db")


@pytest.mark.parametrize("kind", KINDS)
def test_nothing_is_written_over(cli: Cli, tmp_path: Path, kind: str) -> None:
    folder = tmp_path / "new"
    written = cli("init", kind, "--into", str(folder)).out.split()
    assert written == [str(folder / name) for name in KINDS[kind].files]
    first = Path(written[0])
    first.write_text("mine")
    Path(written[1]).unlink()
    refused = cli("init", kind, "--into", str(folder), code=4)
    assert str(first) in refused.err
    assert first.read_text() == "mine"
    assert not Path(written[1]).exists()


def test_another_kind_is_refused(cli: Cli) -> None:
    assert "library, app, server" in cli("init", "website", code=2).err


def started(folder: Path, *words: str, **variables: str) -> subprocess.Popen[str]:
    environment = {**os.environ, "OPENAI_API_KEY": "x", "DATABASE_URL": f"sqlite:///{folder}/chat.db", **variables}
    return subprocess.Popen([sys.executable, *words], cwd=folder, env=environment, stdout=subprocess.PIPE, text=True)


@pytest.mark.slow
def test_the_script_chats_and_goes_on(cli: Cli, tmp_path: Path) -> None:
    cli("init", "library", "--into", str(tmp_path))
    with provider() as (url, asked):
        for words in (["Hello"], ["--go-on", "", "And then?"]):
            if len(words) > 1:
                with Store(f"sqlite:///{tmp_path}/chat.db") as store:
                    [conversation] = store.list_conversations()
                words[1] = conversation.id
            out, _ = started(tmp_path, "chat.py", *words, OPENAI_BASE_URL=url).communicate(timeout=60)
            assert out.startswith("At ten.")
            assert "--go-on conv_" in out
    assert [len(body["messages"]) for body in asked] == [2, 4]


@pytest.mark.slow
def test_the_app_answers_and_shows_conversations(cli: Cli, tmp_path: Path) -> None:
    cli("init", "app", "--into", str(tmp_path))
    [port] = free_ports(1)
    with provider() as (url, _):
        words = ["-m", "uvicorn", "main:app", "--port", str(port), "--log-level", "warning"]
        process = started(tmp_path, *words, OPENAI_BASE_URL=url, CHAT_TOKEN="secret")
        try:
            wait_until(lambda: listens(port))
            with httpx2.Client(base_url=f"http://127.0.0.1:{port}") as anyone:
                assert anyone.get("/api/conversations").status_code == 401
                assert anyone.get("/threads/").status_code == 401
                me = {"Authorization": "Bearer secret"}
                made = anyone.post("/api/conversations", json={"model": "gpt-5.4"}, headers=me).json()
                path = f"/api/conversations/{made['id']}/messages"
                turn = anyone.post(path, json={"content": "Hello"}, headers=me)
                assert turn.json()["response"]["output"][0]["content"][0]["text"] == "At ten."
                assert made["id"] in anyone.get("/threads/", headers=me).text
        finally:
            process.terminate()
            process.communicate(timeout=60)


def test_the_server_is_complete(cli: Cli, tmp_path: Path) -> None:
    cli("init", "server", "--into", str(tmp_path))
    services: Any = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    assert set(services) == {"database", "schema", "server"}
    assert all(port.startswith("127.0.0.1:") for port in services["server"]["ports"])
    image = (tmp_path / "Dockerfile").read_text()
    for text in ("USER threadkeep", "HEALTHCHECK", "/readyz", "==0."):
        assert text in image
    asked = {line.partition("=")[0] for line in (tmp_path / ".env.example").read_text().splitlines()[1:]}
    assert asked == {"POSTGRES_PASSWORD", "OPENAI_API_KEY"}


def test_the_server_starts_after_the_steps_that_are_printed(
    cli: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its image runs threadkeep with what follows the name of a service."""
    steps = [line.split() for line in cli("init", "server", "--into", str(tmp_path)).err.splitlines()]
    for command in (step[5:] for step in steps if step[:5] == ["docker", "compose", "run", "--rm", "schema"]):
        cli(*command)
    served = []
    monkeypatch.setattr(serving, "run", lambda *_: served.append(1))
    services: Any = yaml.safe_load((tmp_path / "compose.yaml").read_text())["services"]
    cli(*services["server"]["command"], "--port", "0")
    assert served
    assert not any("threadkeep" in step for step in steps)


@pytest.mark.slow
def test_the_programs_have_strict_types(cli: Cli, tmp_path: Path) -> None:
    script, website = tmp_path / "library", tmp_path / "app"
    for folder in (script, website):
        cli("init", folder.name, "--into", str(folder))
    (script / "chat.py").rename(website / "chat.py")
    words = ["-m", "mypy", "--strict", "--cache-dir", str(tmp_path / "cache"), "."]
    checked = subprocess.run([sys.executable, *words], capture_output=True, text=True, check=False, cwd=website)
    assert checked.returncode == 0, checked.stdout
