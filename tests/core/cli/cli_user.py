"""A user of the `albor` program: every command is a process of its own, as in a shell."""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any
from unittest import mock

import jsonschema

from albor_core.cli.main import run
from albor_core.documents.json_schema import schema_of
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir, read_json

ALBOR = [sys.executable, "-P", "-m", "albor_core.cli"]
COCKPIT = [sys.executable, "-P", "-m", "albor_tui.main"]
SEQ_LEN, VOCAB = 32, 512
QUICK_GUARD = "guard: {poll_s: 0.05, backoff_s: [0.05], grace_s: 20}"
LOSSY = "monitoring.alerts=[{condition: 'loss > 10', action: stop, message: 'Loss exploded'}]"
SLOW_STEPS = "step:sleep=0.05@1-100000"  # long enough to be met, changes no number
FEW_STEPS = "step:sleep=0.5@1-100000"  # as long for a run of 40 steps, on a busy machine too


@dataclass(frozen=True)
class Result:
    """What a command left on the terminal."""

    code: int
    out: str
    err: str

    @property
    def document(self) -> dict[str, Any]:
        """The one strict JSON document that stdout must be."""
        return strict(self.out)

    @property
    def error(self) -> dict[str, Any]:
        assert self.code != 0, self
        found = self.document
        assert found["schema"] == "albor.error/1", found
        error: dict[str, Any] = found["error"]
        return error


class User:
    """Somebody with a folder to work in and an ALBOR_HOME."""

    def __init__(self, folder: Path, home: Path) -> None:
        self.folder, self.home = folder, home

    def environment(self, **more: str) -> dict[str, str]:
        mine = {"ALBOR_HOME": str(self.home), "OMP_NUM_THREADS": "1", "TERM": "xterm", **more}
        return {**os.environ, **mine}

    def albor(
        self, *words: object, cwd: Path | None = None, timeout_s: float = 120, **environ: str
    ) -> Result:
        """Run one command to its end; a traceback fails the test whatever the command was."""
        done = subprocess.run(
            [*ALBOR, *map(str, words)],
            cwd=cwd or self.folder,
            env=self.environment(**environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=timeout_s,
        )
        assert "Traceback" not in done.stderr, done.stderr
        return Result(done.returncode, done.stdout, done.stderr)

    def quick(self, *words: object, cwd: Path | None = None, **environ: str) -> Result:
        """The same entry point in this process: 0.02 s, where a new one takes half a second to
        load. For commands that start nothing.
        """
        out, err, argv = io.StringIO(), io.StringIO(), ["albor", *map(str, words)]
        with (
            mock.patch.dict(os.environ, self.environment(**environ)),
            mock.patch.object(sys, "argv", argv),
            contextlib.chdir(cwd or self.folder),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(err),
        ):
            try:
                run()
            except SystemExit as end:
                code = int(end.code or 0)
        return Result(code, out.getvalue(), err.getvalue())

    def cockpit(self, *words: object) -> Result:
        """`albor-tui`, for what it prints."""
        done = subprocess.run(
            [*COCKPIT, *map(str, words)],
            cwd=self.folder,
            env=self.environment(),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=60,
        )
        return Result(done.returncode, done.stdout, done.stderr)

    def start(self, *words: object, **environ: str) -> subprocess.Popen[str]:
        """Start a command and leave it running."""
        return subprocess.Popen(
            [*ALBOR, *map(str, words)],
            cwd=self.folder,
            env=self.environment(**environ),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, name: str) -> RunDir:
        return RunDir(self.folder / "runs" / name)

    def apply(self, name: str, *words: object, **environ: str) -> RunDir:
        """A run that goes on by itself; returns once its guard lives."""
        result = self.albor(
            "train", "apply", "tiny.yaml", "--name", name, "--detach", *words, **environ
        )
        assert result.code == 0, result
        return self.run(name)


def write_config(path: Path, data: Path, **changes: str) -> Path:
    """A tiny model's config as a person writes one; `changes` replace whole lines by their key."""
    lines = {
        "model": "model: {path: ., mode: transformer, architecture: {hidden_size: 32,"
        " num_hidden_layers: 2, num_attention_heads: 4, num_key_value_heads: 2,"
        f" intermediate_size: 64, vocab_size: {VOCAB}, max_position_embeddings: {SEQ_LEN}}}}}",
        "data": f"data: {{train: {data}/shards/train, val: {data}/shards/val,"
        f" tokenizer: {data}/tokenizer.json, batch_size: 4, seq_len: {SEQ_LEN}}}",
        "optimizer": "optimizer: {name: adamw, lr: 3.0e-3}",
        "training": "training: {epochs: 4, max_steps: 40, warmup_steps: 4, grad_clip: 1.0,"
        " output_dir: runs, checkpoint: {save_every: 5}, eval_interval: 10, eval_batches: 2,"
        " num_threads: 1, device: cpu}",
        "monitoring": "monitoring: {system: {interval: 100}, alerts: [{condition: loss > 1,"
        ' action: warn, message: "[/red] above one"}]}',
        "guard": QUICK_GUARD,
    }
    path.write_text("\n".join({**lines, **changes}.values()) + "\n")
    return path


def damage_a_shard(data: Path, copy: Path) -> Path:
    """A training shard in `copy`, which is `data` but for one byte of it."""
    shutil.copytree(data / "shards", copy / "shards")
    shutil.copy(data / "tokenizer.json", copy)
    shard = next((copy / "shards" / "train").glob("*.parquet"))
    raw = bytearray(shard.read_bytes())
    raw[len(raw) // 2] ^= 1  # same size: only reading it shows the damage
    shard.write_bytes(raw)
    return shard


def strict(text: str) -> dict[str, Any]:
    """One JSON object and nothing else; NaN and Infinity are not JSON."""

    def refuse(constant: str) -> None:
        raise AssertionError(f"{constant} is not JSON")

    found = json.loads(text, parse_constant=refuse)
    assert isinstance(found, dict)
    return found


def validate(document: dict[str, Any]) -> dict[str, Any]:
    """The document, held against its published schema."""
    errors = list(_validator(document["schema"].removesuffix("/1")).iter_errors(document))
    assert errors == [], [(list(e.absolute_path), e.message[:200]) for e in errors]
    if document["schema"] == "albor.plan/1" and document["detail"]:
        validate(document["detail"])
    return document


@lru_cache
def _validator(name: str) -> jsonschema.Draft202012Validator:
    schema = schema_of(name)
    jsonschema.Draft202012Validator.check_schema(schema)
    return jsonschema.Draft202012Validator(schema)


def valid(result: Result) -> dict[str, Any]:
    """The document of a command that went well."""
    assert result.code == 0, result
    return validate(result.document)


def tree_hash(*folders: Path) -> str:
    """Changes when any file or folder below `folders` appears, goes, or gets another content."""
    digest = hashlib.sha256()
    for folder in folders:
        for path in sorted(folder.rglob("*")):
            digest.update(str(path.relative_to(folder)).encode() + b"\0")
            if path.is_file() and not path.is_symlink():
                digest.update(path.read_bytes())
    return digest.hexdigest()


def wait_until(claim: Callable[[], Any], timeout_s: float = 60.0) -> Any:
    """What `claim()` is once it is true; fails by name if it never is."""
    deadline = time.monotonic() + timeout_s
    while not (found := claim()):
        assert time.monotonic() < deadline, claim
        time.sleep(0.02)
    return found


def steps_logged(run: RunDir) -> list[int]:
    """Every step the journal holds, rewinds not applied."""
    return [record["step"] for record in records(run) if record["t"] == "m"]


def records(run: RunDir) -> Iterator[dict[str, Any]]:
    if run.journal.exists():
        yield from (line.record for line in read_journal(run.journal) if line.record is not None)


def trainer_pid(run: RunDir) -> int | None:
    return run.liveness().trainer


def step_now(run: RunDir) -> int:
    return int((read_json(run.state) or {}).get("global_step") or 0)


def wait_for_end(run: RunDir, timeout_s: float = 90.0) -> dict[str, Any]:
    """guard.json of a run that is over."""
    wait_until(lambda: not run.liveness().is_alive and run.guard_lock.exists(), timeout_s)
    return read_json(run.guard / "guard.json") or {}


def crash_reports(run: RunDir) -> list[dict[str, Any]]:
    return [read_json(path) or {} for path in sorted(run.crash_reports.glob("*.json"))]
