"""What a run keeps besides numbers: the methods of `Run` that take pictures, sound, tables, files.

A loop that keeps none of them loads nothing for them.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class MediaMethods:
    """Media of a run. None of these methods but `use_artifact` raises: what cannot be kept is
    refused by a line on stderr and counted in the event `track.odd`, and the program goes on.

    A call copies what it is given; a thread writes it (track/media.py says when it is safe). `step`
    is the run's last where none is given. `max_bytes` replaces the limit of ALBOR_MEDIA_MAX_BYTES
    (64 MiB; of an artefact ALBOR_ARTIFACT_MAX_BYTES, 2 GiB) for one call. A run keeps 100,000 media
    of 20 GiB in all (ALBOR_MEDIA_MAX_COUNT, ALBOR_MEDIA_MAX_TOTAL), equal contents once.
    """

    _is_shut: bool

    def _refuse(self, what: str, *, calls: int = 1) -> None:
        raise NotImplementedError

    def image(
        self,
        key: str,
        value: Any,
        *,
        step: int | None = None,
        caption: str = "",
        max_bytes: int | None = None,
    ) -> None:
        """A picture: an array or tensor of HxW, HxWxC or CxHxW (floats of 0 to 1, or 0 to 255), a
        PIL image, or the path or bytes of a PNG, JPEG, GIF, WebP, BMP or SVG, which stay as they
        are. Refused: NaN and Inf, and more pixels than ALBOR_MEDIA_MAX_PIXELS (64 Mi).
        """
        said = {"step": step, "caption": caption, "max_bytes": max_bytes}
        self._keep("image", key, value, **said)

    def figure(
        self,
        key: str,
        value: Any,
        *,
        step: int | None = None,
        caption: str = "",
        max_bytes: int | None = None,
    ) -> None:
        """A figure of matplotlib, or what has one (pyplot, axes, a grid of seaborn): drawn here and
        now as PNG, by the program's own backend.
        """
        said = {"step": step, "caption": caption, "max_bytes": max_bytes}
        self._keep("figure", key, value, **said)

    def audio(
        self,
        key: str,
        value: Any,
        *,
        sample_rate: int | None = None,
        step: int | None = None,
        caption: str = "",
        max_bytes: int | None = None,
    ) -> None:
        """Sound: an array or tensor of samples (n, or n x channels) with its `sample_rate`, floats
        of -1 to 1 or 16-bit integers; or the path or bytes of a WAV, FLAC, Ogg or MP3. Refused: NaN
        and Inf.
        """
        said = {"step": step, "caption": caption, "max_bytes": max_bytes}
        self._keep("audio", key, value, sample_rate=sample_rate, **said)

    def histogram(
        self,
        key: str,
        value: Any,
        *,
        bins: int = 64,
        edges: Any = None,
        step: int | None = None,
        caption: str = "",
        max_bytes: int | None = None,
    ) -> None:
        """How the numbers of an array, tensor or list are spread over `bins` (at most 4,096). With
        `edges` the value has the counts already, one fewer than edges. NaN and Inf are counted,
        and stand in no bin.
        """
        said = {"step": step, "caption": caption, "max_bytes": max_bytes}
        self._keep("histogram", key, value, bins=bins, edges=edges, **said)

    def table(
        self,
        key: str,
        value: Any,
        *,
        columns: Sequence[str] | None = None,
        step: int | None = None,
        caption: str = "",
        max_bytes: int | None = None,
    ) -> None:
        """A table: rows with the names of their `columns`, a list of dicts, a dict of columns, or a
        data frame of pandas, polars or pyarrow; at most 1,000 columns and 1,000,000 rows.
        """
        said = {"step": step, "caption": caption, "max_bytes": max_bytes}
        self._keep("table", key, value, columns=columns, **said)

    def text(
        self,
        key: str,
        value: str,
        *,
        step: int | None = None,
        caption: str = "",
        max_bytes: int | None = None,
    ) -> None:
        """A text of any length. Known secrets in it are not recorded."""
        said = {"step": step, "caption": caption, "max_bytes": max_bytes}
        self._keep("text", key, value, **said)

    def _keep(self, kind: str, key: str, value: Any, **said: Any) -> None:
        if self._is_shut:
            self._refuse(kind, calls=2)
            return
        from albor_core.track import media  # noqa: PLC0415  most loops show nothing

        media.keep(self, kind, key, value, **said)

    def artifact(
        self,
        path: str | os.PathLike[str],
        *,
        name: str | None = None,
        kind: str = "file",
        step: int | None = None,
        copy: bool = False,
        max_bytes: int | None = None,
    ) -> str | None:
        """Record a file or folder that the run made by its path, size, version and BLAKE3, which is
        returned as `blake3:HEX`.

        It is read once, here and now, and stays where it is; with `copy` its contents are kept
        below the run as well, equal ones once. The same contents under the same `name` (by default
        the file's own) are the same version of it, `NAME:v3`, in every run of this home. One that
        cannot be read or is too large is recorded as an event and gives None.
        """
        if self._is_shut:
            self._refuse("artifact")
            return None
        from albor_core.track import artifacts  # noqa: PLC0415

        said: dict[str, Any] = {"name": name, "kind": kind, "step": step}
        return artifacts.artifact(self, path, copy=copy, max_bytes=max_bytes, **said)

    def use_artifact(
        self,
        reference: str,
        *,
        to: str | os.PathLike[str] | None = None,
        step: int | None = None,
    ) -> Path:
        """The path of an artefact of any run of this home: `NAME:v3`, or `NAME` for the newest;
        this run is recorded as one that used it, while it is open.

        A copied file is given as it is kept, not to be written to; a copied folder, and with `to`
        anything, is copied there (a folder without `to` below the run's own). Raises NotFoundError
        where there is none or its file is gone, DataError where what stayed in its place has
        changed since.
        """
        if self._is_shut:
            self._refuse("use_artifact")
        from albor_core.track import artifacts  # noqa: PLC0415

        return artifacts.use_artifact(self, reference, to=to, step=step)

    def _finish_media(self) -> None:
        """Wait for what is on its way; a run that kept no media has no writer."""
        writer = sys.modules.get("albor_core.track.media_writer")
        if writer is not None:
            writer.finish(self)
