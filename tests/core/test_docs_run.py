"""Every command of README and the how-to pages is run as written, its documents validated.

Blocks fenced as `sh` run, line by line in one shell a block, in a folder where what they name is
there: source, shards, a small `configs/demo.yaml` and `train.yaml`, runs of every kind. RUN, RUN_A
and RUN_B stand for runs of the reader's. Only lines that begin with `albor ` are run: the rest
installs things or opens screens. Blocks that need a GPU or another tracker carry another fence.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import jsonschema
import pytest

from albor_core.documents.json_schema import names, schema_of

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs" / "how-to").glob("*.md"))]
SOURCES = ("albor_core", "albor_tui")  # 1 MB of Python: enough for a vocabulary of 4,096
SMALL = """
model: {path: ., mode: transformer, architecture: {hidden_size: 32, num_hidden_layers: 1,
  num_attention_heads: 2, num_key_value_heads: 1, intermediate_size: 64, vocab_size: 4096,
  max_position_embeddings: 256}}
data: {train: shards/train, val: shards/val, tokenizer: tokenizer.json, batch_size: 1, seq_len: 256}
optimizer: {name: adamw, lr: 3.0e-3}
training: {epochs: 1, max_steps: 12, warmup_steps: 2, output_dir: runs, eval_interval: 6,
  eval_batches: 1, num_threads: 1, device: cpu, checkpoint: {save_every: 6}}
monitoring: {system: {interval: 100}, alerts: [{condition: loss > 1, action: warn, message: high}]}
guard: {poll_s: 0.05, backoff_s: [0.05]}
"""


RECIPE = """
{name: our-code, import: {sources: [src, lib]}, quality: {profile: code},
 filter: {secrets: mask, personal_data: mask}, split: {by: file, train: 0.8, val: 0.1, test: 0.1},
 dedup: {near: true}, tokenizer: {vocab_size: 2048}, pretokenize: {seq_len: 256}}
"""


def blocks(page, language):
    return re.findall(rf"^```{language}\n(.*?)^```$", page.read_text(), re.M | re.S)


def commands(block):
    whole = block.replace("\\\n", " ")
    return [line for line in whole.splitlines() if line.startswith("albor ")]


RUNNABLE = [page for page in PAGES if any(map(commands, blocks(page, "sh")))]


class Reader:
    """Somebody who types what the pages say."""

    def __init__(self, folder):
        self.folder = folder
        (folder / "bin").mkdir()
        shim = folder / "bin" / "albor"
        shim.write_text(f'#!/bin/sh\nexec {sys.executable} -P -m albor_core.cli "$@"\n')
        shim.chmod(0o755)
        (folder / "bin" / "python").symlink_to(sys.executable)

    def type(self, script, home):
        path = f"{self.folder / 'bin'}:{os.environ['PATH']}"
        environment = {
            **os.environ, "PATH": path, "ALBOR_HOME": str(home), "OMP_NUM_THREADS": "1",
            "PYTHONPATH": str(ROOT),
        }  # fmt: skip
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script],
            cwd=self.folder, env=environment, stdin=subprocess.DEVNULL,
            capture_output=True, text=True, timeout=170,
        )  # fmt: skip
        assert done.returncode == 0, f"{script}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert "Traceback" not in done.stderr, done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def prepared(tmp_path_factory):
    """A folder with source, data and small configs, as the pages assume them."""
    folder = tmp_path_factory.mktemp("reader")
    reader = Reader(folder)
    for place, name in zip(("src", "lib"), SOURCES, strict=True):
        shutil.copytree(ROOT / name, folder / place, ignore=shutil.ignore_patterns("__pycache__"))
    (folder / "configs").mkdir()
    for path in ("configs/demo.yaml", "train.yaml"):
        (folder / path).write_text(SMALL)
    (folder / "corpus.yaml").write_text(RECIPE)
    home = tmp_path_factory.mktemp("reader-home")
    for line in (
        "albor data import src lib -o corpus.parquet",
        "albor tokenizer apply corpus.parquet -o tokenizer.json --vocab-size 4096",
        "albor data pretokenize corpus.parquet --tokenizer tokenizer.json -o shards --seq-len 256",
    ):
        reader.type(line, home)
    return reader


@pytest.fixture
def reader(prepared, albor_home, request):
    """The same data for every page, runs of its own, none left alive."""
    made, home = prepared, albor_home
    for folder in ("runs", "elsewhere", "box2-runs"):
        shutil.rmtree(made.folder / folder, ignore_errors=True)
    yield made
    for lock in [*(made.folder / "runs").glob("*"), *(home / "runs").glob("*")]:
        if (lock / "run.json").is_file():
            made.type(f"albor guard stop {lock} --wait 20 || true", home)


def copy_as_of(folder, host):
    """`runs` as `host-runs`, as if they came from that machine."""
    for run in (folder / "runs").iterdir():
        copy = folder / f"{host}-runs" / run.name
        shutil.copytree(run, copy)
        facts = json.loads((copy / "run.json").read_text())
        (copy / "run.json").write_text(json.dumps({**facts, "host": host}))


def validate(document):
    schema = schema_of(document["schema"].removesuffix("/1"))
    jsonschema.Draft202012Validator(schema).validate(document)


@pytest.mark.slow
@pytest.mark.timeout(240)
@pytest.mark.parametrize("page", RUNNABLE, ids=lambda page: page.stem)
def test_every_command_of_a_page_does_what_it_is_there_for(page, reader, albor_home):
    written = [commands(block) for block in blocks(page, "sh")]
    if re.search(r"\bRUN(_[AB])?\b", "\n".join(map("\n".join, written))):
        for name in ("mine", "yours"):
            reader.type(f"albor train apply train.yaml --name {name}", albor_home)
    for block in filter(None, written):
        script = "\n".join(block)
        script = re.sub(r"\bRUN(_A)?\b", "mine", re.sub(r"\bRUN_B\b", "yours", script))
        if "box2-runs" in script:
            copy_as_of(reader.folder, "box2")
        for line in reader.type(script, albor_home).splitlines():
            if line.startswith('{"schema":"albor.'):
                validate(json.loads(line))


@pytest.mark.slow
@pytest.mark.timeout(240)
def test_the_tutorial_ends_with_two_runs_compared(tmp_path, albor_home):
    """In a folder with some source; its runs on a smaller config than `albor init` wrote."""
    page = ROOT / "docs" / "tutorial.md"
    reader = Reader(tmp_path)
    for name in SOURCES:
        ignored = shutil.ignore_patterns("__pycache__")
        shutil.copytree(ROOT / name, tmp_path / name, ignore=ignored)
    written = [commands(block) for block in blocks(page, "sh")]
    shells = ["\n".join(block) for block in written if block]
    for script in shells:
        if "train apply" in script:
            (tmp_path / "train.yaml").write_text(SMALL)
        said = reader.type(script, albor_home)
        if "train plan" in script:
            assert said.rstrip().endswith("Ready")
        if "runs diff" in script:
            assert "verdict:" in said and "optimizer.lr" in said
    assert any("runs diff" in script for script in shells)


def test_every_document_that_a_page_shows_fits_its_schema():
    shown = [json.loads(block) for page in PAGES for block in blocks(page, "json")]
    for document in shown:
        validate(document)
    assert shown


def test_every_schema_that_a_page_names_is_published():
    for page in PAGES:
        named = set(re.findall(r"\b(albor\.[a-z.]+[a-z])/1\b", page.read_text()))
        named |= set(re.findall(r"`albor schema (albor\.[a-z.]+)`", page.read_text()))
        assert named <= set(names()), page.name


def test_the_pages_for_programs_are_among_those_that_run():
    assert {page.stem for page in RUNNABLE} >= {"README", "albor-for-agents", "find-runs"}
