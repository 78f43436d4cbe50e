"""What the command line says about errors: in the words of a shell, not of Python."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from sqlalchemy.exc import OperationalError

from tests.cli.bodies import ANSWER, EVENTS, SESSION
from tests.cli.runs import Cli
from tests.databases import Database
from tests.test_errors import LOSSES, REPAIRS
from threadkeep import Session, errors
from threadkeep.cli import app
from threadkeep.cli.failures import ADVICE, CALLS, OPTIONS, error_message, in_shell_words
from threadkeep.errors import ThreadkeepError

CODE = re.compile(r"\w\(|\w=([\"'.]|False|True)|\w=(?!\w)|\w_\w+ (is|must)")  # calls, keyword arguments, Python names

# an error -> what follows its message
ADVISED: list[tuple[ThreadkeepError, str]] = [
    (ThreadkeepError("It failed."), ""),
    (errors.NotFound("There is no tenant 'a'.", hint="Call create_tenant('a')."), CALLS["create_tenant("]),
    (errors.InvalidOption("There is no option 'x'.", hint="Did you mean 'y'?"), "Did you mean 'y'?"),
    (errors.InvalidItem("It is a list.", hint="Pass json.dumps(value)."), ""),
    (errors.TooLarge("The row has 9 bytes.", hint="Store less."), "Store less."),
    (
        errors.DamagedRow("items", "position 3", "no JSON"),
        "Something other than threadkeep has changed it; restore it from a backup.",
    ),
    (errors.AmbiguousId("conv_1", ["conv_1a", "conv_1b"]), "Give more of it."),
    (errors.InvalidToolArguments("f", [("a", "x")]), ""),
    (errors.StateConflict("run", 2, 3), ""),
    (errors.CursorExpired(), ADVICE[errors.CursorExpired]),
    (errors.PoolExhausted(), "Use fewer threads or tasks at once, or pass an engine with a larger pool_size."),
    (errors.UnitOfWorkEnded(), "Open the conversation again, from the store or in another unit of work."),
    (errors.UnitOfWorkRolledBack(), ""),
    (errors.FormatError("It failed."), ""),
    (errors.UnknownFormat("x", ["a", "b"]), "Known formats: a, b."),
    (errors.CannotRender("It has no model.", hint="Set it: conversation.update(model=...)."), CALLS["update(model="]),
    (errors.LossError("gemini", LOSSES, REPAIRS), ADVICE[errors.LossError]),
    (errors.ItemRefused("gemini", [], REPAIRS), ADVICE[errors.LossError]),
    (errors.CannotParse("It is not JSON.", hint="Pass the body as it came."), "Pass the body as it came."),
    (errors.StreamChunk("gemini", "chunk"), "Give a file with all events, and --stream."),
    (errors.Conflict("Another writer was first."), ""),
    (errors.HeadConflict(3, 5), ADVICE[errors.HeadConflict]),
    (errors.IdempotencyConflict("k"), "Use a new key for new content."),
    (errors.ResponseInProgress(7, 1), ADVICE[errors.ResponseInProgress]),
    (errors.LeaseLost(7), ""),
    (errors.ToolNotFound("There is no tool 'find'."), ""),
    (errors.ParsedJsonError("Paris", "bad"), ""),
    (errors.SchemaError("It is locked.", hint="Try again later."), "Try again later."),
    (errors.SchemaMissing("v2"), "Run `threadkeep --url <your URL> db upgrade`."),
    (errors.SchemaOutOfDate("v1", "v2", "sqlite:///a.db"), "Run `threadkeep --url sqlite:///a.db db upgrade`."),
    (errors.SchemaTooNew("v3", "v2"), "Install the newer release of threadkeep that upgraded it."),
    (errors.SchemaUnknown("v0", "v2"), "Export it with the version that made it, and import that into a new database."),
    (
        errors.DatabaseUnavailable("mysql://host/chat", "Unknown database 'chat'"),
        "Create it on the server, or give a URL with another one.",
    ),
    (errors.MissingExtra("parquet", "--parquet"), 'Install it with `pip install "threadkeep[parquet]"`.'),
]


def parameters(command: Any) -> Iterator[str]:
    """The options and arguments of a command and those below it, as they are typed or named in its help."""
    for parameter in command.params:
        yield from parameter.opts
        yield parameter.metavar or ""
    for inner in getattr(command, "commands", {}).values():
        yield from parameters(inner)


def known_command(words: list[str]) -> bool:
    """Whether there is a command of this name."""
    command: Any = typer.main.get_command(app)
    for word in words:
        command = getattr(command, "commands", {}).get(word)
    return command is not None


KNOWN = set(parameters(typer.main.get_command(app)))


@pytest.mark.parametrize(("error", "advice"), ADVISED, ids=[type(error).__name__ for error, _ in ADVISED])
def test_every_error_has_its_message(error: ThreadkeepError, advice: str) -> None:
    argument = f"--{error.argument} " if error.argument else ""
    assert error_message(error) == f"{argument}{error.message} {advice}".rstrip()
    assert not CODE.search(advice)


@pytest.mark.parametrize("empty_database", ["postgresql"], indirect=True)
def test_what_a_server_cannot_do_is_refused_with_advice(empty_database: Database, tmp_path: Path) -> None:
    cli, copy = Cli(empty_database.url), "Make a new database with them, and copy everything with `threadkeep copy`"
    cli("db", "upgrade")
    assert copy in cli("db", "upgrade", "--partitions", "7", code=7).err
    assert copy in cli("db", "upgrade", "--monthly-bodies", "2026-01", code=7).err
    refused = cli("backup", str(tmp_path / "copy.db"), code=2).err
    assert "Use the server's own backup, such as pg_dump or mariadb-dump" in refused


def test_a_provider_error_is_what_the_provider_says() -> None:
    text = "The provider returned an error: busy: Try\nlater."
    assert error_message(errors.ProviderError("Try\nlater.", code="busy")) == text.replace("\n", " ")


def test_no_class_of_errors_was_forgotten() -> None:
    tree = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ThreadkeepError)}
    assert {type(error) for error, _ in ADVISED} == tree - {errors.ProviderError}


@pytest.mark.parametrize(("argument", "option"), OPTIONS.items())
def test_arguments_are_named_as_options(argument: str, option: str) -> None:
    error = errors.InvalidOption("must not be empty.", argument=argument)
    assert error_message(error) == f"{option} must not be empty."
    assert option in {"The tenant's name", "The user's id"} or any(name.startswith(option) for name in KNOWN)


def test_keys_of_a_file_are_not_named_as_options() -> None:
    error = errors.InvalidOption("must be text, not 7.", argument="model")
    assert (error_message(error), in_shell_words(error, {})) == (
        "--model must be text, not 7.",
        "model must be text, not 7.",
    )


@pytest.mark.parametrize(("call", "advice"), CALLS.items())
def test_advice_replaces_a_hint_that_names_a_call(call: str, advice: str) -> None:
    error = errors.NotFound("It is not there.", hint=f"Use conversation.{call}...), or wait().")
    assert error_message(error) == f"It is not there. {advice}"


@pytest.mark.parametrize("advice", sorted({*ADVICE.values(), *CALLS.values()}))
def test_advice_names_commands_and_options_that_there_are(advice: str) -> None:
    names = re.findall(r"`threadkeep ([a-z -]+?)(?: --[a-z-]+)?`", advice)
    assert all(known_command(name.split()) for name in names)
    assert set(re.findall(r"--[a-z-]+", advice)) <= KNOWN
    assert names or "--" in advice


@pytest.mark.parametrize(
    ("hint", "shown"),
    [
        ("Did you mean 'gpt-5.4'?", True),
        ("Raise max_allowed_packet, or store less at once (docs/production.md).", True),
        ("Call json.dumps(value).", False),
        ("Pass output=, or a list.", False),
        ("Pass search=False.", False),
    ],
)
def test_hints_are_shown_that_name_no_code(hint: str, *, shown: bool) -> None:
    assert error_message(errors.ThreadkeepError("It failed.", hint=hint)) == f"It failed.{f' {hint}' if shown else ''}"


def test_messages_stand_on_one_line() -> None:
    assert error_message(errors.CannotParse("It is\n  not JSON.", hint="Pass\tit.")) == "It is not JSON. Pass it."


def test_a_database_error_is_what_the_driver_says() -> None:
    error = OperationalError("SELECT secret", {"a": 1}, Exception("no\n such table"))
    assert error_message(error) == "The database says: no such table"
    error.add_note("sqlite:///chat.db")
    assert error_message(error) == "The database says: no such table (sqlite:///chat.db)"


@pytest.mark.parametrize(
    ("said", "advice"),
    [
        ("file is not a database", "Give a URL with the file of a database; if this was one, restore a backup."),
        ("(2003, ([Errno 111] Connection refused)", "Start the server, or give a URL with its host and port."),
        ("failed to resolve host 'x': [Errno -2] Name or service not known", "Give a URL with a host that is known."),
        ("(1045, Access denied for user", "Give a URL with a user and password that the server knows."),
        ('FATAL: database "x" does not exist', "Create it on the server, or give a URL with another one."),
    ],
)
def test_what_drivers_say_comes_with_advice(said: str, advice: str) -> None:
    error = OperationalError("SELECT", {}, Exception(said))
    assert error_message(error) == f"The database says: {said}. {advice}"


def test_errors_of_the_system_are_shown_without_their_numbers() -> None:
    assert error_message(OSError(28, "No space left on device")) == "No space left on device"
    assert error_message(PermissionError(13, "Permission denied", "a.db")) == "Permission denied: a.db"
    assert error_message(OSError("odd")) == "odd"


UNKNOWN = "conv_01a1fdc8f056759fa5c4ad9e8502d54e"
FORMAT = ["-f", "open_responses"]
CREATE = CALLS["create_tenant("]
LIST_BRANCHES = CALLS["branches("]
UPSTREAM = "--upstream must be NAME=FORMAT@URL"
TWICE = ["--upstream", "a=messages@http://x", "--upstream", "a=gemini@http://y"]
ANSWERED = "Known formats: chat_completion, converse, gemini, interactions, messages, open_responses."

# what is typed -> the exit code, how the message begins, and how it ends
COMMAND_LINES: list[tuple[list[str], int, str, str]] = [
    (["ls", "--tenant", "acme"], 3, "There is no tenant 'acme'.", CREATE),
    (["ls", "--tenant", ""], 2, "The tenant's name must be a string", "not ''."),
    (["tenants", "create", ""], 2, "The tenant's name must be a string", "not ''."),
    (["tenants", "create", "default"], 2, "There is a tenant 'default' already.", CALLS["for_tenant("]),
    (["ls", "--user", ""], 2, "The user's id must be a string", "not ''."),
    (["ls", "--limit", "0"], 2, "--limit must be a number from 1 to 1,000", "not 0."),
    (["search", "a", "--limit", "1001"], 2, "--limit must be a number from 1 to 1,000", "not 1001."),
    (["ls", "--after", "x"], 2, "--after is not the `next` of a page", "'x'."),
    (["changes", "--after", "x"], 2, "--after is not a cursor of the change feed", "it starts at the beginning."),
    (["search", "Paris", "--after", "x"], 2, "--after is not the `next` of a page", "'x'."),
    (["stats", "--largest", "0"], 2, "Invalid value for '--largest'", "Try: threadkeep stats --help"),
    (["show", "order-7"], 3, "'order-7' is not the id of a conversation", CALLS["find_conversation("]),
    (["show", "ID", "--branch", "9"], 3, "The conversation conv_", f"has no branch 9. {LIST_BRANCHES}"),
    (["append", "ID", "answer.json", *FORMAT, "--branch", "9"], 3, "The conversation conv_", LIST_BRANCHES),
    (["append", "ID", "answer.json", *FORMAT, "--expected-head", "7"], 4,
     "The branch ends at position 0, not at the expected 7. Read what is new and try again",
     "or give --on-conflict append or --on-conflict branch."),
    (["append", "ID", "answer.json", *FORMAT, "--key", ""], 2, "--key must be a string", "not ''."),
    (["append", "ID", "answer.json", *FORMAT, "--latency-ms", "nan"], 2, "--latency-ms must be a number", "not nan."),
    (["append", "ID", "event.json", *FORMAT], 5, "The body is one event of a stream", "all events, and --stream."),
    (["append", "ID", "nowhere.json", *FORMAT], 2, "Cannot read 'nowhere.json'", "No such file or directory."),
    (["import", "session.json", "--key", "k"], 4, "The idempotency key 'k' was used before", "for new content."),
    (["usage", "--order-by", "colour"], 2, "--order-by must be one of attempts", "not 'colour'."),
    (["usage", "--by", "day,day"], 2, "--by names a column twice", "day, day."),
    (["usage", "--by", "colour"], 2, "--by contains 'colour'", "item_label:NAME, metadata:NAME."),
    (["usage", "--since", "2026-11-01T12:00"], 2, "--since '2026-11-01T12:00' is not a time.", "when these began."),
    (["usage", "--parquet", "nowhere/a.parquet"], 1, "Cannot write 'nowhere/a.parquet'", "No such file or directory."),
    (["usage", "--by", "day", "--plot", "nowhere/a.svg"], 1, "Cannot write 'nowhere/a.svg'", "file or directory."),
    (["render", "ID", "-f", "messages", "--strict"], 6, "Rendering for messages is not", ADVICE[errors.LossError]),
    (["render", "ID", "-f", "messages", "--dialect", "klingon"], 2, "--dialect must be one of", "not 'klingon'."),
    (["search", "…"], 2, "TEXT has no word to search for", "'…'."),
    (["demo", "--keep", "nowhere/demo.db"], 2, "There is no folder for 'nowhere/demo.db'.", "one that exists."),
    (["copy", "--to", "nonsense"], 2, "--to is not a database URL", ""),
    (["serve", "--upstream", "a=messages@ftp://x"], 2, f"{UPSTREAM}, whose URL must be", "not 'ftp://x'."),
    (["serve", "--upstream", "a=b@http://x"], 2, f"{UPSTREAM}, whose FORMAT must be the name of a format", ANSWERED),
    (["serve", "--upstream", "a=responses@http://x"], 2, UPSTREAM, f"Did you mean 'open_responses'? {ANSWERED}"),
    (["record", "--upstream", "a=ui_messages@http://x"], 2, f"{UPSTREAM}, whose FORMAT is ui_messages, in", ANSWERED),
    (["record", "--upstream", "a=gemini@127.0.0.1:80"], 2, f"{UPSTREAM}, whose URL must be", "not '127.0.0.1:80'."),
    (["serve", *TWICE], 2, "--upstream names a provider twice.", "."),
    (["record", *TWICE], 2, "--upstream names a provider twice.", "."),
    (["record", "--upstream", "nonsense"], 2, f"{UPSTREAM}, such as", "."),
    (["serve", "--spool", "calls"], 2, "--spool needs an --upstream whose calls are recorded.", "."),
    (["serve", "--mask", "bogus"], 2, "--mask cannot be bogus.", "."),
    (["show", UNKNOWN], 3, f"There is no conversation '{UNKNOWN}'.", "tenant and user."),
]  # fmt: skip


@pytest.mark.parametrize(
    ("args", "code", "start", "end"), COMMAND_LINES, ids=[" ".join(args) for args, *_ in COMMAND_LINES]
)
def test_messages_are_in_the_words_of_a_shell(
    cli: Cli, conversations: dict[str, str], args: list[str], code: int, start: str, end: str
) -> None:
    result = cli(*(conversations.get(arg, arg) for arg in args), code=code)
    assert result.err.startswith(f"threadkeep: {start}")
    assert result.err.endswith(f"{end}\n")
    assert len(result.err.splitlines()) == 1
    assert not CODE.search(result.err)
    assert result.out == ""


@pytest.mark.parametrize("url", ["sqlite://", "sqlite:///:memory:", "sqlite:///file:x?mode=memory&uri=true"])
@pytest.mark.parametrize("command", [["ls"], ["usage"], ["export"], ["db", "check"], ["tenants", "ls"]], ids=" ".join)
def test_a_database_in_memory_is_not_shown_as_an_empty_one(cli: Cli, url: str, command: list[str]) -> None:
    result = cli("--url", url, *command, code=2)
    assert result.out == ""
    assert "which is empty when a command begins. Give the URL of a file, such as sqlite:///chat.db." in result.err
    assert result.err.startswith("threadkeep: --url sqlite:")


def test_a_conversation_without_a_model_cannot_be_rendered(cli: Cli, conversations: dict[str, str]) -> None:
    with cli.store() as store, pytest.raises(errors.CannotRender) as raised:
        store.get_conversation(conversations["MODELLESS"]).render("messages")
    result = cli("render", conversations["MODELLESS"], "-f", "messages", code=6)
    assert result.err.startswith("threadkeep: The request has no model.")
    assert raised.value.hint is None or result.err.endswith(f"{CALLS['update(model=']}\n")


@pytest.fixture
def conversations(cli: Cli, stored: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    """The ids of a conversation and of one without a model; there are files of a session, an answer and an event."""
    monkeypatch.chdir(tmp_path)
    for name, body in {"session.json": SESSION, "answer.json": ANSWER, "event.json": EVENTS[0]}.items():
        tmp_path.joinpath(name).write_text(json.dumps(body))
    with cli.store() as store:
        store.get_conversation(stored).update(presence_penalty=1.0)
        store.save_many([Session(input="other")], idempotency_key="k.0")
        return {"ID": stored, "MODELLESS": store.create_conversation(input="Hello").id}
