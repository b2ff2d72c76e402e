"""An SSH server on loopback that runs commands in another home, for the real ssh client."""

from __future__ import annotations

import asyncio
import os
import subprocess
import threading
from pathlib import Path

import asyncssh


class CommandServer:
    """For as long as the block lasts; everybody may come in."""

    def __init__(self, home: Path) -> None:
        self._home, self.port = home, 0
        self._loop = asyncio.new_event_loop()
        self._is_up = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> CommandServer:
        self._thread.start()
        assert self._is_up.wait(30)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    def client(self, ssh: str) -> str:
        """A program for PATH: the real client, told where `gpu1` is as ~/.ssh/config would."""
        options = ("StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR")
        words = [f"-o{option}" for option in ("HostName=127.0.0.1", f"Port={self.port}", *options)]
        return f'#!/bin/sh\nexec {ssh} -F /dev/null {" ".join(words)} "$@"\n'

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_until_complete(self._listen())
        self._is_up.set()
        self._loop.run_forever()

    async def _listen(self) -> None:
        acceptor = await asyncssh.listen(
            "127.0.0.1",
            0,
            server_factory=_Open,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            process_factory=self._serve,
            encoding=None,
        )
        self.port = acceptor.get_port()

    async def _serve(self, process: asyncssh.SSHServerProcess[bytes]) -> None:
        environment = {**os.environ, "ALBOR_HOME": str(self._home), "HOME": str(self._home)}
        program = subprocess.Popen(
            ["/bin/sh", "-c", process.command or ""],
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        await process.redirect(program.stdin, program.stdout, program.stderr)
        process.exit(await self._loop.run_in_executor(None, program.wait))
        await process.wait_closed()


class _Open(asyncssh.SSHServer):
    def begin_auth(self, username: str) -> bool:
        return False
