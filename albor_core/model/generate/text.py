"""Tokens as text while they come: characters whole, stop texts left out.

A character may be spread over several tokens, a stop text, too; what may still become part of
either waits for the next token.
"""

from __future__ import annotations

from collections.abc import Sequence

from tokenizers import Tokenizer

BROKEN = "\ufffd"  # what decoders write for bytes that are not a character, or not yet
_UNFINISHED = 3  # tokens at the end, at most: a character has up to four bytes


class TextStream:
    """The text of one sequence after its prompt."""

    def __init__(
        self, tokenizer: Tokenizer, prompt_ids: Sequence[int], stops: Sequence[str] = ()
    ) -> None:
        self._tokenizer, self._stops = tokenizer, [stop for stop in stops if stop]
        self._ids = [*prompt_ids]
        self._shown = len(self._ids)
        """Tokens whose text is known: those before tell a decoder where it is in a text."""
        self._held = ""
        self.is_stopped = False
        """Whether a stop text has come: nothing behind it is text."""

    def push(self, token: int) -> str:
        """Add a token and return the text that it completes."""
        self._ids.append(token)
        text = self._text_of(len(self._ids))
        if not text:  # nor does what decodes to nothing tell where in a text it stands
            return ""
        self._held += text
        self._ids, self._shown = self._ids[self._shown :], len(self._ids) - self._shown
        return self._release()

    def end(self) -> str:
        """What was waiting, after the last token. Bytes that only begin a character are left out;
        bytes that never were one are BROKEN, as everywhere.
        """
        if self.is_stopped:
            return ""
        whole = len(self._ids)
        ends = range(whole, max(self._shown, whole - _UNFINISHED - 1), -1)
        found = (text for end in ends if (text := self._text_of(end)) is not None)
        rest = next(found, None)
        if rest is None and whole > self._shown:
            rest = self._decoded(whole)[len(self._decoded(self._shown)) :].rstrip(BROKEN)
        self._held += rest or ""
        shown = self._release()
        rest, self._held = self._held, ""
        return shown if self.is_stopped else shown + rest

    def _text_of(self, end: int) -> str | None:
        """The text of the tokens up to `end` that are not shown; None while their last character is
        incomplete."""
        text = self._decoded(end)
        return None if text.endswith(BROKEN) else text[len(self._decoded(self._shown)) :]

    def _decoded(self, end: int) -> str:
        return str(self._tokenizer.decode(self._ids[:end]))

    def _release(self) -> str:
        """Everything up to a stop text, or to what may be the beginning of one."""
        if self.is_stopped:
            return ""
        if found := [at for stop in self._stops if (at := self._held.find(stop)) >= 0]:
            self.is_stopped = True
            return self._held[: min(found)]
        kept = max((_overlap(self._held, stop) for stop in self._stops), default=0)
        cut = len(self._held) - kept
        text, self._held = self._held[:cut], self._held[cut:]
        return text


def text_after(tokenizer: Tokenizer, prompt_ids: Sequence[int], ids: Sequence[int]) -> str:
    """All of it at once."""
    stream = TextStream(tokenizer, prompt_ids)
    return "".join([stream.push(token) for token in ids]) + stream.end()


def _overlap(text: str, stop: str) -> int:
    """Characters at the end of `text` that `stop` begins with."""
    for size in range(min(len(text), len(stop) - 1), 0, -1):
        if text.endswith(stop[:size]):
            return size
    return 0
