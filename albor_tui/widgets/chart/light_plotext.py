"""plotext without its manual and its choice of colours.

At import plotext assembles its documentation, its tests and an image library: 0.14 s of 0.2 s, on
the way to the first chart. They are left out while it is imported; they are not needed here. Where
that does not work any more, the whole of it is imported.

With each line it looks through all points for their colours, so that the next line gets another:
half of what drawing costs. Here no line has a colour, so the first point is enough.
"""

from __future__ import annotations

import importlib
import sys
from types import ModuleType
from typing import Any

_EMPTY = {"plotext._doc.doc": "docs", "plotext._tests.run": "test"}
_ABSENT = ("PIL",)  # optional for plotext


def load() -> Any:
    """The module. One thread at a time."""
    plotext = sys.modules.get("plotext") or _imported()
    if (signal := sys.modules.get("plotext._signal.signal")) is not None:
        signal.max_unique_pixels = 1  # type: ignore[attr-defined]
    return plotext


def _imported() -> ModuleType:
    stand_ins: dict[str, ModuleType | None] = dict.fromkeys(_ABSENT)
    for name, attribute in _EMPTY.items():
        stand_in = ModuleType(name)
        setattr(stand_in, attribute, None)
        stand_ins[name] = stand_in
    stand_ins = {name: module for name, module in stand_ins.items() if name not in sys.modules}
    sys.modules.update(stand_ins)  # type: ignore[arg-type]  # None means: cannot be imported
    try:
        return importlib.import_module("plotext")
    except (ImportError, AttributeError):
        for name in [name for name in sys.modules if name.split(".")[0] == "plotext"]:
            del sys.modules[name]
    finally:
        for name, module in stand_ins.items():
            if sys.modules.get(name, 0) is module:
                del sys.modules[name]
    return importlib.import_module("plotext")
