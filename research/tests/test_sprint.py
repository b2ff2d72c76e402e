"""research/sprint.py: contenders are judged alike, ported faithfully and run once."""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
import torch.nn.functional as F
from tiny_run import tiny_config

from albor_core.config.load import load_config

RESEARCH = Path(__file__).resolve().parents[1]


@pytest.fixture(autouse=True)
def scripts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(RESEARCH)


def bigrams(vocabulary: int) -> torch.Tensor:
    draw = torch.Generator().manual_seed(0)
    return torch.randn(vocabulary, vocabulary, generator=draw)


def test_bits_per_byte_are_those_of_every_token_over_all_bytes() -> None:
    from bits_per_byte import bits_per_byte
    from timed_runs import nats_of

    table, first, context = bigrams(50), 49, 8
    draw = np.random.default_rng(0)
    texts = [draw.integers(0, 49, n).tolist() for n in (1, 7, 8, 9, 40, 3, 0)]
    plain = -sum(
        table.log_softmax(-1)[before, token].item()
        for ids in texts
        for before, token in zip([first, *ids], ids, strict=False)
    )
    found = bits_per_byte(
        lambda ids, targets: nats_of(table[ids], targets),
        texts, 123, first=first, context=context, batch=4, device=torch.device("cpu"),
    )  # fmt: skip
    assert found == pytest.approx(plain / (math.log(2) * 123), rel=1e-6)


def test_a_later_window_reads_what_came_before() -> None:
    """What each position may look at is the context of its window, at least half of it."""
    from bits_per_byte import UNSCORED, rows_of

    ids = list(range(1, 31))
    seen = {}
    for read, wanted in rows_of([ids], 0, 8):
        assert len(read) == len(wanted) <= 8
        for at, token in enumerate(wanted):
            if token != UNSCORED:
                assert token not in seen and read[at] == token - 1
                seen[token] = at + 1
    assert sorted(seen) == ids and all(seen[token] >= min(token, 5) for token in ids)


def source() -> str:
    from peers.autoresearch import ATTEND, KERNELS

    return (
        f"{KERNELS}\ny = {ATTEND}\ntorch.manual_seed(42)\ntorch.cuda.manual_seed(42)\n"
        "DEVICE_BATCH_SIZE = 128  # per-device\n"
    )


def test_another_version_of_the_peer_is_refused() -> None:
    from peers.autoresearch import COMMIT, port

    assert "DEVICE_BATCH_SIZE = 32 " in port(source(), seed=7, rows=32)
    with pytest.raises(ValueError, match=f"found 0 times.*{COMMIT}"):
        port(source().replace("causal=True, ", ""), seed=7, rows=32)
    with pytest.raises(ValueError, match="found 2 times"):
        port(source() + "torch.manual_seed(42)\n", seed=7, rows=32)


def test_the_peer_that_was_fetched_is_ported() -> None:
    """Where it lies; elsewhere the patterns alone are tried."""
    from peers.autoresearch import port

    folder = os.environ.get("ALBOR_PEERS")
    if folder is None:
        pytest.skip("ALBOR_PEERS names no folder with autoresearch/train.py")
    whole = Path(folder, "autoresearch", "train.py").read_text(encoding="utf-8")
    compile(port(whole, seed=7, rows=32), "train.py", "exec")


@pytest.mark.slow
def test_a_band_is_what_flash_attention_sees() -> None:
    from peers.autoresearch import attend, make_band, seen_through

    q, k, v = torch.randn(3, 1, 9, 2, 4, dtype=torch.float64).unbind(0)
    found = attend(q, k, v, 3)
    for t in range(9):
        low = max(0, t - 3)
        weights = torch.einsum("hd,khd->hk", q[0, t], k[0, low : t + 1]) / 2
        plain = torch.einsum("hk,khd->hd", weights.softmax(-1), v[0, low : t + 1])
        torch.testing.assert_close(found[0, t], plain)
    make_band(256, 64, "cpu")
    q, k, v = torch.randn(3, 1, 256, 2, 16).unbind(0)
    masked = F.scaled_dot_product_attention(
        *(x.transpose(1, 2) for x in (q, k, v)), attn_mask=seen_through(256, 64)
    )
    torch.testing.assert_close(attend(q, k, v, 64), masked.transpose(1, 2))
    whole = F.scaled_dot_product_attention(*(x.transpose(1, 2) for x in (q, k, v)), is_causal=True)
    torch.testing.assert_close(attend(q, k, v, 256), whole.transpose(1, 2))


def test_rows_of_the_peer_begin_as_texts_do_and_hold_every_token() -> None:
    from peers.autoresearch import pack

    draw = np.random.default_rng(1)
    lengths = draw.integers(1, 90, 300)
    documents = [np.arange(n, dtype=np.int32) + 100 * i + 1 for i, n in enumerate(lengths)]
    rows = np.stack([*pack(documents, 33, 0)])
    assert (rows[:, 0] == 0).all()
    found = rows[rows > 0].tolist()
    everything = {token for one in documents for token in one.tolist()}
    assert len(found) == len(set(found)) and set(found) <= everything
    assert len(everything) - len(found) < 33  # a last row that is not full


def test_windows_of_the_peer_begin_as_its_rows_do() -> None:
    from bits_per_byte import UNSCORED, rows_of

    ids = list(range(1, 31))
    scored = []
    for read, wanted in rows_of([ids], 0, 8, always=True):
        assert read[0] == 0 and len(read) == len(wanted) <= 8
        scored += [token for token in wanted if token != UNSCORED]
        assert all(b in (UNSCORED, a + 1) for a, b in zip(read[1:], wanted[1:], strict=True))
    assert scored == ids


def test_welch_is_that_of_the_textbook() -> None:
    from verdict_of_seeds import compare, welch

    # scipy.stats.ttest_ind(a, b, equal_var=False)
    t, freedom, p = welch([1.0, 2.0, 3.0, 4.0], [2.0, 4.0, 6.0, 8.0, 10.0])
    assert t == pytest.approx(-2.2514, abs=1e-4)
    assert 0 < p < 0.1 and 4 < freedom < 7
    # two equal variances and sizes: Student's t with 4 degrees; its 99 % point is 4.6041
    apart = 4.604095 * math.sqrt(2 / 3)
    assert welch([0.0, 1.0, 2.0], [apart, apart + 1, apart + 2])[2] == pytest.approx(0.01, abs=1e-6)
    low, high = [1.0, 1.001, 1.002], [1.03, 1.031, 1.032]
    assert compare(low, high, margin=0.02)["holds"]
    assert not compare(low, high, margin=0.04)["holds"]
    assert not compare(high, low, margin=0.02)["holds"]
    assert not compare(low[:2], high[:2], margin=0.02)["holds"]


def test_equal_within_a_margin_by_two_one_sided_tests() -> None:
    from verdict_of_seeds import equal

    near = equal([0.001, -0.002, 0.003], margin=0.02)
    # t = (0.02 - 0.000667) / (0.002517 / sqrt 3) = 13.306, 2 degrees: 1/2 - t / 2 sqrt(t^2 + 2)
    t = (0.02 - 2e-3 / 3) / (0.0025166115 / math.sqrt(3))
    assert near["p"] == pytest.approx(0.5 - t / (2 * math.sqrt(t * t + 2)), rel=1e-5)
    assert near["holds"] and near["p"] == near["p_above"]
    below = equal([-0.035, -0.027, -0.026], margin=0.02)  # better, and so not equal
    assert below["p_above"] == pytest.approx(0.002, abs=5e-4)
    assert below["p"] > 0.9 and not below["holds"]
    assert not equal([0.0, 0.001], margin=0.02)["holds"]


def test_pairs_of_runs_are_found_in_the_files_by_name_and_seed(tmp_path: Path) -> None:
    def rows(sets: list[str], rate: float, *losses: float) -> list[dict[str, Any]]:
        shared = {"run": "398m", "sets": sets, "tokens_per_s": rate}
        return [
            {**shared, "seed": seed, "validation": [{"loss": 10.4}, {"loss": loss}]}
            for seed, loss in enumerate(losses, 1)
        ]

    plain, fp8 = tmp_path / "plain.json", tmp_path / "fp8.json"
    plain.write_text(json.dumps(rows([], 80.0, 2.0, 2.1, 2.2, 9.0)))
    fp8.write_text(json.dumps(rows(["training.mixed_precision=fp8"], 100.0, 2.001, 2.103, 2.199)))
    script = [sys.executable, RESEARCH / "verdict_of_seeds.py"]
    names = ("--of", "398m+training.mixed_precision=fp8", "--against", "398m")
    found = json.loads(subprocess.check_output([*script, plain, fp8, *names]))
    assert found["seeds"] == [1, 2, 3] and found["holds"]
    assert found["mean"] == pytest.approx(0.001) and found["step_time_saved"] == pytest.approx(0.2)
    wrong = subprocess.run([*script, plain, *names], capture_output=True, text=True)
    assert wrong.returncode == 2 and "there are 398m" in wrong.stderr
    fp8.write_text('{"run": 1}')
    other = subprocess.run([*script, fp8, *names], capture_output=True, text=True)
    assert other.returncode == 2 and f"{fp8}: not what pretrain.py" in other.stderr


def test_steps_of_a_journal_add_up_without_the_first_that_compiles() -> None:
    from timed_runs import step_seconds

    journal = [(10, 5000.0), (20, 100.0), (30, 120.0), (35, 100.0)]
    assert step_seconds(journal) == pytest.approx((10 * 110 + 10 * 100 + 10 * 120 + 5 * 100) / 1000)
    again = [*journal[:2], (30, 900.0), (40, 100.0)]  # it went on after 20
    assert step_seconds(again, (0, 20)) == pytest.approx((10 * 500 + 1000 + 10 * 500 + 1000) / 1000)


@pytest.mark.sweep
def test_a_run_stops_half_way_and_is_given_the_steps_that_fit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import timed_runs

    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "home"))
    config = tmp_path / "tiny.yaml"
    config.write_text(json.dumps(tiny_config(tmp_path, training__log_interval=10)))
    words = [str(config), "--set", "training.max_steps=40"]
    asked = timed_runs.TimedRun(tmp_path / "begun", 3600.0, most_steps=60)
    half = timed_runs.begin("cut", [*words, "--stop-after", 20])  # a call that was cut short
    (tmp_path / "begun").write_text(json.dumps({"path": str(half), "stopped_at": None}))
    timed_runs.ended(half, 120, "stopped")
    shown, seconds, steps = asked.trained(words, 40, 120)
    assert (shown["run"]["path"], steps, shown["run"]["max_steps"]) == (str(half), 60, 60)
    assert [one["attempt"] for one in shown["attempts"]] == [1, 2]
    assert 0.0 < seconds < 3600.0
    assert asked.trained(words, 40, 120) == (shown, seconds, steps)  # done: nothing is run again


WORKER = """
import json, os, sys
name, out = (sys.argv[sys.argv.index(word) + 1] for word in ("--worker", "--result"))
if name == "bad@1":
    sys.exit("no luck")
open(out, "w").write(json.dumps({"bpb": 1.0, "card_seen": os.environ["CUDA_VISIBLE_DEVICES"]}))
"""


def test_what_is_known_is_not_run_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from timed_runs import Results, spread

    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    script, file = tmp_path / "worker.py", tmp_path / "r.json"
    script.write_text(WORKER)

    def go(names: list[str], stop: float = math.inf) -> list[str]:
        keys: list[dict[str, Any]] = [{"run": n, "seed": 1, "seconds": 5.0} for n in names]
        return spread(keys, script, [], out=tmp_path, results=Results(file), cards=2,
                      until=time.monotonic() + stop, each_s=5)  # fmt: skip

    left = go(["ours", "bad"])
    assert len(left) == 1 and "no luck" in left[0]
    before = json.loads(file.read_text())
    assert [row["run"] for row in before] == ["ours"]
    assert "no time left" in go(["ours", "hand"], stop=1)[0]
    assert json.loads(file.read_text()) == before
    assert not go(["ours", "hand"])
    rows = json.loads(file.read_text())
    assert rows[0] == before[0] and [row["run"] for row in rows] == ["ours", "hand"]
    assert {row["card_seen"] for row in rows} <= {"0", "1"}


@pytest.mark.slow
def test_the_peer_by_hand_learns_in_its_time() -> None:
    from peers.contenders import train_by_hand

    from albor_core.model.llama import LlamaConfig

    rows = (torch.arange(64 * 32, dtype=torch.int32) % 7).view(64, 32)
    config = LlamaConfig(32, 2, 2, 1, 64, 16, 32)
    model, about = train_by_hand(config, rows, seconds=2, seed=1, batch=8, uncounted=1)
    assert about["steps"] > 1 and about["tokens"] == about["steps"] * 8 * 32
    with torch.no_grad():
        loss = model(rows[:8].long(), rows[:8].long())[1]
    assert loss is not None and loss.item() < math.log(16) - 0.1
    assert sys.modules["peers.contenders"].UNCOUNTED == 11


def test_a_variant_of_ours_is_named_by_what_it_sets_and_claims_for_itself() -> None:
    import argparse

    from sprint import OURS, claims, contender, recipe, rows_of
    from timed_runs import Rows

    name = contender("ours-8k-t2048+model.architecture.model_type=qwen3")
    assert rows_of(name) == Rows(8192, 2048)
    assert rows_of(contender("ours-8k-t2048-fit")) == Rows(8192, 2048, "best-fit")
    assert rows_of(contender("ours+optimizer.lr=1e-3")) == rows_of("autoresearch") == Rows()
    assert OURS.variant(name).sets[-1] == "model.architecture.model_type=qwen3"
    assert recipe(name) != recipe("ours") and recipe("hand") == {}
    for wrong in ("ours+lr", "hand+optimizer.lr=1", "theirs", "ours-8"):
        with pytest.raises(argparse.ArgumentTypeError, match="none of ours, autoresearch"):
            contender(wrong)
    kept = {"within": True, "loads_in_transformers": True, "seconds": 5.0}
    rows = [
        {"run": one, "bpb": bpb + i / 1000, **kept, **recipe(one)}
        for one, bpb in (("ours", 1.2), (name, 1.0), ("hand", 1.1))
        for i in range(3)
    ]
    assert {claim["of"]: claim["holds"] for claim in claims(rows, 5.0)} == {
        "ours": False,
        name: True,
    }


def test_the_config_that_is_shipped_is_the_one_that_won() -> None:
    from sprint import OURS, rows_of

    root = RESEARCH.parent
    jobs = (RESEARCH / "results.jobs").read_text()
    sets = re.search(r" ours-1 q=(\S+)\"(.+?)\";", jobs)
    assert sets is not None
    name = f"ours-8k-t4096-fit{sets[1]}{sets[2]}"
    shipped = load_config(root / "configs/train/pretrain-35m-muon.yaml").config
    rows = rows_of(name)
    data = {"context": rows.context, "vocabulary": rows.vocabulary}
    data |= dict.fromkeys(("train", "held", "tokenizer"), "data/x/")
    words = OURS.variant(name).words(data, Path("x"), shipped.training.max_steps, 1)
    timed = load_config(root / words[0], overrides=words[4::2]).config
    assert timed.model == shipped.model and timed.optimizer == shipped.optimizer
    sizes = ("batch_size", "seq_len")
    assert {one: getattr(timed.data, one) for one in sizes} == {
        one: getattr(shipped.data, one) for one in sizes
    }
    own = {"output_dir", "save_interval", "eval_interval", "eval_batches", "checkpoint", "epochs"}
    own |= {"seed", "log_interval"}
    assert timed.training.model_dump(exclude=own) == shipped.training.model_dump(exclude=own)


def test_nats_of_a_token_in_bits_of_a_byte(monkeypatch: pytest.MonkeyPatch) -> None:
    import slow

    held = [np.arange(30), np.arange(10)]
    monkeypatch.setattr(slow, "encoded", lambda *_: (held, 0))
    found = slow.in_bits_per_byte(0.05, {"tokenizer": "t", "bytes": 160}, Path())
    assert found == pytest.approx(0.05 / 4 / math.log(2))


def test_a_claim_needs_seconds_kept_and_weights_that_load() -> None:
    from sprint import claims, recipe

    def rows(**of_ours: Any) -> list[dict[str, Any]]:
        kept = {"within": True, "loads_in_transformers": True} | recipe("ours") | of_ours
        mine = [{"run": "ours", "seconds": 5.0, "bpb": 1 + i / 1000, **kept} for i in range(3)]
        other = [{"run": "hand", "seconds": 5.0, "bpb": 1.1 + i / 1000} for i in range(3)]
        return [*mine, *other, {"run": "hand", "seconds": 9.0, "bpb": 0.1}]

    (found,) = claims(rows(), 5.0)
    assert found["against"] == "hand" and found["holds"]
    assert found["difference"] == pytest.approx(-0.1)
    assert not claims(rows(within=False), 5.0)[0]["holds"]
    assert not claims(rows(loads_in_transformers=False), 5.0)[0]["holds"]
    assert claims(rows(recipe="of another time"), 5.0) == []
    assert claims(rows(trial=True), 5.0) == []
