"""Entries of any source: which response they came in, and what happens where something goes wrong unexpectedly."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Barrier
from typing import Any

import pytest

from threadkeep import Conversation, Store
from threadkeep.contrib.importers import Answer, Entry, Input, Skipped, Transcript, import_from
from threadkeep.domain.jsontext import JsonObject

REFUSED: JsonObject = {"type": "function_call", "name": "f", "arguments": "{}"}  # of no call


class Given:
    """A source of what it is given, which it fails at behind the last one if it is told to."""

    name = "given"

    def __init__(self, *found: Transcript | Skipped, fails_with: Exception | None = None) -> None:
        self.found, self.error = found, fails_with

    def recognizes(self, input: Input, /) -> bool:
        return input.name.endswith(".given")

    def read(self, _input: Input, /) -> Iterator[Transcript | Skipped]:
        yield from self.found
        if self.error is not None:
            raise self.error


class GivenByName(Given):
    """The same of files that are named after their conversations."""

    def id_of(self, input: Input, /) -> str | None:
        return None if input.path is None else input.path.stem


def used(tokens: int, id_: str | None = None, model: str = "m") -> Answer:
    usage = {"input_tokens": tokens, "output_tokens": 1, "total_tokens": tokens + 1}
    return Answer(id=id_, model=model, usage=usage)


def said(text: str) -> JsonObject:
    return {"type": "message", "role": "assistant", "content": text}


def in_a_row(*entries: tuple[JsonObject, Answer | None], id_: str = "1") -> Transcript:
    """A conversation whose entries follow each other, each with an item and the answer that it came in."""
    names = [None, *map(str, range(len(entries)))]
    return Transcript(
        id_, id_, [Entry(str(at), names[at], [item], answer=answer) for at, (item, answer) in enumerate(entries)]
    )


@pytest.fixture
def path(tmp_path: Path) -> Path:
    path = tmp_path / "any.given"
    path.write_text("any")
    return path


def found(store: Store, id_: str = "1") -> Conversation:
    conversation = store.find_conversation(external_id=f"given:{id_}")
    assert conversation is not None
    return conversation


ONE, TWO = used(100, model="one"), used(7, model="two")

# entries -> the model and the items of each response, and the tokens that went in
REFUSALS: dict[str, tuple[list[tuple[JsonObject, Answer | None]], list[tuple[str | None, int, int]], int]] = {
    "first of another": ([(said("a"), ONE), (REFUSED, TWO), (said("b"), TWO)], [("one", 0, 0), ("two", 1, 1)], 107),
    "all of another": ([(said("a"), ONE), (REFUSED, TWO)], [("one", 0, 0)], 100),
    "all, behind what nobody answered": ([(said("a"), ONE), (said("?"), None), (REFUSED, TWO), (said("b"), TWO)],
                                         [("one", 0, 0), ("two", 2, 2)], 107),
    "in the middle": ([(said("a"), ONE), (REFUSED, ONE), (said("b"), ONE)], [("one", 0, 1)], 100),
    "several": ([(said("a"), ONE), (REFUSED, TWO), (REFUSED, TWO), (said("b"), TWO)],
                [("one", 0, 0), ("two", 1, 1)], 107),
    "the last, which has the usage": ([(said("a"), used(1, "r")), (REFUSED, used(30, "r"))], [("m", 0, 0)], 30),
}  # fmt: skip


@pytest.mark.parametrize(("entries", "responses", "tokens"), REFUSALS.values(), ids=REFUSALS)
def test_what_is_refused_merges_no_responses(
    target: Store, path: Path, entries: list[Any], responses: list[tuple[str | None, int, int]], tokens: int
) -> None:
    source = Given(in_a_row(*entries))
    first, second = import_from(target, path, source), import_from(target, path, source)
    stored = list(found(target).responses())
    assert [(one.model, one.from_position, one.to_position) for one in stored] == responses
    assert target.usage()[0].input_tokens == tokens
    assert (first.responses.stored, first.attempts) == (len(responses), len(responses))
    assert (second.responses.stored, second.responses.unchanged) == (0, len(responses))
    assert not target.check().findings


@pytest.mark.parametrize("id_", ["r", None])
def test_what_is_deleted_and_imported_again_counts_once(target: Store, path: Path, id_: str | None) -> None:
    asked, answered = (said("a"), used(10, id_)), (said("b"), None)
    import_from(target, path, Given(in_a_row(asked, answered)))
    target.delete_conversation(found(target).id)
    report = import_from(target, path, Given(in_a_row(asked, answered, (said("c"), used(20)))))
    assert (report.items.stored, report.responses.stored, report.attempts) == (3, 2, 1)
    assert target.usage()[0].input_tokens == 30
    assert not target.check().findings


def test_answers_without_an_id_are_others_in_another_conversation(target: Store, path: Path) -> None:
    report = import_from(target, path, Given(*(in_a_row((said("a"), used(10)), id_=id_) for id_ in ("1", "2"))))
    assert (report.attempts, target.usage()[0].input_tokens) == (2, 20)


def test_imports_at_the_same_time_count_a_response_once(target: Store, path: Path) -> None:
    """Sessions that begin with the same responses, as those of agents and resumed ones do."""
    rounds, both = 10, Barrier(2)

    class AtOnce(Given):
        def read(self, _input: Input, /) -> Iterator[Transcript | Skipped]:
            for transcript in self.found:
                both.wait(60)
                yield transcript

    def session(name: str) -> AtOnce:
        shared = [[(said(str(at)), used(1, f"{number}.{at}")) for at in range(3)] for number in range(rounds)]
        return AtOnce(*(in_a_row(*some, id_=f"{name}.{number}") for number, some in enumerate(shared)))

    with ThreadPoolExecutor(2) as pool:
        reports = list(pool.map(lambda name: import_from(target, path, session(name)), "ab"))
    assert [report.responses.stored for report in reports] == [3 * rounds, 3 * rounds]
    assert sum(report.attempts for report in reports) == target.usage()[0].attempts == 3 * rounds
    assert not target.check().findings


@pytest.mark.parametrize("error", [ValueError("odd"), TypeError("odd"), KeyError("odd"), RecursionError("odd")])
def test_a_source_that_fails_does_not_stop_other_files(target: Store, path: Path, error: Exception) -> None:
    path.with_name("other.given").write_text("any")
    report = import_from(target, path.parent, Given(in_a_row((said("a"), None)), fails_with=error))
    assert (report.conversations.stored, report.conversations.unchanged) == (1, 1)
    assert [one.where for one in report.skipped] == [str(path), str(path.with_name("other.given"))]
    assert set(report.reasons) == {f"the rest cannot be read: {type(error).__name__}: {error}"}


def test_a_conversation_that_others_import_while_its_file_is_read_is_not_imported_again(
    target: Store, tmp_path: Path
) -> None:
    """It was looked for before its file was read."""
    path, transcript = tmp_path / "1.given", in_a_row((said("a"), ONE))
    path.write_text("any")

    class Slow(GivenByName):
        def read(self, input: Input, /) -> Iterator[Transcript | Skipped]:
            import_from(target, path, Given(transcript))
            yield from super().read(input)

    report = import_from(target, path, Slow(transcript))
    assert (report.conversations.stored, report.conversations.unchanged, report.skipped) == (0, 1, [])
    assert len(list(found(target).items())) == 1


def test_a_conversation_that_fails_does_not_stop_others(target: Store, path: Path) -> None:
    odd: Any = Entry("0", None, [said("a")], answer=Answer(usage=7))  # type: ignore[arg-type]  # no usage
    conversations = [in_a_row((said("b"), None), id_="1"), in_a_row((said("c"), None), id_="2")]
    report = import_from(target, path, Given(Transcript("0", "odd", [odd]), *conversations))
    assert (report.conversations.stored, report.conversations.skipped) == (2, 1)
    [skipped] = report.skipped
    assert skipped.where == "odd"
    assert "TypeError" in skipped.why
