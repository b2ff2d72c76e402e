"""views.yaml: what is kept, what damage costs, and two cockpits that write at once."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from albor_core.feed.workspace.views import View, Views, ViewsFile
from albor_core.run.errors import AlborError, ConfigError, NotFoundError

SWEEP = View(
    filter='experiment:mlp-sweep lr>=1e-4 "two words"',
    columns=("lr", "val/mse:min", "no", "1e-3", "0x10"),
    sort="val/mse",
    is_reversed=True,
    group="lr",
    hidden=("20260101-000000-abcd",),
    unfolded=("val", "\u5c42"),
    theme="light",
    smoothing=0,
    tab="charts",
    screen="workspace",
)


@pytest.fixture
def file(tmp_path: Path) -> ViewsFile:
    return ViewsFile(tmp_path / "home" / "views.yaml")


def test_a_view_comes_back_as_it_was_saved(file: ViewsFile) -> None:
    assert file.read().last == View(), "no file: the default, without a problem"
    for name in ("sweep by mse", "yes", "1e-3", "\u5c42" * 80, "a: b # c", "\x1b[31m", "\ud800"):
        file.save(name, SWEEP)
    file.remember({"theme": "light", "sort": "loss"})
    file.remember({"sort": ""})
    file.set_metric("1e3", "val/mse")
    found = file.read()
    assert set(found.named.values()) == {SWEEP} and "1e-3" in found.named and len(found.named) == 7
    assert found.last == View(theme="light") and found.metrics == {"1e3": "val/mse"}
    file.remove("yes")
    file.set_metric("1e3", "")
    assert "yes" not in file.read().named and not file.read().metrics


def test_a_person_can_write_it_and_keeps_what_we_do_not_know(file: ViewsFile) -> None:
    file.path.parent.mkdir()
    file.path.write_text(
        "views:\n  mine: {sort: val/mse, reversed: true, columns: [lr, 3], colour: red}\n"
        "  bad: {columns: lr, smoothing: much, filter: x}\n  worse: 3\nlater: {a: 1}\n"
    )
    found = file.read()
    assert found.view("mine", file.path) == View(
        sort="val/mse", is_reversed=True, columns=("lr", "3")
    )
    assert found.named["bad"] == View(filter="x") and found.named["worse"] == View()
    assert "view 'bad': columns is not a list of names" in found.problem
    file.save("other", SWEEP)
    assert "colour: red" in file.path.read_text() and "later:" in file.path.read_text()


@pytest.mark.parametrize("text", ["views: [", "- a list", "views: 3", "last: {a: 1, a: 2}", "\xff"])
def test_a_damaged_file_stays_beside_the_new_one(file: ViewsFile, text: str) -> None:
    file.path.parent.mkdir()
    file.path.write_bytes(text.encode("latin-1"))
    found = file.read()
    assert found.is_damaged and found.last == View() and str(file.path) in found.problem
    with pytest.raises(ConfigError):
        found.view("any", file.path)
    assert file.path.exists(), "to read changes nothing"
    file.save("new", SWEEP)
    assert file.path.with_name("views.yaml.bad").read_bytes() == text.encode("latin-1")
    assert file.read().named == {"new": SWEEP}
    file.path.write_text("views: [")
    assert file.set_aside() == "views.yaml.bad2" and not file.path.exists()
    assert file.set_aside() == "", "nothing is damaged by now"


def test_an_unknown_view_names_the_file_and_the_nearest(file: ViewsFile) -> None:
    with pytest.raises(NotFoundError, match="no views yet"):
        file.read().view("sweep", file.path)
    file.save("sweep by mse", SWEEP)
    with pytest.raises(NotFoundError) as caught:
        file.read().view("sweep by mes", file.path)
    assert str(file.path) in caught.value.message and "'sweep by mse'" in caught.value.message
    assert "sweep by mse" in caught.value.hint


def _write_many(path: str, who: int) -> None:
    file = ViewsFile(Path(path))
    for n in range(15):
        file.save(f"view {who}-{n}", View(sort=f"loss{n}"))
        file.set_metric(f"sweep {who}-{n}", "val/mse")


def test_processes_that_write_at_once_lose_nothing(file: ViewsFile) -> None:
    spawn = multiprocessing.get_context("fork")
    writers = [spawn.Process(target=_write_many, args=(str(file.path), n)) for n in range(3)]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [writer.exitcode for writer in writers] == [0, 0, 0]
    found = file.read()
    assert len(found.named) == 45 and len(found.metrics) == 45 and not found.problem
    assert [one.name for one in file.path.parent.iterdir() if ".tmp" in one.name] == []


def test_a_home_that_cannot_be_written_says_so_and_changes_nothing(tmp_path: Path) -> None:
    (tmp_path / "not a folder").write_text("")
    file = ViewsFile(tmp_path / "not a folder" / "views.yaml")
    with pytest.raises(AlborError):
        file.save("x", SWEEP)
    assert file.read().named == {}


def test_a_home_that_may_not_be_entered_is_said_in_one_line(tmp_path: Path) -> None:
    """By a name that no system takes, as nothing is forbidden to root."""
    file = ViewsFile(tmp_path / ("x" * 300) / "views.yaml")
    found = file.read()
    assert found.is_closed and not found.is_damaged
    assert found.problem == f"cannot read {file.path}: File name too long"
    with pytest.raises(ConfigError, match="File name too long"):
        found.view("any", file.path)
    with pytest.raises(NotFoundError, match="no views yet"):
        Views().view("any", file.path)


def test_the_file_says_that_comments_are_not_kept(file: ViewsFile) -> None:
    file.save("x", SWEEP)
    assert "comments are not kept" in file.path.read_text()


def test_a_link_to_a_file_elsewhere_stays_a_link(file: ViewsFile, tmp_path: Path) -> None:
    file.path.parent.mkdir()
    file.path.symlink_to(tmp_path / "dotfiles.yaml")
    file.save("x", SWEEP)
    assert file.path.is_symlink() and file.read().named == {"x": SWEEP}
