"""What a run recorded of its data, beside what lies there now."""

from __future__ import annotations

from textual.content import Content

from albor_core.feed.data.of_run import MixedSource, RunData, RunSplit
from albor_core.run.values.quantity import counted
from albor_tui.look import glyphs, quantity
from albor_tui.widgets.base import styled
from albor_tui.widgets.base.scrolled_lines import ScrolledLines
from albor_tui.widgets.data.labelled import fact, folded

_HASH = 12


class RunFacts(ScrolledLines):
    """Training and validation data with their hashes, tokenizer, how sequences are made."""

    def __init__(self, *, id: str) -> None:
        super().__init__("data", id=id)
        self._data: RunData | None = None
        self._excuse = Content("")

    def tell(self, data: RunData, excuse: Content) -> None:
        self._data, self._excuse = data, excuse
        self.resized(self.room)

    def resized(self, width: int) -> None:
        if self._data is None or width < 16:
            self.show([])
        else:
            self.show(lines_of(self._data, self._excuse, width))


def lines_of(data: RunData, excuse: Content, width: int) -> list[Content]:
    """Lines of at most `width` cells."""
    lines: list[Content] = []
    if excuse.plain:
        lines += [styled.fit(line, width) for line in excuse.split("\n")] + [Content("")]
    for one in data.mixture:
        lines += [*folded(one.name, one.path, "$ink", width), *_sealed(one, width)]
    for split in data.splits:
        lines += _split(split, width)
    if not any(split.name == "val" for split in data.splits):
        lines += folded("val", "none is recorded: nothing is evaluated on it", "$ink-muted", width)
    if data.tokenizer:
        lines += [Content(""), *folded("tokenizer", data.tokenizer, "$ink", width)]
        lines += folded("", data.tokenizer_sha256[:_HASH] or "no hash", "$ink-faint", width)
    rows = _how(data)
    if rows:
        lines += folded("rows", rows, "$ink", width)
    return lines


def _how(data: RunData) -> str:
    found = []
    if data.seq_len is not None:
        found.append(f"of {counted(data.seq_len, 'token')}")
    if data.batch_size is not None:
        found.append(f"{quantity.count(data.batch_size)} a micro-batch")
    if data.has_document_mask:
        found.append("documents kept apart")
    if data.shuffles_documents:
        found.append("documents shuffled in each epoch")
    if data.has_fim:
        found.append("some filled in the middle")
    if data.stages:
        found.append(f"weights change in {counted(data.stages, 'stage')}")
    return ", ".join(found)


def _split(split: RunSplit, width: int) -> list[Content]:
    """The lines of a split: its path, size and hash, and whether the data there still has that
    hash."""
    g = glyphs.current
    lines = folded(split.name, split.path or g.missing, "$ink", width)
    amounts = [] if split.sequences is None else [counted(split.sequences, "row")]
    if split.tokens is not None:
        amounts.append(f"{quantity.si(split.tokens)} tokens")
    if amounts:
        lines += folded("", ", ".join(amounts), "$ink-muted", width)
    return [*lines, *_sealed(split, width)]


def _sealed(one: RunSplit | MixedSource, width: int) -> list[Content]:
    g, lines = glyphs.current, []
    if one.folder.state != "here":
        lines = folded("", f"{g.cross} {one.folder.state}: {one.folder.why}", "$error", width)
    mark, words, tone = _SAME[one.is_same]
    sign = str(getattr(g, mark))
    seal = styled.text(f"{one.data_hash[:_HASH] or 'no hash'} ", "$ink-faint")
    said = Content.styled(f"{sign} {words}", tone)
    return [*lines, fact("", seal + said, width)]


_SAME = {  # whether the shards that lie there are those that the run recorded
    True: ("check", "as recorded", "$success"),
    False: ("alert", "changed since", "$warning"),
    None: ("dot", "not comparable", "$ink-muted"),
}
