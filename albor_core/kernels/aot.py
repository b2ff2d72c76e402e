"""Compile every kernel to cubin for GPUs that are not there: `python -m albor_core.kernels.aot`.

Triton's compiler needs no GPU, so a kernel that does not compile for sm_80, sm_89 or sm_90 never
lands. Prints a line per (kernel, architecture, dtype), with the stack of a thread, which holds what
registers did not: in a hot loop, a kernel's time. Exit code 1 if any fails. Refuses to run under
TRITON_INTERPRET=1, which replaces the compiler at decoration.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from albor_core.kernels import dispatch
from albor_core.kernels.toolchain import HAS_TRITON, IS_INTERPRETED, KernelLaunch

ARCHITECTURES = (80, 89, 90)
DTYPES = ("fp32", "bf16", "fp16")


@dataclass(frozen=True)
class Built:
    """Bytes of the cubin, and of a thread's stack."""

    size: int
    stack: int


def compile_launch(launch: KernelLaunch, architecture: int) -> Built:
    """As Triton does at a launch of a model's sizes: pointers and integers are multiples of 16.

    Raises whatever Triton or ptxas raise.
    """
    import triton  # noqa: PLC0415 -- this module must import where Triton is missing
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415

    if launch.kernel.is_gluon():
        from triton.experimental.gluon._runtime import GluonASTSource as Source  # noqa: PLC0415
    else:
        from triton.compiler import ASTSource as Source  # noqa: PLC0415
    constants = {(launch.kernel.arg_names.index(k),): v for k, v in launch.constants.items()}
    aligned = [kind.startswith(("*", "i")) for kind in launch.signature.values()]
    attributes = {(i,): [["tt.divisibility", 16]] for i, holds in enumerate(aligned) if holds}
    source = Source(launch.kernel, dict(launch.signature), constants, attributes)
    options = {"num_warps": launch.num_warps, **launch.options}
    kernel = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    cubin = kernel.asm["cubin"]
    return Built(len(cubin), _stack(cubin, Path(triton.__file__).parent))


def _stack(cubin: bytes, triton: Path) -> int:
    tool = triton / "backends/nvidia/bin/cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        told = subprocess.run(
            [tool, "--dump-resource-usage", file.name], capture_output=True, text=True, check=True
        )
    return max(int(size) for size in re.findall(r"STACK:(\d+)", told.stdout))


def launches() -> Iterator[tuple[str, KernelLaunch]]:
    """(dtype, launch) of every kernel of every op."""
    for name in dispatch.OPS:
        for dtype in DTYPES:
            for launch in dispatch.op(name).launches(dtype):
                yield f"{name}.{launch.name} {dtype}", launch


def main(words: Sequence[str] | None = None) -> int:
    """Compile everything, say how each went, return the exit code. Takes no arguments but --help;
    SystemExit(2) for any other.
    """
    argparse.ArgumentParser(
        prog="python -m albor_core.kernels.aot",
        description="Compile every kernel to cubin for "
        f"{', '.join(f'sm_{a}' for a in ARCHITECTURES)}, without a GPU.",
    ).parse_args(words)
    if not HAS_TRITON or IS_INTERPRETED:
        sys.stderr.write("needs Triton, and TRITON_INTERPRET unset\n")
        return 1
    failed = 0
    for name, launch in launches():
        for architecture in (a for a in ARCHITECTURES if a >= launch.first):
            try:
                built = compile_launch(launch, architecture)
                outcome = f"{built.size} bytes, stack {built.stack}"
            except Exception as error:  # every kernel is tried; each failure is printed and counted
                outcome, failed = f"FAILED {type(error).__name__}: {error}", failed + 1
            sys.stdout.write(f"{name} sm_{architecture}: {outcome}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
