"""Fill-in-the-middle on token rows against taking each row apart again by hand."""

import numpy as np
import pytest

from albor_core.data.load.documents import Boundaries
from albor_core.data.load.fim import LEAST, RowCutter, SentinelIds

END, MARKS = 0, SentinelIds(97, 98, 99)


def rows_of_documents(rows=64, length=96, seed=3, ends=0.06):
    rng = np.random.default_rng(seed)
    ids = rng.integers(1, 97, size=(rows, length))
    ids[rng.random(ids.shape) < ends] = END
    return ids


def made(rate=0.5, form="psm", seed=7):
    return RowCutter(rate, form, MARKS, END, seed)


def filled(fim, ids, numbers=None):
    numbers = np.arange(len(ids)) if numbers is None else numbers
    return fim.apply(ids, fim.lay(ids, numbers))


def pieces(row):
    """The documents of a row, each with its end if that is there."""
    found, piece = [], []
    for token in row:
        piece.append(int(token))
        if token == END:
            found.append(piece)
            piece = []
    return [*found, piece] if piece else found


def restored(piece, form):
    """A document as it was, and whether it had been cut."""
    end = piece[-1:] if piece[-1] == END else []
    body = piece[: len(piece) - len(end)]
    if MARKS.prefix not in body:
        return piece, False
    assert [token for token in body if token in MARKS] == (
        [MARKS.prefix, MARKS.suffix, MARKS.middle]
    )
    at = {token: body.index(token) for token in MARKS}
    if form == "psm":
        before = body[1 : at[MARKS.suffix]]
        after = body[at[MARKS.suffix] + 1 : at[MARKS.middle]]
        middle = body[at[MARKS.middle] + 1 :]
        return before + middle + after + end, True
    assert body[:2] == [MARKS.prefix, MARKS.suffix]
    after = body[2 : at[MARKS.middle]]
    rest = body[at[MARKS.middle] + 1 :]  # the prefix and the middle, with nothing between them
    return rest + after + end, True


@pytest.mark.parametrize("form", ["psm", "spm"])
@pytest.mark.parametrize("ends", [0.0, 0.02, 0.1, 0.4])
def test_a_row_is_its_own_beginning_cut_and_put_together_again(form, ends):
    ids = rows_of_documents(ends=ends)
    out = filled(made(0.7, form), ids)
    assert out.shape == ids.shape
    cut = 0
    for before, after in zip(ids.tolist(), out.tolist(), strict=True):
        found = [restored(piece, form) for piece in pieces(after)]
        whole = [token for piece, _ in found for token in piece]
        number = sum(was_cut for _, was_cut in found)
        cut += number
        assert len(whole) == len(before) - 3 * number  # what the sentinels pushed out
        assert whole == before[: len(whole)]
    assert cut > 20


def test_the_share_of_documents_that_are_cut_is_the_rate():
    ids = rows_of_documents(rows=3000, length=128)
    for rate in (0.1, 0.5, 0.9):
        fim = made(rate)
        laid = fim.lay(ids, np.arange(len(ids)))
        # those that begin near the end of a row may be pushed out of it
        able = (laid.span - laid.ends >= LEAST + 1) & (laid.place < ids.shape[1] - 40)
        number, wanted = int(laid.is_cut[able].sum()), rate * able.sum()
        assert abs(number - wanted) < 4 * np.sqrt(able.sum() * rate * (1 - rate))


def test_every_document_that_can_be_is_cut_at_a_rate_of_one_and_none_twice():
    out = filled(made(1.0), rows_of_documents(ends=0.03))
    assert np.isin(out, MARKS).any(axis=1).all()


def test_cuts_lie_anywhere_in_a_document():
    ids = np.tile(np.arange(1, 41), (4000, 1))
    out = filled(made(1.0), ids)
    first = (out == MARKS.suffix).argmax(axis=1) - 1  # length of the prefix, of 37 kept
    assert first.min() == 0 and first.max() == 37
    # the smaller of two uniform draws of 0 to 37: a mean of about a third, sigma 8.9
    assert abs(first.mean() - 37 / 3) < 4 * 8.9 / np.sqrt(len(first)) + 0.35


def test_a_document_that_holds_a_sentinel_stays_as_it_is():
    ids = rows_of_documents(ends=0.05)
    ids[:, 50] = MARKS.middle
    fim = made(1.0)
    laid = fim.lay(ids, np.arange(len(ids)))
    for index in np.flatnonzero(laid.is_cut):
        begin, span = laid.begin[index], laid.span[index]
        assert MARKS.middle not in ids.ravel()[begin : begin + span]


def test_a_row_is_cut_by_its_number_alone_and_otherwise_in_another_epoch():
    ids, fim = rows_of_documents(), made()
    out = filled(fim, ids)
    order = np.random.default_rng(1).permutation(len(ids))
    assert (filled(fim, ids[order], order) == out[order]).all()
    assert (filled(fim, ids[:1], np.array([0])) == out[:1]).all()
    other = filled(fim, ids, np.arange(len(ids)) + len(ids))
    assert (other != out).any(axis=1).mean() > 0.9
    assert (filled(made(seed=8), ids) != out).any(axis=1).mean() > 0.9


def test_the_documents_of_a_row_are_counted_without_building_it():
    for ends in (0.0, 0.02, 0.1, 0.4):
        ids, fim = rows_of_documents(ends=ends), made(0.8)
        laid = fim.lay(ids, np.arange(len(ids)))
        counted = fim.inner(laid, *ids.shape)
        assert counted.tolist() == Boundaries(END, None).inner(fim.apply(ids, laid)).tolist()


@pytest.mark.parametrize("length", [1, 2, 3, 4, 5, 7, 8, 9])
def test_rows_of_a_few_tokens_are_whole_too(length):
    ids = rows_of_documents(rows=200, length=length, ends=0.2)
    for form in ("psm", "spm"):
        out = filled(made(1.0, form), ids)
        for before, after in zip(ids.tolist(), out.tolist(), strict=True):
            whole = [t for piece in pieces(after) for t in restored(piece, form)[0]]
            assert whole == before[: len(whole)]
