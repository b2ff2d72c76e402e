"""Alerts that wait for a person, whoever told them and whether or not a store has them yet."""

from __future__ import annotations

from albor_core.feed.run.alerts import open_alerts
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.store.index.annotations import annotate


def test_alerts_of_program_and_watcher_are_open_until_somebody_acknowledges(tmp_path):
    run = create_run(tmp_path, "r", experiment="e", name="r", kind="track", argv=[])
    for path, alert_id in ((run.journal, "loss-gt-10@1.5"), (run.system, "gpu0-hot@1.5")):
        journal = Journal(path, attempt=1)
        journal.event("andon.alert", id=alert_id)
        journal.close()
    assert open_alerts(run) == ("loss-gt-10@1.5", "gpu0-hot@1.5")
    annotate(run, "ack", "gpu0-hot@1.5")
    assert open_alerts(run) == ("loss-gt-10@1.5",)
