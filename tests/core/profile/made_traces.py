"""Chrome traces with known answers: small enough to be counted by hand. Microseconds."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

MAIN = 100


def span(cat: str, name: str, begin: float, lasted: float, tid: Any = MAIN, **args: Any) -> dict:
    return {"ph": "X", "cat": cat, "name": name, "ts": begin, "dur": lasted, "pid": 1, "tid": tid,
            "args": args}  # fmt: skip


def kernel(name: str, begin: float, lasted: float, call: int, stream: int = 7, **args: Any) -> dict:
    made = {"stream": stream, "correlation": call, **args}
    return span("kernel", name, begin, lasted, stream, **made)


def copy(way: str, begin: float, lasted: float, call: int, size: int, stream: int = 7) -> dict:
    name = f"Memcpy {way} (Pinned -> Device)"
    made = {"stream": stream, "correlation": call, "bytes": size}
    return span("gpu_memcpy", name, begin, lasted, stream, **made)


def call(begin: float, number: int, lasted: float = 2, name: str = "cudaLaunchKernel") -> dict:
    return span("cuda_runtime", name, begin, lasted, MAIN, correlation=number)


def step(number: int, begin: float, lasted: float) -> dict:
    return span("user_annotation", f"ProfilerStep#{number}", begin, lasted)


def brick(name: str, begin: float, lasted: float) -> dict:
    return span("user_annotation", f"brick {name}", begin, lasted)


def op(name: str, begin: float, lasted: float, tid: int = MAIN, **args: Any) -> dict:
    return span("cpu_op", name, begin, lasted, tid, **args)


def write(path: Path, events: list[dict], *, head: dict[str, Any] | None = None) -> Path:
    """As kineto does: metadata, then events; compressed where the name says so."""
    text = json.dumps({"schemaVersion": 1, **(head or {}), "traceEvents": events}, indent=1)
    path.write_bytes(gzip.compress(text.encode()) if path.suffix == ".gz" else text.encode())
    return path


GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64"
ADD = (
    "void at::native::vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, "
    "std::array<char*, 3ul> >(int, at::native::CUDAFunctor_add<float>, std::array<char*, 3ul>)"
)
GPU_STEP = [
    step(1, 0, 1000),
    brick("forward", 0, 400),
    brick("optimizer", 400, 500),
    # two kernels that overlap on two streams: 100..300 and 200..400 are 300, not 400
    call(90, 1),
    kernel(GEMM, 100, 200, 1, 7, **{"External id": 5}),
    call(150, 2),
    kernel(ADD, 200, 200, 2, 8),
    # queued behind it: launched at 160, begins at 410
    call(160, 3),
    kernel(ADD, 410, 90, 3, 8),
    # a copy to the host, alone for 50; the host waits for it and only then launches again
    call(170, 4, name="cudaMemcpyAsync"),
    copy("DtoH", 500, 50, 4, 50_000, 7),
    call(420, 90, 160, name="cudaStreamSynchronize"),
    call(640, 5, 10),
    kernel(ADD, 660, 240, 5, 7),
    op("aten::mm", 80, 20, **{"External id": 5, "Input Dims": [[64, 32], [32, 96]]}),
    op("aten::_local_scalar_dense", 415, 170, **{"External id": 6}),
]
"""Of 1000: kernels 100..400, 410..500, 660..900 (630); idle 0..92 forward, 92..100 latency,
400..410 queued, 500..550 a copy, 550..650 after the synchronization, 650..660 latency,
900..1000 no kernel while the host was in no brick (the optimizer's ends at 900).
"""
