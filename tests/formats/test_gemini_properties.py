"""Properties of rendering for Gemini: valid whatever the conversation, pure, and with a stable beginning."""

from __future__ import annotations

import contextlib
import copy
import json
from itertools import pairwise
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from tests.formats.conversations import APPENDS, CONVERSATIONS, SETTINGS, TOOLS, Append, Conversation, grown
from tests.formats.spelling_gemini import camel, leveled
from tests.formats.validity_gemini import refused
from threadkeep.domain.rendering import RenderOptions
from threadkeep.errors import CannotRender, FormatError
from threadkeep.formats import get_format
from threadkeep.formats.canonical.snapshots import Snapshot
from threadkeep.formats.shared.reports import LOSSES, REPAIRS

FORMAT = get_format("gemini")
MODELS = st.sampled_from(["gemini-2.5-flash", "gemini-3-flash-preview", "models/gemini-2.0-flash", "tuned"])
GO_ON = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Go on"}]}


def rendered_turns(snapshot: Snapshot) -> tuple[list[Any], int]:
    """The contents and how many of them are stable; nothing where nothing can be sent."""
    try:
        rendered = FORMAT.render(snapshot)
    except CannotRender:
        return [], 0
    return rendered.payload["contents"], rendered.stable


@given(conversation=CONVERSATIONS, model=MODELS, data=st.data())
def test_any_cut_of_any_conversation_is_valid(conversation: Conversation, model: str, data: st.DataObject) -> None:
    last = conversation.entries[-1].position if conversation.entries else 0
    upto = data.draw(st.one_of(st.none(), st.integers(0, last)))
    conversation.settings["model"] = model
    with contextlib.suppress(CannotRender):  # nothing is left to be sent: the one refusal
        rendered = FORMAT.render(conversation.snapshot(), RenderOptions(upto=upto))
        assert refused(rendered.payload, model) == []
        assert {loss.code for loss in rendered.losses} <= LOSSES.keys()
        assert {repair.code for repair in rendered.repairs} <= REPAIRS.keys()


@given(conversation=CONVERSATIONS, model=MODELS)
def test_the_stable_part_stays_while_the_conversation_grows(conversation: Conversation, model: str) -> None:
    conversation.settings["model"] = model
    renders = [rendered_turns(conversation.snapshot(end)) for end in conversation.ends]
    for (before, stable), (after, _) in pairwise(renders):
        assert 0 <= stable <= len(before)
        assert after[:stable] == before[:stable]
    for before, stable in renders:
        assert renders[-1][0][:stable] == before[:stable]


@given(settings=SETTINGS, tools=TOOLS, appends=APPENDS)
def test_rendering_changes_nothing_and_repeats_itself(
    settings: dict[str, Any], tools: list[dict[str, Any]], appends: list[Append]
) -> None:
    given_before = copy.deepcopy((settings, tools, appends))
    conversation = grown(settings, tools, [*appends, Append([GO_ON])])
    first = FORMAT.render(conversation.snapshot())
    second = FORMAT.render(conversation.snapshot())
    assert first.body == second.body
    assert json.loads(first.body) == first.payload
    assert list(first.payload)[-1] == "contents"
    assert (settings, tools, appends) == given_before


@given(conversation=CONVERSATIONS, model=MODELS)
def test_a_request_that_was_rendered_is_read_and_rendered_as_it_was(conversation: Conversation, model: str) -> None:
    conversation.settings["model"] = model
    with contextlib.suppress(CannotRender):
        payload = FORMAT.render(conversation.snapshot()).payload
        rendered = FORMAT.parse_request(payload, model=model).render("gemini")
        assert rendered.payload == payload
        assert (rendered.losses, rendered.repairs) == ([], [])


# Requests as clients write them: keys in both cases, odd parts, contents of all shapes.

KEYS = st.sampled_from(
    [
        "text", "thought", "thoughtSignature", "thought_signature", "inlineData", "inline_data", "fileData",
        "functionCall", "function_call", "functionResponse", "function_response", "executableCode", "mime_type",
    ]
)  # fmt: skip
INNER = st.fixed_dictionaries(
    {},
    optional={
        "name": st.sampled_from(["f", "g", "", None]),
        "id": st.sampled_from(["c1", "", None]),
        "args": st.sampled_from([{"a": 1}, {}, None]),
        "response": st.sampled_from([{"result": "x"}, {"result": '{"a": 1}'}, {"error": "no"}, {}, None]),
        "mimeType": st.sampled_from(["image/png", "audio/wav", "text/plain; charset=utf-8", ""]),
        "data": st.sampled_from(["aW1n", "-_-_", "aQ", "###", ""]),
        "file_uri": st.sampled_from(["gs://b/a.png", "data:image/png;base64,aW1n"]),
        "parts": st.sampled_from([[], [{"inline_data": {"mime_type": "image/png", "data": "aW1n"}}], [{"text": "x"}]]),
    },
)
PART = st.dictionaries(
    KEYS, st.one_of(INNER, st.sampled_from(["hi", "", True, "c2ln", 7, [], [1], {"a": {}}])), max_size=3
).filter(
    lambda part: len({camel(key) for key in part}) == len(part)  # the service refuses a key in both spellings
)
CONTENT = st.fixed_dictionaries(
    {"parts": st.one_of(st.lists(PART, min_size=1, max_size=3), PART)},
    optional={"role": st.sampled_from(["user", "model", "function", None])},
)
HEADS = st.fixed_dictionaries(
    {},
    optional={
        "generationConfig": st.fixed_dictionaries(
            {},
            optional={
                "temperature": st.sampled_from([0, 0.5, "0.5", None]),
                "max_output_tokens": st.sampled_from([5, "5"]),
                "thinkingConfig": st.sampled_from(
                    [{"thinking_level": "low"}, {"thinkingBudget": 5, "includeThoughts": False}, {}]
                ),
                "responseSchema": st.sampled_from([{"type": "OBJECT"}, {"type": "object", "$defs": {}}]),
                "responseMimeType": st.sampled_from(["application/json", "text/plain", "text/x.enum"]),
                "response_logprobs": st.booleans(),
                "logprobs": st.just(2),
            },
        ),
        "system_instruction": st.one_of(
            st.fixed_dictionaries({"parts": st.lists(PART, max_size=2)}, optional={"role": st.just("system")}),
            st.just("Be brief."),
        ),
        "tools": st.one_of(
            st.lists(
                st.fixed_dictionaries(
                    {},
                    optional={
                        "function_declarations": st.lists(
                            st.fixed_dictionaries(
                                {"name": st.sampled_from(["f", "g.h", ""])},
                                optional={"parameters": st.just({"type": "OBJECT", "nullable": True})},
                            ),
                            max_size=1,
                        ),
                        "google_search": st.just({}),
                    },
                ),
                max_size=2,
            ),
            st.just({"codeExecution": {}}),
        ),
        "toolConfig": st.sampled_from(
            [
                {"functionCallingConfig": {"mode": "any", "allowed_function_names": ["f"]}},
                {"functionCallingConfig": {"mode": "VALIDATED"}, "retrievalConfig": {"languageCode": "en"}},
                {"function_calling_config": {"mode": "AUTO"}},
                {},
            ]
        ),
        "cachedContent": st.just("cachedContents/1"),
        "serviceTier": st.sampled_from(["FLEX", "flex", "other"]),
    },
)
REQUESTS = st.builds(
    lambda head, contents: {**head, "contents": contents}, HEADS, st.lists(CONTENT, min_size=1, max_size=4)
)


@given(request=REQUESTS, model=st.one_of(st.none(), MODELS))
def test_any_request_goes_back_as_it_came(request: dict[str, Any], model: str | None) -> None:
    before = copy.deepcopy(request)
    rendered = FORMAT.parse_request(request, model=model).render("gemini")
    # The API takes an output right behind its call alone, so one that stood elsewhere does not stay there.
    assume(all(repair.code != "moved_output" for repair in rendered.repairs))
    assert leveled(rendered.payload) == leveled(request)
    assert (rendered.losses, rendered.repairs) == ([], [])
    assert request == before


@given(thing=st.one_of(JSON, REQUESTS))
def test_reading_anything_gives_an_answer_or_a_format_error(thing: Any) -> None:
    for read in (FORMAT.parse_response, FORMAT.parse_request, FORMAT.parse_turns):
        with contextlib.suppress(FormatError):
            read(copy.deepcopy(thing))
    assembler = FORMAT.assembler()
    with contextlib.suppress(FormatError):
        assembler.feed(thing)
    assert assembler.partial.status == "in_progress"
