"""A folder of weights as Hugging Face keeps one, made without transformers."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import torch
from safetensors.torch import save_file
from tokenizers import (
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

from albor_core.config.shape import RopeScaling
from albor_core.model.llama import Llama, LlamaConfig

SIZES = (32, 2, 4, 2, 64, 64, 32)
SHAPES: dict[str, dict[str, Any]] = {
    "llama": {"rope_scaling": RopeScaling("llama3", 8.0, 16, 1.0, 4.0), "rope_theta": 5e5},
    "mistral": {"sliding_window": 8},
    "qwen2": {"rms_norm_eps": 1e-6},
    "qwen3": {"head_dim": 16, "tie_word_embeddings": False},
}
TEXT = [
    "def fibonacci(n):\n    return n if n < 2 else 1",
    "Caf\u00e9 na\u00efve, 12345 it's",
    "  a\n\n b",
]


def write_model(folder: Path, family: str = "qwen3", *, files: int = 1, **more: Any) -> Llama:
    """Random weights, none of them 0 or 1, in `files` files."""
    sizes = {"vocab_size": SIZES[5]} | {k: more.pop(k) for k in ("vocab_size",) if k in more}
    given = {**SHAPES[family], **more, "model_type": family}
    config = LlamaConfig(*SIZES[:5], sizes["vocab_size"], SIZES[6], **given)
    model = Llama(config).eval()
    source = torch.Generator().manual_seed(0)
    with torch.no_grad():
        for name, weight in model.named_parameters():
            weight.normal_(1.0 if name.endswith("norm.weight") else 0.0, 0.1, generator=source)
    folder.mkdir(parents=True, exist_ok=True)
    about = config.to_hf(bos_token_id=1, eos_token_id=2) | {"use_cache": True, "pad_token_id": None}
    (folder / "config.json").write_text(json.dumps(about))
    write_tensors(folder, {n: t.contiguous() for n, t in model.state_dict().items()}, files)
    return model


def write_tensors(folder: Path, tensors: dict[str, torch.Tensor], files: int = 1) -> None:
    if files == 1:
        save_file(tensors, folder / "model.safetensors", metadata={"format": "pt"})
        return
    where = {}
    for number in range(files):
        file = f"model-{number + 1:05d}-of-{files:05d}.safetensors"
        part = {name: tensors[name] for name in list(tensors)[number::files]}
        save_file(part, folder / file, metadata={"format": "pt"})
        where |= dict.fromkeys(part, file)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": where}))


def write_tokenizer(folder: Path, kind: str) -> Tokenizer:
    """tokenizer.json and tokenizer_config.json of the kind that `llama`, `qwen2`, `mistral` have,
    of at most 400 tokens.
    """
    made, told = {"llama": _llama3, "qwen2": _qwen2, "mistral": _mistral}[kind]()
    made.save(str(folder / "tokenizer.json"))
    (folder / "tokenizer_config.json").write_text(json.dumps(told))
    return made


def _bytes(specials: list[str], pattern: str) -> Tokenizer:
    made = Tokenizer(models.BPE())
    split = pre_tokenizers.Split(Regex(pattern), behavior="isolated")
    plain = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    made.pre_tokenizer, made.decoder = pre_tokenizers.Sequence([split, plain]), decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=320, initial_alphabet=alphabet, show_progress=False, special_tokens=[]
    )
    made.train_from_iterator(TEXT * 4, trainer)
    made.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in specials])
    return made


_GPT4 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|"
    r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)


def _llama3() -> tuple[Tokenizer, dict[str, Any]]:
    begin, end = "<|begin_of_text|>", "<|end_of_text|>"
    made = _bytes([begin, end], _GPT4)
    template = processors.TemplateProcessing(
        single=f"{begin} $A", special_tokens=[(begin, made.token_to_id(begin))]
    )
    made.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), template])
    told = {"tokenizer_class": "PreTrainedTokenizerFast", "bos_token": begin, "eos_token": end}
    return made, told


def _qwen2() -> tuple[Tokenizer, dict[str, Any]]:
    end = "<|endoftext|>"
    made = _bytes([end, "<|im_start|>", "<|im_end|>"], _GPT4.replace("{1,3}", ""))
    made.normalizer, made.post_processor = normalizers.NFC(), processors.ByteLevel()
    told = {"tokenizer_class": "Qwen2Tokenizer", "bos_token": None, "eos_token": end}
    return made, {**told, "pad_token": end, "chat_template": "{{ messages }}"}


def _mistral() -> tuple[Tokenizer, dict[str, Any]]:
    bytes_ = [f"<0x{number:02X}>" for number in range(256)]
    trained = Tokenizer(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.Metaspace()
    trainer = trainers.BpeTrainer(vocab_size=90, show_progress=False)
    trained.train_from_iterator(TEXT * 4, trainer)
    state = json.loads(trained.to_str())["model"]
    words = [*sorted(state["vocab"], key=state["vocab"].__getitem__)]
    vocab = {word: i for i, word in enumerate(["<unk>", "<s>", "</s>", *bytes_, *words])}
    merges = [tuple(pair) for pair in state["merges"]]
    made = Tokenizer(
        models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True)
    )
    made.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()]
    made.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)])
    made.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    made.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in ("<unk>", "<s>", "</s>")]
    )
    told = {"tokenizer_class": "LlamaTokenizer", "bos_token": "<s>", "eos_token": "</s>"}
    return made, {**told, "unk_token": "<unk>", "add_bos_token": True, "legacy": False}
