"""Documents of the commands themselves, their errors and plans, the stores and the machine."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from albor_core.documents.shapes import Closed, Positive, ProblemFields, Scalar, keywords


class StoreCheckDocument(TypedDict):
    """Whether the stores are whole and say what the runs wrote."""

    schema: Literal["albor.db.check/1"]
    ok: bool
    target: str
    """The global store."""
    stores: int
    """How many were looked at."""
    runs: int
    gone: list[str]
    """Runs whose folder is not at its place: the global store is all there is of them."""
    strays: list[str]
    """Folders of runs that lie in the home, while nothing there leads to them."""
    lost: list[str]
    """Those of them that the global store lacks too: no rebuild brings them back."""
    cut: list[str]
    """Runs that lack lines they once had: no rebuild brings them back."""
    damaged_lines: dict[str, int]
    """Run -> lines of its files that were skipped; a rebuild skips them too."""
    problems: list[str]
    """A sentence each; the exit code is 1 where there is one."""


class StorePathDocument(TypedDict):
    """Where a store is."""

    schema: Literal["albor.db.path/1"]
    path: str
    exists: bool | None


class StoreQueryDocument(TypedDict):
    """What a store answered to a SELECT."""

    schema: Literal["albor.db.query/1"]
    columns: list[str]
    rows: list[dict[str, Any]]
    """One object a row, by column name; bytes are {"$base64": true, "encoded": text}, an infinity
    is null.
    """
    is_cut: bool
    """There are more rows than --limit."""


class StoreRebuildDocument(TypedDict):
    """What a rebuild of the stores did."""

    schema: Literal["albor.db.rebuild/1"]
    target: str | None
    rebuilt: list[str | None]
    in_use: list[Any]
    carried: list[str | None]
    carried_from: dict[str, str]
    """Run -> the store or backup that its rows came from."""
    problems: list[str]
    """A sentence per run that could not be brought over whole; the exit code is 1 where
    there is one.
    """
    lines: int | None
    seconds: float | None
    notes: list[str]
    """A sentence for each thing that was wrong with an older store and cost nothing."""


class DoctorDiskDocument(TypedDict):
    """What takes how much of ALBOR_HOME."""

    schema: Literal["albor.doctor.disk/1"]
    home: str
    bytes: int
    """Of all files in it."""
    max_bytes: int | None
    """What ALBOR_HOME_MAX says."""
    parts: dict[str, int]
    """Bytes by what they are for, those of runs outside the home too."""
    runs: dict[str, int]
    """Bytes of each run, the largest first."""


class DoctorCheck(TypedDict):
    name: str
    ok: bool | None
    detail: str | None
    hint: str


class DoctorDocument(TypedDict):
    """What this machine has, and what would endanger a run."""

    schema: Literal["albor.doctor/1"]
    checks: list[DoctorCheck]


class ErrorBody(TypedDict):
    code: str
    message: str
    hint: str
    problems: list[ProblemFields]


class ErrorDocument(TypedDict):
    """What went wrong, in --json mode, on stdout with a non-zero exit code."""

    schema: Literal["albor.error/1"]
    error: ErrorBody


class GpuDocument(TypedDict):
    """The GPUs of this machine, by NVML."""

    schema: Literal["albor.gpu/1"]
    gpus: list[Any]
    why_none: str | None


class ParameterHelp(Closed):
    type: str
    choices: list[str]
    is_required: bool
    is_repeatable: bool


class CommandHelp(Closed):
    path: str
    """As it is typed: `albor runs ls`."""
    summary: str
    help: str
    arguments: list[ArgumentHelp]
    options: list[OptionHelp]
    default: str | None
    """The command below that takes what names none of them."""
    commands: list[CommandHelp]


class ArgumentHelp(ParameterHelp):
    name: str


class OptionHelp(ParameterHelp):
    flags: Annotated[list[str], keywords(minItems=1)]
    off_flags: list[str]
    """What turns a flag off again."""
    is_flag: bool
    """Takes no value."""
    value: str | None
    """What stands for the value in help."""
    default: Scalar
    """Null also where it depends."""
    help: str


class HelpDocument(Closed):
    """The commands of `albor` from one down: what `--help --json` prints."""

    schema: Literal["albor.help/1"]
    version: str
    command: CommandHelp


_InitFrom = TypedDict(
    "_InitFrom",
    {
        "from": Annotated[
            str, keywords(description="The config of Albor's own whose values it has.")
        ]
    },
)


class InitDocument(_InitFrom, Closed):
    """The config that `albor init` wrote."""

    schema: Literal["albor.init/1"]
    path: str
    next: list[str]
    """The commands that make its data, then its plan."""


class FilePlanProblem(TypedDict):
    code: str
    """missing_input: an input is not there; unreadable_input: it may not be read; output: what
    would be written has no place.
    """
    path: str
    """The input or output that it is about, of those codes."""
    file: str
    field: str
    message: str
    hint: str


class FilePlanDocument(TypedDict):
    """What a command that makes files would read and write (`--plan --json`). Exit code 1 where
    there are problems; nothing is changed.
    """

    schema: Literal["albor.plan/1"]
    reads: list[str]
    """Absolute paths of inputs, missing ones too; a run that is not known, as it was named."""
    writes: list[str]
    """Absolute paths of files and folders; * ends one whose name is made when it begins."""
    bytes: int | None
    """That would be written; null: unknown."""
    seconds: float | None
    money: float | None
    """By the rates of monitoring.budgets."""
    problems: list[FilePlanProblem]
    detail: dict[str, Any]
    """What this command alone knows."""


class ReportDocument(Closed):
    """A page that was written."""

    schema: Literal["albor.report/1"]
    runs: Annotated[list[str], keywords(minItems=1)]
    left_out: list[str]
    out: str
    bytes: Positive


class SchemaNamesDocument(TypedDict):
    """The names of all published schemas."""

    schema: Literal["albor.schema/1"]
    names: list[Any]
