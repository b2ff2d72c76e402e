"""`albor`: parse, call, print. Every command has a module, imported when it runs."""

from __future__ import annotations

import errno
import sys

import click

from albor_core.cli.lazy import LazyGroup
from albor_core.cli.output import broken_pipe, close_stdout, open_streams, report, wants_json
from albor_core.run.errors import AlborError, UsageError

COMMANDS = {
    "demo": ("demo:demo", "Train two small models on real source code, guarded, and compare them."),
    "train": ("train:train", "Plan, start and resume training runs."),
    "guard": ("guard:guard", "Supervise any program; stop, pause, resume, checkpoint a run."),
    "monitor": ("monitor:monitor", "Live lines of one run or of all active ones."),
    "runs": ("runs:runs", "List, show, compare, export, annotate, remove runs."),
    "alerts": ("alerts:alerts", "What Andon raised, and who has seen it."),
    "gpu": ("gpu:gpu", "The GPUs of this machine."),
    "data": ("data:data", "Source trees in, token shards out."),
    "tokenizer": ("tokenizer:tokenizer", "Train and check a byte-level BPE tokenizer."),
    "kernels": ("kernels:kernels", "Which kernel runs each operation here, and why."),
    "db": ("db:db", "Where the stores are; rebuild them from the journals."),
    "doctor": ("doctor:doctor", "What this machine has, and what would stop a run."),
    "schema": ("schema:schema", "The JSON Schema of a document."),
}

_ENVIRONMENT = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EROFS, errno.EACCES, errno.EPERM}
    | {errno.ENAMETOOLONG}
)

_OPTIONAL = dict.fromkeys(  # module -> the extra that brings it
    ("torch", "triton", "accelerate", "safetensors", "tokenizers", "pyarrow", "numpy"), "train"
)


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
    open_streams()
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
        code = report(error, hint=f"{_command_path()} --help")
    except ModuleNotFoundError as error:
        if error.name not in _OPTIONAL:
            raise
        code = report(_missing(error.name))
    except BrokenPipeError:
        sys.exit(broken_pipe())
    except OSError as error:
        if error.errno not in _ENVIRONMENT:
            raise
        code = _refused_by_the_machine(error)
    sys.exit(close_stdout() or code)


def _missing(module: str) -> AlborError:
    return AlborError(
        f"this command needs {module}, which is not installed",
        hint=f"pip install 'albor[{_OPTIONAL[module]}]'",
    )


def _usage(error: click.ClickException) -> int:
    context = getattr(error, "ctx", None)
    path = context.command_path if context is not None else "albor"
    if isinstance(error, click.exceptions.NoArgsIsHelpError):
        if not wants_json():
            click.echo(error.format_message(), err=True)  # the page itself, in lines
            return error.exit_code
        return report(UsageError(f"{path}: which command?", hint=f"{path} --help"))
    return report(UsageError(error.format_message(), hint=f"{path} --help"))


def _command_path() -> str:
    """The command that the arguments name, as far as they name one."""
    command: click.Command = cli
    path = ["albor"]
    for word in sys.argv[1:]:
        if not isinstance(command, click.Group):
            break
        if (child := command.get_command(click.Context(command), word)) is not None:
            command, path = child, [*path, word]
    return " ".join(path)


def _refused_by_the_machine(error: OSError) -> int:
    """A full disk or a folder we may not write is the user's world, wherever it showed."""
    where = error.filename or "an output"
    hint = "free some space or choose another place, then run it again"
    return report(AlborError(f"{where}: {error.strerror}", hint=hint))
