"""Makes sheets of completion pairs for people to judge blindly, and reads their ratings.

The sheet does not name the models; a key beside it, which raters are not given, says which side is
whose. Some pairs occur twice with sides swapped, to measure how consistent a rater is.
"""

from __future__ import annotations

import csv
import io
import json
import random
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import sqrt
from pathlib import Path
from typing import TYPE_CHECKING, Any

from albor_core.eval.compare.paired import mcnemar, verdict
from albor_core.run.errors import DataError, NotFoundError

if TYPE_CHECKING:
    from albor_core.documents.eval import EvalKeyDocument, PairKey

COLUMNS = ("pair", "prompt", "left", "right", "better", "comment")
ANSWERS = ("left", "right", "tie")
_Z = 1.959963984540054  # of a 95 % interval


@dataclass(frozen=True)
class Pair:
    """One item that both models answered."""

    item: str
    prompt: str
    a: str
    b: str


def make_sheet(
    pairs: Sequence[Pair], names: tuple[str, str], *, seed: int = 0, repeats: int = 0
) -> tuple[str, EvalKeyDocument]:
    """(CSV, key). Order, sides and the `repeats` repeated pairs follow from `seed`."""
    chance = random.Random(seed)  # noqa: S311  an order, no secret
    rows = [(pair, chance.random() < 0.5) for pair in pairs]
    again = chance.sample(rows, min(repeats, len(rows)))
    rows += [(pair, not a_is_left) for pair, a_is_left in again]
    chance.shuffle(rows)
    text = io.StringIO(newline="")
    key: dict[str, PairKey] = {}
    writer = csv.writer(text)
    writer.writerow(COLUMNS)
    for number, (pair, a_is_left) in enumerate(rows, 1):
        left, right = (pair.a, pair.b) if a_is_left else (pair.b, pair.a)
        writer.writerow([number, *map(_inert, (pair.prompt, left, right)), "", ""])
        key[str(number)] = {"item": pair.item, "left": "a" if a_is_left else "b"}
    document: EvalKeyDocument = {
        "schema": "albor.eval.key/1", "a": names[0], "b": names[1], "seed": seed, "pairs": key
    }  # fmt: skip
    return text.getvalue(), document


def _inert(text: str) -> str:
    """A cell that no spreadsheet interprets as a formula."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") else text


@dataclass(frozen=True)
class Ratings:
    """The ratings of B against A. A tie counts half for each."""

    raters: int
    judged: int
    left_open: int
    a_wins: int
    b_wins: int
    ties: int
    win_rate: float
    """Of B, over judgements; `low` to `high` is Wilson's 95 % interval over items."""
    low: float
    high: float
    p: float
    """Exact sign test over items on which judgements do not balance."""
    items: int
    agreement: float | None
    """Krippendorff's alpha between raters on the same items; None of one rater alone."""
    same_again: float | None
    """Of pairs that a rater saw twice, the share that he judged alike; None without such."""
    left_share: float | None
    """How often the left side won where one did: far from a half, sides mattered."""
    verdict: str
    """Of B against A, by the items that `p` counts: `better`, `worse` or `indistinguishable`."""


def read_ratings(sheets: Sequence[Path], key: Mapping[str, Any]) -> Ratings:
    """Read the ratings, one sheet per rater. Raises NotFoundError, DataError naming file, line and
    column."""
    votes: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    count, left_open, sides = Counter[str](), 0, Counter[str]()
    for rater, path in enumerate(sheets):
        for pair, answer in _answers(path, key["pairs"]):
            if not answer:
                left_open += 1
                continue
            known = key["pairs"][pair]
            winner = "tie" if answer == "tie" else _whose(answer, known["left"])
            count[winner] += 1
            sides[answer] += 1
            votes[known["item"]][rater].append({"a": 0.0, "b": 1.0, "tie": 0.5}[winner])
    judged = sum(count.values())
    if not judged:
        what = "no sheet has an answer: write left, right or tie in the column 'better'"
        raise DataError(what, hint="fill in a sheet, save it as CSV, read it again")
    share = [_mean([_mean(one) for one in raters.values()]) for raters in votes.values()]
    low, high = wilson(sum(share), len(share))
    for_a, for_b = sum(one < 0.5 for one in share), sum(one > 0.5 for one in share)
    p = mcnemar(for_a, for_b)
    return Ratings(
        raters=len(sheets), judged=judged, left_open=left_open, a_wins=count["a"],
        b_wins=count["b"], ties=count["tie"], win_rate=_mean(share), low=low, high=high,
        p=p, items=len(share),
        agreement=alpha([[_mean(v) for v in raters.values()] for raters in votes.values()]),
        same_again=_same_again(votes),
        left_share=_ratio(sides["left"], sides["left"] + sides["right"]),
        verdict=verdict(for_b - for_a, p),
    )  # fmt: skip


def _whose(answer: str, left: str) -> str:
    return left if answer == "left" else {"a": "b", "b": "a"}[left]


def _answers(path: Path, pairs: Mapping[str, Any]) -> list[tuple[str, str]]:
    hint = "fill in the sheet as it was written, and save it as CSV"
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except FileNotFoundError as error:
        raise NotFoundError(f"{path}: no such file", hint="albor eval sheet --help") from error
    except UnicodeDecodeError as error:
        raise DataError(f"{path}: is not UTF-8 text", hint="save it as CSV in UTF-8") from error
    head = text.partition("\n")[0]
    delimiter = max(",;\t", key=head.count)  # as the spreadsheet's language has it
    reader = csv.DictReader(io.StringIO(text, newline=""), delimiter=delimiter)
    try:
        rows = list(reader)
    except csv.Error as error:
        raise DataError(f"{path}:{reader.line_num}: is not CSV: {error}", hint=hint) from error
    for column in ("pair", "better"):
        if column not in (reader.fieldnames or ()):
            raise DataError(f"{path}: no column {column!r}", hint=hint)
    found, seen = [], set()
    for row in rows:
        pair, answer = (row["pair"] or "").strip(), (row["better"] or "").strip().lower()
        if pair not in pairs:
            raise DataError(
                f"{path}: pair {pair!r} is not in the key", hint="name this key's sheet"
            )
        if pair in seen:
            raise DataError(f"{path}: pair {pair!r} is there twice", hint=hint)
        if answer and answer not in ANSWERS:
            what = f"{path}: pair {pair}: {answer!r} is not left, right or tie"
            raise DataError(what, hint="correct that cell, or leave it empty")
        seen.add(pair)
        found.append((pair, answer))
    return found


def read_key(path: Path) -> dict[str, Any]:
    """Read the key. Raises NotFoundError, DataError."""
    try:
        key = json.loads(path.read_text())
    except FileNotFoundError as error:
        what = f"{path}: no such file, and only the key knows whose a side is"
        raise NotFoundError(what, hint="--key FILE, as `albor eval sheet` wrote it") from error
    except ValueError as error:
        raise DataError(
            f"{path}: is not JSON: {error}", hint="name the key of the sheet"
        ) from error
    pairs = key.get("pairs") if isinstance(key, dict) else None
    is_key = isinstance(pairs, dict) and all(
        isinstance(one, dict) and isinstance(one.get("item"), str) and one.get("left") in ("a", "b")
        for one in pairs.values()
    )
    if not is_key or not isinstance(key.get("a"), str) or not isinstance(key.get("b"), str):
        raise DataError(f"{path}: is not the key of a sheet", hint="albor schema albor.eval.key")
    assert isinstance(key, dict)
    return key


def wilson(wins: float, n: int) -> tuple[float, float]:
    """The Wilson interval of a share, which stays within 0 and 1 and is accurate for few items."""
    share, z2 = wins / n, _Z**2
    middle = (share + z2 / (2 * n)) / (1 + z2 / n)
    half = _Z / (1 + z2 / n) * sqrt(share * (1 - share) / n + z2 / (4 * n * n))
    return max(0.0, middle - half), min(1.0, middle + half)


def alpha(units: Sequence[Sequence[float]]) -> float | None:
    """Krippendorff's alpha, nominal: 1 is full agreement, 0 that of chance. None without two raters
    of one item; 1 if all give the same rating throughout.
    """
    rated = [unit for unit in units if len(unit) > 1]
    total = sum(map(len, rated))
    if not total:
        return None
    apart = 0.0
    for unit in rated:
        same = sum(count * (count - 1) for count in Counter(unit).values())
        apart += (len(unit) * (len(unit) - 1) - same) / (len(unit) - 1)
    whole = Counter(value for unit in rated for value in unit)
    by_chance = total * total - sum(count * count for count in whole.values())
    return 1.0 if by_chance == 0 else 1 - (total - 1) * apart / by_chance


def _same_again(votes: Mapping[str, Mapping[int, Sequence[float]]]) -> float | None:
    twice = [v for raters in votes.values() for v in raters.values() if len(v) > 1]
    return _ratio(sum(len(set(v)) == 1 for v in twice), len(twice))


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _ratio(part: int, whole: int) -> float | None:
    return part / whole if whole else None
