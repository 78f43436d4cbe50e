"""What OpenAI refuses: the Responses API and Chat Completions, there and at Azure."""

from __future__ import annotations

from tests.formats.factories import assistant, call, output, user
from tests.formats.refusals.rows import (
    ABSENT,
    CHOICE,
    FLAT,
    GITHUB,
    LOOKUP,
    Json,
    Provider,
    Refusal,
    function,
    pdf,
    picture,
    schema,
)
from threadkeep.domain.tool_names import hashed

_REFERENCE = "https://platform.openai.com/docs/api-reference/"
_GUIDES = "https://platform.openai.com/docs/guides/"
_AZURE = "https://learn.microsoft.com/azure/ai-foundry/openai/"
_REASONING: Json = {"type": "reasoning", "id": "rs_1", "summary": [], "encrypted_content": "gAAA"}
_APPROVAL: Json = {
    "type": "mcp_approval_request", "id": "mcpr_1", "name": "pay", "server_label": "bank", "arguments": "{}",
}  # fmt: skip
_SHELL: Json = {"type": "shell_call", "call_id": "s1", "action": {"commands": ["ls"]}, "status": "completed"}
_MANY = tuple(function(f"f{number}") for number in range(129))
_CALLS = [
    user("Hi"), *(call(f"c{number}") for number in range(129)), *(output(f"c{number}") for number in range(129)),
]  # fmt: skip
_SHORT = "call_" + hashed("x" * 41)
_LISTS = (function(parameters=schema(names={"type": "array"})),)
_OPEN = (function(parameters=schema(name={"type": "string"}), strict=True),)
_NO_WORD: Json = {"text": {"format": {"type": "json_object"}}}

RESPONSES = Provider(
    "OpenAI Responses",
    "open_responses",
    "gpt-5.4",
    (
        Refusal(
            "a call without its output", GITHUB + "openai/openai-agents-python/issues/1855", "missing_output",
            {"input.2.type": "function_call_output", "input.2.call_id": "c1"},
            [user("Hi"), call(), user("And now?")], LOOKUP,
        ),
        Refusal(
            "an output without its call", GITHUB + "openai/openai-agents-python/issues/843", "orphan_output",
            {"input.1": ABSENT}, [user("Hi"), output()],
        ),
        Refusal(
            "an item id twice", GITHUB + "vercel/ai/issues/13383", "duplicate_id", {"input.2.id": ABSENT},
            [user("Hi"), assistant("a", id="msg_1"), assistant("b", id="msg_1"), user("c")],
        ),
        Refusal(
            "a call id twice", GITHUB + "earendil-works/pi/issues/9057", "duplicate_call_id duplicate_call_id",
            {"input.1.call_id": "c1"},
            [user("Hi"), call(), call(), output(), output()], LOOKUP,
        ),
        Refusal(
            "a call id of 80 characters", GITHUB + "AnswerDotAI/fastllm/issues/45", "call_id call_id", {},
            [user("Hi"), call("x" * 80), output("x" * 80)], LOOKUP,
        ),
        Refusal(
            "an id of another API", GITHUB + "BerriAI/litellm/issues/27333", "item_id", {"input.1.id": ABSENT},
            [user("Hi"), assistant("a", id="chatcmpl-1"), user("b")],
        ),
        Refusal(
            "reasoning without what it led to", GITHUB + "pydantic/pydantic-ai/issues/2882", "reasoning_follower",
            {"input.1.role": "user"}, [user("Hi"), _REASONING, user("b")],
        ),
        Refusal(
            "a question of MCP without an answer", _GUIDES + "tools-connectors-mcp", "missing_output",
            {"input.2.type": "mcp_approval_response", "input.2.approve": False}, [user("Hi"), _APPROVAL, user("b")],
        ),
        Refusal(
            "a shell call without its output", _GUIDES + "tools-shell", "missing_output",
            {"input.2.type": "shell_call_output"}, [user("Hi"), _SHELL, user("b")],
        ),
        Refusal(
            "arguments that are no JSON", _REFERENCE + "responses/create", "malformed_arguments",
            {"input.1.arguments": "{}"}, [user("Hi"), call(arguments="{"), output()], LOOKUP,
        ),
        Refusal(
            "a picture of a type that is not taken", _GUIDES + "images-vision", "media",
            {"input.0.content.1.type": "input_text"}, [user("See:", picture("image/bmp"))],
        ),
        Refusal(
            "a recording as a file", _GUIDES + "pdf-files", "data_url", {},
            [user("Hear:", {**pdf("a.mp3"), "file_data": "data:audio/mpeg;base64,SUQz"})],
        ),
        Refusal(
            "a limit of one token", _REFERENCE + "responses/create", "max_output_tokens", {"max_output_tokens": 16},
            options={"max_output_tokens": 1},
        ),
        Refusal(
            "a name with a dot", _REFERENCE + "responses/create", "name", {"tools.0.name": "my_tool"},
            tools=(function("my.tool"),),
        ),
        Refusal(
            "metadata of 17 pairs", _REFERENCE + "responses/create", "metadata", {"metadata.k16": ABSENT},
            options={"metadata": {f"k{number}": "v" for number in range(17)}},
        ),
        Refusal(
            "a cache key of 65 characters", GITHUB + "vybestack/llxprt-code/issues/2135", "option",
            {"prompt_cache_key": ABSENT}, options={"prompt_cache_key": "x" * 65},
        ),
        Refusal(
            "a user id of 65 characters", _REFERENCE + "responses/create", "option", {"safety_identifier": ABSENT},
            options={"safety_identifier": "x" * 65},
        ),
        Refusal(
            "129 tools", GITHUB + "zed-industries/zed/issues/42393", "refused", {"tools.128.name": "f128"}, tools=_MANY
        ),
        Refusal(
            "a choice at the top of a schema", GITHUB + "langchain-ai/langchainjs/issues/9804", "option",
            {"tools.0.parameters": FLAT}, tools=(function(parameters=CHOICE),),
        ),
        Refusal(
            "a list that does not say of what", _GUIDES + "function-calling", "refused", {},
            tools=_LISTS,
        ),
        Refusal("an open schema of a strict function", _GUIDES + "structured-outputs", "refused", {}, tools=_OPEN),
        Refusal(
            "a temperature of GPT-5", GITHUB + "tmc/langchaingo/issues/1355", "option", {"temperature": ABSENT},
            options={"temperature": 0}, model="gpt-5-mini",
        ),
        Refusal(
            "a temperature above 2", _REFERENCE + "responses/create", "range", {"temperature": 2},
            options={"temperature": 3}, model="gpt-4o",
        ),
        Refusal(
            "a temperature beside an effort", _GUIDES + "latest-model", "refused", {"temperature": 0.2},
            options={"temperature": 0.2, "reasoning": {"effort": "high"}},
        ),
        Refusal(
            "an effort of a model that does not reason", _GUIDES + "reasoning", "refused", {},
            options={"reasoning": {"effort": "low"}}, model="gpt-4o",
        ),
        Refusal(
            "a tool that must be called, without tools", _REFERENCE + "responses/create", "refused", {},
            options={"tool_choice": "required"},
        ),
        Refusal("JSON mode without the word", _REFERENCE + "responses/create", "refused", {}, options=_NO_WORD),
        Refusal(
            "a choice of a tool that is not offered", _REFERENCE + "responses/create", "tool_choice",
            {"tool_choice": ABSENT}, tools=LOOKUP, options={"tool_choice": {"type": "function", "name": "gone"}},
        ),
        Refusal(
            "two homes of the history", _REFERENCE + "responses/create", raises="exclude each other",
            options={"previous_response_id": "resp_1", "conversation": "conv_1"},
        ),
        Refusal(
            "in the background, and not stored", _GUIDES + "background", raises="needs stored responses",
            options={"background": True, "store": False},
        ),
    ),
)  # fmt: skip
CHAT = Provider(
    "OpenAI Chat Completions",
    "chat_completion",
    "gpt-5.4",
    (
        Refusal(
            "a call without its output", _REFERENCE + "chat/create", "missing_output",
            {"messages.2.role": "tool"}, [user("Hi"), call(), user("b")], LOOKUP,
        ),
        Refusal(
            "an output without its call", _REFERENCE + "chat/create", "orphan_output", {"messages.1": ABSENT},
            [user("Hi"), output()],
        ),
        Refusal(
            "an output that is not directly behind its call", _REFERENCE + "chat/create", "moved_output",
            {"messages.2.role": "tool", "messages.3.role": "user"}, [user("Hi"), call(), user("Wait."), output()],
            LOOKUP,
        ),
        Refusal(
            "a call id of 41 characters", GITHUB + "agno-agi/agno/issues/5382", "call_id",
            {"messages.1.tool_calls.0.id": _SHORT, "messages.2.tool_call_id": _SHORT},
            [user("Hi"), call("x" * 41), output("x" * 41)], LOOKUP,
        ),
        Refusal(
            "129 calls in a message", GITHUB + "openai/openai-dotnet/issues/317", "refused", {},
            _CALLS, LOOKUP,
        ),
        Refusal(
            "a picture of the system", GITHUB + "openai/openai-node/issues/1030", "media",
            {"messages.0.content.1": ABSENT}, [user("See:", picture(), role="system"), user("Hi")],
        ),
        Refusal(
            "a video", _GUIDES + "images-vision", "media", {"messages.0.content.1": ABSENT},
            [user("See:", {"type": "input_video", "video_url": "https://v.example.org/a.mp4"})],
        ),
        Refusal(
            "a picture in an output", GITHUB + "vllm-project/vllm/issues/43203", "tool_media",
            {"messages.3.role": "user"}, [user("Hi"), call(), output(text=[picture()])], LOOKUP,
        ),
        Refusal(
            "a picture of the assistant", _REFERENCE + "chat/create", "media", {},
            [user("Hi"), assistant("Look:", picture()), user("b")],
        ),
        Refusal(
            "a picture of a type that is not taken", _GUIDES + "images-vision", "media",
            {"messages.0.content.1.type": "text"}, [user("See:", picture("image/tiff"))],
        ),
        Refusal(
            "five stop sequences", _REFERENCE + "chat/create", "option", {"stop": ["a", "b", "c", "d"]},
            options={"extra": {"stop": ["a", "b", "c", "d", "e"]}}, model="gpt-4o",
        ),
        Refusal(
            "stop sequences of GPT-5", GITHUB + "huggingface/smolagents/pull/1662", "option", {"stop": ABSENT},
            options={"extra": {"stop": ["a"]}}, model="gpt-5",
        ),
        Refusal(
            "metadata that is not stored", GITHUB + "spiceai/spiceai/pull/5231", "option", {"metadata": ABSENT},
            options={"metadata": {"ticket": "7"}},
        ),
        Refusal(
            "an effort beside tools", GITHUB + "openai/openai-openapi/issues/541", "option",
            {"reasoning_effort": ABSENT}, tools=LOOKUP, options={"reasoning": {"effort": "high"}},
        ),
        Refusal(
            "a temperature of o3", GITHUB + "QwenLM/qwen-code/issues/921", "option", {"temperature": ABSENT},
            options={"temperature": 0.2}, model="o3",
        ),
        Refusal(
            "penalties above 2", _REFERENCE + "chat/create", "range", {"presence_penalty": 2},
            options={"presence_penalty": 3}, model="gpt-4o",
        ),
        Refusal(
            "50 probabilities", _REFERENCE + "chat/create", "range", {"top_logprobs": 20},
            options={"top_logprobs": 50}, model="gpt-4o",
        ),
        Refusal(
            "a choice at the top of a schema", GITHUB + "nspady/google-calendar-mcp/issues/39", "option",
            {"tools.0.function.parameters": FLAT}, tools=(function(parameters=CHOICE),),
        ),
        Refusal(
            "a schema of a list", GITHUB + "chatanywhere/GPT_API_free/issues/403", "option",
            {"tools.0.function.parameters.type": "object"}, tools=(function(parameters={"type": "array"}),),
        ),
        Refusal(
            "129 tools", GITHUB + "musistudio/claude-code-router/issues/686", "refused", {}, tools=_MANY
        ),
        Refusal(
            "a choice without tools", _REFERENCE + "chat/create", "option", {"tool_choice": ABSENT},
            options={"tool_choice": "required"},
        ),
        Refusal(
            "parallel calls without tools", _REFERENCE + "chat/create", "option", {"parallel_tool_calls": ABSENT},
            options={"parallel_tool_calls": False},
        ),
        Refusal("JSON mode without the word", _REFERENCE + "chat/create", "refused", {}, options=_NO_WORD),
        Refusal(
            "a file by its URL", _GUIDES + "pdf-files", "media", {},
            [user("Read:", {"type": "input_file", "file_url": "https://docs.example.org/a.pdf"})],
        ),
        Refusal(
            "a file without a name", _GUIDES + "pdf-files", "file_name", {}, [user("Read:", pdf(None))],
        ),
    ),
)  # fmt: skip
AZURE = Provider(
    "Azure OpenAI",
    "chat_completion",
    "gpt-5-mini",
    (
        Refusal(
            "a temperature", GITHUB + "gabrii/Cursor-Azure-GPT-5/issues/33", "option", {"temperature": ABSENT},
            options={"temperature": 0},
        ),
        Refusal(
            "a cache key of 77 characters", GITHUB + "buhlergroup/buhler-chat/pull/181", "option",
            {"prompt_cache_key": ABSENT}, options={"prompt_cache_key": "x" * 77},
        ),
        Refusal(
            "metadata that is not stored", GITHUB + "spiceai/spiceai/pull/5231", "option", {"metadata": ABSENT},
            options={"metadata": {"ticket": "7"}},
        ),
        Refusal(
            "129 tools", GITHUB + "zed-industries/zed/issues/42393", "refused", {"tools.128.type": "function"},
            tools=_MANY,
        ),
        Refusal(
            "a call id of 41 characters", GITHUB + "langgenius/dify/issues/28987", "call_id",
            {"messages.1.tool_calls.0.id": _SHORT}, [user("Hi"), call("x" * 41), output("x" * 41)], LOOKUP,
        ),
        Refusal(
            "a limit under its old name", GITHUB + "Azure/azure-functions-openai-extension/issues/151", "",
            {"max_tokens": ABSENT, "max_completion_tokens": 100}, options={"max_output_tokens": 100},
        ),
        Refusal(
            "an effort beside tools", GITHUB + "openai/openai-openapi/issues/541", "option",
            {"reasoning_effort": ABSENT}, tools=LOOKUP, options={"reasoning": {"effort": "high"}}, model="gpt-5.4",
        ),
        Refusal(
            "a call without its output", _AZURE + "how-to/function-calling", "missing_output",
            {"messages.2.role": "tool"}, [user("Hi"), call(), user("b")], LOOKUP,
        ),
        Refusal(
            "an output without its call", _AZURE + "how-to/function-calling", "orphan_output", {"messages.1": ABSENT},
            [user("Hi"), output()],
        ),
        Refusal(
            "penalties of a model that reasons", _AZURE + "how-to/reasoning", "option", {"presence_penalty": ABSENT},
            options={"presence_penalty": 0.5},
        ),
        Refusal(
            "probabilities of a model that reasons", _AZURE + "how-to/reasoning", "option option",
            {"logprobs": ABSENT, "top_logprobs": ABSENT}, options={"top_logprobs": 2},
        ),
        Refusal(
            "parallel calls of o3", _AZURE + "how-to/reasoning", "option", {"parallel_tool_calls": ABSENT},
            tools=LOOKUP, options={"parallel_tool_calls": False}, model="o3",
        ),
        Refusal("JSON mode without the word", _AZURE + "how-to/json-mode", "refused", {}, options=_NO_WORD),
        Refusal(
            "an open schema of a strict function", _AZURE + "how-to/structured-outputs", "refused", {}, tools=_OPEN
        ),
    ),
    {"provider": "azure"},
)  # fmt: skip
