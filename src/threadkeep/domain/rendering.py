"""Rendering: its options, and a rendered request with what it could not express."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import astuple, dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Literal, TypedDict

from threadkeep.domain import formats, media, options
from threadkeep.domain.context_caches import ContextCache
from threadkeep.domain.jsontext import REQUEST_DEPTH, JsonObject, dumps, loads_stored, mismatch
from threadkeep.errors import InvalidOption, ItemRefused, LossError, shown

ASKED: Final = "asked"  # key of a recorded view: what a request said of itself, which was not sent to the provider


@dataclass(frozen=True, slots=True)
class ImportInfo:
    """The origin of a conversation that was imported from a request."""

    format: str
    count: int  # the number of its items; unpaired ones stay unpaired in requests of that format
    spelling: JsonObject = field(default_factory=dict)  # how it spelled things; only read by the format itself

    def to_dict(self) -> JsonObject:
        """Return the JSON object that `from_dict` reads."""
        data: JsonObject = {"format": self.format, "count": self.count}
        return data | ({"spelling": self.spelling} if self.spelling else {})

    @classmethod
    def from_dict(cls, data: object) -> ImportInfo:
        """Return what `to_dict` wrote."""
        match data:
            case {"format": str(name), "count": int(count), **others} if count >= 0:
                spelling = others.pop("spelling", {})
                if not others and isinstance(spelling, dict):
                    return cls(name, count, spelling)
        raise mismatch(InvalidOption, "an object with `format`, `count` and `spelling`", data, "imported")


@dataclass(frozen=True, slots=True)
class Turns:
    """A window over a conversation: the last `count` turns, and at most ``step - 1`` turns before them.

    A turn begins with a user message. The window moves once every `step` turns; in between, the beginning of the
    request stays the same, so that providers find it in their caches.

    Raises:
        InvalidOption: a value is not a positive integer.
    """

    count: int
    step: int = 1

    def __post_init__(self) -> None:
        for name in ("count", "step"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise mismatch(InvalidOption, "a whole number from 1 on", value, name)


class ViewOptions(TypedDict, total=False):
    """What a request shows of a conversation, and how.

    Attributes:
        strict: raise LossError instead of reporting losses.
        upto: show the items up to and including this position; exactly as they were sent, if the request at that time
            was recorded (`rendered=` of `add_response`).
        server_state: "none" sends the whole history, even if the provider stores it.
        vision: False replaces each image with a note.
        pictures: a number keeps only that many images, the newest, and replaces earlier ones with a note; "auto" keeps
            as many as the provider takes.
        reasoning: False omits the reasoning of earlier responses; "text" sends as text what only another provider could
            read as reasoning.
        cache: "auto" marks tools, system text and the end of the history for the provider's prompt cache. For Gemini,
            it uses the longest explicit cache that contains the beginning of the request (`plan_context_cache`).
        window: `Turns(20, step=10)` shows the last 20 to 29 turns, and moves once every ten turns.
        dynamic_context: current facts, sent as JSON before the history. Recorded with the request, but never part of
            the history.
        dynamic_context_at: "tail" places it directly before what the model is to respond to.
        dialect: the vendor the request is for, if it uses its own version of the format.
        provider: who gets the request, by the name that the provider has in the usage ledger: what only another one can
            read is left out of it. By default, the session's `provider`, or the one that has answered last.
        account: the account at the provider, if there are several: each has its own caches, and reads what it has
            encrypted itself.
        tool_results: "json" sends tool outputs of several parts as JSON text, images included, where a vendor of Chat
            Completions or the Responses API takes text alone; by default, images and files go into a user message.
        media_url: a template such as "https://files.example/{hash}": media of 8 KiB or more are sent as such URLs of
            your own storage, where the format takes a URL; they are not read then.
        now: when the request is sent, in seconds since 1970, which decides whether a provider still has the audio of an
            answer. The time of rendering by default; recorded with the request where it matters.
    """

    strict: bool
    upto: int | None
    server_state: Literal["auto", "none"]
    vision: bool
    pictures: int | Literal["auto"] | None
    reasoning: Literal[True, False, "text"]
    cache: Literal["auto"] | None
    window: Turns | None
    dynamic_context: JsonObject | None
    dynamic_context_at: Literal["front", "tail"]
    dialect: str | None
    provider: str | None
    account: str
    tool_results: Literal["json"] | None
    media_url: str | None
    now: int | None


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """How a request is rendered: the checked options of `ViewOptions`, and the cache used by the request."""

    strict: bool = False
    upto: int | None = None
    server_state: Literal["auto", "none"] = "auto"
    vision: bool = True
    pictures: int | Literal["auto"] | None = None
    reasoning: Literal[True, False, "text"] = True
    cache: Literal["auto"] | None = None
    window: Turns | None = None
    dynamic_context: JsonObject | None = None
    dynamic_context_at: Literal["front", "tail"] = "front"
    dialect: str | None = None
    provider: str | None = None
    account: str = ""
    tool_results: Literal["json"] | None = None
    media_url: str | None = None
    now: int | None = None
    context_cache: ContextCache | None = None

    def __post_init__(self) -> None:
        _check_number("upto", self.upto, -1, "a position, or -1 for none")
        if self.pictures != "auto":
            _check_number("pictures", self.pictures, 0, "a number of images, or 'auto'")
        for name, values in _CHOICES.items():
            value = getattr(self, name)
            if value not in values or type(value) not in map(type, values):  # 1 is not True
                raise mismatch(InvalidOption, " or ".join(map(repr, values)), value, name)
        for name, (kind, words) in _TYPES.items():
            if not isinstance(value := getattr(self, name), kind):
                raise mismatch(InvalidOption, words, value, name)
        if self.dialect is not None:
            options.dialect_name("dialect", self.dialect)
        if self.media_url is not None:
            media.check_media_url(self.media_url)

    def check_end(self, head: int) -> None:
        """Refuse an `upto` behind the last item, which is at position `head` (-1: there is none)."""
        if self.upto is not None and self.upto > head:
            problem = f"lies behind the last item, which is at position {head}: {shown(self.upto)}."
            raise InvalidOption(problem, argument="upto", hint="Leave it out to show all items.")

    @property
    def shows_all(self) -> bool:
        """Whether every item is shown as it is stored."""
        is_filtered = not self.vision or not self.reasoning or self.pictures is not None
        return not is_filtered and self.window is None and self.dynamic_context is None

    def view(self, format_name: str) -> JsonObject:
        """Return the options that shaped a request, to be recorded with its response; `recorded` reads them."""
        view: JsonObject = {"format": format_name}
        if self is AS_IT_IS:
            return view
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value != default:
                view[name] = list(astuple(value)) if isinstance(value, Turns | ContextCache) else value
        return view

    @classmethod
    def recorded(cls, view: JsonObject) -> RenderOptions:
        """Return the options of a recorded view; raise InvalidOption if some exist only in later releases."""
        options = {name: value for name, value in view.items() if name in _DEFAULTS}
        unknown = view.keys() - options.keys() - {"format", ASKED}
        if unknown:
            problem = f"The view was recorded with the option {min(unknown)!r}, which only later releases have."
            raise InvalidOption(problem)
        for name, kind in (("window", Turns), ("context_cache", ContextCache)):
            if options.get(name) is not None:
                options[name] = kind(*options[name])
        return cls(**options)


def _check_number(name: str, value: object, least: int, words: str) -> None:
    if value is not None and (isinstance(value, bool) or not isinstance(value, int) or value < least):
        raise mismatch(InvalidOption, words, value, name)


_CHOICES: Final[dict[str, tuple[object, ...]]] = {
    "strict": (True, False),
    "server_state": ("auto", "none"),
    "vision": (True, False),
    "reasoning": (True, False, "text"),
    "cache": (None, "auto"),
    "dynamic_context_at": ("front", "tail"),
    "tool_results": (None, "json"),
}
_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "window": (Turns | None, "Turns(count)"),
    "dynamic_context": (dict | None, "a dict"),
    "provider": (str | None, "the name of a provider"),
    "account": (str, "text"),
    "media_url": (str | None, "a URL with {hash}"),
    "now": (int | None, "a whole number of seconds since 1970"),
    "context_cache": (ContextCache | None, "a ContextCache"),
}
AS_IT_IS: Final = RenderOptions()
# option -> its default; strictness did not shape the request
_DEFAULTS: Final = {one.name: one.default for one in fields(RenderOptions) if one.name != "strict"}


@dataclass(frozen=True, slots=True)
class _Report:
    code: str
    position: int | None
    path: str
    detail: str


@dataclass(frozen=True, slots=True)
class Loss(_Report):
    """Something that the payload does not express.

    `code` is a short, stable identifier; `position` is the item's position (None for settings and tools); `path` is the
    place in the item, or the name of the setting; `detail` is a sentence for people.
    """


@dataclass(frozen=True, slots=True)
class Repair(_Report):
    """Something that was repaired so that the provider accepts the request; same fields as `Loss`."""


@dataclass(frozen=True, slots=True)
class ContinuedRequest:
    """A request whose last key has a list of turns, of which the first are JSON text, with commas between them."""

    head: JsonObject
    key: str
    before: bytes
    turns: list[Any]

    def text(self, changes: JsonObject, write: Callable[[Any], bytes]) -> bytes:
        """The request as JSON, with other keys laid over its own."""
        head = write({**self.head, **changes, self.key: []})
        return b"".join((head[:-2], self.before, b",", write(self.turns)[1:], b"}"))


@dataclass
class Rendered:
    """A rendered request.

    Attributes:
        losses: what the format cannot express.
        repairs: what was repaired so that the provider accepts the request.
        stable: the number of leading elements of the turn list that later appends on this branch do not change.
        head: the position of the last rendered item; -1 if there is none.
        view: the options that shaped it, to be recorded with the response.
        configured: identifies the stored session options and tools it was rendered with; None for detached sessions.
        conversation_id: the conversation it was rendered from; None for detached sessions.
        model: the model it is for, also where the URL names it.
        stream_options: what it has beside `stream` where a stream is asked for, be it by `arguments` alone.
    """

    losses: list[Loss]
    repairs: list[Repair]
    stable: int
    head: int
    view: JsonObject
    source: JsonObject | bytes | ContinuedRequest = field(repr=False)
    configured: tuple[bytes, bytes | None] | None = field(default=None, repr=False, compare=False)
    conversation_id: str | None = field(default=None, repr=False, compare=False)
    model: str | None = field(default=None, repr=False, compare=False)
    stream_options: JsonObject = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def payload(self) -> dict[str, Any]:
        """The request as a dict; `arguments` makes arguments for an SDK's method of it."""
        return self.source if isinstance(self.source, dict) else self._parsed(self.body)

    @cached_property
    def body(self) -> bytes:
        """The request as JSON (UTF-8)."""
        return self.source if isinstance(self.source, bytes) else self.changed({})

    def value(self, key: str) -> Any:
        """Return what the request has at a key other than that of its turns; None where it has nothing."""
        return (self.source.head if isinstance(self.source, ContinuedRequest) else self.payload).get(key)

    def changed(self, changes: JsonObject) -> bytes:
        """Return the request as JSON, with other keys laid over its own."""
        if isinstance(self.source, ContinuedRequest):
            return self.source.text(changes, self._written)
        return self._written({**self.payload, **changes})

    # No alias for the type: mypy would take the first overload of an SDK's method for it.
    def arguments(self, method: Callable[..., Any], *, stream: bool | None = None) -> dict[str, Any]:
        """Return the keyword arguments with which a method of a provider's SDK sends the request.

        >>> client.messages.create(**rendered.arguments(client.messages.create))  # doctest: +SKIP

        Keys that the method has no parameter for are in `extra_body`. Methods that count tokens, or compact, get what
        they take. boto3 gets bytes for base64, and google-genai a `config`.

        Args:
            method: the method that will be called, of a sync or async client: of `openai` and `anthropic` (also of
                `beta` and `with_raw_response`), `google-genai`, `boto3`, or another SDK with the same parameters.
            stream: ask for a stream, with the option `stream_options`, or for none; None leaves it to the request.

        Raises:
            InvalidOption: the method does not send requests of this format, or cannot do what `stream` says.
            CannotRender: the method has no place for a key of the request.
        """
        return formats.get_format(self.view["format"]).arguments(self, method, stream)

    def _written(self, value: Any) -> bytes:
        """The text of a request, or of a part of it."""
        return dumps(value, REQUEST_DEPTH)

    def _parsed(self, text: bytes) -> JsonObject:
        """The value of a request's text."""
        parsed: JsonObject = loads_stored(text, "items", "a position that transcript() names")
        return parsed

    def strictly(self, format_name: str) -> Rendered:
        """Return this request; raise LossError if something was lost or had to be repaired."""
        refused = [repair for repair in self.repairs if repair.code in STRICT_REPAIRS]
        if not self.losses and not refused:
            return self
        is_invalid = any(report.code in INVALID_ITEMS for report in [*self.losses, *refused])
        raise (ItemRefused if is_invalid else LossError)(format_name, self.losses, refused)


# Repairs of things that the reference systems reject; with strict=True, threadkeep also does.
STRICT_REPAIRS: Final = frozenset({"malformed_arguments", "leading_assistant", "last_turn", "turn_order"})
# Losses and repairs caused by an item that no provider would accept.
INVALID_ITEMS: Final = frozenset({"malformed_arguments", "image_source"})
