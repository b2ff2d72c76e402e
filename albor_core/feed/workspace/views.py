"""`ALBOR_HOME/views.yaml`: what the cockpit shows, and the views that the user has named.

    last: {sort: val/mse, theme: light}       # the next start begins with it
    views:
      sweep by mse: {filter: 'experiment:mlp-sweep', sort: val/mse, columns: [lr, 'val/mse:min']}
    metrics: {mlp-sweep: val/mse}             # by experiment, what its runs are judged by

A write holds a lock and changes its own entries of what is in the file by then, so two cockpits
lose nothing of each other. YAML is loaded where there is such a file, or one is written.
"""

from __future__ import annotations

import fcntl
import os
import re
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import field, fields
from pathlib import Path
from typing import Any

from albor_core.run.errors import AlborError, ConfigError, NotFoundError, TryAgainError, remedy
from albor_core.run.files.whole_file import write_bytes
from albor_core.run.home.folders import albor_home, private_folder
from albor_core.run.light_dataclass import dataclass
from albor_core.run.values.clean import clean
from albor_core.run.values.quantity import counted

FILE = "views.yaml"
MAX_NAME = 80
_HEAD = (
    "# What albor-tui shows. `last` is how the next start begins; `views` are opened by\n"
    "# V or ctrl+p, albor-tui --view NAME, albor runs ls --view NAME.\n"
    "# You may edit it; comments are not kept: each change in the cockpit writes it anew.\n"
)
_MAX_BYTES = 1 << 20  # what strict_yaml reads
_MOST_SAVED = 9  # damaged files that stay beside it
_WAIT_S = 5.0
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_./ -]*(?<! )")  # a text that needs no quotes in YAML 1.2
_NAMES = {"is_reversed": "reversed"}  # of fields, as the file has them


@dataclass(frozen=True)
class View:
    """What is shown of runs, and how; "", () and None where nothing was chosen. Columns, sort and
    group are written as `albor runs ls --columns` takes them, `hidden` are ids of runs, `unfolded`
    sections of charts.
    """

    filter: str = ""
    columns: tuple[str, ...] = ()
    sort: str = ""
    is_reversed: bool = False
    group: str = ""
    hidden: tuple[str, ...] = ()
    unfolded: tuple[str, ...] = ()
    theme: str = ""
    smoothing: int | None = None
    tab: str = ""
    screen: str = ""
    """ "runs" or "workspace"."""


@dataclass(frozen=True)
class Views:
    """What views.yaml says. `problem` is what is wrong with it, in one line; `is_damaged` where it
    is not what it must be, `is_closed` where the system lets no one read it: nothing of it is known
    then.
    """

    last: View = View()
    named: Mapping[str, View] = field(default_factory=dict)
    metrics: Mapping[str, str] = field(default_factory=dict)
    problem: str = ""
    is_damaged: bool = False
    is_closed: bool = False

    def view(self, name: str, path: Path) -> View:
        """A named view. Raises NotFoundError with the nearest name, ConfigError where the file is
        damaged or cannot be read.
        """
        if self.is_closed:
            raise ConfigError(self.problem, hint=f"make {path} readable")
        if self.is_damaged:
            raise ConfigError(self.problem, hint=f"correct {path}, or remove it")
        if name in self.named:
            return self.named[name]
        from albor_core.store.query.names import nearest  # noqa: PLC0415  for a misspelt name

        is_there = os.path.lexists(path)  # a Path raises where its folder may not be entered
        has = f"{path} has {counted(len(self.named), 'view')}" if is_there else "no views yet"
        names = ", ".join(clean(one, limit=MAX_NAME) for one in list(self.named)[:5])
        raise NotFoundError(
            f"no view {name!r}: {has}{nearest(name, self.named)}",
            hint=f"one of: {names}" if names else "albor-tui, then V names a view",
        )


class ViewsFile:
    """Reads and writes views.yaml, or the file at `path`. For any thread."""

    def __init__(self, path: Path | None = None) -> None:
        self.path = path or albor_home() / FILE

    def read(self) -> Views:
        """What the file says; the default, with a problem, where it cannot be read."""
        try:
            found = self._document()
        except ConfigError as error:
            return Views(problem=error.message, is_damaged=True)
        except OSError as error:
            return Views(problem=f"cannot read {self.path}: {error.strerror}", is_closed=True)
        return _views_of(found, self.path)

    def save(self, name: str, view: View) -> None:
        """Name a view, in place of the one that had this name. Raises AlborError."""
        with self._changing() as document:
            document["views"][name] = _mapping(view)

    def remove(self, name: str) -> None:
        """Take a named view away. Raises AlborError."""
        with self._changing() as document:
            document["views"].pop(name, None)

    def remember(self, changes: Mapping[str, Any]) -> None:
        """Change fields of the last view, by their names in View. Raises AlborError."""
        with self._changing() as document:
            for name, value in changes.items():
                key = _NAMES.get(name, name)
                document["last"].pop(key, None)
                document["last"] |= _mapping(View(**{name: value}))

    def set_metric(self, experiment: str, key: str) -> None:
        """Set the metric that runs of an experiment are judged by; "" for the usual one. Raises
        AlborError.
        """
        with self._changing() as document:
            document["metrics"].pop(experiment, None)
            document["metrics"] |= {experiment: key} if key else {}

    def set_aside(self) -> str:
        """Rename a file that is damaged to views.yaml.bad, or where there is one already to
        views.yaml.bad2; return its new name, "" where it is not damaged by now. Raises AlborError.
        """
        with self._locked():
            try:
                self._document()
            except ConfigError:
                return self._renamed()
            return ""

    # -- the file --------------------------------------------------------------------------------

    @property
    def _place(self) -> Path:
        """The file itself, where views.yaml is a link to one."""
        return Path(os.path.realpath(self.path))

    def _document(self) -> dict[str, Any]:
        """The file as plain data, empty where there is none. Raises ConfigError, OSError."""
        from albor_core.run.rundir import NotPlainError, open_plain  # noqa: PLC0415

        try:
            with open_plain(self._place) as file:
                raw = file.read(_MAX_BYTES + 1)
        except FileNotFoundError:
            return {}
        except NotPlainError as error:
            raise ConfigError(f"cannot read {self.path}: {error.strerror}") from error
        from albor_core.config.text.strict_yaml import load_yaml  # noqa: PLC0415  imports yaml

        found = load_yaml(raw, file=str(self.path)).data
        if found is None:
            return {}
        if not isinstance(found, dict):
            raise ConfigError(f"{self.path}: is not a mapping")
        for key in ("last", "views", "metrics"):
            if not isinstance(found.get(key) or {}, dict):
                raise ConfigError(f"{self.path}: {key} is not a mapping")
        return found

    @contextmanager
    def _changing(self) -> Iterator[dict[str, Any]]:
        """The document, which is written when the block ends, with what it does not know."""
        with self._locked():
            try:
                document = self._document()
            except ConfigError:
                self._renamed()
                document = {}
            before = repr(document)
            for key in ("last", "views", "metrics"):
                document[key] = document.get(key) or {}
            yield document
            document = {key: value for key, value in document.items() if value not in ({}, None)}
            if repr(document) != before:
                write_bytes(self._place, _dumped(document, self.path))

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of the file; the home is made where it is missing. Raises AlborError."""
        try:
            private_folder(self.path.parent)
            lock = self.path.with_name(f".{self.path.name}.lock")
            fd = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
            try:
                self._wait_for(fd)
                yield
            finally:
                os.close(fd)
        except OSError as error:
            raise AlborError(
                f"cannot write {self.path}: {error.strerror}", hint=remedy(error)
            ) from error

    def _wait_for(self, fd: int) -> None:
        end = time.monotonic() + _WAIT_S
        while True:
            try:
                fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() > end:
                    what = f"cannot write {self.path}: another process holds its lock"
                    raise TryAgainError(what, hint="the same again in a moment") from None
                time.sleep(0.01)

    def _renamed(self) -> str:
        names = [f"{self.path.name}.bad{n if n > 1 else ''}" for n in range(1, _MOST_SAVED + 1)]
        free = (name for name in names if not os.path.lexists(self.path.with_name(name)))
        name = next(free, names[-1])
        self.path.replace(self.path.with_name(name))
        return name


def _views_of(document: Mapping[str, Any], path: Path) -> Views:
    problems: list[str] = []

    def view(where: str, found: object) -> View:
        if not isinstance(found or {}, dict):
            problems.append(f"{path}: {where} is not a mapping")
            return View()
        return _view_of(where, found or {}, path, problems)

    named = document.get("views") or {}
    metrics = document.get("metrics") or {}
    return Views(
        view("last", document.get("last")),
        {str(name): view(f"view {clean(str(name))!r}", found) for name, found in named.items()},
        {str(name): key for name, key in metrics.items() if isinstance(key, str)},
        problems[0] if problems else "",
    )


def _view_of(where: str, found: Any, path: Path, problems: list[str]) -> View:
    """A view with the fields that can be read; of each other one a problem."""
    values: dict[str, Any] = {}
    for one in fields(View):
        key = _NAMES.get(one.name, one.name)
        if (value := found.get(key)) is None:
            continue
        meant, what = _value(one.name, value)
        if meant is None:
            problems.append(f"{path}: {where}: {key} is not {what}")
        else:
            values[one.name] = meant
    return View(**values)


def _value(name: str, value: object) -> tuple[Any, str]:
    """A field's value as View has it, None for another type; what it must be."""
    default = getattr(View(), name)
    if isinstance(default, bool):
        return value if isinstance(value, bool) else None, "true or false"
    if name == "smoothing":
        is_whole = isinstance(value, int) and not isinstance(value, bool)
        return value if is_whole else None, "a whole number"
    if isinstance(default, tuple):
        texts = tuple(map(str, value)) if isinstance(value, list) else None
        return texts, "a list of names"
    return None if isinstance(value, dict | list | bool) else str(value), "a text"


def _mapping(view: View) -> dict[str, Any]:
    """The fields of a view that say something, as the file has them."""
    default, found = View(), {}
    for one in fields(View):
        value = getattr(view, one.name)
        if value != getattr(default, one.name):
            key = _NAMES.get(one.name, one.name)
            found[key] = list(value) if isinstance(value, tuple) else value
    return found


def _dumped(document: Mapping[str, Any], path: Path) -> bytes:
    """The bytes of the file. Raises AlborError where they are more than it may have."""
    import yaml  # noqa: PLC0415  0.02 s, where a view is kept

    class Dumper(yaml.SafeDumper):
        """Quotes every text that YAML 1.2 might read as something else."""

        def increase_indent(self, flow: bool = False, indentless: bool = False) -> Any:
            return super().increase_indent(flow, False)

    def quoted(dumper: Any, text: str) -> Any:
        style = None if _WORD.fullmatch(text) else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)

    Dumper.add_representer(str, quoted)
    text = yaml.dump(
        dict(document), Dumper=Dumper, allow_unicode=True, sort_keys=False, width=1 << 20
    )
    raw = (_HEAD + text).encode()
    if len(raw) > _MAX_BYTES:
        what = f"cannot write {path}: it would be {len(raw):,} bytes, more than {_MAX_BYTES:,}"
        raise AlborError(what, hint="remove views that you no longer need")
    return raw
