"""The response of Open Responses.

* Items keep their keys: those without a canonical name lie under `native`, unknown item types stay as they are, and
  unknown content parts become blocks of this format.
* What the body says beyond the fields of a response is provider data.

Source: OpenAI's API reference, "Responses", the response object.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from threadkeep.domain.items import Item, check_output, item_from_object, with_given
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.response import Response
from threadkeep.domain.usage import Usage, figure
from threadkeep.errors import CannotParse, InvalidItem, StreamChunk
from threadkeep.formats.canonical.given import shape_of
from threadkeep.formats.canonical.items import ANSWER_KEYS, NAME, PART_KEYS
from threadkeep.formats.open_responses.fields import STATUSES
from threadkeep.formats.shared import arguments, parsing, views
from threadkeep.formats.shared.parts import OURS, block, native_keys, split_native
from threadkeep.formats.shared.provider_errors import SENT_BODY, not_a_response, provider_error, shortened
from threadkeep.formats.shared.usage import count_at, normalized_usage

# keys of the body that are fields of a response under the same name: all but what the body has otherwise, or not at all
ECHOED: Final = Response.model_fields.keys() - {
    "status", "finish_reason", "output", "usage", "text_config", "provider_data", "format", "replayed", "stored",
}  # fmt: skip
COMPACTION: Final = "response.compaction"  # `object` of what the compaction endpoint answers
_KNOWN: Final = ECHOED | {"status", "output", "usage", "text", "extra"}
_USAGE: Final = (
    "input_tokens", "output_tokens", "total_tokens",
    "input_tokens_details", "output_tokens_details", "reasoning_tokens",
)  # fmt: skip
# keys of parts -> what they hold where they hold anything
_KINDS: Final = {
    "image_url": str, "video_url": str, "file_url": str, "file_data": str, "file_id": str, "filename": str,
    "detail": str, "annotations": list, "logprobs": list,
}  # fmt: skip


@parsing.answer_parser(NAME)
def parse_response(body: Any, _headers: Mapping[str, str] | None = None) -> Response:
    """Read a Responses body."""
    body = parsing.response_object(body)
    output = _output(body)
    if not output:
        _check(body)
    # The compaction endpoint gives no status: it only answers when it is done.
    is_window = body.get("object") == COMPACTION
    word = "completed" if is_window else body.get("status")
    usage, stored = body.get("usage"), body.get("extra")
    echoed, data = {}, {}
    for key, value in body.items():
        if key in ECHOED:
            echoed[key] = value
        elif value is not None and key not in _KNOWN:
            data[key] = value
    return Response(
        **echoed,
        status=parsing.status_of(word, STATUSES, NAME),
        finish_reason=body.get("status"),
        text=body.get("text"),
        output=_items(output, is_window=is_window),
        usage=usage_of(usage) if isinstance(usage, dict) and usage else None,
        # what no field of a response holds; a stored response brings its own along
        extra=data | (stored if isinstance(stored, dict) else {}),
        format=NAME,
    )


def _items(output: Sequence[JsonObject], *, is_window: bool) -> list[Item]:
    """The items of an output; an output of the compaction endpoint is a window, whose items stand together."""
    items = []
    for place, given in enumerate(output):
        item = item_object(given)
        if is_window and place and item["type"] == "compaction":
            item[views.KEEPS] = place
        items.append(with_given(item_from_object(item), given, shape_of(given, NAME)))
    return items


def _output(body: JsonObject) -> list[Any]:
    output = body.get("output")
    if output is None:
        return []
    if not isinstance(output, list) or not all(isinstance(item, dict) for item in output):
        raise CannotParse(f"output is {shortened(output)}, not a list of items.", hint=SENT_BODY)
    return output


def _check(body: JsonObject) -> None:
    """Refuse a body without output that is no response."""
    kind, word = body.get("type"), body.get("status")
    if isinstance(kind, str) and kind.startswith("response."):
        raise StreamChunk(NAME, kind)
    is_status = isinstance(word, str) and word in STATUSES  # and not one of HTTP or of an error
    if not is_status and (error := provider_error(body, NAME)) is not None:
        raise error
    for key in ("status", "object"):
        if key not in body:
            raise not_a_response(body, NAME, f"The body has no output, and its {key} is missing")


def item_object(item: JsonObject) -> JsonObject:
    """An output item as it is kept."""
    kind = item.get("type")
    known = ANSWER_KEYS.get(kind) if isinstance(kind, str) else None
    if known is None:
        return {**(item if _is_plain(item) else block(item, NAME)), "origin": NAME}
    kept = dict(split_native(item, known, NAME))
    kept["origin"] = NAME
    if kind == "message":
        content = item.get("content")
        parts = content if isinstance(content, list) else [] if content is None else [content]
        kept["content"] = [_part(part) for part in parts]
        if not isinstance(role := kept.setdefault("role", "assistant"), str):  # which goes back as it came
            kept |= {"role": "assistant", "native": {NAME: {**native_keys(kept, NAME), "role": role}}}
    elif kind == "function_call_output" and isinstance(item.get("output"), list):
        kept["output"] = [_part(part) for part in item["output"]]
    elif kind == "function_call":
        kept["arguments"] = arguments.arguments_text(item.get("arguments"))
    return kept


def _is_plain(item: JsonObject) -> bool:
    """Whether an item of an unknown type can be recognized by its type and keys."""
    kind = item.get("type")
    is_type = isinstance(kind, str) and kind not in ("", "provider_item") and kind not in PART_KEYS
    return is_type and OURS.isdisjoint(item) and _has_parts(item)


def _has_parts(item: JsonObject) -> bool:
    """Whether the output of a custom tool is one that formats can read."""
    try:
        check_output(item, "item")
    except InvalidItem:
        return False
    return True


def _part(part: Any) -> JsonObject:
    if isinstance(part, str):
        return {"type": "output_text", "text": part}
    kind = part.get("type") if isinstance(part, dict) else None
    known = PART_KEYS.get(kind) if isinstance(kind, str) else None
    if known is None or not _is_whole(part):
        return block(part, NAME)
    return split_native(part, known, NAME)


def _is_whole(part: JsonObject) -> bool:
    """Whether a part has the text that its type stands for, and no value of a wrong kind."""
    for key, value in part.items():
        if value is not None and not isinstance(value, _KINDS.get(key, object)):
            return False
    is_media = part["type"].startswith("input_") and part["type"] != "input_text"
    return is_media or isinstance(part.get("refusal" if part["type"] == "refusal" else "text"), str)


def usage_of(usage: JsonObject) -> Usage:
    """The token counts; input and output include what came from the cache and what was reasoning."""
    normalized = normalized_usage(
        input_tokens=figure(usage.get("input_tokens")),
        output_tokens=figure(usage.get("output_tokens")),
        reasoning=count_at(usage, "output_tokens_details.reasoning_tokens", "reasoning_tokens"),
        total=figure(usage.get("total_tokens")),
        cached=count_at(usage, "input_tokens_details.cached_tokens"),
        written=count_at(usage, "input_tokens_details.cache_write_tokens"),
    )
    return Usage(**{name: usage.get(name) for name in _USAGE}, raw=usage, normalized=normalized)
