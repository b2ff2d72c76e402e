"""The sections of a training config. The docstring under a field is the only description of it.

Keys are those users have on disk (`optimizer.lr`, `training.gradient_accumulation`). Unknown keys
are refused. A section whose fields all have defaults may be left out or empty.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationInfo,
    create_model,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticCustomError

from albor_core.config.choices import OptimizerName, PackingName, ScheduleName, ShuffleName
from albor_core.config.hf_config import MOST_LAYERS, architecture_of, refusals
from albor_core.config.microbatches import MAX_RANKS
from albor_core.config.recipes import registry as recipes
from albor_core.config.shape import SIZES, Family, ModelShape, RopeKind, RopeScaling
from albor_core.run.errors import ConfigError, Problem
from albor_core.run.guard_options import Options
from albor_core.run.rundir import read_json
from albor_core.run.values.numbers import parse_count, parse_real

CROSS_CHECK = "cross_check"  # error type that carries the Problems of a section


def _text(value: object) -> object:
    """Numbers and booleans where a tag is a word: `year: 2026` means "2026"."""
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int | float) else value


_SWITCH = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}


def _auto_or_bool(value: object) -> object:
    words = {"auto": "auto", **_SWITCH}
    word = str(value).lower() if isinstance(value, str | bool) else ""
    if word not in words:
        raise ValueError("must be auto, true or false")
    return words[word]


def _segments(value: object) -> object:
    found = _SWITCH.get(str(value).lower(), value)
    if found is None or isinstance(found, bool):
        return bool(found)
    try:
        number = parse_count(found)
    except ValueError:
        number = 0
    if number < 2:
        raise ValueError("must be true, false, or a number of segments from 2 on")
    return number


def _precision(value: object) -> object:
    aliases = {"no": "fp32", "none": "fp32", "float16": "fp16", "bfloat16": "bf16"}
    if value is None or value is False:
        return "fp32"
    return aliases.get(value.lower(), value.lower()) if isinstance(value, str) else value


_Precision = Literal[
    "fp32", "bf16", "fp16", "fp8", "no", "none", "float16", "bfloat16", False, None
]


def convert_with(parse: Any) -> Any:
    """Our sentence as a pydantic error; a ValueError would be prefixed with 'Value error, '."""

    def convert(value: object) -> object:
        try:
            return parse(value)
        except ValueError as error:
            raise PydanticCustomError("value", str(error)) from error

    return convert


def _real(value: object) -> float:
    try:
        return parse_real(value)
    except OverflowError:  # beyond a double
        return math.inf


_INT = BeforeValidator(convert_with(parse_count), json_schema_input_type=int | str)
_REAL = BeforeValidator(convert_with(_real), json_schema_input_type=float | str)

Tokens = Annotated[int, Field(ge=2, le=2**62), _INT]  # the last one is only a target
Count = Annotated[int, Field(gt=0, le=2**62), _INT]  # at least one
CountOrZero = Annotated[int, Field(ge=0, le=2**62), _INT]
Layers = Annotated[int, Field(ge=1, le=MOST_LAYERS), _INT]
Threads = Annotated[int, Field(ge=1, le=1024), _INT]  # OpenMP dies of 100,000

# Bounds of numbers are wide, and inside what fp32 holds together with their products.
Rate = Annotated[float, Field(ge=1e-12, le=100), _REAL]
RateOrZero = Annotated[float, Field(ge=0, le=100), _REAL]
Epsilon = Annotated[float, Field(ge=1e-30, lt=1), _REAL]
Scale = Annotated[float, Field(ge=0.5, le=10), _REAL]
ScaleOrZero = Annotated[float, Field(ge=0, le=10), _REAL]
Deviation = Annotated[float, Field(ge=1e-6, le=10), _REAL]
QUIETEST = 0.01  # below it blocks that write alike are quieter than those that need not
Factor = Annotated[float, Field(ge=1e-12, le=1e12), _REAL]
Hours = Annotated[float, Field(gt=0, le=1e6), _REAL]
Amount = Annotated[float, Field(gt=0, le=1e12), _REAL]
Milliseconds = Annotated[float, Field(gt=0, le=1e9), _REAL]
RefreshMs = Annotated[int, Field(ge=100, le=3_600_000), _INT]
Seconds = Annotated[float, Field(ge=0.001, le=365 * 86400), _REAL]
SecondsOrZero = Annotated[float, Field(ge=0, le=365 * 86400), _REAL]
Finite = Annotated[float, Field(ge=-1e12, le=1e12), _REAL]
Weight = Annotated[float, Field(ge=0, le=1e12), _REAL]
Portion = Annotated[float, Field(gt=0, le=1), _REAL]
Fraction01 = Annotated[float, Field(ge=0, lt=1), _REAL]
Word = Annotated[str, BeforeValidator(_text, json_schema_input_type=str | int | float | bool)]


class Section(BaseModel):
    """Frozen; unknown keys refused; `problems` says what does not fit together."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        allow_inf_nan=False,
        protected_namespaces=(),
    )

    @classmethod
    def meanings(cls) -> dict[str, str]:
        """The docstring under each field, in one line. Read from the source where it is asked for:
        pydantic's own way parses all sections at each import, 65 of 290 ms of a command's CPU time.
        """
        import ast  # noqa: PLC0415
        import inspect  # noqa: PLC0415

        found: dict[str, str] = {}
        for section in cls.__mro__[: cls.__mro__.index(Section)]:
            with suppress(OSError):  # made by create_model, whose fields say it themselves
                (tree,) = ast.parse(inspect.getsource(section)).body
                assert isinstance(tree, ast.ClassDef)
                for item, below in pairwise(tree.body):
                    match item, below:
                        case (
                            ast.AnnAssign(target=ast.Name(id=name)),
                            ast.Expr(value=ast.Constant(value=str(text))),
                        ):
                            found.setdefault(name, " ".join(text.split()))
        fields = cls.model_fields.items()
        told = {name: " ".join(one.description.split()) for name, one in fields if one.description}
        return found | told

    def problems(self) -> Iterator[Problem]:
        """What is wrong between fields that are right by themselves; fields relative to here."""
        yield from ()

    @model_validator(mode="before")
    @classmethod
    def _empty_section_is_defaults(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        if found := tuple(self.problems()):
            raise PydanticCustomError(CROSS_CHECK, "fields do not fit", {"found": found})
        return self


class RopeScalingConfig(Section):
    """A rotation that reaches further than the plain one; names are those of transformers."""

    rope_type: RopeKind
    """`linear` slows all wavelengths down, `llama3` those that are long, `yarn` by a ramp."""
    factor: Annotated[float, Field(ge=1, le=1e6), _REAL]
    """How much longer a context is than the first one."""
    original_max_position_embeddings: Count | None = None
    """Length of the first context; `llama3` and `yarn` need it."""
    low_freq_factor: Annotated[float, Field(gt=0, le=1e6), _REAL] | None = None
    """Turns in the first context up to which `llama3` slows down in full."""
    high_freq_factor: Annotated[float, Field(gt=0, le=1e6), _REAL] | None = None
    """Turns in the first context from which `llama3` slows nothing down."""
    attention_factor: Annotated[float, Field(gt=0, le=1e3), _REAL] | None = None
    """What `yarn` multiplies cos and sin by; without it 0.1 ln(factor) + 1."""
    beta_fast: Annotated[float, Field(gt=0, le=1e6), _REAL] | None = None
    """Turns from which `yarn` slows nothing down; without it 32."""
    beta_slow: Annotated[float, Field(gt=0, le=1e6), _REAL] | None = None
    """Turns up to which `yarn` slows down in full; without it 1."""
    truncate: bool | None = None
    """Whether `yarn` rounds the ends of its ramp to whole pairs; without it true."""

    def scaling(self) -> RopeScaling:
        return RopeScaling(**self.model_dump())


BIASES_ON: Final = (True, "true", "yes", "on")
BIASES_OFF: Final = (False, "false", "no", "off")


class ArchitectureConfig(Section):
    """Shape of a decoder; names are those of transformers' configs. num_layers, num_heads,
    num_kv_heads and max_seq_length are read as well. What it leaves out comes from the config.json
    in model.path, if that names weights. There are no biases but those of qwen2 on q, k and v:
    use_bias or attention_bias true says so there; elsewhere, as mlp_bias, they may say false."""

    ALIASES: ClassVar[Mapping[str, str]] = {
        "num_layers": "num_hidden_layers",
        "num_heads": "num_attention_heads",
        "num_kv_heads": "num_key_value_heads",
        "max_seq_length": "max_position_embeddings",
    }
    BIASES: ClassVar[tuple[str, ...]] = ("use_bias", "attention_bias", "mlp_bias")

    hidden_size: Count
    """Width of the residual stream."""
    num_hidden_layers: Layers
    """Decoder blocks."""
    num_attention_heads: Count
    """Query heads; divides hidden_size."""
    num_key_value_heads: Count
    """Key/value heads (grouped-query attention); divides num_attention_heads."""
    intermediate_size: Count
    """Width of the SwiGLU feed-forward layer."""
    vocab_size: Count
    """Rows of the embedding; at least the tokenizer's vocabulary."""
    max_position_embeddings: Count
    """Longest sequence the model is meant for."""
    rms_norm_eps: Epsilon = 1e-5
    """Added to the mean square in RMSNorm."""
    rope_theta: Annotated[float, Field(ge=1, le=1e12), _REAL] = 10000.0
    """Base of the rotary embedding's wavelengths."""
    tie_word_embeddings: bool = True
    """Whether the output head shares the embedding's weights."""
    model_type: Family = "llama"
    """Family, in transformers' name: `qwen2` has biases on q, k and v, `qwen3` norms each head of q
    and k; `mistral` may have a sliding_window, `qwen2` and `qwen3` one in some layers."""
    head_dim: Count | None = None
    """Width of a head; without it hidden_size / num_attention_heads."""
    rope_scaling: RopeScalingConfig | None = None
    """Rotation for contexts longer than the first one; without it the plain one."""
    sliding_window: Count | None = None
    """Tokens that a position sees, itself included; without it all before it."""
    window_pattern: Annotated[str, Field(max_length=MOST_LAYERS)] = ""
    """Which layers of a `qwen2` or `qwen3` see sliding_window tokens (S) and which all (L), again
    and again: with SSSL every fourth sees all. Without it all slide."""

    @model_validator(mode="before")
    @classmethod
    def _other_names(cls, value: Any) -> Any:
        """Fields under the names that other configs have for them, and what may only be off."""
        if not isinstance(value, Mapping):
            return value
        found, wrong = dict(value), []
        for alias, name in cls.ALIASES.items():
            if alias not in found:
                continue
            said = found.pop(alias)
            if found.setdefault(name, said) != said:
                message = f"is {said}, but {name} is {found[name]}"
                wrong.append(Problem(alias, message, "they are the same setting: keep one"))
        for name in cls.BIASES:
            wrong += _untrue_bias(name, found.pop(name, None), found.get("model_type"))
        if wrong:
            raise PydanticCustomError(CROSS_CHECK, "fields do not fit", {"found": tuple(wrong)})
        return found

    def shape(self) -> ModelShape:
        """The same numbers with the arithmetic that follows from them."""
        scaling = None if self.rope_scaling is None else self.rope_scaling.scaling()
        told = self.model_dump(exclude={"rope_scaling", "head_dim"})
        return ModelShape(**told, head_dim=self.head_dim or 0, rope_scaling=scaling)

    def problems(self) -> Iterator[Problem]:
        try:
            self.shape()
        except ConfigError as error:
            yield from error.problems


class InitializationConfig(Section):
    """How random weights begin."""

    matrix: Scale = 1.0
    """Standard deviation of q, k, v, gate and up projections, times 0.64 / sqrt(hidden_size)."""
    residual: ScaleOrZero = 0.0
    """That of o and down projections, times 0.64 / sqrt(2 num_hidden_layers hidden_size), both
    halves of the residual stream getting the same; 0: just enough to be heard, else at least
    0.01."""

    mirrored: bool = True
    """Whether the halves of the residual stream begin alike and cancel in the head, so that the
    loss begins at the logarithm of the vocabulary; false: embeddings of standard deviation 0.02 and
    norms of 1, as in GPT-2."""
    embedding: Deviation | None = None
    """Standard deviation of the embedding, where nothing is mirrored; without it 0.02."""
    head: Deviation | None = None
    """That of a head of its own."""

    def problems(self) -> Iterator[Problem]:
        if 0 < self.residual < QUIETEST:
            message = f"must be 0 or at least {QUIETEST:g}, is {self.residual:g}"
            yield Problem("residual", message)
        for field in ("embedding", "head") if self.mirrored else ():
            if getattr(self, field) is not None:
                message = "is given, and a mirrored start has embedding and head of its own"
                yield Problem(field, message, "set model.initialization.mirrored to false")


def _untrue_bias(name: str, said: object, family: object) -> Iterator[Problem]:
    """A config's word on biases that is not so in its family: qwen2 has them on q, k and v."""
    if said is None:
        return
    has, is_on = family == "qwen2", said not in BIASES_OFF
    if is_on and said not in BIASES_ON:
        yield Problem(name, f"must be true or false, is {said!r}", "leave it out")
    elif name == "mlp_bias":
        if is_on:
            what = "must be false: no family here has biases in its feed-forward layers"
            yield Problem(name, what, "leave it out, or say false")
    elif is_on and not has:
        what = f"must be false: a {family or 'llama'} has no biases here"
        yield Problem(name, what, "model_type: qwen2 has them on q, k and v; or say false")
    elif has and not is_on:
        what = "must be true: qwen2 has biases on q, k and v"
        yield Problem(name, what, "leave it out, or choose model_type: llama, which has none")


def _unread(folder: Path, about: Mapping[str, Any] | None) -> tuple[Problem, ...]:
    """Why `about`, the config.json of a folder of weights, says no shape."""
    if about is not None:
        return tuple(Problem("path", what, hint) for what, hint in refusals(about))
    hint = "name a directory of weights with a config.json, or give model.architecture whole"
    return (Problem("path", f"no config.json that can be read in {folder}", hint),)


def _lacking(folder: Path, known: Collection[str]) -> tuple[Problem, ...]:
    """What is needed for a shape and neither the config.json of the weights nor the config says."""
    lacking = ", ".join(name for name in SIZES if name not in known)
    what = f"{folder / 'config.json'} does not say {lacking}"
    hint = "repair it, or say it in model.architecture"
    return (Problem("path", what, hint),) if lacking else ()


def _joined(
    told: Mapping[str, Any], said: Mapping[str, Any], names: Collection[str]
) -> dict[str, Any]:
    """What a config says, by `names`, and for the rest what the config.json of weights told. That
    the families differ is refused where the weights are looked at; here the window of theirs would
    be blamed for it.
    """
    is_foreign = said.get("model_type", told.get("model_type")) != told.get("model_type")
    left_out = {"sliding_window", "window_pattern"} if is_foreign else set()
    return {**{key: told[key] for key in told if key not in {*names, *left_out}}, **said}


class ModelConfig(Section):
    """What is trained."""

    path: Path = Path()
    """Directory of weights to start from: a checkpoint of a run, or what transformers saved of a
    Llama, Mistral, Qwen2 or Qwen3, in one safetensors file or many; "." starts from random
    weights."""
    mode: Literal["transformer"] = "transformer"
    """Kind of model."""
    architecture: ArchitectureConfig = Field(default=None)  # type: ignore[assignment]
    """Shape of the decoder; where `path` names weights, their config.json says it. A class of
    your own in training.mode may do without."""
    initialization: InitializationConfig = Field(default_factory=InitializationConfig)
    """Random weights; not used where `path` names others."""

    @model_validator(mode="before")
    @classmethod
    def _as_the_weights_are(cls, value: Any) -> Any:
        """What the architecture leaves out, from the config.json of the weights."""
        if not isinstance(value, Mapping):
            return value
        path, said = value.get("path"), value.get("architecture")
        if not isinstance(path, str | Path) or Path(path) == Path():
            return value
        if not isinstance(said, Mapping | None):
            return value
        names = {ArchitectureConfig.ALIASES.get(str(name), str(name)) for name in said or ()}
        about = read_json(Path(path) / "config.json")
        wrong = _unread(Path(path), about)
        if wrong and (said is None or names.issuperset(SIZES)):
            return value  # `unknown_shape`; or weights that are looked at where a run begins
        told = {} if wrong else architecture_of(about or {})
        if wrong := wrong or _lacking(Path(path), names.union(told)):
            raise PydanticCustomError(CROSS_CHECK, "fields do not fit", {"found": wrong})
        return {**value, "architecture": _joined(told, said or {}, names)}

    def unknown_shape(self) -> Iterator[Problem]:
        """Why the `architecture` is unknown; fields as in the whole config."""
        if self.path == Path():
            yield Problem("model.architecture", "is required")
            return
        for one in _unread(self.path, read_json(self.path / "config.json")):
            yield replace(one, field=f"model.{one.field}")


class MixtureSource(Section):
    """Shards that a part of the sequences is drawn from."""

    path: Path
    """Directory of shards."""
    weight: Weight
    """Its share of the sequences, against the weights of the others."""
    name: Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,39}$")] | None = None
    """What curves and `curriculum` call it; without it the last folder of `path` but for `train`
    and `val`."""

    @property
    def title(self) -> str:
        """`name`, or what stands for it."""
        parts = [part for part in self.path.parts if part not in ("train", "val", "/", "..")]
        return self.name or re.sub(r"[^A-Za-z0-9._-]", "_", (parts or ["source"])[-1])[:40]


def _source_problems(sources: tuple[MixtureSource, ...], field: str) -> Iterator[Problem]:
    titles: list[str] = []
    for index, one in enumerate(sources):
        if one.title in titles:
            message = f"two sources are called {one.title}"
            yield Problem(f"{field}.{index}", message, "give each a name of its own")
        titles.append(one.title)
    if sources and not sum(one.weight for one in sources):
        yield Problem(field, "all weights are 0", "give one a weight above 0")


class _Stage(Section):
    """Other weights from a sequence of the run on."""

    weights: dict[str, Weight] = Field(min_length=1)
    """Weight of each source by its name; of one that is not named, 0."""

    @property
    def first(self) -> int:
        return int(getattr(self, "from"))


if TYPE_CHECKING:
    CurriculumStage = _Stage
else:  # `from` is a word of Python
    CurriculumStage = create_model(
        "CurriculumStage",
        __base__=_Stage,
        __doc__=_Stage.__doc__,
        **{
            "from": (
                CountOrZero,
                Field(
                    description="Number of the sequence from which they hold, counted from 0 as "
                    "the data are read: step x data.batch_size x gradient_accumulation."
                ),
            )
        },
    )


class FimConfig(Section):
    """Fill-in-the-middle: documents cut in three, the middle read last. Others in each epoch, the
    same for the same seed; a row keeps its length, and what the three tokens push out at its end is
    left out. Needs data.tokenizer; validation is without it."""

    rate: Portion
    """Share of the documents that are cut."""
    format: Literal["psm", "spm"] = "psm"
    """What is read first: the prefix or the suffix."""
    prefix: str = "<|fim_prefix|>"
    """Token before the prefix."""
    suffix: str = "<|fim_suffix|>"
    """Token before the suffix."""
    middle: str = "<|fim_middle|>"
    """Token before the middle."""


class DataConfig(Section):
    """Token shards in. Relative paths are relative to the directory the command is run in."""

    train: Path = Path()
    """Directory of training shards; a `mixture` or a class of your own in training.mode does
    without. A corpus of text (a column text, content or code, and none of ids) is packed once with
    `tokenizer`, here and in `val`."""
    val: Path | None = None
    """Directory of validation shards; without it nothing is evaluated."""
    mixture: tuple[MixtureSource, ...] = ()
    """Several directories of training shards in the place of `train`, each with its weight, by
    which every sequence is drawn from one of them. An epoch is as many sequences as all hold; a
    source of more weight than it has sequences for is read again sooner, in another order."""
    val_mixture: tuple[MixtureSource, ...] = ()
    """Several directories of validation shards in the place of `val`: as much of each as its weight
    says and none twice."""
    curriculum: tuple[CurriculumStage, ...] = ()
    """Other weights for the sources of `mixture`, each stage from a sequence of the run on. Before
    the first stage the sources have their own."""
    fim: FimConfig | None = None
    """Documents that are filled in the middle; without it none."""
    batch_size: Count
    """Sequences per micro-batch."""
    seq_len: Count
    """Tokens per sequence, at least 2 of shards, whose longer rows are cut into several."""
    tokenizer: Path | None = None
    """tokenizer.json the shards were made with, or its folder; needed for samples and for the
    vocabulary check."""
    packing: PackingName = "concat"
    """How text in `train` comes into rows: documents one after the other, cut where a row ends, or
    by `best-fit`, which keeps whole what fits into a row. Shards are as they were packed: best-fit
    asks for such. Text in `val` is always packed by concat, so that losses compare."""
    shuffle: ShuffleName = "rows"
    """What comes in another order in each epoch: `rows` as they were packed, or `documents`, which
    are joined and cut into rows anew, so that no two epochs have the same neighbours and cuts. For
    shards of `concat`; looks through all tokens at the start. Validation is as packed."""
    input_column: str = "input_ids"
    """Column of the shards that holds the token ids; without one called so, `token_ids`."""
    document_mask: bool = False
    """Whether training keeps the documents of a row apart: a token sees those of its own document
    alone, and what follows the end of one is not scored. Documents are told apart by the token
    that the shards were packed with. Validation sees whole rows, as ever."""

    @property
    def has_val(self) -> bool:
        return self.val is not None or bool(self.val_mixture)

    @property
    def is_named(self) -> bool:
        """Whether it says what to train on."""
        return "train" in self.model_fields_set or bool(self.mixture)

    def stages(self) -> tuple[tuple[int, dict[str, float]], ...]:
        """(number from which it holds, weight of each source by its name), from 0 on; none without
        a mixture.
        """
        if not self.mixture:
            return ()
        own = {one.title: one.weight for one in self.mixture}
        stages = [
            (one.first, {name: one.weights.get(name, 0.0) for name in own})
            for one in self.curriculum
        ]
        return tuple(stages if stages and stages[0][0] == 0 else [(0, own), *stages])

    @field_validator("tokenizer")
    @classmethod
    def _in_its_folder(cls, value: Path | None) -> Path | None:
        """As transformers, which is given folders."""
        inside = None if value is None else value / "tokenizer.json"
        return inside if inside is not None and inside.is_file() else value

    def problems(self) -> Iterator[Problem]:
        for field, other, sources in (
            ("mixture", "train", self.mixture),
            ("val_mixture", "val", self.val_mixture),
        ):
            yield from _source_problems(sources, field)
            if sources and other in self.model_fields_set and getattr(self, other) is not None:
                message = f"stands beside data.{other}, which it takes the place of"
                yield Problem(field, message, "keep one of them")
        yield from self._curriculum_problems()
        if self.shuffle == "documents" and self.packing == "best-fit":
            message = "joins documents as concat does, and data.packing is best-fit"
            yield Problem("shuffle", message, "leave one of them out")
        if self.fim is not None and self.tokenizer is None:
            message = "needs the ids of its tokens, and data.tokenizer is not set"
            yield Problem("fim", message, "set data.tokenizer")
        if self.fim is not None and len({self.fim.prefix, self.fim.suffix, self.fim.middle}) < 3:
            message = "prefix, suffix and middle are not three tokens"
            yield Problem("fim", message, "name another for each")

    def _curriculum_problems(self) -> Iterator[Problem]:
        if self.curriculum and not self.mixture:
            message = "says how the sources of data.mixture are weighed, and there are none"
            yield Problem("curriculum", message, "give data.mixture, or leave it out")
            return
        if any(b.first <= a.first for a, b in pairwise(self.curriculum)):
            yield Problem("curriculum", "stages must ascend", "a later from in each")
        known = {one.title for one in self.mixture}
        for index, stage in enumerate(self.curriculum):
            if unknown := sorted(set(stage.weights) - known):
                message = f"{unknown[0]} is not a source of data.mixture"
                hint = f"its sources are {', '.join(sorted(known))}"
                yield Problem(f"curriculum.{index}.weights", message, hint)
            elif not sum(stage.weights.values()):
                hint = "give one a weight above 0"
                yield Problem(f"curriculum.{index}.weights", "all weights are 0", hint)


class OptimizerConfig(Section):
    """The optimizer and its learning rate."""

    name: OptimizerName = "adamw"
    """`adamw`, or `muon` for the matrices inside the blocks and AdamW for the rest."""
    lr: Rate
    """Peak learning rate, reached at the end of the warm-up."""
    beta1: Fraction01 = 0.9
    """Decay of the first moment."""
    beta2: Fraction01 = 0.95
    """Decay of the second moment."""
    eps: Epsilon = 1e-8
    """Added to the root of the second moment."""
    weight_decay: RateOrZero = 0.1
    """Decoupled weight decay on matrices."""
    min_lr: RateOrZero = Field(default=None, validate_default=True)
    """Learning rate at the end of the schedule; lr / 10 where nothing is given."""
    muon_lr: Rate | None = None
    """Peak rate of Muon's matrices, whose schedule has the shape of lr's; without it lr."""
    muon_momentum: Fraction01 = 0.95
    """Decay of Muon's (Nesterov) momentum."""
    muon_beta2: Fraction01 | None = None
    """NorMuon: rows of Muon's update are divided by the root of their mean square, which decays so;
    without it they are not. 0.95 is usual."""
    embedding_lr: Rate | None = None
    """AdamW's peak rate for the embedding, whose schedule has the shape of lr's; without it lr. It
    decays as it does without."""
    head_lr: Rate | None = None
    """The same for a head of its own, which no tied embedding is."""

    @field_validator("min_lr", mode="before")
    @classmethod
    def _tenth_of_the_peak(cls, value: object, info: ValidationInfo) -> object:
        if value is not None:
            return value
        return float(f"{info.data.get('lr', 0.0) / 10:.15g}")  # 3e-5, not 2.9999999999999997e-05

    @property
    def own_lr(self) -> dict[str, float]:
        """Peak rates of those that have one of their own: "embedding", "head"."""
        rates = {"embedding": self.embedding_lr, "head": self.head_lr}
        return {kind: rate for kind, rate in rates.items() if rate is not None}

    def problems(self) -> Iterator[Problem]:
        if self.min_lr > self.lr:
            message = f"{self.min_lr:g} is above optimizer.lr {self.lr:g}"
            yield Problem("min_lr", message, "the schedule falls from lr to min_lr")
        for field in ("muon_lr", "muon_momentum", "muon_beta2") if self.name != "muon" else ():
            if (value := getattr(self, field)) != type(self).model_fields[field].default:
                message = f"is {value:g}, which only muon reads, and optimizer.name is {self.name}"
                yield Problem(field, message, "leave it out, or set optimizer.name to muon")


class CheckpointConfig(Section):
    """When checkpoints are written and which are kept."""

    save_every: Count = 1000
    """Steps between checkpoints; the same setting as training.save_interval."""
    keep: Count = 2
    """Newest checkpoints to keep, besides the best one."""
    keep_every: Count | None = None
    """Also keep every checkpoint whose step is a multiple of this."""
    verify_after_write: bool = True
    """Read a checkpoint back and compare hashes before it counts."""


class StabilityConfig(Section):
    """What keeps a run on its path. Steps that are not finite are skipped whatever stands here."""

    zclip: bool = True
    """Scale gradients down whose norm is far above its running mean (ZClip), besides grad_clip."""
    zclip_threshold: Factor = 2.5
    """Standard deviations above the mean at which ZClip begins."""
    zclip_decay: Fraction01 = 0.97
    """Decay of the running mean and variance of the gradient norm."""
    zclip_warmup: Count = 25
    """Steps that are only watched, to know mean and variance."""
    loss_spike: Annotated[float, Field(gt=1, le=1e12), _REAL] | None = 3.0
    """A loss of this many times its running mean, far beyond its usual spread and for five steps in
    a row, goes back to the last good checkpoint; null: none."""
    max_rollbacks: CountOrZero = 3
    """Times in a row a run goes back before it is stopped; 0 stops it at once."""
    z_loss: Annotated[float, Field(ge=0, le=1), _REAL] = 0.0
    """Weight of the squared log of softmax's denominator in the training loss, which keeps logits
    from drifting (PaLM: 1e-4); validation is without it."""
    noise_scale_interval: Count | None = None
    """Steps between measurements of the gradient noise scale, at the cost of a forward and backward
    each; without it every step where gradient_accumulation makes it free, else none."""


class DistributedConfig(Section):
    """How many processes train together, one on each GPU, or all on the CPU. What torchrun or srun
    has started says itself how many there are."""

    world_size: Annotated[int, Field(ge=1, le=MAX_RANKS), _INT] = 1
    """Ranks: those of torchrun or srun, else all on this machine, up to 64. They share the global
    batch of data.batch_size x training.gradient_accumulation sequences, which stays as it is
    whatever stands here."""
    strategy: Literal["ddp", "fsdp"] = "ddp"
    """`ddp`: every rank holds all of the model; `fsdp` (FSDP2): each holds its part of weights,
    gradients and optimizer state, for models that are too large for one GPU."""

    @property
    def is_sharded(self) -> bool:
        """Whether no rank holds all of the model."""
        return self.world_size > 1 and self.strategy == "fsdp"


class BatchStage(Section):
    """Smaller steps for the beginning."""

    until: Count
    """Step before which it holds, as max_steps and warmup_steps count them: by full batches."""
    gradient_accumulation: Count
    """Micro-batches of a step until then; divides training.gradient_accumulation."""


class LengthStage(Section):
    """Shorter sequences for the beginning."""

    until: Count
    """Step before which it holds, as max_steps counts them."""
    seq_len: Tokens
    """Tokens of the pieces that sequences are cut into until then; divides data.seq_len."""


class TrainingConfig(Section):
    """The loop."""

    mode: Annotated[
        str, BeforeValidator(convert_with(recipes.mode)), Field(pattern=recipes.PATTERN)
    ] = "causal_lm"
    """Objective: `causal_lm`, next-token prediction; or package.module:Class, a recipe of your own,
    imported in the training process from the folder of the config or from PYTHONPATH."""
    epochs: Count = 1
    """Passes over the data; ends the run even if max_steps is not reached."""
    max_steps: Count | None = None
    """Optimizer steps; without it, as many as the epochs hold."""
    grad_clip: Factor | None = None
    """Largest global gradient norm; without it only ZClip (`stability`) scales gradients."""
    lr_scheduler: ScheduleName = "cosine"
    """Shape of the learning rate from the end of the peak to the last step."""
    decay_steps: Count | None = None
    """Last steps, over which the learning rate falls; before them it stays at its peak (warm-up,
    stable, decay). Without it it falls from the end of the warm-up on."""
    warmup_steps: CountOrZero = 0
    """Steps over which the learning rate rises from zero to lr."""
    gradient_accumulation: Count = 1
    """Micro-batches per optimizer step, of all ranks together."""
    continue_from: Path | None = None
    """Checkpoint of another run that this one goes on from, as its next steps: weights, optimizer,
    place in the data. What else stands here holds from there on; max_steps counts from the other's
    beginning. Other data are read from theirs."""
    batch_ramp: tuple[BatchStage, ...] = ()
    """Stages of smaller batches, before the full one: the steps are smaller and more, the tokens
    and the schedule are the same."""
    seq_len_ramp: tuple[LengthStage, ...] = ()
    """Stages in which each sequence is trained on as several shorter ones, before whole ones: the
    tokens of a step are the same."""
    mixed_precision: Annotated[
        Literal["fp32", "bf16", "fp16", "fp8"],
        BeforeValidator(_precision, json_schema_input_type=_Precision),
    ] = "fp32"
    """Precision of matrix products; weights and optimizer stay fp32. `no` and `none` mean fp32.
    `fp8` is bf16 with the MLPs' products in e4m3; it needs a Hopper GPU or a later one."""
    residual_in_fp32: bool = True
    """Whether mixed precision keeps the residual stream and its gradient as good as fp32; without
    it they are rounded at each block, which is up to 3 % faster on a GPU."""
    output_dir: Path
    """Where run directories are made."""
    save_interval: Count = 1000
    """Steps between checkpoints; the same setting as training.checkpoint.save_every."""
    checkpoint: CheckpointConfig = Field(default_factory=CheckpointConfig)
    """Checkpoint policy."""
    log_interval: Count = 1
    """Steps between journal lines."""
    eval_interval: Count = Field(default=None, validate_default=True)
    """Steps between evaluations; save_interval where nothing is given."""
    eval_batches: Count = 20
    """Validation batches per evaluation, always the same ones."""
    seed: CountOrZero = 0
    """Seed of weights and data order."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to train; auto takes a GPU when there is one."""
    deterministic: bool = False
    """Bit-exact resume on a GPU too, at some cost in speed; a CPU always is."""
    compile: Annotated[Literal["auto"] | bool, BeforeValidator(convert_with(_auto_or_bool))] = (
        "auto"
    )
    """Whether to use torch.compile; auto uses it where it pays."""
    activation_checkpointing: Annotated[
        bool | int,
        BeforeValidator(convert_with(_segments), json_schema_input_type=bool | int | str),
    ] = False
    """Compute blocks again in the backward pass and keep only what they begin with: a third more
    work at most. `true`: each block by itself, by the compiled step, which needs least; a number of
    at least 2: as many segments of blocks, by the fused step where it runs."""
    num_threads: Threads | None = None
    """CPU threads; without it, what the machine has."""
    early_stopping_patience: Count | None = None
    """Stop after this many evaluations without a better validation loss."""
    sample_prompts: tuple[str, ...] = ()
    """Prompts the model completes at every evaluation; needs data.tokenizer."""
    distributed: DistributedConfig = Field(default_factory=DistributedConfig)
    """Several GPUs."""
    parity: Literal["plain", "stop", "tell"] = "plain"
    """What follows where the model as it trains here is further from the plain one on the CPU in
    fp32 than rounding explains (cosine of the logits below 0.98): `plain` trains on by the plain
    model on the same GPU, `stop` ends the run with exit code 4, `tell` only warns."""
    nan_limit: Count = 10
    """Consecutive steps with a loss or gradient that is not finite before the run goes back to its
    last good checkpoint."""
    stability: StabilityConfig = Field(default_factory=StabilityConfig)
    """Gradient spikes, loss spikes, rollbacks."""

    @model_validator(mode="before")
    @classmethod
    def _one_save_interval(cls, value: Any) -> Any:
        """Fill each of the twin settings from the other, so that both always read the same."""
        if not isinstance(value, Mapping):
            return value
        checkpoint = value.get("checkpoint")
        checkpoint = {} if checkpoint is None else checkpoint
        if not isinstance(checkpoint, Mapping):
            return value
        filled = {**value, "checkpoint": dict(checkpoint)}
        if filled.get("save_interval") is None:
            filled.pop("save_interval", None)
        if "save_interval" in filled:
            filled["checkpoint"].setdefault("save_every", filled["save_interval"])
        elif "save_every" in checkpoint:
            filled["save_interval"] = checkpoint["save_every"]
        return filled

    @field_validator("eval_interval", mode="before")
    @classmethod
    def _with_each_checkpoint(cls, value: object, info: ValidationInfo) -> object:
        return info.data.get("save_interval", 1) if value is None else value

    def segments(self, num_layers: int) -> int:
        """In how many parts blocks are computed again; 0: they are not."""
        asked = self.activation_checkpointing
        return num_layers if asked is True else min(int(asked), num_layers)

    def problems(self) -> Iterator[Problem]:
        save_every = self.checkpoint.save_every
        if self.save_interval != save_every:
            message = f"is {self.save_interval}, but training.checkpoint.save_every is {save_every}"
            yield Problem("save_interval", message, "they are the same setting: keep one")
        if self.max_steps is not None and self.warmup_steps > self.max_steps:
            message = f"{self.warmup_steps} steps of warm-up in a run of {self.max_steps}"
            yield Problem("warmup_steps", message, "about 10 % of max_steps is usual")
        if self.decay_steps is not None and self.lr_scheduler == "constant":
            message = f"is {self.decay_steps}, but lr_scheduler is constant"
            yield Problem("decay_steps", message, "name a decay: cosine, linear or sqrt")
        if self.decay_steps is not None and self.max_steps is not None:
            together = self.decay_steps + self.warmup_steps
            if together > self.max_steps:
                message = f"with warmup_steps {together} steps, in a run of {self.max_steps}"
                yield Problem("decay_steps", message, "10 to 20 % of max_steps is usual")
        sizes = [(one.until, one.gradient_accumulation) for one in self.batch_ramp]
        lengths = [(one.until, one.seq_len) for one in self.seq_len_ramp]
        for field, stages in (("batch_ramp", sizes), ("seq_len_ramp", lengths)):
            if any(b[0] <= a[0] or b[1] <= a[1] for a, b in pairwise(stages)):
                yield Problem(field, "stages must grow", "a later until, a larger size in each")
        whole = self.gradient_accumulation
        for _, size in sizes:
            if size >= whole or whole % size:
                message = f"{size} is not a divisor of gradient_accumulation {whole} below it"
                yield Problem("batch_ramp", message, "so that steps of all sizes end together")


_GUARD = Options()


class GuardConfig(Section):
    """The supervisor: how long silence may last and how often a run is started again."""

    poll_s: Seconds = _GUARD.poll_s
    """Seconds between looks at the run."""
    stale_s: Seconds = _GUARD.stale_s
    """Seconds without news before a run counts as hung."""
    backoff_s: tuple[SecondsOrZero, ...] = Field(default=_GUARD.backoff_s, min_length=1)
    """Waits before the first, second, ... restart; the last one repeats."""
    stable_s: Seconds = _GUARD.stable_s
    """Seconds that an attempt lasts, with a newer checkpoint, after which the waits start over."""
    grace_s: Seconds = _GUARD.grace_s
    """Seconds between asking a run to stop and killing it."""
    max_no_progress: Count = _GUARD.max_no_progress
    """Restarts without a newer checkpoint before the guard gives up."""
    max_restarts: CountOrZero = _GUARD.max_restarts
    """Restarts within one day before the guard gives up."""
    restarts: CountOrZero | None = _GUARD.restarts
    """Restarts of a run in all, whatever ended it; without it the other limits decide."""
    start_limit_s: Seconds = _GUARD.start_limit_s
    """Longest start-up."""
    compile_limit_s: Seconds = _GUARD.compile_limit_s
    """Longest compilation."""
    eval_limit_s: Seconds = _GUARD.eval_limit_s
    """Longest evaluation."""
    checkpoint_limit_s: Seconds = _GUARD.checkpoint_limit_s
    """Longest checkpoint."""
    min_free_bytes: CountOrZero | None = _GUARD.min_free_bytes
    """Free disk space needed to start; without it, 2.2 times the last checkpoint."""
