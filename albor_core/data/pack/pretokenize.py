"""A corpus and a tokenizer in, packed token shards out, by split.

    OUT/train/shard-00000.parquet ... manifest.json      OUT/val/...      OUT/manifest.json

The output is a pure function of (corpus text, tokenizer bytes, arguments), whatever number of
processes made it. Manifests are written last, so a killed run is visibly unfinished; what it had
encoded and packed is kept in OUT.part/.work (OUT/.work where OUT is there already), and running it
again goes on there and gives the very same bytes.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from albor_core.config.choices import PackingName
from albor_core.data.mix.split import largest_held_out
from albor_core.data.pack.manifest import (
    DATASET_SCHEMA,
    MANIFEST_NAME,
    Manifest,
    Shard,
    shard_fields,
    write_manifest,
)
from albor_core.data.pack.output_folder import check_folder, place_shards, refuse_foreign
from albor_core.data.pack.shard_check import read_manifest, verify_shards
from albor_core.data.pack.work.encode import EncodedUnit, EncodeJob, text_units
from albor_core.data.pack.work.inputs import (
    NOWHERE,
    PackInput,
    check_arguments,
    open_input,
)
from albor_core.data.pack.work.layout import (
    UNUSABLE,
    Membership,
    ShardJob,
    SplitTotals,
)
from albor_core.data.pack.work.pieces import CONCAT, Wholeness
from albor_core.data.pack.work.recipe import (
    PackRecipe,
    PackTokenizer,
    made_before,
    open_tokenizer,
    recipe_of,
)
from albor_core.data.progress import Progress
from albor_core.data.stage.corpus import CorpusHash
from albor_core.data.stage.record import corpus_identity, read_record
from albor_core.data.stage.stage import DocumentsDone, refuse_overlap
from albor_core.data.stage.workers import each
from albor_core.outputs.place import OutputPlace, begin, finish, held, kept_if_begun
from albor_core.run.errors import DataError
from albor_core.run.files.publish import publish_json

__all__ = ["Manifest", "Shard", "ShardReport", "pretokenize", "read_manifest", "verify_shards"]

ONE_PROCESS_BYTES = 16 << 20  # of text: below, another process costs more than it gives
_SMALL_ID = 1 << 16


@dataclass(frozen=True)
class ShardReport:
    """The result of `pretokenize`, new or found."""

    out_dir: Path
    splits: dict[str, Manifest]
    skipped: dict[str, int]
    """Reason -> documents left out: empty, over-long or not UTF-8 (`unusable`)."""
    reused: bool
    resumed_units: int = 0
    """Units of text that an earlier, unfinished try had encoded."""
    seconds: float = 0.0


def pretokenize(
    corpus: Path,
    tokenizer: Path,
    out_dir: Path,
    *,
    seq_len: int,
    val_fraction: float | None = None,
    seed: int = 0,
    shard_sequences: int = 4096,
    eos: str | None = None,
    packing: PackingName = CONCAT,
    workers: int = 1,
    force: bool = False,
    column: str | None = None,
    elsewhere: Mapping[str, Path] = NOWHERE,
    progress: Progress | None = None,
) -> ShardReport:
    """Encode every document, pack rows of `seq_len` ids, write shards and manifests.

    `corpus` is a corpus, of which `val_fraction` (by default `VAL_FRACTION`; 0 for none) is held
    out for val, or a folder of corpora, a split each; `elsewhere` names those of its splits that
    lie in another place. Documents fall into train or val by name alone, except that a huge one
    always trains: see `largest_held_out`. They are joined by the token `eos`, or by the one that
    the tokenizer ends a text with (`end_of_text`); a sentinel spelled out inside a document is
    plain text, but for those that `albor data fim` put there. `packing` says where they are cut:
    see pieces.py.
    A complete output of the same inputs is reused; one of different inputs is refused unless
    `force`. What a failed or killed try did is kept in the work folder for the next, unless the
    input itself was refused. `progress` is called with the documents encoded and the documents in
    all. Raises ConfigError for impossible arguments, DataError for a corpus that cannot fill its
    splits or changes meanwhile, InUseError while another process packs into `out_dir`, AlborError
    on a full disk.
    """
    began = time.monotonic()
    check_arguments(seq_len, val_fraction, shard_sequences)
    source = open_input(corpus, val_fraction, seed, column, elsewhere)
    encoder = open_tokenizer(tokenizer, eos)
    check_folder(out_dir)
    place = OutputPlace(out_dir)
    recipe = recipe_of(source, encoder, seq_len, seed, shard_sequences, packing)
    if not force and (found := made_before(out_dir, source, recipe)) is not None:
        place.tidy()
        elapsed = time.monotonic() - began
        return ShardReport(out_dir, found.splits, found.skipped, True, seconds=elapsed)
    refuse_foreign(out_dir, source.names, force=force)
    for one in source.corpora:
        refuse_overlap(one.path, out_dir)
    source.check_split()
    packer = _Packing(source, encoder, recipe, place, workers, progress)
    with held(place) as work:
        return packer.run(work, began)


@dataclass(frozen=True)
class _Packing:
    source: PackInput
    tokenizer: PackTokenizer
    recipe: PackRecipe
    place: OutputPlace
    workers: int
    progress: Progress | None

    def run(self, work: Path, began: float) -> ShardReport:
        content, stamps = self.source.content(), self.source.stamps()
        identity = corpus_identity("pretokenize", self.recipe.settings(), content)
        begin(work, identity)
        resumed = len(list((work / "encoded").glob("*.json")))
        with kept_if_begun(work, "encoded"):
            units = self._encode(work)
            if self.source.stamps() != stamps:
                raise DataError(
                    f"{self.source.path}: changed while it was being packed",
                    hint="run the same command again once nothing writes to it",
                )
            totals, membership = self._divide(units)
            job = ShardJob(
                units,
                membership,
                self.source.names,
                tuple(tuple(total.starts) for total in totals),
                self.recipe.seq_len,
                self.recipe.shard_sequences,
                self.recipe.packing or CONCAT,
                work / "shards",
            )
            shards = list(
                each(job.numbers(), job, work / "rows", workers=self.workers, in_threads=True)
            )
            splits, skipped = self._publish(job, totals, shards, content, units, work.parent)
            finish(self.place, work)
            out = self.place.path
            splits = {name: replace(one, directory=out / name) for name, one in splits.items()}
        elapsed = time.monotonic() - began
        return ShardReport(self.place.path, splits, skipped, False, resumed, elapsed)

    def _encode(self, work: Path) -> tuple[EncodedUnit, ...]:
        units = text_units(self.source.corpora)
        workers = self.workers if self.source.text_bytes >= ONE_PROCESS_BYTES else 1
        job = EncodeJob(
            units,
            self.tokenizer.path,
            self.tokenizer.sha256,
            self.tokenizer.end,
            "<u2" if self.tokenizer.vocab_size <= _SMALL_ID else "<u4",
            self.source.rule,
            self.recipe.sentinels or {},
            work / "units",
            one_thread=workers > 1,
        )
        done = DocumentsDone([unit.rows for unit in units], self.source.rows, self.progress)
        results = each(range(len(units)), job, work / "encoded", workers=workers, done=done)
        return tuple(job.made(number, result) for number, result in enumerate(results))

    def _divide(self, units: tuple[EncodedUnit, ...]) -> tuple[list[SplitTotals], Membership]:
        """The totals of each split and its membership rule. Raises DataError if a split does not
        fill a row."""
        membership = Membership(self._largest(units))
        totals = [SplitTotals(name) for name in self.source.names]
        for unit in units:
            table = unit.table()
            for number, total in enumerate(totals):
                if membership.is_offered(unit, number):
                    total.add(unit, table, membership.belongs(unit, table, number))
                else:
                    total.add_none()
        for total in totals:
            if total.tokens < self.recipe.seq_len:
                raise DataError(
                    f"{self.source.path}: the {total.documents} documents of {total.name} do not "
                    f"fill one sequence of {self.recipe.seq_len} tokens",
                    hint="import more files, or use a smaller --seq-len or another --val-fraction",
                )
        return totals, membership

    def _largest(self, units: tuple[EncodedUnit, ...]) -> float | None:
        """The size beyond which a held-out document trains; None if nothing is held out."""
        if self.source.rule is None:
            return None
        documents = size = 0
        for unit in units:
            table = unit.table()
            documents += int(np.count_nonzero(table["usable"]))
            size += int(table["bytes"][table["usable"]].sum(dtype=np.int64))
        return largest_held_out(documents, size, self.source.rule.val_fraction)

    def _publish(
        self,
        job: ShardJob,
        totals: list[SplitTotals],
        results: list[dict[str, Any]],
        content: dict[str, str],
        units: tuple[EncodedUnit, ...],
        room: Path,
    ) -> tuple[dict[str, Manifest], dict[str, int]]:
        """Put the shards in place, then write the manifests: the splits' first, the one over them
        last.
        """
        paths: dict[str, list[Path]] = {name: [] for name in self.source.names}
        shards: dict[str, list[Shard]] = {name: [] for name in self.source.names}
        largest: dict[str, int] = dict.fromkeys(self.source.names, 0)
        whole: dict[str, Wholeness] = dict.fromkeys(self.source.names, Wholeness())
        for number, result in enumerate(results):
            name, path = self.source.names[job.place(number)[0]], job.path(number)
            paths[name].append(path)
            told = result["bytes"], result["sha256"], result["sequences"]
            shards[name].append(Shard(path.name, *told))
            largest[name] = max(largest[name], result["max_id"])
            whole[name] += Wholeness(**result["wholeness"])
        hashes = self._hashes(units)
        refuse_foreign(room, self.source.names, force=True)
        place_shards(room, paths)
        made = {
            total.name: self._seal(
                room, total, shards[total.name], largest[total.name], hashes, whole[total.name]
            )
            for total in totals
        }
        lost = sum(
            one.dropped[UNUSABLE] for total in totals for one in total.counts.sources.values()
        )
        skipped = {UNUSABLE: lost} if lost else {}
        documents = hashes if self.source.is_split else hashes[self.source.names[0]]
        publish_json(
            room / MANIFEST_NAME,
            {
                "schema": DATASET_SCHEMA,
                "recipe": self.recipe.fields(documents),
                "inputs": content,
                "skipped": skipped,
                "splits": {name: one.data_hash for name, one in made.items()},
            },
        )
        return made, skipped

    def _hashes(self, units: tuple[EncodedUnit, ...]) -> dict[str, str]:
        """Hashes of the documents in the corpus of each split."""
        digests = [CorpusHash() for _ in self.source.corpora]
        for unit in units:
            digests[unit.part].take(unit.entries())
        found = [digest.hexdigest() for digest in digests]
        if not self.source.is_split:
            found *= len(self.source.names)
        return dict(zip(self.source.names, found, strict=True))

    def _seal(
        self,
        room: Path,
        total: SplitTotals,
        shards: list[Shard],
        max_id: int,
        hashes: dict[str, str],
        whole: Wholeness,
    ) -> Manifest:
        sequences = sum(shard.sequences for shard in shards)
        tokens = sequences * self.recipe.seq_len
        return write_manifest(
            room / total.name,
            {
                "split": total.name,
                "seq_len": self.recipe.seq_len,
                "vocab_size": self.recipe.vocab_size,
                "max_id": max_id,
                "sequences": sequences,
                "tokens": tokens,
                "documents": total.documents,
                "dropped_tokens": total.tokens - tokens,
                "tokenizer_sha256": self.recipe.tokenizer_sha256,
                "corpus_sha256": hashes[total.name],
                "eos_token_id": self.recipe.end_of_text,
                "bos_token_id": self.tokenizer.begin,
                "shards": shard_fields(tuple(shards)),
            },
            self._told(total, whole),
        )

    def _told(self, total: SplitTotals, whole: Wholeness) -> dict[str, Any]:
        """Further fields of the manifest: the origin of the tokens, and their layout."""
        record = read_record(self.source.corpus_of(total.name).path)
        own = {
            "step": "pretokenize",
            "settings": self.recipe.settings(),
            "documents": total.documents,
            "bytes": sum(one.bytes for one in total.counts.sources.values()),
            **total.counts.to_json(),
        }
        return {
            "sources": {name: dict(one) for name, one in sorted(total.sources.items())},
            "histogram": total.lengths.to_json("tokens"),
            "history": [*(dict(one) for one in (record.steps() if record else ())), own],
            "packing": {"name": self.recipe.packing or CONCAT, **asdict(whole)},
        }
