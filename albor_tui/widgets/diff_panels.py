"""The parts of a comparison, each drawn from the albor.runs.diff/1 document.

A run is a letter and a colour everywhere; the others are compared with the first one.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from typing import Any

from textual.content import Content
from textual.reactive import reactive

from albor_core.run.headlines import HEADLINES, unit_of
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted, signed
from albor_core.store.diff.judge import INSTEAD
from albor_tui.look import figures, glyphs, quantity
from albor_tui.look.run_colours import DASHES, LETTERS, RUN_TONES, RunStyle
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.panel import Panel

SECTIONS = ("config", "data", "code", "environment")
_ENDS = ("last", "best")
_WIDE, _NUMBERS = 100, 38  # cells for whole sentences; of a difference and its interval
_CELL = 7  # of a value beside others, at the least
_GOAL = 9  # of a value to be reached
_OUTCOMES: Mapping[str | None, tuple[str, str, str]] = {
    "better": ("better", "$success", "than"),
    "worse": ("worse", "$error", "than"),
    "indistinguishable": ("indistinguishable", "$warning", "from"),
    "contradictory": ("contradictory", "$warning", "against"),
    None: ("not judged", "$ink-muted", "against"),
}
Document = Mapping[str, Any]


def run_style(document: Document, index: int) -> RunStyle:
    """How a run of the document is drawn: as on all screens, where its screen says that."""
    return document["runs"][index].get("style") or RunStyle(
        RUN_TONES[index % len(RUN_TONES)],
        index // len(RUN_TONES) % DASHES,
        LETTERS[index % len(LETTERS)],
    )


def letter(document: Document, index: int) -> Content:
    """The letter that stands for a run, in its colour."""
    style = run_style(document, index)
    return Content.styled(style.letter, f"bold {style.colour}")


_LEGEND_ROWS = 3
_LEGEND_NAMES = (30, 20, 14, 10, 7, 4)  # cells of a name, where it is longer


def legend(document: Document, width: int) -> list[Content]:
    """Every run's letter and name in as few rows of `width` cells as names can be read in."""
    rows: list[Content] = []
    names = [str(run.get("name") or run["id"]) for run in document["runs"]]
    shared = _shared_start(names)
    for most in _LEGEND_NAMES:
        rows = [Content("")]
        for index in range(len(names)):
            colour = run_style(document, index).colour
            name = styled.text(names[index], colour)
            if name.cell_length > most and shared:
                name = styled.text(f"{glyphs.current.ellipsis}{names[index][shared:]}", colour)
            shown = styled.fit_middle(name, min(name.cell_length, most))
            one = Content.assemble(letter(document, index), " ", shown)
            if rows[-1].cell_length + one.cell_length > width and rows[-1].plain:
                rows.append(Content(""))
            rows[-1] += one + "  "
        if len(rows) <= (1 if len(document["runs"]) <= len(RUN_TONES) else _LEGEND_ROWS):
            break
    return rows


def _shared_start(names: Sequence[str]) -> int:
    """How many characters all names begin with alike, up to a separator."""
    ways = enumerate(zip(*names, strict=False))
    alike = next((at for at, marks in ways if len({*marks}) > 1), min(map(len, names), default=0))
    start = names[0][:alike] if len(names) > 1 else ""
    return max((start.rfind(one) + 1 for one in "-_/. "), default=0)


class DiffPanel(Panel):
    """Draws `document`."""

    document: reactive[Document | None] = reactive(None, init=False, repaint=False)

    def watch_document(self) -> None:
        self.changed()

    def draw(self, width: int, height: int) -> Content:
        if self.document is None:
            return styled.loading()
        lines = self.lines(self.document, width, height)
        if len(lines) > height:
            hidden = len(lines) - height + 1
            lines = lines[: height - 1]
            lines.append(Content.styled(f"{glyphs.current.ellipsis} {hidden} more", "$ink-muted"))
        return styled.rows([styled.fit(line, width) for line in lines])

    def lines(self, document: Document, width: int, height: int) -> list[Content]:
        """All lines; the panel cuts what does not fit and says how much."""
        raise NotImplementedError


class VerdictPanel(DiffPanel):
    """Who won, by how much, and how sure that is."""

    HEADING = "verdict"
    problem: reactive[str] = reactive("", init=False, repaint=False)

    def watch_document(self) -> None:
        self.problem = ""
        super().watch_document()

    def show_problem(self, problem: str) -> None:
        """Say why there is no comparison, where there is none yet."""
        if self.document is None:
            self.problem = problem
            self.changed()

    def draw(self, width: int, height: int) -> Content:
        if self.document is None and self.problem:
            more = f" {glyphs.current.ellipsis}"
            rows = textwrap.wrap(clean(self.problem), width, max_lines=height, placeholder=more)
            return styled.rows([Content.styled(row, "$error") for row in rows])
        return super().draw(width, height)

    def lines(self, document: Document, width: int, height: int) -> list[Content]:
        verdicts = list(document["verdicts"])
        if len(verdicts) > 1 and (why := why_of_all(document)):  # said once
            head = Content.styled("none is judged against ", "$ink-muted")
            line = head + _named(document, 0) + styled.text(f"   {why}", "$ink-muted")
            return [line, *([order] if (order := standing(document)).plain else [])]
        if len(verdicts) > 1:
            return self._many(document, verdicts, width)
        verdict, found = verdicts[0], []
        sentence = self._sentence(document, verdict, 1)
        numbers = self._numbers(document, verdict, width - sentence.cell_length - 3)
        if width >= _WIDE:
            found.append(sentence + "   " + numbers)
        else:
            numbers = self._numbers(document, verdict, width)
            found += [sentence, numbers] if numbers.plain else [sentence]
        if verdict.get("outcome") is None and (order := standing(document)).plain:
            found.append(order)
        return found + self._why(verdict, width, max(1, height - len(found)))

    def _many(self, document: Document, verdicts: Sequence[Document], width: int) -> list[Content]:
        """A line for each, in columns, all intervals on one scale."""
        is_wide = width >= _WIDE
        sentences = [
            self._sentence(document, verdict, index, is_whole=is_wide)
            for index, verdict in enumerate(verdicts, start=1)
        ]
        against = Content.assemble(("verdict against ", "bold $ink"), _named(document, 0))
        self.entitle(Content.styled("verdict", "bold $ink") if is_wide else against)
        count = max(one.get("comparisons", 1) for one in verdicts)
        told = f"verdicts and intervals corrected for {count} comparisons (Holm)"
        told = told if count > 1 else ""
        self.border_subtitle = Content.styled(told, "$ink-muted")
        room = min(max(one.cell_length for one in sentences), max(20, width - _NUMBERS))
        reach = max((_reach_of(one) for one in verdicts), default=0.0)
        found = []
        for sentence, verdict in zip(sentences, verdicts, strict=True):
            rest = self._numbers(document, verdict, width - room - 3, reach)
            if not rest.plain or verdict.get("outcome") in (None, "contradictory"):
                rest = styled.text(verdict.get("detail") or "", "$ink-muted")
            found.append(styled.fit(sentence, room) + "   " + rest)
        return found

    def _why(self, verdict: Document, width: int, room: int) -> list[Content]:
        """How a pair was judged, or why not, in at most `room` lines."""
        said = (str(verdict.get(key) or "none") for key in ("detail", "method"))
        why = "; ".join(words for words in said if words != "none")
        more = f" {glyphs.current.ellipsis}"
        wrapped = textwrap.wrap(clean(why), width, max_lines=room, placeholder=more)
        return [Content.styled(line, "$ink-muted") for line in wrapped]

    def _sentence(
        self, document: Document, verdict: Document, index: int, *, is_whole: bool = True
    ) -> Content:
        outcome = verdict.get("outcome")
        word, shade, link = _OUTCOMES.get(outcome, ("unknown", "$ink-muted", "beside"))
        said = Content.assemble(
            _named(document, index), (" is ", "$ink-muted"), (word, f"bold {shade}")
        )
        if not is_whole:
            return said
        return Content.assemble(said, (f" {link} ", "$ink-muted"), _named(document, 0))

    def _numbers(
        self, document: Document, verdict: Document, width: int, reach: float = 0.0
    ) -> Content:
        """The difference and its interval, drawn to `reach` on both sides of zero; 0: to its own
        farther end.
        """
        interval = verdict.get("interval")
        if not interval or None in interval:
            return Content("")
        shade = _OUTCOMES.get(verdict.get("outcome"), ("", "$ink-muted", ""))[1]
        judged = verdict.get("metric")
        of = f"{judged} " if judged and judged != document.get("metric") else ""
        low, high = float(interval[0]), float(interval[1])
        middle = verdict.get("difference")
        middle = (low + high) / 2 if middle is None else float(middle)
        form = _signed(low, middle, high)
        numbers = styled.text(of, "$ink-muted") + Content.assemble(
            (signed(middle, form), f"bold {shade}"),
            (f"  {verdict['confidence']:.0%} {signed(low, form)} to ", "$ink-muted"),
            (f"{signed(high, form)}  ", "$ink-muted"),
        )
        room = min(width - numbers.cell_length, 41)
        if room < 15:
            return numbers
        return numbers + interval_line(low, high, room, shade, reach or _reach_of(verdict))


def _reach_of(verdict: Document) -> float:
    """How far an interval reaches from zero; 0 without one."""
    bounds = verdict.get("interval") or (0.0, 0.0)
    return 0.0 if None in bounds else max(abs(float(bound)) for bound in bounds)


def _signed(*numbers: float) -> str:
    """The format of an interval and its middle: at least two digits of its largest bound."""
    largest = max(map(abs, numbers))
    if not largest or not math.isfinite(largest):
        return "+.4f"
    power = math.floor(math.log10(largest))
    return "+.2e" if not -8 <= power < 9 else f"+,.{max(0, min(4, 6 - power), 1 - power)}f"


def interval_line(low: float, high: float, width: int, shade: str, reach: float) -> Content:
    """A line that draws an interval relative to zero, to scale: both its ends are `reach` away."""
    half = width // 2
    a, b = (half + round(v / (reach or 1.0) * (half - 1)) for v in (low, high))
    cells = [
        (glyphs.current.bar_full, shade) if a <= i <= b else (glyphs.current.rule, "$track")
        for i in range(2 * half + 1)
    ]
    cells[half] = (glyphs.current.budget, "$ink")
    return Content.assemble(*cells[:width])


class ChangesPanel(DiffPanel):
    """A panel with the differences: config first, then data, code and environment."""

    HEADING = "what differs"

    def lines(self, document: Document, width: int, height: int) -> list[Content]:
        found = [
            self._change(document, change, section, width)
            for section in SECTIONS
            for change in document.get(section) or ()
        ]
        unknown = [part for part in SECTIONS if part in document.get("unrecorded", ())]
        silence = [Content.styled(f"not recorded: {', '.join(unknown)}", "$ink-muted")]
        if not found:
            verdicts = document.get("verdicts") or ()
            unsure = {part for verdict in verdicts for part in verdict.get("unknown") or ()}
            same = ", ".join(part for part in SECTIONS if part not in {*unknown, *unsure})
            found = [Content.styled(f"same {same}", "$ink-muted")]
            if partly := [part for part in SECTIONS if part in unsure and part not in unknown]:
                told = f"recorded in part, no difference in that: {', '.join(partly)}"
                found.append(Content.styled(told, "$ink-muted"))
        else:
            letters = [letter(document, i) for i in range(len(document["runs"]))]
            found.insert(0, _row(Content(""), letters, width))
        hidden = len(document["runs"]) - _fitting(width, len(document["runs"]))
        told = f"{counted(hidden, 'run')} more: p" if hidden > 0 else "p: as a table"
        self.border_subtitle = Content.styled(told, "$ink-muted")
        return found + silence if unknown else found

    def _change(self, document: Document, change: Document, section: str, width: int) -> Content:
        values: Sequence[Any] = change["values"]
        name = str(change["key"]) if section == "config" else f"{section}.{change['key']}"
        shown = [
            styled.text(_value(value), run_style(document, i).colour)
            for i, value in enumerate(values)
        ]
        return _row(styled.text(name, "$ink-muted"), shown, width)


def _row(name: Content, cells: list[Content], width: int) -> Content:
    label = _label_width(width)
    cell = min(28, max(_CELL, (width - label - 2) // max(1, len(cells))))
    parts = [styled.fit(name, label), Content("  ")]
    for shown in cells[: _fitting(width, len(cells))]:
        parts += [styled.fit(styled.fit_middle(shown, cell - 1), cell - 1), Content(" ")]
    return Content("").join(parts)


def _label_width(width: int) -> int:
    return min(40, max(12, width * 2 // 5))


def _fitting(width: int, count: int) -> int:
    """How many of these cells of a row fit."""
    return min(count, max(1, (width - _label_width(width) - 2) // _CELL))


class MetricsPanel(DiffPanel):
    """Last and best value of what all runs measured."""

    HEADING = "last values"
    # what is better or worse comes first, of it what was validated
    FIRST = tuple(
        one.key
        for one in sorted(
            (one for one in HEADLINES if one.stat == "last" and one.name != "loss_ema"),
            key=lambda one: (one.better is None, not one.key.startswith("val/")),
        )
    )

    def lines(self, document: Document, width: int, height: int) -> list[Content]:
        metrics: Document = document.get("metrics") or {}
        first = (document.get("metric"), *self.FIRST)
        order = [*dict.fromkeys(str(key) for key in first if key in metrics)]
        order += [key for key in metrics if key not in order and "ema" not in key]
        if not order:
            return [Content.styled("nothing that both have measured", "$ink-muted")]
        runs, fitting = len(document["runs"]), max(1, (width - 12) // 8)
        if runs > fitting and (ranks := ranked(document)):
            self.border_subtitle = Content.styled("the best first", "$ink-muted")
            return _by_run(document, ranks, width)
        count = min(runs, fitting)
        hidden = f"{runs - count} more runs do not fit: albor runs diff" if runs > count else ""
        self.border_subtitle = Content.styled(hidden, "$ink-muted")
        cell = 9 if width - 9 * count >= 18 else 8
        head = [styled.fit(Content.styled("", "$ink-muted"), width - cell * count)]
        head += [styled.fit(letter(document, i), cell, "right") for i in range(count)]
        found = [Content("").join(head)]
        for key in order:
            name = styled.fit(styled.text(key, "$ink-muted"), width - cell * count)
            stats = [stat or {} for stat in metrics[key][:count]]
            values = [styled.fit(cell_of, cell, "right") for cell_of in _lasts(key, stats, cell)]
            found.append(Content("").join([name, *values]))
        return found


def ranked(document: Document) -> list[int]:
    """The runs by the last value of the metric that they are compared by, the best first; what is
    not finite and what is not known come last. Empty where no better side is known.
    """
    way = document.get("direction")
    stats = (document.get("metrics") or {}).get(document.get("metric")) or ()
    lasts = [(stat or {}).get("last") for stat in stats]
    if way is None or all(last is None for last in lasts):
        return []
    sign = -1.0 if way == "max" else 1.0
    return sorted(range(len(lasts)), key=lambda i: (lasts[i] is None, sign * (lasts[i] or 0.0)))


def _by_run(document: Document, ranks: Sequence[int], width: int) -> list[Content]:
    """A line per run, of the metric that they are compared by."""
    key = document["metric"]
    stats = [document["metrics"][key][i] or {} for i in ranks]
    cell = 10 if width >= 40 else 8
    lasts = _lasts(key, stats, cell)
    bests = _lasts(key, [{"last": stat.get("best")} for stat in stats], cell)
    name = width - 2 * cell
    ends = [styled.fit(Content.styled(word, "$ink-muted"), cell, "right") for word in _ENDS]
    found = [Content("").join([styled.fit(styled.text(key, "$ink-muted"), name), *ends])]
    for index, last, best in zip(ranks, lasts, bests, strict=True):
        numbers = [styled.fit(one, cell, "right") for one in (last, best)]
        found.append(Content("").join([styled.fit(_named(document, index), name), *numbers]))
    return found


def standing(document: Document) -> Content:
    """The runs by their last values alone, where no verdict can be given."""
    ranks = ranked(document)
    if not ranks:
        return Content("")
    key = document["metric"]
    lasts = _lasts(key, [document["metrics"][key][i] or {} for i in ranks], 12)
    head = styled.text(f"by the last {key}, not a verdict: ", "$ink-muted")
    told = [_named(document, i) + " " + last for i, last in zip(ranks, lasts, strict=True)]
    return head + Content.styled(", ", "$ink-muted").join(told)


class ReachPanel(DiffPanel):
    """A panel with what each run needs to reach the final value of the other."""

    HEADING = "to reach the other's final value"

    def lines(self, document: Document, width: int, height: int) -> list[Content]:
        ids = [run["id"] for run in document["runs"]]
        found, others = [], 0
        metric = _reached_by(document)
        self.entitle(styled.text(f"to reach the other's final {metric}", "bold $ink"))
        goals = [*{reach.get("target"): None for reach in document.get("reach") or ()}]
        words = figures.apart(goals, [_metric(metric, goal) for goal in goals], _GOAL)
        targets = dict(zip(goals, words, strict=True))
        for reach in document.get("reach") or ():
            mine, other = ids.index(reach["run"]), ids.index(reach["other"])
            if mine and other:
                others += 1
                continue
            head = Content.assemble(
                letter(document, mine),
                (" to ", "$ink-muted"),
                (targets[reach.get("target")], "$ink"),
                (" of ", "$ink-muted"),
                letter(document, other),
                "   ",
            )
            run = document["runs"][mine]
            found.append(head + _reached(reach, run, width - head.cell_length))
        if others:
            told = f"{others} more pairs, without the first run: albor runs diff --json"
            found.append(Content.styled(told, "$ink-muted"))
        return found or [styled.text(f"no {metric} that both have measured", "$ink-muted")]


def _reached_by(document: Document) -> str:
    """The metric of `reach`: see store/diff/compare.py."""
    judged = str(document.get("metric") or "")
    return judged if judged in (document.get("metrics") or {}) else INSTEAD


def _reached(reach: Document, run: Document, width: int) -> Content:
    """Step, tokens and time; what does not fit whole is left out."""
    if reach.get("step") is None:
        if run.get("is_at_work"):
            return Content.styled("not yet", "$ink-muted")
        return Content.styled("never", "$warning")
    line = Content.assemble(("step ", "$ink-muted"), (quantity.count(reach["step"]), "$ink"))
    tokens, seconds = reach.get("tokens"), reach.get("seconds")
    parts = ((tokens, quantity.si(tokens), " tok"), (seconds, quantity.duration(seconds), ""))
    for known, words, unit in parts:
        part = Content.assemble("  ", (words, "$ink"), (unit, "$ink-muted"))
        if known and line.cell_length + part.cell_length <= width:
            line += part
    return line


def why_of_all(document: Document) -> str:
    """The one reason why no pair is judged; "" where one is, or their reasons differ."""
    verdicts = document["verdicts"]
    reasons = {_no_outcome(one) for one in verdicts}
    if len(reasons) > 1 and all(one.get("reason") == "no_common_metric" for one in verdicts):
        return f"it and the others do not both have {document['metric']}; r compares with the next"
    return reasons.pop() if len(reasons) == 1 else ""


def _no_outcome(verdict: Document) -> str:
    """Why there is none; "" where there is one."""
    return str(verdict.get("detail") or "") if verdict.get("outcome") is None else ""


def _named(document: Document, index: int) -> Content:
    run = document["runs"][index]
    style = run_style(document, index)
    return styled.text(f"{style.letter} {run.get('name') or run['id']}", f"bold {style.colour}")


def _lasts(key: str, stats: Sequence[Document], room: int) -> list[Content]:
    """The newest values, with as many digits as tell them apart in `room` cells: strict JSON has
    none for what is not finite.
    """
    numbers = [stat.get("last") for stat in stats]
    words = figures.apart(numbers, [_metric(key, number) for number in numbers], room - 1)
    return [
        Content.styled("NaN/Inf", "bold $error")
        if stat.get("last") is None and stat.get("nonfinite")
        else Content.styled(word, "$ink")
        for stat, word in zip(stats, words, strict=True)
    ]


def _metric(key: str, value: float | None) -> str:
    unit = "loss" if "loss" in key else unit_of(key)
    if unit in ("loss", "share", "lr", "tokens"):
        return figures.text_of(unit, value)
    if key.endswith("_bytes"):
        return quantity.byte_cell(value)
    return quantity.ratio(value) if value is None or abs(value) < 1000 else quantity.si(value)


def _value(value: Any) -> str:
    if value is None:
        return glyphs.current.missing
    if isinstance(value, float):
        return f"{value:g}"
    return str(value)
