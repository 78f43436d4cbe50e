"""One spelling for requests of Open Responses that say the same: what a round trip may change, and nothing else.

* A key of the API that is null is absent.
* The input as a string is one user message; a message may do without `type`; content as a string is one text part.
* Empty is absent for `tools`, `include`, `annotations`, `logprobs` and the content of reasoning.
"""

from __future__ import annotations

from typing import Any

Json = dict[str, Any]

SETTINGS = ("reasoning", "text", "stream_options", "prompt", "conversation")  # objects whose keys are the API's own


def leveled(request: Json) -> Json:
    """The request in one spelling."""
    found: Json = without_nulls(request)
    for key in ("tools", "include"):
        if found.get(key) == []:
            del found[key]
    for key in SETTINGS:
        if isinstance(found.get(key), dict):
            found[key] = without_nulls(found[key])
    if isinstance(found.get("tools"), list):
        found["tools"] = [without_nulls(tool) for tool in found["tools"]]
    if isinstance(found.get("input"), str):
        found["input"] = [{"role": "user", "content": found["input"]}]
    if isinstance(found.get("input"), list):
        found["input"] = [leveled_item(item) for item in found["input"]]
    return found


def leveled_item(item: Any) -> Any:
    """An item in one spelling."""
    if not isinstance(item, dict):
        return item
    found = without_nulls(item)
    if "type" not in found:
        found["type"] = "message" if "role" in found else "item_reference"
    if found["type"] == "message":
        found = {**found, "content": leveled_content(found.get("content"), found.get("role"))}
    elif found["type"] == "function_call_output" and isinstance(found.get("output"), list):
        found["output"] = [leveled_part(part) for part in found["output"]]
    elif found["type"] == "reasoning" and found.get("content") == []:
        del found["content"]
    elif found["type"] == "custom_tool_call_output":
        found.pop("status", None)  # only answers have it
    return found


def leveled_content(content: Any, role: Any) -> Any:
    """The content of a message as parts."""
    if isinstance(content, str):
        content = [{"type": "output_text" if role == "assistant" else "input_text", "text": content}]
    return [leveled_part(part) for part in content] if isinstance(content, list) else content


def leveled_part(part: Any) -> Any:
    """A part in one spelling."""
    found = without_nulls(part)
    if isinstance(found, dict):
        for key in ("annotations", "logprobs"):
            if found.get(key) == []:
                del found[key]
    return found


def without_nulls(thing: Any) -> Any:
    """An object without the keys that are null; anything else as it is."""
    return {key: value for key, value in thing.items() if value is not None} if isinstance(thing, dict) else thing
