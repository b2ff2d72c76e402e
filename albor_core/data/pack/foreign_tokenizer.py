"""What a tokenizer.json of another program brings beside its vocabulary: settings that would change
what a text is, which are left out, and files on which the library behind it gives up.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import IO, Any, TypeVar

from tokenizers import Tokenizer

from albor_core.data.pack.special_tokens import tokenizer_file
from albor_core.run.errors import DataError

T = TypeVar("T")
TRAIN_HINT = "train one with: albor tokenizer apply CORPUS --vocab-size N --out FILE"
_PROBES = ("", "ab c\n", "e\u0301 \U0001f600")
_STDERR = Lock()


def opened_plainly(text: str) -> Tokenizer:
    """A tokenizer.json without what `not_applied` tells of, tried on a few texts. Raises whatever
    the library does, its panic among it.
    """
    made = Tokenizer.from_str(text)
    made.no_truncation()
    made.no_padding()
    made.post_processor = None
    if getattr(made.model, "dropout", None) is not None:
        made.model.dropout = None
    for probe in _PROBES:
        try:
            made.decode(made.encode(probe, add_special_tokens=False).ids)
        except Exception:  # noqa: S112  not every text has tokens: who encodes one hears of it
            continue
    return made


def in_words(act: Callable[[], T], file: Path) -> T:
    """What `act` gives. Raises DataError where the library behind a tokenizer panics, whose own
    lines are not printed; what others write to stderr meanwhile comes after it.
    """
    with _STDERR, _kept_stderr() as kept:
        try:
            return act()
        except BaseException as error:
            if type(error).__name__ != "PanicException":  # of pyo3; it is not an Exception
                raise
            if kept is not None:
                kept.truncate(0)
            what = f"{file}: cannot be used: tokenizers gives up on it: {error}"
            raise DataError(what, hint=TRAIN_HINT) from None


@contextmanager
def _kept_stderr() -> Iterator[IO[bytes] | None]:
    """What is written to file descriptor 2 within the block, and goes there after it; None where
    that is closed.
    """
    try:
        before = os.dup(2)
    except OSError:
        yield None
        return
    with os.fdopen(os.memfd_create("albor-stderr"), "w+b") as kept:  # a disk may be full
        os.dup2(kept.fileno(), 2)
        try:
            yield kept
        finally:
            os.dup2(before, 2)
            os.close(before)
            if kept.seek(0, os.SEEK_END):
                kept.seek(0)
                os.write(2, kept.read())


def not_applied(path: Path) -> list[str]:
    """What a tokenizer.json says beside its vocabulary that would change what a text is, and that
    is left out here; nothing of a file that cannot be read.
    """
    try:
        document = json.loads(tokenizer_file(path).read_bytes())
    except (OSError, ValueError, RecursionError):
        return []
    return [*_left_out(document)] if isinstance(document, dict) else []


def _left_out(document: dict[str, Any]) -> Iterator[str]:
    cut, model = document.get("truncation"), document.get("model")
    if isinstance(cut, dict):
        yield f"truncation to {cut.get('max_length')} tokens"
    if document.get("padding"):
        yield "padding"
    kinds = [*_processors(document.get("post_processor"))]
    if kinds:
        yield f"tokens around a text ({', '.join(kinds)})"
    if isinstance(model, dict) and model.get("dropout"):
        yield f"merges dropped at random (dropout {model['dropout']})"


def _processors(part: Any) -> Iterator[str]:
    """Post-processors that add tokens, in a sequence or single."""
    if not isinstance(part, dict):
        return
    for one in part.get("processors") or []:
        yield from _processors(one)
    if part.get("type") not in ("Sequence", "ByteLevel"):
        yield str(part.get("type"))
