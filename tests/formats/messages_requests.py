"""Hypothesis strategies for requests, answers and events of the Messages API: right ones, and some that are odd."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

Json = dict[str, Any]

WORDS = st.sampled_from(["", "a", "text", "user", "hi ", " ", "tool_use", "c1", "image", "enabled", "auto", "1h", "ä"])
VALUES = st.recursive(
    st.one_of(
        st.none(), st.booleans(), st.integers(-5, 10**20), st.floats(allow_nan=False, allow_infinity=False), WORDS
    ),
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(WORDS, inner, max_size=3)),
    max_leaves=6,
)
ODD = VALUES.filter(lambda value: value is not None)
IDS = st.sampled_from(["c1", "c2", "a b", ""])
MARKS = st.one_of(st.just({"type": "ephemeral"}), st.just({"type": "ephemeral", "ttl": "1h"}), VALUES)


def mostly(usual: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    """A value of its kind, now and then another."""
    return st.one_of(usual, usual, usual, VALUES)


def block(kind: str, **keys: st.SearchStrategy[Any]) -> st.SearchStrategy[Json]:
    """A block of a kind; keys with a trailing underscore may be absent."""
    needed = {key: mostly(value) for key, value in keys.items() if not key.endswith("_")}
    optional = {key[:-1]: mostly(value) for key, value in keys.items() if key.endswith("_")}
    return st.fixed_dictionaries({"type": st.just(kind), **needed}, optional=optional)


_BASE64 = {
    "media_type": st.sampled_from(["image/png", "application/pdf", "text/plain", "image/png;x"]),
    "data": st.sampled_from(["aW1n", "##", ""]),
}
SOURCES = st.one_of(
    block("base64", **_BASE64),
    block("url", url=st.sampled_from(["https://x.example.org", "data:text/plain,hi", ""])),
    block("file", file_id=st.just("f")),
    block("text", media_type=st.just("text/plain"), data=st.sampled_from(["hi", "", "\ud800"])),
    block("content", content=st.just([{"type": "text", "text": "x"}])),
)
TEXTS = block("text", text=WORDS, cache_control_=MARKS, citations_=st.lists(VALUES, max_size=1))
IMAGES = block("image", source=SOURCES, cache_control_=MARKS)
CITATIONS = st.fixed_dictionaries({"enabled": st.booleans()})
DOCUMENTS = block("document", source=SOURCES, title_=WORDS, context_=WORDS, citations_=CITATIONS, cache_control_=MARKS)
INPUTS = st.dictionaries(WORDS, VALUES, max_size=2)
USES = block("tool_use", id=IDS, name=st.sampled_from(["f", "g.h", ""]), input=INPUTS, caller_=VALUES)
INNER = st.lists(st.one_of(TEXTS, IMAGES, DOCUMENTS, ODD), max_size=2)
RESULTS = block(
    "tool_result", tool_use_id=IDS, content_=st.one_of(WORDS, INNER), is_error_=st.booleans(), cache_control_=MARKS
)
THINKING = st.one_of(block("thinking", thinking=WORDS, signature=WORDS), block("redacted_thinking", data=WORDS))
NATIVE = st.one_of(
    block("server_tool_use", id=IDS, name=WORDS, input=VALUES),
    block("web_search_tool_result", tool_use_id=IDS, content=VALUES),
    block("container_upload", file_id=WORDS),
)
BLOCKS = st.one_of(TEXTS, IMAGES, DOCUMENTS, USES, RESULTS, THINKING, NATIVE, ODD)
CONTENTS = st.one_of(WORDS, st.lists(BLOCKS, max_size=4), st.lists(BLOCKS, max_size=4), st.none())
MESSAGES = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "user", "assistant", "system", "tool"])},
    optional={"content": CONTENTS, "clear_at": WORDS},
)
TOOLS = st.one_of(
    st.fixed_dictionaries(
        {"name": mostly(st.sampled_from(["f", "g", "a.b", ""])), "input_schema": mostly(st.just({"type": "object"}))},
        optional={
            "description": mostly(WORDS),
            "strict": mostly(st.booleans()),
            "cache_control": MARKS,
            "type": mostly(st.sampled_from(["custom", "web_search_20250305"])),
        },
    ),
    ODD,
)
CHOICES = st.fixed_dictionaries(
    {"type": st.sampled_from(["auto", "any", "none", "tool"])},
    optional={"name": st.just("f"), "disable_parallel_tool_use": st.booleans()},
)
THINKING_SETTINGS = st.fixed_dictionaries(
    {"type": st.sampled_from(["enabled", "adaptive", "disabled"])},
    optional={"budget_tokens": st.integers(0, 3000), "display": WORDS},
)
FORMS = st.one_of(VALUES, st.just({"type": "json_schema", "schema": {}}))
OUTPUTS = st.fixed_dictionaries({}, optional={"effort": st.sampled_from(["low", "max", "x"]), "format": FORMS})
KEYS: dict[str, st.SearchStrategy[Any]] = {
    "model": st.sampled_from(["claude-sonnet-4-5", "claude-opus-4-8"]),
    "max_tokens": st.integers(0, 5000),
    "temperature": st.floats(-1, 2),
    "top_p": st.floats(0, 1),
    "system": st.one_of(WORDS, st.lists(TEXTS, max_size=3)),
    "tools": st.lists(TOOLS, max_size=3),
    "tool_choice": CHOICES,
    "thinking": THINKING_SETTINGS,
    "output_config": OUTPUTS,
    "metadata": st.fixed_dictionaries({}, optional={"user_id": WORDS, "x": WORDS}),
    "stream": st.booleans(),
    "stop_sequences": st.lists(WORDS),
    "cache_control": MARKS,
    "service_tier": st.sampled_from(["auto", "x"]),
}
REQUESTS = st.fixed_dictionaries(
    {"messages": st.lists(MESSAGES, max_size=5)}, optional={key: mostly(value) for key, value in KEYS.items()}
)
BODIES = st.one_of(
    VALUES,
    st.fixed_dictionaries(
        {"content": st.lists(BLOCKS, max_size=4)},
        optional=dict.fromkeys(("id", "model", "type", "stop_reason", "stop_details", "usage", "container"), VALUES),
    ),
)
INDEXES = st.integers(0, 2)
DELTAS = st.dictionaries(
    st.sampled_from(["type", "text", "partial_json", "citation", "signature", "thinking", "x"]), VALUES, max_size=3
)
STARTS = st.fixed_dictionaries({}, optional=dict.fromkeys(("content", "usage", "stop_reason"), VALUES))
EVENTS = st.one_of(
    VALUES,
    block("message_start", message=STARTS),
    block("content_block_start", index=INDEXES, content_block=BLOCKS),
    block("content_block_delta", index=INDEXES, delta=DELTAS),
    block("message_delta", delta_=VALUES, usage_=VALUES),
    block("message_stop"),
    st.just({"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}),
)

# What the service takes: for conversations that begin as a request and go on
_TEXT = st.sampled_from(["hello", " ", "Größe"]).map(lambda value: {"type": "text", "text": value})
_IMAGE = st.just({"type": "image", "source": {"type": "url", "url": "https://x.example.org"}})
_PDF = {"type": "base64", "media_type": "application/pdf", "data": "JVBERi0="}
_DOCUMENT = st.sampled_from([{"type": "document", "source": _PDF}, {"type": "document", "source": _PDF, "title": "A"}])
_SAID = st.sampled_from(["Sure.", "Looking. "]).map(lambda value: {"type": "text", "text": value})
_THOUGHT = st.sampled_from(
    [{"type": "thinking", "thinking": "hm", "signature": "c2ln"}, {"type": "redacted_thinking", "data": "ZW5j"}]
)
_SEARCH = st.just({"type": "server_tool_use", "id": "s", "name": "web_search", "input": {}})
_USE = st.sampled_from(["c1", "c2"]).map(lambda value: {"type": "tool_use", "id": value, "name": "f", "input": {}})
USER_TURNS = st.lists(st.one_of(_TEXT, _TEXT, _IMAGE, _DOCUMENT), min_size=1, max_size=3)
ANSWER_TURNS = st.lists(st.one_of(_SAID, _SAID, _THOUGHT, _SEARCH, _USE), min_size=1, max_size=4)


@st.composite
def exchanges(draw: st.DrawFn) -> list[Json]:
    """Messages that follow the rules: users and answers take turns, and every call has its result."""
    found: list[Json] = []
    for _ in range(draw(st.integers(1, 4))):
        results = [{"type": "tool_result", "tool_use_id": one} for one in _calls(found)]
        said = draw(USER_TURNS if not results else st.one_of(st.just([]), USER_TURNS))
        said = [*said, {"type": "text", "text": "?"}] if all(_is_blank(one) for one in [*results, *said]) else said
        answer = draw(ANSWER_TURNS)
        used = {one["id"]: one for one in answer if one["type"] == "tool_use"}
        found.append({"role": "user", "content": [*results, *said]})
        found.append(
            {"role": "assistant", "content": [one for one in answer if one["type"] != "tool_use"] + [*used.values()]}
        )
    results = [{"type": "tool_result", "tool_use_id": one, "content": "done"} for one in _calls(found)]
    return [*found, {"role": "user", "content": [*results, {"type": "text", "text": "Go on"}]}]


def _calls(messages: list[Json]) -> list[str]:
    return [one["id"] for one in (messages[-1]["content"] if messages else ()) if one["type"] == "tool_use"]


def _is_blank(one: Json) -> bool:
    return bool(one["type"] == "text" and not one["text"].strip())


EXCHANGES = exchanges()
