"""Hypothesis strategies for conversations as they grow: append by append, in every order that users come up with."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from hypothesis import strategies as st

from threadkeep.formats.canonical.entries import ItemEntry, Snapshot, entry_of

Json = dict[str, Any]

TEXTS = st.sampled_from(["hello", "", " ", "Größe 木", "JSON please"])
CALL_IDS = st.sampled_from(["a", "b", "", "x" * 70])
NAMES = st.sampled_from(["lookup", "my.tool", "my_tool", "ä", "", "n" * 80])
ARGUMENTS = st.sampled_from(["{}", '{"n":1}', "{", "", "NaN", '"text"'])
ITEM_IDS = st.sampled_from([None, "msg_1", "fc_1", "rs_1", "toolu_1"])
URLS = st.sampled_from(
    [
        None, "  ", "https://img.example.org/a.png", "data:image/png;base64,aW1n", "data:image/png;base64,###",
        "data:text/plain;base64,aGk=", "data:text/plain,hi", "data:application/pdf;base64,JVBERi0=",
        "data:audio/mpeg;base64,aW1n",
    ],
)  # fmt: skip


def _without_none(thing: Json) -> Json:
    return {key: value for key, value in thing.items() if value is not None}


def _kinds(*kinds: st.SearchStrategy[Json]) -> st.SearchStrategy[Json]:
    return st.one_of(*kinds).map(_without_none)


TEXT_PARTS = st.fixed_dictionaries(
    {"type": st.sampled_from(["input_text", "output_text", "text", "reasoning_text"]), "text": TEXTS}
)
FILE_IDS = st.sampled_from([None, "file-1"])
IMAGES = st.fixed_dictionaries(
    {"type": st.just("input_image"), "image_url": URLS, "file_id": FILE_IDS, "detail": st.sampled_from([None, "low"])}
)
FILES = st.fixed_dictionaries(
    {
        "type": st.just("input_file"),
        "file_data": URLS.filter(lambda url: url is None or ";base64," in url),
        "file_url": st.sampled_from([None, "https://docs.example.org/a.pdf", "data:text/plain,hi"]),
        "file_id": FILE_IDS,
        "filename": st.sampled_from([None, "a.pdf"]),
    }
)
BLOCKS = st.fixed_dictionaries(
    {
        "type": st.just("provider_item"),
        "format": st.just("messages"),
        "payload": st.just({"type": "container_upload", "file_id": "f"}),
    }
)
REFUSALS = st.fixed_dictionaries({"type": st.just("refusal"), "refusal": st.just("I can't.")})
PARTS = _kinds(TEXT_PARTS, TEXT_PARTS, IMAGES, FILES, BLOCKS, REFUSALS)

ROLES = st.sampled_from(["user", "user", "assistant", "assistant", "system", "developer", "critic"])
MESSAGES = st.fixed_dictionaries(
    {"type": st.just("message"), "role": ROLES, "content": st.lists(PARTS, max_size=3), "id": ITEM_IDS}
)
CALLS = st.fixed_dictionaries(
    {"type": st.just("function_call"), "call_id": CALL_IDS, "name": NAMES, "arguments": ARGUMENTS, "id": ITEM_IDS}
)
OUTPUTS = st.fixed_dictionaries(
    {
        "type": st.just("function_call_output"),
        "call_id": CALL_IDS,
        "output": st.one_of(TEXTS, st.lists(PARTS, max_size=2)),
        "status": st.sampled_from([None, "completed", "failed"]),
    }
)
REASONING = st.fixed_dictionaries(
    {"type": st.just("reasoning"), "id": ITEM_IDS, "encrypted_content": st.sampled_from([None, "blob"])}
)
_OTHERS: list[Json] = [
    {"type": "compaction", "encrypted_content": "packed"},
    {"type": "item_reference", "id": "msg_42"},
    {"type": "custom_tool_call", "call_id": "c", "name": "sql", "input": "select 1"},
    {"type": "custom_tool_call_output", "call_id": "c", "output": "1"},
    {"type": "provider_item", "format": "gemini", "payload": {"executableCode": {}}},
]
OTHERS = st.sampled_from(_OTHERS)
USER_ITEMS = _kinds(MESSAGES, MESSAGES, MESSAGES, CALLS, OUTPUTS, OUTPUTS, REASONING, OTHERS)

_ANSWER_TEXT = st.sampled_from(["Sure.", "Looking."])


def _said(text: str) -> Json:
    return {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": text}]}


def _called(call_id: str) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "lookup", "arguments": "{}"}


ANSWER_CALLS = st.sampled_from(["a", "b", "x" * 70]).map(_called)
# what answers of the formats look like: reasoning, text and calls
ANSWERS: dict[str, st.SearchStrategy[list[Json]]] = {
    "open_responses": st.lists(
        st.one_of(
            st.just({"type": "reasoning", "summary": [], "encrypted_content": "gAAA"}),
            st.just({"type": "reasoning", "content": [{"type": "reasoning_text", "text": "hm"}]}),
            _ANSWER_TEXT.map(_said),
            ANSWER_CALLS.filter(lambda call: len(call["call_id"]) < 65),
            st.just({"type": "web_search_call", "status": "completed", "action": {"type": "search"}}),
        ),
        max_size=4,
    ),
    "chat_completion": st.tuples(
        st.sampled_from(
            [[], [{"type": "reasoning", "native": {"chat_completion": {"reasoning_content": "hm"}}, "content": []}]]
        ),
        st.lists(_ANSWER_TEXT.map(_said), max_size=1),
        st.lists(ANSWER_CALLS, max_size=2, unique_by=lambda call: call["call_id"]),
        st.sampled_from(
            [
                [],
                [
                    {
                        "type": "provider_item",
                        "format": "chat_completion",
                        "payload": {"id": "z", "type": "custom", "custom": {"name": "sql", "input": "x"}},
                    }
                ],
            ]
        ),
    ).map(lambda found: [item for items in found for item in items]),
    "messages": st.lists(
        st.one_of(
            st.just({"type": "reasoning", "encrypted_content": "signature"}), _ANSWER_TEXT.map(_said), ANSWER_CALLS
        ),
        max_size=4,
    ),
}


_THOUGHT = {"type": "thinking", "thinking": "hm", "signature": "c2ln"}
ANSWERS["converse"] = st.lists(
    st.one_of(
        st.just({"type": "reasoning", "summary": [], "content": [_THOUGHT]}),
        st.just({"type": "reasoning", "summary": [], "content": [{"type": "redacted_thinking", "data": "ZW5j"}]}),
        st.sampled_from(["", " ", "Sure."]).map(_said),
        ANSWER_CALLS.filter(lambda call: len(call["call_id"]) < 65),
    ),
    max_size=4,
)


_NAMELESS = {"native": {"gemini": {"functionCall": {"id": None}}}}
ANSWERS["gemini"] = st.lists(
    st.one_of(
        st.just({"type": "reasoning", "content": [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}]}),
        st.sampled_from(["", "Sure."]).map(_said),
        ANSWER_CALLS,
        st.sampled_from(["a", "gemini_call_r1_0"]).map(lambda name: {**_called(name), **_NAMELESS}),
        ANSWER_CALLS.map(lambda call: {**call, "thought_signature": "c2ln"}),
        st.just({"type": "provider_item", "format": "gemini", "payload": {"thoughtSignature": "c2ln"}}),
    ),
    max_size=4,
)


@dataclass(frozen=True)
class Append:
    """Items that are added at once; an answer says how many items late its request was rendered."""

    items: list[Json]
    origin: str | None = None
    behind: int = 0


@st.composite
def _answers(draw: st.DrawFn) -> Append:
    origin = draw(st.sampled_from(sorted(ANSWERS)))
    items = [{**item, "origin": origin} for item in draw(ANSWERS[origin])]
    return Append(copy.deepcopy(items), origin, draw(st.sampled_from([0, 0, 0, 1, 2])))


APPENDS = st.lists(st.one_of(USER_ITEMS.map(lambda item: Append([item])), _answers()), max_size=9)
TOOLS = st.lists(
    NAMES.filter(bool).map(lambda name: {"type": "function", "name": name, "parameters": {"type": "object"}}),
    max_size=3,
    unique_by=lambda tool: str(tool["name"]),
)
CHOICES = st.sampled_from([None, "auto", "none", {"type": "function", "name": "lookup"}])
SETTINGS = st.fixed_dictionaries(
    {
        "model": st.just("gpt-5.4"),
        "instructions": st.sampled_from([None, "Be brief."]),
        "tool_choice": CHOICES,
        "parallel_tool_calls": st.sampled_from([None, False]),
        "max_output_tokens": st.sampled_from([None, 5, 500]),
        "reasoning": st.sampled_from([None, {"effort": "low"}, {"budget_tokens": 2000}]),
        "top_logprobs": st.sampled_from([None, 0]),
    }
).map(_without_none)


@dataclass
class Conversation:
    """A conversation that remembers where its appends ended."""

    settings: Json
    tools: list[Json]
    entries: list[ItemEntry] = field(default_factory=list)
    ends: list[int] = field(default_factory=list)  # number of items after each append

    def snapshot(self, count: int | None = None) -> Snapshot:
        """The conversation, or its first `count` items."""
        return Snapshot(settings=self.settings, tools=self.tools, entries=self.entries[:count])


def grown(settings: Json, tools: list[Json], appends: Sequence[Append]) -> Conversation:
    """The conversation that these appends make; positions have gaps, as on a branch."""
    made = Conversation(settings, tools)
    for number, append in enumerate(appends):
        before = made.entries
        place = before[-1].position + (3 if number % 4 == 0 else 1) if before else 0
        last_seen = before[-1 - append.behind].position if len(before) > append.behind else -1
        turn, seen = (None, None) if append.origin is None else (number, last_seen)
        made.entries += [
            entry_of(item, position=place + offset, turn=turn, seen=seen) for offset, item in enumerate(append.items)
        ]
        made.ends.append(len(made.entries))
    return made


CONVERSATIONS = st.builds(grown, SETTINGS, TOOLS, APPENDS)
