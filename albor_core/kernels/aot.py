"""Compile every kernel to cubin for GPUs that are not there: `python -m albor_core.kernels.aot`.

Triton's compiler needs no GPU, so a kernel that does not compile for sm_80, sm_89 or sm_90 never
lands. Prints a line per (kernel, architecture, dtype); exit code 1 if any fails. Refuses to run
under TRITON_INTERPRET=1, which replaces the compiler at decoration.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator

from albor_core.kernels import dispatch
from albor_core.kernels.toolchain import HAS_TRITON, IS_INTERPRETED, Launch

ARCHITECTURES = (80, 89, 90)
DTYPES = ("fp32", "bf16", "fp16")


def compile_launch(launch: Launch, architecture: int) -> int:
    """Bytes of the cubin. Raises whatever Triton or ptxas raise."""
    import triton  # noqa: PLC0415 -- this module must import where Triton is missing
    from triton.backends.compiler import GPUTarget  # noqa: PLC0415
    from triton.compiler import ASTSource  # noqa: PLC0415

    constants = {(launch.kernel.arg_names.index(k),): v for k, v in launch.constants.items()}
    source = ASTSource(launch.kernel, dict(launch.signature), constants)
    options = {"num_warps": launch.num_warps, **launch.options}
    kernel = triton.compile(source, target=GPUTarget("cuda", architecture, 32), options=options)
    return len(kernel.asm["cubin"])


def launches() -> Iterator[tuple[str, Launch]]:
    """(dtype, launch) of every kernel of every op."""
    for name in dispatch.OPS:
        for dtype in DTYPES:
            for launch in dispatch.op(name).launches(dtype):
                yield f"{name}.{launch.name} {dtype}", launch


def main() -> int:
    """Compile everything, say how each went, return the exit code."""
    if not HAS_TRITON or IS_INTERPRETED:
        sys.stderr.write("needs Triton, and TRITON_INTERPRET unset\n")
        return 1
    failed = 0
    for name, launch in launches():
        for architecture in (a for a in ARCHITECTURES if a >= launch.first):
            try:
                outcome = f"{compile_launch(launch, architecture)} bytes"
            except Exception as error:  # every kernel is tried; each failure is printed and counted
                outcome, failed = f"FAILED {type(error).__name__}: {error}", failed + 1
            sys.stdout.write(f"{name} sm_{architecture}: {outcome}\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
