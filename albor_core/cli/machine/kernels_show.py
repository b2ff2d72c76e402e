"""`albor kernels show`: what a run recorded of its kernels and of its model's parity."""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import click

from albor_core.cli.common.lookup import find
from albor_core.cli.common.output import clean, emit, json_option, print_line, print_note, table
from albor_core.run.errors import DataError, NotFoundError
from albor_core.run.values.quantity import counted

if TYPE_CHECKING:
    from albor_core.run.rundir import RunDir

NAMES = {"kernels.chosen": "ops", "kernels.rejected": "rejected", "kernels.parity": "parity"}

_STEP = "step"  # what is rejected where it is the whole one, fused or compiled
_Key = tuple[str, str, str]


@click.command()
@click.argument("run", metavar="RUN")
@json_option
def show(run: str, as_json: bool) -> None:
    """Show which kernel runs each op of RUN and why, by the newest decision of any attempt, and how
    far its whole model is from the plain one on the CPU in fp32.

    Exits with 7 if RUN's journal is damaged, 3 if it is missing.
    """
    run_id, folder = find(run)
    if folder is None:
        raise NotFoundError(f"{run_id}: its folder is gone", hint="albor runs ls")
    document: Any = {"schema": "albor.kernels.show/1", "run": run_id, **_recorded(folder)}
    if lost := document["damaged_lines"]:
        skipped = f"{counted(lost, 'damaged line')} skipped in {folder.journal}"
        print_note(clean(f"{skipped}; next: {_next(folder)}"))
    if as_json:
        emit(document)
        return
    if not document["ops"] and not document["parity"]:
        print_line(
            f"{clean(run_id)} recorded no kernels"
            + (" in the lines that are left" if document["damaged_lines"] else "")
            + ": it is of another program, of an older version, or has not begun to train"
        )
        return
    for one in document["parity"]:
        print_line(clean(parity_line(one)))
    if document["ops"]:
        head = ("op", "dtype", "device", "backend", "candidate", "cosine", "rms error", "us")
        rows = [row for op in document["ops"] for row in _rows(op)]
        print_line(table((*head, "of its floor", "why"), rows))
    for one in document["rejected"]:
        what = f"{one['op']} {one['dtype']}".strip()
        print_line(clean(f"rejected: {what}: {one.get('reason', '')}"))


def _recorded(folder: RunDir) -> dict[str, Any]:
    """What the run decided, the newest attempt that recorded any of it, and how many lines of the
    journal are damaged. Raises NotFoundError, DataError where there is none that can be read.
    """
    decided, whole, damaged = _Decided(), 0, 0
    for record in _records(folder):
        if record is None:
            damaged += 1
            continue
        whole += 1
        if record.get("t") != "e" or record.get("name") not in NAMES:
            continue
        data = record.get("data")
        if isinstance(data, dict):
            if record["name"] == "kernels.parity":
                data = {**data, "is_bad": record.get("severity") == "warning"}
            told = {"step": record.get("step"), "attempt": record.get("attempt"), **data}
            decided.take(NAMES[record["name"]], told)
    if not whole and _size(folder):
        raise DataError(
            f"{folder.journal}: is damaged: no line of it can be read", hint=_next(folder)
        )
    return {**decided.document(), "damaged_lines": damaged}


def _records(folder: RunDir) -> Iterator[dict[str, Any] | None]:
    """The records in complete lines of a journal; None for a damaged line. Raises as
    `_recorded`."""
    from albor_core.run.checkpoints import published
    from albor_core.run.journal import read_journal
    from albor_core.run.rundir import NotPlainError

    try:
        for line in read_journal(folder.journal):
            yield line.record
    except FileNotFoundError as error:
        if folder.state.exists() or published(folder.checkpoints):  # it has begun
            raise NotFoundError(f"{folder.journal}: is missing", hint=_next(folder)) from error
    except NotPlainError as error:
        why = f"{error.strerror}, not a plain file"
        raise DataError(f"{folder.journal}: {why}", hint=_next(folder)) from error


def _size(folder: RunDir) -> int:
    return folder.journal.stat().st_size if folder.journal.exists() else 0


def _next(folder: RunDir) -> str:
    return f"albor db check {shlex.quote(str(folder.path))}"


class _Decided:
    """The newest decision of each op over all attempts, with what was rejected for it; comparisons
    of the whole model are those of the newest attempt that made any.

    A resumed attempt takes decisions over and has most of them not in its journal, or as a backend
    that was asked for and not measured: what was measured stays where the backend is the same.
    """

    def __init__(self) -> None:
        self._attempt: int | None = None
        self._ops: dict[_Key, dict[str, Any]] = {}
        self._rejected: list[dict[str, Any]] = []
        self._parity: list[dict[str, Any]] = []

    def take(self, kind: str, told: dict[str, Any]) -> None:
        """Add an event, in the order of the journal."""
        if told["attempt"] != self._attempt:
            self._attempt = told["attempt"]  # which chooses its whole step anew
            self._rejected = [one for one in self._rejected if one["op"] != _STEP]
        if kind == "parity":
            same = [one for one in self._parity if one["attempt"] == told["attempt"]]
            self._parity = [*same, told]
        elif kind == "rejected":
            self._rejected.append({"op": _STEP, "dtype": "", **told})
        else:
            self._choose(told)

    def _choose(self, told: dict[str, Any]) -> None:
        key = _key(told)
        before = self._ops.get(key)
        if (
            before is not None
            and before.get("backend") == told.get("backend")
            and before.get("candidates")
            and not told.get("candidates")
        ):
            told = before
        self._ops[key] = told
        self._rejected = [
            one for one in self._rejected if _key(one) != key or one["attempt"] == told["attempt"]
        ]

    def document(self) -> dict[str, Any]:
        return {
            "attempt": self._attempt,
            "ops": [*self._ops.values()],
            "rejected": self._rejected,
            "parity": self._parity,
        }


def _key(told: Mapping[str, Any]) -> _Key:
    """The key of a decision, of which one is valid at a time; a card's number may change between
    attempts."""
    device = str(told.get("device", "")).partition(":")[0]
    return str(told.get("op")), str(told.get("dtype")), device


def parity_line(one: Mapping[str, Any]) -> str:
    """A comparison in words."""
    when = f"whole model at {one.get('at', '?')} (step {one.get('step')})"
    if why := one.get("skipped"):
        return f"{when}: not compared: {why}"
    loss, exact = one.get("loss"), one.get("reference_loss")
    apart = None if loss is None or exact is None else loss - exact
    rounded = one.get("rounded_cosine")
    by_rounding = "" if rounded is None else f" (plain in this precision: {rounded:.6f})"
    return (
        f"{when}: cosine {_figure(one.get('cosine'), '.6f')}{by_rounding}, "
        f"largest error {_figure(one.get('max_error'), '.2e')}, "
        f"loss {_figure(loss, '.5f')} ({_figure(apart, '+.1e')} from the CPU in fp32)"
    )


def _rows(op: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """A line for each candidate, or one that says there was none."""
    of = [str(op.get(key, "")) for key in ("op", "dtype", "device", "backend")]
    why = str(op.get("evidence", ""))
    rows = [
        (
            str(one.get("backend")),
            _figure(one.get("cosine"), ".6f"),
            _figure(one.get("rms_error"), ".1e"),
            _figure(one.get("us"), ".4g"),
            _figure(one.get("floor_share"), ".0%"),
        )
        for one in op.get("candidates") or ()
    ] or [("-",) * 5]
    first, *rest = rows
    return [(*of, *first, why), *(("",) * 4 + row + ("",) for row in rest)]


def _figure(value: Any, form: str) -> str:
    return format(value, form) if isinstance(value, int | float) else "-"
