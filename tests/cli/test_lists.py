"""What lists of conversations show on demand, and searches by conversation."""

from __future__ import annotations

import pytest

from tests.cli.runs import Cli


@pytest.fixture
def talks(cli: Cli) -> list[str]:
    """Two conversations of a user, the older one of which was read."""
    with cli.store() as store:
        first = store.create_conversation(model="m", title="Paris", user_id="ada")
        first.user("What is the weather in Paris?")
        first.assistant("Fine\nin Paris.")
        first.mark_seen("ada")
        second = store.create_conversation(model="m", title="London", user_id="ada")
        second.user("And in London?")
        second.fork()
        return [first.id, second.id]


def test_previews_say_what_is_new(cli: Cli, talks: list[str]) -> None:
    rows = cli("ls", "--preview").rows
    assert [(row["id"], row["unread"], row["preview"]) for row in rows] == [
        (talks[1], "yes", "And in London?"),
        (talks[0], "no", "Fine in Paris."),
    ]
    assert "items" not in rows[0]


def test_counts_are_numbers(cli: Cli, talks: list[str]) -> None:
    newest, oldest = cli("ls", "--counts", "--json").json["conversations"]
    assert [newest[name] for name in ("id", "item_count", "response_count", "branch_count")] == [talks[1], 1, 0, 2]
    assert [oldest[name] for name in ("id", "item_count", "response_count", "branch_count")] == [talks[0], 2, 0, 1]
    assert "preview" not in newest
    assert {"items", "branches", "preview"} <= cli("ls", "--counts", "--preview").rows[0].keys()


@pytest.mark.parametrize("shown", [[], ["--preview"], ["--counts"]])
def test_lists_are_sorted_and_filtered(cli: Cli, talks: list[str], shown: list[str]) -> None:
    def ids(*args: str) -> list[str]:
        return [row["id"] for row in cli("ls", *shown, *args).rows]

    assert ids() == ids("--order-by", "created") == talks[::-1]
    assert ids("--order", "asc") == talks
    assert ids("--order-by", "title") == talks[::-1]
    assert ids("--order-by", "title", "--order", "desc") == talks
    assert ids("--unread-by", "ada") == [talks[1]]
    assert ids("--unread-by", "ada", "--user", "bob") == []


def test_pages_of_previews_follow_each_other(cli: Cli, talks: list[str]) -> None:
    first = cli("ls", "--preview", "--limit", "1", "--json").json
    second = cli("ls", "--preview", "--limit", "1", "--after", first["next"], "--json").json
    assert [page["conversations"][0]["id"] for page in (first, second)] == talks[::-1]
    assert second["next"] is None


def test_previews_are_drawn_on_a_terminal(cli: Cli, talks: list[str]) -> None:
    shown = cli.on_terminal("ls", "--preview", "--counts")
    assert "Fine in Paris." in shown
    assert "items" in shown


@pytest.mark.parametrize(
    "args", [["--preview"], ["--counts"], ["--unread-by", "ada"]], ids=lambda args: str(args[0]).strip("-")
)
def test_an_external_id_is_not_combined_with_lists(cli: Cli, args: list[str]) -> None:
    assert "--external-id finds one conversation" in cli("ls", "--external-id", "x", *args, code=2).err


def test_wrong_orders_are_refused_with_their_option(cli: Cli) -> None:
    assert "'--order-by': 'size' is not one of" in cli("ls", "--order-by", "size", code=2).err
    assert "--limit must be" in cli("ls", "--preview", "--limit", "101", code=2).err


def test_a_search_by_conversation_finds_each_once(cli: Cli, talks: list[str]) -> None:
    (row,) = cli("search", "paris", "--by", "conversation").rows
    assert (row["conversation"], row["hits"], row["title"]) == (talks[0], "3", "Paris")
    result = cli("search", "paris", "--by", "conversation", "--json").json
    assert list(result) == ["conversations", "next"]
    (found,) = result["conversations"]
    assert found["hits"] == 3
    assert found["newest_at"].endswith("Z")
    assert found["snippet"][slice(*found["marks"][0])].lower() == "paris"
    assert len(cli("search", "paris").rows) == 3


def test_a_search_by_conversation_is_drawn_on_a_terminal(cli: Cli, talks: list[str]) -> None:
    assert f"{talks[0]}  3 matches" in cli.on_terminal("search", "paris", "--by", "conversation")


def test_conversations_that_match_are_paged(cli: Cli, talks: list[str]) -> None:
    first = cli("search", "in", "--by", "conversation", "--limit", "1", "--json").json
    second = cli("search", "in", "--by", "conversation", "--limit", "1", "--after", first["next"], "--json").json
    assert {page["conversations"][0]["conversation_id"] for page in (first, second)} == set(talks)
