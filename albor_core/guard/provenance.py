"""What run.json and the run directory say of a run's code, without secrets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from albor_core.guard.redact import redact, redact_text
from albor_core.run.provenance import git_facts, read_script, working_directory


def recorded_code(argv: Sequence[str], script: Path | None) -> tuple[dict[str, Any], bytes | None]:
    """`argv`, `git` and `script` for run.json, and the text of a script that no commit holds.

    The hash is of the script as it is; what is kept of it has its secrets taken out.
    """
    cwd, environment = working_directory(), dict(os.environ)
    found = read_script(script, cwd)
    told: dict[str, Any] = {"argv": [*argv], "git": git_facts(cwd)}
    safe, _ = redact(told, environment)
    safe["script"] = None
    if found is None:
        return safe, None
    safe["script"] = {**found.to_json(), "path": redact_text(str(found.path), environment)}
    if found.content is None:
        return safe, None
    text = redact_text(found.content.decode(errors="replace"), environment)
    return safe, text.encode(errors="replace")
