"""Generates the page How providers differ of the documentation; ``make docs`` writes it.

Its tables are the rows that requests are made by, with the sources of each.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final

from threadkeep.domain.options import DIALECTS
from threadkeep.formats import NAMES
from threadkeep.formats.shared.limits import SettingRow
from threadkeep.formats.shared.provider_rules import FILLER, MEGABYTE, NO_OUTPUT, RuleRow, table
from threadkeep.formats.shared.setting_rules import SETTINGS

_INTRODUCTION: Final = f"""# How providers differ

What one provider takes, another refuses with a 400 error, often for the whole rest of a conversation: a blank text, a
system message in the middle, the 21st image. threadkeep stores what happened, and makes each request what its
provider takes. `make docs` generates this page from the table that requests are made by; each row names its sources:
documentation of the provider, or public issues with the error message.

A row applies by wire format, [dialect](views.md#vendors-dialect), model name and provider; a later row takes
precedence. What is changed is a repair, what is not sent is a loss, and what the provider is known to refuse and can
only be sent as it is, is the loss `refused`. With `strict=True`, losses raise `LossError`, and so do the repairs that
add a turn. An imported request goes back as it came.

The filler of a turn that a provider requires is `{FILLER}`; an output without content is `{NO_OUTPUT}`.
"""
_SETTINGS: Final = """## Settings

A setting that a provider refuses is left out, which is a loss, or becomes the nearest value that it takes, which is a
repair. What `extra` says under the name of the format, and tools, are sent as they are, and reported as `refused`. The
settings of an imported request go back as they came, and are not judged.
"""
_TITLES: Final = {
    "messages": "Messages",
    "converse": "Converse",
    "gemini": "Gemini",
    "chat_completion": "Chat Completions",
    "open_responses": "Responses",
}
# format -> what stands where in all of its requests
_ALWAYS: Final = {
    "open_responses": "Reasoning is followed by the item that it led to; no id and no call id comes twice.",
    "chat_completion": "Tool messages stand directly after the assistant message with their calls.",
    "messages": "The results of all calls come first in the user message directly after them; a final assistant text "
    "does not end with white space; neighbours of one role are joined.",
    "converse": "The results of all calls come first in the user message directly after them; documents have unique "
    "names, and a text next to them.",
    "gemini": "As many responses as calls, directly after them; media of outputs are in the response, or next to it.",
}


def _megabytes(value: int) -> str:
    return f"{value / MEGABYTE:g} MB"


# field of the rules -> value -> what it means, and what threadkeep does
_MEANINGS: Final[Mapping[str, Callable[[Any], str]]] = {
    "blank": {
        "not empty": "Empty texts are refused: they are omitted.",
        "some text": "Texts of white space are refused in messages without other text: they are omitted.",
        "no blank": "Blank texts are refused everywhere, also in tool outputs: they are omitted, or replaced.",
    }.__getitem__,
    "needs_content": lambda _: "Messages without content are refused: they are omitted.",
    "system": {
        "anywhere": "System messages may stand anywhere.",
        "leading": "One system message, the first: others are joined to it, and later ones sent as the user's.",
        "as user": "No system messages: they are sent as the user's.",
    }.__getitem__,
    "takes_developer": lambda _: "The role `developer` is unknown: `system` is sent.",
    "starts_with_user": lambda _: "The user has the first turn: a filler is added.",
    "last_turn": {
        "reported": "The last turn should be the user's, or of outputs: another one is sent, and reported.",
        "filled": "The last turn must be the user's, or of outputs: a filler is added.",
    }.__getitem__,
    "alternates": lambda _: "User and assistant must alternate: neighbours are joined.",
    "user_after_tool": lambda _: "No user message directly after a tool output: a filler is added.",
    "tool_media": lambda _: "Tool outputs are text: images and files are sent in a user message after them.",
    "error_media": lambda _: "Outputs that report an error are text: notes stand for images and files.",
    "refused_types": lambda value: f"No media of the types {', '.join(f'`{one}`' for one in value)} …: notes are sent.",
    "checks_types": lambda _: "The media type of an image must be what its bytes are: it is set right.",
    "media_urls": {
        "https": "No media by URLs of http: notes are sent.",
        "refused": "No media by URL: notes are sent.",
    }.__getitem__,
    "longest_call_id": lambda value: f"Call ids have at most {value} characters: hashes are sent for longer ones.",
    "calls": lambda value: f"At most {value} calls in an assistant message.",
    "json_word": lambda _: "JSON mode needs the word JSON in the messages: without, it is reported.",
    "pictures": lambda value: f"At most {value} image{'s' * (value > 1)} in a request.",
    "documents": lambda value: f"At most {value} documents.",
    "picture_bytes": lambda value: f"At most {_megabytes(value)} for each image, in base64.",
    "document_bytes": lambda value: f"At most {_megabytes(value)} for each document, in base64.",
    "media_bytes": lambda value: f"At most {_megabytes(value)} for all media, in base64.",
    "picture_side": lambda value: f"At most {value} pixels on a side.",
    "many_pictures": lambda value: f"From {value + 1} images on,",
    "many_side": lambda value: f"at most {value} pixels on a side.",
}


def page() -> str:
    """Return the page in Markdown."""
    always = _lines(["Format", "Rule"], ([f"`{name}`", rule] for name, rule in _ALWAYS.items()))
    tables = [_table(name) for name in NAMES if _rows(name)]
    settings = f"{_SETTINGS}\n" + "\n".join(_settings(name) for name in NAMES if name in _TITLES)
    return "\n".join([_INTRODUCTION, *tables, f"## All requests of a format\n\n{always}", settings])


def _settings(name: str) -> str:
    """The settings of a format, those of one limit in one line."""
    lines: dict[tuple[str, ...], list[str]] = {}
    for row in [row for row in SETTINGS if name in row.formats]:
        says = row.limit.says + (" (sent nevertheless)" if row.is_kept else "")
        lines.setdefault((_who_sets(row), _dialects(row), says, row.source), []).append(f"`{row.path}`")
    rows = ([who, dialect, ", ".join(paths), says, source] for (who, dialect, says, source), paths in lines.items())
    return f"### {_TITLES[name]}\n\n{_lines(['Who', 'Dialect', 'Setting', 'Takes', 'Sources'], rows)}"


def _who_sets(row: SettingRow) -> str:
    named = row.providers is not None and not row.who.lower().startswith(row.providers)
    return f"{row.who} (provider `{row.providers[0]}`)" if named and row.providers else row.who


def _rows(name: str) -> list[RuleRow]:
    return [row for row in table() if name in row.formats]


def _table(name: str) -> str:
    rows = ([_who(row), _dialects(row), _rules(row.rules), row.source] for row in _rows(name))
    return f"## {_TITLES[name]}: `{name}`\n\n{_lines(['Who', 'Dialect', 'Rule', 'Sources'], rows)}"


def _who(row: RuleRow) -> str:
    return row.who if row.providers is None else f"{row.who} (provider `{row.providers[0]}`)"


def _dialects(row: RuleRow | SettingRow) -> str:
    if row.dialects is None:
        return "any"
    if len(row.dialects) == len(DIALECTS):  # one of them, or none at all, is not among them
        return f"any but `{min({*DIALECTS} - {*row.dialects})}`"
    return ", ".join("none" if name is None else f"`{name}`" for name in row.dialects)


def _rules(rules: Mapping[str, Any]) -> str:
    return " ".join(_MEANINGS[field](value) for field, value in rules.items() if value is not None)


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(page())
