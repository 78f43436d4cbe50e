"""Values of the SDKs' types put through everything: stored, sent back, streamed, and turned into every other format."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final
from zlib import crc32

from tests.formats import (
    spelling_chat_completion,
    spelling_converse,
    spelling_gemini,
    spelling_messages,
    spelling_open_responses,
)
from tests.formats.sdk_accepted import accepted, is_typed
from tests.formats.sdk_judges import Outcome, Tracer
from tests.formats.sdk_requests import ROOTS, requests
from tests.formats.sdk_samples import Element, body, elements, request
from tests.formats.sdk_streams import events_of, has_events
from tests.formats.sdk_strict import TURNS, fit_for_requests, refused, unfit
from tests.formats.sdk_types import completed
from tests.formats.sdk_values import Sample
from threadkeep.formats import NAMES, get_format

Json = dict[str, Any]

LEVELS: Final[dict[str, Callable[[Json], Json]]] = {
    "open_responses": spelling_open_responses.leveled,
    "chat_completion": spelling_chat_completion.levelled,
    "messages": spelling_messages.usual,
    "gemini": spelling_gemini.leveled,
    "converse": spelling_converse.leveled,
    "interactions": lambda payload: payload,
    "pydantic_ai": lambda payload: payload,
    "ag_ui": lambda payload: payload,
}
# where values are from: roots of the SDKs' types, and requests without their turns
SOURCES: Final = (
    "openai.responses.input",
    "openai.conversations.item",
    "openai.responses.output",
    "openai.chat.message",
    "openai.chat.response",
    "anthropic.messages.message",
    "anthropic.messages.response",
    "anthropic.beta.message",
    "anthropic.beta.response",
    "google.content",
    "google.response",
    "google.interactions.step",
    "google.interactions.response",
    "bedrock.request",
    "bedrock.response",
    "pydantic_ai.request",
    "pydantic_ai.response",
    "ag_ui.message",
    *(f"{root} options" for root in ROOTS),
)
_SHARE: Final = 24  # of the samples beyond the least, a quick run has one in so many


@dataclass
class Trial:
    """What became of values: the counts by verdict, and what is wrong, by kind."""

    counts: Counter[str] = field(default_factory=Counter)
    wrong: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))

    def add(self, kind: str, element: Element, sample: Sample, *details: object) -> None:
        """Note something that is wrong."""
        self.wrong[kind].append(f"{element.source} {sample.label}: {' '.join(map(str, details))}")


def formats_of_sources() -> dict[str, str]:
    """The sources of all elements, and the formats of their values; `SOURCES` names them without a look at the SDKs."""
    return {element.source: element.format_name for element in (*elements(), *requests())}


def tried(source: str, *, is_whole: bool) -> Trial:
    """All elements of a source, tried."""
    trial = Trial()
    for element in (*elements(), *requests()):
        if element.source == source:
            _try(element, trial, is_whole=is_whole)
    return trial


def _try(element: Element, trial: Trial, *, is_whole: bool) -> None:
    tracer = Tracer(element)
    turn = crc32(element.name.encode())
    for number, sample in enumerate(element.samples()):
        if number and not is_whole and (number + turn) % _SHARE:
            continue
        if not is_of_its_sdk(element, sample):
            continue
        trial.counts["values"] += 1
        others = NAMES[(number + turn) // _SHARE % len(NAMES)]
        targets = NAMES if is_whole or number == 0 else (element.format_name, others)
        for outcome in tracer.outcomes(sample, tuple(dict.fromkeys(targets))):
            _judge(element, sample, outcome, trial)
        if element.is_answer:
            for difference in streamed_differently(element, sample):
                trial.add("streamed", element, sample, difference)


def is_of_its_sdk(element: Element, sample: Sample) -> bool:
    """Whether the SDK itself takes a value: some types have validators, which no schema tells of."""
    _, own, _ = element.hold(sample.value)
    if element.is_request or element.is_answer or element.is_appended or element.format_name not in TURNS:
        return True
    _, root = TURNS[element.format_name]
    turns = completed(own) if element.format_name == "open_responses" else own
    return not any(refused(turn, root) for turn in turns)


def _judge(element: Element, sample: Sample, outcome: Outcome, trial: Trial) -> None:
    target = outcome.target
    is_back = target == element.format_name
    if outcome.rendered is None:
        trial.counts["refused"] += 1
        return
    for error in unfit(outcome.rendered.payload, target):
        if is_typed(f"{element.source} {sample.label}", target, error):
            trial.add("unfit", element, sample, target, error)
    if is_back:
        reports = outcome.rendered.losses or outcome.rendered.repairs
        lost = list(changed(element, sample, outcome.rendered.payload))
        verdict = "equal" if not lost else "mended" if reports else "silent"
        trial.counts[verdict] += 1
        if verdict == "silent":
            trial.add("changed", element, sample, *lost[:3])
        return
    leaves = [leaf for leaf in outcome.lost if not accepted(element.source, target, *leaf)]
    verdict = "sent" if outcome.verdict == "silent" and not leaves else outcome.verdict
    trial.counts[verdict] += 1
    if verdict == "silent":
        trial.add("silent", element, sample, target, leaves[:3])


def changed(element: Element, sample: Sample, payload: Json) -> Iterator[str]:
    """What is not equal of a value that went back to its format."""
    before, own, after = element.hold(sample.value)
    name = element.format_name
    if element.is_request:
        yield from differences(LEVELS[name](sample.value), LEVELS[name](dict(payload)))
        return
    key = get_format(name).signs.turns
    back = [fit_for_requests(turn, name) for turn in own] if element.is_answer or element.is_appended else own
    # it stands for what was before; one of Claude's without content has failed, and one without signature is not taken
    compacts = sample.value.get("type") == "compaction" and (
        name == "open_responses" or {"content", "signature"} <= sample.value.keys()
    )
    replaced = (element.is_answer or element.is_appended) and compacts
    level = LEVELS[name]
    whole = level(request(name, [*([] if replaced else before), *back, *after]))[key]
    for difference in differences(whole, level(dict(payload))[key]):
        if not accepted(element.source, name, tuple(difference.lstrip("+-!").partition(":")[0].split("."))):
            yield difference


def differences(left: Any, right: Any, path: str = "") -> Iterator[str]:
    """Where two JSON values are not equal: what the second lacks, what it has beyond, and what it has otherwise."""
    if isinstance(left, dict) and isinstance(right, dict):
        for key in {**left, **right}:
            place = f"{path}.{key}".lstrip(".")
            if key not in right:
                yield f"-{place}"
            elif key not in left:
                yield f"+{place}"
            else:
                yield from differences(left[key], right[key], place)
    elif isinstance(left, list) and isinstance(right, list) and len(left) == len(right):
        for one, other in zip(left, right, strict=True):
            yield from differences(one, other, path)
    elif left != right:
        yield f"!{path}: {str(left)[-80:]} -> {str(right)[-80:]}"


def streamed_differently(element: Element, sample: Sample) -> Sequence[str]:
    """What differs between an answer that came whole and the same in events."""
    _, own, _ = element.hold(sample.value)
    wire = get_format(element.format_name)
    answer = body(element, own)
    if not has_events(answer, element.format_name):
        return []
    whole, assembler = wire.parse_response(answer), wire.assembler()
    for event in events_of(answer, element.format_name):
        assembler.feed(event)
    items, other = ([item.to_object() for item in response.output] for response in (whole, assembler.response))
    ends = [] if whole.status == assembler.response.status else [f"{whole.status} {assembler.response.status}"]
    return [*differences(items, other), *ends][:3]
