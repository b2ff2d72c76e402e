"""`albor runs import`: files that the real peers wrote become runs, whole, once, and honestly."""

import json
import math
import os
import random
import shutil
import sqlite3
import struct
import sys
import tarfile
import zlib
from contextlib import closing
from pathlib import Path

import jsonschema
import pytest
from click.testing import CliRunner
from peer_series import CONFIG, SECRET, STEPS, accuracy, loss, rate

from albor_core.cli.main import cli
from albor_core.documents.json_schema import schema_of
from albor_core.feed.run.status import run_status
from albor_core.integrations.importers import find, run_import, tensorboard, wandb
from albor_core.integrations.importers.foreign import ForeignRun, Losses, Point, Rewind
from albor_core.integrations.importers.formats import protobuf
from albor_core.integrations.importers.steps.placed import Placed
from albor_core.run.errors import AlborError, DataError, NotFoundError, UsageError
from albor_core.run.rundir import RunDir
from albor_core.store.file import paths
from albor_core.store.file.paths import global_store
from albor_core.store.query.reader import Reader

pytestmark = pytest.mark.slow  # in sum; `make check` is under a minute

PEERS = Path(__file__).parent / "fixtures" / "peers.tar.gz"
SINGLE = 2.0**-23  # TensorBoard keeps single precision: half a unit in the last place, twice


@pytest.fixture
def peers(tmp_path):
    with tarfile.open(PEERS) as archive:
        archive.extractall(tmp_path / "peers", filter="data")
    return tmp_path / "peers"


def bring(*words):
    """The document of `albor runs import`, which fits its schema."""
    done = CliRunner().invoke(cli, ["runs", "import", "--json", *map(str, words)])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    document = json.loads(done.stdout)
    schema = schema_of("albor.runs.import")
    jsonschema.validate(document, schema)
    return document


def by_name(document):
    return {run["name"]: run for run in document["runs"]}


def stored(run, key):
    """{step: value} from the run's own store."""
    with Reader(RunDir(Path(run["path"])).store) as reader:
        return {point[0]: point[1] for point in reader.points(run["run"], key)}


def assert_series(run, key, truth, steps=STEPS, relative=0.0):
    found = stored(run, key)
    assert list(found) == list(steps)
    for step, value in found.items():
        wanted = truth(step)
        if math.isfinite(wanted):
            assert abs(value - wanted) <= relative * abs(wanted), (key, step)
        else:
            assert repr(value) == repr(wanted), (key, step)


def params(run):
    with Reader(RunDir(Path(run["path"])).store) as reader:
        return reader.params(run["run"])


TENTHS = [step for step in STEPS if step % 10 == 0]


# -- what each peer wrote -------------------------------------------------------------------------


def test_tensorboard_scalars_come_whole_and_a_purge_leaves_no_ghost(peers):
    runs = by_name(bring(peers / "tb-x"))
    assert set(runs) == {"train", "eval"}  # what add_hparams made below eval is of eval
    train = runs["train"]
    # the first attempt logged -1 from step 31 on, which the second took back
    assert_series(train, "train/loss", loss, relative=SINGLE)
    assert_series(train, "optim/rate", rate, relative=SINGLE)
    assert (train["unmapped"], train["media"]) == ({"taken back": 20}, 3)
    assert (train["damaged"], train["last_step"], train["experiment"]) == (0, 40, "tb-x")
    assert_series(runs["eval"], "accuracy", accuracy, TENTHS, SINGLE)
    assert params(runs["eval"]) == CONFIG


def test_scalars_that_are_tensors_are_scalars_too(peers):
    (run,) = bring(peers / "tb-2")["runs"]
    assert_series(run, "train/loss", loss, relative=SINGLE)
    with Reader(RunDir(Path(run["path"])).store) as reader:
        walls = {point[0]: point[2] for point in reader.points(run["run"], "train/loss")}
    assert walls == {step: 1_700_000_000.0 + step for step in STEPS}


def test_a_wandb_run_keeps_history_config_words_and_its_end(peers):
    runs = by_name(bring(peers / "wandb"))
    good, bad = runs["a finished run"], runs["a failed run"]
    assert_series(good, "train/loss", loss)
    assert_series(good, "optim/rate", rate)
    assert_series(good, "val/accuracy", accuracy, TENTHS)
    assert stored(good, "summary/best") == {40: accuracy(40)}
    assert good["unmapped"] == {"artifact": 1, "table-file": 1}  # whose file is not there
    assert good["media"] == 2
    assert (good["status"], bad["status"], good["experiment"]) == ("completed", "failed", "peers")
    wanted = {**CONFIG, "model.width": 64, "hub.api_key": "[redacted]"}
    assert params(good) == wanted
    with Reader(global_store()) as reader:
        assert set(reader.tags(good["run"])) == {"ablation", "seed 0"}
        assert [note.text for note in reader.notes(good["run"])] == ["first try"]
        assert reader.run(good["run"]).kind == "imported"
    assert run_status(RunDir(Path(bad["path"]))).word == "failed"


@pytest.mark.parametrize("folder", ["mlflow", "mlruns"])
def test_both_stores_of_mlflow_give_the_same_runs(peers, folder):
    runs = by_name(bring(peers / folder))
    good, bad = runs["a finished run"], runs["a failed run"]
    assert_series(good, "train/loss", loss)
    assert_series(good, "optim/rate", rate)
    assert_series(good, "accuracy", accuracy, TENTHS)
    assert params(good) == {**CONFIG, "api_key": "[redacted]"}
    assert (good["status"], bad["status"]) == ("completed", "failed")
    with Reader(global_store()) as reader:
        assert reader.tags(good["run"]) == ("ablation=yes",)
        assert [note.text for note in reader.notes(good["run"])] == ["first try"]


def test_files_of_an_mlflow_run_that_are_no_media_are_counted_as_left_out(peers):
    (meta,) = [m for m in (peers / "mlruns").rglob("meta.yaml")
               if "a finished run" in m.read_text()]  # fmt: skip
    files = meta.parent / "artifacts" / "plots"
    files.mkdir(parents=True, exist_ok=True)
    for name in ("loss.png", "report.txt"):
        (files / name).write_text("x")
    run = by_name(bring(peers / "mlruns"))["a finished run"]
    assert (run["unmapped"], run["media"]) == ({"artifact": 1}, 1)
    database = next((peers / "mlflow").rglob("*.db"))
    beside = database.parent / "my files"
    beside.mkdir()
    (beside / "model.bin").write_text("x")
    for uri, counted in (
        (f"file://{beside}".replace(" ", "%20"), {"artifact": 1}),
        ("s3://bucket/run", {"artifacts elsewhere": 1}),
        ("gone", {}),
    ):
        with sqlite3.connect(database) as db:
            db.execute("UPDATE runs SET artifact_uri = ?", (uri,))
        told = by_name(bring(peers / "mlflow"))["a finished run"]["unmapped"]
        assert told == counted or (told is None and not counted)


def test_a_trackio_project_gives_its_runs(peers):
    runs = by_name(bring(peers / "trackio"))
    good = runs["a-finished-run"]
    assert_series(good, "train/loss", loss)
    assert_series(good, "optim/rate", rate)
    assert_series(good, "accuracy", accuracy, TENTHS)
    assert_series(runs["another-run"], "train/loss", loss, [1, 2, 3])
    assert params(good) == {**CONFIG, "api_key": "[redacted]"}
    assert (good["unmapped"], good["media"]) == ({}, 1)


def test_plain_tables_are_read_by_the_names_of_their_columns(tmp_path):
    rows = [(step, loss(step), rate(step)) for step in STEPS]
    path = tmp_path / "plain.csv"
    lines = [f"{step},{value!r},{lr!r},x," for step, value, lr in rows]
    path.write_text("\ufeffStep,loss,lr,note,empty\r\n" + "\r\n".join(lines))
    (run,) = bring(path)["runs"]
    assert_series(run, "train/loss", loss)
    assert_series(run, "optim/lr", rate)
    assert (run["unmapped"], run["damaged"]) == ({"text": 40}, 0)
    other = tmp_path / "rows.jsonl"
    bodies = [{"global_step": step, "m": {"loss": value, "word": "x"}} for step, value, _ in rows]
    other.write_text("".join(json.dumps(body) + "\n" for body in bodies) + '{"torn": ')
    (run,) = bring(other)["runs"]
    assert_series(run, "m/loss", loss)
    assert (run["unmapped"], run["damaged"]) == ({"text": 40}, 1)


def test_a_run_whose_source_does_not_say_how_it_ended_says_so_wherever_it_is_shown(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("step,loss\n1,2.5\n2,2.25\n")
    (run,) = bring(path)["runs"]
    untold = "the source does not say how it ended"
    status = run_status(RunDir(Path(run["path"])))
    assert (status.word, status.detail) == ("completed", f"{untold}: imported from csv")
    shown = CliRunner().invoke(cli, ["runs", "show", run["run"]])
    assert f"completed: {untold}" in " ".join(shown.output.split())
    shown = json.loads(CliRunner().invoke(cli, ["runs", "show", run["run"], "--json"]).stdout)
    assert (shown["run"]["ended_status"], shown["run"]["ended_reason"]) == ("completed", untold)
    retried = CliRunner().invoke(cli, ["guard", "retry", run["run"]])
    assert isinstance(retried.exception, UsageError)
    assert "it was imported: its program is not known here" in retried.exception.message


@pytest.mark.parametrize("form", ["csv", "jsonl"])
def test_what_we_export_can_be_imported_again(peers, tmp_path, form):
    (first, *_) = bring(peers / "wandb")["runs"]
    path = tmp_path / f"out.{form}"
    done = CliRunner().invoke(cli, ["runs", "export", first["run"], "-o", str(path)])
    assert done.exit_code == 0, done.output
    (again,) = bring(path)["runs"]
    assert again["experiment"] == "peers"
    assert again["points"] == first["points"]
    assert_series(again, "train/loss", loss)


@pytest.mark.parametrize(
    ("kind", "shape", "value", "tensor"),
    [  # as tensor_util.make_tensor_proto of TensorBoard 2.21 wrote them
        ("float64", (), 3.0, "0802120032080000000000000840"),
        ("float32", (1,), 3.0, "08011204120208012a0400004040"),
        ("float32", (2,), None, "080112041202080222080000404000004040"),
        ("float16", (), 3.0, "081312006a03808401"),
        ("int64", (), -5.0, "08091200520afbffffffffffffffff01"),
        ("int32", (), -5.0, "080312003a0afbffffffffffffffff01"),
        ("bool", (), 1.0, "080a12005a0101"),
        ("uint8", (1,), 3.0, "08041204120208013a0103"),
        ("uint64", (), 3.0, "081712008a010103"),
    ],
)
def test_a_tensor_of_one_element_is_a_number_in_every_type(kind, shape, value, tensor):
    summary = bytes.fromhex(tensor)
    body = b"\x0a\x01x\x42" + bytes((len(summary),)) + summary  # Summary.Value: tag, tensor
    found, losses = {}, Losses()
    assert tensorboard._take_value(body, (1, None), found, {}, losses) == []
    assert found == ({} if value is None else {"x": value})
    assert losses.unmapped == ({} if value is not None else {"value of no known kind": 1})


# -- once, and again ------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", ["tb-x", "tb-2", "wandb", "mlflow", "mlruns", "trackio"])
def test_a_second_import_changes_nothing_wherever_the_files_lie(peers, tmp_path, folder):
    first = bring(peers / folder)
    assert {run["change"] for run in first["runs"]} == {"new"}
    before = {run["run"]: Path(run["path"], "journal.jsonl").read_bytes() for run in first["runs"]}
    if folder != "tb-2":  # the name of a run is that of its folder there
        (peers / folder).rename(tmp_path / folder)
        again = bring(tmp_path / folder)
    else:
        again = bring(peers / folder)
    assert {run["change"] for run in again["runs"]} == {"unchanged"}
    after = {run["run"]: Path(run["path"], "journal.jsonl").read_bytes() for run in again["runs"]}
    assert before == after


def test_a_history_that_grew_is_extended_and_an_older_copy_takes_nothing_back(tmp_path):
    path = tmp_path / "grows.csv"
    path.write_text("step,loss\n1,3.0\n2,2.0\n")
    (first,) = bring(path)["runs"]
    path.write_text("step,loss\n1,3.0\n2,2.0\n3,1.0\n")
    (second,) = bring(path)["runs"]
    assert (second["run"], second["change"]) == (first["run"], "extended")
    assert stored(second, "train/loss") == {1: 3.0, 2: 2.0, 3: 1.0}
    path.write_text("step,loss\n1,3.0\n2,2.0\n")
    (third,) = bring(path)["runs"]
    assert third["change"] == "unchanged"
    path.write_text("step,loss\n1,9.0\n")
    (fourth,) = bring(path)["runs"]
    assert fourth["change"] == "replaced"
    assert stored(fourth, "train/loss") == {1: 9.0}
    with Reader(global_store()) as reader:
        assert [row.id for row in reader.runs()] == [first["run"]]


def test_a_history_whose_store_lies_beside_a_network_mount_is_replaced_as_well(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(paths, "file_system", lambda path: "nfs4")
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    path = tmp_path / "grows.csv"
    path.write_text("step,loss\n1,3.0\n2,2.0\n")
    bring(path)
    path.write_text("step,loss\n1,9.0\n")
    (run,) = bring(path)["runs"]
    with Reader(paths.local_store(RunDir(Path(run["path"])))) as reader:
        found = [point[:2] for point in reader.points(run["run"], "train/loss")]
    assert (run["change"], found) == ("replaced", [(1, 9.0)])


def test_a_growing_event_file_is_followed_from_import_to_import(peers):
    path = next((peers / "tb-2").iterdir())
    whole = path.read_bytes()
    path.write_bytes(whole[: len(whole) // 2])  # inside a record, as a live writer leaves it
    (half,) = bring(peers / "tb-2")["runs"]
    assert half["unmapped"] == {"torn record at the end of a file": 1}
    path.write_bytes(whole)
    (run,) = bring(peers / "tb-2")["runs"]
    assert run["run"] == half["run"]
    assert_series(run, "train/loss", loss, relative=SINGLE)


def test_an_import_that_was_killed_is_finished_by_the_next(peers, albor_home):
    (run,) = bring(peers / "tb-2")["runs"]
    Path(run["path"], "journal.jsonl").unlink()  # as a kill before the last step leaves it
    (albor_home / "runs" / ".import.jsonl").write_text("half a jour")
    (again,) = bring(peers / "tb-2")["runs"]
    assert again["run"] == run["run"]
    assert_series(again, "train/loss", loss, relative=SINGLE)
    assert not (albor_home / "runs" / ".import.jsonl").exists()


def test_two_imports_at_once_are_one_after_the_other(peers):
    with run_import.one_at_a_time():
        error = refused(peers / "tb-2")
    assert (error.exit_code, "another import" in error.message) == (8, True)


def test_what_people_did_to_an_imported_run_stays(peers):
    run = by_name(bring(peers / "wandb"))["a finished run"]
    for words in (("tag", run["run"], "ablation", "--remove"), ("tag", run["run"], "mine")):
        assert CliRunner().invoke(cli, ["runs", *words]).exit_code == 0
    bring(peers / "wandb")
    with Reader(global_store()) as reader:
        assert set(reader.tags(run["run"])) == {"seed 0", "mine"}
        assert len(reader.notes(run["run"])) == 1


def test_imported_runs_come_back_from_their_journals(peers):
    bring(peers / "wandb")
    shown = CliRunner().invoke(cli, ["runs", "ls", "--json"]).output
    global_store().unlink()
    assert CliRunner().invoke(cli, ["db", "rebuild", "--json"]).exit_code == 0
    assert CliRunner().invoke(cli, ["runs", "ls", "--json"]).output == shown


def test_a_copy_in_the_same_folder_is_the_same_run(peers):
    shutil.copytree(peers / "tb-2", peers / "both" / "one")
    shutil.copytree(peers / "tb-2", peers / "both" / "two")
    document = bring(peers / "both")
    assert [run["name"] for run in document["runs"]] == ["one"]
    assert "a copy of" in document["problems"][0]["message"]


def test_the_experiment_can_be_chosen(peers):
    (run,) = bring(peers / "tb-2", "--experiment", "old times")["runs"]
    assert run["experiment"] == "old times"


# -- bad input ------------------------------------------------------------------------------------


def refused(*words):
    done = CliRunner().invoke(cli, ["runs", "import", *map(str, words)])
    assert isinstance(done.exception, AlborError), (done.output, done.exception)
    return done.exception


def test_what_could_carry_code_is_refused_unopened(tmp_path, albor_home):
    ran = tmp_path / "ran"
    canary = f"cos\nsystem\n(S'touch {ran}'\ntR.".encode()
    for name in ("model.pt", "pytorch_model.bin", "x.pkl", "x.npy", "x.ckpt", "x.safetensors"):
        (tmp_path / name).write_bytes(canary)
        error = refused(tmp_path / name)
        assert (error.exit_code, "was not opened" in error.message) == (7, True)
    disguised = tmp_path / "history.csv"
    disguised.write_bytes(b"\x80\x04\x95" + canary)
    assert refused(disguised).exit_code == 7
    assert "6 files of weights, arrays or pickles" in refused(tmp_path).message
    assert not ran.exists()
    assert not list(albor_home.glob("runs/*.json"))


@pytest.mark.parametrize(
    ("make", "code", "says"),
    [
        (lambda path: None, 3, "no such file"),
        (lambda path: path.mkdir(), 7, "no history"),
        (lambda path: path.write_bytes(b""), 7, "empty"),
        (lambda path: path.write_bytes(os.urandom(64) + b"\0"), 7, "no history"),
        (lambda path: path.write_text("a,b\nx,y\n"), 7, "no number"),
        (lambda path: path.write_text("a,a\n1,2\n"), 7, "stands twice"),
        (lambda path: os.mkfifo(path), 7, "neither a file nor a folder"),
        (lambda path: sqlite3.connect(path).execute("CREATE TABLE t (a)"), 7, "not one of"),
        (lambda path: path.write_bytes(b"SQLite format 3\0" + b"\1" * 200), 7, "database"),
        (lambda path: path.write_bytes(b":W&B\xe1\xbe\0"), 7, "no run record"),
    ],
)
def test_bad_input_is_one_clear_error_and_makes_nothing(tmp_path, albor_home, make, code, says):
    path = tmp_path / "given"
    make(path)
    error = refused(path)
    assert (error.exit_code, says in error.message) == (code, True), error
    assert str(path) in error.message
    assert not list(albor_home.glob("runs/*"))[1:]  # the import's own lock at most


def test_a_folder_with_several_kinds_names_them_and_takes_the_one_asked_for(peers):
    error = refused(peers)
    assert error.exit_code == 7
    assert "mlflow (3), tensorboard (5), trackio (1), wandb (2)" in error.message
    assert "--from" in error.hint
    assert {run["source"] for run in bring(peers, "--from", "trackio")["runs"]} == {"trackio"}
    assert refused(peers / "trackio" / "peers.db", "--from", "mlflow").hint == "--from trackio"


def test_a_text_that_is_only_called_like_an_event_file_is_passed_over_in_a_folder(tmp_path):
    (tmp_path / "about.tfevents.txt").write_text("step,loss\n1,2\n")
    (tmp_path / "notes.wandb").write_text("nothing\n")
    (tmp_path / "metrics.csv").write_text("step,loss\n1,2\n")
    assert "no history of a kind that is known" in refused(tmp_path).message
    assert "no history of MLflow" in refused(tmp_path, "--from", "mlflow").message
    assert find.find(tmp_path, "csv").files == (tmp_path / "metrics.csv",)


def test_a_file_of_no_known_kind_is_refused_with_what_people_call_the_kinds(tmp_path):
    path = tmp_path / "odd"
    path.write_bytes(b"a\0b")
    known = (
        "TensorBoard, W&B (offline), MLflow, trackio, Neptune (exported), CSV, JSON lines and JSON"
    )
    assert refused(path).hint == f"known are {known}"


def test_an_unreadable_file_costs_only_itself(peers):
    bad = peers / "wandb" / "offline-run-x" / "run-x.wandb"
    bad.parent.mkdir()
    bad.write_bytes(b":W&B\xe1\xbe\0" + b"\xff" * 100)
    document = bring(peers / "wandb")
    assert len(document["runs"]) == 2
    assert [problem["path"] for problem in document["problems"]] == [str(bad)]
    done = CliRunner().invoke(cli, ["runs", "import", str(peers / "wandb")], standalone_mode=False)
    assert done.return_value == 7


def test_a_damaged_record_in_the_middle_is_skipped_and_counted(peers):
    path = next((peers / "tb-2").iterdir())
    raw = bytearray(path.read_bytes())
    second = 12 + struct.unpack_from("<Q", raw)[0] + 4
    third = second + 12 + struct.unpack_from("<Q", raw, second)[0] + 4
    raw[third + 20] ^= 0xFF  # in the payload: the framing still holds
    path.write_bytes(raw)
    (run,) = bring(peers / "tb-2")["runs"]
    assert run["damaged"] == 1
    assert len(stored(run, "train/loss")) == len(STEPS) - 1
    raw[third + 8] ^= 0xFF  # the length's own CRC: nothing after it can be found
    path.write_bytes(raw)
    losses = Losses()
    assert len(list(tensorboard.records(path, losses))) == 2
    assert losses.damaged == 1
    assert losses.unmapped["bytes after a damaged length"] == len(raw) - third


def test_a_wandb_log_is_read_past_damage_and_up_to_its_torn_end(peers):
    (path,) = (peers / "wandb").glob("*failed01/*.wandb")
    raw = bytearray(path.read_bytes())
    whole = len(list(wandb.records(path, Losses())))
    middle = raw.index(b"2.7142301778890", 1000)
    raw[middle] ^= 0x01
    path.write_bytes(raw)
    losses = Losses()
    assert len(list(wandb.records(path, losses))) == whole - 1
    assert losses.damaged == 1
    path.write_bytes(raw[:-5])
    losses = Losses()
    list(wandb.records(path, losses))
    assert losses.unmapped == {"torn record at the end of a file": 1}


def test_a_wandb_record_may_span_blocks(tmp_path):
    def chunk(kind, data):
        crc = zlib.crc32(data, zlib.crc32(bytes((kind,))))
        return struct.pack("<IHB", crc, len(data), kind) + data

    body = os.urandom(80_000)
    first, second = 32768 - 7 - 7, 32768 - 7
    path = tmp_path / "long.wandb"
    parts = (body[:first], body[first : first + second], body[first + second :])
    path.write_bytes(b":W&B\xe1\xbe\0" + b"".join(map(chunk, (2, 3, 4), parts)))
    losses = Losses()
    assert list(wandb.records(path, losses)) == [body]
    assert (losses.damaged, losses.unmapped) == (0, {})


@pytest.mark.parametrize(
    ("item", "path", "value"),
    [
        (b"\x0a\x01a\x28\x05", ["a"], -3),  # sint64
        (b"\x0a\x01a\x20\x01", ["a"], True),
        (b"\x0a\x01a\x31" + struct.pack("<d", 0.5), ["a"], 0.5),
        (b"\x0a\x01a\x42\x02[1", ["a"], None),  # no JSON
        (b"\x0a\x01a\x28", ["a"], None),
        (b"\x12\x01a\x12\x01b\x82\x01\x03NaN", ["a", "b"], "nan"),
    ],
)
def test_a_wandb_item_may_carry_its_value_in_several_ways(item, path, value):
    if value is None:
        with pytest.raises(protobuf.ProtobufError):
            wandb._item(item)
    else:
        assert repr(wandb._item(item)) == repr((path, math.nan if value == "nan" else value))


@pytest.mark.parametrize(
    "message",
    [
        b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7f",  # a length of 2^62
        b"\x0a\x05ab",  # shorter than it says
        b"\x80" * 11,  # a varint without an end
        b"\x0b",  # a group
        b"\x02\x00",  # field 0
    ],
)
def test_a_hostile_message_is_refused_without_allocating(message):
    with pytest.raises(protobuf.ProtobufError):
        list(protobuf.fields(message))


def test_garbage_of_any_shape_raises_nothing_unknown(peers, tmp_path):
    """Bytes of small real files, flipped one at a time: only refusals and counts come of it."""
    sources = [next((peers / "tb-2").iterdir()), *peers.glob("wandb/*failed01/*.wandb")]
    for source in sources:
        raw = source.read_bytes()[:1500]
        folder = tmp_path / source.suffix.strip(".")
        folder.mkdir()
        path = folder / source.name
        for at in range(0, len(raw), 7):
            spoilt = bytearray(raw)
            spoilt[at] ^= 0xFF
            path.write_bytes(spoilt)
            try:
                for foreign in find.find(path).runs():
                    if hasattr(foreign, "items"):
                        list(foreign.items(Losses()))
            except (DataError, NotFoundError):
                continue


def test_steps_and_values_have_the_rules_of_the_tracker(tmp_path):
    path = tmp_path / "odd.jsonl"
    rows = [
        {"step": 3, "loss": 3.0},
        {"step": 2, "loss": 2.0},
        {"step": 3, "loss": 30.0, "other": 1},
        {"step": -1, "loss": 4.0},
        {"step": 5, "loss": "NaN", "big": 10**400, "k\u0007y": 1},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (run,) = bring(path)["runs"]
    found = stored(run, "train/loss")
    assert {step: found[step] for step in (2, 3, 4)} == {2: 2.0, 3: 30.0, 4: 4.0}
    assert math.isnan(found[5])
    assert stored(run, "big") == {5: math.inf}
    assert run["odd"] == {"step_backwards": 1, "bad_step": 1, "huge_integer": 1, "key_changed": 1}
    assert run["unmapped"] == {"replaced": 1}
    assert run["examples"]["replaced"] == {"metric": "train/loss", "step": 3, "value": 3.0}
    assert run["examples"]["step_backwards"] == {"metric": "train/loss", "step": 2, "value": 2.0}
    assert run["examples"]["bad_step"] == {"metric": "train/loss", "step": 4, "value": 4.0}


def test_every_value_that_did_not_come_as_it_was_is_counted_with_the_first_of_its_kind(tmp_path):
    path = tmp_path / "twice.csv"
    path.write_text("step,loss\n1,3.5\n2,2.5\n2,2.25\n1,3.5\n2,2\n")
    (run,) = bring(path)["runs"]
    assert stored(run, "train/loss") == {1: 3.5, 2: 2.0}
    assert run["unmapped"] == {"replaced": 2}  # the same value again is no loss
    assert run["examples"] == {"replaced": {"metric": "train/loss", "step": 2, "value": 2.5}}
    told = CliRunner().invoke(cli, ["runs", "import", str(path)])
    assert "2 replaced" in told.stdout
    assert "replaced train/loss at step 2: 2.5" in told.stderr


def test_a_history_without_steps_is_numbered_by_its_order_and_says_so(tmp_path):
    path = tmp_path / "plain.csv"
    path.write_text("loss\n3.5\n2.5\n")
    (run,) = bring(path)["runs"]
    assert stored(run, "train/loss") == {0: 3.5, 1: 2.5}
    assert run["unmapped"] == {"no step": 2}
    assert run["examples"]["no step"] == {"metric": "train/loss", "step": 0, "value": 3.5}


STATES = {
    "zeros after a loss": ([2.0] + [0.0] * 118, None, [("loss-is-zero", "train/loss")]),
    "nothing but zeros": ([0.0] * 12, None, [("loss-is-zero", "train/loss")]),
    "few zeros, and a gradient of NaN": (
        [2.0, 0.0, 0.0], math.nan, [("not-finite-optim-grad-norm", "optim/grad_norm")],
    ),
    "a loss that is small": ([2.0 / 10**step for step in range(30)], 0.1, []),
    "zeros that came to an end": ([0.0] * 60 + [1.0] * 3, 0.1, []),
}  # fmt: skip


@pytest.mark.parametrize("state", STATES)
def test_a_history_that_ends_in_a_loss_of_exactly_zero_is_told(tmp_path, state):
    losses, norm, told = STATES[state]
    history = [
        {"loss": loss, "epoch": 1.0, "step": step} | ({} if norm is None else {"grad_norm": norm})
        for step, loss in enumerate(losses, 1)
    ]
    path = tmp_path / "trainer_state.json"
    path.write_text(json.dumps({"global_step": len(losses), "log_history": history}))
    (run,) = bring(path)["runs"]
    with Reader(global_store()) as reader:
        alerts = reader.alerts(run["run"], open_only=True)
    assert [(one.rule, one.metric) for one in alerts] == told
    items = attention_of()
    assert bool(items) == bool(told)
    assert all(one["run_id"] == run["run"] for one in items)


def attention_of():
    done = CliRunner().invoke(cli, ["attention", "--json"])
    return json.loads(done.stdout)["items"]


@pytest.mark.parametrize("key", ["success_rate", "eval/return", "episode_reward", "val/reward"])
def test_a_history_whose_last_value_of_episodes_is_none_is_told(tmp_path, key):
    path = tmp_path / "run.csv"
    rows = [f"{step},{step / 20},{2.0 / step}" for step in range(1, 20)]
    path.write_text("\n".join([f"step,{key},loss", *rows, "20,nan,0.1"]))
    bring(path)
    (item,) = attention_of()
    assert item["summary"] == f"completed, but {key} was NaN from step 20"


def foreign_run(tmp_path, *items):
    return ForeignRun("csv", "k", "r", "e", tmp_path, lambda losses: iter(items))


def test_the_newest_step_is_one_that_the_source_did_not_take_back(tmp_path):
    points = [Point(step, None, {"loss": float(step), "b": 1.0}) for step in (100, 130, 150)]
    told = run_import.import_run(foreign_run(tmp_path, *points, Rewind(140)))
    run = RunDir(Path(told.path))
    assert told.last_step == 130
    assert json.loads((run.path / "exit.json").read_text())["step"] == 130
    with Reader(run.store) as reader:
        assert reader.run(run.id).last_step == 130
    assert (told.unmapped, told.examples["taken back"].step) == ({"taken back": 2}, 150)


def test_what_comes_without_a_step_after_a_rewind_goes_on_from_there(tmp_path):
    items = [Point(1, None, {"a": 1.0}), Point(9, None, {"a": 2.0}), Rewind(4)]
    told = run_import.import_run(foreign_run(tmp_path, *items, Point(None, None, {"a": 3.0})))
    with Reader(RunDir(Path(told.path)).store) as reader:
        assert [point[:2] for point in reader.points(told.run, "a")] == [(1, 1.0), (2, 3.0)]


def test_placed_tells_what_a_series_of_any_order_lost():
    """Against a dictionary, over orders with late steps, repeats and rewinds."""
    for seed in range(200):
        chance = random.Random(seed)
        placed, truth = Placed(), {}
        for value in range(60):
            step = chance.randrange(12)
            if chance.random() < 0.1:
                gone = {s: v for s, v in truth.items() if s > step}
                truth = {s: v for s, v in truth.items() if s <= step}
                wanted = len(gone), min(gone.items()) if gone else None
                assert placed.rewind(step) == wanted
            else:
                number = float(value // 2)
                before = truth.get(step)
                assert placed.put(step, number) == before
                truth[step] = number
            assert placed.last == max(truth, default=None)


def test_no_secret_of_the_source_reaches_a_file(peers, albor_home):
    for folder in ("wandb", "mlflow", "mlruns", "trackio"):
        bring(peers / folder)
    for path in albor_home.rglob("*"):
        if path.is_file():
            assert SECRET.encode() not in path.read_bytes(), path
            assert path.stat().st_mode & 0o077 == 0, path


def test_an_import_needs_no_peer_and_little_memory(tmp_path):
    """8,000 rows in less memory than they would take at once."""
    path = tmp_path / "long.csv"
    with path.open("w") as file:
        file.write("step,loss,a,b\n")
        file.writelines(f"{step},{1 / step},{step},{step}\n" for step in range(1, 8_001))
    import tracemalloc

    from albor_core.integrations.importers.find import find as look

    tracemalloc.start()
    (foreign,) = look(path).runs()
    rows = sum(1 for _ in foreign.items(Losses()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert rows == 8_000
    assert peak < 1 << 20
    assert not {"wandb", "mlflow", "trackio", "tensorboard", "tensorboardX"} & sys.modules.keys()


def mlflow_store(path):
    """A store of two runs, of which the first holds texts where numbers belong."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with closing(sqlite3.connect(path)) as db, db:
        db.executescript(
            "CREATE TABLE runs(run_uuid TEXT, name TEXT, status TEXT, start_time, end_time,"
            " experiment_id INT, lifecycle_stage TEXT);"
            "CREATE TABLE experiments(experiment_id INT, name TEXT);"
            "CREATE TABLE metrics(key TEXT, value, timestamp, run_uuid TEXT, step INT, is_nan INT);"
            "CREATE TABLE params(key TEXT, value TEXT, run_uuid TEXT);"
            "CREATE TABLE tags(key TEXT, value TEXT, run_uuid TEXT);"
            "INSERT INTO experiments VALUES(0, 'e');"
            "INSERT INTO runs VALUES('odd', 'odd', 'FINISHED', 1, 2, 0, 'active'),"
            " ('calm', 'calm', 'FINISHED', 3, 4, 0, 'active');"
            "INSERT INTO metrics VALUES('loss', 'abc', 1, 'odd', 1, 0),"
            " ('loss', 2.5, 1, 'odd', 2, 0), ('loss', 1.5, 1, 'calm', 1, 0);"
        )
    return path


def test_a_text_where_a_number_belongs_costs_its_record_only(tmp_path):
    found = by_name(bring(mlflow_store(tmp_path / "m.db")))
    assert (found["odd"]["points"], found["odd"]["damaged"]) == (1, 1)
    assert (found["calm"]["points"], found["calm"]["damaged"]) == (1, 0)


def test_a_stamp_of_four_hundred_digits_costs_its_record_only(tmp_path):
    for name in ("aaa", "bbb"):
        folder = tmp_path / "mlruns" / "0" / name
        (folder / "metrics").mkdir(parents=True)
        (folder / "meta.yaml").write_text(
            f"run_id: {name}\nrun_name: {name}\nstart_time: {'9' * 400}\nstatus: 3\n"
        )
        (folder / "metrics" / "loss").write_text(f"{'9' * 400} 1 1\n2 0.5 2\n")
    found = by_name(bring(tmp_path / "mlruns"))
    for name in ("aaa", "bbb"):
        assert (found[name]["points"], found[name]["damaged"]) == (1, 1)


def test_a_view_in_place_of_a_table_is_not_run(tmp_path):
    path = tmp_path / "view.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE VIEW metrics AS WITH RECURSIVE t(n) AS (SELECT 1 UNION ALL SELECT n + 1 FROM t)"
            " SELECT n AS id, '2024' AS timestamp, 'r' AS run_name, n AS step,"
            " '{\"loss\": 1}' AS metrics FROM t"
        )
    with pytest.raises(DataError, match="not one of MLflow or trackio"):
        find.find(path, None)


def test_a_cell_of_many_megabytes_is_refused_in_words_and_not_read(tmp_path):
    path = tmp_path / "wide.db"
    with closing(sqlite3.connect(path)) as db, db:
        db.execute(
            "CREATE TABLE metrics(id INTEGER PRIMARY KEY, timestamp TEXT, run_name TEXT,"
            " step INTEGER, metrics TEXT)"
        )
        db.execute("INSERT INTO metrics VALUES(1, '2024', 'r', 1, ?)", ("[" * (17 << 20),))
    refused = CliRunner().invoke(cli, ["runs", "import", str(path)], standalone_mode=False)
    assert isinstance(refused.exception, DataError)
    assert "too big" in refused.exception.message
