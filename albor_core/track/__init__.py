"""The tracker for anybody's training loop: three lines, no torch, nothing lost to `kill -9`.

    from albor_core import track

    with track.start(experiment="tiny", config={"lr": 3e-4}) as run:
        for step in range(1, 1001):
            run.log({"loss": loss, "lr": lr}, step=step)

A value is acknowledged when `log` returned: its line is in the page cache then, and only a power
cut can take it (from the last 30 s). Not so while the disk refuses lines or takes longer than 50 ms
for one: no loop waits for that, so lines wait in memory, 64 MiB of them, until the disk takes them.
The state file counts them (`journal`), a note on stderr says so, and a `kill -9` takes them. At the
end they are waited for; what is left once the disk took none for two seconds is lost: stderr says
how many lines, and so do exit.json (`lines_lost`) and with it `albor runs ls`, `albor runs show`
and `albor doctor`.

One index process per run, started here by argv, brings the journal into the stores; `albor-tui`,
`albor runs` and `albor monitor` show the run while it lives.

`start` inside a program under `albor guard run` joins the guard's run: same directory, and the lock
that came with this process. A later attempt that begins again at step S takes back what the
attempts before it said from S on.

`start(id="mine", resume="allow")` goes on with a run that ended or was killed: another attempt of
the same directory. If its first values, at a step S that the run has come to, have a key that was
logged at S or later, training began again there, and what was said from S on is taken back. If all
their keys are new there, as those of an evaluation next morning, everything stays.
`resume="must"` logs into any ended run like that, also one of `albor train` or of a guard, which
ended as it ended.

Nothing that a loop logs raises. `run/values/metrics.py` says what becomes of odd values and keys;
of steps:

- none given: the one after the last;
- the same step again: new keys join it, known keys are replaced;
- a step lower than the last: its values replace those of that step, the others stay;
- no whole number of 0 to 2^48: as if none was given.

What was odd is counted, journalled as the event `track.odd`, and told by `albor doctor`.

A Run may be used from several threads. In a forked child it does nothing but warn once; the child
may begin runs of its own. Common
names of headline values (loss, val_loss, lr, ...) are recorded under the house's own (train/loss,
val/loss, optim/lr, ...). Never look at this run's locks from the process that tracks it: closing a
lock file drops the lock (see run/liveness.py).
"""

from albor_core.track.decorated import tracked
from albor_core.track.start_run import start
from albor_core.track.tracked_run import STATUSES, Run

__all__ = ["STATUSES", "Run", "start", "tracked"]
