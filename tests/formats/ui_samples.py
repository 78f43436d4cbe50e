"""UIMessages of the AI SDK: each part, least and full, in each of its states, and chats made of them."""

from __future__ import annotations

from itertools import count
from typing import Any

Json = dict[str, Any]

META: Json = {"acme": {"list": [1, None, {"deep": True}]}}
OPENAI: Json = {"openai": {"itemId": "msg_1", "phase": "final_answer", "annotations": []}}
PNG = "data:image/png;base64,iVBORw0KGgo="

TEXTS: list[Json] = [
    {"type": "text", "text": ""},
    {"type": "text", "text": "Hi", "state": "streaming"},
    {"type": "text", "text": "Rain.", "state": "done", "providerMetadata": {**OPENAI, **META}},
    {"type": "text", "text": "Sun.", "providerMetadata": {"google": {"thoughtSignature": "c2lnbmVk"}}},
    {"type": "text", "text": "Fog.", "providerMetadata": {}},
]
FILES: list[Json] = [
    {"type": "file", "mediaType": "image/png", "url": PNG},
    {"type": "file", "mediaType": "image/*", "url": "https://img.example.org/a.png", "filename": "a.png",
     "providerReference": {"openai": "file-1"}, "providerMetadata": META},
    {"type": "file", "mediaType": "application/pdf", "url": "https://docs.example.org/a.pdf"},
    {"type": "file", "mediaType": "video/mp4", "url": "https://docs.example.org/a.mp4"},
    {"type": "file", "mediaType": "text/plain", "url": "data:text/plain;base64,SGk="},
    {"type": "file", "mediaType": "text/plain", "url": "data:,Hi"},
]  # fmt: skip
REASONING: list[Json] = [
    {"type": "reasoning", "text": ""},
    {"type": "reasoning", "id": "r1", "text": "Hm.", "state": "done", "providerMetadata": META},
    {"type": "reasoning", "text": "Hm.", "providerMetadata": {"anthropic": {"signature": "c2ln"}, **META}},
    {"type": "reasoning", "text": "", "providerMetadata": {"anthropic": {"redactedData": "cmVk"}}},
    {"type": "reasoning", "text": "Hm.", "providerMetadata": {"google": {"thoughtSignature": "c2ln"}}},
    {"type": "reasoning", "text": "Hm.", "providerMetadata": {"bedrock": {"signature": "c2ln"}}},
    {"type": "reasoning", "text": "One.", "providerMetadata": {
        "openai": {"itemId": "rs_1", "reasoningEncryptedContent": None}}},
    {"type": "reasoning", "text": "Two.", "state": "done", "providerMetadata": {
        "openai": {"itemId": "rs_1", "reasoningEncryptedContent": "gAAA"}, **META}},
    {"type": "reasoning", "text": "", "providerMetadata": {
        "azure": {"itemId": "rs_2", "reasoningEncryptedContent": "gBBB"}}},
]  # fmt: skip
OTHERS: list[Json] = [
    {"type": "custom", "kind": "openai.compaction"},
    {"type": "custom", "kind": "openai.compaction", "providerMetadata": META},
    {"type": "source-url", "sourceId": "s1", "url": "https://example.org"},
    {"type": "source-url", "sourceId": "s1", "url": "https://example.org", "title": "T", "providerMetadata": META},
    {"type": "source-document", "sourceId": "s2", "mediaType": "application/pdf", "title": "T"},
    {"type": "source-document", "sourceId": "s2", "mediaType": "application/pdf", "title": "T", "filename": "a.pdf",
     "providerMetadata": META},
    {"type": "reasoning-file", "mediaType": "image/png", "url": PNG},
    {"type": "reasoning-file", "mediaType": "image/png", "url": PNG, "providerMetadata": META},
    {"type": "data-weather", "data": {"city": "Kiel", "degrees": 4.5}},
    {"type": "data-note", "id": "n1", "data": None},
    {"type": "steering-message", "id": "st1", "parts": [{"type": "text", "text": "Shorter."}, FILES[0]]},
    {"type": "steering-message", "id": "st1", "parts": []},
    {"type": "step-start"},
]  # fmt: skip
CITED: Json = {
    "type": "text", "text": "Rain.", "citations": [
        {"startIndex": 0, "endIndex": 5, "source": {"type": "source", "sourceType": "url", "id": "s1",
                                                    "url": "https://example.org", "title": "T"}}],
}  # fmt: skip

_APPROVAL: Json = {"id": "ap1", "requestReason": "It costs.", "isAutomatic": False, "signature": "hmac",
                   "descriptor": {"kind": "cost"}, "inputSchemaInput": {"city": "Kiel"}}  # fmt: skip
_YES, _NO = {**_APPROVAL, "approved": True, "reason": "Go."}, {"id": "ap1", "approved": False}
_CALL_META: Json = {"openai": {"itemId": "fc_1", "namespace": "n"}, **META}
# state -> its keys, least and full
STATES: dict[str, list[Json]] = {
    "input-streaming": [{}, {"input": {"city": "Ki"}, "rawInput": '{"city": "Ki', "inputEncoding": "json"}],
    "input-available": [{"input": {}}, {"input": {"city": "Kiel"}, "callProviderMetadata": _CALL_META}],
    "approval-requested": [{"input": {}, "approval": {"id": "ap1"}}, {"input": "text", "approval": _APPROVAL}],
    "approval-responded": [{"input": {}, "approval": _NO}, {"input": {}, "approval": {**_NO, "reason": "Too dear."}},
                           {"input": {}, "approval": _YES}],
    "output-available": [
        {"input": {}, "output": None}, {"input": {}, "output": "Rain."}, {"input": {}},
        {"input": {"city": "Kiel"}, "output": {"degrees": [4, 4.5]}, "preliminary": True, "approval": _YES,
         "callProviderMetadata": {"google": {"thoughtSignature": "c2ln"}}, "resultProviderMetadata": META},
    ],
    "output-error": [{"errorText": "Away."}, {"errorText": "", "input": {"a": 1}, "rawInput": "{", "approval": _YES},
                     {"errorText": "Bad.", "rawInput": '{"city": '}],
    "output-denied": [{"input": {}, "approval": _NO}, {"input": {}, "approval": {**_NO, "reason": "Too dear."}}],
}  # fmt: skip


def tools() -> list[Json]:
    """Tool parts, static and dynamic, in each state."""
    numbers = count()
    kinds: list[Json] = [{"type": "tool-weather"}, {"type": "dynamic-tool", "toolName": "look up"}]
    found: list[Json] = [
        {**kind, "toolCallId": f"c{next(numbers)}", "state": state, **keys}
        for state, variants in STATES.items()
        for keys in variants
        for kind in kinds
    ]
    full = {"title": "Weather", "toolMetadata": {"icon": "sun"}, "providerExecuted": False}
    hosted = {"type": "tool-web_search", "toolCallId": "ws1", "state": "output-available", "input": {}, "output": []}
    return [
        *found, {**found[-1], **full, "toolCallId": "f"}, {**found[0], **full, "dynamic": False, "toolCallId": "g"},
        {**hosted, "providerExecuted": True},
    ]  # fmt: skip


def user(*parts: Json, **keys: Any) -> Json:
    return {"id": "u1", "role": "user", "parts": [*parts], **keys}


def assistant(*parts: Json, **keys: Any) -> Json:
    return {"id": "a1", "role": "assistant", "parts": [*parts], **keys}


STEP: Json = {"type": "step-start"}
ASSISTANT_PARTS: list[Json] = [*TEXTS, CITED, *FILES, *REASONING, *OTHERS, *tools()]
WEATHER: Json = {"type": "tool-weather", "toolCallId": "c1", "state": "output-available",
                 "input": {"city": "Kiel"}, "output": {"degrees": 4}}  # fmt: skip
# chats: what applications store of them
CHATS: dict[str, list[Json]] = {
    "empty": [user(), assistant(id="")],
    "plain": [user(TEXTS[2], metadata={"at": 1}), assistant(STEP, TEXTS[2], metadata=None)],
    "system": [{"id": "s", "role": "system", "parts": [TEXTS[2]]}, user(TEXTS[1])],
    "files": [user(TEXTS[1], *FILES, OTHERS[8]), assistant(*FILES)],
    "steps": [
        user(TEXTS[1]),
        assistant(STEP, REASONING[6], REASONING[7], WEATHER, {**WEATHER, "toolCallId": "c2", "output": "4"}, STEP,
                  REASONING[2], {**WEATHER, "toolCallId": "c3"}, STEP, STEP, TEXTS[2], STEP),
        user(TEXTS[1], id="u2"),
        assistant(STEP, {"type": "tool-weather", "toolCallId": "c4", "state": "approval-requested", "input": {},
                         "approval": {"id": "ap1"}}, id="a2"),
    ],
    "steered": [user(TEXTS[1]), assistant(STEP, WEATHER, OTHERS[10], STEP, TEXTS[2])],
    "version 5": [user({"type": "text", "text": "Hi"}), assistant(WEATHER, TEXTS[2])],
}  # fmt: skip
# what is of no version that is known: kept, and no other format's
STRANGE: list[Json] = [
    {"id": "d", "role": "data", "parts": [{"type": "text", "text": "Hi"}]},
    assistant({"type": "tool-invocation", "toolInvocation": {"toolCallId": "c", "toolName": "f", "state": "call"}}),
    assistant({"type": "hologram", "beam": 1}),
    assistant({"type": "text", "text": 7}),
    assistant({"type": "tool-x", "toolCallId": "c", "state": "output-imagined", "input": {}}),
    assistant({"type": "text", "text": "Hi", "sparkle": True}, mood="calm", createdAt="2026-11-28"),
    user({"type": "file", "url": "x:y"}, id="u2"),
]
