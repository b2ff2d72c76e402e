"""Packs, is killed at one of its operations on files, packs again: for each number it is given.

    python killed_packers.py CORPUS TOKENIZER FOLDER WHOLE PACKING NUMBER...

A NUMBER of 0 counts them. Each packer is a fork of this process, which starts no thread, so that a
try costs milliseconds. Prints "NUMBER ok", or what is wrong. An operation is what Python audits: a
file opened to write, renamed, linked, removed, a folder made or removed.
"""

from __future__ import annotations

import hashlib
import os
import signal
import sys
from pathlib import Path

from albor_core.data.pack.pretokenize import pretokenize, verify_shards
from albor_core.data.pack.work import encode

ARGS = {"seq_len": 32, "val_fraction": 0.2, "shard_sequences": 64}
CHANGES = {"os.rename", "os.link", "os.remove", "os.mkdir", "os.rmdir"}


def main() -> None:
    corpus, tokenizer, folder, whole = map(Path, sys.argv[1:5])
    ARGS["packing"] = sys.argv[5]
    encode.UNIT_BYTES = 1
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    expected = tree(whole)
    for number in map(int, sys.argv[6:]):
        out = folder / str(number)
        status = in_a_fork(lambda out=out, number=number: pack(corpus, tokenizer, out, number))
        if number == 0:
            print((folder / "operations").read_text())
            continue
        lies = [
            str(manifest)
            for manifest in out.glob("*/manifest.json")
            if verify_shards(manifest.parent, hashes=True)
        ]
        again = in_a_fork(lambda out=out: pack(corpus, tokenizer, out, 0))
        wrong = [
            *(["was not killed"] if status != -signal.SIGKILL else []),
            *(f"{lie} lies" for lie in lies),
            *([f"the second packer ended with {again}"] if again else []),
            *(["other bytes"] if tree(out) != expected else []),
        ]
        print(number, ", ".join(wrong) or "ok", flush=True)


def in_a_fork(action) -> int:
    sys.stdout.flush()
    if (child := os.fork()) == 0:
        code = 1
        try:
            action()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def pack(corpus: Path, tokenizer: Path, out: Path, number: int) -> None:
    """Killed before operation `number`, counted from 1."""
    done = 0

    def audit(event: str, args: tuple) -> None:
        nonlocal done
        writes = (
            event == "open" and isinstance(args[2], int) and args[2] & (os.O_WRONLY | os.O_RDWR)
        )
        if (event in CHANGES or writes) and str(args[0]).startswith(str(out)):
            done += 1
            if done == number:
                os.kill(os.getpid(), signal.SIGKILL)

    sys.addaudithook(audit)
    pretokenize(corpus, tokenizer, out, **ARGS)
    if out.name == "0":
        (out.parent / "operations").write_text(str(done))


def tree(root: Path) -> dict[str, str]:
    return {
        str(file.relative_to(root)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in sorted(root.rglob("*"))
        if file.is_file()
    }


if __name__ == "__main__":
    main()
