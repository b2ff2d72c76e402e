"""`albor`: parse, call, print. Every command has a module, imported when it runs."""

from __future__ import annotations

import sys

import click

from albor_core.cli.lazy import LazyGroup
from albor_core.cli.output import broken_pipe, close_stdout, report
from albor_core.run.errors import AlborError, UsageError

COMMANDS = {
    "demo": ("demo:demo", "Train two small models on real source code, guarded, and compare them."),
    "train": ("train:train", "Plan, start and resume training runs."),
    "guard": ("guard:guard", "Supervise any program; stop, pause, resume, checkpoint a run."),
    "monitor": ("monitor:monitor", "Live lines of one run or of all active ones."),
    "runs": ("runs:runs", "List, show and compare runs, finished or live."),
    "alerts": ("alerts:alerts", "What Andon raised, and who has seen it."),
    "gpu": ("gpu:gpu", "The GPUs of this machine."),
    "data": ("data:data", "Source trees in, token shards out."),
    "tokenizer": ("tokenizer:tokenizer", "Train and check a byte-level BPE tokenizer."),
    "kernels": ("kernels:kernels", "Which kernel runs each operation here, and why."),
    "db": ("db:db", "Where the stores are; rebuild them from the journals."),
    "doctor": ("doctor:doctor", "What this machine has, and what would stop a run."),
    "schema": ("schema:schema", "The JSON Schema of a document."),
}


@click.group(
    cls=LazyGroup,
    entries={name: (f"albor_core.cli.{where}", text) for name, (where, text) in COMMANDS.items()},
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(package_name="albor", prog_name="albor")
@click.option("--quiet", "-q", is_flag=True, help="Say nothing on stderr but errors.")
def cli(quiet: bool) -> None:
    """The terminal cockpit for training language models. `albor-tui` is the dashboard."""


def run() -> None:
    """Entry point of the program: maps every failure of the user's world to one message and exit
    code.
    """
    try:
        code = cli.main(prog_name="albor", standalone_mode=False)
        code = code if isinstance(code, int) else 0
    except click.exceptions.Abort:
        code = 130
    except KeyboardInterrupt:
        code = 130
    except click.ClickException as error:
        code = _usage(error)
    except AlborError as error:
        code = report(error)
    except BrokenPipeError:
        sys.exit(broken_pipe())
    sys.exit(close_stdout() or code)


def _usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "albor"
    return report(UsageError(error.format_message(), hint=f"{path} --help"))
