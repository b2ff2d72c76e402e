"""The message of an alert in each format: fixed fields, without secrets or control characters.

All bodies are JSON, and no header contains text of a run: a name with a line break cannot add
one.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit, urlunsplit

from albor_core.andon.severity import severity_of
from albor_core.run.rundir import RunDir, read_json
from albor_core.run.values.clean import clean
from albor_core.run.values.lenient import finite_of, number_of, number_word, whole_of
from albor_core.run.values.quantity import counted, duration
from albor_core.run.values.redact import redact_text
from albor_core.run.values.sink_fields import THRESHOLDS

SCHEMA = "albor.notice/1"
_TEXT, _WORD = 500, 120  # characters
_DISCORD = 2000  # characters that one message may have there
_PRIORITIES = {"info": 2, "warning": 3, "error": 4, "critical": 5}  # ntfy's
_MOST_RULES = 5  # that a summary names


@dataclass(frozen=True)
class About:
    """The run that alerts belong to."""

    id: str
    name: str = ""
    experiment: str = ""
    host: str = ""

    @classmethod
    def of(cls, run: RunDir) -> About:
        """The description of a run from run.json, as far as it can be read."""
        found = read_json(run.run_json) or {}
        name, experiment, host = (found.get(k) for k in ("name", "experiment", "host"))
        return cls(run.id, str(name or ""), str(experiment or ""), str(host or ""))


@dataclass(frozen=True)
class Notice:
    """A message: an alert, the end of one, or a summary of many."""

    title: str
    text: str
    severity: str
    fields: Mapping[str, Any]
    """The document of the format json."""

    @property
    def line(self) -> str:
        """The whole notice in one line."""
        return f"{self.title}: {self.text}"


class NoticeWriter:
    """Makes notices of one run's alerts, without the secrets of `environment` and `known`."""

    def __init__(self, about: About, environment: Mapping[str, str], known: Sequence[str]) -> None:
        self._environment, self._known = environment, tuple(known)
        self._about = {
            "id": self._word(about.id),
            "name": self._word(about.name),
            "experiment": self._word(about.experiment),
            "host": self._word(about.host),
        }

    def safe(self, value: object, limit: int = _TEXT) -> str:
        """Any text as one line without secrets."""
        text = redact_text(str(value)[: 4 * limit], self._environment, self._known)
        return clean(text, limit=limit)

    def notice(self, alert: Mapping[str, Any]) -> Notice:
        """The notice of one alert, as `Alert.to_json` gives it, with its `state` and `wall`. The
        end of an alert has severity info, however severe it was.
        """
        severity, is_over = _severity(alert), _is_over(alert)
        message = self.safe(alert.get("message") or alert.get("rule") or "alert")
        action, step = self._word(alert.get("action")), whole_of(alert.get("step"))
        said = {
            "id": self._word(alert.get("id")),
            "rule": self._word(alert.get("rule")),
            "kind": self._word(alert.get("kind")),
            "severity": severity,
            "state": "cleared" if is_over else "fired",
            "action": action,
            "metric": self._word(alert.get("metric")),
            "value": _figure(alert.get("value")),
            "threshold": _figure(alert.get("threshold")),
            "message": message,
            "step": step,
        }
        text = f"{message} (step {step:,})" if step else message
        if not is_over and action not in ("", "warn", "notify"):
            text += f"; {action}"
        fields = {"alert": said, "time": finite_of(alert.get("wall"))}
        if is_over:
            return self._made("over", text, "info", fields)
        return self._made(severity, text, severity, fields)

    def summary(self, alerts: Sequence[Mapping[str, Any]], lost: int) -> Notice:
        """A summary of many alerts; `lost` counts earlier ones that were dropped."""
        fired = [_severity(alert) for alert in alerts if not _is_over(alert)]
        worst = max(fired, key=THRESHOLDS.index, default="info")
        by_rule = Counter(self._word(alert.get("rule")) for alert in alerts)
        named = ", ".join(f"{rule} x{n}" for rule, n in by_rule.most_common(_MOST_RULES))
        if more := len(by_rule) - _MOST_RULES:
            named += f" and {counted(more, 'more rule')}" if more > 0 else ""
        walls = [wall for alert in alerts if (wall := finite_of(alert.get("wall"))) is not None]
        span = f" within {duration(max(walls) - min(walls))}" if len(walls) > 1 else ""
        text = f"{counted(len(alerts), 'alert')}{span}: {named}"
        text += f"; {lost:,} earlier ones were dropped" if lost else ""
        newest = self.notice(alerts[-1]).text
        newest = f"over: {newest}" if _is_over(alerts[-1]) else newest
        summary = {"count": len(alerts), "dropped": lost, "rules": dict(by_rule.most_common(50))}
        fields = {"summary": summary, "time": max(walls, default=None)}
        return self._made(worst, f"{text}; newest: {newest}", worst, fields)

    def test(self, wall: float) -> Notice:
        """The test notice that `albor alerts notify-test` sends."""
        text = "this is a test; alerts of this severity arrive here"
        return self._made("test", text, "info", {"test": True, "time": wall})

    def _made(self, what: str, text: str, severity: str, fields: Mapping[str, Any]) -> Notice:
        about = self._about
        name = about["name"] or about["id"]
        title = f"{name} on {about['host']}" if about["host"] else name
        title = f"[{what}] {title}"
        document = {
            "schema": SCHEMA,
            "run": dict(about),
            "severity": severity,
            "text": f"{title}: {text}",
            **fields,
        }
        return Notice(title, text, severity, document)

    def _word(self, value: object) -> str:
        return "" if value is None else self.safe(value, _WORD)


def request_of(notice: Notice, form: str, url: str) -> tuple[str, bytes]:
    """The (URL, JSON body) of a notice in a format of FORMATS."""
    if form == "slack":  # & < > are its markup; a link or a mention needs them
        text = notice.line
        for character, escaped in (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;")):
            text = text.replace(character, escaped)
        return url, _bytes({"text": text})
    if form == "discord":
        pinged: dict[str, list[str]] = {"parse": []}  # an @everyone in a run's name pings no one
        return url, _bytes({"content": notice.line[:_DISCORD], "allowed_mentions": pinged})
    if form == "ntfy":
        base, topic = _topic(url)
        body = {
            "topic": topic,
            "title": notice.title,
            "message": notice.text,
            "priority": _PRIORITIES[notice.severity],
        }
        return base, _bytes(body)
    return url, _bytes(notice.fields)


def _topic(url: str) -> tuple[str, str]:
    """Split an ntfy URL into its root, which takes JSON, and the topic, the last part of the path,
    which belongs into the body."""
    parts = urlsplit(url)
    above, _, topic = parts.path.rstrip("/").rpartition("/")
    return urlunsplit((parts.scheme, parts.netloc, f"{above}/", parts.query, "")), unquote(topic)


def _bytes(document: Mapping[str, Any]) -> bytes:
    return json.dumps(document, allow_nan=False).encode()


def _severity(alert: Mapping[str, Any]) -> str:
    return severity_of(alert.get("severity"))


def _is_over(alert: Mapping[str, Any]) -> bool:
    return alert.get("state") == "cleared"


def _figure(value: object) -> float | int | str | None:
    """A number, or the text of one that JSON lacks."""
    found = number_of(value)
    return None if found is None else number_word(found)
