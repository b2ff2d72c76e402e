"""The section `monitoring`: what is watched, shown, recorded and told."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, SecretStr

from albor_core.config.choices import (
    AlertAction,
    BudgetAction,
    HealthCheck,
    Severity,
    SinkKind,
    SinkSeverity,
    WebhookFormat,
)
from albor_core.config.sections.numbers import (
    Amount,
    Count,
    Finite,
    Hours,
    Milliseconds,
    Portion,
    RefreshMs,
    SecondsOrZero,
    Word,
    convert_with,
)
from albor_core.config.sections.section import Section
from albor_core.run.errors import Problem
from albor_core.run.headlines import HOUSE_NAMES, SHORT_NAMES
from albor_core.run.values.otlp_fields import MOST_HEADERS, endpoint_problem, header_problem
from albor_core.run.values.sink_fields import sink_problems
from albor_core.run.values.webhook_url import HIDDEN


def _metric(value: object) -> object:
    if value in HOUSE_NAMES or not isinstance(value, str) or _KEY.fullmatch(value):
        return value
    names = ", ".join(SHORT_NAMES)
    raise ValueError(f"must be one of {names} or a key such as brick/data_ms")


_KEY = re.compile(r"[\w.-]+(/[\w.-]+)+")
Metric = Annotated[str, BeforeValidator(convert_with(_metric))]
Reading = Literal["gpu_utilization", "memory", "temperature", "power"]


class ChartConfig(Section):
    """One chart of the cockpit's Overview."""

    type: Literal["loss_curve", "line"] = "line"
    """`loss_curve` is the large chart, of loss and validation loss; `line` one of three small."""
    metric: Metric
    """What it draws: a short name such as loss or step_ms, or a key such as brick/data_ms."""
    window: Count = 1
    """Logged points whose mean is drawn over them; 1: the cockpit's own smoothing."""
    show_eta: bool = False
    """Whether the title tells the time left."""

    def problems(self) -> Iterator[Problem]:
        if self.type == "loss_curve" and HOUSE_NAMES.get(self.metric, self.metric) != "train/loss":
            message = f"is {self.metric}, and a loss_curve draws loss"
            yield Problem("metric", message, "write loss, or type: line")


class TerminalConfig(Section):
    """What a terminal shows of the run: `train apply` while it follows, the cockpit's Overview."""

    enabled: bool = True
    """Whether `train apply` prints live lines, and the Overview is as it stands here; else it
    prints none, and the Overview is the cockpit's own."""
    refresh_rate: RefreshMs = 1000
    """Milliseconds between refreshes of either."""
    metrics: tuple[Metric, ...] = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")
    """Figures of the Overview, first to last; the first three besides loss are its small charts
    where `charts` names none."""
    charts: tuple[ChartConfig, ...] = ()
    """Charts of the Overview: at most one loss_curve and three lines."""

    def problems(self) -> Iterator[Problem]:
        for kind, most in (("loss_curve", 1), ("line", 3)):
            if (count := sum(chart.type == kind for chart in self.charts)) > most:
                message = f"{count} of type {kind}, and the Overview has room for {most}"
                yield Problem("charts", message, "the Charts tab shows every metric")


class TrackingConfig(Section):
    """How the run is filed."""

    enabled: bool = True
    """Whether the run is indexed into the stores as it goes; its journal is written either way, and
    `albor db rebuild` takes it in later."""
    backend: Literal["sqlite"] = "sqlite"
    """Kind of store."""
    experiment: str | None = None
    """Experiment the run belongs to; without it, the name of the config file."""
    tags: dict[str, Word] = Field(default_factory=dict)
    """Words to find the run by, name: value."""


class SystemConfig(Section):
    """Readings of the machine."""

    enabled: bool = True
    """Whether GPU and host are sampled."""
    interval: Count = 5000
    """Milliseconds between samples."""
    metrics: tuple[Reading, ...] = ("gpu_utilization", "memory", "temperature", "power")
    """Readings that are kept as series; the live view shows all of them."""


def _today(word: object) -> object:
    """An action under the name of today: `warn` is `notify`."""
    return "notify" if word == "warn" else word


class AlertConfig(Section):
    """One Andon rule."""

    condition: str = Field(min_length=3, max_length=400)
    """When, such as `loss > 10`, `gradient_norm > 100 for 3`, `loss is nan`, `val_loss rises 3`,
    `gpu.temperature > 85 for 60s` or `no step for 120s`; the reference of rules has the grammar."""
    action: Annotated[
        AlertAction, BeforeValidator(_today, json_schema_input_type=AlertAction | Literal["warn"])
    ] = "notify"
    """What happens when the condition becomes true; `warn` is read as notify."""
    severity: Severity | None = None
    """How bad that is; without it warning, and error where training is halted."""
    message: str = Field(default="", max_length=500)
    """Text of the alert."""
    clear_at: Finite | None = None
    """The alert ends when the figure is here or better; without it, at the condition's number."""
    cooldown_s: SecondsOrZero = 0.0
    """Seconds after an alert in which the rule stays silent."""
    argv: tuple[str, ...] = Field(default=(), max_length=64)
    """Program and arguments of action command; no shell reads them."""


class BudgetsConfig(Section):
    """What a run may cost at most."""

    tokens: Count | None = None
    """Training tokens."""
    steps: Count | None = None
    """Optimizer steps."""
    wall_hours: Hours | None = None
    """Hours of all attempts together."""
    gpu_hours: Amount | None = None
    """Hours of all GPUs that the run uses, busy or not, of all attempts."""
    energy_kwh: Amount | None = None
    """Energy of those GPUs, by their own counters; needs monitoring.system.enabled."""
    money: Amount | None = None
    """Cost of GPU-hours and energy at the rates below, in `currency`."""
    rate_per_gpu_hour: Amount | None = None
    """What a GPU-hour costs."""
    rate_per_kwh: Amount | None = None
    """What a kWh costs; with both rates the cost is their sum."""
    currency: str = Field(default="", max_length=8)
    """What money is counted in, such as EUR; only shown."""
    soft: Portion = 0.9
    """Share of a budget at which it warns."""
    action: Annotated[
        BudgetAction, BeforeValidator(_today, json_schema_input_type=BudgetAction | Literal["warn"])
    ] = "stop"
    """What happens when a budget is used up."""

    def problems(self) -> Iterator[Problem]:
        if self.money is not None and self.rate_per_gpu_hour is None and self.rate_per_kwh is None:
            message = f"is {self.money:g}, and nothing says what a GPU-hour or a kWh costs"
            yield Problem("money", message, "set rate_per_gpu_hour or rate_per_kwh")


class HealthConfig(Section):
    """Whether the run is judged by itself, without rules: its loss, gradients, schedule, GPUs."""

    enabled: bool = True
    """Whether health is watched and told."""
    ignore: tuple[HealthCheck, ...] = ()
    """Checks that tell in words alone and raise no alert."""
    same_lr: bool = True
    """Whether earlier runs that the loss is held against must have the same optimizer.lr; seeds may
    always differ."""


class BricksConfig(Section):
    """Time budgets for the parts of a step, in ms; twice the budget pauses the run (Jidoka)."""

    data_ms: Milliseconds | None = None
    """Waiting for data."""
    h2d_ms: Milliseconds | None = None
    """Copying it to the GPU."""
    forward_ms: Milliseconds | None = None
    """Forward pass; forward and loss where they are one."""
    loss_ms: Milliseconds | None = None
    """Output head and cross-entropy."""
    backward_ms: Milliseconds | None = None
    """Backward pass."""
    clip_ms: Milliseconds | None = None
    """Gradient norm and clipping."""
    optimizer_ms: Milliseconds | None = None
    """Optimizer step; clipping included where they are one."""
    eval_ms: Milliseconds | None = None
    """Evaluations of a log interval."""
    checkpoint_ms: Milliseconds | None = None
    """What the loop does for checkpoints in a log interval; writing goes on beside it."""
    log_ms: Milliseconds | None = None
    """Logging in a log interval."""
    other_ms: Milliseconds | None = None
    """Everything else in a step."""
    learn: bool = True
    """Whether a brick without a budget learns one from its first intervals; exceeding it warns."""
    trace: bool = True
    """Whether an alert of a brick keeps a profiler trace of the next steps, at most one an hour."""


Secret = Annotated[SecretStr, PlainSerializer(lambda text: HIDDEN, return_type=str)]


class NotifyConfig(Section):
    """One place where alerts go besides the cockpit, the journal and the stores."""

    kind: SinkKind
    """`webhook` posts JSON; `command` runs a program; `desktop` is a notice of the terminal that
    the cockpit is in; `console` a line of `train apply`, `guard run` and `albor monitor`."""
    name: str | None = None
    """What it is called; without it, by its format or kind."""
    severity: SinkSeverity = "warning"
    """The least severity of an alert that goes there."""
    format: WebhookFormat = "json"
    """Whom a webhook's body is for; `json` is an albor.notice/1 document."""
    url_env: str | None = None
    """Environment variable that holds the URL of a webhook, a secret."""
    url: Secret | None = None
    """The URL itself: taken out of what the run keeps of this config, and kept in ALBOR_HOME, for
    the owner alone."""
    allow_http: bool = False
    """Whether a URL may begin with http://, which anyone on the way can read."""
    allow_private: bool = False
    """Whether a URL may lead to an address that is not public, of this host or its network."""
    argv: tuple[str, ...] = ()
    """Program and arguments of a command; no shell. The alert is JSON on its stdin."""

    def problems(self) -> Iterator[Problem]:
        for name, message, hint in sink_problems(self.with_url()):
            yield Problem(name, message, hint)

    def with_url(self) -> dict[str, Any]:
        """Its fields as plain data, the URL among them."""
        url = None if self.url is None else self.url.get_secret_value()
        return {**self.model_dump(), "url": url}


class OtlpConfig(Section):
    """Where the run's spans are sent as OpenTelemetry traces, besides the OTEL_EXPORTER_OTLP_*
    variables, which win."""

    endpoint: str | None = None
    """Address of a collector that takes OTLP over HTTP, such as http://localhost:4318; `/v1/traces`
    is added. Without it, and without a variable, nothing is sent."""
    headers: dict[str, Secret] = Field(default_factory=dict, max_length=MOST_HEADERS)
    """Headers of each request, secrets: taken out of what the run keeps of this config, and kept in
    ALBOR_HOME, for the owner alone."""

    def problems(self) -> Iterator[Problem]:
        if self.endpoint is None:
            if self.headers:
                yield Problem("headers", "are for no endpoint", "set endpoint, or leave them out")
            return
        if why := endpoint_problem(self.endpoint):
            yield Problem("endpoint", why, "such as http://localhost:4318")
        for name, value in self.plain_headers().items():
            if why := header_problem(name, value):
                yield Problem(f"headers.{name}", why, "name: value, as the collector asks")

    def plain_headers(self) -> dict[str, str]:
        """Names and values."""
        return {name: value.get_secret_value() for name, value in self.headers.items()}


class MonitoringConfig(Section):
    """What is watched, and what warns, pauses or stops the run."""

    terminal: TerminalConfig = Field(default_factory=TerminalConfig)
    """Dashboard."""
    tracking: TrackingConfig = Field(default_factory=TrackingConfig)
    """Experiment tracking."""
    system: SystemConfig = Field(default_factory=SystemConfig)
    """Machine readings."""
    alerts: tuple[AlertConfig, ...] = ()
    """Andon rules."""
    budgets: BudgetsConfig = Field(default_factory=BudgetsConfig)
    """Cost limits."""
    bricks: BricksConfig = Field(default_factory=BricksConfig)
    """Step-time budgets."""
    health: HealthConfig = Field(default_factory=HealthConfig)
    """Health of training."""
    notify: tuple[NotifyConfig, ...] = ()
    """Where alerts go besides the cockpit."""
    otlp: OtlpConfig = Field(default_factory=OtlpConfig)
    """Where traces go."""

    def problems(self) -> Iterator[Problem]:
        budgets = self.budgets
        by_energy = budgets.money is not None and budgets.rate_per_kwh is not None
        field = "energy_kwh" if budgets.energy_kwh is not None else "money" if by_energy else ""
        if field and not self.system.enabled:
            message = "counts energy, and monitoring.system.enabled is false: nothing measures it"
            yield Problem(f"budgets.{field}", message, "set monitoring.system.enabled to true")
