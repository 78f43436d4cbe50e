"""Which settings a provider takes: one table by wire format, dialect, model and provider, each row with its source.

All rows that apply are applied, in order. A setting that is refused is left out (a loss), or becomes the nearest value
that is taken (a repair). What `extra` says under the name of the format is sent as it is, and reported as `refused`; so
is what cannot be left out: tools. An imported request goes back as it came, and is not judged.

The page "How providers differ" of the documentation is made of the same rows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject, value_at, with_value
from threadkeep.formats.shared import limits, reports
from threadkeep.formats.shared.claude import is_claude, lacks
from threadkeep.formats.shared.limits import (
    SettingRow,
    absent,
    between,
    first,
    flat_schemas,
    instead,
    longest,
    no_declarations,
    no_schemas,
    only,
)
from threadkeep.formats.shared.provider_rules import applies, contains, named

# Conditions


def _reasons(body: JsonObject) -> bool:
    """Whether a request asks for an effort."""
    effort = body.get("reasoning_effort") or value_at(body, "reasoning.effort")
    return effort not in (None, "none")


def _has_declarations(body: JsonObject) -> bool:
    """Whether a request to Gemini declares functions."""
    tools = body.get("tools")
    return isinstance(tools, list) and any(isinstance(tool, dict) and "functionDeclarations" in tool for tool in tools)


# Models

_O_SERIES: Final = r"o\d(?!\d)"
_reasoning: Final = named(rf"{_O_SERIES}|gpt-5(?![.\d])(?!-chat)")
_reasoning_if_asked: Final = named(r"gpt-5\.\d")
_not_reasoning: Final = named(r"gpt-(?:3\.5|4)")
_RESPONSES, _CHAT, _BOTH = ("open_responses",), ("chat_completion",), ("chat_completion", "open_responses")
_MESSAGES, _CONVERSE, _GEMINI = ("messages",), ("converse",), ("gemini",)
_STANDARD: Final = (None, "openai")
_OPENAI: Final = ("openai", "azure")
_THINKERS: Final = "OpenAI's o series and GPT-5"
_OWN: Final = "the model's own"
_EFFORT: Final = "reasoning.effort"
_REASONING_SOURCE: Final = "langchaingo 1355; qwen-code issue 921; OpenAI docs: Using GPT-5, parameter compatibility"
_SAMPLING: Final = ("temperature", "top_p")
_PENALTIES: Final = ("presence_penalty", "frequency_penalty")
_CHOICE_SOURCE: Final = "strands harness-sdk 1241; agent-squad 134; Bedrock API reference: ToolChoice"
_NAMES_RULE: Final = "names of properties are 1 to 64 of A-Z a-z 0-9 _ . -"
_ITEMS: Final = "no lists without items"
_FLAT_SOURCE: Final = "langchainjs issue 9804; google-calendar-mcp 39"
_LIST_SOURCE: Final = "OpenAI API error: array schema missing items"
_GEMINI_SCHEMAS: Final = "Gemini API errors: cannot be empty; property is not defined; missing field"
_BUDGET: Final = "generationConfig.thinkingConfig.thinkingBudget"
_LEVEL: Final = "generationConfig.thinkingConfig.thinkingLevel"
_before_gemini_3: Final = contains(r"gemini-(?:1|2)")


def _openai(
    formats: tuple[str, ...], path: str, limit: limits.Limit, source: str, who: str = "OpenAI", **keys: Any
) -> SettingRow:
    return SettingRow(who, formats, path, limit, source, dialects=_STANDARD, providers=_OPENAI, **keys)


def _rows(paths: Collection[str], row: Callable[[str], SettingRow]) -> tuple[SettingRow, ...]:
    return tuple(map(row, paths))


SETTINGS: Final = (
    # OpenAI
    _openai(_BOTH, "temperature", between(0, 2), "OpenAI API reference: temperature; recorded error"),
    _openai(_BOTH, "top_p", between(0, 1), "OpenAI API reference: top_p"),
    _openai(_BOTH, "top_logprobs", between(0, 20), "OpenAI API reference: top_logprobs"),
    _openai(_CHAT, "n", between(1, 128), "OpenAI API reference: n"),
    *_rows(_PENALTIES, lambda path: _openai(_CHAT, path, between(-2, 2), f"OpenAI API reference: {path}")),
    _openai(_BOTH, "safety_identifier", longest(64), "OpenAI API reference: safety_identifier"),
    _openai(_BOTH, "prompt_cache_key", longest(64), "llxprt-code issue 2135; hermes-agent 62063; llmgateway 3110"),
    _openai(_BOTH, "tools", limits.at_most(128), "zed issue 42393; claude-code-router 686; opencode 4909"),
    _openai(_CHAT, "stop", first(4), "OpenAI API reference: stop"),
    _openai(
        _CHAT,
        "metadata",
        absent("only with `store`"),
        "spiceai 5231",
        when=lambda body: body.get("store") is not True,
    ),
    _openai(
        _RESPONSES,
        "tool_choice",
        only("auto", "none", says="none but auto and none without tools"),
        "OpenAI API error: Tool choice must be specified with 'tools'",
        # the tools of a stored prompt are unknown
        when=lambda body: not body.get("tools") and "prompt" not in body and not body.get("previous_response_id"),
        is_kept=True,
    ),
    # OpenAI's models
    *_rows(
        _SAMPLING,
        lambda path: _openai(_BOTH, path, only(1, says=_OWN), _REASONING_SOURCE, models=_reasoning, who=_THINKERS),
    ),
    *_rows(
        _SAMPLING,
        lambda path: _openai(
            _BOTH,
            path,
            only(1, says=f"{_OWN} with an effort"),
            _REASONING_SOURCE,
            when=_reasons,
            models=_reasoning_if_asked,
            who="OpenAI's GPT-5.1 and newer",
            is_kept=True,
        ),
    ),
    *_rows(
        (*_PENALTIES, "logprobs", "top_logprobs", "logit_bias", "stop"),
        lambda path: _openai(
            _CHAT,
            path,
            absent("refused"),
            "OpenAI docs: Reasoning; smolagents 1662",
            models=_reasoning,
            who=_THINKERS,
        ),
    ),
    _openai(
        _CHAT, "parallel_tool_calls", absent("refused"),
        "OpenAI API error: Unsupported parameter: 'parallel_tool_calls'",
        models=named(_O_SERIES), who="OpenAI's o series",
    ),
    *(
        _openai(
            formats,
            path,
            absent("refused"),
            "OpenAI docs: Reasoning",
            models=_not_reasoning,
            who="OpenAI's GPT-4 and older",
            option=_EFFORT,
            is_kept=True,
        )
        for formats, path in ((_CHAT, "reasoning_effort"), (_RESPONSES, "reasoning"))
    ),
    _openai(
        _RESPONSES,
        "text.verbosity",
        only("medium", says="medium"),
        "OpenAI API error: Supported values are: 'medium'",
        models=_not_reasoning,
        who="OpenAI's GPT-4 and older",
    ),
    _openai(
        _CHAT,
        "verbosity",
        only("medium", says="medium"),
        "OpenAI API error: Supported values are: 'medium'",
        is_kept=True,
        models=_not_reasoning,
        who="OpenAI's GPT-4 and older",
    ),
    _openai(
        _RESPONSES,
        "include",
        limits.without("reasoning.encrypted_content", "no encrypted reasoning"),
        "OpenAI docs: Reasoning",
        models=_not_reasoning,
        who="OpenAI's GPT-4 and older",
    ),
    _openai(
        _CHAT,
        "reasoning_effort",
        only("none", says="none but 'none' with tools"),
        "openai-openapi issue 541; pipecat 4043; livekit 5088",
        when=lambda body: bool(body.get("tools")),
        models=named(r"gpt-5\.(?:[4-9])"),
        who="OpenAI's GPT-5.4 and newer",
        option=_EFFORT,
    ),
    *limits.VENDORS,
    # Anthropic
    SettingRow(
        "Anthropic", _MESSAGES, "stop_sequences", limits.NO_BLANKS, "litellm issue 3286; lm-evaluation-harness 3822"
    ),
    SettingRow("Anthropic", _MESSAGES, "max_tokens", between(1, math.inf), "Anthropic API reference: max_tokens"),
    SettingRow("Anthropic", _MESSAGES, "top_k", between(0, math.inf), "Anthropic API reference: top_k"),
    SettingRow(
        "Claude before Opus 4.5 and Sonnet 4.6", _MESSAGES, "output_config.effort", absent("no effort"),
        "claude-code issue 30795; Anthropic docs: Effort", models=lambda model: lacks(model, "effort"), option=_EFFORT,
        is_kept=True,
    ),
    SettingRow(
        "Claude Opus 4.5", _MESSAGES, "output_config.effort",
        instead({"max": "high"}, "'max' is sent as 'high', the nearest there is"),
        "dario 491", models=contains("claude-opus-4[.-]5"), option=_EFFORT,
    ),
    SettingRow(
        "Claude Opus 4.5 and 4.6, and Sonnet 4.6", _MESSAGES, "output_config.effort",
        instead({"xhigh": "high"}, "'xhigh' is sent as 'high', the nearest there is"),
        "claude-code issue 63320; recorded error", models=contains("claude-(?:opus-4[.-][56]|sonnet-4[.-]6)"),
        option=_EFFORT,
    ),
    SettingRow(
        "Claude before 4.6", _MESSAGES, "thinking", absent("no adaptive thinking"), "apex 890; Anthropic docs: "
        "Adaptive thinking", when=lambda body: value_at(body, "thinking.type") == "adaptive",
        models=lambda model: lacks(model, "adaptive"),
    ),
    SettingRow(
        "Claude before 3.7", _MESSAGES, "thinking", absent("no thinking"), "Anthropic docs: Extended thinking",
        models=lambda model: lacks(model, "thinks"),
    ),
    # the schemas of tools
    *(
        row
        for formats, path in ((_RESPONSES, "parameters"), (_CHAT, "function.parameters"))
        for row in (
            _openai(formats, "tools", flat_schemas(path, "enum", "not"), _FLAT_SOURCE),
            _openai(formats, "tools", no_schemas(path, limits.lacks_items, _ITEMS), _LIST_SOURCE),
            _openai(
                formats,
                "tools",
                no_schemas(
                    path, limits.is_open, "strict functions forbid other properties, and require all of theirs",
                    only_strict=True,
                ),
                "OpenAI docs: Structured outputs",
            ),
        )
    ),
    SettingRow("Anthropic", _MESSAGES, "tools", flat_schemas("input_schema"), "claude-code issue 5973; mobile-mcp 344"),
    SettingRow(
        "Anthropic", _MESSAGES, "tools", no_schemas("input_schema", limits.has_odd_name, _NAMES_RULE),
        "appstore-connect-mcp 2; twilio-labs mcp 58; composio 3500",
    ),
    SettingRow(
        "Claude on Amazon Bedrock", _CONVERSE, "toolConfig.tools", flat_schemas("toolSpec.inputSchema.json"),
        "claude-code issue 5973", models=is_claude,
    ),
    SettingRow(
        "Claude on Amazon Bedrock", _CONVERSE, "toolConfig.tools",
        no_schemas("toolSpec.inputSchema.json", limits.has_odd_name, _NAMES_RULE),
        "AWS document processing accelerator 709", models=is_claude,
    ),
    SettingRow(
        "Gemini", _GEMINI, "tools", no_declarations(limits.has_blank_choice, "no empty texts in enum"),
        _GEMINI_SCHEMAS,
    ),
    SettingRow(
        "Gemini", _GEMINI, "tools", no_declarations(limits.requires_unknown, "required properties exist"),
        _GEMINI_SCHEMAS,
    ),
    SettingRow(
        "Gemini", _GEMINI, "tools", no_declarations(limits.lacks_items, _ITEMS), _GEMINI_SCHEMAS,
    ),
    SettingRow(
        "Gemini", _GEMINI, "tools", no_declarations(limits.is_no_object, "schemas of objects"), _GEMINI_SCHEMAS
    ),
    SettingRow(
        "Gemma 3 behind the Gemini API", _GEMINI, "tools", limits.REFUSED,
        "Gemini API error: Function calling is not enabled for models/gemma-3; adk-python 3900",
        models=named("gemma-3"),
    ),
    # Google
    *_rows(
        ("presencePenalty", "frequencyPenalty"),
        lambda key: SettingRow(
            "Gemini", _GEMINI, f"generationConfig.{key}", between(-2, 2), "Vertex AI: GenerationConfig"
        ),
    ),
    SettingRow("Gemini", _GEMINI, "generationConfig.temperature", between(0, 2), "Gemini API: GenerationConfig"),
    SettingRow("Gemini", _GEMINI, "generationConfig.topP", between(0, 1), "Gemini API: GenerationConfig"),
    SettingRow("Gemini", _GEMINI, "generationConfig.candidateCount", between(1, 8), "Gemini API: GenerationConfig"),
    SettingRow("Gemini", _GEMINI, "generationConfig.logprobs", between(0, 20), "Gemini API: GenerationConfig"),
    SettingRow("Gemini", _GEMINI, "generationConfig.stopSequences", first(5), "Gemini API: GenerationConfig"),
    SettingRow(
        "Gemini 2.5 Pro", _GEMINI, _BUDGET, between(128, 32768, -1),
        "Gemini docs: Thinking; gemini-balance 160", models=contains(r"gemini-2\.5-pro"),
    ),
    SettingRow(
        "Gemini 2.5 Flash", _GEMINI, _BUDGET, between(0, 24576, -1),
        "Gemini docs: Thinking; gcli2api issue 108", models=contains(r"gemini-2\.5-flash(?!-lite)"),
    ),
    SettingRow(
        "Gemini 2.5 Flash-Lite", _GEMINI, _BUDGET, between(512, 24576, -1, 0),
        "Gemini docs: Thinking; gemini-balance 160", models=contains(r"gemini-2\.5-flash-lite"),
    ),
    SettingRow(
        "Gemini 3 Pro and 3.1 Pro", _GEMINI, _LEVEL,
        instead({"MINIMAL": "LOW"}, "'minimal' is sent as 'low', the nearest there is"),
        "vellum-assistant 32687; Gemini docs: Thinking", models=contains(r"gemini-3(?:\.\d+)?-pro"), option=_EFFORT,
    ),
    SettingRow(
        "Gemini 3 Pro", _GEMINI, _LEVEL, instead({"MEDIUM": "HIGH"}, "'medium' is sent as 'high': there is none"),
        "Gemini docs: Thinking; macro 6389", models=contains(r"gemini-3-pro"), option=_EFFORT,
    ),
    SettingRow(
        "Gemini 3.7 Flash", _GEMINI, _LEVEL,
        instead({"MINIMAL": "LOW"}, "'minimal' is sent as 'low', the nearest there is"),
        "Firebase docs: Thinking; llmberjack 14", models=contains(r"gemini-3\.7-flash"), option=_EFFORT,
    ),
    SettingRow(
        "Gemini 3 Pro and 3.1 Pro", _GEMINI, _BUDGET, limits.other_than(0, says="not 0: it always thinks"),
        "vellum-assistant 32687; Gemini docs: Thinking", models=contains(r"gemini-3(?:\.\d+)?-pro"),
    ),
    *_rows(
        ("responseSchema", "responseJsonSchema", "responseMimeType"),
        lambda key: SettingRow(
            "Gemini before 3", _GEMINI, f"generationConfig.{key}", only("text/plain", says="no JSON with functions"),
            "symfony/ai issues 803, 1777; gemini-balance 264", when=_has_declarations, models=_before_gemini_3,
        ),
    ),
    SettingRow(
        "Gemini before 3", _GEMINI, "tools", limits.NOT_BOTH,
        "symfony/ai issue 803", models=_before_gemini_3,
        when=lambda body: _has_declarations(body) and len({key for tool in body["tools"] for key in tool}) > 1,
    ),
    # Amazon Bedrock
    SettingRow(
        "Titan, Llama 3, Mistral 7B and Mixtral", _CONVERSE, "toolConfig.tools", limits.REFUSED,
        "Bedrock user guide: Supported models and model features; API error: This model "
        "doesn't support tool use", models=contains(r"titan|llama3-(?:8b|70b)|mistral-7b|mixtral"),
    ),
    SettingRow(
        "Claude on Amazon Bedrock", _CONVERSE, "inferenceConfig.stopSequences", limits.NO_BLANKS, "litellm issue 3286",
        models=is_claude,
    ),
    SettingRow(
        "Models other than Claude, Nova, Mistral Large and Pixtral", _CONVERSE, "toolConfig.toolChoice.any",
        absent("refused"), _CHOICE_SOURCE, models=contains(r"^(?!.*(?:claude|nova|mistral-large|pixtral))"),
    ),
    SettingRow(
        "Models other than Claude and Nova", _CONVERSE, "toolConfig.toolChoice.tool",
        absent("refused"), _CHOICE_SOURCE, models=contains(r"^(?!.*(?:claude|nova))"),
    ),
)  # fmt: skip

Rows = Mapping[str, Sequence[SettingRow]]


@lru_cache(maxsize=256)
def settings_for(format_name: str, dialect: str | None, model: str | None, provider: str | None) -> Rows:
    """The rows for requests of a format, dialect, model and provider, by the key of the request that they are about."""
    rows: dict[str, list[SettingRow]] = {}
    for row in SETTINGS:
        if applies(row, format_name, dialect, model, provider):
            rows.setdefault(row.path.partition(".")[0], []).append(row)
    return rows


def fitted(body: JsonObject, rows: Rows, context: reports.Context, fixed: Collection[str]) -> JsonObject:
    """A request with the settings that the provider takes; `fixed` are keys that are sent as they are."""
    for key in [key for key in body if key in rows]:
        for row in rows[key]:
            value = value_at(body, row.path)
            if value is None or (row.when is not None and not row.when(body)):
                continue
            if (outcome := row.limit.judge(value)) is not None:
                body = _with(body, row, value, outcome, context, is_fixed=key in fixed)
    return body


def _with(
    body: JsonObject, row: SettingRow, value: Any, outcome: limits.Outcome, context: reports.Context, *, is_fixed: bool
) -> JsonObject:
    """A request with what is sent of a setting that is refused, which is reported."""
    sent, why = outcome
    path, shown = row.option or row.path, repr(value)[:80] if isinstance(value, str | int | float) else "it"
    if is_fixed or row.is_kept or sent is limits.AS_IT_IS:
        context.loss("refused", path, f"{path} ({shown}) is sent, and {row.who} refuses it: {why}.")
        return body
    if sent is limits.NOTHING:
        context.loss("option", path, f"{path} ({shown}) was left out: {why} ({row.who}).")
        return _without(body, row.path)
    if isinstance(sent, list):
        context.loss("option", path, f"A part of {path} was left out: {why} ({row.who}).")
    else:
        context.repair("range", path, f"{path}: {why} ({row.who}).")
    return with_value(body, row.path, sent)


def _without(body: JsonObject, path: str) -> JsonObject:
    """A request without a setting; objects that become empty go, too."""
    outer = path.rpartition(".")[0]
    body = with_value(body, path, None)
    return _without(body, outer) if outer and not value_at(body, outer) else body
