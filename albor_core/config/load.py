"""A training config: bytes in, one frozen `Config` out, or every problem at once.

Relative paths in a config are relative to the directory the command is run in. Numbers may be
written `32_768`, `32K`, `10B` or `3e-4` (see `numbers`).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

from pydantic import Field, ValidationError
from pydantic.fields import FieldInfo

from albor_core.config.config_file import read_config_file
from albor_core.config.microbatches import MAX_RANKS, Share, share_of, world_sizes
from albor_core.config.sections import (
    CROSS_CHECK,
    DataConfig,
    GuardConfig,
    ModelConfig,
    MonitoringConfig,
    OptimizerConfig,
    Section,
    TrainingConfig,
)
from albor_core.config.strict_yaml import (
    MAX_BYTES,
    Document,
    KeyPath,
    load_yaml,
    refusal,
)
from albor_core.run.errors import ConfigError, NotFoundError, Problem

# one setting with two names: an override of either replaces both
_TWINS: dict[KeyPath, KeyPath] = {
    ("training", "save_interval"): ("training", "checkpoint", "save_every"),
    ("training", "checkpoint", "save_every"): ("training", "save_interval"),
}
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

    model: ModelConfig
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

    def problems(self) -> Iterator[Problem]:
        yield from _problems_between(dict(self))

    def share(self) -> Share:
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

    def fitting_ranks(self) -> tuple[int, ...]:
        """Every number of ranks that the run could go on with, ascending."""
        counts = range(1, MAX_RANKS + 1)
        return tuple(n for n in counts if next(self.on_ranks(n).problems(), None) is None)

    def resolved(self) -> dict[str, Any]:
        """Every field with every default, as plain JSON."""
        return self.model_dump(mode="json")


def _problems_between(sections: Mapping[str, Any]) -> Iterator[Problem]:
    """What does not fit together among sections that are right by themselves; some may be away."""
    model, data = sections.get("model"), sections.get("data")
    training = sections.get("training")
    if model and data:
        yield from _length_problems(model, data)
    if data and training:
        yield from _sample_problems(data, training)
        yield from _sharing_problems(data, training)


def _length_problems(model: ModelConfig, data: DataConfig) -> Iterator[Problem]:
    longest = model.architecture.max_position_embeddings
    if data.seq_len > longest:
        message = f"{data.seq_len} is above model.architecture.max_position_embeddings {longest}"
        yield Problem("data.seq_len", message, f"use at most {longest}, or raise that")


def _sample_problems(data: DataConfig, training: TrainingConfig) -> Iterator[Problem]:
    if training.sample_prompts and data.tokenizer is None:
        message = "samples need a tokenizer, and data.tokenizer is not set"
        yield Problem("training.sample_prompts", message, "set data.tokenizer")


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
class LoadedConfig:
    """A config with the exact bytes of its file; overrides are in `config` and not in `raw`."""

    raw: bytes
    config: Config
    path: Path
    overrides: tuple[str, ...] = ()
    """`key=value` texts."""


def load_config(path: Path, overrides: Sequence[str] = ()) -> LoadedConfig:
    """Read and check a file. Raises NotFoundError, or ConfigError with every problem."""
    try:
        raw = read_config_file(path, MAX_BYTES + 1)
    except OSError as error:
        raise NotFoundError(
            f"{path}: {error.strerror}", hint="give the path of a config, see configs/"
        ) from error
    config = parse_config(raw, file=str(path), overrides=overrides)
    return LoadedConfig(raw, config, path, tuple(overrides))


def load_packaged(name: str, overrides: Sequence[str] = ()) -> LoadedConfig:
    """A config that comes with Albor, `demo` or `train/pretrain-50m`, wherever it is installed.

    Raises NotFoundError where it is not.
    """
    package = Path(__file__).resolve().parents[1]
    candidates = [root / "configs" / f"{name}.yaml" for root in (package, package.parent)]
    found = next((path for path in candidates if path.is_file()), candidates[-1])
    return load_config(found, overrides)


def guard_options(options: Sequence[str]) -> dict[str, Any]:
    """The `guard` section as plain JSON from its defaults and `key=value` texts (`stale_s=60`).

    Raises ConfigError with every problem.
    """
    prefixed = [f"guard.{text}" for text in options]
    data, sources, found = _override({}, prefixed)
    try:
        section = GuardConfig.model_validate(data.get("guard"))
    except ValidationError as error:
        found += _problems(error, Document(None), sources, "", above=("guard",))
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
    document = load_yaml(raw, file=file)
    if not isinstance(document.data, dict):
        what = "is empty" if document.data is None else "is not a mapping of sections"
        raise refusal([Problem("", what, "start from configs/demo.yaml", file)])
    data, sources, found = _override(document.data, overrides)
    try:
        config = Config.model_validate(data)
    except ValidationError as error:
        between = tuple(_problems_between(_right_sections(data)))
        found += _problems(error, document, sources, file, between=between)
        raise refusal(found, file=file) from error
    if found:
        raise refusal(found, file=file)
    return config


def _right_sections(data: Mapping[str, Any]) -> dict[str, Section]:
    """The sections of a config that are right by themselves, where others are not."""
    right = {}
    for name, section in children(Config).items():
        if section is not None:
            with suppress(ValidationError):
                right[name] = section.model_validate(data.get(name))
    return right


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


def suggestion(path: KeyPath) -> str:
    """What an unknown field may have been meant to be, as a sentence, or nothing."""
    names = [str(part) for part in path]
    section = _section_at(path[:-1])
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


def _section_at(path: KeyPath) -> type[Section] | None:
    """The class of the section at `path`; list elements are looked up in the field's annotation."""
    section: type[Section] | None = Config
    for part in path:
        if section is None or isinstance(part, int):
            continue
        field = section.model_fields.get(part)
        section = None if field is None else _first_section(field.annotation)
    return section


def _first_section(annotation: Any) -> type[Section] | None:
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(_first_section, get_args(annotation))), None)


def _override(
    data: Mapping[str, Any], overrides: Sequence[str]
) -> tuple[dict[str, Any], dict[KeyPath, str], list[Problem]]:
    """The data with overrides applied, the source of each value set, and the wrong overrides."""
    changed = _copy(data)
    sources: dict[KeyPath, str] = {}
    found: list[Problem] = []
    named: dict[KeyPath, Any] = {}  # what was set by this very name
    for text in overrides:
        source = f"--set {text}"
        dotted, equals, value = text.partition("=")
        path: KeyPath = _real_name(tuple(part.strip() for part in dotted.split(".")))
        if not equals or not all(path):
            found.append(Problem("", "is not key=value", "--set optimizer.lr=3e-4", source))
        elif not _is_field(path):
            found.append(
                Problem(".".join(map(str, path)), "is not a field", suggestion(path), source)
            )
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


def _real_name(path: KeyPath) -> KeyPath:
    """The path of the field that another name stands for."""
    names = getattr(_section_at(path[:-1]), "ALIASES", {})
    return (*path[:-1], names.get(path[-1], path[-1]))


def _copy(data: Mapping[str, Any]) -> dict[str, Any]:
    return {k: _copy(v) if isinstance(v, Mapping) else v for k, v in data.items()}


def _is_field(path: KeyPath) -> bool:
    """Whether a path names a field; a key of a free mapping (tags) counts."""
    section = _section_at(path[:-1])
    if section is not None:
        return path[-1] in section.model_fields or path[-1] in getattr(section, "ABSENT", ())
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
    document: Document,
    sources: Mapping[KeyPath, str],
    file: str,
    above: KeyPath = (),
    between: Sequence[Problem] = (),
) -> list[Problem]:
    """Pydantic's findings in our words and those `between` sections, in the order of the file."""
    found: list[tuple[int, Problem]] = []

    def add(path: KeyPath, message: str, hint: str) -> None:
        where, line = _where(path, document, sources, file)
        dotted = ".".join(str(part) for part in path)
        found.append((line, Problem(dotted, message, hint, where)))

    details = error.errors(include_url=False)
    parents = {detail["loc"][:-1] for detail in details}
    for detail in details:
        if detail["type"] == "too_short" and detail["loc"] in parents:
            continue  # its items were refused one by one: it is not empty
        base = _yaml_path((*above, *detail["loc"]))
        if detail["type"] == CROSS_CHECK:
            for item in detail["ctx"]["found"]:
                add((*base, *_path(item.field)), item.message, item.hint)
        else:
            add(base, *_say(detail, base))
    for item in between:
        add(_path(item.field), item.message, item.hint)
    found.sort(key=lambda pair: pair[0])
    unique = {(problem.field, problem.message): problem for _, problem in found}
    return _without_echoes(list(unique.values()), document, sources)


def _without_echoes(
    found: list[Problem], document: Document, sources: Mapping[KeyPath, str]
) -> list[Problem]:
    """One problem for a setting with two names: of the name that was written, or of the first."""

    def is_written(path: KeyPath) -> bool:
        if path in sources:
            name = sources[path].removeprefix("--set ").partition("=")[0]
            return tuple(part.strip() for part in name.split(".")) == path
        return path in document.lines

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
    return tuple(field.split("."))


def _yaml_path(loc: tuple[str | int, ...]) -> KeyPath:
    """The location without the names pydantic adds below a field for the branches of its type."""
    path: list[str | int] = []
    for part in loc:
        if isinstance(part, str) and ".".join(map(str, path)) in _LEAVES:
            break
        path.append(part)
    return tuple(path)


_LEAVES = frozenset(field_paths()) - {"monitoring.tracking.tags"}


def _where(
    path: KeyPath, document: Document, sources: Mapping[KeyPath, str], file: str
) -> tuple[str, int]:
    prefixes = [path[:length] for length in range(len(path), 0, -1)]
    for prefix in prefixes:  # an override hides whatever the file has below it
        if prefix in sources:
            return sources[prefix], 0
    for prefix in prefixes:
        if prefix in document.lines:
            return f"{file}:{document.lines[prefix]}", document.lines[prefix]
    return file, 0


def _say(detail: Any, path: KeyPath) -> tuple[str, str]:
    kind, value, context = detail["type"], detail["input"], detail.get("ctx", {})
    shown = repr(value) if len(repr(value)) <= 60 else repr(value)[:57] + "..."
    match kind:
        case "missing":
            return "is required", ""
        case "extra_forbidden":
            return "is not a field", suggestion(path)
        case "literal_error":
            return f"must be {context['expected']}, is {shown}", ""
        case "value":
            return f"{detail['msg']}, is {shown}", ""
        case "greater_than" | "greater_than_equal" | "less_than" | "less_than_equal":
            return f"must be {_range(path, context)}, is {shown}", ""
        case "finite_number":
            return f"must be {_range(path, {})}, is {shown}", ""
        case "model_type" | "model_attributes_type" | "dict_type":
            return f"must be a section with fields, is {shown}", ""
        case "bool_parsing" | "bool_type":
            return f"must be true or false, is {shown}", ""
        case "string_type" | "path_type":
            return f"must be text, is {shown}", ""
        case "tuple_type":
            return f"must be a list, is {shown}", ""
        case "too_short":
            return "must not be empty", ""
        case "string_too_short" | "string_too_long":
            return f"{detail['msg'].removeprefix('String ')}, is {shown}", ""
    return f"{detail['msg'][0].lower()}{detail['msg'][1:]}, is {shown}", ""


_LIMITS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def _range(path: KeyPath, broken: Mapping[str, Any]) -> str:
    """What the number at `path` may be; the end of the store's integers only where it is broken."""
    names = [part for part in path if isinstance(part, str)]
    section = _section_at(tuple(names[:-1]))
    limits = {} if section is None else dict(_limits(section.model_fields[names[-1]]))
    told = {k: v for k, v in limits.items() if k in broken or v < 2**62}
    return " and ".join(f"{word} {told[k]:.12g}" for k, word in _LIMITS.items() if k in told)


def _limits(item: Any) -> Iterator[tuple[str, float]]:
    """The bounds in a field, its annotation or what that is made of."""
    yield from ((name, getattr(item, name)) for name in _LIMITS if hasattr(item, name))
    is_field = isinstance(item, FieldInfo)
    for part in (*item.metadata, item.annotation) if is_field else get_args(item):
        yield from _limits(part)
