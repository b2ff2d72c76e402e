"""Unequal label counts: the gradient of a step is the whole batch's, however it is taken apart.

Read off the optimizer: with beta1 = 0 AdamW's first moment after step 1 is the step's gradient.
The whole batch is one backward in this process. Both add up the same numbers in another order.
"""

from pathlib import Path

import pytest
import torch
from rank_stage import staged
from tiny_run import events

from albor_core.config.load import parse_config
from albor_core.data.load.order import SequenceOrder
from albor_core.recipes.batch import Batch
from albor_core.recipes.registry import recipe_of
from albor_core.run.files.whole_file import write_json
from albor_core.run.rundir import read_json

pytestmark = pytest.mark.slow

HERE = Path(__file__).resolve().parent
WITHIN = {"own_recipes:Double": 1e-12, "own_recipes:RunningSums": 5e-6}
ROWS = 12
SPREAD = {1: ("ddp", 2, 6), 2: ("ddp", 3, 4), 3: ("fsdp", 2, 6), 4: ("ddp", 4, 3)}


def plan(stage):
    for mode in WITHIN:
        for key, (strategy, size, accumulation) in SPREAD.items():
            name, world = f"{mode.partition(':')[2].lower()}-{key}", min(key, 3)
            changes = {
                "training__mode": mode,
                "recipe": {"width": 8},
                "data__batch_size": size,
                "training__gradient_accumulation": accumulation,
                "training__max_steps": 1,
                "training__warmup_steps": 0,
                "training__stability": {"zclip": False},
                "training__grad_clip": None,
                "training__distributed": {"world_size": world, "strategy": strategy},
                "optimizer__beta1": 0.0,
            }
            stage.plan(name, {}, **changes)
            if not stage.done.exists():
                run = stage.runs[name]
                write_json(run.run_json, {**read_json(run.run_json), "recipe_folder": str(HERE)})


@pytest.fixture(scope="module")
def stage(tmp_path_factory):
    return staged(tmp_path_factory, "own-ranks", plan)


def whole_batch(config):
    """The gradient by name of the mean over all labels of the first step, in one piece."""
    recipe = recipe_of(config, HERE)
    source, _ = recipe.sources()
    model = recipe.model(torch.device("cpu"))
    recipe.random_weights(model)
    rows = SequenceOrder(config.training.seed, len(source)).part(0, 0, ROWS)
    assert len({int(source.count(rows[i : i + 2])) for i in range(0, ROWS, 2)}) > 2  # uneven
    read = {name: torch.from_numpy(values) for name, values in source.batch(rows).items()}
    total, _ = recipe.loss(model, Batch(**read))
    (total / int(source.count(rows))).backward()
    return {name: parameter.grad for name, parameter in model.named_parameters()}


@pytest.mark.parametrize("key", SPREAD)
@pytest.mark.parametrize("mode", WITHIN)
def test_a_step_of_unequal_micro_batches_has_the_gradient_of_the_whole_batch(stage, mode, key):
    name = f"{mode.partition(':')[2].lower()}-{key}"
    assert name not in stage.failed, stage.stderr[-3000:]
    run = stage.runs[name]
    (start,) = events(run, "run.start")
    assert start["data"]["world_size"] == min(key, 3)
    config = parse_config(run.config_resolved.read_bytes(), file=str(run.config_resolved))
    wanted, found = whole_batch(config), stage.tensors(name)
    wanted = {name: gradient.double() for name, gradient in wanted.items()}
    apart = sum(
        float((found[f"exp_avg.{n}"].double() - g).square().sum()) for n, g in wanted.items()
    )
    norm = sum(float(g.square().sum()) for g in wanted.values())
    assert (apart / norm) ** 0.5 <= WITHIN[mode]
