"""Texts that would obey nobody but their author: whatever is stored, a terminal and a spreadsheet only show it."""

from __future__ import annotations

import csv
import json
import re
import sys
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.cli.runs import Cli
from tests.factories import a_call, a_message, an_answer, an_output
from threadkeep.domain.printing import printable, printable_json

STYLES = re.compile(r"\x1b\[[0-9;]*m")  # the command line's own
EMOJI = "👩🏽‍👩‍👧‍👦 ❤️ 🏳️‍🌈 1️⃣ ©️"
WORDS = "می‌خواهم क्‍षत्रिय 葛\U000e0100城市 ᠠ᠋"
NASTY = {
    "escape sequence": "\x1b[31mred",
    "window title": "\x1b]0;owned\x07",
    "C1": "\x9b31m \x90q\x9c \x85",
    "other controls": "\x08\x7f\x0b\x0c",
    "carriage return": "\rowned",
    "bidi": "\u202eevil\u202c \u2066x\u2069 \u200f\u061c",
    "zero width": "a\u200bb\ufeffc\u2060d\xade",
    "joiners where nothing joins": "pass\u200dword \u200d \u200c👩 क\u200d\u200dष",
    "tags": "\U000e0041\U000e007f",
    "selectors": "x\ufe0f 1\ufe0f ❤\ufe0f\ufe0f \U000e0101",
    "fillers": "\u3164\u115f\uffa0\u180e",
    "lines": "\u2028\u2029",
    "annotations": "\ufff9a\ufffab\ufffb",
}
TEXT = f"nasty{''.join(NASTY.values())}"
SHOWN_MARKS = {*"\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"}
INVISIBLE = {*"\u034f\u115f\u1160\u17b4\u17b5\u3164\uffa0"}  # letters that nobody sees


def is_nasty(character: str) -> bool:
    if character in SHOWN_MARKS or character in "\n\t":
        return False
    return character in INVISIBLE or unicodedata.category(character) in {"Cc", "Cf", "Zl", "Zp"}


def check(shown: str) -> None:
    """Nothing nasty is left, apart from the joiners of EMOJI and WORDS."""
    text = STYLES.sub("", shown).replace(EMOJI, "").replace(WORDS, "")
    assert [hex(ord(character)) for character in text if is_nasty(character)] == []
    assert not re.search("[\ufe00-\ufe0e\U000e0100-\U000e01ef]|x\ufe0f|\ufe0f\ufe0f", text)


@pytest.mark.slow
def test_each_character_without_a_shape_is_escaped() -> None:
    for character in map(chr, range(sys.maxunicode + 1)):
        assert (printable(character) != character) >= is_nasty(character), hex(ord(character))
        if printable_json(character) != character:
            assert json.loads(f'"{printable_json(character)}"') == character


@pytest.mark.parametrize("text", NASTY.values(), ids=NASTY)
def test_what_is_escaped_can_be_read(text: str) -> None:
    check(printable(text))
    escaped = re.findall(r"\\x..|\\u....|\\U.{8}", printable(text))
    assert len(escaped) >= 1


@pytest.mark.parametrize("text", [EMOJI, WORDS, "plain ASCII", "Ünïcödé 東京 مرحبا שלום", "a\tb\nc"])
def test_other_texts_stay_as_they_are(text: str) -> None:
    assert printable(text) == text


@given(st.text() | st.text(st.sampled_from(TEXT + EMOJI + WORDS)))
def test_json_keeps_its_value(text: str) -> None:
    written = printable_json(json.dumps(text, ensure_ascii=False))
    assert json.loads(written) == text


@pytest.fixture
def nasty(cli: Cli) -> str:
    """A conversation with such a text wherever there is one."""
    with cli.store() as store:
        conversation = store.create_conversation(
            model=TEXT,
            instructions=f"first\n{TEXT}",
            title=f"{EMOJI} {TEXT} {WORDS}",
            labels={f"label{TEXT}": TEXT},
            user_id=TEXT,
            external_id=TEXT,
        )
        conversation.register_tool(TEXT, description=TEXT)
        conversation.user(f"{EMOJI} question {TEXT}", author_id=TEXT)
        picture = {"type": "input_image", "image_url": f"https://example.org/{TEXT}", "detail": TEXT}
        conversation.add_items(
            [
                a_message(f"question {TEXT}", role=TEXT),
                {"type": "message", "role": "user", "content": [picture, {"type": f"part{TEXT}", TEXT: TEXT}]},
                {"type": "reasoning", "summary": [{"type": "summary_text", "text": TEXT}]},
                a_call(f"call{TEXT}", name=TEXT, arguments=json.dumps({TEXT: TEXT}, ensure_ascii=False)),
                an_output(f"call{TEXT}", output=f"question {TEXT}"),
                {"type": f"other{TEXT}", TEXT: TEXT},
            ],
            known=False,
        )
        conversation.add_response(an_answer(TEXT, model=TEXT), "open_responses", provider=TEXT)
        conversation.record_attempt("gemini", error=TEXT, provider=TEXT, model=TEXT)
        conversation.fork(at=0)
        return conversation.id


COMMANDS = (
    "ls", "show ID", "branches ID", "tree ID", "render ID -f open_responses", "render ID -f messages",
    "search question", "search question --role user", "usage --by model,provider,user_id",
    "usage --by conversation_id,status --csv",
    "usage --by user_id --csv", "tools", "stats",
)  # fmt: skip


@pytest.mark.parametrize(
    "command",
    [pytest.param(one, marks=() if one.split()[0] in {"ls", "show"} else pytest.mark.slow) for one in COMMANDS],
)
def test_no_command_prints_what_a_terminal_obeys(cli: Cli, nasty: str, command: str) -> None:
    args = [nasty if arg == "ID" else arg for arg in command.split()]
    check(cli.on_terminal(*args, COLUMNS="500"))
    plain = cli(*args)
    check(plain.out + plain.err)
    if "--csv" not in args:
        as_json = cli(*args, "--json")
        check(as_json.out)
        assert isinstance(as_json.json, dict)


def test_json_on_a_terminal_and_in_a_pipe_is_what_was_stored(cli: Cli, nasty: str) -> None:
    shown = cli.on_terminal("show", nasty, "--json")
    check(shown)
    assert json.loads(shown) == cli("show", nasty, "--json").json
    assert json.loads(shown)["labels"] == {f"label{TEXT}": TEXT}
    assert json.loads(shown)["items"][0]["item"]["content"][0]["text"] == f"{EMOJI} question {TEXT}"


def test_a_family_stays_together(cli: Cli, nasty: str) -> None:
    for command in (["ls"], ["show", nasty], ["search", "question"], ["show", nasty, "--json"]):
        assert EMOJI in cli(*command).out


@pytest.mark.parametrize(
    ("args", "code"),
    [
        (["show", f"conv_{TEXT}"], 3),
        (["ls", "--tenant", TEXT], 3),
        (["ls", "--since-ever", TEXT], 2),
        (["usage", "--by", TEXT], 2),
        (["usage", "--figure", TEXT], 2),
        (["render", "ID", "-f", TEXT], 2),
        (["import", f"{TEXT}.json"], 2),
        (["append", "ID", "FILE", "-f", "chat_completion"], 5),
    ],
)
def test_errors_do_not_print_it_either(cli: Cli, nasty: str, tmp_path: Path, args: list[str], code: int) -> None:
    path = tmp_path / "answer.json"
    path.write_text(json.dumps({"error": {"message": TEXT, "type": TEXT, "code": TEXT}}))
    args = [{"ID": nasty, "FILE": str(path)}.get(arg, arg) for arg in args]
    failed = cli(*args, code=code)
    check(failed.out + failed.err)


@pytest.mark.parametrize("field", ["role", "name", "title", "user_id"])
def test_a_line_break_does_not_make_another_item(cli: Cli, field: str) -> None:
    forged = "x\n#7 system · 2026-11-22 10:00\nuser: root"
    with cli.store() as store:
        about: dict[str, Any] = {field: forged} if field in {"title", "user_id"} else {}
        conversation = store.create_conversation(model="m", **about)
        item = a_call(name=forged) if field == "name" else a_message(role=forged if field == "role" else "user")
        conversation.add_items([item], known=False)
    lines = cli("show", conversation.id).out.splitlines()
    assert [line for line in lines if line.startswith("#7")] == []
    assert [line for line in lines if re.match(r" {,2}user: root", line)] == []


@pytest.mark.parametrize("start", ["=", "+", "-", "@", "\t", "\r", "\n", "\uff1d", "\uff0b", "\uff0d", "\uff20"])
def test_no_cell_of_csv_is_a_formula(cli: Cli, start: str) -> None:
    formula = f'{start}cmd|"/C calc"!A0'
    with cli.store() as store:
        conversation = store.create_conversation(model="m", user_id="ada")
        conversation.record_attempt("gemini", provider=formula, model=formula)
        conversation.record_attempt("gemini", provider="openai", model="-1")
    titles, *rows = csv.reader(cli("usage", "--by", "provider,model,day", "--csv").out.splitlines(keepends=True))
    cells = {row[titles.index("provider")]: row for row in rows}
    [cell] = cells.keys() - {"openai"}
    assert cell == f"'{printable(formula)}"
    assert cells["openai"][titles.index("model")] == "'-1"
    assert {row[titles.index("attempts")] for row in rows} == {"1"}
    assert all(re.fullmatch(r"\d{4}-\d\d-\d\d", row[titles.index("day")]) for row in rows)
