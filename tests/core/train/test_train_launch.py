"""Handing a run to its guard: what the trainer's environment keeps of the user's."""

from albor_core.guard.launch import CODE_ROOT
from albor_core.run.rundir import create_run, read_json
from albor_core.train import launch


def test_an_uninstalled_checkout_keeps_the_users_own_python_path(tmp_path, monkeypatch):
    run = create_run(
        tmp_path, "one", experiment="e", name="one", kind="train", argv=[], resolved={"guard": {}}
    )
    monkeypatch.setenv("PYTHONPATH", "/modules/site")
    monkeypatch.setattr(launch, "_is_installed", lambda: False)
    monkeypatch.setattr(launch, "start_guard", lambda run: None)
    launch.start(run)
    assert read_json(run.launch)["env"]["PYTHONPATH"] == f"{CODE_ROOT}:/modules/site"
