"""What a profiler trace says of one brick, in lines."""

from __future__ import annotations

from textual.content import Content

from albor_core.feed.archive.traced import TracedBricks, TracedKernel
from albor_tui.look import quantity
from albor_tui.widgets.base import styled

_NUMBERS = 27  # cells of share, count and mean


def kernel_lines(
    found: TracedBricks | None, brick: str, run: str, width: int, height: int
) -> Content:
    """The kernels of `brick` that fit into `height` lines of `width` cells; where there is no
    trace, how to get one.
    """
    if found is None:
        return Content.styled("Reading the newest trace ...", "$ink-muted")
    if not found.name:
        return styled.rows(
            [
                Content.styled("This run kept no trace.", "bold $ink"),
                Content.styled(
                    "An alert of a part of the step keeps one of the next steps.", "$ink-muted"
                ),
                styled.text(f"Once it has ended: albor profile {run}", "$ink-muted"),
            ]
        )
    if found.problem:
        return styled.text(f"cannot read the trace: {found.problem}", "$warning")
    mine = found.bricks.get(brick)
    if mine is None or not mine.kernels:
        what = "kernel" if found.is_gpu else "operator"
        return styled.text(f"The trace has no {what} in {brick}.", "$ink-muted")
    kind = "kernel" if found.is_gpu else "operator, its own time"
    names = max(12, width - _NUMBERS)
    lines = [
        Content.styled(f"{kind.ljust(names)}{'share':>7}{'a step':>9}{'mean us':>11}", "$ink-muted")
    ]
    room = max(1, height - 3)
    lines += [_line(one, names) for one in mine.kernels[:room]]
    if (more := len(mine.kernels) - room) > 0:
        lines.append(styled.text(f"and {more} more: albor profile {run}", "$ink-muted"))
    calls = f"{_count(mine.launches)} launches, " if found.is_gpu else ""
    told = f"{calls}{_count(mine.syncs)} synchronizations a step; "
    told += f"{quantity.percent(found.coverage, 1)} of it explained"
    return styled.rows([*lines, styled.text(told, "$ink-muted")])


def _line(one: TracedKernel, names: int) -> Content:
    return Content.assemble(
        styled.fit(styled.text(one.name, "$ink"), names),
        (quantity.percent(one.share, 1).rjust(7), "$ink"),
        (_count(one.per_step).rjust(9), "$ink"),
        (f"{one.mean_us:,.1f}".rjust(11), "$ink"),
    )


def _count(value: float) -> str:
    return f"{value:,.0f}" if value == int(value) else f"{value:,.1f}"
