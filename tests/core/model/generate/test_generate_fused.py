"""A step made of kernels beside the plain one, in Triton's interpreter; on a GPU as a graph."""

import pytest
from hf_folder import SHAPES, write_model
from kernel_children import interpreted_lines, needs_triton

from albor_core.model.generate.engine import Engine, generate
from albor_core.model.generate.sampling import Sampling


@needs_triton
@pytest.mark.slow
def test_fused_steps_of_every_family_are_the_plain_ones_and_move_no_value():
    lines = interpreted_lines("core/model/generate/interpreted_fused.py", ALBOR_KERNELS="triton")
    assert [line["family"] for line in lines] == [*SHAPES]
    for line in lines:
        assert line["worst"] < 1e-5 and line["stored"] < 1e-5, line
        assert line["same"] and line["again"], line


@pytest.mark.gpu
@pytest.mark.parametrize("family", SHAPES)
def test_graphs_on_a_gpu_write_what_single_launches_write(tmp_path, family):
    model = write_model(tmp_path, family).cuda().requires_grad_(False)
    prompts = [[1 + i, 2, 3 + i] for i in range(5)]
    how = [Sampling(max_new_tokens=4 + 4 * i, temperature=i % 2, seed=i) for i in range(5)]
    engine = Engine(model, max_batch=4, max_context=32)
    assert engine._graphs is not None
    found = generate(model, prompts, how, engine=engine)
    engine._graphs = None
    assert found == generate(model, prompts, how, engine=engine)
