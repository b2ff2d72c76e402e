"""Documents that are kept apart: what one is trained on does not hang on its neighbours."""

import json
import random
from dataclasses import replace

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from tiny_run import SEQ_LEN, VOCAB, history, make_run, tiny_config, train_here

from albor_core.config.load import parse_config
from albor_core.data.load import packed_shards
from albor_core.kernels.ops.cross_entropy import IGNORED
from albor_core.model.llama import Llama, LlamaConfig, init_weights
from albor_core.recipes.causal_lm import CausalLM, PackedSource
from albor_core.run.errors import ConfigError, DataError
from albor_core.train.build import build
from albor_core.train.evaluate import batches_of, scoring, validation
from albor_core.train.resume.digest import digest
from albor_core.train.step.plain import PlainStep

END = 0
SHAPE = {
    "hidden_size": 32,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "intermediate_size": 64,
    "vocab_size": VOCAB,
    "max_position_embeddings": 64,
}


def write_packed(folder):
    """Rows of short documents; the manifest that names what ends one is not among them."""
    rng = np.random.default_rng(1)
    ids = rng.integers(1, VOCAB, size=(40, SEQ_LEN)).astype(np.uint32)
    ids[rng.random(ids.shape) < 0.2] = END
    folder.mkdir(parents=True, exist_ok=True)
    table = pa.table({"input_ids": pa.array(list(ids), pa.list_(pa.uint32()))})
    pq.write_table(table, folder / "shard-00000.parquet")


@pytest.fixture
def config(tmp_path, monkeypatch):
    """A tiny config whose training shards have documents."""
    plain = packed_shards.read_manifest
    monkeypatch.setattr(
        packed_shards,
        "read_manifest",
        lambda *a, **k: replace(plain(*a, **k), eos_token_id=END),
    )
    raw = tiny_config(tmp_path, data__document_mask=True)
    write_packed(tmp_path / "train")
    return parse_config(json.dumps(raw).encode(), file="tiny.yaml")


def documents_of(row):
    """The pieces of a row, each with the token that ends it."""
    found, piece = [], []
    for token in row.tolist():
        piece.append(token)
        if token == END:
            found.append(piece)
            piece = []
    return [*found, piece] if piece else found


def test_the_first_token_of_a_document_is_not_scored_and_the_index_knows(config):
    source = PackedSource(config, validation=False)
    rows = np.arange(40)
    batch = source.batch(rows)
    scored = 0
    for row, labels, document in zip(
        *(batch[n] for n in ("ids", "labels", "document")), strict=True
    ):
        pieces = documents_of(row)
        assert document.tolist() == [n for n, piece in enumerate(pieces) for _ in piece]
        starts = np.cumsum([0, *map(len, pieces[:-1])])
        assert sorted(np.flatnonzero(labels == IGNORED)) == [at for at in starts if at]
        scored += sum(len(piece) - 1 for piece in pieces)
    assert source.count(rows) == scored == int((batch["labels"][:, 1:] != IGNORED).sum())
    val = PackedSource(config, validation=True)
    found = val.batch(rows[:4])
    assert {*found} == {"ids", "document", "labels"}
    assert val.count(rows[:4]) == int((found["labels"][:, 1:] != IGNORED).sum())


@pytest.mark.parametrize("family", [{}, {"model_type": "mistral", "sliding_window": 5}])
def test_permuting_the_documents_of_a_row_changes_no_loss(family):
    model = Llama(LlamaConfig(**SHAPE, **family, initializer_range=0.3))
    init_weights(model, 3)
    model.double().train()
    source = random.Random(5)
    for _ in range(8):
        pieces = [
            [*(source.randrange(1, VOCAB) for _ in range(source.randrange(0, 9))), END]
            for _ in range(source.randrange(2, 7))
        ]
        losses = []
        for _ in range(3):
            ids = torch.tensor([[token for piece in pieces for token in piece]])
            document = torch.tensor([[n for n, piece in enumerate(pieces) for _ in piece]])
            labels = ids.clone()
            labels[:, 1:][document[:, 1:] != document[:, :-1]] = IGNORED
            _, loss = model(ids, labels, document)
            losses.append(loss.item())
            source.shuffle(pieces)
        assert losses == pytest.approx([losses[0]] * 3, rel=1e-6)  # the loss is fp32
        alone = [model(torch.tensor([p]), torch.tensor([p]))[1] for p in pieces if len(p) > 1]
        weights = [len(p) - 1 for p in pieces if len(p) > 1]
        mean = sum(w * one.item() for w, one in zip(weights, alone, strict=True)) / sum(weights)
        assert losses[0] == pytest.approx(mean, rel=1e-6)


def test_hidden_states_of_a_document_are_those_that_it_has_alone():
    model = Llama(LlamaConfig(**SHAPE, initializer_range=0.3))
    init_weights(model, 3)
    model.double()
    first, second = torch.randint(1, VOCAB, (1, 7)), torch.randint(1, VOCAB, (1, 9))
    document = torch.tensor([[0] * 7 + [1] * 9])
    together = model.model(torch.cat((first, second), 1), document)
    torch.testing.assert_close(together[:, :7], model.model(first), rtol=1e-10, atol=1e-10)
    torch.testing.assert_close(together[:, 7:], model.model(second), rtol=1e-6, atol=1e-6)


def test_a_row_of_one_document_is_trained_on_as_ever():
    model = Llama(LlamaConfig(**SHAPE))
    init_weights(model, 3)
    ids = torch.randint(0, VOCAB, (2, 16))
    _, plain = model(ids, ids)
    _, masked = model(ids, ids, torch.zeros(2, 16, dtype=torch.int32))
    assert masked.item() == pytest.approx(plain.item(), rel=1e-6)


def test_training_with_the_mask_resumes_to_the_same_bytes(tmp_path, config):
    changes = {"data__document_mask": True, "training__max_steps": 8}
    whole, parts = (make_run(tmp_path, name, **changes) for name in ("whole", "parts"))
    write_packed(tmp_path / "train")
    train_here(whole)
    train_here(parts, stop_after=3)
    train_here(parts, attempt=2)
    assert digest(whole) == digest(parts)
    mixed = make_run(tmp_path, "unmasked", training__max_steps=8)
    write_packed(tmp_path / "train")
    train_here(mixed)
    assert history(mixed, ("train/loss",)) != history(whole, ("train/loss",))


def test_micro_batches_weigh_what_they_score(config):
    parts = build(config)
    (weight,) = parts.weights(0)
    batch = parts.batch(0, 0)
    loss, _ = parts.recipe.share_of_loss(parts.forward, batch, *weight)
    total, _ = parts.recipe.loss(parts.forward, batch)
    assert isinstance(parts.recipe, CausalLM)
    assert loss.item() == pytest.approx(total.item() / weight.whole)


def test_validation_is_the_mean_over_the_scored_tokens_of_documents_apart(config):
    write_packed(config.data.val)
    parts = build(config)
    found = validation(parts, scoring(parts, PlainStep(parts)), go_on=lambda: True)
    nats, count = 0.0, 0
    for row in parts.val.batch(np.concatenate(batches_of(parts)))["ids"]:
        for piece in filter(lambda piece: len(piece) > 1, documents_of(row)):
            ids = torch.tensor([piece])
            with torch.no_grad():
                nats += float(parts.model(ids, ids)[1]) * (len(piece) - 1)
            count += len(piece) - 1
    assert count < len(np.concatenate(batches_of(parts))) * (SEQ_LEN - 1)
    assert found["val/loss"] == pytest.approx(nats / count, rel=1e-6)


def test_shards_that_do_not_tell_documents_apart_are_refused(tmp_path):
    raw = tiny_config(tmp_path, data__document_mask=True)
    config = parse_config(json.dumps(raw).encode(), file="tiny.yaml")
    with pytest.raises(DataError, match="names no token between documents"):
        PackedSource(config, validation=False)


def test_the_mask_cannot_be_with_cut_sequences(tmp_path):
    raw = tiny_config(
        tmp_path,
        data__document_mask=True,
        training__seq_len_ramp=[{"until": 2, "seq_len": 16}],
    )
    with pytest.raises(ConfigError) as refused:
        parse_config(json.dumps(raw).encode(), file="tiny.yaml")
    assert refused.value.problems[0].field == "data.document_mask"
