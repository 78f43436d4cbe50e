"""How large files, functions and decisions may be, and that no modules import each other in a circle."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "src" / "threadkeep"
FILES = sorted(PACKAGE.rglob("*.py"))
PUBLIC_FACES = {"store/store.py", "store/conversation.py", "store/aio.py"}
MAX_FILE, MAX_PUBLIC_FACE = 500, 900
MAX_FUNCTION, MAX_BRANCHES, MAX_ARMS = 50, 12, 4

Function = ast.FunctionDef | ast.AsyncFunctionDef
BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.match_case)


def relative(path: Path) -> str:
    return path.relative_to(PACKAGE).as_posix()


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def functions_in(path: Path) -> Iterator[Function]:
    return (node for node in ast.walk(parsed(path)) if isinstance(node, Function))


def length(function: Function) -> int:
    """Lines from ``def`` on, without those of the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    docstring = function.body[0] if ast.get_docstring(function, clean=False) else None
    return lines - ((docstring.end_lineno or 0) - docstring.lineno + 1 if docstring else 0)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes inside a function, without those of functions and classes in it."""
    for child in ast.iter_child_nodes(node):
        yield child
        if not isinstance(child, Function | ast.ClassDef):
            yield from own_nodes(child)


def branches(function: Function) -> int:
    """One, and one more for each place where the function can go on in another way."""
    count = 1
    for node in own_nodes(function):
        if isinstance(node, BRANCHES):
            count += 1
        elif isinstance(node, ast.BoolOp):
            count += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            count += len(node.ifs)
    return count


def arms(node: ast.If) -> int:
    """How many conditions stand one behind the other: ``if``, ``elif``, ``elif``."""
    count = 1
    while len(node.orelse) == 1 and isinstance(node.orelse[0], ast.If):
        node, count = node.orelse[0], count + 1
    return count


def limit(path: Path) -> int:
    return MAX_PUBLIC_FACE if relative(path) in PUBLIC_FACES else MAX_FILE


def test_files_are_short() -> None:
    sizes = {path: len(path.read_text().splitlines()) for path in FILES}
    assert [(relative(path), lines) for path, lines in sizes.items() if lines >= limit(path)] == []


def test_functions_are_short_and_decide_little() -> None:
    sizes = [
        (f"{relative(path)}:{function.lineno} {function.name}", length(function), branches(function))
        for path in FILES
        for function in functions_in(path)
    ]
    assert len(sizes) > len(FILES)
    assert [(place, lines, ways) for place, lines, ways in sizes if lines >= MAX_FUNCTION or ways > MAX_BRANCHES] == []


def test_no_conditions_stand_in_long_rows() -> None:
    rows = [
        (f"{relative(path)}:{node.lineno}", arms(node))
        for path in FILES
        for node in ast.walk(parsed(path))
        if isinstance(node, ast.If)
    ]
    assert [(place, count) for place, count in rows if count > MAX_ARMS] == []


# Imports

MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES
}


def run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, without what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test):
            continue
        yield child
        yield from run_time_nodes(child)


def imported_names(path: Path) -> Iterator[str]:
    """What a file imports, also inside functions, and by ``import_module("…")``; a module, or a name in one."""
    for node in run_time_nodes(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            yield from (str(name.value) for name in node.args if isinstance(name, ast.Constant))


def imported_modules(path: Path) -> set[str]:
    return {
        name if name in MODULES else name.rpartition(".")[0]
        for name in imported_names(path)
        if name in MODULES or name.rpartition(".")[0] in MODULES
    }


def test_no_modules_import_each_other_in_a_circle() -> None:
    sorter = TopologicalSorter({name: imported_modules(path) - {name} for name, path in MODULES.items()})
    try:
        sorter.prepare()
    except CycleError as error:
        pytest.fail(" imports ".join(reversed(error.args[1])), pytrace=False)
