"""The fields of a config by their paths: which there are, their bounds, their other names, and what
an unknown one may have been meant to be.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, get_args

from pydantic.fields import FieldInfo

from albor_core.config.sections.section import Section
from albor_core.config.text.strict_yaml import KeyPath

# one setting with two names: an override of either replaces both
TWINS: dict[KeyPath, KeyPath] = {
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


@dataclass(frozen=True)
class FieldTree:
    """A config's sections, and the settings of its recipe where they are known."""

    root: type[Section]
    settings: type[Section] | None = None
    """Of the section `recipe`."""

    def section_at(self, path: KeyPath) -> type[Section] | None:
        """The class of the section at `path`; list elements are looked up in the field's
        annotation.
        """
        section: type[Section] | None = self.root
        if path[:1] == ("recipe",):
            section, path = self.settings, path[1:]
        for part in path:
            if section is None or isinstance(part, int):
                continue
            field = section.model_fields.get(part)
            section = None if field is None else first_section(field.annotation)
        return section

    def has(self, path: KeyPath) -> bool:
        """Whether a path names a field; a key of a free mapping (tags, recipe) counts."""
        if path[0] == "recipe":
            return True
        section = self.section_at(path[:-1])
        if section is not None:
            return path[-1] in section.model_fields or path[-1] in getattr(section, "BIASES", ())
        parent = self.section_at(path[:-2]) if len(path) > 1 else None
        field = None if parent is None else parent.model_fields.get(str(path[-2]))
        return field is not None and str(field.annotation).startswith("dict")

    @cached_property
    def leaves(self) -> frozenset[str]:
        """Dotted names of the fields that nothing is looked up below."""
        if self.settings is not None:
            return frozenset(field_paths(self.settings, "recipe."))
        return frozenset(field_paths(self.root)) - {
            "monitoring.tracking.tags",
            "model.architecture.rope_scaling",
            "data.fim",
        }

    def real_name(self, path: KeyPath) -> KeyPath:
        """The path of the field that another name stands for."""
        names = getattr(self.section_at(path[:-1]), "ALIASES", {})
        return (*path[:-1], names.get(path[-1], path[-1]))

    def other_names(self, path: KeyPath) -> Iterator[KeyPath]:
        """Under which else a field may be written."""
        for alias, name in getattr(self.section_at(path[:-1]), "ALIASES", {}).items():
            if name == path[-1]:
                yield (*path[:-1], alias)
        if path in TWINS:
            yield TWINS[path]

    def bounds(self, path: KeyPath) -> dict[str, float]:
        """Limits of the number at `path`, by the words of LIMIT_WORDS."""
        names = [part for part in path if isinstance(part, str)]
        section = self.section_at(tuple(names[:-1]))
        if section is None:  # a key of a free mapping
            names.pop()
            section = self.section_at(tuple(names[:-1]))
        return {} if section is None else dict(limits(section.model_fields[names[-1]]))

    def suggestion(self, path: KeyPath) -> str:
        """A sentence with the field that an unknown one may stand for, or ""."""
        import difflib  # noqa: PLC0415  1 ms that every reader of a config would pay

        names = [str(part) for part in path]
        section = self.section_at(path[:-1])
        siblings = [] if section is None else list(section.model_fields)
        prefix = ".".join([*names[:-1], ""]) if len(names) > 1 else ""
        if near := difflib.get_close_matches(names[-1], siblings, 1, 0.6):
            return f"did you mean {prefix}{near[0]}?"
        if names[-1] in _ELSEWHERE:
            return f"did you mean {_ELSEWHERE[names[-1]]}?"
        all_leaves = reversed(field_paths(self.root))
        leaves = {dotted.rsplit(".", 1)[-1]: dotted for dotted in all_leaves}
        if near := difflib.get_close_matches(names[-1], leaves, 1, 0.75):
            return f"did you mean {leaves[near[0]]}?"
        if near := difflib.get_close_matches(names[-1], siblings, 1, 0.45):
            return f"did you mean {prefix}{near[0]}?"
        return f"fields here: {', '.join(siblings)}" if siblings else ""


def field_paths(section: type[Section], prefix: str = "") -> tuple[str, ...]:
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


def first_section(annotation: Any) -> type[Section] | None:
    """The class of sections that an annotation holds, in a list or beside None too."""
    if isinstance(annotation, type) and issubclass(annotation, Section):
        return annotation
    return next(filter(None, map(first_section, get_args(annotation))), None)


LIMIT_WORDS = {"gt": "above", "ge": "at least", "lt": "below", "le": "at most"}


def limits(item: Any) -> Iterator[tuple[str, float]]:
    """The bounds in a field, its annotation or what that is made of."""
    yield from ((name, getattr(item, name)) for name in LIMIT_WORDS if hasattr(item, name))
    is_field = isinstance(item, FieldInfo)
    for part in (*item.metadata, item.annotation) if is_field else get_args(item):
        yield from limits(part)
