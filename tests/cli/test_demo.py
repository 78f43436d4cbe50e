"""demo."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
import tomllib
import zlib
from datetime import UTC, datetime
from importlib.metadata import packages_distributions, requires
from pathlib import Path

import pytest
import sqlalchemy
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tests.cli.runs import PROGRAM, Cli
from tests.wires import SPOKEN
from threadkeep import Store
from threadkeep.cli.commands.demo import PROVIDERS, body_of, load_script
from threadkeep.cli.demo_month import MODELS, PRICES, USERS, fill
from threadkeep.domain.content import InputImage
from threadkeep.domain.formats import get_format
from threadkeep.domain.items import FunctionCall, Reasoning

PROJECT = Path(__file__).parents[2] / "pyproject.toml"

# Python runs a module of this name when it starts
SITE = """
import sys

class CoreOnly:
    @staticmethod
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {modules}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, CoreOnly)
"""


def optional_modules() -> set[str]:
    """What is installed beside threadkeep, its core dependencies, and what these depend on."""
    requirements = [Requirement(line) for line in tomllib.loads(PROJECT.read_text())["project"]["dependencies"]]
    core = {"threadkeep"}
    for requirement in requirements:  # grows on the way; nothing in it depends on itself
        core.add(canonicalize_name(requirement.name))
        for inner in map(Requirement, requires(requirement.name) or ()):
            extras = {"", *requirement.extras}
            if inner.marker is None or any(inner.marker.evaluate({"extra": extra}) for extra in extras):
                requirements.append(inner)
    owners = packages_distributions().items()
    return {module for module, names in owners if not core & set(map(canonicalize_name, names))}


@pytest.fixture
def demo(tmp_path: Path) -> Cli:
    return Cli(f"sqlite:///{tmp_path / 'not-touched.db'}")


def test_the_demo_runs_in_two_processes_with_the_core_dependencies_only(demo: Cli, tmp_path: Path) -> None:
    site, empty = tmp_path / "site", tmp_path / "empty"
    for folder in (site, empty):
        folder.mkdir()
    site.joinpath("sitecustomize.py").write_text(SITE.format(modules=optional_modules()))
    path = os.pathsep.join([str(site), *filter(None, [os.environ.get("PYTHONPATH")])])
    environment = {**demo.environment(), "PYTHONPATH": path}

    def run(*command: str) -> subprocess.CompletedProcess[str]:
        return subprocess.run(command, cwd=empty, env=environment, capture_output=True, text=True, check=False)

    shown = run(*PROGRAM, "demo")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert len(set(re.findall(r"Process (\d+)", shown.stdout))) == 2
    assert len(set(re.findall(r"conv_[0-9a-f]{32}", shown.stdout))) == 1
    for part in ("[image: image/png, ", "call soil_moisture", "#1 reasoning", "The next request in open_responses",
                 "The next request in chat_completion", "image_url", "loss: ", "cached", "total",
                 "  messages: ", "  gemini: ", "  converse: "):  # fmt: skip
        assert part in shown.stdout
    assert "\x1b" not in shown.stdout
    assert len(shown.stdout.splitlines()) < 130
    assert list(empty.iterdir()) == []
    assert "No module named 'pytest'" in run(sys.executable, "-c", "import pytest").stderr


@pytest.mark.slow
def test_the_demo_on_a_terminal(demo: Cli) -> None:
    shown = demo.on_terminal("demo")
    assert "\x1b[" in shown
    assert "Process" in shown.partition("resumes")[0]


def test_the_demo_as_json(demo: Cli) -> None:
    result = demo("demo", "--json").json
    assert set(result["requests"]) == set(SPOKEN)
    assert [message["role"] for message in result["requests"]["chat_completion"]["payload"]["messages"]] == [
        "system", "user", "assistant", "tool", "tool", "assistant", "user",
    ]  # fmt: skip
    assert {row["provider"]: row["cached_tokens"] for row in result["usage"]} == {"openai": 1024, "openrouter": 1021}


@pytest.mark.slow
def test_a_kept_demo_can_be_looked_at_and_resumed(demo: Cli, tmp_path: Path) -> None:
    file = tmp_path / "a demo?.db"
    result = demo.spawn("demo", "--keep", str(file), "--json").json
    assert [path.name for path in tmp_path.glob("*.db")] == ["a demo?.db"]
    again = demo("demo", "--keep", str(file), "--resume", result["id"], "--json").json
    assert len(again["requests"]["open_responses"]["payload"]["input"]) == 9
    assert again["usage"] == result["usage"]


def test_the_demo_overwrites_nothing(demo: Cli, tmp_path: Path) -> None:
    file = tmp_path / "mine.db"
    file.write_text("mine")
    assert "exists already" in demo("demo", "--keep", str(file), code=2).err
    assert file.read_text() == "mine"


@pytest.mark.skipif(
    sqlalchemy.__version__.startswith("2.0."), reason="the URLs of SQLAlchemy 2.0 cannot name a file with ? and #"
)
@pytest.mark.slow
def test_the_advice_to_look_into_the_file_can_be_typed(demo: Cli, tmp_path: Path) -> None:
    result = demo.spawn("demo", "--keep", "my demo?#.db", cwd=tmp_path)
    program, *args = shlex.split(result.err.partition("try: ")[2])
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
    first, second = (get_format(name).parse_response(body_of(name)) for name in PROVIDERS)
    assert isinstance(first.output[0], Reasoning)
    assert len(first.output[0].encrypted_content or "") > 500
    calls = [item for item in first.output if isinstance(item, FunctionCall)]
    assert {call.name for call in calls} == set(load_script()["tool_outputs"])
    assert all(isinstance(call.parsed_arguments(), dict) for call in calls)
    for response in (first, second):
        assert response.completed
        assert response.usage is not None
        assert response.usage.normalized.cached_tokens
    assert first.usage is not None
    assert first.usage.reasoning_tokens


def test_the_picture_is_a_whole_png() -> None:
    data = InputImage(url=load_script()["question"][1]["url"]).data
    assert data is not None
    assert data.startswith(b"\x89PNG\r\n\x1a\n")
    offset, kinds = 8, []
    while offset < len(data):
        size = int.from_bytes(data[offset : offset + 4])
        kind, body = data[offset + 4 : offset + 8], data[offset + 8 : offset + 8 + size]
        assert int.from_bytes(data[offset + 8 + size : offset + 12 + size]) == zlib.crc32(kind + body)
        kinds.append(kind)
        offset += 12 + size
    assert kinds == [b"IHDR", b"PLTE", b"IDAT", b"IEND"]


@pytest.mark.slow
def test_a_month_can_be_stored(demo: Cli, tmp_path: Path) -> None:
    folder = tmp_path / "a month"
    report = demo("demo", "--data", str(folder), "--json").json
    with Store(f"sqlite:///{folder}/demo.db") as store:
        facts = store.statistics()
        assert facts.active + facts.archived == report["conversations"] >= 100
        assert facts.branches >= 5
        assert facts.media == 1
        assert len(store.usage(by=("day",))) >= 25
        assert {row.model for row in store.usage(by="model")} == {model.name for model in MODELS}
        assert len(store.usage(by="user_id")) == len(USERS)
        statuses = {row.status: row.attempts for row in store.usage(by="status")}
        assert statuses["failed"] > 0
        assert min(row.cost_nano or 0 for row in store.usage(by="model")) > 0
        assert {tool.failed for tool in store.tool_usage()} == {0}
        with sqlalchemy.create_engine(f"sqlite:///{folder}/demo.db").connect() as connection:
            decisions = "SELECT decision, count(*) FROM threadkeep_call_approvals GROUP BY decision ORDER BY 1"
            (_, approved), (_, denied) = connection.exec_driver_sql(decisions)
        assert approved > denied > 0
        assert store.check().found == 0
    assert "has conversations already" in demo("demo", "--data", str(folder), code=2).err
    assert "cannot be combined" in demo("demo", "--data", "x", "--keep", "y", code=2).err


@pytest.mark.slow
def test_a_month_is_the_same_each_time(tmp_path: Path) -> None:
    last = datetime(2026, 11, 20, 12, tzinfo=UTC)
    months = []
    for name in ("first", "second"):
        with Store(f"sqlite:///{tmp_path}/{name}.db", prices=PRICES) as store:
            fill(store, last, lambda _: None)
            months.append(store.usage(by=("day", "model", "user_id", "status")))
    assert months[0] == months[1]
