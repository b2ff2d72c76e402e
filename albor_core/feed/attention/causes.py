"""Why an attempt ended, as one likely sentence: from the guard's class of the end, from what the
program said, from what its GPUs did then. Likely, not certain: the evidence is beside it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

CAUSES: Mapping[str, str] = {
    "oom_gpu": "the batch does not fit into the GPU's memory: the same batch would not fit again",
    "oom_host": "the system's memory ran out, and the kernel ended the program",
    "killed": "SIGKILL from outside: a person, a scheduler, or memory that ran out",
    "killed_by_guard": "it did not end in time when its guard asked it to",
    "crash": "native code crashed: a kernel, a driver or a library",
    "fatal_signal": "native code crashed: a wrong instruction or a bad memory access",
    "hang": "it gave no news for longer than its limit, and its guard ended it",
    "gpu_lost": "the GPU left the bus or needs a reset: a restart cannot help",
    "config": "its config was refused",
    "data": "its data was refused",
    "no_checkpoint": "no usable checkpoint is left to go on from",
    "in_use": "another process works on the same run",
    "andon": "one of its own rules stopped it",
    "internal": "an error of albor itself",
    "temporary": "it asked to be started again",
    "external": "a signal from outside: a scheduler, or a closed terminal",
    "early_exit": "it ended before its last step without saying why",
    "unknown_exit": "it ended while no guard watched",
}
"""Class of an exit (guard/policy.py) -> what mostly stands behind it."""
REFUSED = frozenset({"config", "data", "no_checkpoint", "in_use"})
"""Classes of a program that could not do its work, and did not break in it."""
_BY_WORDS = (
    (re.compile(r"CUDA out of memory|OutOfMemoryError", re.I), CAUSES["oom_gpu"]),
    (re.compile(r"\bNCCL\b|ProcessGroup", re.I), "the GPUs lost each other: look at all ranks"),
    (re.compile(r"CUDA error|device-side assert|cuBLAS|cuDNN", re.I), "a GPU kernel failed"),
    (re.compile(r"No space left|Errno 28", re.I), "the disk is full"),
    (re.compile(r"MemoryError|Cannot allocate memory", re.I), CAUSES["oom_host"]),
    (re.compile(r"Connection|timed out|resolve host", re.I), "something over the network failed"),
    (re.compile(r"\bnan\b|not finite|\binf\b", re.I), "a value was not a number"),
)


def cause_of_end(exit_class: str, error: str) -> str:
    """The sentence; "" where nothing tells more than the error itself."""
    named = CAUSES.get(exit_class, "")
    if exit_class in ("", "exception", "signal", "early_exit"):
        said = (sentence for pattern, sentence in _BY_WORDS if pattern.search(error))
        return next(said, "") or named
    return named
