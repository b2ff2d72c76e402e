"""What watching runs costs a host: the index process of one run, and the sampling of many.

    python benchmarks/watching/watching.py [--seconds 60] [--runs 50] [--step-s 1.0] [--gpus 8]

Three measurements, each beside the load of the machine:

- one index process beside a program that logs a step each `--step-s`, with the program's rules and
  health: processor time once it has started, and its largest resident memory;
- what the host's sampler takes a second, with `--gpus` GPUs of a fake driver (a real one's calls
  are not in it);
- what a look of one watcher takes, the ring and the program's processes included: `--runs` of them
  and the one sampler are what all runs at once would cost.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))
from arguments import above_zero, positive

PROGRAM = """
import sys, time
from albor_core import track
with track.start(experiment="watching", name="watching") as run:
    print(run.path, flush=True)
    end, step = time.monotonic() + float(sys.argv[1]), 0
    while time.monotonic() < end:
        step += 1
        run.log({"loss": 3.0 / step ** 0.1, "lr": 1e-3, "grad_norm": 1.0}, step=step)
        time.sleep(float(sys.argv[2]))
"""
START_S = 5.0  # of an index process, left out: imports, a store, its backup


def cpu_s(pid: int) -> float:
    """Processor seconds of a process so far."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mib(pid: int) -> float:
    """Its largest resident memory."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("VmHWM")) / 1024


def measure_index_process(seconds: float, step_s: float) -> None:
    from albor_core.run.liveness import lock_holder
    from albor_core.run.rundir import RunDir

    arguments = [sys.executable, "-c", PROGRAM, str(seconds + 3 * START_S), str(step_s)]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, text=True) as program:
        assert program.stdout is not None
        run = RunDir(Path(program.stdout.readline().strip()))
        deadline = time.monotonic() + 30
        while not (pid := lock_holder(run.index_lock)) and time.monotonic() < deadline:
            time.sleep(0.1)
        assert pid, "no index process"
        time.sleep(START_S)
        before, began = cpu_s(pid), time.monotonic()
        time.sleep(seconds)
        share = (cpu_s(pid) - before) / (time.monotonic() - began)
        print(f"index process: {share:.2%} of a core, {peak_mib(pid):.1f} MiB at most")
        program.terminate()


def fake_driver(folder: Path, count: int) -> None:
    gpu = {
        "name": "H100", "util_percent": 97.0, "memory_used_bytes": 70 << 30,
        "memory_total_bytes": 80 << 30, "temperature_c": 61.0, "power_w": 640.0,
        "processes": [{"pid": 1, "name": "python", "memory_bytes": 70 << 30}],
    }  # fmt: skip
    fake = folder / "gpus.json"
    fake.write_text(json.dumps({"gpus": [gpu] * count}))
    os.environ["ALBOR_FAKE_NVML"] = str(fake)


def measure_sampler(seconds: int) -> float:
    """Processor seconds of one sample."""
    from albor_core.telemetry.gpu import Gpus
    from albor_core.telemetry.machine_ring import Ring, ring_path
    from albor_core.telemetry.machine_sampler import sample_machine

    ring, gpus = Ring(ring_path()), Gpus()
    began = time.process_time()
    for _ in range(seconds):
        ring.append(sample_machine(gpus, ring_path().parent))
    cost = (time.process_time() - began) / seconds
    print(f"sampler: {cost * 1e3:.2f} ms a second")
    return cost


def measure_watcher(seconds: int) -> float:
    """Processor seconds of one look, once a second, while the ring has a new sample each time."""
    from albor_core.run.home.new_run import create_run
    from albor_core.run.liveness import Liveness
    from albor_core.store.watch.watcher import Watcher
    from albor_core.telemetry.gpu import Gpus
    from albor_core.telemetry.machine_ring import Ring, ring_path
    from albor_core.telemetry.machine_sampler import sample_machine

    folder = Path(os.environ["ALBOR_HOME"]) / "runs"
    run = create_run(folder, "w", experiment="e", name="w", kind="guard", argv=[])
    watcher, ring, gpus = Watcher(run), Ring(ring_path()), Gpus()
    living = Liveness(os.getpid(), None)
    costs = []
    for second in range(seconds):
        ring.append(sample_machine(gpus, ring_path().parent))
        began = time.process_time()
        watcher.look(living, mono=1000.0 + second)
        costs.append(time.process_time() - began)
    watcher.close()
    print(
        f"watcher: {statistics.mean(costs) * 1e3:.2f} ms a look"
        f" (median {statistics.median(costs) * 1e3:.2f})"
    )
    return statistics.mean(costs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=above_zero, default=60.0)
    parser.add_argument("--runs", type=positive, default=50)
    parser.add_argument("--step-s", type=above_zero, default=1.0)
    parser.add_argument("--gpus", type=positive, default=8)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["ALBOR_HOME"] = str(Path(folder) / "home")
        Path(os.environ["ALBOR_HOME"]).mkdir()
        fake_driver(Path(folder), options.gpus)
        print(f"load {os.getloadavg()[0]:.2f} on {os.cpu_count()} cores")
        measure_index_process(options.seconds, options.step_s)
        one = measure_sampler(300)
        each = measure_watcher(300)
        total = one + options.runs * each
        print(f"{options.runs} runs: {total:.2%} of a core, the one sampler included")
        print(f"load {os.getloadavg()[0]:.2f}; this program {peak_self():.1f} MiB")


def peak_self() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


if __name__ == "__main__":
    main()
