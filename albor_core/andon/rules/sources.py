"""Reads rules from their sources: a run's config, and the user's ALBOR_HOME/rules.yaml.

    rules:                       # for every run of this user
      - gpu.temperature > 85 for 60s
      - {condition: loss is nan, action: stop, severity: critical}
    experiments:
      pretrain: [val_loss rises 3]

The source of a rule decides which actions it may have: one that runs a command or changes the
course of training is allowed only in files that the user of this machine wrote, so an imported,
pulled or copied run cannot bring one.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from albor_core.andon.actions import ACTIONS, action_of
from albor_core.andon.rules.condition import OPS, Comparison, Condition, Constant
from albor_core.andon.rules.grammar import parse_condition
from albor_core.andon.severity import SEVERITIES
from albor_core.run.errors import ConfigError, Problem

WARMUP_FREE_STEPS = 100  # a run without warm-up gets this long to reach the good side by itself
RULES_FILE = "rules.yaml"
MAX_BYTES = 1 << 20

Source = Literal["config", "experiment", "user", "foreign"]
"""`foreign` is the config of a run that was not launched here."""
_FIELDS = ("condition", "action", "severity", "message", "cooldown_s", "clear_at", "argv")


@dataclass(frozen=True)
class Rule:
    """A condition and its action, for a run with this length of warm-up."""

    id: str
    condition: Condition
    action: str
    severity: str
    message: str
    warmup_steps: int = 0
    cooldown_s: float = 0.0
    clear_at: float | None = None
    argv: tuple[str, ...] = ()
    source: Source = "config"

    @property
    def arm_step(self) -> int:
        """The step at which it becomes active at the latest."""
        return self.warmup_steps if self.warmup_steps > 0 else WARMUP_FREE_STEPS


def rules_from(
    monitoring: Mapping[str, Any], *, warmup_steps: int, source: Source = "config"
) -> tuple[Rule, ...]:
    """The rules of a config's `monitoring` section, in its order.

    Raises ConfigError with every bad rule among its problems. Ids come from the condition, so they
    survive reordering; a repeated condition gets `-2`.
    """
    entries = [
        (f"monitoring.alerts.{index}", entry)
        for index, entry in enumerate(monitoring.get("alerts") or ())
    ]
    rules, problems = read_rules(entries, warmup_steps=warmup_steps, source=source)
    if problems:
        raise ConfigError(str(problems[0]), hint=problems[0].hint, problems=tuple(problems))
    return rules


def read_rules(
    entries: Sequence[tuple[str, Any]],
    *,
    warmup_steps: int,
    source: Source,
    taken: Sequence[Rule] = (),
) -> tuple[tuple[Rule, ...], list[Problem]]:
    """The rules among (place, entry) pairs, and the problems of the others. An entry is a mapping,
    or only a condition."""
    rules: list[Rule] = list(taken)
    problems: list[Problem] = []
    for where, entry in entries:
        found = list(_problems_of(entry, where, source))
        try:
            text = entry.get("condition", "") if isinstance(entry, Mapping) else entry
            condition = parse_condition(text)
        except ConfigError as error:
            field_name = f"{where}.condition" if isinstance(entry, Mapping) else where
            found.append(Problem(field_name, error.message, error.hint))
        if found:
            problems += found
            continue
        rule = _rule(condition, entry if isinstance(entry, Mapping) else {}, source, warmup_steps)
        if why := _wrong_clear_at(rule):
            problems.append(Problem(f"{where}.clear_at", *why))
            continue
        count = sum(one.condition.slug == condition.slug for one in rules)
        rules.append(replace(rule, id=f"{rule.id}-{count + 1}") if count else rule)
    return tuple(rules[len(taken) :]), problems


def _rule(
    condition: Condition, entry: Mapping[str, Any], source: Source, warmup_steps: int
) -> Rule:
    action = action_of(str(entry.get("action") or "notify"))
    clear_at = entry.get("clear_at")
    return Rule(
        condition.slug,
        condition,
        action,
        str(entry.get("severity") or ACTIONS[action].severity),
        str(entry.get("message") or condition),
        warmup_steps,
        float(entry.get("cooldown_s") or 0.0),
        None if clear_at is None else float(clear_at),
        tuple(entry.get("argv") or ()),
        source,
    )


def _problems_of(entry: Any, where: str, source: Source) -> Iterator[Problem]:
    if not isinstance(entry, Mapping):
        if not isinstance(entry, str):
            yield Problem(where, f"{entry!r} is not a rule", "for example: loss > 10")
        return
    for name in entry:
        if name not in _FIELDS:
            yield Problem(f"{where}.{name}", "is not a field", f"one of {', '.join(_FIELDS)}")
    action = action_of(str(entry.get("action") or "notify"))
    if action not in ACTIONS:
        yield Problem(f"{where}.action", f"{action!r} is not one of {', '.join(ACTIONS)}")
    elif why := refusal(action, source):
        yield Problem(f"{where}.action", why, "write it into rules.yaml of your ALBOR_HOME")
    severity = entry.get("severity")
    if severity and severity not in SEVERITIES:
        yield Problem(f"{where}.severity", f"{severity!r} is not one of {', '.join(SEVERITIES)}")
    yield from _argv_problems(entry, where, action)
    yield from _number_problems(entry, where)


def _argv_problems(entry: Mapping[str, Any], where: str, action: str) -> Iterator[Problem]:
    argv = entry.get("argv") or ()
    if not isinstance(argv, list | tuple) or not all(isinstance(word, str) for word in argv):
        yield Problem(f"{where}.argv", "is not a list of words", 'argv: ["program", "argument"]')
    elif (action == "command") != bool(argv):
        why = "is missing" if not argv else f"is only for action command, and this is {action}"
        yield Problem(f"{where}.argv", why, 'argv: ["program", "argument"]')


def _number_problems(entry: Mapping[str, Any], where: str) -> Iterator[Problem]:
    for name in ("cooldown_s", "clear_at"):
        value = entry.get(name)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if value is not None and not (is_number and math.isfinite(value)):
            yield Problem(f"{where}.{name}", f"{value!r} is not a number")
        elif name == "cooldown_s" and value is not None and value < 0:
            yield Problem(f"{where}.{name}", f"{value!r} is below 0")


def refusal(action: str, source: Source) -> str:
    """The reason why rules of `source` may not use an action; "" if they may."""
    if ACTIONS[action].is_trusted and source == "foreign":
        return f"{action!r} is not for a run that was not launched here"
    return ""


def _wrong_clear_at(rule: Rule) -> tuple[str, str] | None:
    if rule.clear_at is None:
        return None
    test = rule.condition.test
    if not isinstance(test, Comparison) or test.op not in (">", ">=", "<", "<="):
        return "is only for a condition with <, <=, > or >=", "leave it out"
    right = test.right
    is_beyond = isinstance(right, Constant) and OPS[test.op][0](rule.clear_at, right.value)
    if is_beyond and rule.clear_at != rule.condition.threshold:
        side = rule.condition.good_side
        return f"{rule.clear_at:g} is on the alarm's side of {right}", f"a number {side}"
    return None


# -- rules.yaml


@dataclass(frozen=True)
class RulesFile:
    """A user's rules for all runs and by experiment, and whether the terminal bell rings;
    andon.channels reads the sinks of the same file."""

    rules: tuple[Rule, ...] = ()
    experiments: Mapping[str, tuple[Rule, ...]] = field(default_factory=dict)
    bell: bool = False

    def of(self, experiment: str | None) -> tuple[Rule, ...]:
        """The rules for a run of an experiment."""
        return (*self.rules, *self.experiments.get(experiment or "", ()))


def read_rules_file(home: Path, *, damaged: list[ConfigError] | None = None) -> RulesFile:
    """Read ALBOR_HOME/rules.yaml. Raises ConfigError that names line and column. With `damaged`,
    which collects problems of single rules and fields, it raises only if the whole file is
    unreadable.
    """
    path = home / RULES_FILE
    try:
        with path.open("rb") as file:
            data = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        return RulesFile()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise ConfigError(f"cannot read {path}: it is larger than 1 MiB")
    return _RulesReader(path, damaged).read(data)


class _RulesReader:
    def __init__(self, path: Path, damaged: list[ConfigError] | None = None) -> None:
        self.path, self._damaged = path, damaged

    def _tell(self, error: ConfigError) -> None:
        """Collect an error and continue without the damaged entry, if the caller wants that; else
        raise it."""
        if self._damaged is None:
            raise error
        self._damaged.append(error)

    def fail(self, node: Any, why: str, hint: str = "") -> ConfigError:
        mark = node.start_mark
        where = f"{self.path}: line {mark.line + 1}, column {mark.column + 1}"
        return ConfigError(f"{where}: {why}", hint=hint)

    def _root(self, data: bytes) -> Any:
        """The parsed tree of the file, None if it is empty. Raises ConfigError."""
        import yaml  # noqa: PLC0415  0.02 s, without such a file

        try:
            return yaml.compose(data.decode("utf-8-sig"), Loader=yaml.SafeLoader)
        except UnicodeDecodeError as error:
            raise ConfigError(f"cannot read {self.path}: it is not UTF-8") from error
        except RecursionError as error:
            raise ConfigError(f"cannot read {self.path}: it is nested too deeply") from error
        except yaml.YAMLError as error:
            mark = getattr(error, "problem_mark", None)
            at = f": line {mark.line + 1}, column {mark.column + 1}" if mark else ""
            why = getattr(error, "problem", None) or str(error)
            raise ConfigError(f"{self.path}{at}: {why}") from error

    def read(self, data: bytes) -> RulesFile:
        root = self._root(data)
        if root is None:
            return RulesFile()
        rules: tuple[Rule, ...] = ()
        experiments: dict[str, tuple[Rule, ...]] = {}
        bell: Any = False
        later = []
        for key, node in self._pairs(root):
            if key.value == "rules":
                rules = self._rules(node, "user", ())
            elif key.value == "experiments":
                later += self._pairs(node)
            elif key.value == "bell":
                bell = self._plain(node)
            elif key.value != "notify":
                allowed = "rules, experiments, notify, bell"
                self._tell(self.fail(key, f"{key.value!r} is not a field", allowed))
        for name, node in later:
            experiments[str(name.value)] = self._rules(node, "experiment", rules)
        if not isinstance(bell, bool):
            self._tell(self.fail(root, "bell is not true or false"))
            bell = False
        return RulesFile(rules, experiments, bell)

    def _pairs(self, node: Any) -> list[tuple[Any, Any]]:
        if node.id != "mapping":
            raise self.fail(node, "is not a mapping", "rules: [...]")
        return list(node.value)

    def _plain(self, node: Any) -> Any:
        import yaml  # noqa: PLC0415

        try:
            return yaml.SafeLoader("").construct_document(node)
        except (yaml.YAMLError, ValueError, TypeError, RecursionError) as error:
            raise self.fail(node, f"cannot be read: {error}") from error

    def _rules(self, node: Any, source: Source, taken: tuple[Rule, ...]) -> tuple[Rule, ...]:
        if node.id != "sequence":
            self._tell(self.fail(node, "is not a list of rules", "- loss > 10"))
            return ()
        rules: tuple[Rule, ...] = taken
        for one in node.value:
            try:
                entry = self._plain(one)
            except ConfigError as error:
                self._tell(error)
                continue
            found, problems = read_rules([("", entry)], warmup_steps=0, source=source, taken=rules)
            if problems:
                name = problems[0].field.lstrip(".")
                inner = (
                    [value for key, value in one.value if key.value == name]
                    if (one.id == "mapping")
                    else []
                )
                why = f"{name}: {problems[0].message}" if name else problems[0].message
                self._tell(self.fail(inner[0] if inner else one, why, problems[0].hint))
            rules = (*rules, *found)
        return rules[len(taken) :]
