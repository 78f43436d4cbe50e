"""The search grouped by conversation: each once, with its best match."""

from __future__ import annotations

from typing import Any

import pytest

from tests.factories import a_message
from threadkeep import InvalidOption, NotFound


@pytest.fixture
def library(store: Any) -> Any:
    store.create_conversation(title="rain", user_id="ann", labels={"a": "b"}, input=[
        a_message("It rains and rains: rain all day, rain"), a_message("No sun, but wind and rain and other weather"),
    ])  # fmt: skip
    store.create_conversation(title="sun", user_id="ben", input=[a_message("Sun, and a little rain")])
    store.create_conversation(title="snow", user_id="ann", input=[a_message("Only snow")])
    return store


def test_each_conversation_comes_once_with_its_best_match(library: Any) -> None:
    found = library.search_conversations("rain")
    hits = list(library.search("rain"))
    assert {match.title: match.hits for match in found} == {"rain": 3, "sun": 1}
    for match in found:
        of_it = [hit for hit in hits if hit.conversation_id == match.conversation_id]
        assert match.best == of_it[0]
        assert (match.title, match.user_id) == (match.best.title, match.best.user_id)
        assert match.newest_at == max(hit.created_at for hit in of_it)
        assert len(of_it) == match.hits
    assert [match.best.score for match in found] == sorted((match.best.score for match in found), reverse=True)


def test_filters_are_those_of_the_search(library: Any) -> None:
    def found(text: str = "rain", **filters: Any) -> list[tuple[str | None, int]]:
        return [(match.title, match.hits) for match in library.search_conversations(text, **filters)]

    assert found(user_id="ben") == [("sun", 1)]
    assert found(labels={"a": "b"}) == [("rain", 3)]
    assert found(type="title") == [("rain", 1)]
    assert found(role="assistant") == []
    assert found(status="archived") == []
    assert found("rain -little", user_id="ben") == []
    assert [title for title, _ in found("sn*")] == ["snow"]
    one = library.list_conversations(user_id="ben").items[0]
    assert found(conversation_id=one.id) == [("sun", 1)]
    with pytest.raises(NotFound):
        found(conversation_id="x")
    with pytest.raises(InvalidOption):
        found("-rain")


def test_pages_join_to_the_whole(store: Any) -> None:
    for number in range(9):
        texts = [a_message(f"word {number}"), a_message("word " * (number + 1)), a_message("another word")]
        store.create_conversation(title=str(number), input=texts)
    whole = list(store.search_conversations("word", limit=100))
    assert sorted(match.title for match in whole) == [str(number) for number in range(9)]
    for limit in (1, 4, 9):
        seen, after = [], None
        while True:
            page = store.search_conversations("word", limit=limit, after=after)
            seen += list(page)
            if (after := page.next) is None:
                break
        assert seen == whole


def test_nobody_finds_what_belongs_to_others(library: Any) -> None:
    assert [match.title for match in library.for_user("ben").search_conversations("rain")] == ["sun"]
    assert list(library.for_user("zoe").search_conversations("rain")) == []
    found = library.search_conversations("sun", user_id="ben")
    library.delete_conversation(found.items[0].conversation_id)
    assert list(library.search_conversations("little")) == []


def test_text_of_all_branches_is_found(store: Any) -> None:
    conversation = store.create_conversation(input=[a_message("one")])
    conversation.fork(at=0).user("needle")
    [match] = store.search_conversations("needle")
    assert (match.conversation_id, match.best.branch, match.best.position) == (conversation.id, 1, 1)
