"""Items and JSON as a person reads them: pure functions to lines.

Long texts of JSON are cut, deep objects are left out, and each element of a list stands on its own line.

Conversations as Markdown, in which a text cannot pretend to be anything else.

What was said is a block quote: its headings, lists and code stay in it. HTML, pictures that a reader would load, and
links to anything but the web are written so that they are text. Whatever is data is code.
"""

from __future__ import annotations

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.printing import printable
from threadkeep.domain.stored import StoredItem

MAX_TEXT: Final = 48  # characters of a text
MAX_DEPTH: Final = 5  # levels of objects and lists
WIDTH: Final = 110
TEXTS: Final = ("input_text", "output_text", "text")  # what parts of a message are called that say something
ASIDE: Final = frozenset({"type", "origin", "native"})  # keys of items that say nothing


def title_of(item: JsonObject) -> str:
    """What an item is, in a few words."""
    return TITLES[item["type"]](item) if item["type"] in TITLES else str(item["type"])


def lines_of(item: JsonObject) -> list[str]:
    """What an item says."""
    if (lines := ITEMS.get(item["type"])) is not None:
        return lines(item)
    return [preview_line({key: one for key, one in item.items() if key not in ASIDE and one is not None and one != []})]


def said_in(item: JsonObject) -> str:
    """The text of a message, joined; without refusals and reasoning."""
    content = item.get("content") if item["type"] == "message" else None
    if isinstance(content, str):
        return content
    parts = content if isinstance(content, list) else []
    return "".join(str(part.get("text", "")) for part in parts if isinstance(part, dict) and part.get("type") in TEXTS)


def _text(part: Mapping[str, Any]) -> list[str]:
    lines = str(part.get("text", "")).splitlines()
    annotations = part.get("annotations") or []
    return [*lines, f"[annotations: {len(annotations)}]"] if annotations else lines


def _media(part: Mapping[str, Any]) -> list[str]:
    """What a picture, file or video is and where it comes from; never its bytes."""
    facts = [text(str(part[key])) for key, text in MEDIA.items() if part.get(key) is not None]
    return [f"[{str(part['type']).removeprefix('input_')}: {', '.join(facts) or 'without a source'}]"]


def _source(url: str) -> str:
    """An address as it is; of a data URL its media type and size."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not comma:
        return url
    media_type = head.removeprefix("data:").partition(";")[0] or "text/plain"
    size = len(data) * 3 // 4 - data[-2:].count("=") if head.endswith(";base64") else len(data)
    return f"{media_type}, {size:,} bytes"


# key of a picture, file or video -> what is said of its value
MEDIA: Final[dict[str, Callable[[str], str]]] = {
    "filename": str,
    **dict.fromkeys(("url", "image_url", "video_url", "file_url", "file_data"), _source),
    "file_id": "file {}".format,
    "detail": "detail {}".format,
}


def _provider_block(part: Mapping[str, Any]) -> list[str]:
    return [f"[only for {part.get('format')}: {preview_line(part.get('payload'))}]"]


# content part type -> its lines
PARTS: Final[dict[str, Callable[[Mapping[str, Any]], list[str]]]] = {
    **dict.fromkeys((*TEXTS, "reasoning_text", "summary_text"), _text),
    **dict.fromkeys(("input_image", "input_file", "input_video"), _media),
    "refusal": lambda part: [f"[refusal] {part.get('refusal', '')}"],
    "provider_item": _provider_block,
}


def _content(content: Any) -> list[str]:
    if isinstance(content, str):
        return content.splitlines()
    if not isinstance(content, list):
        return [] if content is None else [preview_line(content)]
    return [line for part in content for line in _part(part)]


def _part(part: Any) -> list[str]:
    kind = str(part.get("type")) if isinstance(part, dict) else None
    return PARTS[kind](part) if kind in PARTS else [preview_line(part)]


def reasoning_parts(item: JsonObject) -> list[Any]:
    """The parts of a summary and of a content, in which thoughts of any provider are texts."""
    contents = [item.get(key) for key in ("summary", "content")]
    parts = [part for content in contents for part in (content if isinstance(content, list) else [content])]
    return [_thought(part) for part in parts if part is not None]


def _thought(part: Any) -> Any:
    text = part.get("thinking") if isinstance(part, dict) else part
    return {"type": "reasoning_text", "text": text} if isinstance(text, str) and text else part


def _reasoning(item: JsonObject) -> list[str]:
    parts = [*reasoning_parts(item), {"type": "redacted_thinking", "data": item.get("encrypted_content") or ""}]
    return [line for part in parts for line in (_sealed(part) if _is_sealed(part) else _part(part))]


def _is_sealed(part: Any) -> bool:
    """Whether a part of reasoning is one that only the provider can read."""
    return isinstance(part, dict) and part.get("type") in ("thinking", "redacted_thinking")


def _sealed(part: Mapping[str, Any]) -> list[str]:
    data = part.get("data") or part.get("signature")
    return [f"[encrypted by the provider: {len(str(data)):,} characters]"] if data else []


# item type -> its lines
ITEMS: Final[dict[str, Callable[[JsonObject], list[str]]]] = {
    "message": lambda item: _content(item.get("content")),
    "function_call": lambda item: str(item.get("arguments", "")).splitlines(),
    "function_call_output": lambda item: _content(item.get("output")),
    "reasoning": _reasoning,
    "compaction": lambda item: _reasoning(item) or ["[replaces everything before it]"],
    "item_reference": lambda item: [f"[item {item.get('id')}, kept by the provider]"],
    "provider_item": _provider_block,
}


# item type -> its title
TITLES: Final[dict[str, Callable[[JsonObject], str]]] = {
    "message": lambda item: str(item.get("role")),
    "function_call": lambda item: f"call {item.get('name')} ({item.get('call_id')})",
    "function_call_output": lambda item: f"output ({item.get('call_id')})",
}


# JSON


def shortened(value: Any, depth: int = 0) -> Any:
    """A JSON value with its long texts cut (each says how long it was) and what is nested too deeply left out."""
    if isinstance(value, str):
        return value if len(value) <= MAX_TEXT else f"{value[: MAX_TEXT // 2]}… ({len(value):,} characters)"
    if isinstance(value, dict):
        if depth > MAX_DEPTH and value:
            return {"…": len(value)}
        return {key: shortened(inner, depth + 1) for key, inner in value.items()}
    if isinstance(value, list):
        return ["…"] if depth > MAX_DEPTH and value else [shortened(inner, depth + 1) for inner in value]
    return value


def preview_lines(value: dict[str, Any]) -> list[str]:
    """The lines of a shortened JSON object: one for each key, and one for each element of its lists."""
    lines = []
    for name, inner in shortened(value).items():
        if isinstance(inner, list) and inner:
            lines += [f"{name}:", *(line for element in inner for line in _wrap(f"- {_json(element)}", "  "))]
        else:
            lines += _wrap(f"{name}: {_json(inner)}", "")
    return lines


def preview_line(value: Any) -> str:
    """A shortened JSON value on one line."""
    return _json(shortened(value))


def _wrap(line: str, indent: str) -> list[str]:
    hanging = f"{indent}    "
    return textwrap.wrap(
        line, WIDTH, initial_indent=indent, subsequent_indent=hanging, break_long_words=False, break_on_hyphens=False
    )


def _json(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False)


_TEXTS: Final = frozenset({"input_text", "output_text", "text", "reasoning_text", "summary_text"})
_PUNCTUATION: Final = re.compile(r"([\\`*_\[\]<>&#~])")
_FENCE: Final = re.compile(r"(`{3,}(?=[^`]*$)|~{3,})(.*)")  # at the beginning of a line
_FENCE_ELSEWHERE: Final = re.compile(r"[\s>*+.)\-\d]+(```|~~~)")
# What begins HTML, an address in <>, a picture, a link that is not to the web, or a definition of one
_ACTIVE: Final = re.compile(
    r"<(?=[A-Za-z/!?])|!(?=\[)|\](?=\(\s*<?(?!https?://|mailto:|#))|\](?=\s*\[)|^(?P<start>[\s>*+.)\-\d]*)\[(?=[^\]]*\]:)"
)
_RUNS: Final = re.compile("`+")


def markdown_of(title: str, facts: Iterable[tuple[str, str]], items: Iterable[StoredItem]) -> str:
    """A title, a list of facts, and the items."""
    head = [f"# {inline(title)}", "\n".join(f"- {inline(name)}: {code(value)}" for name, value in facts)]
    return "\n\n".join([*filter(None, head), *(part for stored in items for part in _item(stored))]) + "\n"


def inline(text: str) -> str:
    """A text on one line, without any markup in it."""
    return _PUNCTUATION.sub(r"\\\1", printable(" ".join(text.split())))


def code(text: str) -> str:
    """A text on one line, as code."""
    shown = printable(" ".join(text.split()))
    mark = "`" * (1 + max(map(len, _RUNS.findall(shown)), default=0))
    return f"{mark} {shown} {mark}" if shown.startswith("`") or shown.endswith("`") else f"{mark}{shown}{mark}"


def fenced(text: str, language: str = "") -> str:
    """A text as a block of code, whatever is in it."""
    shown = "\n".join(printable(text).splitlines())
    mark = "`" * max(3, 1 + max(map(len, _RUNS.findall(shown)), default=0))
    return f"{mark}{language}\n{shown}\n{mark}"


def quoted(text: str) -> str:
    """A text as a block quote that keeps its own Markdown, but for HTML, pictures and odd links, which are text.

    Code in fences at the margin stays as it is. Where a fence is not at the margin, readers may differ about where it
    ends: from there on nothing is taken for code.
    """
    fence, is_certain = "", True
    lines: list[str] = []
    for line in printable(text).splitlines():
        mark = _FENCE.match(line) if is_certain else None
        if fence:
            lines.append(line)
            if mark and mark[1].startswith(fence) and not mark[2].strip():
                fence = ""
        elif mark:
            fence = mark[1]
            lines.append(line)
        else:
            is_certain = is_certain and not _FENCE_ELSEWHERE.match(line)
            lines.append(_ACTIVE.sub(_escaped, line))
    return "\n".join(f"> {line}".rstrip() for line in lines)


def _escaped(match: re.Match[str]) -> str:
    start = match["start"]
    return f"\\{match[0]}" if start is None else f"{start}\\["


def _item(stored: StoredItem) -> Iterator[str]:
    item = stored.to_object()
    words = [title_of(item), f"by {stored.author_id}" if stored.author_id is not None else None]
    time = None if stored.created_at is None else stored.created_at.strftime("%Y-%m-%d %H:%M:%S")
    yield "## " + " · ".join(inline(word) for word in (*words, time) if word is not None)
    yield from _CONTENTS.get(item["type"], _other)(item)


def _blocks(content: Any, *, is_quoted: bool = True) -> Iterator[str]:
    """The parts of a content; what is not text is named."""
    show = quoted if is_quoted else _data
    if isinstance(content, str):
        content = [{"type": "text", "text": content}]
    for part in content if isinstance(content, list) else ():
        if isinstance(part, dict) and part.get("type") in _TEXTS:
            if text := str(part.get("text", "")):
                yield show(text)
        else:
            found: JsonObject = {"type": "message", "content": [part]}
            yield "\n".join(f"*{inline(line)}*" for line in lines_of(found))


def _data(value: Any) -> str:
    """JSON, or a text that may be JSON, as a block of code."""
    try:
        parsed = json.loads(value) if isinstance(value, str) else value
        return fenced(json.dumps(parsed, ensure_ascii=False, indent=2), "json")
    except (ValueError, RecursionError):
        return fenced(str(value), "text")


def _thoughts(item: JsonObject) -> Iterator[str]:
    yield from list(_blocks([part for part in reasoning_parts(item) if not _is_sealed(part)])) or _other(item)


def _other(item: JsonObject) -> Iterator[str]:
    lines = lines_of(item)
    if lines:
        yield fenced("\n".join(lines))


# item type -> what it says
_CONTENTS: Final[dict[str, Callable[[JsonObject], Iterator[str]]]] = {
    "message": lambda item: _blocks(item.get("content")),
    "function_call": lambda item: iter([_data(item.get("arguments"))]),
    "function_call_output": lambda item: _blocks(item.get("output"), is_quoted=False),
    "reasoning": _thoughts,
    "compaction": _thoughts,
}
