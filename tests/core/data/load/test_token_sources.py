"""What a config says of its data, as rows: sources that go together, and those that do not."""

import json

import numpy as np
import pytest
from tiny_run import SEQ_LEN, VOCAB, tiny_config, write_documents, write_shards, write_tokenizer

from albor_core.config.load import parse_config
from albor_core.data.load.documents import Boundaries
from albor_core.data.load.order import val_rows
from albor_core.data.load.permutation import sorted_draws
from albor_core.data.load.source import TokenSource
from albor_core.run.errors import ConfigError, DataError


@pytest.fixture
def folders(tmp_path):
    names = (("a", 23), ("b", 40), ("c", 12))
    return [write_documents(tmp_path / n, rows, seed) for seed, (n, rows) in enumerate(names)]


def source_of(tmp_path, *, validation=False, **changes):
    config = parse_config(json.dumps(tiny_config(tmp_path, **changes)).encode(), file="tiny.yaml")
    return TokenSource(config, validation=validation)


def mixture(folders, *weights):
    pairs = zip(folders, weights, strict=True)
    return [{"path": str(folder), "weight": weight} for folder, weight in pairs]


def test_a_validation_mixture_has_of_each_source_what_its_weight_says_spread_over_it(
    tmp_path, folders
):
    source = source_of(
        tmp_path, validation=True, data__val=..., data__val_mixture=mixture(folders, 1, 2, 1)
    )
    assert [part.used for part in source.parts] == [12, 24, 12]
    assert len(source) == 48
    places = source.places(np.arange(48))
    rows = {name: [row for one, row in places if one == name] for name in "abc"}
    assert rows["c"] == list(range(12))
    for name, most in (("a", 23), ("b", 40)):
        assert len(set(rows[name])) == len(rows[name]) and max(rows[name]) > most - 4
    chosen = np.concatenate(list(val_rows(48, 4, 4)))
    assert [name for name, _ in source.places(chosen)].count("b") == 8
    stored = source.parts[1].shards.batch(rows["b"])
    assert (source.batch(np.arange(12, 36))["ids"] == stored).all()


def test_rows_of_several_sources_are_counted_and_read_as_one_by_one(tmp_path, folders):
    more = {"data__train": ..., "data__mixture": mixture(folders, 1, 1, 1)}
    source = source_of(tmp_path, **more, data__document_mask=True)
    rows = np.array([74, 0, 23, 62, 5, 63, 22])
    whole = source.batch(rows)
    for at, row in enumerate(rows):
        one = source.batch(np.array([row]))
        assert all((one[name][0] == whole[name][at]).all() for name in one)
    inner = int(whole["document"][:, -1].sum())
    assert source.count(rows) == len(rows) * (SEQ_LEN - 1) - inner
    assert source.count(rows) == source.count(rows + len(source))  # the next epoch


def test_documents_are_cut_otherwise_in_each_epoch_and_never_for_validation(tmp_path, folders):
    more = {"data__train": str(folders[1]), "data__val": str(folders[1])}
    more |= {"data__fim": {"rate": 0.9}, "data__document_mask": True}
    more |= {"data__tokenizer": str(write_tokenizer(tmp_path / "tokenizer.json"))}
    train, val = (source_of(tmp_path, **more, validation=told) for told in (False, True))
    rows = np.arange(40)
    first, again, later = train.ids(rows), train.ids(rows), train.ids(rows + 40)
    assert (first == again).all() and (first != later).any()
    assert (val.ids(rows) == val.stored(rows)).all()
    assert (train.is_filled(rows) == (first == 61).any(axis=1)).all()
    for numbers in (rows, rows + 40):
        inner = int(train.batch(numbers)["document"][:, -1].sum())
        assert train.count(numbers) == 40 * (SEQ_LEN - 1) - inner


def joined_plainly(shards, seed, epoch):
    """(N, T) as a plain program would join the documents of a split in the order of an epoch."""
    flat = shards.batch(range(len(shards))).ravel().tolist()
    documents = [[]]
    for token in flat:
        documents[-1].append(token)
        if token == shards.boundaries.end:
            documents.append([])
    ends_within = [documents.pop()] if documents[-1] else []
    documents = [one for one in documents if one]
    stream = int(shards.manifest.data_hash[:15], 16) | 1 << 60 | 1 << 61
    order = sorted_draws(seed, epoch, len(documents), stream)
    joined = [*(documents[one] for one in order), *ends_within]
    return np.array([token for one in joined for token in one]).reshape(-1, SEQ_LEN)


def test_documents_are_joined_in_another_order_in_each_epoch_and_none_is_lost(tmp_path, folders):
    more = {"data__train": ..., "data__mixture": mixture(folders, 1, 1, 1), "training__seed": 7}
    source = source_of(tmp_path, **more, data__shuffle="documents")
    size = len(source)
    wanted = {epoch: [] for epoch in (0, 1, 9)}
    for part in source.parts:
        for epoch, rows in wanted.items():
            rows.append(joined_plainly(part.shards, 7, epoch))
            told = np.sort(rows[-1].ravel())
            assert (told == np.sort(part.shards.batch(range(part.used)).ravel())).all()
    whole = {epoch: np.concatenate(rows) for epoch, rows in wanted.items()}
    assert (whole[0] != whole[1]).any()
    numbers = np.random.default_rng().permutation(3 * size)[:40]
    epochs, rows = np.array([0, 1, 9])[numbers // size], numbers % size
    found = source.ids(epochs * size + rows)
    for row, epoch, ids in zip(rows, epochs, found, strict=True):
        assert (ids == whole[epoch][row]).all(), (row, epoch)


def test_an_order_of_documents_tells_its_epochs_and_counts_what_it_joins(tmp_path, folders):
    more = {"data__train": str(folders[1]), "data__val": str(folders[1])}
    more |= {"data__shuffle": "documents", "data__document_mask": True}
    train, val = (source_of(tmp_path, **more, validation=told) for told in (False, True))
    rows = np.arange(40)
    assert (val.ids(rows) == train.parts[0].shards.batch(rows)).all()
    order = train.order()
    assert sorted(order.part(40, 0, 40)) == list(range(40, 80))
    for numbers in (rows, rows + 40):
        inner = int(train.batch(numbers)["document"][:, -1].sum())
        assert train.count(numbers) == 40 * (SEQ_LEN - 1) - inner


def test_documents_that_begin_with_a_token_are_found_over_the_edges_of_blocks(
    tmp_path, folders, monkeypatch
):
    whole = source_of(tmp_path, data__train=str(folders[0])).parts[0].shards
    starts = whole.document_starts()
    ids = whole.batch(range(len(whole))).ravel()
    assert starts.tolist() == [0, *(np.flatnonzero(ids[:-1] == whole.boundaries.end) + 1)]
    for size in (1, 7, SEQ_LEN, len(ids)):
        monkeypatch.setattr("albor_core.data.load.packed_shards._TOKENS", size)
        assert (whole.document_starts() == starts).all()
    monkeypatch.setattr(whole, "_boundaries", Boundaries(None, whole.boundaries.end))
    assert whole.document_starts().tolist() == sorted({0, *np.flatnonzero(ids == ids.min())})


def test_documents_are_not_joined_over_what_was_cut_from_rows(tmp_path, folders):
    more = {"data__train": str(folders[0]), "data__shuffle": "documents"}
    with pytest.raises(
        DataError, match=rf"data.seq_len {SEQ_LEN - 1} does not divide the {SEQ_LEN}"
    ):
        source_of(tmp_path, **more, data__seq_len=SEQ_LEN - 1)
    assert len(source_of(tmp_path, **more, data__seq_len=SEQ_LEN // 2)) == 2 * 23


def test_documents_cannot_be_shuffled_where_they_are_not_told_apart(tmp_path):
    bare = write_shards(tmp_path / "bare", 8, seed=4)
    with pytest.raises(DataError, match=r"data.shuffle: .*bare names no token between"):
        source_of(tmp_path, data__train=str(bare), data__shuffle="documents")


def test_sources_that_do_not_go_together_are_refused_by_name(tmp_path, folders):
    twice = [*folders[:1], *folders[:1]]
    named = [{**one, "name": name} for one, name in zip(mixture(twice, 1, 1), "xy", strict=True)]
    with pytest.raises(ConfigError, match=r"data.mixture.1.path: .* same data as source x"):
        source_of(tmp_path, data__train=..., data__mixture=named)
    bare = write_shards(tmp_path / "bare", 8, seed=4)
    with pytest.raises(ConfigError, match=r"data.mixture.1.path: .* another tokenizer than a"):
        source_of(tmp_path, data__train=..., data__mixture=mixture([folders[0], bare], 1, 1))


def test_what_cannot_be_cut_is_refused_with_the_way_out(tmp_path, folders):
    file = str(write_tokenizer(tmp_path / "tokenizer.json"))
    fim = {"data__fim": {"rate": 0.5, "suffix": "<SUF>"}, "data__tokenizer": file}
    with pytest.raises(ConfigError, match=r"data.fim.suffix: '<SUF>' is not a token of .*json"):
        source_of(tmp_path, **fim, data__train=str(folders[0]))
    ends = {**fim, "data__fim": {"rate": 0.5, "suffix": "<|endoftext|>"}}
    with pytest.raises(ConfigError, match=r"data.fim.suffix: .* ends every document in"):
        source_of(tmp_path, **ends, data__train=str(folders[0]))
    with pytest.raises(DataError, match=r"data.fim: .* names no token that ends a document"):
        source_of(tmp_path, **{**fim, "data__fim": {"rate": 0.5}})
    narrow = {"model__architecture__vocab_size": VOCAB - 2}
    with pytest.raises(ConfigError, match=r"data.fim.suffix: .* beyond the model's vocabulary"):
        source_of(
            tmp_path, **{**fim, "data__fim": {"rate": 0.5}}, **narrow, data__train=str(folders[0])
        )


SOURCES = [{"path": "x/a/train", "weight": 1}, {"path": "x/b", "weight": 2}]
MIXED = {"data__train": ..., "data__mixture": SOURCES}
FIM = {"data__fim": {"rate": 0.5}}
WRONG = [
    ({"data__mixture": SOURCES}, "data.mixture: stands beside data.train"),
    ({"data__val_mixture": SOURCES}, "data.val_mixture: stands beside data.val"),
    ({"data__train": ...}, "data.train: is required"),
    (
        {**MIXED, "data__mixture": [{"path": "a/train", "weight": 1}, {"path": "a", "weight": 1}]},
        "data.mixture.1: two sources are called a",
    ),
    ({**MIXED, "data__mixture": [{"path": "a", "weight": 0}]}, "data.mixture: all weights are 0"),
    ({**MIXED, "data__mixture": [{"path": "a", "weight": -1}]}, "data.mixture.0.weight: must be"),
    ({**MIXED, "data__mixture": [{"path": "a"}]}, "data.mixture.0.weight: is required"),
    ({"data__curriculum": [{"from": 0, "weights": {"a": 1}}]}, "data.curriculum: says how"),
    (
        {**MIXED, "data__curriculum": [{"from": 9, "weights": {"c": 1}}]},
        "data.curriculum.0.weights: c is not a source of data.mixture",
    ),
    (
        {**MIXED, "data__curriculum": [{"from": 9, "weights": {"a": 0}}]},
        "data.curriculum.0.weights: all weights are 0",
    ),
    (
        {**MIXED, "data__curriculum": [{"from": n, "weights": {"a": 1}} for n in (9, 9)]},
        "data.curriculum: stages must ascend",
    ),
    (
        {**MIXED, "data__curriculum": [{"from": 9, "weight": {"a": 1}}]},
        "data.curriculum.0.weight: is not a field",
    ),
    (
        {**MIXED, "data__curriculum": [{"from": 9, "weights": {"a": -1}}]},
        "data.curriculum.0.weights.a: must be at least 0",
    ),
    (FIM, "data.fim: needs the ids of its tokens"),
    (
        {"data__fim": {"rate": 1, "prefix": "<|fim_middle|>"}, "data__tokenizer": "t"},
        "data.fim: prefix, suffix and middle are not three tokens",
    ),
    ({"data__fim": {"rate": 2}, "data__tokenizer": "t"}, "data.fim.rate: must be"),
    ({"data__fim": {"format": "psm"}, "data__tokenizer": "t"}, "data.fim.rate: is required"),
    (
        {
            **FIM,
            "data__tokenizer": "t",
            "training__seq_len_ramp": [{"until": 2, "seq_len": 16}],
        },
        "data.fim: cannot be combined with training.seq_len_ramp",
    ),
    (
        {**MIXED, "training__mode": "mine:Own"},
        "data.mixture: is given, read by causal_lm alone",
    ),
    (
        {"data__shuffle": "documents", "training__mode": "mine:Own"},
        "data.shuffle: is documents, read by causal_lm alone",
    ),
    (
        {"data__shuffle": "documents", "data__packing": "best-fit"},
        "data.shuffle: joins documents as concat does, and data.packing is best-fit",
    ),
    ({"data__shuffle": "words"}, "data.shuffle: must be 'rows' or 'documents'"),
]


@pytest.mark.parametrize(("changes", "message"), WRONG, ids=[message for _, message in WRONG])
def test_what_does_not_fit_together_is_refused_by_name(tmp_path, changes, message):
    raw = json.dumps(tiny_config(tmp_path, **changes)).encode()
    with pytest.raises(ConfigError) as refused:
        parse_config(raw, file="tiny.yaml")
    said = [f"{one.field}: {one.message}" for one in refused.value.problems]
    assert any(one.startswith(message) for one in said), said


def test_a_mixture_with_a_mistake_does_not_ask_for_data_train_beside_it(tmp_path):
    wrong = {**MIXED, "data__mixture": [{"path": "a", "weight": "much"}]}
    with pytest.raises(ConfigError) as refused:
        parse_config(json.dumps(tiny_config(tmp_path, **wrong)).encode(), file="tiny.yaml")
    assert [one.field for one in refused.value.problems] == ["data.mixture.0.weight"]


def test_a_part_of_a_list_on_the_command_line_is_told_apart_from_a_typing_error(tmp_path):
    raw = json.dumps(tiny_config(tmp_path, **MIXED)).encode()
    for override in ("data.mixture.0.weight=2", "data.curriculum.1=3", "data.mixture.0=x"):
        with pytest.raises(ConfigError) as refused:
            parse_config(raw, file="tiny.yaml", overrides=[override])
        (problem,) = refused.value.problems
        assert problem.message.startswith("is a part of a list, and --set replaces data.")


def test_a_curriculum_goes_with_ramps_and_a_mixture_begins_with_its_own_weights(tmp_path):
    stages = [{"from": 8, "weights": {"a": 1}}]
    ramp = {"training__seq_len_ramp": [{"until": 2, "seq_len": 16}]}
    raw = tiny_config(tmp_path, **MIXED, **ramp, data__curriculum=stages)
    config = parse_config(json.dumps(raw).encode(), file="tiny.yaml")
    assert config.data.stages() == ((0, {"a": 1.0, "b": 2.0}), (8, {"a": 1.0, "b": 0.0}))
    resolved = json.dumps(config.resolved()).encode()
    assert parse_config(resolved, file="resolved").resolved() == config.resolved()
