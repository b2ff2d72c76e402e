"""`albor runs ls` and `mv`: filters, columns, groups, what is alive; a run elsewhere; a rebuild."""

from __future__ import annotations

import errno
import math
import shutil
import sqlite3
import subprocess
import sys
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest
from cli_user import tree_hash, valid

from albor_core import track
from albor_core.feed.workspace.views import View, ViewsFile
from albor_core.guard.process.index_process import IndexProcess
from albor_core.run.files.whole_file import write_json
from albor_core.run.home.new_run import create_run
from albor_core.run.home.runs import registered_runs
from albor_core.run.journal import Journal
from albor_core.run.rundir import read_json
from albor_core.run.state import StateWriter
from albor_core.store.file.paths import global_store
from albor_core.store.index.indexer import index_now

ROOT = Path(__file__).resolve().parents[4]


def record(folder, run_id, *, seed=0, lr=1e-3, losses=(2.0, 1.0), end=True, **facts):
    run = create_run(folder, run_id, experiment="exp", name=f"run {run_id}", kind="track",
                     argv=["x"], seed=seed, facts=facts)  # fmt: skip
    journal = Journal(run.journal, attempt=1)
    journal.event("run.start")
    for key, value in {"optimizer.lr": lr, "seed": seed, "optimizer.name": "adamw"}.items():
        journal.append("p", key=key, value=value)
    for step, loss in enumerate(losses):
        journal.metrics(step, {"train/loss": loss, "val/loss": loss + 0.5})
    if end:
        journal.event("run.end", status="completed", reason="completed", code=0)
    journal.close()
    index_now(run)
    return run


@pytest.fixture
def table(desk):
    out = desk.folder / "out"
    return {
        "a0": record(out, "a0", seed=0, losses=(2.0, 1.0)),
        "a1": record(out, "a1", seed=1, losses=(4.0, 3.0)),
        "b0": record(out, "b0", lr=3e-4, losses=(1.0, math.nan)),
        "c0": record(out, "c0", lr=1e-2, losses=(9.0, 8.0), end=False, parent="a0"),
    }


def ids(desk, *words):
    return [row["id"] for row in valid(desk.quick("runs", "ls", *words, "--json"))["runs"]]


def test_the_global_list_may_be_asked_for_by_its_old_name_and_is_the_same(desk, table):
    plain, said = desk.quick("runs", "ls", "--json"), desk.quick("runs", "ls", "--global", "--json")
    assert [row["id"] for row in valid(said)["runs"]] == [row["id"] for row in valid(plain)["runs"]]
    assert "the list is always global" in said.err and "global" not in plain.err
    assert "--global" not in desk.quick("runs", "ls", "--help").out


def test_filters_sorting_and_limits(desk, table):
    assert ids(desk) == ["c0", "b0", "a1", "a0"]
    assert ids(desk, "train/loss<5", "lr>=1e-3") == ["a1", "a0"]
    assert ids(desk, "train/loss<5 lr>=1e-3") == ["a1", "a0"]
    assert ids(desk, "-id:a0", "-has:nan") == ["c0", "a1"]
    assert ids(desk, '-"run a1"', "!has:parent") == ["b0", "a0"]
    assert ids(desk, "--sort", "loss") == ["a0", "a1", "c0", "b0"]
    assert ids(desk, "--sort", "loss", "--reverse") == ["c0", "a1", "a0", "b0"]
    assert ids(desk, "--sort", "lr") == ["c0", "a1", "a0", "b0"]
    assert ids(desk, "--sort", "name") == ["a0", "a1", "b0", "c0"]
    document = valid(desk.quick("runs", "ls", "--limit", "2", "--json"))
    assert (len(document["runs"]), document["total"]) == (2, 4)
    assert "2 of 4 runs" in desk.quick("runs", "ls", "--limit", "2").err


def test_a_pinned_run_comes_first_whatever_the_order(desk, table):
    desk.quick("runs", "pin", "a0")
    assert ids(desk)[0] == "a0"
    assert ids(desk, "--sort", "loss", "--reverse", "--limit", "1") == ["a0"]
    assert desk.quick("runs", "ls").out.splitlines()[1].startswith("a0 * ")


def test_columns_are_fields_metrics_and_params(desk, table):
    words = ("--columns", "id,loss,lr,val/loss:min,optimizer.name", "--sort", "name")
    document = valid(desk.quick("runs", "ls", *words, "--json"))
    assert document["runs"][0]["values"] == {
        "lr": 1e-3, "val/loss:min": 1.5, "optimizer.name": "adamw",
    }  # fmt: skip
    head, first, *_ = desk.quick("runs", "ls", *words).out.splitlines()
    assert head.split() == ["run", "loss", "lr", "val/loss:min", "optimizer.name"]
    assert first.split() == ["a0", "1.0000", "0.001", "1.5", "adamw"]
    shown = desk.quick("runs", "ls", "--columns", "id,tags,parent,status,path,age,created,mfu")
    assert shown.code == 0 and "a0" in shown.out.splitlines()[1]


def test_what_a_filter_knows_of_a_run_is_a_column_and_an_order_too(desk, monkeypatch):
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)
    for name, group in (("one", "warm"), ("two", "cold"), ("three", None)):
        more = {"job_type": "eval"} if group == "warm" else {}
        with track.start("e", id=name, group=group, console=False, **more) as made:
            made.log({"loss": 1.0})
        assert desk.quick("runs", "note", made.id, f"of {name}").code == 0
    words = ("runs", "ls", "--columns", "id,group,job_type,notes", "--sort", "group", "--reverse")
    told = valid(desk.quick(*words, "--json"))["runs"]
    assert {one["id"]: [*one["values"].values()] for one in told} == {
        "one": ["warm", "eval", "of one"],
        "two": ["cold", None, "of two"],
        "three": [None, None, "of three"],
    }
    ordered = [one["id"] for one in told]
    assert ordered.index("two") < ordered.index("one")
    assert "warm" in desk.quick(*words).out


def test_how_long_runs_took_is_a_column_and_an_order(desk, monkeypatch):
    created = time.time() - 7200
    for name, took in (("short", 60.0), ("long", 5400.0)):
        run = record(desk.folder / "out", name, created=created)
        with closing(sqlite3.connect(desk.home / "experiments.db")) as db, db:
            db.execute(
                "UPDATE runs SET created = ?, ended_wall = ?, ended_status = 'completed'"
                " WHERE run = ?", (created, created + took, run.id),
            )  # fmt: skip
    words = ("runs", "ls", "--sort", "duration")
    told = valid(desk.quick(*words, "--json"))["runs"]
    assert [(one["id"], one["duration_s"]) for one in told] == [("long", 5400), ("short", 60)]
    shown = desk.quick(*words, "--columns", "id,duration").out.split()
    assert shown == ["run", "duration", "long", "1h", "30m", "short", "1m", "00s"]
    assert "duration" in desk.quick("runs", "ls").out.splitlines()[0].split()
    found = valid(desk.quick("runs", "ls", "duration>3600", "--json"))["runs"]
    assert [one["id"] for one in found] == ["long"]


@pytest.fixture
def sweep(desk, monkeypatch):
    """Runs whose lr is written in many ways, which log what is no loss of the house."""
    monkeypatch.setattr(IndexProcess, "tend", lambda self: None)
    lrs = (1e-3, "1e-3", "0.0010", 1e-4, [0.1, 0.2], None)
    for index, lr in enumerate(lrs):
        config = {"wide": index < 3, "seed": index} | ({} if lr is None else {"optim": {"lr": lr}})
        with track.start("e", id=f"r{index}", config=config, console=False) as made:
            made.log({"val/mse": 0.25 * (index + 1) if index != 3 else math.nan})
    with pytest.raises(ValueError), track.start("e", id="r6", config={"optim": {"lr": 1e-3}}):
        raise ValueError
    for run in registered_runs():
        index_now(run)
    return desk


def by(desk, *words):
    return valid(desk.quick("runs", "ls", "--group-by", *words, "--json"))["grouped_by"]


def test_runs_by_a_param_are_one_line_a_value_however_it_was_written(sweep):
    found = by(sweep, "lr")
    assert (found["key"], found["metric"], found["total"]) == ("lr", "val/mse", 4)
    groups = {group["label"]: group for group in found["groups"]}
    assert [*groups] == ["0.0001", "0.001", "[0.1, 0.2]", "missing"]
    thousandth = groups["0.001"]
    assert thousandth["runs"] == ["r6", "r2", "r1", "r0"]
    assert thousandth["values"] == [1e-3, "0.0010", "1e-3"]
    assert (thousandth["state"], thousandth["states"]) == ("failed", {"failed": 1, "completed": 3})
    band = thousandth["bands"]["val/mse"]
    assert (band["n"], band["mean"]) == (3, 0.5)
    assert band["std"] == pytest.approx(np.std([0.25, 0.5, 0.75], ddof=1), rel=1e-9)
    assert groups["0.0001"]["bands"]["val/mse"]["nonfinite"] == 1
    assert groups["missing"]["values"] == [None]
    head, *lines = sweep.quick("runs", "ls", "--group-by", "lr").out.splitlines()
    assert head.split() == ["lr", "n", "state", "val/mse"]
    assert lines[1].split() == ["0.001", "4", "failed", "(1", "of", "4)", "0.50", "+-", "0.25"]


def test_groups_have_any_columns_any_order_and_a_limit(sweep):
    labels = [group["label"] for group in by(sweep, "wide", "--sort", "val/mse")["groups"]]
    assert labels == ["true", "false", "missing"]
    found = by(sweep, "wide", "--columns", "seed,optim.lr", "--reverse", "--limit", "2")
    assert found["total"] == 3
    assert [group["label"] for group in found["groups"]] == ["true", "false"]
    assert found["groups"][0]["texts"] == {"seed": ["0", "1", "2"]}
    assert {*found["groups"][0]["bands"]} == {"optim.lr", "val/mse"}
    for key in ("status", "created", "metric", "tags", "duration", "val/mse:min", "path"):
        groups = by(sweep, key)["groups"]
        assert sorted(run for group in groups for run in group["runs"]) == [
            f"r{index}" for index in range(7)
        ]
    shown = valid(sweep.quick("runs", "ls", "--group-by", "wide", "--limit", "1", "--json"))
    assert {run["id"] for run in shown["runs"]} == {"r3", "r4", "r5"}
    assert "1 of 3 groups" in sweep.quick("runs", "ls", "--group-by", "wide", "--limit", "1").err


def test_a_view_groups_too_and_shows_no_groups_by_what_is_gone(sweep):
    views = ViewsFile(sweep.home / "views.yaml")
    views.save("by width", View(group="wide", sort="val/mse", is_reversed=True))
    views.save("old", View(group="gone"))
    listed = ("runs", "ls", "--json", "--view")
    found = valid(sweep.quick(*listed, "by width"))["grouped_by"]
    assert [group["label"] for group in found["groups"]] == ["false", "true", "missing"]
    found = valid(sweep.quick(*listed, "by width", "--group-by", "lr"))["grouped_by"]
    assert found["key"] == "lr"
    assert "grouped_by" not in valid(sweep.quick(*listed, "by width", "--group"))
    old = sweep.quick(*listed, "old")
    assert "no run has gone, which the view groups by" in old.err
    assert len(valid(old)["runs"]) == 7


def test_what_no_run_has_is_no_group_and_two_ways_to_group_are_refused(sweep):
    refused = sweep.quick("runs", "ls", "--group-by", "lrr")
    assert refused.code == 2
    assert "cannot group by 'lrr'" in refused.err and "'lr'" in refused.err
    assert sweep.quick("runs", "ls", "--group-by", "lr", "--group").code == 2
    assert by(sweep, "lr", "name:nothing-is-called-so")["groups"] == []
    assert "no run matches" in sweep.quick("runs", "ls", "--group-by", "lr", "name:nobody").out


def test_seeds_of_one_config_are_one_line(desk, table):
    document = valid(desk.quick("runs", "ls", "--group", "--columns", "lr", "--json"))
    group = next(g for g in document["groups"] if len(g["runs"]) == 2)
    assert (group["runs"], sorted(group["seeds"])) == (["a1", "a0"], [0, 1])
    assert (group["bands"]["loss"]["mean"], group["bands"]["loss"]["n"]) == (2.0, 2)
    assert group["bands"]["lr"]["std"] == 0
    diverged = next(g for g in document["groups"] if g["runs"] == ["b0"])
    assert diverged["bands"]["loss"] == {
        "n": 0, "nonfinite": 1, "mean": None, "std": None, "minimum": None, "maximum": None,
    }  # fmt: skip
    assert "2 +- 1.4" in desk.quick("runs", "ls", "--group").out


def test_what_is_alive_is_asked_of_the_kernel(desk, table, hold):
    """One without an end and one that had ended: a held lock makes both run."""
    first = hold(table["c0"].run_lock)
    assert ids(desk, "status:running") == ["c0"]
    assert ids(desk, "status:active") == ["c0"]
    assert ids(desk, "status!=running") == ["b0", "a1", "a0"]
    hold(table["a0"].run_lock)
    words = {
        row["id"]: row["status"] for row in desk.quick("runs", "ls", "--json").document["runs"]
    }
    assert words == {"a0": "running", "a1": "completed", "b0": "completed", "c0": "running"}
    first.communicate()
    assert ids(desk, "status:running", "id:c0") == []


def test_a_mistake_in_a_filter_names_its_column(desk, table):
    result = desk.quick("runs", "ls", "tag:a", "status:runing", "--json")
    assert result.code == 2
    assert result.error["message"].startswith("filter, column 14: status: 'runing' is not one of ")
    result = desk.quick("runs", "ls", "--sort", "nothing", "--json")
    assert (result.code, "no run has such" in result.error["message"]) == (2, True)


@pytest.mark.parametrize("more", [(), ("id:a0",), ("--group",), ("id:nothing",)])
def test_a_column_that_no_run_has_is_refused_with_the_nearest(desk, table, more):
    result = desk.quick("runs", "ls", "--columns", "id,lss:min,loss", *more, "--json")
    assert result.code == 2
    assert result.error["message"] == (
        "cannot show column 'lss': no run has such a metric or param; the nearest is 'loss'"
    )
    shown = desk.quick("runs", "ls", "--columns", "id,optimizer.name,lr,val/loss:min", *more)
    assert shown.code == 0, shown


def test_no_column_is_refused_where_there_is_no_run_to_have_it(desk):
    assert desk.quick("runs", "ls", "--columns", "id,lss").code == 0


@pytest.mark.parametrize(
    ("term", "nearest"),
    [
        ("experimnt:exp", "experiment"),
        ("-lrr<1", "lr"),
        ("optimizr.name:adamw", "optimizer.name"),
        ("val/los:min<3", "val/loss"),
        ("foo:bar", ""),
    ],
)
def test_a_filter_by_what_no_run_has_is_refused_with_the_nearest(desk, table, term, nearest):
    result = desk.quick("runs", "ls", "tag:a", term, "--json")
    assert (result.code, result.error["code"]) == (2, "usage")
    said = result.error["message"]
    assert said.startswith("filter, column 7: ") and (
        " is not a field, nor a metric" in said or " is not a metric of any run" in said
    )
    assert f"nearest is {nearest!r}" in said if nearest else "nearest" not in said


def test_a_filter_by_what_only_some_runs_have_finds_none_of_the_others(desk, table):
    record(desk.folder / "out", "d0", lr=7.0)
    assert ids(desk, "lr:7", "-id:d0") == [] and ids(desk, "seed:99") == []


def test_a_metric_is_called_as_it_was_logged_or_as_the_table_calls_it(desk, table):
    for said in ("loss", "train_loss", "train/loss"):
        told = valid(desk.quick("runs", "diff", "a0", "a1", "--metric", said, "--json"))
        assert told["metric"] == "train/loss"
        exported = desk.quick("runs", "export", "a0", "--key", said)
        assert '"key":"train/loss"' in exported.out.replace(" ", ""), exported
    for words in (("diff", "a0", "a1", "--metric", "lss"), ("export", "a0", "--key", "lss")):
        refused = desk.quick("runs", *words)
        assert refused.code == 3 and "no metric 'lss'; the nearest is" in refused.err, refused


@pytest.mark.parametrize("name", ["val_loss", "val/loss"])
def test_a_short_name_takes_what_the_whole_one_does_of_a_metric(desk, table, name):
    assert ids(desk, f"{name}:min<2") == ["b0", "a0"]
    assert ids(desk, f"{name}:max>4", f"-{name}:count<2") == ["c0", "a1"]
    assert ids(desk, "--sort", f"{name}:min") == ["a0", "b0", "a1", "c0"]
    told = desk.quick("runs", "ls", "id:a0", "--columns", f"id,{name}:min,{name}:best").out
    assert told.splitlines()[1].split() == ["a0", "1.5", "1.5"]


def test_only_metrics_have_a_least_value(desk, table):
    assert ids(desk, "loss:min<2.5") == ["b0", "a0"]
    for word in ("optimizer.lr:min<1", "created:min<1", "los:min<1"):
        told = desk.quick("runs", "ls", word)
        assert told.code == 2 and "is not a metric of any run" in told.err, word


def test_a_star_ends_a_name_as_it_does_a_host(desk, table):
    assert ids(desk, "name:run*") == ["c0", "b0", "a1", "a0"]
    assert ids(desk, "name:a*") == ["a1", "a0"]  # the id
    assert ids(desk, "name:un*") == []


def test_nobody_is_asked_whether_to_remove_a_run_that_never_was(desk, table):
    result = desk.quick("runs", "rm", "nobody")
    assert result.code == 3 and "no run 'nobody'" in result.err and "--yes" not in result.err


def test_hostile_words_come_out_harmless(desk, table):
    for words in (["1); DROP TABLE runs;--"], ["\x1b[31m"], ["--columns", "\x1b[2J,id"],
                  ["--sort", "x\x1b[31m"], ["'\u202e'"], ["%" * 250], ["(a+)+$"]):  # fmt: skip
        result = desk.quick("runs", "ls", *words)
        assert result.code in (0, 2)
        assert "\x1b" not in result.out + result.err and "\u202e" not in result.out + result.err
    assert len(ids(desk)) == 4


def test_numbers_beyond_all_measure_leave_the_table_its_width(desk, table):
    width = max(map(len, desk.quick("runs", "ls").out.splitlines()))
    run = record(desk.folder / "out", "d0", losses=(), created=1e308)
    journal = Journal(run.journal, attempt=2)
    columns = ("train/loss", "val/loss", "val/ppl", "train/tokens", "perf/tokens_per_s", "perf/mfu")
    journal.metrics(1, dict.fromkeys(columns, -1e308), wall=1e307)
    journal.metrics(2, dict.fromkeys(columns, 1e308), wall=1e308)
    journal.close()
    index_now(run)
    told = desk.quick("runs", "ls")
    assert told.out.count("1e+308") == 5 and told.code == 0
    assert max(map(len, told.out.splitlines())) <= width + 30
    shown = "id,created,age,elapsed_s,tokens_per_s,mfu,best_val_loss,val/loss:min"
    told = desk.quick("runs", "ls", "--columns", shown)
    assert told.code == 0 and "-1e+308" in told.out, told
    assert max(map(len, told.out.splitlines())) < 110


def test_curves_from_one_end_of_all_numbers_to_the_other_are_compared(desk):
    for run, high in (("e0", 1.5e308), ("e1", 1.7e308)):
        losses = [high * (-1) ** step for step in range(41)]
        record(desk.folder / "out", run, losses=losses)
    told = desk.quick("runs", "diff", "e0", "e1", "--metric", "train/loss", COLUMNS="100")
    assert told.code == 0 and "both are NaN or Inf" in told.out
    assert max(map(len, told.out.splitlines())) <= 100
    (group,) = valid(desk.quick("runs", "ls", "--group", "--json"))["groups"]
    assert group["bands"]["loss"]["mean"] == pytest.approx(1.6e308)
    assert group["bands"]["loss"]["std"] is None


def test_a_blob_where_a_text_belongs_is_shown_as_text(desk, table):
    with sqlite3.connect(global_store()) as db:
        for column in ("name", "kind", "host", "git_commit", "path", "ended_reason"):
            db.execute(f"UPDATE runs SET {column} = ? WHERE run <> 'a0'", (b"caf\xe9\x1b",))
        db.execute("INSERT INTO tags SELECT id, ? FROM runs", (b"t\xff",))
        db.execute("UPDATE experiments SET name = ?", (b"e\xff",))
    columns = "id,name,experiment,kind,host,commit,path,tags,status"
    told = desk.quick("runs", "ls", "--columns", columns)
    assert (told.code, told.err) == (0, "")
    assert told.out.count("caf\ufffd") == 15 and "b'" not in told.out and "\x1b" not in told.out
    for words in (("ls",), ("show", "b0"), ("diff", "a0", "b0")):
        document = valid(desk.quick("runs", *words, "--db", global_store(), "--json"))
        rows = document["runs"] if "runs" in document else [document["run"]]
        (row,) = [row for row in rows if row["id"] == "b0"]
        assert (row["name"], row["experiment"]) == ("caf\ufffd\x1b", "e\ufffd")
        assert row["tags"] == ["t\ufffd"]


def test_show_says_where_a_run_comes_from_and_what_came_of_it(desk, table):
    shown = valid(desk.quick("runs", "show", "c0", "--json"))
    assert (shown["parent"], shown["children"]) == ("a0", [])
    assert desk.quick("runs", "show", "a0", "--json").document["children"] == ["c0"]
    assert "began from a checkpoint of run a0 (a0)" in desk.quick("runs", "show", "c0").out
    of_parent = desk.quick("runs", "show", "a0").out
    assert "1 run began from a checkpoint of it" in of_parent and "c0     run c0" in of_parent


@pytest.mark.parametrize(
    "reference",
    ["../../etc", "/etc", "a/../../b", ".", "..", "x" * 300, "-rf", "a\x00b"],
    ids=ascii,
)
@pytest.mark.parametrize("verb", ["show", "tag", "note", "pin", "mv", "tail", "export", "diff"])
def test_a_reference_that_is_no_run_reaches_nothing(desk, table, verb, reference):
    before = tree_hash(desk.folder, desk.home / "runs")
    more = {"tag": ["t"], "note": ["t"], "mv": ["./elsewhere"], "diff": ["a0"]}.get(verb, [])
    result = desk.quick("runs", verb, "--", reference, *more)
    assert result.code in (2, 3), result
    assert tree_hash(desk.folder, desk.home / "runs") == before


def test_a_run_is_moved_and_everything_goes_on(desk, table, hold):
    holder = hold(table["a0"].run_lock)
    refused = desk.quick("runs", "mv", "a0", "./elsewhere", "--json")
    assert (refused.code, refused.error["code"]) == (8, "in_use")
    assert not (desk.folder / "elsewhere").exists()
    holder.communicate()
    (moved,) = valid(desk.quick("runs", "mv", "a0", "./elsewhere", "--json"))["moved"]
    place = desk.folder / "elsewhere" / "a0"
    assert (moved["path"], moved["copied"], moved["indexed"]) == (str(place), False, True)
    shown = valid(desk.quick("runs", "show", "a0", "--json"))
    assert shown["run"]["path"] == str(place) and shown["run"]["loss"] == 1.0
    desk.quick("runs", "tag", "a0", "moved")
    assert ids(desk, "tag:moved") == ["a0"]
    assert desk.quick("runs", "mv", "nobody", "./elsewhere").code == 3
    assert desk.quick("runs", "mv", "a1", "elsewhere/a0").code == 0  # a folder like any other
    assert desk.quick("runs", "mv", "elsewhere/a0/a1", "b0", "out").code == 0
    assert sorted(ids(desk)) == ["a0", "a1", "b0", "c0"]


def test_a_rebuild_changes_nothing_that_is_shown(desk, table):
    """Tag, note, pin, import, delete another's folder: both lists and every page stay the same."""
    desk.quick("runs", "tag", "a0", "best", "of all")
    desk.quick("runs", "note", "a1", "gradient spikes")
    desk.quick("runs", "pin", "b0")
    _import(desk)
    shutil.rmtree(table["c0"].path)
    asked = [("ls",), ("ls", "--group"), ("ls", "spikes"), ("ls", "lr>1e-4"), ("ls", "tag:best")]
    asked += [("show", row) for row in ids(desk)]

    def told():
        return [desk.quick("runs", *words, "--json").out for words in asked]

    before = told()
    assert desk.quick("db", "rebuild").code == 0
    assert told() == before


def _import(desk):
    """A run that came from a CSV file, where this Albor can import."""
    from albor_core.cli.runs.group import runs

    if "import" in runs.entries:
        (desk.folder / "old.csv").write_text("step,train/loss\n1,3.0\n2,2.5\n")
        result = desk.quick("runs", "import", "old.csv", "--json")
        assert result.code == 0, result


def test_the_run_table_loads_no_more_than_it_needs(desk, table):
    """0.1 s is what a person waits without noticing: nothing heavy is imported on the way."""
    code = (
        "import sys; from albor_core.cli.main import cli;"
        " cli.main(['runs', 'ls', 'lr>1e-4', '--json'], standalone_mode=False);"
        " print(*sorted(sys.modules), file=sys.stderr)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True,
                          cwd=ROOT)  # fmt: skip
    heavy = {
        *("pydantic", "sqlite_utils", "yaml", "numpy", "torch", "textual", "psutil", "pynvml"),
        *("hashlib", "asyncio", "subprocess", "tempfile", "albor_core.config.load"),
        *(
            "albor_core.feed.view.run_view",
            "albor_core.store.query.reader",
            "albor_core.store.index",
        ),
    }
    assert heavy & set(done.stderr.split()) == set()


def publish(run, step, *, attempt=1, ago_s=0.0, phase="training", **fields):
    """Write a live state as a loop would have `ago_s` ago."""
    writer = StateWriter(run.state, run_id=run.id, attempt=attempt, nonce="n")
    writer.fields = {"global_step": step, "eta_seconds": 360.0, "max_steps": 500, **fields}
    writer.phase(phase)
    state = read_json(run.state)
    written = {"mono_ns": state["mono_ns"] - int(ago_s * 1e9), "wall": state["wall"] - ago_s}
    write_json(run.state, {**state, **written})


def looks(desk, run):
    """The run as the table, the page of one run and the monitor's line have it."""
    (row,) = valid(desk.quick("runs", "ls", f"id:{run.id}", "--json"))["runs"]
    made = valid(desk.quick("runs", "show", run.id, "--json"))
    line = desk.quick("monitor", run.id, "--once").out
    (table,) = desk.quick("runs", "ls", f"id:{run.id}").out.splitlines()[-1:]
    return row, made, line, table


def test_the_newest_of_store_and_state_is_shown_of_a_run_at_work(desk, table, hold):
    run = table["c0"]
    hold(run.run_lock)
    publish(run, 321, loss=0.25, val_loss=8.5, val_step=300)
    row, made, line, text = looks(desk, run)
    assert (row["last_step"], row["loss"], row["status"]) == (321, 0.25, "running")
    assert (made["run"]["last_step"], made["run"]["loss"]) == (321, 0.25)
    assert "step 321/500" in line
    assert "val 8.5000 (step 300)" in line  # not of the step that stands beside it
    assert "eta 6m" in line
    assert "321/" in text or " 321 " in text


def test_a_silent_run_says_so_before_it_is_stalled_and_has_no_time_of_arrival(desk, table, hold):
    run = table["c0"]
    hold(run.run_lock)
    publish(run, 321, step_ms=100.0, ago_s=125.0)
    row, made, line, text = looks(desk, run)
    assert row["status"] == made["status"] == "running"
    assert 125.0 <= row["silent_s"] < 300.0
    assert 125.0 <= made["silent_s"] < 300.0
    assert "silent 2m" in text
    assert "silent 2m" in line
    assert "eta" not in line
    assert "no news for 2m" in desk.quick("runs", "show", run.id).out


def test_while_a_life_starts_the_step_of_the_one_before_is_shown_nowhere(desk, table, hold):
    run = table["c0"]
    publish(run, 321, loss=0.25)
    write_json(run.guard / "guard.json", {"state": "starting", "attempt": 2})
    hold(run.run_lock)
    row, made, line, text = looks(desk, run)
    assert (row["last_step"], made["run"]["last_step"]) == (None, None)
    assert "321" not in line + text
    publish(run, 300, attempt=2, loss=0.5)
    row, made, line, text = looks(desk, run)
    assert (row["last_step"], made["run"]["last_step"]) == (300, 300)


def test_a_life_that_starts_without_its_guard_is_at_no_step_either(desk, table, hold):
    run = table["c0"]
    publish(run, 321, loss=0.25)
    write_json(run.guard / "guard.json", {"state": "running", "attempt": 1})
    publish(run, 0, attempt=2, loss=None, phase="initializing")
    hold(run.run_lock)
    row, _, _, text = looks(desk, run)
    assert (row["status"], row["last_step"]) == ("unguarded", None)
    assert "unguarded     - " in text


def test_a_program_that_told_of_no_step_is_at_none(desk):
    record(desk.folder / "out", "mute", losses=())
    heads = desk.quick("runs", "ls", "id:mute").out.splitlines()[-2].split()
    told = ["step", "duration", "alerts"]
    assert heads[-3:] == told, "columns that say nothing of any run take no room"
    shown = desk.quick("runs", "ls", "id:mute", "--columns", "step,alerts").out.split()
    assert shown[-2:] == ["-"] * 2


def test_a_killed_run_is_shown_at_the_step_where_its_journal_ends(desk, table):
    run = table["c0"]
    journal = Journal(run.journal, attempt=1)
    journal.metrics(321, {"train/loss": 0.125})
    journal.close()
    publish(run, 0, ago_s=100.0)
    row, made, line, _ = looks(desk, run)
    assert (row["status"], row["last_step"], row["loss"]) == ("lost", 321, 0.125)
    assert (made["run"]["last_step"], made["run"]["loss"]) == (321, 0.125)
    assert "step 321/500" in line


def test_a_view_of_the_cockpit_fills_what_the_command_line_does_not_say(desk, table):
    views = ViewsFile(desk.home / "views.yaml")
    views.save("by lr", View(filter="-status:active lr<5e-3", columns=("name", "lr"), sort="lr"))
    views.save("turned", View(sort="name", is_reversed=True))
    shown = valid(desk.quick("runs", "ls", "--view", "by lr", "--json"))
    assert [row["values"] for row in shown["runs"]] == [{"lr": lr} for lr in (1e-3, 1e-3, 3e-4)]
    assert ids(desk, "--view", "by lr", "--sort", "id", "--reverse") == ["b0", "a1", "a0"]
    assert ids(desk, "id:c0", "--view", "by lr") == ["c0"], "a filter of the line is the only one"
    assert ids(desk, "--view", "turned") == ["c0", "b0", "a1", "a0"]
    assert ids(desk, "--view", "turned", "--reverse") == ["a0", "a1", "b0", "c0"]


def test_a_view_of_a_file_that_cannot_be_read_says_why(desk, table, monkeypatch):
    def closed(file: ViewsFile):
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(ViewsFile, "_document", closed)
    said = desk.quick("runs", "ls", "--view", "by lr")
    assert said.code == 2
    assert f"cannot read {desk.home / 'views.yaml'}: Permission denied" in said.err
    assert "has 0 views" not in said.err


def test_a_view_of_what_is_gone_says_so_and_shows_the_rest(desk, table):
    views = ViewsFile(desk.home / "views.yaml")
    views.save("old", View(columns=("name", "val/gone", "lr"), sort="val/gone"))
    result = desk.quick("runs", "ls", "--view", "old")
    assert result.code == 0 and "val/gone" in result.out.splitlines()[0]
    assert "no run has val/gone, of the view's columns" in result.err
    assert "no run has val/gone, which the view sorts by" in result.err
    lost = desk.quick("runs", "ls", "--view", "odl")
    assert lost.code == 3 and str(views.path) in lost.err and "'old'" in lost.err
    views.path.write_text("views: [")
    damaged = desk.quick("runs", "ls", "--view", "old", "--json")
    assert damaged.code == 2 and str(views.path) in damaged.error["message"]
    assert views.path.exists()
