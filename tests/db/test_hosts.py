"""URLs with several hosts."""

from __future__ import annotations

import pytest
from sqlalchemy import make_url

from threadkeep import InvalidOption
from threadkeep.db.engines import engine_for, parsed_url, shown_url
from threadkeep.db.hosts import hosts_of, spelled_out


@pytest.mark.parametrize(
    ("url", "hosts", "database"),
    [
        ("postgresql://app@a,b:5433/chat", ("a", "b:5433"), "chat"),
        ("mariadb://app:p,w@10.0.0.1:1,h-2:2,[::1]:3/chat?charset=utf8mb4", ("10.0.0.1:1", "h-2:2", "[::1]:3"), "chat"),
        ("postgresql://app@/chat?host=a:1&host=b:2", ("a:1", "b:2"), "chat"),
        ("mariadb://a,b/chat", ("a", "b"), "chat"),
        ("postgresql://app@a/chat", (), "chat"),
        ("sqlite:///one,two.db", (), "one,two.db"),
    ],
)
def test_hosts_are_found(url: str, hosts: tuple[str, ...], database: str) -> None:
    found = parsed_url(url)
    assert (hosts_of(found), found.database) == (hosts, database)
    assert spelled_out(spelled_out(url)) == spelled_out(url)


@pytest.mark.parametrize(
    "url", ["postgresql://a,,b/chat", "mariadb://a,b:port/chat", "postgresql://u:secret@a, b/chat"]
)
def test_what_is_no_host_is_refused(url: str) -> None:
    with pytest.raises(
        InvalidOption, match=r"^url is not a database URL: one of its hosts is none\. Write host"
    ) as caught:
        parsed_url(url)
    assert "secret" not in str(caught.value)


def test_hosts_are_shown_without_the_password() -> None:
    assert shown_url("postgresql://app:secret@a,b:5433/chat?x=y") == "postgresql://app:***@a,b:5433/chat"
    assert shown_url("mariadb://a,b/chat") == "mariadb://a,b/chat"


def test_of_several_postgresql_servers_the_one_that_can_be_written_to_is_wanted() -> None:
    def wanted(url: str) -> object:
        return engine_for(url).url.query.get("target_session_attrs")

    assert wanted("postgresql://a,b/chat") == "read-write"
    assert wanted("postgresql://a,b/chat?target_session_attrs=any") == "any"
    assert wanted("postgresql://a/chat") is None
    assert make_url(spelled_out("postgresql://a,b/chat")).query["host"] == ("a", "b")


def test_mariadb_knows_two_kinds_of_servers() -> None:
    assert "target_session_attrs" not in engine_for("mariadb://a,b/chat?target_session_attrs=any").url.query
    with pytest.raises(InvalidOption, match=r"^url has a target_session_attrs that .* Write target_session_attrs="):
        engine_for("mariadb://a,b/chat?target_session_attrs=standby")
