"""What to run and how to start its guard: launch.json in, a detached guard process out.

launch.json is written once by whoever starts a run and read by the guard and its stub. It is 0600:
`env` may hold what the program needs and that must stay secret. A command line with a secret in it
never gets there: it goes to the guard, and from it to each attempt's stub, in the environment.
"""

from __future__ import annotations

import hashlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from albor_core.run.errors import AlborError, ConfigError, InUseError
from albor_core.run.files.whole_file import write_json
from albor_core.run.guard_options import Options, parse_options
from albor_core.run.home.registry import mark_launched_here
from albor_core.run.liveness import lock_holder
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.lenient import whole_of
from albor_core.run.values.redact import redact

SCHEMA = "albor.launch/1"
HIDDEN_ARGV = "_ALBOR_ARGV"  # not ALBOR_*: crash reports show the values of those
FORGET = "--forget"  # to the guard: count the restarts from here on
IDENTITY = ("ALBOR_RUN_ID", "ALBOR_RUN_DIR", "ALBOR_ATTEMPT", "ALBOR_NONCE", "ALBOR_RUN_LOCK_FD")
# Where our processes start: `-m` puts the working directory first on sys.path, so it must be a
# trusted one (a stranger's json.py in the user's folder must not be ours), and an uninstalled
# checkout works too.
CODE_ROOT = Path(__file__).resolve().parents[2]
_START_LIMIT_S = 30.0  # an interpreter on a loaded machine; usually 0.1
_STARTED: list[subprocess.Popen[bytes]] = []  # kept, so that a guard that ends is reaped


@dataclass(frozen=True)
class Launch:
    """The program that the guard starts. `kind` is train (our trainer) or guard (any program)."""

    argv: tuple[str, ...]
    cwd: str
    env: Mapping[str, str] = field(default_factory=dict)
    options: Options = field(default_factory=Options)
    max_steps: int | None = None
    kind: str = "train"
    final_exit_needs_exit_json: bool = True
    index: bool = True
    umask: int = 0o077
    has_secrets: bool = False

    @property
    def argv_hash(self) -> str:
        """SHA-256 of the argument list: says whether two attempts ran the same command."""
        return hashlib.sha256(json.dumps(self.argv).encode()).hexdigest()


def write_launch(
    run: RunDir,
    *,
    argv: Sequence[str],
    cwd: str | Path,
    env: Mapping[str, str] | None = None,
    options: Mapping[str, Any] | None = None,
    max_steps: int | None = None,
    kind: str = "train",
    final_exit_needs_exit_json: bool | None = None,
    index: bool = True,
) -> Launch:
    """Write RUN_DIR/guard/launch.json, on the word of this home's user. `env` adds to the
    environment, `options` is config section `guard`.

    `final_exit_needs_exit_json` (default: only for kind `train`): exit 0 alone does not prove that
    the work is done. Secrets in `argv` are left out of the file; give what is returned to
    `start_guard` then. Raises ConfigError for options that cannot be, OSError.
    """
    if not argv:
        raise ConfigError("launch.argv is empty: name the command to run")
    if kind not in ("train", "guard"):
        raise ConfigError(f"launch.kind: {kind!r} is neither 'train' nor 'guard'")
    shown = _without_secrets(argv) if kind == "guard" else list(argv)
    launch = Launch(
        argv=tuple(argv),
        cwd=str(cwd),
        env=dict(env or {}),
        options=parse_options(options or {}),
        max_steps=max_steps,
        kind=kind,
        final_exit_needs_exit_json=(
            kind == "train" if final_exit_needs_exit_json is None else final_exit_needs_exit_json
        ),
        index=index,
        umask=_current_umask() if kind == "guard" else 0o077,
        has_secrets=shown != list(argv),
    )
    mark_launched_here(run)
    run.guard.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_json(run.launch, {"schema": SCHEMA, **asdict(launch), "argv": shown})
    return launch


def _without_secrets(argv: Sequence[str]) -> list[str]:
    safe, _ = redact(list(argv), dict(os.environ))
    return safe


def _current_umask() -> int:
    mask = os.umask(0o077)
    os.umask(mask)
    return mask


def read_launch(run: RunDir) -> Launch:
    """The launch of a run. Raises ConfigError naming the file when it is not one."""
    body = read_json(run.launch)
    if body is None or body.get("schema") != SCHEMA:
        raise ConfigError(f"{run.launch}: no readable {SCHEMA} document")
    argv, env = body.get("argv"), body.get("env") or {}
    if not isinstance(argv, list) or not argv or not all(isinstance(word, str) for word in argv):
        raise ConfigError(f"{run.launch}: argv must be a list of words, is {argv!r}")
    if not isinstance(env, dict) or not all(isinstance(value, str) for value in env.values()):
        raise ConfigError(f"{run.launch}: env must map names to text")
    has_secrets = bool(body.get("has_secrets"))
    if has_secrets:
        argv = _secret_argv(run)
    max_steps, kind = body.get("max_steps"), str(body.get("kind") or "train")
    return Launch(
        argv=tuple(argv),
        cwd=str(body.get("cwd") or run.path),
        env=env,
        options=parse_options(body.get("options") or {}),
        max_steps=whole_of(max_steps),
        kind=kind,
        final_exit_needs_exit_json=bool(body.get("final_exit_needs_exit_json", kind == "train")),
        index=bool(body.get("index", True)),
        umask=int(body.get("umask", 0o077)),
        has_secrets=has_secrets,
    )


def _secret_argv(run: RunDir) -> list[str]:
    """The command line that launch.json does not hold. ConfigError if it was not passed on."""
    try:
        words = json.loads(os.environ.get(HIDDEN_ARGV, ""))
    except ValueError:
        words = None
    if not isinstance(words, list) or not words or not all(isinstance(w, str) for w in words):
        raise ConfigError(
            f"{run.launch}: the command line held a secret, which is not kept",
            hint="start the program again: albor guard run -- CMD",
        )
    return words


def clean_environment() -> dict[str, str]:
    """This process's environment without the identity of a run it may itself belong to."""
    return {name: value for name, value in os.environ.items() if name not in IDENTITY}


def python_module(name: str, *arguments: str) -> list[str]:
    """argv that runs one of our modules. Start it in CODE_ROOT."""
    return [sys.executable, "-m", name, *arguments]


def start_guard(run: RunDir, launch: Launch | None = None, *, forgets: bool = False) -> int:
    """Start a detached guard and return its pid once it holds guard.lock. `launch` is needed where
    launch.json may not hold all of the command line; with `forgets` the restarts of a guard that
    was killed do not count.

    It has its own session and no terminal, so closing the caller's changes nothing. Raises
    InUseError if another guard holds the lock, AlborError with the end of guard.log if the new one
    died.
    """
    holder = lock_holder(run.guard_lock)
    if holder is not None:
        raise already_guarded(run, holder)
    log_path = run.guard / "guard.log"
    log = os.open(
        log_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600
    )
    environment = clean_environment()
    if launch is not None and launch.has_secrets:
        environment[HIDDEN_ARGV] = json.dumps(launch.argv)
    try:
        process = subprocess.Popen(
            python_module(
                "albor_core.guard", str(run.path.absolute()), *([FORGET] if forgets else [])
            ),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            cwd=CODE_ROOT,
            env=environment,
        )
    finally:
        os.close(log)
    _STARTED[:] = [known for known in _STARTED if known.poll() is None] + [process]
    return _wait_until_guarding(run, process, log_path)


def _wait_until_guarding(run: RunDir, process: subprocess.Popen[bytes], log_path: Path) -> int:
    deadline = time.monotonic() + _START_LIMIT_S
    while time.monotonic() < deadline:
        holder = lock_holder(run.guard_lock)
        if holder == process.pid:
            return process.pid
        code = process.poll()
        if code is not None:
            if code == 8 and holder is not None:
                raise already_guarded(run, holder)
            if code == 0:
                return process.pid  # it held the lock and is already done
            kind = InUseError if code == InUseError.exit_code else AlborError
            raise kind(
                f"the guard of {run.id} ended with code {code}: {_tail(log_path)}",
                hint=f"see {log_path}",
            )
        time.sleep(0.02)
    raise AlborError(
        f"the guard of {run.id} (process {process.pid}) took no lock in {_START_LIMIT_S:.0f} s",
        hint=f"see {log_path}",
    )


def already_guarded(run: RunDir, holder: int) -> InUseError:
    """The error of whoever would guard a run beside `holder` (a pid, 0 if it is not visible)."""
    who = f"process {holder}" if holder else "a process that is not visible from here"
    hint = f"albor monitor {run.id}, or albor guard stop {run.id}"
    return InUseError(f"{run.id} is already guarded by {who}", hint=hint)


def _tail(path: Path, limit: int = 2000) -> str:
    try:
        with path.open("rb") as file:
            file.seek(max(0, path.stat().st_size - limit))
            return file.read().decode(errors="replace").strip() or "it said nothing"
    except OSError as error:
        return f"no log ({error.strerror})"
