"""`albor`: parse, call, print. Every command has a module, imported when it runs."""

from __future__ import annotations

from albor_core.cli.common import (
    interrupt,  # first: it is what Ctrl-C finds while the rest is imported
)

# isort: split
import atexit
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import click

from albor_core.cli.common.command_tree import asked_for, named_command, tree_document
from albor_core.cli.common.lazy import LazyGroup
from albor_core.cli.common.output import (
    broken_pipe,
    close_stdout,
    emit,
    open_streams,
    report,
    wants_json,
)
from albor_core.run.errors import AlborError, UsageError, refused_by_the_machine

COMMANDS = {
    "demo": ("demo:demo", "Train two small models on real source code and compare them."),
    "init": ("train.init:init", "Write a commented training config."),
    "train": ("train.group:train", "Plan, start and resume training runs."),
    "guard": ("guard.group:guard", "Supervise any program; stop, pause, resume, checkpoint a run."),
    "logs": ("logs:logs", "Print or follow the output of a run's program."),
    "monitor": ("monitor:monitor", "Follow one run or all active ones, line by line."),
    "runs": ("runs.group:runs", "List, show, compare, export, annotate, remove runs."),
    "checkpoints": ("checkpoints:checkpoints", "List, verify and prune checkpoints."),
    "report": ("report:report", "Write runs as one self-contained HTML page."),
    "attention": ("alerts.attention:attention", "Show what needs a person now; acknowledge, mute."),
    "alerts": ("alerts.group:alerts", "List and acknowledge alerts, test alert rules (Andon)."),
    "gpu": ("machine.gpu:gpu", "Show the GPUs of this machine."),
    "data": ("data.group:data", "Turn source trees into token shards."),
    "tokenizer": ("data.tokenizer:tokenizer", "Train and check tokenizers."),
    "model": ("model.group:model", "Show, verify and compare models: folders of weights."),
    "eval": ("eval.group:evaluation", "Evaluate models and checkpoints of runs."),
    "generate": ("model.generate:generate", "Generate text: by a folder of weights, or a run."),
    "bench": ("model.bench:bench", "Time prefill and generation of a model."),
    "profile": ("machine.profile:profile", "Show where the time of a training step goes."),
    "kernels": ("machine.kernels:kernels", "Show which kernel runs each operation, and why."),
    "db": ("machine.db:db", "Locate, query, check and rebuild the stores."),
    "doctor": ("machine.doctor:doctor", "Check this machine for what would stop a run."),
    "schema": ("schema:schema", "Print the JSON Schema of a document, or of the config file."),
}

_OPTIONAL = {  # module -> what pip is told, to bring it
    "triton": "triton",
    **dict.fromkeys(
        ("torch", "accelerate", "safetensors", "tokenizers", "pyarrow", "numpy"), "'albor[train]'"
    ),
}


class _Program(LazyGroup):
    """Ends as programs do whose reader left; click would say 1, as if something had failed.

    `--help --json` behind any command prints the commands from there down.
    """

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        if (named := asked_for(self, args)) is not None:
            emit(tree_document(named))
            ctx.exit()
        return super().parse_args(ctx, args)

    def make_context(self, *args: Any, **kwargs: Any) -> click.Context:
        with _gone_readers():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: click.Context) -> Any:
        with _gone_readers():
            return super().invoke(ctx)


@contextmanager
def _gone_readers() -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise click.exceptions.Exit(broken_pipe()) from None


@click.group(
    cls=_Program,
    entries={name: (f"albor_core.cli.{where}", text) for name, (where, text) in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="albor", prog_name="albor")
@click.option("--quiet", "-q", is_flag=True, help="Print nothing but errors on stderr.")
def cli(quiet: bool) -> None:
    """The terminal cockpit for training language models. `albor-tui` is the dashboard.

    \b
    Your own loop is tracked from Python:   from albor_core import track
                                            run = track.start("experiment")
                                            run.log({"loss": loss})
    Any other program is supervised by:     albor guard run -- CMD
    All commands, for programs:             albor --help --json
    """


def run() -> None:
    """Entry point of the program: maps every failure of the user's world to one message and exit
    code.
    """
    atexit.register(interrupt.loading)  # nothing to undo any more, much to be torn down
    try:
        open_streams()
        try:
            code = _exit_code()
        except BrokenPipeError:  # no process reads the message about it either
            code = broken_pipe()
        code = close_stdout() or code
    except KeyboardInterrupt:  # while the end of it was being told
        code = interrupt.INTERRUPTED
    sys.exit(code)


def _exit_code() -> int:
    try:
        code = cli.main(prog_name="albor", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except (click.exceptions.Abort, KeyboardInterrupt):
        return interrupt.INTERRUPTED
    except click.ClickException as error:
        return _usage(error)
    except AlborError as error:
        return report(error, hint=f"{named_command(cli, sys.argv[1:])[0]} --help")
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL:
            raise
        return report(_missing(error.name))
    except OSError as error:
        if isinstance(error, FileNotFoundError) and not _has_working_directory():
            return report(_NOWHERE)
        if (refused := refused_by_the_machine(error)) is None:
            raise
        return report(refused)


_NOWHERE = AlborError(
    "the working directory of this shell has been deleted", hint="cd to a folder that exists"
)


def _has_working_directory() -> bool:
    try:
        os.getcwd()  # noqa: PTH109  the question is whether the kernel has an answer
    except OSError:
        return False
    return True


def _missing(module: str) -> AlborError:
    return AlborError(
        f"this command needs {module}, which is not installed",
        hint=f"pip install {_OPTIONAL[module]}",
    )


def _usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "albor"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if not wants_json():
            click.echo(error.format_message(), err=True)  # the page itself, in lines
            return error.exit_code
        return report(UsageError(f"{path}: which command?", hint=f"{path} --help"))
    if isinstance(error, click.NoSuchOption) and context is not None:
        return report(_no_such_option(error.option_name, context))
    return report(UsageError(error.format_message(), hint=f"{path} --help"))


def _no_such_option(name: str, context: click.Context) -> UsageError:
    """Says where the option belongs, or which one resembles it. Click finds --quiet like --set."""
    path, outer = context.command_path, context.parent
    message = f"No such option {name!r}."
    while outer is not None:
        if name in _options(outer):
            rest = path.removeprefix(outer.command_path).strip()
            command = f"{outer.command_path} {name} {rest}"
            return UsageError(f"{message} It stands before the command.", hint=command)
        outer = outer.parent
    import difflib

    known = {option.lstrip("-"): option for option in _options(context)}
    close = difflib.get_close_matches(name.lstrip("-"), known, n=1, cutoff=0.7)
    meant = f" Did you mean {known[close[0]]!r}?" if close else ""
    return UsageError(message + meant, hint=f"{path} --help")


def _options(context: click.Context) -> list[str]:
    return [
        word
        for param in context.command.get_params(context)
        if isinstance(param, click.Option)
        for word in (*param.opts, *param.secondary_opts)
    ]


interrupt.loaded()
