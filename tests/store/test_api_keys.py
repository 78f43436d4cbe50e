"""Keys of the server: made once, found by their secret, and refused when they expired or were revoked."""

from __future__ import annotations

import json
import pickle
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, insert, text, update

from tests.store.test_erasing import dump
from threadkeep import InvalidOption, NotFound, Store
from threadkeep.db import models

UNKNOWN = "tk_0123456789abcdef_" + "x" * 43
LATER = timedelta(days=90)


def test_a_key_is_found_by_its_secret(store: Any, tenant: str) -> None:
    expires = datetime.now(UTC) + LATER
    made = store.keys.create(user_id="ann", scopes=["write", "read"], label="phone", expires_at=expires)
    key = store.keys.find(made.secret)
    assert key == made.key
    assert (key.tenant, key.user_id, key.scopes, key.label) == (tenant, "ann", {"read", "write"}, "phone")
    assert (key.expires_at, key.last_used_at, key.revoked_at) == (expires, None, None)
    assert made.secret.startswith(f"tk_{key.id.removeprefix('key_')}_")
    assert [*store.keys.list()] == [key]


def test_a_key_allows_all_unless_told(store: Any) -> None:
    key = store.keys.create().key
    assert (key.user_id, key.scopes, key.label) == (None, {"read", "write", "usage"}, None)


def test_a_secret_is_stored_nowhere_and_never_printed(store: Any, watching: Engine) -> None:
    made = store.keys.create(user_id="ann")
    random_part = made.secret.rpartition("_")[2]
    assert random_part not in dump(watching)
    assert random_part not in repr(made)
    assert not hasattr(made.key, "secret")


@pytest.mark.parametrize(
    "wrong",
    ["", "tk_", UNKNOWN, "tk_ffffffffffffffff_" + "x" * 43, "key", None, 7, "tk_0123456789abcde\ud800_" + "x" * 43],
)
def test_other_secrets_belong_to_nobody(store: Any, wrong: Any) -> None:
    store.keys.create()
    assert store.keys.find(wrong) is None


def test_the_whole_secret_counts(store: Any) -> None:
    secret = store.keys.create().secret
    for place in (len(secret) - 1, 20, 21):
        other = "A" if secret[place] != "A" else "B"
        assert store.keys.find(secret[:place] + other + secret[place + 1 :]) is None
    assert store.keys.find(f" {secret}") is None


def test_a_revoked_key_is_refused_for_good(store: Any, elsewhere: Any) -> None:
    made, other = store.keys.create(), store.keys.create()
    revoked = elsewhere.keys.revoke(made.key.id)
    assert revoked.revoked_at is not None
    assert not revoked.is_valid(datetime.now(UTC))
    assert store.keys.find(made.secret) is None
    assert store.keys.revoke(made.key.id) == revoked  # as it was
    assert store.keys.find(other.secret) == other.key


def test_a_key_expires(store: Any, watching: Engine) -> None:
    made = store.keys.create(expires_at=datetime.now(UTC) + LATER)
    with watching.begin() as connection:
        number = int(made.key.id.removeprefix("key_"), 16)
        past = datetime.now(UTC) - timedelta(seconds=1)
        connection.execute(update(models.api_keys).where(models.api_keys.c.id == number).values(expires_at=past))
    assert store.keys.find(made.secret) is None
    assert len(store.keys.list()) == 1


def test_the_last_use_is_known_to_the_hour(store: Any, watching: Engine) -> None:
    made = store.keys.create()
    store.keys.note_use(made.key.id)
    first = store.keys.find(made.secret).last_used_at
    assert first is not None
    store.keys.note_use(made.key.id)
    assert store.keys.find(made.secret).last_used_at == first
    before = first - timedelta(hours=2)
    number = int(made.key.id.removeprefix("key_"), 16)
    with watching.begin() as connection:
        connection.execute(update(models.api_keys).where(models.api_keys.c.id == number).values(last_used_at=before))
    store.keys.note_use(made.key.id)
    assert store.keys.find(made.secret).last_used_at >= first
    store.keys.note_use("key_0000000000000001")
    store.keys.note_use("unknown")


def test_keys_are_listed_in_pages(store: Any) -> None:
    made = [store.keys.create(user_id=user).key.id for user in ("ann", "ben", "ann")]
    page = store.keys.list(limit=2)
    assert [key.id for key in page] == made[:2]
    assert [key.id for key in store.keys.list(after=page.next)] == made[2:]
    assert [key.id for key in store.keys.list(user_id="ann")] == [made[0], made[2]]


def test_other_tenants_and_users_have_other_keys(store: Any, stores: Any, face: str, tenant: str) -> None:
    stranger = stores.get(face).create_tenant(f"stranger {tenant}")
    made = store.keys.create(user_id="ann")
    for other in (stranger, stranger.for_user("ann"), store.for_user("ben")):
        assert other.keys.find(made.secret) is None
        assert [*other.keys.list()] == []
        with pytest.raises(NotFound):
            other.keys.revoke(made.key.id)
        other.keys.note_use(made.key.id)
    found = store.keys.find(made.secret)
    assert found == made.key  # neither revoked nor used
    assert store.for_user("ann").keys.find(made.secret) == found


def test_a_store_with_tenants_knows_the_keys_of_all(stores: Any, store: Any, face: str, tenant: str) -> None:
    root, made = stores.get(face), store.keys.create()
    assert root.keys.find(made.secret).tenant == tenant
    assert root.keys.exist()
    with pytest.raises(InvalidOption, match="for_tenant"):
        root.keys.create()
    assert root.keys.revoke(made.key.id).revoked_at is not None
    assert store.keys.find(made.secret) is None
    assert root.keys.all_tenants
    assert not store.keys.all_tenants


def test_a_store_for_a_user_makes_keys_of_that_user(store: Any) -> None:
    own = store.for_user("ann")
    assert own.keys.create().key.user_id == "ann"
    with pytest.raises(InvalidOption, match="user_id"):
        own.keys.create(user_id="ben")


def test_keys_go_with_their_user_and_tenant(stores: Any, store: Any, face: str, tenant: str, watching: Engine) -> None:
    gone, kept = store.keys.create(user_id="ann", label="ann's phone"), store.keys.create(user_id="ben")
    store.erase_user("ann")
    assert [key.id for key in store.keys.list()] == [kept.key.id]
    assert store.keys.find(gone.secret) is None
    stores.get(face).delete_tenant(tenant)
    assert stores.get(face).keys.find(kept.secret) is None
    with watching.connect() as connection:
        found = connection.execute(
            text("SELECT count(*) FROM threadkeep_api_keys WHERE id = :id"), {"id": int(kept.key.id[4:], 16)}
        )
        assert found.scalar() == 0


def test_exports_and_copies_have_no_keys(store: Any, stores: Any, face: str, tenant: str) -> None:
    made = store.keys.create(user_id="ann", label="canary")
    store.create_conversation(input="Hi")
    lines = [*store.export()]
    assert "canary" not in "".join(lines)
    assert {json.loads(line).get("table") for line in lines}.isdisjoint({"api_keys"})
    other = stores.get(face, "elsewhere").create_tenant(f"copy {tenant}")
    store.copy_to(getattr(other, "_wrapped", other))
    assert [*other.keys.list()] == []
    assert other.keys.find(made.secret) is None


def test_a_backup_has_them(tmp_path: Path) -> None:
    with Store(f"sqlite:///{tmp_path}/one.db") as store:
        assert not store.keys.exist()
        assert [*store.keys.list()] == []
        assert store.keys.find(UNKNOWN) is None
        made = store.keys.create()
        store.backup(tmp_path / "two.db")
    with Store(f"sqlite:///{tmp_path}/two.db") as copy:
        assert copy.keys.find(made.secret) == made.key


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"user_id": ""}, "user_id"),
    ({"user_id": 7}, "user_id"),
    ({"user_id": "u" * 256}, "user_id"),
    ({"scopes": []}, "scopes"),
    ({"scopes": "read"}, "scopes"),
    ({"scopes": 7}, "scopes"),
    ({"scopes": ["everything"]}, "scopes"),
    ({"scopes": [["read"]]}, "scopes"),
    ({"label": ""}, "label"),
    ({"expires_at": "2030-01-01"}, "expires_at"),
    ({"expires_at": datetime(2100, 1, 1)}, "expires_at"),  # noqa: DTZ001 - naive
    ({"expires_at": datetime(2020, 1, 1, tzinfo=UTC)}, "expires_at"),
]


@pytest.mark.parametrize(("options", "argument"), WRONG)
def test_what_cannot_be_a_key_is_refused(store: Any, options: dict[str, Any], argument: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        store.keys.create(**options)
    assert refusal.value.argument == argument
    assert [*store.keys.list()] == []


def test_odd_arguments_are_refused(store: Any) -> None:
    with pytest.raises(InvalidOption, match="after"):
        store.keys.list(after="x")
    with pytest.raises(InvalidOption, match="limit"):
        store.keys.list(limit=0)
    for id_ in ("x", None, 7, "key_ffffffffffffffff", "key_0000000000000001"):
        with pytest.raises(NotFound):
            store.keys.revoke(id_)


def test_keys_can_be_pickled(store: Any) -> None:
    made = store.keys.create(user_id="ann")
    assert pickle.loads(pickle.dumps(made)) == made


def test_keys_with_one_number_are_told_apart(stores: Any, store: Any, face: str, tenant: str, watching: Engine) -> None:
    """A number is made twice by nobody, but nothing relies on it."""
    made, twin = store.keys.create(), stores.get(face).create_tenant(f"twin {tenant}")
    other = twin.keys.create()
    with watching.begin() as connection:
        tenant_id = twin.handle.scope.tenant
        row = {
            "tenant_id": tenant_id, "id": int(made.key.id[4:], 16), "secret_hash": b"h" * 32, "scopes": "read",
            "created_at": datetime.now(UTC),
        }  # fmt: skip
        connection.execute(insert(models.api_keys), row)
    assert stores.get(face).keys.find(made.secret).tenant == tenant
    assert twin.keys.find(made.secret) is None
    assert twin.keys.find(other.secret) == other.key
