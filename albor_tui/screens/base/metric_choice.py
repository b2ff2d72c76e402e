"""The metric that the runs of an experiment are judged by, chosen with a key: the next one."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted

_CHARS = 40


class MetricRound:
    """Goes through metrics in the order in which they were first known, which a choice may change
    for everything else.
    """

    def __init__(self) -> None:
        self._known: dict[str, dict[str, None]] = {}  # by experiment

    def learn(self, names: Iterable[str], experiment: str = "") -> int:
        """Know these, too; return how many there are to choose from."""
        known = self._known.setdefault(experiment, {})
        known |= dict.fromkeys(names)
        return len(known)

    def after(self, now: str, experiment: str = "") -> str:
        """The one behind `now`; "" where none is known."""
        names: list[str] = [*self._known.get(experiment, ())]
        if now not in names:
            return names[0] if names else ""
        return names[(names.index(now) + 1) % len(names)]

    def way_back(self, before: str, now: str, experiment: str = "") -> str:
        """What to press to have `before` again; "" where that is not one of them."""
        names: list[str] = [*self._known.get(experiment, ())]
        if before not in names or now not in names or before == now:
            return ""
        times = (names.index(before) - names.index(now)) % len(names)
        return "m again" if times == 1 else f"m {times} times more"


def choice_note(
    experiments: Sequence[str],
    metric: str,
    *,
    before: str = "",
    way_back: str = "",
    is_only: bool = False,
) -> str:
    """What to say of a choice, in one line: what it was `before`, and how that comes back.
    `is_only`: there is no other metric.
    """
    names = [clean(name, limit=_CHARS) or "no experiment" for name in experiments]
    whose = names[0] if len(names) == 1 else counted(len(names), "experiment")
    shown = clean(metric, limit=_CHARS)
    if is_only:
        return f"{shown} is all that the runs of {whose} are known to log"
    said = f"{whose} {'is' if len(names) == 1 else 'are'} judged by {shown} everywhere"
    if not before or before == metric:
        return f"{said}; m: by the next"
    was = clean(before, limit=_CHARS)
    return f"{said}; {way_back} goes back to {was}" if way_back else f"{said}, before by {was}"
