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
- lines: all lines of all *.py.
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
from pathlib import Path
from typing import Any

HOUSE = ("albor_core", "albor_tui")
DOCUMENTS = "albor_core.documents"
FULL, FULL_OF_TESTS, TOO_COMPLEX = 15, 30, 15
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
    return {
        "modules": len([m for m in modules if m.path.name != "__init__.py"]),
        "lines": sum(len(module.text.splitlines()) for module in modules),
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
    }


def table(found: dict[str, Any]) -> Iterator[str]:
    """The figures as lines of a Markdown table."""
    largest = ", ".join(f"{name} {n}" for name, n in found["largest_folders"].items())
    rows = {
        "modules in albor_core and albor_tui": found["modules"],
        "lines of code, all counted": f"{found['lines']:,}",
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
