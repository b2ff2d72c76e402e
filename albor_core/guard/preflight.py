"""Whether starting makes sense: disk, ownership, what earlier attempts left running, the GPUs.

A stranger's process is never touched: its owner is named and the start waits, then is refused.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any

from albor_core.guard.deaths import evidence
from albor_core.guard.deaths.past_attempts import checkpoint_bytes, known_nonces
from albor_core.guard.launch import Launch
from albor_core.guard.process.processes import ProcessTree, environment_of
from albor_core.guard.process.strangers import stranger
from albor_core.run.checkpoints import newest
from albor_core.run.files.ownership import distrust
from albor_core.run.rundir import RunDir, read_json

CHECKPOINT_ROOM = 2.2  # a new checkpoint beside the old one, and something to log on
_CROWDED = 0.5  # a stranger with this share of a GPU's memory makes a start pointless


@dataclass(frozen=True)
class Flight:
    """The outcome: `problem` is empty when all is well, `may_pass` says that waiting can help."""

    problem: str = ""
    may_pass: bool = False
    notes: tuple[str, ...] = ()
    cleared: int = 0
    """Processes of our own earlier attempts that had to be killed."""


def check(run: RunDir, launch: Launch, spare: frozenset[int]) -> Flight:
    """Look before a start. Kills only processes that prove to be of this run's earlier attempts.

    Call it while no process holds run.lock: then those have no living trainer.
    """
    problem = _ownership_problem(run) or _disk_problem(run, launch)
    if problem:
        return Flight(problem)
    cleared = _clear_own_leftovers(run, spare)
    if not wants_gpu(run, launch):
        return Flight(cleared=cleared)
    strangers, notes = _gpu_notes(run)
    return Flight(strangers, bool(strangers), notes, cleared)


def wants_gpu(run: RunDir, launch: Launch) -> bool:
    """Whether the run may use a GPU as far as its config says; an unknown program may not."""
    if launch.kind != "train":
        return False
    training = (read_json(run.config_resolved) or {}).get("training")
    return not (isinstance(training, dict) and training.get("device") == "cpu")


def _ownership_problem(run: RunDir) -> str:
    try:
        if problem := distrust(run):
            return problem
    except OSError as error:
        return f"{run.path}: {error.strerror}"
    if not os.access(run.path, os.W_OK | os.X_OK):
        return f"{run.path}: may not be written"
    return ""


def _disk_problem(run: RunDir, launch: Launch) -> str:
    free = evidence.disk_free(run.path)
    if free is None:
        return ""
    wanted, why = launch.options.min_free_bytes, "guard.min_free_bytes"
    if wanted is None:
        saved = newest(run.checkpoints)
        wanted = 0 if saved is None else int(CHECKPOINT_ROOM * checkpoint_bytes(saved[1]))
        why = f"{CHECKPOINT_ROOM} times the last checkpoint"
    if free >= wanted:
        return ""
    return f"{run.path}: {free} bytes free, {wanted} needed ({why})"


def _clear_own_leftovers(run: RunDir, spare: frozenset[int]) -> int:
    nonces = known_nonces(run)
    return ProcessTree(run.id, nonces, None, spare).clear(patience_s=0.0) if nonces else 0


def _gpu_notes(run: RunDir) -> tuple[str, tuple[str, ...]]:
    """The strangers that make a start pointless, and what else is worth knowing."""
    devices = evidence.gpu_report()["devices"]
    notes = [
        f"GPU {device['uuid']}: {device['ecc_uncorr']:.0f} uncorrected memory errors since boot"
        for device in devices
        if device["ecc_uncorr"]
    ]
    found = [(device, one) for device in devices for one in _strangers(run, device)]
    # Masked to some GPUs: which of these that are is CUDA's business, strangers are as likely on
    # the others.
    is_masked = os.environ.get("CUDA_VISIBLE_DEVICES") is not None
    crowds = [pair for pair in found if _fills(*pair) and not is_masked]
    told = [_words(*pair) for pair in found if pair not in crowds]
    return "; ".join(_words(*pair) for pair in crowds), (*notes, *told)


def _strangers(run: RunDir, device: dict[str, Any]) -> list[dict[str, Any]]:
    """Processes that are none of the run's."""
    return [
        process
        for process in device["procs"]
        if environment_of(process["pid"]).get("ALBOR_RUN_ID") != run.id
    ]


def _fills(device: dict[str, Any], process: dict[str, Any]) -> bool:
    total = device["mem_total"]
    return bool(total) and (process["mem"] or 0) >= _CROWDED * total


def _words(device: dict[str, Any], process: dict[str, Any]) -> str:
    return f"GPU {device['uuid']} is in use by {stranger(process['pid'], process['mem'])}"
