"""What the newest releases of the vendors' SDKs define otherwise than the pinned ones; ``make sdk-news`` prints it.

The newest releases are installed in an environment of their own, which is removed afterwards; nothing else changes.
``ARGS=--accept`` records the types of the pinned releases as known, which `test_sdk_values` compares.
"""

from __future__ import annotations

import json
import subprocess
import sys
import venv
from collections.abc import Iterator, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from tests.formats import sdk_schema

Json = dict[str, Any]

KNOWN: Final = Path(__file__).with_name("sdk_known_types.json")
_SHOWN: Final = 40  # lines of one new type


def news(old: dict[str, Json], new: dict[str, Json]) -> Iterator[str]:
    """What changed, package by package: the types that came and went, and the fields and words of the others."""
    for package, then in old.items():
        now = new[package]
        title = f"{sdk_schema.PACKAGES[package]} {then['version']}"
        if now["version"] == then["version"]:
            yield f"{title}: the newest release is the pinned one"
            continue
        changes = list(_changes(then["types"], now["types"]))
        yield f"{title} -> {now['version']}" + ("" if changes else ": the types are the same")
        yield from (f"  {line}" for line in changes)


def _changes(old: dict[str, list[str]], new: dict[str, list[str]]) -> Iterator[str]:
    yield from (f"- {name}" for name in old if name not in new)
    for name, lines in new.items():
        if name not in old:
            yield f"+ {name}"
            yield from (f"    {line}" for line in lines[:_SHOWN])
            continue
        gone, come = [one for one in old[name] if one not in lines], [one for one in lines if one not in old[name]]
        if gone or come:
            yield name
            yield from (f"  - {line}" for line in gone)
            yield from (f"  + {line}" for line in come)


def installed() -> dict[str, Json]:
    """What the releases in this environment define."""
    return {package: sdk_schema.release(package) for package in sdk_schema.PACKAGES}


def newest(folder: Path) -> dict[str, Json]:
    """What the newest releases define, installed in a folder."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    pip = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
    subprocess.run([python, *pip, *sdk_schema.PACKAGES.values()], check=True)
    told = subprocess.run([python, "-W", "ignore", sdk_schema.__file__], check=True, capture_output=True, text=True)
    found: dict[str, Json] = json.loads(told.stdout)
    return found


def known_types() -> str:
    """The list of known types, as it is recorded: one type a line."""
    lists = {package: sorted(sdk_schema.known(package)) for package in sdk_schema.PACKAGES}
    return json.dumps(lists, indent=1) + "\n"


def main(arguments: Sequence[str]) -> None:
    """Print what changed, or record what there is."""
    if "--accept" in arguments:
        KNOWN.write_text(known_types())
        return
    with TemporaryDirectory() as folder:
        for line in news(installed(), newest(Path(folder))):
            sys.stdout.write(f"{line}\n")


if __name__ == "__main__":
    main(sys.argv[1:])
