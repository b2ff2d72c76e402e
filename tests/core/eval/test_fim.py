"""Holes: cut alike everywhere, asked with the sentinels, filled to the letter or not."""

import json

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from eval_models import make_model, subject_of, write_jsonl
from tokenizers import AddedToken, Tokenizer

from albor_core.eval.kinds.documents import TextDocument
from albor_core.eval.kinds.fim import FimSection, FimTask, cut_out, holes
from albor_core.eval.target import open_target
from albor_core.eval.task import ItemWriter
from albor_core.model.generate.infill import sentinels
from albor_core.run.errors import DataError

TEXT = "".join(f"line_{n} = {n}\n" + ("\n" if n % 3 == 0 else "") for n in range(12))
NAMES = ("<|fim_prefix|>", "<|fim_suffix|>", "<|fim_middle|>")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = make_model(tmp_path_factory.mktemp("model"), context=256)
    tokenizer = Tokenizer.from_file(str(made / "tokenizer.json"))
    tokenizer.add_special_tokens([AddedToken(name, special=True) for name in NAMES])
    tokenizer.save(str(made / "tokenizer.json"))
    return made


def run(subject, tmp_path, **said):
    task = FimTask(FimSection(**said))
    (tmp_path / "kept").mkdir(exist_ok=True)
    with ItemWriter(tmp_path / "kept" / "fim.jsonl") as items:
        found = task.run(subject, items, lambda done, total: None)
    return {one.name.partition("/")[2]: one for one in found.scores}, items.known


def test_a_hole_is_whole_lines_and_its_parts_are_the_text():
    section = FimSection(data="x", max_lines=3)
    for n in range(30):
        text = TEXT.replace("line", f"line{n}")
        hole = cut_out(TextDocument("d", text), section)
        assert hole.prefix + hole.middle + hole.suffix == text
        assert hole.prefix.endswith("\n") and hole.suffix.startswith("\n")
        assert hole.middle.strip() and not hole.middle.endswith("\n\n")


def test_holes_are_decided_by_text_and_seed_alone():
    once = cut_out(TextDocument("a", TEXT), FimSection(data="x"))
    assert once.middle == "line_4 = 4"  # on every machine
    again = cut_out(TextDocument("b", TEXT), FimSection(data="y"))
    assert (again.prefix, again.middle) == (once.prefix, once.middle)
    others = {
        cut_out(TextDocument("a", TEXT), FimSection(data="x", seed=s)).middle for s in range(20)
    }
    assert len(others) > 4


def test_texts_around_a_hole_are_cut_to_their_bytes_between_characters():
    text = "\u00e9" * 50 + "\nmiddle = 1\n" + "\u00e9" * 50
    hole = cut_out(TextDocument("a", text), FimSection(data="x", max_bytes=21))
    assert hole.middle == "middle = 1"
    assert hole.prefix == "\u00e9" * 4 + "\n" and hole.suffix == "\n" + "\u00e9" * 4


def test_parquet_and_lines_give_holes_and_short_texts_none(tmp_path):
    pq.write_table(pa.table({"code": [TEXT, "one line", TEXT + "#"]}), tmp_path / "d.parquet")
    found = [*holes(FimSection(data=tmp_path / "d.parquet", column="code"))]
    assert [one.item for one in found] == ["d.parquet:0", "d.parquet:2"]
    file = write_jsonl(tmp_path / "h.jsonl", [{"prefix": "a", "suffix": "c", "middle": "b"}])
    assert [one.middle for one in holes(FimSection(data=file))] == ["b"]
    with file.open("a") as more:
        more.write(json.dumps({"prefix": "a", "suffix": "c"}) + "\n")
    with pytest.raises(DataError, match=r"h\.jsonl:2: 'middle' is not text"):
        [*holes(FimSection(data=file))]


@pytest.mark.parametrize("order", ["psm", "spm"])
def test_the_model_is_asked_between_its_sentinels_and_judged_to_the_letter(folder, tmp_path, order):
    file = write_jsonl(
        tmp_path / "h.jsonl",
        [
            {"prefix": "def f():\n", "suffix": "\n    return x", "middle": "    x = 1"},
            {"prefix": "a", "suffix": "c <|fim_middle|>", "middle": "b\nd"},
        ],
    )
    subject, asked = subject_of(folder), []
    answers = ["x = 1  ", "b\nx"]
    subject.complete_ids = lambda prompts, **how: asked.extend(prompts) or answers
    scores, items = run(subject, tmp_path, data=file, order=order)
    prefix, suffix, middle = sentinels(subject.tokenizer)
    before, after = subject.encode("def f():\n"), subject.encode("\n    return x")
    wanted = {
        "psm": [prefix, *before, suffix, *after, middle],
        "spm": [prefix, suffix, *after, middle, *before],
    }
    assert asked[0] == wanted[order]
    assert asked[1].count(middle) == 1  # what looks like a sentinel in a text is text
    assert scores["exact_match"].value == 0.5
    assert scores["line_match"].value == 1.0
    assert items["2"]["completion"] == "b\nx"


def test_a_real_model_fills_holes_the_same_way_twice(folder, tmp_path):
    file = write_jsonl(tmp_path / "h.jsonl", [{"prefix": "a", "suffix": "c", "middle": "b"}] * 2)
    _, items = run(subject_of(folder), tmp_path, data=file, max_new_tokens=4)
    assert items["1"]["completion"] == items["2"]["completion"]


def test_a_tokenizer_without_sentinels_is_a_problem_of_the_plan(tmp_path):
    file = write_jsonl(tmp_path / "h.jsonl", [{"prefix": "a", "suffix": "c", "middle": "b"}])
    plain = make_model(tmp_path / "plain")
    found = FimTask(FimSection(data=file)).plan(open_target(plain))
    assert "no tokens for a prefix, a suffix and a middle" in str(found.problems[0])
    assert found.items == 1
