"""The example of a chat whose calls OpenTelemetry reports, run as a program."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.recorder.conftest import said
from tests.server.recorder.provider import Provider, serving, whole
from threadkeep import Store

FILE = Path(__file__).parents[2] / "examples" / "otel_chat.py"


@pytest.mark.slow
def test_its_calls_are_stored_when_it_ends(tmp_path: Path) -> None:
    provider, url = Provider(), f"sqlite:///{tmp_path}/calls.db"
    provider.says(whole("chat_completion", "Let me look.", calls=True), whole("chat_completion", "It rains."))
    with serving(provider) as address:
        environment = {"CHAT_DATABASE": url, "OPENAI_BASE_URL": f"{address}/v1", "OPENAI_API_KEY": "sk-none"}
        ended = subprocess.run(
            [sys.executable, FILE, "lyon", "Is it raining?"], env={**os.environ, **environment, "USER": "ann"},
            capture_output=True, text=True, timeout=120, check=True,
        )  # fmt: skip
    assert ended.stdout == "It rains.\n"
    assert ended.stderr == ""
    with Store(url) as store:
        conversation = store.find_conversation(external_id="lyon")
        assert conversation is not None
        assert conversation.user_id == "ann"
        assert said(conversation) == [
            "user: Is it raining?", "assistant: Let me look.", 'look({"city":"Paris"})', "= It is raining.",
            "assistant: It rains.",
        ]  # fmt: skip
        assert store.usage(by="model")[0].attempts == 2
