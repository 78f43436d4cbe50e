"""Filled databases, revisions that only the tests have, and upgrades that fail or run in other processes."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from sqlalchemy import Engine, event, func, inspect, select, text

from tests.factories import a_message, a_picture, an_answer, an_output, noise
from threadkeep import Store, schema
from threadkeep.db.engines import engine_for
from threadkeep.db.models import METADATA
from threadkeep.db.schema import migrations_folder
from threadkeep.formats import FormatName

FORMATS: Final[tuple[FormatName, ...]] = ("open_responses", "chat_completion")
CACHES = (
    "(tenant_id, account, model, hash, conversation_id, branch, turns, answer, token, is_shared, created_at) "
    "SELECT tenant_id, '', external_id, config_hash, id, 0, 2, 0, public_id, 0, created_at "
    "FROM threadkeep_conversations"
)

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
    engine = engine_for(url)  # as the command line does
    schema.upgrade(engine)
    schema.check(engine)
    engine.dispose()


def fill(url: str, engine: Engine) -> list[str]:
    """The ids of conversations that have rows in every table."""
    with Store(url) as store:
        ids = []
        for number in range(12):
            conversation = store.create_conversation(
                model="m", input=f"Hi {number}", labels={"n": str(number)}, external_id=f"e{number}",
                tools=[{"type": "function", "name": f"tool{number % 3}"}],
            )  # fmt: skip
            conversation.user([a_picture(noise(9_000, seed=number % 2))], idempotency_key="key")
            conversation.add_response(an_answer("Hello", calls=("c",)), "open_responses", latency_ms=100)
            conversation.approve("c")
            conversation.add_item(an_output("c"))
            conversation.fork(at=0).add_items([a_message("a"), a_message("b")], states={"run": {"step": number}})
            conversation.mark_seen("ann")
            conversation.label_item(0, {"n": str(number)})
            conversation.set_feedback(0, rating=number)
            ids.append(conversation.id)
    parts = "SELECT tenant_id, conversation_id, number, 0, '[]', 1, created_at FROM threadkeep_responses"
    with engine.begin() as connection:
        connection.execute(text(f"INSERT INTO threadkeep_stream_parts {parts}"))
        connection.execute(text(f"INSERT INTO threadkeep_context_caches {CACHES}"))
        connection.execute(
            text("UPDATE threadkeep_usage_records SET day = '2026-01-01', occurred_at = '2026-01-01 12:00:00'")
        )
    with Store(url) as store:
        store.keys.create()
        store.upload_media(b"a file")
        store.fill_usage_days()
        store.reindex()
    return ids


def counts(engine: Engine) -> dict[str, int]:
    """How many rows each table has, of those that the database has."""
    there = set(inspect(engine).get_table_names())
    with engine.connect() as connection:
        return {
            name: connection.execute(select(func.count()).select_from(table)).scalar_one()
            for name, table in METADATA.tables.items()
            if name in there
        }


def bodies(url: str, ids: list[str]) -> list[bytes]:
    """The requests of all branches."""
    with Store(url) as store:
        return [
            store.get_conversation(public_id, branch=branch).request_body(wire)
            for public_id in ids for branch in (0, 1) for wire in FORMATS
        ]  # fmt: skip


@contextmanager
def burning(engine: Engine, fuse: int) -> Iterator[None]:
    """Fails before a statement that makes or changes tables."""
    left = [fuse]

    def burn(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if statement.lstrip().startswith(("CREATE", "ALTER")):
            left[0] -= 1
            if left[0] == 0:
                raise KeyboardInterrupt

    event.listen(engine, "before_cursor_execute", burn)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", burn)
