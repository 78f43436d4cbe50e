"""An application's own Alembic, whose env.py and revisions call `schema.upgrade`."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from sqlalchemy import Engine, MetaData, create_engine, inspect, text

from tests.databases import Database
from threadkeep import Store, schema
from threadkeep.db.models import METADATA

ENV = """
from alembic import context
from sqlalchemy import create_engine

{imports}


def include_name(name, kind, parents):
    return kind != "table" or name not in schema.TABLES


engine = create_engine(context.config.get_main_option("sqlalchemy.url"))
{upgrade}
with engine.connect() as connection:
    context.configure(connection=connection, target_metadata=metadata, include_name=include_name)
    with context.begin_transaction():
        context.run_migrations()
engine.dispose()
"""
MODELS = """
from sqlalchemy import Column, Integer, MetaData, Table

metadata = MetaData()
Table("orders", metadata, Column("number", Integer, primary_key=True, autoincrement=False))
"""
KEYED = """
from sqlalchemy import BigInteger, Column, ForeignKeyConstraint, Integer, MetaData, Table
from threadkeep import models

metadata = MetaData()
Table(
    "orders",
    metadata,
    Column("number", Integer, primary_key=True, autoincrement=False),
    Column("conversation_id", models.PublicId, nullable=False),
    Column("tenant_id", BigInteger, nullable=False),
    ForeignKeyConstraint(
        ["conversation_id", "tenant_id"],
        [models.Conversation.public_id, models.Conversation.tenant_id],
        name="orders_conversation_fkey",
        ondelete="CASCADE",
    ),
)
"""
# where the env.py of an application calls it: itself, or by a module that it imports
CALLS = {
    "called": (f"from threadkeep import schema\n{MODELS}", "schema.upgrade(engine)"),
    "imported": ("from threadkeep import schema\nfrom host_application import metadata", ""),
}
APPLICATION = f"""
from alembic import context
from sqlalchemy import create_engine
from threadkeep import schema
{MODELS}
engine = create_engine(context.config.get_main_option("sqlalchemy.url"))
schema.upgrade(engine)
engine.dispose()
"""
REVISION = """
import os

from alembic import op
from sqlalchemy import Column, Integer, create_engine
from threadkeep import schema

revision = "first"
down_revision = None


def upgrade():
    op.create_table("orders", Column("number", Integer, primary_key=True, autoincrement=False))
    other = create_engine(os.environ["OTHER_DATABASE"])
    schema.upgrade(other)
    other.dispose()
    op.create_index("orders_number", "orders", ["number"])
"""


@pytest.fixture
def engine(empty_database: Database) -> Engine:
    return empty_database.engine()


@pytest.fixture
def config(tmp_path: Path, engine: Engine, monkeypatch: pytest.MonkeyPatch) -> Config:
    """The configuration of an Alembic of the application, with an empty folder of revisions."""
    folder = tmp_path / "alembic"
    folder.joinpath("versions").mkdir(parents=True)
    folder.joinpath("script.py.mako").write_text(
        "import sqlalchemy as sa\nimport threadkeep\nfrom alembic import op\n${imports if imports else ''}\n"
        "revision = ${repr(up_revision)}\ndown_revision = ${repr(down_revision)}\n\n\n"
        "def upgrade():\n    ${upgrades}\n\n\ndef downgrade():\n    ${downgrades}\n"
    )
    tmp_path.joinpath("host_application.py").write_text(APPLICATION)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.delitem(sys.modules, "host_application", raising=False)
    config = Config()
    config.set_main_option("script_location", str(folder))
    config.set_main_option("sqlalchemy.url", engine.url.render_as_string(hide_password=False).replace("%", "%%"))
    return config


def write_env(config: Config, imports: str, upgrade: str) -> Path:
    folder = Path(str(config.get_main_option("script_location")))
    folder.joinpath("env.py").write_text(ENV.format(imports=imports, upgrade=upgrade))
    return folder / "versions"


def differences(engine: Engine, metadata: MetaData, **options: Any) -> list[Any]:
    with engine.connect() as connection:
        return list(compare_metadata(MigrationContext.configure(connection, opts=options), metadata))


@pytest.mark.parametrize("call", CALLS)
def test_an_env_file_upgrades_both(empty_database: Database, engine: Engine, config: Config, call: str) -> None:
    """Autogenerate writes a revision of the application's table alone, which is then applied; twice is as once."""
    versions = write_env(config, *CALLS[call])
    command.revision(config, "first", autogenerate=True)
    (written,) = versions.glob("*.py")
    assert "orders" in written.read_text()
    assert "threadkeep_" not in written.read_text()
    for _ in range(2):
        command.upgrade(config, "head")
        schema.check(engine)
    command.check(config)
    names = set(METADATA.tables)
    ours = {
        "version_table": "threadkeep_version",
        "include_name": lambda name, kind, _: kind != "table" or name in names,
    }
    assert differences(engine, METADATA, **ours) == []
    with Store(empty_database.url) as store:
        conversation = store.create_conversation(model="m", input="Hi").id
    command.downgrade(config, "base")
    assert not inspect(engine).has_table("orders")
    with Store(empty_database.url) as store:
        assert store.get_conversation(conversation).head == 0


def test_autogenerate_writes_a_foreign_key_to_conversations(
    empty_database: Database, engine: Engine, config: Config
) -> None:
    """… with the type of its column; nothing of ours is in the revision, and later ones find no difference."""
    versions = write_env(config, f"from threadkeep import schema\n{KEYED}", "schema.upgrade(engine)")
    command.revision(config, "first", autogenerate=True)
    (written,) = versions.glob("*.py")
    changes = re.findall(r"op\.(\w+)\('(\w+)'", written.read_text())
    assert changes == [("create_table", "orders"), ("drop_table", "orders")]
    command.upgrade(config, "head")
    command.check(config)
    with Store(empty_database.url) as store:
        conversation = store.create_conversation(model="m", input="Hi").id
        with engine.begin() as connection:
            connection.execute(text("INSERT INTO orders SELECT 1, public_id, tenant_id FROM threadkeep_conversations"))
        store.delete_conversation(conversation)
    with engine.connect() as connection:
        assert connection.execute(text("SELECT count(*) FROM orders")).scalar() == 0
    command.downgrade(config, "base")
    schema.check(engine)


def test_a_revision_goes_on_after_an_upgrade(
    engine: Engine, config: Config, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`alembic.op` is the application's again, behind the upgrade of another database."""
    other = create_engine(f"sqlite:///{tmp_path}/other.db")
    monkeypatch.setenv("OTHER_DATABASE", str(other.url))
    write_env(config, *CALLS["called"]).joinpath("first.py").write_text(REVISION)
    command.upgrade(config, "head")
    assert [index["name"] for index in inspect(engine).get_indexes("orders")] == ["orders_number"]
    schema.check(other)
    other.dispose()


def test_a_failed_upgrade_gives_alembic_back(engine: Engine, config: Config) -> None:
    """The env.py may go on without threadkeep."""
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE threadkeep_items (number integer)"))
    lenient = "try:\n    schema.upgrade(engine)\nexcept Exception as error:\n    print(type(error))"
    write_env(config, CALLS["called"][0], lenient)
    command.upgrade(config, "head")
    assert inspect(engine).has_table("alembic_version")
