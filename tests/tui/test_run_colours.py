"""Runs keep their colours: in every screen, after a restart, and apart for every eye."""

from __future__ import annotations

import itertools
import json
import math
import threading

import pytest

from albor_tui.look import run_colours, themes
from albor_tui.look.run_colours import DASHES, FILE, RUN_TONES, RunColours, RunStyle
from albor_tui.widgets.chart.dashes import PATTERNS


def runs(*names: str, of: str = "sweep") -> list[tuple[str, str]]:
    return [(name, of) for name in names]


def test_a_run_keeps_its_style_whatever_it_is_drawn_with_and_after_a_restart(tmp_path):
    colours = RunColours(tmp_path / FILE)
    first = colours.styles(runs("a", "b", "c"))
    assert [style.tone for style in first.values()] == list(RUN_TONES[:3])
    assert colours.styles(runs("c", "new", "a"))["c"] == first["c"]
    colours.close()
    again = RunColours(tmp_path / FILE)
    assert again.styles(runs("c", "b")) == {"c": first["c"], "b": first["b"]}
    # a is removed: whoever comes next gets a place that no run has had
    assert again.styles(runs("d", "c"))["d"].tone == RUN_TONES[4]


def test_beyond_eight_the_colours_come_again_with_another_dash():
    styles = list(RunColours().styles(runs(*map(str, range(40)))).values())
    assert {style.dash for style in styles[:8]} == {0}
    assert {style.dash for style in styles[8:16]} == {1}
    assert len({(style.tone, style.dash) for style in styles}) == 8 * DASHES
    assert len({style.letter for style in styles}) == 40
    assert all(len(PATTERNS[is_ascii]) == DASHES for is_ascii in (False, True))


def test_of_two_that_share_a_place_one_gets_another_dash_whatever_their_order():
    colours = RunColours()
    colours.styles(runs("a"))
    colours.styles(runs("z", of="other"))
    both = [("z", "other"), ("a", "sweep")]
    found = colours.styles(both)
    assert found == colours.styles(both[::-1])
    assert found["a"].tone == found["z"].tone
    assert {found["a"].dash, found["z"].dash} == {0, 1}
    assert found["a"].letter != found["z"].letter


def test_what_a_run_looks_like_does_not_depend_on_what_it_was_drawn_with_at_another_start(tmp_path):
    """Two experiments beside each other move only those that look alike, and those for good."""
    sweep, ppo = runs(*map(str, range(20))), runs("p", of="ppo")
    colours = RunColours(tmp_path / FILE)
    alone, moved = colours.styles(sweep), colours.styles(ppo)
    together = colours.styles([*sweep, *ppo])
    changed = [run for run, style in (alone | moved).items() if together[run] != style]
    assert len(changed) == 1 and len({(one.tone, one.dash) for one in together.values()}) == 21
    assert together[changed[0]].tone == (alone | moved)[changed[0]].tone
    colours.close()
    again = RunColours(tmp_path / FILE)
    assert again.styles(ppo)["p"].dash == together["p"].dash
    assert again.styles(sweep[::-1])["3"] == alone["3"]


def test_a_file_that_is_read_late_holds_for_what_was_drawn_before(tmp_path, monkeypatch):
    first = RunColours(tmp_path / FILE)
    styles = first.styles(runs("a", "b", "c"))
    first.close()
    may_read, read = threading.Event(), run_colours._read
    monkeypatch.setattr(run_colours, "_read", lambda file: (may_read.wait(20), read(file))[1])
    late = RunColours(tmp_path / FILE)
    assert late.styles(runs("c"))["c"].tone == "main"
    may_read.set()
    late._reader.join()
    assert late.styles(runs("c", "new"))["c"] == styles["c"]
    late.close()
    assert RunColours(tmp_path / FILE).styles(runs("b", "c"))["c"] == styles["c"]


@pytest.mark.parametrize(
    "text",
    ["", "{", "[]", '{"runs": 7}', '{"runs": [[1], ["s", "a", -1], ["s", "a", true], null]}'],
)
def test_a_damaged_file_costs_nothing(tmp_path, text):
    (tmp_path / FILE).write_text(text)
    colours = RunColours(tmp_path / FILE)
    assert colours.styles(runs("a"))["a"] == RunStyle("main", 0, "A")
    colours.close()
    assert json.loads((tmp_path / FILE).read_text()) == {"runs": [["sweep", "a", 0]]}


def test_a_home_that_cannot_be_written_costs_nothing(tmp_path):
    colours = RunColours(tmp_path / "gone" / FILE)
    assert colours.styles(runs("a"))["a"].tone == "main"
    colours.close()
    assert not (tmp_path / "gone").exists()


def test_two_cockpits_that_write_lose_no_run(tmp_path):
    one, other = RunColours(tmp_path / FILE), RunColours(tmp_path / FILE)
    for colours, name in ((one, "a"), (other, "b")):
        colours.styles(runs(name))
        colours.close()
    kept = json.loads((tmp_path / FILE).read_text())["runs"]
    assert {run for _, run, _ in kept} == {"a", "b"}


@pytest.mark.parametrize("experiment", ["\u6ce8" * 300, "e" * 300, "\ud800"])
def test_what_is_written_is_read_and_the_oldest_give_way(tmp_path, experiment):
    colours = RunColours(tmp_path / FILE)
    names = [f"{n:04}-{'r' * 60}" for n in range(4_100)]
    before = colours.styles([(name, experiment) for name in names])
    colours.close()
    assert (tmp_path / FILE).stat().st_size <= 1 << 20
    again = RunColours(tmp_path / FILE)
    kept = json.loads((tmp_path / FILE).read_bytes())["runs"]
    assert [run for _, run, _ in kept] == names[-len(kept) :]
    assert len(kept) >= 1_000
    assert again.styles([(names[-1], experiment)])[names[-1]].tone == before[names[-1]].tone
    assert again.styles([(names[-len(kept)], experiment)])
    again.styles([("new", experiment)])
    again.close()
    runs_now = [run for _, run, _ in json.loads((tmp_path / FILE).read_bytes())["runs"]]
    assert runs_now[-1] == "new"
    assert names[-1] in runs_now


# Machado, Oliveira and Fernandes (2009): what eyes see that lack one kind of cone, in linear RGB
_EYES = {
    "red": ((0.1523, 1.0526, -0.2049), (0.1145, 0.7863, 0.0992), (-0.0039, -0.0481, 1.0520)),
    "green": ((0.3673, 0.8607, -0.2280), (0.2801, 0.6725, 0.0474), (-0.0118, 0.0429, 0.9689)),
    "blue": ((1.2555, -0.0767, -0.1788), (-0.0784, 0.9308, 0.1476), (0.0047, 0.6914, 0.3039)),
}
_SEEN = ((1.0, 0.0, 0.0), (0.0, 1.0, 0.0), (0.0, 0.0, 1.0))


def oklab(colour: str, eye: tuple) -> tuple[float, ...]:
    """Ottosson's OKLab of a colour as an eye sees it, times 100."""
    parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    r, g, b = (max(0.0, sum(a * c for a, c in zip(row, linear, strict=True))) for row in eye)
    cones = (
        0.4122214708 * r + 0.5363325363 * g + 0.0514459929 * b,
        0.2119034982 * r + 0.6806995451 * g + 0.1073969566 * b,
        0.0883024619 * r + 0.2817188376 * g + 0.6299787005 * b,
    )
    lo, me, sh = (cone ** (1 / 3) * 100 for cone in cones)
    return (
        0.2104542553 * lo + 0.7936177850 * me - 0.0040720468 * sh,
        1.9779984951 * lo - 2.4285922050 * me + 0.4505937099 * sh,
        0.0259040371 * lo + 0.7827717662 * me - 0.8086757660 * sh,
    )


@pytest.mark.parametrize("look", [t for t in themes.ALL if not t.ansi], ids=lambda t: t.name)
def test_eight_tones_are_apart_on_their_ground(look):
    tones = [look.variables[f"line-{tone}"] for tone in RUN_TONES]

    def nearest(eye: tuple) -> float:
        seen = [oklab(tone, eye) for tone in tones]
        return min(math.dist(a, b) for a, b in itertools.combinations(seen, 2))

    assert nearest(_SEEN) > 8
    # where a theme is not made for these eyes some pairs are told apart by their dash alone
    least = 7.5 if look.name == "albor-colour-blind" else 2
    assert min(map(nearest, _EYES.values())) > least


def test_sixteen_colours_have_eight_of_their_own():
    assert len({themes.ANSI.variables[f"line-{tone}"] for tone in RUN_TONES}) == len(RUN_TONES)
