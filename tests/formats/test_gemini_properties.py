"""Properties of reading Gemini: any request goes back as it came, and anything is read or refused."""

from __future__ import annotations

import contextlib
import copy
from typing import Any

from hypothesis import assume, given
from hypothesis import strategies as st

from tests.domain.jsonvalues import JSON
from tests.formats.spelling_gemini import camel, leveled
from tests.formats.turns import MODELS
from threadkeep.errors import FormatError
from threadkeep.formats import get_format

FORMAT = get_format("gemini")

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


@given(request=REQUESTS, model=st.one_of(st.none(), MODELS["gemini"]))
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
