"""The tools of a conversation, as methods for whatever holds their definitions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.objects import shown
from threadkeep.domain.tools import (
    FunctionTool,
    Tool,
    ToolRegistry,
    default_registry,
    tool_from,
    tools_from,
    with_tools,
    without_tool,
)
from threadkeep.errors import InvalidOption


class ToolList:
    """Methods that add, name and remove tools."""

    __slots__ = ("_tools",)

    _tools: list[JsonObject]

    @property
    def tools(self) -> list[JsonObject]:
        """The definitions of the tools as dicts, in order."""
        return list(self._tools)

    @property
    def tool_definitions(self) -> list[Tool]:
        """The definitions of the tools, in order."""
        return [tool_from(tool) for tool in self._tools]

    def register_tool(
        self,
        name: str,
        description: str | None = None,
        parameters: Mapping[str, Any] | None = None,
        strict: bool | None = None,
        **extra: Any,
    ) -> FunctionTool:
        """Add a function, in place of one of the same name; returns its definition.

        Raises:
            InvalidOption: the name is empty or no text, or the schema is no JSON object.
        """
        tool = FunctionTool(name=name, description=description, parameters=parameters, strict=strict, **extra)
        self._tools = with_tools(self._tools, [tool])
        return tool

    def register_tools(self, tools: ToolRegistry | Iterable[Tool | Mapping[str, Any]]) -> list[Tool]:
        """Add the tools of a registry or list (functions and built-in ones); returns their definitions.

        Raises:
            InvalidOption: it is no registry and no list of tools.
        """
        found = tools_from(tools)
        self._tools = with_tools(self._tools, found)
        return found

    def use_tools(self, *names: str, registry: ToolRegistry | None = None) -> list[FunctionTool]:
        """Add the functions of these names, or all, from a registry (else the default one); returns their definitions.

        Raises:
            ToolNotFound: the registry has no function of one of these names; nothing was added.
        """
        found = chosen_tools(names, registry)
        self._tools = with_tools(self._tools, found)
        return found

    def remove_tool(self, name: str) -> Tool | None:
        """Remove the tool of that name (or type, if it has no name); returns its definition, None if there is none."""
        self._tools, removed = without_tool(self._tools, name)
        return removed

    def clear_tools(self) -> list[Tool]:
        """Remove all tools; returns their definitions."""
        removed, self._tools = self.tool_definitions, []
        return removed


def chosen_tools(names: Sequence[str], registry: ToolRegistry | None = None) -> list[FunctionTool]:
    """The functions of these names (all when none is given) of a registry, else of the default one.

    Raises:
        ToolNotFound: the registry has no function of one of these names.
        InvalidOption: it is no registry.
    """
    source = default_registry() if registry is None else registry
    if not isinstance(source, ToolRegistry):
        raise InvalidOption(f"registry is {shown(source)}. Give a ToolRegistry.")
    return source.chosen(names)
