"""Text where a config names shards: packed before the run begins, once for each text, tokenizer
and length of rows (data/pack/packed_corpus.py). The run's config then names the shards.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

from albor_core.cli.common.output import clean, print_note
from albor_core.cli.common.progress import progress
from albor_core.config.choices import PackingName
from albor_core.config.recipes.own import own_class
from albor_core.feed.data.folder import SHARDS, kind_of
from albor_core.run.errors import AlborError, ConfigError, Problem

if TYPE_CHECKING:
    from albor_core.config.config import Config


def packed_overrides(config: Config, file: str, *, packs: bool) -> tuple[str, ...]:
    """What to set for data.train and data.val where they hold text. Without `packs` nothing is
    written, and text that is not packed yet stays what it is: the plan estimates it. Raises
    ConfigError where it cannot be packed.
    """
    if own_class(config.training.mode) is not None:
        return ()
    data, found = config.data, []
    train: tuple[Path | None, PackingName] = None if data.mixture else data.train, data.packing
    places = {"data.train": train, "data.val": (data.val, "concat")}
    for field, (path, packing) in places.items():
        if path is None or _holds_shards(path):
            continue
        try:
            split = _packed(path, config, packing, packs=packs)
        except AlborError as error:
            problem = Problem(field, error.message, error.hint, file)
            raise ConfigError(
                f"{file}: {field}: {error.message}", hint=error.hint, problems=(problem,)
            ) from error
        if split != path:
            found.append(f"{field}={json.dumps(str(split))}")
    return tuple(found)


def _holds_shards(path: Path) -> bool:
    """Seen without pyarrow. What is not there is for the plan to tell."""
    if not path.exists():
        return True
    return kind_of(path) == SHARDS


def _packed(path: Path, config: Config, packing: PackingName, *, packs: bool) -> Path:
    from albor_core.data.pack.packed_corpus import packed_corpus, packed_place, text_corpus
    from albor_core.data.stage.workers import default_workers

    data = config.data
    try:
        corpus = text_corpus(path)
    except AlborError:  # neither ids nor text: the plan names the columns
        return path
    if corpus is None:
        return path
    if not packs and data.tokenizer is not None:
        split = packed_place(corpus, data.tokenizer, data.seq_len, packing)
        return split if split.parent.joinpath("manifest.json").exists() else path
    with progress(lambda done, total: f"{done:,} of {total:,} documents packed") as tell:
        return packed_corpus(
            path,
            data.tokenizer,
            data.seq_len,
            packing=packing,
            workers=default_workers(),
            say=lambda text: print_note(clean(text)),
            progress=tell,
        )
