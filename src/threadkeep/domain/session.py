"""Sessions: a conversation as a value, without a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from threadkeep.domain.items import (
    UNSET,
    FunctionCallOutput,
    Item,
    Message,
    are_items,
    call_output,
    item_from,
    items_from,
    message_of,
)
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import shown
from threadkeep.domain.option_types import Options
from threadkeep.domain.options import (
    OPTIONS,
    SERVER_STATE,
    OptionAttributes,
    json_output_text,
    settings_at_creation,
    settings_with,
    thinking,
    unknown_option,
)
from threadkeep.domain.response import Response
from threadkeep.domain.tools import Tool, tools_from
from threadkeep.domain.toolset import ToolList
from threadkeep.domain.wire import Imported, RenderOptions, get_format
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep.domain.content import Content
    from threadkeep.domain.wire import Rendered

OPEN_RESPONSES: Final = "open_responses"
# keys of a session's dict beside the options
_LISTS: Final = ("input", "tools", "response_boundary", "turns", "imported")
_RENDER_OPTIONS: Final = [option.name for option in fields(RenderOptions)]


class Session(OptionAttributes, ToolList):
    """A conversation as a value: options, tools and items.

    Options are attributes (``session.temperature = 0.2``), given at creation or by `update`.

    Args:
        input: content of a first user message, or a list of items.
        system: content of a system message that comes before everything else.
        tools: definitions of tools.
        options: `model`, `instructions`, `temperature` and the other session options, and `extra`.

    Attributes:
        response_boundary: how many of the items a provider has that keeps the conversation on its side.
        imported: where the session came from when it was read from a request; None for others.

    Raises:
        InvalidOption: an option is unknown, or its value cannot be used.
        InvalidItem: the content cannot be used.
    """

    __slots__ = ("_items", "_settings", "_turns", "imported", "response_boundary")

    def __init__(
        self,
        *,
        input: Content | Sequence[Item | Mapping[str, Any]] | None = None,
        system: Content | None = None,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
        **options: Unpack[Options],
    ) -> None:
        self._settings = settings_at_creation(options)
        self._tools = [tool.to_dict() for tool in tools_from(() if tools is None else tools)]
        self._items: list[Item] = []
        self._turns: list[int | None] = []
        self.response_boundary = 0
        self.imported: Imported | None = None
        if system is not None:
            self.system(system)
        if isinstance(input, list | tuple) and are_items(input):
            self.add_items(items_from(input, "input"))
        elif input is not None:
            self._append([message_of("user", input)], None)

    def __repr__(self) -> str:
        return f"<Session model={self.model!r} items={len(self._items)} tools={len(self._tools)}>"

    # Options

    @property
    def settings(self) -> JsonObject:
        """The options that are set, by name."""
        return dict(self._settings)

    def _assign_option(self, name: str, value: object) -> None:
        """Take an option that was assigned as an attribute: ``session.temperature = 0.2``."""
        self._settings = settings_with(self._settings, {name: value})

    def update(self, **options: Unpack[Options]) -> None:
        """Set options; None takes one out.

        Raises:
            InvalidOption: an option is unknown, or its value cannot be used; nothing was changed.
        """
        self._settings = settings_with(self._settings, options)

    def json_output(
        self,
        schema: Mapping[str, Any],
        name: str = "response",
        *,
        strict: bool | None = None,
        description: str | None = None,
    ) -> None:
        """Ask for JSON of this schema as the answer.

        Raises:
            InvalidOption: the schema is no JSON object.
        """
        self.update(text=json_output_text(self.text, schema, name=name, strict=strict, description=description))

    def think(
        self,
        enabled: bool | None = None,
        *,
        effort: str | None = None,
        budget_tokens: int | None = None,
    ) -> None:
        """Ask for reasoning, by an effort or a budget; ``think(False)`` takes the wish back.

        Raises:
            InvalidOption: neither or both are given, or one of them cannot be used.
        """
        self.update(reasoning=thinking(enabled, effort=effort, budget_tokens=budget_tokens))

    @property
    def local_state(self) -> bool:
        """Whether no provider keeps the conversation on its side."""
        return not any(name in self._settings for name in SERVER_STATE)

    def clone_config(self) -> Session:
        """A new session with the same options and tools, without items."""
        options = {name: value for name, value in self._settings.items() if name not in SERVER_STATE}
        made = Session(tools=self._tools)
        made.update(**options)
        return made

    def clear(self) -> Self:
        """Remove items, instructions and what points at a provider's state; other options and tools stay."""
        self._items.clear()
        self._turns.clear()
        self.response_boundary = 0
        self.imported = None
        self.update(instructions=None, **dict.fromkeys(SERVER_STATE))
        return self

    # Items

    @property
    def items(self) -> list[Item]:
        """The items, in order."""
        return list(self._items)

    @property
    def turns(self) -> list[int | None]:
        """For each item the number of the response or wire message it came in; None for those added on their own."""
        return list(self._turns)

    def new_turn(self) -> int:
        """A number that no turn has yet."""
        return max((turn for turn in self._turns if turn is not None), default=-1) + 1

    def user(self, content: Content, author_id: str | None = None) -> Message:
        """Add a user message; returns it.

        Raises:
            InvalidItem: the content is no text, part, dict or list of these.
        """
        return self._say("user", content, author_id)

    def assistant(self, content: Content, author_id: str | None = None) -> Message:
        """Add an assistant message, see `user`.

        Raises:
            InvalidItem: the content cannot be used.
        """
        return self._say("assistant", content, author_id)

    def system(self, content: Content, author_id: str | None = None) -> Message:
        """Add a system message, see `user`.

        Raises:
            InvalidItem: the content cannot be used.
        """
        return self._say("system", content, author_id)

    def developer(self, content: Content, author_id: str | None = None) -> Message:
        """Add a developer message, see `user`.

        Raises:
            InvalidItem: the content cannot be used.
        """
        return self._say("developer", content, author_id)

    def _say(self, role: str, content: Content, author_id: str | None) -> Message:
        message = message_of(role, content, author_id)
        self._append([message], None)
        return message

    def add_item(self, item: Item | Mapping[str, Any], *, turn: int | None = None) -> Item:
        """Add an item; returns it.

        Raises:
            InvalidItem: it is no item.
        """
        found = item_from(item)
        self._append([found], turn)
        return found

    def add_items(self, items: Iterable[Item | Mapping[str, Any]], *, turn: int | None = None) -> list[Item]:
        """Add items, all or none; returns them.

        Raises:
            InvalidItem: one of them is no item.
        """
        found = items_from(items)
        self._append(found, turn)
        return found

    def add_function_call_output(
        self, call_id: str, output: object = UNSET, *, result: object = UNSET, status: str | None = None
    ) -> FunctionCallOutput:
        """Add what a called function returned: text or a list of parts (`result` is another name of `output`).

        Raises:
            InvalidItem: there is no output, or it is neither text nor a list of parts.
        """
        item = call_output(call_id, output, result, status)
        self._append([item], None)
        return item

    def add_response(
        self,
        response: Response | Any,
        format: str | None = None,
        *,
        headers: Mapping[str, str] | None = None,
    ) -> Response:
        """Add the items of a response, or of a provider's body in that format; returns the response.

        A session whose state the provider keeps follows to the response's id. An answer of another provider does not
        move it, because the keeper of the state has not seen it.

        Raises:
            InvalidOption: it is no response, and no format is given to read it.
            CannotParse: the body is no response of that format.
        """
        if not isinstance(response, Response):
            if format is None:
                raise InvalidOption(f"{shown(response)} is no Response. Parse it, or say in which format it is.")
            response = Response.parse(response, format, headers)
        self._append(response.output, self.new_turn())
        if self.local_state or response.format in (None, OPEN_RESPONSES):
            if response.id is not None and self.previous_response_id is not None:
                self.previous_response_id = response.id
            self.response_boundary = len(self._items)
        return response

    def _append(self, items: Sequence[Item], turn: int | None) -> None:
        self._items.extend(items)
        self._turns.extend([turn] * len(items))

    # Requests

    def render(self, format: str, **options: Any) -> Rendered:
        """The next request for a provider, with all that it could not say and what had to be mended.

        Raises:
            UnknownFormat: there is no format of that name.
            CannotRender: no request that the provider would take can be made; LossError with ``strict=True``.
            InvalidOption: there is no such option of rendering, or it has another value.
        """
        for name in options:
            if name not in _RENDER_OPTIONS:
                raise unknown_option(name, _RENDER_OPTIONS)
        return get_format(format).render(self, RenderOptions(**options))

    def request_payload(self, format: str, **options: Any) -> JsonObject:
        """The next request as a dict for the provider's SDK, see `render`.

        Raises:
            CannotRender: as `render`.
        """
        return self.render(format, **options).payload

    def request_body(self, format: str, **options: Any) -> bytes:
        """The next request as JSON, see `render`.

        Raises:
            CannotRender: as `render`.
        """
        return self.render(format, **options).body

    # Dicts

    def to_dict(self) -> JsonObject:
        """The session as JSON, to be read by `from_dict`; what is unset or empty is left out."""
        found: JsonObject = settings_with({}, self._settings)
        if self._items:
            found["input"] = [item.to_dict() for item in self._items]
        if self._tools:
            found["tools"] = [tool.to_dict() for tool in self.tool_definitions]
        if self.response_boundary:
            found["response_boundary"] = self.response_boundary
        if self._turns_matter():
            found["turns"] = self.turns
        if self.imported is not None:
            found["imported"] = self.imported.to_dict()
        return found

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The session of a dict: options by name, items under `input` (or text), tools under `tools`.

        Raises:
            InvalidOption: there is a key that no session has, or an option that cannot be used.
            InvalidItem: an item cannot be used; the message names its place.
        """
        if not isinstance(data, Mapping):
            raise InvalidOption(f"{shown(data)} is no session. Give a dict.")
        for name in data:
            if name not in OPTIONS and name not in _LISTS:
                raise unknown_option(name, [*OPTIONS, *_LISTS])
        made = cls(tools=data.get("tools"))
        made.update(**{name: data[name] for name in OPTIONS if name in data})
        given = data.get("input")
        if isinstance(given, str):
            made.user(given)
        elif given is not None:
            made.add_items(items_from(given, "input"))
        made.response_boundary = _boundary(data.get("response_boundary"), len(made.items))
        made._turns = _turns(data.get("turns"), len(made.items))
        made.imported = None if data.get("imported") is None else Imported.from_dict(data["imported"])
        return made

    def _turns_matter(self) -> bool:
        """Whether neighbours on one side of the conversation came in different turns; else the items tell it all."""
        sides = [_is_of_model(item) for item in self._items]
        return any(
            self._turns[place] != self._turns[place + 1] and sides[place] == sides[place + 1]
            for place in range(len(sides) - 1)
        )


def _is_of_model(item: Item) -> bool:
    return item.role == "assistant" if isinstance(item, Message) else not isinstance(item, FunctionCallOutput)


def _boundary(value: object, count: int) -> int:
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= count:
        raise InvalidOption(
            f"response_boundary is {shown(value)}. Give how many of the {count} items the provider has."
        )
    return value


def _turns(value: object, count: int) -> list[int | None]:
    if value is None:
        return [None] * count
    if isinstance(value, list | tuple) and len(value) == count:
        turns = [turn for turn in value if turn is None or (isinstance(turn, int) and not isinstance(turn, bool))]
        if len(turns) == count:
            return turns
    raise InvalidOption(f"turns is {shown(value)}. Give a list with a number or None for each of the {count} items.")
