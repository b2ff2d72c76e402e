"""Reconstructs the batch of a step of a run from its config, its checkpoints and its journal, with
the same functions that the training used.

The newest checkpoint before the step has the position in the data; from there on steps are counted.
The journal has everything else that moves the position: rollbacks, which skip batches, and settings
that a resume changed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from albor_core.config.clock import Clock, Place, place_in
from albor_core.config.config import Config
from albor_core.config.load import parse_config
from albor_core.config.recipes.own import own_class
from albor_core.data.load.source import Rows, TokenSource
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.run.checkpoints import MANIFEST, published
from albor_core.run.errors import ConfigError, DataError, NotFoundError
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir, read_json

_DECIDES = (
    *("data.train", "data.mixture", "data.curriculum", "data.fim", "data.batch_size"),
    *("data.seq_len", "data.shuffle", "data.input_column", "training.seed", "training.epochs"),
    *("training.gradient_accumulation", "training.batch_ramp"),
)
"""Settings that decide which tokens a step holds."""


@dataclass(frozen=True)
class ShownRow:
    """One sequence of a batch, as it was trained on."""

    row: int
    """Of its split, counted as data.seq_len cuts it, and as its epoch joins it."""
    epoch: int
    """Of its source, from 1 on."""
    source: str | None
    """Its source in a mixture."""
    tokens: int
    documents: tuple[int, ...]
    """First position of each document, or what of it lies in the row; of the row itself where
    nothing tells documents apart."""
    text: str | None
    """Special tokens and all; None without data.tokenizer."""
    fim: bool
    """Whether a document of it is cut for filling in the middle."""


@dataclass(frozen=True)
class StepBatch:
    step: int
    rows: tuple[ShownRow, ...]


def step_batch(run: RunDir, step: int | None = None) -> StepBatch:
    """The batch of `step` (1 is the first; default: the newest).

    Raises NotFoundError if the run has no such step, ConfigError if its data are read by a user's
    class, DataError if they are gone or changed, or if nothing shows which rows the step used.
    """
    newest = int((read_json(run.state) or {}).get("global_step") or 0)
    number = newest if step is None else step
    if not 1 <= number <= newest:
        what = f"no step {number}" if step is not None and newest else "no step yet"
        hint = f"--step 1 to {newest}" if newest else f"albor logs {run.id}"
        raise NotFoundError(f"{run.id} has {what}", hint=hint)
    found = _Begin.of(run, number)
    config = found.config
    source = TokenSource(config, validation=False)
    _refuse_others(run, found, source)
    order = source.order()
    clock = Clock.of(config, order.num_sequences, found.unit)
    place = found.place(order.num_sequences, clock)
    if found.trainer is not None:
        order.resume(found.trainer.get("order") or {}, place.cursor)
    place = _place_before(run, number, clock, place, found)
    batch = clock.batch_at(place.sequences)
    rows = order.part(clock.start(place.cursor, batch), 0, batch)
    return StepBatch(number, tuple(_shown(config, source, rows)))


@dataclass(frozen=True)
class _Begin:
    """The start of the counting: the newest checkpoint before a step, or the beginning of the
    run."""

    config: Config
    trainer: Mapping[str, Any] | None
    data_hash: str | None
    offset: int
    """Of the journal, when the checkpoint was made."""
    changes: frozenset[int]
    """Steps at which what decides the data was changed since then."""

    @classmethod
    def of(cls, run: RunDir, step: int) -> _Begin:
        current = parse_config(run.config_resolved.read_bytes(), file=str(run.config_resolved))
        steps = {number: path for path, number in published(run.checkpoints).items()}
        for number in sorted((one for one in steps if one < step), reverse=True):
            trainer = read_json(steps[number] / "trainer.json")
            manifest = read_json(steps[number] / MANIFEST)
            if trainer is not None and manifest is not None:
                config = Config.model_validate(trainer["config"])
                offset = int((manifest.get("journal") or {}).get("offset") or 0)
                since = {one.step for one in _turns(run, offset) if one.field}
                is_current = since == {number}  # changed by the resume from here, and never since
                return cls(
                    _ours(current if is_current else config),
                    trainer,
                    manifest.get("data_hash"),
                    offset,
                    frozenset() if is_current else frozenset(since),
                )
        if current.training.continue_from is not None:
            hint = f"steps after {min(steps)} are known" if steps else ""
            raise _forgotten(run, step, "its run goes on from another's checkpoint", hint)
        known = (run.metadata().get("data") or {}).get("train") or {}
        changes = frozenset(one.step for one in _turns(run, 0) if one.field)
        return cls(_ours(current), None, known.get("data_hash"), 0, changes)

    @property
    def unit(self) -> int | None:
        saved = (self.trainer or {}).get("progress") or {}
        return int(saved["unit"]) if saved.get("unit") else None

    def place(self, num_sequences: int, clock: Clock) -> Place:
        if self.trainer is None:
            return Place(unit=clock.unit)
        length = self.config.data.seq_len
        return place_in(self.trainer, seq_len=length, num_sequences=num_sequences)


def _ours(config: Config) -> Config:
    if own_class(config.training.mode) is not None:
        what = f"training.mode {config.training.mode} reads its data by code of its own"
        raise ConfigError(what, hint="ask that for a batch")
    return config


def _forgotten(run: RunDir, step: int, why: str, hint: str = "") -> DataError:
    hint = hint or f"albor checkpoints ls {run.id}"
    return DataError(f"{run.id}: what step {step} read is not known any more: {why}", hint=hint)


def _refuse_others(run: RunDir, found: _Begin, source: TokenSource) -> None:
    if found.data_hash is not None and found.data_hash != source.data_hash:
        folders = [str(part.shards.manifest.directory) for part in source.parts]
        raise DataError(
            f"{', '.join(folders)}: not the shards that {run.id} was trained on then",
            hint="put them back",
        )


def _place_before(run: RunDir, step: int, clock: Clock, place: Place, found: _Begin) -> Place:
    """The position of the run when `step` began, counted from `place` on."""
    for at in sorted(found.changes):
        if at < step or found.trainer is None:  # without a checkpoint, what stood there is unknown
            raise _forgotten(run, step, f"its data settings were changed at step {at}")
    rollbacks = [one for one in _turns(run, found.offset) if not one.field]
    counting = [i for i, one in enumerate(rollbacks) if one.to < step]
    begun = copy(place)
    for one in rollbacks[: counting[-1] + 1] if counting else ():
        cursor = _after(clock, place, one.step).cursor
        place = _after(clock, copy(begun), one.to)
        place.cursor = cursor
    return _after(clock, place, step - 1)


def _after(clock: Clock, place: Place, step: int) -> Place:
    while place.step < step:
        clock.advance(place)
    return place


@dataclass(frozen=True)
class _Turn:
    """A rollback from `step` to `to`; or, with a `field`, a setting that was changed at `step`."""

    step: int
    to: int = 0
    field: str = ""


def _turns(run: RunDir, offset: int) -> Iterator[_Turn]:
    """Turns from byte `offset` of the journal on. A rollback that was not saved before its attempt
    ended was repeated, or did not happen.
    """
    unsaved: list[_Turn] = []
    attempt = None
    if not run.journal.exists():
        return
    for line in read_journal(run.journal, offset):
        record = line.record
        if record is None or record.get("t") != "e":
            continue
        if record.get("attempt") != attempt:
            unsaved, attempt = [], record.get("attempt")
        data, name = record.get("data") or {}, record.get("name")
        if name == "config.changed" and _decides(str(data.get("field"))):
            yield _Turn(int(record.get("step") or 0), field=str(data["field"]))
        elif name == "training.rollback":
            unsaved.append(_Turn(int(data["at_step"]), to=int(record["step"])))
        elif name == "checkpoint.saved":
            yield from unsaved
            unsaved = []
    yield from unsaved


def _decides(field: str) -> bool:
    return any(field == one or field.startswith(f"{one}.") for one in _DECIDES)


def _shown(config: Config, source: TokenSource, rows: Rows) -> Iterator[ShownRow]:
    ids, filled, places = source.ids(rows), source.is_filled(rows), source.places(rows)
    boundaries = source.parts[0].shards.boundaries
    file: Path | None = config.data.tokenizer
    tokenizer = None if file is None else load_tokenizer(file)
    epochs = (rows // len(source) + 1).tolist()
    for (name, row), epoch, one, is_filled in zip(places, epochs, ids, filled, strict=True):
        firsts: list[int] = []
        if boundaries is not None:
            firsts = np.flatnonzero(boundaries.firsts(one[None])[0]).tolist()
        text = None
        if tokenizer is not None:
            text = tokenizer.decode(one.tolist(), skip_special_tokens=False)
        yield ShownRow(row, epoch, name, len(one), (0, *firsts), text, bool(is_filled))
