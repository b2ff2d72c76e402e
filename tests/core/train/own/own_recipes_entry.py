"""What plans ask of own_recipes.py, without torch."""

from dataclasses import replace

from albor_core.config.recipes.causal_lm import numbers
from albor_core.config.recipes.entry import ParameterCounts

TEACHER = {"hidden_size": 128, "intermediate_size": 640, "num_hidden_layers": 4}


def norms(config, packed=0, bytes_beside=0):
    """Vectors alone are trained; nothing flows into a matrix."""
    whole = numbers(config)
    every, flops = whole.counts, whole.flops_per_token
    frozen = ParameterCounts(
        matrices=0,
        vectors=every.vectors,
        hidden=0,
        frozen_matrices=every.matrices - packed,
        bytes_beside=bytes_beside,
    )
    return replace(whole, title="norms", counts=frozen, flops_per_token=flops * 2 // 3)


def packed(config):
    """MLPs in int8 with a scale a row, and the scratch that the largest is written to."""
    shape = config.model.architecture.shape()
    D, F, L = shape.hidden_size, shape.intermediate_size, shape.num_hidden_layers
    number = 3 * D * F * L
    return norms(config, number, number + 4 * L * (2 * F + D) + 2 * 2 * F * D)


def taught(config):
    whole = numbers(config)
    teacher = replace(whole.shape, **TEACHER)
    counts = replace(whole.counts, bytes_beside=4 * teacher.num_parameters)
    forward = teacher.flops_per_token(config.data.seq_len) // 3
    flops = whole.flops_per_token + forward
    return replace(whole, title="by a teacher", counts=counts, flops_per_token=flops)


def preferred(config):
    return replace(numbers(config), title="on pairs")


NUMBERS = {"Norms": norms, "Packed": packed, "Taught": taught, "Preferred": preferred}
