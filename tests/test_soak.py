"""The soak works: a few seconds of it, with a kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.databases import Database
from tests.soak.__main__ import Run


@pytest.mark.slow
def test_a_short_soak_finds_nothing(database: Database, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run = Run(database.url, tmp_path, seconds=8)
    run.run()
    run.report(database.kind)
    assert run.counts.failures == []
    assert "FAILED" not in capsys.readouterr().out
    assert run.kills == 1
    assert run.checks > 1
    assert run.counts.done["turns"] > 0
