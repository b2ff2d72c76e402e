"""Perplexity: each token scored once, and the same number as lm-evaluation-harness's rule gives."""

import math

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import torch
from eval_models import TEXTS, make_model, subject_of, write_jsonl
from lm_eval_rule import rolling_likelihood, their_windows

from albor_core.eval.kinds.perplexity import TextSection, TextTask
from albor_core.eval.kinds.windows import windows
from albor_core.eval.target import open_target
from albor_core.eval.task import ItemWriter
from albor_core.run.errors import AlborError, DataError


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_model(tmp_path_factory.mktemp("model"))


@pytest.fixture
def texts(tmp_path):
    packages = ["a", "a", "b", "b", "c/d"]
    table = pa.table({"text": TEXTS, "package": packages})
    pq.write_table(table, tmp_path / "held-out.parquet")
    return tmp_path / "held-out.parquet"


def run(subject, tmp_path, **section):
    task = TextTask(TextSection(**section))
    (tmp_path / "kept").mkdir(exist_ok=True)
    with ItemWriter(tmp_path / "kept" / f"{task.name}.jsonl") as items:
        return task.run(subject, items, lambda done, total: None), items.known


@pytest.mark.parametrize("length", [0, 1, 2, 7, 8, 9, 15, 16, 17, 40])
@pytest.mark.parametrize(("window", "stride"), [(8, 8), (8, 4), (8, 1), (8, 5), (64, 32)])
def test_windows_are_those_of_lm_evaluation_harness_and_score_each_token_once(
    length, window, stride
):
    ids = [*range(100, 100 + length)]
    ours = [*windows(ids, first=1, window=window, stride=stride)]
    assert ours == [*their_windows(ids, 1, window, window - stride + 1)]
    assert [token for _, scored in ours for token in scored] == ids
    assert all(len(context) + len(scored) <= window + 1 for context, scored in ours)


def test_without_a_prefix_the_first_token_is_context_alone():
    assert [*windows([5, 6, 7], first=None, window=2, stride=1)] == [([5], [6, 7])]
    assert [*windows([5], first=None, window=2, stride=1)] == []


@pytest.mark.parametrize("family", ["llama", "qwen2", "mistral"])
def test_rolling_likelihood_is_that_of_transformers_under_lm_evals_rule(tmp_path, family):
    from transformers import AutoModelForCausalLM

    folder = make_model(tmp_path / family, family)
    theirs = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32).eval()
    subject = subject_of(folder, dtype="fp32")
    write_jsonl(tmp_path / "t.jsonl", [{"text": text} for text in TEXTS])
    _, found = run(subject, tmp_path, data=tmp_path / "t.jsonl", stride=32)
    first = subject.ids.first
    for number, text in enumerate(TEXTS, 1):
        total = rolling_likelihood(theirs, subject.encode(text), first, 32)
        assert found[f"t.jsonl:{number}"]["logprob"] == pytest.approx(total, rel=1e-6, abs=1e-9)


def test_bits_per_byte_count_the_bytes_of_the_text_itself(folder, tmp_path, texts):
    result, records = run(subject_of(folder), tmp_path, data=texts, by="package")
    scores = {one.name: one for one in result.scores}
    logprob = math.fsum(one["logprob"] for one in records.values())
    size = sum(len(text.encode()) for text in TEXTS)
    assert scores["held-out/bpb"].value == pytest.approx(-logprob / math.log(2) / size)
    tokens = sum(len(subject_of(folder).encode(text)) for text in TEXTS)
    assert scores["held-out/ppl"].value == pytest.approx(math.exp(-logprob / tokens))
    assert result.facts["bytes"] == size and result.facts["tokens"] == tokens
    by_group = {one["group"]: one for one in result.facts["groups"]}
    assert {*by_group} == {"a", "b", "c/d"}
    assert scores["held-out/c-d/bpb"].value == by_group["c/d"]["bpb"]
    assert by_group["b"]["bytes"] == 1
    assert {one.better for one in result.scores} == {"min"}


def test_more_context_is_never_more_tokens(folder, tmp_path, texts):
    counts = set()
    for stride in (32, 16, 3):
        result, _ = run(subject_of(folder), tmp_path, data=texts, name=f"s{stride}", stride=stride)
        counts.add(result.facts["tokens"])
    assert len(counts) == 1


def test_with_nothing_before_a_text_its_first_token_counts_no_bytes(folder, tmp_path):
    file = tmp_path / "one.txt"
    file.write_text("fibonacci of n")
    subject = subject_of(folder)
    _, records = run(subject, tmp_path, data=file, prefix="none")
    encoded = subject.tokenizer.encode("fibonacci of n", add_special_tokens=False)
    assert records["one.txt"]["tokens"] == len(encoded.ids) - 1
    assert records["one.txt"]["bytes"] == 14 - encoded.offsets[0][1]


def test_what_was_done_before_a_kill_is_not_done_again(folder, tmp_path, texts):
    subject = subject_of(folder)
    whole, records = run(subject, tmp_path, data=texts)
    file = tmp_path / "kept" / "held-out.jsonl"
    lines = file.read_bytes().splitlines(keepends=True)
    file.write_bytes(b"".join(lines[:3]) + lines[3][:10])
    asked = []
    honest = subject.logprobs
    subject.logprobs = lambda pairs, *a: asked.append(len(pairs)) or honest(pairs, *a)
    again, known = run(subject, tmp_path, data=texts)
    assert again == whole and known == records
    assert file.read_bytes() == b"".join(lines)
    assert sum(asked) < 8


def test_files_of_text_are_documents_and_folders_their_packages(folder, tmp_path):
    for name, text in (("x/a.py", "x = 1"), ("x/b/c.py", "y = 2"), ("z/d.py", "z = 3")):
        (tmp_path / "src" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "src" / name).write_text(text)
    result, records = run(subject_of(folder), tmp_path, data=tmp_path / "src")
    assert [*records] == ["x/a.py", "x/b/c.py", "z/d.py"]
    assert {one["group"]: one["documents"] for one in result.facts["groups"]} == {"x": 2, "z": 1}


def test_a_plan_counts_without_weights_and_names_what_is_wrong(folder, tmp_path, texts):
    target = open_target(folder)
    found = TextTask(TextSection(data=texts)).plan(target)
    assert (found.items, found.problems) == (5, ())
    assert found.tokens > sum(len(target.encode(text)) for text in TEXTS)
    wrong = TextTask(TextSection(data=texts, column="body", window=99)).plan(target)
    said = "\n".join(map(str, wrong.problems))
    assert "above the model's context of 32" in said
    assert "no column 'body' (columns: text, package)" in said


@pytest.mark.parametrize(
    ("lines", "where"),
    [
        (['{"text": "a"}', "{broken"], r"t\.jsonl:2: is not JSON"),
        (['{"text": "a"}', "[1]"], r"t\.jsonl:2: is not a JSON object"),
        (['{"text": 1}'], r"t\.jsonl:1: 'text' is not text"),
        (["", '{"prose": "a"}'], r"t\.jsonl:2: no 'text' \(it has prose\)"),
    ],
)
def test_a_broken_line_is_named_by_file_and_line(folder, tmp_path, lines, where):
    (tmp_path / "t.jsonl").write_text("\n".join(lines))
    with pytest.raises(DataError, match=where):
        run(subject_of(folder), tmp_path, data=tmp_path / "t.jsonl")


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda p: None, "no such file or folder"),
        (lambda p: p.mkdir(), "holds no file"),
        (lambda p: p.write_bytes(b"\xff\xfe"), "is not UTF-8"),
    ],
)
def test_data_that_hold_no_texts_are_refused(folder, tmp_path, make, what):
    make(tmp_path / "data")
    with pytest.raises(AlborError, match=what):
        run(subject_of(folder), tmp_path, data=tmp_path / "data")
