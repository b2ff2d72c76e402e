"""A run's config twice: the file as it was written, and every field as it was resolved."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

from textual.content import Content

from albor_core.feed.archive.config_sheet import FieldView
from albor_core.run.values.clean import clean
from albor_tui.look import glyphs
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.line_list import LineList
from albor_tui.widgets.run.log_view import marked


class FoundList(LineList):
    """A list of lines in which words are looked for. Subclasses say what the text of a line is."""

    needle = ""

    def text_of(self, index: int) -> str:
        """The text of a line that is searched."""
        raise NotImplementedError

    @property
    def matches(self) -> list[int]:
        """Lines that hold the needle, in either case."""
        find = self.needle.lower()
        if not find:
            return []
        return [i for i in range(self.count()) if find in self.text_of(i).lower()]

    def search(self, needle: str) -> None:
        """Look for other words and go to the next line that holds them."""
        self.needle = needle
        matches = self.matches
        if matches and self.cursor not in matches:
            self.stand_on(next((i for i in matches if i >= self.cursor), matches[0]))
        self.refresh()

    def next_match(self, by: int) -> bool:
        """The match after or before the cursor, round the end; False where there is none."""
        matches = self.matches
        if not matches:
            return False
        if by > 0:
            self.stand_on(next((i for i in matches if i > self.cursor), matches[0]))
        else:
            self.stand_on(next((i for i in reversed(matches) if i < self.cursor), matches[-1]))
        return True

    def stand_on(self, index: int) -> None:
        """Move the cursor to a line and the line onto the screen."""
        self.cursor = index
        top, page = round(self.scroll_y), max(1, self.content_size.height)
        if not top <= index < top + page:
            self.scroll_to(y=max(0, index - page // 2), animate=False)

    def lit(self, words: str, tone: str) -> Content:
        """Text with what is looked for marked."""
        return marked(Content.styled(clean(words), tone), self.needle)


class FileList(FoundList):
    """config.yaml, line by line; comments are dim."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.file: tuple[str, ...] = ()

    def show(self, lines: tuple[str, ...]) -> None:
        if lines != self.file:
            self.file = lines
            self.lines_changed()

    def count(self) -> int:
        return len(self.file)

    def text_of(self, index: int) -> str:
        return self.file[index]

    def draw_line(self, index: int, width: int) -> Content:
        line = self.file[index]
        digits = max(2, len(str(len(self.file))))
        is_comment = line.lstrip().startswith("#")
        key, colon, value = ("", "", line) if is_comment else line.partition(":")
        tone = "$ink-faint" if is_comment else "$ink"
        number = Content.styled(f"{index + 1:>{digits}} ", "$ink-faint")
        if self.needle:
            return number + self.lit(line, tone)
        return Content.assemble(
            number,
            styled.text(key + colon, "$secondary") if colon else Content(""),
            styled.text(value, tone) if colon or is_comment else styled.text(line, tone),
        )


class FieldList(FoundList):
    """Every field under the name of its section. A mark says that it is not its default."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id)
        self.fields: tuple[FieldView, ...] = ()
        self.changed_only = False
        self._lines: list[FieldView | str] = []

    def show(self, fields: tuple[FieldView, ...], *, changed_only: bool) -> None:
        if (fields, changed_only) != (self.fields, self.changed_only):
            self.fields, self.changed_only = fields, changed_only
            self._lines = _with_sections([f for f in fields if f.is_changed or not changed_only])
            self.lines_changed()

    @property
    def current(self) -> FieldView | None:
        at = self._lines[self.cursor] if self.cursor < len(self._lines) else None
        return at if isinstance(at, FieldView) else None

    def count(self) -> int:
        return len(self._lines)

    def can_stand(self, index: int) -> bool:
        return isinstance(self._lines[index], FieldView)

    def text_of(self, index: int) -> str:
        line = self._lines[index]
        return f"{line.key} {line.value}" if isinstance(line, FieldView) else ""

    def draw_line(self, index: int, width: int) -> Content:
        line = self._lines[index]
        if isinstance(line, str):
            return styled.text(line, "bold $secondary")
        name = line.key.rsplit(".", 1)[-1]
        mark = glyphs.current.selected if line.is_changed else " "
        column = max(14, min(28, width // 2 - 4))
        left = Content.assemble(
            (f"{mark} ", "$accent"),
            styled.fit(self.lit(name, "$ink" if line.is_changed else "$ink-muted"), column),
            " ",
            self.lit(line.value, "bold $ink" if line.is_changed else "$ink"),
        )
        if not line.is_changed or line.default is None:
            return left
        was = styled.text(f"default {line.default}", "$ink-faint")
        return styled.pair(left, was, width) if left.cell_length + was.cell_length < width else left


def _with_sections(fields: Sequence[FieldView]) -> list[FieldView | str]:
    lines: list[FieldView | str] = []
    for section, members in groupby(fields, lambda field: field.key.rpartition(".")[0]):
        lines += [section or "config", *members]
    return lines
