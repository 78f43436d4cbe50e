"""Stored texts where people read them: without characters that a terminal would obey, or that nobody sees."""

from __future__ import annotations

import re
from functools import cache
from typing import Final

# Stored texts come from anywhere. Of the characters that a terminal would obey, or that nobody sees, those are printed
# that a text needs: between emoji and behind them, and in the words of scripts whose letters join.
_EMOJI: Final = (
    r"\xa9\xae\u203c\u2049\u2122\u2139\u2190-\u21ff\u2300-\u2bff\u3030\u303d\u3297\u3299\U0001f000-\U0001faff"
)
_JOINING: Final = r"\u0620-\u0dff\u1000-\u109f\u1780-\u18af\ua840-\ua87f\ua8e0-\ua8ff\ua980-\ua9df\U00011000-\U000114df"
_IDEOGRAPHS: Final = r"\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
_NEEDED: Final = (
    rf"(?<=[{_EMOJI}\ufe0f])\u200d(?=[{_EMOJI}])|(?<=[{_EMOJI}])[\ufe0e\ufe0f]|(?<=[#*0-9])\ufe0f(?=\u20e3)"
    rf"|(?<=[{_JOINING}])[\u200c\u200d](?=[{_JOINING}])|(?<=[\u1820-\u18aa])[\u180b-\u180f]"
    rf"|(?<=[{_IDEOGRAPHS}])[\U000e0100-\U000e01ef]"
)
_CONTROLS: Final = (
    r"\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u2028-\u202e"
    r"\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\ufff0-\ufffb\U00013430-\U0001343f\U0001bca0-\U0001bca3"
    r"\U0001d173-\U0001d17a\U000e0000-\U000e0fff\ud800-\udfff"
)


@cache  # compiled when the first text needs it: most do not
def _unprintable() -> re.Pattern[str]:
    return re.compile(rf"{_NEEDED}|([{_CONTROLS}])")


def printable(text: str) -> str:
    """A text with control characters, except line breaks and tabs, invisible ones and lone surrogates as escapes."""
    if text.isascii() and text.isprintable():
        return text
    return _unprintable().sub(lambda match: _escape(match[1]) if match[1] else match[0], text)


def _escape(character: str) -> str:
    code = ord(character)
    return f"\\x{code:02x}" if code <= 0xFF else f"\\u{code:04x}" if code <= 0xFFFF else f"\\U{code:08x}"  # noqa: PLR2004


def printable_json(text: str) -> str:
    """The JSON text of the same value, with the same characters written as escapes of JSON."""
    if text.isascii() and text.isprintable():
        return text
    return _unprintable().sub(lambda match: _json_escape(match[1]) if match[1] else match[0], text)


def _json_escape(character: str) -> str:
    return re.sub("....", r"\\u\g<0>", character.encode("utf-16-be", "surrogatepass").hex())
