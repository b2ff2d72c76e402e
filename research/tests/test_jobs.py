"""research/jobs.py: each job once on a card of its own, in time or not at all."""

from __future__ import annotations

import importlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow  # processes, and what they wait for
SCRIPT = Path(__file__).resolve().parents[1] / "jobs.py"


def called(tmp_path, *lines, **options):
    (tmp_path / "jobs.txt").write_text("\n".join(lines))
    words = [word for name, value in options.items() for word in (f"--{name}", str(value))]
    line = [sys.executable, SCRIPT, tmp_path / "jobs.txt", "--out", tmp_path / "out", *words]
    return subprocess.run(list(map(str, line)), capture_output=True, text=True)


def jobs(tmp_path, *lines, **options):
    done = called(tmp_path, *lines, **options)
    kept = tmp_path / "out" / "jobs.json"
    found = json.loads(kept.read_text()) if kept.exists() else []
    return done, {one["name"]: one["how"] for one in found}


def test_jobs_wait_for_the_stage_before_and_see_one_card_each(tmp_path):
    done, how = jobs(
        tmp_path,
        "9 first sleep 0.3; echo made > $OUT/corpus",
        "---",
        "# those that read it",
        "9 one cat $OUT/corpus; echo $CUDA_VISIBLE_DEVICES >> $OUT/cards; sleep 1",
        "9 two cat $OUT/corpus; echo $CUDA_VISIBLE_DEVICES >> $OUT/cards; sleep 1",
        cards=2,
    )
    assert (done.returncode, how) == (0, {"first": "exit 0", "one": "exit 0", "two": "exit 0"})
    assert (tmp_path / "out" / "two.log").read_text() == "made\n"
    assert sorted((tmp_path / "out" / "cards").read_text().split()) == ["0", "1"]


def test_what_ended_well_is_not_run_again_and_the_rest_is(tmp_path):
    lines = ("9 good echo x >> $OUT/times", "9 bad test -e $OUT/now")
    done, how = jobs(tmp_path, *lines)
    assert (done.returncode, how) == (1, {"good": "exit 0", "bad": "exit 1"})
    (tmp_path / "out" / "now").touch()
    done, how = jobs(tmp_path, *lines)
    assert (done.returncode, how) == (0, {"good": "exit 0", "bad": "exit 0"})
    assert (tmp_path / "out" / "times").read_text() == "x\n"


def test_a_job_that_would_not_end_in_time_does_not_begin_and_one_that_lasts_is_ended(tmp_path):
    done, how = jobs(
        tmp_path,
        "0.4 endless sleep 60 & sleep 60",
        "999 long touch $OUT/long",
        minutes=0.2,
    )
    assert (done.returncode, how) == (1, {"endless": "too long", "long": "no time"})
    assert not (tmp_path / "out" / "long").exists()


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("soon bad true", "'soon' is not a finite number above 0"),
        ("9 bad", "'9 bad' is not SECONDS NAME COMMAND"),
        *(
            (f"{much} bad true", "not a finite number above 0")
            for much in ("nan", "-1", "0", "inf")
        ),
        ("9 bad true \0", "a command has no NUL"),
        ("9 good true", "'good' is no name of a file of its own"),
        ("9 ../bad touch $OUT/bad", "'../bad' is no name of a file of its own"),
        ("9 a/b true", "'a/b' is no name of a file of its own"),
        (f"9 {'n' * 252} true", "nnn' is too long for a name of a file"),
    ],
)
def test_a_line_that_is_no_job_is_named_before_anything_runs_or_is_made(tmp_path, line, said):
    done, _ = jobs(tmp_path, "9 good touch $OUT/good", line)
    refused(done, said)
    assert list(tmp_path.iterdir()) == [tmp_path / "jobs.txt"]


def refused(done, said):
    assert (done.returncode, done.stdout) == (2, "")
    assert said in done.stderr.splitlines()[-1] and "Traceback" not in done.stderr


def test_the_longest_name_that_a_file_can_have_is_one(tmp_path):
    assert jobs(tmp_path, f"9 {'n' * 251} true")[0].returncode == 0


def test_options_that_are_none_are_named_before_anything_is_made(tmp_path):
    refused(called(tmp_path, "9 a true", cards=0), "--cards: '0' is not a whole number above 0")
    refused(called(tmp_path, "9 a true", minutes="nan"), "--minutes: a number from 0")
    assert not (tmp_path / "out").exists()


def test_a_file_that_is_not_text_is_named(tmp_path):
    (tmp_path / "jobs.txt").write_bytes(b"9 a true \xff")
    line = [sys.executable, SCRIPT, tmp_path / "jobs.txt", "--out", tmp_path / "out"]
    done = subprocess.run(line, capture_output=True, text=True)
    refused(done, "jobs.txt: is not text in UTF-8")
    assert not (tmp_path / "out").exists()


def test_a_folder_that_cannot_be_written_in_is_named(tmp_path):
    (tmp_path / "file").touch()
    for out in (tmp_path / "file", tmp_path / "file" / "below"):
        refused(called(tmp_path, "9 a true", out=out), "cannot be written to as a folder")
    refused(called(tmp_path, "9 a true", out=tmp_path / ("n" * 256)), "File name too long")


@pytest.mark.parametrize("name", ["jobs.json", "last.log"])
def test_a_folder_where_a_file_is_to_be_is_named_before_anything_runs(tmp_path, name):
    (tmp_path / "out" / name).mkdir(parents=True)
    done = called(tmp_path, "9 a touch $OUT/a", "9 last true")
    refused(done, f"{name}: Is a directory")
    assert not (tmp_path / "out" / "a").exists()


def test_results_that_are_not_its_own_are_named_and_left(tmp_path):
    (tmp_path / "out").mkdir()
    kept = tmp_path / "out" / "jobs.json"
    for strange in ('{"name": 1}', "[1", "[{}]"):
        kept.write_text(strange)
        done = called(tmp_path, "9 a touch $OUT/a")
        assert done.returncode == 2 and "jobs.json: not what this wrote" in done.stderr
        assert kept.read_text() == strange and not (tmp_path / "out" / "a").exists()


def words_of(command: str) -> list[str]:
    """What bash would give to python3."""
    shown = "python3() { printf '%s\\0' \"$@\"; }; " + command
    return subprocess.check_output(["bash", "-c", shown], text=True).split("\0")[:-1]


def test_the_jobs_of_the_results_name_runs_that_the_scripts_know(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(SCRIPT.parent))
    jobs, pretrain, slow, sprint = map(
        importlib.import_module, ("jobs", "pretrain", "slow", "sprint")
    )
    known = {
        "slow.py": slow.contender,
        "sprint.py": sprint.contender,
        "pretrain.py": pretrain.Asked.read,
    }
    stages = list(jobs.stages((SCRIPT.parent / "results.jobs").read_text()))
    jobs.check([job for stage in stages for job in stage])
    seen = set()
    for job in (job for stage in stages for job in stage):
        script, *words = words_of(job.command)
        assert (SCRIPT.parents[1] / script).is_file()
        runs = words[words.index("--runs") + 1 :] if "--runs" in words else []
        for word in itertools.takewhile(lambda one: not one.startswith("--"), runs):
            known[Path(script).name](word)
            seen.add(Path(script).name)
    assert seen == set(known)
