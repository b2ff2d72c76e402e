"""`albor data import --plan`, `pretokenize --plan`: what would be read and written; and what a
terminal shows of a long wait.
"""

from __future__ import annotations

import os
import pty

import pytest
from cli_user import ALBOR, tree_hash, valid

PACK = ("pretokenize", "corpus.parquet", "--tokenizer", "tokenizer.json", "--seq-len", "32",
        "--val-fraction", "0.2")  # fmt: skip


def test_the_plan_of_an_import_is_what_the_import_then_does_and_writes_nothing(room):
    (room.folder / "src" / "empty.py").touch()
    before = tree_hash(room.folder)
    words = ("data", "import", "src", "-o", "new.parquet")
    plan = valid(room.quick(*words, "--plan", "--json"))["detail"]
    assert tree_hash(room.folder) == before
    done = valid(room.quick(*words, "--json"))
    assert plan["action"] == "write" and plan["skipped"]["empty"] >= 1
    assert [plan[key] for key in ("files", "bytes", "skipped")] == [
        done[key] for key in ("files", "bytes", "skipped")
    ]
    assert valid(room.quick(*words, "--plan", "--json"))["detail"]["action"] == "keep"
    told = room.quick(*words, "--plan")
    assert told.code == 0 and "nothing was written" in told.out


def test_the_plan_of_packing_estimates_what_packing_then_makes(room):
    before = tree_hash(room.folder)
    words = ("data", *PACK, "-o", "packed")
    plan = valid(room.quick(*words, "--plan", "--json"))["detail"]
    assert tree_hash(room.folder) == before and plan["action"] == "write"
    made = valid(room.quick(*words, "--json"))["splits"]
    tokens = sum(split["tokens"] for split in made.values())
    assert plan["tokens"] == pytest.approx(tokens, rel=0.1)
    assert valid(room.quick(*words, "--plan", "--json"))["detail"]["action"] == "keep"
    other = room.quick(*words, "--packing", "best-fit", "--plan", "--json")
    assert other.code == 1 and "(not the same: packing)" in other.document["problems"][0]["message"]


def test_plan_and_result_say_how_whole_the_documents_are(room):
    cut = {}
    for way in ("concat", "best-fit"):
        words = ("data", *PACK, "-o", way, "--packing", way)
        plan = valid(room.quick(*words, "--plan", "--json"))["detail"]
        told = room.quick(*words)
        made = valid(room.quick(*words, "--json"))
        assert plan["packing"] == made["packing"] == way
        train = made["splits"]["train"]
        cut[way] = train["cut_documents"]
        assert f"{train['cut_documents'] / train['documents']:.1%} of documents cut" in told.out
        begun = train["rows_from_start"] / train["sequences"]
        assert f"{begun:.1%} of sequences begin with a document" in told.out
        assert plan["share_cut"] == pytest.approx(cut[way] / train["documents"], abs=0.2)
        assert plan["share_from_start"] == pytest.approx(begun, abs=0.2)
    assert cut["best-fit"] <= cut["concat"]
    wrong = room.quick("data", *PACK, "-o", "other", "--packing", "tight")
    assert wrong.code == 2 and "'concat', 'best-fit'" in wrong.err
    assert not (room.folder / "other").exists()


def test_a_plan_names_every_problem_at_once_and_ends_with_one(room):
    before = tree_hash(room.folder)
    told = room.quick(
        "data", "import", "nowhere", "-o", "no/such/folder.parquet", "--plan", "--json"
    )
    assert told.code == 1 and len(told.document["problems"]) == 2, told
    words = ("nothing.parquet", "--tokenizer", "none.json", "-o", "p", "--seq-len", "1")
    told = room.quick("data", "pretokenize", *words, "--plan", "--json")
    assert told.code == 1 and len(told.document["problems"]) == 3, told
    other = room.quick("data", "import", "src", "-o", "tokenizer.json", "--plan", "--json")
    assert other.code == 1 and "exists and holds" in other.document["problems"][0]["message"]
    assert tree_hash(room.folder) == before


def test_an_import_tells_from_which_column_it_took_the_text_and_what_has_another(room):
    lines = '{"content": "a"}\n{"text": "b"}\n{"text": "c"}\n'
    (room.folder / "mixed.jsonl").write_text(lines)
    (room.folder / "other.csv").write_text("body\nd\n")
    told = room.quick("data", "import", "mixed.jsonl", "other.csv", "-o", "mixed", "--plan")
    assert "mixed.jsonl: text taken from `content`" in told.out
    assert "2 rows have `text` instead: --column text takes those" in told.out
    assert "other.csv: text taken from `body`" in told.out
    made = valid(room.quick("data", "import", "mixed.jsonl", "-o", "mixed", "--json"))
    assert made["sources"][0]["elsewhere"] == {"text": 2}


def test_an_import_of_rows_tells_what_it_left_out_and_where(room):
    (room.folder / "rows.jsonl").write_text('{"code": "a = 1"}\nnot json\n{"code": 7}\n')
    told = room.quick("data", "import", "rows.jsonl", "-o", "rows")
    assert "rows: 1 document, 5 bytes; skipped 1 no_text, 1 not_json" in told.out
    assert "such as rows.jsonl/2" in told.out and told.err == ""
    again = valid(room.quick("data", "import", "rows.jsonl", "-o", "rows", "--json"))
    assert again["reused"] and again["examples"] == {
        "no_text": ["rows.jsonl/3"], "not_json": ["rows.jsonl/2"],
    }  # fmt: skip
    assert [one["column"] for one in again["sources"]] == ["code"]
    (room.folder / "rows.jsonl").write_text("[]\n")
    refused = room.quick("data", "import", "rows.jsonl", "-o", "rows", "--json")
    assert refused.code == 7 and "line 1 is not an object" in refused.error["message"]
    taken = room.quick("data", "import", "src", "-o", "rows")
    assert taken.code == 2 and "--force" in taken.err


def on_a_terminal(room, *words):
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(room.folder)
        os.execve(ALBOR[0], [*ALBOR, *words], room.environment())
    told = b""
    try:
        while block := os.read(terminal, 4096):
            told += block
    except OSError:  # it has ended
        pass
    os.close(terminal)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0, told
    return told.decode()


def test_a_terminal_shows_how_far_the_packing_is_and_a_pipe_does_not(room):
    assert "documents packed" in on_a_terminal(room, "data", *PACK, "-o", "packed")
    assert room.quick("data", *PACK, "-o", "again").err == ""
