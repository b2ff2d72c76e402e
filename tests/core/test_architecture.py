"""The house: what may load what, and how light the light paths are."""

import ast
import gc
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PEOPLE_IMPORT = {"albor_core/history", "albor_core/track"}
HEAVY = {"torch", "triton", "numpy", "pyarrow", "tokenizers", "accelerate", "safetensors"}


def loaded_by(code: str) -> set[str]:
    """Top-level modules in a fresh interpreter after running `code`."""
    script = f"{code}\nimport sys\nprint('\\n'.join({{m.split('.')[0] for m in sys.modules}}))"
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, cwd=ROOT
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.split())


@pytest.mark.parametrize(
    "code",
    [
        "import albor_tui.app",
        "from albor_core.cli.main import cli; cli.main(['runs', 'ls'], standalone_mode=False)",
        "from albor_core.cli.main import cli; cli.main(['train', '--help'], standalone_mode=False)",
        "import albor_core.feed.snapshot, albor_core.store.index",
    ],
)
def test_the_light_paths_load_nothing_heavy(code, tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path))
    assert not loaded_by(code) & HEAVY


def test_help_loads_neither_pydantic_nor_sqlite_nor_textual():
    code = "from albor_core.cli.main import cli; cli.main(['--help'], standalone_mode=False)"
    assert not loaded_by(code) & ({"pydantic", "sqlite3", "textual", "yaml", "psutil"} | HEAVY)


def test_the_guard_is_standard_library_only():
    """Its process must start in milliseconds and never break with a package."""
    modules = loaded_by("import albor_core.guard.__main__, albor_core.guard.process.stub")
    # names a bare interpreter has too: site hooks of the environment, not imports of ours
    ours = modules - loaded_by("pass") - set(sys.stdlib_module_names)
    assert ours == {"albor_core"}


def imported_by(module: str) -> set[str]:
    """The modules that a module of ours imports anywhere in it, in functions too."""
    path = ROOT / f"{module.replace('.', '/')}.py"
    if not path.exists():
        path = path.with_suffix("") / "__init__.py"
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        if isinstance(node, ast.ImportFrom):
            assert node.module and not node.level, f"{module}: a relative import"
            inside = ROOT / node.module.replace(".", "/")
            found |= {node.module} if not inside.is_dir() else set()
            if inside.is_dir():
                found |= {f"{node.module}.{alias.name}" for alias in node.names}
    return found


def test_the_guard_never_imports_a_package_in_any_function():
    """Neither itself nor what it imports of `run`, and for types of `documents`, however deep."""
    waiting = {
        ".".join(p.relative_to(ROOT).with_suffix("").parts)
        for p in (ROOT / "albor_core" / "guard").rglob("*.py")
        if p.name != "__init__.py"
    }
    seen: dict[str, str] = dict.fromkeys(waiting, "")
    while waiting:
        module = waiting.pop()
        for name in imported_by(module):
            if name.split(".")[0] in sys.stdlib_module_names or name in seen:
                continue
            rooms = ("albor_core.guard.", "albor_core.run.", "albor_core.documents.")
            assert name.startswith(rooms), (module, name)
            seen[name] = module
            waiting.add(name)
    assert {"albor_core.run.rundir", "albor_core.run.liveness"} <= seen.keys()


def test_every_folder_says_in_one_line_what_it_is_and_nothing_else():
    """Importing any child runs its package marker. Rooms that people import give their names."""
    for room in ("albor_core", "albor_tui"):
        for path in (ROOT / room).rglob("__init__.py"):
            node, *names = ast.parse(path.read_text()).body
            assert isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant), path
            if path.parent.relative_to(ROOT).as_posix() not in PEOPLE_IMPORT:
                assert not names and len(path.read_text().splitlines()) == 1, path


def test_no_folder_holds_more_than_fifteen_modules():
    for room in ("albor_core", "albor_tui"):
        for folder in {path.parent for path in (ROOT / room).rglob("*.py")}:
            modules = [path for path in folder.glob("*.py") if path.name != "__init__.py"]
            assert len(modules) <= 15, folder


def test_no_folder_of_tests_holds_more_than_thirty_modules():
    for folder in {path.parent for path in (ROOT / "tests").rglob("*.py")}:
        assert len([*folder.glob("*.py")]) <= 30, folder


def test_no_function_is_too_complex_and_a_public_class_name_means_one_thing(monkeypatch):
    """As benchmarks/house.py counts them; what is above is said in parts that have names."""
    monkeypatch.syspath_prepend(ROOT / "benchmarks")
    import house

    modules = house.modules_of(ROOT)
    gc.disable()  # to look for garbage among all syntax trees takes longer than to build them
    try:
        assert house.too_complex(modules) == []
        assert house.doubles(modules) == {}
    finally:
        gc.enable()


def test_code_is_ascii_except_the_table_of_symbols():
    for room in ("albor_core", "albor_tui", "benchmarks", "research", "tests"):
        for path in (ROOT / room).rglob("*.py"):
            if path.name != "glyphs.py":
                assert path.read_bytes().isascii(), path


def test_nothing_can_unpickle_or_run_what_lies_beside_a_model():
    """A checkpoint or tokenizer from a stranger must never run code."""
    words = ("import pickle", "torch.load", "allow_pickle=True", "import dill", "joblib")
    words += ("trust_remote_code=True", "AutoTokenizer", "spec_from_file_location", "runpy")
    for path in (ROOT / "albor_core").rglob("*.py"):
        text = path.read_text()
        assert not [word for word in words if word in text], path
