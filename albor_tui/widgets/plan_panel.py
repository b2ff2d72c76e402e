"""What a run would be and cost, from its albor.train.plan document: problems first."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from textual.content import Content
from textual.reactive import reactive

from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.panel import Panel

_LABEL = 9
Document = Mapping[str, Any]


class PlanPanel(Panel):
    """Draws a plan; says that it is being made, or why there is none."""

    HEADING = "plan"
    document: reactive[Document | None] = reactive(None, init=False, layout=False, repaint=False)
    problem: reactive[str] = reactive("", init=False, layout=False, repaint=False)
    is_old: reactive[bool] = reactive(True, init=False, layout=False, repaint=False)

    def watch_document(self) -> None:
        self.changed()

    def watch_problem(self) -> None:
        self.changed()

    def watch_is_old(self) -> None:
        self.border_title = styled.heading("plan", "being made" if self.is_old else "")

    def draw(self, width: int, height: int) -> Content:
        if self.problem:
            return styled.rows(_wrapped(self.problem, width, "$error")[:height])
        if self.document is None:
            return Content.styled("being made", "$ink-muted")
        return styled.rows(list(plan_lines(self.document, width))[:height])


def plan_lines(document: Document, width: int) -> Iterator[Content]:
    """The lines of a plan: verdict, problems, costs, warnings, rules."""
    problems = document["problems"]
    if problems:
        words = f"{quantity.counted(len(problems), 'problem')}: nothing can be started"
        yield styled.text(f"{glyphs.current.cross} {words}", "bold $error")
        for problem in problems:
            where = f"{problem['field']}: " if problem["field"] else ""
            yield from _wrapped(f"{where}{problem['message']}", width, "$error")
            if problem["hint"]:
                yield from _wrapped(problem["hint"], width, "$ink-muted", indent="  ")
    else:
        yield Content.styled(f"{glyphs.current.check} ready to start", "bold $success")
    yield from (styled.fit(line, width) for line in _costs(document, width))
    for words in document["warnings"]:
        text = words["message"] if isinstance(words, Mapping) else words
        yield from _wrapped(f"{glyphs.current.alert} {text}", width, "$warning")
    for words in document["notes"]:
        yield from _wrapped(f"{glyphs.current.dot} {words}", width, "$ink-muted")
    if document["andon"]:
        yield Content.styled("stopped or paused by", "$ink-muted")
    for words in document["andon"]:
        yield from _wrapped(f"{glyphs.current.dot} {words}", width, "$ink-muted")


def _costs(document: Document, width: int) -> Iterator[Content]:
    model, memory, steps = document["model"], document["memory"], document["training"]
    count = model["parameters"]
    size = "of a size not known" if count is None else f"{quantity.si(count)} parameters"
    yield _line("model", f"{size}, {model['precision']}")
    yield _memory(memory, width)
    took = document["time"]
    if took:
        about = f"about {quantity.duration(took['seconds'])}, assuming {took['assumption']}"
        yield _line("time", about)
    else:
        yield _line("time", "not known")
    yield _line("steps", _algebra(steps))
    yield _line("tokens", f"{quantity.si(steps['total_tokens'])} in all")
    disk = document["disk"]
    free = quantity.byte_size(disk["free"])
    most = "not known" if disk["total"] is None else f"{quantity.byte_size(disk['total'])} at most"
    yield _line("disk", f"{most}, {free} free")
    device = document["device"]
    yield _line("device", f"{device['kind']} {device['name'] or ''}")


def _memory(memory: Mapping[str, Any], width: int) -> Content:
    total, capacity = memory["total"], memory["capacity"]
    if total is None:
        return _line("memory", "not known")
    if not capacity:
        return _line("memory", f"{quantity.byte_size(total)}, capacity not known")
    share = total / capacity
    bar = styled.bar(min(1.0, share), max(6, min(24, width // 4)), styled.load_tone(share))
    words = f" {quantity.byte_size(total)} of {quantity.byte_size(capacity)}"
    words += f" ({quantity.percent(share)})"
    return Content.assemble(("memory".ljust(_LABEL), "$ink-muted"), bar, styled.text(words, "$ink"))


def _algebra(steps: Mapping[str, Any]) -> str:
    if steps["max_steps"] is None:
        return "not known: the number of rows is not"
    per_step = quantity.si(steps["tokens_per_step"])
    words = f"{quantity.count(steps['max_steps'])} of {per_step} tokens"
    words += f", warm-up {quantity.count(steps['warmup_steps'])}"
    if steps["reachable_steps"] is not None:
        words += f", data for {quantity.count(steps['reachable_steps'])}"
    return f"{words}, {quantity.count(steps['checkpoints'])} checkpoints"


def _line(label: str, words: str) -> Content:
    return Content.assemble((label.ljust(_LABEL), "$ink-muted"), styled.text(words, "$ink"))


def _wrapped(words: str, width: int, tone: str, indent: str = "") -> list[Content]:
    """Lines of at most `width` cells."""
    content = styled.text(words, tone)
    room = max(8, width - len(indent))
    return [Content(indent) + line for line in content.wrap(room)] if words else []
