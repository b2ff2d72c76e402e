"""Check one module: its types, and the tests that use it; `make quick FILE=path/to/module.py`.

Of the tests in the folder that mirrors the module's, those are run that import it. Where none does,
those there that say its name; where none does, those anywhere that import it; where none does, all
of the folder. The list is printed. Slow tests are run only where there are no others.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MIRRORS = {"albor_core": "tests/core", "albor_tui": "tests/tui", "research": "research/tests"}
NO_TESTS_RAN = 5


def mirror(module: Path, root: Path) -> list[Path]:
    """The tests in the folder that mirrors the module's, or the nearest above it that has one."""
    top, *rooms = module.parent.parts or ("",)
    if top not in MIRRORS:
        return []
    found = root / MIRRORS[top]
    for room in rooms:
        if not (found / room).is_dir():
            break
        found /= room
    return sorted(found.rglob("test_*.py"))


def imports(module: Path) -> re.Pattern[str]:
    """Matches a text that imports the module, patches it by name, or has its path."""
    parts = module.with_suffix("").parts
    parts = parts[:-1] if parts[-1] == "__init__" else parts
    last, path = re.escape(parts[-1]), re.escape(module.as_posix())
    if parts[0] not in ("albor_core", "albor_tui"):  # a script: its folder is on the path
        return re.compile(rf"^ *(?:import|from) {last}\b|{path}", re.M)
    name, parent = re.escape(".".join(parts)), re.escape(".".join(parts[:-1]))
    of_parent = rf"from {parent} import (?:\([^)]*|[^(\n]*)\b{last}\b"
    return re.compile(rf"\b{name}\b(?!\.\w+ import)|{of_parent}|{path}")


def tests_of(module: Path, root: Path = ROOT) -> list[Path]:
    """Files of tests to run for a module, which is a path from the root."""
    if module.name.startswith("test_"):
        return [root / module]
    here, name = mirror(module, root), re.compile(rf"\b{re.escape(module.stem)}\b")
    everywhere = [
        *sorted((root / "tests").rglob("test_*.py")),
        *sorted((root / "research" / "tests").rglob("test_*.py")),
    ]
    for files, pattern in (
        (here, imports(module)), (here, name), (everywhere, imports(module)),
    ):  # fmt: skip
        if found := [file for file in files if pattern.search(file.read_text())]:
            return found
    return here


def main(words: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", type=Path, help="a module of the packages, or a file of tests")
    parser.add_argument("--list", action="store_true", help="print the tests and run nothing")
    options = parser.parse_args(words)
    module = options.file.resolve()
    if module.suffix != ".py" or not module.is_file() or not module.is_relative_to(ROOT):
        parser.error(f"cannot check {options.file}: it is not a Python file of this checkout")
    module = module.relative_to(ROOT)
    tests = [str(path.relative_to(ROOT)) for path in tests_of(module)]
    print("\n".join(tests), flush=True)
    if options.list:
        return 0
    is_typed = module.parts[0] in ("albor_core", "albor_tui")
    if is_typed and (code := run("mypy", str(module))):
        return code
    if not tests:
        print(f"no test imports {module}", file=sys.stderr)
        return 0
    code = run("pytest", "-n", "0", "-m", "not gpu and not slow", *tests)
    return run("pytest", "-n", "0", "-m", "not gpu", *tests) if code == NO_TESTS_RAN else code


def run(*words: str) -> int:
    return subprocess.run([sys.executable, "-m", *words], cwd=ROOT).returncode


if __name__ == "__main__":
    sys.exit(main())
