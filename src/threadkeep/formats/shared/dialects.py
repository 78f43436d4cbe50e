"""How vendors that speak Chat Completions or the Responses API differ: a table of vendors, and one of model families.

A dialect is a session option, and an option of rendering, which takes precedence. The default is OpenAI's own API.

Sources: the vendors' API references and recorded requests to them; for the families the documents of Z.ai, Moonshot,
Xiaomi, MiniMax and DeepSeek on reasoning.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final, Literal, NamedTuple

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.options import EFFORTS, dialect_name
from threadkeep.domain.rendering import RenderOptions
from threadkeep.formats.canonical import entries, items
from threadkeep.formats.shared.fields import FUNCTIONS

# efforts that ask for no reasoning
OFF: Final = ("off", "none", "nothink", "disabled")
_TO_LOW_AND_MAX: Final = {
    "off": "low", "minimal": "low", "low": "low", "medium": "low", "high": "high", "xhigh": "max", "max": "max",
}  # fmt: skip
_MAX_TOKENS: Final = "max_tokens"
_COMPLETION: Final = "max_completion_tokens"


class ModelFamily(NamedTuple):
    """How models of one family are asked to reason; the defaults are the general rule."""

    # effort -> the word for it, "off" for all of `OFF`; others are sent as they are. None: none is sent.
    efforts: Mapping[str, str] | None = {}
    on: Mapping[str, JsonObject] = {}  # what is sent along with an effort
    off: Mapping[str, JsonObject] | None = None  # what is sent to turn reasoning off; None: an effort like others
    limit: str = _MAX_TOKENS  # the name of the token limit


_ENABLED: Final[Mapping[str, JsonObject]] = {"thinking": {"type": "enabled"}}
_DISABLED: Final[Mapping[str, JsonObject]] = {"thinking": {"type": "disabled"}}
GENERAL: Final = ModelFamily()
GLM: Final = ModelFamily(
    dict.fromkeys(("minimal", "low", "medium", "high"), "high") | {"xhigh": "max", "max": "max"}, _ENABLED, _DISABLED
)
KIMI: Final = ModelFamily(_TO_LOW_AND_MAX)
MIMO: Final = ModelFamily(None, _ENABLED, _DISABLED, _COMPLETION)
MINIMAX: Final = ModelFamily(None, {"thinking": {"type": "adaptive"}}, _DISABLED, _COMPLETION)
DEEPSEEK: Final = ModelFamily({"xhigh": "max"})
MISTRAL: Final = ModelFamily(dict.fromkeys(("minimal", "low", "medium", "xhigh", "max"), "high") | {"off": "none"})

# how names of models begin, whatever vendor stands before them (the first match counts) -> family
FAMILIES: Final = (
    (re.compile(r"glm-5\.3(?!\d)"), ModelFamily(_TO_LOW_AND_MAX, _ENABLED)),
    (re.compile(r"glm-[45](?!\d)"), GLM),
    (re.compile(r"kimi-k3(?!\d)"), KIMI),
    (re.compile(r"mimo-v2(?!\d)"), MIMO),
    (re.compile(r"minimax-m3$"), MINIMAX),
    (re.compile(r"deepseek"), DEEPSEEK),
)


@dataclass(frozen=True, slots=True)
class Dialect:
    """What requests a vendor takes. The defaults describe OpenAI's own API, and the Responses API of others."""

    family: ModelFamily | None = (
        None  # how models that are not in `FAMILIES` are asked to reason; None: all as OpenAI's
    )
    limit: str | None = None  # the name of the token limit; None: as in the model's family, or of the format
    efforts: Mapping[str, str] | None = None  # effort -> the word for it, where no others are taken
    reasoning: Literal["effort", "object"] = "effort"  # "object": effort and budget stand in an object `reasoning`
    # "string": content that is only text is sent as one string; "parts": the instructions are parts, too
    text: Literal["as it is", "string", "parts"] = "as it is"
    plain_texts: bool = False  # text parts hold only their text (and a cache mark), and are never empty
    results: Literal["parts", "text"] = "parts"  # what tools returned: parts where there are several, or one text
    # the key of the reasoning that every assistant message must have while the model reasons, even if it is empty
    thoughts: str | None = None
    prefix: str | None = None  # the key that marks a final assistant message as one to be continued
    call_id: re.Pattern[str] | None = None  # the form of call ids
    renamed: Mapping[str, str] = field(default_factory=dict)  # keys of the request under other names
    choices: Mapping[str, str] = field(default_factory=dict)  # tool choices under other names
    lacks: frozenset[str] = frozenset()  # keys of the request that the vendor refuses
    # role -> the keys that its messages may have; other roles, and all without this, may have any
    keys: Mapping[str, frozenset[str]] = field(default_factory=dict)
    tools: frozenset[str] = frozenset({"function", "custom"})  # the kinds of tools and calls that are taken
    parts: frozenset[str] | None = None  # the types of parts that the assistant's content may have; None: any
    ids: Mapping[str, str] = field(default_factory=dict)  # item type -> how ids of such items begin
    # what takes cache marks: nothing, tools, or tools and content, for `marked_models` alone
    marks: Literal["none", "tools", "parts"] = "none"
    marked_models: re.Pattern[str] = re.compile("")


STANDARD: Final = Dialect()
# the efforts of OpenAI's API
_EFFORTS: Final = dict.fromkeys(OFF, "none") | {word: word for word in EFFORTS}
_PENALTIES: Final = frozenset({"presence_penalty", "frequency_penalty"})
_NOT_MISTRAL: Final = frozenset(
    {
        "store", "service_tier", "safety_identifier", "user", "prompt_cache_key", "prompt_cache_retention",
        "prompt_cache_options", "moderation", "logprobs", "top_logprobs", "verbosity", "stream_options", "logit_bias",
        "modalities", "audio", "web_search_options",
    }
)  # fmt: skip
_SAID: Final = frozenset({"role", "content"})
# Mistral refuses messages with any other key; OpenAI's reference names no others, and `annotations` are of its answers.
_MISTRAL_KEYS: Final = {
    **dict.fromkeys(("system", "user"), _SAID),
    "assistant": _SAID | {"tool_calls", "prefix"},
    "tool": _SAID | {"tool_call_id", "name"},
}
_OPENAI_KEYS: Final = {
    **dict.fromkeys(("system", "developer", "user", "function"), _SAID | {"name"}),
    "assistant": _SAID | {"name", "refusal", "audio", "annotations", "tool_calls", "function_call"},
    "tool": _SAID | {"tool_call_id"},
}
# vendors that take texts alone
_TEXTS: Final = Dialect(GENERAL, text="string", results="text", tools=FUNCTIONS)

# vendor -> what it takes in requests of Chat Completions
CHAT: Final[Mapping[str, Dialect]] = {
    "compatible": Dialect(GENERAL, text="string", plain_texts=True, results="text", tools=FUNCTIONS, marks="tools"),
    "deepseek": replace(_TEXTS, family=DEEPSEEK, thoughts="reasoning_content", prefix="prefix"),
    "minimax": _TEXTS,
    "mistral": Dialect(
        MISTRAL,
        _MAX_TOKENS,
        text="string",
        prefix="prefix",
        call_id=re.compile("[A-Za-z0-9]{9}"),
        renamed={"seed": "random_seed"},
        choices={"required": "any"},
        lacks=_NOT_MISTRAL,
        keys=_MISTRAL_KEYS,
        tools=FUNCTIONS,
        parts=frozenset({"text", "thinking", "reference"}),
    ),
    "moonshot": replace(_TEXTS, family=KIMI, thoughts="reasoning_content", prefix="partial"),
    "openai": Dialect(efforts=_EFFORTS, keys=_OPENAI_KEYS, parts=frozenset({"text", "refusal"})),
    "openrouter": Dialect(
        reasoning="object",
        text="parts",
        tools=FUNCTIONS,
        marks="parts",
        marked_models=re.compile("anthropic/|google/|claude|gemini"),
    ),
    "xiaomi": replace(_TEXTS, family=MIMO),
    "zai": replace(_TEXTS, family=GLM),
}
# vendor -> what it takes in requests of the Responses API
RESPONSES: Final[Mapping[str, Dialect]] = {
    **dict.fromkeys(CHAT, STANDARD),
    "compatible": Dialect(results="text"),
    "openai": Dialect(lacks=_PENALTIES, efforts=_EFFORTS, ids=items.PREFIXES),
}


def dialect_of(table: Mapping[str, Dialect], snapshot: entries.Snapshot, options: RenderOptions) -> Dialect:
    """What the vendor takes in a request of a format, by the format's table; this call's dialect takes precedence."""
    name = options.dialect or snapshot.settings.get("dialect")
    return STANDARD if name is None else table[dialect_name("dialect", name)]


def family_of(dialect: Dialect, model: object) -> ModelFamily | None:
    """How a model is asked to reason there; None where it is asked in the format's own words."""
    if dialect.family is None:
        return None
    name = model.rpartition("/")[2].lower() if isinstance(model, str) else ""
    return next((family for pattern, family in FAMILIES if pattern.match(name)), dialect.family)
