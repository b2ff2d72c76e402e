"""What a user reads is said in plain words: no "nobody", "mend", "deed", "X is no Y"."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ODD = re.compile(
    r"\b([Nn]o|[Ss]ome)body\b|\bmend\b|\b[Dd]eeds?\b|\b(is|are) no\b(?! longer)|of it runs"
)


def texts(source: str) -> Iterator[tuple[int, str]]:
    """String literals of a module with their lines, but docstrings of anything that is not a
    command, whose docstring is its help."""
    tree = ast.parse(source)
    unseen = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            unseen.add(node.value)
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Expr):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if re.search(r"\b(command|group)\(", decorators):
                unseen.discard(node.body[0].value)
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in unseen:
            yield node.lineno, node.value


@pytest.mark.parametrize("package", ["albor_core", "albor_tui"])
def test_no_text_of_the_product_has_an_odd_word(package):
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path in sorted((ROOT / package).rglob("*.py"))
        for line, text in texts(path.read_text())
        if ODD.search(text)
    ]
    assert odd == []


def test_an_odd_word_is_found_in_messages_and_in_help_only():
    source = '''
"""nobody"""
@click.command()
def show():
    """Mends a deed."""
    say(f"{x} is no id")  # somebody
def private():
    """nobody"""
    say("it is no longer here")
'''
    assert [line for line, text in texts(source) if ODD.search(text)] == [5, 6]
