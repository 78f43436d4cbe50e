"""Which settings vendors of Chat Completions other than OpenAI take; a part of the table of `setting_rules`."""

from __future__ import annotations

from typing import Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.formats.shared.fields import value_at
from threadkeep.formats.shared.limits import SettingRow, absent, at_most, between, first, only
from threadkeep.formats.shared.provider_rules import contains, named

_CHAT: Final = ("chat_completion",)
_PENALTIES: Final = ("presence_penalty", "frequency_penalty")
_EFFORT: Final = "reasoning.effort"
_DEEPSEEK, _MISTRAL, _GROQ = ("deepseek",), ("mistral",), ("groq",)
_DEEPSEEK_SOURCE: Final = "DeepSeek API reference: Create chat completion"
_GROQ_SOURCE: Final = "Groq docs: OpenAI compatibility"
_XAI_SOURCE: Final = "xAI docs: Reasoning; litellm issue 12635; smolagents 1766; lobehub 13332"
# choices of tools that models take while they think
_OPEN: Final = only("auto", "none", says="none but auto and none while the model thinks")
_grok_without_effort: Final = named(r"grok-(?:4(?!\.[3-9])(?!.*multi-agent)|3(?!-mini)|code-fast)")
_EFFORT_SOURCE: Final = "litellm 16265; grok2api 814; hermes-agent 23435 (measured); crush issue 386"


def _has_schema(body: JsonObject) -> bool:
    kind: object = value_at(body, "response_format.type")
    return kind == "json_schema"


def _thinks(body: JsonObject) -> bool:
    """Whether a model that thinks unless it is told otherwise does so."""
    thinking: object = value_at(body, "thinking.type")
    return thinking != "disabled" and body.get("enable_thinking") is not False


def _is_asked_to_think(body: JsonObject) -> bool:
    return body.get("enable_thinking") is True or body.get("reasoning_effort") not in (None, "none")


VENDORS: Final = (
    SettingRow(
        "DeepSeek", _CHAT, "response_format", absent("no JSON schema"), "Vane issue 969; deep-research 22",
        when=_has_schema, dialects=_DEEPSEEK,
    ),
    SettingRow("DeepSeek", _CHAT, "stop", first(16), "DeepSeek API reference: stop", dialects=_DEEPSEEK),
    SettingRow("DeepSeek", _CHAT, "tools", at_most(128), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK),
    SettingRow("DeepSeek", _CHAT, "temperature", between(0, 2), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK),
    SettingRow("DeepSeek", _CHAT, "top_p", between(0, 1), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK),
    SettingRow("DeepSeek", _CHAT, "top_logprobs", between(0, 20), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK),
    *(
        SettingRow("DeepSeek", _CHAT, path, between(-2, 2), _DEEPSEEK_SOURCE, dialects=_DEEPSEEK)
        for path in _PENALTIES
    ),
    SettingRow(
        "DeepSeek V4 and deepseek-reasoner", _CHAT, "tool_choice", _OPEN, "DeepSeek-V3 issue 1376; litellm 37470; "
        "eino issue 994", when=_thinks, dialects=_DEEPSEEK, models=named(r"deepseek-(?:reasoner|v[4-9])"),
    ),
    SettingRow(
        "Kimi K2 models that think", _CHAT, "tool_choice", _OPEN, "oh-my-pi issue 1077; inspect_ai 5152; llmgateway "
        "2090", when=_thinks, dialects=("moonshot",), models=named(r"kimi-k2(?:-thinking|[.-][1-9](?!\d))"),
    ),
    SettingRow(
        "Qwen while it is asked to think", _CHAT, "tool_choice", _OPEN, "eino issue 994; qwen-code issue 7659; "
        "oh-my-pi issue 886", when=_is_asked_to_think, models=contains(r"(?:^|/)qw(?:en|q)"),
        providers=("alibaba", "dashscope", "qwen"),
    ),
    SettingRow(
        "Z.ai", _CHAT, "tool_choice", only("auto", says="none but auto"), "AgentScope docs: GLM", dialects=("zai",)
    ),
    SettingRow("Mistral", _CHAT, "temperature", between(0, 1.5), "Mistral API reference: temperature",
               dialects=_MISTRAL),
    *(
        SettingRow("Mistral", _CHAT, path, between(-2, 2), f"Mistral API reference: {path}", dialects=_MISTRAL)
        for path in _PENALTIES
    ),
    SettingRow("Groq", _CHAT, "n", between(1, 1), _GROQ_SOURCE, providers=_GROQ),
    *(
        SettingRow("Groq", _CHAT, path, absent("refused"), _GROQ_SOURCE, providers=_GROQ)
        for path in ("logprobs", "top_logprobs", "logit_bias")
    ),
    SettingRow("Groq", _CHAT, "store", absent("refused"), "chatbot issue 21", providers=_GROQ),
    SettingRow("Groq", _CHAT, "tools", at_most(128), "gsd-2 issue 4376; ha-groq-cloud-api issue 25", providers=_GROQ),
    SettingRow(
        "Groq", _CHAT, "response_format", absent("not beside tools"), "agno issue 1065; vercel/ai 16540",
        when=lambda body: bool(body.get("tools")), providers=_GROQ,
    ),
    *(
        SettingRow("Grok 4 and newer", _CHAT, path, absent("refused"), _XAI_SOURCE, models=named(r"grok-[4-9]"))
        for path in (*_PENALTIES, "stop")
    ),
    *(
        SettingRow(
            "Grok 3, 4 to 4.2 and Grok Code Fast", (name,), path, absent("refused"), _EFFORT_SOURCE, option=_EFFORT,
            models=_grok_without_effort,
        )
        for name, path in (("chat_completion", "reasoning_effort"), ("open_responses", _EFFORT))
    ),
)  # fmt: skip
