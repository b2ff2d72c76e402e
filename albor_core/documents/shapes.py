"""What documents of several kinds share: closed objects, bounds, and the words of enums."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict


def keywords(**said: Any) -> tuple[tuple[str, Any], ...]:
    """Keywords of JSON Schema beside a type, as `Annotated` holds them: bounds, patterns, or an
    `enum` that names a registry, `MODULE:NAME`.
    """
    return tuple(said.items())


Count = Annotated[int, keywords(minimum=0)]
Positive = Annotated[int, keywords(minimum=1)]
Share = Annotated[float, keywords(minimum=0, maximum=1)]
Scalar = str | float | bool | None
NotFinite = Literal["nan", "inf", "-inf"]
Severity = Literal["info", "warning", "error", "critical"]
Amount = Literal["tokens", "steps", "wall_hours", "gpu_hours", "energy_kwh", "money"]
RuleAction = Literal["notify", "command", "checkpoint", "pause", "rollback", "stop"]
PlanAction = Literal["write", "resume", "replace", "keep"]
StatusName = Annotated[str, keywords(enum="albor_core.run.status:STATUSES")]
TaskKind = Annotated[str, keywords(enum="albor_core.eval.registry:KINDS")]


class Closed(TypedDict):
    """An object that has no fields but those its type names."""


class ProblemFields(TypedDict):
    field: str
    message: str
    hint: str
    file: str


class RunPlace(TypedDict):
    id: str
    path: str


class ArchitectureCommon(TypedDict):
    model_type: str
    head_dim: int
    rope_scaling: dict[str, Any] | None
    sliding_window: int | None
    window_pattern: str


class GitState(TypedDict):
    commit: Any
    dirty: Any
