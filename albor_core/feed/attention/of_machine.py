"""The entries of the machines: GPUs in trouble, disks and memory that are nearly full. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from albor_core.feed.attention.item import KINDS, AttentionItem, word_of_gpu
from albor_core.feed.attention.machine import MachineTrouble, MachineView
from albor_core.feed.view.run_view import RunView
from albor_core.run.values.quantity import byte_size
from albor_core.telemetry.sample import HostSample

GIB = 1 << 30
DISK_LOW, DISK_OUT = 5 * GIB, 1 * GIB
MEMORY_LOW, MEMORY_LEAST = 0.03, GIB // 2  # a share of all, and at least so much
_CAUSES = {
    "hot": "its cooling, a hot room, or a neighbour that works as hard",
    "throttled": "heat, or its power supply: it runs slower than it could",
    "straggling": "it is throttled, shared with another program, or waits for its own data",
    "idle": "its process waits or has ended",
    "ecc": "its memory is failing: results may be wrong",
    "xid": "a fault of the card, the driver or the program",
}


def machine_items(
    machine: MachineView, runs: Sequence[RunView], now: float
) -> Iterator[AttentionItem]:
    """An entry for each GPU and kind of trouble, and for each host with a full disk or memory."""
    names = {view.id: view.name for view in runs if view.is_active}
    paths = {view.id: view.path for view in runs if view.is_active}
    for one in machine.troubles:
        yield _of_gpu(one, names, paths, machine.run_gpus.get(one.run_id), now)
    for host, words in machine.homes.items():
        yield _room(host, "home", words, "")
    for host, words in machine.caps.items():
        yield _room(host, "home_cap", words, "")
    for host, sample in machine.hosts.items():
        yield from _of_host(host, sample)


def _of_gpu(
    one: MachineTrouble,
    names: dict[str, str],
    paths: dict[str, str],
    gpus: int | None,
    now: float,
) -> AttentionItem:
    trouble, kind = one.gpu, f"gpu_{one.gpu.kind}"
    table = KINDS[kind]
    hours, cost = None, ""
    if trouble.kind == "straggling" and gpus and trouble.against:
        share = max(0.0, 1 - trouble.value / trouble.against)
        hours = share * gpus * max(0.0, now - trouble.since_wall) / 3600
        cost = f"{hours:.2g} GPU-h: the run's other GPUs wait for it"
    return AttentionItem(
        id=f"{one.host}/{kind}:{trouble.index}",
        kind=kind,
        word=word_of_gpu(kind, trouble.index),
        severity=table.severity,
        run_id=one.run_id,
        run_name=names.get(one.run_id, ""),
        host=one.host,
        since_wall=trouble.since_wall,
        summary=f"GPU {trouble.index}: {trouble.words}",
        cost_gpu_hours=hours,
        cost=cost,
        cause=_CAUSES.get(trouble.kind, ""),
        key="enter" if one.run_id else "",
        command=table.command.format(run=one.run_id, host=one.host),
        path=paths.get(one.run_id, ""),
    )


def _of_host(host: str, sample: HostSample) -> Iterator[AttentionItem]:
    free = sample.disk_free_bytes
    if free is not None and free < DISK_LOW:
        yield _room(host, "disk", f"{byte_size(free)} left", "critical" if free < DISK_OUT else "")
    left, whole = sample.memory_available_bytes, sample.memory_total_bytes
    if left is not None and whole and left < max(MEMORY_LEAST, MEMORY_LOW * whole):
        yield _room(host, "memory", f"{byte_size(left)} of {byte_size(whole)} left", "")


def _room(host: str, kind: str, summary: str, severity: str) -> AttentionItem:
    table = KINDS[kind]
    causes = {
        "home": "checkpoints and media of runs that are no longer looked at",
        "home_cap": "a typing error: it is a number and a unit, as in export ALBOR_HOME_MAX=50GiB",
        "disk": "checkpoints, logs or data fill it; a full disk loses lines and checkpoints",
        "memory": "data loaders or another program take it; the kernel ends the largest one",
    }
    return AttentionItem(
        id=f"{host}/{kind}",
        kind=kind,
        word=table.word,
        severity=severity or table.severity,
        host=host,
        summary=summary,
        cause=causes[kind],
        command=table.command.format(run="", host=host),
    )
