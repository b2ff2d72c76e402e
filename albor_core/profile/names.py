"""Shortens names of kernels: removes their template arguments. Pure."""

from __future__ import annotations

import re

_FUNCTOR = re.compile(r"\b(\w*(?:[Ff]unctor\w*|Ops?|_kernel_cuda|Operation))\b")
_LONGEST = 120


def clean_name(name: str) -> str:
    """The short name of a kernel: `void at::native::vectorized_elementwise_kernel<4,
    at::native::CUDAFunctor_add<float>, ...>` becomes
    `vectorized_elementwise_kernel[CUDAFunctor_add]`: without return type, namespaces, arguments or
    template, except the functor by which kernels of one template differ.
    """
    bare, inside = _outside_brackets(name.replace("(anonymous namespace)", "anonymous"))
    if not inside and "(" not in name and "::" not in name:
        return name.strip()[:_LONGEST]
    words = bare.split()
    last = (words[-1] if words else name).rsplit("::", 1)[-1] or name
    functors = [found for found in _FUNCTOR.findall(inside) if found not in (last, "")]
    mark = f"[{functors[0]}]" if functors else ""
    return f"{last}{mark}"[:_LONGEST]


def _outside_brackets(name: str) -> tuple[str, str]:
    """The part of a name before arguments and outside of <>, and the part inside <>."""
    bare: list[str] = []
    inside: list[str] = []
    depth = 0
    for letter in name:
        if letter == "<":
            depth += 1
        elif letter == ">" and depth:
            depth -= 1
        elif letter == "(" and not depth:
            break
        (inside if depth else bare).append(letter if letter not in "<>" else " ")
    return "".join(bare), "".join(inside)
