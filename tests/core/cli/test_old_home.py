"""A home that an older version wrote opens as it did there, and its run trains on.

make_old_home.py says what is in it: the home is of commit 0e1956c, the documents are of the version
that last changed on purpose what a command says.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from cli_user import User, strict
from make_old_home import COMMANDS, DOCUMENTS, neutral, resumed, unpack


@pytest.fixture
def heir(tmp_path):
    """A user of today with the old home."""
    unpack(tmp_path)
    return User(tmp_path / "work", tmp_path / "home")


def files_below(folder: Path) -> dict[str, bytes]:
    """Their bytes; without what SQLite keeps beside a store that somebody reads."""
    files = (p for p in folder.rglob("*") if p.is_file() and not p.name.endswith(("-wal", "-shm")))
    return {str(path.relative_to(folder)): path.read_bytes() for path in files}


def told(heir: User, name: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """The document of a command as it was recorded, and as it is."""
    then = json.loads((DOCUMENTS / f"{name}.json").read_text())
    now = heir.quick(*then["argv"])
    assert now.code == then["code"]
    return then["out"], strict(neutral(now.out, str(heir.folder.parent)))


@pytest.mark.parametrize("name", COMMANDS)
def test_what_a_command_says_of_an_old_home_stays(heir, name):
    """All of it: none of these documents says how long ago something was, or where it is read."""
    then, now = told(heir, name)
    assert now == then


def test_the_recorded_commands_went_well():
    codes = {
        name: json.loads((DOCUMENTS / f"{name}.json").read_text())["code"] for name in COMMANDS
    }
    assert codes == dict.fromkeys(COMMANDS, 0)


def test_looking_at_an_old_home_changes_nothing_in_it(heir):
    before = files_below(heir.folder.parent)
    for name in ("runs-ls", "runs-show-train", "guard-status-train", "checkpoints-ls"):
        assert heir.quick(*COMMANDS[name].split()).code == 0
    assert files_below(heir.folder.parent) == before


def test_an_old_run_trains_on_from_its_checkpoint(heir):
    run = heir.run("old-train")

    def command(*words: str) -> None:
        done = heir.albor(*words)
        assert done.code == 0, done

    then = json.loads((DOCUMENTS / "resume.json").read_text())
    now = dict(resumed(run.path, command))
    assert list(now) == [str(step) for step in range(41, 47)]
    assert now == pytest.approx(then, rel=1e-4)  # another processor rounds otherwise
    shown = strict(heir.quick(*COMMANDS["runs-show-train"].split()).out)
    assert shown["run"]["last_step"] == 46
    assert shown["run"]["attempts"] == 2
    assert (run.checkpoints / "step-00000046").is_dir()


def test_stores_made_again_from_old_journals_say_the_same(heir):
    for store in (heir.home / "experiments.db", *heir.folder.parent.rglob(".albor/experiments.db")):
        store.unlink()
    rebuilt = heir.albor("db", "rebuild", "--json")
    assert rebuilt.code == 0, rebuilt
    for name in ("runs-ls", "runs-show-train", "runs-show-track", "runs-diff"):
        then, now = told(heir, name)
        if "trace" in then:  # a journal gives the ids that a store of then had no place for
            assert (then.pop("trace"), len(now.pop("trace")["trace_id"])) == (None, 32)
        assert now == then
