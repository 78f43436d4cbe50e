"""What a request may give back of what only its maker can read: who made it decides, and not the format it came in.

Reasoning, signatures, encrypted content, blocks that only one provider knows, and ids of what it keeps go to the
provider that gave them. Elsewhere they are left out, which is reported, or sent as text where the view asks for that.

* The target of a request is the provider that the request or the conversation names, else the one that has answered
  last, if the request asks for the same model; else the vendor of the model; else the one that has made the format.
* Claude's signatures are read by Anthropic's API, Amazon Bedrock, Google Cloud and Microsoft Foundry alike, but only
  for the same model, or for one that reads the other's thinking; some models require the same account.
* Google's API and Vertex AI refuse each other's thought signatures ("Corrupted thought signature"), OpenAI and Azure
  each other's encrypted content (`invalid_encrypted_content`), and OpenAI refuses content of another organization.
* Who sells models of several vendors gets back what came from the same vendor's model.

Sources: Anthropic's guides on extended and preserved thinking ("values are compatible across platforms"; "each model
reads its own thinking blocks and those of a fixed set of other models"; "thinking blocks stay with the account");
Amazon Bedrock's user guide, "Preserved thinking"; the errors of the services, as reported in litellm 32140 (Vertex AI),
opencode 6418 and 11546, llxprt-code 1469 and 2335, openai/codex 8100; Google's guide on thought signatures.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from operator import itemgetter
from typing import Any, Final, NamedTuple

from threadkeep.domain.formats import format_names, get_format
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.rendering import RenderOptions
from threadkeep.domain.response import Maker, asked_of, maker_from
from threadkeep.formats.canonical.entries import ItemEntry, PackedEntries, Snapshot, changed_entry
from threadkeep.formats.shared.reports import Context

_MEMO: Final = "makers"  # the place in a snapshot's memo
_ORIGIN, _MAKER = ItemEntry._fields.index("origin"), ItemEntry._fields.index("maker")
# Origin and maker of an item
_Signed = tuple[str | None, str | None]

# provider -> other names of it, as in OpenTelemetry, Pydantic AI, LangChain, LiteLLM and others; see `provider_name`
_NAMES: Final = {
    "openai": ("openairesponses", "openaichat"),
    "azure": ("azureopenai", "azureaiopenai", "azaiopenai", "azureaiinference", "azaiinference", "azureai", "foundry",
              "azurefoundry", "microsoftfoundry"),
    "anthropic": ("claude",),
    "bedrock": ("awsbedrock", "amazonbedrock", "aws", "amazon", "bedrockconverse"),
    "google": ("gemini", "googlegla", "gcpgemini", "gcpgenai", "googlegenai", "googleai", "googleaistudio"),
    "vertex": ("vertexai", "googlevertex", "gcpvertexai", "googlevertexai", "googlevertexanthropic", "anthropicvertex",
               "vertexaianthropic", "gcpvertex", "googlecloud"),
    "xai": ("grok",),
    "zai": ("zhipu", "zhipuai", "bigmodel"),
    "moonshot": ("moonshotai", "kimi"),
    "mistral": ("mistralai",),
    "xiaomi": ("xiaomimimo", "mimo"),
}  # fmt: skip
_PROVIDERS: Final = {alias: name for name, others in _NAMES.items() for alias in (name, *others)}
# who reads Claude's signatures, from any of these signers
CLAUDE_PLATFORMS: Final = frozenset({"anthropic", "bedrock", "vertex", "azure"})
# family of models -> how their names look (the first match counts), and the vendor that serves them
_FAMILIES: Final[Sequence[tuple[str, re.Pattern[str], str]]] = tuple(
    (family, re.compile(pattern), vendor)
    for family, pattern, vendor in (
        ("claude", "claude", "anthropic"),
        ("gpt-oss", "gpt-oss", "gpt-oss"),
        ("gpt", r"gpt-|gpt\d|chatgpt|codex|(?:^|[/.])o[1-9](?:$|[-:])|computer-use", "openai"),
        ("gemini", "gemini", "google"),
        ("grok", "grok", "xai"),
        ("glm", r"glm-|glm\d", "zai"),
        ("kimi", "kimi|moonshot", "moonshot"),
        ("minimax", "minimax", "minimax"),
        ("deepseek", "deepseek", "deepseek"),
        ("mistral", r"mi[sx]tral|magistral|codestral|devstral", "mistral"),
        ("mimo", "mimo", "xiaomi"),
        ("nova", "nova", "bedrock"),
        *((name, name, name) for name in ("qwen", "llama", "gemma", "nemotron")),
    )
)
# how the names of models begin there: with their vendor
_OPENROUTER: Final = re.compile(r"(?:anthropic|openai|google|x-ai|z-ai|moonshotai|minimax|deepseek|mistralai|qwen)/")
# Claude's models -> whose thinking they read, too; all others read their own alone
_READS: Final = {"claude-fable-5-1": frozenset({"claude-opus-5", "claude-opus-5-5"})}
# whose thinking all of Claude's models read; and whose only the same account can send
_READ_BY_ALL: Final = frozenset({"claude-haiku-5-5"})
_OF_ACCOUNT: Final = frozenset({"claude-sonnet-5-5", "claude-haiku-5-5"})
_BOTH: Final = 2  # names, where both sides are known and differ


@lru_cache(maxsize=256)
def provider_name(name: str) -> str:
    """A provider by the name that it has here, whatever case and separators the application uses.

    >>> provider_name("azure.ai.openai"), provider_name("Google-Vertex"), provider_name("my gateway")
    ('azure', 'vertex', 'mygateway')
    """
    word = re.sub(r"[\W_]", "", name.lower()) or name
    return _PROVIDERS.get(word, word)


@lru_cache(maxsize=1024)
def family_of(model: str | None) -> str | None:
    """The family of a model, by its name; None where that does not tell."""
    name = (model or "").lower()
    return next((family for family, pattern, _ in _FAMILIES if pattern.search(name)), None)


@lru_cache(maxsize=1024)
def plain_model(model: str) -> str:
    """The name of a model without its date, and without what services put around it.

    >>> plain_model("us.anthropic.claude-sonnet-4-5-20250929-v1:0"), plain_model("anthropic/claude-sonnet-4.5")
    ('claude-sonnet-4-5', 'claude-sonnet-4-5')
    >>> plain_model("gpt-5.4-2026-03-05"), plain_model("models/gemini-3-pro")
    ('gpt-5.4', 'gemini-3-pro')
    """
    name = model.lower().rpartition("/")[2]
    name = re.sub(r"@.*$|-v\d+(:\w+)*$|:\w+$", "", name)
    name = re.sub(r"-(latest|\d{8}|\d{4}-\d{2}-\d{2})$", "", name)
    if "claude" not in name:
        return name
    name = name[name.index("claude") :].replace(".", "-")
    return re.sub(r"(?<=\d)-0$", "", name)


class RequestTarget(NamedTuple):
    """Who gets a request."""

    provider: str | None
    model: str | None = None
    account: str | None = None

    @property
    def family(self) -> str | None:
        """The family of the model."""
        return family_of(self.model)

    @property
    def needs_signature(self) -> bool:
        """Whether thinking without a signature is refused."""
        return self.family == "claude" and self.provider in CLAUDE_PLATFORMS


def target_of(snapshot: Snapshot, options: RenderOptions, format_name: str) -> RequestTarget:
    """Who gets a request of a conversation in a format."""
    get = snapshot.settings.get
    model = get("model") if isinstance(get("model"), str) else None
    given, view = (get("provider"), get("dialect"), model), (options.provider, options.dialect, options.account)
    return _target(format_name, given, view, _makers_in(snapshot).newest)


@lru_cache(maxsize=1024)
def _target(format_name: str, given: tuple[Any, ...], view: tuple[str | None, ...], newest: _Signed) -> RequestTarget:
    asked = asked_of(
        dict(zip(("provider", "dialect", "model"), given, strict=True)),
        dict(zip(("provider", "dialect", "account"), view, strict=True)),
    )
    model = asked.asked
    if asked.provider is not None:
        return RequestTarget(provider_name(asked.provider), model, asked.account)
    origin, maker = newest
    last = maker_from(maker or "" if origin == format_name else "")  # who has answered last, if that was in the format
    if last.provider is not None and (model is None or _is_asked_for(last, model)):
        return RequestTarget(
            provider_name(last.provider), model or last.asked or last.model, asked.account or last.account
        )
    return RequestTarget(vendor_of(model, format_name), model, asked.account)


def author_of(format_name: str | None) -> str | None:
    """Who has made a format."""
    return get_format(format_name).author if format_name in format_names() else None


@lru_cache(maxsize=1024)
def vendor_of(model: str | None, format_name: str | None) -> str | None:
    """Who serves a model in a format, where that is not said."""
    if format_name == "converse":
        return author_of(format_name)
    if format_name == "chat_completion" and model is not None and _OPENROUTER.match(model.lower()):
        return "openrouter"
    family = family_of(model)
    vendors = (vendor for name, _, vendor in _FAMILIES if name == family)
    return next(vendors, author_of(format_name))


def provider_of(maker: Maker, origin: str | None) -> str | None:
    """The provider of a maker whose answer came in a format, as far as that tells."""
    return vendor_of(maker.model, origin) if maker.provider is None else provider_name(maker.provider)


def _is_asked_for(maker: Maker, model: str) -> bool:
    """Whether a request for a model asks for the one that has answered."""
    return any(name is not None and plain_model(name) == plain_model(model) for name in (maker.asked, maker.model))


@lru_cache(maxsize=1024)
def can_read(target: RequestTarget, origin: str | None, maker: Maker) -> bool:
    """Whether the target of a request can read what a maker has signed in an answer that came in a format."""
    family = _family_of(maker)
    if maker.provider is None and family is None:
        return True  # nothing is known but the format, which has rules of its own
    provider = provider_of(maker, origin)
    accounts = {maker.account, target.account} - {None}
    is_claudes = family == target.family == "claude" and origin != "chat_completion"
    if is_claudes and {provider, target.provider} <= CLAUDE_PLATFORMS:
        is_of_account = maker.model is not None and plain_model(maker.model) in _OF_ACCOUNT
        return _claude_reads(target.model, maker.model) and (len(accounts) < _BOTH or not is_of_account)
    return provider == target.provider and len(accounts) < _BOTH and _reads_model(target, maker)


def reads_own(target: RequestTarget, entry: ItemEntry, format_name: str) -> bool:
    """Whether the target can read what an item of its own format holds for its maker alone."""
    if entry.origin not in get_format(format_name).reads:
        return True
    return can_read(target, entry.origin, maker_from(entry.maker or ""))


def _family_of(maker: Maker) -> str | None:
    return family_of(maker.model) or family_of(maker.asked)


def _reads_model(target: RequestTarget, maker: Maker) -> bool:
    """Whether the model that is asked can read what another one of the same provider has signed."""
    if target.model is not None and _is_asked_for(maker, target.model):
        return True
    families = {_family_of(maker), target.family} - {None}
    return len(families) < _BOTH and (families != {"claude"} or _claude_reads(target.model, maker.model))


def _claude_reads(reader: str | None, writer: str | None) -> bool:
    """Whether one of Claude's models reads the thinking of another one; the same, where one is not known."""
    names = [plain_model(model) for model in (reader, writer) if family_of(model) == "claude" and model is not None]
    if len(names) < _BOTH:
        return True
    one, other = names
    return one == other or other in _READ_BY_ALL or other in _READS.get(one, ())


# The makers in a conversation


class _Makers(NamedTuple):
    looked_at: int = 0  # items
    all: frozenset[_Signed] = frozenset()
    newest: _Signed = (None, None)


def _makers_in(snapshot: Snapshot) -> _Makers:
    """The makers of a conversation's items; what was looked at once is remembered."""
    entries, memo = snapshot.entries, snapshot.memo
    known: _Makers = _Makers() if memo is None else memo.get(_MEMO) or _Makers()
    count = len(entries)
    if known.looked_at > count:
        known = _Makers()
    if known.looked_at < count or memo is None:
        signed = _signed(entries[known.looked_at :] if known.looked_at else entries)
        known = _Makers(count, known.all.union(signed), signed[-1] if signed else known.newest)
        if memo is not None:
            memo[_MEMO] = known
    return known


def memo_for(snapshot: Snapshot, count: int) -> dict[Any, Any]:
    """The memo of a part of a snapshot with so many items: all makers of the snapshot are theirs."""
    return {_MEMO: _makers_in(snapshot)._replace(looked_at=count)}


_signed_by: Final[Callable[[ItemEntry], _Signed]] = itemgetter(_ORIGIN, _MAKER)


def _signed(entries: Sequence[ItemEntry]) -> list[_Signed]:
    if isinstance(entries, PackedEntries):
        return entries.makers()
    return [signed for signed in map(_signed_by, entries) if signed[1] is not None]


# What is left out


def readable(
    entries: Sequence[ItemEntry],
    snapshot: Snapshot,
    target: RequestTarget,
    format_name: str,
    context: Context,
    *,
    has_texts: bool = False,
) -> Sequence[ItemEntry]:
    """The entries as the target can read them; the very same where it can read all of them.

    `has_texts`: reasoning that it cannot read is sent as text, where it has one.
    """
    takes = get_format(format_name).reads
    foreign = {
        (origin, maker)
        for origin, maker in _makers_in(snapshot).all
        if origin in takes and not can_read(target, origin, maker_from(maker or ""))
    }
    if has_texts:
        entries = _with_texts(entries, foreign, takes | {None})
    if not foreign:
        return entries
    left = _Leaving(format_name, context)
    return [
        kept for entry in entries if (kept := left.from_(entry) if _signed_by(entry) in foreign else entry) is not None
    ]


def _with_texts(
    entries: Sequence[ItemEntry], foreign: Collection[_Signed], takes: Collection[str | None]
) -> Sequence[ItemEntry]:
    """The entries with messages of the assistant in place of reasoning that cannot be sent as such, but has a text."""
    texts = {
        index: text
        for index, entry in enumerate(entries)
        if entry.type == "reasoning"
        and (entry.origin not in takes or _signed_by(entry) in foreign)
        and (text := reasoning_text(entry.item()))
    }
    if not texts:
        return entries
    shown = list(entries)
    for index, text in texts.items():
        part = {"type": "output_text", "text": f"<thinking>\n{text}\n</thinking>"}
        message = changed_entry(shown[index], {"type": "message", "role": "assistant", "content": [part]})
        shown[index] = message._replace(maker=None)
    return shown


def reasoning_text(item: JsonObject) -> str:
    """What a reasoning item says, as far as it can be read: its content, else its summary."""
    for key in ("content", "summary"):
        parts = item.get(key)
        said = [
            text.strip()
            for part in (parts if isinstance(parts, list) else ())
            if isinstance(part, dict) and isinstance(text := part.get("thinking") or part.get("text"), str)
        ]
        if any(said):
            return "\n\n".join(filter(None, said))
    return ""


_IDS: Final = "open_responses"  # the format whose items have ids that the provider keeps
# keys of items, parts and their native keys with what only their maker can read, and ids of what it keeps
_SEALED: Final = frozenset(
    {
        "thought_signature", "thoughtSignature", "signature", "encrypted_content", "encrypted_index",
        "encrypted_stdout", "extra_content", "reasoning_details", "file_id", "container_id", "fingerprint",
    }
)  # fmt: skip
# item types of which only the id, and keys above, are their maker's; all others are left out
_COMMON: Final = frozenset(
    {
        "message", "function_call", "function_call_output", "custom_tool_call", "custom_tool_call_output",
        "tool_search_call", "tool_search_output", "shell_call", "shell_call_output", "apply_patch_call",
        "apply_patch_call_output", "additional_tools", "configuration_update",
    }
)  # fmt: skip
# the same, of which nothing is left without them: parts and annotations
_NOTHING_ELSE: Final = frozenset({"file_id", "container_id", "encrypted_index"})
# keys that are not looked into: they hold no JSON of the maker
_ASIDE: Final = frozenset({"origin", "spelling", "arguments", "output", "tools"})


def giver_of(entry: ItemEntry) -> str:
    """Who made an item, for reports."""
    maker = maker_from(entry.maker or "")
    giver = maker.provider or vendor_of(maker.model, entry.origin) or "another provider"
    return f"{giver} ({maker.model})" if maker.model else giver


@dataclass(slots=True)
class _Leaving:
    """Leaves out of items what only their maker can read."""

    format_name: str
    context: Context

    def from_(self, entry: ItemEntry) -> ItemEntry | None:
        """The entry without that; None where nothing is left."""
        context, before = self.context, self.context.position
        context.position = entry.position
        kept = self._from(entry, giver_of(entry))
        context.position = before
        return kept

    def _from(self, entry: ItemEntry, giver: str) -> ItemEntry | None:
        context = self.context
        if entry.type == "reasoning":
            context.loss("reasoning", "", f"Reasoning was left out: only {giver} can read it.")
            return None
        if entry.type == "provider_item":
            context.loss("provider_item", "", f"A block was left out: only {giver} can read it.")
            return None
        if entry.type not in _COMMON:
            context.loss("item", "", f"An item of type {entry.type!r} was left out: it belongs to {giver}.")
            return None
        item = entry.item()
        paths: list[str] = []
        kept = _without_sealed(item, "", paths)
        if paths:
            context.loss("signature", paths[0], f"{', '.join(paths)}: left out, because only {giver} can read it.")
        if self.format_name == _IDS and kept.get("id") is not None:
            context.repair("item_id", "id", f"The id {kept['id']!r} was left out: {giver} has given it.")
            kept = {key: value for key, value in kept.items() if key != "id"}
        return entry if kept is item else changed_entry(entry, kept)


def _without_sealed(value: JsonObject, path: str, paths: list[str]) -> JsonObject:
    """An object without what only its maker can read; `paths` get the places of that."""
    kept: JsonObject = {}
    for key, inner in value.items():
        at = f"{path}.{key}" if path else key
        if key in _SEALED:
            if inner is not None:
                paths.append(at)
            continue
        if key in _ASIDE:
            kept[key] = inner
        elif isinstance(inner, dict):
            kept[key] = _without_sealed(inner, at, paths)
        elif isinstance(inner, list):
            kept[key] = list(_parts_without(inner, at, paths))
        else:
            kept[key] = inner
    return kept if len(kept) < len(value) or kept != value else value


def _parts_without(parts: Iterable[Any], path: str, paths: list[str]) -> Iterable[Any]:
    for index, part in enumerate(parts):
        at = f"{path}[{index}]"
        if not isinstance(part, dict):
            yield part
        elif part.get("type") == "provider_item" or not _NOTHING_ELSE.isdisjoint(part):
            paths.append(at)
        else:
            yield _without_sealed(part, at, paths)
