"""The words that runs are described with, each with a sentence: docs/reference/events.md.

A test holds the tables to the code: a word that it says and a word that stands here are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from albor_core.run.status import STATUSES

EXIT_CLASSES: Mapping[str, tuple[str, str]] = {
    "done": ("ends", "exit code 0, with an exit record or at the final step"),
    "early_exit": ("restarts", "exit code 0 without either: something exited too soon"),
    "exception": (
        "restarts",
        "any other exit code; at once before the first logged step; the same one twice ends",
    ),
    "crash": ("restarts", "SIGSEGV, SIGABRT, SIGFPE or SIGQUIT; before step 1 once, for diagnosis"),
    "signal": ("restarts", "any other signal"),
    "fatal_signal": ("ends", "SIGILL, SIGBUS, SIGXFSZ or SIGSYS: a restart cannot help"),
    "killed": ("restarts", "SIGKILL, with no sign that memory was the cause"),
    "oom_host": ("restarts", "MemoryError, or the kernel killed for memory; twice at a step ends"),
    "oom_gpu": ("ends", "the GPU's memory is too small: the same batch would not fit again"),
    "killed_by_guard": ("restarts", "SIGKILL of the guard"),
    "hang": ("restarts", "no progress for longer than the phase may take; ended by the guard"),
    "external": ("restarts", "SIGHUP, SIGINT or SIGTERM that the guard did not send"),
    "temporary": ("restarts", "exit code 75: a temporary failure"),
    "unknown_exit": ("restarts", "ended while no guard watched, without an exit record"),
    "gpu_lost": ("ends", "the driver reported a GPU that needs a reset (Xid 48, 79, 95, 119)"),
    "stopped": ("ends", "ended by request before the last step, whatever the exit code"),
    "config": ("ends", "exit code 2 in the exit record: the config is refused"),
    "andon": (
        "ends",
        "exit code 4 in the exit record: an alert rule (Andon) or a limit of the trainer",
    ),
    "internal": ("ends", "exit code 5 in the exit record: a mistake of the program itself"),
    "no_checkpoint": ("ends", "exit code 6 in the exit record: checkpoints exist, none is usable"),
    "data": ("ends", "exit code 7 in the exit record: the data is refused"),
    "in_use": ("ends", "exit code 8: another process trains here"),
}

EVENTS: Mapping[str, str] = {
    "run.start": "an attempt begins; `resumed_from` is the checkpoint's step",
    "run.first_step": "the first step of an attempt is done, `total_s` after its process began, "
    "and what each part of that took",
    "run.end": "the program ended by itself: `status`, `reason`, `code`",
    "run.described": "the arguments that a program under `guard run` passed to `track.start`",
    "run.goals": "which way metrics are better, as the program declared",
    "run.metric": "what `run.define_metric` said of a metric: `x`, `summary`",
    "run.group": "the group that `track.start` put the run in",
    "run.job_type": "the kind of job that `track.start` called the run",
    "run.renamed": "a person gave the run another name",
    "metric.pin": "a person pinned a metric: it stands for the run in lists",
    "metric.unpin": "a person undid that",
    "recipe.loaded": "the class of `training.mode`, its source file and what it read",
    "recipe.changed": "the source file differs from the one that the earlier attempt loaded",
    "run.imported": "the history comes from another tracker",
    "run.restored": "points that a rewind hid count again, by `albor runs restore`",
    "import.axis": "what the steps of those metrics count, where it is not the step of the program",
    "import.left_out": "parts of that history that have no place here, counted",
    "sample": "a text that the model made",
    "eval.scores": "what an evaluation found of the checkpoint of a step, by metric",
    "checkpoint.saved": "a checkpoint is on the disk, verified",
    "checkpoint.failed": "a save failed; red after three in a row",
    "checkpoint.bad": "a checkpoint is damaged and set aside, or none is left",
    "jidoka.overruled": "a person resumed a self-paused run (Jidoka) with another budget",
    "gpu.idle": "the run trains on the CPU though `gpu` is there; `why`, and a `remedy`",
    "config.changed": "resumed with another value of `field`, as allowed",
    "mixture.changed": "from sequence number `sequence` on its sources have other weights, or are "
    "others; `seen`: what each has given until then",
    "data.changed": "resumed with other shards of `split`, as allowed: their hash `was` and `now`",
    "run.continued": "the run continues from a checkpoint of another run",
    "validation.restarted": "other data is evaluated: best loss and patience begin anew",
    "control.paused": "paused by request",
    "control.resumed": "resumed by request",
    "control.unanswered": "a request was carried out, but the answer could not be written",
    "brick.traced": "a profiler trace was kept for an alert of a part of the step (brick): `path`",
    "brick.untraced": "such a trace failed: `reason`; no more are tried",
    "jidoka.pause": "the run paused itself: a part of the step took more than twice its budget",
    "andon.alert": "a rule fired: `rule`, `metric`, `value`, `threshold`, `action`",
    "andon.clear": "an alert ended; the same `id`",
    "andon.act": "what the watcher did about an alert: `action`, `done`, `detail`",
    "andon.command": "how the command of a rule ended: `code`, the end of its `output`, `problem`",
    "andon.ack": "a person acknowledged an alert",
    "step.chosen": "which implementation runs the training step",
    "step.skipped": "updates without a finite loss or gradient were skipped, counted",
    "gradient.spike": "gradients far above their usual size were scaled down",
    "gradient.missing": "parameters get no gradient",
    "training.rollback": "returned to the last good checkpoint, past the batches that caused it",
    "kernels.chosen": "what runs one op here, why, and what was measured of each candidate",
    "kernels.parity": "after that step, how far the whole model was from the plain one on the CPU "
    "in fp32; told once that is known",
    "kernels.rejected": "a faster implementation failed its comparison and is not used",
    "kernels.unmet": "ALBOR_KERNELS=triton, where Triton kernels cannot run",
    "optimizer.ready": "the hyper-parameters that the optimizer uses",
    "track.unused": "arguments of `track.start` that were ignored: the guard or an earlier attempt "
    "had set them",
    "track.too_many_names": "metrics beyond the limit of names: `first`, `left_out`, `names`",
    "track.rewind": "training began again: what `metrics` metrics had after step `after` went",
    "track.odd": "odd values, keys or steps that were logged, counted",
    "artifact.failed": "an artefact could not be read",
    "hf.nan_filter": "the Trainer's repair of a loss of NaN was switched off, so that it is seen",
    "hf.summary": "the summary that Hugging Face's Trainer logs at its end",
    "hf.checkpoint": "Hugging Face's Trainer saved a checkpoint",
    "hf.train_end": "Hugging Face's Trainer is done",
    "guard.state": "the guard's state changed",
    "guard.backoff": "the guard waits `delay_s` before the next attempt",
    "guard.moved": "the run directory was moved: only the process is watched until it is back",
    "guard.job": "the scheduler's job that an attempt runs in: `id`, `restart`, `nodes`",
    "guard.adopted": "the guard took over a program that an earlier guard had started",
    "guard.locked_out": "a program that an earlier guard had started came first and has ended",
    "guard.command": "a person or program sent the guard a command",
    "guard.hang": "the program reports no progress and is ended",
    "guard.gave_up": "restarts did not help",
    "guard.log_rotated": "the log grew too large and was moved",
    "guard.orphans_killed": "processes that an earlier attempt left behind were ended",
    "guard.preflight_note": "something to know of before a start",
    "guard.preflight_refused": "the program cannot start now: `reason`",
    "guard.report_failed": "a crash report could not be written; its text is in the guard's log",
    "store.quarantined": "the run's store was damaged, set aside and made again",
    "store.wal_large": "a viewer keeps the store open, so its WAL file grows",
}


def events_page() -> str:
    """docs/reference/events.md: every word said of a run."""
    parts = [
        "# The words of a run",
        "",
        "Generated by `make golden`.",
        "",
        "## What a run does now",
        "",
        "`status` of `albor runs ls`, `status.word` of `albor monitor`: asked of the kernel.",
        "",
        *_table(("word", "means"), ((word, status.means) for word, status in STATUSES.items())),
        "",
        "## How an attempt ended",
        "",
        "`exit_class` of `albor runs show`, `class` of crash reports, and what the guard does.",
        "",
        *_table(
            ("class", "the run", "means"),
            ((name, action, text) for name, (action, text) in EXIT_CLASSES.items()),
        ),
        "",
        "## What happened meanwhile",
        "",
        "Events, as `albor runs tail` and `albor monitor` print them, with a severity: info,",
        "warning, error or critical. A program with `albor_core.track` may add names of its own.",
        "",
        *_table(("event", "means"), EVENTS.items()),
        "",
    ]
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "| --- " * len(head) + "|"
    for name, *cells in rows:
        yield f"| `{name}` | {' | '.join(cells)} |"
