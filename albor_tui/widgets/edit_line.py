"""One line to type in, where the text that it changes stands."""

from __future__ import annotations

import re
from dataclasses import dataclass

from textual import on
from textual.binding import Binding
from textual.geometry import Offset
from textual.message import Message
from textual.widgets import Input

from albor_core.run.values.clean import clean

_NAMED = {"\n": "n", "\t": "t"}
_ESCAPE = re.compile(r"\\(n|t|\\|x[0-9a-f]{2}|u[0-9a-f]{4}|U[0-9a-f]{8})")


def to_line(text: str) -> str:
    r"""Any text as one harmless line that `from_line` gives back: a line's end is `\n`, what a
    terminal would obey is `\x1b`. A backslash is doubled only where it would be read as one of
    these.
    """
    told = []
    for at, character in enumerate(text):
        if character in _NAMED:
            told.append(f"\\{_NAMED[character]}")
        elif character == "\\":
            follows = text[at + 1 : at + 2]
            is_read = follows in ("n", "t", "x", "u", "U", "\\") or clean(follows) != follows
            told.append("\\\\" if follows and is_read else "\\")
        elif clean(character) != character:
            code = ord(character)
            told.append(f"\\x{code:02x}" if code < 0x100 else _wide(code))
        else:
            told.append(character)
    return "".join(told)


def from_line(line: str) -> str:
    """The text that `to_line` wrote."""
    return _ESCAPE.sub(_meant, line)


def _wide(code: int) -> str:
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def _meant(found: re.Match[str]) -> str:
    word = found[1]
    if len(word) > 1:
        code = int(word[1:], 16)
        return chr(code) if code < 0x110000 else found[0]
    return {"n": "\n", "t": "\t"}.get(word, word)


class EditLine(Input):
    """Hidden until `open`. `Kept` has what was typed; escape leaves all as it was."""

    BINDINGS = [
        Binding("enter", "submit", "Keep", tooltip="Keep what is typed"),
        Binding("escape", "leave", "Leave", tooltip="Leave it as it was"),
    ]

    @dataclass
    class Kept(Message):
        """Enter: this is what it should say."""

        text: str

    class Left(Message):
        """Escape was pressed in the line."""

    def __init__(self, *, id: str) -> None:
        super().__init__(id=id, classes="edit-line -keys", compact=True, select_on_focus=False)
        self.display = False

    @property
    def is_open(self) -> bool:
        """Whether the user is typing."""
        return bool(self.display)

    def open(self, text: str, hint: str) -> None:
        """Take the focus with a text to change."""
        self.value, self.placeholder = to_line(text), hint
        self.display = True
        self.screen.set_focus(self)  # at once: what is typed next is for this line
        self.cursor_position = len(self.value)

    def place(self, at: Offset, width: int) -> None:
        """Stand at a cell of the page, so wide."""
        self.styles.offset = at
        self.styles.width = width

    def close(self) -> None:
        """Hide; the page takes the focus."""
        self.display = False

    def action_leave(self) -> None:
        self.post_message(self.Left())

    @on(Input.Submitted)
    def _submitted(self, event: Input.Submitted) -> None:
        event.stop()
        self.post_message(self.Kept(from_line(self.value)))

    @on(Input.Changed)
    def _typed(self, event: Input.Changed) -> None:
        event.stop()
