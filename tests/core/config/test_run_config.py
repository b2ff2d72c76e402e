"""Configs: the format users have, every problem at once, and what goes in comes out."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from albor_core.config.config import Config
from albor_core.config.hf_config import refusals
from albor_core.config.json_schema import config_schema
from albor_core.config.load import guard_options, load_config, load_packaged, parse_config
from albor_core.config.sections.architecture import ArchitectureConfig
from albor_core.config.text.fields import field_paths
from albor_core.run.errors import ConfigError, NotFoundError

ROOT = Path(__file__).resolve().parents[3]
SPEC = Path(__file__).with_name("pretrain-350m-v2.yaml")
RAW = SPEC.read_bytes()
SHIPPED = sorted({*(ROOT / "configs").rglob("*.yaml")} - {*(ROOT / "configs/data").glob("*")})


def problems(raw=RAW, *, overrides=(), **replacements):
    text = raw.decode()
    for old, new in replacements.pop("replace", {}).items():
        assert old in text
        text = text.replace(old, new, 1)
    with pytest.raises(ConfigError) as caught:
        parse_config(text.encode(), file="c.yaml", overrides=overrides)
    assert caught.value.exit_code == 2
    count = len(caught.value.problems)
    headline = f"c.yaml: {count} problems" if count > 1 else str(caught.value.problems[0])
    assert headline.startswith(caught.value.message)
    return [str(problem) for problem in caught.value.problems]


def parsed(*overrides, raw=RAW):
    return parse_config(raw, file="c.yaml", overrides=overrides)


def test_the_350m_config_that_users_have_is_read_as_written():
    loaded = load_config(SPEC)
    config = loaded.config
    assert loaded.raw == RAW
    assert config.model.architecture.shape().num_parameters == 398_509_056
    assert config.optimizer.lr == 3e-4
    assert config.optimizer.min_lr == 3e-5
    assert config.training.mixed_precision == "fp16"
    assert config.training.save_interval == config.training.checkpoint.save_every == 25
    assert config.training.eval_interval == 25
    assert config.monitoring.alerts[1].condition == "gradient_norm > 100"
    assert config.monitoring.tracking.tags["data"] == "python-code-v2"


@pytest.mark.parametrize("path", SHIPPED, ids=lambda p: p.stem)
def test_every_config_we_ship_parses_and_survives_a_round_trip(path):
    config = load_config(path).config
    assert parse_config(json.dumps(config.resolved()).encode(), file="dumped") == config


def test_the_head_comment_of_a_shipped_config_tells_its_exact_size():
    for path in SHIPPED:
        count = load_config(path).config.model.architecture.shape().num_parameters
        assert f"# {count:,} parameters" in path.read_text()


@pytest.mark.parametrize(
    "overrides",
    [
        (),
        ("monitoring.tracking.tags.rate=3e-4", "monitoring.tracking.tags.word=no"),
        ("training.sample_prompts=['def f(', 'yes', '1e5', '# x: y']",),
        ("training.checkpoint.keep_every=5K", "monitoring.budgets.tokens=10B"),
    ],
)
def test_a_dumped_config_parses_to_an_equal_one(overrides):
    config = parsed(*overrides)
    assert parse_config(json.dumps(config.resolved()).encode(), file="dumped") == config


def test_resolved_holds_every_field_as_plain_json():
    import json

    resolved = parsed().resolved()
    json.dumps(resolved, allow_nan=False)
    for dotted in field_paths(Config):
        here = resolved
        for part in dotted.split("."):
            here = here[part]
    assert Config.model_validate(resolved) == parsed()


def test_every_problem_is_found_at_once_with_line_field_and_fix():
    found = problems(
        replace={
            "num_hidden_layers": "n_layer",
            "lr: 3.0e-4": "lr: true",
            "fp16": "int8",
            "epochs: 1 ": "epochs: -1 ",
            "max_steps: 5000": "max_steps: 5.5",
        }
    )
    assert found == [
        "c.yaml:7: model.architecture.num_hidden_layers: is required",
        "c.yaml:9: model.architecture.n_layer: is not a field "
        "(did you mean model.architecture.num_hidden_layers?)",
        "c.yaml:27: optimizer.lr: must be a number, not true or false, is True",
        "c.yaml:34: training.epochs: must be above 0, is -1",
        "c.yaml:39: training.mixed_precision: must be 'fp32', 'bf16', 'fp16' or 'fp8', is 'int8'",
        "c.yaml:42: training.max_steps: must be a whole number such as 2000, 32_768, 32K or 10B, "
        "is 5.5",
    ]


@pytest.mark.parametrize(
    ("old", "new", "hint"),
    [
        ("warmup_steps: 500", "warmup_step: 500", "training.warmup_steps"),
        ("lr: 3.0e-4", "learning_rate: 3.0e-4", "optimizer.lr"),
        ("seq_len: 1024", "sequence_len: 1024", "data.seq_len"),
        ("hidden_size: 1024", "n_embd: 1024", "model.architecture.hidden_size"),
        ("gradient_accumulation: 1", "gradient_accumulation_steps: 1", "gradient_accumulation"),
        ("optimizer:\n", "optimiser:\n", "optimizer"),
        ('    action: "stop"', '    acton: "stop"', "monitoring.alerts.0.action"),
    ],
)
def test_a_key_nobody_declared_is_refused_by_name_with_the_one_that_was_meant(old, new, hint):
    (found,) = [line for line in problems(replace={old: new}) if "is not a field" in line]
    assert f"{hint}?" in found


@pytest.mark.parametrize(
    ("old", "new", "field", "cause"),
    [
        ("num_attention_heads: 16", "num_attention_heads: 12", "hidden_size", "not a multiple"),
        ("num_key_value_heads: 4", "num_key_value_heads: 5", "num_key_value_heads", "divide"),
        ("seq_len: 1024", "seq_len: 2K", "data.seq_len", "max_position_embeddings 1024"),
        ("warmup_steps: 500", "warmup_steps: 5001", "training.warmup_steps", "run of 5000"),
        ("lr: 3.0e-4", "lr: 1e-4\n  min_lr: 2e-4", "optimizer.min_lr", "above optimizer.lr"),
        ("save_interval: 25", "save_interval: 25\n  checkpoint: {save_every: 26}",
         "training.save_interval", "checkpoint.save_every is 26"),
        ("save_interval: 25", "sample_prompts: [a]", "", ""),
    ],
)  # fmt: skip
def test_fields_that_contradict_each_other_are_named(old, new, field, cause):
    if not field:  # control: this change alone is fine, the spec's config has a tokenizer
        assert parse_config(RAW.decode().replace(old, new).encode(), file="c").training
        return
    (found,) = problems(replace={old: new})
    assert field in found.split(": ")[1]
    assert cause in found


def test_prompts_without_a_tokenizer_are_refused():
    (found,) = problems(overrides=["data.tokenizer=null", "training.sample_prompts=[x]"])
    assert "training.sample_prompts: samples need a tokenizer" in found


@pytest.mark.parametrize("field", ["checkpoint: {save_every: 40}", "save_interval: 40"])
def test_either_name_of_the_save_interval_sets_both(field):
    training = parsed(raw=RAW.replace(b"save_interval: 25", field.encode())).training
    assert (training.save_interval, training.checkpoint.save_every) == (40, 40)


@pytest.mark.parametrize(
    ("override", "range_"),
    [
        ("optimizer.lr=1e300", "at least 1e-12 and at most 100"),
        ("optimizer.lr=nan", "at least 1e-12 and at most 100"),
        ("optimizer.lr=-.inf", "at least 1e-12 and at most 100"),
        ("optimizer.lr='1" + 400 * "0" + "'", "at least 1e-12 and at most 100"),
        ("optimizer.weight_decay=1e300", "at least 0 and at most 100"),
        ("optimizer.eps=1e-300", "at least 1e-30 and below 1"),
        ("optimizer.beta2=1", "at least 0 and below 1"),
        ("model.architecture.rms_norm_eps=1e300", "at least 1e-30 and below 1"),
        ("model.architecture.rope_theta=1e-300", "at least 1 and at most 1e+12"),
        ("model.initialization.matrix=0", "at least 0.5 and at most 10"),
        ("model.initialization.residual=-1", "at least 0 and at most 10"),
        ("model.architecture.num_hidden_layers=1T", "at least 1 and at most 10000"),
        ("data.seq_len=1", "at least 2"),
        ("training.num_threads=100000", "at least 1 and at most 1024"),
        ("training.max_steps=99999999999999999999", "above 0 and at most 4.6"),
        ("training.stability.loss_spike=1e300", "above 1 and at most 1e+12"),
        ("guard.backoff_s=[1, 1e300]", "at least 0 and at most 31536000"),
    ],
    ids=lambda text: text[:40],
)
def test_a_number_that_nothing_can_use_is_refused_with_the_range_of_its_field(override, range_):
    found = problems(overrides=[override])[0]
    assert found.startswith(f"--set {override}: {override.partition('=')[0]}")
    assert f"must be {range_}" in found
    assert ", is " in found


def test_blocks_start_as_quiet_as_can_be_or_audibly():
    (found,) = problems(overrides=["model.initialization.residual=1e-3"])
    assert "model.initialization.residual: must be 0 or at least 0.01, is 0.001" in found
    assert parsed("model.initialization.residual=0.01").model.initialization.residual == 0.01


def test_a_list_whose_items_are_refused_is_not_called_empty_as_well():
    assert len(problems(overrides=["guard.backoff_s=[-1]"])) == 1
    assert "must not be empty" in problems(overrides=["guard.backoff_s=[]"])[0]


def numbers(schema):
    if isinstance(schema, dict):
        if schema.get("type") == "number":
            yield schema
        for inner in schema.values():
            yield from numbers(inner)
    elif isinstance(schema, list):
        for inner in schema:
            yield from numbers(inner)


def test_every_number_of_a_config_has_bounds_that_fp32_holds():
    found = list(numbers(Config.model_json_schema(mode="serialization")))
    assert len(found) > 20
    for one in found:
        least = one.get("minimum", one.get("exclusiveMinimum"))
        most = one.get("maximum", one.get("exclusiveMaximum"))
        assert least < most <= 1e12, one
        assert least >= 0 or least == -most, one  # a value that a rule compares with


@pytest.mark.parametrize(
    ("said", "kept", "segments"),
    [("true", True, 12), ("no", False, 0), ("4", 4, 4), ("1K", 1024, 12), ("2", 2, 2)],
)
def test_blocks_are_computed_again_in_as_many_segments_as_there_are_blocks(said, kept, segments):
    training = parsed(f"training.activation_checkpointing={said}").training
    assert training.activation_checkpointing is kept or training.activation_checkpointing == kept
    assert training.segments(12) == segments


@pytest.mark.parametrize("said", ["1", "-2", "0.5", "some"])
def test_one_segment_or_none_is_refused(said):
    with pytest.raises(ConfigError, match=r"a number of segments from 2 on"):
        parsed(f"training.activation_checkpointing={said}")


@pytest.mark.parametrize("setting", ["muon_lr=0.02", "muon_momentum=0.9", "muon_beta2=0.95"])
def test_a_setting_of_muon_is_refused_where_another_optimizer_would_not_read_it(setting):
    (found,) = problems(overrides=[f"optimizer.{setting}"])
    assert "which only muon reads, and optimizer.name is adamw" in found
    assert parsed(f"optimizer.{setting}", "optimizer.name=muon").optimizer.name == "muon"
    assert parsed("optimizer.muon_lr=null", "optimizer.muon_momentum=0.95")


def test_normuon_is_refused_where_matrices_are_cut():
    sharded = ["training.distributed.world_size=2", "training.distributed.strategy=fsdp"]
    asked = ["optimizer.name=muon", "optimizer.muon_beta2=0.95", *sharded]
    (found,) = problems(overrides=asked)
    assert "optimizer.muon_beta2" in found and "strategy is fsdp" in found
    assert parsed(*asked[:2], sharded[0])


UNTIED = "model.architecture.tie_word_embeddings=false"
PLAIN = "model.initialization.mirrored=false"


def test_a_tied_head_has_neither_rate_nor_start_of_its_own():
    for setting, instead in (
        ("optimizer.head_lr=0.1", "optimizer.embedding_lr"),
        ("model.initialization.head=0.1", "model.initialization.embedding"),
    ):
        (found,) = problems(overrides=[setting, PLAIN])
        assert setting.partition("=")[0] in found and "the head is the embedding" in found
        assert instead in found
        assert parsed(setting, PLAIN, UNTIED)


def test_a_deviation_of_ones_own_is_refused_where_the_start_is_mirrored():
    (found,) = problems(overrides=["model.initialization.embedding=1"])
    assert "set model.initialization.mirrored to false" in found
    (found,) = problems(overrides=["model.initialization.embedding=0", PLAIN])
    assert "model.initialization.embedding" in found


def test_sections_that_are_right_are_held_against_each_other_while_another_is_wrong():
    wrong = ("optimizer.lr=nan", "guard.poll_s=no")
    between = ("data.seq_len=2K", "training.distributed.world_size=3")
    told = {line.split(": ")[1] for line in problems(overrides=(*wrong, *between))}
    assert told == {text.partition("=")[0] for text in (*wrong, *between)}
    told = [line.split(": ")[1] for line in problems(overrides=("data.batch_size=0", *between))]
    assert told == ["data.batch_size"]  # what is wrong itself is not held against anything


NAMES = ("training.save_interval", "training.checkpoint.save_every")


@pytest.mark.parametrize(
    ("line", "overrides", "told"),
    [
        ("save_interval: 0", (), NAMES[:1]),
        ("checkpoint: {save_every: 0}", (), NAMES[1:]),
        ("save_interval: 0\n  checkpoint: {save_every: 0}", (), NAMES),
        ("save_interval: 25", ("training.save_interval=0",), NAMES[:1]),
        ("save_interval: 25", ("training.checkpoint. save_every =0",), NAMES[1:]),
        ("log_interval: 1", ("training.checkpoint={save_every: 0}",), NAMES[1:]),
        ("save_interval: 1", ("training.checkpoint.save_every=0", f"{NAMES[0]}=0"), NAMES[:1]),
    ],
)
def test_a_wrong_save_interval_is_told_under_the_name_that_was_written(line, overrides, told):
    found = problems(replace={"save_interval: 25": line}, overrides=overrides)
    assert sorted(one.split(": ")[-2] for one in found) == sorted(told)


@pytest.mark.parametrize("name", NAMES)
def test_an_override_of_either_name_wins_over_both_in_the_file(name):
    raw = RAW.replace(b"save_interval: 25", b"save_interval: 25\n  checkpoint: {save_every: 25}")
    training = parsed(f"{name}=7", raw=raw).training
    assert (training.save_interval, training.checkpoint.save_every) == (7, 7)


@pytest.mark.parametrize("names", [NAMES, NAMES[::-1]])
def test_both_names_set_to_different_numbers_are_refused_as_in_a_file(names):
    (told,) = problems(overrides=(f"{names[0]}=7", f"{names[1]}=9"))
    assert f"--set {names[1]}=9" in told and f"9, but --set {names[0]}=7" in told
    assert "keep one" in told
    assert parsed(f"{names[0]}=7", f"{names[1]}=7").training.save_interval == 7


@pytest.mark.parametrize("word", ["no", "none", "null", "fp32", "~", "None", "'no'"])
def test_no_mixed_precision_means_fp32(word):
    assert parsed(f"training.mixed_precision={word}").training.mixed_precision == "fp32"


def test_overrides_are_parsed_like_the_file():
    config = parsed(
        "optimizer.lr=3e-4", "training.compile=no", "training.grad_clip=null",
        "training.max_steps=10K", "guard.backoff_s=[1, 2.5]", "monitoring.tracking.tags.seed=3",
    )  # fmt: skip
    assert config.optimizer.lr == 3e-4
    assert config.training.compile is False
    assert config.training.grad_clip is None
    assert config.training.max_steps == 10_240
    assert config.guard.backoff_s == (1.0, 2.5)
    assert config.monitoring.tracking.tags["seed"] == "3"


@pytest.mark.parametrize(
    ("override", "cause"),
    [
        ("optimizer.rate=1", "optimizer.rate: is not a field"),
        ("nonsense", "is not key=value"),
        ("=3", "is not key=value"),
        ("optimizer..lr=3", "is not key=value"),
        ("optimizer.lr=[", "--set optimizer.lr=[:1: "),
        ("optimizer.lr=fast", "must be a number"),
        ("optimizer.lr.x=1", "is not a field"),
        ("model.architecture=null", "model.architecture.hidden_size: is required"),
        ("training.seed=!!python/name:os.system", "the tag"),
    ],
)
def test_an_override_that_is_wrong_is_named_itself(override, cause):
    found = problems(overrides=[override])[0]
    assert found.startswith(f"--set {override}")
    assert cause in found


@pytest.mark.parametrize(
    ("raw", "cause"),
    [
        (b"", "is empty"),
        (b"# only words\n", "is empty"),
        (b"- a\n", "not a mapping"),
        (b"5", "not a"),
    ],
)
def test_what_is_not_a_config_at_all_says_so(raw, cause):
    (found,) = problems(raw)
    assert cause in found


def test_a_section_left_empty_has_its_defaults():
    raw = RAW[: RAW.index(b"monitoring:")] + b"monitoring:\nguard:\n"
    assert parsed(raw=raw).monitoring.system.interval == 5000


def test_a_config_cut_anywhere_is_refused_or_whole_lines_short():
    """A partial save is never a traceback, and loses no section that is required."""
    for end in range(0, len(RAW), 7):
        try:
            config = parse_config(RAW[:end], file="c.yaml")
        except ConfigError as error:
            assert error.problems
        else:
            assert config.training.output_dir


def test_a_missing_file_is_not_found(tmp_path):
    with pytest.raises(NotFoundError, match="No such file"):
        load_config(tmp_path / "nothing.yaml")


def test_a_config_cannot_be_changed_after_it_was_checked():
    with pytest.raises(ValidationError, match="frozen"):
        parsed().training.max_steps = 3


def test_guard_options_are_checked_like_the_guard_section():
    assert guard_options(["stale_s=60"])["stale_s"] == 60.0
    with pytest.raises(ConfigError) as caught:
        guard_options(["stal_s=60", "poll_s=-1", "backoff_s=[]"])
    assert len(caught.value.problems) == 3
    assert caught.value.problems[0].hint == "did you mean stale_s?"


def test_the_demo_config_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_packaged("demo", ["optimizer.lr=1e-3"]).config.optimizer.lr == 1e-3


def test_a_config_of_albors_own_is_named_where_no_file_has_that_name(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config(Path("demo")).config == load_packaged("demo").config
    (tmp_path / "train").mkdir()  # a folder is no config
    assert load_config(Path("train/pretrain-50m")) == load_config(Path("pretrain-50m"))
    (tmp_path / "demo").write_bytes(RAW)
    assert load_config(Path("demo")).raw == RAW
    for path in ("dem", "demo.yaml", "configs/demo.yaml", "train", "../demo"):
        with pytest.raises(NotFoundError) as caught:
            load_config(Path(path))
        assert "albor init" in caught.value.hint and "train/pretrain-350m" in caught.value.hint


def test_every_field_is_described_in_the_schema():
    schema = config_schema()
    sections = {"Config": schema, **schema["$defs"]}
    for name, section in sections.items():
        for field, body in section["properties"].items():
            if field in ArchitectureConfig.BIASES:
                continue  # the section says which may be on
            described = body.get("description") or "$ref" in body  # a section has its own words
            assert described, f"{name}.{field} has no docstring"


def test_reading_a_config_loads_nothing_heavy():
    code = (
        "import sys, albor_core.config.load, albor_core.plan.plan\n"
        "print([m for m in ('torch', 'numpy', 'pyarrow', 'textual', 'psutil') if m in sys.modules])"
    )
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        cwd=ROOT,
        timeout=60,
        check=True,
    )
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize(
    ("alias", "name", "value"),
    [
        ("num_layers", "num_hidden_layers", 2),
        ("num_heads", "num_attention_heads", 4),
        ("num_kv_heads", "num_key_value_heads", 2),
        ("max_seq_length", "max_position_embeddings", 4096),
    ],
)
def test_a_shape_is_read_under_the_names_that_other_configs_have_for_it(alias, name, value):
    said = yaml.safe_load(RAW)
    said["model"]["architecture"].pop(name)
    said["model"]["architecture"][alias] = value
    found = parse_config(json.dumps(said).encode(), file="c.yaml")
    assert getattr(found.model.architecture, name) == value
    again = parsed(f"model.architecture.{alias}={value}")
    assert getattr(again.model.architecture, name) == value


def test_two_names_of_one_field_that_disagree_are_refused():
    said = yaml.safe_load(RAW)
    said["model"]["architecture"]["num_layers"] = 77
    with pytest.raises(ConfigError) as refused:
        parse_config(json.dumps(said).encode(), file="c.yaml")
    (problem,) = refused.value.problems
    assert problem.field == "model.architecture.num_layers"
    assert "they are the same setting" in problem.hint


@pytest.mark.parametrize("name", ["use_bias", "attention_bias", "mlp_bias"])
@pytest.mark.parametrize("family", ["llama", "mistral", "qwen3"])
def test_biases_may_be_off_and_are_refused_where_they_are_on(name, family):
    kind = f"model.architecture.model_type={family}"
    assert parsed(kind, f"model.architecture.{name}=false") == parsed(kind)
    (found,) = problems(overrides=(kind, f"model.architecture.{name}=true"))
    assert f"model.architecture.{name}: must be false" in found
    assert name == "mlp_bias" or "model_type: qwen2" in found


def test_qwen2s_own_config_may_say_what_transformers_does_not_read_there():
    assert not list(refusals({"model_type": "qwen2", "attention_bias": True}))
    assert list(refusals({"model_type": "qwen3", "attention_bias": True}))


@pytest.mark.parametrize("name", ["use_bias", "attention_bias"])
def test_qwen2_has_the_biases_that_a_config_says_and_cannot_do_without(name):
    qwen2 = "model.architecture.model_type=qwen2"
    assert parsed(qwen2, f"model.architecture.{name}=true") == parsed(qwen2)
    (found,) = problems(overrides=(qwen2, f"model.architecture.{name}=false"))
    assert f"model.architecture.{name}: must be true: qwen2 has biases on q, k and v" in found


@pytest.mark.parametrize(
    ("override", "why"),
    [
        ("monitoring.terminal.charts=[{type: nonsense, metric: loss}]", "'loss_curve' or 'line'"),
        ("monitoring.terminal.charts=[{type: loss_curve, metric: mfu}]", "draws loss"),
        ("monitoring.terminal.charts=[{metric: mfuu}]", "must be one of loss"),
        ("monitoring.terminal.metrics=[mfuu]", "must be one of loss"),
        ("monitoring.terminal.refresh_rate=5", "at least 100"),
        ("monitoring.system.metrics=[fans]", "'gpu_utilization', 'memory'"),
        (
            "monitoring.terminal.charts=[{metric: mfu},{metric: a/b},{metric: a/c},{metric: a/d}]",
            "room for 3",
        ),
    ],
)
def test_what_a_terminal_cannot_show_is_refused_with_what_to_write(override, why):
    (problem,) = problems(overrides=(override,))
    assert why in problem
