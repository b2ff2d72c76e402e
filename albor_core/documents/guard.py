"""Documents of the guard, which starts a program again where it died, and of how it ended."""

from __future__ import annotations

from typing import Any, Literal, NotRequired, TypedDict

from albor_core.documents.shapes import RunPlace


class GuardAnswerDocument(TypedDict):
    """The guard's answer in RUN_DIR/guard/outbox."""

    schema: Literal["albor.answer/1"]
    id: str
    status: str
    detail: str | None
    wall: float | None


class GuardChildDocument(TypedDict):
    """RUN_DIR/guard/child.json: who the trainer process is."""

    schema: Literal["albor.child/1"]
    attempt: int | None
    nonce: str | None
    pid: int | None
    start_ticks: int | None
    boot_id: str | None
    host: str | None
    argv_hash: str | None


_GuardRequestFrom = TypedDict("_GuardRequestFrom", {"from": str | None})


class GuardRequestDocument(_GuardRequestFrom):
    """A request in RUN_DIR/guard/inbox."""

    schema: Literal["albor.command/1"]
    id: str
    cmd: str | None
    argument: str | None
    not_after_wall: float | None


class CrashTime(TypedDict):
    wall: str | None
    mono_ns: int | None
    boot_id: str | None
    uptime_s: float | None
    lived_s: float | None


class CrashExit(TypedDict):
    code: int
    signal: Any
    core: bool | None
    source: str | None
    raw: Any


class CrashProgress(TypedDict):
    step: Any
    loss: Any
    tokens: Any
    phase: Any
    last_ckpt_step: Any
    steps_lost: Any
    state_age_s: Any
    state_valid: bool | None


class CrashEvidenceOom(TypedDict):
    memcg_before: int | None
    memcg_after: int | None
    dmesg: list[Any] | None
    rss_peak: NotRequired[int | None]
    """Bytes; of the largest program that this guard started and saw end."""


class CrashEvidencePython(TypedDict):
    type: Any
    message: Any
    where: Any
    traceback_tail: Any


class CrashEvidence(TypedDict):
    hang: Any
    oom: CrashEvidenceOom
    xid: list[Any]
    last_words: Any
    python: CrashEvidencePython
    threads: Any
    stacks: Any
    log: str | None
    log_tail: list[Any]


class CrashHost(TypedDict):
    mem_avail: int | None
    disk_free: int | None
    shm_free: int | None
    load: list[float | None]
    kernel: str | None
    cgroup: str | None


class CrashPolicy(TypedDict):
    backoff_index: int | None
    no_progress: int | None
    restarts_in_a_day: int | None
    diagnostic: bool | None
    diagnostic_next: bool | None


_CrashClass = TypedDict("_CrashClass", {"class": str | None})


class CrashDocument(_CrashClass):
    """RUN_DIR/crash-reports/*.json: one death of a trainer."""

    schema: Literal["albor.crash/1"]
    id: str
    run_id: str
    attempt: int | None
    nonce: str | None
    pid: int | None
    adopted: bool | None
    argv: list[str | None]
    time: CrashTime | None
    exit: CrashExit | None
    action: str | None
    reason: str | None
    delay_s: float | None
    progress: CrashProgress
    evidence: CrashEvidence
    gpu: Any
    host: CrashHost
    policy: CrashPolicy
    env: dict[str, str | None]
    env_names: list[str | None]
    prev: str | None
    redactions: int | None
    truncated: list[Any]


class ExitFields(TypedDict):
    run_id: str
    attempt: int | None
    nonce: str | None
    code: int
    reason: str | None
    step: int | None
    message: str
    error: Any
    wall: float | None


class ExitDocument(ExitFields):
    """RUN_DIR/exit.json: the trainer's last words."""

    schema: Literal["albor.exit/1"]
    lines_lost: NotRequired[int]
    """Lines that its program logged and no disk took."""
    console_bytes_lost: NotRequired[int]
    """Bytes that it printed and no log took."""


class LastExit(ExitFields):
    schema: str


class GuardCommandDocument(TypedDict):
    """The guard's answer to a command."""

    schema: Literal["albor.guard.command/1"]
    run: RunPlace
    command: str
    status: str
    detail: str | None


class ProcessMark(TypedDict):
    pid: int | None
    start_ticks: int | None


class PolicyMemory(TypedDict):
    restarts_s: list[Any]
    backoff_index: int | None
    no_progress: int | None
    checkpoint: Any
    fault: Any
    is_diagnostic: bool | None


class GuardFields(TypedDict):
    run_id: str
    boot_id: str | None
    guard: ProcessMark | None
    seq: int | None
    mono_ns: int | None
    wall: float | None
    state: str | None
    since_mono_ns: int | None
    attempt: int | None
    adopted: bool | None
    diagnostic: bool | None
    class_last: str | None
    reason: str | None
    backoff: Any
    no_progress: int | None
    last_ckpt: int | None
    hang_detection: bool | None
    exit_code: int | None
    memory: PolicyMemory


class GuardDocument(GuardFields):
    """RUN_DIR/guard/guard.json: the guard's own state, replaced at each transition."""

    schema: Literal["albor.guard/1"]
    child: ProcessMark | None


class StatusFields(TypedDict):
    word: str
    detail: str | None
    trainer_pid: int | None
    guard_pid: int | None


class ChildMark(TypedDict):
    pid: int | None
    start_ticks: NotRequired[int | None]


class GuardNow(GuardFields):
    schema: str
    child: ChildMark | None


class GuardStanding(TypedDict):
    word: Literal["watching", "ended", "gone", "unseen"]
    """watching: it lives; ended: it has left, its work done; gone: it was killed; unseen: it is of
    another machine.
    """
    heard: float | None
    """When it last wrote its file, in UTC seconds."""


class GuardStatusDocument(TypedDict):
    """What the guard of a run is doing."""

    schema: Literal["albor.guard.status/1"]
    run: RunPlace
    status: StatusFields
    guard: GuardNow | None
    standing: GuardStanding | None
    """Whether the guard is there now; null for a run that never had one. `guard` is its file as it
    last wrote it.
    """


class LaunchOptions(TypedDict):
    poll_s: float | None
    stale_s: float | None
    backoff_s: list[float | None]
    stable_s: float | None
    grace_s: float | None
    max_no_progress: int | None
    max_restarts: int | None
    start_limit_s: float | None
    compile_limit_s: float | None
    eval_limit_s: float | None
    checkpoint_limit_s: float | None
    min_free_bytes: Any


class LaunchDocument(TypedDict):
    """RUN_DIR/guard/launch.json: what the guard starts."""

    schema: Literal["albor.launch/1"]
    argv: list[str | None]
    cwd: str | None
    env: dict[str, str]
    options: LaunchOptions
    max_steps: int | None
    kind: str
    final_exit_needs_exit_json: bool | None
    index: bool | None
    umask: int | None
    has_secrets: NotRequired[bool]
    """argv held secrets, which are left out of this file."""
