"""What vendors and servers of Chat Completions other than OpenAI refuse."""

from __future__ import annotations

from tests.formats.factories import assistant, call, output, user
from tests.formats.refusals.rows import ABSENT, GITHUB, LOOKUP, Json, Provider, Refusal, picture

_JSON: Json = {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}}
_INNER = [user("Hi"), assistant("a"), user("Be kind.", role="system"), user("b")]
_DEEPSEEK = "https://api-docs.deepseek.com/"
_GROQ = "https://console.groq.com/docs/"
_XAI = "https://docs.x.ai/docs/"
_MISTRAL = "https://docs.mistral.ai/api/"

VENDORS = (
    Provider(
        "DeepSeek", "chat_completion", "deepseek-chat",
        (
            Refusal("a picture", GITHUB + "rikkahub/rikkahub/issues/1433", "media", {},
                    [user("See:", picture())]),
            Refusal("a picture of an output", GITHUB + "nesquena/hermes-webui/issues/2297", "media", {},
                    [user("Hi"), call(), output(text=[picture()])], LOOKUP),
            Refusal("a JSON schema", GITHUB + "ItzCrazyKns/Vane/issues/969", "option", {"response_format": ABSENT},
                    options=_JSON),
            Refusal("JSON mode without the word", _DEEPSEEK + "guides/json_mode", "refused", {},
                    options={"text": {"format": {"type": "json_object"}}}),
            Refusal("17 stop sequences", _DEEPSEEK + "api/create-chat-completion", "option", {"stop.16": ABSENT},
                    options={"extra": {"stop": list("abcdefghijklmnopq")}}),
            Refusal("a developer's message", _DEEPSEEK + "api/create-chat-completion", "",
                    {"messages.0.role": "system"}, [user("Be kind.", role="developer"), user("Hi")]),
        ),
        {"dialect": "deepseek"},
    ),
    Provider(
        "Mistral", "chat_completion", "mistral-large-latest",
        (
            Refusal("a call id of another vendor", _MISTRAL, "call_id", {"messages.1.tool_calls.0.id": "toolu0123"},
                    [user("Hi"), call("toolu_0123"), output("toolu_0123")], LOOKUP),
            Refusal("a user's message behind an output", GITHUB + "zed-industries/zed/issues/37021", "turn_order", {},
                    [user("Hi"), call("123456789"), output("123456789"), user("b")], LOOKUP),
            Refusal("an empty answer", GITHUB + "All-Hands-AI/OpenHands/issues/8685", "blank_text", {},
                    [user("Hi"), assistant(""), user("b")]),
            Refusal("a system message in the middle", GITHUB + "vllm-project/vllm/issues/6862", "role", {}, _INNER),
            Refusal("a temperature above 1.5", _MISTRAL, "range", {"temperature": 1.5}, options={"temperature": 2}),
            Refusal("a key of OpenAI", _MISTRAL, "option", {"store": ABSENT}, options={"store": True}),
        ),
        {"dialect": "mistral"},
    ),
    Provider(
        "Groq", "chat_completion", "llama-3.3-70b-versatile",
        (
            Refusal("two answers", _GROQ + "openai", "range", {"n": 1}, options={"extra": {"n": 2}}),
            Refusal("probabilities", _GROQ + "openai", "option option", {"logprobs": ABSENT},
                    options={"top_logprobs": 2}),
            Refusal("a bias", _GROQ + "openai", "option", {"logit_bias": ABSENT},
                    options={"extra": {"logit_bias": {"1": 1}}}),
            Refusal("JSON beside tools", GITHUB + "agno-agi/agno/issues/1065", "option", {"response_format": ABSENT},
                    tools=LOOKUP, options=_JSON),
            Refusal("six pictures", _GROQ + "vision", "refused", {}, [user("See:", *[picture()] * 6)]),
        ),
        {"provider": "groq"},
    ),
    Provider(
        "xAI", "chat_completion", "grok-4",
        (
            Refusal("stop sequences", GITHUB + "BerriAI/litellm/issues/12635", "option", {"stop": ABSENT},
                    options={"extra": {"stop": ["a"]}}),
            Refusal("a penalty", GITHUB + "lobehub/lobehub/issues/13332", "option", {"presence_penalty": ABSENT},
                    options={"presence_penalty": 0.5}),
            Refusal("an effort", GITHUB + "BerriAI/litellm/pull/16265", "option", {"reasoning_effort": ABSENT},
                    options={"reasoning": {"effort": "high"}}),
            Refusal("an animation", _XAI + "guides/image-understanding", "media", {},
                    [user("See:", picture("image/gif", "R0lGODlhCgAUAAAAAA=="))]),
        ),
        {"provider": "xai"},
    ),
    Provider(
        "Qwen behind vLLM", "chat_completion", "Qwen/Qwen3.5-27B",
        (
            Refusal("a system message in the middle", GITHUB + "vllm-project/vllm/issues/41114", "role", {}, _INNER),
            Refusal("a picture in an output", GITHUB + "vllm-project/vllm/issues/43203", "tool_media", {},
                    [user("Hi"), call(), output(text=[picture()])], LOOKUP),
            Refusal("a custom tool", "https://docs.vllm.ai/en/latest/features/tool_calling.html", "tool",
                    {"tools": ABSENT}, tools=({"type": "custom", "name": "sql"},)),
        ),
        {"dialect": "compatible"},
    ),
    Provider(
        "Claude behind OpenRouter", "chat_completion", "anthropic/claude-opus-5",
        (
            Refusal("an answer that is to be continued", GITHUB + "antinomyhq/forge/issues/2107", "last_turn",
                    {"messages.2.role": "user"}, [user("Hi"), assistant("Once")]),
            Refusal("an answer of white space", GITHUB + "sst/opencode/issues/31259", "blank_text", {},
                    [user("Hi"), assistant(" "), user("b")]),
        ),
        {"dialect": "openrouter"},
    ),
)  # fmt: skip
