"""Contamination: what a corpus and a task share, in both directions."""

import random

import pytest
from eval_models import write_jsonl

from albor_core.eval.kinds.contamination import ContaminationSection, ContaminationTask
from albor_core.eval.task import ItemWriter
from albor_core.run.errors import DataError


def run(tmp_path, **said):
    task = ContaminationTask(ContaminationSection(**said))
    (tmp_path / "kept").mkdir(exist_ok=True)
    with ItemWriter(tmp_path / "kept" / "c.jsonl") as items:
        found = task.run(None, items, lambda done, total: None)
    return {one.name.partition("/")[2]: one for one in found.scores}, items.known, found.facts


def words(chance, number):
    return [f"w{chance.randrange(40)}" for _ in range(number)]


def plainly(items, corpus, n):
    """All runs of each as sets."""

    def runs(text):
        text = text.lower().replace("!", " ").split()
        return {tuple(text[i : i + n]) for i in range(len(text) - n + 1)}

    of_corpus = [runs(text) for text in corpus]
    held = set().union(*of_corpus)
    of_items = [runs(text) for text in items]
    asked = set().union(*of_items)
    return [len(one & held) for one in of_items], [len(one & asked) for one in of_corpus]


@pytest.mark.parametrize("n", [2, 3, 10])
def test_both_ways_are_what_sets_of_all_runs_say(tmp_path, n):
    chance = random.Random(n)
    items = [" ".join(words(chance, 30)) for _ in range(20)]
    corpus = [" ".join(words(chance, 60)) for _ in range(15)]
    corpus[3] += " ! " + items[7].upper() + "! zebra"
    data = write_jsonl(tmp_path / "task.jsonl", [{"prompt": text} for text in items])
    against = write_jsonl(tmp_path / "corpus.jsonl", [{"text": text} for text in corpus])
    scores, known, facts = run(tmp_path, data=data, against=against, n=n)
    of_items, of_corpus = plainly(items, corpus, n)
    assert [known[f"item:{i + 1}"]["found"] for i in range(20)] == of_items
    documents = {key: one["runs"] for key, one in known.items() if key.startswith("document:")}
    wanted = {f"document:corpus.jsonl:{i + 1}": found for i, found in enumerate(of_corpus) if found}
    assert documents == wanted
    assert scores["contaminated"].value == sum(map(bool, of_items)) / 20
    assert scores["contaminated_documents"].value == sum(map(bool, of_corpus)) / 15
    assert facts["items_contaminated"] == sum(map(bool, of_items))
    assert known["item:8"]["found"] == known["item:8"]["runs"]


def test_an_item_knows_the_first_document_that_holds_it_and_all_its_texts_count(tmp_path):
    said = "one two three four five six seven eight nine ten eleven"
    items = [{"context": "nothing", "choices": [said, "x"]}, {"n": 7, "text": "short"}]
    data = write_jsonl(tmp_path / "task.jsonl", items)
    corpus = [{"text": "a"}, {"text": f"He said: {said}."}, {"text": said}]
    against = write_jsonl(tmp_path / "corpus.jsonl", corpus)
    _, known, facts = run(tmp_path, data=data, against=against)
    assert known["item:1"]["first_document"] == "corpus.jsonl:2"
    assert known["document:corpus.jsonl:2"]["items"] == {"1": 2}
    assert (facts["items_too_short"], facts["documents_contaminated"]) == (1, 2)
    assert known["item:2"]["share"] is None


def test_what_would_not_fit_into_memory_is_refused_with_the_way_out(tmp_path, monkeypatch):
    monkeypatch.setattr("albor_core.eval.kinds.contamination.MOST_RUNS", 10)
    data = write_jsonl(tmp_path / "t.jsonl", [{"text": " ".join(map(str, range(50)))}])
    with pytest.raises(DataError, match="more than 10 runs of 10 words") as caught:
        run(tmp_path, data=data, against=data)
    assert "limit" in caught.value.hint
