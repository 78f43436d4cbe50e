"""Tools: what a model may call, and the handlers that run the calls."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping, Sequence
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, ClassVar, Final, Literal, Protocol, TypeVar, overload

from pydantic import Field, PrivateAttr

from threadkeep.domain import content, formats, options, tool_names
from threadkeep.domain.function_tools import FunctionSignature, Handler, takes_names
from threadkeep.domain.jsontext import UNSET, ErrorClass, JsonObject, at, canonical, loads, mismatch
from threadkeep.errors import CannotParse, InvalidOption, InvalidToolArguments, ToolNotFound, did_you_mean, shown

H = TypeVar("H", bound=Handler)

# statuses of calls of which the end is missing: arguments that look whole may be completed ones
CUT_OFF: Final = frozenset({"incomplete", "in_progress"})


def was_cut_off(call: Mapping[str, Any]) -> bool:
    """Return whether the end of a call is missing; a status that is no text says nothing."""
    status = call.get("status")
    return isinstance(status, str) and status in CUT_OFF


# where a function stands in a tool of Chat Completions, of Bedrock
_SIMILARITY: Final = 0.85  # from which the type of a tool counts as a misspelt one
_NESTED: Final = ("function", "toolSpec")
# what others call the parameters of a function: Anthropic, Bedrock (and MCP), Gemini
_SCHEMAS: Final = ("input_schema", "inputSchema", "parametersJsonSchema", "parameters_json_schema")


class Tool(content.TypedObject):
    """A tool definition: a `FunctionTool` or a `BuiltinTool`."""

    _error: ClassVar[ErrorClass] = InvalidOption

    @property
    def key(self) -> str:
        """The name of the tool, or its type if it has no name."""
        name = self.to_object().get("name")
        return name if isinstance(name, str) and name else self.type


class FunctionTool(Tool):
    """A function that the model may call.

    Attributes:
        strict: whether arguments must match the schema. None is not sent; the default depends on the provider.
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
        if callable(name):
            hint = f'Write register_tool("{getattr(name, "__name__", "name")}", …).'
            raise InvalidOption("must be the name of the tool, not the function.", argument="name", hint=hint)
        super().__init__(name=name, description=description, parameters=parameters, strict=strict, **extra)
        options.refuse_infinite(self.parameters, "parameters")

    @classmethod
    def _prepare(cls, known: JsonObject, extras: JsonObject, path: str, /) -> None:
        if isinstance(extras.get("is_async"), bool):
            known.setdefault("async", extras.pop("is_async"))
        nested = next((key for key in _NESTED if isinstance(extras.get(key), dict)), None)
        if "name" not in known and nested is not None:
            for key, value in extras.pop(nested).items():
                (known if key in cls._keys else extras).setdefault(key, value)
        if known.get("parameters") is None and "origin" not in known:
            known["parameters"] = _schema_in(extras)
        if known.get("name") == "":
            raise InvalidOption("must not be empty.", argument=at(path, "name"))


def _schema_in(extras: JsonObject) -> Any:
    """The schema under a name that others have for it, taken out; Bedrock puts it into an object."""
    key = next((key for key in _SCHEMAS if isinstance(extras.get(key), dict)), None)
    schema = None if key is None else extras.pop(key)
    return schema["json"] if schema and schema.keys() == {"json"} else schema


class BuiltinTool(Tool):
    """A tool run by the provider, or supported by only one provider; all its keys are kept."""

    if TYPE_CHECKING:

        def __init__(self, *, type: str, **extra: Any) -> None: ...


def tool_from(value: object, path: str = "tool") -> Tool:
    """Return the tool described by a dict: a function if its type is function or missing, otherwise a built-in tool."""
    if isinstance(value, Tool):
        return value
    if not isinstance(value, Mapping):
        hint = "Pass a dict with a `name`, or with a `type`."
        raise mismatch(InvalidOption, "a tool definition", value, path, hint)
    kind = value.get("type")
    if kind in (None, "function") or (kind == "custom" and "input_schema" in value):  # custom: Anthropic's
        tool = FunctionTool.read({**value, "type": "function"}, path)
        options.refuse_infinite(tool.parameters, at(path, "parameters"))
        return tool
    if not isinstance(kind, str) or not kind:
        raise mismatch(InvalidOption, "the type of a tool", kind, at(path, "type"))
    if get_close_matches(kind, ("function",), cutoff=_SIMILARITY):
        hint = did_you_mean(("function",)).strip()
        raise InvalidOption(f"is the unknown type of tool {shown(kind)}.", argument=at(path, "type"), hint=hint)
    return BuiltinTool.read(value, path)


def tools_from(values: object) -> list[Tool]:
    """Return the tools of a registry or list; see `tool_from`."""
    if isinstance(values, ToolRegistry):
        return list(values.definitions)
    if isinstance(values, str | bytes | Mapping | Tool) or not isinstance(values, Iterable):
        raise mismatch(InvalidOption, "a ToolRegistry or a list of tool definitions", values, "tools")
    return [tool for index, value in enumerate(values) for tool in _tools(value, f"tools[{index}]")]


def _tools(value: object, path: str) -> list[Tool]:
    match value:
        case {"functionDeclarations": _} | {"function_declarations": _}:
            try:
                request = formats.get_format("gemini").parse_request({"contents": [{"parts": []}], "tools": [value]})
            except CannotParse as error:
                raise InvalidOption(error.message, argument=path) from error
            return request.tool_definitions
    return [tool_from(value, path)]


def with_tools(tools: Sequence[JsonObject], added: Iterable[Tool]) -> list[JsonObject]:
    """Return a list of tool definitions with these added; a tool with the same name is replaced where it is."""
    result = list(tools)
    indexes = {_key_of(tool): index for index, tool in enumerate(result)}
    for tool in added:
        index = indexes.setdefault(tool.key, len(result))
        result[index : index + 1] = [tool.to_dict()]
    return result


def without_tool(tools: Sequence[JsonObject], name: str) -> tuple[list[JsonObject], Tool | None]:
    """Return a list of tool definitions without the tool of that name (or type), and that tool, or None."""
    for index, definition in enumerate(tools):
        if _key_of(definition) == name:
            return [*tools[:index], *tools[index + 1 :]], tool_from(definition)
    return list(tools), None


def removed_tools(before: Iterable[JsonObject], after: Iterable[JsonObject]) -> list[JsonObject]:
    """Return the definitions of one list that are missing from another."""
    kept = set(map(canonical, after))
    return [tool for tool in before if canonical(tool) not in kept]


def _key_of(definition: JsonObject) -> str:
    """The `key` of the tool that a definition is of; without reading all of it, where it says its name."""
    name = definition.get("name")
    return name if isinstance(name, str) and name else tool_from(definition).key


class Registration(FunctionTool):
    """A registered function. Calling it with a handler attaches the handler, so it can be used as a decorator."""

    _registry: ToolRegistry = PrivateAttr()

    def __call__(self, handler: H) -> H:
        """Attach the handler to this tool and return it."""
        self._registry.attach(self.name, handler)
        return handler


class NamedCall(Protocol):
    """A call of a function, by the function's name."""

    @property
    def name(self) -> str: ...  # noqa: D102 - of every call
    @property
    def arguments(self) -> Any: ...  # noqa: D102


class ToolRegistry:
    """Function tools by name, with the handlers that run them.

    >>> registry = ToolRegistry()
    >>> @registry.register
    ... def add(a: int, b: int = 1) -> int:
    ...     '''Add two numbers.'''
    ...     return a + b
    >>> registry.invoke("add", '{"a": 2}')
    3
    """

    def __init__(self) -> None:
        self._definitions: dict[str, Registration] = {}
        self._handlers: dict[str, Handler] = {}
        self._signatures: dict[str, FunctionSignature] = {}

    @overload
    def register(self, name: H, description: str | None = None, *, strict: bool | None = None, **extra: Any) -> H: ...
    @overload
    def register(
        self,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        handler: Handler | None = None,
        **extra: Any,
    ) -> Registration: ...
    @overload
    def register(
        self, *, description: str | None = None, strict: bool | None = None, **extra: Any
    ) -> Callable[[H], H]: ...
    def register(
        self,
        name: str | Handler = UNSET,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        handler: Handler | None = None,
        **extra: Any,
    ) -> Any:
        """Register a function, replacing one of the same name.

        Given a function (``register(function)``, ``@register``, ``@register(strict=True)``), its name, description and
        schema come from its signature and docstring, `invoke` validates its arguments, and the function is returned.
        With ``strict=True``, the schema is one that strict modes take: all properties are required, no others allowed.

        Given a name, the other arguments define the tool, and its definition is returned, which is also a decorator. A
        handler is called with keyword arguments if its parameters are named like the properties of the schema (or it
        takes none, several, or ``**arguments``); otherwise it is called with all arguments as one object.

        Raises:
            InvalidOption: the name is empty or not text, the schema is not a JSON object, or the function has none.
        """
        if name is UNSET:
            return lambda function: self.register(function, description, strict=strict, **extra)
        if callable(name):
            signature = FunctionSignature(name, strict=strict)
            description, parameters = description or signature.description, signature.parameters
            definition = {"name": signature.name, "description": description, "parameters": parameters}
            self._define({"strict": strict, **extra, **definition}, name)
            self._signatures[signature.name] = signature
            return name
        definition = {"name": name, "description": description, "parameters": parameters, "strict": strict}
        return self._define({**extra, **definition}, handler)

    def _define(self, definition: JsonObject, handler: Handler | None) -> Registration:
        tool = Registration.read(definition)
        tool._registry = self  # noqa: SLF001 - the two belong together
        self._definitions[tool.name] = tool
        self._handlers.pop(tool.name, None)
        self._signatures.pop(tool.name, None)
        if handler is not None:
            self.attach(tool.name, handler)
        return tool

    def attach(self, name: str, handler: Handler) -> None:
        """Set the handler of a registered tool.

        Raises:
            ToolNotFound: no tool with that name is registered.
            InvalidOption: the handler cannot be called.
        """
        if name not in self._definitions:
            raise ToolNotFound(f"There is no tool {shown(name)}.", hint="Register it first.")
        if not callable(handler):
            raise mismatch(InvalidOption, "a function", handler, "handler")
        self._handlers[name] = handler
        self._signatures.pop(name, None)

    def handler_for(self, name: str) -> Handler | None:
        """Return the handler with that name, or None."""
        return self._handlers.get(name)

    def definition_for(self, name: str) -> FunctionTool | None:
        """Return the definition with that name, or None."""
        return self._definitions.get(name)

    @property
    def definitions(self) -> list[FunctionTool]:
        """All definitions, in order of registration."""
        return list(self._definitions.values())

    def chosen(self, names: Sequence[str]) -> list[FunctionTool]:
        """Return the definitions with these names, in this order; all definitions if no names are given.

        Raises:
            ToolNotFound: there is no tool with one of these names.
        """
        for name in names:
            if name not in list(self._definitions):  # also what has no hash is not there
                known = ", ".join(self._definitions) or "none"
                raise ToolNotFound(f"There is no tool {shown(name)} in the registry. Registered tools: {known}.")
        return [self._definitions[name] for name in names] if names else self.definitions

    def invoke(self, name: str | NamedCall, arguments: Mapping[str, Any] | str | None = None) -> Any:
        """Call the handler of a tool with these arguments (a dict, or the JSON text of a call); return its result.

        Instead of a name and arguments, give a call: a `FunctionCall` or `PendingCall`; it may have the name in the
        form in which a provider took it. A call with a namespace means the tool ``namespace.name``, if there is one.
        Errors raised by the handler are passed on.

        Raises:
            InvalidOption: the handler is ``async``; `ainvoke` awaits it.
            ToolNotFound: there is no handler with that name, or more than one that a provider's form of it can mean.
            InvalidToolArguments: the arguments are not JSON, or do not match the signature of a registered function,
                or the call was cut off. The text of the error is meant to be sent back to the model.
        """
        result = self.begin(name, arguments)
        if not inspect.isawaitable(result):
            return result
        if inspect.iscoroutine(result):
            result.close()  # it has not begun
        tool = getattr(name, "name", name)
        hint = "Call await registry.ainvoke(…), or run_tools_async."
        raise InvalidOption(f"The handler of the tool {shown(tool)} is asynchronous; nothing was run.", hint=hint)

    def begin(self, name: str | NamedCall, arguments: Mapping[str, Any] | str | None = None) -> Any:
        """Like `invoke`, but return what an ``async`` handler returned, to be awaited: it may be called in a thread."""
        if not isinstance(name, str):
            arguments = getattr(name, "arguments", None)
        tool, handler = self._handler_of(self._meant_by(name))
        if getattr(getattr(name, "item", name), "status", None) in CUT_OFF:
            raise InvalidToolArguments(tool, [("", "the call was cut off with its answer, so it was not run.")])
        values: Any = {} if arguments is None else arguments
        if isinstance(arguments, str):
            try:
                values = loads(arguments)
            except ValueError as error:
                raise InvalidToolArguments(tool, [("", f"they are not JSON: {error}.")]) from error
        if tool in self._signatures:
            return handler(**self._signatures[tool].bind(values))
        by_name = isinstance(values, Mapping) and takes_names(handler, self._definitions[tool].parameters or {})
        return handler(**values) if by_name else handler(values)

    def name_of(self, call: NamedCall) -> str | None:
        """Return the name of the tool that runs for a call, as it was registered; None where none does."""
        try:
            return self._handler_of(self._meant_by(call))[0]
        except ToolNotFound:
            return None

    def _meant_by(self, name: str | NamedCall) -> Any:
        """The name in a call, with its namespace where a tool has both."""
        if isinstance(name, str):
            return name
        tool: Any = getattr(name, "name", name)
        namespace = getattr(getattr(name, "item", name), "namespace", None)
        full = tool_names.qualified_name({"name": tool, "namespace": namespace})
        return full if isinstance(full, str) and full in self._definitions else tool

    def _handler_of(self, name: Any) -> tuple[str, Handler]:
        """The tool that is meant, and its handler; a name in a provider's form must mean one alone."""
        handlers = self._handlers
        is_known = not isinstance(name, str) or name in self._definitions
        meant = [one for one in handlers if one == name or (not is_known and tool_names.stands_for(name, one))]
        if len(meant) > 1:
            hint = "A provider gets such names in another form: use letters, digits, _ and - in the names of tools."
            raise ToolNotFound(f"{shown(name)} can mean more than one tool: {', '.join(meant)}.", hint=hint)
        if not meant:
            known = ", ".join(handlers) or "none"
            raise ToolNotFound(f"There is no handler for the tool {shown(name)}. Tools with handlers: {known}.")
        return meant[0], handlers[meant[0]]

    async def ainvoke(self, name: str | NamedCall, arguments: Mapping[str, Any] | str | None = None) -> Any:
        """Like `invoke`, but await the result of an ``async`` handler. Other handlers are called in the event loop."""
        result = self.begin(name, arguments)
        return await result if inspect.isawaitable(result) else result


_default = [ToolRegistry()]


def default_registry() -> ToolRegistry:
    """Return the registry that `register_tool` adds to and that `use_tools` takes tools from by default."""
    return _default[0]


def source_registry(registry: object) -> ToolRegistry:
    """Return the registry to take tools from; None stands for the default registry."""
    source = default_registry() if registry is None else registry
    if not isinstance(source, ToolRegistry):
        raise mismatch(InvalidOption, "a ToolRegistry", source, "registry")
    return source


@overload
def register_tool(name: H, description: str | None = None, *, strict: bool | None = None, **extra: Any) -> H: ...
@overload
def register_tool(
    name: str,
    description: str | None = None,
    parameters: Mapping[str, Any] | None = None,
    strict: bool | None = None,
    handler: Handler | None = None,
    **extra: Any,
) -> Registration: ...
@overload
def register_tool(*, description: str | None = None, strict: bool | None = None, **extra: Any) -> Callable[[H], H]: ...
def register_tool(name: Any = UNSET, *args: Any, **options: Any) -> Any:
    """Register a function in the default registry; see `ToolRegistry.register`. Also a decorator."""
    return default_registry().register(name, *args, **options)


def reset_default_registry() -> ToolRegistry:
    """Replace the default registry with an empty one, and return it."""
    _default[0] = ToolRegistry()
    return _default[0]


class ToolList:
    """Methods that add, list and remove tools."""

    __slots__ = ("_tools",)

    _tools: list[JsonObject]

    @property
    def tools(self) -> list[JsonObject]:
        """The tool definitions as dicts, in order."""
        return list(self._tools)

    @property
    def tool_definitions(self) -> list[Tool]:
        """The tool definitions, in order."""
        return [tool_from(tool) for tool in self._tools]

    def register_tool(
        self,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        **extra: Any,
    ) -> FunctionTool:
        """Add a function, replacing one of the same name; return its definition.

        Raises:
            InvalidOption: the name is empty or not text, or the schema is not a JSON object.
        """
        tool = FunctionTool(name=name, description=description, parameters=parameters, strict=strict, **extra)
        self._tools = with_tools(self._tools, [tool])
        return tool

    def register_tools(self, tools: ToolRegistry | Iterable[Tool | Mapping[str, Any]]) -> list[Tool]:
        """Add the tools of a registry or list (functions and built-in tools); return their definitions.

        Raises:
            InvalidOption: it is neither a registry nor a list of tools.
        """
        result = tools_from(tools)
        self._tools = with_tools(self._tools, result)
        return result

    def use_tools(self, *names: str, registry: ToolRegistry | None = None) -> list[FunctionTool]:
        """Add functions of a registry (by default, the default one) by name, or all of them; return their definitions.

        Raises:
            ToolNotFound: the registry has no function with one of these names; nothing was added.
            InvalidOption: it is not a registry.
        """
        result = source_registry(registry).chosen(names)
        self._tools = with_tools(self._tools, result)
        return result

    def remove_tool(self, name: str) -> Tool | None:
        """Remove the tool with that name (or type, if it has no name); return its definition, or None."""
        self._tools, removed = without_tool(self._tools, name)
        return removed

    def clear_tools(self) -> list[Tool]:
        """Remove all tools; return their definitions."""
        removed, self._tools = self.tool_definitions, []
        return removed
