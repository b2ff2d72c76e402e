"""From a config to a guarded process: plan it, make its run directory, hand it to a guard.

Runs in the command's process, so no torch here.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, suppress
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from albor_core.andon.channels.kept_sinks import keep_sinks
from albor_core.andon.channels.plan_sinks import notify_problems, notify_sentences
from albor_core.andon.explain import andon_problems, andon_sentences
from albor_core.config.choices import PackingName
from albor_core.config.clock import Clock, Place, place_in
from albor_core.config.kept_config import config_of, read_resolved
from albor_core.config.load import Config, LoadedConfig, with_defaults
from albor_core.config.microbatches import MAX_RANKS_HERE
from albor_core.config.recipes.own import own_class
from albor_core.config.resume_changes import (
    change_refused,
    edited,
    never_allowed,
    origin,
    set_later,
)
from albor_core.config.secret_urls import secrets_of, sink_entries, without_secrets
from albor_core.guard.launch import CODE_ROOT, already_guarded, start_guard, write_launch
from albor_core.kernels.backend_override import unmet_demand
from albor_core.plan.continued import continued, run_of_checkpoint, unused_start
from albor_core.plan.earlier_speeds import earlier_speed
from albor_core.plan.facts import PlanFacts, Scanned, SplitFacts, collect_facts
from albor_core.plan.found_gpu import find_gpu
from albor_core.plan.plan import Plan
from albor_core.plan.plan import plan as make_plan
from albor_core.plan.recipes import own as own_recipe
from albor_core.plan.speed import MeasuredSpeed
from albor_core.plan.start_weights import parent_run, start_weights, weights_notes, weights_problems
from albor_core.run import checkpoints
from albor_core.run.errors import (
    AlborError,
    ConfigError,
    DataError,
    InUseError,
    Problem,
    StoreError,
)
from albor_core.run.exit import COMPLETED, read_exit
from albor_core.run.files.pulled_file import refuse_pulled
from albor_core.run.files.whole_file import write_bytes, write_json
from albor_core.run.guard_state import read_guard
from albor_core.run.journal import last_event
from albor_core.run.program.launched_rank import LAUNCHED, LaunchedRank
from albor_core.run.program.provenance import versions
from albor_core.run.program.recorded_code import recorded_code
from albor_core.run.registry import refuse_unlaunched, resumed_by_config
from albor_core.run.rundir import (
    RunDir,
    create_run,
    is_run_id,
    new_run_id,
    own_home,
    private_folder,
    read_json,
)
from albor_core.run.values.flatten import diff_configs
from albor_core.run.values.quantity import counted
from albor_core.store.index.annotations import MAX_CHARS, annotate
from albor_core.store.spans.collector import collector_problems, keep_collector
from albor_core.telemetry.peaks import peak_flops

# glibc gives every tensor above 32 MiB back to the kernel and faults it in again at each step:
# 0.56 s against 0.49 s a step of the demo's model (one core, 2.5 GHz Xeon, torch 2.13)
_ALLOCATOR = {"MALLOC_MMAP_THRESHOLD_": str(1 << 30), "MALLOC_TRIM_THRESHOLD_": str(2 << 30)}

SAMPLE_BYTES = 1 << 20  # of text that is not packed yet

QUIET_GRADIENTS = 600.0  # docs/concepts/starts.md, "Quiet"


def plan_run(
    loaded: LoadedConfig,
    *,
    begins: bool = True,
    unit: int | None = None,
    run: RunDir | None = None,
    launched: LaunchedRank | None = None,
    measured: MeasuredSpeed | None = None,
) -> Plan:
    """Collect the facts of this machine and plan; nothing is written. Without `begins` the run has
    weights of its own, and what model.path names may be gone; `unit`: the sequences of the steps
    that it counts in (config/clock.py); `run`: the one that goes on, whose sinks are kept;
    `launched`: one of ranks that are here already, maybe on other hosts with other GPUs;
    `measured`: what a probe found, else earlier runs of this shape say how fast it is.
    """
    config = loaded.config
    continues = config.training.continue_from
    sinks = sink_entries(config)
    monitoring = config.resolved()["monitoring"]
    own = own_class(config.training.mode)
    folder = (None if run is None else own_recipe.folder_of(run)) or loaded.path.parent
    facts = collect_facts(
        config,
        loaded.path,
        find_gpu=find_gpu,
        scan=_scan_of(config),
        peak_flops=peak_flops,
    )
    if launched is not None:
        facts = replace(facts, device_count=None)
    facts = replace(facts, measured=measured or _speed_here(config, facts))
    place, wrong = None, tuple[Problem, ...]()
    if begins:
        number = facts.train.sequences_at(config.data.seq_len)
        place, wrong = continued(config, number, str(loaded.path))
    unmet = unmet_demand(os.environ, facts.device)
    return make_plan(
        config,
        facts,
        andon_notes=andon_sentences(
            monitoring,
            warmup_steps=config.training.warmup_steps,
            vocab_size=None if own else config.model.architecture.vocab_size,
            first_gradients=QUIET_GRADIENTS if begins and _starts_quiet(config) else 0.0,
        ),
        extra_notes=(
            *(own_recipe.notes(config) if own else weights_notes(config.model)),
            *(unused_start(config.model.initialization, continues) if begins else ()),
            *([unmet] if unmet else []),
            *facts.gpu_strangers,
            *notify_sentences(sinks),
        ),
        extra_problems=(
            *andon_problems(monitoring, file=str(loaded.path)),
            *notify_problems(sinks, run, file=str(loaded.path)),
            *collector_problems(config.monitoring.otlp.plain_headers(), run, file=str(loaded.path)),
            *(() if launched is not None else _crowd_problems(config, str(loaded.path))),
            *own_recipe.problems(config, folder),
            *(_weights_problems(config, str(loaded.path)) if begins else ()),
            *wrong,
        ),
        unit=unit,
        place=place,
        written=loaded.place,
    )


def _starts_quiet(config: Config) -> bool:
    """Whether a new model begins with the house's quiet weights."""
    has_weights = start_weights(config.model) or config.training.continue_from
    is_own = own_class(config.training.mode)
    begin = config.model.initialization
    is_loud = begin.residual or begin.embedding or begin.head
    return not (is_own or is_loud or has_weights)


def _speed_here(config: Config, facts: PlanFacts) -> MeasuredSpeed | None:
    device = facts.device_name if facts.device == "cuda" else facts.device
    host, threads = os.uname().nodename, config.training.num_threads
    return earlier_speed(config.resolved(), device=device, host=host, threads=threads)


def _crowd_problems(config: Config, file: str) -> Iterator[Problem]:
    ranks = config.training.distributed.world_size
    if ranks > MAX_RANKS_HERE:
        message = f"{ranks} ranks on one machine, where at most {MAX_RANKS_HERE} are started"
        hint = "have torchrun or srun start them: docs/how-to/train-on-several-hosts.md"
        yield Problem("training.distributed.world_size", message, hint, file)


def _refuse_crowd(run: RunDir, config: Config) -> None:
    for problem in _crowd_problems(config, str(run.config_yaml)):
        raise ConfigError(
            f"cannot start {run.id}: {problem.message}",
            hint=f"{problem.hint}; or albor train resume {run.id} --world-size N",
            problems=(problem,),
        )


def _weights_problems(
    config: Config, file: str, *, checks_hash: bool = True
) -> tuple[Problem, ...]:
    """As `weights_problems`, whose model is unknown where a class of the user's own makes it."""
    is_own = own_class(config.training.mode) is not None
    return weights_problems(
        config.model, file=file, checks_hash=checks_hash, knows_model=not is_own
    )


def _scan_of(config: Config) -> Callable[[Path, str], Scanned | SplitFacts]:
    """What stands in a folder without a manifest: shards, or text that is packed before it is
    trained on.
    """
    data = config.data
    texts = {data.train: data.packing, data.val: "concat"} if not data.mixture else {}

    def scan(folder: Path, column: str) -> Scanned | SplitFacts:
        # pyarrow costs 0.25 s and most data has a manifest
        from albor_core.data.pack.pretokenize import read_manifest  # noqa: PLC0415

        packing = texts.get(folder)
        if packing is not None and data.tokenizer is not None:
            found = _text_facts(folder, data.tokenizer, data.seq_len, packing)
            if found is not None:
                return found
        return read_manifest(folder, scan=True, column=column)

    return scan


def _text_facts(
    path: Path, tokenizer: Path, seq_len: int, packing: PackingName
) -> SplitFacts | None:
    """Of text that is not packed yet, by SAMPLE_BYTES of it; None where `path` holds ids, or no
    text. Raises AlborError where packing would.
    """
    from albor_core.data.pack.pack_plan import plan_pretokenize  # noqa: PLC0415  as in _scan_of
    from albor_core.data.pack.packed_corpus import packed_place, text_corpus  # noqa: PLC0415
    from albor_core.data.pack.work.recipe import open_tokenizer  # noqa: PLC0415

    try:
        corpus = text_corpus(path)
    except AlborError:  # neither ids nor text: the scan names the columns
        return None
    if corpus is None:
        return None
    encoder = open_tokenizer(tokenizer, None)
    found = plan_pretokenize(
        corpus.path,
        tokenizer,
        packed_place(corpus, tokenizer, seq_len, packing).parent,
        seq_len=seq_len,
        val_fraction=0.0,
        packing=packing,
        column=corpus.column,
        sample_bytes=SAMPLE_BYTES,
    )
    for problem in found.problems:
        raise DataError(problem.message, hint=problem.hint)
    if not found.tokens or not found.sequences:
        what = f"{path}: too little text for a row of {seq_len:,} tokens (column {corpus.column})"
        raise DataError(what, hint="lower data.seq_len, or name more text")
    return SplitFacts(
        path=path,
        sequences=found.sequences,
        row_len=seq_len,
        tokens=found.sequences * seq_len,
        vocab_size=encoder.vocab_size,
        bytes=found.text_bytes,
        tokenizer_sha256=encoder.sha256,
        eos_token_id=encoder.end,
        bos_token_id=encoder.begin,
        packing=packing,
        sampled_bytes=min(SAMPLE_BYTES, found.text_bytes or 0),
        packing_seconds=found.seconds,
    )


@contextmanager
def _home() -> Iterator[None]:
    """Have ALBOR_HOME there; where it was made for a run that cannot be made, it goes again."""
    home = own_home()
    was_there = home.exists()
    private_folder(home)
    try:
        yield
    except AlborError:
        if not was_there:
            with suppress(OSError):  # not empty: somebody uses it by now
                home.rmdir()
        raise


def new_run(loaded: LoadedConfig, made: Plan, *, name: str | None) -> RunDir:
    """A fresh run directory below training.output_dir, with config, code, data on record."""
    known = secrets_of(loaded.config)
    told, loaded = loaded.config, without_secrets(loaded)
    config: Config = loaded.config
    experiment = config.monitoring.tracking.experiment or loaded.path.stem
    title = name or loaded.path.stem
    if name is not None and is_run_id(name):
        run_id = name
        there = RunDir(Path(config.training.output_dir) / run_id)
        if there.path.exists():
            is_alive = there.liveness().is_alive
            ended = None if is_alive else read_exit(there)
            if ended is not None and ended.get("reason") in COMPLETED:
                raise InUseError(f"{run_id} is complete: {there.path}", hint="another --name")
            way_on = "monitor" if is_alive else "train resume"
            raise InUseError(
                f"{there.path}: this run {'is active' if is_alive else 'directory exists'}",
                hint=f"albor {way_on} {run_id}, or another --name",
            )
    else:
        run_id = new_run_id(title)
    own = own_class(config.training.mode)
    home = loaded.path.parent.absolute()
    source = None if own is None else own_recipe.source_file(own, home)
    code, script = recorded_code(sys.argv, source, known)
    with _home():  # where the run is registered: no run begins without it
        run = create_run(
            Path(config.training.output_dir),
            run_id,
            experiment=experiment,
            name=title,
            kind="train",
            argv=code["argv"],
            seed=config.training.seed,
            config=loaded.raw,
            resolved=config.resolved(),
            facts={
                "git": code["git"],
                "versions": versions(),
                "data": made.data_facts(),
                "max_steps": made.max_steps,
                "parent": _parent(config),
                **origin(loaded),
                **({} if own is None else {"recipe_folder": str(home), "script": code["script"]}),
                "tags": dict(config.monitoring.tracking.tags),
            },
            script=script,
        )
    _keep_places(run, told)
    with suppress(StoreError):  # a run that is there goes on without
        for name, value in config.monitoring.tracking.tags.items():
            annotate(run, "tag", f"{name}:{value}"[: MAX_CHARS["tag"]], by="its config")
    return run


def _parent(config: Config) -> str | None:
    """The run whose checkpoint this one begins with."""
    folder = config.training.continue_from
    return parent_run(config.model) if folder is None else run_of_checkpoint(folder)


def _keep_places(run: RunDir, config: Config) -> None:
    """Keep where alerts and spans go, with what is secret of it, outside the run. Raises OSError,
    ConfigError.
    """
    keep_sinks(run, sink_entries(config))
    otlp = config.monitoring.otlp
    keep_collector(run, otlp.endpoint, otlp.plain_headers())


def renew_sinks(run: RunDir, loaded: LoadedConfig) -> None:
    """Have a run that goes on tell the sinks of this config: a URL is no part of what is compared
    with the run's own.
    """
    _keep_places(run, loaded.config)


def resize(run: RunDir, world_size: int) -> None:
    """Have the next attempt of `run` on so many ranks; its steps stay the same.

    Raises InUseError while it lives, ConfigError if they cannot share its global batch.
    """
    if run.liveness().is_alive:
        raise InUseError(
            f"cannot change the ranks of {run.id}: the run is active",
            hint=f"albor guard stop {run.id}",
        )
    field, option = "training.distributed.world_size", f"--world-size {world_size}"
    config = config_of(run)
    resized = config.on_ranks(world_size)
    if problem := next(resized.problems(), None):
        near = config.fitting_ranks(world_size)
        message = f"{problem.message}; {' or '.join(map(str, sorted(near)))} would do"
        raise ConfigError(
            f"{option}: {message}",
            hint=f"albor train resume {run.id} --world-size {near[0]}",
            problems=(Problem(field, message, "", option),),
        )
    set_later(run, field, str(world_size))
    write_json(run.config_resolved, resized.resolved())


def start(
    run: RunDir,
    *,
    allow_config_change: bool = False,
    forgets: bool = False,
    stop_after: int | None = None,
    launched: LaunchedRank | None = None,
) -> None:
    """Hand `run` to a detached guard, which `forgets` the restarts of one that was killed. Its
    lives save and leave after step `stop_after`. `launched`: rank 0 of ranks that a launcher
    starts and restarts: then the guard restarts nothing.

    Raises InUseError if it is guarded already, or trained by an attempt that `stop_after` would not
    reach, and ConfigError if its config.yaml was edited and may not have been, or is wrong, if its
    config.resolved.json is damaged, if its ranks are too many for one machine, or if the weights
    that it begins from are gone.
    """
    refuse_pulled(run, "start", f"albor train resume {run.own_id}")
    refuse_unlaunched(run, "start", resumed_by_config(run.path))
    alive = run.liveness()
    if alive.guard is not None:
        raise already_guarded(run, alive.guard)
    if alive.trainer is not None and stop_after is not None:
        raise InUseError(
            f"cannot stop {run.id} after step {stop_after}: already active without that limit",
            hint=f"albor train resume {run.id} to guard it again, then: albor guard stop {run.id}",
        )
    _take_edits(run, read_resolved(run), is_allowed=allow_config_change)
    config = config_of(run)
    if launched is None:
        _refuse_crowd(run, config)
    if alive.trainer is None and _is_unbegun(run):
        _refuse_lost_weights(run, config)
    told = ["--allow-config-change"] if allow_config_change else []
    told += [] if stop_after is None else ["--stop-after", str(stop_after)]
    write_launch(
        run,
        # -P: a random.py in the user's folder is none of ours
        argv=[sys.executable, "-P", "-m", "albor_core.train", str(run.path), *told],
        cwd=home_of_paths(run),
        env=trainer_environment() | _rank_environment(launched),
        options=config.resolved()["guard"] | ({} if launched is None else {"restarts": 0}),
        max_steps=run.metadata().get("max_steps"),
        kind="train",
        index=config.monitoring.tracking.enabled,
    )
    start_guard(run, forgets=forgets)


def trainer_environment() -> dict[str, str]:
    """Variables that a trainer needs besides those it inherits."""
    return _ALLOCATOR | ({} if is_installed() else {"PYTHONPATH": _python_path()})


def _rank_environment(launched: LaunchedRank | None) -> dict[str, str]:
    return {} if launched is None else {LAUNCHED: replace(launched, starter=os.getpid()).text()}


def _take_edits(run: RunDir, resolved: dict[str, Any], *, is_allowed: bool) -> None:
    """Make what was edited in the run's config.yaml the config that it goes on with."""
    try:
        loaded = edited(run)
    except ConfigError as error:
        how = f" ({error.hint})" if error.hint else ""
        error.hint = f"fix {run.config_yaml}{how}, then `albor train resume {run.id}`"
        raise
    if loaded is None:
        return
    now = loaded.config.resolved()
    changes = diff_configs(with_defaults(resolved), now)
    file = str(run.config_yaml)
    newest = checkpoints.newest(run.checkpoints, is_readable=False)
    if changes and not is_allowed:
        hint = f"put it back, or: albor train resume {run.id} --allow-config-change"
        raise change_refused("edited since the run began", changes, file=file, hint=hint)
    if newest is not None and (unfit := never_allowed(changes)):
        what = "the run's checkpoints are of another config"
        hint = f"put it back; for a new run from its weights: --set model.path={newest[1]}"
        raise change_refused(what, unfit, file=file, hint=hint)
    place = _place_in(newest, loaded.config)
    with chdir(home_of_paths(run)):  # which relative paths in it are relative to
        made = plan_run(loaded, begins=_is_unbegun(run), unit=place.unit or None, run=run)
    end, behind = made.max_steps, list[Problem]()
    if sequences := made.schedule.sequences:
        place = _place_in(newest, loaded.config, sequences)
        clock = Clock.of(loaded.config, sequences, place.unit)
        end, behind = clock.last_step(place), list(_behind(place, clock, loaded))
    problems = (*made.problems, *behind)
    if problems:
        raise ConfigError(
            f"{run.config_yaml}: {counted(len(problems), 'problem')}, nothing was started",
            hint=f"fix {run.config_yaml}, then: albor train resume {run.id}",
            problems=problems,
        )
    _keep_places(run, loaded.config)
    if (shown := without_secrets(loaded)).raw != loaded.raw:
        write_bytes(run.config_yaml, shown.raw, durable=True)
    write_json(run.config_resolved, now, durable=True)
    about = {**run.metadata(), "max_steps": end, **origin(shown)}
    write_json(run.run_json, about, durable=True)  # last: until then the file counts as edited


def _place_in(newest: tuple[int, Path] | None, config: Config, num_sequences: int = 1) -> Place:
    """Where the run is by its newest checkpoint; by the name of one that cannot be read, which the
    trainer will refuse in better words.
    """
    if newest is None:
        return Place()
    known = {"seq_len": config.data.seq_len, "num_sequences": num_sequences}
    try:
        return place_in(read_json(newest[1] / "trainer.json") or {}, **known)
    except (ArithmeticError, AttributeError, KeyError, TypeError, ValueError):
        step = {"step": newest[0]}
        return place_in({"progress": step, "config": config.resolved()}, **known)


def _behind(place: Place, clock: Clock, loaded: LoadedConfig) -> Iterator[Problem]:
    """An end that the run has passed already, or a batch that the data does not fill."""
    file, training = str(loaded.path), loaded.config.training
    if place.unit and clock.batch > clock.num_sequences:
        message = (
            f"one step takes {clock.batch:,} sequences, the data holds {clock.num_sequences:,}"
        )
        hint = f"at most {clock.num_sequences:,} in all"
        yield Problem("data.batch_size", message, hint, file)
    if not clock.is_behind(place):
        return
    is_said = training.max_steps is not None
    field, what = ("max_steps", "max_steps") if is_said else ("epochs", "the last step")
    step = -(-place.sequences // clock.unit)
    message = f"the checkpoint is at step {step}, {what} {clock.planned} is below it"
    yield Problem(f"training.{field}", message, f"{step} or more", file)


def _refuse_lost_weights(run: RunDir, config: Config) -> None:
    """Raises ConfigError where a run without a checkpoint cannot begin from model.path."""
    if start_weights(config.model) is None:
        return
    with chdir(home_of_paths(run)):
        problems = _weights_problems(config, str(run.config_yaml), checks_hash=False)
    if problems:
        first, resume = problems[0], f"albor train resume {run.id}"
        raise ConfigError(
            f"{run.id} has no checkpoint yet and cannot begin: {first.field}: {first.message}",
            hint=f"put the weights back, then: {resume}; for others edit {run.config_yaml} and add"
            " --allow-config-change",
            problems=problems,
        )


def _is_unbegun(run: RunDir) -> bool:
    """Whether it starts from model.path: there never was a whole checkpoint, not even a bad one or
    one that is gone.
    """
    if any(name.suffix != checkpoints.HALF for name, _ in checkpoints.entries(run.checkpoints)):
        return False
    return last_event(run.journal, "checkpoint.saved") is None


def home_of_paths(run: RunDir) -> str:
    """Where the config's relative paths begin: where it was first applied, while that exists."""
    first = (read_json(run.launch) or {}).get("cwd")
    return first if isinstance(first, str) and Path(first).is_dir() else str(Path.cwd())


def _python_path() -> str:
    """Where an uninstalled checkout is found, before what the user's own PYTHONPATH holds."""
    inherited = os.environ.get("PYTHONPATH")
    return os.pathsep.join([str(CODE_ROOT), *([inherited] if inherited else [])])


def is_installed() -> bool:
    """Whether this code is an installed package, which a child finds by itself."""
    try:
        version("albor")
    except PackageNotFoundError:
        return False
    return True


def exit_code(run: RunDir) -> int | None:
    """The code of a run that is over; None while it is not, 1 if it was lost.

    It is the guard's, or where the guard was killed before it, that of the program's last words.
    """
    if run.liveness().is_alive:
        return None
    guard, words = read_guard(run) or {}, read_exit(run) or {}
    code = guard.get("exit_code")
    is_cut_short = code is None and guard.get("child")  # it died while it watched a program
    if is_cut_short and words.get("attempt") == guard.get("attempt"):
        code = words.get("code")
    return code if isinstance(code, int) else 1
