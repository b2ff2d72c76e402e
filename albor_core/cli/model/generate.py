"""`albor generate`: text that a model writes after a prompt."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from albor_core.cli.common.output import clean, emit, json_option, print_note, write_stdout
from albor_core.cli.model.folder import opens_model
from albor_core.cli.plans.file_plan import model_source, plans
from albor_core.run.errors import AlborError, UsageError

if TYPE_CHECKING:
    import torch

    from albor_core.model.generate.infill import Order
    from albor_core.model.generate.text_model import WrittenText

F = TypeVar("F", bound=Callable[..., Any])

DTYPES = {"fp32": "float32", "bf16": "bfloat16", "fp16": "float16", "fp64": "float64"}
_MAX_TEXT_BYTES = 16 << 20
_EXAMPLE = 'albor generate DIR "def fibonacci(n):"'


def place_options(command: F) -> F:
    """Add the options of device and number format to a command."""
    device = click.option(
        "--device",
        type=click.Choice(["auto", "cpu", "cuda"]),
        default="auto",
        show_default=True,
        help="Compute on this device; auto takes a GPU where there is one.",
    )
    dtype = click.option(
        "--dtype",
        type=click.Choice(["auto", *DTYPES]),
        default="auto",
        show_default=True,
        help="Compute in this number format; auto is bf16 on a GPU and fp32 on a CPU.",
    )
    return device(dtype(command))


def _sources(told: Mapping[str, Any]) -> list[str | Path]:
    """The inputs of a text: the model, and a tokenizer and a prompt in files."""
    files = [told["tokenizer"], told["prompt_file"]]
    return [model_source(told["folder"]), *(Path(one) for one in files if one not in (None, "-"))]


@click.command()
@click.argument("folder", metavar="DIR|RUN")
@click.argument("prompt", required=False)
@click.option("--prompt-file", metavar="FILE", help="Read the prompt from FILE; - is stdin.")
@click.option("-n", "number", type=click.IntRange(1), default=1, help="Generate N texts.")
@click.option("--max-new-tokens", type=int, default=256, show_default=True, metavar="N",
              help="End a text after N tokens.")  # fmt: skip
@click.option("--temperature", type=float, default=0.0, show_default=True, metavar="T",
              help="Divide logits by T before a draw; 0 takes the likeliest token.")  # fmt: skip
@click.option("--top-p", type=float, default=1.0, show_default=True, metavar="P",
              help="Draw from the fewest tokens whose probabilities add up to P.")  # fmt: skip
@click.option("--top-k", type=int, default=0, show_default=True, metavar="K",
              help="Draw from the K likeliest tokens; 0 is all.")  # fmt: skip
@click.option("--seed", type=int, default=0, show_default=True,
              help="Draw with this seed; further texts use the following seeds.")  # fmt: skip
@click.option("--stop", "stops", multiple=True, metavar="TEXT",
              help="End a text before TEXT; may be given several times.")  # fmt: skip
@click.option("--bos", is_flag=True,
              help="Put the begin-of-text token before the prompt.")  # fmt: skip
@click.option("--suffix", metavar="TEXT",
              help="Generate the text between PROMPT and TEXT.")  # fmt: skip
@click.option("--order", type=click.Choice(("psm", "spm")),
              help="Give PROMPT first (psm, the default) or --suffix first (spm).")  # fmt: skip
@click.option("--tokenizer", metavar="FILE", type=click.Path(path_type=Path),
              help="Use this tokenizer instead of the one beside the weights.")  # fmt: skip
@place_options
@json_option
@plans(_sources, lambda _: [], opens_model)
def generate(
    folder: str,
    prompt: str | None,
    prompt_file: str | None,
    number: int,
    stops: tuple[str, ...],
    bos: bool,
    suffix: str | None,
    order: Order | None,
    tokenizer: Path | None,
    seed: int,
    device: str,
    dtype: str,
    as_json: bool,
    **how: Any,
) -> None:
    """Continue PROMPT with the model in DIR, or the newest checkpoint of RUN, which may be running.

    Without PROMPT it is read from stdin. A text ends at the model's end token, at --stop, after
    --max-new-tokens or at the end of the context. The same arguments give the same text again, on
    the same device and --dtype. With --suffix the model fills a hole: the tokenizer's own sentinels
    mark it, and any special token ends it.
    """
    if order is not None and suffix is None:
        raise UsageError("--order without --suffix", hint="name what stands after the hole")
    from albor_core.model.generate.sampling import Sampling

    samplings = [Sampling(seed=seed + i, **how) for i in range(number)]
    given = _prompt(prompt, prompt_file)
    from albor_core.cli.model.folder import load_newest
    from albor_core.model.generate.infill import infill_ends
    from albor_core.model.generate.text_model import load_text_model

    where = place_of(device, dtype)
    began = time.perf_counter()
    with out_of_memory():
        path, model = load_newest(folder, lambda at: load_text_model(
            at, device=where[0], dtype=where[1], tokenizer=tokenizer))  # fmt: skip
        model = replace(model, begins=bos)
        asked: str | list[int] = given
        if suffix is not None:
            asked = model.infill(given, suffix, order or "psm")
            ends = infill_ends(model.tokenizer, model.place)
            samplings = [replace(one, stop_ids=ends) for one in samplings]
        loaded = time.perf_counter()
        streams = not as_json and number == 1
        written = model.write(
            [asked] * number, samplings, stops=stops, on_text=_show if streams else None
        )
    took = time.perf_counter() - loaded
    if as_json:
        about = {"model": str(path), "device": where[0].type, "dtype": dtype_name(where[1])}
        read = model.encode(asked) if isinstance(asked, str) else asked
        hole = {"suffix": suffix, "order": None if suffix is None else order or "psm"}
        told = {**about, "prompt": given, **hole, "bos": bos, **how, "stops": [*stops]}
        told["prompt_tokens"] = len(read)
        emit(_document(told, written, seed, loaded - began, took))
        return
    for at, one in enumerate(written):
        if not streams:
            print_note(f"text {at + 1} of {number}, seed {seed + at}")
            _show(0, one.text)
        write_stdout("" if one.text.endswith("\n") else "\n")
    tokens = sum(len(one.ids) for one in written)
    print_note(f"{tokens:,} tokens, {tokens / took:,.0f} a second; {clean(path)}")


def _show(_: int, text: str) -> None:
    write_stdout(clean_text(text))


def clean_text(text: str) -> str:
    """Lines that cannot move the cursor or colour the terminal."""
    from albor_core.run.values.clean import clean as neutral

    return neutral(text, keep="\n\t")


def _document(
    told: dict[str, Any],
    written: list[WrittenText],
    seed: int,
    load_s: float,
    seconds: float,
) -> Any:
    tokens = sum(len(one.ids) for one in written)
    return {
        "schema": "albor.generate/1",
        **told,
        "completions": [
            {"seed": seed + at, "text": one.text, "ids": [*one.ids], "finish": one.finish}
            for at, one in enumerate(written)
        ],
        "load_s": load_s,
        "seconds": seconds,
        "tokens_per_s": tokens / seconds if seconds else None,
    }


def _prompt(prompt: str | None, file: str | None) -> str:
    """The prompt. Raises UsageError if it is given twice, or not at all; AlborError."""
    if prompt is not None and file is not None:
        raise UsageError("a prompt and --prompt-file", hint="give one of the two")
    if prompt is not None:
        return prompt
    if file is None and sys.stdin is not None and sys.stdin.isatty():
        raise UsageError("no prompt: none is given, and stdin is a terminal", hint=_EXAMPLE)
    return read_text(file or "-", "prompt", hint=_EXAMPLE).removesuffix("\n")


def read_text(file: str, what: str, *, hint: str) -> str:
    """What a file, or stdin by the name `-`, holds. Raises UsageError, AlborError; `what` and
    `hint` are for their words.
    """
    name = "stdin" if file == "-" else file
    if name == "stdin" and sys.stdin is None:  # closed by the caller
        raise UsageError(f"no {what}: none is given, and stdin is closed", hint=hint)
    try:
        if name == "stdin":
            raw = sys.stdin.buffer.read(_MAX_TEXT_BYTES + 1)
        else:
            with Path(name).open("rb") as opened:
                raw = opened.read(_MAX_TEXT_BYTES + 1)
    except OSError as error:
        raise AlborError(
            f"cannot read the {what} from {name!r}: {error.strerror}", hint="name another file"
        ) from error
    if len(raw) > _MAX_TEXT_BYTES:
        hint = f"use at most {_MAX_TEXT_BYTES >> 20} MiB"
        raise UsageError(f"cannot take the {what} from {name!r}: it is too long", hint=hint)
    try:
        return raw.decode()
    except UnicodeDecodeError as error:
        wrong = f"cannot take the {what} from {name!r}: byte {error.start:,} is not UTF-8"
        raise UsageError(wrong, hint="convert it to UTF-8") from error


def place_of(device: str, dtype: str) -> tuple[torch.device, torch.dtype]:
    """The device and dtype. Raises UsageError if there is no such device."""
    import torch

    has_gpu = torch.cuda.is_available()
    if device == "cuda" and not has_gpu:
        hint = "albor doctor says why; --device cpu computes without one"
        raise UsageError("--device cuda, but torch finds no usable GPU", hint=hint)
    kind = "cuda" if has_gpu and device != "cpu" else "cpu"
    name = dtype if dtype != "auto" else ("bf16" if kind == "cuda" else "fp32")
    return torch.device(kind), getattr(torch, DTYPES[name])


@contextmanager
def out_of_memory() -> Iterator[None]:
    """Report that the device is out of memory, with a remedy."""
    import torch

    try:
        yield
    except torch.OutOfMemoryError as error:
        hint = "try --dtype bf16, fewer or shorter texts, or --device cpu"
        raise AlborError("the GPU has too little memory for this", hint=hint) from error


def dtype_name(dtype: torch.dtype) -> str:
    """The dtype as --dtype accepts it."""
    names = {f"torch.{long}": short for short, long in DTYPES.items()}
    return names[str(dtype)]
