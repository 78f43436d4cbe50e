"""openai-python's own tests of its API resources, against the server instead of their mock."""

from __future__ import annotations

import os
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from sqlalchemy import create_engine

from tests.ports import free_ports
from tests.waiting import listens, wait_until
from threadkeep import schema

ROOT = Path(__file__).parents[2]
# files -> the least number of their cases, so that a renamed file is noticed, and arguments that select cases
SELECTED: dict[str, tuple[int, tuple[str, ...]]] = {
    "test_conversations.py": (80, ()),
    "conversations/test_items.py": (95, ()),
    "responses/test_input_items.py": (25, ()),
    "test_responses.py": (90, ("-k", "retrieve or cancel or delete")),
}
# pages of no item after an item that does not exist: the documented limits are 1 to 100, and a wrong cursor is an error
CONTRADICTING = "test_method_list_with_all_params"


@pytest.fixture(scope="module")
def seeded_url(tmp_path_factory: pytest.TempPathFactory) -> str:
    url = f"sqlite:///{tmp_path_factory.mktemp('served')}/served.db"
    engine = create_engine(url)
    schema.upgrade(engine)
    engine.dispose()
    return url


@pytest.fixture(scope="module")
def base_url(seeded_url: str) -> Iterator[str]:
    """Where the server answers."""
    [port] = free_ports(1)
    program = (
        "import sys, uvicorn; from threadkeep import AsyncStore; from threadkeep.http import app; "
        "uvicorn.run(app(AsyncStore(sys.argv[1])), port=int(sys.argv[2]), log_level='warning')"
    )
    server = subprocess.Popen([sys.executable, "-c", program, seeded_url, str(port)])
    try:
        wait_until(lambda: listens(port), seconds=60)
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        server.terminate()
        server.wait(30)


@pytest.fixture(scope="module")
def sources(fetched: Callable[[str], Path]) -> Path:
    return fetched("openai")


@pytest.mark.parametrize("file", SELECTED)
def test_openais_own_tests_pass(file: str, sources: Path, base_url: str, seeded_url: str, tmp_path: Path) -> None:
    least, selection = SELECTED[file]
    report = tmp_path / "report.xml"
    command = [
        sys.executable, "-m", "pytest", "-q", "-p", "tests_openai_seed", "-o", "addopts=", "-p", "no:cacheprovider",
        f"--junitxml={report}", *selection, f"tests/api_resources/{file}",
    ]  # fmt: skip
    (tmp_path / "tests_openai_seed.py").write_text((Path(__file__).parent / "openai_seed.py").read_text())
    environment = os.environ | {
        "TEST_API_BASE_URL": base_url,
        "THREADKEEP_SEEDED_URL": seeded_url,
        "PYTHONPATH": os.pathsep.join([str(sources), str(tmp_path), str(ROOT / "src")]),
    }
    run = subprocess.run(
        command, cwd=sources, env=environment, timeout=280, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
        check=False,
    )  # fmt: skip
    cases = list(ET.parse(report).getroot().iter("testcase"))
    failed = [
        case.get("name", "") for case in cases if case.find("failure") is not None or case.find("error") is not None
    ]
    assert len(cases) >= least
    assert [name for name in failed if not name.startswith(CONTRADICTING)] == [], run.stdout.decode()[-8000:]
    assert len(failed) == (5 if "items" in file else 0)
