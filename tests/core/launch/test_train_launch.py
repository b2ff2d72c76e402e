"""Handing a run to its guard: what the trainer's environment keeps of the user's."""

import sys
from hashlib import sha256

import pytest
from click.testing import CliRunner
from tiny_run import make_run, tiny_config, train_here

from albor_core.cli.common import follow
from albor_core.cli.main import cli
from albor_core.config.load import load_config
from albor_core.config.resume_changes import edited, origin
from albor_core.guard.launch import CODE_ROOT
from albor_core.launch import environment, local, planned
from albor_core.launch.planned import plan_run
from albor_core.launch.run_folder import resize
from albor_core.launch.start import start
from albor_core.run.errors import ConfigError, InUseError, Problem, UsageError
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.liveness import Liveness
from albor_core.run.program.launched_rank import LaunchedRank
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.flatten import diff_configs


def test_an_uninstalled_checkout_keeps_the_users_own_python_path(tmp_path, monkeypatch):
    run = make_run(tmp_path)
    monkeypatch.setenv("PYTHONPATH", "/modules/site")
    monkeypatch.setattr(environment, "is_installed", lambda: False)
    monkeypatch.setattr(local, "start_guard", lambda run, **more: None)
    start(run)
    assert read_json(run.launch)["env"]["PYTHONPATH"] == f"{CODE_ROOT}:/modules/site"


def test_a_resume_is_asked_for_and_waits_out_no_backoff_of_a_guard_that_was_killed(
    tmp_path, monkeypatch
):
    asked = []
    monkeypatch.setattr(local, "start_guard", lambda run, **more: asked.append(more))
    monkeypatch.setattr(follow, "follow", lambda run, begin, **more: begin() or 0)
    done = CliRunner().invoke(cli, ["train", "resume", str(make_run(tmp_path).path)])
    assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
    assert [one["forgets"] for one in asked] == [True]


def test_x31_resuming_a_run_from_elsewhere_takes_neither_program_nor_environment_from_it(
    tmp_path, monkeypatch
):
    run = make_run(tmp_path)
    evil = {"LD_PRELOAD": "/tmp/evil.so", "ALBOR_FAULTS": "step:kill@1", "PYTHONPATH": "/tmp/evil"}
    planted = {"schema": "albor.launch/1", "argv": ["/tmp/evil.sh"], "env": evil}
    write_json(run.launch, {**planted, "cwd": str(tmp_path)})
    monkeypatch.setattr(local, "start_guard", lambda run, **more: None)
    start(run)
    written = read_json(run.launch)
    assert written["argv"][:4] == [sys.executable, "-P", "-m", "albor_core.train"]
    assert not {"LD_PRELOAD", "ALBOR_FAULTS"} & written["env"].keys()
    assert "evil" not in run.launch.read_text()


def test_a_run_goes_on_with_other_ranks_while_it_is_at_rest_and_they_can_share_its_batch(
    tmp_path, monkeypatch
):
    run = make_run(tmp_path)
    resize(run, 2)
    before = read_json(run.config_resolved)
    assert before["training"]["distributed"] == {"world_size": 2, "strategy": "ddp"}
    with pytest.raises(ConfigError, match="3 ranks cannot share a global batch of 4") as refused:
        resize(run, 3)
    assert refused.value.message.startswith("--world-size 3: ")
    assert refused.value.message.endswith("; 2 or 4 would do")
    assert refused.value.hint == f"albor train resume {run.id} --world-size 2"
    assert "--set" not in str(refused.value.problems)
    monkeypatch.setattr(RunDir, "liveness", lambda run: Liveness(1, None))
    with pytest.raises(InUseError, match="cannot change the ranks"):
        resize(run, 1)
    assert read_json(run.config_resolved) == before


def test_more_ranks_than_one_machine_starts_are_refused_but_where_a_launcher_starts_them(
    tmp_path, monkeypatch
):
    ranks = {"data__batch_size": 80, "training__distributed": {"world_size": 80}}
    run, asked = make_run(tmp_path, **ranks), []
    monkeypatch.setattr(local, "start_guard", lambda run, **more: asked.append(run.id))
    with pytest.raises(ConfigError, match="80 ranks on one machine, where at most 64") as refused:
        start(run)
    assert f"albor train resume {run.id} --world-size N" in refused.value.hint
    assert not run.launch.exists() and asked == []
    start(run, launched=LaunchedRank("torchrun", 0, 80, 0, "host-0", 29500))
    assert asked == [run.id]


def test_ranks_asked_for_at_a_resume_are_no_edit_of_the_config_and_survive_one(tmp_path):
    run = make_run(tmp_path)
    loaded = load_config(run.config_yaml)
    write_json(run.run_json, {**run.metadata(), **origin(loaded)})
    resize(run, 2)
    assert edited(run) is None
    run.config_yaml.write_text(run.config_yaml.read_text().replace('"lr": 0', '"lr": 1'))
    after = edited(run).config.resolved()
    assert after["training"]["distributed"]["world_size"] == 2
    assert [path for path, _, _ in diff_configs(read_json(run.config_resolved), after)] == [
        "optimizer.lr",
        "optimizer.min_lr",
    ]


@pytest.mark.parametrize(
    "was, now, field",
    [
        ('"name": "adamw"', '"name": "muon"', "optimizer.name"),
        ('"hidden_size": 32', '"hidden_size": 64', "model.architecture.hidden_size"),
        ('"path": "."', '"path": "elsewhere"', "model.path"),
        (
            '"num_key_value_heads": 2',
            '"num_key_value_heads": 1',
            "model.architecture.num_key_value_heads",
        ),
    ],
)
def test_an_edit_that_no_checkpoint_fits_is_refused_before_the_run_takes_it(
    tmp_path, was, now, field
):
    run = make_run(tmp_path)
    write_json(run.run_json, {**run.metadata(), **origin(load_config(run.config_yaml))})
    train_here(run, stop_after=6)
    before = run.config_resolved.read_bytes(), run.run_json.read_bytes()
    text = run.config_yaml.read_text()
    run.config_yaml.write_text(text.replace(was, now))
    with pytest.raises(ConfigError, match="checkpoints are of another config") as refused:
        start(run, allow_config_change=True)
    assert [problem.field for problem in refused.value.problems] == [field]
    assert (run.config_resolved.read_bytes(), run.run_json.read_bytes()) == before
    run.config_yaml.write_text(text)
    assert edited(run) is None


@pytest.mark.parametrize("text", ['{"model": [', '{"optimizer": {"lr": -1}}'])
def test_a_config_of_a_run_that_is_wrong_is_to_be_mended_and_the_run_resumed(tmp_path, text):
    run = make_run(tmp_path)
    loaded = load_config(run.config_yaml, ())
    write_json(run.run_json, {**run.metadata(), **origin(loaded)})
    run.config_yaml.write_text(text)
    with pytest.raises(ConfigError) as refused:
        start(run)
    assert refused.value.hint.startswith(f"fix {run.config_yaml}")
    assert refused.value.hint.endswith(f"then `albor train resume {run.id}`")


def test_a_run_without_a_guard_section_is_refused_in_words(tmp_path):
    run = create_run(
        tmp_path, "one", experiment="e", name="one", kind="train", argv=[], resolved={}
    )
    with pytest.raises(UsageError, match="no section guard"):
        start(run)


def test_a_run_of_an_older_version_is_refused_by_field_and_goes_on_once_mended(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(local, "start_guard", lambda run, **more: None)
    run = make_run(tmp_path, guard={"poll_s": 0.5})
    for path in (run.config_yaml, run.config_resolved):
        text = path.read_text()
        path.write_text(text.replace('"poll_s": 0.5', '"poll_s": 1e-9'))
        assert path.read_text() != text
    about = {**run.metadata(), "config_sha256": sha256(run.config_yaml.read_bytes()).hexdigest()}
    write_json(run.run_json, about)
    with pytest.raises(ConfigError, match="poll_s") as refused:
        start(run)
    assert [problem.field for problem in refused.value.problems] == ["guard.poll_s"]
    assert "--allow-config-change" in refused.value.hint
    run.config_yaml.write_text(run.config_yaml.read_text().replace("1e-9", "0.25"))
    start(run, allow_config_change=True)
    assert read_json(run.config_resolved)["guard"]["poll_s"] == 0.25


def test_a_field_that_is_younger_than_the_run_is_no_edit_of_it(tmp_path):
    run = make_run(tmp_path)
    write_json(run.run_json, {**run.metadata(), **origin(load_config(run.config_yaml))})
    resolved = read_json(run.config_resolved)
    del resolved["model"]["initialization"]
    write_json(run.config_resolved, resolved)
    text = run.config_yaml.read_text()
    run.config_yaml.write_text(
        text.replace('"model": {', '"model": {"initialization": {"residual": 0.5}, ')
    )
    with pytest.raises(ConfigError, match="edited since the run began") as refused:
        start(run)
    assert [one.field for one in refused.value.problems] == ["model.initialization.residual"]


def test_an_edit_needs_the_weights_a_run_began_from_no_longer(tmp_path, monkeypatch):
    monkeypatch.setattr(local, "start_guard", lambda run, **more: None)
    run = make_run(tmp_path)
    write_json(run.run_json, {**run.metadata(), **origin(load_config(run.config_yaml))})
    (run.checkpoints / "step-00000006").mkdir(parents=True)
    monkeypatch.setattr(planned, "weights_problems", lambda *given, **more: [Problem("x", "gone")])
    run.config_yaml.write_text(run.config_yaml.read_text().replace('"epochs": 10', '"epochs": 11'))
    start(run, allow_config_change=True)
    assert read_json(run.config_resolved)["training"]["epochs"] == 11


@pytest.mark.parametrize("end, is_taken", [(19, False), (20, True), (30, True)])
def test_an_end_that_the_run_has_passed_is_refused_before_the_run_takes_it(
    tmp_path, monkeypatch, end, is_taken
):
    monkeypatch.setattr(local, "start_guard", lambda run, **more: None)
    run = make_run(tmp_path)
    write_json(run.run_json, {**run.metadata(), **origin(load_config(run.config_yaml))})
    (run.checkpoints / "step-00000020").mkdir()
    before = run.config_resolved.read_bytes(), run.run_json.read_bytes()
    text = run.config_yaml.read_text()
    run.config_yaml.write_text(text.replace('"max_steps": 24', f'"max_steps": {end}'))
    if is_taken:
        start(run, allow_config_change=True)
        assert run.metadata()["max_steps"] == end
        return
    with pytest.raises(ConfigError, match="nothing was started") as refused:
        start(run, allow_config_change=True)
    (problem,) = refused.value.problems
    assert problem.field == "training.max_steps"
    assert problem.message == "the checkpoint is at step 20, max_steps 19 is below it"
    assert (run.config_resolved.read_bytes(), run.run_json.read_bytes()) == before
    assert not run.launch.exists()


def test_a_run_without_a_checkpoint_is_refused_once_the_weights_it_names_are_gone(
    tmp_path, monkeypatch
):
    started = []
    monkeypatch.setattr(local, "start_guard", lambda run, **more: started.append(run))
    run = make_run(tmp_path, model__path=str(tmp_path / "gone"))
    (run.checkpoints / "step-00000005.tmp").mkdir()  # of a killed save
    with pytest.raises(ConfigError, match=r"model\.path: .*gone: no such directory") as refused:
        start(run)
    assert f"albor train resume {run.id}" in refused.value.hint
    assert not started
    with monkeypatch.context() as patch:  # a trainer that lives has read them
        patch.setattr(RunDir, "liveness", lambda run: Liveness(1, None))
        start(run)
    (run.checkpoints / "bad-step-00000005").mkdir()  # that it stops for, and says so
    start(run)
    assert len(started) == 2


@pytest.mark.parametrize(
    "spoil, cause",
    [
        (lambda text: text[: len(text) // 2], "is damaged: it is not complete JSON"),
        (lambda text: "", "is damaged: it is empty"),
        (lambda text: "\0" * len(text), "is damaged: it is all NUL"),
        (lambda text: f"[{text}]", "is damaged: it is not a JSON object"),
        (
            lambda text: text.replace('"guard"', '"gu\\u0000rd"'),
            "is damaged: it has no section guard",
        ),
        (
            lambda text: text.replace('"hidden_size"', '"hidden_sixe"'),
            "is damaged: .*hidden_size: is",
        ),
        (None, "is gone"),
    ],
    ids=["cut", "empty", "zeros", "list", "guard", "value", "gone"],
)
def test_a_damaged_config_of_a_run_is_said_to_be_and_the_right_one_is_left_alone(
    tmp_path, spoil, cause
):
    run = make_run(tmp_path)
    loaded = load_config(run.config_yaml, ("optimizer.lr=0.002",))
    write_json(run.run_json, {**run.metadata(), **origin(loaded)})
    (run.checkpoints / "step-00000005").mkdir()
    if spoil is None:
        run.config_resolved.unlink()
    else:
        run.config_resolved.write_text(spoil(run.config_resolved.read_text()))
    for go_on in (start, lambda run: resize(run, 2)):
        with pytest.raises(ConfigError, match=f"^{run.config_resolved} {cause}") as refused:
            go_on(run)
        assert f"fix {run.config_yaml}" not in refused.value.hint
        assert refused.value.hint.endswith(
            f"albor train apply {run.config_yaml} --set optimizer.lr=0.002"
            f" --set model.path={run.checkpoints / 'step-00000005'}"
        )


@pytest.mark.parametrize(
    ("changes", "warns"),
    [({}, True), ({"model__initialization__residual": 1}, False)],
    ids=["quiet", "loud"],
)
def test_a_rule_that_the_first_gradients_of_a_quiet_start_would_pull_is_told(
    tmp_path, changes, warns
):
    rule = {"condition": "gradient_norm > 100", "action": "stop"}
    config = tiny_config(tmp_path, monitoring__alerts=[rule], **changes)
    write_json(tmp_path / "c.yaml", config)
    planned = plan_run(load_config(tmp_path / "c.yaml", ()))
    assert any("first gradients may reach 600" in sentence for sentence in planned.andon) == warns
