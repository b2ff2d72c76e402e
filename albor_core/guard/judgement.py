"""What follows the end of an attempt, and what is written of it: crash report, ledger."""

from __future__ import annotations

import time

from albor_core.guard.attempt import GuardedAttempt
from albor_core.guard.deaths import crash_report
from albor_core.guard.deaths.crash_report import Autopsy
from albor_core.guard.policy import (
    Ended,
    ExitFacts,
    ExitPolicy,
    ExitStatus,
    Finish,
    GuardMemory,
    Restart,
    classify,
    decide,
)
from albor_core.guard.records import log_line
from albor_core.guard.status import GuardStatus
from albor_core.run.values.redact import own_environment


def judge(
    status: GuardStatus,
    attempt: GuardedAttempt,
    exit_status: ExitStatus,
    facts: ExitFacts,
    autopsy: Autopsy,
) -> Restart | Finish:
    """Decide what follows; `status` learns memory, class and reason."""
    launch = status.launch
    kind = classify(exit_status, facts)
    event = attempt.ended(kind, exit_status, facts, autopsy, launch)
    before = status.memory
    status.memory, action = decide(before, event, launch.options)
    if isinstance(action, Finish) and status.stop is not None:
        action = status.stop.asked(action)
    status.class_last, status.reason = kind.name, action.reason
    report_id = _report(status, autopsy, facts, event, before, action)
    _write_end(status, attempt, event, action, report_id)
    return action


def _report(
    status: GuardStatus,
    autopsy: Autopsy,
    facts: ExitFacts,
    event: Ended,
    before: GuardMemory,
    action: Restart | Finish,
) -> str | None:
    """A crash report for every death that was not asked for; its id."""
    if event.kind.verdict in (ExitPolicy.DONE, ExitPolicy.STOPPED):
        return None
    run, launch = status.run, status.launch
    document = crash_report.build(
        run, launch, autopsy, facts, event, before, action, wall=time.time()
    )
    if isinstance(action, Finish) and action.links_reports:
        document["linked"] = [name for name in (document["prev"], document["id"]) if name]
        status.reason = f"{action.reason}; see reports {', '.join(document['linked'])}"
    written = crash_report.write(run, document, {**own_environment(), **launch.env})
    if written is None:
        status.ledger.event("guard.report_failed", severity="warning", report=document["id"])
    return written


def _write_end(
    status: GuardStatus,
    attempt: GuardedAttempt,
    event: Ended,
    action: Restart | Finish,
    report_id: str | None,
) -> None:
    if not attempt.is_confirmed:
        attempt.write_start(status.ledger, status.launch)  # every end has its start
    word = {"done": "stop", "stopped": "stop", "failed": "fail"}
    status.ledger.line(
        "attempt.end",
        attempt=attempt.number,
        code=event.status.code,
        signal=event.status.signal_name,
        **{"class": event.kind.name},
        action="restart" if isinstance(action, Restart) else word[action.state],
        reason=status.reason,
        delay_s=action.delay_s if isinstance(action, Restart) else None,
        report=report_id,
        step=event.step,
    )
    log_line(f"attempt {attempt.number} ended: {status.reason}")
