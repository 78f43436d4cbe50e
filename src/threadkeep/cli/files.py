"""Files that commands read; ``-`` is stdin."""

from __future__ import annotations

import os
import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO, Final

from threadkeep.errors import InvalidOption, ThreadkeepError

STDIN: Final = "-"


@contextmanager
def binary(name: str) -> Iterator[BinaryIO]:
    """A file that is open, or stdin.

    Raises:
        InvalidOption: it cannot be opened or read.
    """
    if name == STDIN:
        yield sys.stdin.buffer
        return
    with _opened(name) as file:
        yield file


@contextmanager
def written(path: Path) -> Iterator[None]:
    """What happens while a file is written.

    Raises:
        ThreadkeepError: it cannot be written; the message names it.
    """
    try:
        yield
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise ThreadkeepError(f"Cannot write {str(path)!r}: {reason}.") from error


def seekable(name: str) -> BinaryIO:
    """A file to be read twice, which the caller closes; stdin and pipes as a temporary copy.

    Raises:
        InvalidOption: it cannot be opened or read.
    """
    if name == STDIN:
        return _copied(sys.stdin.buffer)
    found = _opened(name)
    if found.seekable():
        return found
    with found:
        return _copied(found)


def _opened(name: str) -> BinaryIO:
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - the caller closes it
        file.peek(1)  # a folder can be opened, but not read
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise InvalidOption(f"Cannot read {name!r}: {getattr(error, 'strerror', None) or error}.") from error
    return file


def _copied(source: BinaryIO) -> BinaryIO:
    copy = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
    shutil.copyfileobj(source, copy)
    copy.seek(0)
    return copy
