"""What may stand where in a request: one table by wire format, dialect and model, each row with its source.

Rows apply from the top: a later row takes precedence. The passes of the formats read the result, `rules_for`; the page
"How providers differ" of the documentation is made of the same rows.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any, Final, Literal, NamedTuple, Protocol

from threadkeep.domain.options import DIALECTS
from threadkeep.formats.shared.claude import follows, is_claude

MEGABYTE: Final = 1024 * 1024
# the text that stands for a turn or a result which the provider requires and the conversation does not have
FILLER: Final = "..."
NO_OUTPUT: Final = "(no output)"


@dataclass(frozen=True, slots=True)
class ProviderRules:
    """What a provider takes. The defaults are the most lenient."""

    # texts that are refused: none, empty ones, those of white space in a message without other text, or all blank ones
    blank: Literal["taken", "not empty", "some text", "no blank"] = "taken"
    needs_content: bool = False  # whether an assistant message without text and calls is refused
    # system text: at any place, only as one leading message, or only as the user's text
    system: Literal["anywhere", "leading", "as user"] = "anywhere"
    takes_developer: bool = True  # whether the role `developer` is known
    starts_with_user: bool = False
    # what becomes of a last turn of the assistant: it is sent, sent and reported, or followed by a filler of the user
    last_turn: Literal["taken", "reported", "filled"] = "taken"
    alternates: bool = False  # whether the turns of user and assistant must alternate
    user_after_tool: bool = True  # whether a user message may stand directly behind a tool output
    tool_media: bool = True  # whether tool outputs take pictures and files
    error_media: bool = True  # whether those that report an error do
    refused_types: tuple[str, ...] = ()  # how refused media types begin; a picture by URL is of the type `image/`
    checks_types: bool = False  # whether the media type of a picture must be what its bytes are
    # whether media may stand elsewhere in the web: anywhere, behind https, or nowhere
    media_urls: Literal["taken", "https", "refused"] = "taken"
    longest_call_id: int | None = None  # characters
    calls: int | None = None  # how many calls an assistant message may have
    json_word: bool = False  # whether JSON mode needs the word JSON in the messages
    pictures: int | None = None  # how many a request may have; also with the documents
    documents: int | None = None
    picture_bytes: int | None = None  # the size of one picture, as base64
    document_bytes: int | None = None
    picture_side: int | None = None  # pixels
    media_bytes: int | None = None  # the size of all pictures and documents, as base64
    many_pictures: int | None = None  # beyond this number …
    many_side: int | None = None  # … pictures may have only so many pixels on a side

    @property
    def takes_any_order(self) -> bool:
        """Whether messages of any role and content may stand anywhere."""
        is_free = self.system == "anywhere" and self.takes_developer and self.user_after_tool and not self.alternates
        is_open = not self.starts_with_user and self.last_turn == "taken"
        return is_free and is_open and self.blank == "taken" and not self.needs_content


ANYTHING: Final = ProviderRules()


class RuleRow(NamedTuple):
    """A row of the table: who has which rules, and where that is stated."""

    who: str  # for readers
    formats: tuple[str, ...]
    rules: Mapping[str, Any]  # fields of `ProviderRules`
    source: str
    dialects: tuple[str | None, ...] | None = None  # None: all, and requests without one
    models: Callable[[str], bool] | None = None  # None: all
    providers: tuple[str, ...] | None = None  # None: all, and requests of which it is not known


def named(pattern: str) -> Callable[[str], bool]:
    """Whether a model is named so, whatever vendor stands before the name."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda model: compiled.match(model.rpartition("/")[2]) is not None


def contains(pattern: str) -> Callable[[str], bool]:
    """Whether the name of a model has something in it."""
    compiled = re.compile(pattern, re.IGNORECASE)
    return lambda model: compiled.search(model) is not None


def _refuses_prefill(model: str) -> bool:
    return follows(model, "no prefill")


def _has_long_context(model: str) -> bool:
    return follows(model, "many pictures")


def _is_current_claude(model: str) -> bool:
    return follows(model, "claude 4")


_CHAT: Final = ("chat_completion",)
_OPENAI: Final = ("chat_completion", "open_responses")
_CLAUDE_SIDES: Final = {"picture_side": 8000, "many_pictures": 20, "many_side": 2000}

_UNUSUAL: Final = ("image/svg", "image/bmp", "image/tiff", "image/x-")
_NOT_OPENAI: Final = (*_UNUSUAL, "image/heic", "image/heif", "image/avif")
_NOT_GEMINI: Final = (*_UNUSUAL, "image/gif", "application/vnd.", "application/msword", "application/zip")

TABLE: Final = (
    # Anthropic
    RuleRow(
        "Anthropic",
        ("messages",),
        {"blank": "some text"},
        "LibreChat agents 124 (measured); claude-code issues 23369, 62396",
    ),
    RuleRow(
        "Anthropic",
        ("messages",),
        {"error_media": False, "checks_types": True},
        "vellum-assistant 18387; copilot-api 196; llxprt-code issue 2130",
    ),
    RuleRow("Anthropic", ("messages",), {"starts_with_user": True}, "Anthropic API reference: Messages"),
    RuleRow(
        "Anthropic",
        ("messages",),
        {"pictures": 100, "picture_bytes": 5 * MEGABYTE, "media_bytes": 32 * MEGABYTE, **_CLAUDE_SIDES},
        "Anthropic docs: Vision, Errors; claude-code issues 24541, 24630; crush 3810",
    ),
    RuleRow(
        "Claude with a context of more than 200,000 tokens",
        ("messages",),
        {"pictures": 600},
        "Anthropic docs: Vision",
        models=_has_long_context,
    ),
    RuleRow(
        "Claude 4.6 and newer, through any service",
        ("messages", "converse", "chat_completion"),
        {"last_turn": "filled"},
        "Anthropic docs: Prefill not supported; strands-agents 1694, bedrock-access-gateway 219, forgecode 2107",
        models=_refuses_prefill,
    ),
    RuleRow(
        "Anthropic",
        ("messages",),
        {"media_urls": "https"},
        "Anthropic API error: Only HTTPS URLs are supported",
        providers=("anthropic",),
    ),
    RuleRow(
        "Claude on Vertex AI and Amazon Bedrock",
        ("messages",),
        {"media_urls": "refused"},
        "litellm 18430, 18497; anthropic-sdk-typescript issue 1038; langchain-google issue 1088",
        providers=("vertex", "bedrock"),
    ),
    # Amazon Bedrock
    RuleRow(
        "Amazon Bedrock",
        ("converse",),
        {"blank": "no blank", "needs_content": True},
        "Bedrock API reference: ContentBlock; hermes-agent 55092, 61318; LibreChat agents 501",
    ),
    RuleRow(
        "Amazon Bedrock",
        ("converse",),
        {"starts_with_user": True, "alternates": True},
        "Bedrock API reference: Message; semantic-kernel issue 10281; Portkey gateway 748",
    ),
    RuleRow(
        "Amazon Bedrock's models other than Claude and Nova",
        ("converse",),
        {"last_turn": "filled"},
        "beeai-framework issue 753; semantic-kernel issue 10281",
        models=contains(
            r"(?:^|[./])(?:ai21|cohere|deepseek|google|meta|minimax|mistral|moonshot|nvidia|openai|qwen|writer|zai)\."
        ),
    ),
    RuleRow(
        "Amazon Bedrock",
        ("converse",),
        {
            "pictures": 20,
            "picture_bytes": 5 * MEGABYTE,  # 3.75 MB before base64
            "picture_side": 8000,
            "documents": 5,
            "document_bytes": 6 * MEGABYTE,  # 4.5 MB before base64
        },
        "Bedrock API reference: Message; cline issue 1844",
    ),
    RuleRow(
        "Claude 4 and newer on Amazon Bedrock",
        ("converse",),
        {"pictures": 100, **_CLAUDE_SIDES},
        "AWS document processing accelerator 147, 998 (measured)",
        models=_is_current_claude,
    ),
    RuleRow(
        "Text models on Amazon Bedrock",
        ("converse",),
        {"refused_types": ("image/",)},
        "Bedrock user guide: Supported models and model features; API error: doesn't support the image content block",
        models=contains(r"nova-micro|llama3-1|llama3-[78]|titan-text|deepseek|gpt-oss|mistral-(?:7b|large-24)|mixtral"),
    ),
    RuleRow(
        "Titan, Command, Jurassic, Mistral 7B and Mixtral on Amazon Bedrock",
        ("converse",),
        {"system": "as user"},
        "Bedrock user guide: Supported models and model features",
        models=contains(r"titan|cohere\.command-(?:text|light)|ai21\.j2|mistral-7b|mixtral"),
    ),
    RuleRow(
        "Claude on Amazon Bedrock",
        ("converse",),
        {"error_media": False, "checks_types": True},
        "vellum-assistant 18387; llxprt-code issue 2130",
        models=is_claude,
    ),
    RuleRow(
        "Llama 3.2 on Amazon Bedrock",
        ("converse",),
        {"pictures": 1},
        "aws-samples generative-ai-use-cases 1040",
        models=contains(r"llama3-2"),
    ),
    RuleRow(
        "Llama 4 on Amazon Bedrock",
        ("converse",),
        {"pictures": 8},
        "aws-samples generative-ai-use-cases 1040",
        models=contains(r"llama4"),
    ),
    # Google
    RuleRow(
        "Gemini",
        ("gemini",),
        {"starts_with_user": True},
        "Gemini API error: multiturn requests alternate from a user turn",
    ),
    RuleRow("Gemini", ("gemini",), {"last_turn": "reported"}, "one-api issue 836; semantic-kernel 13288; livekit 2183"),
    RuleRow(
        "Gemini",
        ("gemini",),
        {"refused_types": _NOT_GEMINI},
        "Google docs: Image understanding, Document understanding; new-api 1139",
    ),
    RuleRow(
        "Gemma 3 behind the Gemini API",
        ("gemini",),
        {"system": "as user"},
        "rig issue 788; adk-python 3900; cherry-studio 3242",
        models=named("gemma-3"),
    ),
    RuleRow("Gemini", ("gemini",), {"pictures": 3000}, "Google docs: Image understanding"),
    RuleRow(
        "Gemini image models",
        ("gemini",),
        {"pictures": 14},
        "Google docs: Image understanding",
        models=contains(r"gemini-3.*-image"),
    ),
    # OpenAI, and requests without a dialect
    RuleRow(
        "All servers of Chat Completions",
        _CHAT,
        {"tool_media": False},
        "OpenAI API reference: tool messages; vLLM issue 43203; kimi-code 626; agenthub 209",
    ),
    RuleRow(
        "OpenAI",
        _OPENAI,
        {"pictures": 500},
        "OpenAI docs: Images and vision; pi 120 (measured)",
        dialects=(None, "openai"),
    ),
    RuleRow(
        "OpenAI",
        _OPENAI,
        {"refused_types": _NOT_OPENAI, "json_word": True},
        "recorded error: unsupported image; OpenAI docs: Images and vision, JSON mode",
        dialects=(None, "openai"),
        providers=("openai", "azure"),
    ),
    RuleRow(
        "OpenAI's models",
        _CHAT,
        {"longest_call_id": 40, "calls": 128},
        "agno issue 5382; openclaw 31934; camel issue 2215; openai-dotnet issue 317; pydantic-ai issue 1105",
        dialects=(None, "openai"),
        models=named(r"gpt-|chatgpt|o\d"),
        providers=("openai", "azure"),
    ),
    RuleRow(
        "DeepSeek",
        _CHAT,
        {"refused_types": ("image/",), "json_word": True},
        "rikkahub issue 1433; hermes-webui 2297; deepcode-cli 50; DeepSeek docs: JSON Output",
        dialects=("deepseek",),
    ),
    RuleRow(
        "Groq",
        _CHAT,
        {"pictures": 5, "picture_bytes": 4 * MEGABYTE},
        "Groq docs: Images and vision; pi issue 401 and 120 (measured)",
        providers=("groq",),
    ),
    RuleRow(
        "Scaleway",
        _CHAT,
        {"pictures": 12},
        "Scaleway docs: Query vision models",
        providers=("scaleway",),
    ),
    # vendors and servers of Chat Completions
    RuleRow(
        "DeepSeek, Moonshot, Xiaomi and Z.ai",
        _CHAT,
        {"takes_developer": False},
        "API references of the vendors",
        dialects=("deepseek", "moonshot", "xiaomi", "zai"),
    ),
    RuleRow(
        "Moonshot",
        _CHAT,
        {"blank": "not empty", "needs_content": True},
        "LiteLLM issue 42186",
        dialects=("moonshot",),
    ),
    RuleRow(
        "MiniMax",
        _CHAT,
        {"takes_developer": False, "system": "leading"},
        "MiniMax-M2 issue 51; oh-my-pi 954 (measured); openclaw 19386",
        dialects=("minimax",),
    ),
    RuleRow(
        "MiniMax models on other servers",
        _CHAT,
        {"system": "leading"},
        "MiniMax-M2 issue 51; oh-my-pi 958",
        models=named("minimax"),
    ),
    RuleRow(
        "Compatible servers (vLLM, llama.cpp, Ollama, Fireworks …)",
        _OPENAI,
        {"takes_developer": False, "system": "leading", "tool_media": False},
        "vLLM issue 41114; ogx 6069; Ollama issue 17774; LiteLLM 39852; oh-my-pi 958",
        dialects=("compatible",),
    ),
    RuleRow(
        "Qwen 3.5 and newer",
        _CHAT,
        {"takes_developer": False, "system": "leading"},
        "vLLM issue 41114; Qwen3.8 issue 244; chat template of Qwen 3.5",
        models=named(r"qwen-?(?:3[.p-][5-9](?!\d)|[4-9])"),
    ),
    RuleRow(
        "Grok",
        _CHAT,
        {"refused_types": (*_UNUSUAL, "image/gif", "image/webp")},
        "xAI docs: Image understanding",
        models=named("grok"),
    ),
    RuleRow("Grok", _CHAT, {"needs_content": True}, "crush issue 964", models=named("grok")),
    RuleRow(
        "DeepSeek R1 and deepseek-reasoner",
        _CHAT,
        {"alternates": True},
        "DeepSeek-R1 issue 21; open-webui issue 9266",
        models=named(r"deepseek-(?:reasoner|r1)"),
    ),
    RuleRow(
        "Gemma",
        _CHAT,
        {"takes_developer": False, "system": "leading", "starts_with_user": True, "alternates": True},
        "chat template of Gemma; anon-kode issue 60; suitenumerique conversations 197",
        models=named("gemma"),
    ),
    RuleRow(
        "Gemma 1 and 2",
        _CHAT,
        {"system": "as user"},
        "chat template of Gemma 2: System role not supported",
        models=named(r"gemma-?(?:2(?!\d)|[27]b)"),
    ),
    RuleRow(
        "Perplexity",
        _CHAT,
        {
            "takes_developer": False,
            "system": "leading",
            "starts_with_user": True,
            "last_turn": "filled",
            "alternates": True,
        },
        "Perplexity api-discussion 265; livekit 1529; LibreChat issue 3048",
        models=named(r"sonar|r1-1776"),
    ),
    RuleRow(
        "Mistral's models, on any server",
        _CHAT,
        {
            "takes_developer": False,
            "system": "leading",
            "user_after_tool": False,
            "needs_content": True,
            "starts_with_user": True,
            "alternates": True,
        },
        "validator of mistral-common 1.13; zed issue 37021; hermes-agent 20154; vLLM issue 6862; OpenHands issue 8685",
        models=named(r"(?:open-)?(?:mistral|mixtral|ministral|codestral|devstral|magistral|pixtral)"),
    ),
    RuleRow(
        "Mistral's models on other servers than Mistral's",
        _CHAT,
        {"last_turn": "filled"},
        "Mistral API error: Expected last role User or Tool; smolagents issue 757",
        dialects=(None, *(name for name in DIALECTS if name != "mistral")),
        models=named(r"(?:open-)?(?:mistral|mixtral|ministral|codestral|devstral|magistral|pixtral)"),
    ),
    RuleRow(
        "Mistral",
        _CHAT,
        {
            "takes_developer": False,
            "system": "leading",
            "user_after_tool": False,
            "needs_content": True,
            "pictures": 8,
        },
        "validator of mistral-common 1.13; avante.nvim 2695; OpenHands issue 8685; pi 120 (measured)",
        dialects=("mistral",),
    ),
    RuleRow(
        "Claude behind Chat Completions",
        _CHAT,
        {"blank": "some text", "pictures": 100, **_CLAUDE_SIDES},
        "Anthropic docs: Vision; opencode issue 31259; vercel/ai 14888",
        models=is_claude,
    ),
)


class Applied(Protocol):
    """To whom a row of a table applies."""

    @property
    def formats(self) -> tuple[str, ...]: ...  # noqa: D102 - see the rows
    @property
    def dialects(self) -> tuple[str | None, ...] | None: ...  # noqa: D102
    @property
    def models(self) -> Callable[[str], bool] | None: ...  # noqa: D102
    @property
    def providers(self) -> tuple[str, ...] | None: ...  # noqa: D102


def applies(row: Applied, format_name: str, dialect: str | None, model: str | None, provider: str | None) -> bool:
    """Whether a row of a table is about requests of a format, dialect, model and provider."""
    if format_name not in row.formats or (row.dialects is not None and dialect not in row.dialects):
        return False
    if row.providers is not None and provider not in row.providers:
        return False
    return row.models is None or (model is not None and row.models(model))


@lru_cache(maxsize=256)
def rules_for(format_name: str, dialect: str | None, model: str | None, provider: str | None = None) -> ProviderRules:
    """What a request may hold, by its format, dialect, model and provider."""
    keys: dict[str, Any] = {}
    for row in TABLE:
        if applies(row, format_name, dialect, model, provider):
            keys |= row.rules
    return replace(ANYTHING, **keys)
