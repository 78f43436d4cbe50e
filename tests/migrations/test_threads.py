"""Threads that set up or upgrade databases at the same time, as a server does that opens its first stores in memory."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier

import pytest
from sqlalchemy import NullPool, create_engine

from threadkeep import schema

COUNT = 4


def upgraded(folder: Path, number: int) -> str | None:
    engine = create_engine(f"sqlite:///{folder}/{number}.db", poolclass=NullPool)
    schema.upgrade(engine, schema.HEAD)
    with engine.connect() as connection:
        return schema.current(connection)


WORK: dict[str, Callable[[Path, int], object]] = {
    "SQL": lambda _folder, _number: schema.upgrade_sql("postgresql"),
    "databases": upgraded,
}


@pytest.mark.parametrize("kind", WORK)
def test_threads_have_one_environment_of_alembic_at_a_time(tmp_path: Path, kind: str) -> None:
    alone, together = WORK[kind](tmp_path, COUNT), Barrier(COUNT)

    def work(number: int) -> object:
        together.wait(20)
        return WORK[kind](tmp_path, number)

    with ThreadPoolExecutor(COUNT) as threads:
        assert list(threads.map(work, range(COUNT))) == [alone] * COUNT
