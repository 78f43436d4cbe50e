"""Keys of the database as the authentication of the server."""

from __future__ import annotations

import re
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import httpx2
import pytest
from sqlalchemy import event
from sqlalchemy.exc import OperationalError

from tests.server.conftest import Bridge
from threadkeep.http import KeyAuthentication, Owner
from threadkeep.server import keys as module
from threadkeep.server.keys import KeysOnceMade
from threadkeep.server.owners import local_owner
from threadkeep.server.quotas import Rates
from threadkeep.viewer import app as viewer_app


def asking(served: Any, authentication: Any, secret: str, header: str = "Authorization") -> int:
    http = served.http(auth=authentication)
    value = f"Bearer {secret}" if header == "Authorization" else secret
    found: int = http.get("/conversations", headers={"Authorization": "", header: value}).status_code
    return found


@pytest.fixture
def authentication(served: Any) -> KeyAuthentication:
    return KeyAuthentication(served._store)


@pytest.mark.parametrize("header", ["Authorization", "x-threadkeep-key"])
def test_a_key_opens_what_its_user_has(served: Any, authentication: Any, header: str) -> None:
    made = served.call(served.store.keys.create, user_id="ann")
    assert asking(served, authentication, made.secret, header) == 200
    assert asking(served, authentication, made.secret[:-1], header) == 401
    mine = served.call(served.store.for_user("ann").create_conversation).id
    theirs = served.call(served.store.for_user("ben").create_conversation).id
    http = served.http(made.secret, auth=authentication)
    assert [one["id"] for one in http.get("/conversations").json()["data"]] == [mine]
    assert http.get(f"/conversations/{theirs}").status_code == 404


@pytest.mark.parametrize("value", ["", "Bearer", "Bearer ", "Basic abc", "Bearer tk_x", "tk_x"])
def test_other_headers_open_nothing(served: Any, authentication: Any, value: str) -> None:
    http = served.http(auth=authentication)
    answer = http.get("/conversations", headers={"Authorization": value})
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")


def test_scopes_are_those_of_the_key(served: Any, authentication: Any) -> None:
    made = served.call(served.store.keys.create, scopes=["read"])
    http = served.http(made.secret, auth=authentication)
    assert http.get("/conversations").status_code == 200
    refused = http.post("/conversations", json={})
    assert (refused.status_code, refused.json()["error"]["code"]) == (403, "missing_scope")


def test_a_revoked_key_is_refused_after_some_seconds(
    served: Any, authentication: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = served.call(served.store.keys.create)
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    assert asking(served, authentication, made.secret) == 200
    served.call(served.store.keys.revoke, made.key.id)
    now[0] += module.CACHE_SECONDS - 0.1
    assert asking(served, authentication, made.secret) == 200
    now[0] += 0.2
    assert asking(served, authentication, made.secret) == 401


def test_a_known_key_is_not_asked_for_again(served: Any, authentication: Any) -> None:
    made = served.call(served.store.keys.create)
    assert served.call(authentication.owner, made.secret) is not None
    engine, executed = served._store.sync.handle.root.engine, []

    def note(*arguments: Any) -> None:
        executed.append(arguments[2])

    event.listen(engine, "before_cursor_execute", note)
    owner = served.call(authentication.owner, made.secret)
    event.remove(engine, "before_cursor_execute", note)
    assert executed == []
    assert owner.key == made.key.id
    assert served.call(served.store.keys.find, made.secret).last_used_at is not None


def test_only_the_keys_of_one_tenant_count(served: Any) -> None:
    made = served.call(served.store.keys.create)
    assert asking(served, KeyAuthentication(served._store, tenant=served.tenant), made.secret) == 200
    assert asking(served, KeyAuthentication(served._store, tenant="another"), made.secret) == 401


def test_a_store_of_one_tenant_is_served_by_its_keys(served: Any) -> None:
    made = served.call(served.store.keys.create, user_id="ann")
    owner = served.call(KeyAuthentication(served.store).owner, made.secret)
    assert (owner.tenant, owner.user_id) == (None, "ann")


def test_few_keys_are_remembered(served: Any, authentication: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_CACHED", 2)
    for _ in range(4):
        served.call(authentication.owner, served.call(served.store.keys.create).secret)
    assert len(authentication._known) == 2


def test_a_known_key_counts_while_the_database_cannot_be_asked(
    served: Any, authentication: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = served.call(served.store.keys.create)
    assert asking(served, authentication, made.secret) == 200
    monkeypatch.setattr(authentication, "_seconds", 0)
    authentication._known = OrderedDict(
        (name, known._replace(until=0)) for name, known in authentication._known.items()
    )
    with unreachable_keys(served):
        assert served.call(authentication.owner, made.secret).key == made.key.id
        with pytest.raises(OperationalError):
            served.call(authentication.owner, made.secret[:-1] + ("x" if made.secret[-1] != "x" else "y"))
    served.call(served.store.keys.revoke, made.key.id)
    assert served.call(authentication.owner, made.secret) is None


@contextmanager
def unreachable_keys(served: Any) -> Iterator[None]:
    """As long as this lasts, keys cannot be read."""
    engine = served._store.sync.handle.root.engine

    def refuse(_connection: Any, _cursor: Any, statement: str, *_rest: Any) -> None:
        if "threadkeep_api_keys" in statement:
            raise OperationalError(statement, None, Exception("The database is away."))

    event.listen(engine, "before_cursor_execute", refuse)
    try:
        yield
    finally:
        event.remove(engine, "before_cursor_execute", refuse)


def until_keys(served: Any, **options: Any) -> KeysOnceMade:
    """What a server asks that was started before there were keys."""
    return KeysOnceMade(served._store, local_owner(Owner(tenant=served.tenant)), tenant=served.tenant, **options)


def test_keys_that_are_made_while_a_server_runs_are_asked_for(served: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(module, "monotonic", lambda: now[0])
    authentication = until_keys(served)
    assert asking(served, authentication, "any") == 200
    made = served.call(served.store.keys.create)
    now[0] += module.CACHE_SECONDS + 0.1
    assert asking(served, authentication, "any") == 401
    assert asking(served, authentication, made.secret) == 200
    served.call(served.store.keys.revoke, made.key.id)
    now[0] += module.CACHE_SECONDS + 0.1
    assert asking(served, authentication, made.secret) == 401  # and nobody is let in again
    assert asking(served, authentication, "any") == 401


def test_the_pages_of_a_running_server_ask_for_a_key_once_there_is_one(served: Any) -> None:
    keys = until_keys(served, seconds=0)
    pages = viewer_app(served._store, keys=keys, owner=Owner(tenant=served.tenant), token="of-the-start")
    with httpx2.Client(transport=Bridge(served.runner, pages), base_url="http://localhost") as client:
        assert client.get("/").status_code == 401
        assert client.get("/sign-in").status_code == 404
        assert client.get("/?token=of-the-start").status_code == 303
        assert client.get("/").status_code == 200
        made = served.call(served.store.keys.create)
        for path in ("/", "/?token=of-the-start", "/sign-in"):
            answer = client.get(path)
            assert (answer.status_code, 'name="key"' in answer.text) == (401, True), path
        secret = re.search(r'name="form" value="([^"]+)"', client.get("/").text)
        assert secret
        fields = {"form": secret[1], "key": made.secret}
        assert client.post("/sign-in", data=fields, headers={"Origin": "http://localhost"}).status_code == 303
        assert client.get("/").status_code == 200


def test_keys_of_other_tenants_do_not_close_the_server_of_one(served: Any) -> None:
    authentication = until_keys(served, seconds=0)
    other = served.call(served._store.create_tenant, f"{served.tenant} too")
    served.call(other.keys.create)
    assert asking(served, authentication, "any") == 200


def test_a_server_without_keys_goes_on_while_the_database_is_away(served: Any) -> None:
    authentication = until_keys(served, seconds=0)
    assert asking(served, authentication, "any") == 200
    with unreachable_keys(served):
        assert asking(served, authentication, "any") == 200
        with pytest.raises(OperationalError):  # whether there are keys has never been known
            served.call(until_keys(served).are_made)


def test_owners_ask_so_often_with_and_without_keys(served: Any) -> None:
    authentication = until_keys(served, seconds=0, rates=Rates(2))
    assert [asking(served, authentication, "any") for _ in range(3)] == [200, 200, 429]
    made = served.call(served.store.keys.create)
    assert [asking(served, authentication, made.secret) for _ in range(3)] == [200, 200, 429]
