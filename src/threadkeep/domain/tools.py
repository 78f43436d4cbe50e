"""Tools: what a model may call, and the handlers behind the names."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, ClassVar, Final, Literal, TypeVar

from pydantic import Field, PrivateAttr

from threadkeep.domain.jsontext import JsonObject, loads
from threadkeep.domain.objects import ErrorClass, TypedObject, at, shown
from threadkeep.errors import InvalidItem, InvalidOption, ToolNotFound

Handler = Callable[..., Any]
H = TypeVar("H", bound=Handler)


class Tool(TypedObject):
    """Any tool definition."""

    type: str

    _error: ClassVar[ErrorClass] = InvalidOption

    @property
    def key(self) -> str:
        """What the tool is found by: its name, or its type when it has none."""
        name = self.to_object().get("name")
        return name if isinstance(name, str) and name else self.type


class FunctionTool(Tool):
    """A function that the model may call.

    Attributes:
        strict: whether arguments must follow the schema; None is not sent, and providers differ in what they take then.
    """

    type: Literal["function"] = "function"
    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None
    is_async: bool | None = Field(default=None, alias="async")
    allowed_callers: list[Any] | None = None
    defer_loading: bool | None = None
    output_schema: dict[str, Any] | None = None

    _always: ClassVar[frozenset[str]] = frozenset({"allowed_callers"})

    def __init__(
        self,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        **extra: Any,
    ) -> None:
        super().__init__(name=name, description=description, parameters=parameters, strict=strict, **extra)

    @classmethod
    def _prepare(cls, known: JsonObject, extras: JsonObject, path: str, /) -> None:
        if isinstance(extras.get("is_async"), bool):
            known.setdefault("async", extras.pop("is_async"))
        nested = extras.get("function")
        if "name" not in known and isinstance(nested, dict):  # the form of Chat Completions
            del extras["function"]
            for key, value in nested.items():
                (known if key in cls._keys else extras).setdefault(key, value)
        if known.get("name") == "":
            raise InvalidOption(f"{at(path, 'name')} is empty. Give the function a name.")


class BuiltinTool(Tool):
    """A tool that the provider runs, or one that only one provider knows; kept as it was given."""

    _flattens: ClassVar[bool] = False


def tool_from(value: object, path: str = "tool") -> Tool:
    """The tool that a dict describes: a function where it says so or names no type, else a built-in tool.

    Raises:
        InvalidOption: it is no tool; the message names the place, starting with `path`.
    """
    if isinstance(value, Tool):
        return value
    if not isinstance(value, Mapping):
        raise InvalidOption(f"{path} is {shown(value)}, which is no tool. Give a dict with a `name`, or with a `type`.")
    kind = value.get("type")
    if kind in (None, "function"):
        return FunctionTool.read({**value, "type": "function"}, path)
    if not isinstance(kind, str) or not kind:
        raise InvalidOption(f"{at(path, 'type')} is {shown(kind)}. Give the type of the tool as text.")
    return BuiltinTool.read(value, path)


def tools_from(values: object, path: str = "tools") -> list[Tool]:
    """The tools of a list, see `tool_from`.

    Raises:
        InvalidOption: one of them is no tool, or the value is no list.
    """
    if isinstance(values, ToolRegistry):
        return list(values.definitions)
    if isinstance(values, str | bytes | Mapping | Tool) or not isinstance(values, Iterable):
        raise InvalidOption(f"{path} is {shown(values)}. Give a ToolRegistry or a list of tool definitions.")
    return [tool_from(value, f"{path}[{index}]") for index, value in enumerate(values)]


def with_tools(tools: Sequence[JsonObject], added: Iterable[Tool]) -> list[JsonObject]:
    """A list of tool definitions with these in it; one of the same name is replaced in its place."""
    found = list(tools)
    places = {tool_from(tool).key: place for place, tool in enumerate(found)}
    for tool in added:
        place = places.setdefault(tool.key, len(found))
        found[place : place + 1] = [tool.to_dict()]
    return found


def without_tool(tools: Sequence[JsonObject], name: str) -> tuple[list[JsonObject], Tool | None]:
    """A list of tool definitions without the one of that name (or type), and that one; None when there is none."""
    for place, tool in enumerate(tools):
        found = tool_from(tool)
        if found.key == name:
            return [*tools[:place], *tools[place + 1 :]], found
    return list(tools), None


class Registration(FunctionTool):
    """A registered function; calling it with a handler attaches the handler, so that it works as a decorator."""

    _registry: ToolRegistry = PrivateAttr()

    def __call__(self, handler: H) -> H:
        """The handler itself, now behind this tool's name."""
        self._registry.attach(self.name, handler)
        return handler


class ToolRegistry:
    """Function tools by name, with the handlers that run them.

    >>> registry = ToolRegistry()
    >>> @registry.register("add", parameters={"type": "object", "properties": {"a": {}, "b": {}}})
    ... def add(a, b):
    ...     return a + b
    >>> registry.invoke("add", {"a": 2, "b": 3})
    5
    """

    def __init__(self) -> None:
        self._definitions: dict[str, Registration] = {}
        self._handlers: dict[str, Handler] = {}

    def register(
        self,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        handler: Handler | None = None,
        **extra: Any,
    ) -> Registration:
        """Register a function, in place of one of the same name; returns its definition, which is a decorator, too.

        A handler is called with the arguments by name when its parameters have the names of the schema's properties
        (or it takes none, several, or ``**arguments``), and with the whole object of arguments otherwise.

        Raises:
            InvalidOption: the name is empty or no text, or the schema is no JSON object.
        """
        if callable(name):
            own = getattr(name, "__name__", "name")
            raise InvalidOption(f'The decorator takes the name of the tool, and its schema: register("{own}", ...).')
        definition = {"name": name, "description": description, "parameters": parameters, "strict": strict}
        made = Registration.read({**extra, **definition})
        made._registry = self  # noqa: SLF001 - the two belong together
        self._definitions[name] = made
        self._handlers.pop(name, None)
        if handler is not None:
            self.attach(name, handler)
        return made

    def attach(self, name: str, handler: Handler) -> None:
        """Put a handler behind a registered name, in place of the one that was there.

        Raises:
            ToolNotFound: no tool of that name is registered.
            InvalidOption: the handler cannot be called.
        """
        if name not in self._definitions:
            raise ToolNotFound(f"There is no tool {name!r}. Register it first.")
        if not callable(handler):
            raise InvalidOption(f"The handler of the tool {name!r} is {shown(handler)}. Give a function.")
        self._handlers[name] = handler

    def handler_for(self, name: str) -> Handler | None:
        """The handler of that name; None when there is none."""
        return self._handlers.get(name)

    def definition_for(self, name: str) -> FunctionTool | None:
        """The definition of that name; None when there is none."""
        return self._definitions.get(name)

    @property
    def definitions(self) -> list[FunctionTool]:
        """All definitions, in the order of their registration."""
        return list(self._definitions.values())

    def chosen(self, names: Sequence[str]) -> list[FunctionTool]:
        """The definitions of these names, in this order; all of them when no name is given.

        Raises:
            ToolNotFound: there is no tool of one of these names.
        """
        missing = [name for name in names if name not in self._definitions]
        if missing:
            known = ", ".join(self._definitions) or "none"
            raise ToolNotFound(f"There is no tool {missing[0]!r} in the registry. Registered tools: {known}.")
        return [self._definitions[name] for name in names] if names else self.definitions

    def invoke(self, name: str, arguments: Mapping[str, Any] | str | None = None) -> Any:
        """What the handler of that name returns for these arguments (a dict, or the JSON text of a call).

        Errors of the handler pass through.

        Raises:
            ToolNotFound: there is no handler of that name.
            InvalidItem: the arguments are text that is not JSON.
        """
        handler = self._handlers.get(name)
        if handler is None:
            known = ", ".join(self._handlers) or "none"
            raise ToolNotFound(f"There is no handler for the tool {name!r}. Tools with handlers: {known}.")
        values = _argument_values(name, arguments)
        takes_names = isinstance(values, Mapping) and _takes_names(handler, self._definitions[name].parameters or {})
        return handler(**values) if takes_names else handler(values)


def _argument_values(name: str, arguments: Mapping[str, Any] | str | None) -> Any:
    if not isinstance(arguments, str):
        return {} if arguments is None else arguments
    try:
        return loads(arguments)
    except ValueError as error:
        raise InvalidItem(
            f"The arguments for the tool {name!r} are not JSON: {error}. They are: {shown(arguments)}. "
            "Answer the call with an output that says so."
        ) from error


_BY_NAME: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


def _takes_names(handler: Handler, schema: Mapping[str, Any]) -> bool:
    try:
        parameters = list(inspect.signature(handler).parameters.values())
    except (TypeError, ValueError):  # some functions written in C
        return False
    if len(parameters) == 1 and parameters[0].kind in _BY_NAME:
        return parameters[0].kind is inspect.Parameter.KEYWORD_ONLY or parameters[0].name in schema.get(
            "properties", {}
        )
    return all(one.kind in (*_BY_NAME, inspect.Parameter.VAR_KEYWORD) for one in parameters)


class _Default:
    """The registry of the module: a holder, so that resetting needs no global statement."""

    registry = ToolRegistry()


def default_registry() -> ToolRegistry:
    """The registry that `register_tool` fills and that `use_tools` takes from when it is given none."""
    return _Default.registry


def register_tool(
    name: str,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    strict: bool | None = None,
    handler: Handler | None = None,
    **extra: Any,
) -> Registration:
    """Register a function in the default registry, see `ToolRegistry.register`; a decorator, too.

    Raises:
        InvalidOption: the name is empty or no text, or the schema is no JSON object.
    """
    return default_registry().register(name, description, parameters, strict, handler, **extra)


def reset_default_registry() -> ToolRegistry:
    """Replace the default registry by an empty one; returns it."""
    _Default.registry = ToolRegistry()
    return _Default.registry
