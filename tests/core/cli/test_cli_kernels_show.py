"""`albor kernels show` of a run that was resumed: what was decided, whichever attempt did."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner, Result

from albor_core.cli.main import cli
from albor_core.documents.json_schema import schema_of
from albor_core.run.errors import DataError, NotFoundError
from albor_core.run.home.new_run import create_run
from albor_core.run.journal import Journal
from albor_core.run.rundir import RunDir

COMPARED = ("cosine", "max_error", "loss", "reference_loss", "rounded_cosine")
UNCOMPARED = {"how": "fused", "skipped": None}


def raced(backend: str, us: float) -> dict[str, Any]:
    figures = dict.fromkeys(("cosine", "rms_error", "max_error", "floor_share"))
    return {"backend": backend, "us": us, **figures}


RACED = [raced("triton", 21.5), raced("reference", 400.0)]


@pytest.fixture
def run(tmp_path: Path) -> RunDir:
    return create_run(tmp_path, "r1", experiment="exp", name="r1", kind="train", argv=["x"], seed=0)


def chosen(op: str, backend: str = "triton", **more: Any) -> tuple[str, dict[str, Any]]:
    about = {"op": op, "dtype": "bfloat16", "device": "cuda:0", "backend": backend}
    return "kernels.chosen", {**about, "evidence": "raced", "candidates": [], **more}


def rejected(op: str, reason: str) -> tuple[str, dict[str, Any]]:
    about = {"op": op, "dtype": "bfloat16", "device": "cuda:0", "backend": "triton"}
    return "kernels.rejected", {**about, "reason": reason}


def attempt(run: RunDir, number: int, *events: tuple[str, dict[str, Any]]) -> None:
    journal = Journal(run.journal, attempt=number)
    for name, data in events:
        journal.event(name, step=10 * number, **data)
    journal.close()


def shown(run: RunDir) -> dict[str, Any]:
    result = said(run, "--json")
    assert result.exit_code == 0, result.output
    found: dict[str, Any] = json.loads(result.stdout)
    jsonschema.Draft202012Validator(schema_of("albor.kernels.show")).validate(found)
    return found


def said(run: RunDir, *more: str) -> Result:
    return CliRunner().invoke(cli, ["kernels", "show", str(run.path), *more])


def ops(found: dict[str, Any]) -> dict[str, tuple[str, int]]:
    return {op["op"]: (op["backend"], op["attempt"]) for op in found["ops"]}


def test_what_an_earlier_attempt_decided_stands_until_it_is_decided_anew(run: RunDir) -> None:
    parity = ("kernels.parity", {"at": "load", **dict.fromkeys(COMPARED, 0.99), **UNCOMPARED})
    attempt(run, 1, chosen("rms_norm"), chosen("swiglu"), parity)
    attempt(run, 2, chosen("swiglu", "reference", candidates=RACED), chosen("qk_norm"))
    found = shown(run)
    assert found["attempt"] == 2
    assert ops(found) == {
        "rms_norm": ("triton", 1),
        "swiglu": ("reference", 2),
        "qk_norm": ("triton", 2),
    }
    assert [one["attempt"] for one in found["parity"]] == [1]
    attempt(run, 3, parity)
    assert ops(shown(run)) == ops(found)
    assert [one["attempt"] for one in shown(run)["parity"]] == [3]


def test_what_was_measured_stays_where_a_resumed_attempt_takes_it_over(run: RunDir) -> None:
    attempt(run, 1, chosen("rms_norm", candidates=RACED))
    attempt(run, 2, chosen("rms_norm", evidence="asked for, not measured"))
    (op,) = shown(run)["ops"]
    assert (op["candidates"], op["evidence"]) == (RACED, "raced")
    attempt(run, 3, chosen("rms_norm", "reference", evidence="asked for, not measured"))
    assert ops(shown(run)) == {"rms_norm": ("reference", 3)}


def test_a_rejection_is_told_as_long_as_it_is_what_decides(run: RunDir) -> None:
    whole = ("kernels.rejected", {"backend": "fused", "reason": "logits differ"})
    attempt(run, 1, chosen("rms_norm", "reference"), rejected("rms_norm", "too far"), whole)
    assert [one["reason"] for one in shown(run)["rejected"]] == ["too far", "logits differ"]
    attempt(run, 2, chosen("swiglu"))  # whose step was fused after all
    assert [one["reason"] for one in shown(run)["rejected"]] == ["too far"]
    attempt(run, 3, chosen("rms_norm"))
    assert shown(run)["rejected"] == []


@pytest.mark.parametrize("content", ["garbage", "garbage\n", "\0\0\n{}\n"])
def test_a_journal_of_which_no_line_can_be_read_is_damaged(run: RunDir, content: str) -> None:
    run.journal.write_text(content)
    result = said(run)
    assert isinstance(result.exception, DataError), result.output
    assert result.exception.message == f"{run.journal}: is damaged: no line of it can be read"
    assert result.exception.hint == f"albor db check {run.path}"
    assert result.exception.exit_code == 7


def test_a_journal_that_is_missing_is_told_where_the_run_has_begun(run: RunDir) -> None:
    result = said(run)
    assert (result.exit_code, "has not begun to train" in result.stdout) == (0, True)
    run.state.write_text("{}")
    result = said(run)
    assert isinstance(result.exception, NotFoundError), result.output
    assert result.exception.message == f"{run.journal}: is missing"
    assert result.exception.hint == f"albor db check {run.path}"


def test_a_journal_that_is_no_file_is_told(run: RunDir) -> None:
    run.journal.mkdir()
    result = said(run)
    assert isinstance(result.exception, DataError), result.output
    assert result.exception.message == f"{run.journal}: is a folder, not a plain file"


def test_lines_that_are_damaged_are_left_out_and_counted(run: RunDir) -> None:
    attempt(run, 1, chosen("rms_norm"))
    with run.journal.open("a") as file:
        file.write("garbage\n" * 2)
    attempt(run, 2, chosen("swiglu"))
    assert ops(shown(run)) == {"rms_norm": ("triton", 1), "swiglu": ("triton", 2)}
    assert shown(run)["damaged_lines"] == 2
    result = said(run)
    assert "rms_norm" in result.stdout
    skipped = f"2 damaged lines skipped in {run.journal}; next: albor db check {run.path}"
    assert skipped in result.stderr


def test_that_nothing_is_told_of_kernels_may_be_for_lines_that_are_damaged(run: RunDir) -> None:
    journal = Journal(run.journal, attempt=1)
    journal.event("run.start")
    journal.close()
    assert "recorded no kernels: " in said(run).stdout
    with run.journal.open("a") as file:
        file.write("garbage\n")
    result = said(run)
    assert "recorded no kernels in the lines that are left: " in result.stdout
    assert "1 damaged line skipped" in result.stderr
