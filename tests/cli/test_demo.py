"""demo."""

from __future__ import annotations

import re
import shlex
import zlib
from pathlib import Path

import pytest

from tests.cli.runs import Cli
from threadkeep import Response, Store
from threadkeep.cli.demo_data import PROVIDERS, body_of, script
from threadkeep.domain.content import InputImage
from threadkeep.domain.items import FunctionCall, Reasoning
from threadkeep.formats import NAMES


@pytest.fixture
def demo(tmp_path: Path) -> Cli:
    return Cli(f"sqlite:///{tmp_path / 'not-touched.db'}")


def test_the_demo_runs_in_two_processes(demo: Cli, tmp_path: Path) -> None:
    shown = demo.spawn("demo", cwd=tmp_path)
    assert shown.err == ""
    assert len(set(re.findall(r"Process (\d+)", shown.out))) == 2
    assert len(set(re.findall(r"conv_[0-9a-f]{32}", shown.out))) == 1
    for part in ("[image: image/png, ", "call soil_moisture", "#1 reasoning", "The next request in open_responses",
                 "The next request in chat_completion", "image_url", "loss: ", "cached", "total",
                 "  messages: ", "  gemini: ", "  converse: "):  # fmt: skip
        assert part in shown.out
    assert "\x1b" not in shown.out
    assert len(shown.out.splitlines()) < 120
    assert list(tmp_path.iterdir()) == []


def test_the_demo_on_a_terminal(demo: Cli) -> None:
    shown = demo.on_terminal("demo")
    assert "\x1b[" in shown
    assert "Process" in shown.partition("resumes")[0]


def test_the_demo_as_json(demo: Cli) -> None:
    found = demo.spawn("demo", "--json").json
    assert set(found["requests"]) == set(NAMES)
    assert [message["role"] for message in found["requests"]["chat_completion"]["payload"]["messages"]] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip
    assert {row["provider"]: row["cached_tokens"] for row in found["usage"]} == {"openai": 1024, "openrouter": 1021}


def test_a_kept_demo_can_be_looked_at_and_resumed(demo: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a demo?.db"
    found = demo.spawn("demo", "--keep", str(file), "--json").json
    assert [path.name for path in tmp_path.glob("*.db")] == ["a demo?.db"]
    again = demo("demo", "--keep", str(file), "--resume", found["id"], "--json").json
    assert len(again["requests"]["open_responses"]["payload"]["input"]) == 9
    assert again["usage"] == found["usage"]


def test_the_demo_overwrites_nothing(demo: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.db"
    file.write_text("mine")
    assert "exists already" in demo("demo", "--keep", str(file), code=2).err
    assert file.read_text() == "mine"


def test_the_advice_to_look_into_the_file_can_be_typed(demo: Cli, tmp_path: Path) -> None:
    found = demo.spawn("demo", "--keep", "my demo?#.db", cwd=tmp_path)
    program, *args = shlex.split(found.err.partition("try: ")[2])
    assert (program, tmp_path.joinpath("my demo?#.db").exists()) == ("threadkeep", True)
    assert "#0 user" in demo.spawn(*args, cwd=tmp_path).out


def test_resuming_needs_a_kept_demo(demo: Cli, tmp_path: Path) -> None:
    for args in (["--resume", "conv_1"], ["--resume", "conv_1", "--keep", str(tmp_path / "missing.db")]):
        assert "--resume needs --keep" in demo("demo", *args, code=2).err
    kept = tmp_path / "kept.db"
    Store(f"sqlite:///{kept}").close()
    demo("demo", "--resume", "conv_1", "--keep", str(kept), code=3)


def test_a_failing_second_process_fails_the_demo(demo: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.executable", "/bin/false")
    assert "second process failed" in demo("demo", code=1).err


def test_the_data_has_what_the_demo_is_to_show() -> None:
    first, second = (Response.parse(body_of(name), name) for name in PROVIDERS)
    assert isinstance(first.output[0], Reasoning)
    assert len(first.output[0].encrypted_content or "") > 500
    calls = [item for item in first.output if isinstance(item, FunctionCall)]
    assert {call.name for call in calls} == set(script()["tool_outputs"])
    assert all(isinstance(call.parsed_arguments(), dict) for call in calls)
    for response in (first, second):
        assert response.completed
        assert response.usage is not None
        assert response.usage.normalized.cached_tokens
    assert first.usage is not None
    assert first.usage.reasoning_tokens


def test_the_picture_is_a_whole_png() -> None:
    data = InputImage(url=script()["question"][1]["url"]).data
    assert data is not None
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    place, kinds = 8, []
    while place < len(data):
        size = int.from_bytes(data[place : place + 4])
        kind, body = data[place + 4 : place + 8], data[place + 8 : place + 8 + size]
        assert int.from_bytes(data[place + 8 + size : place + 12 + size]) == zlib.crc32(kind + body)
        kinds.append(kind)
        place += 12 + size
    assert kinds == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]
