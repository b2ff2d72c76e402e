"""Every leaf of the config's schema is read by something, and not by the schema alone.

A recorder notes which fields are looked up from outside the schema's own modules while a config is
planned, begun and trained; sections that are handed on as plain data (guard, alerts, terminal, ...)
are held against what becomes of them when a leaf changes. A leaf that neither finds is dead.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal, get_args, get_origin

import pytest
from tiny_run import make_run, tiny_config, train_here, write_documents, write_tokenizer

from albor_core import guard
from albor_core.andon.budgets.limits import BudgetLimits
from albor_core.andon.channels.sinks import sinks_from
from albor_core.andon.explain import andon_problems, explain
from albor_core.andon.health.facts import HealthFacts
from albor_core.andon.rules.sources import rules_from
from albor_core.config.config import Config
from albor_core.config.load import LoadedConfig, parse_config
from albor_core.config.secret_urls import sink_entries
from albor_core.config.sections.guard import GuardConfig
from albor_core.config.sections.section import Section
from albor_core.feed.run.terminal import terminal_of
from albor_core.launch import local
from albor_core.launch.planned import plan_run
from albor_core.launch.run_folder import new_run
from albor_core.launch.start import start
from albor_core.recipes.recipe import Recipe
from albor_core.run.guard_options import parse_options
from albor_core.train.observe.alert_monitor import AlertMonitor

OWN = tuple(f"run/{name}.py" for name in ("sections", "config", "reference", "kept_config"))


def leaves(section: type[Section] = Config, path: str = "") -> Iterator[tuple[type[Section], str]]:
    """(class, dotted path) of every leaf, those of sections in lists too."""
    for name, field in section.model_fields.items():
        inner = section_in(field.annotation)
        if inner is not None:
            yield from leaves(inner, f"{path}{name}.")
        else:
            yield section, f"{path}{name}"


def section_in(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(section_in, get_args(annotation))), None)


LEAVES = tuple(leaves())


def is_fixed(section: type[Section], name: str) -> bool:
    """Whether the schema knows one value only: every other is refused."""
    annotation = section.model_fields[name].annotation
    return get_origin(annotation) is Literal and len(get_args(annotation)) == 1


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> set[tuple[type[Section], str]]:
    """The fields that planning, starting and training look up."""
    found: set[tuple[type[Section], str]] = set()
    plain = Section.__getattribute__

    def noting(self: Section, name: str) -> Any:
        fields = type(self).__dict__.get("__pydantic_fields__", {})
        if name in fields and not sys._getframe(1).f_code.co_filename.endswith(OWN):
            found.add((type(self), name))
        return plain(self, name)

    muon = {"optimizer__name": "muon", "training__nan_limit": 2}
    ramps = {
        "training__max_steps": 4,
        "training__gradient_accumulation": 2,
        "training__batch_ramp": [{"until": 2, "gradient_accumulation": 1}],
        "training__seq_len_ramp": [{"until": 2, "seq_len": 16}],
    }
    shards = tmp_path_factory.mktemp("shards")
    sources = [
        {"path": str(write_documents(shards / name, 20, seed)), "weight": 1, "name": name}
        for seed, name in enumerate(("a", "b", "c", "d"))
    ]
    mixed = {
        "data__train": ...,
        "data__val": ...,
        "data__mixture": sources[:2],
        "data__val_mixture": sources[2:],
        "data__curriculum": [{"from": 8, "weights": {"a": 1}}],
        "data__fim": {"rate": 0.5},
        "data__tokenizer": str(write_tokenizer(shards / "tokenizer.json")),
    }
    cases = (({}, ""), (muon, "loss:nan@8-9"), (ramps, ""), (mixed, ""))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("ALBOR_HOME", str(tmp_path_factory.mktemp("home")))
        patch.setattr(Section, "__getattribute__", noting)
        patch.setattr(local, "start_guard", lambda run, **_: None)
        for number, (changes, faults) in enumerate(cases):
            folder = tmp_path_factory.mktemp(f"leaves{number}")
            raw = json.dumps(tiny_config(folder, **changes)).encode()
            loaded = LoadedConfig(raw, parse_config(raw, file="tiny.yaml"), Path("tiny.yaml"))
            start(new_run(loaded, plan_run(loaded), name=None))
            train_here(make_run(folder / "run", f"leaves-{number}", **changes), faults=faults)
    return found


Consumer = Callable[[Config], Any]
HANDED_ON: dict[str, Consumer] = {  # sections that are handed on as plain data -> what they become
    "model.architecture.": lambda config: config.model.architecture.shape(),
    "monitoring.terminal.": lambda config: terminal_of(config.resolved()),
    "monitoring.alerts.argv": lambda config: andon_problems(monitoring(config)),
    "monitoring.alerts.": lambda config: rules_from(monitoring(config), warmup_steps=0),
    "monitoring.budgets.": lambda config: BudgetLimits.from_config(monitoring(config)),
    "monitoring.health.": lambda config: HealthFacts.from_config(config.resolved()),
    "monitoring.bricks.": lambda config: (
        (cord := AlertMonitor(monitoring(config), warmup_steps=0, attempt=1)).budgets_ms,
        cord.traces,
        explain((), bricks=monitoring(config)["bricks"]),
    ),
    "monitoring.notify.": lambda config: sinks_from(sink_entries(config)),
    "guard.": lambda config: parse_options(config.resolved()["guard"]),
    "data.curriculum.": lambda config: config.data.stages(),
    "data.mixture.name": lambda config: config.data.stages(),
    "data.mixture.weight": lambda config: config.data.stages(),
    "data.val_mixture.name": lambda config: [one.title for one in config.data.val_mixture],
    "recipe": lambda config: Recipe.settings.fget(SimpleNamespace(config=config)),
}
MIXED = {
    "train": ...,
    "val": ...,
    "mixture": [
        {"path": "a", "weight": 1, "name": "one"},
        {"path": "b", "weight": 1, "name": "b"},
    ],
    "val_mixture": [{"path": "a", "weight": 1, "name": "one"}],
    "curriculum": [{"from": 8, "weights": {"b": 1}}],
}
WORDS = {  # texts say for themselves what else may stand there
    "model.architecture.rope_scaling.rope_type": "linear",
    "monitoring.terminal.metrics": ["mfu"],
    "monitoring.terminal.charts.metric": "brick/data_ms",
    "monitoring.alerts.condition": "loss > 7",
    "monitoring.alerts.message": "other",
    "monitoring.alerts.action": "pause",
    "monitoring.alerts.severity": "critical",
    "monitoring.alerts.cooldown_s": 30.0,
    "monitoring.alerts.argv": ["true"],
    "monitoring.budgets.currency": "EUR",
    "monitoring.budgets.soft": 0.5,
    "monitoring.health.ignore": ["gpu"],
    "monitoring.notify.kind": "console",
    "monitoring.notify.name": "mine",
    "monitoring.notify.url_env": "B_WEBHOOK",
    "monitoring.notify.url": "https://b.test/y",
    "monitoring.notify.argv": ["b"],
    "guard.backoff_s": [7.0],
    "model.architecture.model_type": "qwen2",
    "model.architecture.head_dim": 16,
    "model.architecture.window_pattern": "LS",
    "model.architecture.rope_scaling.truncate": False,
    "recipe": {"width": 16},
    "data.mixture.name": "other",
    "data.val_mixture.name": "other",
    "data.curriculum.weights": {"one": 1},
}
ROPE = "model.architecture.rope_scaling."
YARN = {"rope_type": "yarn", "factor": 2.0, "original_max_position_embeddings": 16}
LLAMA3 = {**YARN, "rope_type": "llama3", "low_freq_factor": 1.0, "high_freq_factor": 4.0}
SHAPES = {  # fields that not every family or rotation has -> an architecture that has them
    "model.architecture.sliding_window": {"model_type": "mistral"},
    "model.architecture.window_pattern": {"model_type": "qwen3", "sliding_window": 8},
    f"{ROPE}low_freq_factor": {"rope_scaling": LLAMA3},
    f"{ROPE}high_freq_factor": {"rope_scaling": LLAMA3},
}
SINKS = {  # fields of a sink that not every kind has -> a sink that has them
    "monitoring.notify.kind": {"kind": "desktop"},
    "monitoring.notify.url": {"kind": "webhook", "url": "https://a.test/x"},
    "monitoring.notify.argv": {"kind": "command", "argv": ["a"]},
}


def monitoring(config: Config) -> dict[str, Any]:
    found: dict[str, Any] = config.resolved()["monitoring"]
    return found


def other_value(section: type[Section], path: str, now: Any) -> Any:
    """Another value that may stand at `path`."""
    field = section.model_fields[path.rsplit(".", 1)[-1]]
    if path in WORDS:
        return WORDS[path]
    if isinstance(now, bool):
        return not now
    if get_origin(field.annotation) is Literal:
        return next(word for word in get_args(field.annotation) if word != now)
    assert now is None or isinstance(now, int | float), f"say in WORDS what else {path} may be"
    return 7 if now is None else now * 2


def changed(config: dict[str, Any], section: type[Section], path: str) -> dict[str, Any]:
    """The same config with another value at `path`, in the first item of a list."""
    config = json.loads(json.dumps(config))
    *parents, last = path.split(".")
    place = config
    for name in parents:
        place = place[name][0] if isinstance(place[name], list) else place[name]
    place[last] = other_value(section, path, place[last])
    return config


@pytest.mark.parametrize(("section", "path"), LEAVES, ids=[path for _, path in LEAVES])
def test_every_leaf_of_the_config_has_an_effect(section, path, read, tmp_path):
    if is_fixed(section, path.rsplit(".", 1)[-1]):
        return
    becomes = next((one for start, one in HANDED_ON.items() if path.startswith(start)), None)
    if becomes is None:
        assert (section, path.rsplit(".", 1)[-1]) in read, f"nothing reads {path}"
        return
    sink = SINKS.get(path, {"kind": "webhook", "url_env": "A_WEBHOOK"})
    shape = SHAPES.get(path, {"rope_scaling": YARN} if path.startswith(ROPE) else {})
    base = full_config(tmp_path, sink, shape, MIXED if path.startswith("data.") else {})
    if path == "recipe":
        base["training"]["mode"], base["recipe"] = "own_model:Mine", {"width": 8}
    other = changed(base, section, path)
    assert becomes(checked(base)) != becomes(checked(other)), f"nothing comes of {path}"


def checked(data: dict[str, Any]) -> Config:
    return parse_config(json.dumps(data).encode(), file="tiny.yaml")


def full_config(
    folder: Path, sink: dict[str, Any], shape: dict[str, Any], data: dict[str, Any]
) -> dict[str, Any]:
    """A config in which every leaf stands, with one item in each list of sections."""
    given = tiny_config(
        folder,
        monitoring__terminal={"charts": [{"type": "line", "metric": "loss"}]},
        monitoring__budgets={"rate_per_gpu_hour": 2.0},
        monitoring__alerts=[{"condition": "loss > 9", "action": "warn", "message": "high"}],
        monitoring__notify=[sink],
        **{f"data__{name}": value for name, value in data.items()},
    )
    given["model"]["architecture"] |= shape
    return checked(given).resolved()


def test_the_guard_uses_every_option_that_a_config_gives_it():
    source = "".join(path.read_text() for path in Path(*guard.__path__).rglob("*.py"))
    dead = [name for name in GuardConfig.model_fields if f"options.{name}" not in source
            and f"policy.{name}" not in source]  # fmt: skip
    assert dead == []


def test_a_leaf_that_nobody_reads_is_found(read):
    class Lonely(Section):
        forgotten: int = 1

    assert (Lonely, "forgotten") not in read
    assert Lonely().forgotten == 1
