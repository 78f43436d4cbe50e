"""Generates the page Compatibility of the documentation; ``make docs`` writes it.

Options come from the field tables. For items and parts, one of each is rendered, so the page shows what the code does.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterable, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.session import Session
from threadkeep.errors import CannotRender
from threadkeep.formats import NAMES, FormatName, get_format
from threadkeep.formats.shared.fields import Field, FieldGroup, NoField, Row, SpecialField
from threadkeep.formats.shared.reports import LOSSES, REPAIRS

_INTRODUCTION: Final = """# Compatibility

What each wire format supports, and what is reported if it does not support something. `make docs` generates this page
from the tables used by the code; [Formats](formats.md) explains the rules.

This page applies to content that you create yourself, and to content that is converted from one format to another.
Content received in a format is sent back in that format unchanged, even where this page says `left out`: unknown items,
parts, keys and tools are kept.
"""
_CELLS: Final = """## What the cells mean

`sent` means that it is included in the request; a code after it names a repair. `left out` means that it is omitted,
and `a note` that it is replaced with text. The codes are explained under [losses](#losses) and [repairs](#repairs).
"""
_PICTURE: Final = "data:image/png;base64,iVBORw0KGgo="
_VIDEO: Final = "data:video/mp4;base64,AAAAGGZ0eXA="
_PDF: Final = "data:application/pdf;base64,JVBERi0="
_TOOL: Final[JsonObject] = {"type": "function", "name": "lookup", "parameters": {"type": "object", "properties": {}}}
_CLOSED: Final[JsonObject] = {"type": "object", "properties": {}, "required": [], "additionalProperties": False}
_CALL: Final[JsonObject] = {"type": "function_call", "call_id": "call_1", "name": "lookup", "arguments": "{}"}
_OUTPUT: Final[JsonObject] = {"type": "function_call_output", "call_id": "call_1", "output": "done"}
_TEXT: Final[JsonObject] = {"type": "input_text", "text": "Hi"}
_THOUGHT: Final[JsonObject] = {"type": "reasoning", "encrypted_content": "b3BhcXVl", "summary": []}
_NOTE: Final = b"not included"  # in the note that replaces a part
_LESS: Final = frozenset(
    {"annotations", "caller", "native", "option", "status", "title"}
)  # losses of details; the rest is sent

_TOTALS: Final = Path(__file__).parents[2] / "tests" / "formats" / "sdk_totals.json"
_VALUES: Final = """## Values of the SDKs' types

The tests make values of every item, message, block, part, step, option and tool from the types of the vendors' SDKs
(openai, anthropic, google-genai, pydantic-ai, ag-ui-protocol) and the service model of botocore: the least of each, one
more for each key and each alternative, and full ones. Each value is stored, sent back to its own format, streamed if it
can be part of an answer, and sent in every other format. Requests fit the types of the SDK that sends them, without a
key that these do not have. `lost silently` counts values of which a text, number or word is neither in the request nor
reported. The types of `ui_messages` are in no Python package: `make test-peers` makes their values from npm's `ai`.

"""
_AGENTS: Final = """## Coding agents

`make test-clients` runs real clients headless against a scripted provider, directly and through the
[recorder](recorder.md), and compares what is stored with the script, call by call: items, usage, costs, and which
conversation each call is in. Then it imports what the client wrote, alone, and where it was recorded: alone, each
answer to what was typed is there with its items and its bill, and where it was recorded, nothing is added. `right`
means that all of this was seen in November 2026; `-` that the client cannot be brought there headless. Forks have
conversations of their own.

| Client | Named by | Tools, resumed | Forked | Compacted | Agents | Two at once | Error, retried | Broken stream |
| --- | --- | --- | --- | --- | --- | --- | --- | --- |
| Claude Code 2.1.332 | header | right | right | right | right | right | right | right |
| Codex 0.171.0 | header | right | right | right | right | right | right | right |
| opencode 1.18.33 | header | right | right | right | right | right | right | right |
| pi 1.6.0, Responses | header | right | right | right | - | right | right | right |
| pi 1.6.0, Messages and Chat Completions | history | right | in one conversation | right | - | right | right | right |
| pi 1.6.0, the same with named sessions | header | right | right | right | - | right | right | right |
| Gemini CLI 0.61.0 | history | right | - | - | right | right | right | the client ends |
| qwen-code 0.24.4 | history | right | - | right | right | right | right | right |
| cline 3.0.65 | history | right, not resumed | - | - | right | right | right | right |
| llm 0.36 | history | right | - | - | - | - | right | - |
| aider 0.86.2 | history | recorded | - | - | - | - | recorded | recorded |

Tools are called alone, and two in one answer. opencode was run over Chat Completions in all situations, and
resumed over the others; Codex with the agents of models that it does not know (`multi_agent_v1`), and by hand with
`multi_agent_v2`, whose agents may inherit the history. Codex, opencode and pi were also run on this server's
`/v1/responses` over Chat Completions, Messages and Responses: tools run, signed thoughts come back, and what the
provider is sent fits the types of its SDK. What clients do:

- aider restores a session with its turns elsewhere, on a branch of the same conversation; it asks for the usage of its
  streams only where [a setting](recorder.md#setting-clients-up) says so, and writes no file that can be imported.
- cline resumes only in a terminal, and within one prompt it compacts nothing: it keeps the newest 20,000 tokens.
  Neither cline nor Gemini CLI asks again after a broken stream. Gemini CLI compacts only by a command, and two runs of
  llm at once may find its database locked.
- pi names no session over Messages and Chat Completions, unless [a setting](recorder.md#setting-clients-up) says so:
  what a fork says goes on in the conversation that it is from. When the fork's file is imported, it gets a conversation
  of its own; no call counts again.
- When qwen-code has compacted its history and is resumed, the prompt that led to it is not in what it sends: the
  conversation has it, and what comes next is a branch.
- Over Responses, opencode asks again without end if an answer has no usage: an upstream must report it, as those at a
  URL are asked to.
- Some calls are in no file of their client, and only recorded: the titles of opencode, the router of Gemini CLI. What
  failed or broke off is not written by all of them, or as part of the answer after it (Codex, qwen-code).
- The agents of clients that name no session are conversations of their own when they are recorded; that they are agents
  is known once their files are imported (qwen-code).
"""
_SERVER: Final = """## The server

Suites of other projects, which call [the server](server.md) over scripted providers: how many of their tests pass, and
how many passed before the server had every key that Open Responses requires. `make test-peers` runs the first one over
all five formats.

| Suite | Before | Now |
| --- | --- | --- |
| llm-comply 0.5, which checks against the schema of Open Responses, over Chat Completions | 1 of 13 | 13 of 13 |
| The same over Messages | 1 of 13 | 13 of 13 |
| OGX, `tests/integration/conversations` | 15 of 16 | 15 of 16 |
| OGX, `tests/integration/responses`: access of others | 6 of 6 | 6 of 6 |
| OGX, `tests/integration/responses`: with conversations | 4 of 5 | 4 of 5 |

OGX expects the deleted item where OpenAI answers with the conversation, as this server does, and one test needs a model
that remembers. Its other tests of responses need such a model, or its own packages, and were not run.

Answers with a value of each type that the SDKs have for answers come from the server as OpenAI's own types take them,
without an unknown key: 2,346 answers, each as a stream, as a stored response and in the list of its conversation.
Before, 1,201 of the 2,112 items of answers in five formats were refused.
"""
_COLUMNS: Final = {
    "values": "Values",
    "equal": "Back: equal",
    "mended": "Back: reported",
    "sent": "Elsewhere: sent",
    "reported": "Elsewhere: reported",
    "refused": "Refused",
    "silent": "Lost silently",
}

# description -> a part
PARTS: Final[dict[str, JsonObject]] = {
    "`input_text`": _TEXT,
    "`output_text`": {"type": "output_text", "text": "Hello"},
    "`text`": {"type": "text", "text": "Hello"},
    "`reasoning_text`": {"type": "reasoning_text", "text": "Hm"},
    "`summary_text`": {"type": "summary_text", "text": "Hm"},
    "`refusal`": {"type": "refusal", "refusal": "No."},
    "`input_image`, URL": {"type": "input_image", "image_url": "https://img.example.org/a.png"},
    "`input_image`, data URL": {"type": "input_image", "image_url": _PICTURE},
    "`input_image`, file id": {"type": "input_image", "file_id": "file_1"},
    "`input_file`, URL": {"type": "input_file", "file_url": "https://docs.example.org/a.pdf"},
    "`input_file`, data URL": {"type": "input_file", "file_data": _PDF, "filename": "a.pdf"},
    "`input_file`, file id": {"type": "input_file", "file_id": "file_1"},
    "`input_video`, URL": {"type": "input_video", "video_url": "https://video.example.org/a.mp4"},
    "`input_video`, data URL": {"type": "input_video", "video_url": _VIDEO},
    "`provider_item` of another format": {"type": "provider_item", "format": "another", "payload": {}},
}


def _message(role: str, *parts: JsonObject) -> JsonObject:
    return {"type": "message", "role": role, "content": list(parts)}


_USER: Final = _message("user", _TEXT)
_ANSWER: Final = _message("assistant", {"type": "output_text", "text": "Hello"})

# where a part is -> the items before it, the item that contains it (with its list of parts), and the items after it
PLACES: Final[dict[str, tuple[list[JsonObject], tuple[JsonObject, str], list[JsonObject]]]] = {
    "a user message": ([], (_USER, "content"), []),
    "an assistant message": ([_USER], (_ANSWER, "content"), [_USER]),
    "a system message": ([], (_message("system", _TEXT), "content"), [_USER]),
    "a tool output": ([_USER, _CALL], ({**_OUTPUT, "output": [_TEXT]}, "output"), []),
}
# description -> items, which are rendered between a question and an answer
ITEMS: Final[dict[str, list[JsonObject]]] = {
    "user `message`": [_USER],
    "assistant `message`": [_ANSWER],
    "`message` with role `system`": [_message("system", _TEXT)],
    "`message` with role `developer`": [_message("developer", _TEXT)],
    "`message` with an unknown role": [_message("critic", _TEXT)],
    "`function_call` with its output": [_CALL, _OUTPUT],
    "`function_call` without its output": [_CALL],
    "`function_call_output` without its call": [_OUTPUT],
    "`function_call_output` with status `failed`": [_CALL, {**_OUTPUT, "status": "failed"}],
    "`reasoning` with text and `encrypted_content`": [
        {**_THOUGHT, "content": [{"type": "reasoning_text", "text": "Hm"}]}
    ],
    "`reasoning` with `encrypted_content`": [_THOUGHT],
    "`reasoning` with a summary": [{"type": "reasoning", "summary": [{"type": "summary_text", "text": "Hm"}]}],
    "`compaction`": [{"type": "compaction", "encrypted_content": "b3BhcXVl"}],
    "`item_reference`": [{"type": "item_reference", "id": "msg_1"}],
    "`custom_tool_call` with its output": [
        {"type": "custom_tool_call", "call_id": "call_2", "name": "sql", "input": "select 1"},
        {"type": "custom_tool_call_output", "call_id": "call_2", "output": "1"},
    ],
    "any other item": [{"type": "web_search_call", "id": "ws_1", "status": "completed", "action": {"type": "search"}}],
    "`provider_item` of another format": [{"type": "provider_item", "format": "another", "payload": {}}],
}
# description -> a tool definition
TOOLS: Final[dict[str, JsonObject]] = {
    "`function`": _TOOL,
    "`function` with `strict`": {**_TOOL, "parameters": _CLOSED, "strict": True},
    "any other type": {"type": "web_search"},
    "`provider_tool` of another format": {"type": "provider_tool", "format": "another", "payload": {}},
}


def page() -> str:
    """Return the page in Markdown."""
    return "\n".join(
        [
            _INTRODUCTION,
            "## Options\n",
            *(_options(name) for name in NAMES),
            _CELLS,
            "## Items\n\nEach item is rendered between a question and an answer.\n",
            _table("Item", {what: [_item(items, name) for name in NAMES] for what, items in ITEMS.items()}),
            "## Parts\n",
            *(_parts(place) for place in PLACES),
            "## Tools\n",
            _table("Tool", {what: [_tool(tool, name) for name in NAMES] for what, tool in TOOLS.items()}),
            _VALUES + _totals(),
            _SERVER,
            _AGENTS,
            "## Losses\n\nWhat is missing from a request, by `code` of the loss.\n",
            _list("Code", "What is missing", LOSSES.items()),
            "## Repairs\n\nWhat was repaired so that the provider accepts the request, by `code` of the repair.\n",
            _list("Code", "What was done", REPAIRS.items()).rstrip("\n"),
            "",
        ]
    )


def _totals() -> str:
    """Return the figures of each format, as the last run that wrote the page counted them."""
    recorded = json.loads(_TOTALS.read_text()).values()
    rows = []
    for name in NAMES:
        figures = [one for one in recorded if one["format"] == name]
        if not figures:  # its types are in no Python package
            continue
        rows.append([f"`{name}`", *(f"{sum(one[key] for one in figures):,}" for key in _COLUMNS)])
    return _lines(["Format", *_COLUMNS.values()], rows)


def _options(name: FormatName) -> str:
    rows: tuple[Row, ...] = import_module(f"threadkeep.formats.{name}.fields").FIELDS
    cells = sorted((row.option, _target(row)) for row in rows)
    return f"### `{name}`\n\n{_list('Option', 'In the request', cells)}"


def _target(row: Row) -> str:
    """Return where an option is sent."""
    match row:
        case Field(target=target, how=how):
            return f"`{target}`" + ("" if how is None else ", converted to the format's values")
        case FieldGroup(targets=targets):
            return ", ".join(f"`{target}`" for target in targets)
        case SpecialField(what=what):
            return what
        case NoField(reason=reason, silent=silent):
            quiet = f" (no loss if it is {', '.join(f'`{value}`' for value in silent)})" if silent else ""
            return f"left out: {reason}{quiet}"


def _parts(place: str) -> str:
    before, (holder, key), behind = PLACES[place]
    rows = {}
    for what, part in PARTS.items():
        items = [*before, {**holder, key: [*holder[key], part]}, *behind]
        rows[what] = [_outcome(items, [_TOOL], name) for name in NAMES]
    return f"### In {place}\n\n{_table('Part', rows)}"


def _item(items: Sequence[JsonObject], name: FormatName) -> str:
    return _outcome([_USER, *items, _ANSWER, _USER], [_TOOL], name)


def _tool(tool: JsonObject, name: FormatName) -> str:
    return _outcome([_USER], [tool], name)


def _outcome(items: Sequence[JsonObject], tools: Sequence[JsonObject], name: FormatName) -> str:
    """Return what happens to items and tools in a format."""
    session = Session(model="any", tools=tools)
    for item in items:
        session.add_item(item)
    try:
        rendered = get_format(name).render(session)
    except CannotRender:
        return "refused"
    repairs = "".join(f", `{code}`" for code in _codes(rendered.repairs))
    if not rendered.losses:
        return f"sent{repairs}"
    codes = _codes(rendered.losses)
    word = "sent without" if _LESS.issuperset(codes) else "a note:" if _NOTE in rendered.body else "left out:"
    return f"{word} {', '.join(f'`{code}`' for code in codes)}{repairs}"


def _codes(reports: Iterable[Any]) -> list[str]:
    return list(dict.fromkeys(report.code for report in reports))


def _table(title: str, rows: dict[str, list[str]]) -> str:
    """Return a table with a column for each format."""
    head = [title, *(f"`{name}`" for name in NAMES)]
    return _lines(head, ([what, *cells] for what, cells in rows.items()))


def _list(title: str, meaning: str, rows: Iterable[tuple[str, str]]) -> str:
    """Return a table of words and their meanings."""
    return _lines([title, meaning], ([f"`{word}`", text] for word, text in rows))


def _lines(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "".join(f"| {' | '.join(cell.replace('|', '&#124;') for cell in line)} |\n" for line in lines)


if __name__ == "__main__":
    sys.stdout.write(page())
