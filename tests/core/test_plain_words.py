"""What a user reads is said in the words of docs/glossary.md, and none that it rules out."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterable, Iterator
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


def sources(package: str, like: re.Pattern[str]) -> Iterator[tuple[Path, str]]:
    """Modules in which something looks like it, in one literal or in two that become one: to parse
    all of them takes seconds."""
    for path in sorted((ROOT / package).rglob("*.py")):
        source = path.read_text()
        if like.search(re.sub(r"""(["'])\s*\n\s*[rf]*\1""", "", source)):
            yield path, source


def texts(source: str) -> Iterator[tuple[int, str]]:
    """String literals of a module with their lines, but docstrings of anything that is not a
    command, whose docstring is its help."""
    nodes = tuple(ast.walk(ast.parse(source)))
    unseen = set()
    for node in nodes:
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            unseen.add(node.value)
    for node in nodes:
        if isinstance(node, ast.FunctionDef) and isinstance(node.body[0], ast.Expr):
            decorators = " ".join(map(ast.unparse, node.decorator_list))
            if re.search(r"\b(command|group)\(", decorators):
                unseen.discard(node.body[0].value)
    for node in nodes:
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in unseen:
            yield node.lineno, node.value


@pytest.mark.parametrize("package", ["albor_core", "albor_tui"])
def test_no_text_of_the_product_has_an_odd_word(package):
    odd = [
        f"{path.relative_to(ROOT)}:{line}: {text}"
        for path, source in sources(package, ODD)
        for line, text in texts(source)
        if ODD.search(text)
    ]
    assert odd == []


LIFE = re.compile(
    r"\b(an?|one|each|every|this|next|last|first|newest|earlier|later|new|two|all) (life|lives)\b"
    r"|\blives of a\b",
    re.IGNORECASE,
)


def test_no_comment_or_docstring_calls_an_attempt_a_life():
    found = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()}"
        for package in ("albor_core", "albor_tui")
        for path in sorted((ROOT / package).rglob("*.py"))
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if LIFE.search(line)
    ]
    assert found == []


VAGUE = re.compile(
    r"\b(no|some)body('s)?\b|(?<!\bthere )\b(is|are|was|were) no\b(?! (longer|more than)\b)",
    re.IGNORECASE,
)
WATCHING = (
    *("albor_core/andon", "albor_core/store/watch", "albor_core/feed/attention"),
    *("albor_tui/lookout.py", "albor_tui/model/newcomers.py", "albor_tui/model/readonly.py"),
    *("albor_tui/widgets/alert_panels.py", "albor_tui/widgets/attention_panels.py"),
)
ALSO_VAGUE = re.compile(r"\beverybody('s)?\b|\bis no more\b|\bdeeds?\b|\bthe cord\b", re.IGNORECASE)


def words_of_code(source: str) -> Iterator[str]:
    """Strings, docstrings among them, and blocks of comments of a module, each on one line."""
    comment: list[str] = []
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            comment.append(token.string.lstrip("# "))
        elif token.type not in (tokenize.NL, tokenize.NEWLINE):
            yield " ".join(comment)
            comment = []
    yield " ".join(comment)
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            yield " ".join(node.value.split())


def vague(paths: Iterable[Path], pattern: re.Pattern[str]) -> list[str]:
    return [
        f"{path.relative_to(ROOT)}: {text}"
        for path in sorted(paths)
        if re.search(r"body|no\b|deed|cord", (source := path.read_text()))
        for text in words_of_code(source)
        if pattern.search(text)
    ]


@pytest.mark.parametrize("package", ["albor_core", "albor_tui"])
def test_strings_docstrings_and_comments_say_who_does_what(package):
    paths = list((ROOT / package).rglob("*.py"))
    assert len(paths) > 100
    assert vague(paths, VAGUE) == []


def test_comments_and_docstrings_of_what_watches_say_who_does_what():
    rooms = [ROOT / room for room in WATCHING]
    paths = [p for room in rooms for p in ([room] if room.is_file() else room.rglob("*.py"))]
    assert len(paths) > 60
    assert vague(paths, ALSO_VAGUE) == []


def test_vague_words_are_found_over_line_ends_and_not_where_none_is_meant():
    source = '''
def f():
    """Of a thing that is
    no thing."""
    # held while
    # nobody looks
    say("there is no run", "it is no longer here")
'''
    found = [text for text in words_of_code(source) if VAGUE.search(text)]
    assert found == ["held while nobody looks", "Of a thing that is no thing."]


PLURAL = re.compile(r"""[a-z]\((s|es|ies)\)|["']s["']""")


def undecided_plurals(source: str) -> list[int]:
    """Lines with a text such as `run(s)`, or a plural of their own, `{'s' * (n != 1)}`."""
    lines = [line for line, text in texts(source) if re.search(r"[a-z]\((s|es|ies)\)", text)]
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult):
            sides = (node.left, node.right)
            if any(isinstance(one, ast.Constant) and one.value == "s" for one in sides):
                lines.append(node.lineno)
    return sorted(lines)


@pytest.mark.parametrize("package", ["albor_core", "albor_tui"])
def test_plurals_are_written_by_number_in_one_place(package):
    home = ROOT / "albor_core/run/values/quantity.py"
    assert len(undecided_plurals(home.read_text())) == 1, "counted"
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path, source in sources(package, PLURAL)
        if path != home
        for line in undecided_plurals(source)
    ]
    assert found == [], "use counted of albor_core/run/values/quantity.py"


def test_a_plural_is_found_in_literals_and_in_templates():
    source = """
print(f"{n} run(s)")
print(f"{n} run{'s' * (n != 1)}")
print("a run (some) of p(x)")
"""
    assert undecided_plurals(source) == [2, 3]


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


def test_a_module_is_looked_into_for_words_that_two_literals_make(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "ROOT", tmp_path)
    (tmp_path / "p").mkdir()
    (tmp_path / "p" / "a.py").write_text('say(\n    "it is "\n    f"no id"\n)\n')
    ((_, source),) = sources("p", ODD)
    assert any(ODD.search(text) for _, text in texts(source))
    assert not list(sources("p", re.compile("nothing of the kind")))
