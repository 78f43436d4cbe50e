"""What vendors and servers of Chat Completions other than OpenAI refuse."""

from __future__ import annotations

from tests.formats.factories import assistant, call, output, user
from tests.formats.refusals.rows import ABSENT, GITHUB, LOOKUP, Json, Provider, Refusal, function, picture

_JSON: Json = {"text": {"format": {"type": "json_schema", "name": "x", "schema": {"type": "object"}}}}
_INNER = [user("Hi"), assistant("a"), user("Be kind.", role="system"), user("b")]
_DEEPSEEK = "https://api-docs.deepseek.com/"
_GROQ = "https://console.groq.com/docs/"
_XAI = "https://docs.x.ai/docs/"
_MISTRAL = "https://docs.mistral.ai/api/"
_FORCED: Json = {"tool_choice": "required"}
_MANY = tuple(function(f"f{number}") for number in range(129))
_THOUGHT: Json = {
    "type": "reasoning", "content": [{"type": "reasoning_text", "text": "Hm."}], "origin": "chat_completion",
}  # fmt: skip
_OPEN_CALL = [user("Hi"), call("123456789"), user("b")]
_ORPHAN = [user("Hi"), output("123456789")]

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
            Refusal("a tool that must be called, while it thinks", GITHUB + "deepseek-ai/DeepSeek-V3/issues/1376",
                    "option", {"tool_choice": ABSENT}, tools=LOOKUP, options=_FORCED, model="deepseek-v4-flash"),
            Refusal("a tool that is named, while it thinks", GITHUB + "cloudwego/eino/issues/994", "option",
                    {"tool_choice": ABSENT}, tools=LOOKUP, model="deepseek-reasoner",
                    options={"tool_choice": {"type": "function", "name": "lookup"}}),
            Refusal("an answer without its reasoning", GITHUB + "langchain-ai/langchain/issues/34166", "",
                    {"messages.1.reasoning_content": ""}, [user("Hi"), call(), output()], LOOKUP,
                    model="deepseek-reasoner"),
            Refusal("an output without its call", GITHUB + "FoundationAgents/OpenManus/issues/227", "orphan_output",
                    {"messages.1": ABSENT}, _ORPHAN, LOOKUP),
            Refusal("a call without its output", _DEEPSEEK + "guides/tool_calls", "missing_output",
                    {"messages.2.role": "tool"}, _OPEN_CALL, LOOKUP),
            Refusal("129 tools", _DEEPSEEK + "api/create-chat-completion", "refused", {"tools.128.type": "function"},
                    tools=_MANY),
            Refusal("a temperature above 2", _DEEPSEEK + "api/create-chat-completion", "range", {"temperature": 2},
                    options={"temperature": 3}),
            Refusal("50 probabilities", _DEEPSEEK + "api/create-chat-completion", "range", {"top_logprobs": 20},
                    options={"top_logprobs": 50}),
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
            Refusal("a call without its output", GITHUB + "mistralai/client-ts/issues/106",
                    "missing_output turn_order", {"messages.2.role": "tool"}, _OPEN_CALL, LOOKUP),
            Refusal("an output without its call", GITHUB + "charmbracelet/crush/issues/279", "orphan_output",
                    {"messages.1": ABSENT}, _ORPHAN, LOOKUP),
            Refusal("reasoning of another vendor", GITHUB + "charmbracelet/crush/issues/1590", "reasoning",
                    {"messages.1.reasoning_content": ABSENT}, [user("Hi"), _THOUGHT, assistant("a"), user("b")]),
            Refusal("nine pictures", _MISTRAL, "refused", {}, [user("See:", *[picture()] * 9)]),
            Refusal("penalties above 2", _MISTRAL, "range", {"presence_penalty": 2}, options={"presence_penalty": 3}),
            Refusal("a developer's message", _MISTRAL, "", {"messages.0.role": "system"},
                    [user("Be kind.", role="developer"), user("Hi")]),
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
            Refusal("129 tools", GITHUB + "gsd-build/gsd-2/issues/4376", "refused", {"tools.128.type": "function"},
                    tools=_MANY),
            Refusal("a request to store it", GITHUB + "fanenr/chatbot/issues/21", "option", {"store": ABSENT},
                    options={"store": True}),
            Refusal("reasoning in an answer", GITHUB + "tashfeenahmed/freellmapi/issues/1070", "reasoning",
                    {"messages.1.reasoning_content": ABSENT}, [user("Hi"), _THOUGHT, assistant("a"), user("b")]),
            Refusal("a large picture", _GROQ + "vision", "refused", {},
                    [user("See:", picture(data="iVBORw0KGgoA" + "A" * 5 * 1024 * 1024))]),
            Refusal("a picture of an output", _GROQ + "tool-use", "tool_media", {"messages.3.role": "user"},
                    [user("Hi"), call(), output(text=[picture()])], LOOKUP),
            Refusal("a call without its output", _GROQ + "tool-use", "missing_output", {"messages.2.role": "tool"},
                    _OPEN_CALL, LOOKUP),
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
            Refusal("an effort of Grok 3", GITHUB + "NousResearch/hermes-agent/pull/23435", "option",
                    {"reasoning_effort": ABSENT}, options={"reasoning": {"effort": "low"}}, model="grok-3"),
            Refusal("an effort of Grok Code Fast", GITHUB + "NousResearch/hermes-agent/pull/23435", "option",
                    {"reasoning_effort": ABSENT}, options={"reasoning": {"effort": "low"}}, model="grok-code-fast-1"),
            Refusal("an effort of Grok 4.1", GITHUB + "JetBrains/junie/issues/39", "option",
                    {"reasoning_effort": ABSENT}, options={"reasoning": {"effort": "low"}},
                    model="grok-4-1-fast-reasoning"),
            Refusal("an answer without content", GITHUB + "charmbracelet/crush/issues/964", "blank_text", {},
                    [user("Hi"), assistant(""), user("b")]),
            Refusal("a picture of the kind WebP", _XAI + "guides/image-understanding", "media", {},
                    [user("See:", picture("image/webp", "UklGRgAAAABXRUJQ"))]),
            Refusal("a picture of an output", _XAI + "guides/function-calling", "tool_media", {},
                    [user("Hi"), call(), output(text=[picture()])], LOOKUP),
        ),
        {"provider": "xai"},
    ),
    Provider(
        "Grok behind the Responses API", "open_responses", "grok-4",
        (
            Refusal("an effort", GITHUB + "NousResearch/hermes-agent/issues/23088", "option", {"reasoning": ABSENT},
                    options={"reasoning": {"effort": "low"}}),
        ),
        {"provider": "xai"},
    ),
    Provider(
        "Moonshot", "chat_completion", "kimi-k2.6",
        (
            Refusal("a tool that is named, while it thinks", GITHUB + "can1357/oh-my-pi/issues/1077", "option",
                    {"tool_choice": ABSENT}, tools=LOOKUP,
                    options={"tool_choice": {"type": "function", "name": "lookup"}}),
            Refusal("a tool that must be called, while it thinks", GITHUB + "AstrBotDevs/AstrBot/issues/7805",
                    "option", {"tool_choice": ABSENT}, tools=LOOKUP, options=_FORCED, model="kimi-k2-thinking"),
        ),
        {"dialect": "moonshot"},
    ),
    Provider(
        "Z.ai", "chat_completion", "glm-4.7",
        (
            Refusal("a tool that must be called", "https://java.agentscope.io/v2/en/integration/model/glm", "option",
                    {"tool_choice": ABSENT}, tools=LOOKUP, options=_FORCED),
        ),
        {"dialect": "zai"},
    ),
    Provider(
        "Qwen in Alibaba's cloud", "chat_completion", "qwen3.5-plus",
        (
            Refusal("a tool that must be called, while it thinks", GITHUB + "QwenLM/qwen-code/issues/7659", "option",
                    {"tool_choice": ABSENT}, tools=LOOKUP,
                    options={**_FORCED, "extra": {"chat_completion": {"enable_thinking": True}}}),
        ),
        {"provider": "dashscope"},
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
