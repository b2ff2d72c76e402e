"""A model over several ranks: a copy on each (DDP, by accelerate) or a part on each (FSDP2).

Copies are equal by construction: same start, same gradients, same update. Parts are DTensors, cut
along their first axis; `whole` and `part_of` translate between them and the plain tensors of a
checkpoint, which therefore looks the same however many ranks wrote it. What needs whole matrices
(Muon) goes through `on_whole`.

FSDP2 is torch's own `fully_shard`: accelerate's preparation of it does not know CPUs. Its modules
take 0.8 s to load, so they are known here by what they can do until they are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from albor_core.model.llama import DecoderLayer
from albor_core.recipes.trainable import Trainable


def replicate(model: nn.Module, *, is_exact: bool) -> nn.Module:
    """`model` with gradients that are averaged over ranks while the backward runs.

    `is_exact`: gradients are added up in the same order in every attempt. Otherwise DDP sorts its
    buckets anew after the first step, so that a resumed run with more than two ranks differs in
    rounding.
    """
    from accelerate import (  # noqa: PLC0415  0.15 s, and only here
        Accelerator,
        DistributedDataParallelKwargs,
    )

    options = DistributedDataParallelKwargs(
        gradient_as_bucket_view=True,
        find_unused_parameters=is_exact,  # keeps the buckets as they are
    )
    on_cpu = next(model.parameters()).device.type == "cpu"
    accelerator = Accelerator(  # "no": autocast is ours, whatever the user's environment asks for
        cpu=on_cpu, device_placement=False, mixed_precision="no", kwargs_handlers=[options]
    )
    prepared: nn.Module = accelerator.prepare_model(model)
    if isinstance(prepared, DistributedDataParallel):
        prepared.broadcast_buffers = False  # tables of cos and sin; as an option it warns
    return prepared


def shard(
    model: nn.Module,
    blocks: Sequence[nn.Module],
    device: torch.device,
    world_size: int,
    *,
    half: torch.dtype | None,
    compiles: bool,
) -> None:
    """Keep this rank's part of each parameter, on `device`. In place.

    One group of parameters for each of its `blocks`, and one for the rest: the embedding may be the
    head as well, so it belongs to the whole model. Parts are fp32 and gathered in `half`, if that
    is what autocast computes in: copies that it made itself would stay whole until the backward.
    Gradients are added up in fp32, or in fp64 where the parameters have it.
    """
    from torch.distributed.device_mesh import init_device_mesh  # noqa: PLC0415
    from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard  # noqa: PLC0415

    mesh = init_device_mesh(device.type, (world_size,))
    # inputs stay: positions are turned in fp32
    is_double = next(model.parameters()).dtype == torch.float64
    summed = torch.float64 if is_double else torch.float32
    policy = MixedPrecisionPolicy(half, summed, cast_forward_inputs=False)
    for block in blocks:
        if compiles:
            block.compile(dynamic=False)
        fully_shard(block, mesh=mesh, mp_policy=policy)
    fully_shard(model, mesh=mesh, mp_policy=policy)


def uncompiled(blocks: Sequence[nn.Module]) -> None:
    """Blocks that `shard` compiled run as they are again. In place."""
    for layer in blocks:
        layer._compiled_call_impl = None  # nn.Module.compile has no opposite


def reset_ran_eagerly(blocks: Sequence[nn.Module]) -> None:
    """Reset `ran_eagerly`, so that it reports later calls only."""
    for block in blocks:
        assert isinstance(block, DecoderLayer)
        block.ran_eagerly = False


def ran_eagerly(blocks: Sequence[nn.Module]) -> bool:
    """Whether a block ran outside a compiled graph since `reset_ran_eagerly`."""
    return any(block.ran_eagerly for block in blocks)


def sync_gradients(model: nn.Module, *, syncs: bool) -> None:
    """Whether the next forward and its backward end with gradients of all ranks; otherwise they
    only add up here (`no_sync`).
    """
    if hasattr(model, "set_requires_gradient_sync"):
        model.set_requires_gradient_sync(syncs)  # type: ignore[operator]
    elif isinstance(inner := getattr(model, "_orig_mod", model), DistributedDataParallel):
        inner.require_backward_grad_sync = syncs


def reshard(model: nn.Module) -> None:
    """Drop what a forward without a backward gathered: weights may change now."""
    if hasattr(model, "reshard"):
        model.reshard()  # type: ignore[operator]


def local(tensor: Tensor) -> Tensor:
    """What of it lies on this rank; shares memory."""
    found: Tensor = getattr(tensor, "to_local", lambda: tensor)()
    return found


def whole(tensor: Tensor) -> Tensor:
    """All of it. A collective where it is sharded."""
    found: Tensor = getattr(tensor, "full_tensor", lambda: tensor)()
    return found


def part_of(value: Tensor, like: Any) -> Tensor:
    """The whole `value`, which every rank has, as `like` is placed. No collective."""
    if not hasattr(like, "device_mesh") or value.shape != like.shape:
        return value
    from torch.distributed.tensor import distribute_tensor  # noqa: PLC0415

    here = value.to(like.device_mesh.device_type)
    found: Tensor = distribute_tensor(here, like.device_mesh, like.placements, src_data_rank=None)
    return found


def cut_like(part: Tensor, like: Any) -> Tensor:
    """This rank's `part` of something that is as large and placed as `like`; shares memory."""
    if not hasattr(like, "device_mesh"):
        return part
    from torch.distributed.tensor import DTensor  # noqa: PLC0415

    found: Tensor = DTensor.from_local(
        part, like.device_mesh, like.placements, shape=like.shape, stride=like.stride()
    )
    return found


def num_parts(tensor: Any) -> int:
    """Over how many ranks it is sharded; 1 if it is not."""
    return int(tensor.device_mesh.size()) if hasattr(tensor, "device_mesh") else 1


def on_whole(work: Callable[[Tensor], Tensor], parts: Tensor, like: Any) -> Tensor:
    """`work` on n whole matrices, of which `parts` (n, rows here, columns) is what this rank has if
    one is placed as `like`; of the result again the part of this rank.

    Each rank gets about n / ranks of the matrices and does all of `work` on them, which keeps
    shapes and may see none. Two all-to-alls where `like` is sharded, none where it is not.
    """
    if not hasattr(like, "device_mesh"):
        return work(parts)
    import torch.distributed as dist  # noqa: PLC0415

    group, ranks = like.device_mesh.get_group(), like.device_mesh.size()
    number, here, columns = parts.shape
    rows, numbers = _chunks(like.shape[0], ranks), _chunks(number, ranks)
    mine = numbers[like.device_mesh.get_local_rank()]
    mine_by_rank = [mine * count * columns for count in rows]
    here_by_rank = [count * here * columns for count in numbers]

    found = parts.new_empty(sum(mine_by_rank))
    dist.all_to_all_single(found, parts.reshape(-1), mine_by_rank, here_by_rank, group=group)
    pieces = zip(torch.split(found, mine_by_rank), rows, strict=True)
    done = work(torch.cat([piece.view(mine, count, columns) for piece, count in pieces], dim=1))
    sent = torch.cat([piece.reshape(-1) for piece in torch.split(done, rows, dim=1)])
    back = sent.new_empty(parts.shape)
    dist.all_to_all_single(back.view(-1), sent, here_by_rank, mine_by_rank, group=group)
    return back


def _chunks(size: int, ranks: int) -> list[int]:
    """How much of an axis each rank has, as torch cuts it: the last ones less, or nothing."""
    most = -(-size // ranks)
    return [max(0, min(most, size - i * most)) for i in range(ranks)]


def load_weights(trainable: Trainable, tensors: Mapping[str, Tensor]) -> None:
    """Whole tensors of a checkpoint into a model that may be sharded; what is frozen stays.
    RuntimeError where they do not fit.
    """
    reshard(trainable.model)
    mine = trainable.saved()
    if odd := sorted(mine.keys() ^ tensors.keys()):
        has = "has no" if odd[0] in mine else "has"
        raise RuntimeError(f"{has} {odd[0]}{f', and {len(odd) - 1} more' * (len(odd) > 1)}")
    placed = {name: part_of(tensor, mine[name]) for name, tensor in tensors.items()}
    trainable.model.load_state_dict(placed, strict=False)


def _bits(tensor: Tensor) -> Tensor:
    flat = tensor.reshape(-1)
    return flat.view({1: torch.int8, 2: torch.int16}.get(flat.element_size(), torch.int32))


def fingerprint(trainable: Trainable) -> int:
    """A sum over all bits of parameters and of what is frozen, packed or not: equal on ranks whose
    copies are. Waits for the device.
    """
    found = [
        _bits(local(tensor.detach()))
        for name, tensor in trainable.all().items()
        if isinstance(tensor, nn.Parameter) or name in trainable.frozen
    ]
    sums = [bits.sum(dtype=torch.int64) * (i + 1) for i, bits in enumerate(found)]
    return int(torch.stack(sums).sum()) & (2**62 - 1)
