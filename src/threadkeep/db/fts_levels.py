"""The levels of SQLite's full-text index, of which most releases of FTS5 have no limit.

Each time all parts of the index are merged into one, FTS5 puts that on a new level above all others. When there are
more than 2,000, it takes the index for damaged. The lower ones are empty then, and can be left out.

Source: the description of the structure record in fts5_index.c of SQLite.
"""

from __future__ import annotations

from typing import Any, Final

from threadkeep.db.base import SEARCH_INDEX

MOST: Final = 128  # levels, from which on they become fewer
KEPT: Final = 64  # as many as newer releases of FTS5 have
_STRUCTURE: Final = 10  # the row that says which parts are on which level
_COOKIE: Final = 4  # bytes in front of all numbers
_NEWER: Final = b"\xff\x00\x00\x01"  # behind the cookie, where more is said of the parts
_EMPTY: Final = b"\x00\x00"  # a level on which nothing is, nor is merged
_SHIFT: Final = 7  # bits of a number in one byte


def lower_levels(driver: Any) -> None:
    """Leave out empty levels of the index, if there are many; in the transaction of the driver's connection.

    Call it directly after a merge of everything, when all lower ones are empty.
    """
    if fewer_levels(_read(driver)) is None:
        return
    driver.execute("SAVEPOINT threadkeep_levels")  # FTS5 writes what it has in memory, and forgets at a ROLLBACK
    driver.execute("ROLLBACK TO threadkeep_levels")
    driver.execute("RELEASE threadkeep_levels")
    if (structure := fewer_levels(_read(driver))) is not None:
        driver.execute(f"UPDATE {SEARCH_INDEX}_data SET block = ? WHERE id = ?", [structure, _STRUCTURE])  # noqa: S608 - a constant


def _read(driver: Any) -> bytes:
    found = driver.execute(f"SELECT block FROM {SEARCH_INDEX}_data WHERE id = ?", [_STRUCTURE]).fetchone()  # noqa: S608 - a constant
    return bytes(found[0]) if found is not None else b""


def fewer_levels(structure: bytes) -> bytes | None:
    """A structure record without lower levels; None if it has only so many, or something is on these."""
    cookie, rest = structure[:_COOKIE], structure[_COOKIE:]
    if not rest or rest.startswith(_NEWER):
        return None
    count, start = _number_at(rest, 0)
    _, behind_parts = _number_at(rest, start)
    _, body = _number_at(rest, behind_parts)
    surplus = (count - KEPT) * len(_EMPTY)
    if count <= MOST or rest[body : body + surplus].strip(b"\x00"):
        return None
    return cookie + bytes([KEPT]) + rest[start:body] + rest[body + surplus :]


def _number_at(data: bytes, index: int) -> tuple[int, int]:
    """The number that begins at an index, seven bits a byte, and where the next one begins."""
    number = 0
    while True:
        byte = data[index]
        number, index = number << _SHIFT | byte & 0x7F, index + 1
        if byte < 1 << _SHIFT:
            return number, index
