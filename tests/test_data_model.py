"""The page about the data model names every column of every table, and no other."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from threadkeep.db.models import METADATA

PAGE = Path(__file__).parent.parent.joinpath("docs/data-model.md").read_text()
SECTIONS = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##)", PAGE, re.MULTILINE | re.DOTALL))
TABLES = METADATA.tables


def test_every_table_has_a_section() -> None:
    assert set(SECTIONS) == set(TABLES)


@pytest.mark.parametrize("name", TABLES)
def test_every_column_has_a_row(name: str) -> None:
    assert re.findall(r"^\| `(\w+)` \|", SECTIONS[name], re.MULTILINE) == [column.name for column in TABLES[name].c]
