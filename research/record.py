"""What a recorded run holds: all that tells of the run, and nothing of the machine beside it.

Of a run directory a record has the files that `albor runs pull` would copy, and its evaluations.
It leaves out or blanks

- weights and traces, for their size; locks, stores and reports, which are made from the rest;
  launch.json, which could start something, and what the watcher keeps for itself;
- the machine: host, kernel, boot, load, memory and disks, environment, user, uuids of GPUs;
- what was held out: of a line to be filled in, whether it was met, and what the model wrote;
- its surroundings: GPUs that the run did not use, all processes but its own, what the guard noted
  of them before a start, and the files beside the code that git does not track;
- where it was: a folder below that of the runs is told from there (runs/proof/checkpoints), a file
  of the code from the root of the repository, a program by its name. What the program printed and
  the file of the config stay as they are: others count their bytes.

Lines of journals that change by this get their checksum anew; the rest are the bytes of the run.
"""

from __future__ import annotations

import io
import json
import tarfile
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from albor_core.integrations.importers.copies.copied_runs import HEADS, is_wanted
from albor_core.run.journal import parse_json, parse_line, written_line
from albor_core.run.rundir import RunDir, load_json

NO_BOOT = "00000000-0000-0000-0000-000000000000"  # never that of a machine which reads it
BESIDE_THE_RUN = ("guard.preflight_note",)  # events that tell of other programs
LEFT_OUT = ("traces", "checkpoints")
_LINES = ".jsonl"


def write_record(run: RunDir, file: Path) -> int:
    """Pack the record of an ended run as FILE.tar.xz, below the run's id; bytes. The same run gives
    the same bytes.
    """
    part = file.with_name(f"{file.name}.part")
    ended = int((load_json(run.exit)).get("wall", 0))
    with tarfile.open(part, "w:xz", preset=9) as packed:
        for name, content in record_files(run):
            info = tarfile.TarInfo(f"{run.own_id}/{name}")
            info.size, info.mtime, info.mode = len(content), ended, 0o600
            packed.addfile(info, io.BytesIO(content))
    part.replace(file)
    return file.stat().st_size


def record_files(run: RunDir) -> Iterator[tuple[str, bytes]]:
    """Each file of a record by its path in the run directory, sorted, with what it says there."""
    kept = _Kept.of(run)
    for path in sorted(run.path.rglob("*")):
        name = str(path.relative_to(run.path))
        if path.is_file() and not path.is_symlink() and is_of_record(name):
            yield name, kept.content(name, path.read_bytes())


def is_of_record(name: str) -> bool:
    """Whether a file of a run, by its path there, is part of its record."""
    top = PurePosixPath(name).parts[0]
    return (
        top == "eval"
        or name in HEADS
        or (top not in LEFT_OUT and is_wanted(name, checkpoints=False))
    )


@dataclass(frozen=True)
class _Kept:
    """What of a run stays in its record. `folders`: beginnings that paths lose, the longest first;
    `gpus` and `uuids`: of those that the run used; `pids`: of its own trainers.
    """

    folders: tuple[str, ...]
    gpus: frozenset[int]
    uuids: frozenset[str]
    pids: frozenset[int]

    @classmethod
    def of(cls, run: RunDir) -> _Kept:
        about, state = load_json(run.run_json), load_json(run.state)
        runs = Path(load_json(run.config_resolved)["training"]["output_dir"]).absolute()
        code = Path(about["argv"][0])  # ROOT/albor_core/cli/__main__.py, or the program `albor`
        places = [
            runs.parent,
            Path(state.get("executable_path") or "/python3").parent,
            code.parents[2] if code.name == "__main__.py" else code.parent,
        ]
        lives = [parse_json(line) or {} for line in run.attempts.read_bytes().splitlines()]
        pids = {life["pid"] for life in lives if life.get("t") == "attempt.start"}
        used = [gpu for gpu in state.get("gpu") or () if _processes(gpu, pids)]
        return cls(
            tuple(
                f"{place}/" for place in sorted(places, key=lambda p: -len(str(p))) if place.name
            ),
            frozenset(gpu["index"] for gpu in used),
            frozenset(gpu["uuid"] for gpu in used),
            frozenset(pids),
        )

    def content(self, name: str, raw: bytes) -> bytes:
        """The bytes of one file as the record has them."""
        if name.startswith("eval/") and name.endswith(_LINES):
            return b"".join(map(_without_held_out, raw.splitlines(keepends=True)))
        if name.endswith(_LINES):
            return b"".join(self._lines(raw))
        if not name.endswith(".json"):
            return raw
        document = json.loads(raw)
        told = self._document(name, document)
        indent = 1 if raw.startswith(b"{\n") else None
        return raw if told == document else json.dumps(told, indent=indent).encode()

    def _document(self, name: str, document: dict[str, Any]) -> dict[str, Any]:
        of_file: Callable[[dict[str, Any]], dict[str, Any]] | None = {
            "run.json": self._about,
            "training_state.json": self._state,
        }.get(name)
        if name.startswith("crash-reports/"):
            of_file = self._crash
        return _unplaced(self._cut(of_file(document) if of_file else document))

    def _lines(self, raw: bytes) -> Iterator[bytes]:
        for line in raw.splitlines(keepends=True):
            record = parse_json(line)
            if record is None:
                yield line
                continue
            if record.get("name") in BESIDE_THE_RUN:
                continue
            told = self._cut(record)
            if "by" in told:
                told["by"] = ""
            if isinstance(told.get("v"), dict):
                told["v"] = {key: value for key, value in told["v"].items() if self._is_ours(key)}
            if told == record:
                yield line
            elif parse_line(line) is not None:
                yield written_line(told)
            else:  # annotations and attempts have no checksum
                yield json.dumps(told, separators=(",", ":")).encode() + b"\n"

    def _about(self, about: dict[str, Any]) -> dict[str, Any]:
        git, versions = dict(about.get("git") or {}), dict(about.get("versions") or {})
        if git.pop("untracked", None) and git.get("patch_sha256") is None:
            git["dirty"] = False  # it was by nothing but those files
        if "system" in versions:
            versions["system"] = str(versions["system"]).partition("-")[0]
        return {**about, "git": git, "versions": versions}

    def _state(self, state: dict[str, Any]) -> dict[str, Any]:
        gpus = [
            {**gpu, "processes": _processes(gpu, self.pids)}
            for gpu in state.get("gpu") or ()
            if gpu["index"] in self.gpus
        ]
        host = state.get("system") or {}
        kept = {key: value if key == "rss_bytes" else None for key, value in host.items()}
        return {**state, "gpu": gpus, "system": kept}

    def _crash(self, report: dict[str, Any]) -> dict[str, Any]:
        gpu = report.get("gpu")
        if gpu:
            ours = [one for one in gpu.get("devices") or () if one["uuid"] in self.uuids]
            gpu = {
                **gpu,
                "devices": [
                    {**one, "procs": [p for p in one["procs"] if p["pid"] in self.pids]}
                    for one in ours
                ],
            }
        host = dict.fromkeys(report.get("host") or {})
        time = {**report["time"], "uptime_s": None}
        return {**report, "gpu": gpu, "host": host, "time": time, "env": {}, "env_names": []}

    def _is_ours(self, key: str) -> bool:
        """Whether a metric is the run's, and not that of a GPU it did not use."""
        word = key.partition("/")[0].removeprefix("gpu")
        return "/" not in key or not word.isdecimal() or int(word) in self.gpus

    def _cut(self, value: Any) -> Any:
        """Texts with the places of the run's machine cut from their paths, at any depth."""
        if isinstance(value, str):
            for folder in self.folders:
                value = value.replace(folder, "")
            return value
        if isinstance(value, dict):
            return {self._cut(key): self._cut(item) for key, item in value.items()}
        return [self._cut(item) for item in value] if isinstance(value, list) else value


def _without_held_out(line: bytes) -> bytes:
    """An item of an evaluation as it is, but for a line of other people's code."""
    record = parse_json(line)
    if not record or "middle" not in record:
        return line
    told = {**record, "middle": ""}
    return json.dumps(told, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def _processes(gpu: Mapping[str, Any], pids: set[int] | frozenset[int]) -> list[Any]:
    return [one for one in gpu.get("processes") or () if one.get("pid") in pids]


def _unplaced(value: Any) -> Any:
    """Without the names of host, boot and GPUs, at any depth."""
    blank = {"host": "", "boot_id": NO_BOOT, "uuid": None}
    if isinstance(value, dict):
        return {
            key: blank[key] if key in blank and isinstance(item, str) else _unplaced(item)
            for key, item in value.items()
        }
    return [_unplaced(item) for item in value] if isinstance(value, list) else value
