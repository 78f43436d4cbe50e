"""Imports beside another build, in turns: sessions of coding agents, and an export; each in a process of its own.

What is compared is CPU time of the process, since an import waits for nothing but the database.
"""

from __future__ import annotations

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, Final

from benchmarks.agent_files import write_sessions
from benchmarks.conversations import a_session
from benchmarks.data import USER
from benchmarks.databases import postgres_database, postgres_missing
from benchmarks.report import Line
from benchmarks.scale import Scale
from threadkeep import Store

SESSIONS, EXPORT = "sessions of coding agents", "an export"
MOST: Final = {SESSIONS: 0.5, EXPORT: 0.4}  # of the other build's CPU time
MOST_AGAIN: Final = 0.05  # of the first import
ITEMS: Final = 20
_PROGRAM: Final = """
import json, sys, time
from pathlib import Path
from sqlalchemy import create_engine, make_url
from threadkeep import Store, schema
from threadkeep.contrib.importers import import_from
url, what, path = sys.argv[1:]
if not url.startswith("sqlite"):
    schema.upgrade(create_engine(make_url(url).set(drivername="postgresql+psycopg")))
store, found = Store(url), {}
for name in ("first", "again"):
    before = time.process_time()
    if what == "an export":
        with open(path, "rb") as lines:
            store.import_export(lines)
    else:
        import_from(store, path)
    found[name] = time.process_time() - before
[peak] = [line.split()[1] for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM")]
print(json.dumps(found | {"mib": int(peak) / 1024}))
"""


def run(scale: Scale) -> list[Line]:
    if scale.against is None:
        print("SKIPPED: imports beside another build; --against GIT_REV names one", file=sys.stderr)
        return []
    sessions, export = scale.folder / "agents", scale.folder / "export.jsonl"
    size = write_sessions(sessions, scale.session_bytes)
    with Store(f"sqlite:///{scale.folder / 'NORMAL_export.db'}") as store, export.open("w") as file:
        store.save_many([a_session(ITEMS, seed) for seed in range(scale.imported)], user_id=USER)
        file.writelines(store.export())
    sources = {SESSIONS: sessions, EXPORT: export}
    names = {
        SESSIONS: f"import {size // 10**6:,} MB of {SESSIONS}, over the other build",
        EXPORT: f"import {EXPORT} of {scale.imported:,} conversations of {ITEMS} items, over the other build",
    }
    kinds = ["sqlite"] if postgres_missing() else ["sqlite", "postgresql"]
    return [
        line for kind in kinds for what in sources for line in _compared(scale, kind, what, sources[what], names[what])
    ]


def _compared(scale: Scale, kind: str, what: str, path: Path, name: str) -> list[Line]:
    """Both builds in turns."""
    ours, theirs = [], []
    for number in range(scale.import_rounds):
        ours.append(_imported(scale, f"{kind} {number}", what, path, None))
        theirs.append(_imported(scale, f"{kind} {number} other", what, path, scale.against))
    firsts = [[one["first"] for one in many] for many in (theirs, ours)]
    ratio = statistics.median(our / their for their, our in zip(*firsts, strict=True))
    theirs_first, ours_first = map(statistics.median, firsts)
    again = statistics.median(one["again"] for one in ours)
    print(f"{kind}: {what}: {max(one['mib'] for one in ours):.0f} MiB at most", file=sys.stderr)
    second = f"the same a second time, over the first (most memory: {max(one['mib'] for one in ours):.0f} MiB)"
    lines = [Line(f"{name}: CPU time", kind, theirs_first, ours_first, MOST[what], measured=ratio)]
    return [*lines, Line(second, kind, ours_first, again, MOST_AGAIN)] if what == SESSIONS else lines


def _imported(scale: Scale, name: str, what: str, path: Path, sources: Path | None) -> dict[str, Any]:
    """What an import into a new database takes."""
    place = sources or Path(__file__).parents[1] / "src"
    with _database(scale, name) as url:
        command = [sys.executable, "-c", _PROGRAM, url, what, str(path)]
        environment = {**os.environ, "PYTHONPATH": str(place)}
        done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextmanager
def _database(scale: Scale, name: str) -> Iterator[str]:
    with ExitStack() as stack:
        if name.startswith("postgresql"):
            yield stack.enter_context(postgres_database(is_empty=True)).url
        else:
            path = scale.folder / f"{name.replace(' ', '_')}.db"
            yield f"sqlite:///{path}"
            for ending in ("", "-wal", "-shm"):
                Path(f"{path}{ending}").unlink(missing_ok=True)
