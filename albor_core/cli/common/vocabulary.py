"""The words that runs are described with, each with a sentence: docs/reference/events.md.

A test holds the tables to the code: a word that it says and a word that stands here are the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

STATUSES: Mapping[str, str] = {
    "running": "a process works on it, and its loop gives news",
    "paused": "its process lives and waits for `albor guard resume`",
    "restarting": "its guard lives and will start the program again, or is starting it",
    "unguarded": "its program goes on, its guard is gone; `albor train resume` starts a new one",
    "stalled": "its process lives, its loop gives no news; the guard will end and restart it",
    "queued": "made, not started yet",
    "completed": "it did all it was asked to",
    "stopped": "ended by a person, a signal or an Andon rule",
    "failed": "ended by an error; the last attempt's reason says which",
    "lost": "no process works on it, and no exit was recorded: a power cut, or both killed",
    "unknown": "it ran on another machine, and what came here of it is old: sync its folder again",
}

EXIT_CLASSES: Mapping[str, tuple[str, str]] = {
    "done": ("ends", "exit code 0, with last words or at the final step"),
    "early_exit": ("restarts", "exit code 0 without either: something left too soon"),
    "exception": (
        "restarts",
        "any other exit code; at once before the first logged step; the same one twice ends",
    ),
    "crash": ("restarts", "SIGSEGV, SIGABRT, SIGFPE or SIGQUIT; before step 1 once, for diagnosis"),
    "signal": ("restarts", "any other signal"),
    "fatal_signal": ("ends", "SIGILL, SIGBUS, SIGXFSZ or SIGSYS: a restart cannot help"),
    "killed": ("restarts", "SIGKILL, and nothing says that it was for memory"),
    "oom_host": ("restarts", "MemoryError, or the kernel killed for memory; twice at a step ends"),
    "oom_gpu": ("ends", "the GPU's memory is too small for it: the same batch would not fit again"),
    "killed_by_guard": ("restarts", "SIGKILL of the guard"),
    "hang": ("restarts", "no news for longer than its phase may take; the guard ended it"),
    "external": ("restarts", "SIGHUP, SIGINT or SIGTERM that the guard did not send"),
    "temporary": ("restarts", "exit code 75: a passing trouble"),
    "unknown_exit": ("restarts", "it ended while no guard watched, and left no last words"),
    "gpu_lost": ("ends", "the driver reported a GPU that needs a reset (Xid 48, 79, 95, 119)"),
    "stopped": ("ends", "by request, whatever its exit code, before its last step"),
    "config": ("ends", "exit code 2 by its last words: the config is refused"),
    "andon": ("ends", "exit code 4 by its last words: an Andon rule or a limit of the trainer"),
    "internal": ("ends", "exit code 5 by its last words: a mistake of the program itself"),
    "no_checkpoint": ("ends", "exit code 6 by its last words: checkpoints exist, none is usable"),
    "data": ("ends", "exit code 7 by its last words: the data is refused"),
    "in_use": ("ends", "exit code 8: another process trains here"),
}

EVENTS: Mapping[str, str] = {
    "run.start": "a life of the program begins; `resumed_from` is the checkpoint's step",
    "run.end": "it ended by itself: `status`, `reason`, `code`",
    "run.described": "what a program under `guard run` told its tracker of itself",
    "run.goals": "whether lower or higher is better of a metric, as the program says",
    "run.renamed": "a person gave it another name",
    "run.imported": "its history comes from another tracker",
    "import.left_out": "what of that history has no place here, counted",
    "sample": "a text that the model made",
    "checkpoint.saved": "a checkpoint is on the disk, verified",
    "checkpoint.failed": "a save left nothing behind; red after three in a row",
    "checkpoint.bad": "a checkpoint is damaged and set aside, or none is left",
    "jidoka.overruled": "a person let a run that stopped itself go on with another budget",
    "gpu.idle": "the run trains on the CPU though `gpu` is there; `why`, and a `remedy`",
    "config.changed": "resumed with another value of `field`, as allowed",
    "data.changed": "resumed with other shards of `split`, as allowed: their hash `was` and `now`",
    "validation.restarted": "what is evaluated is another: best loss and patience begin anew",
    "control.paused": "paused by request",
    "control.resumed": "it goes on",
    "control.unanswered": "a request was carried out, its answer could not be written",
    "jidoka.pause": "a brick took more than twice its budget, so it paused",
    "andon.alert": "a rule fired: `rule`, `metric`, `value`, `threshold`, `action`",
    "andon.ack": "a person acknowledged an alert",
    "step.chosen": "which implementation runs the training step",
    "step.skipped": "updates without a finite loss or gradient were skipped, counted",
    "gradient.spike": "gradients far above their usual size were scaled down",
    "gradient.missing": "parameters get no gradient",
    "training.rollback": "back to the last good checkpoint, past the batches that made the trouble",
    "kernels.rejected": "a faster implementation failed its comparison and is not used",
    "kernels.unmet": "ALBOR_KERNELS=triton, where Triton kernels cannot run",
    "optimizer.ready": "the hyper-parameters that the optimizer really has",
    "track.unused": "what it told that its guard had decided otherwise, such as the folder",
    "track.odd": "odd values, keys or steps that were logged, counted",
    "artifact.failed": "an artefact could not be read",
    "hf.summary": "the summary that Hugging Face's Trainer logs at its end",
    "hf.checkpoint": "Hugging Face's Trainer saved a checkpoint",
    "hf.train_end": "Hugging Face's Trainer is done",
    "guard.state": "the guard went into another state",
    "guard.backoff": "it waits `delay_s` before it starts the program again",
    "guard.moved": "its folder was moved: only the process is watched until it is back",
    "guard.job": "the scheduler's job that an attempt runs in: `id`, `restart`, `nodes`",
    "guard.adopted": "it took over a program that an earlier guard had started",
    "guard.locked_out": "a program that an earlier guard had started came first and has ended",
    "guard.command": "a person or program asked it for something",
    "guard.hang": "the program gives no news and is ended",
    "guard.gave_up": "restarts did not help",
    "guard.log_rotated": "the log grew too large and was moved",
    "guard.orphans_killed": "processes that an earlier life left behind were ended",
    "guard.preflight_note": "something that a start should know of",
    "guard.preflight_refused": "it cannot start now: `reason`",
    "guard.report_failed": "a crash report could not be written; its text is in the guard's log",
    "store.quarantined": "the run's store was damaged, set aside and made again",
    "store.wal_large": "a viewer keeps the store open, so its WAL file grows",
}


def events_page() -> str:
    """docs/reference/events.md: every word of a run's life."""
    parts = [
        "# The words of a run's life",
        "",
        "Generated by `make golden`.",
        "",
        "## What it does now",
        "",
        "`status` of `albor runs ls`, `status.word` of `albor monitor`: asked of the kernel.",
        "",
        *_table(("word", "means"), STATUSES.items()),
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
        "Events, as `albor runs tail` and `albor monitor` tell them, with a severity: info, green,",
        "yellow or red. A program with `albor_core.track` adds names of its own.",
        "",
        *_table(("event", "says"), EVENTS.items()),
        "",
    ]
    return "\n".join(parts)


def _table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield "| --- " * len(head) + "|"
    for name, *cells in rows:
        yield f"| `{name}` | {' | '.join(cells)} |"
