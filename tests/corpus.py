"""Recorded traffic of real providers, and what the tests that read it have in common.

It is not part of the project: tests are skipped where there is none. All tests of a process share what was read, so
a test that changes an interaction copies it first.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import unicodedata
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

import pytest

from threadkeep.domain.response import Response
from threadkeep.domain.session import Session
from threadkeep.formats import FormatName, get_format

Json = dict[str, Any]

CORPUS = Path(os.environ.get("THREADKEEP_CORPUS", Path(__file__).parents[2] / "shared" / "corpus"))
# typographic characters, which some recorders and clients write as plain ones
SIGNS: Final = str.maketrans(
    {"\u2018": "'", "\u2019": "'", "\u201c": '"', "\u201d": '"', "\u2013": "-", "\u2014": "-", "\u2026": "..."}
)
# what a client sends as the signature of a call that has none
NO_SIGNATURE: Final = "c2tpcF90aG91Z2h0X3NpZ25hdHVyZV92YWxpZGF0b3I"


def path_of(file: str) -> Path:
    """Where a file of the corpus is; without it the test is skipped."""
    path = CORPUS / file
    if not path.exists():
        pytest.skip(f"there is no recorded traffic in {path}; set THREADKEEP_CORPUS")
    return path


@cache
def recorded(name: str) -> dict[str, Json]:
    """The interactions of a format, or of `errors` and `compactions`, by id."""
    with gzip.open(path_of(f"{name}.jsonl.gz"), "rt", encoding="utf-8") as lines:
        return {one["id"]: one for one in map(json.loads, lines)}


def session_of(one: Json) -> Session:
    """The session of a recorded request; the path of some has the model and says whether it streams."""
    if one["format"] not in {"gemini", "converse"}:
        return get_format(one["format"]).parse_request(one["request"])
    [model] = re.findall(r"[^/]+(?=/converse|:[a-zA-Z]+$)", unquote(one["path"]))
    return get_format(one["format"]).parse_request(one["request"], model=model, stream=one["stream"])


def errors(*formats: FormatName) -> dict[str, Json]:
    """The recorded errors of these formats, by id."""
    return {name: one for name, one in recorded("errors").items() if one["format"] in formats}


# Chains: conversations over several interactions


def chains(name: FormatName) -> Iterator[tuple[list[Json], list[Json]]]:
    """The interactions of each chain, and how they follow one another."""
    found = recorded(name)
    for line in path_of("chains.jsonl").read_text(encoding="utf-8").splitlines():
        chain = json.loads(line)
        if chain["format"] == name:
            yield [found[one] for one in chain["ids"]], chain["links"]


def links(name: FormatName) -> Iterator[tuple[Json, Json, Json]]:
    """Two interactions that follow one another, and how the second continues the first."""
    for interactions, following in chains(name):
        yield from zip(interactions, interactions[1:], following, strict=False)


# Answers


def assembled(events: Iterable[Any], name: FormatName) -> Any:
    """An assembler that took these events."""
    made = get_format(name).assembler()
    for event in events:
        made.feed(event)
    return made


def response_of(one: Json) -> Response:
    """The response of a recorded answer, streamed or not."""
    if one["events"] is None:
        return get_format(one["format"]).parse_response(one["response"])
    response: Response = assembled(one["events"], one["format"]).response
    return response


# How values are compared


def strings(thing: Any) -> Iterator[str]:
    """All texts in a JSON value."""
    if isinstance(thing, str):
        yield thing
    elif isinstance(thing, dict | list):
        for value in thing.values() if isinstance(thing, dict) else thing:
            yield from strings(value)


def words(thing: Any) -> Iterator[str]:
    """All texts in a JSON value, those in the arguments of calls, too."""
    if isinstance(thing, dict) and isinstance(thing.get("arguments"), str):
        yield from strings(json.loads(thing["arguments"]))
    if isinstance(thing, dict | list):
        for value in thing.values() if isinstance(thing, dict) else thing:
            yield from words(value)
    elif isinstance(thing, str):
        yield thing


def level(thing: Any) -> Any:
    """A JSON value without nulls and without the lists that are the same as none."""
    if isinstance(thing, dict):
        empty = {"annotations", "logprobs", "content"}
        kept = {key: value for key, value in thing.items() if value is not None and not (value == [] and key in empty)}
        return {key: level(value) for key, value in kept.items()}
    return [level(value) for value in thing] if isinstance(thing, list) else thing


def plain(text: str) -> str:
    """A text without typographic characters."""
    return unicodedata.normalize("NFKC", text.translate(SIGNS))
