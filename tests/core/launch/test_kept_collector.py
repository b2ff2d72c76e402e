"""Headers of a collector of traces work for the run that a config began, and are not in it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from tiny_run import tiny_config, train_here

from albor_core.config.load import load_config
from albor_core.config.text.overrides import shown_override
from albor_core.launch import local
from albor_core.launch.planned import plan_run
from albor_core.launch.run_folder import new_run
from albor_core.launch.start import start
from albor_core.run.errors import ConfigError
from albor_core.run.home.folders import albor_home
from albor_core.run.rundir import RunDir
from albor_core.store.file.paths import global_store
from albor_core.store.spans.collector import collector_of, otlp_file
from albor_core.store.upkeep.remove import remove_run

SECRET = "s3cretheadervalue"
OTLP = {"endpoint": "http://collector.test:4318", "headers": {"x-api-key": SECRET}}


@pytest.fixture(autouse=True)
def no_guard(tmp_path, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(local, "start_guard", lambda run, **_: None)


def begin(folder: Path, otlp: dict[str, object]) -> RunDir:
    path = folder / "c.yaml"
    path.write_text(yaml.safe_dump(tiny_config(folder, monitoring__otlp=otlp)))
    loaded = load_config(path)
    run = new_run(loaded, plan_run(loaded), name=None)
    start(run)
    return run


def holders(folder: Path) -> list[Path]:
    files = (path for path in folder.rglob("*") if path.is_file())
    return [path for path in files if SECRET.encode() in path.read_bytes()]


@pytest.mark.slow
def test_a_header_is_in_no_file_of_its_run_and_is_sent_all_the_same(tmp_path):
    run = begin(tmp_path, OTLP)
    train_here(run)  # its journal has every field, its checkpoints have the config
    assert holders(run.path) == []
    assert holders(albor_home()) == [otlp_file(run.id)]
    assert "x-api-key: hidden" in run.config_yaml.read_text()
    found, _ = collector_of(run, {})
    assert found is not None
    assert (found.url, found.headers) == (
        "http://collector.test:4318/v1/traces",
        {"x-api-key": SECRET},
    )
    start(run)  # goes on, by its own copy
    assert collector_of(run, {})[0] == found
    remove_run(run, global_store())
    assert not otlp_file(run.id).exists()


def test_a_copied_config_that_hides_its_header_begins_nothing(tmp_path):
    run = begin(tmp_path, OTLP)
    made = plan_run(load_config(run.config_yaml))
    assert [(one.field, one.message) for one in made.problems] == [
        ("monitoring.otlp.headers.x-api-key", "was hidden in this copy of a config")
    ]


def test_a_short_header_is_hidden_where_it_stands_and_nowhere_else(tmp_path):
    run = begin(tmp_path, {**OTLP, "headers": {"x-scope-orgid": "1"}})
    kept = yaml.safe_load(run.config_yaml.read_text())
    assert kept["monitoring"]["otlp"]["headers"] == {"x-scope-orgid": "hidden"}
    del kept["monitoring"]
    given = yaml.safe_load((tmp_path / "c.yaml").read_text())
    del given["monitoring"]
    assert kept == given


@pytest.mark.parametrize(
    ("otlp", "field"),
    [
        ({"endpoint": "localhost:4318"}, "monitoring.otlp.endpoint"),
        ({"endpoint": f"http://u:{SECRET}@h"}, "monitoring.otlp.endpoint"),
        ({"headers": {"a": SECRET}}, "monitoring.otlp.headers"),
        ({**OTLP, "headers": {"a b": SECRET}}, "monitoring.otlp.headers.a b"),
        ({**OTLP, "headers": {"a": f"{SECRET}\n"}}, "monitoring.otlp.headers.a"),
        ({**OTLP, "headers": {"Host": SECRET}}, "monitoring.otlp.headers.Host"),
    ],
)
def test_what_no_collector_could_get_is_a_problem_that_repeats_no_secret(tmp_path, otlp, field):
    with pytest.raises(ConfigError) as refused:
        begin(tmp_path, otlp)
    assert [one.field for one in refused.value.problems] == [field]
    assert SECRET not in str(refused.value.problems)


@pytest.mark.parametrize(
    "override",
    [
        f"monitoring.otlp.headers.x-api-key={SECRET}",
        f"monitoring.otlp={{headers: {{a: {SECRET}}}}}",
    ],
)
def test_no_header_is_taken_from_a_command_line(tmp_path, override):
    path = tmp_path / "c.yaml"
    path.write_text(yaml.safe_dump(tiny_config(tmp_path)))
    with pytest.raises(ConfigError) as refused:
        load_config(path, overrides=(override,))
    assert "OTEL_EXPORTER_OTLP_HEADERS" in str(refused.value.problems)
    assert SECRET not in str(refused.value.problems) + shown_override(override)
