"""A data set from its recipe: the steps one after the other, each kept, reused and resumed.

    OUT/import  quality  filter  split/PART  dedup/PART  contamination/PART         corpora
    OUT/mix/train  mix/sources/SOURCE  fim/train                             train alone
    OUT/tokenizer.json  shards/PART  PROVENANCE.md  provenance.json

Every folder holds what one step made, and says from what. So a build that was killed goes on where
it was, a second one finds all of it made, and a changed recipe does again what depends on it. The
tokenizer is trained on the mix, before documents are cut: no sentinel is text to it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from albor_core.data.clean.contamination import contamination_step
from albor_core.data.clean.dedup import dedup_step, run_dedup
from albor_core.data.clean.filter import DocumentFilter
from albor_core.data.clean.licences import allowed_ids
from albor_core.data.clean.profiles import thresholds_of
from albor_core.data.clean.quality import Quality
from albor_core.data.mix.by_source import mix_by_source, sources_of, weight_problems
from albor_core.data.mix.fim import MARKS, FillInTheMiddle
from albor_core.data.mix.split import DRAWS, SplitPlan, plan_split, split
from albor_core.data.pack.datasets import register_dataset
from albor_core.data.pack.manifest import MANIFEST_NAME, load_manifest
from albor_core.data.pack.pretokenize import pretokenize
from albor_core.data.pack.shard_check import verify_shards
from albor_core.data.pack.tokenizer import load_tokenizer, train_tokenizer
from albor_core.data.pipeline.installed import NOT_ENTERED, installed_packages
from albor_core.data.pipeline.provenance import markdown, provenance
from albor_core.data.pipeline.recipe import (
    INSTALLED,
    BenchmarksSection,
    BuildRecipe,
    DedupSection,
    FilterSection,
    LoadedRecipe,
    MixSection,
)
from albor_core.data.progress import Progress
from albor_core.data.read.inputs import Asked, InputSource, Origin
from albor_core.data.read.sources import import_sources, named, plan_import
from albor_core.data.stage.corpus import open_corpus
from albor_core.data.stage.output import Output
from albor_core.data.stage.record import content_hash, corpus_identity
from albor_core.data.stage.stage import Step, StepReport, plan_step, run_step
from albor_core.outputs.place import ELSEWHERE, WORK, OutputPlace, held
from albor_core.run.errors import AlborError, ConfigError, DataError, Problem, UsageError
from albor_core.run.files.publish import publish_json, publishing, sha256_file
from albor_core.run.rundir import read_json

TOKENIZER_RULES = 1  # counted up when the same corpus would give another tokenizer


@dataclass(frozen=True)
class How:
    """How the work is done; none of it reaches the bytes."""

    workers: int
    force: bool
    progress: Progress | None


@dataclass(frozen=True)
class Made:
    """The result of a stage."""

    stage: str
    out: Path
    documents: int | None
    bytes: int | None
    tokens: int | None
    dropped: Mapping[str, int]
    data_hash: str
    reused: bool
    seconds: float

    def to_json(self) -> Any:
        return {**vars(self), "out": str(self.out), "dropped": dict(sorted(self.dropped.items()))}


@dataclass(frozen=True)
class BuildStage:
    """One step of a recipe."""

    name: str
    out: Path
    do: Callable[[How], Made]
    plan: Callable[[], tuple[Problem, ...]] = field(default=lambda: ())
    parts: tuple[str, ...] = ()
    """Folders of `out` that are made one after the other, where there are several."""


def stages(recipe: BuildRecipe, out: Path) -> list[BuildStage]:
    """The stages in the order in which they run."""
    _refuse_without_sentinels(recipe)
    found = [_import_stage(recipe, out / "import")]
    corpus = out / "import"
    if recipe.quality is not None:
        thresholds = thresholds_of(
            recipe.quality.profile,
            [f"{k}={'none' if v is None else v}" for k, v in recipe.quality.set.items()],
        )
        found.append(_step_stage("quality", corpus, out / "quality", Quality(thresholds)))
        corpus = out / "quality"
    if recipe.filter is not None:
        found.append(_step_stage("filter", corpus, out / "filter", _filter(recipe.filter)))
        corpus = out / "filter"
    section = recipe.split
    plan = SplitPlan(
        {name: getattr(section, name) for name in reversed(DRAWS)},
        {name: getattr(section, f"seed_{name}") for name in reversed(DRAWS)},
        section.by,
    )
    found.append(_split_stage(corpus, out / "split", plan))
    parts = out / "split"
    if recipe.dedup is not None:
        earlier: list[Path] = []
        for name in (part for part in DRAWS if part in plan.parts):
            found.append(_dedup_stage(recipe.dedup, parts / name, out / "dedup" / name, earlier))
            earlier = [*earlier, out / "dedup" / name]
        parts = out / "dedup"
    if recipe.contamination is not None:
        for name in plan.parts:
            found.append(_check_stage(recipe.contamination, parts / name, out / "contamination"))
        parts = out / "contamination"
    train = parts / "train"
    if recipe.mix is not None:
        found.append(_mix_stage(recipe.mix, train, out / "mix" / "train"))
        train = out / "mix" / "train"
    tokenizer = recipe.tokenizer.file or out / "tokenizer.json"
    if recipe.tokenizer.vocab_size is not None:
        found.append(_tokenizer_stage(train, tokenizer, recipe.tokenizer.vocab_size))
    if recipe.fim is not None:
        cut, fim = out / "fim" / "train", recipe.fim
        step = FillInTheMiddle(fim.rate, fim.format, fim.seed, fim.min_chars)
        found.append(_step_stage("fim train", train, cut, step))
        train = cut
    found.append(_pack_stage(recipe, parts, train, tokenizer, out / "shards"))
    found.append(_verify_stage(out / "shards", plan.parts))
    return found


@dataclass(frozen=True)
class BuildReport:
    """The result of a build."""

    out: Path
    made: tuple[Made, ...]
    provenance: Mapping[str, Any]
    seconds: float


def build(
    loaded: LoadedRecipe,
    out: Path,
    *,
    workers: int = 1,
    force: bool = False,
    progress: Callable[[str], Progress | None] | None = None,
    done: Callable[[Made], None] | None = None,
) -> BuildReport:
    """Do every step of the recipe that is not done yet, then write where the data comes from.

    The bytes of `out` are a function of recipe and sources. With `force`, what an other recipe left
    is replaced from the first step that differs. `progress` gives what is told how far a stage is;
    `done` is called after each. Raises what the steps raise, DataError where the shards are not
    what their manifests say, InUseError while another build writes there.
    """
    began = time.monotonic()
    steps = stages(loaded.recipe, out)
    made: list[Made] = []
    if out.is_file():
        raise UsageError(f"{out}: is a file; name a folder", hint=ELSEWHERE)
    with held(_Folder(out)):
        for stage in steps:
            told = None if progress is None else progress(stage.name)
            made.append(_do(stage, How(workers, force, told)))
            if done is not None:
                done(made[-1])
        found = _provenance(loaded, out)
    register_dataset(out / "shards", "dataset", loaded.recipe.name)
    return BuildReport(out, tuple(made), found, time.monotonic() - began)


@dataclass(frozen=True)
class BuildPlan:
    """What a build would do. `actions`: of each stage keep, write or resume; `after` where an
    earlier stage decides. It can be done where `problems` is empty.
    """

    stages: tuple[BuildStage, ...]
    actions: tuple[str, ...]
    problems: tuple[Problem, ...]


def plan_build(loaded: LoadedRecipe, out: Path) -> BuildPlan:
    """Look at what is there, and plan the first stage that is not; write nothing, raise nothing
    that a user can cause.
    """
    problems: list[Problem] = []
    actions: list[str] = []
    steps: list[BuildStage] = []
    try:
        steps = stages(loaded.recipe, out)
    except AlborError as error:
        problems.append(Problem("", error.message, error.hint, str(loaded.path)))
    is_new = False
    for stage in steps:
        state = _state(stage)
        if is_new:
            actions.append("after")
            continue
        if state != "keep":
            is_new = True
            problems += stage.plan()
        actions.append(state)
    return BuildPlan(tuple(steps), tuple(actions), tuple(problems))


def _state(stage: BuildStage) -> str:
    """The state of a stage, by the files that exist; the build checks whether they are of this
    recipe."""
    places = [stage.out / part for part in stage.parts] or [stage.out]
    made = [one.is_file() or (one / MANIFEST_NAME).exists() for one in places]
    if any(made) and not all(made):
        return "resume"
    if any(Output(one).begun for one in places):
        return "resume"
    return "keep" if all(made) else "write"


def _do(stage: BuildStage, how: How) -> Made:
    """Run a stage. With force only different outputs are made anew: an equal one is reused."""
    gentle = How(how.workers, False, how.progress)
    if not how.force or not stage.out.exists():
        return stage.do(gentle)
    try:
        return stage.do(gentle)
    except (DataError, UsageError):
        return stage.do(how)


def _refuse_without_sentinels(recipe: BuildRecipe) -> None:
    """Raise ConfigError if a tokenizer that is there cannot tell where documents are cut."""
    file = recipe.tokenizer.file
    if recipe.fim is None or file is None:
        return
    tokenizer = load_tokenizer(file)
    if missing := [repr(mark) for mark in MARKS if tokenizer.token_to_id(mark) is None]:
        raise ConfigError(
            f"tokenizer.file: {file} has no token {', '.join(missing)}, with which fim cuts",
            hint="train one with tokenizer: {vocab_size: 32768}, or leave fim out",
        )


def _import_stage(recipe: BuildRecipe, out: Path) -> BuildStage:
    section = recipe.source

    def given() -> list[Path | InputSource]:
        if section.paths() == [INSTALLED]:
            return list(installed_packages(section.suffix, section.only))
        return [Path(one) for one in section.paths()]

    exclude = (*section.exclude, *(NOT_ENTERED if section.paths() == [INSTALLED] else ()))
    origins = tuple((Path(one.path), Origin(one.url, one.revision)) for one in section.sources)
    asked = Asked(tuple(section.suffix), exclude, origins=origins)

    def do(how: How) -> Made:
        if recipe.mix is not None:
            there = [one.name for one in named(given(), asked, Output(out))]
            _refuse(_weight_problems(recipe.mix, there))
        report = import_sources(
            given(), out, asked, workers=how.workers, force=how.force, progress=how.progress
        )
        return Made(
            "import", out, report.files, report.bytes, None, report.skipped,
            report.record.data_hash, report.reused, report.seconds,
        )  # fmt: skip

    def plan() -> tuple[Problem, ...]:
        try:
            found = plan_import(given(), out, asked)
        except AlborError as error:
            return (Problem("import", error.message, error.hint),)
        if recipe.mix is None or found.problems:
            return found.problems
        return _weight_problems(recipe.mix, [one.name for one in found.sources])

    return BuildStage("import", out, do, plan)


def _made(name: str, report: StepReport) -> Made:
    record = report.record
    return Made(
        name, report.out, record.documents, record.bytes, None, record.counts.total.dropped,
        record.data_hash, report.reused, report.seconds,
    )  # fmt: skip


def _filter(section: FilterSection) -> DocumentFilter:
    rest = section.no_licence or ("drop" if section.licence else "keep")
    return DocumentFilter(
        allowed_ids(section.licence), rest, section.secrets, section.personal_data
    )


def _step_stage(name: str, corpus: Path, out: Path, step: Step) -> BuildStage:
    def do(how: How) -> Made:
        return _made(name, run_step(corpus, out, step, **vars(how)))

    return BuildStage(name, out, do, lambda: plan_step(corpus, out, step).problems)


def _split_stage(corpus: Path, out: Path, plan: SplitPlan) -> BuildStage:
    def do(how: How) -> Made:
        report = split(corpus, out, plan, **vars(how))
        records = [one.record for one in report.made.values()]
        left_out = {"no_part": report.division.left_out} if report.division.left_out else {}
        return Made(
            "split", out, sum(one.documents for one in records), sum(one.bytes for one in records),
            None, left_out, _hash_of_all({n: one.record.data_hash for n, one in
                                          report.made.items()}),
            all(one.reused for one in report.made.values()),
            sum(one.seconds for one in report.made.values()),
        )  # fmt: skip

    return BuildStage("split", out, do, lambda: plan_split(corpus, out, plan).problems, plan.parts)


def _dedup_stage(section: DedupSection, corpus: Path, out: Path, against: list[Path]) -> BuildStage:
    step = partial(
        dedup_step, corpus, near=section.near, threshold=section.threshold,
        normalize=section.normalize, against=tuple(against),
    )  # fmt: skip

    def do(how: How) -> Made:
        return _made(f"dedup {out.name}", run_dedup(corpus, out, step(), **vars(how)))

    return BuildStage(f"dedup {out.name}", out, do)


def _check_stage(section: BenchmarksSection, corpus: Path, folder: Path) -> BuildStage:
    name, out = f"contamination {corpus.name}", folder / corpus.name

    def do(how: How) -> Made:
        step = contamination_step(section.against, n=section.words)
        return _made(name, run_step(corpus, out, step, **vars(how)))

    return BuildStage(name, out, do)


def _mix_stage(section: MixSection, corpus: Path, out: Path) -> BuildStage:
    def problems() -> tuple[Problem, ...]:
        try:
            return _weight_problems(section, sources_of(corpus), of_train=True)
        except AlborError as error:
            return (Problem("corpus", error.message, error.hint),)

    def do(how: How) -> Made:
        _refuse(problems())
        report = mix_by_source(
            corpus, out, section.fractions(), size=section.size, seed=section.seed,
            shuffle=section.shuffle, **vars(how),
        )  # fmt: skip
        return _made("mix train", report)

    return BuildStage("mix train", out, do, problems)


def _weight_problems(
    section: MixSection, there: Sequence[str], *, of_train: bool = False
) -> tuple[Problem, ...]:
    are_shares = section.size is not None
    found = weight_problems(section.weights, there, are_shares=are_shares, of_train=of_train)
    return tuple(found)


def _refuse(problems: Sequence[Problem]) -> None:
    """Raise ConfigError with the first, which `--plan` tells with all others."""
    if problems:
        raise ConfigError(f"{problems[0].field}: {problems[0].message}", hint=problems[0].hint)


def _tokenizer_stage(corpus: Path, out: Path, vocab_size: int) -> BuildStage:
    """Training takes minutes and leaves no record, so what it was trained on is written beside it:
    the corpus' hash, and the hash of what came of it.
    """
    stamp = out.with_name("tokenizer.made.json")

    def do(how: How) -> Made:
        began = time.monotonic()
        source = content_hash(open_corpus(corpus))
        settings = {"vocab_size": vocab_size, "rules": TOKENIZER_RULES}
        identity = corpus_identity("tokenizer", settings, {"corpus": source})
        before = read_json(stamp) or {}
        is_ours = out.is_file() and before.get("sha256") == sha256_file(out)
        reused = is_ours and before.get("identity") == identity
        if is_ours and not reused and not how.force:  # before the minutes that training may take
            raise UsageError(
                f"{out}: was trained on another corpus, or has another size",
                hint="choose another --out, or --force to replace it",
            )
        if not reused:
            report = train_tokenizer(
                corpus, out, vocab_size=vocab_size, force=how.force, progress=how.progress
            )
            publish_json(stamp, {"identity": identity, "sha256": report.sha256})
        return Made("tokenizer", out, None, out.stat().st_size, None, {}, sha256_file(out), reused,
                    time.monotonic() - began)  # fmt: skip

    return BuildStage("tokenizer", out, do)


def _pack_stage(
    recipe: BuildRecipe, parts: Path, train: Path, tokenizer: Path, out: Path
) -> BuildStage:
    section = recipe.pretokenize

    def do(how: How) -> Made:
        report = pretokenize(
            parts, tokenizer, out, seq_len=section.seq_len, eos=section.eos,
            packing=section.packing, elsewhere={"train": train}, **vars(how),
        )  # fmt: skip
        splits = report.splits
        return Made(
            "pretokenize", out, sum(one.documents or 0 for one in splits.values()), None,
            sum(one.tokens for one in splits.values()), report.skipped,
            _hash_of_all({name: one.data_hash for name, one in splits.items()}),
            report.reused, report.seconds,
        )  # fmt: skip

    return BuildStage("pretokenize", out, do)


def _verify_stage(shards: Path, parts: tuple[str, ...]) -> BuildStage:
    def do(how: How) -> Made:
        began = time.monotonic()
        hashes = {}
        for name in parts:
            if problems := verify_shards(shards / name, hashes=True):
                raise DataError(
                    f"{problems[0].file}: {problems[0].message}",
                    hint=f"remove {shards} and run the same command again",
                )
            hashes[name] = load_manifest(shards / name).data_hash
        return Made("verify", shards, None, None, None, {}, _hash_of_all(hashes), True,
                    time.monotonic() - began)  # fmt: skip

    return BuildStage("verify", shards, do)


def _hash_of_all(hashes: Mapping[str, str]) -> str:
    return corpus_identity("parts", {}, hashes)


def _provenance(loaded: LoadedRecipe, out: Path) -> dict[str, Any]:
    """Written beside the shards; no time and no absolute path is in it."""
    found = {**provenance(out / "shards"), "path": loaded.recipe.name}
    found["recipe_sha256"] = loaded.sha256
    text = markdown(found)
    publish_json(out / "provenance.json", found)
    with publishing(out / "PROVENANCE.md") as temp:
        temp.write_text(text, encoding="utf-8")
    return found


class _Folder(OutputPlace):
    """OUT itself, which holds what the stages build."""

    @property
    def work(self) -> Path:
        return self.path / WORK
