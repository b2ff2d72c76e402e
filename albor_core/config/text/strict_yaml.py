"""YAML for configs: plain data with the line of every value, and nothing that can surprise or hurt.

Scalars follow YAML 1.2's core rules (`3e-4` is a number, `no` is a word, `010` is ten), unlike
PyYAML's own 1.1. Refused with their line: duplicate keys, tags, more than 100 aliases, more than 32
levels, more than 100,000 values after aliases are expanded, more than 1 MiB, two documents.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import yaml

from albor_core.run.errors import ConfigError, Problem

MAX_BYTES = 1 << 20
MAX_ALIASES = 100
MAX_DEPTH = 32
MAX_VALUES = 100_000
MAX_PROBLEMS = 100
"""What is told of one file, of each kind; of more it is told how many there are."""

KeyPath = tuple[str | int, ...]
_TAG = "tag:yaml.org,2002:"
_RULES: dict[str, tuple[re.Pattern[str], list[str]]] = {  # tag: pattern, first characters
    "null": (re.compile(r"~|null|Null|NULL|"), ["~", "n", "N", ""]),
    "bool": (re.compile(r"true|True|TRUE|false|False|FALSE"), list("tTfF")),
    "int": (re.compile(r"[-+]?[0-9][0-9_]*|0x[0-9a-fA-F]+"), list("-+0123456789")),
    "float": (
        re.compile(
            r"[-+]?(?:[0-9][0-9_]*\.[0-9]*|\.[0-9]+|[0-9][0-9_]*(?=[eE]))(?:[eE][-+]?[0-9]+)?"
            r"|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)"
        ),
        list("-+.0123456789"),
    ),
    "merge": (re.compile(r"<<"), ["<"]),
}


@dataclass(frozen=True)
class YamlDocument:
    """Plain data (dict, list, str, int, float, bool, None) and the line, from 1, of each value."""

    data: Any
    lines: dict[KeyPath, int] = field(default_factory=dict)


class _Loader(yaml.SafeLoader):
    """Composes nodes only; counts aliases and depth while it does, so a bomb never unfolds."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012
    aliases = 0
    depth = 0

    def compose_node(self, parent: Any, index: Any) -> Any:
        self.aliases += self.check_event(yaml.AliasEvent)
        self.depth += 1
        if self.aliases > MAX_ALIASES or self.depth > MAX_DEPTH:
            what = f"{MAX_DEPTH} levels" if self.depth > MAX_DEPTH else f"{MAX_ALIASES} aliases"
            mark = self.peek_event().start_mark  # type: ignore[no-untyped-call]
            raise yaml.MarkedYAMLError(problem=f"more than {what}", problem_mark=mark)
        node = super().compose_node(parent, index)
        self.depth -= 1
        return node


for _name, (_pattern, _first) in _RULES.items():
    _whole = re.compile(rf"(?:{_pattern.pattern})\Z")  # PyYAML asks match(), not fullmatch()
    _Loader.add_implicit_resolver(_TAG + _name, _whole, _first)


def load_yaml(raw: bytes, *, file: str) -> YamlDocument:
    """The one document in `raw`. Raises ConfigError whose problems name file:line."""
    document, problems = read_yaml(raw, file=file)
    if problems:
        raise refusal(problems, file=file)
    return document


def read_yaml(raw: bytes, *, file: str) -> tuple[YamlDocument, list[Problem]]:
    """The one document in `raw` and what it says that is refused; such values are None. Raises
    ConfigError for what is not a document, or unfolds to too much.
    """
    if len(raw) > MAX_BYTES:
        raise refusal([Problem("", f"is {len(raw):,} bytes, more than {MAX_BYTES:,}", file=file)])
    try:
        node = yaml.compose(raw.decode(), Loader=_Loader)
    except UnicodeDecodeError as error:
        line = raw[: error.start].count(b"\n") + 1
        raise refusal([Problem("", "is not UTF-8", file=f"{file}:{line}")]) from error
    except yaml.YAMLError as error:
        raise refusal([_syntax_problem(error, raw, file)]) from error
    builder = _Builder(file)
    data = None if node is None else builder.value(node, ())
    if builder.is_bomb:
        raise refusal(builder.problems, file=file)
    found = [*builder.problems, *untold(builder.untold, file)]
    return YamlDocument(data, builder.lines), found


def untold(number: int, file: str) -> Iterator[Problem]:
    """The note that there are more problems than the listed ones."""
    if number:
        yield Problem("", f"has {number:,} more problems", "correct those first", file)


def refusal(problems: list[Problem] | tuple[Problem, ...], *, file: str = "") -> ConfigError:
    """One ConfigError for everything found: the one problem itself, or how many there are."""
    first = problems[0]
    if len(problems) == 1:
        headline = str(Problem(first.field, first.message, "", first.file))
        return ConfigError(headline, hint=first.hint, problems=tuple(problems))
    where = f"{file}: " if file else ""
    return ConfigError(f"{where}{len(problems)} problems", problems=tuple(problems))


class _Builder:
    """Nodes to data. Shared nodes are visited once per use, within MAX_VALUES and MAX_DEPTH."""

    def __init__(self, file: str) -> None:
        self.file = file
        self.lines: dict[KeyPath, int] = {}
        self.problems: list[Problem] = []
        self.is_bomb = False
        self.untold = 0
        self._values = 0

    def value(self, node: yaml.Node, path: KeyPath) -> Any:
        self._values += 1
        self.lines.setdefault(path, node.start_mark.line + 1)
        if self._values > MAX_VALUES or len(path) > MAX_DEPTH:
            if not self.is_bomb:
                self.is_bomb = True
                self._refuse(node, path[:4], "unfolds to too much: a chain of aliases")
            return None
        if isinstance(node, yaml.MappingNode) and node.tag == _TAG + "map":
            return self._mapping(node, path)
        if isinstance(node, yaml.SequenceNode) and node.tag == _TAG + "seq":
            return [self.value(child, (*path, i)) for i, child in enumerate(node.value)]
        if isinstance(node, yaml.ScalarNode) and node.tag.removeprefix(_TAG) in _SCALARS:
            return self._scalar(node, path)
        self._refuse(node, path, f"the tag {node.tag.replace(_TAG, '!!')} is not allowed")
        return None

    def _scalar(self, node: yaml.ScalarNode, path: KeyPath) -> Any:
        try:
            return _SCALARS[node.tag.removeprefix(_TAG)](node.value)
        except ValueError:
            self._refuse(node, path, f"{node.value[:40]!r} is not what its tag says")
            return None

    def _mapping(self, node: yaml.MappingNode, path: KeyPath) -> dict[str, Any]:
        merged: dict[str, Any] = {}
        own: dict[str, Any] = {}
        for key_node, child in node.value:
            if key_node.tag == _TAG + "merge":
                for source in self._merge_sources(child, path):
                    merged = {**(self.value(source, path) or {}), **merged}
                continue
            if not isinstance(key_node, yaml.ScalarNode):
                self._refuse(key_node, path, "a key must be a word")
                continue
            key = str(key_node.value)
            if key in own:
                before = self.lines[(*path, key)]
                message = f"is given twice, first on line {before}"
                self._refuse(key_node, (*path, key), message, "keep one of them")
                continue
            self.lines[(*path, key)] = key_node.start_mark.line + 1
            own[key] = self.value(child, (*path, key))
        return {**merged, **own}

    def _merge_sources(self, node: yaml.Node, path: KeyPath) -> Iterator[yaml.MappingNode]:
        for source in node.value if isinstance(node, yaml.SequenceNode) else [node]:
            if isinstance(source, yaml.MappingNode):
                yield source
            else:
                self._refuse(source, path, "<< takes a mapping or a list of mappings")

    def _refuse(self, node: yaml.Node, path: KeyPath, message: str, hint: str = "") -> None:
        if len(self.problems) >= MAX_PROBLEMS:
            self.untold += 1
            return
        where = f"{self.file}:{node.start_mark.line + 1}"
        self.problems.append(Problem(".".join(map(str, path)), message, hint, where))


def _integer(text: str) -> int:
    if len(text) > 40:  # nothing in a config is that large; int() of a long text is quadratic
        raise ValueError("too long")
    return int(text, 16) if text.startswith("0x") else int(text)


def _float(text: str) -> float:
    lowered = text.lower()
    return float(lowered.replace(".inf", "inf").replace(".nan", "nan").replace("_", ""))


_SCALARS: dict[str, Callable[[str], Any]] = {
    "str": str,
    "int": _integer,
    "float": _float,
    "bool": lambda text: text.lower() == "true",
    "null": lambda text: None,
}


def _syntax_problem(error: yaml.YAMLError, raw: bytes, file: str) -> Problem:
    mark = getattr(error, "problem_mark", None) or getattr(error, "context_mark", None)
    if isinstance(error, yaml.MarkedYAMLError) and mark is not None:
        parts = [part for part in (error.problem, error.context) if part]
        hint = "indent with spaces, not tabs" if "'\\t'" in (error.problem or "") else ""
        return Problem("", ", ".join(parts), hint, f"{file}:{mark.line + 1}")
    if isinstance(error, yaml.reader.ReaderError):
        line = raw.decode()[: error.position].count("\n") + 1
        return Problem("", f"holds the character {error.character!r}", file=f"{file}:{line}")
    return Problem("", str(error), file=file)
