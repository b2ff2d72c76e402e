"""How easily the code is found and changed: room sizes, double names, knowledge in many files.

    python benchmarks/house.py               # this checkout
    python benchmarks/house.py DIR --json    # another one, older or newer, by the same measure

Standard library only; the code is parsed, never imported. What is counted, over albor_core and
albor_tui unless said otherwise:

- flat: modules directly in a folder, `__init__` left out; above 15 (30 in tests) a folder is full.
- doubles: names of public classes that stand at the top of more than one module.
- mfu: files whose code or SQL says `mfu`; the types of documents apart.
- exit: modules that build the document albor.exit/1 (its type apart), and constants that name
  exit.json.
- checkpoint names: string constants with a pattern, prefix or f-string of `step-N`, by module.
- _number: functions of that name, at any depth.
- complex: functions with 1 + if, for, while, except, and/or, x if y else z, if of a comprehension,
  case and assert above 15; a nested function counts for itself and for the one around it.
- circles: groups of modules that import each other, in functions too, not for types alone.
- back arrows: imports against the layers of pyproject.toml's import-linter contracts.
- folder-level back arrows: two siblings in one package, at least one of them a folder, each of
  which imports from the other, whatever module of it does; imports as for circles. A circle of
  three or more siblings without such a pair counts once.
- classes: from `class` to the last line, without decorators; methods are the functions that stand
  in its body. Above 450 lines or 40 methods it is too large; a file is above 550 lines.
- lines: all lines of all *.py, and of all *.json.
- schema lines by hand: those of a *.json that describes others: "$schema" or "properties" at its
  top, or a folder `schemas`.
"""

from __future__ import annotations

import argparse
import ast
import gc
import json
import re
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from itertools import combinations
from pathlib import Path
from typing import Any

HOUSE = ("albor_core", "albor_tui")
DOCUMENTS = "albor_core.documents"
FULL, FULL_OF_TESTS, TOO_COMPLEX = 15, 30, 15
CLASS_LINES, CLASS_METHODS, FILE_LINES = 450, 40, 550
EXIT_DOCUMENT, EXIT_FILE = "albor.exit/1", "exit.json"
# what follows or precedes the number in a name, and not the "step-time" of a sentence
CHECKPOINT_NAME = re.compile(r"(?<![a-z])(?:bad-)?\)?\??step-(?=$|[\\(\[*?{0-9])")
_FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef)
_BRANCHES = (ast.If, ast.For, ast.AsyncFor, ast.While, ast.ExceptHandler, ast.IfExp, ast.Assert)


@dataclass(frozen=True)
class Module:
    """One file: its dotted name, and its text when first asked for."""

    path: Path
    name: str

    @cached_property
    def text(self) -> str:
        return self.path.read_text()

    @cached_property
    def tree(self) -> ast.Module:
        return ast.parse(self.text, str(self.path))

    @property
    def package(self) -> str:
        is_package = self.path.name == "__init__.py"
        return self.name if is_package else self.name.rpartition(".")[0]


def modules_of(root: Path) -> list[Module]:
    found = []
    for room in HOUSE:
        for path in sorted((root / room).rglob("*.py")):
            parts = path.relative_to(root).with_suffix("").parts
            found.append(Module(path, ".".join(parts[:-1] if parts[-1] == "__init__" else parts)))
    return found


# --- rooms ---------------------------------------------------------------------------------------


def flat(root: Path, rooms: Iterable[str] = HOUSE) -> dict[str, int]:
    """Folder -> modules directly in it, the largest first."""
    count: Counter[str] = Counter()
    for room in rooms:
        for path in (root / room).rglob("*.py"):
            count[str(path.parent.relative_to(root))] += path.name != "__init__.py"
    return dict(sorted(count.items(), key=lambda item: (-item[1], item[0])))


def large_classes(modules: Iterable[Module]) -> dict[str, list[int]]:
    """MODULE:CLASS -> lines and methods of those above either bar, the longest first."""
    found = {}
    for module in modules:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.ClassDef):
                continue
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            methods = sum(isinstance(one, _FUNCTIONS) for one in node.body)
            if lines > CLASS_LINES or methods > CLASS_METHODS:
                found[f"{module.name}:{node.name}"] = [lines, methods]
    return dict(sorted(found.items(), key=lambda item: (-item[1][0], item[0])))


def long_files(modules: Iterable[Module]) -> dict[str, int]:
    """Module -> lines of those above the bar, the longest first."""
    lines = {module.name: len(module.text.splitlines()) for module in modules}
    long = {name: n for name, n in lines.items() if n > FILE_LINES}
    return dict(sorted(long.items(), key=lambda item: (-item[1], item[0])))


def json_files(root: Path) -> dict[str, str]:
    """Every *.json of the two packages with its text."""
    files = (path for room in HOUSE for path in sorted((root / room).rglob("*.json")))
    return {str(path.relative_to(root)): path.read_text() for path in files}


def is_schema(name: str, text: str) -> bool:
    """Whether a JSON file describes others."""
    if "schemas" in Path(name).parts[:-1]:
        return True
    try:
        found = json.loads(text)
    except ValueError:
        return False
    return isinstance(found, dict) and not found.keys().isdisjoint({"$schema", "properties"})


# --- names and knowledge -------------------------------------------------------------------------


def doubles(modules: Iterable[Module]) -> dict[str, list[str]]:
    where = defaultdict(list)
    for module in modules:
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                where[node.name].append(module.name)
    return {name: places for name, places in sorted(where.items()) if len(places) > 1}


def naming(root: Path, word: str, *suffixes: str) -> list[str]:
    """Files of the house with one of the suffixes whose text holds `word`."""
    files = (p for room in HOUSE for p in (root / room).rglob("*") if p.suffix in suffixes)
    return sorted(str(p.relative_to(root)) for p in files if word in p.read_text())


def constants(module: Module) -> Iterator[tuple[str, int]]:
    """Every string of the code with its line, docstrings left out."""
    sentences = {
        id(node.value)
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }
    strings = [
        node
        for node in ast.walk(module.tree)
        if isinstance(node, ast.Constant) and id(node) not in sentences
    ]
    for node in sorted(strings, key=lambda node: (node.lineno, node.col_offset)):
        if isinstance(node.value, str):
            yield node.value, node.lineno
        elif isinstance(node.value, bytes):
            yield node.value.decode("latin-1"), node.lineno


def saying(modules: Iterable[Module], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{module.name}:{line}"
        for module in modules
        for value, line in constants(module)
        if pattern.search(value)
    ]


def functions(
    modules: Iterable[Module],
) -> Iterator[tuple[Module, ast.FunctionDef | ast.AsyncFunctionDef]]:
    for module in modules:
        for node in ast.walk(module.tree):
            if isinstance(node, _FUNCTIONS):
                yield module, node


def complexity(function: ast.AST) -> int:
    total = 1
    for node in ast.walk(function):
        if isinstance(node, _BRANCHES):
            total += 1
        elif isinstance(node, ast.BoolOp):
            total += len(node.values) - 1
        elif isinstance(node, ast.comprehension):
            total += len(node.ifs)
        elif isinstance(node, ast.match_case):
            total += 1
    return total


def too_complex(modules: Iterable[Module]) -> list[str]:
    """MODULE:FUNCTION N of those above the bar, the most complex first."""
    measured = ((complexity(f), f"{m.name}:{f.name}") for m, f in functions(modules))
    return [f"{name} {n}" for n, name in sorted(measured, reverse=True) if n > TOO_COMPLEX]


# --- arrows --------------------------------------------------------------------------------------


def imports(module: Module, known: set[str]) -> set[str]:
    """The modules of `known` that it imports, in functions too; not for the type checker alone."""
    found: set[str] = set()
    waiting: list[ast.AST] = [module.tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and _is_for_types(node.test):
            waiting += node.orelse
            continue
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = _absolute(module, node)
            inner = {f"{base}.{alias.name}" for alias in node.names}
            found |= (inner & known) or {base}
        waiting += ast.iter_child_nodes(node)
    return (found & known) - {module.name}


def _is_for_types(test: ast.expr) -> bool:
    names = {getattr(node, "id", getattr(node, "attr", "")) for node in ast.walk(test)}
    return "TYPE_CHECKING" in names


def _absolute(module: Module, node: ast.ImportFrom) -> str:
    if not node.level:
        return node.module or ""
    parts = module.package.split(".")
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, node.module] if node.module else base)


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Strongly connected groups of more than one (Tarjan, without recursion)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    groups: list[list[str]] = []
    for first in graph:
        if first in index:
            continue
        work = [(first, iter(sorted(graph[first])))]
        index[first] = low[first] = len(index)
        stack.append(first)
        while work:
            node, successors = work[-1]
            for successor in successors:
                if successor not in index:
                    index[successor] = low[successor] = len(index)
                    stack.append(successor)
                    work.append((successor, iter(sorted(graph[successor]))))
                    break
                if successor in stack:
                    low[node] = min(low[node], index[successor])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[node])
                if low[node] == index[node]:
                    at = stack.index(node)
                    groups.append(sorted(stack[at:]))
                    del stack[at:]
    return sorted(group for group in groups if len(group) > 1)


def folder_back_arrows(modules: Iterable[Module], graph: dict[str, set[str]]) -> list[str]:
    """PACKAGE: ONE <-> OTHER of siblings that import each other, and longer circles of siblings."""
    folders = {module.name for module in modules if module.path.name == "__init__.py"}
    packages: dict[str, dict[str, set[str]]] = defaultdict(lambda: defaultdict(set))
    for source, targets in graph.items():
        for target in targets:
            if fork := _fork(source, target):
                package, one, other = fork
                packages[package][one].add(other)
                packages[package][other] |= set()
    found = []
    for package, siblings in sorted(packages.items()):
        for group in circles(siblings):
            if not any(f"{package}.{name}" in folders for name in group):
                continue
            pairs = [
                f"{package}: {one} <-> {other}"
                for one, other in combinations(group, 2)
                if other in siblings[one] and one in siblings[other]
            ]
            found += pairs or [f"{package}: {', '.join(group)}"]
    return found


def _fork(source: str, target: str) -> tuple[str, str, str] | None:
    """The package in which the ways to two modules part, and the sibling that each goes on by."""
    ways = source.split("."), target.split(".")
    for depth, (one, other) in enumerate(zip(*ways, strict=False)):
        if one != other:
            return ".".join(ways[0][:depth]), one, other
    return None


def back_arrows(root: Path, graph: dict[str, set[str]]) -> list[str]:
    """Imports from a layer to a higher one, or between two that one line of a contract keeps apart
    (`a | b`), in every container of every contract of kind "layers".
    """
    settings = tomllib.loads((root / "pyproject.toml").read_text()).get("tool", {})
    found = set()
    for contract in settings.get("importlinter", {}).get("contracts", ()):
        if contract.get("type") != "layers":
            continue
        for container in contract.get("containers") or ("",):
            prefix = f"{container}." if container else ""
            places = dict(_places(prefix, contract["layers"]))
            for source, targets in graph.items():
                for target in targets:
                    if _goes_back(_layer(source, places), _layer(target, places), places):
                        found.add(f"{source} -> {target}")
    return sorted(found)


def _places(prefix: str, layers: Iterable[str]) -> Iterator[tuple[str, tuple[int, bool]]]:
    """Layer -> how far down it stands, and whether it must keep away from those beside it."""
    for depth, line in enumerate(layers):
        for name in re.split(r"[|:]", line):
            yield prefix + name.strip(" ()"), (depth, "|" in line)


def _layer(module: str, places: dict[str, tuple[int, bool]]) -> str | None:
    """The layer that a module lies in: the longest name that it is or is below."""
    while module and module not in places:
        module = module.rpartition(".")[0]
    return module or None


def _goes_back(source: str | None, target: str | None, places: dict[str, tuple[int, bool]]) -> bool:
    if source is None or target is None or source == target:
        return False
    (depth, is_apart), (other, _) = places[source], places[target]
    return other < depth or (other == depth and is_apart)


# --- all of it -----------------------------------------------------------------------------------


def measure(root: Path) -> dict[str, Any]:
    modules = modules_of(root)
    known = {module.name for module in modules}
    graph = {module.name: imports(module, known) for module in modules}
    rooms, tests = flat(root), flat(root, ["tests"])
    number = [f"{m.name}:{f.lineno}" for m, f in functions(modules) if f.name == "_number"]
    names = saying(modules, CHECKPOINT_NAME)
    naming_mfu = naming(root, "mfu", ".py", ".sql")
    typed = f"{DOCUMENTS.replace('.', '/')}/"
    builders = [module for module in modules if not module.name.startswith(f"{DOCUMENTS}.")]
    lines, documents = sum(len(module.text.splitlines()) for module in modules), json_files(root)
    json_lines = {name: len(text.splitlines()) for name, text in documents.items()}
    return {
        "modules": len([m for m in modules if m.path.name != "__init__.py"]),
        "lines": lines,
        "json_lines": sum(json_lines.values()),
        "lines_together": lines + sum(json_lines.values()),
        "schema_lines": sum(
            json_lines[name] for name, text in documents.items() if is_schema(name, text)
        ),
        "large_classes": large_classes(modules),
        "long_files": long_files(modules),
        "largest_folders": dict(list(rooms.items())[:10]),
        "full_folders": {name: n for name, n in rooms.items() if n > FULL},
        "full_test_folders": {name: n for name, n in tests.items() if n > FULL_OF_TESTS},
        "double_classes": doubles(modules),
        "mfu_files": [name for name in naming_mfu if not name.startswith(typed)],
        "mfu_schemas": [name for name in naming_mfu if name.startswith(typed)],
        "exit_documents": saying(builders, re.compile(f"^{re.escape(EXIT_DOCUMENT)}$")),
        "exit_names": saying(modules, re.compile(f"(^|/){re.escape(EXIT_FILE)}$")),
        "checkpoint_names": names,
        "checkpoint_name_modules": sorted({place.rpartition(":")[0] for place in names}),
        "number_functions": number,
        "complex_functions": too_complex(modules),
        "import_circles": circles(graph),
        "back_arrows": back_arrows(root, graph),
        "folder_back_arrows": folder_back_arrows(modules, graph),
    }


def table(found: dict[str, Any]) -> Iterator[str]:
    """The figures as lines of a Markdown table."""
    largest = ", ".join(f"{name} {n}" for name, n in found["largest_folders"].items())
    rows = {
        "modules in albor_core and albor_tui": found["modules"],
        "lines of code, all counted": f"{found['lines']:,}",
        "lines of JSON": f"{found['json_lines']:,}",
        "both together": f"{found['lines_together']:,}",
        "lines of JSON schema by hand": found["schema_lines"],
        f"classes over {CLASS_LINES} lines or {CLASS_METHODS} methods": len(found["large_classes"]),
        f"files over {FILE_LINES} lines": len(found["long_files"]),
        "modules flat in the largest folders": largest,
        f"folders of more than {FULL} modules": len(found["full_folders"]),
        f"test folders of more than {FULL_OF_TESTS}": len(found["full_test_folders"]),
        "public class names with two homes or more": len(found["double_classes"]),
        "files that say `mfu` (code and SQL)": len(found["mfu_files"]),
        "types of documents that say `mfu`": len(found["mfu_schemas"]),
        "places that build exit.json": len(found["exit_documents"]),
        "places that spell a checkpoint's name": len(found["checkpoint_names"]),
        "modules that do": len(found["checkpoint_name_modules"]),
        "functions called `_number`": len(found["number_functions"]),
        f"functions of complexity above {TOO_COMPLEX}": len(found["complex_functions"]),
        "import circles": len(found["import_circles"]),
        "arrows back up": len(found["back_arrows"]),
        "folder-level back arrows": len(found["folder_back_arrows"]),
    }
    yield "| what | figure |"
    yield "| --- | --- |"
    for what, figure in rows.items():
        yield f"| {what} | {figure} |"


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure how the code is laid out.")
    parser.add_argument("dir", nargs="?", type=Path, default=Path(__file__).resolve().parents[1])
    parser.add_argument(
        "--json", action="store_true", help="everything found, not its counts alone"
    )
    asked = parser.parse_args()
    gc.disable()  # all trees are kept: to look for garbage among them takes most of the time
    found = measure(asked.dir)
    print(json.dumps(found, indent=1) if asked.json else "\n".join(table(found)))


if __name__ == "__main__":
    main()
