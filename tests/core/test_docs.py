"""Documents tell the truth: generated pages are fresh, commands and files they name exist."""

import re
import shlex
from pathlib import Path
from urllib.parse import unquote

import click
import pytest

from albor_core.cli.main import cli
from albor_core.cli.reference import pages, walk
from albor_core.documents.json_schema import names
from albor_tui.main import parsed

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
GENERATED, LOGS = sorted(DOCS.glob("reference/*.md")), sorted(DOCS.glob("log/*.md"))
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted({*DOCS.rglob("*.md")} - {*GENERATED, *LOGS}),
]


def test_the_reference_is_what_the_code_says():
    for name, page in pages().items():
        assert (ROOT / "docs" / "reference" / name).read_text() == page, f"{name}: run make golden"


def test_every_command_explains_itself():
    mute = [path for path, command in walk(cli, "albor") if not (command.help or "").strip()]
    assert mute == []


def named_commands() -> list[tuple[str, str]]:
    """Every `albor ...` in a fenced shell block or in backticks."""
    found = []
    for page in PAGES:
        for line in re.findall(r"(?:^\$? ?|`)(albor [a-z][^`\n#|]*)", page.read_text(), re.M):
            found.append((page.name, line.strip()))
    return found


@pytest.mark.parametrize(("page", "line"), named_commands())
def test_every_command_in_the_documents_exists(page, line):
    words = shlex.split(line.replace("...", ""))[1:]
    command: click.Command = cli
    while isinstance(command, click.Group) and words and words[0][:1].isalpha():
        child = command.get_command(click.Context(command), words[0])
        if child is None and getattr(command, "default", ""):
            break
        assert child is not None, f"{page}: {line}"
        command, words = child, words[1:]
    if isinstance(command, click.Group) and (default := getattr(command, "default", "")):
        command = command.get_command(click.Context(command), default) or command
    flags = {flag for param in command.params for flag in (*param.opts, *param.secondary_opts)}
    flags |= {"--help", "-h", *(["--json"] if "--help" in words else [])}
    used = []
    for word in words:
        if word == "--":
            break
        if word.startswith("--"):
            used.append(word.split("=")[0])
    assert set(used) <= flags, f"{page}: {line}"


def cockpit_lines() -> list[tuple[str, str]]:
    """Every `albor-tui ...`, wherever it stands in a line."""
    found = []
    for page in PAGES:
        for line in re.findall(r"(albor-tui(?: [^`\n#|;)]*)?)", page.read_text()):
            if line.startswith("albor-tui --") or re.match(r"albor-tui [A-Z]", line):
                found.append((page.name, line.strip()))
    return found


@pytest.mark.parametrize(("page", "line"), cockpit_lines())
def test_every_option_of_the_cockpit_in_the_documents_exists(page, line):
    try:
        parsed(shlex.split(line)[1:])
    except SystemExit:
        pytest.fail(f"{page}: {line}")


def test_every_file_the_documents_link_to_exists():
    missing = []
    for page in (*PAGES, *LOGS, ROOT / "CHANGELOG.md"):
        for target in re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text()):
            if not (page.parent / unquote(target)).exists():
                missing.append(f"{page.name}: {target}")
    assert missing == []


def heading_links(text: str) -> set[str]:
    """What GitHub makes of the headings of a page."""
    heads = re.findall(r"^#+ (.+)$", text, re.M)
    return {re.sub(r"[^\w -]", "", head.lower()).replace(" ", "-") for head in heads}


def test_every_heading_the_documents_link_to_exists():
    missing = []
    for page in (*PAGES, *LOGS):
        for target, head in re.findall(r"\]\((?!https?:)([^)#]*)#([^)]+)\)", page.read_text()):
            linked = (page.parent / unquote(target)) if target else page
            if head not in heading_links(linked.read_text()):
                missing.append(f"{page.name}: {target}#{head}")
    assert missing == []


def test_the_index_lists_every_page_with_a_line():
    index = (DOCS / "README.md").read_text()
    listed = {DOCS / target for target in re.findall(r"\]\(([^)#]+\.md)\)", index)}
    assert listed == {*DOCS.rglob("*.md")} - {DOCS / "README.md"}


def test_every_page_that_the_code_names_exists():
    missing = []
    for package in ("albor_core", "albor_tui", "benchmarks", "configs", "examples", "research"):
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in {".py", ".yaml", ".sql"}:
                for named in re.findall(r"\bdocs/[\w/.-]+\.md\b", path.read_text()):
                    if not (ROOT / named).exists():
                        missing.append(f"{path.relative_to(ROOT)}: {named}")
    assert missing == []


def test_the_code_cites_no_document_that_is_not_here():
    """No "DESIGN 7", "C-NAME-001" or "X14": a sentence, or a page below docs/."""
    cited = []
    for package in (
        "albor_core",
        "albor_tui",
        "benchmarks",
        "configs",
        "examples",
        "research",
        "tests",
    ):
        for path in sorted((ROOT / package).rglob("*")):
            if path.suffix in {".py", ".yaml", ".sql"} and path != Path(__file__):
                for word in re.findall(r"\bDESIGN\b|\bC-[A-Z]+-\d{3}\b|\bX\d+\b", path.read_text()):
                    cited.append(f"{path.relative_to(ROOT)}: {word}")
    assert cited == []


def test_every_document_type_has_a_published_schema():
    """A schema id that code prints must be one that `albor schema` knows."""
    named = set()
    for path in (*(ROOT / "albor_core").rglob("*.py"), *(ROOT / "albor_tui").rglob("*.py")):
        named |= set(re.findall(r'"(albor\.[a-z.]+)/1"', path.read_text()))
    assert named - set(names()) == set()
