"""Text with a hole: the prompt that asks a model to fill it, and where the filling ends.

    psm    PREFIX before SUFFIX after MIDDLE ...
    spm    PREFIX SUFFIX after MIDDLE before ...

Each maker of models calls the three sentinels by names of its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

from tokenizers import Tokenizer

from albor_core.data.load.fim import SentinelIds
from albor_core.data.pack.special_tokens import token_of_role
from albor_core.run.errors import DataError

Order = Literal["psm", "spm"]
NO_SENTINELS = (
    "the tokenizer has no tokens for a prefix, a suffix and a middle",
    "a tokenizer of `albor tokenizer apply` has them",
)
_SPELLINGS = (
    ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>"),
    ("<fim_prefix>", "<fim_suffix>", "<fim_middle>"),
    ("<fim-prefix>", "<fim-suffix>", "<fim-middle>"),
    ("<PRE>", "<SUF>", "<MID>"),
    ("\u2581<PRE>", "\u2581<SUF>", "\u2581<MID>"),  # CodeLlama
    ("<\uff5cfim\u2581begin\uff5c>", "<\uff5cfim\u2581hole\uff5c>", "<\uff5cfim\u2581end\uff5c>"),
)


def sentinels(tokenizer: Tokenizer, path: Path | None = None) -> SentinelIds | None:
    """The ids that mark the parts of a text with a hole: by the roles in the tokenizer_config.json
    beside the tokenizer at `path`, or else by the spellings in use.
    """
    roles = [f"{part}_token" for part in SentinelIds._fields]
    said = () if path is None else tuple(token_of_role(path, role) for role in roles)
    for names in (said, *_SPELLINGS):
        ids = [n for name in names if name and (n := tokenizer.token_to_id(name)) is not None]
        if len(ids) == len(roles):
            return SentinelIds(*ids)
    return None


def infill_prompt(
    marks: SentinelIds, before: Sequence[int], after: Sequence[int], order: Order
) -> list[int]:
    """Tokens that ask for what stands between `before` and `after`."""
    if order == "psm":
        return [marks.prefix, *before, marks.suffix, *after, marks.middle]
    return [marks.prefix, marks.suffix, *after, marks.middle, *before]


def infill_ends(tokenizer: Tokenizer, path: Path) -> frozenset[int]:
    """Tokens that end a filling: any special token, since none belongs to a text, and the
    sentinels."""
    added = tokenizer.get_added_tokens_decoder()
    special = frozenset(number for number, token in added.items() if token.special)
    return special | frozenset(sentinels(tokenizer, path) or ())


def needed_sentinels(tokenizer: Tokenizer, path: Path, rows: int) -> SentinelIds:
    """The sentinels. Raises DataError if there are none, or if an embedding of `rows` lacks
    them."""
    marks = sentinels(tokenizer, path)
    if marks is None:
        raise DataError(f"cannot fill a hole: {NO_SENTINELS[0]}", hint=NO_SENTINELS[1])
    if max(marks) >= rows:
        what = f"cannot fill a hole: the sentinel {max(marks)} is outside the model's vocabulary"
        raise DataError(what, hint=f"albor model verify {path}")
    return marks
