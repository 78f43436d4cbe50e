"""Lists of tools that can be changed: those of a session."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from threadkeep.domain.jsontext import JsonObject
from threadkeep.domain.tools import (
    FunctionTool,
    Tool,
    ToolRegistry,
    source_registry,
    tool_from,
    tools_from,
    with_tools,
    without_tool,
)


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
