"""Sessions: a conversation as a value, without a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import TYPE_CHECKING, Any, Final, Self, Unpack

from threadkeep.domain import options as option_table
from threadkeep.domain.formats import get_format
from threadkeep.domain.items import UNSET, Message, are_items, call_output, item_from, items_from, message_of
from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import mismatch
from threadkeep.domain.options import OPTIONS, SERVER_STATE, OptionAttributes, SessionOptions
from threadkeep.domain.rendering import ImportInfo, Rendered, RenderOptions, ViewOptions
from threadkeep.domain.response import Response
from threadkeep.domain.tools import Tool, ToolList, tools_from
from threadkeep.errors import InvalidOption

if TYPE_CHECKING:
    from threadkeep.domain.content import Content
    from threadkeep.domain.formats import FormatName
    from threadkeep.domain.items import FunctionCallOutput, Input, Item, ItemInput, Output

# keys of a session's dict beside the options
_LISTS: Final = ("input", "tools", "response_boundary", "turns", "imported")
_RENDER_OPTIONS: Final = [option.name for option in fields(RenderOptions)]


class Session(OptionAttributes, ToolList):
    """A conversation as a value: options, tools and items.

    Options are attributes (``session.temperature = 0.2``), set at creation or by `update`.

    Args:
        input: content of a first user message, or a list of items.
        system: content of a system message that comes before everything else.
        tools: definitions of tools.
        options: `model`, `instructions`, `temperature` and the other session options.

    Attributes:
        response_boundary: how many of the items are kept by the provider, where it keeps the conversation.
        imported: the origin of a session that was read from a request; None for others.

    Raises:
        InvalidOption: an option is unknown, or its value cannot be used.
        InvalidItem: the content cannot be used.
    """

    __slots__ = ("_items", "_settings", "_turns", "imported", "response_boundary")

    def __init__(
        self,
        *,
        input: Input | None = None,
        system: Content | None = None,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
        **options: Unpack[SessionOptions],
    ) -> None:
        self._settings = option_table.settings_with({}, options)
        if self._settings.get("metadata") == {}:
            del self._settings["metadata"]
        self._tools = [tool.to_dict() for tool in tools_from(() if tools is None else tools)]
        self._items: list[Item] = []
        self._turns: list[int | None] = []
        self.response_boundary = 0
        self.imported: ImportInfo | None = None
        if system is not None:
            self.system(system)
        if isinstance(input, list | tuple) and are_items(input):
            self.add_items(items_from(input, "input"))
        elif input is not None:
            self._append([Message("user", input)], None)  # type: ignore[arg-type]  # the message checks it

    def __repr__(self) -> str:
        return f"<Session model={self.model!r} items={len(self._items)} tools={len(self._tools)}>"

    # Options

    @property
    def settings(self) -> JsonObject:
        """The options that are set, by name."""
        return dict(self._settings)

    def _assign_option(self, name: str, value: object) -> None:
        """Set an option that is assigned as an attribute: ``session.temperature = 0.2``."""
        self._settings = option_table.settings_with(self._settings, {name: value})

    def update(self, **options: Unpack[SessionOptions]) -> None:
        """Set options; None takes one out.

        Raises:
            InvalidOption: an option is unknown, or its value cannot be used; nothing was changed.
        """
        self._settings = option_table.settings_with(self._settings, options)

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
            InvalidOption: the schema is not a JSON object.
        """
        text = option_table.json_output_text(self.text, schema, name=name, strict=strict, description=description)
        self.update(text=text)

    def think(
        self, enabled: bool | None = None, *, effort: str | None = None, budget_tokens: int | None = None
    ) -> None:
        """Ask for reasoning of an effort or within a budget; ``think(False)`` leaves that to the model again.

        Raises:
            InvalidOption: neither or both are given, or one of them cannot be used.
        """
        self.update(reasoning=option_table.thinking(enabled, effort=effort, budget_tokens=budget_tokens))

    @property
    def local_state(self) -> bool:
        """Whether the conversation is not kept by a provider."""
        return not any(name in self._settings for name in SERVER_STATE)

    def clone_config(self) -> Session:
        """A new session with the same options and tools, without items."""
        session = Session(tools=self._tools)
        session._settings = {name: value for name, value in self._settings.items() if name not in SERVER_STATE}
        return session

    def clear(self) -> Self:
        """Remove items, instructions and references to a provider's state; other options and tools stay."""
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
        """For each item the number of the response or wire message that it came in; None for one added on its own."""
        return list(self._turns)

    def new_turn(self) -> int:
        """A number that no turn has yet."""
        return max((turn for turn in self._turns if turn is not None), default=-1) + 1

    def user(self, content: Content, author_id: str | None = None) -> Message:
        """Add a user message: text, a content part, a dict, or a list of them; returns it.

        Raises:
            InvalidItem: the content cannot be used.
        """
        return self._add_message("user", content, author_id)

    def assistant(self, content: Content, author_id: str | None = None) -> Message:
        """Add an assistant message; the rest is as `user`."""
        return self._add_message("assistant", content, author_id)

    def system(self, content: Content, author_id: str | None = None) -> Message:
        """Add a system message; the rest is as `user`."""
        return self._add_message("system", content, author_id)

    def developer(self, content: Content, author_id: str | None = None) -> Message:
        """Add a developer message; the rest is as `user`."""
        return self._add_message("developer", content, author_id)

    def _add_message(self, role: str, content: Content, author_id: str | None) -> Message:
        message = message_of(role, content, author_id)
        self._append([message], None)
        return message

    def add_item(self, item: ItemInput, *, turn: int | None = None) -> Item:
        """Add an item; returns it.

        Raises:
            InvalidItem: it is not an item.
        """
        result = item_from(item)
        self._append([result], turn)
        return result

    def add_items(self, items: Iterable[ItemInput], *, turn: int | None = None) -> list[Item]:
        """Add items, all or none; returns them.

        Raises:
            InvalidItem: one of them is not an item.
        """
        result = items_from(items)
        self._append(result, turn)
        return result

    def add_function_call_output(
        self, call_id: str, output: Output | None = UNSET, *, result: Output | None = UNSET, status: str | None = None
    ) -> FunctionCallOutput:
        """Add what a called function returned: text or a list of parts (`result` is another name of `output`).

        Raises:
            InvalidItem: there is no output, or it is neither text nor a list of parts.
        """
        item = call_output(call_id, output, result, status)
        self._append([item], None)
        return item

    def add_response(
        self, response: Response | Any, format: FormatName | None = None, *, headers: Mapping[str, str] | None = None
    ) -> Response:
        """Add the items of a response, or of a provider's body in that format; returns the response.

        Where the provider keeps the conversation, the next request continues from this response. An answer of another
        provider does not change that, because the first provider has not seen it.

        Raises:
            InvalidOption: it is not a Response, and there is no format to parse it.
            CannotParse: the body is not a response of that format.
        """
        if not isinstance(response, Response):
            if format is None:
                hint = "Pass format=, or parse the response first."
                raise mismatch(InvalidOption, "a Response", response, "response", hint)
            response = Response.parse(response, format, headers)
        self._append(response.output, self.new_turn())
        if self.local_state or response.format in (None, "open_responses"):
            if response.id is not None and self.previous_response_id is not None:
                self.previous_response_id = response.id
            self.response_boundary = len(self._items)
        return response

    def _append(self, items: Sequence[Item], turn: int | None) -> None:
        self._items.extend(items)
        self._turns.extend([turn] * len(items))

    # Requests

    def render(self, format: FormatName, **options: Unpack[ViewOptions]) -> Rendered:
        """The next request for a provider, with reports of what it could not say and what was repaired.

        Raises:
            UnknownFormat: there is no format of that name.
            CannotRender: the provider would not take any request that can be made; LossError with ``strict=True``.
            InvalidOption: there is no such option of rendering, or its value cannot be used.
        """
        for name in options:
            if name not in _RENDER_OPTIONS:
                raise option_table.unknown_option(name, _RENDER_OPTIONS)
        return get_format(format).render(self, RenderOptions(**options))

    def request_payload(self, format: FormatName, **options: Unpack[ViewOptions]) -> JsonObject:
        """The next request as a dict for the provider's SDK; options and errors as `render`."""
        return self.render(format, **options).payload

    def request_body(self, format: FormatName, **options: Unpack[ViewOptions]) -> bytes:
        """The next request as JSON; options and errors as `render`."""
        return self.render(format, **options).body

    # Dicts

    def to_dict(self) -> JsonObject:
        """The session as JSON, to be read by `from_dict`; what is unset or empty is left out."""
        result: JsonObject = option_table.settings_with({}, self._settings)
        if self._items:
            result["input"] = [item.to_dict() for item in self._items]
        if self._tools:
            result["tools"] = [tool.to_dict() for tool in self.tool_definitions]
        if self.response_boundary:
            result["response_boundary"] = self.response_boundary
        if self._turns_matter():
            result["turns"] = self.turns
        if self.imported is not None:
            result["imported"] = self.imported.to_dict()
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """The session of a dict: options by name, items under `input` (or text), tools under `tools`.

        Raises:
            InvalidOption: there is a key that sessions do not have, or an option that cannot be used.
            InvalidItem: an item cannot be used; the message names its path.
        """
        if not isinstance(data, Mapping):
            raise mismatch(InvalidOption, "the dict of a session", data, "data")
        for name in data:
            if name not in OPTIONS and name not in _LISTS:
                raise option_table.unknown_option(name, [*OPTIONS, *_LISTS])
        session = cls(tools=data.get("tools"))
        session._settings = option_table.settings_with({}, {name: data[name] for name in OPTIONS if name in data})
        content = data.get("input")
        if isinstance(content, str):
            session.user(content)
        elif content is not None:
            session.add_items(items_from(content, "input"))
        session.response_boundary = _boundary(data.get("response_boundary"), len(session.items))
        session._turns = _turns(data.get("turns"), len(session.items))
        session.imported = None if data.get("imported") is None else ImportInfo.from_dict(data["imported"])
        return session

    def _turns_matter(self) -> bool:
        """Whether neighbours on one side of the conversation came in different turns; else the items are enough."""
        sides = [(_is_of_model(item), turn) for item, turn in zip(self._items, self._turns, strict=True)]
        return any(one[0] == other[0] and one[1] != other[1] for one, other in pairwise(sides))


def _is_of_model(item: Item) -> bool:
    return item.role == "assistant" if isinstance(item, Message) else item.type != "function_call_output"


def _boundary(value: object, count: int) -> int:
    if value is None:
        return 0
    if type(value) is int and 0 <= value <= count:
        return value
    raise mismatch(InvalidOption, f"a number of items, 0 to {count}", value, "response_boundary")


def _turns(value: object, count: int) -> list[int | None]:
    if value is None:
        return [None] * count
    if isinstance(value, list | tuple) and len(value) == count and {type(turn) for turn in value} <= {int, type(None)}:
        return list(value)
    raise mismatch(InvalidOption, f"a list of {count} numbers or None", value, "turns")
