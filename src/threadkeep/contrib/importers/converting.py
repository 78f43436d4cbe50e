"""Making conversations of what a source has, one at a time: one that cannot be made is reported, and stops no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from threadkeep.contrib.importers.records import Skipped, Transcript
from threadkeep.errors import ThreadkeepError

# what code raises that meets values of a shape which nobody has thought of
UNEXPECTED: Final = (ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError)


def converted(where: str, convert: Callable[..., Transcript | Skipped], *values: Any) -> Transcript | Skipped:
    """The conversation that is made of these values; or why there is none."""
    try:
        return convert(*values)
    except (ThreadkeepError, *UNEXPECTED) as error:
        return Skipped(where, f"it cannot be read: {reason(error)}")


def reason(error: Exception) -> str:
    """What an error says, with the name of one that is none of threadkeep's own."""
    return str(error) if isinstance(error, ThreadkeepError) else f"{type(error).__name__}: {error}"
