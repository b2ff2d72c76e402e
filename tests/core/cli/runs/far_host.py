"""Other hosts for `albor runs pull`: programs called ssh and rsync, first on PATH, that do on this
machine what the real ones do over there.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
from pathlib import Path

from cli_user import User

SSH = """#!{python}
# As OpenSSH and sshd: options, the host, and the rest of the words, joined, to a shell over there.
import json, os, subprocess, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
while words and words[0].startswith("-"):
    word = words.pop(0)
    if word == "--":
        break
    if word == "-l":
        words.pop(0)
host, command = words[0].rpartition("@")[2], " ".join(words[1:])
homes = json.load(open({homes!r}))
if host not in homes:
    sys.stderr.write(f"ssh: Could not resolve hostname {{host}}: Name or service not known\\n")
    sys.exit(255)
home, options = homes[host]
environment = {{**os.environ, "ALBOR_HOME": home, "HOME": home}}
if not options.get("rsync"):
    environment["PATH"] = {no_rsync!r}
if "banner" in options:
    print(options["banner"], flush=True)
if "cut" not in options or options["cut"] > sum(1 for _ in open({log!r})):
    os.execvpe("/bin/sh", ["sh", "-c", command], environment)
sent = subprocess.run(["/bin/sh", "-c", command], env=environment, stdout=subprocess.PIPE).stdout
sys.stdout.buffer.write(sent[: len(sent) // 2])
sys.stdout.flush()
sys.exit(255)
"""
RSYNC = """#!{python}
# As rsync with --files-from, from a host of the same machine.
import json, os, shutil, sys
words = sys.argv[1:]
with open({log!r}, "a") as log:
    log.write(json.dumps(words) + "\\n")
source, target = words[words.index("--") + 1 :]
folder = source.partition(":")[2]
for name in filter(None, sys.stdin.buffer.read().decode().split("\\0")):
    if os.path.isfile(folder + name) and not os.path.islink(folder + name):
        os.makedirs(os.path.dirname(target + name), mode=0o700, exist_ok=True)
        shutil.copy2(folder + name, target + name)
"""


class FarHosts:
    """Hosts by name, each with an Albor home below `folder`. `environment` makes them reachable."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.bin = folder, folder / "bin"
        self.ssh_log, self.rsync_log = folder / "ssh.log", folder / "rsync.log"
        self._homes, self._known = folder / "hosts.json", {}
        self.bin.mkdir(parents=True)
        plain = folder / "plain-bin"
        plain.mkdir()
        for name in ("sh", "find", "tar", "xargs", "tr", "head", "cat", "uname"):
            (plain / name).symlink_to(shutil.which(name))
        text = SSH.format(
            python=sys.executable,
            log=str(self.ssh_log),
            homes=str(self._homes),
            no_rsync=str(plain),
        )
        self.put_program("ssh", text)

    def add(self, name: str, **options: object) -> User:
        """A user of another host; `options` say what is odd about the connection to it."""
        home = self.folder / name
        home.mkdir(exist_ok=True)
        self._known[name] = (str(home), options)
        self._homes.write_text(json.dumps(self._known))
        return User(home, home)

    def put_rsync(self) -> None:
        """rsync on both sides: the real one where there is one."""
        if shutil.which("rsync") is None:
            self.put_program("rsync", RSYNC.format(python=sys.executable, log=str(self.rsync_log)))

    def environment(self) -> dict[str, str]:
        return {"PATH": f"{self.bin}{os.pathsep}{os.environ['PATH']}"}

    def asked(self) -> list[list[str]]:
        """The words of each call of ssh."""
        lines = self.ssh_log.read_text().splitlines() if self.ssh_log.exists() else []
        return [json.loads(line) for line in lines]

    def put_program(self, name: str, text: str) -> None:
        """A program of this host, found before any other of its name."""
        path = self.bin / name
        path.write_text(text)
        path.chmod(0o755)
