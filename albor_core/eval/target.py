"""The model to evaluate, as described by its folder: no weights, no torch."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from blake3 import blake3
from tokenizers import Tokenizer

from albor_core.data.pack.special_tokens import SpecialIds, special_ids
from albor_core.data.pack.tokenizer import load_tokenizer
from albor_core.model.hf.folder import ModelFolder, misfits, open_model, tokenizer_problems
from albor_core.outputs.identity import hash_of_file
from albor_core.run import checkpoints
from albor_core.run.errors import AlborError, NoCheckpointError, NotFoundError, Problem
from albor_core.run.rundir import RunDir, read_json


@dataclass(frozen=True)
class Target:
    """A folder of weights. `run` and `step` say of which run it is a checkpoint, if it is one."""

    folder: ModelFolder
    tokenizer: Tokenizer
    """Takes what looks like a special token in a text for text."""
    ids: SpecialIds
    run: RunDir | None = None
    step: int | None = None

    @property
    def path(self) -> Path:
        return self.folder.path

    @property
    def name(self) -> str:
        """The name of the model for people and in results."""
        return self.path.name if self.run is None else f"{self.run.id}/{self.path.name}"

    @property
    def max_context(self) -> int:
        """The longest context of the model, in tokens."""
        return self.folder.shape.max_position_embeddings

    def encode(self, text: str) -> list[int]:
        """The ids of a text, without any special token before or after it."""
        ids: list[int] = self.tokenizer.encode(text, add_special_tokens=False).ids
        return ids

    def problems(self) -> Iterator[Problem]:
        """Mismatches of weights and tokenizer with config.json."""
        shape, hint = self.folder.shape, f"albor model verify {self.path}"
        for what in (*misfits(shape, self.folder.weights), *tokenizer_problems(self.path, shape)):
            yield Problem("model", what, hint)


def open_target(path: Path) -> Target:
    """Read headers and tokenizer of the folder. Raises AlborError."""
    folder = open_model(path)
    try:
        tokenizer = load_tokenizer(path)
    except NotFoundError as error:
        what = f"{path}: no tokenizer.json, and texts are evaluated"
        hint = "put the tokenizer that it was trained with beside the weights"
        raise NotFoundError(what, hint=hint) from error
    tokenizer.encode_special_tokens = True
    run, step = run_of(path)
    return Target(folder, tokenizer, special_ids(tokenizer, path), run, step)


def run_of(path: Path) -> tuple[RunDir | None, int | None]:
    """The run that a folder is a checkpoint of, judged by its path, and its step."""
    whole = path.resolve()
    step = checkpoints.step_of(whole.name)
    run = RunDir(whole.parent.parent)
    if step is None or whole.parent != run.checkpoints or not run.run_json.is_file():
        return None, None
    return run, step


def weights_hash(target: Target) -> str:
    """BLAKE3 of all weight files and their names, every byte read.

    Raises NoCheckpointError if a checkpoint's manifest has another hash, OSError.
    """
    digest, manifest = blake3(), read_json(target.path / checkpoints.MANIFEST) or {}
    stated = manifest.get("files")
    for file in target.folder.weights.files:
        found = hash_of_file(file)
        told = stated.get(file.name) if isinstance(stated, dict) else None
        if isinstance(told, dict) and told.get("algo") == "blake3" and told.get("hash") != found:
            hint = f"albor checkpoints verify {target.run.id}" if target.run else "fetch it again"
            raise NoCheckpointError(f"{file} is damaged (its blake3 hash differs)", hint=hint)
        digest.update(f"{file.name}\0{found}\n".encode())
    return digest.hexdigest()


def checkpoint_of(run: RunDir, step: int | None = None) -> Path:
    """The checkpoint of a step, or the newest one. Raises NotFoundError."""
    hint = f"albor checkpoints ls {run.id}"
    if step is None:
        newest = checkpoints.newest(run.checkpoints)
        if newest is None:
            raise NotFoundError(f"{run.id} has no checkpoint", hint=hint)
        return newest[1]
    path = run.checkpoints / checkpoints.name_of(step)
    if not path.is_dir():
        raise NotFoundError(f"{run.id} has no checkpoint of step {step}", hint=hint)
    return path


def problem_of(field: str, error: AlborError) -> Problem:
    """A plan's problem for an error that `run` would raise."""
    return Problem(field, error.message, error.hint)
