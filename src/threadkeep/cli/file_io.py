"""Files that commands read; ``-`` is stdin."""

from __future__ import annotations

import shutil
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import BinaryIO, Final

from threadkeep.errors import InvalidOption

STDIN: Final = "-"


@contextmanager
def open_input(name: str, *, seekable: bool = False) -> Iterator[BinaryIO]:
    """An open file, or stdin; to be read twice (`seekable`) stdin and pipes are copied into a temporary file."""
    is_stdin = name == STDIN
    with nullcontext(sys.stdin.buffer) if is_stdin else _open(name) as file:
        if not seekable or (not is_stdin and file.seekable()):
            yield file
            return
        with tempfile.TemporaryFile() as copy:
            shutil.copyfileobj(file, copy)
            copy.seek(0)
            yield copy


def _open(name: str) -> BinaryIO:
    try:
        file = Path(name).open("rb")  # noqa: SIM115 - the caller closes it
        file.peek(1)  # a folder can be opened, but not read
    except (OSError, ValueError) as error:  # ValueError: a name with a null character
        raise InvalidOption(f"Cannot read {name!r}: {getattr(error, 'strerror', None) or error}.") from error
    return file
