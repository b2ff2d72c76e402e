"""Makes a report of a trace: its breakdown, the roofline of its products, its MFU; as a document.
Pure, except the list of a run's traces.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from albor_core.profile.breakdown import Breakdown, break_down
from albor_core.profile.roofline import Roofline, Utilisation, roofline, utilisation
from albor_core.profile.trace import StepTrace
from albor_core.profile.workload import METADATA, Workload, workload_from
from albor_core.telemetry.peaks import device_peaks


@dataclass(frozen=True)
class Report:
    """The full report of a trace."""

    trace: StepTrace
    breakdown: Breakdown
    device: str
    workload: Workload | None
    roofline: Roofline | None
    utilisation: Utilisation | None
    missing: tuple[str, ...]

    def to_json(self, *, kernels: int) -> dict[str, Any]:
        """Milliseconds and counts are per step unless a name says otherwise."""
        found = self.breakdown
        return {
            "device": self.device,
            "on": "gpu" if found.is_gpu else "cpu",
            "steps": found.steps,
            "step_ms": found.step_us / 1e3,
            "events": self.trace.events,
            "truncated": self.trace.truncated,
            "missing": list(self.missing),
            "phases": self._phases(),
            "coverage": self._coverage(),
            "kernels": self._kernels(kernels),
            "launches": found.launches / found.steps,
            "graph_launches": found.graph_launches / found.steps,
            "synchronizations": {
                **{name: count / found.steps for name, count in found.syncs.items()},
                "item": found.items / found.steps,
                "copies_to_host": self._to_host() / found.steps,
            },
            "copies": [
                {
                    "direction": one.direction,
                    "count": one.count / found.steps,
                    "bytes": one.bytes / found.steps,
                    "ms": one.time / found.steps / 1e3,
                    "gb_per_s": one.gb_per_s,
                }
                for one in found.copies
            ],
            "counters": dict(found.counters),
            "roofline": self._roofline(),
            "mfu": self._mfu(),
        }

    def _to_host(self) -> int:
        return sum(one.count for one in self.breakdown.copies if one.direction == "DtoH")

    def _phases(self) -> list[dict[str, Any]]:
        found = self.breakdown
        return [
            {
                "name": one.name,
                "ms": self.ms(one.busy if found.is_gpu else one.host),
                "share": (one.busy if found.is_gpu else one.host) / found.wall,
                "host_ms": self.ms(one.host),
                "busy_ms": self.ms(one.busy),
                "launches": one.launches / found.steps,
                "synchronizations": one.syncs / found.steps,
            }
            for one in found.phases
        ]

    def ms(self, microseconds: float) -> float:
        """Microseconds of all steps as milliseconds per step."""
        return microseconds / self.breakdown.steps / 1e3

    def _coverage(self) -> dict[str, Any]:
        found = self.breakdown
        return {
            "share": found.coverage,
            "busy_share": found.busy / found.wall,
            "named_idle_share": found.named_idle / found.wall,
            "idle": [
                {
                    "why": one.why,
                    "ms": self.ms(one.time),
                    "share": one.time / found.wall,
                    "named": one.is_named,
                }
                for one in found.idle
            ],
        }

    def _kernels(self, limit: int) -> dict[str, Any]:
        found = self.breakdown
        return {
            "kind": "kernels" if found.is_gpu else "operators",
            "left_off": max(0, len(found.kernels) - limit),
            "rows": [
                {
                    "name": one.name,
                    "share": one.time / found.wall,
                    "total_ms": one.time / 1e3,
                    "per_step": one.count / found.steps,
                    "mean_us": one.time / one.count,
                }
                for one in found.kernels[:limit]
            ],
        }

    def _roofline(self) -> dict[str, Any] | None:
        made = self.roofline
        if made is None:
            return None
        products = []
        for one in made.products:
            said = asdict(one) | {"flops": one.flops, "intensity": one.intensity}
            products.append({"pass" if key == "when" else key: said[key] for key in said})
        return {
            "peak_flops": made.peak_flops,
            "bandwidth": made.bandwidth,
            "ridge": made.ridge,
            "precision": made.precision,
            "products": products,
        }

    def _mfu(self) -> dict[str, Any] | None:
        made = self.utilisation
        if made is None:
            return None
        return {
            **asdict(made),
            "half": made.of(made.half_peak),
            "fp32": made.of(made.fp32_peak),
        }


def report_of(trace: StepTrace, workload: Workload | None = None) -> Report:
    """The report of a trace; `workload`: what its run computes, if the trace does not say it.
    Raises DataError."""
    found = break_down(trace)
    said = workload_from(trace.metadata.get(METADATA)) or workload
    names = [*trace.devices, *([said.device_name] if said and said.device_name else [])]
    device = (names or ["GPU of unknown name"])[0] if found.is_gpu else "CPU"
    peaks = device_peaks(device) if found.is_gpu else None
    missing = list(found.missing)
    if said is None or said.shape is None:
        missing.append("the shape of the model: no roofline and no MFU")
    if said is not None and said.world_size > 1:
        missing.append(f"all ranks but the first of {said.world_size}")
    roof = roofline(said, peaks, trace, device=device)
    used = utilisation(said, peaks, found.step_us)
    return Report(trace, found, device, said, roof, used, tuple(missing))


def traces_of(folder: Path) -> list[Path]:
    """The traces in a run's folder of traces, the newest last."""
    found = []
    with suppress(OSError):
        for path in folder.iterdir():
            if path.name.endswith((".json", ".json.gz")) and not path.name.startswith("."):
                found.append((path.stat().st_mtime, path.name, path))
    return [path for _, _, path in sorted(found)]
