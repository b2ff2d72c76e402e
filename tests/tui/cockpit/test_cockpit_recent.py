"""Configs launched lately come first at the next start; a damaged memory is no memory."""

from __future__ import annotations

import json
import stat
from pathlib import Path

import pytest

from albor_core.run.home.folders import albor_home
from albor_tui.model import launchpad, recent
from albor_tui.model.launchpad import LiveLaunchpad
from albor_tui.model.recent import MOST, recent_configs, remember


@pytest.fixture(autouse=True)
def home():
    albor_home().mkdir(parents=True, exist_ok=True)
    return albor_home()


def test_what_was_launched_last_comes_first_and_is_for_this_user_alone(home, tmp_path):
    for name in ("a.yaml", "b.yaml", "a.yaml"):
        remember(tmp_path / name)
    assert list(recent_configs()) == [tmp_path / "a.yaml", tmp_path / "b.yaml"]
    assert stat.S_IMODE((home / "cockpit.json").stat().st_mode) == 0o600
    assert [path.name for path in home.iterdir()] == ["cockpit.json"]


def test_the_memory_is_bounded(monkeypatch, tmp_path):
    walls = iter(range(10_000))
    monkeypatch.setattr(recent.time, "time", lambda: float(next(walls)))
    for number in range(MOST + 5):
        remember(tmp_path / f"{number}.yaml")
    names = [path.stem for path in recent_configs()]
    assert names == [str(number) for number in range(MOST + 4, 4, -1)]


@pytest.mark.parametrize(
    "found",
    [
        b"", b"{", b"[]", b"null", b"\xff\xfe", b'{"configs": 3}', b'{"configs": [3, null, {}]}',
        b'{"configs": [{"path": 3, "wall": 1}, {"path": "/a", "wall": "x"}]}',
        b'{"configs": [{"path": "relative.yaml", "wall": 1}, {"path": "/a", "wall": NaN}]}',
        b"[" * 60_000,
    ],
)  # fmt: skip
def test_a_damaged_memory_is_none_and_is_written_anew(home, tmp_path, found):
    (home / "cockpit.json").write_bytes(found)
    assert recent_configs() == {}
    remember(tmp_path / "a.yaml")
    assert list(recent_configs()) == [tmp_path / "a.yaml"]


def test_a_home_that_cannot_be_written_costs_nothing(home, monkeypatch, tmp_path):
    (home / "cockpit.json").mkdir()
    remember(tmp_path / "a.yaml")
    assert recent_configs() == {}
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path / "absent"))
    remember(tmp_path / "a.yaml")
    assert recent_configs() == {}
    assert not (tmp_path / "absent").exists()


def test_a_launch_is_remembered_and_listed_before_all_others(monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    elsewhere = tmp_path.parent / f"{tmp_path.name}-elsewhere.yaml"
    elsewhere.write_text("# from elsewhere\n")
    (tmp_path / "near.yaml").write_text("# near\ntraining: {mode: causal_lm}\n")
    (tmp_path / "corpus.yaml").write_text("# of a data set\nimport:\n  sources: []\n")
    document = {"run": {"id": "r-1", "path": str(tmp_path)}}
    monkeypatch.setattr(launchpad, "albor", lambda *a, **k: document)
    LiveLaunchpad().start(elsewhere, (), "")
    first, *others = LiveLaunchpad().configs()
    assert (first.path, first.about) == (elsewhere, "from elsewhere")
    assert first.launched is not None
    assert others[0].path == Path("near.yaml")
    assert others[0].launched is None
    elsewhere.unlink()
    assert LiveLaunchpad().configs()[0].path == Path("near.yaml")
    assert json.loads((albor_home() / "cockpit.json").read_text())["configs"]
