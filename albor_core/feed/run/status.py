"""What a run is doing, in one word: derived from held locks and last words, stored nowhere.

A dead run never looks alive and a live one never dead: whether anything works on a run is asked of
the kernel (record locks), and files only say *what* is being done or how it ended. Every file is
believed for its own attempt only, since a kill -9 leaves the words of earlier attempts behind.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from albor_core.feed.view.run_status import SILENT_S, SILENT_STEPS, RunStatus, without_folder
from albor_core.run.exit import STOPPED_BY_ANDON, end_word, exit_reason, read_exit
from albor_core.run.files.pulled_file import Pulled, read_pulled
from albor_core.run.guard_state import ASKED, GUARD_ENDS, read_guard
from albor_core.run.home.registry import is_same_run
from albor_core.run.light_dataclass import dataclass
from albor_core.run.liveness import Liveness, boot_id, deleted_lock_holder, start_ticks
from albor_core.run.rundir import FRESH_S, RunDir, read_json
from albor_core.run.state import Freshness, read_state
from albor_core.run.status import ENDS
from albor_core.run.values.lenient import NOTHING, finite
from albor_core.run.values.quantity import age, duration

NO_NEWS_S = 300.0  # the guard's default patience, where the run names no limit of its own
DAY_S = 86400.0
NEVER_STARTED = "it was never started"
_STOP_OF_JOB = re.compile(r"stopped: (SIG.* job .*)", re.DOTALL)

Document = Mapping[str, Any]


@dataclass(frozen=True)
class Evidence:
    """Everything a status is judged from, read once. Documents that are unreadable are None."""

    locks: Liveness
    state: Document | None
    guard: Document | None
    exit: Document | None
    age_s: float | None
    created: float | None = None
    host: str = ""
    ended: str | None = None
    state_flaw: str = ""  # what is wrong with a state file that is there
    has_steps: bool = False  # by a store: then there was a state file once
    pulled: Pulled | None = None  # where this is a copy: no lock of it can be seen
    is_gone: bool = False  # its folder was taken away
    lost_there: str = ""  # why the run is lost, where the folder that it was copied from is of here

    @property
    def attempt(self) -> int:
        """The newest attempt that any file speaks of; 0 before the first."""
        return max(_attempt(self.state), _attempt(self.guard), _attempt(self.exit))

    @property
    def is_starting(self) -> bool:
        """Whether a later attempt than the first is at work and has not come to a step yet: what
        state and stores tell of steps is of the attempt before it.
        """
        if self.locks.trainer is None or self.attempt < 2:
            return False
        state = self.current_state
        if state is None:
            return self.of_newest(self.state) is None
        has_step = bool(state.get("global_step")) or state.get("loss") is not None
        return not has_step and state.get("phase") in ("initializing", "preparing", "compiling")

    @property
    def current_state(self) -> Document | None:
        """The live state if it is of the newest attempt, and not left behind by a dead writer."""
        state = self.of_newest(self.state)
        if state is None or (self.locks.trainer and not _writer_lives(state)):
            return None
        return state

    def of_newest(self, document: Document | None) -> Document | None:
        """The document if it speaks of the newest attempt."""
        return document if _attempt(document) >= self.attempt else None


def run_status(
    run: RunDir, *, freshness: Freshness | None = None, ended: str | None = None
) -> RunStatus:
    """The status of a run now. `ended` is the end that a store recorded, used where files are gone.

    Pass the same `freshness` at each poll: then silence is measured by our own clock. Never call it
    in a process that holds the run's locks: probing would drop them. Raises nothing.
    """
    return judge(gather(run, freshness=freshness, ended=ended))


def gather(
    run: RunDir, *, freshness: Freshness | None = None, ended: str | None = None
) -> Evidence:
    """Read what there is. Locks come last of all files but before the verdict: a run that ends
    while we read is then seen as ended, with last words that are already there or lost for ever.
    """
    state = read_state(run.state)
    meta = read_json(run.run_json) or {}
    locks = run.liveness()
    if locks.trainer is None:  # its last words may be younger than what we read
        state = read_state(run.state)
    is_gone = ended is None and not locks.is_alive and not run.path.is_dir()
    if is_gone:
        locks = Liveness(works_without_folder(run), None)
    age_s = (freshness or Freshness()).age_s(state)
    pulled = read_pulled(run)
    return Evidence(
        locks=locks,
        state=state,
        guard=read_guard(run),
        exit=read_exit(run),
        age_s=age_s,
        created=finite(meta, "created"),
        host=str(meta.get("host") or ""),
        ended=ended,
        pulled=pulled,
        is_gone=is_gone,
        lost_there=lost_there(pulled, meta),
    )


def works_without_folder(run: RunDir) -> int | None:
    """The process that works on a run whose folder was taken away; None where none is seen."""
    return deleted_lock_holder(run.run_lock) or deleted_lock_holder(run.guard_lock)


def lost_there(pulled: Pulled | None, about: Document) -> str:
    """Why the run of run.json `about` is lost where it was copied from, if that is a folder of this
    host: its locks can be seen. "" where it is not lost there, or nothing can be proved.
    """
    if pulled is None or about.get("host") != os.uname().nodename or pulled.folder[:1] != "/":
        return ""
    there = RunDir(Path(pulled.folder))
    if read_pulled(there) is not None or not is_same_run(about, read_json(there.run_json) or {}):
        return ""
    status = run_status(there)
    return status.detail if status.word == "lost" else ""


def guard_standing(run: RunDir, status: RunStatus, guard: Document | None) -> dict[str, Any] | None:
    """Whether the guard that wrote `guard` is there now, and when it last wrote: a guard that was
    killed leaves its file behind as if it went on. None where none ever wrote.
    """
    if guard is None:
        return None
    host = str((read_json(run.run_json) or {}).get("host") or "")
    is_of_here = host in ("", os.uname().nodename) or guard.get("boot_id") == boot_id()
    if status.guard_pid is not None:
        word = "watching"
    elif str(guard.get("state")) in GUARD_ENDS:
        word = "ended"
    else:
        word = "gone" if is_of_here else "unseen"
    return {"word": word, "heard": finite(guard, "wall")}


def judge(evidence: Evidence) -> RunStatus:
    """The word and the reason. Pure but for asking whether the state's writer still exists."""
    locks = evidence.locks
    if evidence.is_gone:
        pid = locks.trainer
        word, detail = "lost" if pid is None else "running", without_folder(pid)
    elif locks.trainer is not None:
        word, detail = _alive(evidence)
    elif locks.guard is not None:
        word, detail = _between_lives(evidence)
    elif evidence.lost_there:
        word, detail = "lost", evidence.lost_there
    elif evidence.pulled is None and _works_elsewhere(evidence):
        word = "running"
        detail = f"on {evidence.host}, by its state file: locks do not reach here"
    else:
        word, detail = _dead(evidence)
    silent_s = silence(evidence) if word in ("running", "unguarded") else None
    if silent_s is not None:
        detail = "; ".join(part for part in (f"no news for {age(silent_s)}", detail) if part)
    return RunStatus(word, detail, locks.trainer, locks.guard, silent_s)


def silence(evidence: Evidence) -> float | None:
    """For how long an attempt that trains has been silent; None where that is no longer than its
    steps take at times, or their usual time is unknown.
    """
    state, age_s = evidence.current_state, evidence.age_s
    if state is None or age_s is None or state.get("phase") not in ("training", "", None):
        return None
    known = (finite(state, "step_ms"), finite(state, "news_gap_seconds"))
    step_s = [value / scale for value, scale in zip(known, (1000, 1), strict=True) if value]
    if not step_s or age_s < max(SILENT_S, SILENT_STEPS * max(step_s)):
        return None
    return age_s


def _alive(evidence: Evidence) -> tuple[str, str]:
    state = evidence.current_state
    has_guard = evidence.locks.guard is not None
    missing = _is_guarded(evidence) and not has_guard
    if has_guard and _is_held(evidence.guard, evidence.attempt):
        return "paused", "held by its guard"  # a program stopped by a signal cannot say so itself
    if state is None:
        detail = _why_silent(evidence)
        return ("unguarded", f"its guard is gone; {detail}") if missing else ("running", detail)
    phase = str(state.get("phase") or "")
    limit = finite(state, "phase_limit_s") or NO_NEWS_S
    if evidence.age_s is not None and evidence.age_s > limit:
        return "stalled", f"no news for {age(evidence.age_s)} while {phase or 'running'}"
    if phase == "paused":
        return "paused", "its guard is gone" if missing else ""
    if missing:
        return "unguarded", "its guard is gone: it will not be restarted"
    return "running", "" if phase in ("training", "") else phase


def _is_guarded(evidence: Evidence) -> bool:
    """Whether the newest attempt is a guard's. One that its guard's work was done before is not:
    a program logs into a run that had ended.
    """
    guard = evidence.guard
    is_over = _said(guard, "state") in GUARD_ENDS and _attempt(guard) < evidence.attempt
    return guard is not None and not is_over


def _why_silent(evidence: Evidence) -> str:
    """Why a held lock is all there is of this attempt."""
    if evidence.state_flaw:
        return evidence.state_flaw
    if evidence.state is None and (evidence.age_s is not None or evidence.has_steps):
        return "its state file is missing"
    if evidence.state is not None and _attempt(evidence.state) >= evidence.attempt:
        return "the process that gave news has ended"
    life = f"attempt {evidence.attempt}" if evidence.attempt else "the program"
    return f"{life}: no news yet"


def _is_held(guard: Document | None, attempt: int) -> bool:
    """Whether the guard has stopped this attempt's processes until they are resumed."""
    return guard is not None and guard.get("state") == "paused" and _attempt(guard) >= attempt


def _between_lives(evidence: Evidence) -> tuple[str, str]:
    """The guard lives and the trainer does not."""
    guard = evidence.guard or NOTHING
    word, attempt = _said(guard, "state"), _attempt(guard)
    why = f" after {guard['class_last']}" if guard.get("class_last") else ""
    match word:
        case "backoff":
            return "restarting", f"attempt {attempt + 1}{_in_how_long(guard)}{why}"
        case "done":
            return "completed", "the guard is finishing"
        case "failed":
            return _final_word(guard), f"the guard is finishing{why}"
        case "stopped" | "stopping":
            return "stopped", "the guard is finishing"
        case "collecting":
            return "restarting", f"collecting the crash report{why}"
        case "running" | "paused" if _child_lives(guard):
            return word, "its program holds no lock"
        case "hung" | "running" | "paused":
            return "restarting", "the trainer has just ended"
    if attempt <= 1 and evidence.state is None:
        return "queued", word or "its guard is starting"
    return "restarting", word or f"attempt {max(attempt, 1)} is starting"


def _final_word(guard: Document) -> str:
    """The guard's verdict; what Andon stopped was stopped, though it will not be started again."""
    word = GUARD_ENDS[str(guard["state"])]
    return "stopped" if guard.get("exit_code") == STOPPED_BY_ANDON else word


def _dead(evidence: Evidence) -> tuple[str, str]:
    """Neither lock is held: whose last words of the newest attempt count?"""
    guard, last_words = evidence.of_newest(evidence.guard), evidence.of_newest(evidence.exit)
    if guard is not None and _said(guard, "state") in GUARD_ENDS:
        return _final_word(guard), _last_reason(last_words or NOTHING, guard)
    if last_words is not None:
        word = end_word(_said(last_words, "reason"), last_words.get("code"))
        gone = "; its guard is gone" if _is_guarded(evidence) and word == "failed" else ""
        return word, _last_reason(last_words, None) + gone
    if (phase := _said(evidence.of_newest(evidence.state), "phase")) in ENDS:
        return phase, ""
    if evidence.ended:
        return end_word(evidence.ended, None), ""
    return _vanished(evidence, guard)


def _vanished(evidence: Evidence, guard: Document | None) -> tuple[str, str]:
    """Nothing tells of an end: was there a beginning, and could an end be seen from here?"""
    newest = evidence.attempt
    if evidence.pulled is not None or (newest and _is_of_elsewhere(evidence)):
        return "unknown", _since_when(evidence)
    if newest:
        return "lost", _without_last_words(newest, guard)
    young = evidence.created is not None and time.time() - evidence.created < FRESH_S
    return ("queued", "not started yet") if young else ("lost", NEVER_STARTED)


def _without_last_words(newest: int, guard: Document | None) -> str:
    """Who vanished: a guard that waited had told how the attempt before ended."""
    why = (guard or {}).get("reason") or (guard or {}).get("class_last")
    if guard is not None and why and guard.get("state") in ("backoff", "collecting"):
        return f"its guard vanished before attempt {newest + 1}; attempt {newest}: {why}"
    return f"attempt {newest} ended without an exit record"


def _works_elsewhere(evidence: Evidence) -> bool:
    """Whether another machine's run gives news: its locks may not be visible on a shared disk."""
    if not _is_of_elsewhere(evidence):
        return False
    state = evidence.state or {}
    wall = finite(state, "wall")
    limit_s = finite(state, "phase_limit_s") or NO_NEWS_S
    return wall is not None and time.time() - wall < limit_s


def _is_of_elsewhere(evidence: Evidence) -> bool:
    """Whether another machine wrote the newest that is known of a run, and that is not an end.

    Another host name alone proves nothing (containers rename themselves), another kernel does.
    """
    state = evidence.state
    if state is None or _attempt(state) < evidence.attempt:
        return False
    if evidence.pulled is None and (
        evidence.host in ("", os.uname().nodename) or state.get("boot_id") in (None, boot_id())
    ):
        return False
    return state.get("phase") not in ENDS and _attempt(evidence.exit) < _attempt(state)


def _since_when(evidence: Evidence) -> str:
    """A note about a run of another machine without news for long."""
    wall = finite(evidence.state or NOTHING, "wall")
    try:
        form = "%H:%M" if time.time() - (wall or 0.0) < DAY_S else "%Y-%m-%d %H:%M"
        since = "" if wall is None else f"since {time.strftime(form, time.localtime(wall))}: "
    except (OverflowError, ValueError, OSError):  # a number that is not a time
        since = ""
    again = "" if evidence.pulled is None else f": albor runs pull {evidence.pulled.host}"
    return (
        f"{since}it ran on {evidence.host}, and whether it still does cannot be seen from here"
        f"{again}"
    )


def _guard_message(guard: Document | None) -> str:
    """Why a guard that did not end well gave up, or the last death that it saw."""
    if _said(guard, "state") == "done":
        return ""
    return _said(guard, "reason") or _said(guard, "class_last")


def _last_reason(words: Document, guard: Document | None) -> str:
    """Why an attempt ended, by its program's last words and by the guard that outlived it."""
    reason, said_by_guard = _said(words, "reason"), _said(guard, "reason")
    if _said(guard, "state") == "stopped" and ASKED in said_by_guard:
        return said_by_guard.partition("; ")[2]
    if reason == "completed":
        return ""
    if (line := exit_reason(words)) != reason:
        return said_by_guard if said_by_guard.startswith(line) else line
    if reason == "stopped" and (by_job := _STOP_OF_JOB.match(said_by_guard)):
        return by_job[1]
    message = _said(words, "message") or _guard_message(guard)
    if message and reason in ("stopped", "failed"):
        return message[:500]  # the word says that much
    return ": ".join(part for part in (reason, message) if part)[:500]


def _said(document: Document | None, key: str) -> str:
    """A field as text, "" where there is none."""
    return str((document or NOTHING).get(key) or "")


def _attempt(document: Document | None) -> int:
    found = None if document is None else document.get("attempt")
    return found if isinstance(found, int) and found.bit_length() < 64 else 0


def _writer_lives(state: Document) -> bool:
    """Whether the process that wrote the state still exists; True where that cannot be asked."""
    if isinstance(state.get("host"), str) and state["host"] != os.uname().nodename:
        return True
    if state.get("boot_id") != boot_id():
        return False
    pid, ticks = state.get("pid"), state.get("start_ticks")
    if not isinstance(pid, int) or not isinstance(ticks, int):
        return True
    return start_ticks(pid) == ticks


def _child_lives(guard: Document) -> bool:
    child = guard.get("child") or {}
    pid = child.get("pid") if isinstance(child, Mapping) else None
    if not isinstance(pid, int) or guard.get("boot_id") not in (None, boot_id()):
        return False
    found = start_ticks(pid)
    return found is not None and child.get("start_ticks") in (None, found)


def _in_how_long(guard: Document) -> str:
    """ " in 5s", where the guard's clock is ours."""
    backoff = guard.get("backoff")
    until = finite(backoff, "until_mono_ns") if isinstance(backoff, Mapping) else None
    if until is None or guard.get("boot_id") != boot_id():
        return ""
    return f" in {duration(max(0.0, until / 1e9 - time.monotonic()))}"
