"""The Python packages of this machine as sources: each distribution with its version and licence,
and the standard library. Code that is there without a network.
"""

from __future__ import annotations

import difflib
import platform
import re
import sysconfig
from collections.abc import Iterator, Sequence
from importlib.metadata import Distribution, distributions
from pathlib import Path, PurePosixPath

from albor_core.data.read.inputs import InputSource
from albor_core.data.read.licence import is_licence_file, licence_of
from albor_core.run.errors import ConfigError

STANDARD_LIBRARY = "python"
NOT_ENTERED = ("__pycache__", "site-packages", "dist-packages")
"""Folders of the standard library that hold what is not its own."""

_SPDX = re.compile(r"[A-Za-z0-9.+-]{1,40}(?: (?:AND|OR|WITH) [A-Za-z0-9.+-]{1,40})*")
_CLASSIFIERS = {
    "MIT License": "MIT",
    "Apache Software License": "Apache-2.0",
    "ISC License (ISCL)": "ISC",
    "Mozilla Public License 2.0 (MPL 2.0)": "MPL-2.0",
    "Python Software Foundation License": "PSF-2.0",
    "The Unlicense (Unlicense)": "Unlicense",
}  # the others do not say which version or how many clauses


def installed_packages(suffixes: Sequence[str], only: Sequence[str] = ()) -> list[InputSource]:
    """Those with files that end in one of `suffixes`, by name. Raises ConfigError for one of `only`
    that is not there.
    """
    there: dict[str, Distribution | None] = {STANDARD_LIBRARY: None}
    for distribution in distributions():
        if name := _plain(distribution.metadata["Name"] or ""):
            there.setdefault(name, distribution)  # the first is the one that is imported
    wanted = sorted({_plain(name) for name in only} or there)
    found: list[InputSource] = []
    for name in wanted:
        place = there.get(name)
        source = _standard_library() if name == STANDARD_LIBRARY else (
            place and _source(name, place, suffixes)
        )  # fmt: skip
        if source:
            found.append(source)
        elif only:
            near = difflib.get_close_matches(name, there, 1)
            raise ConfigError(
                f"import.only: {name} is not an installed package with such files",
                hint=f"did you mean {near[0]}?" if near else "pip list names those that are",
            )
    return found


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()


def _standard_library() -> InputSource:
    place = Path(sysconfig.get_paths()["stdlib"]).resolve()
    return InputSource(
        STANDARD_LIBRARY, place, "package", licence="PSF-2.0", url="https://www.python.org/",
        version=platform.python_version(),
    )  # fmt: skip


def _source(name: str, distribution: Distribution, suffixes: Sequence[str]) -> InputSource | None:
    root = Path(str(distribution.locate_file(""))).resolve()
    files = frozenset(
        path
        for path in _files(distribution, root)
        if path.endswith(tuple(suffixes)) and (root / path).is_file()
    )
    if not files:
        return None
    return InputSource(
        name, root, "package", licence=_licence(distribution), url=_url(distribution),
        version=distribution.version, files=files,
    )  # fmt: skip


def _files(distribution: Distribution, root: Path) -> Iterator[str]:
    """Below `root`; of a distribution without a list, all in the modules that it names."""
    listed = distribution.files
    if listed is not None:
        for file in listed:
            path = PurePosixPath(file.as_posix())
            if ".." not in path.parts and not path.is_absolute():
                yield str(path)
        return
    for module in (distribution.read_text("top_level.txt") or "").split():
        if "/" not in module and module not in (".", ".."):
            yield f"{module}.py"
            yield from (str(one.relative_to(root)) for one in (root / module).rglob("*.py"))


def _licence(distribution: Distribution) -> str | None:
    """The licence as an SPDX expression, if the package declares it or a file has its text."""
    said = distribution.metadata["License-Expression"]
    if said and _SPDX.fullmatch(said):
        return str(said)
    for line in distribution.metadata.get_all("Classifier") or ():
        last = line.rpartition(" :: ")[2]
        if line.startswith("License ::") and last in _CLASSIFIERS:
            return _CLASSIFIERS[last]
    texts = []
    for file in distribution.files or ():
        if is_licence_file(file.name) and file.parent.name.endswith((".dist-info", "licenses")):
            path = Path(str(distribution.locate_file(file)))
            if path.is_file() and path.stat().st_size < 1 << 18:
                texts.append(path.read_bytes())
    return licence_of(texts)


def _url(distribution: Distribution) -> str | None:
    pages: dict[str, str] = {}
    for line in distribution.metadata.get_all("Project-URL") or ():
        label, _, page = line.partition(",")
        pages[label.strip().lower()] = page.strip()
    labels = ("source", "source code", "repository", "github", "homepage", "home")
    known = [pages[label] for label in labels if label in pages]
    return known[0] if known else (distribution.metadata["Home-page"] or None)
