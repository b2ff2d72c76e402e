"""What a config says of the terminal, the stores and the machine happens."""

from __future__ import annotations

import pytest
from cli_user import SLOW_STEPS, User, records, valid, wait_until, write_config

from albor_core.run.status import ENDS

APPLY = ("train", "apply", "tiny.yaml")
SHORT = ("--set", "training.max_steps=8", "--set", "training.warmup_steps=0")
LINE = "step 8/8"


@pytest.fixture(scope="module")
def quiet(tmp_path_factory, data):
    """A user whose run `quiet` was to be in no store, on no terminal and without readings; and
    what it left there.
    """
    folder = tmp_path_factory.mktemp("quiet")
    made = User(folder / "work", folder / "home")
    made.folder.mkdir()
    write_config(made.folder / "tiny.yaml", data)
    off = ("tracking.enabled=false", "terminal.enabled=false", "system.metrics=[]")
    words = [word for one in off for word in ("--set", f"monitoring.{one}")]
    result = made.albor(*APPLY, *SHORT, "--name", "quiet", *words)
    assert result.code == 0, result
    return made, result


def test_a_run_that_is_not_to_be_tracked_is_in_no_store_and_can_be_taken_in_later(quiet):
    made, _ = quiet
    run = made.run("quiet")
    assert any(record["t"] == "m" for record in records(run))
    listed = made.quick("runs", "ls", "--json")
    assert listed.code != 0 or listed.document["runs"] == []
    assert not run.store.exists()
    made.albor("db", "rebuild")
    (row,) = valid(made.quick("runs", "ls", "--json"))["runs"]
    assert row["id"] == "quiet"


def test_a_terminal_that_is_not_enabled_prints_no_live_lines(quiet):
    begun, last = quiet[1].err.splitlines()[-2:]
    assert begun.startswith("run quiet in ")
    assert last.startswith("completed ") and LINE in last


def test_what_is_asked_for_is_printed_and_kept_and_nothing_else(user, quiet):
    memory = ("--set", "monitoring.system.metrics=[memory]")
    loud = user.start(*APPLY, "--name", "loud", *memory, ALBOR_FAULTS=SLOW_STEPS)
    for line in loud.stderr:
        if line.startswith("run loud in "):
            break
    assert next(loud.stderr).split()[0] not in ENDS  # it is stopped only now
    wait_until(lambda: "host/rss_bytes" in keys_of(user.run("loud")))
    assert user.albor("guard", "stop", "loud").code == 0
    loud.communicate(timeout=90)
    none = keys_of(quiet[0].run("quiet"))
    assert not any(key.startswith(("host/", "gpu")) for key in none)


def keys_of(run):
    """The names of all that a run measured."""
    return {key for record in records(run) for key in record.get("v", ())}
