"""What rendering takes and gives: its options, and a rendered request with what it could not say."""

from __future__ import annotations

from dataclasses import astuple, dataclass, field, fields
from functools import cached_property
from typing import Any, Final, Literal, TypedDict

from threadkeep.domain.context_caches import ContextCache
from threadkeep.domain.jsontext import REQUEST_DEPTH, JsonObject, dumps, loads_stored
from threadkeep.domain.objects import mismatch
from threadkeep.domain.options import dialect_name
from threadkeep.errors import InvalidOption, ItemRefused, LossError


@dataclass(frozen=True, slots=True)
class ImportInfo:
    """Where a conversation came from that began as somebody's request."""

    format: str
    count: int  # items that it had; what was unpaired among them stays so in requests of that format
    spelling: JsonObject = field(default_factory=dict)  # how it spelled things; only the format itself reads it

    def to_dict(self) -> JsonObject:
        """The JSON to keep, to be read by `from_dict`."""
        data: JsonObject = {"format": self.format, "count": self.count}
        return data | ({"spelling": self.spelling} if self.spelling else {})

    @classmethod
    def from_dict(cls, data: object) -> ImportInfo:
        """What `to_dict` wrote."""
        match data:
            case {"format": str(name), "count": int(count), **others} if count >= 0:
                spelling = others.pop("spelling", {})
                if not others and isinstance(spelling, dict):
                    return cls(name, count, spelling)
        raise mismatch(InvalidOption, "an object with `format`, `count` and `spelling`", data, "imported")


@dataclass(frozen=True, slots=True)
class Turns:
    """A window over a conversation: the last `count` turns and at most ``step - 1`` before them.

    A turn begins with what the user says. The window moves once in `step` turns, so that the beginning of the request
    stays the same in between and providers find it in their caches.

    Raises:
        InvalidOption: one of them is not a positive whole number.
    """

    count: int
    step: int = 1

    def __post_init__(self) -> None:
        for name in ("count", "step"):
            value = getattr(self, name)
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise mismatch(InvalidOption, "a whole number from 1 on", value, name)


class ViewOptions(TypedDict, total=False):
    """What of a conversation a request shows, and how.

    Attributes:
        strict: raise LossError instead of reporting losses.
        upto: show the items up to and including this position; where the request of that time was recorded
            (`rendered=` of `add_response`), exactly as it was sent.
        server_state: "none" sends the whole history, even where the provider keeps it.
        vision: False puts a note in the place of each picture.
        reasoning: False leaves out the reasoning of earlier answers.
        cache: "auto" marks tools, system text and the end of the history for the provider's prompt cache. For Gemini
            it names the longest explicit cache that holds the beginning of the request (`plan_context_cache`).
        window: `Turns(20, step=10)` shows the last 20 to 29 turns, and moves once in ten.
        dynamic_context: what is true now, as JSON before the history. It is recorded with the request, and never part
            of the history.
        dynamic_context_at: "tail" puts it right before what the model is to answer.
        dialect: the vendor that the request goes to, where it speaks a format in its own way.
        account: the account at the provider, where caches were made for several.
    """

    strict: bool
    upto: int | None
    server_state: Literal["auto", "none"]
    vision: bool
    reasoning: bool
    cache: Literal["auto"] | None
    window: Turns | None
    dynamic_context: JsonObject | None
    dynamic_context_at: Literal["front", "tail"]
    dialect: str | None
    account: str


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """How a request is rendered: the options of `ViewOptions`, checked, and the cache that it names."""

    strict: bool = False
    upto: int | None = None
    server_state: Literal["auto", "none"] = "auto"
    vision: bool = True
    reasoning: bool = True
    cache: Literal["auto"] | None = None
    window: Turns | None = None
    dynamic_context: JsonObject | None = None
    dynamic_context_at: Literal["front", "tail"] = "front"
    dialect: str | None = None
    account: str = ""
    context_cache: ContextCache | None = None

    def __post_init__(self) -> None:
        is_number = isinstance(self.upto, int) and not isinstance(self.upto, bool)
        if self.upto is not None and not (is_number and self.upto >= -1):
            raise mismatch(InvalidOption, "a position, or -1 for none", self.upto, "upto")
        for name, values in _CHOICES.items():
            value = getattr(self, name)
            if value not in values or type(value) not in map(type, values):  # 1 is not True
                raise mismatch(InvalidOption, " or ".join(map(repr, values)), value, name)
        for name, (kind, words) in _TYPES.items():
            if not isinstance(value := getattr(self, name), kind):
                raise mismatch(InvalidOption, words, value, name)
        if self.dialect is not None:
            dialect_name("dialect", self.dialect)

    @property
    def shows_all(self) -> bool:
        """Whether every item is shown as it is stored."""
        return self.vision and self.reasoning and self.window is None and self.dynamic_context is None

    def view(self, format_name: str) -> JsonObject:
        """The options that shaped a request, to be recorded with its response; `recorded` reads them."""
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
        """The options that a recorded view was rendered with; InvalidOption where only later releases have them."""
        options = {name: value for name, value in view.items() if name in _DEFAULTS}
        unknown = view.keys() - options.keys() - {"format"}
        if unknown:
            problem = f"The view was recorded with the option {min(unknown)!r}, which only later releases have."
            raise InvalidOption(problem)
        for name, kind in (("window", Turns), ("context_cache", ContextCache)):
            if options.get(name) is not None:
                options[name] = kind(*options[name])
        return cls(**options)


_CHOICES: Final[dict[str, tuple[object, ...]]] = {
    "strict": (False, True),
    "server_state": ("auto", "none"),
    "vision": (True, False),
    "reasoning": (True, False),
    "cache": (None, "auto"),
    "dynamic_context_at": ("front", "tail"),
}
_TYPES: Final[dict[str, tuple[Any, str]]] = {
    "window": (Turns | None, "Turns(count)"),
    "dynamic_context": (dict | None, "a dict"),
    "account": (str, "text"),
    "context_cache": (ContextCache | None, "a ContextCache"),
}
AS_IT_IS: Final = RenderOptions()
# option -> its default; how strictly a request was judged, and whose caches it might have used, did not shape it
_DEFAULTS: Final = {one.name: one.default for one in fields(RenderOptions) if one.name not in {"strict", "account"}}


@dataclass(frozen=True, slots=True)
class _Report:
    code: str
    position: int | None
    path: str
    detail: str


@dataclass(frozen=True, slots=True)
class Loss(_Report):
    """Something that the payload does not say.

    `code` is a short stable word, `position` the item's position (None for settings and tools), `path` the place in
    the item or the setting's name, `detail` a sentence for people.
    """


@dataclass(frozen=True, slots=True)
class Repair(_Report):
    """Something that was repaired so that the provider takes the request; fields as in `Loss`."""


@dataclass
class Rendered:
    """A rendered request.

    Attributes:
        losses: what the format cannot say.
        repairs: what was repaired so that the provider takes it.
        stable: how many leading elements of the turn list no later append on this branch changes.
        head: position of the last item that was rendered; -1 when there was none.
        view: the options that shaped it, to be recorded with the response.
        configured: what names the stored session options and tools that it was rendered with; None for detached ones.
        conversation_id: the conversation that it was rendered from; None for detached ones.
    """

    losses: list[Loss]
    repairs: list[Repair]
    stable: int
    head: int
    view: JsonObject
    source: JsonObject | bytes = field(repr=False)
    configured: tuple[bytes, bytes | None] | None = field(default=None, repr=False, compare=False)
    conversation_id: str | None = field(default=None, repr=False, compare=False)

    @cached_property
    def payload(self) -> JsonObject:
        """The request as a dict, for the provider's SDK."""
        if isinstance(self.source, bytes):
            payload: JsonObject = loads_stored(self.source, "items", "a position that transcript() names")
            return payload
        return self.source

    @cached_property
    def body(self) -> bytes:
        """The request as JSON, UTF-8."""
        return self.source if isinstance(self.source, bytes) else dumps(self.source, REQUEST_DEPTH)

    def strictly(self, format_name: str) -> Rendered:
        """This request; LossError where something was lost or had to be repaired."""
        refused = [repair for repair in self.repairs if repair.code in STRICT_REPAIRS]
        if not self.losses and not refused:
            return self
        is_invalid = any(report.code in INVALID_ITEMS for report in [*self.losses, *refused])
        raise (ItemRefused if is_invalid else LossError)(format_name, self.losses, refused)


# Repairs of things that the reference systems refuse; with strict=True so does threadkeep.
STRICT_REPAIRS: Final = frozenset({"malformed_arguments", "leading_assistant"})
# Losses and repairs that come from an item no provider would take.
INVALID_ITEMS: Final = frozenset({"malformed_arguments", "image_source"})
