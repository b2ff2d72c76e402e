"""Bad input: one message with file, field, cause and next command; nothing changed on disk."""

from __future__ import annotations

import subprocess
import sys

import pytest
from cli_user import ALBOR, tree_hash, write_config

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


def test_a_damaged_shard_is_refused_with_7(user, data, tmp_path):
    import shutil

    copy = tmp_path / "copy"
    shutil.copytree(data / "shards", copy / "shards")
    shutil.copy(data / "tokenizer.json", copy)
    shard = next((copy / "shards" / "train").glob("*.parquet"))
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1
    shard.write_bytes(raw)
    result = user.quick("data", "verify", copy / "shards" / "train")
    assert result.code == 7
    assert shard.name in result.err and "next:" in result.err
    shard.unlink()
    write_config(user.folder / "tiny.yaml", copy)
    plan = user.quick("train", "plan", "tiny.yaml", "--json")
    assert plan.code == 1
    assert any(shard.name in problem["message"] for problem in plan.document["problems"])


@pytest.mark.parametrize("name", ["../../x", "[/", "a\nb", "x" * 300, "\x1b[31m"], ids=range(5))
def test_a_hostile_name_names_a_folder_inside_output_dir_and_nothing_else(user, name):
    from albor_core.run.rundir import is_run_id

    words = ("guard", "run", f"--name={name}", "--json", "--", sys.executable, "-c", "pass")
    document = user.albor(*words).document
    assert document["exit_code"] == 0
    assert is_run_id(document["run"]["id"])
    runs = user.home / "runs"
    assert [path.name for path in runs.iterdir() if path.is_dir()] == [document["run"]["id"]]
    listed = user.quick("runs", "ls")
    assert "\x1b" not in listed.out and len(listed.out.splitlines()) == 2
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
        (("runs", "diff", "a"), 2, "two to ten"),
        (("runs", "show", "a", "--nonsense"), 2, "--nonsense"),
        (("data", "verify", "nowhere"), 3, "nowhere"),
        (("data", "pretokenize", "none.parquet"), 2, "--tokenizer"),
        (("tokenizer", "check", "tiny.yaml"), 7, "tiny.yaml"),
        (("tokenizer", "apply", "tiny.yaml", "-o", "t", "--vocab-size", "9"), 2, "vocab_size"),
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
