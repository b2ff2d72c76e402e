"""What a user reads is said in the words of docs/glossary.md, and none that it rules out."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ODD = re.compile(
    r"\b(no|some|every)body\b|\bmend(s|ed|ing)?\b|\bdeeds?\b|(?<!there )\b(is|are) no\b(?! longer)"
    r"|of it runs|\blast words?\b|\bat work\b|\b(a|earlier|every|next|this) life\b|\blives of\b"
    r"|\bgo(es)? on with\b|\bplays? (a|the|one|rules)\b|\bthe cord\b",
    re.IGNORECASE,
)
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]


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


def told(page: Path) -> Iterator[tuple[int, str]]:
    """Lines of a page, but of the glossary not the table of what is not said."""
    text = page.read_text()
    if page.name == "glossary.md":
        text = text.partition("## Say this, not that")[0]
    yield from enumerate(text.splitlines(), 1)


def test_no_page_has_an_odd_word():
    odd = [
        f"{page.relative_to(ROOT)}:{line}: {text}"
        for page in PAGES
        if "log" not in page.parent.parts[-1:]  # notebooks stay as they were written
        for line, text in told(page)
        if ODD.search(re.sub(r"`[^`]*`", "", text))
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
