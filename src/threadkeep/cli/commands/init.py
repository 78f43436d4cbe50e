"""``threadkeep init``: files with which an application, or a server, begins.

They are in ``data/init``. A file that is there already is never written over.
"""

from __future__ import annotations

from importlib.metadata import version
from importlib.resources import files
from pathlib import Path
from typing import Annotated, Final, NamedTuple

from typer import Argument, Option

from threadkeep.cli.output import note, print_text
from threadkeep.errors import Conflict, InvalidOption


class Beginning(NamedTuple):
    """What an application may begin with.

    Attributes:
        files: the names of the files, and where each of them is in ``data/init``.
        needs: what pip installs.
        steps: what to do then, a command a line.
    """

    files: dict[str, str]
    needs: str
    steps: tuple[str, ...]


_TABLES: Final = {"threadkeep_tables.py": "tables.py.txt"}
KINDS: Final = {
    "library": Beginning(
        {"chat.py": "library/chat.py.txt", **_TABLES},
        "threadkeep openai",
        ("python threadkeep_tables.py", 'OPENAI_API_KEY=… python chat.py "Hello"'),
    ),
    "app": Beginning(
        {"main.py": "app/main.py.txt", **_TABLES},
        '"threadkeep[http,viewer]" uvicorn',
        ("CHAT_TOKEN=… OPENAI_API_KEY=… uvicorn main:app",),
    ),
    "server": Beginning(
        {
            "compose.yaml": "server/compose.yaml.txt",
            "Dockerfile": "server/Dockerfile.txt",
            ".env.example": "server/.env.example.txt",
        },
        "",
        (
            "cp .env.example .env",
            "docker compose run --rm schema db upgrade",
            "docker compose run --rm schema keys create --user me",
            "docker compose up",
        ),
    ),
}


def init(
    kind: Annotated[
        str,
        Argument(
            metavar="KIND", show_default=False,
            help="library: a script that chats; app: FastAPI with the REST API and pages; server: threadkeep serve and "
            "PostgreSQL, by docker compose.",
        ),
    ],
    folder: Annotated[str, Option("--into", metavar="FOLDER", help="Where; it is made if it is missing.")] = ".",
) -> None:  # fmt: skip
    """Write files to begin with: library, app or server.

    A file that is there already is never written over.
    """
    if kind not in KINDS:
        raise InvalidOption(f"must be one of {', '.join(KINDS)}, not {kind!r}.", argument="KIND")
    beginning, target = KINDS[kind], Path(folder)
    if present := [name for name in beginning.files if (target / name).is_symlink() or (target / name).exists()]:
        hint = "Move them, or name another folder with --into. Nothing was written."
        raise Conflict(
            f"These files are there already: {', '.join(str(target / name) for name in present)}.", hint=hint
        )
    for name, place in beginning.files.items():
        _write(target / name, files("threadkeep.cli").joinpath("data/init", place).read_text(encoding="utf-8"))
        print_text(str(target / name))
    note("Next:")
    for step in (*([f"pip install {beginning.needs}"] if beginning.needs else ()), *beginning.steps):
        note(f"  {step}")


def _write(path: Path, text: str) -> None:
    """Write a new file, with the version that is installed in its place.

    Raises:
        InvalidOption: the folder cannot be written.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("x", encoding="utf-8") as file:
            file.write(text.replace("@VERSION@", version("threadkeep")))
    except OSError as error:
        raise InvalidOption(f"Cannot write {str(path)!r}: {error.strerror}.") from error
