"""How runs end: exit codes, error lines, broken pipes."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from tests.cli.bodies import ANSWER, EVENTS, SESSION
from tests.cli.runs import PROGRAM, Cli
from threadkeep import Session, __version__, errors
from threadkeep.cli.exits import EXIT_CODES, error_text, exit_code

TREE = [
    (errors.InvalidOption("x"), 2),
    (errors.InvalidItem("x"), 2),
    (errors.UnknownFormat("x", []), 2),
    (errors.NotFound("x"), 3),
    (errors.ToolNotFound("x"), 3),
    (errors.HeadConflict(1, 2), 4),
    (errors.IdempotencyConflict("x"), 4),
    (errors.ResponseInProgress(1, 0), 4),
    (errors.LeaseLost(1), 4),
    (errors.CannotParse("x"), 5),
    (errors.StreamChunk("x", "y"), 5),
    (errors.ProviderError("x"), 5),
    (errors.CannotRender("x"), 6),
    (errors.SchemaMissing("x"), 7),
    (errors.SchemaOutOfDate("x", "y"), 7),
    (errors.SchemaTooNew("x", "y"), 7),
    (errors.TooLarge("x"), 8),
    (errors.ParsedJsonError("x", "y"), 1),
    (errors.MissingExtra("x", "y"), 1),
    (OperationalError("SELECT 1", {}, Exception("x")), 1),
    (BrokenPipeError(), 141),
    (KeyboardInterrupt(), 130),
]


@pytest.mark.parametrize(("error", "code"), TREE, ids=lambda value: type(value).__name__)
def test_every_error_has_its_exit_code(error: BaseException, code: int) -> None:
    assert exit_code(error) == code


def test_no_class_of_errors_was_forgotten() -> None:
    known = {kind for error, _ in TREE for kind in type(error).__mro__} | {errors.LossError, errors.ItemRefused}
    tree = {
        kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.ThreadkeepError)
    }
    assert tree - known == set()
    assert {kind for kind in EXIT_CODES if issubclass(kind, errors.ThreadkeepError)} <= tree


def test_a_database_error_is_what_the_driver_says() -> None:
    error = OperationalError("SELECT secret", {"a": 1}, Exception("no\n such table"))
    assert error_text(error) == "The database says: no such table"
    error.add_note("sqlite:///chat.db")
    assert error_text(error) == "The database says: no such table (sqlite:///chat.db)"


def test_errors_of_the_system_are_told_without_their_numbers() -> None:
    assert error_text(OSError(28, "No space left on device")) == "No space left on device"
    assert error_text(PermissionError(13, "Permission denied", "a.db")) == "Permission denied: a.db"
    assert error_text(OSError("odd")) == "odd"


UNKNOWN = "conv_01a1fdc8f056759fa5c4ad9e8502d54e"

# what is typed -> what it says, and what it must not say
WORDS: list[tuple[list[str], int, str]] = [
    (["ls", "--tenant", "acme"], 3, "There is no tenant 'acme'. `threadkeep tenants create` makes one"),
    (["ls", "--tenant", ""], 2, "The tenant's name must be a text"),
    (["tenants", "create", "default"], 2, "There is a tenant 'default' already. --tenant opens it."),
    (["ls", "--user", ""], 2, "The user's id must be a text"),
    (["ls", "--limit", "0"], 2, "--limit is a number from 1 to 1000, not 0."),
    (["search", "a", "--limit", "1001"], 2, "--limit is a number from 1 to 1000, not 1001."),
    (["ls", "--after", "x"], 2, "--after 'x' is not the `next` of a page."),
    (["search", "Paris", "--after", "x"], 2, "--after 'x' is not the `next` of a page."),
    (["stats", "--largest", "0"], 2, "Invalid value for '--largest'"),
    (["show", "order-7"], 3, "For an id of your own use `threadkeep ls --external-id`."),
    (["show", "ID", "--branch", "9"], 3, "has no branch 9. `threadkeep branches` lists them."),
    (["append", "ID", "answer.json", "-f", "open_responses", "--branch", "9"], 3, "`threadkeep branches` lists them."),
    (
        ["append", "ID", "answer.json", "-f", "open_responses", "--expected-head", "7"],
        4,
        "try again, or give --on-conflict append or --on-conflict branch.",
    ),
    (["append", "ID", "answer.json", "-f", "open_responses", "--key", ""], 2, "--key must be a text"),
    (["append", "ID", "answer.json", "-f", "open_responses", "--latency-ms", "nan"], 2, "--latency-ms"),
    (["append", "ID", "event.json", "-f", "open_responses"], 5, "Give all events, with --stream."),
    (["append", "ID", "nowhere.json", "-f", "open_responses"], 2, "Cannot read 'nowhere.json': No such file"),
    (["import", "session.json", "--key", "k"], 4, "The idempotency key 'k' was used before"),
    (["usage", "--order-by", "colour"], 2, "--order-by is one of"),
    (["usage", "--by", "day,day"], 2, "--by names a column twice"),
    (["usage", "--parquet", "nowhere/a.parquet"], 1, "Cannot write 'nowhere/a.parquet': No such file or directory."),
    (
        ["usage", "--by", "day", "--plot", "nowhere/a.svg"],
        1,
        "Cannot write 'nowhere/a.svg': No such file or directory.",
    ),
    (
        ["render", "ID", "-f", "messages", "--strict"],
        6,
        "Without --strict it is rendered; the losses are reported there.",
    ),
    (["render", "MODELLESS", "-f", "messages"], 6, 'Import it with one ("model" in the file, or --model)'),
    (["demo", "--keep", "nowhere/demo.db"], 2, "There is no folder for 'nowhere/demo.db'."),
    (["show", UNKNOWN], 3, f"There is no conversation '{UNKNOWN}' here."),
]


@pytest.mark.parametrize(("args", "code", "message"), WORDS, ids=[" ".join(args) for args, _, _ in WORDS])
def test_messages_are_in_the_words_of_the_command_line(
    cli: Cli, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, args: list[str], code: int, message: str
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, body in {"session.json": SESSION, "answer.json": ANSWER, "event.json": EVENTS[0]}.items():
        tmp_path.joinpath(name).write_text(json.dumps(body))
    with cli.store() as store:
        store.get_conversation(stored).update(presence_penalty=1.0)
        other = store.create_conversation(input="Hello").id
        store.save_many([Session(input="other")], idempotency_key="k.0")
    found = cli(*({"ID": stored, "MODELLESS": other}.get(arg, arg) for arg in args), code=code)
    assert message in found.err
    assert found.err.startswith("threadkeep: ")
    assert len(found.err.splitlines()) == 1
    assert not re.search(r"\w\(|\w=[\"'.FT]|\w_\w+ (is|must)", found.err)
    assert found.out == ""


def test_losses_end_with_their_code(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.get_conversation(stored).add_item({"type": "reasoning", "summary": [], "encrypted_content": "x"})
    cli("render", stored, "-f", "chat_completion")
    found = cli("render", stored, "-f", "chat_completion", "--strict", code=6)
    assert found.out == ""
    assert "not exact" in found.err


def test_nothing_to_send_cannot_be_rendered(cli: Cli) -> None:
    with cli.store() as store:
        stored = store.save(Session()).id
    assert cli("render", stored, "-f", "chat_completion", code=6).err.startswith("threadkeep: ")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ([], 2, "Usage: threadkeep"),
        (["nope"], 2, "No such command 'nope'"),
        (["db"], 2, "Missing command"),
        (["render"], 2, "Missing argument 'ID'. Try: threadkeep render --help"),
        (["render", "x"], 2, "Missing option '--format'"),
        (["ls", "--nope"], 2, "No such option"),
        (["ls", "--status", "odd"], 2, "Invalid value for '--status': 'odd' is not one of"),
        (["ls", "--limit", "x"], 2, "Invalid value for '--limit': Input should be a valid integer. Try: threadkeep ls"),
        (["--url", "postgresql://u:secret@h:abc/db", "ls"], 2, "not a database URL: its port is no number."),
        (["--url", "postgres://u:secret@h/db", "ls"], 2, "Write postgresql:// instead of postgres://."),
        (["--url", "postgresql+psycopg2://u:secret@h/db", "ls"], 2, "A Store on postgresql uses psycopg: write"),
        (["--url", "postgresql://u:p@secret@h/db", "ls"], 2, "there are two @ in it. Write %40"),
        (["db", "current", "--url", "nothing"], 2, "not a database URL"),
        (["usage", "--tz", "Mars"], 2, "There is no time zone 'Mars'"),
        (["ls", "--label", "odd"], 2, "--label 'odd' is not of the form KEY=VALUE"),
        (["ls", "--limit", "0"], 2, "limit is a number from 1"),
        (["ls", "--after", "odd"], 2, "not the `next` of a page"),
        (["show", "conv_1"], 3, "not the id of a conversation"),
        (["show", f"conv_{'0' * 32}"], 3, "There is no conversation"),
    ],
)
def test_wrong_commands_end_in_one_line(cli: Cli, args: list[str], code: int, message: str) -> None:
    found = cli(*args, code=code)
    assert message in found.err
    assert "secret" not in found.err
    assert found.out == ""
    assert not args or len(found.err.splitlines()) == 1


def test_an_unknown_format_names_the_known_ones(cli: Cli, stored: str) -> None:
    assert "open_responses" in cli("render", stored, "-f", "nope", code=2).err


def test_a_process_prints_no_traceback(cli: Cli) -> None:
    found = cli.spawn("show", "conv_1", code=3)
    assert found.err.startswith("threadkeep: ")
    assert "Traceback" not in found.err


def test_a_broken_pipe_ends_quietly(cli: Cli) -> None:
    with cli.store() as store:
        stored = store.save(Session(model="m", input=[{"role": "user", "content": "x" * 1000}] * 300)).id
    with subprocess.Popen(
        [*PROGRAM, "show", stored], stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=cli.environment()
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(10)
        process.stdout.close()
        assert process.wait(30) == 128 + signal.SIGPIPE
        assert process.stderr.read() == b""


@pytest.mark.parametrize("command", ["--help", "render --help", "db sql"])
def test_a_pipe_may_be_closed_before_anything_is_printed(cli: Cli, command: str) -> None:
    ours, theirs = os.pipe()
    os.close(ours)
    done = subprocess.run(
        [*PROGRAM, *command.split()], stdout=theirs, stderr=subprocess.PIPE, check=False, env=cli.environment()
    )
    os.close(theirs)
    assert (done.returncode, done.stderr) == (128 + signal.SIGPIPE, b"")


@pytest.mark.parametrize(
    ("command", "code"),
    [
        ("ls >&-", 0),
        ("render {id} -f gemini >&-", 0),
        ("show conv_1 2>&-", 3),
        ("import - <&-", 0),
        ("append {id} - -f gemini <&-", 5),
        ("stats <&- >&- 2>&-", 0),
    ],
)
def test_streams_may_be_closed(cli: Cli, stored: str, command: str, code: int) -> None:
    line = shlex.join(PROGRAM) + " " + command.format(id=stored)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=False, env=cli.environment())
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("command", ["show {id}", "--help", "ls --help", "--version"])
def test_a_full_disk_is_an_error(cli: Cli, stored: str, command: str) -> None:
    full = Path("/dev/full")
    if not full.exists():
        pytest.skip("there is no /dev/full")
    with full.open("wb") as stream:
        done = subprocess.run(
            [*PROGRAM, *command.format(id=stored).split()],
            stdout=stream,
            stderr=subprocess.PIPE,
            check=False,
            env=cli.environment(),
        )
    assert done.returncode == 1
    assert done.stderr.startswith(b"threadkeep: ")
    assert b"Traceback" not in done.stderr


def test_output_needs_no_utf8_terminal(cli: Cli) -> None:
    with cli.store() as store:
        stored = store.save(Session.from_dict({**SESSION, "input": "naïve 🧵"})).id
    environment = {**cli.environment(), "PYTHONIOENCODING": "latin-1"}
    shown = subprocess.run([*PROGRAM, "show", stored], check=True, capture_output=True, env=environment).stdout
    assert b"na\xefve \\U0001f9f5" in shown
    rendered = subprocess.run(
        [*PROGRAM, "render", stored, "-f", "open_responses"], check=True, capture_output=True, env=environment
    ).stdout
    assert "naïve 🧵" in rendered.decode()


@pytest.mark.parametrize("command", ["--version", "--help", "ls --help", "ls --nope"])
def test_what_needs_no_database_is_quick(cli: Cli, command: str) -> None:
    program = [PROGRAM[0], "-X", "importtime", *PROGRAM[1:], *command.split()]
    found = subprocess.run(program, capture_output=True, text=True, check=False, env=cli.environment())
    assert "threadkeep.cli" in found.stderr
    assert "sqlalchemy" not in found.stderr


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version").out == f"{__version__}\n"
