"""ls, show and render."""

from __future__ import annotations

import json
from hashlib import sha256
from pathlib import Path

import pytest

from tests.cli.bodies import ANSWER, SESSION
from tests.cli.runs import Cli
from tests.factories import a_picture, noise
from threadkeep import Session, Store
from threadkeep.blobs import FolderBlobs


def test_ls_is_tab_separated_in_a_pipe(cli: Cli, stored: str) -> None:
    result = cli("ls").rows
    assert [row["id"] for row in result] == [stored]
    assert {name: result[0][name] for name in ("status", "user", "model", "title", "labels")} == {
        "status": "active",
        "user": "ada",
        "model": "gpt-5.4",
        "title": "Capitals",
        "labels": "app=quiz",
    }


def test_ls_as_json(cli: Cli, stored: str) -> None:
    result = cli("ls", "--json").json
    assert result["next"] is None
    assert [one["id"] for one in result["conversations"]] == [stored]
    assert result["conversations"][0]["labels"] == {"app": "quiz"}


def test_options_may_stand_before_the_command(cli: Cli, stored: str) -> None:
    other = Cli("sqlite:///not-this-one.db")
    assert other("--url", cli.url, "--json", "ls").json == other("ls", "--url", cli.url, "--json").json
    assert other("--url", cli.url, "ls").rows[0]["id"] == stored


@pytest.mark.parametrize(
    ("args", "count"),
    [
        (["--user", "ada"], 1),
        (["--user", "bob"], 0),
        (["--label", "app=quiz"], 1),
        (["--label", "app=quiz", "--label", "app=other"], 0),
        (["--status", "archived"], 0),
        (["--status", "all"], 1),
    ],
)
def test_ls_filters(cli: Cli, stored: str, args: list[str], count: int) -> None:
    assert len(cli("ls", *args).rows) == count


def test_ls_goes_on_after_a_page(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        newer = store.save(Session.from_dict(SESSION)).id
    first = cli("ls", "--limit", "1")
    after = first.err.split()[-1]
    assert [row["id"] for row in first.rows] == [newer]
    assert [row["id"] for row in cli("ls", "--limit", "1", "--after", after).rows] == [stored]


def test_an_empty_list_says_so_beside_the_output(cli: Cli) -> None:
    result = cli("ls")
    assert result.out.splitlines() == ["id\tlast_activity\tstatus\tuser\tmodel\ttitle\tlabels"]
    assert "no such conversations" in result.err


def test_cells_hold_no_tabs_and_no_line_breaks(cli: Cli) -> None:
    with cli.store() as store:
        store.create_conversation(title="a\tb\nc\x1b[31m")
    assert cli("ls").rows[0]["title"] == "a\\tb\\nc\\x1b[31m"


def test_a_tenant_sees_only_its_own(cli: Cli, stored: str) -> None:
    assert cli("--tenant", "default", "ls").rows[0]["id"] == stored
    assert "There is no tenant 'acme'" in cli("ls", "--tenant", "acme", code=3).err


def test_show_is_a_readable_transcript(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        conversation = store.get_conversation(stored)
        conversation.add_response(ANSWER, "open_responses")
        conversation.add_function_call_output(call_id="call_1", output="48.86, 2.35")
    shown = cli("show", stored).out
    assert shown.startswith(f"{stored}\n  title: Capitals\n")
    assert "instructions: Be brief." in shown
    for part in (
        "#0 user",
        "  What is the capital of France?",
        "#1 assistant",
        "gpt-5.4 · completed · open_responses",
        "  Paris.",
        "#2 call find (call_1)",
        '  {"city":"Paris"}',
        "#3 output (call_1)",
        "  48.86, 2.35",
    ):
        assert part in shown


def test_show_as_json(cli: Cli, stored: str) -> None:
    result = cli("show", stored, "--json").json
    assert result["settings"] == {"model": "gpt-5.4", "instructions": "Be brief."}
    assert [item["item"]["role"] for item in result["items"]] == ["user"]


def test_media_kept_outside_of_the_database_are_named(cli: Cli, stored: str, tmp_path: Path) -> None:
    content = noise(20_000)
    with Store(cli.url, blobs=FolderBlobs(tmp_path)) as store:
        store.get_conversation(stored).user(["What is this?", a_picture(content)])
    assert f"[image: threadkeep-media:{sha256(content).hexdigest()}" in cli("show", stored).out
    assert "Give --blobs with their folder or bucket" in cli("show", stored, "--json", code=2).err


def test_show_another_branch(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.get_conversation(stored).fork(at=-1).user("What is the capital of Spain?")
    assert "Spain" in cli("show", stored, "--branch", "1").out
    assert "Spain" not in cli("show", stored).out
    assert "branch" in cli("show", stored, "--branch", "7", code=3).err


def test_branches_are_listed(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        conversation = store.get_conversation(stored)
        conversation.assistant("Paris.")
        conversation.fork(at=0)
    rows = cli("branches", stored).rows
    assert [(row["number"], row["parent"], row["fork_position"], row["head"], row["active"]) for row in rows] == [
        ("0", "", "", "1", "yes"),
        ("1", "0", "0", "0", "no"),
    ]
    result = cli("branches", stored, "--json").json
    assert result["id"] == stored
    assert [(one["number"], one["head"], one["active"]) for one in result["branches"]] == [(0, 1, True), (1, 0, False)]
    cli("branches", "conv_1", code=3)


@pytest.mark.parametrize(
    ("args", "count"),
    [
        ([], 1),
        (["--user", "ada"], 1),
        (["--user", "bob"], 0),
        (["--label", "app=quiz"], 1),
        (["--label", "app=other"], 0),
        (["--status", "archived"], 0),
    ],
)
def test_ls_finds_the_id_of_the_application(cli: Cli, stored: str, args: list[str], count: int) -> None:
    with cli.store() as store:
        store.get_conversation(stored).update(external_id="order 7")
    assert [row["id"] for row in cli("ls", "--external-id", "order 7", *args).rows] == [stored] * count
    assert len(cli("ls", "--external-id", "order 7", *args, "--json").json["conversations"]) == count
    assert "no such conversations" in cli("ls", "--external-id", "order 8", *args).err


def test_branches_are_drawn_as_a_tree(cli: Cli, stored: str) -> None:
    """Each below the branch with the item that it begins behind, whichever branch it was forked from."""
    with cli.store() as store:
        conversation = store.get_conversation(stored)
        conversation.assistant("Paris.")
        conversation.user("And of\nSpain?")
        fork = conversation.fork(at=1)
        fork.add_item({"type": "reasoning", "summary": []})
        fork.user("And of Italy?")
        fork.fork(at=1).user("And of Malta? " + "So small. " * 9)
        fork.fork(at=3).assistant("Rome.")
        fork.edit(0, "Who are you?").fork()
    assert cli("tree", stored).out.splitlines() == [
        "0: #0 to #2  What is the capital of France?",
        "|-- 1 after #1: #3 to #4  And of Italy?",
        "|   `-- 3 after #3: #6 to #6  Rome.",
        "|-- 2 after #1: #5 to #5  And of Malta? So small. So small. So small. So small. So sma…",
        "`-- 4 *: #7 to #7  Who are you?",
        "    `-- 5 after #7: no items",
    ]
    found = cli("tree", stored, "--json").json
    assert found["id"] == stored
    assert [(one["number"], one["parent"], one["from_position"]) for one in found["branches"]] == [
        (0, None, 0), (1, 0, 3), (3, 1, 6), (2, 1, 5), (4, 1, 7), (5, 4, None),
    ]  # fmt: skip
    assert found["branches"][1]["text"] == "And of Italy?"
    cli("tree", "conv_1", code=3)


def test_a_long_line_of_edits_is_a_flat_tree(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        conversation = store.get_conversation(stored)
        for number in range(30):
            conversation = conversation.edit(conversation.head, f"no. {number}")
    assert len([line for line in cli("tree", stored).out.splitlines() if line[:3] in {"|--", "`--"}]) == 30


@pytest.mark.parametrize(
    "command", [["show"], ["branches"], ["tree"], ["render", "-f", "gemini"], ["append", "-", "-f", "gemini"]]
)
def test_a_conversation_of_another_user_is_not_found(cli: Cli, stored: str, command: list[str]) -> None:
    name, *rest = command
    answer = '{"candidates": [{"content": {"role": "model", "parts": [{"text": "Paris."}]}}]}'
    cli(name, stored, *rest, "--user", "ada", input=answer)
    assert "There is no conversation" in cli(name, stored, *rest, "--user", "bob", input=answer, code=3).err


def test_show_reads_long_conversations_page_by_page(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.get_conversation(stored).add_items({"role": "user", "content": f"no. {number}"} for number in range(1100))
    assert len(cli("show", stored, "--json").json["items"]) == 1101


def test_terminal_commands_in_stored_text_are_harmless(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.get_conversation(stored).user("\x1b]0;owned\x07 \ud800 é")
    assert "\\x1b]0;owned\\x07 \\ud800 é" in cli.spawn("show", stored).out
    assert "\x1b]0;" not in cli.on_terminal("show", stored)


def test_render_is_the_payload_on_one_line(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        payload = store.get_conversation(stored).request_payload("chat_completion")
    result = cli("render", stored, "--format", "chat_completion")
    assert result.json == payload
    assert len(result.out.splitlines()) == 1
    assert result.err == ""


def test_render_prints_the_very_bytes_of_the_body(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        body = store.get_conversation(stored).request_body("open_responses")
    assert cli("render", stored, "-f", "open_responses", "--body").out.encode() == body


def test_render_up_to_a_position(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.get_conversation(stored).user("And of Spain?")
    assert "Spain" in cli("render", stored, "-f", "open_responses").out
    assert "Spain" not in cli("render", stored, "-f", "open_responses", "--upto", "0").out


def test_render_reports_beside_the_output(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.get_conversation(stored).add_response(ANSWER, "open_responses")
    result = cli("render", stored, "-f", "open_responses")
    assert result.err.startswith("repair: ")
    report = cli("render", stored, "-f", "open_responses", "--json")
    assert report.err == ""
    assert report.json["payload"] == result.json
    assert [repair["position"] for repair in report.json["repairs"]] == [2]


def test_render_is_indented_on_a_terminal(cli: Cli, stored: str) -> None:
    shown = cli.on_terminal("render", stored, "-f", "open_responses")
    assert shown.startswith('{\n  "model"')
    assert json.loads(shown) == cli("render", stored, "-f", "open_responses").json


def test_a_terminal_gets_tables_and_colours(cli: Cli, stored: str) -> None:
    assert "───" in cli.on_terminal("ls")
    assert "\x1b[" in cli.on_terminal("show", stored)
    assert "\x1b[" not in cli.spawn("show", stored).out
