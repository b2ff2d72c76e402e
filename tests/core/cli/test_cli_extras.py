"""Albor without its extras: a light install says what to install instead of failing."""

import subprocess
import sys

SCRIPT = """
import sys
sys.modules["tokenizers"] = None  # as if it were not installed
from albor_core.cli.main import run
sys.argv = ["albor", "demo", "--out", sys.argv[1]]
run()
"""


def test_a_missing_extra_is_named_with_its_install_command(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(tmp_path / "demo")],
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "needs tokenizers" in done.stderr
    assert "pip install 'albor[train]'" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "demo").exists()
