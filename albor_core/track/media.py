"""Pictures, histograms, tables, audio, texts and figures of a run.

A call takes a copy of what it is given and returns: nothing of the program's is read later. A
thread writes the file, named by the hash of its contents (run/files/media_file.py), and once the
file is whole and synced the journal gets its line. A medium is acknowledged with that line: some
milliseconds after the call, with `flush`, or at the latest when the run is closed. A `kill -9`
before takes all of it, never half. While the disk is slower than the program, what waits is bounded
(media_writer.py).

Nothing here raises. What cannot be kept - no picture, too large, not finite, no room - is refused:
one line on stderr for each kind of refusal, and a count in the event `track.odd` as of any odd
value. `media_writer.Limits` says what is too large; `max_bytes` of a call overrides it for once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from albor_core.run.files.media_file import INLINE_BYTES, caption_of, fits_line
from albor_core.run.values.metrics import as_text, safe_key
from albor_core.run.values.redact import redact_known
from albor_core.track.encode.medium import Limits, Medium, RefusedError
from albor_core.track.media_writer import Job, writer_of

_MAX_STEP = 1 << 48


def keep(
    run: Any,
    kind: str,
    key: Any,
    value: Any,
    *,
    step: Any = None,
    caption: Any = "",
    max_bytes: int | None = None,
    **options: Any,
) -> None:
    """Keep `value` as a medium of a run; `options`: of its kind, as `MediaMethods` has them."""
    writer = writer_of(run)
    name, at = safe_key(as_text(key)), step_of(run, step)
    try:
        limits = writer.limits.for_call(max_bytes)
        medium = _ENCODERS[kind](value, limits, **options)
        job = Job(at, name, kind, caption_of(as_text(caption)), medium, limits.max_bytes)
        if isinstance(medium.content, bytes):
            _settle(job, medium.content)
        writer.put(job)
    except RefusedError as refused:
        writer.refuse(kind, name, refused)
    except Exception as error:  # of a foreign object, or memory
        writer.refuse(kind, name, RefusedError.unreadable(error))


def _image(value: Any, limits: Limits) -> Medium:
    from albor_core.track.encode.images import image_of  # noqa: PLC0415  most loops show no picture

    return image_of(value, limits)


def _figure(value: Any, limits: Limits) -> Medium:
    from albor_core.track.encode.images import figure_of  # noqa: PLC0415

    return figure_of(value, limits)


def _audio(value: Any, limits: Limits, *, sample_rate: int | None) -> Medium:
    from albor_core.track.encode.audio import audio_of  # noqa: PLC0415

    return audio_of(value, sample_rate, limits)


def _histogram(value: Any, limits: Limits, *, bins: int, edges: Any) -> Medium:
    from albor_core.track.encode.histograms import histogram_of  # noqa: PLC0415

    return histogram_of(value, bins, edges)


def _table(value: Any, limits: Limits, *, columns: Sequence[str] | None) -> Medium:
    from albor_core.track.encode.tables import table_of  # noqa: PLC0415

    return table_of(value, columns, limits)


def _text(value: Any, limits: Limits) -> Medium:
    said = as_text(value)
    if len(said) > limits.max_bytes:
        raise RefusedError.too_large(len(said), limits.max_bytes)
    content = redact_known(said, dict(os.environ)).encode("utf-8", "backslashreplace")
    data = content.decode()
    return Medium("txt", content, {"characters": len(data)}, inline=data)


_ENCODERS: Mapping[str, Callable[..., Medium]] = {
    "image": _image,
    "figure": _figure,
    "audio": _audio,
    "histogram": _histogram,
    "table": _table,
    "text": _text,
}


def flush(run: Any, timeout_s: float = 30.0) -> bool:
    """Wait until all that was kept so far is acknowledged; False where the time did not do."""
    return writer_of(run).flush(timeout_s)


def _settle(job: Job, content: bytes) -> None:
    """Bounded; and what is small enough for a line of the journal without a file."""
    if len(content) > job.most:
        raise RefusedError.too_large(len(content), job.most)
    if job.medium.inline is not None and len(content) <= INLINE_BYTES:
        meta = {**job.medium.meta, "data": job.medium.inline}
        if fits_line(job.key, job.caption, meta):
            job.medium = replace(job.medium, meta=meta)


def step_of(run: Any, step: Any) -> int | None:
    """The step that a medium belongs to: the one given, or the run's last."""
    last: int | None = run.last_step
    if step is None:
        return last
    try:
        whole = int(step)
        if whole == step and 0 <= whole < _MAX_STEP:
            return whole
    except Exception:  # a foreign object
        whole = -1
    run.odd.note("bad_step", step)
    return last
