"""What all sections of a training config are. The docstring under a field is the only description
of it.

Keys are those users have on disk (`optimizer.lr`, `training.gradient_accumulation`). Unknown keys
are refused. A section whose fields all have defaults may be left out or empty.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress
from functools import cache
from itertools import pairwise
from typing import Any, Self

from pydantic import BaseModel, ConfigDict, model_validator
from pydantic_core import PydanticCustomError

from albor_core.run.errors import Problem

CROSS_CHECK = "cross_check"  # error type that carries the Problems of a section


class Section(BaseModel):
    """Frozen; unknown keys refused; `problems` says what does not fit together."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", allow_inf_nan=False, protected_namespaces=()
    )

    @classmethod
    @cache
    def meanings(cls) -> dict[str, str]:
        """The docstring under each field, in one line. Read from the source where it is asked for:
        pydantic's own way parses all sections at each import, 65 of 290 ms of a command's CPU time.
        """
        import ast  # noqa: PLC0415
        import inspect  # noqa: PLC0415

        found: dict[str, str] = {}
        for section in cls.__mro__[: cls.__mro__.index(Section)]:
            with suppress(OSError):  # made by create_model, whose fields say it themselves
                (tree,) = ast.parse(inspect.getsource(section)).body
                assert isinstance(tree, ast.ClassDef)
                for item, below in pairwise(tree.body):
                    match item, below:
                        case (
                            ast.AnnAssign(target=ast.Name(id=name)),
                            ast.Expr(value=ast.Constant(value=str(text))),
                        ):
                            found.setdefault(name, " ".join(text.split()))
        fields = cls.model_fields.items()
        told = {name: " ".join(one.description.split()) for name, one in fields if one.description}
        return found | told

    def problems(self) -> Iterator[Problem]:
        """What is wrong between fields that are right by themselves; fields relative to here."""
        yield from ()

    @model_validator(mode="before")
    @classmethod
    def _empty_section_is_defaults(cls, value: Any) -> Any:
        return {} if value is None else value

    @model_validator(mode="after")
    def _fields_fit_together(self) -> Self:
        if found := tuple(self.problems()):
            raise PydanticCustomError(CROSS_CHECK, "fields do not fit", {"found": found})
        return self
