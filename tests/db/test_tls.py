"""What a connection costs that is told nothing of TLS."""

from __future__ import annotations

import ssl
from typing import Any

import pytest

from tests.databases import Database
from threadkeep.db.engines import engine_for

mariadb = pytest.mark.parametrize("database", ["mariadb"], indirect=True)


@pytest.fixture
def contexts(monkeypatch: pytest.MonkeyPatch) -> list[ssl.SSLContext]:
    """The contexts that are made with the machine's certificates, which takes longer than to connect."""
    made: list[ssl.SSLContext] = []
    create = ssl.create_default_context

    def counted(*arguments: Any, **options: Any) -> ssl.SSLContext:
        made.append(create(*arguments, **options))
        return made[-1]

    monkeypatch.setattr(ssl, "create_default_context", counted)
    return made


@mariadb
def test_connections_that_verify_nothing_read_the_certificates_once(
    database: Database, contexts: list[ssl.SSLContext]
) -> None:
    engines = [engine_for(database.url) for _ in range(2)]
    for engine in engines:
        with engine.connect() as one, engine.connect() as another:
            assert [each.exec_driver_sql("SELECT 1").scalar() for each in (one, another)] == [1, 1]
        engine.dispose()
    assert len(contexts) <= 1


@mariadb
def test_connections_with_options_of_their_own_have_their_own(
    database: Database, contexts: list[ssl.SSLContext]
) -> None:
    engine = engine_for(f"{database.url}?ssl_verify_cert=true")
    with pytest.raises(Exception, match=r"SSL|certificate|TLS"):
        engine.connect()
    engine.dispose()
    assert [context.verify_mode for context in contexts] == [ssl.CERT_REQUIRED]
