"""The folder that `pretokenize` fills: whose shards are in it, and how new ones take their place.

OUT/SPLIT/shard-00000.parquet ... manifest.json      OUT/manifest.json, last
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from albor_core.data.pack.manifest import MANIFEST_NAME
from albor_core.data.pack.shard_writer import SHARD_PATTERN
from albor_core.outputs.place import OutputPlace, publish_files
from albor_core.run.errors import DataError, UsageError
from albor_core.run.files.publish import temporary
from albor_core.run.files.whole_file import fsync_dir

_LOCK_NAME = ".pretokenize.lock"  # of packers before there was a work folder


def check_folder(out_dir: Path) -> None:
    """Raise UsageError for a name that stands for a file."""
    if out_dir.is_file() or out_dir.suffix == ".parquet":
        raise UsageError(f"{out_dir}: is a file; name a folder", hint="another --out")


def refuse_foreign(out_dir: Path, names: Sequence[str], *, force: bool) -> None:
    """Raise DataError where a split holds shards that nothing here wrote."""
    begun = force or _is_ours(out_dir)
    for directory in (out_dir / name for name in names):
        found = set(directory.glob("*.parquet"))
        ours = set(directory.glob(SHARD_PATTERN)) if begun else _told(directory)
        if foreign := sorted(found - ours):
            raise DataError(
                f"{foreign[0]}: was not written by albor data pretokenize",
                hint="choose another output directory, or move that file away",
            )


def _is_ours(out_dir: Path) -> bool:
    """A packer has begun to write here."""
    lock = out_dir / _LOCK_NAME
    return (
        (out_dir / MANIFEST_NAME).exists()
        or OutputPlace(out_dir).begun is not None
        or (lock.is_file() and lock.stat().st_size > 0)
    )


def _told(directory: Path) -> set[Path]:
    """The shards that the split's own manifest names."""
    try:
        document = json.loads((directory / MANIFEST_NAME).read_bytes())
        return {directory / str(shard["file"]) for shard in document["shards"]}
    except (OSError, ValueError, KeyError, TypeError):
        return set()


def place_shards(out_dir: Path, made: Mapping[str, Sequence[Path]]) -> None:
    """Put shards (of each split, in order) where they belong, instead of what an earlier packer
    left. Manifests go first: they must never name missing shards. Whenever it is interrupted, it
    can be done again.
    """
    _clear(out_dir)
    for name, files in made.items():
        directory = out_dir / name
        directory.mkdir(exist_ok=True)
        publish_files(files, directory)
    fsync_dir(out_dir)


def _clear(out_dir: Path) -> None:
    (out_dir / MANIFEST_NAME).unlink(missing_ok=True)
    for directory in sorted(out_dir.glob("[!.]*/")):
        manifest = directory / MANIFEST_NAME
        shards = {*directory.glob(SHARD_PATTERN)}
        if not manifest.exists() and not shards:
            continue
        manifest.unlink(missing_ok=True)
        for leftover in (*shards, *directory.glob(temporary(Path(SHARD_PATTERN)).name)):
            leftover.unlink()
        fsync_dir(directory)
        with suppress(OSError):  # of a split that is not made again
            directory.rmdir()
    (out_dir / _LOCK_NAME).unlink(missing_ok=True)
    fsync_dir(out_dir)
