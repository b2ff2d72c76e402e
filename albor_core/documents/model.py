"""Documents of weights, and of texts written with them."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from albor_core.documents.shapes import ArchitectureCommon, Closed, Count, Positive, keywords


class MemoryBound(TypedDict):
    bytes: int
    ms: float
    share: float
    """of step_ms_p50; 1 is as fast as memory allows"""


class TransformersFigures(TypedDict):
    tokens_per_s: float
    ratio: float
    """its time over ours: above 1, ours is faster"""


class BenchFigures(TypedDict):
    batch: int
    context: int
    """tokens of each prompt"""
    new_tokens: int
    """written after each"""
    prefill_tokens_per_s: float
    """of prompts"""
    step_ms_p50: float
    """of a step, which is a token of every text"""
    step_ms_p99: float
    decode_tokens_per_s: float
    """batch over step_ms_p50"""
    tokens_per_s: float
    """new tokens over all of the time, the prefill's included"""
    law: MemoryBound
    """the least that a step can take: all weights, and the keys and values of all texts,
    read once
    """
    transformers: TransformersFigures | None
    """its generate on the same load, in turn; null where it is not installed or left out"""


class BenchDocument(TypedDict):
    """How fast a model reads prompts and writes tokens on a machine."""

    schema: Literal["albor.bench/1"]
    model: str
    """the folder of its weights; of a run, its newest checkpoint"""
    device: Literal["cpu", "cuda"]
    dtype: Annotated[str, keywords(enum="albor_core.cli.model.generate:DTYPES")]
    model_type: Annotated[str, keywords(enum="albor_core.config.shape:FAMILIES")]
    parameters: int
    device_name: str
    threads: int | None
    """of a CPU"""
    bytes_per_s: float
    """at which the device read a large tensor"""
    rounds: int
    """figures are medians over them"""
    measured: list[BenchFigures]


class TextCompletion(TypedDict):
    seed: int
    text: str
    """up to a stop text, without bytes that only begin a character"""
    ids: list[int]
    """new tokens; a stop id is left out, those of a stop text are not"""
    finish: Literal["stop", "length"]


class GenerateDocument(TypedDict):
    """Texts that a model wrote after one prompt."""

    schema: Literal["albor.generate/1"]
    model: str
    """the folder of its weights; of a run, its newest checkpoint"""
    device: Literal["cpu", "cuda"]
    dtype: Annotated[str, keywords(enum="albor_core.cli.model.generate:DTYPES")]
    prompt: str
    suffix: str | None
    """what stands after the hole that was filled; null where the prompt was continued"""
    order: Literal["psm", "spm"] | None
    """what the model read first of prompt (prefix) and suffix"""
    bos: bool
    """Whether the token that begins a text was put before the prompt."""
    max_new_tokens: Positive
    temperature: Annotated[float, keywords(minimum=0)]
    top_p: Annotated[float, keywords(exclusiveMinimum=0, maximum=1)]
    top_k: Count
    stops: list[str]
    prompt_tokens: int
    """those that the tokenizer adds included"""
    completions: list[TextCompletion]
    load_s: float
    """seconds to load the model"""
    seconds: float
    """to write all texts, the prompt's forward included"""
    tokens_per_s: float | None
    """new tokens of all texts a second"""


class ComparedField(Closed):
    field: str
    a: Any
    b: Any


class TensorCounts(Closed):
    equal: int
    changed: int
    shape: int
    only_a: int
    only_b: int


class ComparedTensor(Closed):
    name: str
    state: Literal["equal", "changed", "shape", "only_a", "only_b"]
    relative: float | None
    cosine: float | None


class ModelCompareDocument(TypedDict):
    """How two folders of weights differ: settings, tensors, and how far each has moved."""

    schema: Literal["albor.model.compare/1"]
    a: str
    b: str
    config: list[ComparedField]
    counts: TensorCounts
    relative: float | None
    """L2 of all differences over that of A's tensors"""
    same: bool
    """the same settings and numbers"""
    tensors: list[ComparedTensor]


class ArchitectureFields(ArchitectureCommon, Closed):
    hidden_size: int
    num_hidden_layers: int
    num_attention_heads: int
    num_key_value_heads: int
    intermediate_size: int
    vocab_size: int
    max_position_embeddings: int
    rms_norm_eps: float
    rope_theta: float
    tie_word_embeddings: bool


class ArchitectureSwitches(Closed):
    qkv_bias: bool
    qk_norm: bool


class DtypeCount(Closed):
    dtype: str
    tensors: int
    parameters: int
    bytes: int


class WeightFile(Closed):
    name: str
    bytes: int
    tensors: int


class TokenizerIds(Closed):
    tokens: int | None
    eos: int | None
    bos: int | None
    error: str | None


class TensorRow(Closed):
    name: str
    dtype: str
    shape: list[int]
    file: str
    blake3: str | None
    """null without --hashes"""


class ModelShowDocument(TypedDict):
    """What a folder of weights holds, by its headers, its config.json and its tokenizer.json."""

    schema: Literal["albor.model.show/1"]
    path: str
    model_type: Annotated[str, keywords(enum="albor_core.config.shape:FAMILIES")]
    parameters: int
    """numbers on disk"""
    expected_parameters: int
    """numbers that config.json tells; a tied head counts once"""
    bytes: int
    fits: bool
    """whether names, shapes and dtypes are those that config.json tells"""
    shape: ArchitectureFields
    """the fields of model.architecture"""
    switches: ArchitectureSwitches
    dtypes: list[DtypeCount]
    files: list[WeightFile]
    tokenizer: TokenizerIds | None
    tensors: list[TensorRow]


class FolderCheck(Closed):
    name: Literal[
        "files", "config", "tensors", "shapes", "hashes", "values", "trained", "layers", "tokenizer"
    ]
    asks: str
    ok: bool | None
    detail: str


class ModelVerifyDocument(TypedDict):
    """Nine questions to a folder of weights; ok is null where what came before left nothing to look
    at.
    """

    schema: Literal["albor.model.verify/1"]
    path: str
    ok: bool
    checks: list[FolderCheck]


class TensorSpread(Closed):
    name: str
    layer: Count | None
    part: str
    dtype: str
    shape: list[Count]
    count: Count
    read: Count
    mean: float | None
    rms: float | None
    minimum: float | None
    maximum: float | None
    zeros: float
    nonfinite: Count
    edges: Annotated[list[float], keywords(maxItems=2, minItems=2)]
    counts: list[Count]


class ModelWeightsDocument(Closed):
    """How large and how spread the numbers of a folder of weights are. Of large tensors a sample is
    read: `read` of `count` numbers. Figures are of finite numbers, null where there are none;
    counts are of bins of one width between the edges.
    """

    schema: Literal["albor.model.weights/1"]
    path: str
    is_sampled: bool
    tensors: list[TensorSpread]
