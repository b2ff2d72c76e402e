"""Which tokens of a tokenizer end and begin a text, whoever made it.

Its own word comes first: `eos_token` and `bos_token` of the tokenizer_config.json (or
special_tokens_map.json) beside tokenizer.json, as transformers writes them. Otherwise the special
tokens of tokenizer.json are looked through for a name in use.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer

from albor_core.run.errors import ConfigError, DataError
from albor_core.run.rundir import read_json

END_OF_TEXT, PAD = "<|endoftext|>", "<|pad|>"
"""Those of our own tokenizers."""
CONFIG, _OLDER = "tokenizer_config.json", "special_tokens_map.json"
_DEEPSEEK = "<\uff5c{}\u2581of\u2581sentence\uff5c>"
_TEXT_ENDS = (
    *(END_OF_TEXT, "<|end_of_text|>", "</s>", "<eos>", "<|eos|>", "[EOS]"),
    _DEEPSEEK.format("end"),
)
_TURN_ENDS = ("<|im_end|>", "<|eot_id|>", "<end_of_turn>", "<|end|>")
"""Of a message in a conversation: they end a text only where nothing else does."""
_BEGINS = ("<|begin_of_text|>", "<s>", "<bos>", "[BOS]", _DEEPSEEK.format("begin"))
_PADS = (PAD, "<pad>", "[PAD]")
_SHOWN = 12
_KEPT = ("chat_template", "add_bos_token", "add_eos_token", "unk_token")


@dataclass(frozen=True)
class SpecialIds:
    """The ids of special tokens; None if there is none, or if it is unknown."""

    eos: int | None = None
    bos: int | None = None
    pad: int | None = None

    @property
    def first(self) -> int | None:
        """The token before a text: documents are packed with an eos after each and no bos."""
        return self.eos if self.bos is None else self.bos


def tokenizer_file(path: Path) -> Path:
    """`path` itself when it names a .json file, else tokenizer.json inside it."""
    return path if path.suffix == ".json" else path / "tokenizer.json"


def end_of_text(tokenizer: Tokenizer, path: Path, chosen: str | None = None) -> int:
    """The id that documents are joined with; `chosen`: the token to take.

    Raises ConfigError where that is not in the vocabulary, DataError where the tokenizer has no
    such token, or several.
    """
    file = tokenizer_file(path)
    if chosen is not None:
        number: int | None = tokenizer.token_to_id(chosen)
        if number is None:
            raise ConfigError(f"--eos {chosen!r}: not a token of {file}", hint=_listed(tokenizer))
        return number
    if (name := token_of_role(path, "eos_token")) is not None:
        if (number := tokenizer.token_to_id(name)) is None:
            what = f"{file.with_name(CONFIG)}: its eos_token {name!r} is not in the vocabulary"
            raise DataError(what, hint=f"name one with --eos TOKEN; {_listed(tokenizer)}")
        return number
    found = _ends(tokenizer)
    if len(found) == 1 and (number := tokenizer.token_to_id(found[0])) is not None:
        return number
    if found:
        raise DataError(
            f"{file}: several tokens may end a text: {', '.join(found)}",
            hint=" or ".join(f"--eos '{name}'" for name in found),
        )
    raise DataError(
        f"{file}: no special token ends a text",
        hint=f"name one with --eos TOKEN ({_listed(tokenizer)}), or train one that has it: "
        "albor tokenizer apply CORPUS --vocab-size N --out FILE",
    )


def special_ids(tokenizer: Tokenizer, path: Path) -> SpecialIds:
    """The special tokens by the tokenizer alone; raises nothing."""
    try:
        eos: int | None = end_of_text(tokenizer, path)
    except DataError:
        eos = None
    return SpecialIds(
        eos,
        _one(tokenizer, path, "bos_token", _BEGINS),
        _one(tokenizer, path, "pad_token", _PADS),
    )


def tokenizer_config(
    tokenizer: Tokenizer, path: Path, ids: SpecialIds, longest: int
) -> dict[str, Any]:
    """tokenizer_config.json for transformers: which tokens `ids` are, and what the one beside the
    tokenizer says of conversations. No class but the one that reads tokenizer.json as it is.
    """
    beside = _documents(path)
    kept = {key: beside[key] for key in _KEPT if key in beside}
    names = {"eos_token": ids.eos, "bos_token": ids.first, "pad_token": ids.pad}
    told = {key: tokenizer.id_to_token(n) for key, n in names.items() if n is not None}
    return {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "model_max_length": longest,
        "clean_up_tokenization_spaces": False,
        **kept,
        **{key: name for key, name in told.items() if name is not None},
    }


def _documents(path: Path) -> Mapping[str, Any]:
    """The newer over the older; {} where neither can be read."""
    file = tokenizer_file(path)
    found: dict[str, Any] = {}
    for name in (_OLDER, CONFIG):
        found |= read_json(file.with_name(name)) or {}
    return found


def token_of_role(path: Path, role: str) -> str | None:
    """The token that the files beside a tokenizer name for a role such as `eos_token`; None if they
    do not."""
    told = _documents(path).get(role)
    text = told.get("content") if isinstance(told, dict) else told
    return text if isinstance(text, str) else None


def _one(tokenizer: Tokenizer, path: Path, role: str, names: tuple[str, ...]) -> int | None:
    """The token of a role, or the only special one of `names`."""
    named = token_of_role(path, role)
    found = [name for name in names if name in _specials(tokenizer)]
    name = named or (found[0] if len(found) == 1 else None)
    number: int | None = None if name is None else tokenizer.token_to_id(name)
    return number


def _ends(tokenizer: Tokenizer) -> list[str]:
    """Special tokens that may end a text. An ordinary one may be a piece of text that looks alike:
    of these only our own.
    """
    specials = _specials(tokenizer)
    for names in (_TEXT_ENDS, _TURN_ENDS):
        if found := [name for name in names if name in specials]:
            return found
    return [END_OF_TEXT] if tokenizer.token_to_id(END_OF_TEXT) is not None else []


def _specials(tokenizer: Tokenizer) -> list[str]:
    added = tokenizer.get_added_tokens_decoder()
    return [token.content for _, token in sorted(added.items()) if token.special]


def _listed(tokenizer: Tokenizer) -> str:
    names = _specials(tokenizer)
    if not names:
        return "it has no special tokens"
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return f"its special tokens are {', '.join(names[:_SHOWN])}{more}"


def generation_config(ids: SpecialIds, kept: Mapping[str, Any] | None = None) -> bytes:
    """generation_config.json: where `generate()` stops. `kept`: one that weights came with, whose
    settings stay, and whose ids where ours are among them.
    """
    if kept is not None:
        said = {"bos_token_id": ids.bos, "eos_token_id": ids.eos}
        mine = {key: one for key, one in said.items() if one is not None}
        new = {key: one for key, one in mine.items() if not _names(kept.get(key), one)}
        return json.dumps({**kept, **new}, indent=2).encode()
    pad = ids.eos if ids.pad is None else ids.pad
    told = {"bos_token_id": ids.first, "eos_token_id": ids.eos, "pad_token_id": pad}
    known = {key: number for key, number in told.items() if number is not None}
    return json.dumps({"_from_model_config": False, **known}, indent=2).encode()


def _names(said: object, number: int) -> bool:
    """Several may end a text."""
    return number in said if isinstance(said, list) else said == number
