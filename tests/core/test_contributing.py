"""README, CONTRIBUTING.md and the tree of docs/architecture.md name what is there."""

from __future__ import annotations

import ast
import re
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
README, ARCHITECTURE = ROOT / "README.md", ROOT / "docs" / "architecture.md"
PAGES = (README, ROOT / "CONTRIBUTING.md", ARCHITECTURE)
TOPS = ("albor_core/", "albor_tui/", "tests/", "docs/", "configs/", "benchmarks/", "research/")


def rooms() -> dict[str, str]:
    """Every folder of the two packages, with the first line of its __init__."""
    return {
        path.parent.relative_to(ROOT).as_posix(): (
            ast.get_docstring(ast.parse(path.read_text())) or ""
        ).partition("\n")[0]
        for package in ("albor_core", "albor_tui")
        for path in (ROOT / package).rglob("__init__.py")
    }


def tree() -> dict[str, str]:
    """The folders of the tree in docs/architecture.md with their sentences."""
    (block,) = re.findall(r"^```text\n(albor_core/.*?)^```$", ARCHITECTURE.read_text(), re.M | re.S)
    found, above = {}, []
    for line in block.splitlines():
        indent, name, sentence = re.fullmatch(r"( *)(\S+)/ +(.*)", line).groups()
        above = [*above[: len(indent) // 2], name]
        found["/".join(above)] = sentence
    return found


def test_the_drawn_tree_is_the_tree_of_the_code():
    drawn = {name: words for name, words in tree().items() if name.startswith("albor_")}
    assert drawn == rooms()
    assert all((ROOT / name).is_dir() for name in tree())


def test_the_first_forty_lines_of_the_readme_show_install_and_use_it():
    head = "\n".join(README.read_text().splitlines()[:40])
    assert re.search(r"^!\[.+\]\(docs/pictures/\w+\.svg\)$", head, re.M)
    assert "git clone" in head and "pip install ./albor" in head
    (code,) = re.findall(r"^```python\n(.*?)^```$", head, re.M | re.S)
    assert len(code.splitlines()) == 3


def test_the_readme_links_to_every_guide():
    guides = {path.relative_to(ROOT).as_posix() for path in ROOT.glob("docs/how-to/*.md")}
    assert guides <= set(re.findall(r"\]\(([^)#]+)", README.read_text()))


def named(page: Path) -> list[str]:
    """Paths in backticks."""
    words = re.findall(r"`([^`\n]+)`", page.read_text())
    plain = re.compile(r"[\w./-]+(:\w+)?")
    return sorted({word for word in words if word.startswith(TOPS) and plain.fullmatch(word)})


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_path_and_every_name_in_it_exists(page):
    missing = []
    for word in named(page):
        path, _, name = word.partition(":")
        file = ROOT / path
        if not file.exists() or (
            name
            and not re.search(rf"^ *(?:class |def |async def )?{name}\b", file.read_text(), re.M)
        ):
            missing.append(word)
    assert missing == []


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_every_make_target_and_every_module_exists(page):
    text = page.read_text()
    targets = set(re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.M))
    asked = re.findall(r"(?:`|^)make ([a-z]+)", text, re.M)
    assert set(asked) <= targets
    modules = re.findall(r"python -m ([a-z_.]+)", text)
    modules += re.findall(r"`(albor_(?:core|tui)(?:\.[a-z_]+)+)`", text)
    assert [module for module in modules if find_spec(module) is None] == []


def test_there_is_a_way_to_all_rooms_from_the_table_of_changes():
    """Somebody who wants to change something in a room finds at least one place to begin."""
    text = ARCHITECTURE.read_text()
    rows = re.findall(r"^\| [^|]+ \| .*`albor_(?:core|tui)/.*$", text, re.M)
    assert len(rows) >= 30
    missing = [
        room
        for room in rooms()
        if room.count("/") == 1
        and f"`{room}/" not in text
        and room not in ("albor_core/demo", "albor_core/model", "albor_core/report")
    ]
    assert missing == []
