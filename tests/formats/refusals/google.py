"""What the Gemini API refuses."""

from __future__ import annotations

from tests.formats.factories import assistant, call, output, user
from tests.formats.refusals.rows import ABSENT, GITHUB, LOOKUP, Json, Provider, Refusal, function, pdf, picture, schema

_DOCS = "https://ai.google.dev/gemini-api/docs/"
_API = "https://ai.google.dev/api/generate-content"
_FLASH, _PRO, _GEMMA = "gemini-2.5-flash", "gemini-2.5-pro", "gemma-3-27b-it"
_SCHEMA: Json = {"text": {"format": {"type": "json_schema", "name": "x", "schema": schema(a={"type": "string"})}}}
_SEARCH: Json = {"type": "provider_tool", "format": "gemini", "payload": {"googleSearch": {}}}
_LEVEL = "generationConfig.thinkingConfig.thinkingLevel"
_BUDGET = "generationConfig.thinkingConfig.thinkingBudget"

GEMINI = Provider(
    "Gemini generateContent",
    "gemini",
    "gemini-3-pro",
    (
        Refusal(
            "fewer responses than calls", _DOCS + "function-calling", "missing_output",
            {"contents.2.parts.0.functionResponse.name": "lookup", "contents.2.parts.1.functionResponse.name": "clock"},
            [user("Hi"), call("1"), call("2", "clock"), output("1"), user("b")], LOOKUP, model=_FLASH,
        ),
        Refusal(
            "a response without its call", _DOCS + "function-calling", "orphan_output", {"contents.1": ABSENT},
            [user("Hi"), output("1"), user("b")], LOOKUP,
        ),
        Refusal(
            "a call without a thought signature", GITHUB + "end-4/dots-hyprland/issues/3596", "thought_signature",
            {}, [user("Hi"), call("1"), output("1")], LOOKUP,
        ),
        Refusal(
            "a call that no user's turn leads to", _DOCS + "function-calling", "leading_assistant",
            {"contents.0.role": "user"}, [call("1"), output("1")], LOOKUP, model=_FLASH,
        ),
        Refusal(
            "the model's turn first", _API, "leading_assistant", {"contents.0.role": "user"},
            [assistant("Hello."), user("Hi")],
        ),
        Refusal(
            "the model's turn last", GITHUB + "livekit/agents/issues/2183", "last_turn", {"contents.1.role": "model"},
            [user("Hi"), assistant("Hello.")],
        ),
        Refusal(
            "arguments that are no object", _API, "malformed_arguments",
            {"contents.1.parts.0.functionCall.args": {}}, [user("Hi"), call("1", arguments="{"), output("1")], LOOKUP,
            model=_FLASH,
        ),
        Refusal(
            "a call without a name", _API, "name", {}, [user("Hi"), call("1", ""), output("1")], LOOKUP, model=_FLASH
        ),
        Refusal("a name that begins with a digit", _API, "name", {}, tools=(function("1st"),)),
        Refusal(
            "an animation", _DOCS + "image-understanding", "media", {"contents.0.parts.1.text": "[image not included: "
            "image/gif]"}, [user("See:", picture("image/gif", "R0lGODlhCgAUAAAAAA=="))],
        ),
        Refusal(
            "a document of Word", _DOCS + "document-processing", "media", {},
            [user("Read:", {**pdf("a.docx"), "file_data": "data:application/msword;base64,JVBERi0="})],
        ),
        Refusal(
            "JSON beside functions", GITHUB + "symfony/ai/issues/1777", "option option",
            {"generationConfig": ABSENT}, tools=LOOKUP, options=_SCHEMA, model=_FLASH,
        ),
        Refusal(
            "a search beside functions", GITHUB + "symfony/ai/issues/803", "refused", {"tools.1.googleSearch": {}},
            tools=(*LOOKUP, _SEARCH), model=_FLASH,
        ),
        Refusal(
            "six stop sequences", _API, "option", {"generationConfig.stopSequences": list("abcde")},
            options={"extra": {"stop_sequences": list("abcdef")}},
        ),
        Refusal(
            "a temperature above 2", _API, "range", {"generationConfig.temperature": 2}, options={"temperature": 3}
        ),
        Refusal(
            "nine candidates", _API, "range", {"generationConfig.candidateCount": 8},
            options={"extra": {"candidate_count": 9}},
        ),
        Refusal(
            "no thinking of Gemini 2.5 Pro", _DOCS + "thinking", "range", {_BUDGET: 128},
            options={"reasoning": {"budget_tokens": 0}}, model=_PRO,
        ),
        Refusal(
            "a budget above the model's", GITHUB + "su-kaka/gcli2api/issues/108", "range", {_BUDGET: 24576},
            options={"reasoning": {"budget_tokens": 32768}}, model=_FLASH,
        ),
        Refusal(
            "the least thinking of Gemini 3.1 Pro", GITHUB + "vellum-ai/vellum-assistant/pull/32687", "range",
            {_LEVEL: "LOW"}, options={"reasoning": {"effort": "minimal"}}, model="gemini-3.1-pro-preview",
        ),
        Refusal(
            "medium thinking of Gemini 3 Pro", _DOCS + "thinking", "range", {_LEVEL: "HIGH"},
            options={"reasoning": {"effort": "medium"}},
        ),
        Refusal(
            "the least thinking of Gemini 3.7 Flash", GITHUB + "checkmarble/llmberjack/pull/14", "range",
            {_LEVEL: "LOW"}, options={"reasoning": {"effort": "minimal"}}, model="gemini-3.7-flash",
        ),
        Refusal(
            "no thinking of Gemini 3 Pro", GITHUB + "vellum-ai/vellum-assistant/pull/32687", "option",
            {"generationConfig": ABSENT}, options={"reasoning": {"budget_tokens": 0}},
        ),
        Refusal(
            "a budget and a level", _DOCS + "thinking", "option", {_BUDGET: ABSENT, _LEVEL: "LOW"},
            options={"reasoning": {"effort": "low", "budget_tokens": 1000}},
        ),
        Refusal(
            "instructions to Gemma", GITHUB + "0xPlaygrounds/rig/issues/788", "role",
            {"systemInstruction": ABSENT, "contents.0.parts.0.text": "Be brief."},
            options={"instructions": "Be brief."}, model=_GEMMA,
        ),
        Refusal(
            "functions of Gemma", GITHUB + "google/adk-python/issues/3900", "refused", {}, tools=LOOKUP, model=_GEMMA
        ),
        Refusal(
            "an empty text as a choice", _DOCS + "function-calling", "refused", {},
            tools=(function(parameters=schema(a={"type": "string", "enum": ["", "b"]})),),
        ),
        Refusal(
            "a required property that is not there", _DOCS + "function-calling", "refused", {},
            tools=(function(parameters={**schema(a={"type": "string"}), "required": ["b"]}),),
        ),
        Refusal(
            "a list that does not say of what", _DOCS + "function-calling", "refused", {},
            tools=(function(parameters=schema(a={"type": "array"})),),
        ),
        Refusal(
            "a choice without functions", _API, "option", {"toolConfig": ABSENT}, options={"tool_choice": "required"}
        ),
    ),
)  # fmt: skip
