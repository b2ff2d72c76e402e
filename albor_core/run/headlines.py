"""The figures that everybody shows of a run: one table of what each is called and how it is read.

A row is all that a new one takes, up to the state file, alert rules, the newest figures and the
cockpit's tiles. One that the store tells (`is_stored`) needs a field of its name in RunRow, and a
column in schema.sql unless it stands `beside` another; one that a view has, a field of its
name in RunView; both need it in the JSON schemas.
Their documents spell the names below, so a name that is out stays as it is.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import product
from typing import Literal, NamedTuple


class Headline(NamedTuple):
    """One figure. `unit`, which says how it is written: loss, ratio, rate (per second), share
    (0..1), lr, ms, tokens.
    """

    name: str  # of the field in RunView, and of the column in the store
    key: str  # in the journal
    state: str = ""  # field of training_state.json; "": none has it
    title: str = ""  # over a column or tile; "": it has none
    unit: str = "ratio"
    better: Literal["min", "max"] | None = None
    aliases: tuple[str, ...] = ()  # what other loops call it: recorded under `key`
    paths: tuple[str, ...] = ()  # the same as a path, in any capitals: Loss/train
    history: str = ""  # field of training_state.json with its newest values
    stat: Literal["last", "best"] = "last"
    has_rule: bool = True  # an alert rule may call it by its state field
    is_stored: bool = False
    beside: str = ""  # of a stored one without a column: it is read off its series, where this is
    is_always: bool = True  # shown as not known where a run of Albor's own does not tell it
    is_listed: bool = False  # a column of the cockpit's list of runs, with a loss before all others
    chart: int = 0  # its place among the charts; 0: behind those, by name

    @property
    def has_column(self) -> bool:
        """Whether the table of runs has it."""
        return self.is_stored and not self.beside


HEADLINES = (  # in the order of the tiles
    Headline(
        "loss",
        "train/loss",
        "loss",
        "loss",
        "loss",
        "min",
        ("loss", "train_loss", "training_loss"),
        ("loss/train", "loss/training", "training/loss"),
        history="loss_history",
        is_stored=True,
        is_listed=True,
        chart=1,
    ),
    Headline("loss_ema", "train/loss_ema", "loss_ema", "ema", "loss", "min", chart=9),
    Headline(
        "val_loss",
        "val/loss",
        "val_loss",
        "val loss",
        "loss",
        "min",
        ("val_loss", "eval_loss", "valid_loss", "validation_loss"),
        (
            *("eval/loss", "valid/loss", "validation/loss"),
            *("loss/val", "loss/eval", "loss/valid", "loss/validation"),
        ),
        is_stored=True,
        chart=2,
    ),
    Headline(
        "val_ppl",
        "val/ppl",
        "val_ppl",
        "val ppl",
        "ratio",
        "min",
        ("val_ppl", "val_perplexity", "eval_perplexity", "perplexity"),
        ("val/perplexity", "eval/perplexity"),
        is_stored=True,
        is_listed=True,
        chart=3,
    ),
    Headline(
        "val_bpb",
        "val/bpb",
        "val_bpb",
        "val bpb",
        "loss",
        "min",
        ("val_bpb", "bpb", "bits_per_byte"),
        ("val/bits_per_byte",),
        is_stored=True,
        beside="val_loss",
        is_always=False,
        chart=3,
    ),
    Headline(
        "best_val_loss", "val/loss", "", "best val", "loss", "min", stat="best", is_stored=True
    ),
    Headline(
        "tokens_per_s",
        "perf/tokens_per_s",
        "tokens_per_second",
        "tok/s",
        "rate",
        "max",
        ("tokens_per_second",),
        is_stored=True,
        is_listed=True,
        chart=6,
    ),
    Headline(
        "mfu",
        "perf/mfu",
        "mfu",
        "mfu",
        "share",
        "max",
        ("mfu",),
        is_stored=True,
        is_listed=True,
        chart=7,
    ),
    Headline(
        "lr",
        "optim/lr",
        "learning_rate",
        "lr",
        "lr",
        aliases=("lr", "learning_rate"),
        history="lr_history",
        chart=4,
    ),
    Headline(
        "grad_norm",
        "optim/grad_norm",
        "gradient_norm",
        "grad norm",
        aliases=("grad_norm", "gradient_norm"),
        history="grad_norm_history",
        chart=5,
    ),
    Headline("step_ms", "perf/step_ms", "step_ms", "step time", "ms", "min", ("step_ms",), chart=8),
    Headline(
        "samples_per_s",
        "perf/samples_per_s",
        "samples_per_second",
        "",
        "rate",
        "max",
        ("samples_per_second",),
    ),
    Headline(
        "tokens", "train/tokens", "tokens", "tokens", "tokens", aliases=("tokens",), is_stored=True
    ),
    Headline("epoch", "train/epoch", "epoch", "", has_rule=False),
)

STORED = tuple(one for one in HEADLINES if one.is_stored)
COLUMNS = tuple(one for one in STORED if one.has_column)
NEWEST = tuple(one for one in STORED if one.stat == "last")
"""What a state file, the end of a journal and a store each tell, as `name`."""
LOSSES = tuple(one.key for one in NEWEST if one.better == "min")
"""What says how good a language model is, the first one first: its loss, then of other data."""
LIVE = tuple(one for one in HEADLINES if one.state)
RECORDED = tuple(one for one in HEADLINES if one.history)
CHARTS = tuple(sorted((one for one in HEADLINES if one.chart), key=lambda one: one.chart))
SHORT_NAMES = tuple(name for one in HEADLINES for name in one.aliases)


def _spelled(one: Headline) -> set[str]:
    """The spellings of a headline: aliases and paths such as `Loss/train`, `loss/Train`,
    `Train/Loss`; never its own key."""
    found = {*one.aliases}
    for path in (one.key, *one.paths) if one.paths else ():
        ways = [(part, part.capitalize()) for part in path.split("/")]
        found |= {"/".join(parts) for parts in product(*ways)}
    return found - {one.key}


HOUSE_NAMES: Mapping[str, str] = {name: one.key for one in HEADLINES for name in _spelled(one)}
"""The names people use for a headline figure, and the key that each is recorded under."""
RULE_NAMES: Mapping[str, str] = {one.state: one.key for one in LIVE if one.has_rule}
"""The names that an alert rule may use, and the journal key each stands for."""
_BY_KEY = {one.key: one for one in reversed(HEADLINES)}  # the newest value before the best
_BY_NAME = {one.name: one for one in HEADLINES}


def recorded_names(names: Sequence[str]) -> tuple[str, ...]:
    """What metrics that are logged together are recorded under. Where two mean one figure its own
    key comes before an alias, the first alias before others, and those keep their names.
    """
    taken = {*names}
    found = []
    for name in names:
        house = HOUSE_NAMES.get(name, name)
        found.append(name if house in taken else house)
        taken.add(house)
    return tuple(found)


def unit_of(key: str) -> str:
    """How a metric is written, by its key or the last part of it; "" for one of unknown unit."""
    one = _BY_KEY.get(key) or _BY_NAME.get(key.rpartition("/")[2])
    return "" if one is None else one.unit


EFFICIENCY_KEY = "perf/mfu"
"""What bricks judge the efficiency of a step by."""
