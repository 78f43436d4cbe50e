"""Start: how long a fresh process imports threadkeep, beside SQLAlchemy's ORM, Pydantic and orjson alone."""

from __future__ import annotations

import random
import statistics
import subprocess
import sys
from typing import Final

from benchmarks.report import Line
from benchmarks.scale import Scale

MUST: Final = 1.3
# BaseModel, because `import pydantic` alone loads next to nothing
_IMPORTS: Final = {
    "floor": "import sqlalchemy.orm; from pydantic import BaseModel; import orjson",
    "import threadkeep": "import threadkeep",
    "import Store": "from threadkeep import Store",
}


def run(scale: Scale) -> list[Line]:
    times: dict[str, list[float]] = {name: [] for name in _IMPORTS}
    order = list(_IMPORTS)
    shuffle = random.Random(1)
    for number in range(scale.starts + 1):
        shuffle.shuffle(order)
        for name in order:
            seconds = _seconds(_IMPORTS[name])
            if number:  # the first ones find cold files
                times[name].append(seconds)
    floor, package, store = (statistics.median(times[name]) for name in _IMPORTS)
    return [Line("import threadkeep", "-", floor, package, MUST), Line("import its Store", "-", floor, store)]


def _seconds(statement: str) -> float:
    program = f"import time; begin = time.perf_counter(); {statement}; print(time.perf_counter() - begin)"
    return float(subprocess.run([sys.executable, "-c", program], check=True, capture_output=True, text=True).stdout)
