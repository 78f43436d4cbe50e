"""Keys of the database as the authentication of the server."""

from __future__ import annotations

from typing import Any

import pytest
from sqlalchemy import event

from threadkeep.http import KeyAuthentication
from threadkeep.web import keys as module


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
    engine, executed = served._store._sync._root._engine, []

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
