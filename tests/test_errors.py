"""The exceptions: what they say, what they carry, and that they survive being copied and pickled."""

from __future__ import annotations

import copy
import itertools
import pickle
from typing import Any

import pytest

from threadkeep import Loss, Repair, Store, ToolRegistry, errors
from threadkeep.errors import InvalidItem, InvalidOption, InvalidToolArguments, NotFound, ThreadkeepError

LOSSES = [Loss("background", None, "background", "There is no background mode."), Loss("store", None, "store", "No.")]
REPAIRS = [Repair("missing_output", 3, "input[3]", "The call had no output.")]

# an error, its attributes beside message, argument and hint
ERRORS: list[tuple[ThreadkeepError, dict[str, Any]]] = [
    (errors.ThreadkeepError("It failed."), {}),
    (errors.NotFound("There is no tenant 'a'.", hint="Create it with create_tenant('a')."), {}),
    (errors.InvalidOption("must be a number, not 'x'.", argument="limit", hint="Pass limit=50."), {}),
    (errors.AmbiguousId("conv_1", ["conv_1a", "conv_1b"]), {"ids": ["conv_1a", "conv_1b"]}),
    (errors.InvalidItem("is not a list.", argument="output"), {}),
    (errors.DamagedRow("items", "position 3", "no JSON"), {"table": "items", "row": "position 3"}),
    (errors.PoolExhausted(), {}),
    (errors.CursorExpired(), {}),
    (errors.TooLarge("The row is too large."), {}),
    (errors.FormatError("It failed."), {}),
    (errors.UnknownFormat("x", ["gemini", "messages"]), {"name": "x"}),
    (errors.CannotRender("The request has no model.", hint="Set one: conversation.update(model=...)."), {}),
    (errors.LossError("gemini", LOSSES, REPAIRS), {"losses": LOSSES, "repairs": REPAIRS}),
    (errors.ItemRefused("gemini", [], REPAIRS), {"losses": [], "repairs": REPAIRS}),
    (errors.CannotParse("The body is not JSON."), {}),
    (errors.StreamChunk("gemini", "chunk"), {"kind": "chunk"}),
    (
        errors.ProviderError("Busy.", code="overloaded", type="server_error", status=529),
        {"code": "overloaded", "type": "server_error", "status": 529},
    ),
    (errors.ProviderError(None), {"code": None, "type": None, "status": None}),
    (errors.Conflict("Another writer was first."), {}),
    (errors.HeadConflict(3, 5), {"expected": 3, "head": 5}),
    (errors.IdempotencyConflict("turn-1"), {"key": "turn-1"}),
    (errors.ResponseInProgress(7, 1, 2.5), {"number": 7, "branch": 1, "retry_after": 2.5}),
    (errors.LeaseLost(7), {"number": 7}),
    (errors.UnitOfWorkEnded(), {}),
    (errors.UnitOfWorkRolledBack(), {}),
    (errors.InvalidToolArguments("f", [("a", "x")]), {"name": "f", "problems": [("a", "x")]}),
    (errors.StateConflict("run", 2, 3), {"name": "run", "expected": 2, "version": 3}),
    (errors.ToolNotFound("There is no tool 'find'."), {}),
    (errors.ParsedJsonError("Paris", "line 1"), {"text": "Paris"}),
    (errors.ParsedJsonError(None, "line 1"), {"text": None}),
    (errors.SchemaError("Another upgrade holds the lock."), {}),
    (errors.SchemaMissing("v2"), {"found": None, "wanted": "v2"}),
    (errors.SchemaOutOfDate("v1", "v2"), {"found": "v1", "wanted": "v2"}),
    (errors.SchemaTooNew("v3", "v2"), {"found": "v3", "wanted": "v2"}),
    (errors.SchemaUnknown("v0", "v2"), {"found": "v0", "wanted": "v2"}),
    (errors.DatabaseUnavailable("mysql://host/chat", "gone"), {"database": "mysql://host/chat"}),
    (errors.MissingExtra("parquet", "--parquet"), {"extra": "parquet"}),
]

NAMES = [f"{type(error).__name__}-{number}" for number, (error, _) in enumerate(ERRORS)]


def test_the_table_has_every_class() -> None:
    tree = {kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, ThreadkeepError)}
    assert {type(error) for error, _ in ERRORS} == tree


@pytest.mark.parametrize(("error", "attributes"), ERRORS, ids=NAMES)
def test_errors_carry_what_they_are_about(error: ThreadkeepError, attributes: dict[str, Any]) -> None:
    assert {name: getattr(error, name) for name in attributes} == attributes
    assert set(vars(error)) == {"message", "argument", "hint", *attributes}


@pytest.mark.parametrize("error", [error for error, _ in ERRORS], ids=NAMES)
def test_the_text_is_argument_message_and_hint(error: ThreadkeepError) -> None:
    if not isinstance(error, errors.ProviderError):  # its message is the provider's
        assert str(error) == " ".join(part for part in (error.argument, error.message, error.hint) if part)


@pytest.mark.parametrize("error", [error for error, _ in ERRORS], ids=NAMES)
def test_errors_can_be_copied_and_pickled(error: ThreadkeepError) -> None:
    pickles = [pickle.dumps(error, protocol) for protocol in range(pickle.HIGHEST_PROTOCOL + 1)]
    for other in (copy.copy(error), copy.deepcopy(error), *map(pickle.loads, pickles)):
        assert type(other) is type(error)
        assert (str(other), repr(other), other.args, vars(other)) == (str(error), repr(error), error.args, vars(error))


def test_notes_of_an_error_are_copied() -> None:
    error = errors.HeadConflict(3, 5)
    error.add_note("in a test")
    assert pickle.loads(pickle.dumps(error)).__notes__ == ["in a test"]


def test_subclasses_of_an_application_can_be_pickled() -> None:
    other = pickle.loads(pickle.dumps(QuotaExceeded("ada", limit=5)))
    assert (str(other), other.user, other.limit) == ("ada is over the limit of 5.", "ada", 5)


class QuotaExceeded(errors.Conflict):
    """An application's own error with arguments of its own."""

    def __init__(self, user: str, *, limit: int) -> None:
        self.user, self.limit = user, limit
        super().__init__(f"{user} is over the limit of {limit}.")


@pytest.mark.parametrize(
    ("error", "message", "hint"),
    [
        (errors.UnknownFormat("x", ["a", "b"]), "must be the name of a format, not 'x'.", "Known formats: a, b."),
        (errors.UnknownFormat("openai", ["a"]), "not 'openai'.", "Did you mean 'open_responses' or 'chat_completion'?"),
        (errors.UnknownFormat("x" * 99_999, ["a"]), "not 'xxx", "The format is the second argument."),
        (
            errors.LossError("gemini", LOSSES, REPAIRS),
            "Rendering for gemini is not exact: background: There is no background mode (and 2 more).",
            "Render with strict=False to send it anyway; the losses are reported there.",
        ),
        (errors.HeadConflict(3, 5), "The branch ends at position 5, not at the expected 3.", 'on_conflict="branch".'),
        (errors.IdempotencyConflict("k"), "used before with other content.", "Use a new key for new content."),
        (errors.ResponseInProgress(7, 1), "Response 7 is still being streamed on branch 1.", "ends it where it is"),
        (errors.LeaseLost(7), "Response 7 was ended by another writer", "Pass a longer lease="),
        (errors.StreamChunk("gemini", "chunk"), "one event of a stream (chunk)", "stream_response('gemini')."),
        (errors.ParsedJsonError("Paris", "bad"), "is not JSON: bad. The text begins with 'Paris'.", "parsed_json()"),
        (
            errors.SchemaMissing("v2"),
            "no tables of threadkeep; this version needs schema v2.",
            "`threadkeep --url <your URL> db upgrade`",
        ),
        (
            errors.SchemaMissing("v2", "mysql://me:***@host/chat"),
            "schema v2.",
            "`threadkeep --url 'mysql://me:***@host/chat' db upgrade`",
        ),
        (errors.SchemaOutOfDate("v1", "v2"), "has schema v1; this version needs v2.", "schema.upgrade(engine)"),
        (errors.SchemaTooNew("v3", "v2"), "has schema v3, which this version (schema v2)", "Install the newer release"),
        (
            errors.MissingExtra("parquet", "--parquet"),
            "--parquet needs an optional dependency.",
            '`pip install "threadkeep[parquet]"`',
        ),
    ],
    ids=itertools.count(),
)
def test_what_to_do_is_apart_from_what_happened(error: ThreadkeepError, message: str, hint: str) -> None:
    assert error.hint is not None
    assert message in error.message
    assert hint in error.hint
    assert hint not in error.message


def test_the_words_of_a_provider_are_kept() -> None:
    error = errors.ProviderError("Busy.", code="overloaded", type="server_error", status=529)
    assert (error.message, str(error)) == ("Busy.", "The provider returned an error: overloaded: Busy.")
    silent = errors.ProviderError(None, type="server_error")
    assert (silent.message, str(silent)) == (None, "The provider returned an error: server_error: no message")


def test_a_position_without_an_item_says_why() -> None:
    """There is none yet, it is elsewhere, or nothing is there at all."""
    with Store("sqlite://") as store:
        conversation = store.create_conversation(model="m")
        with pytest.raises(NotFound, match=r"has no items\.$"):
            conversation.get_item(0)
        for text in ("one", "two", "three"):
            conversation.user(text)
        fork = conversation.fork(at=0)
        fork.user("four")
        with pytest.raises(NotFound, match="no item at position 1; it is on another branch, or was removed"):
            fork.get_item(1)
        with pytest.raises(NotFound, match="no item at position 9; it ends at 3"):
            fork.get_item(9)


def test_a_problem_has_the_name_that_was_given() -> None:
    with Store("sqlite://") as store:
        conversation = store.create_conversation()
        with pytest.raises(InvalidItem, match=r"content\[0\]\.image_url must be a string, not 5"):
            conversation.user([{"type": "input_image", "image_url": 5}])
        with pytest.raises(InvalidOption, match="status must be 'active', 'archived' or None, for any, not 'new'"):
            store.list_conversations(status="new")  # type: ignore[arg-type]  # on purpose


def test_arguments_that_are_not_json_are_told_once() -> None:
    def double(number: int) -> int:
        return 2 * number

    registry = ToolRegistry()
    registry.register(double)
    with pytest.raises(InvalidToolArguments, match="'double' cannot be used: they are not JSON: ") as refusal:
        registry.invoke("double", "{")
    assert refusal.value.message.count("JSON") == 1
