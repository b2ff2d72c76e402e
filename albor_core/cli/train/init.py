"""`albor init`: a first config, every field with what it means."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from albor_core.cli.common.output import clean, emit, json_option, out_file, print_line
from albor_core.cli.plans.file_plan import plans
from albor_core.run.errors import NotFoundError, UsageError

NAME = "train.yaml"
_WIDTH = 98
_OWN = {  # where the commands at the head of the file put things
    "data.train": "shards/train",
    "data.val": "shards/val",
    "data.tokenizer": "tokenizer.json",
    "training.output_dir": "runs",
    "training.device": "auto",
}
_THEIRS = ("monitoring.tracking.experiment", "monitoring.tracking.tags")  # of one project alone
_HEAD = """\
# A training config, by `albor init --from {name}`. Fields that are not here have their defaults:
# `albor schema config` lists them all. To change one for one run: --set optimizer.lr=1e-3
#
# Make token shards first, from any folders of source code, here src:
{data}
# Then see what the run would take and cost, and start it:
#   albor train plan {path}
#   albor train apply {path}
"""


@click.command()
@click.argument("path", type=click.Path(path_type=Path), default=NAME)
@click.option(
    "--from",
    "name",
    default="demo",
    show_default=True,
    metavar="NAME",
    help="Start from the values of a config that comes with Albor, such as train/pretrain-50m.",
)
@json_option
@plans(lambda _: [], lambda told: [_place(told["path"])])
def init(path: Path, name: str, as_json: bool) -> None:
    """Write a commented training config to PATH, by default train.yaml.

    PATH may be a folder that exists. A file that exists is never replaced.
    """
    out = _place(path)
    text, commands = _config(name, clean(shlex.quote(str(out))))
    try:
        with out_file(out, replace=False) as file:
            file.write(text.encode())
    except UsageError as error:
        another = shlex.quote(str(out.with_stem(out.stem + "-2")))
        message = f"cannot write {str(out)!r}: it exists"
        raise UsageError(message, hint=f"albor init {another}") from error
    if as_json:
        emit({"schema": "albor.init/1", "path": str(out), "from": name, "next": commands})
        return
    print_line(f"wrote {clean(out)}; next, with your own folders for src:")
    for command in commands:
        print_line(f"  {command}")


def _place(path: Path) -> Path:
    return path / NAME if path.is_dir() else path


def _config(name: str, shown: str) -> tuple[str, list[str]]:
    """The text of the file, and the commands that make its data and plan it."""
    from albor_core.config.text.config_file import packaged_config, packaged_configs
    from albor_core.config.text.strict_yaml import load_yaml
    from albor_core.run.values.numbers import parse_count

    if (source := packaged_config(name)) is None:
        known = ", ".join(packaged_configs())
        raise NotFoundError(f"no config {name!r} comes with Albor", hint=f"--from one of: {known}")
    data = load_yaml(source.read_bytes(), file=str(source)).data
    vocabulary = parse_count(data["model"]["architecture"]["vocab_size"])
    length = parse_count(data["data"]["seq_len"])
    packing = f" --packing {told}" if (told := data["data"].get("packing")) else ""
    commands = [
        "albor data import src -o corpus.parquet",
        f"albor tokenizer apply corpus.parquet -o tokenizer.json --vocab-size {vocabulary}",
        "albor data pretokenize corpus.parquet --tokenizer tokenizer.json -o shards"
        f" --seq-len {length}{packing}",
    ]
    made = "\n".join(f"#   {command}" for command in commands)
    text = _HEAD.format(name=name, path=shown, data=made) + "\n".join(_lines(data)) + "\n"
    return text, [*commands, f"albor train plan {shown}"]


def _lines(data: Mapping[str, Any]) -> Iterator[str]:
    """The fields that `data` has and all settings of its recipe, in the order of the reference,
    each under its meaning.
    """
    from albor_core.config.recipes.registry import DEFAULT, settings_of
    from albor_core.config.reference import field_docs

    written, mode = "", data["training"].get("mode", DEFAULT)
    data = {**data, "recipe": settings_of(mode, data.get("recipe") or {})}
    for doc in field_docs(mode):
        *sections, field = doc.key.split(".")
        value = _OWN.get(doc.key, _at(data, (*sections, field)))
        if value is None or doc.key in _THEIRS:
            continue
        for depth, section in enumerate(sections):
            if not f"{written}.".startswith(".".join([*sections[: depth + 1], ""])):
                yield f"{'  ' * depth}{section}:" if depth else f"\n{section}:"
        written = doc.section
        pad = "  " * len(sections)
        for line in textwrap.wrap(doc.meaning, _WIDTH - len(pad)):
            yield f"{pad}# {line}"
        # without max_steps the length follows from the data, whatever there is of it
        comment = "# " if doc.key == "training.max_steps" else ""
        for line in _dumped(field, value):
            yield f"{pad}{comment}{line}"


def _at(data: Any, path: tuple[str, ...]) -> Any:
    for part in path:
        data = data.get(part) if isinstance(data, Mapping) else None
    return data


def _dumped(field: str, value: Any) -> list[str]:
    import yaml

    text: str = yaml.safe_dump({field: value}, sort_keys=False, width=_WIDTH)
    return text.splitlines()
