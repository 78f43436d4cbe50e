"""How large files, functions and decisions may be, names, words, and what modules know of others."""

from __future__ import annotations

import ast
import re
from collections import Counter, defaultdict
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


@cache
def nodes_in(path: Path) -> list[ast.AST]:
    return list(ast.walk(parsed(path)))


def functions_in(path: Path) -> Iterator[Function]:
    return (node for node in nodes_in(path) if isinstance(node, Function))


def length(function: Function) -> int:
    """Lines from ``def`` on, without those of the docstring."""
    lines = (function.end_lineno or function.lineno) - function.lineno + 1
    docstring = function.body[0] if ast.get_docstring(function, clean=False) else None
    return lines - ((docstring.end_lineno or 0) - docstring.lineno + 1 if docstring else 0)


def own_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes inside a function, without those of functions and classes in it."""
    left = [*ast.iter_child_nodes(node)]
    while left:
        yield (child := left.pop())
        if not isinstance(child, Function | ast.ClassDef):
            left += ast.iter_child_nodes(child)


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
        for node in nodes_in(path)
        if isinstance(node, ast.If)
    ]
    assert [(place, count) for place, count in rows if count > MAX_ARMS] == []


# Names


def test_a_class_name_stands_for_one_class() -> None:
    places = defaultdict(list)
    for path in FILES:
        for node in nodes_in(path):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{relative(path)}:{node.lineno}")
    assert {name: found for name, found in places.items() if len(found) > 1} == {}


def reached(path: Path) -> Iterator[str]:
    """The private attributes of objects that another file defines: neither ``self`` or ``cls`` nor classes here."""
    text = path.read_text()
    for node in nodes_in(path):
        if not (isinstance(node, ast.Attribute) and re.match(r"_[a-z]", node.attr)):
            continue
        is_own = isinstance(node.value, ast.Name) and node.value.id in {"self", "cls"}
        is_tuples = node.attr in {"_replace", "_fields", "_asdict"}
        if not (is_own or is_tuples or f"self.{node.attr}" in text or f"def {node.attr}" in text):
            yield f"{relative(path)}:{node.lineno} .{node.attr}"


def test_nothing_reaches_into_another_object() -> None:
    """Who needs a private attribute of an object gives it a public method or attribute first."""
    assert [place for path in FILES for place in reached(path)] == []


# What a house of many small pieces has too much of. These limits only ever go down.

MIN_FILE, MAX_SMALL_FILES = 40, 6
MAX_IMPORTS = 6.0  # per cent of all lines
MAX_ONCE = 9.0  # per cent of all functions: private ones that are named in one other place only


def test_few_files_are_small() -> None:
    files = [path for path in FILES if path.name != "__init__.py"]
    small = [relative(path) for path in files if path.read_text().count("\n") < MIN_FILE]
    assert len(small) <= MAX_SMALL_FILES, small


def test_few_lines_are_imports() -> None:
    nodes = [node for path in FILES for node in nodes_in(path) if isinstance(node, ast.Import | ast.ImportFrom)]
    lines = sum((node.end_lineno or node.lineno) - node.lineno + 1 for node in nodes)
    assert 100 * lines / sum(path.read_text().count("\n") for path in FILES) <= MAX_IMPORTS


def test_few_functions_are_private_and_called_once() -> None:
    names = Counter(name for path in FILES for name in re.findall(r"\b_[a-z]\w*", path.read_text()))
    functions = [function.name for path in FILES for function in functions_in(path)]
    once = [name for name in functions if not name.startswith("__") and names[name] == 2]
    assert 100 * len(once) / len(functions) <= MAX_ONCE


# Words

IDIOLECT = re.compile(r"\b(nobody|somebody|whoever|meanwhile|told|beside|those of|that of)\b", re.IGNORECASE)
MAX_IDIOLECT = 4.5  # in 10,000 words


def prose_in(path: Path) -> str:
    """The docstrings and messages of a module: constants of several words, other than SQL."""
    texts = (node.value for node in nodes_in(path) if isinstance(node, ast.Constant))
    return "\n".join(text for text in texts if isinstance(text, str) and text.count(" ") > 3 and "SELECT" not in text)


def test_prose_is_plain() -> None:
    """Docs, docstrings and messages name things, as other libraries' documentation does: "the provider's id"."""
    pages = {str(path.relative_to(ROOT)): path.read_text() for path in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]}
    texts = pages | {relative(path): prose_in(path) for path in FILES}
    found = {name: len(IDIOLECT.findall(text)) for name, text in texts.items()}
    words = sum(len(text.split()) for text in texts.values())
    worst = sorted(found, key=found.__getitem__, reverse=True)[:5]
    assert sum(found.values()) <= MAX_IDIOLECT * words / 10_000, worst


# Imports

MODULES = {
    ".".join(path.relative_to(PACKAGE.parent).with_suffix("").parts).removesuffix(".__init__"): path for path in FILES
}


def run_time_nodes(node: ast.AST) -> Iterator[ast.AST]:
    """All nodes, without what only type checkers read."""
    for child in ast.iter_child_nodes(node):
        if not (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.unparse(child.test)):
            yield child
            yield from run_time_nodes(child)


def imported_names(path: Path) -> Iterator[str]:
    """What a file imports, also inside functions, and by ``import_module("…")``; a module, or a name in one."""
    for node in run_time_nodes(parsed(path)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif (
            isinstance(node, ast.Call) and getattr(node.func, "attr", getattr(node.func, "id", None)) == "import_module"
        ):
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


# Databases

DATABASES = {"sqlite", "postgresql", "mysql", "mariadb"}
# These have dialects of providers' formats
VENDORS = ("domain/", "formats/")


def questions(node: ast.AST) -> Iterator[ast.expr]:
    """Where a module looks at the dialect of a connection, or compares something with the name of a database."""
    if isinstance(node, ast.Attribute) and node.attr == "dialect":
        yield node
    places = (ast.Compare, ast.MatchValue, ast.Subscript)
    tested = node.keys if isinstance(node, ast.Dict) else [node] if isinstance(node, places) else []
    for one in filter(None, tested):
        yield from (part for part in ast.walk(one) if isinstance(part, ast.Constant) and part.value in DATABASES)


def test_the_database_layer_alone_knows_which_database_it_is() -> None:
    """The rest asks `backend_of(connection)` for what it can do (docs/architecture.md)."""
    names = re.compile("|".join(["dialect", *DATABASES]))
    others = [path for path in FILES if not relative(path).startswith(("db/", *VENDORS))]
    paths = [path for path in others if names.search(path.read_text())]
    assert paths
    nodes = ((relative(path), node) for path in paths for node in nodes_in(path))
    asked = [(name, one.lineno) for name, node in nodes for one in questions(node)]
    assert asked == []
