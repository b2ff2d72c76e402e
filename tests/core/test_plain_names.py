"""Public names say what they are: none is, begins or ends with a word that says nothing, and no
class is called by a bare participle. Older names stand in a list that may only shrink."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]
EXCEPTIONS = Path(__file__).with_name("plain_names_exceptions.txt")
VAGUE = frozenset(["take", "look", "tell", "put", "forget", "words", "of", "told", "said"])
IRREGULAR = frozenset(
    [
        "built",
        "chosen",
        "done",
        "drawn",
        "found",
        "given",
        "gone",
        "held",
        "hidden",
        "kept",
        "known",
        "laid",
        "left",
        "lost",
        "made",
        "said",
        "seen",
        "sent",
        "shown",
        "taken",
        "told",
        "written",
    ]
)
NOUNS = frozenset(["bed", "embed", "feed", "need", "seed", "shed", "speed"])


def words_in(name: str) -> list[str]:
    """The words of a snake_case or CamelCase name, in lower case."""
    return [w.lower() for w in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[0-9]+", name)]


def is_vague(name: str) -> bool:
    words = words_in(name)
    return bool(words) and (words[0] in VAGUE or words[-1] in VAGUE)


def is_participle(class_name: str) -> bool:
    word, *more = words_in(class_name)
    regular = word.endswith("ed") and word not in NOUNS
    return not more and (regular or word in IRREGULAR)


def definitions(node: ast.AST, owner: str = "") -> Iterator[tuple[str, bool]]:
    """Public functions, classes and methods below `node`, by qualified name; True for a class."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef):
            if not child.name.startswith("_"):
                yield owner + child.name, False
        elif isinstance(child, ast.ClassDef):
            if not child.name.startswith("_"):
                yield owner + child.name, True
                yield from definitions(child, f"{owner}{child.name}.")
        elif isinstance(child, ast.If | ast.Try | ast.With):
            yield from definitions(child, owner)


def refused(source: str) -> list[str]:
    found = []
    for name, is_class in definitions(ast.parse(source)):
        last = name.rpartition(".")[2]
        if is_vague(last) or (is_class and is_participle(last)):
            found.append(name)
    return found


def test_public_names_say_what_they_are():
    found: Counter[str] = Counter()
    for package in ("albor_core", "albor_tui"):
        for path in sorted((ROOT / package).rglob("*.py")):
            if not path.stem.startswith("_") and is_vague(path.stem):
                found[f"{path.stem}.py"] += 1
            found.update(refused(path.read_text()))
    allowed = Counter(EXCEPTIONS.read_text().split())
    new = sorted((found - allowed).elements())
    assert new == [], "choose names that say what they are (docs/glossary.md)"
    stale = sorted((allowed - found).elements())
    assert stale == [], f"remove these lines from {EXCEPTIONS.name}, which may only shrink"


def test_the_exceptions_are_sorted():
    lines = EXCEPTIONS.read_text().splitlines()
    assert lines == sorted(lines)


def test_vague_names_and_participles_are_found():
    source = """
class Kept:
    def take(self): ...
    def _look(self): ...
    def lookup(self): ...
class KeptRows:
    class Answered: ...
class Seed: ...
class TrainerWords: ...
class Feed: ...
class _Kept:
    def take(self): ...
def row_of(x): ...
def offset(x): ...
if True:
    def put_back(): ...
"""
    expected = ["Kept", "Kept.take", "KeptRows.Answered", "TrainerWords", "row_of", "put_back"]
    assert refused(source) == expected
