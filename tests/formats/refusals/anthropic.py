"""What Anthropic's Messages API refuses."""

from __future__ import annotations

from typing import Any

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

_DOCS = "https://docs.claude.com/en/"
_API = _DOCS + "api/messages"
_THINKING = _DOCS + "docs/build-with-claude/extended-thinking"
_SONNET = "claude-sonnet-4-5"
_HTTPS = "https://theneuralbase.com/anthropic-api/learn/intermediate/image-content-blocks-base64-and-url/"
_WEB: Json = {"type": "input_image", "image_url": "https://img.example.org/a.png"}
_BUDGET: Json = {"reasoning": {"budget_tokens": 2000}}


def _thought(**keys: Any) -> Json:
    content = [{"type": "thinking", "thinking": "Hm.", **keys}]
    return {"type": "reasoning", "content": content, "origin": "messages"}


def _marked(text: str, **keys: str) -> Json:
    part = {"type": "input_text", "text": text, "cache_control": {"type": "ephemeral", **keys}}
    return {"type": "message", "role": "user", "content": [part]}


MESSAGES = Provider(
    "Anthropic Messages",
    "messages",
    "claude-sonnet-5",
    (
        Refusal(
            "a call without its result", GITHUB + "anthropics/claude-code/issues/7929", "missing_output",
            {"messages.2.content.0.type": "tool_result"}, [user("Hi"), call(), user("b")], LOOKUP,
        ),
        Refusal(
            "a result without its call", GITHUB + "anthropics/claude-code/issues/13460", "orphan_output",
            {"messages.1": ABSENT}, [user("Hi"), output()], LOOKUP,
        ),
        Refusal(
            "a result that is not directly behind its call", GITHUB + "anthropics/claude-code/issues/7929",
            "moved_output", {"messages.2.content.0.type": "tool_result", "messages.2.content.1.type": "text"},
            [user("Hi"), call(), user("Wait."), output()], LOOKUP,
        ),
        Refusal(
            "a call id twice in a turn", _API, "duplicate_call_id", {"messages.1.content.0.id": "c1"},
            [user("Hi"), call(), call(), output(), output()], LOOKUP,
        ),
        Refusal(
            "a call id with a colon", _API, "call_id", {"messages.1.content.0.id": "call_1"},
            [user("Hi"), call("call:1"), output("call:1")], LOOKUP,
        ),
        Refusal(
            "two results of one call", _API, "orphan_output", {"messages.2.content.1": ABSENT},
            [user("Hi"), call(), output(), output(text="again")], LOOKUP,
        ),
        Refusal(
            "an answer of white space", GITHUB + "danny-avila/agents/issues/124", "blank_text", {},
            [user("Hi"), assistant(" "), user("b")],
        ),
        Refusal(
            "an empty text", GITHUB + "anthropics/claude-code/issues/23369", "blank_text",
            {"messages.0.content.1": ABSENT}, [user("Hi", "")],
        ),
        Refusal(
            "a picture in the result of a failure", GITHUB + "vellum-ai/vellum-assistant/pull/18387", "media",
            {"messages.2.content.0.content.1.type": "text", "messages.2.content.0.is_error": True},
            [user("Hi"), call(), output(text=[{"type": "input_text", "text": "No."}, picture()], status="failed")],
            LOOKUP,
        ),
        Refusal(
            "a PNG that is called a JPEG", GITHUB + "vybestack/llxprt-code/issues/2130", "media_type",
            {"messages.0.content.1.source.media_type": "image/png"}, [user("See:", picture("image/jpeg"))],
        ),
        Refusal(
            "a bitmap", _DOCS + "docs/build-with-claude/vision", "media", {"messages.0.content.1.type": "text"},
            [user("See:", picture("image/bmp", "Qk0eAAAA"))],
        ),
        Refusal(
            "a picture without bytes", _DOCS + "docs/build-with-claude/vision", "data_url", {},
            [user("See:", picture(data=""))],
        ),
        Refusal(
            "a document of Word", _DOCS + "docs/build-with-claude/pdf-support", "media", {},
            [user("Read:", {**pdf("a.docx"), "file_data": "data:application/msword;base64,JVBERi0="})],
        ),
        Refusal(
            "media of 33 MB", _DOCS + "api/errors", "refused", {},
            [user("Read:", {**pdf(), "file_data": "data:application/pdf;base64," + "AAAA" * (33 * 1024 * 256)})],
        ),
        Refusal(
            "an answer that is to be continued", GITHUB + "strands-agents/sdk-python/issues/1694", "last_turn",
            {"messages.2.role": "user"}, [user("Hi"), assistant("Once")],
        ),
        Refusal(
            "an answer that is to be continued while it thinks", GITHUB + "Aider-AI/aider/issues/3820", "last_turn",
            {"messages.2.role": "user"}, [user("Hi"), assistant("Once")], options=_BUDGET, model=_SONNET,
        ),
        Refusal(
            "a picture by a URL of http", _HTTPS, "media", {"messages.0.content.1.type": "text"},
            [user("See:", {**_WEB, "image_url": "http://img.example.org/a.png"})],
        ),
        Refusal(
            "a picture by its URL on Vertex AI", GITHUB + "BerriAI/litellm/issues/18430", "media",
            {"messages.0.content.1.type": "text"}, [user("See:", _WEB)], view={"provider": "vertex"},
        ),
        Refusal(
            "a document by its URL on Vertex AI", GITHUB + "anthropics/anthropic-sdk-typescript/issues/1038", "media",
            {"messages.0.content.1.type": "text"},
            [user("Read:", {"type": "input_file", "file_url": "https://docs.example.org/a.pdf"})],
            view={"provider": "vertex"},
        ),
        Refusal(
            "a picture by its URL on Bedrock", GITHUB + "BerriAI/litellm/pull/18497", "media",
            {"messages.0.content.1.type": "text"}, [user("See:", _WEB)], view={"provider": "bedrock"},
        ),
        Refusal(
            "a name of 129 characters", _API, "name", {}, tools=(function("x" * 129),),
        ),
        Refusal(
            "a mark on thinking", GITHUB + "UKGovernmentBEIS/inspect_ai/pull/3967", "cache_mark",
            {"messages.1.content.0": {"type": "thinking", "thinking": "Hm.", "signature": "s"}},
            [user("Hi"), _thought(signature="s", cache_control={"type": "ephemeral"}), assistant("a"), user("b")],
            options=_BUDGET, model=_SONNET,
        ),
        Refusal(
            "a mark on an empty text", GITHUB + "anthropics/claude-code/issues/54039", "blank_text",
            {"messages.0.content.0.text": "Hi"}, [_marked(""), user("Hi")],
        ),
        Refusal(
            "white space behind an answer that is to be continued", _API, "trailing_space",
            {"messages.1.content.0.text": "Once"}, [user("Hi"), assistant("Once ")], model=_SONNET,
        ),
        Refusal(
            "the assistant's turn first", _API, "leading_assistant", {"messages.0.role": "user"},
            [assistant("Hello."), user("Hi")],
        ),
        Refusal(
            "thinking without a signature", _THINKING, "reasoning", {"messages.1.content.0.type": "text"},
            [user("Hi"), _thought(), assistant("a"), user("b")],
        ),
        Refusal(
            "thinking that lacks before the last result", _THINKING, "option", {"thinking": ABSENT},
            [user("Hi"), call(), output()], LOOKUP, _BUDGET, model=_SONNET,
        ),
        Refusal(
            "a temperature while it thinks", _THINKING, "option", {"temperature": ABSENT},
            options={**_BUDGET, "temperature": 0.2}, model=_SONNET,
        ),
        Refusal(
            "a forced tool while it thinks", _THINKING, "tool_choice", {"tool_choice": {"type": "auto"}}, tools=LOOKUP,
            options={**_BUDGET, "tool_choice": "required"}, model=_SONNET,
        ),
        Refusal(
            "a budget that leaves nothing for the answer", _THINKING, raises="uses up",
            options={"reasoning": {"budget_tokens": 5000}, "max_output_tokens": 4000}, model=_SONNET,
        ),
        Refusal(
            "a budget of a model that sets its own", _DOCS + "docs/build-with-claude/adaptive-thinking", "option",
            {"thinking": {"type": "adaptive"}}, options=_BUDGET,
        ),
        Refusal(
            "adaptive thinking of Claude 4.5", GITHUB + "pensarai/apex/pull/890", "option", {"thinking": ABSENT},
            options={"reasoning": {"type": "adaptive"}}, model=_SONNET,
        ),
        Refusal(
            "an effort of Claude 4.5", GITHUB + "anthropics/claude-code/issues/30795", "refused", {},
            options={"reasoning": {"effort": "high"}}, model=_SONNET,
        ),
        Refusal(
            "an effort that is too high", GITHUB + "anthropics/claude-code/issues/63320", "range",
            {"output_config.effort": "high"}, options={"reasoning": {"effort": "xhigh"}}, model="claude-opus-4-6",
        ),
        Refusal(
            "a temperature of Claude 5", GITHUB + "Comfy-Org/ComfyUI/issues/13923", "option", {"temperature": ABSENT},
            options={"temperature": 0.5},
        ),
        Refusal(
            "temperature and top_p", GITHUB + "open-webui/functions/issues/9", "option",
            {"temperature": 0.5, "top_p": ABSENT}, options={"temperature": 0.5, "top_p": 0.9}, model=_SONNET,
        ),
        Refusal(
            "a temperature above 1", _API, "range", {"temperature": 1}, options={"temperature": 1.5}, model=_SONNET
        ),
        Refusal(
            "stop sequences of white space", GITHUB + "BerriAI/litellm/issues/3286", "option",
            {"stop_sequences": ["END"]}, options={"extra": {"stop_sequences": ["\n\n", "END"]}},
        ),
        Refusal(
            "a user id of 257 characters", _API, "metadata", {"metadata": ABSENT},
            options={"metadata": {"user_id": "x" * 257}},
        ),
        Refusal("no tokens for the answer", _API, "range", {"max_tokens": 1}, options={"max_output_tokens": 0}),
        Refusal(
            "a choice at the top of a schema", GITHUB + "anthropics/claude-code/issues/5973", "option",
            {"tools.0.input_schema": FLAT}, tools=(function(parameters=CHOICE),),
        ),
        Refusal(
            "a property with brackets", GITHUB + "beautyfree/appstore-connect-mcp/issues/2", "refused", {},
            tools=(function(parameters=schema(**{"filter[id]": {"type": "string"}})),),
        ),
        Refusal(
            "a name with a dot", _API, "name", {"tools.0.name": "my_tool"}, tools=(function("my.tool"),)
        ),
        Refusal(
            "a choice without tools", _API, "option", {"tool_choice": ABSENT}, options={"tool_choice": "required"}
        ),
        Refusal(
            "five cache marks", _DOCS + "docs/build-with-claude/prompt-caching", "cache_mark",
            {"messages.0.content.0.cache_control": ABSENT}, [_marked(str(number)) for number in range(5)],
        ),
        Refusal(
            "a longer cache mark behind a shorter one", _DOCS + "docs/build-with-claude/prompt-caching", "cache_mark",
            {}, [_marked("a"), assistant("b"), _marked("c", ttl="1h")],
        ),
    ),
)  # fmt: skip
