"""How runs end: exit codes, broken pipes, closed streams."""

from __future__ import annotations

import os
import shlex
import signal
import subprocess
from pathlib import Path

import pytest
from sqlalchemy.exc import OperationalError

from tests.cli.bodies import SESSION
from tests.cli.runs import PROGRAM, Cli
from threadkeep import Session, __version__, errors
from threadkeep.cli.failures import EXIT_CODES, exit_code

TREE = [
    (errors.InvalidOption("x"), 2),
    (errors.AmbiguousId("x", ["y"]), 2),
    (errors.InvalidItem("x"), 2),
    (errors.UnknownFormat("x", []), 2),
    (errors.NotFound("x"), 3),
    (errors.ToolNotFound("x"), 3),
    (errors.HeadConflict(1, 2), 4),
    (errors.IdempotencyConflict("x"), 4),
    (errors.ResponseInProgress(1, 0), 4),
    (errors.LeaseLost(1), 4),
    (errors.InvalidToolArguments("x", []), 2),
    (errors.StateConflict("x", 0, 1), 4),
    (errors.CannotParse("x"), 5),
    (errors.StreamChunk("x", "y"), 5),
    (errors.ProviderError("x"), 5),
    (errors.CannotRender("x"), 6),
    (errors.SchemaMissing("x"), 7),
    (errors.SchemaOutOfDate("x", "y"), 7),
    (errors.SchemaTooNew("x", "y"), 7),
    (errors.SchemaUnknown("x", "y"), 7),
    (errors.DatabaseUnavailable("x", "y"), 1),
    (errors.TooLarge("x"), 8),
    (errors.DamagedRow("items", "position 3", "x"), 1),
    (errors.PoolExhausted(), 1),
    (errors.UnitOfWorkEnded(), 1),
    (errors.UnitOfWorkRolledBack(), 4),
    (errors.CursorExpired(), 1),
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


def test_losses_end_with_their_code(cli: Cli, stored: str) -> None:
    with cli.store() as store:
        store.get_conversation(stored).add_item({"type": "reasoning", "summary": [], "encrypted_content": "x"})
    cli("render", stored, "-f", "chat_completion")
    result = cli("render", stored, "-f", "chat_completion", "--strict", code=6)
    assert result.out == ""
    assert "not exact" in result.err


def test_nothing_to_send_cannot_be_rendered(cli: Cli) -> None:
    with cli.store() as store:
        stored = store.save(Session()).id
    assert cli("render", stored, "-f", "chat_completion", code=6).err.startswith("threadkeep: ")


@pytest.mark.parametrize(
    ("args", "code", "message"),
    [
        ([], 2, "Usage: threadkeep"),
        (["nope"], 2, "No such command 'nope'. Try: threadkeep --help"),
        (["lss"], 2, "No such command 'lss'. Did you mean 'ls'? Try: threadkeep --help"),
        (["db"], 2, "Missing command"),
        (["render"], 2, "Missing argument 'ID'. Try: threadkeep render --help"),
        (["render", "x"], 2, "Missing option '--format'"),
        (["ls", "--nope"], 2, "No such option"),
        (["ls", "--status", "odd"], 2, "Invalid value for '--status': 'odd' is not one of"),
        (["ls", "--limit", "x"], 2, "Invalid value for '--limit': Input should be a valid integer. Try: threadkeep ls"),
        (["--url", "postgresql://u:secret@h:abc/db", "ls"], 2, "not a database URL: its port is not a number."),
        (["--url", "postgres://u:secret@h/db", "ls"], 2, "Write postgresql:// instead of postgres://."),
        (["--url", "postgresql+psycopg2://u:secret@h/db", "ls"], 2, "On postgresql, this store uses psycopg: write"),
        (["--url", "postgresql://u:p@secret@h/db", "ls"], 2, "there are two @ in it. Write %40"),
        (["db", "current", "--url", "nothing"], 2, "not a database URL"),
        (["usage", "--tz", "Mars"], 2, "--tz is not the name of a time zone: 'Mars'"),
        (["ls", "--label", "odd"], 2, "--label 'odd' is not of the form KEY=VALUE"),
        (["ls", "--limit", "0"], 2, "--limit must be a number from 1"),
        (["ls", "--after", "odd"], 2, "not the `next` of a page"),
        (["show", "conv_1"], 3, "There is no conversation"),
        (["show", f"conv_{'0' * 32}"], 3, "There is no conversation"),
    ],
)
def test_wrong_commands_end_in_one_line(cli: Cli, args: list[str], code: int, message: str) -> None:
    result = cli(*args, code=code)
    assert message in result.err
    assert "secret" not in result.err
    assert result.out == ""
    assert not args or len(result.err.splitlines()) == 1


def test_an_unknown_format_names_the_known_ones(cli: Cli, stored: str) -> None:
    assert "open_responses" in cli("render", stored, "-f", "nope", code=2).err


def test_a_process_prints_no_traceback(cli: Cli) -> None:
    result = cli.spawn("show", "conv_1", code=3)
    assert result.err.startswith("threadkeep: ")
    assert "Traceback" not in result.err


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


@pytest.mark.parametrize("command", ["--help", pytest.param("db sql", marks=pytest.mark.slow)])
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
        ("stats <&- >&- 2>&-", 0),
        pytest.param("render {id} -f gemini >&-", 0, marks=pytest.mark.slow),
        pytest.param("show conv_1 2>&-", 3, marks=pytest.mark.slow),
        pytest.param("import - <&-", 0, marks=pytest.mark.slow),
        pytest.param("append {id} - -f gemini <&-", 5, marks=pytest.mark.slow),
    ],
)
def test_streams_may_be_closed(cli: Cli, stored: str, command: str, code: int) -> None:
    line = shlex.join(PROGRAM) + " " + command.format(id=stored)
    done = subprocess.run(["/bin/sh", "-c", line], capture_output=True, check=False, env=cli.environment())
    assert done.returncode == code
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize(
    "command",
    ["show {id}", pytest.param("--help", marks=pytest.mark.slow), pytest.param("--version", marks=pytest.mark.slow)],
)
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


@pytest.mark.slow
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


def test_the_version_is_printed(cli: Cli) -> None:
    assert cli("--version").out == f"{__version__}\n"
