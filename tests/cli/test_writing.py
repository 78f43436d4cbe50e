"""import and append."""

from __future__ import annotations

import contextlib
import json
import signal
import subprocess
from pathlib import Path

import pytest

from tests.cli.bodies import ANSWER, EVENTS, REFUSED, REQUEST, SESSION
from tests.cli.runs import PROGRAM, Cli

LINE = json.dumps(SESSION)


@pytest.mark.parametrize(
    ("text", "count"),
    [
        (LINE, 1),
        (json.dumps(SESSION, indent=2), 1),
        (f"\ufeff\n{LINE}\n", 1),
        (f"[{LINE}, {LINE}]", 2),
        (json.dumps([SESSION, SESSION], indent=2), 2),
        (f"{LINE}\n\n{LINE}\n{LINE}", 3),
        (f"[{LINE}]\n[{LINE},{LINE}]\n", 3),
        ("", 0),
    ],
)
def test_import_takes_a_session_a_list_and_lines(cli: Cli, tmp_path: Path, text: str, count: int) -> None:
    file = tmp_path / "sessions.json"
    file.write_text(text, encoding="utf-8")
    ids = cli("import", str(file)).out.split()
    assert len(set(ids)) == count
    assert cli("import", "-", "--json", input=text.encode()).json["ids"] != ids or count == 0
    assert len(cli("ls").rows) == 2 * count


def test_imported_conversations_have_an_owner(cli: Cli) -> None:
    (stored,) = cli("import", "-", "--user", "ada", "--label", "from=backup", input=LINE).out.split()
    row = cli("ls", "--user", "ada", "--label", "from=backup").rows[0]
    assert row["id"] == stored
    assert cli("render", stored, "-f", "open_responses").json["instructions"] == "Be brief."


def test_a_repeated_import_with_a_key_makes_no_twins(cli: Cli, tmp_path: Path) -> None:
    """Also a repeated one prints the ids."""
    file = tmp_path / "session.json"
    file.write_text('{"model": "gpt-5.4", "input": "Hello"}')
    runs = [cli("import", str(file), "--key", "backup-1") for _ in range(2)]
    assert [run.code for run in runs] == [0, 0]
    assert runs[0].out == runs[1].out
    assert cli("ls").out.count("conv_") == 1


def test_import_keeps_the_order_of_many(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_text("".join(json.dumps({**SESSION, "input": f"no. {number}"}) + "\n" for number in range(450)))
    ids = cli("import", str(file), "-", input=LINE).out.split()
    with cli.store() as store:
        texts = [
            store.get_conversation(stored).get_item(0).item.to_dict()["content"][0]["text"]
            for stored in (ids[0], ids[449])
        ]
    assert texts == ["no. 0", "no. 449"]
    assert len(ids) == 451


def test_import_takes_requests(cli: Cli) -> None:
    """One, a list, or one on each line, as the files of sessions."""
    line = json.dumps(REQUEST)
    ids = cli("import", "-", "-f", "messages", input=f"{line}\n[{line}]\n").out.split()
    assert len(ids) == 2
    for stored in ids:
        assert cli("render", stored, "-f", "messages").json == REQUEST


def test_import_takes_the_model_of_requests_that_do_not_name_it(cli: Cli) -> None:
    request = {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]}
    (stored,) = cli("import", "-", "-f", "gemini", "--model", "gemini-3", input=json.dumps(request)).out.split()
    assert cli("ls").rows[0]["model"] == "gemini-3"
    assert cli("render", stored, "-f", "gemini").json == request


@pytest.mark.parametrize(
    ("args", "text", "code", "message"),
    [
        (["-f", "messages"], f"{json.dumps(REQUEST)}\n[]\n7", 5, "stdin, line 3: The messages request is 7"),
        (["-f", "nonsense"], "{}", 2, "--format must be the name of a format, not 'nonsense'"),
        (["--model", "m"], "{}", 2, "--model is for requests"),
    ],
)
def test_what_is_not_a_request_is_refused(cli: Cli, args: list[str], text: str, code: int, message: str) -> None:
    result = cli("import", "-", *args, input=text, code=code)
    assert result.err.startswith(f"threadkeep: {message}")
    assert cli("ls").rows == []


@pytest.mark.parametrize(
    ("text", "code", "message"),
    [
        ('{"model":', 5, "stdin, line 1 is not JSON"),
        (f"{LINE}\n{{broken\n", 5, "stdin, line 2 is not JSON"),
        ('{\n"model": 1,\n', 5, "stdin is not JSON"),
        (f'{LINE}\n{{"modle": "x"}}', 2, "stdin, line 2: modle is not an option"),
        (f"[{LINE}, 7]", 2, "stdin, line 1[1]: 7 is not a session. Give a JSON object."),
        ('{"input": [{"type": 5}]}', 2, "stdin, line 1: input[0]"),
        (
            json.dumps(REQUEST),
            2,
            "stdin, line 1: This is a provider's request, not a session. Give its wire format with --format",
        ),
        ('[{"role": "user", "content": "Hi"}]', 2, "stdin, line 1[0]: This is a message, not a session. Put the list"),
        (b"\xff\xfe", 5, "stdin, line 1 is not JSON"),
    ],
)
def test_one_bad_session_and_nothing_is_imported(cli: Cli, text: str | bytes, code: int, message: str) -> None:
    result = cli("import", "-", input=text, code=code)
    assert result.out == ""
    assert result.err.startswith(f"threadkeep: {message}")
    assert cli("ls").rows == []


def test_files_that_cannot_be_read(cli: Cli, tmp_path: Path, stored: str) -> None:
    missing = str(tmp_path / "missing.json")
    for args in (["import", missing], ["import", str(tmp_path)], ["append", stored, missing, "-f", "open_responses"]):
        assert cli(*args, code=2).err.startswith("threadkeep: Cannot read ")


def test_a_long_import_shows_its_progress_on_a_terminal(cli: Cli, tmp_path: Path) -> None:
    file = tmp_path / "many.jsonl"
    file.write_text(f"{LINE}\n" * 300)
    assert "importing" in cli.on_terminal("import", str(file))
    assert cli.spawn("import", str(file)).err == ""


def test_append_adds_an_answer(cli: Cli, stored: str, tmp_path: Path) -> None:
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(ANSWER, indent=1))
    result = cli(
        "append", stored, str(file), "--format", "open_responses", "--provider", "openai",
        "--latency-ms", "812.5", "--first-token-ms", "90",
    )  # fmt: skip
    assert result.rows == [
        {
            "id": stored,
            "status": "completed",
            "model": "gpt-5.4",
            "items": "2",
            "calls": "1",
            "input_tokens": "12",
            "output_tokens": "5",
            "replayed": "no",
        }
    ]
    with cli.store() as store:
        assert store.get_conversation(stored).response_body(0) == file.read_bytes()
    assert cli("usage", "--by", "provider").rows[0]["provider"] == "openai"
    (row,) = cli("usage", "--json").json["usage"]
    assert (row["latency_ms"], row["first_token_ms"]) == (812, 90)


@pytest.mark.parametrize("option", ["--latency-ms", "--first-token-ms"])
def test_append_names_the_option_that_cannot_be_used(cli: Cli, stored: str, tmp_path: Path, option: str) -> None:
    file = tmp_path / "answer.json"
    file.write_text(json.dumps(ANSWER))
    assert (
        f"threadkeep: {option} " in cli("append", stored, str(file), "-f", "open_responses", option, "-1", code=2).err
    )


def test_the_same_key_appends_once(cli: Cli, stored: str) -> None:
    args = ["append", stored, "-", "-f", "open_responses", "--key", "turn-1"]
    first, second = (cli(*args, "--json", input=json.dumps(ANSWER)).json for _ in range(2))
    assert (first["replayed"], second["replayed"]) == (False, True)
    assert first["response"]["output"] == second["response"]["output"]
    assert len(cli("show", stored, "--json").json["items"]) == 3
    assert "used before" in cli(*args, input=json.dumps({**ANSWER, "id": "resp_2"}), code=4).err


def test_a_lost_race_is_a_conflict_or_a_branch(cli: Cli, stored: str) -> None:
    args = ["append", stored, "-", "-f", "open_responses", "--expected-head", "-1"]
    assert "position 0" in cli(*args, input=json.dumps(ANSWER), code=4).err
    cli(*args, "--on-conflict", "branch", input=json.dumps(ANSWER))
    assert len(cli("show", stored, "--json").json["items"]) == 1


def test_an_answer_that_is_an_error_stands_in_the_ledger(cli: Cli, stored: str) -> None:
    result = cli("append", stored, "-", "-f", "open_responses", input=json.dumps(REFUSED), code=5)
    assert result.err == "threadkeep: The provider returned an error: rate_limit_exceeded: Rate limit reached.\n"
    assert [row["status"] for row in cli("usage", "--by", "status").rows] == ["failed"]


@pytest.mark.parametrize("line", ["{}\n", "data: {}\n\n", ": comment\nevent: x\nid: 7\ndata:{}\n\n"])
def test_append_records_a_stream(cli: Cli, stored: str, line: str) -> None:
    """Events as JSON lines, or as they come from the server."""
    text = "".join(line.replace("{}", json.dumps(event)) for event in EVENTS) + "data: [DONE]\n"
    args = ["append", stored, "-", "-f", "open_responses", "--stream", "--key", "turn", "--provider", "openai"]
    row = cli(*args, input=text).rows[0]
    assert (row["status"], row["items"], row["input_tokens"], row["replayed"]) == ("completed", "1", "10", "no")
    assert cli(*args, input=text).rows[0]["replayed"] == "yes"
    assert cli("usage", "--by", "provider").rows[0]["provider"] == "openai"


def test_a_stream_that_breaks_off_is_kept(cli: Cli, stored: str) -> None:
    text = "\n".join(json.dumps(event) for event in EVENTS[:3])
    result = cli("append", stored, "-", "-f", "open_responses", "--stream", "--json", input=text).json
    assert (result["response"]["status"], len(result["response"]["output"])) == ("incomplete", 1)
    result = cli("append", stored, "-", "-f", "open_responses", "--stream", input=f"{text}\n{{broken", code=5)
    assert "not JSON" in result.err
    assert len(cli("show", stored, "--json").json["items"]) == 3


@pytest.mark.parametrize("text", ["", "\n\n", ": a comment\nevent: ping\n"])
def test_a_stream_without_events_fails(cli: Cli, stored: str, text: str) -> None:
    result = cli("append", stored, "-", "-f", "open_responses", "--stream", input=text, code=5)
    assert "There were no events" in result.err
    assert cli("usage", "--by", "status").rows[0]["status"] == "incomplete"
    assert len(cli("show", stored, "--json").json["items"]) == 1


def test_a_whole_answer_is_no_stream(cli: Cli, stored: str) -> None:
    result = cli("append", stored, "-", "-f", "open_responses", "--stream", input=json.dumps(ANSWER))
    assert result.rows[0]["status"] == "incomplete"
    assert "nothing in it was a response in open_responses" in result.err


@pytest.mark.parametrize("line", ["{}", "data: {}"])
def test_events_need_the_option_stream(cli: Cli, stored: str, line: str) -> None:
    text = "\n".join(line.format(json.dumps(event)) for event in EVENTS)
    result = cli("append", stored, "-", "-f", "open_responses", input=text, code=5)
    assert "--stream" in result.err


def test_an_error_in_a_stream_is_reported(cli: Cli, stored: str) -> None:
    error = {"type": "error", "error": {"code": "overloaded", "message": "Try later."}}
    text = "\n".join(json.dumps(event) for event in [*EVENTS[:3], error])
    result = cli("append", stored, "-", "-f", "open_responses", "--stream", input=text, code=5)
    assert result.rows[0]["status"] == "failed"
    assert "overloaded: Try later." in result.err


@pytest.mark.usefixtures("with_interrupts")
def test_an_interrupted_run_ends_without_a_traceback(cli: Cli, stored: str) -> None:
    command = [*PROGRAM, "append", stored, "-", "-f", "open_responses"]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment()
    ) as process:
        assert process.stdin is not None
        assert process.stderr is not None
        process.stdin.write(b" " * 1_000_000)  # more than a pipe holds: when this returns, it is being read
        for _ in range(100):  # a signal just before a blocking read is only seen after the next one
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(5)
                break
        assert process.returncode == 130
        assert process.stderr.read().strip() == b""
