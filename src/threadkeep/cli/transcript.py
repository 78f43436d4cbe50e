"""Items as a person reads them: pure functions from an item's dict to lines."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Any, Final

from threadkeep.cli.outline import shortened
from threadkeep.domain.jsontext import JsonObject


def title_of(item: JsonObject) -> str:
    """What an item is, in a few words."""
    return TITLES.get(item["type"], _own_type)(item)


def lines_of(item: JsonObject) -> list[str]:
    """What an item says."""
    return ITEMS.get(item["type"], _anything)(item)


def _text(part: Mapping[str, Any]) -> list[str]:
    found = str(part.get("text", "")).splitlines()
    annotations = part.get("annotations") or []
    return [*found, f"[annotations: {len(annotations)}]"] if annotations else found


def _refusal(part: Mapping[str, Any]) -> list[str]:
    return [f"[refusal] {part.get('refusal', '')}"]


def _media(part: Mapping[str, Any]) -> list[str]:
    """What a picture, file or video is and where it comes from; never its bytes."""
    sources = [_source(str(part[key])) for key in ("url", "file_url", "file_data") if part.get(key) is not None]
    stored = [f"file {part['file_id']}"] if part.get("file_id") is not None else []
    named = [str(part[key]) for key in ("filename",) if part.get(key) is not None]
    detail = [f"detail {part['detail']}"] if part.get("detail") is not None else []
    facts = [*named, *sources, *stored, *detail] or ["without a source"]
    return [f"[{str(part['type']).removeprefix('input_')}: {', '.join(facts)}]"]


def _source(url: str) -> str:
    """An address as it is; of a data URL its media type and size."""
    head, comma, data = url.partition(",")
    if not head.startswith("data:") or not comma:
        return url
    media_type = head.removeprefix("data:").partition(";")[0] or "text/plain"
    size = len(data) * 3 // 4 - data[-2:].count("=") if head.endswith(";base64") else len(data)
    return f"{media_type}, {size:,} bytes"


def _block(part: Mapping[str, Any]) -> list[str]:
    return [f"[only for {part.get('format')}: {_json(part.get('payload'))}]"]


def _other_part(part: Mapping[str, Any]) -> list[str]:
    return [_json(part)]


# content part type -> its lines
PARTS: Final[dict[str, Callable[[Mapping[str, Any]], list[str]]]] = {
    "input_text": _text,
    "output_text": _text,
    "text": _text,
    "reasoning_text": _text,
    "summary_text": _text,
    "refusal": _refusal,
    "input_image": _media,
    "input_file": _media,
    "input_video": _media,
    "provider_item": _block,
}


def _content(content: Any) -> list[str]:
    if isinstance(content, str):
        return content.splitlines()
    if not isinstance(content, list):
        return [] if content is None else [_json(content)]
    return [
        line
        for part in content
        for line in (PARTS.get(str(part.get("type")), _other_part)(part) if isinstance(part, dict) else [_json(part)])
    ]


def _message(item: JsonObject) -> list[str]:
    return _content(item.get("content"))


def _call(item: JsonObject) -> list[str]:
    return str(item.get("arguments", "")).splitlines()


def _output(item: JsonObject) -> list[str]:
    return _content(item.get("output"))


def _reasoning(item: JsonObject) -> list[str]:
    sealed = item.get("encrypted_content")
    note = [f"[sealed by the provider: {len(str(sealed)):,} characters]"] if sealed else []
    return [*_content(item.get("summary")), *_content(item.get("content")), *note]


def _compaction(item: JsonObject) -> list[str]:
    return _reasoning(item) or ["[stands for everything before it]"]


def _anything(item: JsonObject) -> list[str]:
    return [_json({key: value for key, value in item.items() if key not in {"type", "origin", "native"}})]


# item type -> its lines
ITEMS: Final[dict[str, Callable[[JsonObject], list[str]]]] = {
    "message": _message,
    "function_call": _call,
    "function_call_output": _output,
    "reasoning": _reasoning,
    "compaction": _compaction,
    "item_reference": lambda item: [f"[item {item.get('id')}, kept by the provider]"],
    "provider_item": _block,
}


def _own_type(item: JsonObject) -> str:
    return str(item["type"])


# item type -> its title
TITLES: Final[dict[str, Callable[[JsonObject], str]]] = {
    "message": lambda item: str(item.get("role")),
    "function_call": lambda item: f"call {item.get('name')} ({item.get('call_id')})",
    "function_call_output": lambda item: f"output ({item.get('call_id')})",
}


def _json(value: Any) -> str:
    return json.dumps(shortened(value), ensure_ascii=False)
