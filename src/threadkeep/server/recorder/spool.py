"""Files in which calls wait to be stored: appended to, checked when they are read, taken over from ended processes.

A process has a folder of its own, with a lock, and files of frames in it. A frame begins with the name of the folder,
which no client knows: after damage, the next frame is found by it. Each file has another one with the ids of its calls
that are stored. Frames are written to the system before an answer ends: they outlast the process, and after a loss of
power as much as the system had written to the disk.
"""

from __future__ import annotations

import logging
import os
import struct
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from threading import Lock
from typing import BinaryIO, Final, NamedTuple
from uuid import uuid4
from zlib import crc32

from threadkeep.errors import InvalidOption

logger = logging.getLogger(__name__)

LIMIT: Final = 1024 * 1024 * 1024  # bytes of all files of a process
FILE_BYTES: Final = 16 * 1024 * 1024  # after which the next file is begun
_BLOCK: Final = 1024 * 1024  # bytes of a damaged file that are searched at once
_HEAD: Final = struct.Struct("<16s16sHIIBI")  # see `append`; the last is the CRC of the head
_ID_BYTES: Final = 16
_LOCK: Final = "lock"


class SpoolFull(Exception):
    """There is no room: the files have reached their limit, or the disk is full."""


class Damaged(Exception):
    """A frame is not as it was written. Its text is logged, so it says nothing of what was sent."""


@dataclass(eq=False, slots=True)
class _File:
    path: Path
    size: int = 0
    open_calls: int = 0  # that have frames in it, and are not stored
    is_damaged: bool = False
    noted_bytes: int = 0  # of whole ids in `stored`
    unnoted: bytes = b""  # ids that the disk had no room for

    @property
    def stored(self) -> Path:
        """Where the ids of its calls are that are stored."""
        return self.path.with_suffix(".stored")

    def note(self, call: bytes) -> None:
        """Write the id of a call that is stored, and those that the disk had no room for.

        They are written behind the last whole one, so that what is left of a short write is overwritten.
        """
        is_first, self.unnoted = not self.unnoted, self.unnoted + call
        try:
            output = os.open(self.stored, os.O_CREAT | os.O_WRONLY, 0o600)
            try:
                written = os.pwrite(output, self.unnoted, self.noted_bytes)
            finally:
                os.close(output)
        except OSError as error:
            written = 0
            if is_first:
                logger.warning("%s cannot be written: %s. It is tried again.", self.stored, error.strerror)
        whole = written - written % _ID_BYTES
        self.noted_bytes += whole
        self.unnoted = self.unnoted[whole:]

    def noted(self) -> set[bytes]:
        """Read the ids of its calls that are stored, as another process has noted them."""
        try:
            text = self.stored.read_bytes() if self.stored.exists() else b""
        except OSError as error:
            logger.warning("%s cannot be read: %s. What is stored already is found again.", self.stored, error.strerror)
            text = b""
        self.noted_bytes = len(text) - len(text) % _ID_BYTES
        return {text[start : start + _ID_BYTES] for start in range(0, self.noted_bytes, _ID_BYTES)}


class _Frame(NamedTuple):
    file: _File
    offset: int
    length: int


@dataclass(eq=False, slots=True)
class SpooledCall:
    """A call that waits: where its frames are."""

    folder: bytes
    id: bytes = field(default_factory=lambda: uuid4().bytes)
    frames: list[_Frame] = field(default_factory=list)
    size: int = 0

    @property
    def modified(self) -> float:
        """When something was written last where it is."""
        return self.frames[0].file.path.stat().st_mtime

    def read(self) -> Iterator[bytes]:
        """Yield what was written, frame by frame.

        Raises:
            Damaged: a frame is not as it was written, or cannot be read.
        """
        for number, (file, offset, length) in enumerate(self.frames):
            try:
                with file.path.open("rb") as source:
                    source.seek(offset)
                    head, payload = source.read(_HEAD.size), source.read(length)
            except OSError as error:
                file.is_damaged = True
                raise Damaged(f"{file.path} cannot be read: {error.strerror}") from error
            known = _head_of(head)
            if known is None or known[:3] != (self.id, number, length) or crc32(payload) != known[3]:
                file.is_damaged = True
                raise Damaged(f"{file.path} is damaged at byte {offset:,}")
            yield payload


def _head_of(head: bytes) -> tuple[bytes, int, int, int, bool] | None:
    """The call, number, length, CRC of a frame, and whether it is the last; None where there is no frame."""
    if len(head) < _HEAD.size or crc32(head[:-4]) != int.from_bytes(head[-4:], "little"):
        return None
    _, call, number, length, crc, is_last, _ = _HEAD.unpack(head)
    return call, number, length, crc, bool(is_last)


class Spool:
    """The files of a process, and those that it has taken over. Its methods may be called by any thread."""

    def __init__(self, directory: Path, limit: int = LIMIT, *, file_bytes: int = FILE_BYTES) -> None:
        """Begin a folder in a directory, and take over the folders of processes that have ended.

        Args:
            directory: where the folders are; it is made if it is not there.
            limit: how many bytes the files may have.
            file_bytes: after how many bytes the next file is begun.

        Raises:
            InvalidOption: the directory cannot be used.
        """
        self._limit, self._file_bytes, self._lock = limit, file_bytes, Lock()
        self._locks: dict[Path, int] = {}
        self._output: int | None = None
        self._current: _File | None = None
        self._count = 0
        try:
            directory.mkdir(mode=0o700, parents=True, exist_ok=True)
            own = os.open(directory / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
            try:
                _lock(own)  # so that nobody takes over a folder that has no lock yet
                self._ended = [folder for folder in sorted(directory.iterdir()) if self._take(folder)]
                paths = (path for folder in self._ended for path in folder.glob("*.spool"))
                self._files = {path: _File(path, path.stat().st_size) for path in paths}
                self.size = sum(file.size for file in self._files.values())  # bytes of all files
                self._folder = directory / uuid4().hex
                self._folder.mkdir(mode=0o700)
                self._take(self._folder)
            finally:
                os.close(own)
        except OSError as error:
            problem = f"{str(directory)!r} cannot be used: {error.strerror}. Name a directory that can be written."
            raise InvalidOption(problem, argument="spool") from error

    def _take(self, folder: Path) -> bool:
        """Lock a folder; return whether no living process has it."""
        if not folder.is_dir() or len(folder.name) != 32 or set(folder.name) - set("0123456789abcdef"):  # noqa: PLR2004
            return False
        try:
            file = os.open(folder / _LOCK, os.O_CREAT | os.O_RDWR, 0o600)
        except FileNotFoundError:  # its process has just removed it
            return False
        try:
            _lock(file, is_patient=False)
        except BlockingIOError:
            os.close(file)
            return False
        self._locks[folder] = file
        return True

    def begin(self) -> SpooledCall:
        """Return a call that has no frames yet."""
        return SpooledCall(bytes.fromhex(self._folder.name))

    def append(self, call: SpooledCall, payload: bytes, *, is_last: bool) -> None:
        """Write a frame of a call.

        Raises:
            SpoolFull: there is no room for it; what was written before stays.
        """
        start = call.folder, call.id, len(call.frames), len(payload), crc32(payload), is_last
        head = _HEAD.pack(*start, 0)
        frame = head[:-4] + crc32(head[:-4]).to_bytes(4, "little") + payload
        with self._lock:
            if self.size + len(frame) > self._limit:
                raise SpoolFull
            file, output = self._writable()
            try:
                written = os.write(output, frame)
                if written < len(frame):
                    os.ftruncate(output, file.size)
                    raise SpoolFull
            except OSError as error:
                os.ftruncate(output, file.size)
                raise SpoolFull(error.strerror) from error
            self._add(call, _Frame(file, file.size, len(payload)))
            file.size += len(frame)
            self.size += len(frame)

    def _add(self, call: SpooledCall, frame: _Frame) -> None:
        if all(other.file is not frame.file for other in call.frames):
            frame.file.open_calls += 1
        call.frames.append(frame)
        call.size += frame.length

    def _writable(self) -> tuple[_File, int]:
        """The file that is appended to."""
        if self._current is None or self._output is None or self._current.size >= self._file_bytes:
            self._count += 1
            path = self._folder / f"{self._count:06}.spool"
            try:
                self._close_current()
                self._output = os.open(path, os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_APPEND, 0o600)
            except OSError as error:
                raise SpoolFull(error.strerror) from error
            self._current = self._files[path] = _File(path)
        return self._current, self._output

    def _close_current(self) -> None:
        if self._output is not None:
            os.close(self._output)
        file, self._current, self._output = self._current, None, None
        if file is not None and not file.open_calls:
            self._remove(file)

    def finish(self, call: SpooledCall) -> None:
        """Note that a call is stored, or cannot be; remove the files in which none waits.

        It is noted in all of its files before any of them is removed: after a kill in between, the next process finds
        the id next to the rest of the call. An id that a full disk has no room for is written with a later one.
        """
        with self._lock:
            files = list(dict.fromkeys(frame.file for frame in call.frames))
            call.frames.clear()
            if len(files) > 1 or any(file.open_calls > 1 for file in files):
                for file in files:
                    file.note(call.id)
            for file in files:
                self._leave(file)
            for file in files:
                if file.unnoted and file.open_calls:  # what was removed may have made room
                    file.note(b"")

    def _leave(self, file: _File) -> None:
        """Note that a call in a file is stored; remove it with the last one, or what is in it if it is appended to."""
        file.open_calls -= 1
        if file.open_calls:
            return
        try:
            if file is not self._current:
                self._remove(file)
            elif file.is_damaged:
                self._close_current()
            elif self._output is not None:
                os.ftruncate(self._output, 0)
                self.size -= file.size
                file.size, file.noted_bytes, file.unnoted = 0, 0, b""
                file.stored.unlink(missing_ok=True)
        except OSError:
            logger.exception("%s cannot be removed, though what was in it is stored.", file.path)

    def _remove(self, file: _File) -> None:
        del self._files[file.path]
        self.size -= file.size
        if file.is_damaged:
            file.path.rename(file.path.with_suffix(".damaged"))
        else:
            file.path.unlink(missing_ok=True)
        file.stored.unlink(missing_ok=True)

    def recover(self) -> Iterator[SpooledCall]:
        """Yield the calls of processes that have ended, in the order of their ends; last, those that broke off."""
        for folder in sorted(self._ended, key=lambda one: one.stat().st_mtime):
            yield from self._recovered(folder)
            if not any(path.parent == folder for path in self._files):
                self._release(folder)

    def _recovered(self, folder: Path) -> Iterator[SpooledCall]:
        begun: dict[bytes, SpooledCall] = {}
        files = [file for path, file in sorted(self._files.items()) if path.parent == folder]
        noted = {file: file.noted() for file in files}
        done = set().union(*noted.values())
        for file in files:
            file.open_calls += 1  # it stays until all of it is read
        for file in files:
            for frame, id_, is_last in _frames(file, bytes.fromhex(folder.name)):
                if id_ in done:
                    if id_ not in noted[file]:  # its process was killed before; the other file may be removed first
                        noted[file].add(id_)
                        with self._lock:
                            file.note(id_)
                    continue
                call = begun.setdefault(id_, SpooledCall(bytes.fromhex(folder.name), id_))
                with self._lock:
                    self._add(call, frame)
                if is_last:
                    yield begun.pop(id_)
        yield from begun.values()
        with self._lock:
            for file in files:
                self._leave(file)

    def _release(self, folder: Path) -> None:
        """Remove a folder, unless something damaged or foreign is in it."""
        with suppress(OSError):
            for path in (*folder.glob("*.stored"), folder / _LOCK):
                path.unlink(missing_ok=True)
            folder.rmdir()
        if (lock := self._locks.pop(folder, None)) is not None:
            os.close(lock)

    def close(self) -> None:
        """Let the next process take over what waits."""
        with self._lock:
            self._close_current()
            for folder in list(self._locks):
                if any(path.parent == folder for path in self._files):
                    os.close(self._locks.pop(folder))
                else:
                    self._release(folder)


def _lock(file: int, *, is_patient: bool = True) -> None:
    """Lock a file for as long as it is open, or its process lives; BlockingIOError if another process has it."""
    try:
        import fcntl  # noqa: PLC0415 - of Unix
    except ImportError as error:
        raise InvalidOption("needs the file locks of a Unix system.", argument="spool") from error
    fcntl.flock(file, fcntl.LOCK_EX | (0 if is_patient else fcntl.LOCK_NB))


def _frames(file: _File, folder: bytes) -> Iterator[tuple[_Frame, bytes, bool]]:
    """The frames of a file, without reading what they hold; what is none is passed over, and logged."""
    try:
        with file.path.open("rb") as source:
            yield from _frames_in(file, source, folder)
    except OSError as error:
        file.is_damaged = True
        logger.error("%s cannot be read: %s.", file.path, error.strerror)  # noqa: TRY400 - the cause says it


def _frames_in(file: _File, source: BinaryIO, folder: bytes) -> Iterator[tuple[_Frame, bytes, bool]]:
    offset, size = 0, file.path.stat().st_size
    while offset < size:
        source.seek(offset)
        known = _head_of(head := source.read(_HEAD.size))
        is_own = known is not None and head[:16] == folder
        if known is not None and is_own and offset + _HEAD.size + known[2] <= size:
            yield _Frame(file, offset, known[2]), known[0], known[4]
            offset += _HEAD.size + known[2]
            continue
        found = _find(source, folder, offset + 1)
        if found < 0 and (is_own or len(head) < _HEAD.size):
            logger.warning("The end of %s, from byte %s on, was not written whole.", file.path, f"{offset:,}")
            return
        file.is_damaged, end = True, size if found < 0 else found
        logger.error("%s is damaged from byte %s on: %s bytes.", file.path, f"{offset:,}", f"{end - offset:,}")
        offset = end


def _find(source: BinaryIO, word: bytes, start: int) -> int:
    """Where a word is in a file next; -1 if it is not there any more."""
    source.seek(start)
    text = b""
    while block := source.read(_BLOCK):
        text = text[1 - len(word) :] + block
        if (found := text.find(word)) >= 0:
            return source.tell() - len(text) + found
    return -1
