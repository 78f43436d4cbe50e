"""Start: how long a fresh process imports threadkeep, and how long commands take that only look.

Imports are compared with those of SQLAlchemy's ORM, Pydantic and orjson alone, commands with a process that only
imports what every one of them needs: SQLAlchemy and Typer.
"""

from __future__ import annotations

import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final

from benchmarks.report import Line
from benchmarks.scale import Scale
from threadkeep import Store

MUST: Final = 1.3
MUST_COMMAND: Final = 1.6
# BaseModel, because `import pydantic` alone loads next to nothing
_IMPORTS: Final = {
    "floor": "import sqlalchemy.orm; from pydantic import BaseModel; import orjson",
    "import threadkeep": "import threadkeep",
    "import Store": "from threadkeep import Store",
}
_FLOOR: Final = ("-c", "import sqlalchemy, typer")
_CONVERSATIONS: Final = 20


def run(scale: Scale) -> list[Line]:
    imports = _medians(scale.starts, {name: _timed_import(code) for name, code in _IMPORTS.items()})
    floor, package, store = (imports[name] for name in _IMPORTS)
    lines = [Line("import threadkeep", "-", floor, package, MUST), Line("import its Store", "-", floor, store)]
    with tempfile.TemporaryDirectory() as folder:
        url = f"sqlite:///{Path(folder) / 'normal_chat.db'}"
        id_ = _filled(url)
        commands = {
            "ls": ("ls",), "search": ("search", "France"), "usage": ("usage", "--by", "model"), "show": ("show", id_),
        }  # fmt: skip
        runs = {name: _timed_process("-m", "threadkeep", "--url", url, *args) for name, args in commands.items()}
        found = _medians(scale.starts, {"floor": _timed_process(*_FLOOR), **runs})
    lines += [Line(f"threadkeep {name}", "-", found["floor"], found[name], MUST_COMMAND) for name in commands]
    return lines


def _medians(rounds: int, cases: Mapping[str, Callable[[], float]]) -> dict[str, float]:
    """The median of each case in seconds; all of them in each round, in random order."""
    times: dict[str, list[float]] = {name: [] for name in cases}
    order = list(cases)
    shuffle = random.Random(1)
    for number in range(rounds + 1):
        shuffle.shuffle(order)
        for name in order:
            seconds = cases[name]()
            if number:  # the first ones find cold files
                times[name].append(seconds)
    return {name: statistics.median(found) for name, found in times.items()}


def _timed_import(statement: str) -> Callable[[], float]:
    program = f"import time; begin = time.perf_counter(); {statement}; print(time.perf_counter() - begin)"

    def seconds() -> float:
        return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)

    return seconds


def _timed_process(*arguments: str) -> Callable[[], float]:
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}

    def seconds() -> float:
        begin = time.perf_counter()
        subprocess.run([sys.executable, *arguments], check=True, capture_output=True, env=environment)
        return time.perf_counter() - begin

    return seconds


def _filled(url: str) -> str:
    """The id of one of a few conversations."""
    with Store(url) as store:
        for number in range(_CONVERSATIONS):
            conversation = store.create_conversation(model="gpt-5.4", title=f"Capital {number}")
            conversation.user("What is the capital of France?")
            conversation.assistant("Paris.")
        return conversation.id
