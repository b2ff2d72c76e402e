"""The step `filter`: what stays, what is masked, and what its record says."""

from __future__ import annotations

import hashlib

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from albor_core.data.clean import token_lengths
from albor_core.data.clean.filter import DocumentFilter
from albor_core.data.clean.licences import allowed_ids, is_allowed
from albor_core.data.clean.token_lengths import TokenCounter
from albor_core.data.stage import units
from albor_core.data.stage.stage import run_step
from albor_core.run.errors import DataError, UsageError

MAIL = "write to jane.doe@uni-bonn.de or call (301) 373-9601\n"
KEY = "AK" + "IA" + "Z7Q2M4X5B3N6C2V7"
LEAK = f"aws_access_key_id = {KEY}\n"
PLAIN = "def add(a, b):\n    return a + b\n"


def table(texts, **columns):
    names = {"source": ["s"] * len(texts), "file": [f"{n}.py" for n in range(len(texts))]}
    return pa.table({"text": texts, **names, **columns})


def reasons(counts):
    return {key.split("/")[1]: why for why, keys in counts.examples.items() for key in keys}


@pytest.mark.parametrize(
    ("secrets", "personal", "kept", "dropped"),
    [
        ("keep", "keep", [PLAIN, MAIL, LEAK, LEAK + MAIL], {}),
        (
            "mask", "mask",
            [PLAIN, "write to <EMAIL> or call <PHONE>\n", "aws_access_key_id = <SECRET>\n",
             "aws_access_key_id = <SECRET>\nwrite to <EMAIL> or call <PHONE>\n"],
            {},
        ),
        ("drop", "keep", [PLAIN, MAIL], {"2.py": "secret", "3.py": "secret"}),
        ("keep", "drop", [PLAIN, LEAK], {"1.py": "personal_data", "3.py": "personal_data"}),
        (
            "mask", "drop", [PLAIN, "aws_access_key_id = <SECRET>\n"],
            {"1.py": "personal_data", "3.py": "personal_data"},
        ),
        ("drop", "drop", [PLAIN], {"1.py": "personal_data", "2.py": "secret", "3.py": "secret"}),
    ],
)  # fmt: skip
def test_documents_are_dropped_or_masked(secrets, personal, kept, dropped):
    step = DocumentFilter(secrets=secrets, personal_data=personal)
    before = table([PLAIN, MAIL, LEAK, LEAK + MAIL], stars=[1, 2, 3, 4])
    after, counts = step.apply(before)
    assert after.column("text").to_pylist() == kept
    assert after.schema == before.schema
    assert reasons(counts) == dropped
    total = counts.total
    assert (total.documents_in, total.documents) == (4, len(kept))
    assert total.bytes_in == sum(len(t) for t in before.column("text").to_pylist())
    assert total.bytes == sum(map(len, kept)), "of what is written, masks and all"


def test_record_counts_each_kind_wherever_it_was_found():
    _, counts = DocumentFilter(secrets="drop", personal_data="mask").apply(
        table([MAIL, MAIL, LEAK + LEAK + MAIL])
    )
    assert counts.extra == {"personal:email": 2, "personal:phone": 2, "secret:aws-key": 2}


@pytest.mark.parametrize(
    ("expression", "allowed"),
    [
        ("MIT", True), ("mit", True), ("GPL-3.0-only", False), ("MIT OR GPL-3.0-only", True),
        ("MIT AND GPL-3.0-only", False), ("(MIT AND Apache-2.0) OR GPL-3.0-only", True),
        ("MIT AND (Apache-2.0 OR GPL-3.0-only)", True), ("GPL-3.0-only OR MIT AND X", False),
        ("Apache-2.0 WITH LLVM-exception", True), ("Apache-2.0 WITH LLVM-exception AND X", False),
        ("X OR Y OR MIT", True), ("(((MIT)))", True), ("MIT and apache-2.0", True),
        ("", False), ("MIT Apache-2.0", False), ("OR MIT", False), ("MIT OR", False),
        ("(MIT", False), ("MIT)", False), ("()", False), ("MIT; DROP TABLE", False),
        ("(" * 400 + "MIT" + ")" * 400, True), ("(" * 999, False), ("MIT " * 1000, False),
        ("MIT OR " * 100 + "MIT", True), ("MIT\u00a0OR X", True), ("AND", False),
    ],
)  # fmt: skip
def test_expressions_of_licences(expression, allowed):
    assert is_allowed(expression, allowed_ids(["Apache-2.0", "MIT"])) is allowed


def test_licences_that_are_not_identifiers_are_refused():
    assert allowed_ids(["MIT", "apache-2.0", "MIT", "LicenseRef-Ours"]) == (
        "apache-2.0", "licenseref-ours", "mit",
    )  # fmt: skip
    for wrong, hint in (("Apache2.0", "Apache-2.0"), ("MIT OR X", "such as"), ("", "such as")):
        with pytest.raises(UsageError) as refused:
            allowed_ids([wrong])
        assert hint in refused.value.hint


def test_documents_stay_by_licence():
    given = ["MIT", "GPL-3.0-only", None, "MIT OR GPL-3.0-only", "NOASSERTION", ""]
    texts = table([PLAIN] * 6, licence=pa.array(given))
    for ids, none, stays in (
        (("mit",), "drop", [0, 3]),
        (("mit",), "keep", [0, 2, 3, 4, 5]),
        ((), "drop", [0, 1, 3]),
        ((), "keep", [0, 1, 2, 3, 4, 5]),
    ):
        kept, counts = DocumentFilter(licences=ids, no_licence=none).apply(texts)
        assert kept.column("file").to_pylist() == [f"{n}.py" for n in stays]
        assert set(reasons(counts).values()) <= {"licence"}
    encoded = texts.set_column(3, "licence", texts["licence"].dictionary_encode())
    assert DocumentFilter(licences=("mit",), no_licence="drop").apply(encoded)[0].num_rows == 2
    assert DocumentFilter(licences=("mit",)).apply(table([PLAIN]))[0].num_rows == 1
    with pytest.raises(DataError, match="no column licence"):
        DocumentFilter(licences=("mit",), no_licence="drop").apply(table([PLAIN]))
    with pytest.raises(DataError, match="holds list"):
        DocumentFilter(licences=("mit",)).apply(table([PLAIN], licence=[["MIT"]]))


class Words:
    """A tokenizer: a token a word."""

    def __init__(self, path):
        self.calls = []

    def encode_batch(self, texts, *, add_special_tokens):
        assert self.encode_special_tokens and not add_special_tokens
        self.calls.append(len(texts))
        return [text.split() for text in texts]

    def encode(self, text, *, add_special_tokens):
        assert not add_special_tokens
        self.calls.append(text)
        return text.split()


def test_lengths_are_of_the_text_that_is_written_and_both_ends_belong_to_it(tmp_path):
    counter = TokenCounter(tmp_path / "words.json", Words, "0" * 64)
    texts = ["a", "a b", "a b c", "a b c d", MAIL, "x " * 50 + LEAK]
    step = DocumentFilter(
        secrets="drop", personal_data="mask", min_tokens=2, max_tokens=6, tokenizer=counter
    )
    kept, counts = step.apply(table(texts))
    assert reasons(counts) == {"0.py": "too_few_tokens", "5.py": "secret"}
    assert kept.column("text").to_pylist()[-1] == "write to <EMAIL> or call <PHONE>\n"
    _, counts = DocumentFilter(min_tokens=3, tokenizer=counter).apply(table(texts[:3]))
    assert reasons(counts) == {"0.py": "too_few_tokens", "1.py": "too_few_tokens"}
    _, counts = DocumentFilter(max_tokens=2, tokenizer=counter).apply(table(texts[:3]))
    assert reasons(counts) == {"2.py": "too_many_tokens"}


def test_long_documents_are_counted_in_pieces_and_no_further_than_needed(tmp_path, monkeypatch):
    monkeypatch.setattr(token_lengths, "_PIECE", 8)
    monkeypatch.setattr(token_lengths, "_BATCH", 12)
    made = []
    counter = TokenCounter(
        tmp_path / "w.json", lambda file: made.append(Words(file)) or made[0], ""
    )
    texts = ["a b c", "a b", "", "a b c d e f g h i j k l", "a b c d", "a"]
    assert list(counter.count(texts)) == [3, 2, 0, 12, 4, 1]
    assert made[0].calls == [3, "a b c d ", "e f g h ", "i j k l", 2]
    made[0].calls.clear()
    assert list(counter.count(["a b c d e f g h i j"], 5)) == [8]
    assert made[0].calls == [0, "a b c d ", "e f g h ", 0]


HOSTILE = [
    "",
    "\x00" * 1000,
    " " * 1000,
    "\ufffd\ufffd",
    "\u4f60" * 1000,
    "a" * 2_000_000,
    "@" * 1000,
]


def test_hostile_documents_come_out_as_they_went_in():
    kept, counts = DocumentFilter(secrets="mask", personal_data="mask").apply(table(HOSTILE))
    assert kept.column("text").to_pylist() == HOSTILE and not counts.extra


@pytest.mark.slow
def test_corpus_is_the_same_by_one_process_and_two_and_needs_no_second_mask(tmp_path, monkeypatch):
    monkeypatch.setattr(units, "UNIT_BYTES", 1)
    texts = [(PLAIN, MAIL, LEAK, LEAK + MAIL)[n % 4] + f"# {n}\n" for n in range(60)]
    pq.write_table(table(texts), tmp_path / "c.parquet", row_group_size=9)
    step = DocumentFilter(secrets="mask", personal_data="mask")
    made = [
        run_step(tmp_path / "c.parquet", tmp_path / f"{n}.parquet", step, workers=n) for n in (1, 2)
    ]
    hashes = {hashlib.sha256(report.out.read_bytes()).hexdigest() for report in made}
    assert len(hashes) == 1
    record = made[0].record
    assert record.counts.extra == {
        "personal:email": 30, "personal:phone": 30, "secret:aws-key": 30,
    }  # fmt: skip
    written = pq.read_table(tmp_path / "1.parquet").column("text").to_pylist()
    assert record.bytes == sum(map(len, written)) and record.documents == 60
    assert KEY not in "".join(written) and "uni-bonn" not in "".join(written)
    again = run_step(
        tmp_path / "1.parquet",
        tmp_path / "again",
        DocumentFilter(secrets="drop", personal_data="drop"),
    )
    assert again.record.documents == 60 and not again.record.counts.extra
