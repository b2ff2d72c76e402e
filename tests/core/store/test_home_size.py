"""The size that its owner gives a home: told before it is reached, by a look kept for a while."""

from __future__ import annotations

import json

import pytest

from albor_core.feed.attention.watch import AttentionFeed
from albor_core.feed.view.run_view import RunsView
from albor_core.run.home.folders import albor_home
from albor_core.store.upkeep import home_size
from albor_core.store.upkeep.home_size import (
    HomeLook,
    cap_problem,
    measured,
    nearly_full,
    tell_if_nearly_full,
)


@pytest.fixture
def home(tmp_path, monkeypatch):
    """A home with a file of 9,500 bytes."""
    monkeypatch.setenv("ALBOR_HOME", str(tmp_path))
    monkeypatch.delenv("ALBOR_HOME_MAX", raising=False)
    (tmp_path / "big").write_bytes(bytes(9500))
    return albor_home()


@pytest.mark.parametrize(
    ("cap", "said"),
    [
        ("10kb", "9.28 KiB of the 9.77 KiB of ALBOR_HOME_MAX are taken"),
        ("5kb", "9.28 KiB of the 4.88 KiB of ALBOR_HOME_MAX are taken"),
        ("20kb", ""),
        ("", ""),
    ],
)
def test_a_home_that_comes_near_its_size_is_told_of(home, monkeypatch, cap, said):
    monkeypatch.setenv("ALBOR_HOME_MAX", cap)
    assert nearly_full(home) == said
    assert (HomeLook(home, wait_s=60).words() or "") == said
    told = []
    monkeypatch.setattr(home_size, "_WAIT_S", 60)
    tell_if_nearly_full(home, told.append)
    assert told == ([f"{home}: {said}; albor doctor --disk says by what"] if said else [])


@pytest.mark.parametrize("cap", ["abc", "-5GiB", "0", "50 apples", "nan"])
def test_a_size_of_a_home_that_cannot_be_read_is_told_as_that(home, monkeypatch, cap):
    monkeypatch.setenv("ALBOR_HOME_MAX", cap)
    assert nearly_full(home) == HomeLook(home, wait_s=60).words() == ""
    assert cap_problem() == f"cannot read ALBOR_HOME_MAX: {cap!r} is not a size"
    told = []
    tell_if_nearly_full(home, told.append)
    assert told == [f"{cap_problem()}; export ALBOR_HOME_MAX=50GiB, or unset it"]
    (item,) = AttentionFeed(home, look_s=0).look(RunsView()).items
    assert (item.kind, item.summary) == ("home_cap", cap_problem())


def test_a_home_is_looked_through_once_in_a_while(home, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME_MAX", "10kb")
    assert nearly_full(home)
    (home / "big").unlink()
    assert nearly_full(home)
    kept = json.loads((home / "home-size.json").read_bytes())
    (home / "home-size.json").write_text(json.dumps({**kept, "wall": kept["wall"] - 3600}))
    assert nearly_full(home) == ""


def test_a_home_behind_a_link_has_the_size_of_what_it_leads_to(home, monkeypatch, tmp_path):
    link = tmp_path.with_name("link")
    link.symlink_to(home)
    monkeypatch.setenv("ALBOR_HOME_MAX", "10kb")
    assert nearly_full(link)
    assert measured(link, ()).total > 9000


def test_a_home_that_cannot_be_written_is_measured_all_the_same(home, monkeypatch):
    monkeypatch.setenv("ALBOR_HOME_MAX", "10kb")

    def refuse(*_):
        raise PermissionError

    monkeypatch.setattr(home_size, "write_json", refuse)
    assert nearly_full(home)
