"""Many writers at once: how many turns a second, and what was refused or lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count, islice
from typing import Final

from benchmarks.peers.processes import Process
from benchmarks.peers.turns import turn_of

PROCESSES: Final = 2  # that the writers are distributed to
_NUMBERS: Final = count(80_000_000)


@dataclass(frozen=True, slots=True)
class Outcome:
    """Turns a second that were acknowledged, and of how many turns how many were refused, lost or torn apart."""

    rate: float
    turns: int
    refused: int
    lost: int
    torn: int
    reason: str = ""  # of the first refusal


def write(processes: Sequence[Process], writers: int, turns: int, *, spread: bool) -> Outcome:
    """Let writers append turns, to a conversation each or all to one; one more turn of each is not timed.

    Raises:
        Refused: a writer could not begin.
    """
    first = next(_NUMBERS)
    names = [f"write-{first}-{writer if spread else 0}" for writer in range(writers)]
    numbers = [list(islice(_NUMBERS, turns + 1)) for _ in range(writers)]
    for name in dict.fromkeys(names):
        processes[0].ask("load", [name], 3, 2)
    tasks = list(zip(names, numbers, strict=True))
    for index, process in enumerate(processes):
        process.begin("prepare_writers", tasks[index :: len(processes)])
    for process in processes:
        process.result()
    for process in processes:
        process.begin("run_writers")
    moments = [process.result() for process in processes]
    refused = {number: reason for _, _, reasons in moments for number, reason in reasons.items()}
    seconds = max(end for _, end, _ in moments) - min(begin for begin, _, _ in moments)
    stored = {name: processes[0].ask("texts", name) for name in dict.fromkeys(names)}
    lost = torn = 0
    for name, own in tasks:
        found, places = stored[name], {text: place for place, text in enumerate(stored[name])}
        for number in own[1:]:
            if number in refused:
                continue
            turn = turn_of(number)
            place = places.get(turn.text)
            if place is None or turn.answer not in places:
                lost += 1
            elif found[place + 1 : place + 2] != [turn.answer]:
                torn += 1
    total = writers * turns
    return Outcome((total - len(refused)) / seconds, total, len(refused), lost, torn, next(iter(refused.values()), ""))
