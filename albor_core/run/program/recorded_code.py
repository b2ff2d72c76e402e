"""What run.json and the run directory say of a run's code, without secrets."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from albor_core.run.program.provenance import git_facts, read_script, working_directory
from albor_core.run.values.redact import announced_secrets, redact, redact_text


def recorded_code(
    argv: Sequence[str], script: Path | None, secrets: Sequence[str] = ()
) -> tuple[dict[str, Any], bytes | None]:
    """`argv`, `git` and `script` for run.json, and the text of a script that no commit holds, all
    without `secrets`, wherever they stand.

    The hash is of the script as it is; what is kept of it has its secrets taken out, also those
    that only the command line tells to be secrets: a script may well hold the key it is given.
    """
    cwd, environment = working_directory(), dict(os.environ)
    found = read_script(script, cwd)
    told: dict[str, Any] = {"argv": [*argv], "git": git_facts(cwd)}
    known = (*announced_secrets(argv, environment), *secrets)
    safe, _ = redact(told, environment, known)
    safe["script"] = None
    if found is None:
        return safe, None
    safe["script"] = {**found.to_json(), "path": redact_text(str(found.path), environment, known)}
    if found.content is None:
        return safe, None
    text = redact_text(found.content.decode(errors="replace"), environment, known)
    return safe, text.encode(errors="replace")
