"""Programs that do harm score nothing and leave nothing: in namespaces, and without."""

from __future__ import annotations

import json
import os
import secrets
import shutil
import socket
import subprocess
import sys
import tempfile
from pathlib import Path

import hostile_programs
import pytest

from albor_core.eval.code.sandbox import kernel

DRIVER = """
import json, resource, sys
asked = json.loads(sys.stdin.read())
for what, most in (("CPU", 60), ("AS", 4 << 30), ("FSIZE", 256 << 20), ("NPROC", 400),
                   ("NOFILE", 512), ("CORE", 0)):
    resource.setrlimit(getattr(resource, "RLIMIT_" + what), (most, most))
from dataclasses import asdict
from albor_core.eval.code.sandbox.box import ProgramJob, run_program
from albor_core.eval.code.sandbox.confinement import ProgramLimits
print("ready", flush=True)
job, limits = ProgramJob(**asked["job"]), ProgramLimits(**asked["limits"])
verdict = run_program(job, limits, without=frozenset(asked["without"]))
print(json.dumps(asdict(verdict)))
"""
WAYS = {
    "in namespaces": (),
    "in namespaces as an ordinary user has them": ("user",),
    "without namespaces": ("namespaces",),
}
TEST = "assert f(1) == 2"


class Box:
    """Runs programs in a process of its own, which they may try to end."""

    def __init__(self, without, folder):
        self.without, self.temporary = without, folder
        environment = {**os.environ, "TMPDIR": str(self.temporary), "ALBOR_SECRET": secret("cat")}
        self.driver = subprocess.Popen(
            [sys.executable, "-c", DRIVER], env=environment, text=True, start_new_session=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE,
        )  # fmt: skip

    def score(self, program, test=TEST, **limits):
        """The verdict on a hostile program, once nothing of it is left."""
        verdict = self.verdict(program, test, **limits)
        assert verdict["outcome"] != "passed", verdict
        assert verdict["detail"]
        return verdict

    def verdict(self, program, test, **limits):
        asked = {
            "job": {"program": program, "tests": test, "names": ["f"]},
            "limits": {"wall_s": 60.0, **limits},
            "without": self.without,
        }
        out, err = self.driver.communicate(json.dumps(asked), timeout=120)
        assert self.driver.returncode == 0, (self.driver.returncode, err[-2000:])
        assert list(self.temporary.iterdir()) == []
        assert processes_that_name(f'"parent": {self.driver.pid},') == []
        return json.loads(out.splitlines()[-1])


def secret(kind):
    return f"{kind}fish-{secrets.token_hex(8)}"


def processes_that_name(words):
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            if words in path.read_bytes().replace(b"\0", b" ").decode(errors="replace"):
                found.append(path.parent.name)
        except OSError:
            continue
    return found


@pytest.fixture(params=WAYS)
def box(request):
    if "namespaces" in WAYS[request.param] and not kernel.landlock_abi():
        pytest.skip("this kernel has no Landlock, which stands in for namespaces")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))  # not pytest's, which only we can enter
    folder.chmod(0o755)
    made = Box(WAYS[request.param], folder)
    yield made
    if made.driver.poll() is None:
        made.driver.kill()
        made.driver.communicate()
    shutil.rmtree(folder)


def test_a_program_that_solves_the_task_passes_wherever_it_is_put(box):
    verdict = box.verdict("print('hi')\ndef f(x):\n    return x + 1", TEST)
    assert (verdict["outcome"], verdict["output"]) == ("passed", "hi\n"), verdict
    assert "none" not in verdict["facts"].values()


def test_a_fork_bomb_is_stopped_at_its_limit(box):
    box.score(hostile_programs.FORK_BOMB + hostile_programs.SOLVES_IF_DONE)


def test_no_file_outside_can_be_read_or_written(box, tmp_path):
    tmp_path.chmod(0o777)
    (tmp_path / "there").write_text("as it was")
    (tmp_path / "there").chmod(0o666)
    paths = [str(tmp_path / "there"), "/etc/passwd", "/etc/hostname", "/var/tmp/x", "/dev/shm/x"]
    box.score(hostile_programs.OUTSIDE.format(paths=paths) + hostile_programs.SOLVES_IF_DONE)
    assert (tmp_path / "there").read_text() == "as it was"
    assert not Path("/var/tmp/x").exists() and not Path("/dev/shm/x").exists()


def test_there_is_no_network(box):
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        port = server.getsockname()[1]
        box.score(hostile_programs.NETWORK.format(port=port) + hostile_programs.SOLVES_IF_DONE)
        with pytest.raises(BlockingIOError):
            server.accept()


def test_memory_has_a_limit(box):
    box.score(hostile_programs.MEMORY + hostile_programs.SOLVES_IF_DONE, memory_bytes=512 << 20)


def test_memory_has_a_limit_for_all_its_processes_together(box):
    verdict = box.score(
        hostile_programs.MEMORY_OF_MANY + hostile_programs.SOLVES_IF_DONE, memory_bytes=400 << 20
    )
    assert verdict["outcome"] == "memory"


def test_endless_output_ends_it(box):
    verdict = box.score(hostile_programs.OUTPUT + hostile_programs.SOLVES_IF_DONE)
    assert verdict["outcome"] == "output"
    assert len(verdict["output"]) <= 4096


def test_it_cannot_signal_whoever_runs_it(box):
    program = (
        hostile_programs.SIGNALS.format(driver=box.driver.pid) + hostile_programs.SOLVES_IF_DONE
    )
    box.score(program)


def test_the_interpreter_and_its_library_cannot_be_changed(box):
    box.score(hostile_programs.INTERPRETER + hostile_programs.SOLVES_IF_DONE)


@pytest.mark.parametrize("program", [hostile_programs.INTERPRETER, hostile_programs.COPIES])
def test_without_namespaces_whoever_owns_the_interpreter_cannot_change_it_and_copies_go_on(program):
    if not kernel.landlock_abi():
        pytest.skip("this kernel has no Landlock, which stands in for namespaces")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    box = Box(("namespaces", "user"), folder)
    verdict = box.verdict(program + hostile_programs.SOLVES_IF_DONE, TEST)
    folder.rmdir()
    assert (verdict["outcome"] == "passed") == (program is hostile_programs.COPIES), verdict
    assert verdict["facts"]["files"] == "landlock"
    assert "none" not in verdict["facts"].values()


@pytest.mark.parametrize("way", hostile_programs.EXITS)
def test_leaving_before_the_tests_is_no_success(box, way):
    box.score(
        hostile_programs.EXITS[way]
        + ("" if "def f" in hostile_programs.EXITS[way] else "\ndone = 1")
    )


@pytest.mark.parametrize("answer", ["Anything()", "Two(7)", "[Anything()]", "lambda: 2"])
@pytest.mark.parametrize("is_quiet", [False, True], ids=["shouting", "quiet"])
def test_patched_builtins_and_forged_words_are_no_success(box, answer, is_quiet):
    box.score(hostile_programs.PATCHES.format(answer=answer, is_quiet=is_quiet))


def test_what_sleeps_and_ignores_signals_is_ended_at_its_time(box):
    verdict = box.score(hostile_programs.SLEEP + hostile_programs.SOLVES_IF_DONE, wall_s=1.0)
    assert verdict["outcome"] == "timeout"


def test_a_daemon_that_left_its_session_is_ended_too(box):
    seconds = f"{30 + secrets.randbelow(10**6) / 10**6:.6f}"
    box.score(hostile_programs.DAEMON.format(seconds=seconds) + hostile_programs.SOLVES_IF_DONE)
    assert processes_that_name(seconds) == []


def test_neither_the_tests_nor_the_environment_can_be_read(box):
    verdict = box.score(hostile_programs.SECRETS, test=f"assert f(1) == {secret('sword')!r}")
    assert verdict["output"].strip() == "[]"


def test_it_cannot_fill_the_disk(box):
    box.score(hostile_programs.DISK + hostile_programs.SOLVES_IF_DONE, disk_bytes=32 << 20)


def test_it_cannot_trace_or_read_another_process(box):
    box.score(
        hostile_programs.TRACE.format(driver=box.driver.pid) + hostile_programs.SOLVES_IF_DONE
    )
