"""A judge of UIMessages: what `safeValidateUIMessages` of the AI SDK 7 refuses, which `make test-peers` asks itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

Json = dict[str, Any]
Rules = Mapping[str, Any]

TEXT, ANY = str, object
_METADATA = {"providerMetadata?": dict}
_FILE: Json = {"mediaType": TEXT, "filename?": TEXT, "url": TEXT, "providerReference?": dict, **_METADATA}
# type of a part -> its keys with their types; a question mark for those that may be absent
PARTS: dict[str, Rules] = {
    "text": {"text": TEXT, "citations?": list, "state?": ("streaming", "done"), **_METADATA},
    "reasoning": {"id?": TEXT, "text": TEXT, "state?": ("streaming", "done"), **_METADATA},
    "custom": {"kind": TEXT, **_METADATA},
    "source-url": {"sourceId": TEXT, "url": TEXT, "title?": TEXT, **_METADATA},
    "source-document": {"sourceId": TEXT, "mediaType": TEXT, "title": TEXT, "filename?": TEXT, **_METADATA},
    "file": _FILE,
    "reasoning-file": {"mediaType": TEXT, "url": TEXT, **_METADATA},
    "steering-message": {"id": TEXT, "parts": list},
    "step-start": {},
}
_TOOL: Json = {
    "toolCallId": TEXT, "title?": TEXT, "toolMetadata?": dict, "providerExecuted?": bool, "callProviderMetadata?": dict,
}  # fmt: skip
_ANSWERED: Json = {**_TOOL, "resultProviderMetadata?": dict}
# state of a tool -> its keys, those that it must not have, and what an approval says
STATES: dict[str, tuple[Rules, tuple[str, ...], tuple[Any, ...]]] = {
    "input-streaming": ({**_TOOL, "rawInput?": TEXT, "inputEncoding?": ("json", "text")},
                        ("output", "errorText", "approval"), ()),
    "input-available": (_TOOL, ("output", "errorText", "approval"), ()),
    "approval-requested": ({**_TOOL, "approval": dict}, ("output", "errorText"), (None,)),
    "approval-responded": ({**_TOOL, "approval": dict}, ("output", "errorText"), (True, False)),
    "output-available": ({**_ANSWERED, "output": ANY, "preliminary?": bool, "approval?": dict},
                         ("errorText",), (True,)),
    "output-error": ({**_ANSWERED, "errorText": TEXT, "approval?": dict}, ("output",), (True,)),
    "output-denied": ({**_TOOL, "approval": dict}, ("output", "errorText"), (False,)),
}  # fmt: skip
_APPROVAL: Json = {"id": TEXT, "requestReason?": TEXT, "reason?": TEXT, "isAutomatic?": bool, "signature?": TEXT}


def refused(payload: Json) -> list[str]:
    """What is wrong with a body of messages; empty if nothing is."""
    messages = payload.get("messages")
    if not isinstance(messages, list) or not messages:
        return ["no messages"]
    found = [f"[{i}]{problem}" for i, message in enumerate(messages) for problem in _of_message(message)]
    ids = [message.get("id") for message in messages]
    return found if len({*ids}) == len(ids) else [*found, f"ids are not unique: {ids}"]


def _of_message(message: Any) -> Iterator[str]:
    yield from _by_rules(message, {"id": TEXT, "role": ("system", "user", "assistant"), "parts": list})
    if message["role"] != "assistant" and not message["parts"]:
        yield ": no parts"
    for index, part in enumerate(message["parts"]):
        yield from (f".parts[{index}]{problem}" for problem in _of_part(part))


def _of_part(part: Json) -> Iterator[str]:
    kind = part.get("type")
    if not isinstance(kind, str):
        yield ": no type"
    elif kind in PARTS:
        yield from _by_rules(part, PARTS[kind])
    elif kind.startswith("data-"):
        yield from _by_rules(part, {"id?": TEXT})
    elif kind == "dynamic-tool" or kind.startswith("tool-"):
        if part.get("state") not in STATES:
            yield f": unknown state {part.get('state')!r}"
            return
        rules, absent, approved = STATES[part["state"]]
        yield from _by_rules(part, {**rules, **({"toolName": TEXT} if kind == "dynamic-tool" else {})})
        yield from (f".{key} is there" for key in absent if part.get(key) is not None)
        approval = part.get("approval")
        if approval is not None:
            yield from _by_rules(approval, _APPROVAL)
            if approval.get("approved") not in approved:
                yield f".approval.approved is {approval.get('approved')!r}"
    else:
        yield f": unknown type {kind!r}"


def _by_rules(thing: Json, rules: Rules) -> Iterator[str]:
    for name, rule in rules.items():
        key = name.removesuffix("?")
        if key not in thing:
            if key == name:
                yield f".{key} is missing"
        elif thing[key] not in rule if isinstance(rule, tuple) else not isinstance(thing[key], rule):
            yield f".{key} is {thing[key]!r}"
