"""A model, a loss and data of one's own under `albor train`: examples/own_model.py and what does
not fit the interface."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from click.testing import CliRunner
from tiny_run import events, history, last_words, make_run, tiny_config, train, train_here

from albor_core.checkpoint.folder import MODEL, list_checkpoints, verify
from albor_core.cli.main import cli
from albor_core.config.load import LoadedConfig, load_config, parse_config
from albor_core.launch.planned import plan_run
from albor_core.launch.run_folder import new_run
from albor_core.plan.facts import PlanFacts, SplitFacts
from albor_core.plan.plan import plan
from albor_core.plan.text import render
from albor_core.recipes.registry import recipe_of
from albor_core.recipes.trainable import Trainable
from albor_core.run.errors import ConfigError
from albor_core.run.rundir import read_json
from albor_core.run.state import read_state
from albor_core.train.build import build
from albor_core.train.resume.digest import digest

EXAMPLES = Path(__file__).resolve().parents[4] / "examples"
SMALL = (
    "data.batch_size=8",
    "training.max_steps=12",
    "training.warmup_steps=2",
    "training.eval_interval=6",
    "training.eval_batches=2",
    "training.checkpoint.save_every=3",
    "training.num_threads=1",
    "training.device=cpu",
    "recipe.width=8",
)


@pytest.fixture(autouse=True)
def imports():
    """A trainer is a process of its own; here many train in one."""
    before, path = {*sys.modules}, [*sys.path]
    yield
    for name in {*sys.modules} - before:
        if name.partition(".")[0] in ("own_model", "my_lab", "classifier"):
            del sys.modules[name]
    sys.path[:] = path


def loaded(folder, *overrides):
    """The example in a folder of the user's own, smaller."""
    for name in ("own_model.py", "own_model.yaml"):
        if not (folder / name).exists():
            shutil.copy(EXAMPLES / name, folder / name)
    out = f"training.output_dir={folder / 'out'}"
    return load_config(folder / "own_model.yaml", (*SMALL, out, *overrides))


def begun(folder, name, *overrides):
    config = loaded(folder, *overrides)
    return new_run(config, plan_run(config), name=name)


def mode(name):
    """A class of own_recipes.py, which is on the path of every test here."""
    return f"training.mode=own_recipes:{name}"


def refusal(config, folder=None):
    with pytest.raises(ConfigError) as caught:
        build(config, folder=folder)
    return caught.value


def test_a_plan_reads_the_section_alone_and_runs_nothing_of_it(tmp_path):
    (tmp_path / "own_model.py").write_text("raise AssertionError('imported')\n")
    made = plan_run(loaded(tmp_path))
    assert not made.problems
    text = render(made)
    assert "own_model:RunningSums, a class of your own" in text
    assert "Memory:       not known" in text
    assert "unknown (cost of a step not known)" in text
    notes = " ".join(made.notes)
    assert "memory and time of own_model:RunningSums are not known" in notes
    assert "12 steps of 16 rows need a source of about 24 rows for 8 epochs" in notes
    document = made.to_json()
    assert document["model"]["parameters"] is document["model"]["architecture"] is None
    assert document["memory"]["total"] is document["disk"]["total"] is document["time"] is None
    assert document["data"]["train"] is None


def of_tiny(folder, name, *overrides):
    """A plan of causal_lm's data and model under a class of own_recipes.py."""
    file = folder / "tiny.yaml"
    file.write_text(json.dumps(tiny_config(folder)))
    return plan_run(load_config(file, (mode(name), *overrides)))


def test_a_plan_makes_bytes_of_the_numbers_beside_a_class(tmp_path):
    """The counts of the three that freeze are those of what is there."""
    whole, norms, packed, taught = (
        of_tiny(tmp_path, name, *more)
        for name, more in (
            ("Preferred", ()),
            ("Norms", ()),
            ("Packed", ()),
            ("Taught", ("recipe.teacher_seed=1",)),
        )
    )
    assert not whole.problems
    every, parameters = whole.memory, whole.parameters
    assert every.weights == 4 * parameters and every.gradients == 4 * parameters
    assert (norms.memory.weights, norms.parameters) == (every.weights, 5 * 32)
    assert norms.memory.gradients == norms.memory.optimizer / 2 == 4 * norms.parameters
    assert norms.cost.checkpoint == 12 * norms.parameters
    assert norms.cost.flops_per_token < whole.cost.flops_per_token
    for made, is_less in ((packed, True), (taught, False)):
        trainable = Trainable(recipe := recipe_of(made.config), recipe.model(torch.device("cpu")))
        recipe.first_weights(trainable.model)
        trainable.freeze(torch.device("cpu"))
        models = (trainable.model, *recipe.others.values())
        held = sum(t.nbytes for one in models for t in one.state_dict().values())
        scratch = 2 * 2 * 64 * 32 if made is packed else 0
        assert made.memory.weights == held + scratch
        assert (made.memory.weights < every.weights) is is_less
    assert taught.memory.weights - every.weights > 4_000_000  # 1M in fp32
    assert "norms, of own_recipes:Norms" in render(norms)
    assert "(fp32; 21.2 KiB of it frozen beside or packed)" in render(packed)
    assert not [note for note in norms.notes if "not known" in note]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("NUMBERS = {'RunningSums': lambda config: 1 / 0}", "ZeroDivisionError: division by zero"),
        ("NUMBERS = {'RunningSums': lambda config: 12}", "gives a int, not Numbers"),
        ("import nothing_here", "ModuleNotFoundError: No module named 'nothing_here'"),
        ("", "has no attribute 'NUMBERS'"),
    ],
)
def test_a_file_of_numbers_that_has_none_is_a_problem_of_the_plan_by_its_name(tmp_path, text, said):
    (tmp_path / "own_model_entry.py").write_text(text)
    (problem,) = plan_run(loaded(tmp_path)).problems
    assert problem.file == str(tmp_path / "own_model_entry.py")
    assert said in problem.message


def test_numbers_of_a_model_without_a_shape_are_its_checkpoint_and_time(tmp_path):
    lines = (
        "from albor_core.config.recipes.entry import Numbers, ParameterCounts",
        "counts = ParameterCounts(1000, 24, 0)",
        "NUMBERS = {'RunningSums': lambda c: Numbers('a GRU', None, counts, 6144)}",
    )
    (tmp_path / "own_model_entry.py").write_text("\n".join(lines))
    made = plan_run(loaded(tmp_path))
    assert not made.problems
    assert (made.parameters, made.cost.checkpoint, made.memory) == (1024, 12 * 1024, None)
    assert made.cost.flops_per_token == 6144
    assert "memory of own_model:RunningSums is not known" in " ".join(made.notes)


def test_without_steps_a_plan_says_that_the_source_decides(tmp_path):
    made = plan_run(loaded(tmp_path, "training.max_steps=null"))
    assert made.max_steps is None
    assert "the run takes 8 epochs of the rows of its source, 16 a step" in made.notes


def test_a_plan_does_not_say_of_a_class_that_it_has_not_seen_that_the_fused_step_is_off(tmp_path):
    config = loaded(tmp_path, "training.device=cuda", "training.mixed_precision=bf16").config
    facts = PlanFacts(tmp_path / "c.yaml", SplitFacts(tmp_path), device="cuda")
    assert not [note for note in plan(config, facts).notes if "fused" in note]


def test_a_plan_misses_a_module_that_lies_nowhere(tmp_path):
    made = plan_run(loaded(tmp_path, "training.mode=my_own_thing:Model"))
    (problem,) = made.problems
    assert problem.field == "training.mode"
    assert "no module 'my_own_thing'" in problem.message
    assert str(tmp_path) in problem.message


def test_it_trains_is_evaluated_and_saved_under_the_names_of_its_own(tmp_path):
    run = begun(tmp_path, "mine")
    assert train_here(run).reason == "completed"
    losses = [value for _, _, value in history(run, ("train/loss",))]
    assert len(losses) == 12
    assert losses[-1] < losses[0] < 3.0  # of ten digits, ln 10
    assert [step for step, _, _ in history(run, ("val/loss",))] == [0, 6, 12]
    state = read_state(run.state)
    assert state["val_loss"] is not None
    assert state["val_ppl"] is None
    assert state["mfu"] is None
    newest = list_checkpoints(run.checkpoints)[0]
    names = set(verify(newest).model())
    assert {"embed_tokens.weight", "rnn.weight_ih_l0", "head.bias"} <= names
    assert not (newest / "config.json").exists()
    assert digest(run)[0] == 12


def length(by):
    """Zeros are an alert from the 50th on."""
    fields = ("training.max_steps", "training.checkpoint.save_every", "training.eval_interval")
    return [f"{field}=52" for field in fields] if by == "-loss" else []


def shifted(folder, name, by, within=(), **more):
    """A run whose loss is moved `by`; it judges itself where it has bounds to be `within`."""
    values = {"by": by, "within": list(within), **more}
    sets = [f"recipe.{key}={json.dumps(value)}" for key, value in values.items()]
    return begun(folder, name, mode("Judged" if within else "Shifted"), *length(by), *sets)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("by", "within"),
    [("-5", ("-5", "0")), ("inf", ("0", "inf")), ("-loss", ("0", "0"))],
    ids=["negative", "infinite", "exactly 0"],
)
def test_a_loss_that_its_recipe_calls_sound_trains_to_the_weights_of_any_other(
    tmp_path, by, within
):
    plain, run = begun(tmp_path, "plain", *length(by)), shifted(tmp_path, "moved", by, within)
    for one in (plain, run):
        assert train_here(one).reason == "completed"
    assert not events(run, "andon.alert") and not events(run, "step.skipped")
    first, second = (verify(list_checkpoints(one.checkpoints)[0]).model() for one in (plain, run))
    assert all(torch.allclose(value, second[name], atol=1e-5) for name, value in first.items())


@pytest.mark.slow
def test_of_a_recipe_that_says_nothing_a_loss_has_to_be_finite_and_not_0(tmp_path):
    odd = shifted(tmp_path, "odd", "inf")
    assert train_here(odd, stop_after=1).reason == "stopped"
    assert events(odd, "step.skipped")
    zero = shifted(tmp_path, "zero", "-loss")
    train_here(zero)
    assert "loss-is-zero" in [event["data"]["rule"] for event in events(zero, "andon.alert")]


@pytest.mark.parametrize("by", ["0", "nan", "-inf"])
@pytest.mark.parametrize("split", ["train", "val"])
def test_a_loss_that_its_recipe_calls_unsound_stops_the_run_for_that_reason(tmp_path, by, split):
    within = ("-0.5", "0.5")
    run = shifted(tmp_path, "bad", by, within, validates=split == "val")
    outcome = train_here(run)
    assert (outcome.reason, outcome.code) == ("andon", 4)
    assert outcome.step == (0 if split == "val" else 1)
    (alert,) = events(run, "andon.alert")
    assert (alert["data"]["rule"], alert["data"]["action"]) == (f"{split}-loss-unsound", "stop")
    for said in (alert["data"]["message"], outcome.message):
        assert said.endswith("is not sound: it belongs between -0.5 and 0.5")


def test_a_run_records_the_source_file_and_its_hash(tmp_path):
    run = begun(tmp_path, "mine", "training.max_steps=3")
    about = read_json(run.run_json)
    assert about["script"]["path"] == str(tmp_path / "own_model.py")
    assert about["recipe_folder"] == str(tmp_path)
    assert run.script.read_text() == (tmp_path / "own_model.py").read_text()
    train_here(run, stop_after=1)
    with (tmp_path / "own_model.py").open("a") as file:
        file.write("# another line\n")
    train_here(run, attempt=2)
    first, second = (event["data"] for event in events(run, "recipe.loaded"))
    assert first["sha256"] == about["script"]["sha256"] != second["sha256"]
    (changed,) = events(run, "recipe.changed")
    assert changed["severity"] == "warning"


def test_a_diff_knows_whether_two_runs_read_the_same_data(tmp_path):
    for name, more in (("a", ()), ("b", ()), ("c", ("data.seq_len=12",))):
        train_here(begun(tmp_path, name, "training.max_steps=3", *more))
    assert CliRunner().invoke(cli, ["db", "rebuild"]).exit_code == 0

    def changed(other):
        done = CliRunner().invoke(cli, ["runs", "diff", "a", other, "--json"])
        assert done.exit_code == 0, done.output
        return [one["key"] for one in json.loads(done.output)["data"]]

    assert changed("b") == []
    assert changed("c") == ["train.data_hash", "val.data_hash"]


def test_columns_and_figures_of_its_own_are_logged(tmp_path):
    run = begun(tmp_path, "mine", mode("Figures"))
    train_here(run)
    pairs = history(run, ("train/loss", "train/entropy"))
    for (_, _, loss), (_, _, entropy) in zip(pairs[::2], pairs[1::2], strict=True):
        assert entropy == pytest.approx(2 * loss, rel=1e-6)
    assert {value for _, _, value in history(run, ("val/rows",))} == {1.0}


@pytest.mark.slow
def test_kill_9_and_a_resume_end_in_the_same_bytes(tmp_path):
    whole, killed = begun(tmp_path, "whole"), begun(tmp_path, "killed")
    assert train(whole) == (0, "")
    codes = [train(killed, ALBOR_FAULTS="step:kill@2#1,step:kill@8#2")[0] for _ in range(3)]
    assert codes == [-9, -9, 0]
    resumed = [event["data"]["resumed_from"] for event in events(killed, "run.start")]
    assert resumed[0] is resumed[1] is None
    assert resumed[2] in (3, 6)
    assert digest(killed) == digest(whole)
    final = [(list_checkpoints(r.checkpoints)[0] / MODEL).read_bytes() for r in (whole, killed)]
    assert final[0] == final[1]


def test_a_rollback_and_a_start_over_make_the_first_weights_anew(tmp_path):
    """Steps before any checkpoint that are not finite: the run goes back to its beginning."""
    plain, lost = begun(tmp_path, "plain"), begun(tmp_path, "lost", "training.nan_limit=2")
    train_here(plain, stop_after=1)
    train_here(lost, faults="loss:nan@1-2", stop_after=4)
    (rollback,) = events(lost, "training.rollback")
    assert rollback["step"] == 0
    first = [history(run, ("val/loss",))[0] for run in (plain, lost)]
    assert first[0] == first[1]


def test_a_run_begins_from_weights_that_the_class_saved(tmp_path):
    run = begun(tmp_path, "first")
    train_here(run)
    saved = list_checkpoints(run.checkpoints)[0]
    after = history(run, ("val/loss",))[-1][2]
    second = begun(tmp_path, "second", f"model.path={saved}")
    train_here(second, stop_after=1)
    assert history(second, ("val/loss",))[0] == (0, "val/loss", after)
    other = loaded(tmp_path, f"model.path={saved}", "recipe.width=16").config
    assert "does not fit the model" in refusal(other, tmp_path).message


REFUSED = {
    "nowhere:Model": "no module 'nowhere'",
    "own_recipes:NoLos": "has no class 'NoLos'",
    "own_recipes:NotARecipe": "is not a class of albor_core.recipes.recipe.Recipe",
    "own_recipes:NoLoss": "has no loss, no model",
    "own_recipes:NoSplit": "sources() is not a pair",
    "own_recipes:OddSource": "count(rows) is 0.66",
    "own_recipes:NoIds": "not a mapping with `ids`",
    "own_recipes:Frozen": "has nothing to train",
    "own_recipes:MeanOfRows": "loss() is not a sum",
    "own_recipes:Unnamed": "loss() gives ['accuracy'], and columns says []",
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_class_that_does_not_fit_is_refused_by_name_with_the_next_command(tmp_path, name):
    error = refusal(loaded(tmp_path, f"training.mode={name}").config, tmp_path)
    assert error.message.startswith("training.mode: ")
    assert REFUSED[name] in error.message
    assert error.hint.endswith("then: albor train resume RUN")


def test_commands_that_build_decoders_say_whose_model_it_is(tmp_path):
    run = begun(tmp_path, "mine", "training.max_steps=3")
    train_here(run)
    for words in (["model", "show"], ["generate"], ["bench"]):
        done = CliRunner().invoke(cli, [*words, str(run.path), *(["x"] * (words == ["generate"]))])
        assert done.exit_code != 0
        said = str(done.exception or "") + done.output
        assert "mine is a run of own_model:RunningSums, a class of your own" in said


def test_a_near_miss_of_a_class_is_guessed(tmp_path):
    error = refusal(loaded(tmp_path, "training.mode=own_model:RunningSum").config, tmp_path)
    assert "did you mean own_model:RunningSums?" in error.hint


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("def broken(:\n", "own_model.py:1: SyntaxError"),
        ("import numpy\nnumpy.nothing\n", "own_model.py:2: AttributeError"),
        ("import not_installed_here\n", "own_model.py:1: ModuleNotFoundError"),
    ],
    ids=["syntax", "raises", "imports"],
)
def test_a_file_that_cannot_be_imported_is_refused_with_its_line(tmp_path, text, said):
    (tmp_path / "own_model.py").write_text(text)
    error = refusal(loaded(tmp_path).config, tmp_path)
    assert "cannot import 'own_model'" in error.message
    assert said in error.message


def test_a_refused_class_ends_the_trainer_with_one_message_before_step_0(tmp_path):
    run = begun(tmp_path, "odd", mode("MeanOfRows"))
    code, stderr = train(run, PYTHONPATH=str(Path(__file__).parent))
    assert code == 2
    assert "Traceback" not in stderr
    assert stderr.startswith("error: training.mode: own_recipes:MeanOfRows.loss() is not a sum")
    assert last_words(run)["reason"] == "config"
    assert not history(run, ("train/loss", "val/loss"))
    assert list_checkpoints(run.checkpoints) == []


def test_a_file_named_like_a_module_of_python_is_refused(tmp_path):
    shutil.copy(EXAMPLES / "own_model.py", tmp_path / "wave.py")
    error = refusal(loaded(tmp_path, "training.mode=wave:RunningSums").config, tmp_path)
    assert "'wave' is the name of a module of Python" in error.message


def test_a_package_beside_the_config_is_found_and_so_is_what_it_imports(tmp_path):
    package = tmp_path / "my_lab" / "models"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "sums.py").write_text("from own_model import RunningSums\n\nMine = RunningSums\n")
    config = loaded(tmp_path, "training.mode=my_lab.models.sums:Mine").config
    assert type(recipe_of(config, tmp_path)).__name__ == "RunningSums"
    assert not plan_run(loaded(tmp_path, "training.mode=my_lab.models.sums:Mine")).problems


def test_a_class_may_change_the_loss_of_albor_s_own_decoder(tmp_path):
    """It keeps shards, samples and the files that others load, and loses the fused step."""
    plain = make_run(tmp_path / "a", "plain", training__max_steps=5)
    doubled = make_run(
        tmp_path / "b", "doubled", training__max_steps=5, training__mode="own_recipes:Doubled"
    )
    for run in (plain, doubled):
        assert train_here(run, stop_after=1).reason == "stopped"
    (_, _, one), (_, _, two) = (history(r, ("train/loss",))[0] for r in (plain, doubled))
    assert two == pytest.approx(2 * one, rel=1e-6)
    assert (list_checkpoints(doubled.checkpoints)[0] / "config.json").exists()
    config = parse_config(doubled.config_resolved.read_bytes(), file="c")
    assert build(config).obstacle == "own_recipes:Doubled has no form of it"


def test_a_class_may_give_another_head_loss_with_figures_and_keeps_the_fused_step(tmp_path):
    found = {}
    for share in (0.0, 0.1):
        changes = {"training__mode": "own_recipes:Smoothed", "recipe": {"smoothing": share}}
        run = make_run(tmp_path / str(share), f"by-{share}", training__max_steps=5, **changes)
        assert train_here(run, stop_after=1).reason == "stopped"
        (_, _, loss), (_, _, figure) = history(run, ("train/loss", "train/smooth"))[:2]
        assert figure == pytest.approx(2 * loss, rel=1e-6)
        found[share] = loss, history(run, ("val/loss",))[0][2]
    assert found[0.0][0] != found[0.1][0]
    assert found[0.0][1] == found[0.1][1]  # validation is of the next token alone
    config = parse_config(run.config_resolved.read_bytes(), file="c")
    assert build(config).obstacle == "it needs a GPU"


def test_a_classifier_on_albor_s_decoder_learns_by_its_own_loss_and_metric(tmp_path):
    for name in ("classifier.py", "classifier.yaml"):
        shutil.copy(EXAMPLES / name, tmp_path / name)
    more = ("training.max_steps=40", "training.eval_interval=20", "training.device=cpu")
    out = f"training.output_dir={tmp_path / 'out'}"
    config = load_config(tmp_path / "classifier.yaml", (*more, "training.num_threads=1", out))
    run = new_run(config, plan_run(config), name="kinds")
    assert train_here(run).reason == "completed"
    right = [value for _, _, value in history(run, ("val/accuracy",))]
    assert right[0] < 0.5 < right[-1]


def test_what_only_a_recipe_of_albor_has_is_refused_or_required_by_name(tmp_path):
    data = {"data": {"batch_size": 2, "seq_len": 8}, "optimizer": {"lr": 0.1}}
    data |= {"training": {"output_dir": "out"}, "recipe": {"width": 8}}
    with pytest.raises(ConfigError) as caught:
        parse_config(json.dumps(data).encode(), file="c.yaml")
    fields = {problem.field for problem in caught.value.problems}
    assert fields == {"model.architecture", "data.train", "recipe.width"}
    data["training"]["mode"] = "sft"
    with pytest.raises(ConfigError, match=r"must be causal_lm or package\.module:Class, is 'sft'"):
        parse_config(json.dumps(data).encode(), file="c.yaml")


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("data.document_mask", "true"),
        ("data.packing", "best-fit"),
        ("data.shuffle", "documents"),
        ("training.seq_len_ramp", "[{until: 2, seq_len: 8}]"),
        ("training.stability.z_loss", "1e-4"),
        ("recipe.width", ".inf"),
        ("recipe.inner.rates", "[1, .nan]"),
    ],
)
def test_what_a_class_of_ones_own_cannot_be_told_is_refused_by_name(tmp_path, field, value):
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, f"{field}={value}")
    (problem,) = caught.value.problems
    assert problem.field in (field, f"{field}.1")


def test_a_row_may_hold_one_number_but_not_of_shards(tmp_path):
    assert loaded(tmp_path, "data.seq_len=1").config.data.seq_len == 1
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, "data.seq_len=1", "training.mode=causal_lm")
    said = {problem.field: problem.message for problem in caught.value.problems}
    assert said["data.seq_len"] == "must be at least 2, is 1"


def test_checking_and_planning_load_no_torch(tmp_path):
    loaded(tmp_path)
    code = (
        "import sys; from albor_core.cli.main import cli\n"
        "for verb in ('validate', 'plan'):\n"
        "    assert cli(['train', verb, 'own_model.yaml'], standalone_mode=False) in (0, None)\n"
        "print('torch' in sys.modules, 'own_model' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=180
    )
    assert done.stdout.splitlines()[-1] == "False False", done.stderr


def test_the_example_is_no_longer_than_a_screen():
    lines = (EXAMPLES / "own_model.py").read_text().splitlines()
    assert len([line for line in lines if line.strip()]) <= 40
    assert isinstance(load_config(EXAMPLES / "own_model.yaml"), LoadedConfig)
