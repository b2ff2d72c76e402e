"""Data sets of fixed values: documents of `albor data stats` and `albor data batch`, a shelf."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import fake_feed

from albor_core.feed.data.folder import FolderView
from albor_core.feed.data.known import DataSetView, DataShelf, DataUser
from albor_core.feed.data.of_run import MixedSource, RunData, RunSplit

CODE, NOTES, OLD, BROKEN = "/data/code-v3", "/data/notes.parquet", "/old/shards/train", "/data/half"
HASH = "3f9c1e7a2b4d6c8e0f1a3b5c7d9e2f4a6b8c0d1e3f5a7b9c2d4e6f8a0b1c3d5e"
VAL_HASH = "a81b0c2d4e6f8091a2b3c4d5e6f708192a3b4c5d6e7f8091a2b3c4d5e6f70819"
DAY = 86_400.0

LONG = "a-very-long-organisation-name/and-a-repository-with-a-longer-one-still"
_SOURCES = (  # name, came in, kept, tokens, copies of a mix, dropped
    ("pytorch/pytorch", 18_204, 14_812, 61_204_113, 1.0, {"near_copy": 2_871, "too_long": 521}),
    ("numpy/numpy", 6_120, 5_304, 22_871_442, 10.0, {"near_copy": 611, "generated": 205}),
    ("pandas-dev/pandas", 5_801, 5_122, 21_046_870, 2.0, {"near_copy": 540, "too_short": 139}),
    ("python/cpython", 9_411, 7_998, 19_480_031, 1.0, {"generated": 902, "near_copy": 511}),
    ("scikit-learn/scikit-learn", 3_019, 2_875, 9_911_204, 3.0, {"near_copy": 144}),
    ("huggingface/transformers", 7_212, 2_204, 7_410_882, 0.5,
     {"near_copy": 4_618, "low_quality": 390}),
    (LONG, 211, 198, 401_228, None, {"too_short": 13}),
)  # fmt: skip
_MODELS = "huggingface/transformers/src/transformers/models"


def _source(name, came, kept, tokens, times, dropped) -> dict[str, Any]:
    return {
        "source": name,
        "documents_in": came,
        "documents": kept,
        "bytes": tokens * 4,
        "tokens": tokens,
        "weight": times,
        "dropped": dropped,
        "duplicates": dropped.get("near_copy", 0),
    }


def stats(**changes: Any) -> dict[str, Any]:
    """An albor.data.stats/1 document of a folder of splits."""
    document = {
        "schema": "albor.data.stats/1",
        "path": CODE,
        "kind": "dataset",
        "documents": 38_513,
        "bytes": 569_303_080,
        "tokens": 142_325_770,
        "vocab_size": 32_768,
        "seq_len": 1_024,
        "splits": [
            {"name": "train", "documents": 36_588, "tokens": 135_203_840, "sequences": 132_035,
             "seq_len": 1_024, "data_hash": HASH},
            {"name": "val", "documents": 1_925, "tokens": 7_121_920, "sequences": 6_955,
             "seq_len": 1_024, "data_hash": VAL_HASH},
        ],
        "sources": [_source(*one) for one in _SOURCES],
        "steps": [
            {"step": "import", "splits": [],
             "settings": {"suffix": [".py"], "max_bytes": 1_048_576},
             "documents_in": 49_978, "documents": 49_457, "dropped": {"too_long": 521},
             "examples": {"too_long": [
                 "pytorch/pytorch/torch/testing/_internal/common_methods_invocations.py",
                 "pytorch/pytorch/test/test_torch.py"]}},
            {"step": "filter", "splits": [],
             "settings": {"min_chars": 50, "alpha": 0.25},
             "documents_in": 49_457, "documents": 48_198,
             "dropped": {"generated": 1_107, "too_short": 152},
             "examples": {"generated": ["python/cpython/Lib/pydoc_data/topics.py",
                                        "numpy/numpy/numpy/_core/_internal_generated.py"],
                          "too_short": ["pandas-dev/pandas/pandas/api/__init__.py"]}},
            {"step": "quality", "splits": [],
             "settings": {"profile": "ml-training", "threshold": 0.4},
             "documents_in": 48_198, "documents": 47_808, "dropped": {"low_quality": 390},
             "examples": {"low_quality": ["huggingface/transformers/utils/dummy_pt_objects.py"]}},
            {"step": "dedup", "splits": [],
             "settings": {"jaccard": 0.8, "bands": 16},
             "documents_in": 47_808, "documents": 38_513, "dropped": {"near_copy": 9_295},
             "examples": {"near_copy": [f"{_MODELS}/vit/modeling_vit.py",
                                        f"{_MODELS}/deit/modeling_deit.py",
                                        f"{_MODELS}/beit/modeling_beit.py"]}},
            {"step": "pretokenize", "splits": [],
             "settings": {"seq_len": 1_024, "seed": 0},
             "documents_in": 38_513, "documents": 38_513, "dropped": {}, "examples": {}},
        ],
        "histogram": {
            "unit": "tokens",
            "edges": [1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192, 16384, 32768,
                      65536, 131072],
            "counts": [0, 0, 0, 12, 61, 240, 903, 2_410, 4_877, 7_912, 8_844, 6_730, 3_902, 1_776,
                       640, 171, 35],
        },
        "licences": {"BSD-3-Clause": 23_313, "Apache-2.0": 5_079, "PSF-2.0": 7_998, "MIT": 1_925,
                     "unknown": 198},
        "contamination": {
            "against": ["humaneval", "mbpp"],
            "checked_documents": 38_513,
            "hits": [
                {"document": "python/cpython/Lib/test/test_statistics.py", "task": "HumanEval/47",
                 "jaccard": 0.31, "share": 0.82, "runs": 9, "overlap": "return the mean of"},
                {"document": "numpy/numpy/doc/source/user/examples/quick_sort.py",
                 "task": "mbpp/164", "jaccard": 0.22, "share": 0.64, "runs": 7,
                 "overlap": "sort the list by"},
            ],
        },
    }  # fmt: skip
    return {**document, **changes}


def batch(**changes: Any) -> dict[str, Any]:
    """An albor.data.batch/1 document."""
    texts = (
        (
            "numpy/numpy",
            False,
            'def clip(a, low, high):\n    """Limit the values of an array."""\n'
            "    return minimum(maximum(a, low), high)\n<|endoftext|>"
            "import math\n\n\ndef area(radius: float) -> float:\n    return math.pi * radius**2\n",
        ),
        (
            "pytorch/pytorch",
            True,
            "<|fim_prefix|>class Linear(Module):\n    def forward(self, x):\n        "
            "<|fim_suffix|>\n\n    def extra_repr(self) -> str:\n        return ''\n"
            "<|fim_middle|>return F.linear(x, self.weight, self.bias)",
        ),
        ("python/cpython", False, "    for line in lines:\n\tyield line.rstrip('\\n')\n" * 12),
        ("pandas-dev/pandas", False, "def melt(frame, id_vars=None):\n    ...\n"),
    )
    rows = [
        {"row": 977_920 + n, "source": source, "tokens": 1_024,
         "documents": [0, 411] if "endoftext" in text else [0], "text": text, "fim": fim,
         "epoch": 1}
        for n, (source, fim, text) in enumerate(texts)
    ]  # fmt: skip
    document = {"schema": "albor.data.batch/1", "run": "code-125m-3f2a91", "step": 15_280}
    return {**document, "rows": rows, **changes}


def user(number: int, name: str, *, is_same: bool | None = True) -> DataUser:
    created = fake_feed.WALL - number * DAY
    return DataUser(f"{name}-3f2a91", name, created, f"/runs/{name}-3f2a91", is_same)


SHELF = DataShelf(
    (
        DataSetView(
            "code-v3",
            CODE,
            "dataset",
            fake_feed.WALL - 3 * DAY,
            True,
            FolderView(
                kind="dataset",
                documents=38_513,
                tokens=142_325_770,
                sequences=138_990,
                hashes={"train": HASH, "val": VAL_HASH},
            ),
            (user(1, "code-125m"), user(2, "code-50m")),
            2,
        ),
        DataSetView(
            "notes",
            NOTES,
            "corpus",
            fake_feed.WALL - 9 * DAY,
            True,
            FolderView(kind="corpus"),
        ),
        DataSetView(
            "half",
            BROKEN,
            "",
            None,
            True,
            FolderView("damaged", "manifest.json is not complete JSON"),
        ),
        DataSetView(
            "shards/train",
            OLD,
            "shards",
            None,
            False,
            FolderView("gone", "nothing is there any more"),
            (user(40, "old-baseline", is_same=None),),
            1,
        ),
    )
)

RUN_DATA = RunData(
    splits=(
        RunSplit(
            "train",
            f"{CODE}/train",
            HASH,
            132_035,
            1_024,
            135_203_840,
            FolderView(kind="shards", hashes={"train": HASH}),
            True,
        ),
        RunSplit(
            "val",
            f"{CODE}/val",
            VAL_HASH,
            6_955,
            1_024,
            7_121_920,
            FolderView(kind="shards", hashes={"val": VAL_HASH}),
            True,
        ),
    ),
    data_set=CODE,
    tokenizer="/data/tokenizer.json",
    tokenizer_sha256="77aa10e5" * 8,
    seq_len=1_024,
    batch_size=64,
    seen={
        "pytorch/pytorch": 293_376,
        "numpy/numpy": 195_584,
        "pandas-dev/pandas": 197_104,
        "python/cpython": 146_688,
        "scikit-learn/scikit-learn": 96_270,
        "huggingface/transformers": 48_898,
    },
)

_MIXTURE = (  # name, weight
    ("pytorch/pytorch", 0.3),
    ("numpy/numpy", 0.2),
    ("pandas-dev/pandas", 0.2),
    ("python/cpython", 0.15),
    ("scikit-learn/scikit-learn", 0.1),
    ("huggingface/transformers", 0.05),
)
MIXED_DATA = replace(
    RUN_DATA,
    splits=RUN_DATA.splits[1:],
    data_set="",
    mixture=tuple(
        MixedSource(name, f"/data/{name}/train", weight, HASH[place:] + HASH[:place], is_same=True)
        for place, (name, weight) in enumerate(_MIXTURE)
    ),
)
