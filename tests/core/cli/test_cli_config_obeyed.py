"""What a config says of the terminal, the stores and the machine happens."""

from __future__ import annotations

from cli_user import SLOW_STEPS, records, valid, wait_for_end

from albor_core.run.status import ENDS

SHORT = ("--set", "training.max_steps=8", "--set", "training.warmup_steps=0")
LINE = "step 8/8"


def test_a_run_that_is_not_to_be_tracked_is_in_no_store_and_can_be_taken_in_later(user):
    run = user.apply("quiet", *SHORT, "--set", "monitoring.tracking.enabled=false")
    wait_for_end(run)
    assert any(record["t"] == "m" for record in records(run))
    listed = user.quick("runs", "ls", "--json")
    assert listed.code != 0 or listed.document["runs"] == []
    assert not run.store.exists()
    user.albor("db", "rebuild")
    (row,) = valid(user.quick("runs", "ls", "--json"))["runs"]
    assert row["id"] == "quiet"


def test_a_terminal_that_is_not_enabled_prints_no_live_lines(user):
    words = ("train", "apply", "tiny.yaml")
    loud = user.start(*words, "--name", "loud", ALBOR_FAULTS=SLOW_STEPS)
    for line in loud.stderr:
        if line.startswith("run loud in "):
            break
    assert next(loud.stderr).split()[0] not in ENDS  # it is stopped only now
    assert user.albor("guard", "stop", "loud").code == 0
    loud.communicate(timeout=90)
    quiet = user.albor(
        *words, *SHORT, "--name", "quiet", "--set", "monitoring.terminal.enabled=false"
    )
    assert quiet.code == 0
    begun, last = quiet.err.splitlines()[-2:]
    assert begun.startswith("run quiet in ")
    assert last.startswith("completed ") and LINE in last


def test_only_the_readings_that_are_asked_for_are_kept(user):
    words = ("train", "apply", "tiny.yaml", *SHORT)
    for name, kept in (("all", "[memory]"), ("none", "[]")):
        result = user.albor(*words, "--name", name, "--set", f"monitoring.system.metrics={kept}")
        assert result.code == 0, result
    keys = {
        name: {key for record in records(user.run(name)) for key in record.get("v", ())}
        for name in ("all", "none")
    }
    assert "host/rss_bytes" in keys["all"]
    assert not any(key.startswith(("host/", "gpu")) for key in keys["none"])
