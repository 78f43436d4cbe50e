"""Commands that are loaded when they are used: a run loads one of them, the list of commands all."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, MutableMapping
from importlib import import_module
from typing import Any, Final

import typer
from typer.core import TyperArgument, TyperCommand, TyperOption

APP_OPTIONS: Mapping[str, Any] = {"rich_markup_mode": None, "pretty_exceptions_enable": False}

_SURROGATES: Final = re.compile("[\ud800-\udfff]")


class LazyCommands(MutableMapping[str, Any]):
    """Commands by name; one that is still the name of a function or group, ``module:name``, is loaded when asked for.

    Args:
        package: the package of the modules.
        places: where each command is, by its name, in the order of the help.
    """

    def __init__(self, package: str, places: Mapping[str, str]) -> None:
        self._package = package
        self._commands: dict[str, Any] = dict(places)

    def __getitem__(self, name: str) -> Any:
        command = self._commands[name]
        if isinstance(command, str):
            command = self._commands[name] = self._load(name, command)
        return command

    def __setitem__(self, name: str, command: Any) -> None:
        self._commands[name] = command

    def __delitem__(self, name: str) -> None:
        del self._commands[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._commands)

    def __len__(self) -> int:
        return len(self._commands)

    def _load(self, name: str, place: str) -> Any:
        module, _, attribute = place.partition(":")
        found = getattr(import_module(f"{self._package}.{module}"), attribute)
        alone = typer.Typer(**APP_OPTIONS)
        if isinstance(found, typer.Typer):
            alone.add_typer(found, name=name)
        else:
            alone.command(name, cls=QuickCommand)(found)
        return typer.main.get_group(alone).commands[name]


class QuickCommand(TyperCommand):
    """A command that starts without loading Pydantic, if its values are texts, flags and defaults."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the options and arguments."""
        return without_conversions(super().get_params(ctx))


def without_conversions(parameters: list[Any]) -> list[Any]:
    """Let Typer convert only values that need it: it loads Pydantic even for those that are not given."""
    for parameter in parameters:
        if isinstance(parameter, TyperOption | TyperArgument):
            conversion: Any = Conversion(parameter.type_descriptor)
            parameter._runtime_param = conversion  # noqa: SLF001 - see `Conversion`
    return parameters


class Conversion:
    """Typer's conversion of the values of a parameter, skipped for a value that is its result already.

    It stands where Typer keeps its own conversion, once that is made. With a release of Typer that looks elsewhere,
    commands take longer to start, and are the same otherwise.
    """

    def __init__(self, descriptor: Any) -> None:
        self._descriptor = descriptor

    def coerce(self, value: Any, param: Any, ctx: Any) -> Any:
        """Return the value as the command expects it; raise Typer's BadParameter if it is none."""
        is_list = param.multiple or param.nargs == -1
        if value is None:
            return () if is_list else None
        if value is param.default or value in (self._descriptor.choices or ()) or self._is_text(value, is_list=is_list):
            return value
        param._runtime_param = None  # noqa: SLF001 - of this parameter, which makes its own one now
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)

    def _is_text(self, value: Any, *, is_list: bool) -> bool:
        """Whether text is expected, and this is some; what has no Unicode is left to Typer to refuse."""
        texts = value if is_list and isinstance(value, list | tuple) else [value]
        is_text = self._descriptor.annotation in (str, list[str]) and all(isinstance(text, str) for text in texts)
        return is_text and not any(_SURROGATES.search(text) for text in texts)
