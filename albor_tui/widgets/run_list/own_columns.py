"""The columns that the user added: metrics, params, notes; the numbers of each written alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from rich.cells import cell_len
from textual.content import Content

from albor_core.feed.runs.cells import AMOUNTS, RunCells
from albor_core.feed.runs.column_values import UNREAD, cell_value
from albor_core.feed.view.run_view import RunView
from albor_core.run.values.clean import clean
from albor_core.store.query.listing import TEXT_COLUMNS
from albor_core.store.query.terms import STATS
from albor_tui.look import glyphs
from albor_tui.look.digits import NumberFormat, number_format
from albor_tui.widgets.base import styled
from albor_tui.widgets.run_columns import BUILT_IN, TableColumn, column_key, figure

_TITLE, _TEXT, _RANK = 18, 28, 1
_UNITS = {"energy": "kWh", "gpu_hours": "GPU-hours"}


def as_number(value: object) -> float | None:
    """The value as a number, None for any other."""
    return float(value) if isinstance(value, int | float) else None


class OwnColumns:
    """Makes the columns of a list, in the order that the user gave them. Remembers how numbers were
    written, so that no digit goes while the list is scrolled.
    """

    def __init__(self) -> None:
        self._formats: dict[str, NumberFormat] = {}

    def columns(
        self, keys: Sequence[str], cells: RunCells, shown: Sequence[RunView]
    ) -> tuple[TableColumn, ...]:
        """The columns; `shown` are the runs on the screen, whose numbers are told apart."""
        keys = list(dict.fromkeys(map(column_key, keys)))
        keys = keys if "name" in keys else ["name", *keys]
        titles = _titles([key for key in keys if key not in BUILT_IN])
        return tuple(
            BUILT_IN[key] if key in BUILT_IN else self._own(key, titles[key], cells, shown)
            for key in keys
        )

    def _own(self, key: str, title: str, cells: RunCells, shown: Sequence[RunView]) -> TableColumn:
        values = [cell_value(view, key, cells) for view in shown]
        numbers = [n for value in values if (n := as_number(value)) is not None]
        shape = number_format(numbers, key)
        if numbers:
            shape = self._formats[key] = shape.joined(self._formats.get(key, shape))
        texts = [clean(v) for v in values if isinstance(v, str)]
        is_text = not numbers and bool(texts)
        widest = max((cell_len(text) for text in (*texts, *map(shape.text, numbers))), default=4)
        width = max(min(cell_len(title), _TITLE), min(widest, _TEXT))

        def cell(view: RunView, width: int) -> Content:
            return _cell(cell_value(view, key, cells), shape, width)

        align = "left" if is_text else "right"
        is_absent = key in cells.absent
        return TableColumn(
            *(title, width, _RANK, cell, align, key),
            is_own=True,
            is_absent=is_absent,
            most=max(width, widest),
        )


def _cell(value: object, shape: NumberFormat, width: int) -> Content:
    if value is UNREAD:
        return Content.styled(glyphs.current.ellipsis, "$ink-faint")
    if value is None:
        return Content.styled("-", "$ink-faint")
    if isinstance(value, str):
        return styled.text(value, "$ink")
    number = as_number(value)
    text = shape.text(number)
    if cell_len(text) > width and number is not None:  # rather fewer digits than a cut number
        text = f"{number:.{max(0, width - 7)}e}"
    return figure(text)


def _titles(keys: Sequence[str]) -> dict[str, str]:
    """The shortest heads that tell the columns apart: the last part of a param's name, with the
    stat of a metric behind it."""
    short = {key: _short(key) for key in keys}
    often = Counter((*short.values(), *(column.title for column in BUILT_IN.values())))
    return {key: _plain(key) if often[title] > 1 else title for key, title in short.items()}


def _plain(key: str) -> str:
    name, colon, stat = clean(key).rpartition(":")
    return f"{name} {stat}" if colon and stat in STATS else clean(key)


def _short(key: str) -> str:
    title = _plain(key)
    if key in AMOUNTS or key in TEXT_COLUMNS:
        return f"{title} {_UNITS[key]}" if key == "energy" else title.replace("_", " ")
    return title if "/" in title else title.rpartition(".")[2] or title
