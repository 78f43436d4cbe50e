"""What Amazon Bedrock's Converse API refuses, by model."""

from __future__ import annotations

from tests.formats.factories import assistant, call, output, user
from tests.formats.refusals.rows import (
    ABSENT,
    CHOICE,
    FLAT,
    GITHUB,
    LOOKUP,
    Provider,
    Refusal,
    function,
    pdf,
    picture,
    schema,
)

_AWS = "https://docs.aws.amazon.com/bedrock/latest/"
_API = _AWS + "APIReference/API_runtime_"
_MODELS = _AWS + "userguide/models-supported.html"
_SCHEMA = "toolConfig.tools.0.toolSpec.inputSchema.json"
_FAILED = output(text=[{"type": "input_text", "text": "No."}, picture()], status="failed")

CLAUDE = Provider(
    "Bedrock Converse, Claude",
    "converse",
    "us.anthropic.claude-sonnet-5-v1:0",
    (
        Refusal(
            "a call without its result", _API + "ToolResultBlock.html", "missing_output",
            {"messages.2.content.0.toolResult.toolUseId": "c1"}, [user("Hi"), call(), user("b")], LOOKUP,
        ),
        Refusal(
            "a result without its call", _API + "ToolResultBlock.html", "orphan_output", {},
            [user("Hi"), output(), assistant("a"), user("b")], LOOKUP,
        ),
        Refusal(
            "a call id twice", _API + "ToolUseBlock.html", "duplicate_call_id", {},
            [user("Hi"), call(), call(), output(), output()], LOOKUP,
        ),
        Refusal(
            "a call id of 90 characters", _API + "ToolUseBlock.html", "call_id", {},
            [user("Hi"), call("a|b" * 30), output("a|b" * 30)], LOOKUP,
        ),
        Refusal(
            "calls without tools in the request", GITHUB + "BerriAI/litellm/issues/5388", "tool_history",
            {"toolConfig.tools.0.toolSpec.name": "lookup"}, [user("Hi"), call(), output()],
        ),
        Refusal(
            "tools that may not be called", _API + "ToolChoice.html", "tool_choice", {"toolConfig": ABSENT},
            tools=LOOKUP, options={"tool_choice": "none"},
        ),
        Refusal(
            "a blank answer", GITHUB + "NousResearch/hermes-agent/issues/55092", "blank_text", {},
            [user("Hi"), assistant(" "), user("b")],
        ),
        Refusal(
            "an output without content", GITHUB + "NousResearch/hermes-agent/issues/61318", "blank_text",
            {"messages.2.content.0.toolResult.content.0.text": "(no output)"}, [user("Hi"), call(), output(text="")],
            LOOKUP,
        ),
        Refusal(
            "blank instructions", _API + "SystemContentBlock.html", "blank_text", {"system": ABSENT},
            options={"instructions": " "},
        ),
        Refusal(
            "the assistant's turn first", GITHUB + "microsoft/semantic-kernel/issues/10281", "leading_assistant",
            {"messages.0.role": "user"}, [assistant("Hello."), user("Hi")],
        ),
        Refusal(
            "an answer that is to be continued", GITHUB + "aws-samples/bedrock-access-gateway/issues/219", "last_turn",
            {"messages.2.role": "user"}, [user("Hi"), assistant("Once")],
        ),
        Refusal(
            "an answer that is to be continued while it thinks", GITHUB + "Aider-AI/aider/issues/3820", "last_turn",
            {"messages.2.role": "user"}, [user("Hi"), assistant("Once")],
            options={"reasoning": {"budget_tokens": 2000}}, model="us.anthropic.claude-sonnet-4-5-v1:0",
        ),
        Refusal(
            "a document without a text", _API + "DocumentBlock.html", "document_text", {"messages.0.content.1.text":
            "..."}, [user(pdf())],
        ),
        Refusal(
            "the name of a document with an underscore", _API + "DocumentBlock.html", "name",
            {"messages.0.content.1.document.name": "my-report-v2"}, [user("Read:", pdf("my_report.v2.pdf"))],
        ),
        Refusal(
            "two documents of one name", _API + "DocumentBlock.html", "name",
            {"messages.0.content.2.document.name": "report-2"}, [user("Read:", pdf(), pdf())],
        ),
        Refusal(
            "a picture by its URL", _API + "ImageSource.html", "media", {},
            [user("See:", {"type": "input_image", "image_url": "https://img.example.org/a.png"})],
        ),
        Refusal(
            "a PNG that is called a JPEG", GITHUB + "vybestack/llxprt-code/issues/2130", "media_type",
            {"messages.0.content.1.image.format": "png"}, [user("See:", picture("image/jpeg"))],
        ),
        Refusal(
            "a picture in the result of a failure", GITHUB + "vellum-ai/vellum-assistant/pull/18387", "media",
            {"messages.2.content.0.toolResult.content.1.text": "[image not included: image/png]"},
            [user("Hi"), call(), _FAILED], LOOKUP,
        ),
        Refusal(
            "stop sequences of white space", GITHUB + "BerriAI/litellm/issues/3286", "option",
            {"inferenceConfig": ABSENT}, options={"extra": {"stop_sequences": ["\n"]}},
        ),
        Refusal(
            "metadata with an accent", _API + "Converse.html", "metadata", {"requestMetadata": ABSENT},
            options={"metadata": {"city": "Köln"}},
        ),
        Refusal(
            "a property with a space",
            GITHUB + "aws-solutions-library-samples/accelerated-intelligent-document-processing-on-aws/issues/709",
            "refused", {}, tools=(function(parameters=schema(**{"Account Number": {"type": "string"}})),),
        ),
        Refusal(
            "a choice at the top of a schema", GITHUB + "anthropics/claude-code/issues/5973", "option",
            {_SCHEMA: FLAT}, tools=(function(parameters=CHOICE),),
        ),
    ),
)  # fmt: skip
NOVA = Provider(
    "Bedrock Converse, Nova",
    "converse",
    "amazon.nova-pro-v1:0",
    (
        Refusal(
            "a temperature above 1", _API + "InferenceConfiguration.html", "range",
            {"inferenceConfig.temperature": 1}, options={"temperature": 1.5},
        ),
        Refusal(
            "no tokens for the answer", _API + "InferenceConfiguration.html", "range",
            {"inferenceConfig.maxTokens": 1}, options={"max_output_tokens": 0},
        ),
        Refusal(
            "a picture for Nova Micro", _MODELS, "media", {"messages.0.content.1.text": "[image not included: "
            "image/png]"}, [user("See:", picture())], model="amazon.nova-micro-v1:0",
        ),
        Refusal(
            "21 pictures", _API + "Message.html", "refused", {}, [user("See:", *[picture()] * 21)],
        ),
        Refusal("six documents", _API + "Message.html", "refused", {},
                [user("Read:", *[pdf(f"{name}.pdf") for name in "abcdef"])]),
    ),
)  # fmt: skip
OTHERS = Provider(
    "Bedrock Converse, other models",
    "converse",
    "meta.llama3-1-70b-instruct-v1:0",
    (
        Refusal(
            "a tool that must be called, for Llama", GITHUB + "strands-agents/harness-sdk/issues/1241", "option",
            {"toolConfig.toolChoice": ABSENT}, tools=LOOKUP, options={"tool_choice": "required"},
        ),
        Refusal(
            "a tool that is named, for Mistral", _API + "ToolChoice.html", "option",
            {"toolConfig.toolChoice": ABSENT}, tools=LOOKUP,
            options={"tool_choice": {"type": "function", "name": "lookup"}}, model="mistral.mistral-large-2402-v1:0",
        ),
        Refusal(
            "instructions to Titan", _MODELS, "role", {"system": ABSENT, "messages.0.content.0.text": "Be brief."},
            options={"instructions": "Be brief."}, model="amazon.titan-text-express-v1",
        ),
        Refusal(
            "instructions to Mistral 7B", _MODELS, "role", {"system": ABSENT},
            options={"instructions": "Be brief."}, model="mistral.mistral-7b-instruct-v0:2",
        ),
        Refusal("tools of Titan", _MODELS, "refused", {}, tools=LOOKUP, model="amazon.titan-text-express-v1"),
        Refusal("a picture for Llama 3.1", _MODELS, "media", {}, [user("See:", picture())]),
        Refusal(
            "two pictures for Llama 3.2", GITHUB + "aws-samples/generative-ai-use-cases/pull/1040", "refused", {},
            [user("See:", picture(), picture())], model="us.meta.llama3-2-90b-instruct-v1:0",
        ),
        Refusal(
            "an answer that is to be continued", GITHUB + "i-am-bee/beeai-framework/issues/753", "last_turn",
            {"messages.2.role": "user"}, [user("Hi"), assistant("Once")],
        ),
        Refusal(
            "reasoning of DeepSeek R1", _API + "ReasoningContentBlock.html", "reasoning",
            {"messages.1.content.0.text": "a"},
            [user("Hi"), {"type": "reasoning", "content": [{"type": "thinking", "thinking": "Hm."}],
                          "origin": "converse"}, assistant("a"), user("b")], model="deepseek.r1-v1:0",
        ),
    ),
)  # fmt: skip
