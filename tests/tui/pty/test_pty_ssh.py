"""The cockpit at the far end of OpenSSH's client: attached, cut off, stalled. The server is the
test's own."""

from __future__ import annotations

import os
import shutil
import signal
import time

import psutil
import pytest
from pty_session import COCKPIT, LiveRun, PtySession, shown_step
from pty_ssh import SshServer

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def ssh():
    found = shutil.which("ssh")
    if found is None:
        pytest.skip("OpenSSH's client is not installed here")
    return found


@pytest.fixture
def live(tmp_path):
    with LiveRun(tmp_path / "out") as run:
        yield run


@pytest.fixture
def server(live):
    with SshServer([*COCKPIT, str(live.path)]) as made:
        yield made


def family(server: SshServer) -> list[psutil.Process]:
    """Every process that the server's programs started, themselves included."""
    roots = [psutil.Process(program.pid) for program in server.programs]
    return [one for root in roots for one in (root, *root.children(recursive=True))]


def all_end(server: SshServer, processes: list[psutil.Process], seconds: float) -> float:
    """CPU seconds they took from now to their end; fails if one is left."""
    before = {p.pid: sum(p.cpu_times()[:2]) for p in processes}
    last, deadline = dict(before), time.monotonic() + seconds
    while any(program.poll() is None for program in server.programs):
        assert time.monotonic() < deadline, "still there"
        for process in processes:
            try:
                last[process.pid] = sum(process.cpu_times()[:2])
            except psutil.Error:
                continue
        time.sleep(0.05)
    left = [p for p in processes if p.is_running() and p.status() != psutil.STATUS_ZOMBIE]
    assert left == []
    return sum(last.values()) - sum(before.values())


@pytest.mark.parametrize("how", ["the server drops it", "the client is killed"])
def test_a_connection_that_is_cut_ends_the_cockpit_and_not_the_run(ssh, server, live, how):
    with PtySession(server.client(ssh), rows=40, columns=120) as session:
        session.until("running", 60)
        step = shown_step(session)
        session.until(lambda s: shown_step(s) > step >= 0, 20)
        processes = family(server)
        if how == "the server drops it":
            server.cut()
        else:
            os.kill(session.pid, signal.SIGKILL)
        assert all_end(server, processes, 8.0) < 1.5  # leaving costs something, spinning all of it
    assert live.goes_on()
    assert live.process.poll() is None


def test_a_size_and_a_key_get_through_and_ctrl_c_leaves(ssh, server, live):
    with PtySession(server.client(ssh), rows=40, columns=120) as session:
        session.until("running", 60)
        session.resize(24, 80)
        session.until(lambda s: "1 View" in s.text() and "step" in s.text(), 20)
        assert max(len(line.rstrip()) for line in session.text().splitlines()) <= 80
        session.press("5")
        session.until("follow", 20)
        session.press("\x03")
        assert session.status(15) == 0
    assert live.goes_on()


def test_a_link_that_stalls_queues_nothing_and_shows_the_present_when_it_is_back(ssh, server, live):
    """The client stops reading, as a link without a network does; sshd's buffers hold megabytes."""
    with PtySession(server.client(ssh), rows=45, columns=160) as session:
        session.until("running", 60)
        session.pump(2)
        os.kill(session.pid, signal.SIGSTOP)
        try:
            time.sleep(1)  # what was under way arrives
            sent = server.sent
            time.sleep(6)  # the outage
            assert server.sent - sent < 1_000  # it would be 12 KB if it went on
        finally:
            os.kill(session.pid, signal.SIGCONT)
        back = time.monotonic()
        session.until(lambda s: live.step - shown_step(s) < 15, 15)
        assert time.monotonic() - back < 8
        session.press("\x03")
        assert session.status(15) == 0
