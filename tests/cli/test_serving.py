"""How `threadkeep serve` and `record` listen."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from tests.cli.runs import Cli
from threadkeep.cli import serving
from threadkeep.cli.serving import listening_at


def test_small_writes_wait_for_no_acknowledgement() -> None:
    with listening_at("127.0.0.1", 0) as (listening, _url), socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY) == 1


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
