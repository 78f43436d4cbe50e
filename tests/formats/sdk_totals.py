"""How many values of the SDKs' types were tried, and what became of them: the figures of the page Compatibility.

Run as a script (by ``make docs``), this tries them all and records the figures. A full run of the tests compares them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from tests.formats.sdk_trials import SOURCES, Trial, formats_of_sources, tried

Json = dict[str, Any]

FILE: Final = Path(__file__).with_suffix(".json")
VERDICTS: Final = ("values", "equal", "mended", "sent", "reported", "refused", "silent")


def of(source: str, trial: Trial) -> Json:
    """The figures of one source."""
    return {"format": formats_of_sources()[source]} | {verdict: trial.counts[verdict] for verdict in VERDICTS}


def recorded() -> dict[str, Json]:
    """The figures as they are recorded, by source."""
    found: dict[str, Json] = json.loads(FILE.read_text())
    return found


def record() -> None:
    """Try everything, and write the figures down."""
    totals = {source: of(source, tried(source, is_whole=True)) for source in SOURCES}
    lines = [f"{json.dumps(source)}: {json.dumps(figures)}" for source, figures in totals.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    record()
