"""Which config, and its fields as a form: one line per field with its value, what is wrong with it
or what it means. The form knows nothing of files; it shows what it is given."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import TYPE_CHECKING

from textual.content import Content
from textual.reactive import reactive

from albor_core.run.errors import Problem
from albor_tui.look import glyphs, quantity
from albor_tui.model.launchpad import ConfigFile
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList

if TYPE_CHECKING:
    from albor_core.config.reference import FieldDoc

now_wall = time.time  # replaced in tests
NAME = "name"  # the one field that is not part of a config


class ConfigList(LineList):
    """Configs to choose from."""

    configs: reactive[tuple[ConfigFile, ...]] = reactive((), init=False, repaint=False)

    @property
    def current(self) -> ConfigFile | None:
        return self.configs[self.cursor] if self.cursor < len(self.configs) else None

    def watch_configs(self) -> None:
        self.lines_changed()

    def count(self) -> int:
        return len(self.configs)

    def draw_line(self, index: int, width: int) -> Content:
        one = self.configs[index]
        longest = max(len(str(config.path)) for config in self.configs)
        room = min(longest, max(20, width // 2))
        path = styled.fit_middle(styled.text(one.path, "$ink"), room)  # ends tell them apart
        name = styled.fit(path, room)
        when = "" if one.launched is None else f"launched {_ago(one.launched)} ago  "
        about = styled.text(one.about, "$ink-muted")
        return Content.assemble(" ", name, "  ", (when, "$accent"), about)


class ConfigForm(LineList):
    """The fields of a config. A line is a heading (its section) or a field."""

    def __init__(self, *, id: str | None = None) -> None:
        super().__init__(id=id)
        self._fields: tuple[FieldDoc, ...] = ()
        self._lines: list[FieldDoc | str] = []
        self._values: Mapping[str, str] = {}
        self._changed: frozenset[str] = frozenset()
        self._problems: dict[str, Problem] = {}
        self._words = ""

    @property
    def current(self) -> FieldDoc | None:
        """The field under the cursor; None on the run's name or on nothing."""
        line = self._lines[self.cursor] if self.cursor < len(self._lines) else None
        return None if line is None or isinstance(line, str) else line

    @property
    def is_on_name(self) -> bool:
        return self.cursor < len(self._lines) and self._lines[self.cursor] == NAME

    @property
    def is_filtered(self) -> bool:
        return bool(self._words)

    def value(self, key: str) -> str:
        """The value of a field, as it would be typed."""
        return self._values.get(key, "")

    def show(
        self,
        fields: tuple[FieldDoc, ...],
        values: Mapping[str, str],
        changed: frozenset[str],
        problems: tuple[Problem, ...],
    ) -> None:
        """These fields and values; `changed` differ from the file."""
        self._fields, self._values, self._changed = fields, values, changed
        self._problems = {}
        known = {field.key for field in fields}
        for problem in problems:
            self._problems.setdefault(_owner(problem.field, known), problem)
        self._arrange()

    def find(self, words: str) -> None:
        """Show only fields whose key or meaning holds every word, and stand on the one that was
        most likely meant."""
        self._words = words
        self._arrange()
        found = [(at, line) for at, line in enumerate(self._lines) if not isinstance(line, str)]
        if (wanted := words.lower().split()) and found:
            self.cursor = min(found, key=lambda one: _farness(one[1], wanted))[0]
            self.action_move(0)

    def _arrange(self) -> None:
        wanted = self._words.lower().split()
        here = self.current
        lines: list[FieldDoc | str] = [] if wanted else [NAME]
        section = ""
        for field in self._fields:
            if not all(word in f"{field.key} {field.meaning}".lower() for word in wanted):
                continue
            if field.section != section:
                section = field.section
                lines.append(f"# {section}")
            lines.append(field)
        self._lines = lines
        if here is not None and here in lines:
            self.set_reactive(LineList.cursor, lines.index(here))
        self.lines_changed()

    def count(self) -> int:
        return len(self._lines)

    def can_stand(self, index: int) -> bool:
        line = self._lines[index]
        return not (isinstance(line, str) and line.startswith("#"))

    def draw_line(self, index: int, width: int) -> Content:
        line = self._lines[index]
        label = min(28, max(18, width // 3))
        if line == NAME:
            value = self.value(NAME)
            shown = styled.text(value, "$accent") if value else _unset("from the config's name")
            return Content.assemble(
                " ", styled.fit(Content.styled("run name", "$ink"), label), shown
            )
        if isinstance(line, str):
            return styled.text(line.removeprefix("# "), "bold $secondary")
        problem = self._problems.get(line.key)
        is_changed = line.key in self._changed
        name = line.key.removeprefix(f"{line.section}.")
        mark = glyphs.current.cross if problem else glyphs.current.selected if is_changed else " "
        tone = "$error" if problem else "$accent" if is_changed else "$ink"
        raw = self.value(line.key)
        shown = _unset(line.default) if raw in ("", "null") else styled.text(raw, tone)
        room = max(10, (width - label) // 3)
        return Content.assemble(
            (mark, tone),
            styled.fit(styled.text(name, "$ink"), label),
            styled.fit(shown, room),
            "  ",
            styled.text(problem.message, "$error")
            if problem
            else styled.text(line.meaning, "$ink-muted"),
        )


def _farness(field: FieldDoc, wanted: list[str]) -> int:
    """How far a field is from the words that found it: its name, the beginning of its last part,
    a piece of its name, its meaning."""
    key = field.key.lower()
    last = key.rpartition(".")[2]

    def rank(word: str) -> int:
        near = (word in (key, last), last.startswith(word), word in key)
        return near.index(True) if any(near) else len(near)

    return sum(map(rank, wanted))


def _owner(field: str, known: set[str]) -> str:
    """The field of the form that a problem belongs to: `monitoring.alerts.0.action` is one of
    `monitoring.alerts`."""
    parts = field.replace("[", ".").replace("]", "").split(".")
    for end in range(len(parts), 0, -1):
        if ".".join(parts[:end]) in known:
            return ".".join(parts[:end])
    return field


def _ago(wall: float) -> str:
    return quantity.age(max(0.0, now_wall() - wall))


def _unset(default: str) -> Content:
    return styled.text(default, "$ink-muted")
