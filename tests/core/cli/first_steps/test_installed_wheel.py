"""Albor as pip installs it: a wheel in an environment of its own, far from any clone."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[4]
TRACKED = """
from albor_core import track
with track.start("installed", config={"lr": 0.1}) as run:
    for step in range(1, 4):
        run.log({"accuracy": step / 4}, step)
print(track.__file__)
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """Built from the clone, without the network."""
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-index", "--no-deps"]
    subprocess.run(
        [*pip, "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)],
        check=True, timeout=120,
    )  # fmt: skip
    (built,) = folder.glob("albor-*.whl")
    return built


class Installed:
    """An environment that has the wheel, and of the one around it the libraries alone."""

    def __init__(self, folder, wheel):
        self.folder = folder / "work"
        self.folder.mkdir()
        venv = folder / "venv"
        subprocess.run([sys.executable, "-m", "venv", "--without-pip", venv], check=True)
        self.bin = venv / "bin"
        (self.site,) = venv.glob("lib/python*/site-packages")
        around = [path for path in sys.path if path.endswith("site-packages")]
        (self.site / "around.pth").write_text("\n".join(around))
        pip = [sys.executable, "-m", "pip", "--python", self.bin / "python", "install", "--quiet"]
        subprocess.run(
            [*pip, "--no-index", "--no-deps", "--ignore-installed", wheel], check=True, timeout=120
        )

    def type(self, program, *words):
        environment = {key: value for key, value in os.environ.items() if key != "PYTHONPATH"}
        done = subprocess.run(
            [self.bin / program, *words],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=120,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def installed(tmp_path_factory, wheel):
    return Installed(tmp_path_factory.mktemp("installed"), wheel)


def test_the_wheel_holds_the_program_and_nothing_of_its_development(wheel):
    names = zipfile.ZipFile(wheel).namelist()
    tops = {name.partition("/")[0] for name in names}
    assert {top for top in tops if not top.endswith(".dist-info")} == {"albor_core", "albor_tui"}
    configs = {name for name in names if name.startswith("albor_core/configs/")}
    assert configs == {
        f"albor_core/configs/{path.relative_to(ROOT / 'configs')}"
        for path in (ROOT / "configs").rglob("*.yaml")
    }
    for folder in ("albor_core", "albor_tui"):
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.suffix not in (".pyc",):
                assert str(path.relative_to(ROOT)) in names


def test_an_installed_albor_tracks_and_lists_and_knows_its_configs(installed):
    where = Path(installed.type("python", "-c", TRACKED).strip())
    assert where.is_relative_to(installed.site)
    listed = json.loads(installed.type("albor", "runs", "ls", "--json"))
    assert [row["experiment"] for row in listed["runs"]] == ["installed"]
    for name in ("demo", "train/pretrain-50m", "pretrain-350m"):
        assert installed.type("albor", "train", "validate", name) == f"{name}: ok\n"
    installed.type("albor", "init")
    assert installed.type("albor", "train", "validate", "train.yaml") == "train.yaml: ok\n"
    assert json.loads(installed.type("albor", "schema", "config"))["title"] == "albor config"
    tree = json.loads(installed.type("albor", "--help", "--json"))
    assert len(tree["command"]["commands"]) > 15
    shown = json.loads(installed.type("albor-tui", "--once", "--json", listed["runs"][0]["id"]))
    assert shown["now"]["step"] == 3
