"""A training config: bytes in, one frozen `Config` out, or every problem at once.

Relative paths in a config are relative to the directory the command is run in. Numbers may be
written `32_768`, `32K`, `10B` or `3e-4` (see `numbers`).
"""

from __future__ import annotations

import difflib
import errno
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Any, get_args

from pydantic import Field, ValidationError, field_validator
from pydantic.fields import FieldInfo

from albor_core.config.config_file import (
    packaged_config,
    packaged_configs,
    read_config_file,
)
from albor_core.config.microbatches import MAX_RANKS, RankShare, share_of, world_sizes
from albor_core.config.recipes.registry import (
    DEFAULT,
    recipe_problems,
    required,
    settings_of,
    settings_type,
)
from albor_core.config.sections.data import DataConfig
from albor_core.config.sections.guard import GuardConfig
from albor_core.config.sections.model import ModelConfig
from albor_core.config.sections.monitoring import MonitoringConfig
from albor_core.config.sections.optimizer import OptimizerConfig
from albor_core.config.sections.section import CROSS_CHECK, Section
from albor_core.config.sections.training import TrainingConfig
from albor_core.config.strict_yaml import (
    MAX_BYTES,
    MAX_PROBLEMS,
    KeyPath,
    YamlDocument,
    load_yaml,
    read_yaml,
    refusal,
    untold,
)
from albor_core.run.errors import ConfigError, NotFoundError, Problem
from albor_core.run.values.webhook_url import HIDDEN

# one setting with two names: an override of either replaces both
_TWINS: dict[KeyPath, KeyPath] = {
    ("training", "save_interval"): ("training", "checkpoint", "save_every"),
    ("training", "checkpoint", "save_every"): ("training", "save_interval"),
}
_SINKS = ("monitoring", "notify")
_OTLP = ("monitoring", "otlp")
_ELSEWHERE = {  # what other trainers call it
    "learning_rate": "optimizer.lr",
    "d_model": "model.architecture.hidden_size",
    "n_embd": "model.architecture.hidden_size",
    "n_head": "model.architecture.num_attention_heads",
    "block_size": "data.seq_len",
    "num_gpus": "training.distributed.world_size",
    "nproc_per_node": "training.distributed.world_size",
    "accumulate": "training.gradient_accumulation",
    "gradient_accumulation_steps": "training.gradient_accumulation",
    "clip_grad_norm": "training.grad_clip",
    "max_grad_norm": "training.grad_clip",
}


class Config(Section):
    """Everything a training run needs to know."""

    model: ModelConfig = Field(default_factory=ModelConfig)
    """What is trained."""
    data: DataConfig
    """Token shards."""
    optimizer: OptimizerConfig
    """The optimizer and its learning rate."""
    training: TrainingConfig
    """The loop."""
    monitoring: MonitoringConfig = Field(default_factory=MonitoringConfig)
    """What is watched."""
    guard: GuardConfig = Field(default_factory=GuardConfig)
    """The supervisor."""
    recipe: dict[str, Any] = Field(default_factory=dict)
    """Settings of the recipe that training.mode names: one of Albor refuses what it does not have,
    a class of your own gets the section as it is written here."""

    @field_validator("recipe", mode="before")
    @classmethod
    def _empty_is_none_set(cls, value: object) -> object:
        return {} if value is None else value

    def problems(self) -> Iterator[Problem]:
        yield from _problems_between(dict(self), self.training.mode)

    def share(self) -> RankShare:
        """What each rank does of a step."""
        size, accumulation = self.data.batch_size, self.training.gradient_accumulation
        found = share_of(size, accumulation, self.training.distributed.world_size)
        assert found is not None, "refused by `problems`"
        return found

    @property
    def sequences_per_step(self) -> int:
        """Of all ranks."""
        return self.data.batch_size * self.training.gradient_accumulation

    def on_ranks(self, world_size: int) -> Config:
        """The same run on so many ranks; `problems` says whether it can be."""
        distributed = self.training.distributed.model_copy(update={"world_size": world_size})
        training = self.training.model_copy(update={"distributed": distributed})
        return self.model_copy(update={"training": training})

    def fitting_ranks(self, near: int) -> list[int]:
        """The two numbers of ranks that the run could go on with nearest to `near`, nearest first;
        fewer where there are fewer.
        """
        nearest = sorted(range(1, MAX_RANKS + 1), key=lambda n: abs(n - near))
        fits = (n for n in nearest if next(self.on_ranks(n).problems(), None) is None)
        return [*islice(fits, 2)]

    def resolved(self) -> dict[str, Any]:
        """Every field with every default, as plain JSON, but for what a recipe does without."""
        found = self.model_dump(mode="json")
        found["recipe"] = settings_of(self.training.mode, self.recipe)
        if self.model.architecture is None:
            del found["model"]["architecture"]
        if "train" not in self.data.model_fields_set:
            del found["data"]["train"]
        return found


def _problems_between(sections: Mapping[str, Any], mode: str) -> Iterator[Problem]:
    """What does not fit together among sections that are right by themselves; some may be away.
    `mode`: training.mode.
    """
    data, training = sections.get("data"), sections.get("training")
    yield from recipe_problems(mode, sections)
    yield from _settings_problems(settings_type(mode), sections.get("recipe") or {})
    if training and (optimizer := sections.get("optimizer")):
        yield from _update_problems(optimizer, training)
    if data and training:
        yield from _sample_problems(data, training)
        yield from _sharing_problems(data, training)
        yield from _ramp_problems(data, training)


def _settings_problems(settings: type[Section] | None, given: Mapping[str, Any]) -> list[Problem]:
    if settings is None:
        return []
    try:
        settings.model_validate(dict(given))
    except ValidationError as error:
        nowhere = Places(YamlDocument(None), {}, "")  # said by the caller, as of all sections
        return _problems(error, nowhere, above=("recipe",), settings=settings)
    return []


def _sample_problems(data: DataConfig, training: TrainingConfig) -> Iterator[Problem]:
    if training.sample_prompts and data.tokenizer is None:
        message = "samples need a tokenizer, and data.tokenizer is not set"
        yield Problem("training.sample_prompts", message, "set data.tokenizer")


def _update_problems(optimizer: OptimizerConfig, training: TrainingConfig) -> Iterator[Problem]:
    if optimizer.muon_beta2 is not None and training.distributed.is_sharded:
        message = "NorMuon needs matrices whole, and training.distributed.strategy is fsdp"
        yield Problem("optimizer.muon_beta2", message, "leave it out, or let the strategy be ddp")


def _ramp_problems(data: DataConfig, training: TrainingConfig) -> Iterator[Problem]:
    size, ranks = data.batch_size, training.distributed.world_size
    for stage in training.batch_ramp:
        if share_of(size, stage.gradient_accumulation, ranks) is None:
            sequences = size * stage.gradient_accumulation
            message = f"{ranks} ranks cannot share a batch of {sequences} sequences evenly"
            yield Problem("training.batch_ramp", message, "begin with more micro-batches")
    for one in training.seq_len_ramp:
        if one.seq_len >= data.seq_len or data.seq_len % one.seq_len:
            message = f"{one.seq_len} is not a divisor of data.seq_len {data.seq_len} below it"
            yield Problem("training.seq_len_ramp", message, f"{data.seq_len // 2}, for example")
    for field in ("document_mask", "fim") if training.seq_len_ramp else ():
        if getattr(data, field):
            message = "cannot be combined with training.seq_len_ramp"
            yield Problem(f"data.{field}", message, "leave one of them out")


def _sharing_problems(data: DataConfig, training: TrainingConfig) -> Iterator[Problem]:
    size, accumulation = data.batch_size, training.gradient_accumulation
    ranks = training.distributed.world_size
    share = share_of(size, accumulation, ranks)
    if share is None:
        fits = world_sizes(size, accumulation, ranks)
        message = (
            f"{ranks} ranks cannot share a global batch of {size * accumulation} sequences "
            f"(data.batch_size {size} x training.gradient_accumulation {accumulation}) evenly"
        )
        hint = f"{fits[-1]} would, or training.gradient_accumulation={ranks}"
        yield Problem("training.distributed.world_size", message, hint)
        return
    splits = share.batch_size % 2 == 0 or share.accumulation > 1
    if training.stability.noise_scale_interval is not None and not splits:
        message = "the gradient noise scale needs a batch that can be halved"
        hint = "use an even data.batch_size, or gradient_accumulation"
        yield Problem("training.stability.noise_scale_interval", message, hint)


@dataclass(frozen=True)
class Places:
    """Where the values of a config are written."""

    document: YamlDocument
    sources: Mapping[KeyPath, str]
    """Overrides by what they set."""
    file: str

    def of(self, field: str) -> str:
        """`file:line` or `--set KEY=VALUE` of a dotted field, or of the section it would be in."""
        return self.at(_path(field))[0]

    def at(self, path: KeyPath) -> tuple[str, int]:
        """That and the line, 0 for an override."""
        prefixes = [path[:length] for length in range(len(path), 0, -1)]
        for prefix in prefixes:  # an override hides whatever the file has below it
            if prefix in self.sources:
                return self.sources[prefix], 0
        lines = self.document.lines
        for prefix in prefixes:
            for name in (prefix, *_other_names(prefix)):
                if name in lines:
                    return f"{self.file}:{lines[name]}", lines[name]
        return self.file, 0


MoreProblems = Callable[[Mapping[str, Any]], Iterable[Problem]]
"""What a room above finds wrong with a `monitoring` section, as plain data with every default."""


@dataclass(frozen=True)
class LoadedConfig:
    """A config with the exact bytes of its file; overrides are in `config` and not in `raw`."""

    raw: bytes
    config: Config
    path: Path
    overrides: tuple[str, ...] = ()
    """`key=value` texts."""
    places: Places | None = None
    """Where its values are written."""

    def place(self, field: str) -> str:
        """`file:line` or `--set KEY=VALUE` of a dotted field, or of the section it would be in."""
        return str(self.path) if self.places is None else self.places.of(field)


def load_config(
    path: Path, overrides: Sequence[str] = (), more: MoreProblems | None = None
) -> LoadedConfig:
    """Read and check a file, or the config of that name which comes with Albor where there is no
    such file. Raises NotFoundError, or ConfigError with every problem, those that `more` finds
    among them.
    """
    try:
        raw = read_config_file(path, MAX_BYTES + 1)
    except OSError as error:
        if error.errno in _NO_FILE and packaged_config(str(path)) is not None:
            return load_packaged(str(path), overrides, more)
        raise NotFoundError(f"{path}: {error.strerror}", hint=_hint()) from error
    config, places = _checked(raw, str(path), overrides, more)
    return LoadedConfig(raw, config, path, tuple(overrides), places)


_NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR)


def load_packaged(
    name: str, overrides: Sequence[str] = (), more: MoreProblems | None = None
) -> LoadedConfig:
    """A config that comes with Albor, `demo` or `train/pretrain-50m`, wherever it is installed.

    Raises NotFoundError where there is none of that name.
    """
    if (found := packaged_config(name)) is None:
        raise NotFoundError(f"no config {name!r} comes with Albor", hint=_hint())
    return load_config(found, overrides, more)


def _hint() -> str:
    return f"`albor init` writes one; Albor's own are {', '.join(packaged_configs())}"


def guard_options(options: Sequence[str]) -> dict[str, Any]:
    """The `guard` section as plain JSON from its defaults and `key=value` texts (`stale_s=60`).

    Raises ConfigError with every problem.
    """
    prefixed = [f"guard.{text}" for text in options]
    data, sources, found = _override({}, prefixed)
    try:
        section = GuardConfig.model_validate(data.get("guard"))
    except ValidationError as error:
        found += _problems(error, Places(YamlDocument(None), sources, ""), above=("guard",))
        raise refusal([_as_option(problem) for problem in found]) from error
    if found:
        raise refusal([_as_option(problem) for problem in found])
    return section.model_dump(mode="json")


def _as_option(problem: Problem) -> Problem:
    """A problem with a text of `--option`, in the words of whoever wrote that."""
    words = {
        "--set guard.": "--option ",
        "--set": "--option",
        "guard.": "",
        "fields here": "options",
    }
    words |= {"is not a field": "is not an option", "optimizer.lr=3e-4": "stale_s=60"}
    texts = [problem.field, problem.message, problem.hint, problem.file]
    for old, new in words.items():
        texts = [text.replace(old, new) for text in texts]
    field, message, hint, file = texts
    if message.startswith("is "):
        return Problem("", f"{file or field} {message}", hint)
    return Problem(field, message, hint, file)


def with_defaults(resolved: Mapping[str, Any]) -> Mapping[str, Any]:
    """A resolved config that was written down, and fields younger than it, which had their defaults
    then; of a version with other fields, as it is.
    """
    try:
        return Config.model_validate(resolved).resolved()
    except ValidationError:
        return resolved


def parse_config(raw: bytes, *, file: str, overrides: Sequence[str] = ()) -> Config:
    """Check the bytes of a config with `key=value` overrides on top.

    Raises ConfigError whose `problems` name file:line, dotted field, cause and fix.
    """
    return _checked(raw, file, overrides, None)[0]


def _checked(
    raw: bytes, file: str, overrides: Sequence[str], more: MoreProblems | None
) -> tuple[Config, Places]:
    document, unread = read_yaml(raw, file=file)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of sections"
        empty = Problem("", what, "albor init writes a whole one", file)
        raise refusal(unread or [empty], file=file)
    data, sources, found = _override(document.data, overrides)
    places = Places(document, sources, file)
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        mode, (right, contradictions, lost) = _mode_in(data), _right_parts(data)
        found_between = _problems_between(right, mode)
        between = [*_about_others([*contradictions, *found_between], lost), *_missing(data, mode)]
        if more is not None and "monitoring" in right:
            between += more(right["monitoring"].model_dump(mode="json"))
        found = [*_problems(error, places, between=between), *found]
    else:
        if (found or unread) and more is not None:
            found += [
                replace(one, file=places.of(one.field))
                for one in more(config.resolved()["monitoring"])
            ]
        if not found and not unread:
            return config, places
    raise refusal(_in_order([*unread, *_beside(unread, found)]), file=file)


def _beside(unread: Sequence[Problem], found: Sequence[Problem]) -> Iterator[Problem]:
    """Those of `found` that are not about a value which could not be read, and so is empty."""
    lost = [problem.field for problem in unread]
    for problem in found:
        if not any(f"{problem.field}.".startswith(f"{field}.") for field in lost if field):
            yield problem


def _in_order(found: Iterable[Problem]) -> list[Problem]:
    """By their lines, those of overrides last; of one line as they come."""
    lines = {problem: problem.file.rpartition(":")[2] for problem in found}
    # a number is a line, and what has none stands behind all
    return sorted(lines, key=lambda one: int(lines[one]) if lines[one].isdigit() else 1 << 62)


def _mode_in(data: Mapping[str, Any]) -> str:
    """What a config, right or wrong, says as training.mode."""
    training = data.get("training")
    said = training.get("mode") if isinstance(training, Mapping) else None
    return said if isinstance(said, str) else DEFAULT


def _missing(data: Mapping[str, Any], mode: str) -> Iterator[Problem]:
    """What its recipe needs and a config does not say, also in sections that are wrong."""
    for field in required(mode):
        section, name = field.split(".")
        said = data.get(section) or {}
        if not isinstance(said, Mapping):
            continue  # refused as it stands
        is_said = name in said
        stands_in = field == "model.architecture" and said.get("path", ".") not in (".", "")
        stands_in |= field == "data.train" and bool(said.get("mixture"))
        if not is_said and not stands_in and (section in data or section == "model"):
            yield Problem(field, "is required", "or data.mixture" if section == "data" else "")


def _right_parts(data: Mapping[str, Any]) -> tuple[dict[str, Any], list[Problem], set[str]]:
    """The sections of a config without the fields that are wrong by themselves, what does not fit
    together in the rest of them, and the names of those fields.
    """
    right: dict[str, Any] = {}
    found: list[Problem] = []
    lost: set[str] = set()
    for name, section in children(Config).items():
        said = data.get(name)
        if section is None:
            right |= {name: said} if isinstance(said, Mapping) else {}
            continue
        try:
            right[name] = section.model_validate(said)
            continue
        except ValidationError as error:
            wrong = {str(detail["loc"][0]) for detail in error.errors() if detail["loc"]}
        if not isinstance(said, Mapping):
            continue
        lost |= wrong
        try:
            right[name] = section.model_validate({k: v for k, v in said.items() if k not in wrong})
        except ValidationError as error:
            found += _contradictions(error, name)
    return right, found, lost


def _contradictions(error: ValidationError, section: str) -> Iterator[Problem]:
    for detail in error.errors():
        if detail["type"] == CROSS_CHECK:
            above = ".".join(map(str, (section, *detail["loc"])))
            for one in detail["ctx"]["found"]:
                yield replace(one, field=f"{above}.{one.field}")


def _about_others(found: Iterable[Problem], lost: Collection[str]) -> Iterator[Problem]:
    """Those that no field has a part in whose value is not known."""
    for problem in found:
        words = re.findall(r"\w+", f"{problem.field} {problem.message} {problem.hint}")
        if not set(words) & set(lost):
            yield problem


def field_paths(section: type[Section] = Config, prefix: str = "") -> tuple[str, ...]:
    """The dotted name of every leaf field."""
    found: list[str] = []
    for name, child in children(section).items():
        found += [prefix + name] if child is None else field_paths(child, f"{prefix}{name}.")
    return tuple(found)


def children(section: type[Section]) -> dict[str, type[Section] | None]:
    """Each field of a section, with its class where it is a section itself."""
    return {
        name: field.annotation
        if isinstance(field.annotation, type) and issubclass(field.annotation, Section)
        else None
        for name, field in section.model_fields.items()
    }


def suggestion(path: KeyPath, settings: type[Section] | None = None) -> str:
    """What an unknown field may have been meant to be, as a sentence, or nothing; `settings`: those
    of the recipe.
    """
    names = [str(part) for part in path]
    section = _section_at(path[:-1], settings)
    siblings = [] if section is None else list(section.model_fields)
    prefix = ".".join([*names[:-1], ""]) if len(names) > 1 else ""
    if near := difflib.get_close_matches(names[-1], siblings, 1, 0.6):
        return f"did you mean {prefix}{near[0]}?"
    if names[-1] in _ELSEWHERE:
        return f"did you mean {_ELSEWHERE[names[-1]]}?"
    leaves = {dotted.rsplit(".", 1)[-1]: dotted for dotted in reversed(field_paths())}
    if near := difflib.get_close_matches(names[-1], leaves, 1, 0.75):
        return f"did you mean {leaves[near[0]]}?"
    if near := difflib.get_close_matches(names[-1], siblings, 1, 0.45):
        return f"did you mean {prefix}{near[0]}?"
    return f"fields here: {', '.join(siblings)}" if siblings else ""


def _section_at(path: KeyPath, settings: type[Section] | None = None) -> type[Section] | None:
    """The class of the section at `path`, `settings` that of `recipe`; list elements are looked up
    in the field's annotation.
    """
    section: type[Section] | None = Config
    if path[:1] == ("recipe",):
        section, path = settings, path[1:]
    for part in path:
        if section is None or isinstance(part, int):
            continue
        field = section.model_fields.get(part)
        section = None if field is None else first_section(field.annotation)
    return section


def first_section(annotation: Any) -> type[Section] | None:
    """The class of sections that an annotation holds, in a list or beside None too."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(first_section, get_args(annotation))), None)


def _override(
    data: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], dict[KeyPath, str], list[Problem]]:
    """The data with overrides applied, the source of each value set, and the wrong overrides."""
    changed = _copy(data)
    sources: dict[KeyPath, str] = {}
    found: list[Problem] = []
    named: dict[KeyPath, Any] = {}  # what was set by this very name
    for text in overrides:
        source = f"--set {shown_override(text)}"
        dotted, equals, value = text.partition("=")
        path: KeyPath = _real_name(tuple(part.strip() for part in dotted.split(".")))
        if not equals or not all(path):
            found.append(Problem("", "is not key=value", "--set optimizer.lr=3e-4", source))
        elif not _is_field(path):
            found.append(_no_field(path, source))
        elif shown_override(text) != text:
            what, field, hint = _of_secret(dotted)
            message = f"{what} is a secret, and a command line is shown to every user of this host"
            found.append(Problem(field, message, hint, source))
        else:
            try:
                parsed = load_yaml(value.encode(), file=source).data
            except ConfigError as error:
                found += error.problems
                continue
            twin = _TWINS.get(path)
            if twin is not None and named.get(twin, parsed) != parsed:
                message = f"{parsed}, but {sources[twin]}"
                hint = "they are the same setting: keep one"
                found.append(Problem(".".join(map(str, path)), message, hint, source))
                continue
            _set(changed, path, parsed)
            sources[path], named[path] = source, parsed
            if twin is not None:
                _set(changed, twin, parsed)
                sources[twin] = source
    return changed, sources, found


def _of_secret(dotted: str) -> tuple[str, str, str]:
    """What an override would give away, of which field, and the way around it."""
    if dotted.strip().startswith("monitoring.otlp"):
        return "a header", "monitoring.otlp.headers", "use OTEL_EXPORTER_OTLP_HEADERS"
    return "a URL", "monitoring.notify", "use url_env"


def shown_override(text: str) -> str:
    """A `key=value` text as it may be repeated: without the URL of a sink, without a header."""
    dotted, _, value = text.partition("=")
    path = tuple(part.strip() for part in dotted.split("."))
    if path[:2] == _OTLP and re.search(r"\bheaders\b", text):
        return f"{'.'.join((*_OTLP, 'headers'))}={HIDDEN}"
    is_of_sinks = path[:2] in (("monitoring",), _SINKS)
    holds_url = is_of_sinks and re.search(r"://|\burl\b", f"{dotted} {value}") is not None
    return f"{dotted}={HIDDEN}" if holds_url else text


def _real_name(path: KeyPath) -> KeyPath:
    """The path of the field that another name stands for."""
    names = getattr(_section_at(path[:-1]), "ALIASES", {})
    return (*path[:-1], names.get(path[-1], path[-1]))


def _copy(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in data.items()}


def _no_field(path: KeyPath, source: str) -> Problem:
    """Of an override; what stands in a list cannot be reached by one."""
    at = next((i for i, part in enumerate(path) if str(part).isdigit()), 0)
    if at and _section_at(path[:at]) is not None and path[0] != "recipe":
        whole = ".".join(map(str, path[:at]))
        what = f"is a part of a list, and --set replaces {whole} as a whole"
        return Problem(".".join(map(str, path)), what, "edit the file", source)
    return Problem(".".join(map(str, path)), "is not a field", suggestion(path), source)


def _is_field(path: KeyPath) -> bool:
    """Whether a path names a field; a key of a free mapping (tags, recipe) counts."""
    if path[0] == "recipe":
        return True
    section = _section_at(path[:-1])
    if section is not None:
        return path[-1] in section.model_fields or path[-1] in getattr(section, "BIASES", ())
    parent = _section_at(path[:-2]) if len(path) > 1 else None
    field = None if parent is None else parent.model_fields.get(str(path[-2]))
    return field is not None and str(field.annotation).startswith("dict")


def _set(data: dict[str, Any], path: KeyPath, value: Any) -> None:
    section = _section_at(path[:-1])
    for part in path[:-1]:
        inner = data.get(str(part))
        if not isinstance(inner, dict):
            inner = data[str(part)] = {}
        data = inner
    for alias, name in getattr(section, "ALIASES", {}).items():
        if name == path[-1]:
            data.pop(alias, None)  # what the file says under it is overruled, too
    data[str(path[-1])] = value


def _problems(
    error: ValidationError,
    places: Places,
    above: KeyPath = (),
    between: Sequence[Problem] = (),
    settings: type[Section] | None = None,
) -> list[Problem]:
    """Pydantic's findings in our words and those `between` sections, in the order of the file."""
    found: list[tuple[int, Problem]] = []

    def add(path: KeyPath, message: str, hint: str) -> None:
        where, line = places.at(path)
        if path[:2] == _SINKS and "/" in str(path[-1]):
            path = (*path[:-1], HIDDEN)  # a URL where a name belongs
        dotted = ".".join(str(part) for part in path)
        found.append((line, Problem(dotted, message, hint, where)))

    details = error.errors(include_url=False)
    more = untold(len(details) - MAX_PROBLEMS if len(details) > MAX_PROBLEMS else 0, places.file)
    del details[MAX_PROBLEMS:]
    parents = {detail["loc"][:-1] for detail in details}
    for detail in details:
        if detail["type"] == "too_short" and detail["loc"] in parents:
            continue  # its items were refused one by one: it is not empty
        base = _yaml_path((*above, *detail["loc"]), settings)
        if detail["type"] == CROSS_CHECK:
            for item in detail["ctx"]["found"]:
                add((*base, *_path(item.field)), item.message, item.hint)
        else:
            add(base, *_message_and_hint(detail, base, settings))
    for item in between:
        add(_path(item.field), item.message, item.hint)
    found.sort(key=lambda pair: pair[0])
    unique = {(problem.field, problem.message): problem for _, problem in found}
    return [*_without_echoes(list(unique.values()), places), *more]


def _without_echoes(found: list[Problem], places: Places) -> list[Problem]:
    """One problem for a setting with two names: of the name that was written, or of the first."""

    def is_written(path: KeyPath) -> bool:
        if path in places.sources:
            name = places.sources[path].removeprefix("--set ").partition("=")[0]
            return tuple(part.strip() for part in name.split(".")) == path
        return path in places.document.lines

    def rank(problem: Problem) -> tuple[bool, int]:
        return not is_written(_path(problem.field)), found.index(problem)

    kept = []
    for problem in found:
        path = _path(problem.field)
        twin = next(
            (
                p
                for p in found
                if _path(p.field) == _TWINS.get(path) and p.message == problem.message
            ),
            None,
        )
        if twin is None or is_written(path) or rank(problem) < rank(twin):
            kept.append(problem)
    return kept


def _path(field: str) -> KeyPath:
    return tuple(int(part) if part.isdecimal() else part for part in field.split("."))


def _yaml_path(loc: tuple[str | int, ...], settings: type[Section] | None) -> KeyPath:
    """The location without the names pydantic adds below a field for the branches of its type."""
    path: list[str | int] = []
    leaves = _LEAVES if settings is None else field_paths(settings, "recipe.")
    for part in loc:
        if isinstance(part, str) and ".".join(map(str, path)) in leaves:
            break
        path.append(part)
    return tuple(path)


_LEAVES = frozenset(field_paths()) - {
    "monitoring.tracking.tags",
    "model.architecture.rope_scaling",
    "data.fim",
}


def _other_names(path: KeyPath) -> Iterator[KeyPath]:
    """Under which else a field may be written."""
    for alias, name in getattr(_section_at(path[:-1]), "ALIASES", {}).items():
        if name == path[-1]:
            yield (*path[:-1], alias)
    if path in _TWINS:
        yield _TWINS[path]


def _message_and_hint(
    detail: Any, path: KeyPath, settings: type[Section] | None
) -> tuple[str, str]:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    if path[:2] == _SINKS and "/" in repr(value):
        shown = f"{'text' if isinstance(value, str) else 'data'} that may hold a URL"
    else:
        shown = shown_value(value)
    match kind:
        case "extra_forbidden":
            return "is not a field", suggestion(path, settings)
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return f"must be {_range(path, context, settings)}, is {shown}", ""
        case "finite_number":
            return f"must be {_range(path, {}, settings)}, is {shown}", ""
    return words_of(detail, shown), ""


def shown_value(value: object) -> str:
    """A value that was refused, as messages show it."""
    whole = repr(value)
    return whole if len(whole) <= 60 else whole[:57] + "..."


def words_of(detail: Any, shown: str) -> str:
    """What pydantic found of a value that is shown so, wherever that stands."""
    match detail["type"]:
        case "missing":
            return "is required"
        case "literal_error":
            return f"must be {detail['ctx']['expected']}, is {shown}"
        case "value":
            return f"{detail['msg']}, is {shown}"
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be a section with fields, is {shown}"
        case "bool_parsing" | "bool_type":
            return f"must be true or false, is {shown}"
        case "string_type" | "path_type":
            return f"must be text, is {shown}"
        case "tuple_type":
            return f"must be a list, is {shown}"
        case "too_short":
            return "must not be empty"
        case "string_too_short" | "string_too_long":
            return f"{detail['msg'].removeprefix('String ')}, is {shown}"
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, is {shown}"


LIMIT_WORDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def _range(path: KeyPath, broken: Mapping[str, Any], settings: type[Section] | None) -> str:
    """What the number at `path` may be; the end of the store's integers only where it is broken."""
    names = [part for part in path if isinstance(part, str)]
    section = _section_at(tuple(names[:-1]), settings)
    if section is None:  # a key of a free mapping
        names.pop()
        section = _section_at(tuple(names[:-1]), settings)
    bounds = {} if section is None else dict(limits(section.model_fields[names[-1]]))
    told = {k: v for k, v in bounds.items() if k in broken or v < 2**62}
    return " and ".join(f"{word} {told[k]:.12g}" for k, word in LIMIT_WORDS.items() if k in told)


def limits(item: Any) -> Iterator[tuple[str, float]]:
    """The bounds in a field, its annotation or what that is made of."""
    yield from ((name, getattr(item, name)) for name in LIMIT_WORDS if hasattr(item, name))
    is_field = isinstance(item, FieldInfo)
    for part in (*item.metadata, item.annotation) if is_field else get_args(item):
        yield from limits(part)
