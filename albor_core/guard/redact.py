"""Takes secrets out of what others will read: crash reports get pasted into issues.

Four nets, because each alone has holes: the values of our own environment under secret-sounding
names; names and options that announce a secret; formats of well-known tokens; and, last, words too
random to be anything else.
"""

from __future__ import annotations

import json
import math
import os
import re
from collections import Counter
from collections.abc import Mapping

MARK = "[redacted]"
ALLOWED = ("CUDA_", "NCCL_", "TORCH_", "OMP_", "PYTHON", "ALBOR_", "TRITON_", "NVIDIA_")
# "tokens" and "tokenizer" are everyday words here, "token" is not.
_SENSITIVE = (
    r"(?:token(?!s|i)|secret|passw(?:or)?d|api[-_]?key|access[-_]?key|private[-_]?key|credential)"
)
_SECRET_NAME = re.compile(_SENSITIVE + r"|(?:^|_)(?:key|auth)(?:$|_)", re.IGNORECASE)
_MIN_SECRET = 6
# No pattern can match a quote, and numbers are never secret: the result stays the JSON it was. All
# repetitions are bounded and none stands before the word it looks for: a log line of one long word
# must not cost minutes of backtracking.
_VALUE = (
    r"""(?!(?:-?[\d.]{1,32}(?:e[+-]?\d{1,4})?|null|true|false)[\s"',;}\]])([^\s"'\\,;&)}\]]{4,})"""
)
_ASSIGNED = re.compile(
    rf"""({_SENSITIVE}[\w.-]{{0,32}}(?:\\?["'])?\s{{0,8}}[:=]\s{{0,8}}(?:\\?["'])?){_VALUE}""",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"""(?<![^\s"',\[])(-[\w.-]{{1,64}})((?:\\?["'])?,?\s{{1,64}}(?:\\?["'])?){_VALUE}"""
)
_SENSITIVE_WORD = re.compile(_SENSITIVE, re.IGNORECASE)
_BEARER = re.compile(r"((?:bearer|basic)\s+)([\w.~+/=-]{8,})", re.IGNORECASE)
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{1,15}://)([^\s/@\"'\\]{1,256})@", re.IGNORECASE)
_KNOWN = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abpors]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,512}\.[\w.-]{10,}"
    r"|npm_\w{20,}|pypi-[\w-]{16,})"
)
_WORD = re.compile(r"[A-Za-z0-9]{20,}")
_RANDOM_BITS = 4.2  # per character; hexadecimal cannot exceed 4.0, so hashes and nonces stay


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret."""
    return _SECRET_NAME.search(name) is not None and not name.startswith("ALBOR_")


def is_shown(name: str) -> bool:
    """Whether the value of an environment variable may go into a report."""
    return name.startswith(ALLOWED) and not is_secret_name(name)


def redact_json(document: str, environment: Mapping[str, str]) -> tuple[str, int]:
    """A JSON text without secrets, and how many were taken out. The result is JSON again."""
    count = 0

    def hide(match: re.Match[str]) -> str:
        nonlocal count
        if MARK[:-1] in match[match.lastindex or 0]:  # no value has the bracket that ends it
            return match[0]
        count += 1
        return (match[1] if match.lastindex and match.lastindex > 1 else "") + MARK

    def hide_user(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        return f"{match[1]}{MARK}@"

    def hide_option(match: re.Match[str]) -> str:
        nonlocal count
        if _SENSITIVE_WORD.search(match[1]) is None or MARK[:-1] in match[3]:
            return match[0]
        count += 1
        return match[1] + match[2] + MARK

    def hide_random(match: re.Match[str]) -> str:
        nonlocal count
        if not _is_random(match[0]):
            return match[0]
        count += 1
        return MARK

    for value in _secret_values(environment):
        inside = json.dumps(value)[1:-1]
        count += document.count(inside)
        document = document.replace(inside, MARK)
    document = _URL.sub(hide_user, document)
    document = _BEARER.sub(hide, _OPTION.sub(hide_option, _ASSIGNED.sub(hide, document)))
    return _WORD.sub(hide_random, _KNOWN.sub(hide, document)), count


def redact_text(text: str, environment: Mapping[str, str]) -> str:
    """A text without secrets."""
    safe, _ = redact_json(json.dumps(text), environment)
    return str(json.loads(safe))


def _secret_values(environment: Mapping[str, str]) -> list[str]:
    """Longest first, so that a secret that contains another disappears whole."""
    found = {
        value
        for name, value in environment.items()
        if is_secret_name(name) and len(value) >= _MIN_SECRET
    }
    return sorted(found, key=len, reverse=True)


def _is_random(word: str) -> bool:
    kinds = (str.isupper, str.islower, str.isdigit)
    if not all(any(kind(character) for character in word) for kind in kinds):
        return False
    total = len(word)
    bits = -sum(n / total * math.log2(n / total) for n in Counter(word).values())
    return bits >= min(_RANDOM_BITS, math.log2(total) - 0.5)


def shown_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The part of an environment that helps to explain a crash and is safe to show."""
    return {name: value[:512] for name, value in sorted(environment.items()) if is_shown(name)}


def hidden_names(environment: Mapping[str, str]) -> list[str]:
    """Names alone of all other variables."""
    return sorted(name for name in environment if not is_shown(name))


def own_environment() -> dict[str, str]:
    """This process's environment."""
    return dict(os.environ)
