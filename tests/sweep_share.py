"""Which files of the sweep a change runs: a share of them, drawn anew with each commit.

`make sweep` runs all; `make sweep SHARE=3` one file in three, by the hash of its name and of the
commit: ten commits run nearly all. The test files that the newest 20 commits touched are always in.
"""

import subprocess
import zlib
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
NEWEST = 20


def drawn(files, share, commit, touched=()):
    """The part of `files` (names as Git says them) that runs: one in `share`, and those touched."""
    own = {name for name in files if zlib.crc32(f"{name} {commit}".encode()) % share == 0}
    return own | set(files) & set(touched)


def newest_commit(root=ROOT):
    """The commit that is checked out; "" outside a repository, where the share never changes."""
    return _git(root, "rev-parse", "HEAD").strip()


def touched_files(root=ROOT):
    """What the newest commits changed; a root commit, also a shallow one, counts as none."""
    words = (
        "-c",
        "log.showRoot=false",
        "log",
        f"-{NEWEST}",
        "--no-merges",
        "--format=",
        "--name-only",
    )
    return set(_git(root, *words).split("\n")) - {""}


def _git(root, *words):
    done = subprocess.run(
        ["git", "-C", str(root), *words], capture_output=True, text=True, check=False
    )
    return done.stdout if done.returncode == 0 else ""
