"""How loud the cockpit is about what comes up: what the user's rules.yaml says of it.

    bell: true                      # the terminal's bell, for errors
    notify:
      - {kind: desktop, severity: error}

Both are off by default. A file that is damaged asks for neither: `albor doctor` says what is wrong.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from albor_core.feed.attention.item import SEVERITIES, AttentionItem
from albor_core.run.home.folders import albor_home


class Loudness(NamedTuple):
    """The severity from which the bell rings, and from which the desktop is notified; "" is
    never."""

    bell: str = ""
    desktop: str = ""

    def rings(self, item: AttentionItem) -> bool:
        return _is_from(item, self.bell)

    def tells_desktop(self, item: AttentionItem) -> bool:
        return _is_from(item, self.desktop)


def _is_from(item: AttentionItem, least: str) -> bool:
    return bool(least) and item.severity in SEVERITIES[SEVERITIES.index(least) :]


def loudness(home: Path | None = None) -> Loudness:
    """The user's present settings. Raises nothing."""
    from albor_core.andon.channels.kept_sinks import user_sinks
    from albor_core.andon.rules.sources import read_rules_file
    from albor_core.run.errors import ConfigError

    home = home or albor_home()
    desktop, bell = "", False
    with suppress(ConfigError):
        desktop = next((sink.severity for sink in user_sinks(home) if sink.kind == "desktop"), "")
    with suppress(ConfigError):
        bell = read_rules_file(home, damaged=[]).bell
    return Loudness("error" if bell else "", desktop)
