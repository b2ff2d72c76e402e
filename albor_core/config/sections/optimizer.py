"""The section `optimizer`."""

from __future__ import annotations

from collections.abc import Iterator

from pydantic import Field, ValidationInfo, field_validator

from albor_core.config.choices import OptimizerName
from albor_core.config.sections.numbers import Epsilon, Fraction01, Rate, RateOrZero
from albor_core.config.sections.section import Section
from albor_core.run.errors import Problem


class OptimizerConfig(Section):
    """The optimizer and its learning rate."""

    name: OptimizerName = "adamw"
    """`adamw`, or `muon` for the matrices inside the blocks and AdamW for the rest."""
    lr: Rate
    """Peak learning rate, reached at the end of the warm-up."""
    beta1: Fraction01 = 0.9
    """Decay of the first moment."""
    beta2: Fraction01 = 0.95
    """Decay of the second moment."""
    eps: Epsilon = 1e-8
    """Added to the root of the second moment."""
    weight_decay: RateOrZero = 0.1
    """Decoupled weight decay on matrices."""
    min_lr: RateOrZero = Field(default=None, validate_default=True)
    """Learning rate at the end of the schedule; lr / 10 where nothing is given."""
    muon_lr: Rate | None = None
    """Peak rate of Muon's matrices, whose schedule has the shape of lr's; without it lr."""
    muon_momentum: Fraction01 = 0.95
    """Decay of Muon's (Nesterov) momentum."""
    muon_beta2: Fraction01 | None = None
    """NorMuon: rows of Muon's update are divided by the root of their mean square, which decays so;
    without it they are not. 0.95 is usual."""
    embedding_lr: Rate | None = None
    """AdamW's peak rate for the embedding, whose schedule has the shape of lr's; without it lr. It
    decays as it does without."""
    head_lr: Rate | None = None
    """The same for a head of its own, which no tied embedding is."""

    @field_validator("min_lr", mode="before")
    @classmethod
    def _tenth_of_the_peak(cls, value: object, info: ValidationInfo) -> object:
        if value is not None:
            return value
        return float(f"{info.data.get('lr', 0.0) / 10:.15g}")  # 3e-5, not 2.9999999999999997e-05

    @property
    def own_lr(self) -> dict[str, float]:
        """Peak rates of those that have one of their own: "embedding", "head"."""
        rates = {"embedding": self.embedding_lr, "head": self.head_lr}
        return {kind: rate for kind, rate in rates.items() if rate is not None}

    def problems(self) -> Iterator[Problem]:
        if self.min_lr > self.lr:
            message = f"{self.min_lr:g} is above optimizer.lr {self.lr:g}"
            yield Problem("min_lr", message, "the schedule falls from lr to min_lr")
        for field in ("muon_lr", "muon_momentum", "muon_beta2") if self.name != "muon" else ():
            if (value := getattr(self, field)) != type(self).model_fields[field].default:
                message = f"is {value:g}, which only muon reads, and optimizer.name is {self.name}"
                yield Problem(field, message, "leave it out, or set optimizer.name to muon")
