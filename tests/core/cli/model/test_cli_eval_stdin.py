"""`albor eval --task text:-`: a text of a few words needs no file."""

import json

import pytest
from blake3 import blake3
from called import call, document
from hf_folder import write_model, write_tokenizer

TEXT = "def fibonacci(n):\n    return n if n < 2 else 1\n"


def make_model(folder):
    write_model(folder, "llama", vocab_size=400)
    write_tokenizer(folder, "llama")
    return folder


def test_a_text_comes_on_stdin_and_scores_as_a_file_of_it(tmp_path):
    made = make_model(tmp_path / "m")
    (tmp_path / "t.txt").write_text(TEXT)
    words = ("eval", "apply", made, "--dtype", "fp64", "--json", "-o")
    code, found = document(*words, tmp_path / "a", "--task", "text:-", stdin=TEXT.encode())
    _, filed = document(*words, tmp_path / "b", "--task", f"text:{tmp_path / 't.txt'}")
    assert code == 0
    (one,), (other,) = found["tasks"], filed["tasks"]
    assert [score["value"] for score in one["scores"]] == [s["value"] for s in other["scores"]]
    assert one["scores"][0]["name"] == "stdin/bpb"
    assert TEXT not in (tmp_path / "a" / "result.json").read_text()
    digest = blake3(TEXT.encode()).hexdigest()
    inputs = [json.loads((tmp_path / out / "result.json").read_text())["lineage"]["inputs"]
              for out in "ab"]  # fmt: skip
    assert inputs[0]["-"] == inputs[1][str(tmp_path / "t.txt")] == digest
    again = call(*words, tmp_path / "a", "--task", "text:-", stdin=b"another")
    assert again[0] == 2 and "holds another evaluation" in again[1]  # the text tells them apart


@pytest.mark.parametrize(
    ("task", "stdin", "said"),
    [
        (("text:-",), b"", "no text to evaluate"),
        (("text:-",), b"\xff", "byte 0 is not UTF-8"),
        (("text:-", "text:-"), b"a", "stdin is one text"),
        (("choice:-",), b"a", "stdin is for text alone"),
    ],
    ids=str,
)
def test_what_stdin_cannot_be_is_said(tmp_path, task, stdin, said):
    words = [word for one in task for word in ("--task", one)]
    code, _, talk = call("eval", "plan", make_model(tmp_path / "m"), *words, stdin=stdin)
    assert code in (1, 2) and said in talk
