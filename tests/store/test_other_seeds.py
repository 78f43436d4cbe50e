"""The cases of the three smaller reference systems; what only they do (quirks) need not hold."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.store.seed_shapes import differences
from tests.store.seeds import Seeds

FILE = Path(__file__).parents[1] / "vectors" / "other_seeds.jsonl"
CASES = [json.loads(line) for line in FILE.read_text(encoding="utf-8").splitlines()]


@pytest.mark.parametrize("face", ["sync"], indirect=True)
@pytest.mark.parametrize(
    "case", [pytest.param(case, id=case["id"]) for case in CASES if not case["about"].startswith("quirk:")]
)
def test_a_case_of_a_smaller_system(store: Any, elsewhere: Any, case: dict[str, Any]) -> None:
    assert list(differences(Seeds(store, elsewhere).run(case["given"]), case["expect"])) == []
