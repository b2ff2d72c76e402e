"""Tells alerts and asks for what they want, each once, however often the process is killed.

To tell is a line of system.jsonl and whatever `sender` does; to act is to ask the guard or to run a
command. Both leave lines, so that a process that goes on from an older memory knows what was said
and done since. A command is noted before it runs and never runs twice; the guard may be asked twice
where the process died between asking and noting it.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Protocol

from albor_core.andon.alert import Alert
from albor_core.run.files.watch_file import SinkState
from albor_core.run.journal import read_journal
from albor_core.run.rundir import RunDir
from albor_core.run.values.lenient import whole_of
from albor_core.store.watch.act import Commands, ask_guard, is_order, why_not
from albor_core.store.watch.ledger_news import LedgerNews
from albor_core.store.watch.live_rules import LiveRules
from albor_core.store.watch.system_file import SystemFile

_LAST_COMMANDS_S = 5.0  # how long the end of a run waits for what its last alerts run


class AlertSender(Protocol):
    """Sends alerts to destinations outside the run's own files. No method blocks, except `close`
    for its timeout."""

    @property
    def problems(self) -> tuple[str, ...]: ...
    def reload(self) -> None: ...
    def put(self, alert: Mapping[str, Any]) -> None: ...
    def states(self) -> tuple[SinkState, ...]: ...
    def close(self, timeout_s: float) -> None: ...


class Telling:
    """One thread's. `launched_here`: the run's config was given on this host, in this home."""

    def __init__(
        self,
        run: RunDir,
        file: SystemFile,
        rules: LiveRules,
        *,
        kind: str,
        launched_here: bool,
        sender: AlertSender | None,
    ) -> None:
        self._run, self._file, self._rules, self._sender = run, file, rules, sender
        self._kind, self._launched_here = kind, launched_here
        self._commands = Commands(run)
        self._ledger = LedgerNews(run)
        self._pending: dict[str, tuple[Alert, Mapping[str, Any]]] = {}
        self._told: set[tuple[str, str]] = set()
        self._acted: set[str] = set()
        self.open: dict[str, str] = {}
        """Rule -> the id that its open alert was told by."""
        if sender is not None:
            sender.reload()
        self._told_since: dict[str, str] = {}  # the same, of what the memory does not know yet

    def tell(self, alert: Alert, wall: float, *, is_over: bool = False) -> bool:
        """Say it, unless an earlier process has; whether it was new."""
        is_over = is_over or alert.state == "cleared"
        name = "andon.clear" if is_over else "andon.alert"
        said = {**alert.to_json(), "state": "cleared" if is_over else "fired"}
        if is_over:
            self._pending.pop(alert.rule, None)
            self._told_since.pop(alert.rule, None)
            said["id"] = self.open.pop(alert.rule, said["id"])
        else:
            # what an earlier process told of keeps the id it was told by
            said["id"] = self._told_since.pop(alert.rule, said["id"])
            self.open[alert.rule] = said["id"]
            self._pending[alert.rule] = (alert, said)
        if (name, said["id"]) in self._told:
            return False
        self._told.add((name, said["id"]))
        self._file.event(name, said, wall=wall, severity=alert.severity, step=alert.step)
        if self._sender is not None:
            self._sender.put({**said, "run": self._run.id, "wall": wall})
        return True

    def pass_on(self, record: Mapping[str, Any]) -> bool:
        """Send an alert that the run's own loop told, or the end of one; whether it was that. The
        loop did what it asks for, but for a command: that is run here.
        """
        name, data = record.get("name"), record.get("data")
        if name not in ("andon.alert", "andon.clear") or not isinstance(data, dict):
            return False
        if self._sender is not None:
            told = {"severity": record.get("severity"), "step": record.get("step")}
            state = "fired" if name == "andon.alert" else "cleared"
            self._sender.put({**told, **data, "state": state, "wall": record.get("wall")})
        alert_id, rule = str(data.get("id")), str(data.get("rule"))
        is_wish = name == "andon.alert" and data.get("action") == "command"
        if is_wish and alert_id not in self._acted:
            self._run_command(rule, whole_of(data.get("step")) or 0, {**data, "id": alert_id})
        return True

    def send_news(self) -> None:
        """Send what the guard's ledger says that is new."""
        if self._sender is not None:
            for news in self._ledger.look():
                self._sender.put(news)

    def close(self, timeout_s: float) -> None:
        """Have the last alerts sent, for at most so long."""
        if self._sender is not None:
            self._sender.close(timeout_s)

    def take_rules(self, rules: LiveRules) -> None:
        """Others hold from now on, and other sinks."""
        self._rules = rules
        if self._sender is not None:
            self._sender.reload()

    def act(self, *, has_guard: bool) -> None:
        """What the alerts want that were told and are not over."""
        pending, self._pending = self._pending, {}
        for alert, said in pending.values():
            if said["id"] in self._acted:
                continue
            if alert.action == "command":
                self._run_command(alert.rule, alert.step, said)
            elif is_order(alert.action):
                self._order(alert, str(said["id"]), has_guard)

    def _order(self, alert: Alert, alert_id: str, has_guard: bool) -> None:
        why, command = why_not(alert.action, kind=self._kind, has_guard=has_guard), ""
        if not why:
            rule = f"{'budget' if alert.kind == 'budget' else 'alert rule'} {alert.rule}"
            command, why = ask_guard(self._run, alert.action, alert.step, rule)
        detail = why or f"asked the guard: {command}"
        self._note_act(alert.rule, alert.action, alert.step, alert_id, done=not why, detail=detail)

    def _run_command(self, name: str, step: int, said: Mapping[str, Any]) -> None:
        rule = self._rules.rule_of(name)
        argv = () if rule is None else rule.argv
        may = self._launched_here or (rule and rule.source in ("user", "experiment"))
        alert_id = str(said["id"])
        if not argv or not may:
            why = "tells only: its command was not given here"
            self._note_act(name, "command", step, alert_id, done=False, detail=why)
            return
        self._note_act(name, "command", step, alert_id, done=True, detail=f"runs {argv[0]}")
        self._commands.put(said, argv)

    def _note_act(
        self, rule: str, action: str, step: int, alert_id: str, *, done: bool, detail: str
    ) -> None:
        self._acted.add(alert_id)
        fields = {"id": alert_id, "rule": rule, "action": action, "done": done, "detail": detail}
        self._file.event("andon.act", fields, wall=time.time(), step=step)

    def note_commands(self) -> None:
        """Write down how commands ended."""
        while self._commands.ended:
            ended = self._commands.ended.popleft()
            fields = {
                "id": ended.alert_id,
                "program": ended.argv[0],
                "code": ended.code,
                "output": ended.output[-1000:],
                "problem": ended.problem,
            }
            severity = "info" if ended.code == 0 else "warning"
            self._file.event("andon.command", fields, wall=time.time(), severity=severity)

    def finish(self) -> None:
        """End when there is no program left to act on. Commands still run, for a few seconds at
        most.
        """
        pending, self._pending = self._pending, {}
        for alert, said in pending.values():
            if alert.action == "command" and said["id"] not in self._acted:
                self._run_command(alert.rule, alert.step, said)
        deadline = time.monotonic() + _LAST_COMMANDS_S
        while not self._commands.is_idle and time.monotonic() < deadline:
            time.sleep(0.05)
        self.note_commands()

    def sinks(self) -> tuple[SinkState, ...]:
        return () if self._sender is None else self._sender.states()

    def sink_problems(self) -> tuple[str, ...]:
        """Why some of the user's sinks are not served."""
        return () if self._sender is None else self._sender.problems

    def recall(self, open_alerts: Mapping[str, str], start: int) -> None:
        """Go on from a memory that knows the alerts `open_alerts` and system.jsonl up to byte
        `start`: what was told and done since is not again. Raises OSError.
        """
        self.open = dict(open_alerts)
        self._told_since = dict(open_alerts)  # health finds its troubles anew
        self._told |= {("andon.alert", alert_id) for alert_id in open_alerts.values()}
        self._acted |= set(open_alerts.values())
        for line in read_journal(self._run.system, start):
            record = line.record or {}
            data = record.get("data")
            if record.get("t") != "e" or not isinstance(data, dict):
                continue
            name, alert_id, rule = record.get("name"), str(data.get("id")), str(data.get("rule"))
            if name == "andon.act":
                self._acted.add(alert_id)
            elif name == "andon.alert":
                self._told.add((name, alert_id))
                self._told_since[rule] = alert_id
            elif name == "andon.clear":
                self._told.add((name, alert_id))
                self._told_since.pop(rule, None)
