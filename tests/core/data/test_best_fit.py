"""Best fit: every token of every document once, no padding, and documents whole where they fit."""

from __future__ import annotations

import hashlib
import itertools
import json
from collections import Counter

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny_run import tiny_config

from albor_core.config.load import parse_config
from albor_core.data.load.packed_shards import PackedShards
from albor_core.data.load.source import TokenSource
from albor_core.data.pack.pretokenize import pretokenize, read_manifest, verify_shards
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.data.pack.work import encode
from albor_core.data.pack.work.pieces import Stretch, best_fit, concat, wholeness
from albor_core.data.pipeline.decoded import shard_documents
from albor_core.data.stage.corpus import open_corpus
from albor_core.run.errors import DataError

ARGS = {"seq_len": 64, "val_fraction": 0.2, "shard_sequences": 64}
BEST = {**ARGS, "packing": "best-fit"}


@st.composite
def stretches(draw):
    """A row's length, and rows of documents of which the first and the last may be cut."""
    seq_len = draw(st.integers(2, 40))
    lengths = draw(st.lists(st.integers(1, 3 * seq_len), min_size=1, max_size=60))
    before = draw(st.integers(0, lengths[0] - 1))
    size = (sum(lengths) - before) // seq_len * seq_len
    begins = np.cumsum([-before, *lengths[:-1]])
    inside = (begins >= 0) & (begins < size)
    last = int(np.flatnonzero(begins < size)[-1]) if size else 0
    behind = int(begins[last]) + lengths[last] - size
    return seq_len, Stretch(begins[inside], size, max(behind, 0))


def plain(stretch: Stretch, seq_len: int) -> list[list[tuple[int, int]]]:
    """The rows, by looking at every row and at every piece each time."""
    begins = sorted({0, *stretch.starts.tolist()})
    full, rests = [], []
    for begin, end in zip(begins, [*begins[1:], stretch.size], strict=True):
        cuts = [*range(begin, end, seq_len), end]
        pieces = [(one, other - one) for one, other in itertools.pairwise(cuts)]
        full += [[one] for one in pieces if one[1] == seq_len]
        rests += [one for one in pieces if one[1] < seq_len]
    rests.sort(key=lambda one: -one[1])
    opened = next((one for one in rests if stretch.behind and sum(one) == stretch.size), None)
    rows, changed = [], []

    def room(row):
        return seq_len - sum(length for _, length in row)

    for piece in rests:
        fitting = [row for row in reversed(changed) if room(row) >= piece[1]]
        row = min(fitting, key=room, default=None)
        if row is None:
            rows.append(row := [])
        row.append(piece)
        changed = [*(one for one in changed if one is not row), row]
    rows.sort(key=lambda row: (opened not in row, room(row)))
    kept = rows[: sum(length for _, length in rests) // seq_len]
    pool = [piece for row in rows[len(kept) :] for piece in row]
    for row in reversed(kept):
        while left := room(row):
            fitting = [one for one in reversed(pool) if one[1] <= left]
            piece = max(fitting, key=lambda one: one[1], default=None)
            if piece is None:
                piece = min(reversed(pool), key=lambda one: one[1])
                pool.append((piece[0] + left, piece[1] - left))
            pool.remove(piece)
            row.append((piece[0], min(left, piece[1])))
    return sorted(sorted(row) for row in full + kept)


@given(stretches())
def test_the_rows_are_those_of_the_plain_way(case):
    seq_len, stretch = case
    if not stretch.size:
        return
    pieces = best_fit(stretch, seq_len)
    rows = (pieces.lengths.cumsum() - pieces.lengths) // seq_len
    found = [[] for _ in range(stretch.size // seq_len)]
    for row, begin, length in zip(rows, pieces.begins, pieces.lengths, strict=True):
        found[row].append((int(begin), int(length)))
    assert [sorted(row) for row in found] == plain(stretch, seq_len)


@given(stretches())
def test_every_token_is_in_the_rows_once_and_no_row_joins_two_documents(case):
    seq_len, stretch = case
    if not stretch.size:
        return
    pieces = best_fit(stretch, seq_len)
    ids = np.arange(stretch.size)
    laid = pieces.order(ids)
    assert sorted(laid.tolist()) == ids.tolist()
    ends = {*(stretch.starts - 1).tolist(), *([] if stretch.behind else [stretch.size - 1])}
    follows = laid[1:] == laid[:-1] + 1
    row_ends = np.arange(1, stretch.size) % seq_len == 0
    for at in np.flatnonzero(~follows & ~row_ends).tolist():
        assert int(laid[at]) in ends, "what comes after it would be read as the same document"


@given(stretches())
def test_what_is_counted_is_what_the_rows_hold(case):
    seq_len, stretch = case
    if not stretch.size:
        return
    starts = stretch.starts.tolist()
    after = dict(zip(starts, [*starts[1:], stretch.size + stretch.behind], strict=False))
    for way in (best_fit, concat):
        pieces = way(stretch, seq_len)
        rows = pieces.order(np.arange(stretch.size)).reshape(-1, seq_len).tolist()
        whole = {
            row[at]
            for row in rows
            for at in range(seq_len)
            if row[at] in after
            and row[at : at + after[row[at]] - row[at]] == [*range(row[at], after[row[at]])]
        }
        told = wholeness(stretch, pieces, seq_len)
        assert told.cut_documents == len(starts) - len(whole)
        assert told.long_documents == sum(end - at > seq_len for at, end in after.items())
        assert told.rows_from_start == sum(row[0] in after for row in rows)


def test_a_row_begins_with_a_document_where_it_holds_the_beginning_of_one():
    pieces = best_fit(Stretch(np.array([3]), 8, 0), 8)  # the end of one, and one of 5
    assert pieces.begins.tolist() == [3, 0] and pieces.lengths.tolist() == [5, 3]


def documents(corpus, tokenizer, split):
    """The ids of each, with the end of text."""
    encoder = load_tokenizer(tokenizer)
    rule = encode.SplitRule(0, 0.2)
    for key, text in open_corpus(corpus).documents():
        if rule.holds_out(key) == (split == "val"):
            yield [*encoder.encode(text.decode()).ids, 0]


def pieces_of(folder):
    """Ids between ends of text and ends of rows, as training tells documents apart."""
    for path in read_manifest(folder).paths():
        for row in pq.read_table(path)["input_ids"].to_pylist():
            ends = [0, *(at + 1 for at, one in enumerate(row) if one == 0), len(row)]
            yield from (row[a:b] for a, b in itertools.pairwise(ends) if a < b)


def test_whole_documents_are_pieces_and_the_rest_is_what_was_cut(corpus, tokenizer, tmp_path):
    report = pretokenize(corpus, tokenizer, tmp_path / "b", **BEST)
    before = pretokenize(corpus, tokenizer, tmp_path / "c", **ARGS)
    for name, split in report.splits.items():
        wanted = Counter(map(tuple, documents(corpus, tokenizer, name)))
        found = Counter(map(tuple, pieces_of(tmp_path / "b" / name)))
        cut = wanted - found
        short = sum(len(one) for one in cut.elements())
        others = list((found - wanted).elements())
        assert short - sum(map(len, others)) == split.dropped_tokens < 64
        assert all(any(has(one, other) for one in cut) for other in others)
        assert split.packing["cut_documents"] in (cut.total(), cut.total() - 1)  # or left out whole
        told, then = split.packing, before.splits[name].packing
        assert told["cut_documents"] < then["cut_documents"]
        assert told["rows_from_start"] > then["rows_from_start"]
        assert told["long_documents"] == then["long_documents"] > 0
        assert (told["name"], then["name"]) == ("best-fit", "concat")
        for fact in ("tokens", "documents", "dropped_tokens", "sources", "histogram"):
            assert getattr(split, fact) == getattr(before.splits[name], fact)
    assert verify_shards(tmp_path / "b" / "train", hashes=True) == []


def has(ids, piece):
    return any(ids[at : at + len(piece)] == piece for at in range(len(ids) - len(piece) + 1))


def test_a_shard_holds_the_same_ids_in_both_ways(corpus, tokenizer, tmp_path):
    for way in (ARGS, BEST):
        pretokenize(corpus, tokenizer, tmp_path / way.get("packing", "concat"), **way)
    shards = sorted((tmp_path / "concat" / "train").glob("*.parquet"))
    assert len(shards) > 2
    for shard in shards:
        one, other = (
            pq.read_table(tmp_path / name / "train" / shard.name)["input_ids"].combine_chunks()
            for name in ("concat", "best-fit")
        )
        assert one != other
        assert sorted(one.flatten().to_pylist()) == sorted(other.flatten().to_pylist())


def test_what_is_left_of_a_cut_document_is_a_document_of_its_own(corpus, tokenizer, tmp_path):
    pretokenize(corpus, tokenizer, tmp_path, **BEST)
    shards = PackedShards(tmp_path / "train", seq_len=64)
    ids = shards.batch(range(len(shards)))
    numbers = shards.boundaries.numbers(ids)
    told = [ids[row][numbers[row] == n].tolist() for row in range(len(ids))
            for n in range(numbers[row].max() + 1)]  # fmt: skip
    assert told == list(pieces_of(tmp_path / "train"))


def test_what_was_placed_to_be_whole_is_not_shuffled_by_documents(corpus, tokenizer, tmp_path):
    pretokenize(corpus, tokenizer, tmp_path / "shards", **BEST)
    more = {"data__train": str(tmp_path / "shards" / "train"), "data__seq_len": 64}
    more |= {f"model__architecture__{name}": size for name, size in
             (("vocab_size", 1 << 16), ("max_position_embeddings", 64))}  # fmt: skip
    raw = tiny_config(tmp_path, **more, data__shuffle="documents")
    config = parse_config(json.dumps(raw).encode(), file="tiny.yaml")
    with pytest.raises(DataError, match=r"data.shuffle: .* was packed by best-fit"):
        TokenSource(config, validation=False)


def test_what_is_decoded_joins_no_two_documents(corpus, tokenizer, tmp_path):
    pretokenize(corpus, tokenizer, tmp_path, **BEST)
    texts = [text.decode() for _, text in open_corpus(corpus).documents()]
    for _, _, text in shard_documents(tmp_path / "train", tokenizer):
        assert any(text in one for one in texts)


def test_the_other_way_is_refused_without_force_and_does_not_go_on_from_it(
    corpus, tokenizer, tmp_path
):
    out = tmp_path / "o"
    pretokenize(corpus, tokenizer, out, **ARGS)
    before = tree_hash(out)
    with pytest.raises(DataError, match=r"\(not the same: packing\)") as caught:
        pretokenize(corpus, tokenizer, out, **BEST)
    assert "--force" in caught.value.hint and tree_hash(out) == before
    assert not pretokenize(corpus, tokenizer, out, **BEST, force=True).reused
    assert pretokenize(corpus, tokenizer, out, **BEST).reused
    best = tree_hash(out)
    with pytest.raises(DataError, match=r"\(not the same: packing\)"):
        pretokenize(corpus, tokenizer, out, **ARGS)
    assert tree_hash(out) == best
    pretokenize(corpus, tokenizer, out, **ARGS, force=True)
    assert tree_hash(out) == before


def test_another_number_of_threads_and_units_gives_the_same_bytes(
    corpus, tokenizer, tmp_path, monkeypatch
):
    pretokenize(corpus, tokenizer, tmp_path / "a", **BEST)
    monkeypatch.setattr(encode, "UNIT_BYTES", 1)
    pretokenize(corpus, tokenizer, tmp_path / "b", **BEST, workers=3)
    assert tree_hash(tmp_path / "a") == tree_hash(tmp_path / "b")


def test_documents_that_are_much_longer_than_a_row_or_a_shard_fill_rows(tokenizer, tmp_path):
    texts = ["value = 1\n" * 4000, "total = 2\n", "index = 3\n" * 3, "count = 4\n" * 900]
    pq.write_table(pa.table({"text": texts}), tmp_path / "c.parquet")
    args = {"seq_len": 16, "val_fraction": 0, "shard_sequences": 8, "packing": "best-fit"}
    report = pretokenize(tmp_path / "c.parquet", tokenizer, tmp_path / "o", **args)
    assert report.splits["train"].packing["long_documents"] >= 2
    assert len(report.splits["train"].shards) > 10
    assert verify_shards(tmp_path / "o" / "train", hashes=True) == []


def tree_hash(root):
    return {
        str(f.relative_to(root)): hashlib.sha256(f.read_bytes()).hexdigest()
        for f in sorted(root.rglob("*"))
        if f.is_file()
    }
