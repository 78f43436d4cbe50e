"""Numbers as people read them: short figures, dollars, sizes, bars."""

from __future__ import annotations

from datetime import date, datetime
from typing import Any, Final

UNKNOWN: Final = "-"
NANO: Final = 10**9
EXACT: Final = 100_000  # numbers below are written out
STEPS: Final = ((10**12, "T"), (10**9, "G"), (10**6, "M"), (10**3, "k"))
EIGHTHS: Final = ("", "▏", "▎", "▍", "▌", "▋", "▊", "▉")
SECOND_MS: Final = 1000
# From so many nano-dollars on -> decimals of a cost in dollars
DECIMALS: Final = ((NANO, 2), (NANO // 100, 4))


def short(value: float | None) -> str:
    """A number in a few characters: ``12,345``, ``123k``, ``1.23M``."""
    if value is None:
        return UNKNOWN
    if abs(value) < EXACT:
        return f"{value:,.0f}"
    factor, letter = next((factor, letter) for factor, letter in STEPS if abs(value) >= factor)
    scaled = value / factor
    return f"{scaled:.{2 if scaled < 10 else 1 if scaled < 100 else 0}f}{letter}"  # noqa: PLR2004 - three digits


def number_of(count: int, one: str, several: str | None = None) -> str:
    """How many there are of something: ``1 day``, ``2 days``, ``1,000 bodies``."""
    return f"{count:,} {one if count == 1 else several or one + 's'}"


def dollars(nano: int | None, *, decimals: int | None = None, at_least: str = "") -> str:
    """A cost in dollars; without `decimals` with as many as say something. `at_least` marks one that may be higher."""
    if nano is None:
        return UNKNOWN
    decimals = cost_decimals(nano) if decimals is None else decimals
    smallest = 10 ** (9 - decimals)
    if 0 < nano < smallest // 2 and not at_least:
        return f"<{smallest / NANO:.{decimals}f}"
    return f"{at_least}{nano / NANO:,.{decimals}f}"


def cost_decimals(largest: int) -> int:
    """How many decimals the costs of a column have, by the largest of them."""
    return next((decimals for limit, decimals in DECIMALS if largest >= limit), 6)


def percent(ratio: float | None) -> str:
    """A ratio in percent."""
    return UNKNOWN if ratio is None else f"{ratio * 100:.0f}%"


def milliseconds(value: float | None) -> str:
    """A duration: milliseconds, from a second on seconds."""
    if value is None:
        return UNKNOWN
    return f"{value:.0f} ms" if value < SECOND_MS else f"{value / SECOND_MS:,.1f} s"


def size(count: int | None) -> str:
    """A number of bytes."""
    if count is None:
        return UNKNOWN
    scaled: float = count
    for unit in ("B", "KiB", "MiB", "GiB"):
        if scaled < 1024:  # noqa: PLR2004 - the next unit
            return f"{scaled:,.0f} {unit}" if unit == "B" else f"{scaled:,.1f} {unit}"
        scaled /= 1024
    return f"{scaled:,.1f} TiB"


def bar(value: float | None, largest: float, width: int, *, is_plain: bool = False) -> str:
    """A bar of at most `width` characters; anything above zero shows."""
    if not value or not largest or width < 1:
        return ""
    eighths = max(round(value / largest * width * 8), 1)
    whole, rest = divmod(eighths, 8)
    return "#" * max(whole, 1) if is_plain else "█" * whole + EIGHTHS[rest]


def key_text(value: Any) -> str | None:
    """A key of a report as text: ISO 8601 for times."""
    if isinstance(value, datetime):
        return value.isoformat(timespec="minutes")
    return value.isoformat() if isinstance(value, date) else None if value is None else str(value)
