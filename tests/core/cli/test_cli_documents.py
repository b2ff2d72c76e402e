"""Documents for agents: each valid against its published schema, strict, alone on stdout; and what
the stores and checkpoints of a finished run are worth.
"""

from __future__ import annotations

import json
import shutil
import sys

import click
import jsonschema
import pytest
from cli_user import (
    ALBOR,
    FEW_STEPS,
    LOSSY,
    User,
    steps_logged,
    strict,
    tree_hash,
    validate,
    wait_until,
    write_config,
)
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.cli.reference import walk
from albor_core.cli.runs.transfer.export import WHAT
from albor_core.documents.json_schema import names, schema_of
from albor_core.run.rundir import RunDir, read_json

FAILING = "import sys; print('[/red] {}'); sys.exit(3)".format("\\x1b[31m")


@pytest.fixture(scope="module")
def desk(old_hand, data):
    """Runs of every kind: completed, stopped by Andon, any program, one that the guard gave up."""
    boom = ("--name", "boom", "--json", "--set", LOSSY)
    assert old_hand.albor("train", "apply", "tiny.yaml", *boom, ALBOR_FAULTS="loss:x10@7").code == 4
    words = ("guard", "run", "--json", "--name", "fails", "--option", "backoff_s=[0.05]")
    words += ("--option", "max_no_progress=1", "--", sys.executable, "-c", FAILING)
    assert old_hand.albor(*words).document["exit_code"] == 5
    shutil.copytree(data / "shards", old_hand.folder / "shards")
    for name in ("corpus.parquet", "tokenizer.json"):
        shutil.copy(data / name, old_hand.folder / name)
    (old_hand.folder / "data.yaml").write_text(
        "{name: d, import: {sources: [corpus.parquet]}, split: {by: file, train: 0.7, val: 0.3, "
        "test: 0}, tokenizer: {file: tokenizer.json}, pretokenize: {seq_len: 16}}"
    )
    return old_hand


COMMANDS = {  # what to type after each command that knows --json, and the code it ends with
    "albor init": [("fresh.yaml",), ("tiny.yaml",), ("no/where.yaml",), ("--from", "nothing")],
    "albor train plan": [("tiny.yaml",), ("tiny.yaml", "--set", "training.max_steps=900000")],
    "albor train validate": [("tiny.yaml",), ("tiny.yaml", "--set", "optimizer.lr=no")],
    "albor train apply": [("tiny.yaml", "--name", "calm"), ("tiny.yaml", "--set", "a=1")],
    "albor train resume": [("nobody",), ("fails",)],
    "albor guard status": [("calm",), ("boom",), ("fails",), ("nobody",)],
    "albor guard stop": [("calm",)],
    "albor guard pause": [("calm",)],
    "albor guard resume": [("nobody",)],
    "albor guard checkpoint": [("boom",)],
    "albor guard retry": [("calm",), ("boom",), ("nobody",)],
    "albor guard run": [("--", "no-such-program"), ("--option", "x=1", "--", "true")],
    "albor monitor": [("calm", "--once"), ("boom", "--once"), ("fails", "--once"), ("nobody",)],
    "albor runs ls": [(), ("--name", "nothing"), ("--limit", "1"), ("--db", "tiny.yaml")],
    "albor runs show": [("calm",), ("boom",), ("fails",), ("nobody",)],
    "albor runs diff": [("calm", "boom"), ("calm", "fails"), ("calm",), ("calm", "nobody")],
    "albor runs tail": [("calm",), ("fails",), ("nobody",)],
    "albor runs pull": [("-x",), ("a;b",), ("gpu1", "lr>=high")],
    "albor runs wait": [("calm",), ("nobody",), ("calm", "--until", "loss")],
    "albor runs digest": [("calm",), ("fails",), ("nobody",)],
    "albor model show": [("calm",), ("calm", "--hashes"), ("shards",), ("nobody",)],
    "albor model verify": [("calm",), ("shards",), ("nobody",)],
    "albor model compare": [("calm", "calm"), ("calm", "boom"), ("calm", "nobody")],
    "albor model weights": [("calm",), ("calm", "--tensor", "lm_head"), ("shards",), ("nobody",)],
    "albor eval plan": [
        ("calm", "--task", "text:corpus.parquet", "--set", "limit=4"),
        ("calm", "--task", "text:corpus.parquet", "--set", "column=body"),
        ("calm", "--task", "poem:corpus.parquet"),
        ("shards", "--task", "text:corpus.parquet"),
        ("calm",),
        ("nobody", "--task", "text:corpus.parquet"),
    ],
    "albor eval apply": [
        ("calm", "--task", "text:corpus.parquet", "--set", "limit=2"),
        ("calm", "--task", "text:corpus.parquet", "--set", "limit=2"),
        ("calm", "--task", "text:nowhere.parquet"),
        ("shards", "--task", "text:corpus.parquet", "-o", "scores"),
        ("calm", "--task", "code:own", "--set", "limit=1"),
        ("calm", "--task", "code:own", "--set", "samples=2"),
        ("calm", "--task", "code:own", "--set", "limit=2", "--validate-only"),
        ("calm", "--task", "text:corpus.parquet", "--validate-only"),
    ],
    "albor generate": [
        ("calm", "def f(", "--tokenizer", "tokenizer.json", "--max-new-tokens", "2"),
        ("shards", "x"),
        ("nobody", "x"),
    ],
    "albor eval compare": [("scores", "scores"), ("calm", "scores"), ("nobody", "scores")],
    "albor eval correlate": [("calm",), ("calm", "--with", "x"), ("nobody",)],
    "albor eval sheet": [
        ("scores", "scores", "-o", "sheet.csv"),
        ("calm", "nobody", "-o", "s.csv"),
    ],
    "albor eval read-sheet": [("sheet.csv",)],
    "albor eval validate": [("own", "--limit", "2"), ("corpus.parquet",), ("nowhere.jsonl",)],
    "albor bench": [
        ("calm", "--alone", "--rounds", "1", "--batch", "1", "--new-tokens", "4"),
        ("calm", "--context", "4000"),
        ("shards",),
    ],
    "albor checkpoints ls": [("calm",), ("fails",), ("nobody",)],
    "albor checkpoints verify": [("calm",), ("calm", "7"), ("fails",), ("nobody",)],
    "albor checkpoints prune": [("calm", "--dry-run"), ("calm", "--yes"), ("fails",), ("nobody",)],
    "albor runs export": [
        *(("calm", "-o", "calm.csv"), ("calm",), ("nobody", "-o", "x.csv"), ("-o", "x.csv")),
        *(("--filter", "", "--what", what, "-o", f"{what}.jsonl") for what in WHAT),
    ],
    "albor runs plot": [
        ("calm", "boom", "--metric", "loss", "-o", "loss.svg"),
        ("--filter", "", "--metric", "loss", "--log", "-o", "all.svg"),
        ("fails", "--metric", "loss", "-o", "x.svg"),
    ],
    "albor runs import": [("shards",), ("nowhere",), ("tiny.yaml", "--from", "csv")],
    "albor runs tag": [("calm", "never", "--remove"), ("nobody", "x")],
    "albor runs note": [
        ("fails", "x"),
        ("fails", "y", "--replace", "1"),
        ("fails", "--remove", "1"),
        ("fails", "--remove", "9"),
        ("nobody", "x"),
    ],
    "albor runs pin": [("calm", "--off"), ("nobody",)],
    "albor runs rename": [("fails", "Fails often"), ("nobody", "x"), ("fails", "a/b")],
    "albor runs mv": [("fails", "./moved"), ("fails", "word"), ("nobody", "./moved")],
    "albor runs rm": [("calm",), ("nobody", "--yes")],
    "albor runs gc": [("--media", "--dry-run"), ("--dry-run",), ("nowhere",)],
    "albor attention ls": [(), ("boom", "fails"), ("--all", "--evidence"), ("nobody",)],
    "albor attention mute": [("fails", "--for", "1h"), ("fails", "--for", "no"), ("nobody",)],
    "albor attention ack": [("fails",), ("fails/died@9",), ("nobody",)],
    "albor alerts ls": [(), ("boom",), ("--open",), ("fails",)],
    "albor alerts ack": [("boom", "all"), ("boom", "all"), ("boom", "nothing")],
    "albor alerts rules": [("boom",), ("fails",), ("nobody",)],
    "albor alerts test": [("boom",), ("calm", "loss > 3"), ("calm", "loss >"), ("nobody",)],
    "albor alerts notify-test": [(), ("boom",), ("boom", "--sink", "slack"), ("nobody",)],
    "albor report": [("calm", "-o", "calm.html"), ("nobody", "-o", "nobody.html")],
    "albor gpu": [()],
    "albor data import": [("shards", "-o", "x.parquet"), ("nowhere", "-o", "x.parquet")],
    "albor data contamination": [
        ("corpus.parquet", "--against", "tiny.yaml", "--report", "hits.json"),
        ("corpus.parquet", "--against", "corpus.parquet"),
        ("corpus.parquet", "--against", "tiny.yaml", "--drop", "-o", "without"),
        ("corpus.parquet", "--against", "tiny.yaml", "--drop", "-o", "without", "--plan"),
        ("shards/train", "--against", "tiny.yaml", "--tokenizer", "tokenizer.json"),
        ("shards/train", "--against", "tiny.yaml"),
        ("corpus.parquet", "--against", "nowhere"),
    ],
    "albor data dedup": [
        ("corpus.parquet", "-o", "fresh"),
        ("corpus.parquet", "-o", "fresh.parquet", "--near", "--plan"),
        ("corpus.parquet", "-o", "x", "--near", "--threshold", "2"),
        ("corpus.parquet", "-o", "x", "--threshold", "0.7"),
        ("nowhere", "-o", "x", "--plan", "--against", "none"),
    ],
    "albor data pretokenize": [
        ("corpus.parquet", "--tokenizer", "tokenizer.json", "-o", "packed", "--seq-len", "32"),
        ("corpus.parquet", "--tokenizer", "tokenizer.json", "-o", "packed", "--seq-len", "16"),
        (
            "corpus.parquet",
            "--tokenizer",
            "tokenizer.json",
            "-o",
            "p2",
            "--seq-len",
            "32",
            "--plan",
        ),
    ],
    "albor data fim": [
        ("corpus.parquet", "-o", "fim", "--plan"),
        ("corpus.parquet", "-o", "fim"),
        ("corpus.parquet", "-o", "fim", "--rate", "2"),
        ("corpus.parquet", "-o", "fim", "--format", "spm", "--plan"),
    ],
    "albor data mix": [
        ("corpus.parquet:2", "-o", "mixed", "--shuffle", "--plan"),
        ("corpus.parquet:2", "-o", "mixed", "--shuffle"),
        ("corpus.parquet:-1", "-o", "mixed"),
        ("corpus.parquet", "nowhere:2", "-o", "mixed", "--plan"),
    ],
    "albor data provenance": [("shards",), ("shards/val",), ("nowhere",)],
    "albor data build": [
        ("data.yaml", "-o", "built", "--plan"),
        ("data.yaml", "-o", "built"),
        ("tiny.yaml", "-o", "other"),
        ("nowhere.yaml",),
    ],
    "albor data split": [
        ("corpus.parquet", "-o", "parts", "--by", "file", "--plan"),
        ("corpus.parquet", "-o", "parts", "--by", "file"),
        ("corpus.parquet", "-o", "parts", "--train", "2"),
        ("corpus.parquet", "-o", "parts", "--val", "0.5", "--train", "0.1", "--plan"),
    ],
    "albor data stats": [("corpus.parquet",), ("shards",), ("shards/val",), ("nowhere",)],
    "albor data filter": [
        ("corpus.parquet", "-o", "private", "--secrets", "mask", "--plan"),
        ("corpus.parquet", "-o", "private", "--secrets", "mask", "--personal-data", "drop"),
        ("corpus.parquet", "-o", "short", "--max-tokens", "9", "--tokenizer", "tokenizer.json"),
        ("corpus.parquet", "-o", "short"),
        ("nowhere.parquet", "-o", "short", "--secrets", "drop"),
    ],
    "albor data quality": [
        ("--profiles",),
        ("corpus.parquet", "-o", "good", "--plan"),
        ("corpus.parquet", "-o", "good"),
        ("corpus.parquet", "-o", "good", "--set", "max_byte=3"),
        ("corpus.parquet", "-o", "none", "--set", "min_characters=1e9"),
        ("nowhere.parquet", "-o", "good"),
    ],
    "albor data batch": [
        ("calm",),
        ("calm", "--step", "1"),
        ("calm", "--step", "999999"),
        ("fails",),
    ],
    "albor data verify": [("shards/train",), ("shards",)],
    "albor tokenizer plan": [
        ("corpus.parquet", "-o", "t.json", "--vocab-size", "300"),
        ("corpus.parquet", "-o", "t.json", "--vocab-size", "3"),
    ],
    "albor tokenizer apply": [
        ("corpus.parquet", "-o", "t.json", "--vocab-size", "300"),
        ("corpus.parquet", "-o", "words", "--vocab-size", "300", "--kind", "wordpiece"),
    ],
    "albor tokenizer check": [
        ("tokenizer.json",),
        ("tokenizer.json", "--corpus", "corpus.parquet"),
        ("tiny.yaml",),
    ],
    "albor profile": [
        ("tiny.yaml", "--steps", "1", "-o", "steps.json.gz"),
        ("steps.json.gz", "--kernels", "3"),
        ("calm", "--steps", "1"),
        ("calm", "--trace", "none"),
        ("tiny.yaml", "--fresh"),
        ("nowhere.json",),
        ("nobody",),
    ],
    "albor kernels check": [()],
    "albor kernels show": [("calm",), ("nobody",)],
    "albor kernels bench": [
        ("--rounds", "1"),
        ("--op", "gemm", "--rounds", "1", "--shape", "8,8,8"),
        ("--op", "nothing"),
    ],
    "albor db rebuild": [("runs",), ("nowhere",)],
    "albor db check": [(), ("nowhere",)],
    "albor runs restore": [("calm", "--list"), ("calm",), ("nobody",)],
    "albor db path": [(), ("calm",), ("nobody",)],
    "albor db query": [("SELECT * FROM runs",), ("SELECT x FROM runs",), ("DROP TABLE runs",)],
    "albor doctor": [()],
    "albor schema": [(), ("nothing",)],
}
ELSEWHERE = {
    "albor guard report",
    "albor logs",
    "albor train run",
    "albor demo",
}  # test_the_demo_...


def test_every_command_that_knows_json_is_tried():
    able = {
        path
        for path, command in walk(cli, "albor")
        if not isinstance(command, click.Group)
        and any("--json" in param.opts for param in command.params)
    }
    assert able == set(COMMANDS) | ELSEWHERE


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_the_document_of_every_command_fits_its_schema(desk, command):
    for words in COMMANDS[command]:
        typed = command.split()[1:]
        head, tail = (
            (words, ())
            if "--" not in words
            else (words[: words.index("--")], words[words.index("--") :])
        )
        result = desk.quick(*typed, *head, "--json", *tail)
        document = result.document
        validate(document)
        if document["schema"] == "albor.error/1":
            assert result.code in (1, 2, 3, 4, 5, 6, 7, 8, 75)
            assert document["error"]["hint"]
        elif document["schema"] == "albor.plan/1":
            assert result.code == (1 if document["problems"] else 0), result
        elif command == "albor attention ls":
            assert result.code == (4 if document["open"] else 0), result
        elif command not in ("albor train plan", "albor doctor"):
            assert result.code == 0, result


@pytest.mark.slow
def test_every_document_that_a_run_leaves_fits_its_schema(desk):
    for run in (desk.run("calm"), desk.run("boom"), RunDir(desk.home / "runs" / "fails")):
        found = [run.run_json, run.exit, run.state, run.launch, run.guard / "guard.json"]
        found += [*run.crash_reports.glob("*.json"), *run.checkpoints.glob("step-*/*.json")]
        found += [*run.guard.glob("outbox/*.json"), *run.checkpoints.glob("*.json")]
        documents = [strict(path.read_text()) for path in found if path.exists()]
        for document in documents:
            if "schema" in document:
                validate(document)
    assert {"albor.crash", "albor.state", "albor.checkpoint", "albor.exit"} <= set(names())


@pytest.mark.slow
def test_a_stream_of_documents_is_one_per_line_until_the_run_ends(user):
    run = user.apply("live", ALBOR_FAULTS="step:sleep=0.05@1-40")
    stream = user.start("monitor", run.path, "--json", "--interval", "0.3")
    out, err = stream.communicate(timeout=60)
    documents = [strict(line) for line in out.splitlines()]
    assert (stream.returncode, err) == (0, "")
    assert len(documents) > 3
    for document in documents:
        validate(document)
    assert documents[-1]["status"]["word"] == "completed"
    validate(user.quick("runs", "ls", "--json").document)


@pytest.mark.slow
def test_both_stores_come_back_from_the_journals_word_for_word(desk):
    shown = {name: desk.quick("runs", "show", name, "--json").document for name in ("calm", "boom")}
    listed = desk.quick("runs", "ls", "--json").document
    diff = desk.quick("runs", "diff", "calm", "boom", "--json").document
    for folder in (desk.home, *(desk.run(name).store.parent for name in shown)):
        for path in folder.glob("experiments.db*"):
            path.unlink()
    lost = desk.quick("runs", "ls", "--json")
    assert lost.code != 0 and "albor db rebuild" in lost.document["error"]["hint"]
    rebuilt = desk.albor("db", "rebuild", "--json")
    assert rebuilt.code == 0, rebuilt
    assert rebuilt.document["problems"] == []
    for name, before in shown.items():
        assert desk.quick("runs", "show", name, "--json").document == before
    assert desk.quick("runs", "ls", "--json").document == listed
    assert desk.quick("runs", "diff", "calm", "boom", "--json").document == diff


@pytest.mark.slow
def test_a_checkpoint_of_a_run_is_a_llama_for_transformers(desk):
    import torch
    from transformers import LlamaForCausalLM

    from albor_core.checkpoint.folder import list_checkpoints
    from albor_core.config.load import parse_config
    from albor_core.train.build import build

    run = desk.run("calm")
    folder = list_checkpoints(run.checkpoints)[0]
    theirs = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    resolved = json.dumps({**(read_json(run.config_resolved) or {})}).encode()
    ours = build(parse_config(resolved, file="calm")).model.eval()
    ours.load_state_dict({k: v for k, v in theirs.state_dict().items() if k in ours.state_dict()})
    ids = torch.arange(64).reshape(2, 32) * 7 % 512
    with torch.no_grad():
        expected, found = theirs(ids).logits, ours(ids)
    found = found[0] if isinstance(found, tuple) else found
    assert (expected - found).abs().max() < 1e-5
    # and the weights are trained ones: the data are easier for them than for chance
    loss = torch.nn.functional.cross_entropy(expected[:, :-1].flatten(0, 1), ids[:, 1:].flatten())
    assert torch.isfinite(loss)


@pytest.mark.slow
def test_the_demo_runs_end_to_end_and_a_second_call_reuses_everything(user):
    words = ("demo", "--json", "--tokens", "8192", "--out", "demo")
    first = user.albor(*words, timeout_s=280)
    assert first.code == 0, first
    validate(first.document)
    assert [run["steps"] for run in first.document["runs"]] == [4, 4]
    assert [run["attempts"] for run in first.document["runs"]] == [1, 1]
    before = tree_hash(user.folder / "demo" / "shards")
    second = user.albor(*words).document
    validate(second)
    assert second["data"]["reused"] is True
    assert [run["reused"] for run in second["runs"]] == [True, True]
    assert second["seconds"] < 10
    assert second["verdict"] == first.document["verdict"]
    assert tree_hash(user.folder / "demo" / "shards") == before


@pytest.mark.slow
def test_a_detached_life_has_no_end_yet_whatever_the_one_before_it_had(user):
    words = ("train", "apply", "tiny.yaml", "--name", "again", "--detach", "--json")
    assert validate(user.albor(*words, ALBOR_FAULTS=FEW_STEPS).document)["exit"] is None
    run = user.run("again")
    wait_until(lambda: len(steps_logged(run)) > 0)
    assert user.albor("guard", "stop", "again").code == 0
    assert read_json(run.exit)["reason"] == "stopped"
    document = user.albor("train", "resume", "again", "--detach", "--json").document
    assert (document["outcome"], document["exit"]) == ("detached", None)


@pytest.mark.slow
def test_two_applies_of_one_name_at_once_make_one_run(user):
    words = ("train", "apply", "tiny.yaml", "--name", "one", "--detach", "--json")
    both = [user.start(*words, ALBOR_FAULTS="step:sleep=60@0") for _ in range(2)]
    ends = [(one.communicate(timeout=60), one.returncode) for one in both]
    assert sorted(code for _, code in ends) == [0, 8]
    for (out, err), _ in ends:
        validate(strict(out))
        assert "Traceback" not in err
    assert [path.name for path in (user.folder / "runs").iterdir()] == ["one"]
    assert user.run("one").liveness().guard is not None


@pytest.mark.slow
def test_a_run_goes_on_from_another_folder_and_past_a_stray_module(user, data):
    for name in ("shards", "tokenizer.json"):
        (user.folder / name).symlink_to(data / name)
    write_config(user.folder / "tiny.yaml", ".")
    for name in ("random.py", "torch.py"):
        (user.folder / name).write_text("raise SystemExit('not ours')")
    run = user.apply("moved", ALBOR_FAULTS=FEW_STEPS)
    wait_until(lambda: len(steps_logged(run)) > 2)
    assert user.albor("guard", "stop", "moved").code == 0
    elsewhere = user.folder / "elsewhere"
    elsewhere.mkdir()
    again = user.albor("train", "resume", "moved", "--json", cwd=elsewhere)
    assert again.code == 0, again
    assert again.document["exit"]["attempt"] == 2


def test_a_home_that_cannot_be_made_is_named_and_leaves_nothing(user):
    (user.folder / "file").write_text("")
    lost = User(user.folder, user.folder / "file" / "home")
    before = tree_hash(user.folder)
    for words in (("train", "apply", "tiny.yaml"), ("guard", "run", "--", "true")):
        result = lost.quick(*words)
        assert result.code == 2
        assert "file" in result.err and "next:" in result.err
    for words in (("runs", "ls"), ("alerts", "ls"), ("monitor",), ("doctor",)):
        assert lost.quick(*words).code in (0, 1, 2)
    assert tree_hash(user.folder) == before


def test_a_full_disk_at_import_or_apply_leaves_what_was_there(user):
    import subprocess

    (user.folder / "src").mkdir()
    (user.folder / "src" / "a.py").write_text("x = 1\n" * 20000)
    before = tree_hash(user.folder, user.home.parent)
    for words in ("data import src -o out.parquet", "train apply tiny.yaml"):
        # no file may take a byte: every write fails as on a full disk (EFBIG)
        done = subprocess.run(
            ["bash", "-c", f"ulimit -f 0; exec {' '.join(ALBOR)} {words} 2>&1 | cat"],
            cwd=user.folder,
            env=user.environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert "Traceback" not in done.stdout, done.stdout
        assert "File too large" in done.stdout and "next:" in done.stdout
        assert tree_hash(user.folder, user.home.parent) == before


def test_grandchildren_of_a_guarded_program_do_not_outlive_it(user, tmp_path):
    mark = tmp_path / "mark"
    script = f"(setsid sh -c 'echo $$ > {mark}; exec sleep 600' &) ; sleep 600"
    words = ("guard", "run", "--name", "family", "--detach", "--", "sh", "-c", script)
    assert user.albor(*words).code == 0
    wait_until(lambda: mark.exists() and mark.read_text().strip())
    pid = int(mark.read_text())
    assert user.quick("guard", "stop", "family", "--json").document["status"] == "done"
    wait_until(lambda: not (tmp_path.__class__(f"/proc/{pid}")).exists(), 20)


@pytest.mark.parametrize("name", names())
def test_every_schema_that_is_printed_is_json_schema(name):
    printed = json.loads(CliRunner().invoke(cli, ["schema", name]).stdout)
    jsonschema.Draft202012Validator.check_schema(printed)
    assert printed == schema_of(name)
    assert printed["title"] == f"{name}/1"
