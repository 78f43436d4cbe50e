"""Items: the elements of a conversation.

Items without their content: what is left where content was removed.

An item keeps its type, its ids and names, so that calls and outputs still belong together and every format can send it.
What only a provider could read, or is of a type that threadkeep does not know, becomes a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, NamedTuple, Protocol, TypeAlias

from pydantic import Field, SkipValidation

from threadkeep.domain import foreign
from threadkeep.domain.call_kinds import BY_CALL, BY_OUTPUT, KINDS
from threadkeep.domain.content import (
    PARTS,
    Content,
    InputText,
    OutputText,
    Part,
    Text,
    TypedObject,
    by_type,
    content_from,
    refuse_unknown_parts,
    typed_part,
)
from threadkeep.domain.jsontext import JsonObject, at, dumps, encode_texts, mismatch, parsed_arguments
from threadkeep.errors import InvalidItem

Parts = list[SkipValidation[Part]]
# The result of a function call: text, a part, or a list of parts and dicts


class _Dumped(Protocol):
    """An object of an SDK that stands for JSON."""

    def model_dump(self, *args: Any, **options: Any) -> dict[str, Any]: ...


# Text, parts, and what an MCP tool returned
Output: TypeAlias = str | Part | Mapping[str, Any] | _Dumped | Sequence[Part | Mapping[str, Any] | _Dumped]


class Message(TypedObject):
    """A message from a user, a model or the application: a role and content parts.

    Attributes:
        author_id: the application's id of the author; never sent to a provider.
    """

    type: Literal["message"] = "message"
    role: str
    content: Parts
    id: str | None = None
    status: str | None = None
    phase: str | None = None
    author_id: str | None = None
    created_by: str | None = None

    _always: ClassVar[frozenset[str]] = frozenset({"content"})
    _parts: ClassVar[str | None] = "content"
    _aside: ClassVar[frozenset[str]] = frozenset({"author_id"})  # the store has a column for it

    def __init__(self, role: str, content: Content = (), **extra: Any) -> None:
        self._fill({"role": role, "content": content, **extra}, "")
        refuse_unknown_parts(self.content, content, "content")

    @classmethod
    def _prepare(cls, known: JsonObject, extras: JsonObject, path: str, /) -> None:
        content, content_path = known.get("content"), at(path, "content")
        if "origin" not in known:
            if extras:
                foreign.check_message(extras, path)
            if not isinstance(content, str):
                content = foreign.own_content(content, content_path)
        known["content"] = [] if content is None else content_from(content, known.get("role"), content_path)

    @property
    def text(self) -> str:
        """The text of the content, joined; without refusals and reasoning."""
        return "".join(part.text for part in self.content if isinstance(part, InputText | OutputText | Text))

    @property
    def is_system(self) -> bool:
        """Whether the role is system."""
        return self.role == "system"

    @property
    def is_user(self) -> bool:
        """Whether the role is user."""
        return self.role == "user"

    @property
    def is_assistant(self) -> bool:
        """Whether the role is assistant."""
        return self.role == "assistant"


class FunctionCall(TypedObject):
    """A model's request to call a function; `arguments` is JSON text, preserved byte for byte."""

    type: Literal["function_call"] = "function_call"
    call_id: str
    name: str
    arguments: str
    id: str | None = None
    status: str | None = None
    namespace: str | None = None
    caller: Any = None
    is_async: bool | None = Field(default=None, alias="async")
    created_by: str | None = None

    def __init__(self, name: str, call_id: str, arguments: str | Mapping[str, Any] | None = None, **extra: Any) -> None:
        super().__init__(name=name, call_id=call_id, arguments=arguments, **extra)

    @classmethod
    def _prepare(cls, known: JsonObject, extras: JsonObject, path: str, /) -> None:
        if isinstance(extras.get("is_async"), bool):
            known.setdefault("async", extras.pop("is_async"))
        arguments = known.get("arguments")
        if arguments is None:
            known["arguments"] = "{}"
        elif isinstance(arguments, dict):
            known["arguments"] = dumps(arguments).decode()
        elif not isinstance(arguments, str):
            expected = "a dict or the JSON text of an object"
            raise mismatch(InvalidItem, expected, arguments, at(path, "arguments"))

    def parsed_arguments(self) -> Any:
        """Return the parsed arguments, usually a dict.

        Raises:
            InvalidItem: the text is not JSON (some models truncate it).
        """
        return parsed_arguments(self.arguments, f"of the call {self.call_id!r} of {self.name}")


class FunctionCallOutput(TypedObject):
    """The result of a function call: text or content parts."""

    type: Literal["function_call_output"] = "function_call_output"
    call_id: str | None = None
    output: str | Parts | None = None
    id: str | None = None
    status: str | None = None
    name: str | None = None
    namespace: str | None = None
    caller: Any = None
    created_by: str | None = None

    _always: ClassVar[frozenset[str]] = frozenset({"output"})
    _parts: ClassVar[str | None] = "output"

    def __init__(self, call_id: str | None, output: Output | None = None, **extra: Any) -> None:
        super().__init__(call_id=call_id, output=output, **extra)
        if isinstance(self.output, list):
            refuse_unknown_parts(self.output, output, "output")

    @classmethod
    def _prepare(cls, known: JsonObject, extras: JsonObject, path: str, /) -> None:
        output, output_path = known.get("output"), at(path, "output")
        if output is not None and not isinstance(output, str) and "origin" not in extras:
            output = cls._own_output(output, known, extras, output_path)
        if output is None or isinstance(output, str):
            return
        if isinstance(output, list | tuple):
            known["output"] = [typed_part(part, f"{output_path}[{index}]") for index, part in enumerate(output)]
        elif isinstance(output, Part):
            known["output"] = [output]
        else:
            hint = "Write a value as text with json.dumps(...)."
            raise mismatch(InvalidItem, "text or a list of content parts", output, output_path, hint)

    @staticmethod
    def _own_output(output: Any, known: JsonObject, extras: JsonObject, path: str) -> Any:
        """The output in our parts; the whole result of an MCP tool also says whether the tool failed."""
        result = foreign.plain(output)
        if foreign.is_result(result):
            output, has_failed, hidden = foreign.result_parts(result, path)
            if has_failed and known.get("status") is None:
                known["status"] = "failed"
            if hidden:
                extras.setdefault("native", {foreign.NAME: hidden})
        own = foreign.own_content(output, path)
        return [own] if isinstance(own, dict) and own is not output else own


class Reasoning(TypedObject):
    """A model's reasoning: a summary, the full text, or opaque text that only the provider can read."""

    type: Literal["reasoning"] = "reasoning"
    id: str | None = None
    status: str | None = None
    encrypted_content: str | None = None
    summary: list[Any] = Field(default_factory=list)
    content: list[Any] = Field(default_factory=list)
    created_by: str | None = None


class Compaction(TypedObject):
    """A provider's opaque summary that replaces everything before it."""

    type: Literal["compaction"] = "compaction"
    id: str | None = None
    encrypted_content: str | None = None
    created_by: str | None = None


class ItemReference(TypedObject):
    """A reference to an item stored by the provider."""

    type: Literal["item_reference"] = "item_reference"
    id: str


class ProviderItem(TypedObject):
    """A block that only one provider supports: sent verbatim in its `format`, reported as a loss in others."""

    type: Literal["provider_item"] = "provider_item"
    format: str
    payload: Any

    _always: ClassVar[frozenset[str]] = frozenset({"payload"})


class UnknownItem(TypedObject):
    """An item of a type unknown to threadkeep; all its keys are kept."""


Item: TypeAlias = (
    Message | FunctionCall | FunctionCallOutput | Reasoning | Compaction | ItemReference | ProviderItem | UnknownItem
)  # fmt: skip
"""An item of any type; `isinstance` and `match` distinguish them."""
ItemInput: TypeAlias = Item | Mapping[str, Any]
"""An item, or a dict that describes one."""
# The `input` of a new session: the content of a user message, or a list of items
Input: TypeAlias = str | Part | Mapping[str, Any] | Sequence[str | Part | Item | Mapping[str, Any]]

ITEMS: Final[dict[str, type[Item]]] = by_type(Item)
_GIVEN: Final = "_given"
_ONLY_PARTS: Final = frozenset(PARTS) - frozenset(ITEMS)
_ALSO_ITEMS: Final = frozenset(ITEMS) & frozenset(PARTS)  # types of both content parts and items


def item_from(value: object, path: str = "item") -> Item:
    """Return the item described by a dict (public form or the wire names of Open Responses), or the item itself.

    A dict with a `role` but no `type` is a message. Unknown types become `UnknownItem`.
    """
    if not isinstance(value, dict):
        if isinstance(value, Item):
            return value
        if not isinstance(value, Mapping):
            raise mismatch(InvalidItem, "an item", value, path, "Pass an item, or a dict with a `type`.")
        value = dict(value)
    kind = value.get("type")
    if str(kind) not in ITEMS:
        foreign.check_item(value, path)
    if kind is None and "role" in value:
        return Message.read({**value, "type": "message"}, path)
    if not isinstance(kind, str) or not kind:
        raise mismatch(InvalidItem, "the type of an item, such as 'message'", kind, at(path, "type"))
    if kind in _ONLY_PARTS or (kind in foreign.TYPES and "origin" not in value):
        hint = "Put it into the content of a message."
        raise InvalidItem(f"must be an item, not a content part ({kind}).", argument=path, hint=hint)
    check_output(value, path)
    return ITEMS.get(kind, UnknownItem).read(value, path)


def check_output(value: Mapping[str, Any], path: str) -> None:
    """Raise InvalidItem for the output of a custom tool that is a list of something else than content parts."""
    output = value.get("output")
    if value.get("type") == "custom_tool_call_output" and isinstance(output, list):
        for index, part in enumerate(output):
            typed_part(part, f"{at(path, 'output')}[{index}]")


def items_from(values: object, path: str = "items") -> list[Item]:
    """Return the items of a list; see `item_from`."""
    if isinstance(values, str | bytes | Mapping | TypedObject) or not isinstance(values, Iterable):
        raise mismatch(InvalidItem, "a list of items", values, path)
    return [item_from(value, f"{path}[{index}]") for index, value in enumerate(values)]


class Given(NamedTuple):
    """The JSON text that an item was read from.

    `shape`: its shape, where that is known (`formats.canonical.given`); empty where the item was changed since.
    """

    text: bytes
    shape: tuple[Any, ...] | None = None


def with_given(item: Item, value: Mapping[str, Any], shape: tuple[Any, ...] | None = None) -> Item:
    """Let an item remember the JSON that it was read from; what contains parts or bytes has none.

    It is not part of the item's value. What has a `shape` is shallow and without numbers.
    """
    try:
        text = dumps(value) if shape is None else encode_texts(value)[0]
    except InvalidItem:
        return item
    item.__dict__[_GIVEN] = Given(text, shape)
    return item


def given_of(item: Item) -> Given | None:
    """Return the JSON text that an item remembers."""
    given: Given | None = item.__dict__.get(_GIVEN)
    return given


def with_given_of(item: Item, other: Item) -> Item:
    """Let another item remember what an item was read from; return the other one."""
    if _GIVEN in item.__dict__:
        other.__dict__[_GIVEN] = item.__dict__[_GIVEN]
    return other


def changed_item(item: Item, **values: Any) -> Item:
    """Return an item with other values of some fields, which remembers what it was read from."""
    changed = item.model_copy(update=values)
    if (given := given_of(item)) is not None:
        changed.__dict__[_GIVEN] = Given(given.text, ())
    return changed


def are_items(values: Sequence[object]) -> bool:
    """Return whether the elements of a new session's input are items, rather than the parts of a single message.

    Unknown types count as item types. Types that are both are items if the list also contains something that can only
    be an item.
    """
    has_items = not values
    for value in values:
        data = value if isinstance(value, Mapping) else {}
        kind = data.get("type") if isinstance(data.get("type"), str) else None
        if "role" in data or (kind and kind not in PARTS and kind not in foreign.TYPES) or isinstance(value, Item):
            has_items = True
        elif kind not in _ALSO_ITEMS:
            return False
    return has_items


def item_from_object(value: Mapping[str, Any]) -> Item:
    """Return the item of an item object (as stored, or as parsed by a format); never fails.

    What a provider sent may lack a key that its type requires; such an item becomes an `UnknownItem` with all its keys.
    """
    kind = value.get("type")
    if isinstance(kind, str):
        try:
            return ITEMS.get(kind, UnknownItem).read(value)
        except InvalidItem:
            pass
    return UnknownItem.read({**value, "type": kind if isinstance(kind, str) else "unknown"})


class _Usual(NamedTuple):
    """The keys of usual items of a type, in the order in which items write them, and those that they need."""

    keys: tuple[str, ...]
    required: frozenset[str]

    @classmethod
    def of(cls, required: str, others: str) -> _Usual:
        return cls((*required.split(), *others.split(), "origin", "spelling"), frozenset([*required.split(), "origin"]))


_USUAL: Final = {
    "message": _Usual.of("type role content", "id status phase"),
    "function_call": _Usual.of("type call_id name arguments", "id status namespace"),
    "function_call_output": _Usual.of("type call_id output", "id status name namespace"),
    "reasoning": _Usual.of("type", "id status encrypted_content summary content"),
}
_LISTS: Final = frozenset({"content", "summary"})


class UsualObject(dict[str, Any]):
    """The object of an item that was found to be a usual one."""

    __slots__ = ()


def usual_object(value: JsonObject) -> UsualObject | None:
    """What `item_from_object(value).to_object()` gives, for most items that came in a format; None for the others.

    It takes a tenth of the time. Lists in it are shared with the value, which was read from JSON.
    """
    if value.__class__ is UsualObject:
        return value
    kind = value.get("type")
    usual = _USUAL.get(kind) if isinstance(kind, str) else None
    if usual is None or not usual.required <= value.keys():
        return None
    item = UsualObject()
    for key in filter(value.__contains__, usual.keys):
        item[key] = one = value[key]
        if (one.__class__ is not str or key in _LISTS) and not _is_usual(key, one, value):
            return None
    is_whole = len(item) == len(value)
    for key in [key for key in _LISTS if not item.get(key, True)]:
        del item[key]
    return item if is_whole else None


def _is_usual(key: str, value: object, item: JsonObject) -> bool:
    """Whether a value that is no text, or at a key of lists, is as it mostly is."""
    if key in _LISTS:
        return _are_texts(value, item) or (item["type"] == "reasoning" and (value is None or value == []))
    return key == "spelling" and isinstance(value, list) and all(word.__class__ is str for word in value)


def _are_texts(parts: object, item: JsonObject) -> bool:
    """Whether a list has parts that are nothing but texts; in a message, of the type that its role has."""
    if not isinstance(parts, list) or not parts:
        return False
    text_type = "output_text" if item.get("role") == "assistant" else "input_text"
    is_message = item["type"] == "message"
    for part in parts:
        if part.__class__ is not dict or any(text.__class__ is not str for text in part.values()):
            return False
        if is_message and (part.get("type") != text_type or tuple(part) != ("type", "text")):
            return False
    return True


REDACTED: Final = "[redacted]"
REMOVED: Final = "[removed]"

_KEPT: Final = ("type", "id", "call_id", "name", "namespace", "role", "status", "phase")


def without_content(
    item: JsonObject, marker: str, *, call_id: str | None = None, is_answer: bool = False
) -> JsonObject:
    """Return an item with a marker in place of its content.

    `call_id`: of a call, also where the item has it in the keys of its provider; `is_answer`: it came in a response.
    """
    kind = item["type"]
    if kind == "provider_item" and call_id is not None:
        payload: Any = item.get("payload")
        named = [payload.get(key) for key in ("custom", "function")] if isinstance(payload, dict) else []
        names = [value.get("name") for value in named if isinstance(value, dict)]
        name = next((name for name in names if isinstance(name, str)), "unknown")
        return {"type": "function_call", "call_id": call_id, "name": name, "arguments": "{}"}
    write = _CONTENT.get(kind)
    if write is None:
        message = {"type": "message", "role": "assistant" if is_answer else "user"}
        return {**_kept(item, ("id",)), **message, **_message(message, marker)}
    return {**_kept(item, _KEPT), **write(item, marker)}


def _kept(item: JsonObject, keys: tuple[str, ...]) -> JsonObject:
    return {key: item[key] for key in keys if isinstance(item.get(key), str)}


def _message(item: JsonObject, marker: str) -> JsonObject:
    kind = "output_text" if item.get("role") == "assistant" else "input_text"
    return {"content": [{"type": kind, "text": marker}]}


def _compaction(item: JsonObject, marker: str) -> JsonObject:
    """A summary becomes the marker; without one, and without what only the provider can read, it covers nothing."""
    kept = {key: item[key] for key in ("upto", "summary", "keeps") if item.get(key) is not None}
    return kept | ({"summary": marker} if "summary" in kept else {})


def _blank_call(item: JsonObject, marker: str) -> JsonObject:
    """What is left of a call: the keys by which it belongs to its output, and who runs it."""
    blank = BY_CALL[item["type"]].blank_call
    kept = {key: item[key] for key in ("execution", "environment", "async", "caller") if item.get(key) is not None}
    return {**kept, **({} if blank is None else blank(marker))}


def _blank_output(item: JsonObject, marker: str) -> JsonObject:
    """What is left of an output: the call that it belongs to."""
    kind = BY_OUTPUT[item["type"]]
    content = kind.stand_in if kind.text_output is None else kind.text_output(marker)
    kept = {key: item[key] for key in (kind.output_key, "status", "approve") if item.get(key) is not None}
    return {**(content or {}), **kept}


# item type -> its content, with a marker
_CONTENT: Final[dict[str, Callable[[JsonObject, str], JsonObject]]] = {
    "message": _message,
    **{kind.call: _blank_call for kind in KINDS if kind.blank_call is not None},
    **{kind.output: _blank_output for kind in KINDS if kind.blank_call is not None},
    "reasoning": lambda _, marker: {"summary": [{"type": "summary_text", "text": marker}]},
    "compaction": _compaction,
    "compaction_undone": lambda item, _: {key: item[key] for key in ("compaction",) if key in item},
    "item_reference": lambda _, __: {},
}
