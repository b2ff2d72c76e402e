"""`albor gpu`: what NVML says of this machine's GPUs."""

from __future__ import annotations

import time

import click

from albor_core.cli.common.output import emit, json_option, number, print_line, table
from albor_core.run.values.quantity import byte_size


@click.command()
@json_option
@click.option("--watch", is_flag=True, help="Repeat every second until interrupted.")
def gpu(as_json: bool, watch: bool) -> None:
    """Show utilisation, memory, power, temperature and processes of each GPU."""
    from albor_core.telemetry.shared_gpus import SharedGpus

    gpus = SharedGpus()
    while True:
        samples = gpus.sample()
        if as_json:
            emit(
                {
                    "schema": "albor.gpu/1",
                    "gpus": [sample.to_json() for sample in samples],
                    "why_none": None if samples else gpus.why_none,
                }
            )
        elif not samples:
            print_line(f"no GPU: {gpus.why_none}")
        else:
            rows = [
                (
                    str(s.index),
                    s.name or "-",
                    number(s.util_percent, ".0f"),
                    f"{byte_size(s.memory_used_bytes)} / {byte_size(s.memory_total_bytes)}",
                    number(s.power_w, ".0f"),
                    number(s.temperature_c, ".0f"),
                    number(s.sm_clock_mhz, ".0f"),
                    " ".join(s.throttle_reasons) or "-",
                )
                for s in samples
            ]
            print_line(
                table(("gpu", "name", "util %", "memory", "W", "C", "MHz", "throttle"), rows)
            )
        if not watch:
            return
        time.sleep(1.0)
