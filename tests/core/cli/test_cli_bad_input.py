"""Bad input: one message with file, field, cause and next command; nothing changed on disk."""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from cli_user import ALBOR, damage_a_shard, tree_hash, validate, write_config

from albor_core.run.home.new_run import create_run
from albor_core.store.index.indexer import index_now

PLANS = {  # what was wrong, and the words that must be in the message
    "an unknown key": (("optimizer.lrr=1",), ("optimizer.lrr", "is not a field", "optimizer.lr")),
    "heads that do not divide": (
        ("model.architecture.hidden_size=33",),
        ("model.architecture.hidden_size", "33", "num_attention_heads"),
    ),
    "steps beyond the epochs": (
        ("training.max_steps=900000",),
        ("tiny.yaml", "training.max_steps", "cannot be reached", "training.epochs"),
    ),
    "missing shards": (
        ("data.train=nowhere",),
        ("tiny.yaml", "data.train", "no such directory", "albor data pretokenize"),
    ),
    "ids beyond the vocabulary": (
        ("model.architecture.vocab_size=300",),
        ("tiny.yaml", "model.architecture.vocab_size", "300", "512"),
    ),
    "no key=value": (("optimizer.lr",), ("--set", "key=value")),
    "a list in place of a number": (("optimizer.lr=[1]",), ("optimizer.lr", "[1]")),
    "YAML in a value that is none": (("optimizer.lr={",), ("--set optimizer.lr={",)),
    "a section in place of a field": (("training=3",), ("training", "section")),
    "an alert nobody can read": (
        ("monitoring.alerts=[{condition: 'loss >', action: stop, message: x}]",),
        ("loss >",),
    ),
}


def sets(overrides):
    return [word for override in overrides for word in ("--set", override)]


@pytest.mark.parametrize("what", PLANS)
def test_a_config_that_cannot_run_is_refused_before_anything_is_touched(user, what):
    overrides, words = PLANS[what]
    before = tree_hash(user.folder, user.home.parent)
    plan = user.quick("train", "plan", "tiny.yaml", *sets(overrides))
    apply = user.quick("train", "apply", "tiny.yaml", *sets(overrides))
    assert (plan.code, apply.code) == (1, 2)
    assert apply.out == ""
    for word in words:
        assert word in " ".join(apply.err.split()), apply.err
        assert word in " ".join((plan.out + plan.err).split()), plan
    assert "next:" in apply.err
    error = user.quick("train", "apply", "tiny.yaml", "--json", *sets(overrides)).error
    assert error["code"] == "config"
    assert error["hint"].startswith("albor ") or error["hint"]
    assert [problem["field"] for problem in error["problems"]] != []
    assert tree_hash(user.folder, user.home.parent) == before


@pytest.mark.parametrize(
    "override",
    ["optimizer.lr=1e300", "optimizer.muon_lr=0.02", "model.architecture.rope_theta=1e-300",
     "data.seq_len=1", "training.num_threads=100000", "optimizer.lr=["],
)  # fmt: skip
def test_the_way_out_of_a_refused_override_leaves_it_out(user, override):
    before = tree_hash(user.folder, user.home.parent)
    for verb, code in (("validate", 1), ("plan", 1), ("apply", 2)):
        words = ("train", verb, "tiny.yaml", "--set", override, "--seed", "3")
        error = user.quick(*words, "--json")
        assert error.code == code
        assert override in error.error["message"]
    fix, _, command = error.error["hint"].rpartition("; then: ")
    assert fix in ("", "leave it out, or set optimizer.name to muon")
    assert command == "albor train validate tiny.yaml --seed 3"
    assert user.quick(*command.split()[1:]).code == 0
    assert tree_hash(user.folder, user.home.parent) == before


def test_a_file_that_is_wrong_besides_is_to_be_mended_first(user, data):
    write_config(user.folder / "tiny.yaml", data, optimizer="optimizer: {lr: -1}")
    result = user.quick("train", "validate", "tiny.yaml", "--set", "training.epochs=0")
    assert "next: fix tiny.yaml, then: albor train validate tiny.yaml\n" in result.err


@pytest.mark.parametrize(
    "verb",
    [
        *(("train", verb, "tiny.yaml") for verb in ("validate", "plan", "apply")),
        ("train", "resume", "calm"),
        ("demo",),
    ],
    ids=" ".join,
)
@pytest.mark.parametrize(
    ("environ", "says"),
    [
        ({"ALBOR_KERNELS": "foo"}, "it may be unset, reference or triton"),
        ({"ALBOR_FAULTS": "foo"}, "'foo' is not point:action@step"),
        ({"ALBOR_FAULTS": "step:kill@1", "ALBOR_ENV": "production"}, "production"),
    ],
    ids=["kernels", "faults", "production"],
)
def test_an_environment_that_the_trainer_refuses_is_refused_before_there_is_a_run(
    user, monkeypatch, verb, environ, says
):
    monkeypatch.setenv("ALBOR_HOME", str(user.home))
    create_run(user.folder / "runs", "calm", experiment="e", name="c", kind="train", argv=[])
    before = tree_hash(user.folder, user.home.parent)
    error = user.quick(*verb, "--json", **environ)
    assert (error.code, error.error["code"]) == (2, "usage")
    assert next(iter(environ)) in error.error["message"]
    assert says in error.error["message"]
    assert error.error["hint"]
    assert tree_hash(user.folder, user.home.parent) == before


def test_kernels_that_are_asked_for_and_cannot_run_here_are_said_not_to(user):
    environ = {"ALBOR_KERNELS": "triton", "CUDA_VISIBLE_DEVICES": "", "TRITON_INTERPRET": ""}
    result = user.quick("kernels", "check", **environ)
    assert result.code == 0
    assert "ALBOR_KERNELS=triton is not met" in result.err
    unmet = json.loads(user.quick("kernels", "check", "--json", **environ).out)["unmet"]
    assert unmet.startswith("ALBOR_KERNELS=triton is not met")
    assert json.loads(user.quick("kernels", "check", "--json").out)["unmet"] is None
    config = ("tiny.yaml", "--set", "training.device=cpu", "--json")
    notes = json.loads(user.quick("train", "plan", *config, **environ).out)["notes"]
    assert [note for note in notes if "ALBOR_KERNELS=triton is not met" in note]
    notes = json.loads(user.quick("train", "plan", *config).out)["notes"]
    assert not [note for note in notes if "ALBOR_KERNELS" in note]


@pytest.mark.parametrize("verb", ["check", "bench"])
def test_a_backend_that_there_is_not_is_refused_by_the_variable_that_names_it(user, verb):
    result = user.quick("kernels", verb, "--json", ALBOR_KERNELS="foo")
    assert (result.code, result.error["code"]) == (2, "usage")
    assert result.error["message"].startswith("ALBOR_KERNELS is 'foo'")
    assert "reference" in result.error["hint"]


@pytest.mark.parametrize(
    ("words", "code", "says", "hint"),
    [
        ("--rows 1e30", 2, "'--rows'", "--help"),
        ("--op cross_entropy --vocab 99999999999", 2, "'--vocab'", "--help"),
        ("--heads 4 --kv-heads 3", 2, "3 key/value heads do not divide 4", "--kv-heads"),
        ("--heads 8 --kv-heads 16", 2, "16 key/value heads do not divide 8", "--kv-heads"),
        ("--op cross_entropy --rows 1B --vocab 1B", 1, "need more memory", "--rows or --vocab"),
        ("--op embedding --vocab 1B --hidden 1M", 1, "need more memory", "--vocab or --hidden"),
    ],
)
def test_a_bench_of_what_cannot_be_is_refused_in_words(user, words, code, says, hint):
    error = user.quick("kernels", "bench", "--json", "--no-compile", *words.split())
    assert error.code == code
    assert says in error.error["message"]
    assert hint in error.error["hint"]


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (b"", "is empty"),
        (b"\xff\xfe\x00", "UTF-8"),
        (b"model: [", "tiny.yaml:1"),
        (b"a: 1\na: 2\n", "tiny.yaml:2"),
        (b"just words", "tiny.yaml"),
    ],
)
def test_a_file_that_is_no_config_is_named_with_its_line(user, content, cause):
    (user.folder / "tiny.yaml").write_bytes(content)
    before = tree_hash(user.folder)
    for command, code in (("plan", 1), ("validate", 1), ("apply", 2)):
        result = user.quick("train", command, "tiny.yaml")
        assert (result.code, result.out) == (code, "")
        assert cause in result.err and "next:" in result.err
    assert tree_hash(user.folder) == before


def test_windows_line_ends_and_a_byte_order_mark_change_nothing(user):
    path = user.folder / "tiny.yaml"
    plain = user.quick("train", "plan", "tiny.yaml", "--json").document
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes().replace(b"\n", b"\r\n"))
    windows = user.quick("train", "plan", "tiny.yaml", "--json").document
    assert {**windows, "disk": None} == {**plain, "disk": None}  # free space moves by itself


def test_the_check_of_a_tokenizer_is_plain_text_for_people(user, data):
    result = user.quick("tokenizer", "check", data / "tokenizer.json")
    assert result.code == 0
    facts = dict(line.strip().split("  ", 1) for line in result.out.splitlines()[1:])
    facts = {key: text.strip() for key, text in facts.items()}
    sha256 = hashlib.sha256((data / "tokenizer.json").read_bytes()).hexdigest()
    assert facts.pop("special tokens").startswith("<|endoftext|> 0, <|pad|> 1, ")
    assert facts.pop("round trips") in {f"{n} of {n} samples" for n in range(1, 400)}
    assert facts.pop("Python patterns").startswith(tuple(f"{n}/8 are one token" for n in range(9)))
    assert facts == {
        "sha256": sha256,
        "vocabulary": "512 tokens, BPE",
        "of these": "eos 0, pad 1",
        "bytes": "256 of 256 have a token",
        "bytes per token": "unknown without --corpus",
    }
    damaged = json.loads((data / "tokenizer.json").read_text())
    damaged["normalizer"] = {"type": "Lowercase"}
    damaged["added_tokens"] = []
    (user.folder / "odd.json").write_text(json.dumps(damaged))
    refused = user.quick("tokenizer", "check", "odd.json", "--corpus", data / "corpus.parquet")
    assert refused.code == user.quick("tokenizer", "check", "odd.json", "--json").code == 7
    odd = refused.out
    lines = [line.strip() for line in odd.splitlines()]
    ours = [line for line in lines if not line.startswith("changed ")]  # the rest are the samples
    assert len(ours) < len(lines) and any(line.startswith("problem ") for line in ours)
    assert not re.search(r"[\[{(]'|None", "\n".join(ours)), odd


def test_a_config_is_found_from_another_folder_and_its_paths_are_the_callers(user):
    elsewhere = user.folder / "elsewhere"
    elsewhere.mkdir()
    document = user.quick("train", "plan", "../tiny.yaml", "--json", cwd=elsewhere).document
    assert document["problems"] == []
    words = ("train", "plan", "../tiny.yaml", "--json", "--set", "data.train=shards")
    result = user.quick(*words, cwd=elsewhere)
    assert result.code == 1
    assert f"(relative to {elsewhere})" in result.document["problems"][0]["message"]


def test_a_tree_without_source_leaves_no_corpus(user):
    (user.folder / "empty").mkdir()
    (user.folder / "binary").mkdir()
    (user.folder / "binary" / "a.py").write_bytes(bytes(range(256)) * 8)
    before = tree_hash(user.folder)
    for tree, code in (("empty", 7), ("binary", 7), ("nowhere", 3)):
        result = user.quick("data", "import", tree, "-o", "out.parquet")
        assert (result.code, result.out) == (code, "")
        assert tree in result.err and "next:" in result.err
    assert tree_hash(user.folder) == before


def test_files_of_other_kinds_are_imported_by_their_ending(user):
    (user.folder / "notes").mkdir()
    (user.folder / "notes" / "a.md").write_text("# a\n" * 40)
    refused = user.quick("data", "import", "notes", "-o", "out.parquet")
    assert refused.code == 7 and "--suffix" in refused.err
    words = ("data", "import", "notes", "-o", "out.parquet", "--suffix", ".py", "--suffix", ".md")
    document = user.quick(*words, "--json").document
    assert (document["files"], document["skipped"]) == (1, {})


@pytest.mark.parametrize(("out", "code"), [(".", 2), ("nowhere/x.parquet", 3)])
def test_an_output_that_is_no_file_is_refused_with_one_that_is(user, out, code):
    (user.folder / "src").mkdir()
    (user.folder / "src" / "a.py").write_text("a = 1\n")
    result = user.quick("data", "import", "src", "-o", out)
    assert (result.code, result.out) == (code, "")
    assert "folder" in result.err and "next:" in result.err


def test_nothing_that_exists_is_replaced_without_force(user):
    (user.folder / "src").mkdir()
    for name, text in (("a", "a = 1\n"), ("b", "b = 2\n")):
        (user.folder / "src" / f"{name}.py").write_text(text * 40)
    import_ = ("data", "import", "src", "-o", "c.parquet")
    train = ("tokenizer", "apply", "c.parquet", "-o", "t.json", "--vocab-size")
    assert user.quick(*import_).code == user.quick(*train, 270).code == 0
    before = tree_hash(user.folder)
    assert "up to date" in user.quick(*import_).out
    assert user.quick(*import_, "--json").document["reused"] is True
    assert user.quick(*train, 270, "--json").document["reused"] is True
    assert user.quick(*train, 262).code == 2
    (user.folder / "src" / "c.py").write_text("c = 3\n")
    refused = user.quick(*import_)
    assert refused.code == 2 and "c.parquet: exists" in refused.err and "--force" in refused.err
    (user.folder / "src" / "c.py").unlink()
    assert tree_hash(user.folder) == before
    assert user.quick(*train, 262, "--force").code == 0


@pytest.mark.parametrize("text", ["1K", "1_024", "1.024e3"])
def test_whole_numbers_are_written_on_the_command_line_as_in_a_config(user, data, text):
    words = ("tokenizer", "plan", data / "corpus.parquet", "-o", "t.json", "--vocab-size", text)
    assert user.quick(*words, "--json").document["vocab_size"] == 1024


@pytest.mark.parametrize("text", ["1.5", "32Q", "many", "1001", "0", "2K"])
def test_a_number_that_is_none_or_out_of_range_names_its_option(user, text):
    result = user.quick("kernels", "bench", "--rounds", text)
    assert (result.code, result.out) == (2, "")
    assert "--rounds" in result.err and text in result.err and "next:" in result.err


@pytest.mark.parametrize("rate", ["nan", "inf", "0", "-1", "1e13"])
def test_a_price_that_is_none_names_its_option(user, rate):
    refused = user.quick("train", "plan", "tiny.yaml", "--rate", rate)
    assert refused.code == 2 and "--rate" in refused.err and "monitoring" not in refused.err


def test_a_damaged_shard_is_refused_with_7(user, data, tmp_path):
    copy = tmp_path / "copy"
    shard = damage_a_shard(data, copy)
    result = user.quick("data", "verify", copy / "shards" / "train")
    assert result.code == 7
    assert result.err.count(shard.name) == 1, result.err  # named once, by its path
    assert result.err.count("albor data pretokenize CORPUS") == 1, "what to do is said once"
    told = user.quick("data", "verify", copy / "shards" / "train", "--json")
    assert (told.code, told.err) == (7, "")
    document = told.document
    assert (document["schema"], document["ok"]) == ("albor.data.verify/1", False)
    assert [Path(problem["file"]).name for problem in document["problems"]] == [shard.name]
    assert all(problem["message"] for problem in document["problems"])
    validate(document)
    shard.unlink()
    write_config(user.folder / "tiny.yaml", copy)
    plan = user.quick("train", "plan", "tiny.yaml", "--json")
    assert plan.code == 1
    assert any(shard.name in problem["message"] for problem in plan.document["problems"])


@pytest.mark.parametrize(
    "name", ["..x", "[red]x", "Two words", "x" * 200, "\u00fc\u4e2d"], ids=range(5)
)
def test_an_odd_name_names_a_folder_inside_output_dir_and_nothing_else(user, name):
    from albor_core.run.rundir import is_run_id

    words = ("guard", "run", f"--name={name}", "--json", "--", sys.executable, "-c", "pass")
    document = user.albor(*words).document
    assert document["exit_code"] == 0
    assert is_run_id(document["run"]["id"])
    runs = user.home / "runs"
    assert [path.name for path in runs.iterdir() if path.is_dir()] == [document["run"]["id"]]
    listed = user.quick("runs", "ls")
    assert "\x1b" not in listed.out and len(listed.out.splitlines()) == 2
    (row,) = user.quick("runs", "ls", "--json").document["runs"]
    assert row["name"] == name
    assert user.quick("runs", "show", document["run"]["id"]).code == 0


@pytest.mark.parametrize(
    "reference", ["../../etc", "", "/etc", "\x1b[31m", "x" * 5000, "*", "."], ids=range(7)
)
def test_what_names_no_run_is_not_found_and_says_where_to_look(user, reference):
    for words in (("runs", "show"), ("guard", "stop"), ("train", "resume"), ("monitor",)):
        result = user.quick(*words, reference)
        assert result.code == 3, result
        assert "next: albor runs ls" in result.err
        assert "\x1b" not in result.err


def test_a_missing_program_is_not_found_and_makes_no_run(user):
    result = user.quick("guard", "run", "--", "no-such-program-anywhere")
    assert result.code == 3
    assert "no-such-program-anywhere" in result.err
    assert not (user.home / "runs").exists()


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (("trian",), 2, "Did you mean 'train'"),
        (("train", "aply", "x"), 2, "Did you mean 'apply'"),
        (("runs", "ls", "--db", "none.db"), 3, "none.db"),
        (("runs", "ls", "--db", "tiny.yaml"), 1, "tiny.yaml"),
        (("runs", "ls", "--limit", "0"), 2, "less than 1"),
        (("runs", "ls", "--limit", "9" * 20), 2, "--limit"),
        (("runs", "diff"), 2, "Missing argument"),
        (("demo", "--tokens", "0"), 2, "--tokens 0"),
        (("demo", "--tokens", "1e21"), 2, "--tokens"),
        (("demo", "--out", "tiny.yaml"), 2, "tiny.yaml"),
        (("runs", "show", "a", "--nonsense"), 2, "--nonsense"),
        (("train", "apply", "x", "--quiet"), 2, "next: albor --quiet train apply"),
        (("runs", "ls", "-q"), 2, "next: albor -q runs ls"),
        (("train", "apply", "x", "--detatch"), 2, "Did you mean '--detach'?"),
        (("train", "plan", "x", "--seeds"), 2, "Did you mean '--seed'?"),
        (("data", "verify", "nowhere"), 3, "nowhere"),
        (("data", "pretokenize", "none.parquet"), 2, "--tokenizer"),
        (("tokenizer", "check", "tiny.yaml"), 7, "tiny.yaml"),
        (("tokenizer", "apply", "tiny.yaml", "-o", "t", "--vocab-size", "9"), 2, "vocab_size"),
        (("tokenizer", "apply", "tiny.yaml", "-o", "t", "--vocab-size", "1e12"), 2, "too large"),
        (("schema", "../../main"), 3, "../../main"),
        (("db", "rebuild", "nowhere"), 3, "nowhere"),
        (("guard", "run", "--option", "poll_s=no", "--", "true"), 2, "poll_s"),
        (("train", "apply", "none.yaml"), 3, "none.yaml"),
        (("train", "apply", "tiny.yaml", "--resume", "sometimes"), 3, "sometimes"),
    ],
)
def test_a_wrong_command_line_is_one_message_and_changes_nothing(user, words, code, says):
    before = tree_hash(user.folder, user.home.parent)
    result = user.quick(*words)
    assert (result.code, result.out) == (code, "")
    assert says in result.err and "next:" in result.err
    machine = user.quick(*words[:2], "--json", *words[2:])
    assert machine.code == code
    assert machine.error["hint"]
    assert tree_hash(user.folder, user.home.parent) == before


@pytest.mark.parametrize("verb", [("train", "apply", "tiny.yaml"), ("guard", "run")], ids=" ".join)
@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("", "letter or digit"),
        ("  ", "letter or digit"),
        ("..", "letter or digit"),
        ("a\nb", "cannot be shown"),
        ("a\x1b[31m", "cannot be shown"),
        ("\udcff", "cannot be shown"),
        ("-rf", "option"),
        ("a/b", "path"),
        ("../../a", "path"),
        ("a" * 10_000, "10,000 characters"),
    ],
    ids=lambda text: repr(text[:12]),
)
def test_a_name_that_is_none_is_refused_before_anything_is_made(user, verb, name, why):
    before = tree_hash(user.folder, user.home.parent)
    program = ("--", "true") if verb[0] == "guard" else ()
    result = user.quick(*verb, f"--name={name}", "--json", *program)
    assert (result.code, result.error["code"]) == (2, "usage")
    assert why in result.error["message"] and len(result.error["message"]) < 200
    assert result.error["hint"] == f"albor {verb[0]} {verb[1]} --help"
    assert tree_hash(user.folder, user.home.parent) == before


OUTPUTS = {
    "report": ("report", "r1"),
    "export": ("runs", "export", "r1", "--format", "jsonl"),
    "parquet": ("runs", "export", "r1", "--format", "parquet"),
    "import": ("data", "import", "src"),
    "tokenizer": ("tokenizer", "apply", "corpus.parquet", "--vocab-size", "300"),
    "shards": (
        *("data", "pretokenize", "corpus.parquet"),
        *("--tokenizer", "tokenizer.json", "--seq-len", "32"),
    ),
    "demo": ("demo", "--tokens", "8192"),
}


@pytest.mark.parametrize("what", OUTPUTS)
def test_an_output_that_cannot_be_written_fails_the_same_way_everywhere(
    user, data, what, monkeypatch
):
    monkeypatch.setenv("ALBOR_HOME", str(user.home))
    run = create_run(user.folder / "runs", "r1", experiment="e", name="r1", kind="track", argv=[])
    index_now(run)
    for name in ("src", "corpus.parquet", "tokenizer.json"):
        (user.folder / name).symlink_to(data / name)
    (user.folder / "file").write_text("mine")
    (user.folder / "folder").mkdir()
    before = sorted(user.folder.iterdir())
    wrong_kind = "file" if what in ("import", "shards", "demo") else "folder"
    absent = 3 if what in ("report", "export", "parquet") else 1
    outputs = {"file/out": 1, "/proc/none/out": absent, "x" * 300: 1, wrong_kind: 2}
    if what == "tokenizer":
        del outputs[wrong_kind]  # a folder is where tokenizer.json goes
    for out, code in outputs.items():
        result = user.quick(*OUTPUTS[what], "--json", "--out", out)
        assert (result.code, out in result.error["message"]) == (code, True), result
        assert result.error["hint"]
        assert sorted(user.folder.iterdir()) == before, out
    assert (user.folder / "file").read_text() == "mine"
    assert list((user.folder / "folder").iterdir()) == []


@pytest.mark.parametrize("words", [(), ("runs",), ("train",)])
def test_a_command_that_is_missing_is_shown_as_a_page_of_lines(user, words):
    result = user.quick(*words)
    assert (result.code, result.out) == (2, "")
    assert len(result.err.splitlines()) > 5
    assert "Usage: albor" in result.err


def test_a_reader_that_leaves_and_a_full_disk_are_no_tracebacks(old_hand):
    shell = f"{' '.join(ALBOR)} runs show calm --json | head -c 1"
    done = subprocess.run(
        ["bash", "-c", shell + "; echo ${PIPESTATUS[0]}"],
        env=old_hand.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (done.stdout, done.stderr) == ("{141\n", "") or done.stdout == "{0\n"
    for words in ("runs ls", "runs show calm --json", "--help", "schema albor.error"):
        full = subprocess.run(
            ["bash", "-c", f"{' '.join(ALBOR)} {words} > /dev/full"],
            env=old_hand.environment(),
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert full.returncode == 1
        assert "No space left" in full.stderr and "Traceback" not in full.stderr
    closed = subprocess.run(
        ["bash", "-c", f"{' '.join(ALBOR)} runs ls >&-"],
        env=old_hand.environment(),
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert (closed.returncode, closed.stderr) == (0, "")


def test_sorting_by_no_column_names_the_columns(old_hand):
    result = old_hand.quick("runs", "ls", "--sort", "nonsense")
    assert result.code == 2
    assert "created" in result.err


def test_quiet_silences_talk_and_not_errors(user):
    assert user.quick("monitor").err != ""
    quiet = user.quick("--quiet", "monitor")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")
    assert "nobody" in user.quick("--quiet", "runs", "show", "nobody").err
