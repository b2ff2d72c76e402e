"""Crash reports: one redacted JSON file per death, safe to paste into an issue (albor.crash/1).

A report never stops a restart: where the disk refuses it, it goes to standard error.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from albor_core.guard.deaths import evidence
from albor_core.guard.launch import Launch
from albor_core.guard.policy import Ended, ExitFacts, Finish, GuardMemory, Restart, TrainerWords
from albor_core.run.files.whole_file import write_bytes
from albor_core.run.liveness import boot_id
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import strict_json
from albor_core.run.values.redact import hidden_names, own_environment, redact, shown_environment

MAX_BYTES = 256 << 10
KEPT = 200
KEPT_FIRST = 5
_SHRINKABLE = ("log_tail", "traceback_tail", "threads")


@dataclass
class Autopsy:
    """The evidence of one death, before any decision."""

    attempt: int
    nonce: str
    pid: int
    is_adopted: bool
    log: Path
    log_tail: list[str] = field(default_factory=list)
    python: tuple[str, str, str] | None = None
    oom_before: int | None = None
    oom_after: int | None = None
    oom_lines: list[str] | None = None
    xids: list[dict[str, Any]] | None = None
    threads: list[dict[str, Any]] = field(default_factory=list)
    gpu: dict[str, Any] | None = None
    state: Mapping[str, Any] | None = None
    state_age_s: float | None = None
    hang: str | None = None


def report_id(attempt: int, wall: float) -> str:
    """Sortable by time, unique per attempt."""
    return f"{time.strftime('%Y%m%dT%H%M%SZ', time.gmtime(wall))}-a{attempt:04d}"


def newest_report(run: RunDir) -> str | None:
    """Id of the last report of this run."""
    return max((path.stem for path in run.crash_reports.glob("*.json")), default=None)


def build(
    run: RunDir,
    launch: Launch,
    autopsy: Autopsy,
    facts: ExitFacts,
    event: Ended,
    memory: GuardMemory,
    action: Restart | Finish,
    *,
    wall: float,
) -> dict[str, Any]:
    """The document, not yet redacted."""
    restart = action if isinstance(action, Restart) else None
    return {
        "schema": "albor.crash/1",
        "id": report_id(autopsy.attempt, wall),
        "run_id": run.id,
        "attempt": autopsy.attempt,
        "nonce": autopsy.nonce,
        "pid": autopsy.pid,
        "adopted": autopsy.is_adopted,
        "argv": list(launch.argv),
        "time": {
            "wall": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(wall)),
            "mono_ns": time.monotonic_ns(),
            "boot_id": boot_id(),
            "uptime_s": evidence.uptime_s(),
            "lived_s": round(event.lived_s, 3),
        },
        "exit": {
            "code": event.status.code,
            "signal": event.status.signal_name,
            "core": event.status.core,
            "source": event.status.source,
            "raw": None if event.status.signal is None else -event.status.signal,
        },
        "class": event.kind.name,
        "action": "restart" if restart else ("stop" if event.stop_signal else "fail"),
        "reason": action.reason,
        "delay_s": restart.delay_s if restart else None,
        "progress": _progress(autopsy, event),
        "evidence": _evidence(run, autopsy, facts),
        "gpu": autopsy.gpu,
        "host": evidence.host_report(run.path),
        "policy": {
            "backoff_index": memory.backoff_index,
            "no_progress": memory.no_progress,
            "restarts_in_a_day": len(memory.restarts_s),
            "diagnostic": memory.is_diagnostic,
            "diagnostic_next": restart.is_diagnostic if restart else False,
        },
        "env": shown_environment({**own_environment(), **launch.env}),
        "env_names": hidden_names({**own_environment(), **launch.env}),
        "prev": newest_report(run),
    }


def _progress(autopsy: Autopsy, event: Ended) -> dict[str, Any]:
    state = autopsy.state or {}
    lost = None
    if event.step is not None and event.checkpoint is not None:
        lost = max(0, event.step - event.checkpoint)
    return {
        "step": event.step,
        "loss": state.get("loss"),
        "tokens": state.get("tokens"),
        "phase": state.get("phase"),
        "last_ckpt_step": event.checkpoint,
        "steps_lost": lost,
        "state_age_s": autopsy.state_age_s,
        "state_valid": autopsy.state is not None,
    }


def _evidence(run: RunDir, autopsy: Autopsy, facts: ExitFacts) -> dict[str, Any]:
    words, found = facts.words, autopsy.python
    kind, message, where = found if found is not None else (None, None, None)
    if words is not None and words.error_type:
        kind, message, where = words.error_type, words.error_message, words.where
    stacks = run.logs / f"a{autopsy.attempt:04d}.stacks"
    return {
        "hang": autopsy.hang,
        "oom": {
            "memcg_before": autopsy.oom_before,
            "memcg_after": autopsy.oom_after,
            "dmesg": autopsy.oom_lines,
            "rss_peak": None if autopsy.is_adopted else evidence.rss_peak(),
        },
        "xid": autopsy.xids,
        "last_words": None if words is None else {"code": words.code, "reason": words.reason},
        "python": {
            "type": kind,
            "message": message,
            "where": where,
            "traceback_tail": autopsy.log_tail[-30:] if kind else None,
        },
        "threads": autopsy.threads or None,
        "stacks": f"logs/{stacks.name}" if has_content(stacks) else None,
        "log": f"logs/{autopsy.log.name}",
        "log_tail": autopsy.log_tail,
    }


def has_content(path: Path) -> bool:
    """Whether there is a file with something in it."""
    try:
        return path.stat().st_size > 0
    except OSError:
        return False


def seal(document: dict[str, Any], environment: Mapping[str, str]) -> bytes:
    """The bytes to write: finite numbers only, redacted last, at most 256 KiB."""
    document = strict_json(document)
    document["redactions"], document["truncated"] = 0, []
    safe, count = redact(document, environment)
    for name in _SHRINKABLE:
        if len(_as_text(safe)) <= MAX_BYTES:
            break
        document["truncated"].append(name)
        _shrink(document["evidence"], name)
        safe, count = redact(document, environment)
    return _as_text({**safe, "redactions": count})


def _as_text(document: dict[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False, indent=1).encode()


def _shrink(found: dict[str, Any], name: str) -> None:
    if name == "traceback_tail":
        found["python"][name] = None
    elif isinstance(found.get(name), list):
        found[name] = found[name][-20:] if name == "log_tail" else found[name][:4]


def write(run: RunDir, document: dict[str, Any], environment: Mapping[str, str]) -> str | None:
    """Write one report durably and drop old ones; its id, or None if the disk refused it.

    The report then goes to standard error, so that the guard's own log has it.
    """
    content = seal(document, environment)
    path = run.crash_reports / f"{document['id']}.json"
    try:
        run.crash_reports.mkdir(mode=0o700, exist_ok=True)
        write_bytes(path, content, durable=True)
        _drop_old(run)
    except OSError as error:
        sys.stderr.write(f"{path}: {error.strerror}\n{content.decode()}\n")
        sys.stderr.flush()
        return None
    return str(document["id"])


def _drop_old(run: RunDir) -> None:
    reports = sorted(run.crash_reports.glob("*.json"))
    for path in reports[KEPT_FIRST : max(KEPT_FIRST, len(reports) - KEPT)]:
        path.unlink(missing_ok=True)


def complete(autopsy: Autopsy, *, since_mono_s: float, look_at_gpu: bool) -> None:
    """Collect the evidence that is still there after the death."""
    autopsy.log_tail = evidence.log_tail(autopsy.log)
    autopsy.python = evidence.python_error(autopsy.log_tail)
    autopsy.oom_after = evidence.oom_kills()
    lines = evidence.kernel_lines(since_mono_s)
    autopsy.xids = None if lines is None else evidence.xids(lines)
    autopsy.oom_lines = None if lines is None else evidence.oom_lines(lines, autopsy.pid)
    if look_at_gpu:
        autopsy.gpu = evidence.gpu_report()


def ran_out_of_memory(words: TrainerWords | None, autopsy: Autopsy) -> bool:
    """Whether it ended in Python's own MemoryError (or numpy's kind of it)."""
    said = words.error_type if words is not None and words.error_type else ""
    kind = said or (autopsy.python[0] if autopsy.python is not None else "")
    return kind.rpartition(".")[2] in ("MemoryError", "_ArrayMemoryError")


def was_oom_killed(autopsy: Autopsy) -> bool | None:
    """Whether the kernel killed for memory; None if nothing can say."""
    if autopsy.oom_lines:
        return True
    if autopsy.oom_before is None or autopsy.oom_after is None:
        return None
    return autopsy.oom_after > autopsy.oom_before
