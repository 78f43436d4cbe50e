"""What Anthropic's models refuse, and their signed thinking, whichever service they are asked through.

* Thinking has a budget, which is 1,024 tokens at least, or none that the request sets.
* While the model thinks, temperature and top_k are its own, and top_p is 0.95 at least.
* Newer models refuse sampling, budgets, or thinking that is turned off: see the table of models. Models that it does
  not name follow the rule of those before Claude 4: both samplers, budgets for thinking, thinking that can be turned
  off, and system text only before the conversation.

Source: Anthropic's API reference, "Messages"; its guide on extended thinking; its model pages and the SDK's notes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final

from threadkeep.domain.jsontext import JsonObject
from threadkeep.errors import CannotRender
from threadkeep.formats.shared.reports import Context

LEAST_BUDGET: Final = 1024
LEAST_TOP_P: Final = 0.95
# keys of the option `reasoning` that are Anthropic's, and its kinds of thinking
THINKING: Final = ("type", "budget_tokens", "display")
_KINDS: Final = frozenset({"enabled", "adaptive", "disabled", "between_tools"})


def thinking_of(value: JsonObject, context: Context) -> JsonObject | None:
    """Return the thinking that an option asks for: a budget of zero means none in other formats.

    A lesser budget is as much as the model likes there, which is reported.
    """
    thinking = {key: value[key] for key in THINKING if value.get(key) is not None}
    if not thinking:
        return None
    kind = thinking.setdefault("type", "enabled")
    if not isinstance(kind, str) or kind not in _KINDS:
        context.loss("option", "reasoning.type", f"The format has no thinking of type {kind!r}.")
        return None
    budget = _budget(thinking, kind)
    if kind != "enabled" or budget > 0:
        return thinking
    if budget < 0:
        context.loss("option", "reasoning.budget_tokens", "The format has no budget that the model sets itself.")
        return None
    return {"type": "disabled"}


def _budget(thinking: JsonObject, kind: str) -> int:
    """The budget, which only thinking that is enabled has."""
    budget = thinking.get("budget_tokens")
    if budget is not None and (not isinstance(budget, int) or isinstance(budget, bool)):
        raise CannotRender(f"reasoning.budget_tokens is {budget!r}, not a whole number of tokens.")
    if budget is None and kind == "enabled":
        raise CannotRender(
            "reasoning asks for thinking without saying how much.", hint="Set budget_tokens, or an effort."
        )
    hint = "Leave one of them out."
    if budget is not None and kind != "enabled":
        raise CannotRender(f"reasoning.budget_tokens goes with the type enabled, not {kind}.", hint=hint)
    if kind in ("disabled", "between_tools") and "display" in thinking:
        raise CannotRender(f"reasoning.display has no effect when thinking is {kind}.", hint=hint)
    return budget or 0


def is_claude(model: object) -> bool:
    """Whether a model is one of Anthropic's, as far as its name tells."""
    return isinstance(model, str) and "claude" in model.lower()


def thinking_type(body: JsonObject) -> Any:
    """The type of thinking that a body of Messages asks for; None when it does not say."""
    thinking = body.get("thinking")
    return thinking.get("type") if isinstance(thinking, dict) else None


def fit_thinking(body: JsonObject, context: Context) -> None:
    """Ask for thinking as the model takes it: `body` is one of Messages, of which other keys may be missing."""
    kind, model = thinking_type(body), body.get("model")
    if kind == "disabled" and follows(model, "always thinks"):
        context.loss("option", "reasoning.type", f"{model} always thinks.")
        del body["thinking"]
    elif kind == "enabled" and follows(model, "no budget"):
        context.loss("option", "reasoning.budget_tokens", f"{model} sets its own budget: adaptive thinking was sent.")
        others = {key: value for key, value in body["thinking"].items() if key != "budget_tokens"}
        body["thinking"] = others | {"type": "adaptive"}
    elif kind == "enabled" and (budget := body["thinking"]["budget_tokens"]) < LEAST_BUDGET:
        limit = body.get("max_tokens")  # the least budget is sent where there is room for it
        path = "reasoning.budget_tokens"
        if limit is None or limit > LEAST_BUDGET:
            context.repair("range", path, f"{budget} became {LEAST_BUDGET}, the least that is taken.")
            body["thinking"] = {**body["thinking"], "budget_tokens": LEAST_BUDGET}
        elif limit > budget:
            context.loss("option", path, f"{budget} is less than the service takes: {LEAST_BUDGET}.")
            del body["thinking"]


def fit_sampling(body: JsonObject, context: Context) -> None:
    """Leave out of a body of Messages what the model refuses, or refuses while it thinks."""
    model, refused = body.get("model"), {}
    if follows(model, "no sampling"):
        refused = dict.fromkeys(("temperature", "top_p", "top_k"), f"{model} takes no sampling settings")
    elif thinking_type(body) in ("enabled", "adaptive"):
        refused = dict.fromkeys(("temperature", "top_k"), "it is the model's own while it thinks")
        if isinstance(top_p := body.get("top_p"), int | float) and top_p < LEAST_TOP_P:
            refused["top_p"] = f"it is {LEAST_TOP_P} at least while the model thinks"
    if "temperature" in body and "temperature" not in refused and follows(model, "one sampler"):
        refused["top_p"] = f"{model} takes it only without temperature"
    for name in [name for name in refused if name in body]:
        context.loss("option", name, f"{name} was left out: {refused[name]}.")
        del body[name]


# claude-3-5-haiku…, claude-opus-4-1-20250805, anthropic.claude-opus-4-7-v1:0, claude-sonnet-5, claude-opus-4.7
_NAME: Final = re.compile(
    r"claude-(?:(?P<before>\d(?:[.-]\d)?)-)?(?P<family>opus|sonnet|haiku|fable|mythos)"
    r"(?:-(?P<major>\d{1,2})(?!\d)(?:[.-](?P<minor>\d{1,2})(?!\d))?)?",
    re.IGNORECASE,
)

_ALWAYS: Final = {"fable": (0, 0), "mythos": (0, 0)}
_REFUSING: Final = {"opus": (4, 7), "sonnet": (5, 0), **_ALWAYS}
# rule -> family -> the version from which it holds
RULES: Final[dict[str, dict[str, tuple[int, int]]]] = {
    "no sampling": _REFUSING,
    "one sampler": {**dict.fromkeys(("opus", "sonnet", "haiku"), (4, 1)), **_ALWAYS},
    "no budget": _REFUSING,
    "always thinks": {"opus": (5, 5), **_ALWAYS},
    "inner system": {"opus": (4, 8)},
    "no prefill": {**dict.fromkeys(("opus", "sonnet", "haiku"), (4, 6)), **_ALWAYS},
    "many pictures": {**dict.fromkeys(("opus", "sonnet"), (4, 6)), **_ALWAYS},  # a context of more than 200,000 tokens
    "effort": {"opus": (4, 5), "sonnet": (4, 6), "haiku": (5, 0), **_ALWAYS},
    "adaptive": {**dict.fromkeys(("opus", "sonnet"), (4, 6)), "haiku": (5, 0), **_ALWAYS},
    "thinks": {"opus": (4, 0), "sonnet": (3, 7), "haiku": (4, 5), **_ALWAYS},
    "claude 4": {**dict.fromkeys(("opus", "sonnet", "haiku"), (4, 0)), **_ALWAYS},
}
# tokens of an answer, the most first -> family -> the version from which it may have as many
_LONGEST: Final[dict[int, dict[str, tuple[int, int]]]] = {
    128_000: {**dict.fromkeys(("opus", "sonnet"), (4, 6)), **_ALWAYS},
    64_000: {"opus": (4, 5), "sonnet": (3, 7), "haiku": (4, 5)},
    32_000: {"opus": (4, 0)},
}


def follows(model: Any, rule: str) -> bool:
    """Whether a rule of the table holds for a model.

    >>> follows("claude-opus-4-8", "no sampling"), follows("claude-sonnet-4-5-20250929", "no sampling")
    (True, False)
    """
    return _is_since(model, RULES[rule])


def _is_since(model: Any, versions: Mapping[str, tuple[int, int]]) -> bool:
    """Whether a model is of one of these versions, or a newer one of its family."""
    name = _NAME.search(model) if isinstance(model, str) else None
    since = None if name is None else versions.get(name["family"].lower())
    if name is None or since is None:
        return False
    major, minor = name["major"], name["minor"]
    if major is None:
        major, _, minor = (name["before"] or "0").replace("-", ".").partition(".")
    return (int(major), int(minor or 0)) >= since


def longest_answer(model: Any) -> int | None:
    """Return how many tokens a model gives at most; None where that is not known.

    >>> longest_answer("claude-sonnet-5"), longest_answer("claude-haiku-4-5"), longest_answer("glm-4.7")
    (128000, 64000, None)
    """
    return next((most for most, versions in _LONGEST.items() if _is_since(model, versions)), None)


def lacks(model: Any, rule: str) -> bool:
    """Whether a model is one of Claude's, as far as the table knows, and is older than a rule of it.

    >>> lacks("claude-haiku-4-5", "adaptive"), lacks("claude-opus-5", "adaptive"), lacks("glm-4.7", "adaptive")
    (True, False, False)
    """
    name = _NAME.search(model) if isinstance(model, str) else None
    return name is not None and name["family"].lower() in RULES[rule] and not follows(model, rule)


ANTHROPIC, BEDROCK = "anthropic", "bedrock"  # providers, as Pydantic AI names them
REDACTED: Final = "redacted_thinking"
_PYDANTIC_AI: Final = "pydantic_ai"
_SIGNERS: Final = {"messages": ANTHROPIC, "converse": BEDROCK}
# signer -> the id by which Pydantic AI knows thinking that is encrypted
REDACTED_IDS: Final = {ANTHROPIC: REDACTED, BEDROCK: "redacted_content"}


def signer_of(item: JsonObject) -> str | None:
    """The provider that signed the thinking of a reasoning item; None where it is not known."""
    origin = item.get("origin")
    if origin == _PYDANTIC_AI:
        signer = _part(item).get("provider_name")
        return signer if isinstance(signer, str) else None
    return _SIGNERS.get(str(origin))


def thinking_blocks(item: JsonObject) -> list[JsonObject]:
    """The blocks of a reasoning item as Anthropic writes them; of a part of Pydantic AI, if it is signed, the one."""
    content = item.get("content")
    blocks = [block for block in content if isinstance(block, dict)] if isinstance(content, list) else []
    if item.get("origin") != _PYDANTIC_AI:
        return blocks
    signature = item.get("encrypted_content")
    if not isinstance(signature, str) or not signature:
        return []
    if _part(item).get("id") in REDACTED_IDS.values():
        return [{"type": REDACTED, "data": signature}]
    text = "".join(block["text"] for block in blocks if isinstance(block.get("text"), str))
    return [{"type": "thinking", "thinking": text, "signature": signature}]


def _part(item: JsonObject) -> JsonObject:
    """What a part of Pydantic AI says besides its text and signature."""
    spelling = item.get("spelling")
    part = spelling.get("part") if isinstance(spelling, dict) else None
    return part if isinstance(part, dict) else {}
