"""benchmarks/house.py: the figures of how the code is laid out are those of the code."""

from __future__ import annotations

import gc
import importlib.util
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "benchmarks" / "house.py"

PYPROJECT = """
[[tool.importlinter.contracts]]
name = "floors"
type = "layers"
containers = ["albor_core"]
layers = ["cli", "left | right", "run"]
"""
CHECKPOINTS = '''
"""Of step-{N} a docstring may speak."""
import re
NAME = re.compile(r"(bad-)?step-(\\d{8})")

def name(step):
    """step-00000001, for instance."""
    return f"step-{step:08d}"

def newest(folder):
    raise ValueError("no step-time budget", folder.glob("step-????????"))

class Reader:
    def _number(self, value):
        def _number(inner):
            return inner
        return _number(value)
'''
BRANCHES = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from albor_core.cli.show import Table

class Table: ...
class _Private: ...

def simple(a):
    return [b for b in a if b] if a else None

def many(a, b, c):
    assert a or b and c
    for one in a:
        while one:
            if one: pass
            elif two: pass
            else: pass
    try:
        pass
    except OSError: pass
    except ValueError: pass
    match a:
        case 1: pass
        case 2: pass
        case _: pass
    return [x for x in a if x if b], b if c else a
"""
OF_TYPES = """
from typing import TYPE_CHECKING
if TYPE_CHECKING:
    from albor_core.left import one
"""
LARGE_CLASS = "class Long:\n" + "    x = 1\n" * 450 + "class Short:\n" + "    x = 1\n" * 100
MANY_METHODS = "class Many:\n" + "    def a(self):\n        def b(): ...\n" * 41
FILES = {
    "pyproject.toml": PYPROJECT,
    "albor_core/__init__.py": "",
    "albor_core/cli/__init__.py": "",
    "albor_core/cli/show.py": "from albor_core.run import names\nclass Table: ...\nmfu = 1\n",
    "albor_core/documents/__init__.py": "",
    "albor_core/documents/a.py": 'mfu: float\nschema: Literal["albor.exit/1"]\n',
    "albor_core/left/__init__.py": "",
    "albor_core/left/one.py": "from albor_core.right import other\n",
    "albor_core/right/__init__.py": "",
    "albor_core/right/other.py": "def late():\n    import albor_core.right.third\n",
    "albor_core/right/third.py": "from . import other\n",
    "albor_core/left/rows/__init__.py": "",
    "albor_core/left/rows/row.py": "from albor_core.left import cells\n",
    "albor_core/left/cells/__init__.py": "",
    "albor_core/left/cells/cell.py": "def late():\n    from albor_core.left.rows import row\n",
    "albor_core/left/ring/__init__.py": "",
    "albor_core/left/ring/a.py": "from albor_core.left.to import b\n",
    "albor_core/left/to/__init__.py": "",
    "albor_core/left/ring/d.py": "",
    "albor_core/left/to/b.py": "",
    "albor_core/left/to/c.py": "from albor_core.left import fro\n",
    "albor_core/left/to/of_types.py": OF_TYPES,
    "albor_core/left/fro.py": "import albor_core.left.ring.d\n",
    "albor_core/left/plain.json": '{"mfu": 1}\n',
    "albor_core/left/of_others.json": '{"properties":\n {}}\n',
    "albor_core/left/schemas/a.json": "[\n1,\n2]\n",
    "albor_core/run/__init__.py": "",
    "albor_core/run/names.py": CHECKPOINTS,
    "albor_core/run/upwards.py": "from albor_core.cli.show import Table\n",
    "albor_core/run/words.py": 'DOCUMENT, PLACE = {"schema": "albor.exit/1"}, "exit.json"\n',
    "albor_core/run/branches.py": BRANCHES,
    "albor_core/run/table.sql": "CREATE TABLE runs (mfu REAL);\n",
    "albor_tui/__init__.py": "",
    "albor_tui/app.py": LARGE_CLASS,
    "albor_tui/many.py": MANY_METHODS,
    "tests/test_a.py": "",
}


def measured(folder: Path) -> dict:
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(folder), "--json"], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.fixture(scope="module")
def figures(tmp_path_factory):
    """Of a made-up house with one of each."""
    root = tmp_path_factory.mktemp("house")
    for name, text in FILES.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for number in range(16):
        (root / "albor_tui" / f"screen_{number}.py").touch()
    return measured(root)


def test_a_folder_is_full_by_its_modules_alone(figures):
    assert figures["full_folders"] == {"albor_tui": 18}
    assert figures["full_test_folders"] == {}
    assert figures["largest_folders"]["albor_core/run"] == 4
    assert figures["modules"] == 35


def test_every_line_counts(figures):
    of_the_house = [text for name, text in FILES.items() if name.endswith(".py") and text]
    assert figures["lines"] == sum(len(text.splitlines()) for text in of_the_house)
    assert figures["json_lines"] == 6
    assert figures["lines_together"] == figures["lines"] + 6


def test_a_schema_by_hand_is_a_json_file_that_describes_others(figures):
    assert figures["schema_lines"] == 5


def test_a_class_is_large_by_its_lines_or_its_own_methods_and_a_file_by_its_lines(figures):
    assert figures["large_classes"] == {
        "albor_tui.app:Long": [451, 0],
        "albor_tui.many:Many": [83, 41],
    }
    assert figures["long_files"] == {"albor_tui.app": 552}


def test_a_class_has_two_homes_if_it_is_public_in_both(figures):
    assert figures["double_classes"] == {
        "Table": ["albor_core.cli.show", "albor_core.run.branches"]
    }


def test_knowledge_is_found_in_code_and_sql_and_types_of_documents_apart(figures):
    assert figures["mfu_files"] == ["albor_core/cli/show.py", "albor_core/run/table.sql"]
    assert figures["mfu_schemas"] == ["albor_core/documents/a.py"]
    assert figures["exit_documents"] == ["albor_core.run.words:1"]
    assert figures["exit_names"] == ["albor_core.run.words:1"]


def test_a_checkpoint_name_is_a_pattern_and_no_sentence(figures):
    lines = CHECKPOINTS.splitlines()
    spelled = [n for n, line in enumerate(lines, 1) if "compile" in line or "step:" in line]
    spelled += [n for n, line in enumerate(lines, 1) if "glob" in line]
    assert figures["checkpoint_names"] == [f"albor_core.run.names:{n}" for n in spelled]
    assert figures["checkpoint_name_modules"] == ["albor_core.run.names"]


def test_functions_count_at_any_depth(figures):
    assert len(figures["number_functions"]) == 2


def test_complexity_is_one_and_every_branch(figures):
    # assert, or, and; for, while, if, elif; 2 excepts; 3 cases; 2 ifs of a comprehension, 1 ifexp
    assert figures["complex_functions"] == ["albor_core.run.branches:many 16"]


def test_a_circle_counts_also_where_a_function_closes_it(figures):
    assert figures["import_circles"] == [["albor_core.right.other", "albor_core.right.third"]]


def test_an_arrow_back_leads_up_or_between_rooms_kept_apart(figures):
    assert figures["back_arrows"] == [
        "albor_core.left.one -> albor_core.right.other",
        "albor_core.run.upwards -> albor_core.cli.show",
    ]


def test_a_folder_arrow_goes_back_between_two_siblings_or_around_more(figures):
    assert figures["folder_back_arrows"] == [
        "albor_core: cli <-> run",
        "albor_core.left: cells <-> rows",
        "albor_core.left: fro, ring, to",
    ]


# --- this checkout -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def checkout():
    """(benchmarks/house.py, the modules of this checkout)."""
    spec = importlib.util.spec_from_file_location("house", SCRIPT)
    house = sys.modules["house"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(house)
    gc.disable()  # to look for garbage among all syntax trees takes longer than to build them
    yield house, house.modules_of(ROOT)
    gc.enable()
    del sys.modules["house"]


def test_classes_and_files_can_be_held_in_a_head(checkout):
    house, modules = checkout
    assert not house.large_classes(modules)
    assert not house.long_files(modules)


def test_no_two_siblings_import_each_other(checkout):
    house, modules = checkout
    known = {module.name for module in modules}
    graph = {module.name: house.imports(module, known) for module in modules}
    assert house.folder_back_arrows(modules, graph) == []


def test_no_schema_is_written_by_hand(checkout):
    house, _ = checkout
    documents = house.json_files(ROOT)
    assert [name for name, text in documents.items() if house.is_schema(name, text)] == []


@pytest.mark.slow
def test_this_checkout_can_be_measured():
    done = subprocess.run([sys.executable, str(SCRIPT)], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    rows = done.stdout.splitlines()
    assert rows[0] == "| what | figure |"
    assert "| import circles | 0 |" in rows
    assert "| arrows back up | 0 |" in rows
    assert "| folder-level back arrows | 0 |" in rows
    assert "| lines of JSON schema by hand | 0 |" in rows
