"""Sessions: conversations as values, without a database."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import pairwise
from typing import Any, Final, Self, Unpack

from threadkeep.domain import items as item_objects
from threadkeep.domain import options as option_table
from threadkeep.domain import written
from threadkeep.domain.content import Content
from threadkeep.domain.formats import STATEFUL, FormatName, get_format
from threadkeep.domain.items import FunctionCallOutput, Item, ItemInput, Message, Output
from threadkeep.domain.jsontext import UNSET, JsonObject, mismatch
from threadkeep.domain.options import OPTIONS, SERVER_STATE, OptionAttributes, SessionOptions
from threadkeep.domain.rendering import ImportInfo, Rendered, RenderOptions, ViewOptions
from threadkeep.domain.response import Maker, Response, asked_of, maker_from
from threadkeep.domain.tools import Tool, ToolList, tools_from
from threadkeep.errors import InvalidOption

# keys of a session's dict next to the options
_LISTS: Final = ("input", "tools")  # in dicts, beside options: what they are written with …
_BESIDE: Final = ("response_boundary", "turns", "makers", "gaps", "imported")  # … and what else `to_dict` keeps
_RENDER_OPTIONS: Final = [option.name for option in fields(RenderOptions)]


class Session(OptionAttributes, ToolList):
    """A conversation as a value: options, tools and items.

    Options are attributes (``session.temperature = 0.2``); set them on creation, by assignment, or with `update`.

    Args:
        input: the content of a first user message, or a list of items.
        system: the content of a system message at the very beginning.
        tools: tool definitions.
        known: False takes the items of `input` as a provider or another library has them, also of unknown types.
        options: `model`, `instructions`, `temperature` and the other session options.

    Attributes:
        response_boundary: the number of items stored by the provider, if it stores the conversation.
        imported: the origin of a session parsed from a request; otherwise None.

    Raises:
        InvalidOption: an option is unknown, or its value cannot be used.
        InvalidItem: the content cannot be used.
    """

    __slots__ = ("_gaps", "_items", "_makers", "_settings", "_turns", "imported", "response_boundary")

    def __init__(
        self,
        *,
        input: item_objects.Input | None = None,
        system: Content | None = None,
        tools: Iterable[Tool | Mapping[str, Any]] | None = None,
        known: bool = True,
        **options: Unpack[SessionOptions],
    ) -> None:
        self._settings = option_table.settings_with({}, options, (*_LISTS, "system"))
        if self._settings.get("metadata") == {}:
            del self._settings["metadata"]
        self._tools = [] if tools in (None, [], ()) else [tool.to_dict() for tool in tools_from(tools)]
        self._items: list[Item] = []
        self._turns: list[int | None] = []
        self._makers: list[str | None] = []  # of each item, see `Maker`
        self._gaps: frozenset[int] = frozenset()
        self.response_boundary = 0
        self.imported: ImportInfo | None = None
        if system is not None:
            self.system(system)
        if isinstance(input, list | tuple) and item_objects.are_items(input):
            self._append(written.given_items(input, "input", known=known), None)
        elif input is not None:
            self._append([written.message_of("user", input)], None)  # type: ignore[arg-type]  # the message checks it

    def __repr__(self) -> str:
        return f"<Session model={self.model!r} items={len(self._items)} tools={len(self._tools)}>"

    # Options

    @property
    def settings(self) -> JsonObject:
        """The options that are set, by name."""
        return dict(self._settings)

    def _assign_option(self, name: str, value: object) -> None:
        """Set an option assigned as an attribute: ``session.temperature = 0.2``."""
        self._settings = option_table.settings_with(self._settings, {name: value})

    def update(self, **options: Unpack[SessionOptions]) -> None:
        """Set options; None removes an option.

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
        """Ask for responses in JSON that match this schema.

        Raises:
            InvalidOption: the schema is not a JSON object.
        """
        text = option_table.json_output_text(self.text, schema, name=name, strict=strict, description=description)
        self.update(text=text)

    def think(
        self, enabled: bool | None = None, *, effort: str | None = None, budget_tokens: int | None = None
    ) -> None:
        """Ask for reasoning with an effort or a token budget; ``think(False)`` leaves it to the model again.

        Raises:
            InvalidOption: neither or both are given, or one of them cannot be used.
        """
        self.update(reasoning=option_table.thinking(enabled, effort=effort, budget_tokens=budget_tokens))

    @property
    def local_state(self) -> bool:
        """Whether the conversation is stored only here, and not by a provider."""
        return not any(name in self._settings for name in SERVER_STATE)

    def clone_config(self) -> Session:
        """Return a new session with the same options and tools, without items."""
        session = Session(tools=self._tools)
        session._settings = {name: value for name, value in self._settings.items() if name not in SERVER_STATE}
        return session

    def clear(self) -> Self:
        """Remove items, instructions and references to a provider's state; return the session.

        Other options and tools are kept.
        """
        self._items.clear()
        self._turns.clear()
        self._makers.clear()
        self._gaps = frozenset()
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
        """For each item, the number of the response or wire message it came in; None if it was added on its own."""
        return list(self._turns)

    @property
    def makers(self) -> list[str | None]:
        """For each item, who gave it, as PROVIDER/MODEL/ACCOUNT/MODEL; None if that is not known, or it is no answer.

        What only its maker can read, such as a signature, is sent to that maker alone.
        """
        return list(self._makers)

    @property
    def gaps(self) -> frozenset[int]:
        """The indexes of items before which something of their answer was removed from the stored conversation.

        What followed reasoning that is gone is sent without its id, which the provider would refuse.
        """
        return self._gaps

    @gaps.setter
    def gaps(self, indexes: Iterable[int]) -> None:
        self._gaps = frozenset(indexes)

    def attribute(self, maker: Maker) -> None:
        """Say who gave the items of the model."""
        text = maker.text
        self._makers = [text if _is_of_model(item) else None for item in self._items]

    def new_turn(self) -> int:
        """Return an unused turn number."""
        return max((turn for turn in self._turns if turn is not None), default=-1) + 1

    def user(self, content: Content, author_id: str | None = None) -> Message:
        """Add a user message: text, a content part, a dict, or a list of these; return it.

        Raises:
            InvalidItem: the content cannot be used.
        """
        return self._add_message("user", content, author_id)

    def assistant(self, content: Content, author_id: str | None = None) -> Message:
        """Add an assistant message and return it. Errors as for `user`."""
        return self._add_message("assistant", content, author_id)

    def system(self, content: Content, author_id: str | None = None) -> Message:
        """Add a system message and return it. Errors as for `user`."""
        return self._add_message("system", content, author_id)

    def developer(self, content: Content, author_id: str | None = None) -> Message:
        """Add a developer message and return it. Errors as for `user`."""
        return self._add_message("developer", content, author_id)

    def _add_message(self, role: str, content: Content, author_id: str | None) -> Message:
        message = written.message_of(role, content, author_id)
        self._append([message], None)
        return message

    def add_item(
        self, item: ItemInput, *, turn: int | None = None, maker: str | None = None, known: bool = True
    ) -> Item:
        """Add an item and return it; `maker` as in `makers`. With ``known=False``, it is taken as a provider has it.

        Raises:
            InvalidItem: it is not an item, or one that no provider could use, such as one of an unknown type.
        """
        result = written.given_item(item, known=known)
        self._append([result], turn, maker)
        return result

    def add_items(self, items: Iterable[ItemInput], *, turn: int | None = None, known: bool = True) -> list[Item]:
        """Add items, all or none, and return them. `known` and errors as for `add_item`."""
        result = written.given_items(items, known=known)
        self._append(result, turn)
        return result

    def add_function_call_output(
        self, call_id: str, output: Output | None = UNSET, *, result: Output | None = UNSET, status: str | None = None
    ) -> FunctionCallOutput:
        """Add the result of a function call: text or a list of parts (`result` is an alias of `output`); return it.

        Raises:
            InvalidItem: the output is missing, or neither text nor a list of parts.
        """
        item = written.call_output(call_id, output, result, status)
        self._append([item], None)
        return item

    def add_response(
        self,
        response: Response | Any,
        format: FormatName | None = None,
        *,
        headers: Mapping[str, str] | None = None,
        provider: str | None = None,
        account: str | None = None,
    ) -> Response:
        """Add the items of a response, or of a provider's body in that format; return the response.

        If the provider stores the conversation, the next request continues from this response. A response from another
        provider does not change that, because the first provider has not seen it.

        `provider` and `account` say who gave it: what only they can read goes back to them alone.

        Raises:
            InvalidOption: it is not a Response, and no format is given to parse it.
            CannotParse: the body is not a response in that format.
        """
        if not isinstance(response, Response):
            if format is None:
                hint = "Pass format=, or parse the response first."
                raise mismatch(InvalidOption, "a Response", response, "response", hint)
            response = Response.parse(response, format, headers)
        asked = asked_of(self._settings, None, provider, account)
        self._append(response.output, self.new_turn(), asked.answering(response.model).text)
        if self.local_state or response.format in (None, *STATEFUL):
            if response.id is not None and self.previous_response_id is not None:
                self.previous_response_id = response.id
            self.response_boundary = len(self._items)
        return response

    def _append(self, items: Sequence[Item], turn: int | None, maker: str | None = None) -> None:
        self._items.extend(items)
        self._makers.extend([maker] * len(items))
        self._turns.extend([turn] * len(items))

    # Requests

    def render(self, format: FormatName, **options: Unpack[ViewOptions]) -> Rendered:
        """Render the next request for a provider, with its losses and repairs.

        Raises:
            UnknownFormat: there is no format with that name.
            CannotRender: the provider would reject any possible request; with ``strict=True``, LossError if it is not
                exact.
            InvalidOption: an option is unknown, or its value cannot be used.
        """
        for name in options:
            if name not in _RENDER_OPTIONS:
                raise option_table.unknown_option(name, _RENDER_OPTIONS)
        wire, view = get_format(format), RenderOptions(**options)
        view.check_end(len(self._items) - 1)
        return wire.render(self, view)

    def request_payload(self, format: FormatName, **options: Unpack[ViewOptions]) -> JsonObject:
        """Return the next request as a dict. Options and errors as for `render`."""
        return self.render(format, **options).payload

    def request_body(self, format: FormatName, **options: Unpack[ViewOptions]) -> bytes:
        """Return the next request as JSON. Options and errors as for `render`."""
        return self.render(format, **options).body

    # Dicts

    def to_dict(self) -> JsonObject:
        """Return the session as a JSON object that `from_dict` can read; unset and empty values are omitted."""
        result: JsonObject = option_table.settings_with({}, self._settings, is_imported=True)
        if self._items:
            result["input"] = [item.to_dict() for item in self._items]
        if self._tools:
            result["tools"] = [tool.to_dict() for tool in self.tool_definitions]
        if self.response_boundary:
            result["response_boundary"] = self.response_boundary
        if self._turns_matter():
            result["turns"] = self.turns
        if any(self._makers):
            result["makers"] = self.makers
        if self._gaps:
            result["gaps"] = sorted(self._gaps)
        if self.imported is not None:
            result["imported"] = self.imported.to_dict()
        return result

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Self:
        """Return the session of a dict: options by name, items (or text) under `input`, tools under `tools`.

        Raises:
            InvalidOption: a key is unknown, or an option cannot be used.
            InvalidItem: an item cannot be used; the message contains its path.
        """
        if not isinstance(data, Mapping):
            raise mismatch(InvalidOption, "the dict of a session", data, "data")
        for name in data:
            if name not in OPTIONS and name not in (*_LISTS, *_BESIDE):
                raise option_table.unknown_option(name, [*OPTIONS, *_LISTS])
        session = cls(tools=data.get("tools"))
        given = {name: data[name] for name in OPTIONS if name in data}
        session._settings = option_table.settings_with({}, given, is_imported=True)
        content = data.get("input")
        if isinstance(content, str):
            session.user(content)
        elif content is not None:
            session.add_items(item_objects.items_from(content, "input"), known=False)
        session.response_boundary = _boundary(data.get("response_boundary"), len(session.items))
        session._turns = _one_each(data, "turns", len(session.items), int, "numbers")
        session._makers = _one_each(data, "makers", len(session.items), str, "texts")
        for maker in filter(None, session._makers):
            maker_from(maker)
        session._gaps = _gaps(data.get("gaps"), len(session.items))
        session.imported = None if data.get("imported") is None else ImportInfo.from_dict(data["imported"])
        return session

    def _turns_matter(self) -> bool:
        """Return whether adjacent items from the same side belong to different turns; if not, the items are enough.

        Turns also tell what followed something that was removed, or reasoning that was redacted.
        """
        pairs = list(zip(self._items, self._turns, strict=True))
        answered = [item for item, turn in pairs if turn is not None and item.type == "reasoning"]
        if self._gaps or any("origin" not in item.to_object() for item in answered):
            return True
        sides = [(_is_of_model(item), turn) for item, turn in pairs]
        return any(one[0] == other[0] and one[1] != other[1] for one, other in pairwise(sides))


def _is_of_model(item: Item) -> bool:
    return item.role == "assistant" if isinstance(item, Message) else not item.type.endswith("_output")


def _boundary(value: object, count: int) -> int:
    if value is None:
        return 0
    if type(value) is int and 0 <= value <= count:
        return value
    raise mismatch(InvalidOption, f"a number of items, 0 to {count}", value, "response_boundary")


def _gaps(value: object, count: int) -> frozenset[int]:
    if value is None:
        return frozenset()
    if isinstance(value, list | tuple) and all(type(index) is int and 0 <= index < count for index in value):
        return frozenset(value)
    raise mismatch(InvalidOption, f"a list of indexes of items, 0 to {count - 1}", value, "gaps")


def _one_each(data: Mapping[str, Any], key: str, count: int, kind: type, words: str) -> list[Any]:
    """What a key has of each item: a value of a type, or None."""
    value = data.get(key)
    if value is None:
        return [None] * count
    if isinstance(value, list | tuple) and len(value) == count and {type(one) for one in value} <= {kind, type(None)}:
        return list(value)
    raise mismatch(InvalidOption, f"a list of {count} {words} or None", value, key)
