"""Revisions that only the tests have, and processes that upgrade."""

from __future__ import annotations

import shutil
from pathlib import Path

from sqlalchemy import create_engine, make_url

from tests.databases import DRIVERS
from threadkeep import schema
from threadkeep.db.schema import migrations_folder

REVISION = '''
"""A revision of a release that does not exist."""

import sqlalchemy as sa
from alembic import context, op

revision = "{revision}"
down_revision = "{down_revision}"
branch_labels = None
depends_on = None


def upgrade():
{upgrade}


def downgrade():
{downgrade}
'''


def folder_with(folder: Path, revision: str, upgrade: str, downgrade: str = "pass") -> Path:
    """A copy of the migrations with one more revision, as the next release would have it."""
    copy = folder / "migrations"
    shutil.copytree(migrations_folder(), copy, ignore=shutil.ignore_patterns("__pycache__"))
    text = REVISION.format(
        revision=revision, down_revision=schema.HEAD, upgrade=indented(upgrade), downgrade=indented(downgrade)
    )
    copy.joinpath("versions", f"{revision}.py").write_text(text)
    return copy


def indented(code: str) -> str:
    return "\n".join(f"    {line}" for line in code.strip().splitlines())


def upgrade_in_process(url: str) -> None:
    """What a process does that starts together with others."""
    target = make_url(url)
    engine = create_engine(target.set(drivername=DRIVERS[target.drivername]))
    schema.upgrade(engine)
    schema.check(engine)
    engine.dispose()
