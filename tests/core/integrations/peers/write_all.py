"""Writes random histories by the peers' own libraries; run it in an environment that has them:

    python tests/core/integrations/peers/write_all.py FOLDER --count 200 [--peer PEER ...]

Each peer gets FOLDER/PEER with its own files in `files/` and `truth.json` beside them: what an
import must give. `make peers` makes the environment, writes 200 of each and checks them; with
`--pack` each folder goes into `PEER.tar.xz` here, which the tests of every day read. With `--alike`
they are curves that every peer keeps alike, in FOLDER/alike/PEER: what a comparison of two peers
takes.
"""

import argparse
import json
import sys
import tarfile
from importlib import import_module
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

from histories import ALIKE, KINDS, histories  # noqa: E402

PEERS = tuple(sorted(path.stem.removeprefix("peer_") for path in HERE.glob("peer_*.py")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--count", type=int, default=200)
    parser.add_argument("--peer", action="append", choices=PEERS)
    parser.add_argument("--pack", action="store_true")
    parser.add_argument("--alike", action="store_true")
    chosen = parser.parse_args()
    kinds = ALIKE if chosen.alike else KINDS
    for peer in chosen.peer or PEERS:
        folder = chosen.folder / "alike" if chosen.alike else chosen.folder
        files = (folder / peer / "files").resolve()
        files.mkdir(parents=True)
        truths = import_module(f"peer_{peer}").write(histories(chosen.count, kinds), files)
        document = [truth.to_json() for truth in truths]
        (files.parent / "truth.json").write_text(json.dumps(document))
        print(f"{peer}: {len(truths)} histories")
        if chosen.pack:
            with tarfile.open(HERE / f"{peer}.tar.xz", "w:xz") as archive:
                archive.add(chosen.folder / peer, peer, filter=_nobody)


def _nobody(member: tarfile.TarInfo) -> tarfile.TarInfo:
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    member.mtime = 1_767_225_600
    return member


if __name__ == "__main__":
    main()
