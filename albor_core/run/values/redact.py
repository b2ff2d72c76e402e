"""Takes secrets out of what others will read: crash reports get pasted into issues.

Four nets, because each alone has holes: the values of our own environment under secret-sounding
names; names and options that announce a secret; formats of well-known tokens; and, last, words too
random to be anything else. What a short option like `-p` means no net can know: ALBOR_SECRETS names
such options and keys, separated by commas.

In data a name that announces a secret hides its text whole, however short. Numbers stay, but for
passwords and keys: under `token` they count or number something. Prose gives fewer signs: there a
word after `password:` needs four characters to be taken for one.
"""

from __future__ import annotations

import math
import os
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

from albor_core.run.values.clean import MARK
from albor_core.run.values.lenient import is_number

T = TypeVar("T")
ALLOWED = ("CUDA_", "NCCL_", "TORCH_", "OMP_", "PYTHON", "ALBOR_", "TRITON_", "NVIDIA_")
# "tokens" and "tokenizer" are everyday words here, "token" is not.
_SENSITIVE = (
    r"(?:token(?!s|i)|secret|passw(?:or)?d|passphrase|(?<![a-z0-9])pwd?(?![a-z0-9])|cookie"
    r"|api[-_]?key|access[-_]?key|private[-_]?key|credential)"
)
_SECRET_NAME = re.compile(
    _SENSITIVE + r"|webhook|otlp_(?:traces_)?headers|(?:^|_)(?:key|auth)(?:$|_)", re.IGNORECASE
)
_OF_A_SINK = re.compile(r"webhook|_url(?:$|_)", re.IGNORECASE)
_MIN_SECRET = 6
# All repetitions are bounded and none stands before the word it looks for: a log line of one long
# word must not cost minutes of backtracking. No pattern reaches over the end of a line.
_GAP = r"[^\S\r\n]"
_PLAIN = r"(?:-?[\d.]{1,32}(?:e[+-]?\d{1,4})?|null|none|true|false)"
_VALUE = rf"""(?!{_PLAIN}(?:[\s"',;}}\]]|$))([^\s"'\\,;&)}}\]]"""
_ASSIGNED = re.compile(
    rf"""({_SENSITIVE}[\w.-]{{0,32}}(?:\\?["'])?{_GAP}{{0,8}}[:=]{_GAP}{{0,8}}(?:\\?["'])?)"""
    rf"{_VALUE}{{4,}})",
    re.IGNORECASE,
)
_OPTION = re.compile(
    rf"""(?<![^\s"',\[])(-[\w.-]{{1,64}})((?:\\?["'])?,?{_GAP}{{1,64}}(?:\\?["'])?){_VALUE}+)""",
    re.IGNORECASE,
)
_SENSITIVE_WORD = re.compile(_SENSITIVE, re.IGNORECASE)
_PASSWORD = re.compile(_SENSITIVE.replace("token(?!s|i)|", ""), re.IGNORECASE)
_HOLDER = re.compile(_SENSITIVE + r"s?$", re.IGNORECASE)  # not `token_embedding: {...}`
_NUMBER = re.compile(_PLAIN, re.IGNORECASE)
_NO_SECRET = ("null", "none", "true", "false")
_FLAG = re.compile(r"--?[\w.-]{1,64}")
# of a command line, where the word ends the value
_PAIR = re.compile(r"""(-[\w.-]{1,64}=)(.+)|([\w.+-]{1,64}=)(\S+)""", re.DOTALL)
_BEARER = re.compile(r"((?:bearer|basic)[^\S\r\n]+)([\w.~+/=-]{8,})", re.IGNORECASE)
_URL = re.compile(r"(\b[a-z][a-z0-9+.-]{1,15}://)([^\s/@\"'\\]{1,256})@", re.IGNORECASE)
_PEM = re.compile(
    r"-----BEGIN [A-Z0-9 ]{0,32}PRIVATE KEY-----(?:(?!-----)[\s\S]){0,65536}"
    r"(?:-----END [A-Z0-9 ]{0,32}PRIVATE KEY-----)?"
)
NAMES = "ALBOR_SECRETS"
_KNOWN = re.compile(
    r"\b(?:hf_\w{16,}|sk-[\w-]{16,}|gh[pousr]_\w{16,}|github_pat_\w{16,}|glpat-[\w-]{16,}"
    r"|xox[abpors]-[\w-]{10,}|(?:AKIA|ASIA)[A-Z0-9]{16}|AIza[\w-]{30,}|eyJ[\w-]{10,512}\.[\w.-]{10,}"
    r"|npm_\w{20,}|pypi-[\w-]{16,})"
)
_WORD = re.compile(r"[A-Za-z0-9]{20,}")
_RANDOM_BITS = 4.2  # per character; hexadecimal cannot exceed 4.0, so hashes and nonces stay


def is_secret_name(name: str) -> bool:
    """Whether a variable of this name is likely to hold a secret. PWD, of every shell, is the
    working directory and no password.
    """
    if name.startswith("ALBOR_"):
        return _OF_A_SINK.search(name) is not None  # ours hold none, those of our sinks do
    return _SECRET_NAME.search(name) is not None and name != "PWD"


def is_shown(name: str) -> bool:
    """Whether the value of an environment variable may go into a report."""
    return name.startswith(ALLOWED) and not is_secret_name(name)


def redact(data: T, environment: Mapping[str, str], known: Sequence[str] = ()) -> tuple[T, int]:
    """JSON data without secrets, and how many were taken out. `known` are secrets, wherever they
    stand.
    """
    nets = _Nets(environment, known)
    safe: T = nets.data(data)
    return safe, nets.count


def redact_text(text: str, environment: Mapping[str, str], known: Sequence[str] = ()) -> str:
    """A text without secrets, the `known` ones among them."""
    return _Nets(environment, known).text(text)


def announced_secrets(argv: Sequence[str], environment: Mapping[str, str]) -> tuple[str, ...]:
    """The words of a command line that its options call secret, if long enough to be told from
    other words wherever they stand.
    """
    nets = _Nets(environment)
    nets.data(argv)
    return tuple(word for word in nets.announced if len(word) >= _MIN_SECRET)


def redact_known(text: str, environment: Mapping[str, str]) -> str:
    """A text without what is certainly a secret: for what a model wrote, where a random word or one
    after `password:` is most likely invented.
    """
    return _Nets(environment).known(text)


class _Nets:
    """Removes secrets from texts and counts them."""

    def __init__(self, environment: Mapping[str, str], known: Sequence[str] = ()) -> None:
        self.count = 0
        self.announced: list[str] = []  # words of command lines, by the options before them
        self._values = _longest_first({*_secret_values(environment), *known})
        self._named_too = frozenset(
            word.strip().lstrip("-").lower()
            for word in environment.get(NAMES, "").split(",")
            if word.strip()
        )

    def data(self, value: Any) -> Any:
        if isinstance(value, str):
            return self.text(value)
        if isinstance(value, Mapping):
            return {self.text(name): self._named(name, item) for name, item in value.items()}
        return self._words(value) if isinstance(value, list | tuple) else value

    def text(self, text: str) -> str:
        text = self.known(text)
        text = self._options(_ASSIGNED.sub(self._marked, text))
        return _WORD.sub(self._random, _BEARER.sub(self._marked, text))

    def known(self, text: str) -> str:
        for value in self._values:
            self.count += text.count(value)
            text = text.replace(value, MARK)
        text = _PEM.sub(self._marked, _URL.sub(self._without_user, text))
        return _KNOWN.sub(self._marked, text)

    def _is_sensitive(self, name: str) -> bool:
        if self._named_too and name.strip("-=").lower() in self._named_too:
            return True
        return _SENSITIVE_WORD.search(name) is not None

    def _options(self, text: str) -> str:
        """`--password WORD`. The word after another option may be an option itself."""
        parts, done, start = [], 0, 0
        while match := _OPTION.search(text, start):
            if not self._is_sensitive(match[1]) or MARK[:-1] in match[3]:
                start = match.end(1)
                continue
            self.count += 1
            parts += [text[done : match.start()], match[1], match[2], MARK]
            done = start = match.end()
        return "".join((*parts, text[done:]))

    def _named(self, name: str, value: Any) -> Any:
        """A value under its name. Lists and mappings are hidden where the name ends in the word."""
        if not self._is_sensitive(name):
            return self.data(value)
        if isinstance(value, Mapping | list | tuple) and _HOLDER.search(name) is None:
            return self.data(value)
        return self._hidden(value, numbers=_PASSWORD.search(name) is not None)

    def _hidden(self, value: Any, *, numbers: bool) -> Any:
        if isinstance(value, Mapping):
            return {
                self.text(name): self._hidden(item, numbers=numbers) for name, item in value.items()
            }
        if isinstance(value, list | tuple):
            return [self._hidden(item, numbers=numbers) for item in value]
        if value in ("", MARK) or not (isinstance(value, str) or (numbers and is_number(value))):
            return value
        self.count += 1
        return MARK

    def _words(self, items: Sequence[Any]) -> list[Any]:
        """A list, which may be a command line: `--password WORD`, `--password=WORD`."""
        found: list[Any] = []
        option = ""  # the secret's name, where the last word announced one
        for item in items:
            if not isinstance(item, str):
                found.append(self.data(item))
            elif option:
                found.append(self._argument(option, item))
            else:
                pair = _PAIR.fullmatch(item)
                name = pair[1] or pair[3] if pair else ""
                if pair and self._is_sensitive(name):
                    found.append(name + self._argument(name, pair[2] or pair[4]))
                else:
                    found.append(self.text(item))
            is_option = isinstance(item, str) and not option and _FLAG.fullmatch(item)
            option = item if is_option and self._is_sensitive(item) else ""
        return found

    def _argument(self, name: str, word: str) -> str:
        is_count = _PASSWORD.search(name) is None and _NUMBER.fullmatch(word)
        if word in ("", MARK) or is_count or word.lower() in _NO_SECRET:
            return word
        self.count += 1
        self.announced.append(word)
        return MARK

    def _marked(self, match: re.Match[str]) -> str:
        if MARK[:-1] in match[match.lastindex or 0]:  # no value has the bracket that ends it
            return match[0]
        self.count += 1
        return (match[1] if match.lastindex and match.lastindex > 1 else "") + MARK

    def _without_user(self, match: re.Match[str]) -> str:
        if match[2] != MARK:
            self.count += 1
        return f"{match[1]}{MARK}@"

    def _random(self, match: re.Match[str]) -> str:
        if not _is_random(match[0]):
            return match[0]
        self.count += 1
        return MARK


def _secret_values(environment: Mapping[str, str]) -> set[str]:
    return {
        value
        for name, value in environment.items()
        if is_secret_name(name) and len(value) >= _MIN_SECRET
    }


def _longest_first(values: set[str]) -> list[str]:
    """A secret that contains another disappears whole."""
    return sorted(values, key=len, reverse=True)


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
