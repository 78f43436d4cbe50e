"""What is imported: files, folders of files, archives, and databases by their URLs."""

from __future__ import annotations

import io
import os
import re
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from functools import cached_property
from hashlib import blake2b
from itertools import tee
from pathlib import Path
from typing import IO, Any, Final

from threadkeep.db.engines import SQLITE_FILE
from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.errors import CannotParse, InvalidOption

PREFIX: Final = 4096  # bytes that tell a file from one that was written in its place
HEAD: Final = 256 * 1024  # bytes of a file that tell what it is
_JSON: Final = re.compile(r".*\.json", re.IGNORECASE)

Paths = str | os.PathLike[str] | Iterable[str | os.PathLike[str]]


class Input:
    """A file, or the URL of a database; `url` says which.

    Attributes:
        name: what it is called in messages.
        path: where it is; None for a URL.
        url: the URL as it was given (``postgresql://…``); None for a file.
        is_named: whether it was named itself, and not the folder that it is in.
    """

    def __init__(self, name: str, path: Path | None, url: str | None = None, *, is_named: bool = True) -> None:
        self.name, self.path, self.url, self.is_named = name, path, url, is_named
        self.on_read: Callable[[int], None] = lambda _: None

    @property
    def size(self) -> int:
        """How many bytes it has; 0 for a URL."""
        return 0 if self.path is None else self.path.stat().st_size

    @contextmanager
    def open(self, part: str | None = None) -> Iterator[IO[bytes]]:
        """The bytes of the file, or of a member of an archive; they count as progress when they are read.

        Raises:
            CannotParse: it is damaged, or has no such member.
        """
        if self.path is None:
            raise CannotParse(f"{self.name} is a database, not a file.")
        try:
            with io.BufferedReader(_Counted(self.path.open("rb", buffering=0), self), 1 << 16) as file:
                if part is None:
                    yield file
                    return
                with zipfile.ZipFile(file) as archive, archive.open(part) as member:
                    yield member
        except (zipfile.BadZipFile, EOFError, KeyError, NotImplementedError, RuntimeError) as error:
            raise CannotParse(f"{self.name} cannot be read: {error}.") from error

    @cached_property
    def head(self) -> bytes:
        """How it begins: up to 256 KiB; b"" for a URL, and for what cannot be read."""
        return self._head_of(None)

    @property
    def is_sqlite(self) -> bool:
        """Whether it is a SQLite database."""
        return self.head.startswith(SQLITE_FILE)

    @cached_property
    def members(self) -> tuple[str, ...]:
        """The names of the files in an archive (zip); none for other files."""
        if self.path is None or not self.head.startswith(b"PK"):
            return ()
        try:
            with zipfile.ZipFile(self.path) as archive:
                return tuple(one.filename for one in archive.infolist() if not one.is_dir())
        except (zipfile.BadZipFile, OSError, NotImplementedError):
            return ()

    def documents(self, pattern: str = ".*") -> list[str | None]:
        """What to `open`: the JSON files of an archive whose names match, without folders; None for the file itself."""
        if not self.members:
            return [None]
        name = re.compile(pattern)
        return [
            one for one in sorted(self.members)
            if name.fullmatch(one.rpartition("/")[2]) and _JSON.fullmatch(one)
        ]  # fmt: skip

    def first_keys(self, part: str | None = None) -> frozenset[str]:
        """The keys of the first object of a JSON document, or of the list that it is, as far as `HEAD` tells."""
        return frozenset(_first_keys(self.head if part is None else self._head_of(part)))

    @property
    def first_lines(self) -> Iterator[JsonObject]:
        """The objects that the first lines of JSON Lines hold, as far as `HEAD` tells; none for other files.

        A line is parsed when it is first asked for.
        """
        self._head_lines, lines = tee(self._head_lines)
        return lines

    @cached_property
    def _head_lines(self) -> Iterator[JsonObject]:
        return (value for value in map(_value, self._whole_lines()) if isinstance(value, dict))

    def _whole_lines(self) -> Iterator[bytes]:
        """The first lines, without one that `HEAD` cuts."""
        if self.path is None:
            return
        with suppress(OSError), self.path.open("rb") as file:
            rest = HEAD
            while rest and (line := file.readline(rest)):
                if len(line) < rest or line.endswith(b"\n"):
                    yield line.removeprefix(b"\xef\xbb\xbf") if rest == HEAD else line
                rest -= len(line)

    def fingerprint(self) -> str | None:
        """What changes when the file does: its size, its time, and how it begins; None for what is no file."""
        if self.path is None:
            return None
        try:
            about = self.path.stat()
            with self.path.open("rb") as file:
                begin = blake2b(file.read(PREFIX), digest_size=8).hexdigest()
        except OSError:
            return None
        return f"{about.st_size} {about.st_mtime_ns} {begin}"

    def forget(self) -> None:
        """Let go of what was read to recognize it."""
        for name in ("head", "members", "_head_lines"):
            self.__dict__.pop(name, None)

    def _head_of(self, part: str | None) -> bytes:
        if self.path is None:
            return b""
        try:
            if part is None:
                with self.path.open("rb") as file:
                    return file.read(HEAD)
            with zipfile.ZipFile(self.path) as archive, archive.open(part) as member:
                return member.read(HEAD)
        except (OSError, zipfile.BadZipFile, KeyError, NotImplementedError, RuntimeError):
            return b""


class _Counted(io.RawIOBase):
    """A file that tells how much is read of it."""

    def __init__(self, file: io.FileIO, input: Input) -> None:
        self._file, self._input = file, input

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        return self._file.seek(offset, whence)

    def readinto(self, buffer: Any) -> int:
        count = self._file.readinto(buffer) or 0
        self._input.on_read(count)
        return count

    def close(self) -> None:
        self._file.close()
        super().close()


def _value(line: bytes) -> Any:
    try:
        return loads(line) if line.strip() else None
    except ValueError:
        return None


_TOKEN: Final = re.compile(rb'[\[\]{}:,]|"(?:[^"\\]|\\.)*+"|[^\s\[\]{}:,"]+', re.DOTALL)


def _first_keys(text: bytes) -> Iterator[str]:
    """The keys of the first object, which may be in a list: names before a colon, at its depth."""
    depth, outer, before = 0, None, b""
    for found in _TOKEN.finditer(text):
        token = found[0]
        if token == b":" and depth == outer and before.startswith(b'"'):
            yield before[1:-1].decode("utf-8", "replace")
        elif token in b"[{":
            depth += 1
            if outer is None and token == b"{":
                outer = depth
        elif token in b"]}":
            depth -= 1
            if outer is not None and depth < outer:
                return
        before = token


def inputs_of(paths: Paths) -> list[Input]:
    """The files of some paths, folders with all files in them, by name; and URLs.

    Raises:
        InvalidOption: a path does not exist, or cannot be read.
    """
    given = [paths] if isinstance(paths, str | os.PathLike) else list(paths)
    return [found for one in given for found in _inputs_of(os.fspath(one))]


def _inputs_of(given: str) -> Iterator[Input]:
    if "://" in given:
        shown = re.sub(r"(://[^/@]*?):[^/@]*@", r"\1:***@", given)  # without the password
        yield Input(shown, None, given)
        return
    path = Path(given)
    try:
        if path.is_dir():
            files = sorted(one for one in path.rglob("*") if one.is_file())
            yield from (Input(str(one), one, is_named=False) for one in files)
            return
        with path.open("rb"):
            yield Input(given, path)
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or error
        raise InvalidOption(f"Cannot read {given!r}: {reason}.") from error
