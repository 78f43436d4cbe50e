"""Clients of Responses on `/v1/responses`, over upstreams of each format: tools run, and signed thoughts come back."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.clients.clients import CLIENTS, Home
from tests.clients.conftest import program
from tests.clients.provider import Provider
from tests.formats.sdk_types import TYPES, unfit
from tests.server.servers import running
from threadkeep import AsyncStore
from threadkeep.http import app
from threadkeep.server.site import site

SIGNED = ("messages", "open_responses")  # formats whose thoughts are signed


@pytest.mark.parametrize("format_", TYPES)
@pytest.mark.parametrize("name", [name for name, client in CLIENTS.items() if "open_responses" in client.formats])
def test_a_loop_of_tools_over_an_upstream(tmp_path: Path, name: str, format_: str) -> None:
    client = CLIENTS[name]
    command = program(client.path)
    home, provider = Home(tmp_path / "home"), Provider(client.shell)
    store = AsyncStore(f"sqlite:///{tmp_path}/chat.db")
    made = app(store, prefix="", upstreams={"*": provider.upstream(format_)}, store_false="keep")
    with running(site({"/v1": made}, store=store), store) as url:
        client.setup(home, url, "open_responses")
        printed = home.run([command, *client.turn("[[tool:one]] Say hi.", ())])
    first, second = (call for call in provider.calls if call.script)
    assert (len(first.calls), second.text in printed) == (1, True)
    assert [problem for call in provider.calls for problem in unfit(call.payload, format_)] == []
    assert (first.signature in str(second.payload)) == (format_ in SIGNED)
