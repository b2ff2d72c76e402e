"""Random histories that the peers' own libraries wrote come with every value at its step, or are
counted.

`peers/write_all.py` wrote the ones kept in `peers/PEER.tar.xz`, ten of each peer; `make peers`
writes two hundred of each and names their folder in ALBOR_PEERS. There two hundred curves that
every peer keeps alike are compared as well, each pair of peers by `albor runs diff`.
"""

import json
import os
import tarfile
from pathlib import Path

import pytest
from click.testing import CliRunner

from albor_core.cli.main import cli
from albor_core.run.rundir import RunDir
from albor_core.store.query.reader import Reader

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent / "peers"
PEERS = sorted(path.stem.removeprefix("peer_") for path in HERE.glob("peer_*.py"))
WORDS = {"csv": ("--from", "csv"), "trainer": ("--from", "json")}
SINGLE = {"tensorboard": 2.0**-23}  # keeps single precision


def written(peer, folder, *, alike=False):
    """Where the files of a peer and their truth lie."""
    if given := os.environ.get("ALBOR_PEERS"):
        return Path(given) / ("alike" if alike else "") / peer
    with tarfile.open(HERE / f"{peer}.tar.xz") as archive:
        archive.extractall(folder, filter="data")
    return folder / peer


def bring(path, *words):
    done = CliRunner().invoke(cli, ["runs", "import", "--json", str(path), *words])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    return json.loads(done.stdout)


def differences(peer, truth, run):
    """What is not as it should be, in words."""
    relative = SINGLE.get(peer, 0.0)
    with Reader(RunDir(Path(run["path"])).store) as reader:
        known = set(reader.summary(run["run"]))
        for key, wanted in truth["metrics"].items():
            found = [point[:2] for point in reader.points(run["run"], key)] if key in known else []
            if [step for step, _ in found] != [step for step, _ in wanted]:
                yield f"{key}: steps {[s for s, _ in found][:9]}, not {[s for s, _ in wanted][:9]}"
                continue
            for (step, value), (_, other) in zip(found, wanted, strict=True):
                if repr(value) != repr(float(other)) and not abs(value - other) <= abs(
                    other * relative
                ):
                    yield f"{key} at {step}: {value}, not {other}"
                    break
    if run["unmapped"] != truth["counts"]:
        yield f"counted {run['unmapped']}, not {truth['counts']}"
    if run["odd"].keys() - {"step_backwards"}:
        yield f"odd {run['odd']}"


@pytest.mark.parametrize("peer", PEERS)
def test_every_value_that_a_peer_recorded_comes_at_its_step_or_is_counted(tmp_path, peer):
    folder = written(peer, tmp_path)
    truths = json.loads((folder / "truth.json").read_text())
    document = bring(folder / "files", *WORDS.get(peer, ()))
    assert document["problems"] == []
    runs = {run["name"]: run for run in document["runs"]}
    assert sorted(runs) == sorted(truth["name"] for truth in truths)
    wrong = [
        f"{truth['name']}: {what}"
        for truth in truths
        for what in differences(peer, truth, runs[truth["name"]])
    ]
    assert wrong == []


def compared(*runs):
    """What `albor runs diff` says of runs, each compared with the first."""
    done = CliRunner().invoke(cli, ["runs", "diff", "--json", *runs])
    assert done.exit_code == 0, done.output
    return json.loads(done.stdout)


def _both_end_in_nan(verdict):
    return verdict["reason"] == "not_finite" and verdict["detail"].startswith("both are")


def found_apart(said):
    """What a comparison found to differ, in words."""
    for verdict in said["verdicts"]:
        # of few points that are the same, or two ends in NaN, there is no verdict: no difference
        is_same = verdict["outcome"] is None and verdict["difference"] == 0
        if not (verdict["outcome"] == "indistinguishable" or is_same or _both_end_in_nan(verdict)):
            yield f"{verdict['run']}: {verdict['outcome']}: {verdict['detail']}"
    for key, stats in said["metrics"].items():
        for word in ("count", "first_step", "last_step", "nonfinite", "axis"):
            if len(found := {(stat or {}).get(word) for stat in stats}) > 1:
                yield f"{key}: {word} is one of {found}"
    yield from (f"config {key}" for key in said["config"])


def test_one_curve_by_any_two_peers_is_the_same_curve(tmp_path):
    runs = {}
    for peer in PEERS:
        folder = written(peer, tmp_path, alike=True)
        document = bring(folder / "files", *WORDS.get(peer, ()))
        runs[peer] = {run["name"]: run["run"] for run in document["runs"]}
    is_whole = "ALBOR_PEERS" in os.environ
    names = [n for n in runs["csv"] if is_whole or n in ("steps-000", "nan-005", "splits-006")]
    several = [PEERS[at:] for at in range(len(PEERS) - 1 if is_whole else 1)]
    wrong, pairs = [], 0
    for peers in several:
        for name in names:
            said = compared(*(runs[peer][name] for peer in peers))
            pairs += len(said["verdicts"])
            wrong += [f"{name} by {' '.join(peers)}: {what}" for what in found_apart(said)]
        print(
            f"{peers[0]} and each of {' '.join(peers[1:])}: {len(names)} curves, {len(wrong)} wrong"
        )
    print(f"{pairs:,} pairs of peers compared")
    assert wrong == [] and names
