"""Modules that are loaded when something in them is first used."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest

from threadkeep.lazy import LazyModule, lazy_modules


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ModuleType]:
    folder = tmp_path / "lazy_package"
    folder.mkdir()
    folder.joinpath("__init__.py").write_text(
        "from threadkeep.lazy import lazy_modules\n__getattr__ = lazy_modules(__name__, __path__)\n"
    )
    folder.joinpath("inner.py").write_text("NUMBER = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    yield __import__("lazy_package")
    for name in [name for name in sys.modules if name.startswith("lazy_package")]:
        del sys.modules[name]


def test_a_module_is_loaded_when_it_is_used(package: ModuleType) -> None:
    inner = package.inner
    assert isinstance(inner, LazyModule)
    assert "lazy_package.inner" not in sys.modules
    assert inner.NUMBER == 1
    assert package.inner is sys.modules["lazy_package.inner"]


def test_it_is_the_module_in_every_respect(package: ModuleType) -> None:
    inner = package.inner
    inner.NUMBER = 2
    assert sys.modules["lazy_package.inner"].NUMBER == 2
    del inner.NUMBER
    with pytest.raises(AttributeError, match=r"lazy_package\.inner.*NUMBER"):
        _ = inner.NUMBER


def test_what_there_is_not_is_no_module(package: ModuleType) -> None:
    with pytest.raises(AttributeError, match="module 'lazy_package' has no attribute 'outer'"):
        _ = package.outer
    assert not hasattr(package, "__wrapped__")
    assert lazy_modules(package.__name__, package.__path__)("inner").__name__ == "lazy_package.inner"
