"""`albor eval`: scores of a run are its records everywhere, bad input leaves nothing."""

import json
import os
import shutil
import signal

import pyarrow.parquet as pq
import pytest
import torch
from cli_user import strict, tree_hash, valid, wait_until

from albor_core import history

TEXT = "text:corpus.parquet"


@pytest.fixture
def desk(user, data):
    for name in ("corpus.parquet", "tokenizer.json"):
        shutil.copy(data / name, user.folder / name)
    return user


def trained(user, name, *words):
    result = user.albor("train", "apply", "tiny.yaml", "--name", name, "--json", *words)
    assert result.code == 0, result
    return user.run(name)


def evaluate(user, *words):
    return user.quick("eval", "apply", *words, "--set", "limit=6", "--batch-size", "4", "--json")


def test_scores_are_columns_diff_lines_and_history_of_the_run(desk, monkeypatch):
    trained(desk, "one")
    trained(desk, "two", "--set", "optimizer.lr=1.0e-4")
    verdict = desk.quick("runs", "diff", "one", "two", "--json").document["verdict"]
    found = {name: valid(evaluate(desk, name, "--task", TEXT)) for name in ("one", "two")}
    bpb = {n: d["tasks"][0]["scores"][0]["value"] for n, d in found.items()}
    assert {d["model"]["step"] for d in found.values()} == {40}
    rows = desk.quick("runs", "ls", "--columns", "eval/corpus/bpb", "--json").document["runs"]
    shown = {row["name"]: row["values"]["eval/corpus/bpb"] for row in rows}
    assert shown == pytest.approx(bpb)
    diff = desk.quick("runs", "diff", "one", "two", "--json").document
    assert "eval/corpus/bpb" in json.dumps(diff)
    assert "eval/corpus/bpb" in desk.quick("runs", "diff", "one", "two").out
    assert diff["verdict"] == verdict  # what training itself measured goes first
    monkeypatch.setenv("ALBOR_HOME", str(desk.home))
    [row] = history.run("one").metrics(["eval/corpus/bpb"])
    assert (row["step"], row["eval/corpus/bpb"]) == (40, pytest.approx(bpb["one"]))
    before = desk.quick("runs", "show", "one", "--json").document
    assert desk.albor("db", "rebuild").code == 0
    assert desk.quick("runs", "show", "one", "--json").document == before


@pytest.mark.slow
def test_a_checkpoint_as_it_is_saved_has_transformers_rolling_likelihood(broken):
    from lm_eval_rule import rolling_likelihood
    from transformers import AutoModelForCausalLM, AutoTokenizer

    words = ("plain", "--task", TEXT, "--set", "limit=8", "--set", "stride=32", "-o", "rolling")
    document = valid(broken.quick("eval", "apply", *words, "--dtype", "fp32", "--json"))
    items = (broken.folder / "rolling" / "corpus.jsonl").read_text().splitlines()
    folder = broken.folder / "plain"
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(folder)
    texts = pq.read_table(broken.folder / "corpus.parquet")["text"].to_pylist()[:8]
    for line, text in zip(items, texts, strict=True):
        ids = tokenizer.encode(text, add_special_tokens=False)
        wanted = rolling_likelihood(model, ids, tokenizer.bos_token_id, 32)
        assert json.loads(line)["logprob"] == pytest.approx(wanted, rel=1e-6)
    size = sum(len(text.encode()) for text in texts)
    assert document["tasks"][0]["facts"]["bytes"] == size
    shutil.rmtree(broken.folder / "rolling")


def test_a_score_that_does_not_reach_what_is_required_ends_with_1(broken):
    words = ("eval", "apply", "plain", "--task", TEXT, "--set", "limit=2", "-o", "scores", "--json")
    met = broken.quick(*words, "--require", "corpus/ppl>1", "--require", "eval/corpus/bpb < 1e9")
    assert met.code == 0 and valid(met)["schema"] == "albor.eval/1"
    short = broken.quick(*words, "--require", "corpus/ppl<=1.5")
    assert short.code == 1 and short.document == met.document
    assert "required corpus/ppl <= 1.5" in short.err
    assert broken.quick(*words, "--require", "corpus/pp<1").error["hint"].startswith("there are c")
    assert broken.quick(*words, "--require", "ppl=3").code == 2
    shutil.rmtree(broken.folder / "scores")


@pytest.mark.slow
def test_a_watch_beside_a_training_evaluates_each_checkpoint_and_survives_a_kill(desk):
    run = desk.apply(
        "live", "--set", "training.checkpoint.keep=20", ALBOR_FAULTS="step:sleep=0.1@1-40"
    )
    words = ("eval", "apply", "live", "--task", TEXT, "--set", "limit=3", "--watch", "--json")
    first = desk.start(*words)
    assert strict(first.stdout.readline())["schema"] == "albor.eval/1"
    os.kill(first.pid, signal.SIGKILL)
    first.communicate()
    second = desk.start(*words)
    out, err = second.communicate(timeout=90)
    assert second.returncode == 0, err
    assert not run.liveness().is_alive
    steps = [strict(line)["model"]["step"] for line in out.splitlines()]
    assert steps == sorted(set(steps)) and steps[-1] == 40
    done = [json.loads(p.read_text()) for p in (run.path / "eval").glob("*/result.json")]
    assert sorted(one["model"]["step"] for one in done) == [*range(5, 45, 5)]
    wait_until(lambda: desk.quick("runs", "show", "live", "--json").code == 0)
    said = [json.loads(line) for line in run.annotations.read_text().splitlines()]
    scored = [one["value"]["step"] for one in said if one["t"] == "scores"]
    assert sorted(scored) == [*range(5, 45, 5)]


@pytest.mark.parametrize(
    ("words", "code", "what"),
    [
        (("one", "--task", "text:none.parquet"), 7, "no such file or folder"),
        (("one", "--task", TEXT, "--set", "column=body"), 7, "no column 'body'"),
        (("one", "--task", TEXT, "--set", "colum=body"), 2, "is not a field of any task"),
        (("one", "--task", "text:broken.jsonl"), 7, "broken.jsonl:2: is not JSON"),
        (("one", "--task", "choice:broken.jsonl"), 7, "broken.jsonl:1: 'context' is not text"),
        (("one", "--task", "poem:x"), 2, "'poem' is not a kind of task"),
        (("one", "--task", "text"), 2, "is not KIND:DATA"),
        (("one",), 2, "no task"),
        (("one", "--task", TEXT, "--tasks", "x.yaml"), 2, "both --task and --tasks"),
        (("one", "--tasks", "none.yaml"), 3, "no such file"),
        (("one", "--tasks", "wrong.yaml"), 2, "'poem' is not a kind of task"),
        (("one", "--task", TEXT, "--step", "7"), 3, "no checkpoint of step 7"),
        (("nobody", "--task", TEXT), 3, "nobody"),
        (("adapter", "--task", TEXT, "-o", "out"), 7, "is an adapter, not a model"),
        (("truncated", "--task", TEXT, "-o", "out"), 7, "is damaged"),
        (("small", "--task", TEXT, "-o", "out"), 7, "above vocab_size 64"),
        (("plain", "--task", TEXT), 2, "nothing says where results go"),
        (("plain", "--task", TEXT, "--watch"), 2, "is a folder of weights"),
        (("one", "--task", TEXT, "--watch", "-o", "out"), 2, "--watch goes with neither"),
        (
            ("one", "--task", TEXT, "--validate-only", "--force"),
            2,
            "--validate-only goes with neither",
        ),
        (("one", "--task", TEXT, "-o", "tiny.yaml"), 2, "is a file"),
        (("one", "--task", TEXT, "--set", "window=64"), 7, "above the model's context of 32"),
    ],
)
def test_bad_input_is_refused_by_name_and_nothing_is_written(broken, words, code, what):
    before = tree_hash(broken.folder)
    result = broken.quick("eval", "apply", *words, "--json")
    problems = json.dumps(result.document)
    assert what in problems, problems
    assert result.code == code
    assert result.error["hint"]
    assert tree_hash(broken.folder) == before
    planned = broken.quick("eval", "plan", *(w for w in words if w not in ("-o", "out", "--watch")))
    assert tree_hash(broken.folder) == before
    if code == 7 and "one" in words:
        assert planned.code == 1, planned


@pytest.fixture(scope="module")
def broken(tmp_path_factory, data, request):
    """A run, and folders that are not models, beside it."""
    from cli_user import User, write_config
    from hf_folder import write_model

    folder = tmp_path_factory.mktemp("broken")
    user = User(folder / "work", folder / "home")
    user.folder.mkdir()
    write_config(user.folder / "tiny.yaml", data)
    trained(user, "one")
    shutil.copy(data / "corpus.parquet", user.folder)
    newest = max(user.run("one").checkpoints.glob("step-*"))
    for name in ("plain", "truncated"):
        shutil.copytree(newest, user.folder / name)
    file = user.folder / "truncated" / "model.safetensors"
    file.write_bytes(file.read_bytes()[:-64])
    write_model(user.folder / "small", "llama", vocab_size=64)
    shutil.copy(data / "tokenizer.json", user.folder / "small")
    (user.folder / "adapter").mkdir()
    (user.folder / "adapter" / "adapter_config.json").write_text("{}")
    (user.folder / "broken.jsonl").write_text('{"text": "a"}\n{"text\n')
    (user.folder / "wrong.yaml").write_text("tasks:\n  - {kind: poem, data: x}\n")
    return user
