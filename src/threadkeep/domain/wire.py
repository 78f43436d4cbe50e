"""What a wire format is, and what rendering takes and gives.

The formats themselves live in `threadkeep.formats`, which registers them here: sessions and responses can name a
format without this layer knowing any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import astuple, dataclass, field, fields
from functools import cached_property
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol

from threadkeep.domain.context_caches import ContextCache, Prefixes
from threadkeep.domain.jsontext import JsonObject, decode, dumps, loads
from threadkeep.domain.objects import shown
from threadkeep.domain.options import dialect_name
from threadkeep.domain.overlay import overlaid
from threadkeep.errors import InvalidOption, ItemRefused, LossError, UnknownFormat

if TYPE_CHECKING:
    from threadkeep.domain.items import Item
    from threadkeep.domain.response import Response
    from threadkeep.domain.session import Session


class Entry(NamedTuple):
    """One stored item as the formats read it: a few columns and the item's JSON text, not parsed until needed.

    `payload` is the item exactly as Open Responses sends it (None where that format does not send it); `rest` is the
    overlay with everything else that is known of the item.
    """

    position: int
    type: str
    role: str | None = None
    turn: int | None = None  # items of one wire message or response share it; None: built by the user
    seen: int | None = None  # on items of a response: the last position that its request showed
    call_id: str | None = None
    origin: str | None = None  # the format it came in; None: built by the user
    payload: bytes | None = None
    rest: bytes | None = None
    codec: int = 0

    def item(self) -> JsonObject:
        """The item as a JSON object: wire names of Open Responses, user extras inline, `native` and `origin`."""
        base = None if self.payload is None else decode(self.payload, self.codec)
        found: Any = base if self.rest is None else overlaid(base, decode(self.rest, self.codec))
        if self.origin is not None and self.rest is None:
            found["origin"] = self.origin
        item: JsonObject = found
        return item


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the provider holds of a conversation: its newest answer, and where on our side that answer ends."""

    previous_response_id: str | None
    boundary: int  # position of the last item that the provider has; -1 when it has none


class Call(NamedTuple):
    """A call of the history that has no output yet."""

    call_id: str
    name: str


@dataclass(frozen=True, slots=True)
class Imported:
    """Where a conversation came from that began as somebody's request.

    Attributes:
        format: the request's wire format.
        count: how many items it had. What was unpaired among them stays so in requests of that format.
        spelling: what the format noted of how the request spelled things; only the format itself reads it.
    """

    format: str
    count: int
    spelling: JsonObject = field(default_factory=dict)

    def to_dict(self) -> JsonObject:
        """The JSON to keep, to be read by `from_dict`."""
        found: JsonObject = {"format": self.format, "count": self.count}
        return found | ({"spelling": self.spelling} if self.spelling else {})

    @classmethod
    def from_dict(cls, data: object) -> Imported:
        """What `to_dict` wrote.

        Raises:
            InvalidOption: it is something else.
        """
        match data:
            case {"format": str(name), "count": int(count), **others} if count >= 0:
                spelling = others.pop("spelling", {})
                if not others and isinstance(spelling, dict):
                    return cls(name, count, spelling)
        raise InvalidOption(f"imported is {shown(data)}. Give an object with `format`, `count` and `spelling`.")


@dataclass(slots=True)
class Snapshot:
    """All that a request is rendered from: options, tools and the items of one branch, in order."""

    settings: JsonObject  # session options by name; unset ones are absent
    tools: Sequence[JsonObject]
    entries: Sequence[Entry]
    state: ServerState | None = None
    imported: Imported | None = None
    memo: dict[str, Any] | None = field(default=None, compare=False)  # what formats remember of these very items
    shared: dict[str, Any] = field(default_factory=dict, compare=False)  # … and of these options and tools


@dataclass(frozen=True, slots=True)
class Turns:
    """A window over a conversation: the last `count` turns and at most ``step - 1`` before them.

    A turn begins with what the user says. The window moves once in `step` turns, so that the beginning of the request
    stays the same in between and providers find it in their caches.

    Raises:
        InvalidOption: one of them is no positive whole number.
    """

    count: int
    step: int = 1

    def __post_init__(self) -> None:
        given: dict[str, object] = {"count": self.count, "step": self.step}
        for name, value in given.items():
            if isinstance(value, bool) or not isinstance(value, int) or value < 1:
                raise InvalidOption(f"Turns takes whole numbers from 1 on; {name} is {shown(value)}.")


@dataclass(frozen=True, slots=True)
class RenderOptions:
    """How a request is rendered; see `Conversation.render`.

    Raises:
        InvalidOption: an option has a value that it does not take.
    """

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
            raise InvalidOption(f"upto is a position, or -1 for none, not {shown(self.upto)}.")
        for name, values in _CHOICES.items():
            value = getattr(self, name)
            if value not in values or type(value) not in map(type, values):  # 1 is no True
                choices = " or ".join(map(repr, values))
                raise InvalidOption(f"{name} is {choices}, not {shown(value)}.")
        if not isinstance(self.window, Turns | None):
            raise InvalidOption(f"window is Turns(count), not {shown(self.window)}.")
        if not isinstance(self.dynamic_context, dict | None):
            raise InvalidOption(f"dynamic_context is a dict, not {shown(self.dynamic_context)}.")
        if self.dialect is not None:
            dialect_name("dialect", self.dialect)
        if not isinstance(self.account, str):
            raise InvalidOption(f"account is a text, not {shown(self.account)}.")
        if not isinstance(self.context_cache, ContextCache | None):
            raise InvalidOption(f"context_cache is a ContextCache, not {shown(self.context_cache)}.")

    @property
    def shows_all(self) -> bool:
        """Whether every item is shown as it is stored."""
        return self.vision and self.reasoning and self.window is None and self.dynamic_context is None

    def view(self, format_name: str) -> JsonObject:
        """The options that shaped a request, to be recorded with its response; `options_of` reads them."""
        found: JsonObject = {"format": format_name}
        if self is AS_IT_IS:
            return found
        for name, default in _DEFAULTS.items():
            value = getattr(self, name)
            if value != default:
                found[name] = list(astuple(value)) if isinstance(value, Turns | ContextCache) else value
        return found


_CHOICES: Final[dict[str, tuple[object, ...]]] = {
    "strict": (False, True),
    "server_state": ("auto", "none"),
    "vision": (True, False),
    "reasoning": (True, False),
    "cache": (None, "auto"),
    "dynamic_context_at": ("front", "tail"),
}
AS_IT_IS: Final = RenderOptions()
# option -> its default; how strictly a request was judged, and whose caches it might have used, did not shape it
_DEFAULTS: Final = {one.name: one.default for one in fields(RenderOptions) if one.name not in {"strict", "account"}}


def recorded_options(view: JsonObject) -> RenderOptions:
    """The options that a recorded view was rendered with.

    Raises:
        InvalidOption: a later release recorded it, with options that this one does not have.
    """
    found = {name: value for name, value in view.items() if name in _DEFAULTS}
    unknown = view.keys() - found.keys() - {"format"}
    if unknown:
        raise InvalidOption(f"The view was recorded with the option {min(unknown)!r}, which only later releases have.")
    if found.get("window") is not None:
        found["window"] = Turns(*found["window"])
    if found.get("context_cache") is not None:
        found["context_cache"] = ContextCache(*found["context_cache"])
    return RenderOptions(**found)


@dataclass(frozen=True, slots=True)
class Loss:
    """Something that the payload does not say.

    `code` is a short stable word, `position` the item's position (None for settings and tools), `path` the place in
    the item or the setting's name, `detail` a sentence for people.
    """

    code: str
    position: int | None
    path: str
    detail: str


@dataclass(frozen=True, slots=True)
class Repair:
    """Something that was mended so that the provider takes the request; fields as in `Loss`."""

    code: str
    position: int | None
    path: str
    detail: str


@dataclass
class Rendered:
    """A rendered request.

    Attributes:
        losses: what the format cannot say.
        repairs: what had to be mended.
        stable: how many leading elements of the turn list no later append on this branch changes.
        head: position of the last item that was rendered; -1 when there was none.
        view: the options that shaped it, to be recorded with the response.
        configured: what names the stored session options and tools that it was rendered with; None for detached ones.
    """

    losses: list[Loss]
    repairs: list[Repair]
    stable: int
    head: int
    view: JsonObject
    source: JsonObject | bytes = field(repr=False)
    configured: tuple[bytes, bytes | None] | None = field(default=None, repr=False, compare=False)

    @cached_property
    def payload(self) -> JsonObject:
        """The request as a dict, for the provider's SDK."""
        return loads(self.source) if isinstance(self.source, bytes) else self.source

    @property
    def body(self) -> bytes:
        """The request as JSON, UTF-8."""
        return self.source if isinstance(self.source, bytes) else self._written

    @cached_property
    def _written(self) -> bytes:
        return dumps(self.source)

    def strictly(self, format_name: str) -> Rendered:
        """This request if it is exact.

        Raises:
            LossError: something was lost or had to be mended.
        """
        refused = [repair for repair in self.repairs if repair.code in STRICT_REPAIRS]
        if not self.losses and not refused:
            return self
        is_invalid = any(code in INVALID_ITEMS for code in [*(r.code for r in self.losses), *(r.code for r in refused)])
        raise (ItemRefused if is_invalid else LossError)(format_name, self.losses, refused)


# Repairs of things that the reference systems refuse; with strict=True so does threadkeep.
STRICT_REPAIRS: Final = frozenset({"malformed_arguments", "leading_assistant"})
# Losses and repairs that come from an item no provider would take.
INVALID_ITEMS: Final = frozenset({"malformed_arguments", "image_source"})


class Assembler(Protocol):
    """Puts the events of a stream together."""

    @property
    def body(self) -> JsonObject:
        """The body that the provider would have sent without streaming, as far as it has come."""

    @property
    def partial(self) -> Response:
        """The response as far as it has come, of status in_progress."""

    @property
    def response(self) -> Response:
        """The whole response; one whose stream broke off is incomplete, one that ended in an error failed."""

    def feed(self, event: Any) -> None:
        """Take in the next event: a dict, JSON text, or an SDK's object."""


class Format(Protocol):
    """A wire format: pure functions between sessions and a provider's JSON."""

    @property
    def name(self) -> str:
        """The format's name."""

    def render(self, session: Session | Snapshot, options: RenderOptions = ...) -> Rendered:
        """Render a session as a request."""

    def prefixes(self, session: Session | Snapshot, options: RenderOptions = ...) -> Prefixes | None:
        """What of a request an explicit cache can hold; None where the provider or the request takes no such cache."""

    def parse_response(self, body: Any, headers: Mapping[str, str] | None = None) -> Response:
        """Read a provider's response body."""

    def parse_request(self, payload: Any, *, model: str | None = None, stream: bool | None = None) -> Session:
        """Read a provider request."""

    def parse_turns(self, turns: Any, calls: Sequence[Call] = ()) -> list[list[Item]]:
        """Read what stands in the turn list of a request; the items of each turn."""

    def assembler(self, headers: Mapping[str, str] | None = None) -> Assembler:
        """Something that puts the events of a stream together."""


FORMATS: Final[dict[str, Format]] = {}


def get_format(name: str) -> Format:
    """The wire format of that name.

    Raises:
        UnknownFormat: there is none.
    """
    if not FORMATS:
        import_module("threadkeep.formats")  # which registers them; this layer knows none
    try:
        return FORMATS[name]
    except (KeyError, TypeError):
        raise UnknownFormat(name, sorted(FORMATS)) from None
