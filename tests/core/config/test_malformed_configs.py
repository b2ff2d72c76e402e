"""79 ways in which a config is wrong: each is named with its line and field, none is a traceback,
and several of them in one file are all named in one pass.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from called import albor

from albor_core.andon.explain import andon_problems
from albor_core.config.load import load_config
from albor_core.run.errors import ConfigError

RAW = Path(__file__).with_name("pretrain-350m-v2.yaml").read_text()
SHAPE, DATA, OPT, LOOP = "model.architecture.", "data.", "optimizer.", "training."

# what is replaced in a config that is right, by what; the field that is named, and a word of why
FAULTS: list[tuple[str, str, str, str]] = [
    # types
    ("hidden_size: 1024", "hidden_size: wide", SHAPE + "hidden_size", "whole number"),
    ("hidden_size: 1024", "hidden_size: [1024]", SHAPE + "hidden_size", "whole number"),
    ("hidden_size: 1024", "hidden_size: {of: 1024}", SHAPE + "hidden_size", "whole number"),
    ("hidden_size: 1024", "hidden_size: true", SHAPE + "hidden_size", "whole number"),
    ("hidden_size: 1024", "hidden_size:", SHAPE + "hidden_size", "whole number"),
    ("hidden_size: 1024", "hidden_size: 1024.5", SHAPE + "hidden_size", "whole number"),
    ("hidden_size: 1024", "hidden_size: 2026-11-26", SHAPE + "hidden_size", "whole number"),
    ('mode: "causal_lm"', "mode: 7", LOOP + "mode", "7"),
    ("lr: 3.0e-4", "lr: fast", OPT + "lr", "number"),
    ("lr: 3.0e-4", "lr: yes", OPT + "lr", "number"),
    ('path: "."', "path: [here]", "model.path", "must be text"),
    ('input_column: "input_ids"', "input_column: 5", DATA + "input_column", "must be text"),
    ("epochs: 1 ", "epochs: 1 week ", LOOP + "epochs", "whole number"),
    ("beta1: 0.9", "beta1: '0,9'", OPT + "beta1", "number"),
    ("enabled: true\n    refresh", "enabled: perhaps\n    refresh",
     "monitoring.terminal.enabled", "true or false"),
    # ranges
    ("hidden_size: 1024", "hidden_size: 0", SHAPE + "hidden_size", "above 0"),
    ("num_hidden_layers: 24", "num_hidden_layers: -24", SHAPE + "num_hidden_layers", "at least 1"),
    ("num_hidden_layers: 24", "num_hidden_layers: 9000000", SHAPE + "num_hidden_layers", "at most"),
    ("batch_size: 4", "batch_size: -4", DATA + "batch_size", "above 0"),
    ("seq_len: 1024", "seq_len: 1", DATA + "seq_len", "at least 2"),
    ("lr: 3.0e-4", "lr: 0", OPT + "lr", "at least"),
    ("lr: 3.0e-4", "lr: 3000", OPT + "lr", "at most 100"),
    ("beta1: 0.9", "beta1: 1.0", OPT + "beta1", "below 1"),
    ("beta2: 0.95", "beta2: -0.1", OPT + "beta2", "at least 0"),
    ("weight_decay: 0.1", "weight_decay: -0.1", OPT + "weight_decay", "at least 0"),
    ("rms_norm_eps: 1.0e-5", "rms_norm_eps: 0", SHAPE + "rms_norm_eps", "at least"),
    ("epochs: 1 ", "epochs: 0 ", LOOP + "epochs", "above 0"),
    ("warmup_steps: 500", "warmup_steps: -1", LOOP + "warmup_steps", "at least 0"),
    ("refresh_rate: 1000", "refresh_rate: 1", "monitoring.terminal.refresh_rate", "at least 100"),
    # huge and no numbers
    ("lr: 3.0e-4", "lr: .nan", OPT + "lr", "at least"),
    ("lr: 3.0e-4", "lr: .inf", OPT + "lr", "at most 100"),
    ("lr: 3.0e-4", "lr: 1e999", OPT + "lr", "at most 100"),
    ("max_steps: 5000", "max_steps: 1e400", LOOP + "max_steps", "is inf"),
    ("max_steps: 5000", f"max_steps: {'9' * 39}", LOOP + "max_steps", "at most"),
    ("max_steps: 5000", f"max_steps: {'9' * 5000}", LOOP + "max_steps", "not what its tag says"),
    ("max_steps: 5000", "max_steps: .nan", LOOP + "max_steps", "nan"),
    ("vocab_size: 32768", "vocab_size: 0xffffffffffffffffffff", SHAPE + "vocab_size", "at most"),
    # wrong units
    ("max_steps: 5000", "max_steps: 5.5K tokens", LOOP + "max_steps", "whole number"),
    ("max_steps: 5000", "max_steps: 5KB", LOOP + "max_steps", "whole number"),
    ("interval: 5000 ", "interval: 5s ", "monitoring.system.interval", "whole number"),
    ("lr: 3.0e-4", "lr: 3%", OPT + "lr", "number"),
    ("seq_len: 1024", "seq_len: 1024 tokens", DATA + "seq_len", "whole number"),
    ('output_dir: "./checkpoints/albor-base-350m-v2"', "output_dir: 12", LOOP + "output_dir",
     "must be text"),
    # keys
    ("hidden_size: 1024", "n_embd: 1024", SHAPE + "n_embd", "not a field"),
    ("batch_size: 4", "batch-size: 4", DATA + "batch-size", "not a field"),
    ("optimizer:", "optimiser:", "optimiser", "not a field"),
    ("optimizer:", "Optimizer:", "Optimizer", "not a field"),
    ("  lr: 3.0e-4", "  lr: 3.0e-4\n  lr: 1.0e-4", OPT + "lr", "given twice, first on line"),
    ("monitoring:", "training: {}\nmonitoring:", "training", "given twice"),
    ("  lr: 3.0e-4", "  ? [a, b]\n  : 3", "optimizer", "key must be a word"),
    ("  lr: 3.0e-4", "  weight_decay: 0.1", OPT + "lr", "is required"),
    ("  lr: 3.0e-4", "  <<: 5\n  lr: 3.0e-4", "optimizer", "<< takes a mapping"),
    ("  lr: 3.0e-4", "  <<: !!python/object:os.x {a: 1}\n  lr: 3.0e-4", "optimizer",
     "not allowed"),
    # what only Python's YAML would do
    ("lr: 3.0e-4", "lr: !!python/object/apply:os.system [touch never]", OPT + "lr",
     "tag !!python/object/apply:os.system is not allowed"),
    ("lr: 3.0e-4", "lr: !!python/name:os.system", OPT + "lr", "not allowed"),
    ("lr: 3.0e-4", "lr: !!binary aGVsbG8=", OPT + "lr", "not allowed"),
    ("lr: 3.0e-4", "lr: !mine 3", OPT + "lr", "not allowed"),
    ("lr: 3.0e-4", "lr: !!int many", OPT + "lr", "not what its tag says"),
    # the file as a whole
    ("  epochs: 1 ", "\tepochs: 1 ", "", "\\t"),
    ("  epochs: 1 ", "    epochs: 1 ", "", "expected"),
    ("lr: 3.0e-4", "lr: [3.0e-4", "", "expected"),
    ("lr: 3.0e-4", 'lr: "3.0e-4', "", "scalar"),
    ("lr: 3.0e-4", "lr: *peak", "", "peak"),
    ("lr: 3.0e-4", "lr: \x07", "", "character"),
    ("monitoring:", "---\nmonitoring:", "", "document"),
    ("  lr: 3.0e-4", "  lr: " + "[" * 40 + "]" * 40, "", "more than 32 levels"),
    ("  lr: 3.0e-4", "  lr: &l [1]\n  b: [" + ", ".join(["*l"] * 120) + "]", "",
     "more than 100 aliases"),
    ("  lr: 3.0e-4", "  lr: &a [1, 1, 1, 1, 1, 1, 1, 1, 1]\n" + "\n".join(
        f"  {b}: &{b} [{', '.join(['*' + a] * 9)}]" for a, b in zip("abcde", "bcdef", strict=True)
    ) + "\n  g: [*f, *f, *f]", "optimizer.", "unfolds to too much"),
    # contradictions
    ("hidden_size: 1024", "hidden_size: 1000", SHAPE + "hidden_size",
     "not a multiple of num_attention_heads 16"),
    ("num_key_value_heads: 4", "num_key_value_heads: 5", SHAPE + "num_key_value_heads", "5"),
    ("weight_decay: 0.1", "min_lr: 1", OPT + "min_lr", "above optimizer.lr"),
    ("warmup_steps: 500", "warmup_steps: 5001", LOOP + "warmup_steps", "in a run of 5000"),
    ("save_interval: 25", "save_interval: 25\n  checkpoint: {save_every: 50}",
     LOOP + "save_interval", "save_every is 50"),
    ('lr_scheduler: "cosine"', "lr_scheduler: constant\n  decay_steps: 10", LOOP + "decay_steps",
     "constant"),
    ("gradient_accumulation: 1", "gradient_accumulation: 1\n  distributed: {world_size: 3}",
     LOOP + "distributed.world_size", "evenly"),
    # words
    ('lr_scheduler: "cosine"', "lr_scheduler: cosign", LOOP + "lr_scheduler", "must be 'cosine'"),
    ('name: "adamw"', "name: sgd", OPT + "name", "must be 'adamw'"),
    ('mixed_precision: "fp16"', "mixed_precision: int4", LOOP + "mixed_precision", "must be"),
    ('condition: "loss > 10"', 'condition: "loss goes up"', "monitoring.alerts.0.condition",
     "loss goes up"),
]  # fmt: skip


def with_faults(*faults: tuple[str, str, str, str]) -> str:
    text = RAW
    for old, new, *_ in faults:
        assert old in text, old
        text = text.replace(old, new, 1)
    return text


def line_of(text: str, fault: tuple[str, str, str, str]) -> int:
    """Where the first line of what was put in stands, or its second where that is what is wrong."""
    return text[: text.index(fault[1])].count("\n") + 1


def test_there_are_79_and_no_two_are_the_same():
    assert len({(old, new) for old, new, *_ in FAULTS}) == len(FAULTS) == 79


@pytest.mark.parametrize("fault", FAULTS, ids=[f"{n}-{f[2]}" for n, f in enumerate(FAULTS)])
def test_a_fault_is_named_with_its_line_and_field(fault, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    text = with_faults(fault)
    Path("c.yaml").write_text(text)
    code, said = albor("train", "validate", "c.yaml", "--json")
    assert code == 1
    problems = json.loads(said)["error"]["problems"]
    first = line_of(text, fault)
    near = range(first, first + fault[1].count("\n") + 2)  # what is not closed ends a line later
    if fault[1] in ('lr: "3.0e-4', "lr: [3.0e-4") or "is required" in fault[3]:
        near = range(first - 3, text.count("\n") + 2)
    named = [
        one
        for one in problems
        if one["field"].startswith(fault[2]) and fault[3] in one["message"] + one["hint"]
    ]
    assert named, problems
    file, line = named[0]["file"].split(":")
    assert file == "c.yaml" and int(line) in near, (named, first)
    assert not Path("never").exists()
    assert len(problems) <= 4, problems  # what follows from a fault is not told as many


def test_a_fault_makes_no_traceback_in_words_either(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for fault in FAULTS[::6]:
        Path("c.yaml").write_text(with_faults(fault))
        for verb in ("plan", "validate"):
            code, said = albor("train", verb, "c.yaml")
            assert code == 1 and "Traceback" not in said and fault[3] in said


def test_faults_of_every_kind_in_one_file_are_named_in_one_pass_in_the_order_of_its_lines(tmp_path):
    chosen = [
        ("hidden_size: 1024", "hidden_size: wide", "", ""),
        ("batch_size: 4", "batch-size: 4", "", ""),
        ("  lr: 3.0e-4", "  lr: 3.0e-4\n  lr: 1.0e-4", "", ""),
        ("beta1: 0.9", "beta1: !!python/name:os.system", "", ""),
        ("beta2: 0.95", "beta2: .nan", "", ""),
        ("warmup_steps: 500", "warmup_steps: 5001", "", ""),
        ('condition: "loss > 10"', 'condition: "loss goes up"', "", ""),
    ]
    path = tmp_path / "c.yaml"
    path.write_text(text := with_faults(*chosen))
    with pytest.raises(ConfigError) as refused:
        load_config(path, ("training.seed=-1",), andon_problems)
    found = [(one.file.rpartition(":")[2], one.field) for one in refused.value.problems]
    lines = [line_of(text, fault) for fault in chosen]
    assert found == [
        (str(lines[0]), "model.architecture.hidden_size"),
        (str(line_of(text, ("", "data:", "", ""))), "data.batch_size"),
        (str(lines[1]), "data.batch-size"),
        (str(lines[2] + 1), "optimizer.lr"),
        (str(lines[3]), "optimizer.beta1"),
        (str(lines[4]), "optimizer.beta2"),
        (str(lines[5]), "training.warmup_steps"),
        (str(lines[6]), "monitoring.alerts.0.condition"),
        ("--set training.seed=-1", "training.seed"),
    ]


@pytest.mark.parametrize("line", ["seed: 1\n", "{}: 1\n"], ids=["doubled", "unknown"])
def test_a_file_of_a_thousand_faults_tells_the_first_hundred_and_how_many_are_left(line, tmp_path):
    path = tmp_path / "c.yaml"
    path.write_text(RAW + "recipe: {}\nguard:\n" + "".join(
        "  " + line.format(f"word{number}") for number in range(1001)
    ))  # fmt: skip
    with pytest.raises(ConfigError) as refused:
        load_config(path)
    told = refused.value.problems
    assert len(told) <= 103
    assert any(str(problem).startswith(f"{path}: has 90") for problem in told), told[-3:]
