"""The URL of a webhook works for the run that a config began, and stands in nothing of it."""

from __future__ import annotations

import json
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from called import albor
from tiny_run import tiny_config, train_here

from albor_core.andon.channels.kept_sinks import config_sinks, sinks_file, sinks_of, user_sinks
from albor_core.config.load import LoadedConfig, load_config
from albor_core.launch import local
from albor_core.launch.planned import plan_run
from albor_core.launch.run_folder import new_run
from albor_core.launch.start import start
from albor_core.run.errors import ConfigError
from albor_core.run.home.folders import albor_home
from albor_core.run.home.new_run import create_run
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.index.catch_up import drain_index
from albor_core.store.query.filter import parse_filter
from albor_core.store.query.reader import Reader
from albor_core.store.upkeep.move import move_run
from albor_core.store.upkeep.remove import remove_run

SECRET = "s3cretpathpart"
URL = f"https://hooks.test/services/{SECRET}"
WEBHOOK = {"kind": "webhook", "url": URL, "format": "slack"}


@pytest.fixture(autouse=True)
def no_guard(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(local, "start_guard", lambda run, **_: None)


def config_file(folder: Path, *sinks: dict[str, Any], name: str = "c.yaml") -> Path:
    path = folder / name
    path.write_text(
        f"# {URL} is ours\n" + yaml.safe_dump(tiny_config(folder, monitoring__notify=list(sinks)))
    )
    return path


def begin(path: Path, **options: Any) -> RunDir:
    loaded = load_config(path)
    run = new_run(loaded, plan_run(loaded), name=None)
    start(run, **options)
    return run


def test_the_tags_of_a_config_are_tags_of_its_run(tmp_path):
    tags = {"model": "tiny", "stage": "test", "data": "code"}
    (tmp_path / "c.yaml").write_text(
        yaml.safe_dump(tiny_config(tmp_path, monitoring__tracking={"tags": tags}))
    )
    run = begin(tmp_path / "c.yaml")
    drain_index(run)
    with Reader(global_store()) as reader:
        assert reader.run(run.id).tags == ("data:code", "model:tiny", "stage:test")
        for words in ("tag:stage", "tag:stage:test", "has:tag", "tag:Model", "tag:st*"):
            assert [row.id for row in reader.runs(where=parse_filter(words))] == [run.id], words
        for words in ("tag:sta", "tag:test"):
            assert not reader.runs(where=parse_filter(words)), words


def holders(*folders: Path) -> list[str]:
    """Files that hold the secret part of the URL."""
    files = (path for folder in folders for path in folder.rglob("*") if path.is_file())
    return [str(path) for path in files if SECRET.encode() in path.read_bytes()]


def test_a_url_is_in_no_file_of_its_run_and_works_all_the_same(tmp_path):
    path = config_file(tmp_path, WEBHOOK)
    run = begin(path)
    train_here(run)  # its journal has every field, its checkpoints have the config
    assert run.checkpoints.is_dir()
    assert holders(run.path) == []
    assert "url: hidden" in run.config_yaml.read_text()
    assert holders(albor_home()) == [str(sinks_file(run.id))]
    assert stat.S_IMODE(sinks_file(run.id).stat().st_mode) == 0o600
    assert stat.S_IMODE(sinks_file(run.id).parent.stat().st_mode) == 0o700
    (sink,) = config_sinks(run)
    assert sink.address({}) == URL
    assert SECRET not in repr(sink)


def test_a_url_in_a_changed_file_of_the_repository_is_not_recorded(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    config_file(tmp_path)

    def git(*words: str) -> None:
        words = ("-c", "user.name=a", "-c", "user.email=a@b.test", *words)
        subprocess.run(["git", *words], check=True, capture_output=True)

    git("init")
    git("add", "c.yaml")
    git("commit", "-m", "a")
    run = begin(config_file(tmp_path, WEBHOOK))
    assert "c.yaml" in json.dumps(run.metadata()["git"])
    assert holders(run.path) == []


def test_a_run_that_is_resumed_keeps_its_url_and_takes_an_edited_one(tmp_path):
    run = begin(config_file(tmp_path, WEBHOOK))
    start(run)
    assert config_sinks(run)[0].address({}) == URL
    other = URL + "-other"
    run.config_yaml.write_text(
        run.config_yaml.read_text().replace("url: hidden", f"severity: error\n    url: {other}")
    )
    start(run, allow_config_change=True)
    (sink,) = config_sinks(run)
    assert (sink.address({}), sink.severity) == (other, "error")
    assert holders(run.path) == []
    run.config_yaml.write_text(run.config_yaml.read_text().replace("error", "critical"))
    start(run, allow_config_change=True)
    (sink,) = config_sinks(run)
    assert (sink.address({}), sink.severity) == (other, "critical")


def test_another_url_in_the_config_of_a_run_that_goes_on_is_used(tmp_path, monkeypatch):
    from albor_core.cli.common import follow

    monkeypatch.setattr(follow, "follow", lambda run, begin, **_: begin() or 0)
    run = begin(config_file(tmp_path, WEBHOOK))
    path = config_file(tmp_path, {**WEBHOOK, "url": URL + "-new"})
    code, said = albor("train", "apply", str(path), "--resume", "auto")
    assert code == 0, said
    assert config_sinks(run)[0].address({}) == URL + "-new"
    assert SECRET not in said


def test_a_copy_of_a_run_and_one_that_is_known_elsewhere_have_no_sinks(tmp_path):
    import shutil

    command = {"kind": "command", "argv": [sys.executable, "-c", "pass"]}
    run = begin(config_file(tmp_path, WEBHOOK, command))
    assert len(config_sinks(run)) == 2
    copy = tmp_path / "copies" / run.id
    shutil.copytree(run.path, copy)
    assert config_sinks(RunDir(copy)) == ()
    assert config_sinks(RunDir(run.path, alias=f"{run.id}@other")) == ()


def test_a_run_takes_its_sinks_along_when_it_is_moved_and_leaves_none_when_it_is_removed(tmp_path):
    run = begin(config_file(tmp_path, WEBHOOK))
    (tmp_path / "there").mkdir()
    move_run(run, tmp_path / "there")
    moved = RunDir(tmp_path / "there" / run.id)
    assert moved.path.is_dir()
    assert config_sinks(moved)[0].address({}) == URL
    remove_run(moved, global_store())
    assert not sinks_file(run.id).exists()


def test_a_copied_config_that_hides_its_url_begins_nothing(tmp_path):
    run = begin(config_file(tmp_path, WEBHOOK))
    made = plan_run(load_config(run.config_yaml))
    assert [(p.field, p.message) for p in made.problems] == [
        ("monitoring.notify.0.url", "was hidden in this copy of a config")
    ]


def test_a_plan_says_which_sink_gets_what_and_which_variable_is_missing(tmp_path, monkeypatch):
    sink = {"kind": "webhook", "url_env": "MY_WEBHOOK", "format": "discord", "severity": "error"}
    path = config_file(tmp_path, sink, {"kind": "desktop"})
    monkeypatch.delenv("MY_WEBHOOK", raising=False)
    made = plan_run(load_config(path))
    written = path.read_text().splitlines()
    line = 1 + next(number for number, text in enumerate(written) if "url_env" in text)
    assert [str(problem) for problem in made.problems] == [
        f"{path}:{line}: monitoring.notify.0.url_env: MY_WEBHOOK is not set in this environment"
        " (export MY_WEBHOOK=URL)"
    ]
    monkeypatch.setenv("MY_WEBHOOK", URL)
    made = plan_run(load_config(path))
    assert not made.problems
    notes = [note for note in made.notes if "alerts are sent" in note]
    assert notes == [
        "alerts are sent to discord: discord webhook from $MY_WEBHOOK;"
        " alerts of severity error and worse",
        "alerts are sent to desktop: notices of the terminal that the cockpit is in;"
        " alerts of severity warning and worse",
    ]
    assert SECRET not in json.dumps(made.to_json())


@pytest.mark.parametrize(
    ("sink", "field", "says"),
    [
        ({"kind": "webhook", "url": f"http://h.test/{SECRET}"}, "url", "allow_http: true"),
        ({"kind": "webhook", "url": f"file:///{SECRET}"}, "url", "must begin with https://"),
        ({"kind": "webhook", "url": f"https://u:{SECRET}@h.test/"}, "url", "a user or a password"),
        ({"kind": "webhook", "url": [f"https://h.test/{SECRET}"]}, "url", "must be text"),
        ({"kind": "webhook", "url_env": f"https://h.test/{SECRET}"}, "url_env", "must be the name"),
        ({"kind": "webhook", "url_env": "ALBOR_HOME"}, "url_env", "value reports show"),
        ({"kind": "webhook"}, "url_env", "is missing"),
        ({**WEBHOOK, "url_env": "A_WEBHOOK"}, "url_env", "keep one"),
        ({"kind": f"https://h.test/{SECRET}"}, "kind", "must be 'webhook'"),
        ({"kind": "desktop", "url": URL}, "url", "is of a webhook only"),
        ({"kind": "desktop", "argv": ["a"]}, "argv", "is of a command only"),
        ({"kind": "command"}, "argv", "must be a list of words"),
        ({"kind": "command", "argv": f"curl {URL}"}, "argv", "must be a list"),
        ({"kind": "command", "argv": [""]}, "argv", "must be a list of words"),
        ({**WEBHOOK, "severity": "red"}, "severity", "must be 'info'"),
        ({**WEBHOOK, "format": "irc"}, "format", "must be 'json'"),
        ({**WEBHOOK, URL: 1}, "hidden", "is not a field"),
        ({**WEBHOOK, "name": "a\nb"}, "name", "must be a word"),
    ],
)
def test_what_is_wrong_with_a_sink_is_said_by_its_field_and_without_its_url(
    sink, field, says, tmp_path
):
    path = config_file(tmp_path, sink)
    code, said = albor("train", "validate", str(path))
    assert code == 1
    problem = next(line for line in said.splitlines() if "monitoring.notify" in line)
    assert f"monitoring.notify.0.{field}: " in problem
    assert says in said
    assert SECRET not in said


@pytest.mark.parametrize("key", ["monitoring.notify", "monitoring"])
def test_a_url_on_the_command_line_is_refused_and_not_repeated(key, tmp_path):
    value = f"[{{kind: webhook, url: '{URL}'}}]"
    value = value if key == "monitoring.notify" else f"{{notify: {value}}}"
    path = config_file(tmp_path)
    words = ["--set", f"{key}={value}", "--set", "training.max_steps=9", "--set", "nope=1"]
    code, said = albor("train", "apply", str(path), *words)
    assert code == 2
    assert "a command line is shown to every user" in said
    assert "training.max_steps=9" in said
    assert SECRET not in said
    assert not (tmp_path / "out").exists()


def test_a_url_that_cannot_be_taken_out_of_the_file_begins_nothing(tmp_path):
    path = config_file(tmp_path, WEBHOOK)
    split = URL[:20] + "\\x" + format(ord(URL[20]), "02x") + URL[21:]
    text = path.read_text().replace(f"url: {URL}", f'url: "{split}"')
    path.write_text(text.replace(f"# {URL} is ours", ""))
    loaded = load_config(path)
    assert isinstance(loaded, LoadedConfig)
    with pytest.raises(ConfigError, match="not written in one piece") as caught:
        new_run(loaded, plan_run(loaded), name=None)
    assert SECRET not in str(caught.value)
    assert not (tmp_path / "out").exists()


def rules_file(text: str) -> None:
    albor_home().mkdir(parents=True, exist_ok=True)
    (albor_home() / "rules.yaml").write_text(text)


def test_the_sinks_of_a_user_are_those_of_every_run(tmp_path):
    run = create_run(tmp_path, "mine", experiment="e", name="n", kind="track", argv=[])
    assert sinks_of(run) == ((), "")
    rules_file(f"notify:\n- {{kind: webhook, url: '{URL}', format: ntfy}}\n- {{kind: desktop}}\n")
    sinks, problem = sinks_of(run)
    assert [(sink.name, sink.source) for sink in sinks] == [("ntfy", "user"), ("desktop", "user")]
    assert problem == ""


def test_a_sink_of_the_config_and_of_the_user_is_one(tmp_path):
    run = begin(config_file(tmp_path, WEBHOOK))
    rules_file(f"notify:\n- {{kind: webhook, url: '{URL}'}}\n- {{kind: webhook, url: '{URL}2'}}\n")
    sinks, _ = sinks_of(run)
    assert [(sink.name, sink.source) for sink in sinks] == [
        ("slack", "config"),
        ("webhook-2", "user"),
    ]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (f"notify: [{{kind: webhook, url: '{URL}', severity: x}}]", "notify.0.severity"),
        (f"notify: {URL}", "must be a list"),
        (f"notify: ['{URL}']", "must be a section"),
        (f"notify:\n- kind: webhook\n  url: {{{URL}", "line"),
        ("notify: [\x00]", "is not YAML"),
    ],
)
def test_a_damaged_list_of_the_user_is_said_without_a_url_and_takes_no_other_sink_away(
    text, says, tmp_path
):
    run = begin(config_file(tmp_path, WEBHOOK))
    rules_file(text)
    with pytest.raises(ConfigError, match=r"rules\.yaml") as caught:
        user_sinks()
    assert says in caught.value.message
    assert SECRET not in caught.value.message
    sinks, problem = sinks_of(run)
    assert [sink.name for sink in sinks] == ["slack"]
    assert problem == caught.value.message
