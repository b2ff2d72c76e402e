"""Runs of eight hours as a watch sees them: logged values, samples of the machine, and what can be
wrong with either. Everything follows from a seed."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

HOURS = 8.0
LOG_S = 8.0
SAMPLE_S = 10.0
PEAK, FLOOR, WARMUP = 3e-4, 3e-5, 100
TOKENS_PER_STEP, PARAMETERS = 131_072, 100_000_000


@dataclass(frozen=True)
class Gpu:
    """As telemetry's samples."""

    index: int
    util_percent: float | None = 97.0
    temperature_c: float | None = 66.0
    power_w: float | None = 600.0
    throttle_reasons: tuple[str, ...] = ()
    ecc_uncorrected: int | None = 0
    xid: int | None = None
    energy_j: float | None = None


@dataclass(frozen=True)
class Sample:
    wall: float
    gpus: tuple[Gpu, ...]


def config(steps: int) -> dict:
    return {
        "optimizer": {"lr": PEAK, "min_lr": FLOOR},
        "training": {
            "lr_scheduler": "cosine",
            "warmup_steps": WARMUP,
            "max_steps": steps,
            "gradient_accumulation": 2,
        },
        "data": {"batch_size": 64, "seq_len": 1024},
    }


@dataclass
class SimulatedRun:
    """A healthy run with evaluations and saves, but for what is planted."""

    seed: int
    planted: str = ""
    gpus: int = 4
    num_steps: int = 3_600
    from_share: float = 0.4
    rng: random.Random = field(init=False)

    def __post_init__(self) -> None:
        self.rng = random.Random(f"{self.seed}/{self.planted}")
        of = random.Random(f"recipe/{self.seed}")
        self.floor, self.reducible = of.uniform(1.2, 2.4), of.uniform(4, 8)
        self.exponent, self.start = of.uniform(0.2, 0.5), of.uniform(0.003, 0.01)
        self.white, self.noise_scale = of.uniform(0.01, 0.04), of.uniform(0.3, 6.0)
        self.gnorm = of.uniform(0.2, 0.8)

    def is_planted(self, name: str, share: float) -> bool:
        return self.planted == name and share >= self.from_share

    def lr(self, step: int) -> float:
        if step < WARMUP:
            return PEAK * step / WARMUP
        done = (step - WARMUP) / (self.num_steps - WARMUP)
        if self.is_planted("flat rate", step / self.num_steps):
            return PEAK
        return FLOOR + (PEAK - FLOOR) * (1 + math.cos(math.pi * done)) / 2

    def moments(self):
        """("step", wall, step, values) and ("clock", wall, samples), in order of wall."""
        wall, sampled, drift, done = 0.0, 0.0, 0.0, 0.0
        for step in range(1, self.num_steps + 1):
            begin, share = wall, step / self.num_steps
            wall += LOG_S * self.rng.uniform(0.97, 1.05)
            pause = 40.0 if step % 250 == 0 else 25.0 if step % 100 == 0 else 0.0
            while sampled < wall + pause:
                yield "clock", sampled, (self.sample(sampled, sampled > wall, share),)
                sampled += SAMPLE_S
            done += (1 if self.planted != "tenth" else 0.1) * self.lr(step) / PEAK
            drift = 0.9 * drift + self.rng.gauss(0, 0.004)
            yield "step", wall, step, self.values(step, done / self.num_steps, drift)
            wall += pause
            assert wall > begin

    def values(self, step: int, done: float, drift: float) -> dict[str, float]:
        share = step / self.num_steps
        way = min(done, self.plateau_at) if self.planted == "plateau" else done
        loss = self.floor + self.reducible * (1 + way / self.start) ** -self.exponent
        norm = self.gnorm * (1 + 8 * math.exp(-step / 60)) * math.exp(self.rng.gauss(0, 0.2))
        norm *= 6 if self.rng.random() < 0.005 else 1  # spikes are part of a healthy run
        mlp = norm * self.rng.uniform(0.5, 0.8)
        if self.is_planted("exploding", share):
            norm *= 100
        if self.is_planted("vanishing", share):
            mlp *= 1e-3
        noise = self.noise_scale * TOKENS_PER_STEP * (0.5 + share)
        if self.is_planted("small batch", share):
            noise *= 500
        psi = abs(self.rng.gauss(0.01, 0.01)) + 0.5 * self.is_planted("drift", share)
        return {
            "train/loss": loss * math.exp(drift + self.rng.gauss(0, self.white)),
            "optim/lr": self.lr(step),
            "optim/grad_norm": norm,
            "optim/grad_norm_mlp": mlp,
            "optim/noise_scale_tokens": noise * math.exp(self.rng.gauss(0, 0.5)),
            "data/token_psi": psi,
        }

    @property
    def plateau_at(self) -> float:
        return 0.15

    def sample(self, wall: float, is_pause: bool, share: float) -> Sample:
        return Sample(wall, tuple(self.gpu(i, is_pause, share) for i in range(self.gpus)))

    def gpu(self, index: int, is_pause: bool, share: float) -> Gpu:
        rng = self.rng
        busy = min(100.0, rng.gauss(94, 4)) if rng.random() > 0.01 else rng.uniform(10, 60)
        if is_pause:  # rank 0 writes, the others wait in a collective, or all wait
            busy = rng.choice((0.0, 3.0, 100.0)) if index else rng.choice((0.0, 20.0))
        heat, reasons = rng.gauss(70, 3), ("power cap",) if rng.random() < 0.3 else ()
        if rng.random() < 0.002:  # one odd sample
            reasons = ("thermal (software)",)
        last, ecc, xid = index == self.gpus - 1, 0, None
        if last and self.is_planted("hot", share):
            heat = 88.0
        if last and self.is_planted("throttled", share):
            reasons = ("thermal (hardware)",)
        if last and self.is_planted("straggling", share) and not is_pause:
            busy = rng.gauss(41, 5)
        if self.is_planted("idle", share) and not is_pause:
            busy = rng.uniform(0, 4)
        if last and self.is_planted("ecc", share):
            ecc = 2
        if last and self.is_planted("xid", share):
            xid = 79
        return Gpu(index, busy, heat, 600.0, reasons, ecc, xid)
