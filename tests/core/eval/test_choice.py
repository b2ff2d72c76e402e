"""Choices: the likeliest after its context, ties and lengths as stated."""

import pytest
from eval_models import make_model, subject_of, write_jsonl

from albor_core.eval.kinds.choice import ChoiceSection, ChoiceTask, parted, read_questions
from albor_core.eval.result import Likelihood
from albor_core.eval.target import open_target
from albor_core.eval.task import ItemWriter
from albor_core.run.errors import DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


def run(subject, file):
    task = ChoiceTask(ChoiceSection(data=file))
    kept = file.parent / "kept"
    kept.mkdir(exist_ok=True)
    with ItemWriter(kept / "items.jsonl") as items:
        found = task.run(subject, items, lambda done, total: None)
    return {one.name.partition("/")[2]: one for one in found.scores}, items.known, found.facts


def said(subject, sums):
    """The subject, answering with these likelihoods."""
    left = iter(sums)
    subject.logprobs = lambda pairs: [Likelihood(next(left), len(c), False) for _, c in pairs]
    return subject


def test_accuracy_is_of_the_likeliest_and_its_norm_of_the_likeliest_a_character(folder, tmp_path):
    file = write_jsonl(
        tmp_path / "ask.jsonl",
        [
            {"context": "x", "choices": [" a", " much longer"], "answer": 1},
            {"context": "x", "choices": [" a", " b"], "answer": " b"},
        ],
    )
    scores, items, _ = run(said(subject_of(folder), [-2.0, -3.0, -1.0, -5.0]), file)
    assert (scores["accuracy"].value, scores["accuracy_norm"].value) == (0.0, 0.5)
    assert (scores["accuracy"].n, scores["accuracy"].better) == (2, "max")
    assert scores["accuracy_norm"].stderr == pytest.approx(0.5)
    assert (items["1"]["chosen"], items["1"]["chosen_norm"]) == (0, 1)


@pytest.mark.slow
def test_of_equal_choices_the_first_is_taken_and_ties_are_counted(folder, tmp_path):
    file = write_jsonl(
        tmp_path / "t.jsonl", [{"context": "x", "choices": [" a", " b", " a"], "answer": 2}]
    )
    scores, items, facts = run(subject_of(folder), file)
    assert items["1"]["logprobs"][0] == items["1"]["logprobs"][2]
    assert facts["ties"] == (items["1"]["chosen"] == 0)
    scores, items, facts = run(said(subject_of(folder), [-1.0, -2.0, -1.0]), new(file))
    assert (items["1"]["chosen"], facts["ties"], scores["accuracy"].value) == (0, 1, 0.0)


def new(file):
    (file.parent / "kept" / "items.jsonl").unlink()
    return file


def test_likelihoods_are_of_the_text_as_it_stands_and_blanks_belong_to_the_choice(folder):
    encode = subject_of(folder).encode
    for context, choice in (("def f", "ib"), ("x = ", "1"), ("x =", " 1"), ("a\n", "b"), ("", "b")):
        before, after = parted(encode, context, choice, 7)
        whole = [*before, *after]
        assert whole == ([7] if not context else []) + encode(context + choice)
        assert after
    assert parted(encode, "x = ", "1", 7) == parted(encode, "x =", " 1", 7)


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "q.jsonl:2: is not JSON"),
        ('{"choices": ["a", "b"], "answer": 0}', "q.jsonl:2: 'context' is not text"),
        ('{"context": "x", "choices": ["a"], "answer": 0}', "q.jsonl:2: 'choices' is not a list"),
        ('{"context": "x", "choices": ["a", ""], "answer": 0}', "q.jsonl:2: a choice is empty"),
        ('{"context": "x", "choices": ["a", "b"], "answer": 2}', "'answer' 2 is not one of the 2"),
        ('{"context": "x", "choices": ["a", "a"], "answer": "a"}', "'answer' 'a' is not one of"),
        ('{"context": "x", "choices": ["a", "b"], "answer": true}', "'answer' True is not one"),
    ],
)
def test_a_broken_line_is_named_by_file_and_line(tmp_path, line, what):
    file = tmp_path / "q.jsonl"
    file.write_text('{"context": "x", "choices": ["a", "b"], "answer": 0}\n' + line + "\n")
    with pytest.raises(DataError, match=what) as caught:
        read_questions(file)
    assert caught.value.hint
    assert len(read_questions(file, 1)) == 1


def test_a_plan_counts_tokens_and_names_a_choice_that_no_context_holds(folder, tmp_path):
    items = [{"context": "x", "choices": [" a", " b" * 40], "answer": 0}]
    file = write_jsonl(tmp_path / "long.jsonl", items)
    found = ChoiceTask(ChoiceSection(data=file)).plan(open_target(folder))
    assert found.items == 1 and found.tokens > 40
    assert "above the model's context of 32" in str(found.problems[0])
