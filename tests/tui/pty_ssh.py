"""An SSH server in this process that starts one program on a pseudo-terminal for each session.

    with SshServer([*COCKPIT, RUN]) as server, PtySession(server.client()) as session:
        session.until("running")
        server.cut()

It lets everybody in, on loopback, for as long as the block lasts, and closes the master when the
connection ends, as sshd does.
"""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import os
import pty
import struct
import subprocess
import termios
import threading
from collections.abc import Sequence
from typing import Any

import asyncssh


class SshServer:
    """The server, in a thread of its own; `programs` are those it started, `sent` their bytes."""

    def __init__(self, argv: Sequence[str]) -> None:
        self.argv = list(argv)
        self.programs: list[subprocess.Popen[bytes]] = []
        self.sent = 0
        self.port = 0
        self._connections: list[asyncssh.SSHServerConnection] = []
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> SshServer:
        self._thread.start()
        assert self._is_up.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        for program in self.programs:
            program.kill()
            program.wait()

    def client(self, ssh: str) -> list[str]:
        """The command line of OpenSSH's client to this server."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
        words = [ssh, "-F", "/dev/null", "-tt", "-p", str(self.port)]
        return [*words, *(f"-o{option}" for option in options), "somebody@127.0.0.1"]

    def cut(self) -> None:
        """Drop every connection without a word."""

        def abort() -> None:
            for connection in self._connections:
                connection.abort()

        self._loop.call_soon_threadsafe(abort)

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._is_up.set()
        self._loop.run_forever()

    async def _listen(self) -> None:
        acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=lambda: _Open(self._connections),
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            process_factory=self._serve,
            encoding=None,
            line_editor=False,
        )
        self.port = acceptor.get_port()

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        master, far = pty.openpty()
        _resize(master, process.get_terminal_size())
        term = process.get_terminal_type() or "dumb"
        program = subprocess.Popen(
            ["setsid", "-c", *self.argv],  # no Python before exec: there are threads
            stdin=far, stdout=far, stderr=far,
            env={**_without_size(), "TERM": term, "COLORTERM": "truecolor", "LANG": "C.UTF-8",
                 "SSH_TTY": os.ttyname(far)},
        )  # fmt: skip
        os.close(far)
        self.programs.append(program)
        ending = self._loop.create_task(self._pump_out(master, process))
        try:
            await self._pump_in(master, process)
        finally:
            ending.cancel()
            with contextlib.suppress(asyncio.CancelledError, ConnectionError):
                await ending
            os.close(master)
            process.close()

    async def _pump_out(self, master: int, process: asyncssh.SSHServerProcess[bytes]) -> None:
        while True:
            ready = self._loop.create_future()
            self._loop.add_reader(master, ready.set_result, None)
            try:
                await ready
            finally:
                self._loop.remove_reader(master)
            data = _read(master)
            if not data:
                process.exit(0)
                return
            self.sent += len(data)
            process.stdout.write(data)
            await process.stdout.drain()

    async def _pump_in(self, master: int, process: asyncssh.SSHServerProcess[bytes]) -> None:
        while True:
            try:
                data = await process.stdin.read(4096)
            except asyncssh.TerminalSizeChanged as change:
                _resize(master, change.term_size)
                continue
            except (ConnectionError, asyncssh.Error, asyncssh.BreakReceived):
                return
            if not data:
                return
            os.write(master, data)


class _Open(asyncssh.SSHServer):
    """Everybody may come in."""

    def __init__(self, connections: list[asyncssh.SSHServerConnection]) -> None:
        self._connections = connections

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._connections.append(conn)

    def begin_auth(self, username: str) -> bool:
        return False


def _read(master: int) -> bytes:
    try:
        return os.read(master, 1 << 16)
    except OSError:  # EIO: the program has gone
        return b""


def _resize(master: int, size: tuple[int, ...]) -> None:
    columns, rows, *_ = size
    fcntl.ioctl(master, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))


def _without_size() -> dict[str, Any]:
    return {k: v for k, v in os.environ.items() if k not in ("COLUMNS", "LINES", "NO_COLOR")}
