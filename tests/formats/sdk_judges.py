"""Judges of values of the SDKs' types: what became of each leaf in a request, and what the types of a target refuse."""

from __future__ import annotations

import base64
import json
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from tests.formats.sdk_samples import Element, Placed, placed
from tests.formats.sdk_values import Path, Sample
from threadkeep.domain.rendering import Rendered
from threadkeep.errors import CannotParse, CannotRender
from threadkeep.formats import NAMES, FormatName, get_format

Json = dict[str, Any]
Report = tuple[str, int | None, str, str]
Leaf = tuple[Path, Any]

# values that say nothing about where they stand
ORDINARY: Final = frozenset({"image/png", "2026-01-01T00:00:00Z", "PT1S", "m"})
# losses that say that the whole of an item, a block or a part is left out
LEFT_OUT: Final = frozenset({"item", "orphan_output", "part", "provider_item", "reasoning", "refusal", "tool", "media"})


# keys of which one holds the content of a part
SOURCES: Final = frozenset({"file_id", "file_url", "file_data", "image_url"})
# losses that are about one key, whatever else is sent
OF_KEYS: Final = {"annotations": "annotations"}


_KNOWN: Final[dict[int, frozenset[str]]] = {}  # identity of a schema -> its words; schemas are kept


def words(root: Json) -> frozenset[str]:
    """The words of the types of a root, which are no texts."""
    if id(root) not in _KNOWN:
        _KNOWN[id(root)] = ORDINARY | set(_words(root))
    return _KNOWN[id(root)]


def _words(kind: Any) -> Iterator[str]:
    if isinstance(kind, dict):
        for word in (*kind.get("enum", ()), kind.get("const")):
            if isinstance(word, str):
                yield word
        for inner in kind.values():
            yield from _words(inner)
    elif isinstance(kind, list):
        for inner in kind:
            yield from _words(inner)


def leaves(thing: Any, path: Path = ()) -> Iterator[Leaf]:
    """Each text, number and word in a value, and where it stands."""
    if isinstance(thing, dict):
        for key, value in thing.items():
            yield from leaves(value, (*path, key))
    elif isinstance(thing, list):
        for number, value in enumerate(thing):
            yield from leaves(value, (*path, str(number)))
    elif thing is not None:
        yield path, thing


def is_traced(value: Any, known: frozenset[str]) -> bool:
    """Whether a value is found by itself: no word of an API, and nothing that stands anywhere."""
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        return False
    return str(value) not in known and len(str(value)) > 3


def is_in(value: Any, text: str) -> bool:
    """Whether a leaf is in what a payload says: as it is, as what it holds in base64, or value by value of JSON."""
    if str(value) in text:
        return True
    if not isinstance(value, str):
        return False
    if value[:1] in "{[":
        try:
            return all(str(inner) in text for _, inner in leaves(json.loads(value)))
        except ValueError:
            return False
    if base64.b64encode(value.encode()).decode().rstrip("=") in text:
        return True
    coded = value.rpartition("base64,")[2]
    if coded in text or coded.rstrip("=") in text:
        return True
    try:
        return base64.b64decode(coded, validate=True).decode() in text
    except ValueError:
        return False


def said(payload: Any) -> str:
    """All texts and numbers of a payload, also those in JSON texts, to search in."""
    found = list(_said(payload))
    for text in list(found):
        if text[:1] in "{[":
            try:
                found += _said(json.loads(text))
            except ValueError:
                continue
    return "\n".join(found)


def _said(thing: Any) -> Iterator[str]:
    if isinstance(thing, dict):
        for key, value in thing.items():
            yield key
            yield from _said(value)
    elif isinstance(thing, list):
        for value in thing:
            yield from _said(value)
    elif isinstance(thing, str):
        yield thing
    elif isinstance(thing, int | float) and not isinstance(thing, bool):
        yield repr(thing)


@dataclass
class Outcome:
    """What became of a sample in a format."""

    verdict: str  # sent, reported, refused or silent
    target: str
    lost: list[Leaf] = field(default_factory=list)
    rendered: Rendered | None = None


@dataclass
class _Base:
    payload: Json
    reports: Counter[Report]
    leaves: set[str]
    is_left_out: bool


@dataclass
class Tracer:
    """Follows the leaves of an element's samples into the requests of all formats; the first sample is the least."""

    element: Element
    _bases: dict[str, _Base] = field(default_factory=dict)

    def outcomes(self, sample: Sample, targets: Sequence[FormatName] = NAMES) -> Iterator[Outcome]:
        """What became of a sample in these formats."""
        try:
            place = placed(self.element, sample.value)
        except CannotParse:
            yield from (Outcome("refused", target) for target in targets)
            return
        for target in targets:
            try:
                rendered = get_format(target).render(place.session)
            except CannotRender:
                yield Outcome("refused", target)
                continue
            yield self._outcome(sample, place, target, rendered)

    def _outcome(self, sample: Sample, place: Placed, target: str, rendered: Rendered) -> Outcome:
        reports = Counter((one.code, one.position, one.path, one.detail) for one in _reports(rendered))
        text, known = said(rendered.payload), words(self.element.root)
        found = list(leaves(sample.value))
        base = self._bases.get(target)
        new = [leaf for leaf in found if base is None or json.dumps(leaf) not in base.leaves]
        lost = [leaf for leaf in new if is_traced(leaf[1], known) and not is_in(leaf[1], text)]
        lost = [leaf for leaf in lost if not _is_other_source(leaf, found, text)]
        if base is None:
            here = [report for report in reports if place.has(report[1])]
            traced = [leaf for leaf in found if is_traced(leaf[1], known)]
            is_left_out = len(lost) == len(traced) and any(report[0] in LEFT_OUT for report in here)
            self._bases[target] = _Base(rendered.payload, reports, {json.dumps(leaf) for leaf in found}, is_left_out)
            verdict = "sent" if not lost else "reported" if here else "silent"
            return Outcome(verdict, target, lost, rendered)
        new_reports = reports - base.reports
        lost = [leaf for leaf in lost or new if not any(_covers(report, leaf) for report in base.reports)]
        if base.is_left_out or new_reports or (new and not lost):
            return Outcome("reported", target, [], rendered)
        lost = [leaf for leaf in lost if is_traced(leaf[1], known) and not is_in(leaf[1], text)]
        lost = [leaf for leaf in lost if not _is_other_source(leaf, found, text)]
        if lost:
            return Outcome("silent", target, lost, rendered)
        is_same = rendered.payload == base.payload and not any(is_traced(leaf[1], known) for leaf in new)
        return Outcome("silent" if is_same and new else "sent", target, new, rendered)


def _is_other_source(leaf: Leaf, found: list[Leaf], text: str) -> bool:
    """Whether a leaf is one of several sources of the same content, another of which is in the payload."""
    (*place, key), _ = leaf
    return key in SOURCES and any(
        path[:-1] == tuple(place) and path[-1] in SOURCES and is_in(value, text) for path, value in found
    )


def _covers(report: Report, leaf: Leaf) -> bool:
    """Whether a report is about the key that a leaf stands under."""
    names = report[3].rpartition(": ")[2].rstrip(".").split(", ")
    if report[0] == "native" and not set(leaf[0]).isdisjoint(names):
        return True
    key = report[2].rpartition(".")[2]
    return (report[0] in OF_KEYS and OF_KEYS[report[0]] in leaf[0]) or (key != "" and "[" not in key and key in leaf[0])


def _reports(rendered: Rendered) -> Iterator[Any]:
    yield from rendered.losses
    yield from rendered.repairs
