"""Finds keys, tokens and passwords in text by their shape: those of AWS, GitHub, Slack, OpenAI and
other services, private keys, JSON web tokens, and random values under a name such as `api_key`.

Precision before recall: code must not be masked. Placeholders, examples and names are not reported.
Every pattern begins with a literal or a single class, every repetition is possessive, and a token
is tried only at its beginning, so that the time is linear in the length of the text.
"""

from __future__ import annotations

import base64
import binascii
import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from itertools import pairwise

from albor_core.data.clean.patterns.findings import Finding, Scanner

_SERVICES = {
    # AWS access key ids are base32 after their prefix.
    "aws-key": rb"A(?:KIA|SIA|BIA|CCA)(?<![A-Za-z0-9]....)[A-Z2-7]{16}+(?![A-Za-z0-9])",
    "github-token": rb"gh[pousr]_(?<![A-Za-z0-9_]....)[A-Za-z0-9]{36,255}+(?![A-Za-z0-9_])"
    rb"|github_pat_(?<![A-Za-z0-9_].{11})[A-Za-z0-9_]{60,255}+",
    "gitlab-token": rb"glpat-(?<![A-Za-z0-9_-].{6})[A-Za-z0-9_-]{20,64}+",
    "slack-token": rb"xox[abeoprs]-(?<![A-Za-z0-9-].{5})[A-Za-z0-9-]{20,255}+",
    "slack-webhook": rb"hooks\.slack\.com/services/T[A-Z0-9]{8,12}+/B[A-Z0-9]{8,12}+"
    rb"/[A-Za-z0-9]{20,32}+",
    "openai-key": rb"sk-(?<![A-Za-z0-9_-]...)(?:proj-|svcacct-|admin-|ant-)?[A-Za-z0-9_-]{32,255}+",
    "stripe-key": rb"[sr]k_live_(?<![A-Za-z0-9_].{8})[A-Za-z0-9]{24,128}+",
    "google-key": rb"AIza(?<![A-Za-z0-9_-]....)[A-Za-z0-9_-]{35}+(?![A-Za-z0-9_-])",
    "huggingface-token": rb"hf_(?<![A-Za-z0-9_]...)[A-Za-z0-9]{34}+(?![A-Za-z0-9_])",
    "npm-token": rb"npm_(?<![A-Za-z0-9_]....)[A-Za-z0-9]{36}+(?![A-Za-z0-9_])",
    "pypi-token": rb"pypi-AgE(?<![A-Za-z0-9_-].{8})[A-Za-z0-9_-]{50,512}+",
    "sendgrid-key": rb"SG\.(?<![A-Za-z0-9_]...)[A-Za-z0-9_-]{22}+\.[A-Za-z0-9_-]{43}+"
    rb"(?![A-Za-z0-9_-])",
}
_PREFIX_HINT = (
    r"A(KIA|SIA|BIA|CCA)[A-Z2-7]{8}|gh[pousr]_[A-Za-z0-9]{8}|github_pat_|glpat-|xox[abeoprs]-"
    r"|hooks\.slack\.com/services/T|sk-[A-Za-z0-9_-]{16}|[sr]k_live_|AIza[A-Za-z0-9_-]{8}"
    r"|hf_[A-Za-z0-9]{16}|npm_[A-Za-z0-9]{16}|pypi-AgE|SG\.[A-Za-z0-9_-]{16}"
)
_PATTERNS = {kind: re.compile(pattern, re.DOTALL) for kind, pattern in _SERVICES.items()}
_DIGIT = re.compile(rb"[0-9]")
_PLACEHOLDERS = (
    *(b"example", b"sample", b"placeholder", b"changeme", b"change_me", b"your", b"dummy"),
    *(b"redacted", b"xxxx", b"0000", b"1234567890", b"abcdef", b"fake", b"test", b"insert"),
)
_FEWEST = 8  # different characters of a token that is not a row of x


def _tokens(text: bytes) -> Iterator[Finding]:
    for kind, pattern in _PATTERNS.items():
        for match in pattern.finditer(text):
            is_likely = _is_random(match[0]) if kind == "openai-key" else _DIGIT.search(match[0])
            if is_likely and not _is_placeholder(match[0]):
                yield Finding(match.start(), match.end(), kind)


def _is_placeholder(value: bytes) -> bool:
    low = value.lower()
    return len(set(value)) < _FEWEST or any(word in low for word in _PLACEHOLDERS)


_BEGIN = re.compile(rb"-----BEGIN [A-Z0-9 ]{0,32}+(?:(?<=PRIVATE KEY)|(?<=PRIVATE KEY BLOCK))-----")
_END = b"-----END "
_LONGEST_KEY = 16_384  # bytes between the two lines: an RSA key of 16,384 bits has 12,800
_LEAST_KEY = 48  # characters of base64: the shortest, an Ed25519 key, has 64
_NOT_BASE64 = re.compile(rb"\\[nrt]|[^A-Za-z0-9+/=]+")


def _private_keys(text: bytes) -> Iterator[Finding]:
    """Each private key from its first line to its last; without a key in between it is only a
    mention."""
    after = searched = 0
    for match in _BEGIN.finditer(text):
        if match.start() < after:
            continue
        last = match.end() + _LONGEST_KEY
        end = text.find(_END, max(searched, match.end()), last)
        if end < 0:
            searched = last - len(_END)  # none begins before: each byte is looked at once
            continue
        inner = text[match.end() : end]
        body = _NOT_BASE64.sub(b"", inner)
        if (
            len(body) >= _LEAST_KEY
            and len(set(body)) > 2 * _FEWEST
            and 3 * len(body) > 2 * len(inner)
        ):
            line = text.find(b"-----", end + len(_END), end + 64)
            after = line + 5 if line >= 0 else end + len(_END)
            yield Finding(match.start(), after, "private-key")


_JWT = re.compile(
    rb"eyJ(?<![A-Za-z0-9_-]...)([A-Za-z0-9_-]{10,1024}+)\.eyJ[A-Za-z0-9_-]{10,8192}+"
    rb"\.[A-Za-z0-9_-]{20,1024}+",
    re.DOTALL,
)


def _web_tokens(text: bytes) -> Iterator[Finding]:
    """Three parts in base64, the first a JSON object that names an algorithm."""
    for match in _JWT.finditer(text):
        head = b"eyJ" + match[1]
        try:
            document = json.loads(base64.urlsafe_b64decode(head + b"=" * (-len(head) % 4)))
        except (binascii.Error, ValueError, RecursionError):
            continue
        if isinstance(document, dict) and "alg" in document:
            yield Finding(match.start(), match.end(), "jwt")


_VALUE = re.compile(rb"""(?:["']|[=:][ \t]{0,3})([A-Za-z0-9+/_-]{20,256}+={0,2})(?=["'\s,;]|\Z)""")
_NAMES = (
    rb"(?:secret|token|passw(?:or)?d|passwd|pwd|credentials?"
    rb"|(?:api|secret|access|private|auth|encryption|signing|master|account|storage|shared|service)"
    rb"_?-?key)"
)
_NAME_ENDS = re.compile(_NAMES + rb"$")
_IDENTIFIER = b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_-."
_NAME_WINDOW = 80
_VALUE_HINT = r"""["'=:][ \t]{0,3}[A-Za-z0-9+/_-]{20}"""
_NAME_HINT = (
    r"(?i)secret|token|passw|pwd|credential|(api|access|private|auth|encryption|signing|master"
    r"|account|storage|shared|service)[_-]?key"
)


def _assignments(text: bytes) -> Iterator[Finding]:
    """Random values assigned to names that end in `secret`, `password`, `api_key` or the like."""
    for match in _VALUE.finditer(text):
        value = match[1]
        if not _is_random(value) or _is_placeholder(value):
            continue
        name = _name_before(text[max(0, match.start(1) - _NAME_WINDOW) : match.start(1)])
        if name and _NAME_ENDS.search(name):
            yield Finding(match.start(1), match.end(1), "assigned-secret")


def _name_before(left: bytes) -> bytes:
    """The name that `left` assigns to, in lower case: NAME=, "NAME": ", NAME => "; b"" if there is
    none."""
    at = left.rstrip(b" \t\"'")
    if not at.endswith((b"=", b":", b"=>")) or at.endswith((b"==", b"!=", b"<=", b">=")):
        return b""
    names = at.rstrip(b"=>: \t\"'])")
    return names[len(names.rstrip(_IDENTIFIER)) :].lower()


_HEX = re.compile(rb"[0-9a-f]{32,}+|[0-9A-F]{32,}+")


def _is_random(value: bytes) -> bool:
    """Whether a value looks random: digits among letters, many different characters, frequent
    changes of class. Names such as text-embedding-ada-002 and CamelCaseWords do not.
    """
    digits = sum(48 <= code < 58 for code in value)
    letters = sum(65 <= code < 91 or 97 <= code < 123 for code in value)
    if digits < 2 or letters < 2:
        return False
    if _HEX.fullmatch(value):
        return _entropy(value) >= 3.0
    core = value.translate(None, _SEPARATORS)
    changes = sum(a != b for a, b in pairwise(core.translate(_CLASSES)))
    return _entropy(core) >= 3.5 and changes >= 0.3 * (len(core) - 1)


_SEPARATORS = b"-_+/."
_CLASSES = bytes(
    1 if chr(code).isdigit() else 2 if chr(code).isupper() else 3 if chr(code).islower() else 4
    for code in range(256)
)


def _entropy(value: bytes) -> float:
    """Entropy in bits per byte."""
    n = len(value)
    return -sum(count / n * math.log2(count / n) for count in Counter(value).values())


SECRETS = (
    Scanner((r"PRIVATE KEY( BLOCK)?-----",), _private_keys),
    Scanner((_PREFIX_HINT,), _tokens),
    Scanner((r"eyJ[A-Za-z0-9_-]{10}",), _web_tokens),
    Scanner((_NAME_HINT, _VALUE_HINT), _assignments),
)
"""In the order in which overlapping findings win."""
