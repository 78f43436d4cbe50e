"""Modules that are loaded when something in them is first used, so that a program's start loads only what it uses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any


class LazyModule(ModuleType):
    """Stands for a module, which is loaded when one of its attributes is first asked for; it has that from then on."""

    def __getattr__(self, name: str) -> Any:
        value = self.__dict__[name] = getattr(import_module(self.__name__), name)
        return value

    def __setattr__(self, name: str, value: object) -> None:
        setattr(import_module(self.__name__), name, value)
        self.__dict__[name] = value

    def __delattr__(self, name: str) -> None:
        delattr(import_module(self.__name__), name)
        self.__dict__.pop(name, None)


def lazy_modules(package: str, path: Sequence[str]) -> Callable[[str], ModuleType]:
    """Return the `__getattr__` of a package (PEP 562) whose modules are lazy.

    ``from package import module`` then loads nothing, if the module is not loaded already, while ``from package.module
    import name`` loads the module as always.

    Args:
        package: the `__name__` of the package.
        path: its `__path__`.
    """

    def find(name: str) -> ModuleType:
        module = f"{package}.{name}"
        if PathFinder.find_spec(module, path) is None:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        return LazyModule(module)

    return find
