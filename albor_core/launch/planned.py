"""The plan of a config on this machine."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

from albor_core.andon.channels.plan_sinks import notify_problems, notify_sentences
from albor_core.andon.explain import andon_problems, andon_sentences
from albor_core.config.choices import PackingName
from albor_core.config.config import Config
from albor_core.config.load import LoadedConfig
from albor_core.config.recipes.own import own_class
from albor_core.config.secret_urls import sink_entries
from albor_core.kernels.backend_override import unmet_demand
from albor_core.launch.earlier_speeds import earlier_speed
from albor_core.launch.found_gpu import find_gpu
from albor_core.launch.launcher import Launcher
from albor_core.launch.local import LOCAL
from albor_core.plan.continued import continued, unused_start
from albor_core.plan.facts import PlanFacts, Scanned, SplitFacts, collect_facts
from albor_core.plan.plan import Plan
from albor_core.plan.plan import plan as make_plan
from albor_core.plan.recipes import own as own_recipe
from albor_core.plan.speed import MeasuredSpeed
from albor_core.plan.start_weights import start_weights, weights_notes, weights_problems
from albor_core.run.errors import AlborError, DataError, Problem
from albor_core.run.program.launched_rank import LaunchedRank
from albor_core.run.rundir import RunDir
from albor_core.store.spans.collector import collector_problems
from albor_core.telemetry.peaks import peak_flops

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
    """Collect the facts of this machine and make the plan; nothing is written.

    `begins`: whether the run starts; otherwise it has weights of its own, and what model.path names
    may be gone. `unit`: the sequences of the steps that it counts in (config/clock.py). `run`: the
    resumed run, whose sinks are kept. `launched`: this process is a rank of a launcher, maybe with
    other GPUs on other hosts. `measured`: speed from a probe, else from earlier runs of this
    shape.
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
    numbers, odd_numbers = own_recipe.numbers_of(config, folder)
    facts = replace(facts, measured=measured or _speed_here(config, facts), numbers=numbers)
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
            *(own_recipe.notes(config, numbers) if own else weights_notes(config.model)),
            *(unused_start(config.model.initialization, continues) if begins else ()),
            *([unmet] if unmet else []),
            *facts.gpu_strangers,
            *notify_sentences(sinks),
        ),
        extra_problems=(
            *andon_problems(monitoring, file=str(loaded.path)),
            *notify_problems(sinks, run, file=str(loaded.path)),
            *collector_problems(config.monitoring.otlp.plain_headers(), run, file=str(loaded.path)),
            *(() if launched is not None else crowd_problems(config, str(loaded.path))),
            *own_recipe.problems(config, folder),
            *odd_numbers,
            *(lacking_weights(config, str(loaded.path)) if begins else ()),
            *wrong,
        ),
        unit=unit,
        place=place,
        written=loaded.place,
    )


def _starts_quiet(config: Config) -> bool:
    """Whether a new model begins with Albor's quiet initialisation."""
    has_weights = start_weights(config.model) or config.training.continue_from
    is_own = own_class(config.training.mode)
    begin = config.model.initialization
    is_loud = begin.residual or begin.embedding or begin.head
    return not (is_own or is_loud or has_weights)


def _speed_here(config: Config, facts: PlanFacts) -> MeasuredSpeed | None:
    device = facts.device_name if facts.device == "cuda" else facts.device
    host, threads = os.uname().nodename, config.training.num_threads
    return earlier_speed(config.resolved(), device=device, host=host, threads=threads)


def crowd_problems(config: Config, file: str, where: Launcher = LOCAL) -> Iterator[Problem]:
    """A problem if the config has more ranks than any host of `where` starts."""
    ranks, most = config.training.distributed.world_size, max(h.max_ranks for h in where.hosts())
    if ranks > most:
        message = f"{ranks} ranks on one machine, where at most {most} are started"
        hint = "have torchrun or srun start them: docs/how-to/train-on-several-hosts.md"
        yield Problem("training.distributed.world_size", message, hint, file)


def lacking_weights(config: Config, file: str, *, checks_hash: bool = True) -> tuple[Problem, ...]:
    """Problems as of `weights_problems`; without a known model if a user's class makes it."""
    is_own = own_class(config.training.mode) is not None
    return weights_problems(
        config.model, file=file, checks_hash=checks_hash, knows_model=not is_own
    )


def _scan_of(config: Config) -> Callable[[Path, str], Scanned | SplitFacts]:
    """The function that scans a folder without a manifest: for shards, or for text that is packed
    before the training.
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
    """Estimated facts of text that is not packed yet, from SAMPLE_BYTES of it; None if `path` holds
    ids or no text. Raises AlborError if packing would.
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
