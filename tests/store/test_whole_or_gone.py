"""What is read while others delete or change it is whole, as it was or as it is then, or it is not found any more."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import partial
from hashlib import sha256
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Engine, delete

from tests.conftest import MATRIX
from tests.databases import Database
from tests.factories import a_message, a_picture, an_answer, noise
from tests.store.test_removal_races import watched
from tests.store.watching import engine_of
from threadkeep import DamagedRow, NotFound, Store, Turns
from threadkeep.blobs import FolderBlobs
from threadkeep.db.models import item_blobs
from threadkeep.store.reading import tails

pytestmark = [pytest.mark.one_face, pytest.mark.sampled]

STEP = 3 if MATRIX == "quick" else 1  # statements of a read, of which one is tried

PICTURES = [noise(9_000, seed) for seed in range(3)]
URL = "https://media.example/{hash}"
FORMAT = "open_responses"
GONE = "gone"


@dataclass
class Talk:
    """A conversation, and what those who read it need to know."""

    id: str
    item: str
    asked_at: int
    response: str
    picture: str


# What is read: from a store and a conversation that it has opened, of whose items it knows nothing yet
READS: dict[str, Callable[[Any, Any, Talk], Any]] = {
    "a page": lambda _store, c, _talk: c.items(limit=3).items,
    "a page from the end": lambda _store, c, _talk: c.items(order="desc", limit=4).items,
    "a page with references": lambda _store, c, _talk: c.items(media="reference").items,
    "an item": lambda _store, c, _talk: c.get_item(0),
    "an item of any conversation": lambda store, _c, talk: store.get_item(talk.item),
    "a transcript": lambda _store, c, _talk: c.transcript(),
    "Markdown": lambda _store, c, _talk: c.to_markdown(),
    "a request": lambda _store, c, _talk: c.request_payload(FORMAT),
    "a request with URLs": lambda _store, c, _talk: c.request_payload(FORMAT, media_url=URL),
    "a request with some URLs": lambda _store, c, _talk: c.request_payload("gemini", media_url=URL),
    "the end of a request": lambda _store, c, _talk: c.request_payload(FORMAT, window=Turns(2)),
    "the end of a request with URLs": lambda _store, c, _talk: c.request_payload(
        "gemini", window=Turns(2), media_url=URL
    ),
    "an earlier request": lambda _store, c, talk: c.request_payload(FORMAT, upto=talk.asked_at),
    "an earlier request with URLs": lambda _store, c, talk: c.request_payload(
        "gemini", upto=talk.asked_at, media_url=URL
    ),
    "a copy": lambda _store, c, _talk: c.session().to_dict(),
    "what was sent": lambda _store, c, talk: c.input_items(talk.response).items,
    "what came": lambda _store, c, talk: c.output_items(talk.response),
    "calls": lambda _store, c, _talk: c.pending_calls(),
    "whose turn it is": lambda _store, c, _talk: c.next_step(),
    "an export": lambda store, _c, talk: exported(store, talk),
    "media": lambda store, _c, talk: store.media(talk.picture),
}
READS_OF_OBJECTS = (
    "a page", "an item", "a request", "a request with some URLs", "an earlier request with URLs", "an export", "media",
)  # fmt: skip
# What others do meanwhile
CHANGES: dict[str, Callable[[Any, Talk], object]] = {
    "deleted": lambda store, talk: store.delete_conversation(talk.id),
    "redacted": lambda store, talk: store.get_conversation(talk.id).redact_item(0),
    "removed": lambda store, talk: store.get_conversation(talk.id, branch=0).remove_item(0, purge=True),
    "continued": lambda store, talk: store.get_conversation(talk.id).add_items(
        [a_message("Be brief.", "system"), *[a_message(text, role) for text in "abc" for role in ("user", "assistant")]]
    ),
    "denied": lambda store, talk: store.get_conversation(talk.id).deny("call_2"),
}


def a_talk(store: Any) -> Talk:
    """A conversation with pictures on a branch, and in what that shares with another one."""
    conversation = store.create_conversation(model="m")
    conversation.user([a_picture(PICTURES[0])])
    conversation.add_response(an_answer("One", calls=("call_1",)), FORMAT)
    conversation.add_function_call_output(call_id="call_1", output=[a_picture(PICTURES[1])])
    forked = conversation.fork()
    forked.set_active_branch(forked.branch)
    forked.user([a_picture(PICTURES[2])])
    asked_at = forked.head
    forked.add_response(an_answer("Two", id="resp_2", calls=("call_2",)), FORMAT, rendered=forked.render(FORMAT))
    picture = sha256(PICTURES[0]).hexdigest()
    return Talk(conversation.id, forked.get_item(0).id, asked_at, "resp_2", picture)


def exported(store: Any, talk: Talk) -> list[str]:
    """The items and media in an export, which leaves out what is deleted meanwhile."""
    lines = store.export(conversation_ids=[talk.id])
    found = [line for line in lines if '"table":"items"' in line or '"table":"blobs"' in line]
    if not found:
        raise NotFound
    return found


def shown(found: Any) -> Any:
    """What was read, as something that can be compared."""
    if isinstance(found, list):
        return [shown(one) for one in found]
    return found.to_object() if hasattr(found, "to_object") else found


@pytest.fixture(autouse=True)
def read_in_small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    """The end of a short history is read as that of a long one is."""
    monkeypatch.setattr(tails, "LONG", 2)
    monkeypatch.setitem(tails.read_tail.__kwdefaults__ or {}, "page", 2)


@pytest.fixture
def blobs(request: pytest.FixtureRequest, tmp_path: Path) -> FolderBlobs | None:
    """Where media are: in rows, or in a folder."""
    return FolderBlobs(tmp_path) if request.param == "folder" else None


@pytest.fixture
def rival(database: Database, tenant: str, blobs: FolderBlobs | None) -> Iterator[Any]:
    """Another process, so to say."""
    with Store(database.url, tenants=True, blobs=blobs) as root:
        yield root.for_tenant(tenant)


@contextmanager
def before_statement(number: int, store: Any, change: Callable[[], object]) -> Iterator[list[str]]:
    """Do something before the statement of a store with that number; gives the statements."""
    seen: list[str] = []

    def watch(statement: str) -> None:
        seen.append(statement)
        if len(seen) == number + 1:
            change()

    with watched(engine_of(store), watch):
        yield seen


def outcome(read: Callable[[Any, Any, Talk], Any], store: Any, conversation: Any, talk: Talk) -> Any:
    """What a read gives, as something that can be compared."""
    try:
        return shown(read(store, conversation, talk))
    except NotFound:
        return GONE


# Changes that a quick run has for some reads only: after the first two all is still there that was read before, and
# what was removed is as gone as what was redacted
FEWER = {
    "continued": {"a page", "the end of a request"},
    "denied": {"a request", "calls", "whose turn it is"},
    "removed": {"a page", "an item", "a request", "a request with URLs", "an export", "media"},
}


def is_slow(read: str, change: str) -> bool:
    return change in FEWER and read not in FEWER[change]


CASES: list[Any] = [
    pytest.param("sync", "rows", read, change, marks=[pytest.mark.slow] * is_slow(read, change))
    for read in READS for change in CHANGES
]  # fmt: skip
CASES += [
    (face, "folder", read, change)
    for face in ("sync", "async") for read in READS_OF_OBJECTS for change in ("deleted", "redacted")
]  # fmt: skip


@pytest.mark.share(3)
@pytest.mark.parametrize(("face", "blobs", "read", "change"), CASES, indirect=["face", "blobs"])
def test_it_is_whole_or_gone(
    opened: Any, database: Database, tenant: str, rival: Any, blobs: FolderBlobs | None, read: str, change: str
) -> None:
    """Whichever of the statements that read it the change comes before."""
    store = opened(database.url, tenants=True, blobs=blobs).for_tenant(tenant)
    for number in count(step=STEP):
        talk = a_talk(rival)
        known, conversation = rival.get_conversation(talk.id), store.get_conversation(talk.id)
        before = outcome(READS[read], rival, known, talk)
        with before_statement(number, store, partial(CHANGES[change], rival, talk)) as statements:
            found = outcome(READS[read], store, conversation, talk)
        if len(statements) <= number:
            break
        assert found in (before, outcome(READS[read], rival, known, talk)), f"{number}: {statements[number]}"
    assert number


@pytest.mark.parametrize("read", READS_OF_OBJECTS)
@pytest.mark.parametrize("blobs", ["folder"], indirect=True)
def test_objects_that_are_missing_are_not_taken_for_deleted(
    opened: Any, database: Database, tenant: str, rival: Any, blobs: FolderBlobs, read: str
) -> None:
    store, talk = opened(database.url, tenants=True, blobs=blobs).for_tenant(tenant), a_talk(rival)
    conversation = store.get_conversation(talk.id)
    for name in list(blobs.names("", datetime.now(UTC) + timedelta(days=1))):
        blobs.delete(name)
    with pytest.raises(DamagedRow, match=r"its object .* is not in the blob store"):
        READS[read](store, conversation, talk)


@pytest.mark.parametrize("blobs", ["rows"], indirect=True)
def test_items_without_their_media_are_damaged_and_can_be_redacted(
    opened: Any, database: Database, tenant: str, rival: Any, watching: Engine
) -> None:
    store, talk = opened(database.url, tenants=True).for_tenant(tenant), a_talk(rival)
    with watching.begin() as connection:
        connection.execute(delete(item_blobs).where(item_blobs.c.tenant_id == rival.handle.scope.tenant))
    for name, read in READS.items():
        if name not in {"an export", "media", "what came", "calls", "whose turn it is"}:
            with pytest.raises(DamagedRow, match="its media are missing"):
                read(store, store.get_conversation(talk.id), talk)
    store.get_conversation(talk.id).redact_item(0)
    assert store.get_conversation(talk.id).get_item(0).item.content[0].text == "[redacted]"
